# frozen_string_literal: true

module StaticTracing
  module Tracer
    # The wrappers of one class: a module that is prepended to it. Ruby cannot take such a module out again, so to
    # withdraw is to empty it; an empty one costs no call anything.
    class Overrides < Module
      def initialize(klass)
        super()
        @klass = klass
        @wrappers = {}
      end

      def add(method, wrapper)
        @wrappers[method.to_sym] = wrapper
      end

      def apply
        @wrappers.dup.each do |method, wrapper|
          next if own?(method)

          visibility = visibility_in_class(method)
          override(method, wrapper, visibility) if visibility
        end
        @klass.prepend(self) unless @klass.ancestors.include?(self)
      end

      def withdraw
        @wrappers.each_key { |method| remove_method(method) if own?(method) }
      end

      def inspect
        "#<#{self.class.name} of #{@klass.inspect}>"
      end
      alias to_s inspect

      private

      def own?(method)
        method_defined?(method, false) || private_method_defined?(method, false)
      end

      # nil if the class has no such method: a wrapper would only hide that.
      def visibility_in_class(method)
        return :public if @klass.public_method_defined?(method)
        return :private if @klass.private_method_defined?(method)

        :protected if @klass.protected_method_defined?(method)
      end

      def override(method, wrapper, visibility)
        define_method(method, wrapper)
        # Without this, keyword arguments would arrive as a hash.
        ruby2_keywords(method) if takes_any_arguments?(method)
        send(visibility, method)
      end

      def takes_any_arguments?(method)
        kinds = instance_method(method).parameters.map(&:first)
        kinds.include?(:rest) && (kinds & %i[key keyreq keyrest]).empty?
      end
    end
  end
end
