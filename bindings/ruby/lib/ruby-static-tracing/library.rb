# frozen_string_literal: true

require 'fiddle'

module StaticTracing
  # The native library is nowhere to be found, or is not one that this gem can use.
  LibraryMissingError = Class.new(USDTError)

  # Finds and opens libnopal.so. The order:
  #
  # 1. NOPAL_LIBRARY: the file, or a folder that holds it. If it is set, nothing else is tried.
  # 2. Beside this file, and in `lib` of the gem.
  # 3. What the system finds by name: LD_LIBRARY_PATH, the cache of ldconfig, /lib and /usr/lib.
  # 4. /usr/local/lib, /usr/lib/nopal, /opt/nopal/lib.
  # 5. In a source tree of nopal: target/release, then target/debug.
  module Library
    NAME = 'libnopal.so'
    FOLDERS = %w[/usr/local/lib /usr/lib/nopal /opt/nopal/lib].freeze

    module_function

    def open
      failures = []
      candidates.each do |path|
        next failures << "#{path}: not there" if path.include?('/') && !File.file?(path)

        begin
          return Fiddle.dlopen(path)
        rescue Fiddle::DLError => e
          failures << (e.message.include?(path) ? e.message : "#{path}: #{e.message}")
        end
      end
      raise LibraryMissingError, message(failures)
    end

    def candidates
      named = ENV['NOPAL_LIBRARY'].to_s
      return [File.directory?(named) ? File.join(named, NAME) : File.expand_path(named)] unless named.empty?

      [File.join(__dir__, NAME), File.expand_path("../#{NAME}", __dir__), NAME] +
        FOLDERS.map { |folder| File.join(folder, NAME) } + source_tree
    end

    def source_tree
      root = File.expand_path('../../../..', __dir__)
      return [] unless File.directory?(File.join(root, 'tracee/nopal-runtime'))

      %w[release debug].map { |profile| File.join(root, 'target', profile, NAME) }
    end

    def message(failures)
      "nopal's native library was not found, so probes cannot be made. Set NOPAL_LIBRARY to #{NAME}, or NOPAL=off to " \
        "run without probes. Tried:\n  #{failures.join("\n  ")}"
    end
  end
end
