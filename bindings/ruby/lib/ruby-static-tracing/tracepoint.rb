# frozen_string_literal: true

module StaticTracing
  # A probe: a name in a provider, and the types of the values that are fired with it.
  class Tracepoint
    # No tracepoint of that name.
    class TracepointMissingError < StandardError
      def initialize(provider = nil, name = nil)
        super(name ? "no tracepoint `#{provider}:#{name}`" : 'no such tracepoint')
      end
    end

    # A value was fired that is not of the declared type, or too many or too few values.
    class InvalidArgumentError < StandardError
      def initialize(argument, expected_type)
        super("fired #{argument.inspect[0, 100]} (#{argument.class}) where the tracepoint was declared with #{expected_type}")
      end
    end

    # A tracepoint was declared with a type there is not, with too many arguments, or again with other ones.
    class InvalidArgType < StandardError; end

    # What a tracepoint may have: the classes, or exact types by name. Bytes count as two.
    VALID_ARGS_TYPES = (ArgumentType::BY_CLASS.keys + ArgumentType::BY_NAME.keys).freeze
    MAX_ARGUMENTS = Signature::MAX_ARGUMENTS

    class << self
      def fetch(provider, name)
        Provider.fetch(provider).tracepoints.fetch(name.to_s) { raise TracepointMissingError.new(provider, name) }
      end

      # The same, or nil.
      def find(provider, name)
        Provider.find(provider)&.tracepoints&.fetch(name.to_s, nil)
      end

      # Declares a tracepoint; its provider is made if there is none yet. One that is already there with the same types is
      # returned as it is.
      #
      # Types are Integer, Float, String, or exact ones (:int8 to :uint64, :float, :double, :string, :bytes). With names,
      # tracers show them: `id: Integer, path: String`.
      def new(provider_name, name, *types, **named_types)
        Provider.register(provider_name).attach(super)
      end
    end

    attr_reader :provider_name, :name

    def initialize(provider_name, name, *types, **named_types)
      @provider_name = provider_name.to_s
      @name = name.to_s
      @signature = Signature.of("#{@provider_name}:#{@name}", types, named_types)
      @semaphore = Semaphore::ZERO
    end

    # The types it was declared with.
    def args
      @signature.args
    end

    def provider
      Provider.fetch(@provider_name)
    end

    # Whether somebody listens. Takes a few nanoseconds.
    def enabled?
      @semaphore != Semaphore::ZERO
    end

    # Fires, if somebody listens: true if so. Values are checked even if nobody does, so that a mistake shows before
    # production. With a block, the values are what it gives, and it runs only while somebody listens.
    def fire(*values)
      if block_given?
        return false if @semaphore == Semaphore::ZERO

        values = yield
        values = [values] unless values.is_a?(Array)
      end
      @signature.check(values)
      return false if @semaphore == Semaphore::ZERO

      emit(values)
    end

    # The rest is for the provider, which gives the native probe and takes it away.

    attr_reader :signature

    def bind(handle)
      @address = handle.to_i if handle
      @handle = handle
    end

    def watch(semaphore)
      @semaphore = semaphore
    end

    # Where the semaphore is, in a loaded provider.
    def semaphore_address
      Native.probe_semaphore(@handle).to_i
    end

    private

    def emit(values)
      # This keeps the native side until the probe has fired, if another thread destroys the provider now.
      handle = @handle
      return false unless handle

      # A copy shares the text until the original is changed: the native side may read it without the interpreter's lock.
      values = values.map { |value| value.is_a?(String) ? value.dup : value } unless Native::KEEPS_LOCK
      Native.fire.call(@address, @signature.pack(values), values.size).positive?
    end
  end
end
