# frozen_string_literal: true

require 'ruby-static-tracing'

# Rack middleware that fires when a request starts and when it ends, for Rails and everything else that runs on Rack:
#
#   use RequestTracing                                 # config.ru
#   config.middleware.insert_before 0, RequestTracing  # Rails: config/application.rb
#
# The probes are rack:request_start(id, method, path) and rack:request_end(id, status, duration_ns), in all processes of the
# server. The end is when the body has been sent. Untraced, a request pays for two comparisons and a few objects.
class RequestTracing
  # Tells the server's close from the end of the request.
  class Body
    def initialize(body, &ended)
      @body = body
      @ended = ended
    end

    def each(&block)
      @body.each(&block)
    end

    def close
      @body.close if @body.respond_to?(:close)
    ensure
      ended, @ended = @ended, nil
      ended&.call
    end

    # Bodies have more methods in newer versions of Rack (call, to_path, to_ary).
    def respond_to_missing?(name, include_all = false)
      name != :to_ary && @body.respond_to?(name, include_all)
    end

    def method_missing(name, *args, &block)
      respond_to_missing?(name) ? @body.__send__(name, *args, &block) : super
    end
  end

  def initialize(app, provider: 'rack')
    @app = app
    @starts = StaticTracing::Tracepoint.new(provider, 'request_start', id: Integer, method: String, path: String)
    @ends = StaticTracing::Tracepoint.new(provider, 'request_end', id: Integer, status: Integer, duration_ns: Integer)
    @starts.provider.enable
    @counter = 0
  end

  def call(env)
    return @app.call(env) unless @starts.enabled? || @ends.enabled?

    id = env['nopal.request_id'] = next_id
    started = StaticTracing.nsec
    @starts.fire { [id, env['REQUEST_METHOD'].to_s, "#{env['SCRIPT_NAME']}#{env['PATH_INFO']}"] }
    begin
      status, headers, body = @app.call(env)
    rescue Exception # rubocop:disable Lint/RescueException -- the request is over whatever it was
      ended(id, 500, started)
      raise
    end
    [status, headers, Body.new(body) { ended(id, status.to_i, started) }]
  end

  private

  # Unique among the processes of a server: the process, then a number.
  def next_id
    (Process.pid << 32) | (@counter = (@counter + 1) & 0xffff_ffff)
  end

  def ended(id, status, started)
    @ends.fire(id, status, StaticTracing.nsec - started)
  end
end
