# frozen_string_literal: true

require_relative 'helper'

class ProviderTest < TestCase
  Provider = StaticTracing::Provider

  def test_there_is_one_provider_of_a_name
    provider = Provider.register('tracing')
    assert_same provider, Provider.register('tracing')
    assert_same provider, Provider.register(:tracing)
    assert_same provider, Provider.fetch('tracing')
    assert_same provider, StaticTracing.providers['tracing']
    assert_equal %w[tracing tracing], [provider.namespace, provider.name]
    assert_raises(NoMethodError) { Provider.new('tracing') }
  end

  def test_a_provider_that_is_not_there_is_missing
    error = assert_raises(Provider::ProviderMissingError) { Provider.fetch('not_registered') }
    assert_match 'not_registered', error.message
    assert_raises(Provider::ProviderMissingError) { Provider.load('not_registered') }
  end

  def test_enable_and_disable_say_true_and_path_follows
    provider = Provider.register('life')
    provider.add_tracepoint('event', Integer)
    refute provider.enabled?
    assert_equal '', provider.path
    2.times do
      assert_equal true, provider.enable
      assert provider.enabled?
      assert_match %r{\A/proc/#{Process.pid}/fd/\d+\z}, provider.path
      assert File.exist?(provider.path)
      assert_equal true, provider.disable
      refute provider.enabled?
      assert_equal '', provider.path
    end
  end

  def test_add_tracepoint
    provider = Provider.register('adding')
    made = provider.add_tracepoint('first', Integer, String)
    assert_instance_of StaticTracing::Tracepoint, made
    assert_same made, provider.add_tracepoint(made)
    assert_same made, provider.tracepoints['first']
    assert_equal 1, provider.tracepoints.length
  end

  def test_tracepoints_added_to_a_loaded_provider_are_live
    provider = Provider.register('growing')
    first = provider.add_tracepoint('first', Integer)
    provider.enable
    second = provider.add_tracepoint('second', Integer)
    fired = listening_to(first, second) do
      assert first.fire(1)
      assert second.fire(2)
    end
    assert_equal [['growing:first', [1]], ['growing:second', [2]]], fired
  end

  def test_providers_inside_of_providers
    shop = Provider.register('shop') do |outer|
      outer.add_tracepoint('sale', id: Integer)
      outer.register('cart') do |cart|
        cart.add_tracepoint('item', name: String)
        cart.register('gift') { |gift| gift.add_tracepoint('ribbon', color: String) }
      end
    end
    gift = Provider.fetch('shop_cart_gift')
    assert_equal ['shop_cart'], shop.providers.map(&:namespace)
    assert_same Provider.fetch('shop_cart'), gift.parent
    shop.enable
    assert gift.enabled?
    fired = listening_to(tracepoint('shop_cart_gift', 'ribbon')) { tracepoint('shop_cart_gift', 'ribbon').fire('red') }
    assert_equal [['shop_cart_gift:ribbon', ['red']]], fired
    shop.disable
    refute gift.enabled?
    shop.destroy
    assert_raises(Provider::ProviderMissingError) { Provider.fetch('shop_cart_gift') }
  end

  def test_destroy_ends_provider_and_tracepoints
    provider = Provider.register('ending')
    tracepoint = provider.add_tracepoint('event', Integer)
    provider.enable
    provider.destroy
    provider.destroy
    assert_raises(Provider::ProviderMissingError) { Provider.fetch('ending') }
    refute tracepoint.enabled?
    assert_equal false, tracepoint.fire(1)
    assert_equal '', provider.path
    assert_raises(StaticTracing::USDTError) { provider.enable }
    again = Provider.register('ending')
    refute_same provider, again
    assert again.add_tracepoint('event', String)
  end

  def test_destroyed_providers_leave_nothing_behind
    descriptors = lambda do
      GC.start
      Dir.children('/proc/self/fd').size
    end
    cycle = lambda do |i|
      provider = Provider.register("passing#{i}")
      provider.add_tracepoint('event', Integer)
      provider.enable
      provider.destroy
      nil
    end
    50.times(&cycle)
    before = descriptors.call
    200.times(&cycle)
    # The conservative collector may still see a few.
    assert_operator descriptors.call, :<=, before + 5
  end

  def test_names_that_cannot_be_are_errors_of_the_native_library
    assert_raises(StaticTracing::USDTError) { Provider.register('') }
    assert_raises(StaticTracing::USDTError) { Provider.register('fine').add_tracepoint('') }
  end

  def test_what_is_declared_while_tracing_is_on_is_on
    StaticTracing.enable!
    assert Provider.register('late').enabled?
    StaticTracing.toggle_tracing!
    refute StaticTracing.enabled?
    refute Provider.fetch('late').enabled?
    StaticTracing.toggle_tracing!
    assert Provider.fetch('late').enabled?
  end
end
