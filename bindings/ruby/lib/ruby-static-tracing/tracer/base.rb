# frozen_string_literal: true

require_relative 'helpers'
require_relative 'overrides'

module StaticTracing
  module Tracer
    # Wraps methods of classes that know nothing of it. A tracer of one's own inherits from this, says which types it
    # fires and how it wraps:
    #
    #   class Result < StaticTracing::Tracer::Base
    #     set_tracepoint_data_types(method: String, result: String)
    #     set_wrapping_function lambda { |*args, &block|
    #       result = super(*args, &block)
    #       StaticTracing::Tracepoint.fetch('shop', __method__).fire { [__method__.to_s, result.inspect] }
    #       result
    #     }
    #   end
    #
    # or, to be given the tracepoint and need no search for it, has a class method `wrapper(tracepoint, method)`
    # that returns such a lambda. Both are called with `self` the object, and `super` is the method itself.
    class Base
      class << self
        # Has methods of a class or module traced, all its own public ones if none are named. Probes are named as the
        # methods, the provider as the class, if not by `provider`.
        def register(klass, *methods, provider: nil)
          provider = provider_for(klass, provider)
          methods = methods.flatten
          methods = klass.public_instance_methods(false) if methods.empty?
          Lock.hold { modified_classes[klass] ||= Overrides.new(klass) }
          methods.each { |method| modified_classes[klass].add(method, wrapper(tracepoint_for(provider, method), method)) }
          return unless enabled?

          modified_classes[klass].apply
          provider.enable
        end

        # Has a whole library traced: the public methods of a module, of its singleton, and of all that is defined below.
        # What is not loaded yet stays so and is not traced.
        def register_library(root)
          modules_below(root).each do |mod|
            register(mod) unless mod.public_instance_methods(false).empty?
            own = mod.singleton_methods(false)
            register(mod.singleton_class, own, provider: Helpers.underscore(mod.name)) unless own.empty?
          end
        end

        def enable!
          @enabled = true
          modified_classes.values.each(&:apply)
        end

        # Afterwards calls go to the methods themselves, with nothing in between.
        def disable!
          @enabled = false
          modified_classes.values.each(&:withdraw)
        end

        def enabled?
          @enabled ? true : false
        end

        # The lambda that becomes the method.
        def wrapper(_tracepoint, _method)
          wrapping_function || raise(NotImplementedError, "#{name} has no wrapping function")
        end

        def set_tracepoint_data_types(*types, **named_types)
          @data_types = [types, named_types]
        end

        def set_wrapping_function(callable)
          @wrapping_function = callable
        end

        def data_types
          @data_types || (superclass < Base ? superclass.data_types : [[], {}])
        end

        private

        def wrapping_function
          @wrapping_function || (superclass < Base ? superclass.send(:wrapping_function) : nil)
        end

        def modified_classes
          @modified_classes ||= {}
        end

        def provider_for(klass, given)
          return given if given.is_a?(Provider)

          Provider.register(given || Helpers.underscore(name_of(klass)))
        end

        # A singleton class has its object's name.
        def name_of(klass)
          named = klass
          named = ObjectSpace.each_object(klass).find { |o| o.singleton_class.equal?(klass) } if klass.singleton_class?
          name = named.respond_to?(:name) ? named.name : nil
          name || raise(ArgumentError, "#{klass.inspect} has no name: say `provider: NAME`")
        end

        # Another tracer may have taken the method's name for other arguments; then this one's is added to it.
        def tracepoint_for(provider, method)
          types, named_types = data_types
          probe = Helpers.probe_name(method)
          Tracepoint.new(provider.namespace, probe, *types, **named_types)
        rescue Tracepoint::InvalidArgType
          raise unless provider.tracepoints.key?(probe)

          own = Helpers.underscore(name.to_s[/[^:]*\z/])
          Tracepoint.new(provider.namespace, "#{probe}__#{own}", *types, **named_types)
        end

        def modules_below(root, seen = [])
          seen << root
          root.constants(false).each do |constant|
            next if root.autoload?(constant)

            value = root.const_get(constant, false)
            # An alias of something from elsewhere is not this library's.
            next unless value.is_a?(Module) && value.name == "#{root.name}::#{constant}" && !seen.include?(value)

            modules_below(value, seen)
          end
          seen
        end
      end
    end
  end
end
