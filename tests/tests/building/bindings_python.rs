//! The Python package in `bindings/python`: its own tests, its wheel, and Python programs as bpftrace and nopal see them.

use nopal_tests::bindings::{Language, Program, acceptance, libnopal};
use nopal_tests::{nopal, run, scratch};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const PYTHON: Language = Language::Python;
/// The system's, for which Debian has packages of setuptools.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

#[test]
fn its_own_tests_pass() {
    for interpreter in ["python3", SYSTEM_PYTHON] {
        let mut command = Command::new(interpreter);
        for (name, value) in PYTHON.command().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", "."]);
        let output = command.current_dir(PYTHON.folder()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.trim_end().ends_with("\nOK"), "{interpreter}: {said}");
    }
}

#[test]
fn hello_latency_and_stack() {
    acceptance(PYTHON);
}

#[test]
fn the_wheel_is_built_and_works_when_installed() {
    let folder = scratch("python-wheel");
    let copy = folder.join("package");
    run(Command::new("cp").arg("-r").arg(PYTHON.folder()).arg(&copy));
    // A copy of the library beside the modules is part of the wheel.
    fs::copy(libnopal(), copy.join("src/nopal/libnopal.so")).unwrap();
    let build = "import setuptools.build_meta as b, sys, zipfile, os
folder = sys.argv[1]
name = b.build_wheel(folder)
zipfile.ZipFile(os.path.join(folder, name)).extractall(os.path.join(folder, 'installed'))";
    run(Command::new(SYSTEM_PYTHON).args(["-c", build]).arg(&folder).current_dir(&copy));
    let use_it = "import nopal; p = nopal.Provider('a'); p.add_probe('b', int); p.load(); print(nopal.__file__, p.path)";
    let installed = folder.join("installed");
    let said = run(Command::new(SYSTEM_PYTHON)
        .args(["-c", use_it])
        .current_dir(&folder)
        .env("PYTHONPATH", &installed)
        .env_remove("NOPAL_LIBRARY"));
    assert!(said.starts_with(installed.to_str().unwrap()) && said.contains(" /proc/"), "{said}");
}

const VALUES: &str = r#"
import signal
import nopal
from nopal import Type

provider = nopal.Provider("values")
integers = provider.add_probe("integers", i8=Type.INT8, u8=Type.UINT8, i16=Type.INT16, u16=Type.UINT16, i32=Type.INT32,
                              u32=Type.UINT32, i64=int, u64=Type.UINT64)
texts = provider.add_probe("texts", text=str, bytes=bytes, f=Type.FLOAT, d=float)
twelve = provider.add_probe("twelve", *[int] * 12)
provider.load()

def fire(*_):
    integers.fire(-8, 200, -16_000, 60_000, -2_000_000_000, 4_000_000_000, -2**63, 2**64 - 1)
    texts.fire("grün\0cut", b"a\0b", 1.5, -0.1)
    twelve.fire(*range(1, 13))

# One round at a time: a handler of Python may be called while it runs.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGUSR2})
    fire()
"#;

#[test]
fn values_of_every_type_arrive() {
    let expected = [
        json!({"i8": -8, "u8": 200, "i16": -16000, "u16": 60000, "i32": -2000000000, "u32": 4000000000u32,
            "i64": i64::MIN, "u64": u64::MAX}),
        json!({"text": "grün", "f": 1.5, "d": -0.1}),
        (0..12).map(|i| (format!("arg{i}"), json!(i + 1))).collect::<serde_json::Map<_, _>>().into(),
    ];
    let mut program = Program::of(PYTHON, "values", VALUES);
    for door in ["user", "kernel"] {
        let events = program.nopal_round(door, "values:*", 3, |e| e["name"] == "integers");
        for (event, expected) in events.iter().zip(&expected) {
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
import signal
import nopal

provider = nopal.Provider("thousand")
probes = [provider.add_probe(f"probe{i}", number=int) for i in range(1000)]
provider.load()
signal.signal(signal.SIGUSR2, lambda *_: [probe.fire(i) for i, probe in enumerate(probes)])
print("ready", flush=True)
while True:
    signal.pause()
"#;

#[test]
fn a_thousand_probes() {
    let mut program = Program::of(PYTHON, "thousand", THOUSAND);
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

const TWINS: &str = r#"
import os
import signal
import nopal
from nopal import stapsdt

first, second = nopal.Provider("twins"), nopal.Provider("twins")
here, there = first.add_probe("event", who=str, pid=int), second.add_probe("event", who=str, pid=int)
first.load()
second.load()
old = stapsdt.Provider("twins")
compatible = old.add_probe("compatible", stapsdt.ArgTypes.uint64, stapsdt.ArgTypes.int32)
old.load()

def fire(*_):
    here.fire("first", os.getpid())
    there.fire("second", os.getpid())
    child = os.fork()
    if child == 0:
        here.fire("child", os.getpid())
        os._exit(0)
    os.waitpid(child, 0)
    compatible.fire(2**40, -3)

# One round at a time: a handler of Python may be called while it runs.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGUSR2})
    fire()
"#;

#[test]
fn two_providers_of_one_name_and_a_child() {
    let mut program = Program::of(PYTHON, "twins", TWINS);
    for door in ["user", "kernel"] {
        let events = program.nopal_round(door, "twins:*", 4, |e| e["args"]["who"] == "first");
        let who: Vec<&Value> = events.iter().map(|e| &e["args"]["who"]).collect();
        assert_eq!(
            who,
            [&json!("first"), &json!("second"), &json!("child"), &Value::Null],
            "{door}: {events:?}"
        );
        for event in &events[..3] {
            assert_eq!(event["pid"], event["args"]["pid"], "{door}: {event}");
        }
        assert_eq!(events[3]["args"], json!({"arg0": 1u64 << 40, "arg1": -3}), "{door}");
    }
}

const LATE: &str = r#"
import signal
import nopal

provider = nopal.Provider("late")
first = provider.add_probe("first", number=int)
provider.load()
rounds = 0

def fire(*_):
    global rounds
    rounds += 1
    first.fire(rounds)
    provider.add_probe(f"late{rounds}", number=int).fire(rounds)

# One round at a time: a handler of Python may be called while it runs.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
print("ready", flush=True)
while True:
    signal.sigwait({signal.SIGUSR2})
    fire()
"#;

/// What is declared under a tracer is heard from its first hit on.
#[test]
fn probes_declared_while_a_tracer_listens() {
    let mut program = Program::of(PYTHON, "late", LATE);
    let events = program.nopal_round("user", "late:*", 4, |e| e["name"] == "first");
    for pair in events.chunks(2) {
        let number = pair[0]["args"]["number"].as_i64().unwrap();
        assert_eq!((&pair[0]["name"], &pair[1]["name"]), (&json!("first"), &json!(format!("late{number}"))));
        assert_eq!(pair[1]["args"]["number"], number);
    }
}
