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
    MAX_ARGUMENTS = 12

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

    attr_reader :provider_name, :name, :args, :types

    def initialize(provider_name, name, *types, **named_types)
      @provider_name = provider_name.to_s
      @name = name.to_s
      @args = (types + named_types.values).freeze
      @names = types.map { nil } + named_types.keys.map(&:to_s)
      @types = known_types
      @template = @types.map(&:template).join
      @has_bytes = @types.any?(&:bytes?)
      @semaphore = Semaphore::ZERO
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
      check(values)
      return false if @semaphore == Semaphore::ZERO

      emit(values)
    end

    # What the probe's note will say: pairs of an argument's name and its type's number.
    def declaration
      @names.zip(@types.map(&:number))
    end

    # The rest is for the provider, which gives the native probe and takes it away.

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

    def known_types
      found = @args.map { |declared| ArgumentType.find(declared) || raise(InvalidArgType, unknown_type(declared)) }
      words = found.sum { |type| type.bytes? ? 2 : 1 }
      return found.freeze if words <= MAX_ARGUMENTS

      raise InvalidArgType, "#{provider_name}:#{name} has #{words} arguments; #{MAX_ARGUMENTS} are possible"
    end

    def unknown_type(declared)
      "#{provider_name}:#{name} has an argument of #{declared.inspect}; possible are " \
        "#{VALID_ARGS_TYPES.map(&:inspect).join(', ')}"
    end

    def check(values)
      types = @types
      i = types.size
      raise InvalidArgumentError.new(values, "#{i} argument(s)") unless values.size == i

      while (i -= 1) >= 0
        raise InvalidArgumentError.new(values[i], @args[i]) unless types[i].fits?(values[i])
      end
    end

    def emit(values)
      # This keeps the native side until the probe has fired, if another thread destroys the provider now.
      handle = @handle
      return false unless handle

      # A copy shares the text until the original is changed: the native side may read it without the interpreter's lock.
      values = values.map { |value| value.is_a?(String) ? value.dup : value } unless Native::KEEPS_LOCK
      Native.fire.call(@address, packed(values), values.size).positive?
    end

    # The values as an array of `nopal_value`. The result keeps the strings it points to.
    def packed(values)
      laid_out(values).pack(@template)
    rescue ArgumentError
      # A string with a NUL inside, or one whose characters are wider than a byte.
      laid_out(values.zip(@types).map { |value, type| type.name == :string ? c_string(value) : value }).pack(@template)
    end

    # Bytes are followed by their length.
    def laid_out(values)
      return values unless @has_bytes

      values.zip(@types).flat_map { |value, type| type.bytes? ? [value, value.bytesize] : [value] }
    end

    # As much of a string as C sees of it.
    def c_string(text)
      text = text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace) unless text.encoding.ascii_compatible?
      text.b[/\A[^\0]*/n]
    end
  end
end
