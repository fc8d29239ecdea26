# frozen_string_literal: true

module StaticTracing
  # When tracers and providers are switched on: at once, never, or by a signal to the process.
  class Configuration
    module Modes
      ON = 'ON'
      OFF = 'OFF'
      # Each signal switches over.
      SIGNAL = 'SIGNAL'
      ALL = [ON, OFF, SIGNAL].freeze

      module SIGNALS
        SIGPROF = 'PROF'
      end
    end

    def self.instance
      @instance ||= new
    end

    attr_reader :mode, :signal

    def initialize
      @mode = Modes::SIGNAL
      @signal = Modes::SIGNALS::SIGPROF
      enable_trap
    end

    def mode=(new_mode)
      unless Modes::ALL.include?(new_mode)
        raise ArgumentError, "mode #{new_mode.inspect}: possible are #{Modes::ALL.join(', ')}"
      end

      disable_trap if @mode == Modes::SIGNAL
      @mode = new_mode
      case new_mode
      when Modes::SIGNAL then enable_trap
      when Modes::ON then StaticTracing.enable!
      when Modes::OFF then StaticTracing.disable!
      end
    end

    # The signal that SIGNAL mode listens to.
    def signal=(new_signal)
      disable_trap if @mode == Modes::SIGNAL
      @signal = new_signal
      enable_trap if @mode == Modes::SIGNAL
    end

    # Adds a tracer, which is on from now on if tracing is.
    def add_tracer(tracer)
      Tracers.add(tracer)
    end

    private

    # The program's own handler comes back.
    def disable_trap
      Signal.trap(@signal, @replaced || 'DEFAULT')
    end

    def enable_trap
      @replaced = Signal.trap(@signal) { StaticTracing.toggle_tracing! }
    end
  end
end
