# frozen_string_literal: true

module StaticTracing
  # The C functions of libnopal.so (nopal.h), or nothing where probes are off. Knows no tracepoint.
  #
  # The environment variable NOPAL decides: `off` makes everything a no-op without looking for the library, `optional`
  # makes it a no-op if the library is missing. Otherwise a missing library is an error, raised when the first provider
  # is made and never later.
  module Native
    extend self

    POINTER = Fiddle::TYPE_VOIDP
    # The bytes of one `nopal_arg`: name, type, reserved.
    ARGUMENT = 'pLL'

    FUNCTIONS = {
      provider_new: [[POINTER], POINTER],
      provider_add: [[POINTER, POINTER, POINTER, Fiddle::TYPE_SIZE_T], POINTER],
      provider_load: [[POINTER], Fiddle::TYPE_INT],
      provider_unload: [[POINTER], Fiddle::TYPE_INT],
      provider_path: [[POINTER], POINTER],
      # The probe as a number, which takes Fiddle less time.
      probe_fire: [[Fiddle::TYPE_UINTPTR_T, POINTER, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT],
      probe_semaphore: [[POINTER], POINTER],
      error: [[], POINTER]
    }.freeze

    # Whether probes are made at all. Opens the library when first asked.
    def available?
      open_library if @available.nil?
      @available
    end

    FUNCTIONS.each_key do |name|
      define_method(name) { |*values| @functions.fetch(name).call(*values) }
    end

    # The function behind Tracepoint#fire, for a direct call.
    attr_reader :fire

    # A new provider, which is destroyed when the collector finds that nobody has it or one of its probes any more.
    def provider_new!(name)
      made = checked(provider_new(name), "provider #{name}")
      Fiddle::Pointer.new(made.to_i, 0, @library['nopal_provider_destroy'])
    end

    # Adds a probe. `arguments` are pairs of a name and a type's number.
    def provider_add!(provider, name, arguments)
      packed = arguments.flat_map { |argument, type| [argument, type, 0] }.pack(ARGUMENT * arguments.size)
      probe = checked(provider_add(provider, name, packed, arguments.size), "tracepoint #{name}")
      probe.instance_variable_set(:@provider, provider)
      probe
    end

    def failure(what)
      text = error
      reason = text.null? ? '' : text.to_s
      USDTError.new("#{what}: #{reason.empty? ? 'the native library gives no reason' : reason}")
    end

    # Keyword for Fiddle: a call keeps the interpreter's lock, so nobody changes a string that is being read. Unknown
    # before Fiddle 1.0.1 (Ruby 2.7), where strings are copied instead.
    KEEPS_LOCK = (Fiddle::VERSION.split('.').map(&:to_i) <=> [1, 0, 1]) >= 0

    def function(library, symbol, types, result)
      options = KEEPS_LOCK ? { need_gvl: true } : {}
      Fiddle::Function.new(library[symbol], types, result, **options)
    end

    private

    def checked(pointer, what)
      pointer.null? ? raise(failure(what)) : pointer
    end

    def open_library
      Lock.hold do
        next unless @available.nil?

        reason = reason_to_be_off
        return off(reason) if reason

        begin
          bind(Library.open)
          @available = true
        rescue LibraryMissingError => e
          raise unless ENV['NOPAL'].to_s.downcase == 'optional'

          off(e.message)
        end
      end
    end

    def reason_to_be_off
      wish = ENV['NOPAL'].to_s.downcase
      return 'NOPAL=off' if %w[off 0 false no].include?(wish)

      known = ['', 'on', '1', 'true', 'yes', 'optional'].include?(wish)
      warn("NOPAL=#{wish} means nothing; possible are `off` and `optional`") unless known

      "not supported on #{RUBY_PLATFORM}" unless Platform.supported_platform?
    end

    def off(reason)
      StaticTracing.issue_disabled_tracepoints_warning(reason) unless reason == 'NOPAL=off'
      @available = false
    end

    def bind(library)
      @functions = FUNCTIONS.to_h do |name, (types, result)|
        [name, function(library, "nopal_#{name}", types, result)]
      end
      @fire = @functions.fetch(:probe_fire)
      library['nopal_provider_destroy']
      @library = library
    rescue Fiddle::DLError => e
      raise LibraryMissingError, "#{Library::NAME} was found but is not one that this gem can use: #{e.message}"
    end
  end
end
