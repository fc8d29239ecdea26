# frozen_string_literal: true

module StaticTracing
  # The types a tracepoint's arguments may have: how each is written in Ruby, its number in nopal.h, how a value becomes
  # a `nopal_value` of 16 bytes, and which values fit.
  class ArgumentType
    attr_reader :name, :number, :template

    def initialize(name, number, template, is_bytes: false, &fits)
      @name = name
      @number = number
      @template = template
      @is_bytes = is_bytes
      @fits = fits
    end

    def fits?(value)
      @fits.call(value)
    end

    # Followed by its length when packed.
    def bytes?
      @is_bytes
    end

    def self.signed(bits, number)
      new(:"int#{bits}", number, 'qx8') { |value| value.is_a?(Integer) && value.bit_length < bits }
    end

    def self.unsigned(bits, number)
      new(:"uint#{bits}", number, 'Qx8') { |value| value.is_a?(Integer) && value >= 0 && value.bit_length <= bits }
    end

    NUMBER = ->(value) { value.is_a?(Float) || value.is_a?(Integer) }
    TEXT = ->(value) { value.is_a?(String) }
    private_constant :NUMBER, :TEXT

    BY_NAME = [
      signed(8, 1), unsigned(8, 2), signed(16, 3), unsigned(16, 4),
      signed(32, 5), unsigned(32, 6), signed(64, 7), unsigned(64, 8),
      new(:float, 9, 'ex12', &NUMBER), new(:double, 10, 'Ex8', &NUMBER),
      new(:string, 11, 'px8', &TEXT), new(:bytes, 12, 'P0Q', is_bytes: true, &TEXT)
    ].to_h { |type| [type.name, type] }.freeze

    BY_CLASS = { Integer => BY_NAME[:int64], Float => BY_NAME[:double], String => BY_NAME[:string] }.freeze

    # The type that a declaration means by a class or a symbol; nil if it means none.
    def self.find(declared)
      BY_CLASS[declared] || (declared.is_a?(Symbol) ? BY_NAME[declared] : nil)
    end
  end
end
