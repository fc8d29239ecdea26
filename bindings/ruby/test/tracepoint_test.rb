# frozen_string_literal: true

require_relative 'helper'

class TracepointTest < TestCase
  Tracepoint = StaticTracing::Tracepoint

  def test_declaring_makes_the_provider
    made = Tracepoint.new('test', 'my_method', Integer, String)
    assert_equal 'test', made.provider.namespace
    assert_equal 'test', made.provider_name
    assert_equal [Integer, String], made.args
    assert_same made, Tracepoint.fetch('test', :my_method)
    assert_same made, Tracepoint.new('test', 'my_method', Integer, String)
    assert_raises(Tracepoint::TracepointMissingError) { Tracepoint.fetch('test', 'noop') }
    assert_raises(StaticTracing::Provider::ProviderMissingError) { Tracepoint.fetch('nowhere', 'noop') }
  end

  def test_types_that_are_none
    [[Array], [Integer, nil], [:int128], ['String'], [Integer, Symbol]].each do |types|
      error = assert_raises(Tracepoint::InvalidArgType, types.inspect) { Tracepoint.new('test', 'odd', *types) }
      assert_match 'test:odd', error.message
    end
  end

  def test_twelve_arguments_and_no_more
    assert_equal 12, Tracepoint.new('test', 'twelve', *[Integer] * 12).args.size
    assert Tracepoint.new('test', 'six_bytes', *[:bytes] * 6)
    [[Integer] * 13, [:bytes] * 7, [String] * 100].each do |types|
      assert_raises(Tracepoint::InvalidArgType) { Tracepoint.new('test', 'many', *types) }
    end
    twelve = tracepoint('test', 'twelve')
    fired = listening_to(twelve) { assert twelve.fire(*1..12) }
    assert_equal [['test:twelve', (1..12).to_a]], fired
  end

  def test_the_same_name_with_other_types_is_refused
    Tracepoint.new('test', 'taken', Integer)
    error = assert_raises(Tracepoint::InvalidArgType) { Tracepoint.new('test', 'taken', String) }
    assert_match 'already declared', error.message
  end

  # Type, values that fit, values that do not.
  VALUES = [
    [Integer, [0, -1, 2**63 - 1, -2**63], [2**63, -2**63 - 1, 1.0, '1', nil]],
    [String, ['', 'text', "a\0b", "\xff".b, 'ü'.encode('UTF-16LE')], [1, nil, :symbol]],
    [Float, [0.5, -1e300, Float::NAN, Float::INFINITY, 3], ['0.5', nil]],
    [:int8, [-128, 127], [-129, 128]],
    [:uint8, [0, 255], [-1, 256]],
    [:int16, [-2**15, 2**15 - 1], [2**15]],
    [:uint16, [2**16 - 1], [2**16, -1]],
    [:int32, [-2**31, 2**31 - 1], [2**31]],
    [:uint32, [2**32 - 1], [2**32, -1]],
    [:int64, [-2**63], [2**63]],
    [:uint64, [2**64 - 1], [2**64, -1]],
    [:float, [1.5], ['1.5']],
    [:double, [1.5], [nil]],
    [:string, ['text'], [1]],
    [:bytes, ["\0\1\2", ''], [1, nil]]
  ].freeze

  def test_values_are_checked_whether_or_not_somebody_listens
    VALUES.each do |type, good, bad|
      made = Tracepoint.new('values', "of_#{type.to_s.downcase}_#{type.class}", type)
      check = lambda do |fires|
        good.each { |value| assert_equal fires, made.fire(value), "#{type} #{value.inspect}" }
        bad.each do |value|
          assert_raises(Tracepoint::InvalidArgumentError, "#{type} #{value.inspect}") { made.fire(value) }
        end
      end
      check.call(false)
      listening_to(made) { check.call(true) }
    end
  end

  def test_the_number_of_values_is_checked
    made = Tracepoint.new('test', 'two', Integer, String)
    [[], [1], [1, 'a', 2], ['a', 1]].each do |values|
      assert_raises(Tracepoint::InvalidArgumentError, values.inspect) { made.fire(*values) }
    end
    assert_equal false, made.fire(1, 'a')
  end

  def test_without_arguments
    made = Tracepoint.new('test', 'bare')
    fired = listening_to(made) { assert made.fire }
    assert_equal [['test:bare', []]], fired
  end

  def test_a_block_runs_only_when_somebody_listens
    made = Tracepoint.new('test', 'lazy', Integer, String)
    ran = 0
    block = lambda do
      ran += 1
      [ran, 'costly']
    end
    assert_equal false, made.fire(&block)
    assert_equal 0, ran
    fired = listening_to(made) { assert_equal true, made.fire(&block) }
    assert_equal [['test:lazy', [1, 'costly']]], fired
    made.fire(&block)
    assert_equal 1, ran
    one = Tracepoint.new('test', 'lazy_one', Integer)
    assert_equal [['test:lazy_one', [7]]], listening_to(one) { one.fire { 7 } }
    listening_to(one) { assert_raises(Tracepoint::InvalidArgumentError) { one.fire { 'seven' } } }
  end

  def test_a_tracepoint_in_one_place
    ran = 0
    place = -> { StaticTracing.tracepoint('inline', 'here', Integer, String) { [ran += 1, 'x'] } }
    assert_equal false, place.call
    made = tracepoint('inline', 'here')
    assert made.provider.enabled?
    assert_equal [['inline:here', [1, 'x']]], listening_to(made) { assert place.call }
    assert_same made, StaticTracing.tracepoint('inline', 'here')
  end

  def test_firing_before_load_and_after_unload_does_nothing
    made = Tracepoint.new('test', 'unloaded', Integer)
    assert_equal false, made.fire(1)
    made.provider.enable
    counter(made)[0] = 1
    assert made.enabled?
    assert made.fire(1)
    made.provider.disable
    refute made.enabled?
    assert_equal false, made.fire(1)
    # Who listened has to come again.
    made.provider.enable
    assert_equal false, made.fire(1)
    assert_equal [['test:unloaded', [2]]], listening_to(made) { assert made.fire(2) }
  end

  def test_every_value_of_the_counter_counts
    made = Tracepoint.new('test', 'counter', Integer)
    made.provider.enable
    counter = counter(made)
    [[0, 0, false], [1, 0, true], [0, 1, true], [255, 255, true], [0, 0, false]].each do |low, high, expected|
      counter[0, 2] = [low, high].pack('CC')
      assert_equal expected, made.enabled?, [low, high].inspect
    end
  end

  def test_the_counter_through_a_pointer
    memory = Fiddle::Pointer.malloc(2, Fiddle::RUBY_FREE)
    memory[0, 2] = "\0\0"
    counter = StaticTracing::Semaphore::ByPointer.new(memory.to_i)
    assert counter == StaticTracing::Semaphore::ZERO
    memory[1] = 1
    assert counter != StaticTracing::Semaphore::ZERO
    assert_instance_of String, StaticTracing::Semaphore.at([memory.to_i])[0]
  end
end
