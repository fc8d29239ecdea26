# frozen_string_literal: true

module StaticTracing
  module Tracer
    # Fires the name of a method and how long the call took, when it is over, be it by an exception.
    class Latency < Base
      set_tracepoint_data_types(method: String, duration_ns: Integer)

      class << self
        def wrapper(tracepoint, method)
          name = method.to_s.freeze
          lambda do |*args, &block|
            next super(*args, &block) unless tracepoint.enabled?

            started = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
            begin
              super(*args, &block)
            ensure
              duration = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - started
              tracepoint.fire(name, duration)
            end
          end
        end

        # The same for any code, which runs in any case:
        #
        #   rows = StaticTracing::Tracer::Latency.measure('shop', 'checkout') { pay(cart) }
        def measure(provider, name)
          types, named_types = data_types
          tracepoint = StaticTracing.tracepoint(provider, name, *types, **named_types)
          return yield unless tracepoint.enabled?

          started = StaticTracing.nsec
          begin
            yield
          ensure
            tracepoint.fire(name.to_s, StaticTracing.nsec - started)
          end
        end
      end
    end
  end
end
