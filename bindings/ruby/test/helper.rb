# frozen_string_literal: true

# What the tests share. They need the native library and no tracer: where somebody must listen, the test raises the
# semaphore itself and looks at what is about to be fired.

$LOAD_PATH.unshift File.expand_path('../lib', __dir__)
require 'minitest/autorun'
require 'open3'
require 'rbconfig'
require 'ruby-static-tracing'

module Listening
  # What was fired by tracepoints while a test listened: pairs of a name and values.
  def self.heard
    @heard ||= []
  end

  module Recorder
    def emit(values)
      Listening.heard << ["#{provider_name}:#{name}", values]
      super
    end
  end
  StaticTracing::Tracepoint.prepend(Recorder)

  # Raises the semaphores of tracepoints, as a tracer does, and gives what they fired meanwhile.
  def listening_to(*tracepoints)
    Listening.heard.clear
    counters = tracepoints.map do |tracepoint|
      tracepoint.provider.enable
      counter(tracepoint)
    end
    counters.each { |counter| counter[0] += 1 }
    yield
    Listening.heard.dup
  ensure
    counters&.each { |counter| counter[0] -= 1 }
  end

  # The semaphore of a loaded tracepoint.
  def counter(tracepoint)
    StaticTracing::Native.probe_semaphore(tracepoint.instance_variable_get(:@handle))
  end

  def tracepoint(provider, name)
    StaticTracing::Tracepoint.fetch(provider, name)
  end
end

module Programs
  LIB = File.expand_path('../lib', __dir__)

  # Runs Ruby code in a process of its own: what it printed, its errors, its status.
  def ruby(code, environment = {})
    Open3.capture3(environment, RbConfig.ruby, '-W', "-I#{LIB}", '-e', code)
  end
end

class TestCase < Minitest::Test
  include Listening
  include Programs

  def teardown
    StaticTracing.disable!
    StaticTracing::Tracers.clean
    [StaticTracing::Tracer::Latency, StaticTracing::Tracer::Stack, StaticTracing::Tracer::Argument].each(&:disable!)
  end
end
