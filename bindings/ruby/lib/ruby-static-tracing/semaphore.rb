# frozen_string_literal: true

module StaticTracing
  # The 16-bit counter of a probe that tracers raise, seen from Ruby. A probe that nobody listens to must cost as little
  # as possible, and a call through Fiddle takes hundreds of nanoseconds. So the counter's two bytes are looked at as a
  # String that has no memory of its own but lies on them: comparing it takes a few nanoseconds.
  module Semaphore
    # What a counter that nobody has raised compares equal to.
    ZERO = "\0\0".b.freeze

    # The counter read through Fiddle, for interpreters without such strings.
    class ByPointer
      def initialize(address)
        @pointer = Fiddle::Pointer.new(address, ZERO.bytesize)
      end

      def ==(other)
        @pointer[0, ZERO.bytesize] == other
      end
    end

    class << self
      # For each address something that equals ZERO while the counter there is zero. Not to be used after the memory is
      # gone.
      def at(addresses)
        @make = maker if @make.nil?
        return addresses.map { |address| ByPointer.new(address) } unless @make

        # Until to_value, only a Fiddle::Pointer knows of a new string, and the collector does not look into those.
        was_disabled = GC.disable
        addresses.map { |address| string_on(@make, address) }
      ensure
        GC.enable if was_disabled == false
      end

      private

      # Ruby's own function for strings on foreign memory, if it is there and does what is expected of it. It must not run
      # without the interpreter's lock.
      def maker
        return false unless Native::KEEPS_LOCK && RUBY_ENGINE == 'ruby'

        make = Native.function(Fiddle.dlopen(nil), 'rb_str_new_static', [Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG],
                               Fiddle::TYPE_VOIDP)
        follows_memory?(make) && make
      rescue Fiddle::DLError
        false
      end

      def follows_memory?(make)
        memory = Fiddle::Pointer.malloc(ZERO.bytesize, Fiddle::RUBY_FREE)
        memory[0, ZERO.bytesize] = ZERO
        was_disabled = GC.disable
        string = string_on(make, memory.to_i)
        was_zero = string == ZERO
        memory[1] = 1
        was_zero && string != ZERO && string.encoding == ZERO.encoding
      ensure
        GC.enable if was_disabled == false
      end

      # To be called while the collector is off.
      def string_on(make, address)
        make.call(address, ZERO.bytesize).to_value
      end
    end
  end
end
