# frozen_string_literal: true

module StaticTracing
  module Tracer
    # Fires the name of a method and the arguments of the call, as one would write them, before the call.
    class Argument < Base
      # Longer texts are cut.
      LIMIT_BYTES = 1000

      set_tracepoint_data_types(method: String, arguments: String)

      class << self
        def wrapper(tracepoint, method)
          name = method.to_s.freeze
          lambda do |*args, &block|
            tracepoint.fire(name, Argument.describe(args)) if tracepoint.enabled?
            super(*args, &block)
          end
        end

        # A program must not fail because something in it cannot be shown.
        def describe(args)
          *rest, last = args
          words = rest.map(&:inspect)
          if last.is_a?(Hash) && Hash.ruby2_keywords_hash?(last)
            words.concat(last.map { |key, value| key.is_a?(Symbol) ? "#{key}: #{value.inspect}" : "#{key.inspect} => #{value.inspect}" })
          elsif !args.empty?
            words << last.inspect
          end
          words.join(', ').byteslice(0, LIMIT_BYTES).scrub('')
        rescue StandardError => e
          "(not shown: #{e.class})"
        end
      end
    end
  end
end
