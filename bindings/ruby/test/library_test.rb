# frozen_string_literal: true

require_relative 'helper'
require 'tmpdir'

# How the native library is found, and what happens without it. Each case is a process of its own.
class LibraryTest < TestCase
  USE = <<~RUBY
    require 'ruby-static-tracing'
    class Shop
      def sell(id:)
        id
      end
    end
    begin
      StaticTracing::Tracer::Latency.register(Shop)
      StaticTracing::Tracers.add(StaticTracing::Tracer::Latency)
      StaticTracing.enable!
      t = StaticTracing::Tracepoint.new('shop', 'sale', Integer)
      p [Shop.new.sell(id: 3), t.provider.enable, t.enabled?, t.fire(1), t.fire { raise 'never' }, t.provider.path != '']
      begin
        t.fire('one')
      rescue StaticTracing::Tracepoint::InvalidArgumentError
        puts 'checked'
      end
      p [StaticTracing.disable!, t.provider.disable, t.fire(2), t.provider.destroy]
    rescue StaticTracing::LibraryMissingError => e
      puts "missing: \#{e.message}"
    end
  RUBY
  NO_OPS = "[3, true, false, false, false, false]\nchecked\n[true, true, false, nil]\n"
  # The library of the tests, by whatever way it was found.
  FOUND = begin
    StaticTracing::Native.available?
    File.read('/proc/self/maps')[%r{/\S*libnopal\.so\S*}]
  end
  NOWHERE = { 'NOPAL_LIBRARY' => '/nowhere/libnopal.so' }.freeze

  def test_with_the_library
    out, err, status = ruby(USE, 'NOPAL_LIBRARY' => FOUND)
    assert status.success?, err
    assert_equal NO_OPS.sub('false]', 'true]'), out
    assert_equal '', err
  end

  def test_a_folder_may_be_named
    out, err, = ruby(USE, 'NOPAL_LIBRARY' => File.dirname(FOUND))
    assert_equal NO_OPS.sub('false]', 'true]'), out, err
  end

  def test_beside_the_gem
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(File.join(Programs::LIB, '.'), folder)
      FileUtils.cp(FOUND, File.join(folder, 'libnopal.so'))
      out, err, = Open3.capture3({ 'NOPAL_LIBRARY' => nil }, RbConfig.ruby, "-I#{folder}", '-e', USE + "\nputs File.read('/proc/self/maps').include?(\"#{folder}/libnopal.so\")")
      assert_equal "#{NO_OPS.sub('false]', 'true]')}true\n", out, err
    end
  end

  def test_by_the_system
    Dir.mktmpdir do |folder|
      FileUtils.cp_r(File.join(Programs::LIB, '.'), folder)
      environment = { 'NOPAL_LIBRARY' => nil, 'LD_LIBRARY_PATH' => File.dirname(FOUND) }
      out, err, = Open3.capture3(environment, RbConfig.ruby, "-I#{folder}", '-e', USE)
      assert_equal NO_OPS.sub('false]', 'true]'), out, err
    end
  end

  def test_a_missing_library_is_one_clear_error_when_the_first_provider_is_made
    out, _, status = ruby(USE, NOWHERE)
    assert status.success?
    assert_match(/\Amissing: /, out)
    ['/nowhere/libnopal.so: not there', 'NOPAL_LIBRARY', 'NOPAL=off'].each { |part| assert_includes out, part }
    # Loading the gem alone is no error.
    out, err, status = ruby("require 'nopal'; puts Nopal::VERSION", NOWHERE)
    assert status.success?, err
    assert_equal "#{StaticTracing::VERSION}\n", out
  end

  def test_a_file_that_is_no_library_or_another_one
    Dir.mktmpdir do |folder|
      File.write("#{folder}/libnopal.so", 'not an object')
      assert_match(/\Amissing: .*libnopal\.so/m, ruby(USE, 'NOPAL_LIBRARY' => folder)[0])
    end
    libc = File.read('/proc/self/maps')[%r{/\S*/libc\.so\.6}]
    assert_match(/\Amissing: .*not one that this gem can use/m, ruby(USE, 'NOPAL_LIBRARY' => libc)[0])
  end

  def test_off
    %w[off OFF 0 false no].each do |value|
      out, err, = ruby(USE, NOWHERE.merge('NOPAL' => value))
      assert_equal [NO_OPS, ''], [out, err], value
    end
  end

  def test_other_wishes_are_told
    out, err, = ruby(USE, 'NOPAL' => 'bogus', 'NOPAL_LIBRARY' => FOUND)
    assert_equal NO_OPS.sub('false]', 'true]'), out
    assert_equal 1, err.scan('NOPAL=bogus means nothing; possible are `off` and `optional`').size, err
    assert_equal '', ruby(USE, 'NOPAL' => 'on', 'NOPAL_LIBRARY' => FOUND)[1]
  end

  def test_optional
    out, err, = ruby(USE, NOWHERE.merge('NOPAL' => 'optional'))
    assert_equal NO_OPS, out
    assert_equal 1, err.scan('static tracing does nothing').size, err
    out, err, = ruby(USE, 'NOPAL' => 'optional', 'NOPAL_LIBRARY' => FOUND)
    assert_equal [NO_OPS.sub('false]', 'true]'), ''], [out, err]
  end

  def test_macos_is_a_no_op
    darwin = "Object.send(:remove_const, :RUBY_PLATFORM); RUBY_PLATFORM = 'arm64-darwin23'\n"
    out, err, status = ruby(darwin + USE, NOWHERE)
    assert status.success?, err
    assert_equal NO_OPS, out
    assert_match 'not supported on arm64-darwin23', err
    out, = ruby("#{darwin}require 'ruby-static-tracing'; p StaticTracing::Platform.darwin?, StaticTracing::Platform.supported_platform?", NOWHERE)
    assert_equal "true\nfalse\n", out
  end
end
