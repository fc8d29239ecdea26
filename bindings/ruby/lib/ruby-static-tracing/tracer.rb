# frozen_string_literal: true

require_relative 'tracer/base'
require_relative 'tracer/latency'
require_relative 'tracer/stack'
require_relative 'tracer/argument'
require_relative 'tracer/concerns/latency_tracer'
require_relative 'tracer/concerns/stack_tracer'
require_relative 'tracer/concerns/argument_tracer'
