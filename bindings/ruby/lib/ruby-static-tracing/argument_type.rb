# frozen_string_literal: true

module StaticTracing
  # The types a tracepoint's arguments may have: how each is written in Ruby, its number in nopal.h, how a value becomes
  # a `nopal_value` of 16 bytes, and which values fit.
  class ArgumentType
    attr_reader :name, :number, :template

    def initialize(name, number, template)
      @name = name
      @number = number
      @template = template
    end

    # Followed by its length when packed.
    def bytes?
      false
    end

    class Signed < ArgumentType
      def initialize(bits, number)
        super(:"int#{bits}", number, 'qx8')
        @bits = bits
      end

      def fits?(value)
        Integer === value && value.bit_length < @bits
      end
    end

    class Unsigned < ArgumentType
      def initialize(bits, number)
        super(:"uint#{bits}", number, 'Qx8')
        @bits = bits
      end

      def fits?(value)
        Integer === value && value.bit_length <= @bits && value >= 0
      end
    end

    # An Integer will do for a Float.
    class Floating < ArgumentType
      def fits?(value)
        Float === value || Integer === value
      end
    end

    class Text < ArgumentType
      def fits?(value)
        String === value
      end
    end

    class Bytes < Text
      def bytes?
        true
      end
    end

    BY_NAME = [
      Signed.new(8, 1), Unsigned.new(8, 2), Signed.new(16, 3), Unsigned.new(16, 4),
      Signed.new(32, 5), Unsigned.new(32, 6), Signed.new(64, 7), Unsigned.new(64, 8),
      Floating.new(:float, 9, 'ex12'), Floating.new(:double, 10, 'Ex8'),
      Text.new(:string, 11, 'px8'), Bytes.new(:bytes, 12, 'P0Q')
    ].to_h { |type| [type.name, type] }.freeze

    BY_CLASS = { Integer => BY_NAME[:int64], Float => BY_NAME[:double], String => BY_NAME[:string] }.freeze

    # The type that a declaration means by a class or a symbol; nil if it means none.
    def self.find(declared)
      BY_CLASS[declared] || (declared.is_a?(Symbol) ? BY_NAME[declared] : nil)
    end
  end
end
