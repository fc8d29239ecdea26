# frozen_string_literal: true

# rackup examples/rack/config.ru, then:
#   nopal trace -p PID 'rack:*'
$LOAD_PATH.unshift File.expand_path('../../lib', __dir__)
require_relative 'request_tracing'

use RequestTracing
run ->(env) { [200, { 'content-type' => 'text/plain' }, ["hello from #{env['PATH_INFO']}\n"]] }
