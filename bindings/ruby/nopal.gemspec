# frozen_string_literal: true

require_relative 'lib/ruby-static-tracing/version'

Gem::Specification.new do |s|
  s.name = 'nopal'
  s.version = StaticTracing::VERSION
  s.summary = 'Static tracing for Ruby, seen by nopal, bpftrace, gdb, perf and SystemTap'
  s.description = <<~TEXT
    Probes that a Ruby program declares while it runs, and tracers that add them to methods of classes that know nothing of it:
    latency, callers, arguments. The interface is that of ruby-static-tracing. No extension to compile.
  TEXT
  s.authors = ['The nopal authors']
  s.licenses = ['MIT', 'Apache-2.0']
  s.required_ruby_version = '>= 2.7'
  # libnopal.so may be put into lib/ before the gem is built.
  s.files = Dir['lib/**/*.{rb,so}', 'examples/**/*', 'README.md', base: __dir__]
  s.metadata = { 'rubygems_mfa_required' => 'true' }
  # Bundled with Ruby until 3.4, an ordinary gem since.
  s.add_runtime_dependency 'fiddle', '~> 1.0'
  s.add_runtime_dependency 'logger', '~> 1.4'
end
