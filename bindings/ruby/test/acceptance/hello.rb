# frozen_string_literal: true

require 'ruby-static-tracing'
$stdout.sync = true

tracepoint = StaticTracing::Tracepoint.new('global', 'hello_test', String)
puts tracepoint.provider.enable

Signal.trap('USR2') { tracepoint.fire('Hello world') if tracepoint.enabled? }

puts 'ready'
loop { sleep 1 }
