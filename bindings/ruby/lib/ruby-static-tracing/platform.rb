# frozen_string_literal: true

module StaticTracing
  # Which system this is. Probes exist on Linux; elsewhere everything loads and does nothing.
  module Platform
    module_function

    def linux?
      RUBY_PLATFORM.include?('linux')
    end

    def darwin?
      RUBY_PLATFORM.include?('darwin')
    end

    def supported_platform?
      linux?
    end
  end
end
