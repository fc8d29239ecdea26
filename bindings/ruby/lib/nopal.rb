# frozen_string_literal: true

# The gem's own name, for Bundler's `require`. Everything is in StaticTracing.
require 'ruby-static-tracing'

Nopal = StaticTracing
