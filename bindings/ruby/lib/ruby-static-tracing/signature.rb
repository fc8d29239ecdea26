# frozen_string_literal: true

module StaticTracing
  # The arguments of tracepoints: types, names, and how values are packed. Tracepoints of the same arguments share one.
  class Signature
    MAX_ARGUMENTS = 12

    attr_reader :args, :types, :declaration

    @known = {}

    # The signature of a declaration; InvalidArgType, with `whose` in the message, if there is no such.
    def self.of(whose, types, named_types)
      @known[[types, named_types]] ||= new(whose, types, named_types)
    end

    def initialize(whose, types, named_types)
      @args = (types + named_types.values).freeze
      @types = known_types(whose).freeze
      names = types.map { nil } + named_types.keys.map(&:to_s)
      # What the probe's note will say: pairs of an argument's name and its type's number.
      @declaration = names.zip(@types.map(&:number)).freeze
      @template = @types.map(&:template).join.freeze
      @has_bytes = @types.any?(&:bytes?)
      @n_values = @types.size
    end

    # Raises InvalidArgumentError for values that are not of the types.
    def check(values)
      types = @types
      i = @n_values
      raise Tracepoint::InvalidArgumentError.new(values, "#{i} argument(s)") unless values.size == i

      while (i -= 1) >= 0
        raise Tracepoint::InvalidArgumentError.new(values[i], @args[i]) unless types[i].fits?(values[i])
      end
    end

    # The values as an array of `nopal_value`. The result keeps the strings it points to.
    def pack(values)
      laid_out(values).pack(@template)
    rescue ArgumentError
      # A string with a NUL inside, or one whose characters are wider than a byte.
      laid_out(values.zip(@types).map { |value, type| type.name == :string ? c_string(value) : value }).pack(@template)
    end

    private

    def known_types(whose)
      found = @args.map { |declared| ArgumentType.find(declared) || raise(Tracepoint::InvalidArgType, unknown(whose, declared)) }
      words = found.sum { |type| type.bytes? ? 2 : 1 }
      return found if words <= MAX_ARGUMENTS

      raise Tracepoint::InvalidArgType, "#{whose} has #{words} arguments; #{MAX_ARGUMENTS} are possible"
    end

    def unknown(whose, declared)
      "#{whose} has an argument of #{declared.inspect}; possible are " \
        "#{Tracepoint::VALID_ARGS_TYPES.map(&:inspect).join(', ')}"
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
