# frozen_string_literal: true

require 'fiddle'
require 'json'
require 'tmpdir'
require 'ruby-static-tracing'

module StaticTracing
  # A project's own tests assert on its probes: how often they come, in which order, with which values. Needs no root.
  #
  #   hits = StaticTracing::Testing.listen('shop:*') { checkout(cart) }
  #   hits.count('shop:sale')                # 1
  #   hits.values('shop:sale', :customer)    # ["Ada"]
  #
  # `nopal/minitest` and `nopal/rspec` make assertions and matchers of it. The command `nopal` traces this process, and those it
  # starts, until the block ends; it is found in PATH, or named by NOPAL_COMMAND.
  #
  # What was not seen cannot be asserted on: if events were lost or a site could not be opened, `listen` raises Incomplete.
  module Testing
    # The command `nopal` is not there, or cannot trace this process; its own words say why.
    CannotListen = Class.new(StandardError)
    # Some hits were not seen, so that nothing can be said about them all.
    Incomplete = Class.new(StandardError)
    # A probe or an argument that is not there: a test that it does not come would always hold.
    Unknown = Class.new(StandardError)

    # How long the command may take to open the sites, or to end.
    PATIENCE_S = 120

    # One hit of a probe.
    Hit = Struct.new(:probe, :args, :pid, :tid, :ns) do
      def to_s
        [probe, *args.map { |name, value| "#{name}=#{value.inspect}" }].join(' ')
      end
    end

    # The hits of a block, in the order of time. Probes are named as `provider:name`, with `*` and `?`.
    class Hits
      include Enumerable

      LINES_SHOWN = 20

      def initialize(hits, known)
        @hits = hits
        @known = known
      end

      def each(&block)
        @hits.each(&block)
      end

      def size
        @hits.size
      end

      # The hits of one probe, or of a pattern.
      def of(probe)
        found = @hits.select { |hit| Hits.match?(probe, hit.probe) }
        return found unless found.empty? && @known.none? { |name| Hits.match?(probe, name) }

        raise Unknown, "no probe matches #{probe}; listened to: #{@known.empty? ? 'none' : @known.sort.join(', ')}"
      end

      def count(probe = nil, &block)
        probe ? of(probe).size : super(&block)
      end

      # What an argument was at each hit.
      def values(probe, argument)
        of(probe).map do |hit|
          hit.args.fetch(argument.to_s) do |name|
            raise Unknown, "#{hit.probe} has no argument #{name}; it has: #{hit.args.keys.join(', ')}"
          end
        end
      end

      # Why probes did not come in this order, or nil. Others may come in between.
      def disorder(*probes)
        probes.each { |probe| of(probe) }
        at = -1
        probes.each_with_index do |probe, i|
          at = (at + 1...@hits.size).find { |j| Hits.match?(probe, @hits[j].probe) }
          next if at

          after = i.zero? ? '' : " after #{probes.take(i).join(' -> ')}"
          return "#{probe} did not come#{after}"
        end
        nil
      end

      # For the reason why a test fails.
      def to_s
        return 'nothing came' if @hits.empty?

        lines = @hits.first(LINES_SHOWN).map { |hit| "  #{hit}" }
        lines << "  and #{@hits.size - LINES_SHOWN} more" if @hits.size > LINES_SHOWN
        ["what came, #{@hits.size} in all:", *lines].join("\n")
      end

      def self.match?(pattern, name)
        parts = pattern.to_s.split(/([*?])/).map { |part| { '*' => '.*', '?' => '.' }.fetch(part) { Regexp.escape(part) } }
        name.match?(/\A#{parts.join}\z/)
      end
    end

    # A process can be traced by one at a time.
    TURN = Mutex.new

    module_function

    # A number of times in words.
    def times(number)
      number == 1 ? 'once' : "#{number} times"
    end

    # Runs the block and gives the hits of these probes meanwhile, of this process or another and those it starts. Probes that a
    # program declares while it runs are loaded before. `options` are more options of `nopal trace`.
    def listen(*probes, pid: nil, options: [])
      allow_tracing unless pid
      TURN.synchronize do
        Dir.mktmpdir do |folder|
          said, printed = %w[said printed].map { |name| File.join(folder, name) }
          command = [find_command, 'trace', '--json', '--announce', '-p', (pid || Process.pid).to_s, *options, *probes]
          # A group of its own: Ctrl-C ends the tests, and they end the command.
          nopal = Process.spawn(*command, in: File::NULL, out: printed, err: said, pgroup: true)
          status = nil
          begin
            opened = wait_until_open(nopal, said) { |ended| status = ended }
            yield
          ensure
            status ||= end_it(nopal)
          end
          check(status, File.read(said), opened)
          hits_of(File.read(printed), opened)
        end
      end
    end

    def find_command
      named = ENV.fetch('NOPAL_COMMAND', '')
      return named unless named.empty?

      found = ENV.fetch('PATH', '').split(':').map { |folder| File.join(folder, 'nopal') }.find { |file| File.executable?(file) }
      found || raise(CannotListen, 'the command `nopal` is not in PATH; install it, or set NOPAL_COMMAND to it')
    end

    # Where Yama restricts ptrace a child may not trace its parent unless the parent says so. Kernels without Yama refuse.
    def allow_tracing
      long = Fiddle::TYPE_LONG
      prctl = Fiddle::Function.new(Fiddle.dlopen(nil)['prctl'], [Fiddle::TYPE_INT, long, long, long, long], Fiddle::TYPE_INT)
      prctl.call(0x59616d61, -1, 0, 0, 0)
    end

    def wait_until_open(nopal, said)
      limit = now + PATIENCE_S
      loop do
        _, status = Process.wait2(nopal, Process::WNOHANG)
        yield status if status
        text = File.read(said)
        line = text.lines.find { |one| one.end_with?("\n") && one.start_with?('{"opened"') }
        return JSON.parse(line)['opened'] if line
        raise CannotListen, in_words(text) if status || now > limit

        sleep 0.005
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def end_it(nopal)
      Process.kill(:INT, nopal)
      limit = now + PATIENCE_S
      loop do
        _, status = Process.wait2(nopal, Process::WNOHANG)
        return status if status

        Process.kill(:KILL, nopal) if now > limit
        sleep 0.005
      end
    end

    # What the command said, its errors as it tells them to people.
    def in_words(text)
      lines = text.lines(chomp: true).map do |line|
        next line unless line.start_with?('{"error"')

        JSON.parse(line)['error'].values_at('message', 'hint').compact.join('; ')
      end
      lines.empty? ? 'nopal said nothing' : lines.join("\n")
    end

    def check(status, said, opened)
      line = said.lines.reverse.find { |one| one.start_with?('{"complete"') }
      raise Incomplete, "nopal ended with #{status}: #{in_words(said)}" unless status.success? && line

      verdict = JSON.parse(line)
      unless verdict['complete']
        facts = verdict.reject { |name, n| [0, false].include?(n) || %w[complete events cut].include?(name) }
        told = facts.map { |fact| fact.join(' ') }.join(', ')
        raise Incomplete, "not every hit was seen: #{told}; a larger --buffer-size loses less (options:)"
      end
      closed = opened.reject { |site| site['door'] }.map { |site| "  #{site['probe']}: #{site['closed']}" }.uniq
      raise Incomplete, ['not every site could be opened:', *closed].join("\n") unless closed.empty?
    end

    def hits_of(text, opened)
      hits = text.lines.map do |line|
        event = JSON.parse(line)
        Hit.new("#{event['provider']}:#{event['name']}", *event.values_at('args', 'pid', 'tid', 'ts'))
      end
      Hits.new(hits, (opened.map { |site| site['probe'] } + hits.map(&:probe)).uniq)
    end

    private_class_method :find_command, :allow_tracing, :wait_until_open, :now, :end_it, :in_words, :check, :hits_of
  end
end
