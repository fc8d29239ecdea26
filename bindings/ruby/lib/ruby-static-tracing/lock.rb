# frozen_string_literal: true

module StaticTracing
  # One lock for what changes the set of providers and tracepoints. Firing takes none.
  module Lock
    MUTEX = Mutex.new
    private_constant :MUTEX

    def self.hold
      return yield if MUTEX.owned?

      begin
        MUTEX.lock
      rescue ThreadError
        # A signal handler may not wait. It runs between two steps of the main thread, and what it changes (loaded or
        # not, wrapped or not) is safe to repeat.
        return yield
      end
      begin
        yield
      ensure
        MUTEX.unlock
      end
    end
  end
end
