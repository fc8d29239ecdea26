# frozen_string_literal: true

module StaticTracing
  # A namespace of tracepoints. There is one for each name; by convention a class or module has one of its own.
  class Provider
    class ProviderMissingError < StandardError
      def initialize(namespace = nil)
        super(namespace ? "no provider `#{namespace}` is registered" : 'no such provider is registered')
      end
    end

    class << self
      private :new

      # The provider of this name, made if there is none yet. A block gets the provider, to declare what is in it.
      def register(namespace)
        name = namespace.to_s
        provider = Lock.hold { providers[name] ||= new(name) }
        provider.enable if StaticTracing.enabled?
        yield provider if block_given?
        provider
      end

      def fetch(namespace)
        find(namespace) || raise(ProviderMissingError, namespace)
      end

      # The same, or nil.
      def find(namespace)
        providers[namespace.to_s]
      end

      # Loads the provider of this name and returns it.
      def load(namespace)
        fetch(namespace).tap(&:enable)
      end

      def enable!
        all.each_value(&:enable)
      end

      def disable!
        all.each_value(&:disable)
      end

      def all
        providers.dup
      end

      # Forgets a provider that was destroyed.
      def forget(provider)
        Lock.hold { providers.delete(provider.namespace) if providers[provider.namespace].equal?(provider) }
      end

      private

      def providers
        @providers ||= {}
      end
    end

    attr_reader :namespace, :tracepoints, :parent
    alias name namespace

    # A provider inside of this one: `shop` and `cart` make `shop_cart`, as Shop::Cart does. It is loaded, unloaded and
    # destroyed with the outer one.
    def register(namespace, &block)
      inner = Provider.register("#{@namespace}_#{namespace}", &nil)
      inner.enter(self)
      inner.enable if enabled?
      yield inner if block
      inner
    end

    # The providers inside of this one.
    def providers
      @inner.dup
    end

    # Declares a tracepoint: its name and the types of its arguments, which may have names (`id: Integer`).
    def add_tracepoint(tracepoint, *types, **named_types)
      case tracepoint
      when Tracepoint then attach(tracepoint)
      else Tracepoint.new(namespace, tracepoint, *types, **named_types)
      end
    end

    # Loads the provider: from now on tracers see its tracepoints. True, or an error. Tracepoints that are added later are
    # seen at once.
    def enable
      raise USDTError, "provider #{namespace} was destroyed" if @destroyed

      unless @enabled
        load_natively(@tracepoints.values) if Native.available?
        @enabled = true
      end
      @inner.each(&:enable)
      true
    end
    alias load enable

    # Unloads the provider. True.
    def disable
      return true if @destroyed

      @inner.each(&:disable)
      @tracepoints.values.each { |tracepoint| tracepoint.watch(Semaphore::ZERO) }
      raise Native.failure("provider #{namespace}") if Native.available? && !Native.provider_unload(@handle).zero?

      @enabled = false
      true
    end
    alias unload disable

    # Whether it is loaded. Whether somebody listens is for each tracepoint to say.
    def enabled?
      @enabled
    end

    # Where tracers find the provider: /proc/PID/fd/N. Empty while it is not loaded.
    def path
      return '' if @destroyed || !Native.available?

      path = Native.provider_path(@handle)
      path.null? ? '' : path.to_s
    end

    # Removes the provider, its tracepoints and the providers inside of it. The tracepoints never fire again.
    def destroy
      return if @destroyed

      disable
      @inner.each(&:destroy)
      @destroyed = true
      @parent&.leave(self)
      Provider.forget(self)
      # A thread may be in the middle of firing: the collector frees the native side when nobody has it any more.
      @tracepoints.values.each { |tracepoint| tracepoint.bind(nil) }
      @handle = nil
    end

    # Takes in a tracepoint, or gives the one that is already there under its name.
    def attach(tracepoint)
      known = Lock.hold do
        raise USDTError, "provider #{namespace} was destroyed" if @destroyed

        earlier(tracepoint) || add(tracepoint)
      end
      load_natively([tracepoint]) if enabled? && Native.available? && known.equal?(tracepoint)
      known
    end

    protected

    def enter(outer)
      @parent = outer
      outer.take(self)
    end

    def take(inner)
      Lock.hold { @inner << inner unless @inner.include?(inner) }
    end

    def leave(inner)
      Lock.hold { @inner.delete(inner) }
    end

    private

    def initialize(namespace)
      @namespace = namespace
      @tracepoints = {}
      @inner = []
      @enabled = false
      @destroyed = false
      @handle = Native.provider_new!(namespace) if Native.available?
    end

    def earlier(tracepoint)
      known = @tracepoints[tracepoint.name]
      return known if known.nil? || known.signature.types == tracepoint.signature.types

      raise Tracepoint::InvalidArgType,
            "#{namespace}:#{tracepoint.name} is already declared with the arguments #{known.args.inspect}"
    end

    def add(tracepoint)
      tracepoint.bind(Native.provider_add!(@handle, tracepoint.name, tracepoint.signature.declaration)) if Native.available?
      @tracepoints[tracepoint.name] = tracepoint
    end

    # Makes all tracepoints seen, of which these were not so before.
    def load_natively(tracepoints)
      raise Native.failure("provider #{namespace}") unless Native.provider_load(@handle).zero?

      semaphores = Semaphore.at(tracepoints.map(&:semaphore_address))
      tracepoints.zip(semaphores) { |tracepoint, semaphore| tracepoint.watch(semaphore) }
    end
  end
end
