# frozen_string_literal: true

module StaticTracing
  # The tracers that are switched on and off together.
  class Tracers
    class InvalidTracerError < StandardError
      def initialize(message = 'a tracer is a class that inherits from StaticTracing::Tracer::Base')
        super
      end
    end

    class << self
      def add(tracer)
        raise InvalidTracerError unless tracer.is_a?(Class) && tracer < Tracer::Base

        Lock.hold { tracers << tracer unless tracers.include?(tracer) }
        tracer.enable! if StaticTracing.enabled?
        tracers
      end

      def enable!
        tracers.dup.each(&:enable!)
      end

      def disable!
        tracers.dup.each(&:disable!)
      end

      # Switches all of them off and forgets them.
      def clean
        disable!
        @tracers = []
      end

      private

      def tracers
        @tracers ||= []
      end
    end
  end
end
