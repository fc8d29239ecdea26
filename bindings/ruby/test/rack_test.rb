# frozen_string_literal: true

require_relative 'helper'
require_relative '../examples/rack/request_tracing'

class RackTest < TestCase
  ENVIRONMENT = { 'REQUEST_METHOD' => 'GET', 'SCRIPT_NAME' => '/shop', 'PATH_INFO' => '/cart' }.freeze

  def middleware(app)
    made = RequestTracing.new(app)
    @start = tracepoint('rack', 'request_start')
    @end = tracepoint('rack', 'request_end')
    made
  end

  def test_untraced_everything_passes_through
    answer = [200, {}, ['body']]
    assert_same answer, middleware(->(_) { answer }).call(ENVIRONMENT.dup)
  end

  def test_start_and_end
    closed = false
    body = Object.new
    body.define_singleton_method(:each) { |&block| block.call('hello') }
    body.define_singleton_method(:close) { closed = true }
    body.define_singleton_method(:to_path) { '/file' }
    app = middleware(->(_) { [201, { 'x' => 'y' }, body] })
    fired = listening_to(@start, @end) do
      status, headers, given = app.call(ENVIRONMENT.dup)
      assert_equal [201, { 'x' => 'y' }], [status, headers]
      assert_equal ['hello'], given.enum_for(:each).to_a
      assert_equal '/file', given.to_path
      refute_respond_to given, :to_ary
      refute_respond_to given, :call
      assert_equal 1, Listening.heard.size
      2.times { given.close }
      assert closed
    end
    assert_equal %w[rack:request_start rack:request_end], fired.map(&:first)
    (id, *start), (end_id, status, duration) = fired.map(&:last)
    assert_equal ['GET', '/shop/cart'], start
    assert_equal [id, 201], [end_id, status]
    assert_equal Process.pid, id >> 32
    assert_includes 1..10**9, duration
  end

  def test_a_failing_application
    app = middleware(->(_) { raise IOError, 'gone' })
    fired = listening_to(@start, @end) { assert_raises(IOError) { app.call(ENVIRONMENT.dup) } }
    assert_equal 500, fired[1][1][1]
  end

  def test_with_rack_itself
    require 'rack'
    require 'rack/mock'
    require 'rack/lint'
    app = ->(_) { [200, { 'content-type' => 'text/plain', 'content-length' => '2' }, ['ok']] }
    inner = middleware(Rack::Lint.new(app))
    linted = Rack::MockRequest.new(Rack::Lint.new(inner))
    fired = listening_to(@start, @end) { assert_equal 'ok', linted.get('/path?query').body }
    assert_equal %w[rack:request_start rack:request_end], fired.map(&:first)
    assert_equal '/path', fired[0][1][2]
  rescue LoadError
    skip 'the gem rack is not installed'
  end
end
