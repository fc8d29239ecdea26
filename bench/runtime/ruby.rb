# frozen_string_literal: true

# What tracepoints cost a Ruby program. Prints one line of JSON.
#   ruby.rb           while nobody listens, and to declare them
#   ruby.rb enabled   while somebody does: says `ready PID`, waits for a tracer of bench:event, measures

$LOAD_PATH.unshift File.expand_path('../../bindings/ruby/lib', __dir__)
require 'json'
require 'ruby-static-tracing'
$stdout.sync = true

ROUNDS = 7

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

# The best of some rounds, in ns a call, with what an empty loop takes.
def measured(count)
  Array.new(ROUNDS) do
    started = now
    yield count
    (now - started).fdiv(count)
  end.min
end

def without_loop(count, empty, &block)
  (measured(count, &block) - empty).round(1)
end

class Plain
  def act(value:)
    value
  end
end

class Traced
  def act(value:)
    value
  end
end

def disabled
  event = StaticTracing::Tracepoint.new('bench', 'event', Integer, Integer)
  text = StaticTracing::Tracepoint.new('bench', 'text', String, Integer)
  event.provider.enable
  StaticTracing::Tracer::Latency.register(Traced, :act)
  StaticTracing::Tracers.add(StaticTracing::Tracer::Latency)
  StaticTracing.enable!
  plain = Plain.new
  traced = Traced.new
  n = 500_000
  empty = measured(n) { |count| i = 0; i += 1 while i < count }
  loops = lambda do |&block|
    without_loop(n, empty) { |count| i = 0; (block.call; i += 1) while i < count }
  end
  call = loops.call {}
  {
    'is_enabled_ns' => (loops.call { event.enabled? } - call).round(1),
    'fire_ns' => (loops.call { event.fire(1, 2) } - call).round(1),
    'fire_text_ns' => (loops.call { text.fire('text', 2) } - call).round(1),
    'fire_block_ns' => (loops.call { event.fire { [1, 2] } } - call).round(1),
    'method_ns' => (loops.call { plain.act(value: 1) } - call).round(1),
    'method_with_latency_ns' => (loops.call { traced.act(value: 1) } - call).round(1)
  }
end

def registration
  # Otherwise each tracepoint would be loaded alone.
  StaticTracing.disable!
  [1, 10, 100, 1000].to_h do |count|
    best = Array.new(ROUNDS) do |round|
      provider = StaticTracing::Provider.register("registered_#{count}_#{round}")
      # What came before is not to be paid for here.
      GC.start
      started = now
      count.times { |i| provider.add_tracepoint("probe#{i}", Integer, Integer) }
      provider.enable
      took = now - started
      provider.destroy
      took
    end.min
    [count, (best / 1000.0).round(1)]
  end
end

def enabled
  event = StaticTracing::Tracepoint.new('bench', 'event', Integer, Integer)
  event.provider.enable
  puts "ready #{Process.pid}"
  finish = now + 30_000_000_000
  until event.enabled?
    abort 'no tracer came' if now > finish

    sleep 0.01
  end
  sleep 0.3
  n = 20_000
  { 'enabled_fire_ns' => measured(n) { |count| i = 0; (event.fire(i, 2); i += 1) while i < count }.round(1) }
end

about = { 'language' => 'ruby', 'version' => RUBY_VERSION }
result = ARGV[0] == 'enabled' ? enabled : disabled.merge('registration_us' => registration)
puts JSON.generate(about.merge(result))
