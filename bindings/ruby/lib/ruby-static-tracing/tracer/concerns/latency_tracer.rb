# frozen_string_literal: true

module StaticTracing
  module Tracer
    module Concerns
      # Included below the methods of a class, has all the public ones above traced by Tracer::Latency.
      module Latency
        def self.included(base)
          Tracer::Latency.register(base, base.public_instance_methods(false))
        end
      end
    end
  end
end
