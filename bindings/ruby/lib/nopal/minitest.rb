# frozen_string_literal: true

require 'nopal/testing'

module StaticTracing
  module Testing
    # Assertions on probes, for minitest and test-unit:
    #
    #   class ShopTest < Minitest::Test
    #     include StaticTracing::Testing::Assertions
    #
    #     def test_a_sale_is_seen
    #       hits = listen('shop:*') { checkout(cart) }
    #       assert_probe_count 1, hits, 'shop:sale'
    #       assert_probe_order hits, 'shop:sale__start', 'shop:sale__done'
    #       assert_probe_values ['Ada'], hits, 'shop:sale', :customer
    #     end
    #   end
    module Assertions
      # See Testing.listen.
      def listen(*probes, **how, &block)
        Testing.listen(*probes, **how, &block)
      end

      # `expected` is a number, or a range: `2`, `(1..)`.
      def assert_probe_count(expected, hits, probe)
        came = known { hits.count(probe) }
        wanted = expected.is_a?(Range) ? expected : [expected]
        assert wanted.include?(came), "#{probe} came #{Testing.times(came)}, expected #{expected}\n#{hits}"
      end

      def assert_probe_order(hits, *probes)
        disorder = known { hits.disorder(*probes) }
        assert disorder.nil?, "#{disorder}\n#{hits}"
      end

      def assert_probe_values(expected, hits, probe, argument)
        came = known { hits.values(probe, argument) }
        assert expected == came, "#{argument} of #{probe} was #{came.inspect}, expected #{expected.inspect}\n#{hits}"
      end

      private

      def known
        yield
      rescue Unknown => e
        flunk e.message
      end
    end
  end
end
