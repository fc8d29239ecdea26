//! The Ruby gem in `bindings/ruby`: its own tests, its documents, and Ruby programs as bpftrace and nopal see them.

use nopal_tests::bindings::{Language, Program, acceptance, libnopal};
use nopal_tests::{nopal, run, scratch};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const RUBY: Language = Language::Ruby;

#[test]
fn its_own_tests_pass() {
    let output = run(RUBY.command().arg(RUBY.folder().join("test/all.rb")));
    let summary = output.lines().last().expect("a summary");
    assert!(summary.contains(" 0 failures, 0 errors, 0 skips"), "{output}");
}

#[test]
fn hello_latency_and_stack() {
    acceptance(RUBY);
}

#[test]
fn the_gem_is_built_and_works_when_installed() {
    let folder = scratch("ruby-gem");
    let gem = folder.join("nopal.gem");
    run(Command::new("gem").args(["build", "nopal.gemspec", "-o"]).arg(&gem).current_dir(RUBY.folder()));
    let home = folder.join("home");
    run(Command::new("gem")
        .args(["install", "--local", "--no-document", "--ignore-dependencies", "--install-dir"])
        .arg(&home)
        .arg(&gem));
    let code = "require 'nopal'; t = Nopal::Tracepoint.new('a', 'b', Integer); t.provider.enable
        print Gem.loaded_specs['nopal'].full_gem_path, ' ', t.provider.path";
    let said = run(Command::new("ruby")
        .args(["-w", "-e", code])
        .env("GEM_HOME", &home)
        .env("NOPAL_LIBRARY", libnopal()));
    assert!(said.starts_with(home.to_str().unwrap()), "{said}");
    assert!(said.contains("/proc/"), "{said}");
}

/// The first example of the README is run as it stands, its program and its command.
#[test]
fn the_histogram_of_the_readme() {
    let readme = fs::read_to_string(RUBY.folder().join("README.md")).unwrap();
    let mut blocks = readme.split("```").skip(1).step_by(2);
    let code = blocks.next().unwrap().strip_prefix("ruby\n").expect("the first block is Ruby");
    assert!(code.lines().count() <= 5, "{code}");
    let commands = blocks.next().unwrap();
    let script = commands.lines().find_map(|line| line.strip_prefix("bpftrace -p PID -e '")).unwrap();
    let script = script.strip_suffix('\'').unwrap();
    let text = format!(
        "{code}Signal.trap('USR2') {{ ERB.new('<%= 1 + 1 %>').result }}\nputs 'ready'\n$stdout.flush\nloop {{ sleep 1 }}\n"
    );
    let mut program = Program::of(RUBY, "readme", &text);
    let ending = format!("{script} interval:s:3 {{ exit(); }}");
    for printed in [
        program.bpftrace(&["-e", &ending]),
        program.nopal_run("user", &["-e", &ending]),
        program.nopal_run("kernel", &["-e", &ending]),
    ] {
        assert!(printed.contains("@[result]:") && printed.contains("|@@@"), "{printed}");
    }
    for door in ["user", "kernel"] {
        let events = program.nopal_trace(door, "erb:*", 10);
        let methods: BTreeSet<&str> = events.iter().map(|e| e["args"]["method"].as_str().unwrap()).collect();
        assert!(methods.contains("result"), "{methods:?}");
    }
}

const VALUES: &str = r#"
require 'ruby-static-tracing'
types = { i8: :int8, u8: :uint8, i16: :int16, u16: :uint16, i32: :int32, u32: :uint32, i64: Integer, u64: :uint64 }
integers = StaticTracing::Tracepoint.new('values', 'integers', **types)
texts = StaticTracing::Tracepoint.new('values', 'texts', text: String, bytes: :bytes, f: :float, d: Float)
twelve = StaticTracing::Tracepoint.new('values', 'twelve', *[Integer] * 12)
integers.provider.enable
Signal.trap('USR2') do
  integers.fire(-8, 200, -16_000, 60_000, -2_000_000_000, 4_000_000_000, -2**63, 2**64 - 1)
  texts.fire("grün\0cut", "a\0b", 1.5, -0.1)
  twelve.fire(*1..12)
end
puts 'ready'
$stdout.flush
loop { sleep 1 }
"#;

/// The same values come from Ruby and from Python.
fn values() -> Vec<Value> {
    vec![
        json!({"i8": -8, "u8": 200, "i16": -16000, "u16": 60000, "i32": -2000000000, "u32": 4000000000u32,
            "i64": i64::MIN, "u64": u64::MAX}),
        json!({"text": "grün", "f": 1.5, "d": -0.1}),
        (0..12).map(|i| (format!("arg{i}"), json!(i + 1))).collect::<serde_json::Map<_, _>>().into(),
    ]
}

#[test]
fn values_of_every_type_arrive() {
    let mut program = Program::of(RUBY, "values", VALUES);
    for door in ["user", "kernel"] {
        let events = program.nopal_round(door, "values:*", 3, |e| e["name"] == "integers");
        for (event, expected) in events.iter().zip(values()) {
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&event["args"][name], value, "{door}: {name} of {event}");
            }
        }
        assert!(!events[1]["args"]["bytes"].is_null(), "{}", events[1]);
    }
    let script = "usdt::values:integers { printf(\"%d %u %d %u %d %u\\n\", arg0, arg1, arg2, arg3, arg4, arg5); exit(); }";
    let printed = program.bpftrace(&["-e", script]);
    assert!(printed.starts_with("-8 200 -16000 60000 -2000000000 4000000000\n"), "{printed}");
}

const THOUSAND: &str = r#"
require 'ruby-static-tracing'
provider = StaticTracing::Provider.register('thousand')
probes = Array.new(1000) { |i| provider.add_tracepoint("probe#{i}", number: Integer) }
provider.enable
Signal.trap('USR2') { probes.each_with_index { |probe, i| probe.fire(i) } }
puts 'ready'
$stdout.flush
loop { sleep 1 }
"#;

#[test]
fn a_thousand_probes() {
    let mut program = Program::of(RUBY, "thousand", THOUSAND);
    let listed =
        run(Command::new(nopal()).args(["list", "--json", "-p", &program.pid().to_string(), "thousand:*"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 1000);
    for door in ["user", "kernel"] {
        let events = program.nopal_round(door, "thousand:*", 1000, |e| e["name"] == "probe0");
        for (i, event) in events.iter().enumerate() {
            assert_eq!(
                (&event["name"], &event["args"]["number"]),
                (&json!(format!("probe{i}")), &json!(i)),
                "{door}"
            );
        }
    }
}

const FORKING: &str = r#"
require 'ruby-static-tracing'
tracepoint = StaticTracing::Tracepoint.new('forking', 'event', who: String, pid: Integer)
tracepoint.provider.enable
Signal.trap('USR2') do
  tracepoint.fire('parent', Process.pid)
  Process.wait(fork { tracepoint.fire('child', Process.pid); exit!(0) })
  Thread.new { tracepoint.fire('thread', Process.pid) }.join
end
puts 'ready'
$stdout.flush
loop { sleep 1 }
"#;

#[test]
fn children_and_threads_fire_for_a_tracer() {
    let mut program = Program::of(RUBY, "forking", FORKING);
    for door in ["user", "kernel"] {
        let events = program.nopal_round(door, "forking:event", 3, |e| e["args"]["who"] == "parent");
        let who: Vec<&str> = events.iter().map(|e| e["args"]["who"].as_str().unwrap()).collect();
        assert_eq!(who, ["parent", "child", "thread"], "{door}");
        for event in &events {
            assert_eq!(event["pid"], event["args"]["pid"], "{door}: {event}");
        }
    }
}

const SWITCHED: &str = r#"
require 'ruby-static-tracing'
class Operation
  def act(round, part:)
    [round, part]
  end
end
StaticTracing::Tracer::Argument.register(Operation)
StaticTracing.configure { |config| config.add_tracer(StaticTracing::Tracer::Argument) }
def switch(on)
  Process.kill('PROF', Process.pid)
  sleep 0.01 until StaticTracing.enabled? == on
end
wanted = 0
Signal.trap('USR2') { wanted += 1 }
switch(true)
puts 'ready'
$stdout.flush
done = 0
loop do
  sleep 0.01
  next if done == wanted
  done += 1
  probe = StaticTracing::Tracepoint.fetch('operation', 'act')
  is_heard = probe.enabled?
  Operation.new.act(done, part: :before)
  switch(false)
  Operation.new.act(done, part: :off)
  switch(true)
  # The user door looks a few times a second whether it is to come again.
  500.times { sleep 0.01 if is_heard && !probe.enabled? }
  Operation.new.act(done, part: :after)
end
"#;

/// While tracing is switched off nothing is heard; a tracer that stays hears again what comes later.
#[test]
fn signals_switch_tracing_under_a_tracer() {
    let mut program = Program::of(RUBY, "switched", SWITCHED);
    for door in ["user", "kernel"] {
        let events = program.nopal_trace(door, "operation:act", 4);
        let parts: Vec<&str> = events
            .iter()
            .map(|e| e["args"]["arguments"].as_str().unwrap().split("part: ").nth(1).unwrap())
            .collect();
        // The first may have come in the middle of a round.
        let expected = if parts[0] == ":before" { [":before", ":after"] } else { [":after", ":before"] };
        assert_eq!(parts, [expected, expected].concat(), "{door}");
    }
}
