# frozen_string_literal: true

require 'nopal/testing'
require 'rspec/expectations'

module StaticTracing
  module Testing
    # Matchers on what a block fires:
    #
    #   require 'nopal/rspec'
    #
    #   expect { checkout(cart) }.to fire_probe('shop:sale').once
    #   expect { checkout(cart) }.to fire_probe('shop:sale').at_least(2).with(customer: 'Ada')
    #   expect { checkout(cart) }.not_to fire_probe('shop:error')
    #   expect { checkout(cart) }.to fire_probes('shop:sale__start', 'shop:sale__done')      # in this order
    #
    # `Testing.listen` gives all hits of a block.
    module Matchers
      def fire_probe(probe)
        FireProbe.new(probe)
      end

      def fire_probes(*probes)
        FireProbes.new(probes)
      end

      # How often a probe comes, and with which values.
      class FireProbe
        include RSpec::Matchers::Composable

        def initialize(probe)
          @probe = probe
          @wanted = (1..)
          @args = {}
        end

        def exactly(number)
          @wanted = (number..number)
          self
        end

        def at_least(number)
          @wanted = (number..)
          self
        end

        def at_most(number)
          @wanted = (0..number)
          self
        end

        def times
          self
        end

        def once
          exactly(1)
        end

        def twice
          exactly(2)
        end

        # Counts only hits with these values; a value may be a matcher.
        def with(**args)
          @args = args
          self
        end

        def matches?(block)
          @hits = Testing.listen(@probe, &block)
          @args.each_key { |name| @hits.values(@probe, name) }
          @came = @hits.count { |hit| @args.all? { |name, value| values_match?(value, hit.args[name.to_s]) } }
          @wanted.cover?(@came)
        end

        def supports_block_expectations?
          true
        end

        def description
          "fire #{@probe}#{with_words} #{wanted_words}"
        end

        def failure_message
          "expected #{@probe}#{with_words} to come #{wanted_words}, it came #{Testing.times(@came)}\n#{@hits}"
        end

        def failure_message_when_negated
          "expected #{@probe}#{with_words} not to come #{wanted_words}, it came #{Testing.times(@came)}\n#{@hits}"
        end

        private

        def with_words
          @args.empty? ? '' : " with #{@args.map { |name, value| "#{name}=#{value.inspect}" }.join(' ')}"
        end

        def wanted_words
          return 'at all' if @wanted == (1..)
          return "at least #{Testing.times(@wanted.begin)}" if @wanted.end.nil?

          @wanted.begin == @wanted.end ? Testing.times(@wanted.begin) : "at most #{Testing.times(@wanted.end)}"
        end
      end

      # Probes that come in this order; others may come in between.
      class FireProbes
        def initialize(probes)
          @probes = probes
        end

        def matches?(block)
          @hits = Testing.listen(*@probes.uniq, &block)
          @disorder = @hits.disorder(*@probes)
          @disorder.nil?
        end

        def supports_block_expectations?
          true
        end

        def description
          "fire #{@probes.join(' -> ')}"
        end

        def failure_message
          "#{@disorder}\n#{@hits}"
        end

        def failure_message_when_negated
          "expected not to come in this order: #{@probes.join(' -> ')}\n#{@hits}"
        end
      end
    end
  end
end

RSpec.configure { |config| config.include StaticTracing::Testing::Matchers } if RSpec.respond_to?(:configure)
