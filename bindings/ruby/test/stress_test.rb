# frozen_string_literal: true

require_relative 'helper'

class StressTest < TestCase
  def test_a_thousand_probes
    provider = StaticTracing::Provider.register('thousand')
    probes = Array.new(1000) { |i| provider.add_tracepoint("probe#{i}", Integer, String) }
    provider.enable
    fired = listening_to(*probes) { probes.each_with_index { |probe, i| assert probe.fire(i, i.to_s) } }
    assert_equal 1000, fired.size
    provider.disable
    refute(probes.any?(&:enabled?))
  end

  def test_the_collector_at_every_step
    made = StaticTracing::Tracepoint.new('collected', 'event', String, Integer, Float, :bytes)
    fired = listening_to(made) do
      GC.stress = true
      5.times { |i| assert made.fire("text #{i}" * 30, i, i / 2.0, "b\0#{i}") }
      provider = StaticTracing::Provider.register('collected_too')
      other = provider.add_tracepoint('event', Integer)
      provider.enable
      refute other.enabled?
      provider.destroy
      GC.stress = false
    end
    assert_equal 5, fired.size
    assert_equal ['text 4' * 30, 4, 2.0, "b\0004"], fired.last[1]
  ensure
    GC.stress = false
  end

  def test_compaction_does_not_move_the_counter_away
    skip 'this Ruby cannot compact' unless GC.respond_to?(:compact)
    made = StaticTracing::Tracepoint.new('compacted', 'event', Integer)
    made.provider.enable
    begin
      GC.compact
    rescue NotImplementedError
      skip 'this system cannot compact'
    end
    refute made.enabled?
    assert_equal [['compacted:event', [1]]], listening_to(made) { assert made.fire(1) }
    refute made.enabled?
  end

  def test_threads
    made = StaticTracing::Tracepoint.new('threads', 'event', Integer, String)
    fired = listening_to(made) do
      Array.new(8) { |n| Thread.new { 500.times { |i| made.fire(i, "thread #{n}") } } }.each(&:join)
    end
    assert_equal 4000, fired.size
    assert_equal 8, fired.map { |_, values| values[1] }.uniq.size
  end

  def test_threads_that_fire_while_another_destroys
    100.times do |round|
      provider = StaticTracing::Provider.register("destroyed#{round}")
      made = provider.add_tracepoint('event', Integer, String)
      provider.enable
      counter(made)[0] = 1
      threads = Array.new(3) { Thread.new { 20.times { |i| made.fire(i, 'text') } } }
      provider.destroy
      GC.start if (round % 20).zero?
      threads.each(&:join)
    end
  end

  def test_a_forked_child_has_the_probes_and_a_life_of_its_own
    made = StaticTracing::Tracepoint.new('forked', 'event', Integer)
    made.provider.enable
    listening_to(made) do
      reader, writer = IO.pipe
      child = fork do
        results = [made.enabled?, made.fire(1), made.provider.path.include?("/#{Process.pid}/")]
        late = StaticTracing::Tracepoint.new('forked', 'late', String)
        results << late.enabled? << made.provider.disable << made.fire(2) << made.provider.enable
        made.provider.destroy
        writer.write(results.inspect)
        writer.close
        exit!(0)
      end
      writer.close
      assert_equal '[true, true, true, false, true, false, true]', reader.read
      assert_equal 0, Process.wait2(child)[1].exitstatus
      assert made.enabled?
      assert made.fire(3)
    end
  end

  def test_nothing_is_kept_of_what_was_fired
    made = StaticTracing::Tracepoint.new('kept', 'event', String, Integer)
    Listening.heard.clear
    listening_to(made) do
      resident = lambda do
        GC.start
        File.read('/proc/self/statm').split[1].to_i * 4
      end
      fire = lambda do |count|
        count.times { |i| made.fire('x' * 1000, i) }
        Listening.heard.clear
      end
      fire.call(20_000)
      before = resident.call
      fire.call(20_000)
      # Keeping the texts would take 20 MB.
      assert_operator resident.call - before, :<, 8_000
    end
  end
end
