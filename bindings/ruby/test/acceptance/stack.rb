# frozen_string_literal: true

require 'ruby-static-tracing'
$stdout.sync = true

class StackOperation
  def call
    1 + 1
  end

  StaticTracing::Tracer::Stack.register(self, :call)
end

StaticTracing.configure do |config|
  config.add_tracer(StaticTracing::Tracer::Stack)
end

def from_here(operation)
  operation.call
end

operation = StackOperation.new
Signal.trap('USR2') { from_here(operation) }

puts 'ready'
loop { sleep 1 }
