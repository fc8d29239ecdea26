# frozen_string_literal: true

# Static tracing for Ruby: what a program asks for as a whole. Providers, tracepoints and tracers are in files of their own.
module StaticTracing
  BaseError = Class.new(StandardError)
  # The native library failed; the message is its own.
  USDTError = Class.new(BaseError)
  InternalError = Class.new(BaseError)
end

require 'logger'

require 'ruby-static-tracing/version'
require 'ruby-static-tracing/platform'
require 'ruby-static-tracing/lock'
require 'ruby-static-tracing/library'
require 'ruby-static-tracing/native'
require 'ruby-static-tracing/semaphore'
require 'ruby-static-tracing/argument_type'
require 'ruby-static-tracing/signature'
require 'ruby-static-tracing/provider'
require 'ruby-static-tracing/tracepoint'
require 'ruby-static-tracing/configuration'
require 'ruby-static-tracing/tracer'
require 'ruby-static-tracing/tracers'

module StaticTracing
  extend self

  attr_accessor :logger

  self.logger = Logger.new($stderr)

  # Says once that probes do nothing here, and why.
  def issue_disabled_tracepoints_warning(reason = "not supported on #{RUBY_PLATFORM}")
    return if @warning_issued

    @warning_issued = true
    logger.info("static tracing does nothing: #{reason}")
  end

  # The monotonic clock, in nanoseconds.
  def nsec
    Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  end

  # Whether tracers and providers were switched on. Whether anybody listens is what Tracepoint#enabled? says.
  def enabled?
    @enabled ? true : false
  end

  # Puts the wrappers of all tracers in place and loads all providers. What is declared later is on from the start.
  def enable!
    @enabled = true
    Tracers.enable!
    Provider.enable!
    true
  end

  # Takes the wrappers away and unloads all providers.
  def disable!
    @enabled = false
    Tracers.disable!
    Provider.disable!
    true
  end

  def toggle_tracing!
    enabled? ? disable! : enable!
  end

  # Yields the configuration:
  #
  #   StaticTracing.configure do |config|
  #     config.mode = StaticTracing::Configuration::Modes::ON
  #     config.add_tracer(StaticTracing::Tracer::Latency)
  #   end
  def configure
    yield Configuration.instance
  end

  # The providers by name.
  def providers
    Provider.all
  end

  # A tracepoint in one place: declared when first met, its provider loaded, and fired with what the block gives. The
  # block runs only while somebody listens.
  #
  #   StaticTracing.tracepoint('shop', 'sale', Integer, String) { [order.id, order.describe] }
  def tracepoint(provider, name, *types, **named_types, &block)
    found = Tracepoint.find(provider, name)
    unless found
      found = Tracepoint.new(provider, name, *types, **named_types)
      found.provider.enable
    end
    block ? found.fire(&block) : found
  end
end
