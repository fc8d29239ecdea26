# frozen_string_literal: true

module StaticTracing
  module Tracer
    module Concerns
      # Included below the methods of a class, has all the public ones above traced by Tracer::Stack.
      module Stack
        def self.included(base)
          Tracer::Stack.register(base, base.public_instance_methods(false))
        end
      end
    end
  end
end
