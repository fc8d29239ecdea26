# frozen_string_literal: true

require_relative 'helper'

class TracerTest < TestCase
  Tracer = StaticTracing::Tracer

  class Order
    attr_writer :state

    def initialize(total = 0)
      @total = total
    end

    def positional(first, second = 2, *rest)
      [first, second, rest]
    end

    def keywords(first, *rest, key:, other: 5, **more)
      [first, rest, key, other, more]
    end

    def options(hash)
      hash
    end

    def block
      yield @total
    end

    def fails
      raise IOError, 'on purpose'
    end

    def empty?
      true
    end

    def [](index)
      index
    end

    def uses_hidden
      hidden + shielded
    end

    def self.build(total:)
      new(total)
    end

    private

    def hidden
      1
    end

    protected

    def shielded
      2
    end
  end

  class SpecialOrder < Order; end

  TRACERS = [Tracer::Latency, Tracer::Stack, Tracer::Argument].freeze

  # What a call gives is the same untraced, wrapped, and traced.
  def test_methods_work_as_before
    calls = {
      positional: ->(o) { o.positional(1, 3, 4) },
      keywords: ->(o) { o.keywords(1, 2, key: 3, extra: 4) },
      options: ->(o) { [o.options({ a: 1 }), o.options(a: 1)] },
      block: ->(o) { o.block { |total| total + 1 } },
      empty?: ->(o) { o.empty? },
      '[]': ->(o) { o[7] },
      'state=': ->(o) { o.state = 'sold' },
      uses_hidden: ->(o) { o.uses_hidden }
    }
    TRACERS.each do |tracer|
      [Order, SpecialOrder].each do |klass|
        tracer.register(Order, *calls.keys, :hidden, :shielded)
        calls.each do |name, call|
          expected = call.call(klass.new(41))
          tracer.enable!
          assert_equal expected, call.call(klass.new(41)), "#{tracer} #{name}"
          probes = tracepoints_of(tracer)
          fired = listening_to(*probes) { assert_equal expected, call.call(klass.new(41)), "#{tracer} #{name}" }
          assert_includes fired.map { |_, values| values[0] }, name.to_s, tracer.name
          tracer.disable!
        end
      end
    end
  end

  def test_visibility_stays
    Tracer::Latency.register(Order, :hidden, :shielded, :empty?)
    Tracer::Latency.enable!
    assert_raises(NoMethodError) { Order.new.hidden }
    assert_raises(NoMethodError) { Order.new.shielded }
    assert_equal 3, Order.new.uses_hidden
    assert Order.private_method_defined?(:hidden)
    assert Order.protected_method_defined?(:shielded)
  end

  def test_nothing_is_left_between_a_call_and_the_method
    Tracer::Latency.register(Order, :positional)
    original = Order.instance_method(:positional).source_location
    3.times do
      Tracer::Latency.enable!
      refute_equal Order, Order.instance_method(:positional).owner
      Tracer::Latency.disable!
      assert_equal Order, Order.instance_method(:positional).owner
      assert_equal original, Order.instance_method(:positional).source_location
    end
    assert_equal 1, Order.ancestors.count { |a| a.is_a?(Tracer::Overrides) && a.inspect.include?('Order') && mine?(a) }
  end

  def test_latency_fires_after_the_call_and_after_exceptions
    Tracer::Latency.register(Order, :block, :fails)
    Tracer::Latency.enable!
    order = []
    fired = listening_to(tracepoint('tracer_test_order', 'block'), tracepoint('tracer_test_order', 'fails')) do
      Order.new.block { order << Listening.heard.size }
      error = assert_raises(IOError) { Order.new.fails }
      assert_equal 'on purpose', error.message
    end
    assert_equal [0], order
    assert_equal(%w[block fails], fired.map { |_, values| values[0] })
    fired.each { |_, values| assert_includes 1..10**9, values[1] }
  end

  def test_stack_is_that_of_the_caller
    Tracer::Stack.register(SpecialOrder, :empty?, provider: 'stacks')
    Tracer::Stack.enable!
    line = __LINE__ + 1
    fired = listening_to(tracepoint('stacks', 'empty_p')) { SpecialOrder.new.empty? }
    assert_equal 'empty?', fired[0][1][0]
    assert_match(/\A#{Regexp.escape(__FILE__)}:#{line}:in /, fired[0][1][1].lines.first)
    refute_match 'ruby-static-tracing/tracer', fired[0][1][1]
  end

  def test_arguments_as_one_would_write_them
    odd = Class.new { define_method(:inspect) { raise('never') } }.new
    [
      [->(o) { o.positional(1, 'two', nil) }, 'positional', '1, "two", nil'],
      [->(o) { o.keywords(1, key: :k, other: [2]) }, 'keywords', '1, key: :k, other: [2]'],
      [->(o) { o.options({ 'a' => 1 }) }, 'options', { 'a' => 1 }.inspect],
      [->(o) { o.empty? }, 'empty_p', ''],
      [->(o) { o.options(odd) }, 'options', '(not shown: RuntimeError)'],
      [->(o) { o.options('ü' * 2000) }, 'options', "\"#{'ü' * 499}"]
    ].each do |call, probe, expected|
      Tracer::Argument.register(Order, :positional, :keywords, :options, :empty?, provider: 'arguments')
      Tracer::Argument.enable!
      fired = listening_to(tracepoint('arguments', probe)) { call.call(Order.new) }
      assert_equal expected, fired[0][1][1].dup.force_encoding('UTF-8')
    end
  end

  def test_two_tracers_on_one_method
    klass = Class.new { define_method(:act) { :done } }
    Tracer::Latency.register(klass, :act, provider: 'both')
    Tracer::Stack.register(klass, :act, provider: 'both')
    Tracer::Latency.enable!
    Tracer::Stack.enable!
    fired = listening_to(tracepoint('both', 'act'), tracepoint('both', 'act__stack')) { assert_equal :done, klass.new.act }
    assert_equal(%w[both:act__stack both:act], fired.map(&:first))
  end

  def test_provider_may_be_named_or_given
    given = StaticTracing::Provider.register('given')
    Tracer::Latency.register(Order, :empty?, provider: 'named')
    Tracer::Latency.register(Order, :fails, provider: given)
    assert tracepoint('named', 'empty_p')
    assert tracepoint('given', 'fails')
    error = assert_raises(ArgumentError) { Tracer::Latency.register(Class.new, :to_s) }
    assert_match 'provider:', error.message
  end

  def test_class_methods
    Tracer::Latency.register(Order.singleton_class, :build)
    Tracer::Latency.enable!
    fired = listening_to(tracepoint('tracer_test_order', 'build')) { assert_instance_of Order, Order.build(total: 1) }
    assert_equal 'build', fired[0][1][0]
  end

  def test_a_method_that_is_not_there_stays_so
    Tracer::Latency.register(Order, :missing)
    Tracer::Latency.enable!
    refute_respond_to Order.new, :missing
  end

  class Whole
    def one
      1
    end
    def two!
      2
    end

    private

    def three
      3
    end
  end

  def test_a_whole_class
    Tracer::Latency.register(Whole)
    assert_equal %w[one two_bang], StaticTracing::Provider.fetch('tracer_test_whole').tracepoints.keys.sort
  end

  module Library
    VERSION = '1'
    autoload :Later, '/nowhere/later'

    def self.open(path:)
      path
    end

    class Reader
      def read(count)
        'x' * count
      end

      class Error < StandardError; end
    end

    module Tools
      def self.clean
        :cleaned
      end
    end
    Elsewhere = ::Comparable
  end

  def test_a_whole_library
    Tracer::Latency.register_library(Library)
    Tracer::Latency.enable!
    names = StaticTracing.providers.keys.select { |name| name.start_with?('tracer_test_library') }
    assert_equal %w[tracer_test_library tracer_test_library_reader tracer_test_library_tools], names.sort
    probes = names.flat_map { |name| StaticTracing::Provider.fetch(name).tracepoints.values }
    fired = listening_to(*probes) do
      assert_equal ['/', 'xxx', :cleaned], [Library.open(path: '/'), Library::Reader.new.read(3), Library::Tools.clean]
    end
    assert_equal(%w[open read clean], fired.map { |_, values| values[0] })
  end

  def test_latency_of_a_block_of_code
    measure = -> { Tracer::Latency.measure('blocks', 'work') { :result } }
    assert_equal :result, measure.call
    fired = listening_to(tracepoint('blocks', 'work')) do
      assert_equal :result, measure.call
      assert_raises(IOError) { Tracer::Latency.measure('blocks', 'work') { raise IOError } }
    end
    assert_equal(%w[work work], fired.map { |_, values| values[0] })
  end

  class Included
    def before; end
    include StaticTracing::Tracer::Concerns::Latency
    def after; end
  end

  class IncludedMore
    def act; end
    include StaticTracing::Tracer::Concerns::Stack
    include StaticTracing::Tracer::Concerns::Argument
  end

  def test_concerns
    assert_equal ['before'], StaticTracing::Provider.fetch('tracer_test_included').tracepoints.keys
    assert_equal ['act'], StaticTracing::Provider.fetch('tracer_test_included_more').tracepoints.keys
  end

  # As people have written them for ruby-static-tracing.
  class Custom < Tracer::Base
    set_wrapping_function lambda { |*args, &block|
      result = super(*args, &block)
      StaticTracing::Tracepoint.fetch('custom', __method__).fire(__method__.to_s, result.to_s)
      result
    }
    set_tracepoint_data_types(String, String)
  end

  def test_a_tracer_of_ones_own
    Custom.register(Order, :keywords, provider: 'custom')
    Custom.enable!
    fired = listening_to(tracepoint('custom', 'keywords')) { Order.new.keywords(1, key: 2) }
    assert_equal ['keywords', '[1, [], 2, 5, {}]'], fired[0][1]
  ensure
    Custom.disable!
  end

  def test_a_tracer_is_told_from_something_else
    [String, 'Latency', Tracer::Base, nil].each do |other|
      assert_raises(StaticTracing::Tracers::InvalidTracerError) { StaticTracing::Tracers.add(other) }
    end
  end

  def test_tracers_are_switched_together_and_late_ones_at_once
    StaticTracing::Tracers.add(Tracer::Latency)
    StaticTracing::Tracers.add(Tracer::Latency)
    StaticTracing.enable!
    assert Tracer::Latency.enabled?
    late = Class.new { define_method(:act) { 1 } }
    Tracer::Latency.register(late, :act, provider: 'late_class')
    refute_equal late, late.instance_method(:act).owner
    assert StaticTracing::Provider.fetch('late_class').enabled?
    StaticTracing.disable!
    assert_equal late, late.instance_method(:act).owner
    StaticTracing::Tracers.clean
    StaticTracing.enable!
    assert_equal late, late.instance_method(:act).owner
  end

  def test_names_of_probes
    {
      'save!' => 'save_bang', 'empty?' => 'empty_p', 'name=' => 'set_name', '[]' => 'at', '<=>' => 'compare',
      'plain_1' => 'plain_1', 'odd name' => 'odd_20name', 'é' => '_c3_a9'
    }.each { |method, probe| assert_equal probe, Tracer::Helpers.probe_name(method) }
    { 'Shop::CartItem' => 'shop_cart_item', 'HTTPServer' => 'http_server', 'A' => 'a' }.each do |klass, provider|
      assert_equal provider, Tracer::Helpers.underscore(klass)
    end
  end

  private

  # The tracepoints of Order that this tracer's own wrappers fire.
  def tracepoints_of(tracer)
    types = tracer.data_types[1].values
    all = StaticTracing.providers['tracer_test_order'].tracepoints.values.select { |t| t.args == types }
    tracer == Tracer::Argument || tracer == Tracer::Stack ? all : all.reject { |t| t.name.include?('__') }
  end

  def mine?(overrides)
    overrides.instance_variable_get(:@wrappers).key?(:positional) &&
      Tracer::Latency.send(:modified_classes)[Order].equal?(overrides)
  end
end
