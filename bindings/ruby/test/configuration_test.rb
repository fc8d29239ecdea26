# frozen_string_literal: true

require_relative 'helper'

class ConfigurationTest < TestCase
  Modes = StaticTracing::Configuration::Modes

  def setup
    @config = StaticTracing::Configuration.instance
  end

  def teardown
    @config.mode = Modes::SIGNAL
    @config.signal = Modes::SIGNALS::SIGPROF
    super
  end

  def test_signal_mode_and_PROF_are_the_default
    assert_equal [Modes::SIGNAL, 'PROF'], [@config.mode, @config.signal]
    StaticTracing.configure { |config| assert_same @config, config }
  end

  def test_on_and_off
    @config.mode = Modes::ON
    assert StaticTracing.enabled?
    @config.mode = Modes::OFF
    refute StaticTracing.enabled?
    error = assert_raises(ArgumentError) { @config.mode = 'SOMETIMES' }
    assert_match 'ON, OFF, SIGNAL', error.message
    assert_equal Modes::OFF, @config.mode
  end

  def test_each_signal_switches_over
    @config.signal = 'USR1'
    6.times do |i|
      send_and_wait('USR1') { StaticTracing.enabled? == i.even? }
      assert_equal i.even?, StaticTracing.enabled?
    end
  end

  def test_the_programs_own_handler_comes_back
    came = 0
    before = trap('USR2') { came += 1 }
    @config.signal = 'USR2'
    send_and_wait('USR2') { StaticTracing.enabled? }
    assert_equal 0, came
    @config.mode = Modes::OFF
    send_and_wait('USR2') { came == 1 }
    assert_equal 1, came
    refute StaticTracing.enabled?
  ensure
    trap('USR2', before || 'DEFAULT')
  end

  class Busy
    def act(value:)
      value
    end
  end

  # Signals come at any moment, while threads call, register and fire.
  def test_switching_in_the_middle_of_everything
    @config.signal = 'USR1'
    StaticTracing::Tracer::Latency.register(Busy, :act, provider: 'busy')
    @config.add_tracer(StaticTracing::Tracer::Latency)
    stop = false
    threads = Array.new(4) do |n|
      Thread.new do
        rounds = 0
        until stop
          rounds += 1
          raise 'wrong result' unless Busy.new.act(value: rounds) == rounds

          StaticTracing::Provider.register("busy#{n}").add_tracepoint("event#{rounds % 5}", Integer).fire(rounds)
          Thread.pass
        end
        rounds
      end
    end
    200.times do
      Process.kill('USR1', Process.pid)
      StaticTracing::Provider.register('busy_main').add_tracepoint('event', Integer).fire(1)
      sleep 0.001
    end
    stop = true
    threads.each { |thread| assert_operator thread.value, :>, 0 }
  end

  private

  def send_and_wait(signal)
    Process.kill(signal, Process.pid)
    200.times do
      return if yield

      sleep 0.01
    end
  end
end
