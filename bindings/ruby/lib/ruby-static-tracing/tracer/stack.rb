# frozen_string_literal: true

module StaticTracing
  module Tracer
    # Fires the name of a method and its callers, one to a line, before the call.
    class Stack < Base
      set_tracepoint_data_types(method: String, stack: String)

      def self.wrapper(tracepoint, method)
        name = method.to_s.freeze
        lambda do |*args, &block|
          tracepoint.fire(name, caller.join("\n")) if tracepoint.enabled?
          super(*args, &block)
        end
      end
    end
  end
end
