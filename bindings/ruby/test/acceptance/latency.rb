# frozen_string_literal: true

require 'ruby-static-tracing'
$stdout.sync = true

class ExpensiveOperation
  def execute(size:)
    ([] << 1) * size
  end

  StaticTracing::Tracer::Latency.register(self, :execute)
end

StaticTracing.configure do |config|
  config.add_tracer(StaticTracing::Tracer::Latency)
end

operation = ExpensiveOperation.new
Signal.trap('USR2') { operation.execute(size: 100_000) }

puts 'ready'
loop { sleep 1 }
