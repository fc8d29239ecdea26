//! `libstapsdt.so.0` and `libstapsdt.h`: programs and bindings that were written for libstapsdt run on ours unchanged.

use nopal_tests::process::Running;
use nopal_tests::runtime::{compile, libraries};
use nopal_tests::{lab, nopal, root, run, scratch};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Compiled once: the tests that share it run at the same time.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("stapsdt", &["-lstapsdt"]))
}

/// Starts a program that says its pid.
fn start(command: &mut Command) -> (Running, String) {
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), running.pid().to_string());
    (running, line.trim().to_owned())
}

fn trace(pid: &str, probe: &str, door: &str) -> Value {
    let arguments = ["trace", "--json", "--limit", "1", "--door", door, "-p", pid, probe];
    let text = run(Command::new("timeout").arg("60").arg(nopal()).args(arguments));
    let event: Value = serde_json::from_str(text.lines().next().expect("an event")).unwrap();
    event["args"].clone()
}

fn bpftrace(pid: &str, script: &str) -> String {
    run(Command::new("timeout").args(["60", "bpftrace", "-p", pid, "-e", script]))
}

#[test]
fn functions_structures_and_values() {
    let program = program();
    assert_eq!(run(&mut Command::new(program)), "ok\n");
    // No invalid read or write, nothing lost.
    run(Command::new("valgrind")
        .args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"])
        .arg(program));
    let (_running, pid) = start(Command::new(program).arg("a text"));
    for door in ["user", "kernel"] {
        assert_eq!(trace(&pid, "compat:one", door), json!({"arg0": -1}), "{door}");
        let mut six = trace(&pid, "compat:six", door);
        assert!(six["arg4"].as_u64().is_some_and(|address| address > 4096), "{door}: {six}");
        six["arg4"] = json!("an address");
        let want = json!({"arg0": 200, "arg1": -8, "arg2": 60000, "arg3": -300, "arg4": "an address",
            "arg5": -5_000_000_000i64});
        assert_eq!(six, want, "{door}");
        assert_eq!(trace(&pid, "compat:late", door), json!({}), "{door}");
    }
    let script = "usdt::compat:six { printf(\"%d %d %d %d %s %lld\\n\", arg0, arg1, arg2, arg3, str(arg4), arg5); exit(); }";
    let text = bpftrace(&pid, script);
    assert!(text.contains("200 -8 60000 -300 a text -5000000000"), "{text}");
}

/// Wrappers that look at the first byte of a site themselves see every tracer.
#[test]
fn whoever_listens_changes_the_first_byte() {
    let program = program();
    for door in ["user", "kernel"] {
        let (_running, pid) = start(Command::new(program).arg("inline"));
        // The site is changed a moment before its hits count.
        let args = trace(&pid, "inline:hit", door);
        assert!(args["arg0"].as_u64().is_some_and(|n| n > 0), "{door}: {args}");
    }
}

#[test]
fn the_header_is_c_and_cxx() {
    let folder = scratch("runtime-stapsdt-header");
    let source = folder.join("use.c");
    let text = "#include <libstapsdt.h>\nint use(SDTProvider_t *p) { return providerLoad(p) == 0 && p->errno == noError; }\n";
    std::fs::write(&source, text).unwrap();
    for compiler in [
        &["gcc", "-std=c89"][..],
        &["gcc", "-std=c11"],
        &["clang"],
        &["g++", "-x", "c++"],
        &["clang++", "-x", "c++"],
    ] {
        run(Command::new(compiler[0])
            .args(&compiler[1..])
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o"])
            .arg(folder.join("use.o"))
            .arg("-I")
            .arg(root().join("include"))
            .arg(&source));
    }
}

#[test]
fn the_library_is_named_and_exports_as_the_real_one() {
    let library = libraries().join("libstapsdt.so");
    let text = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<&str> = text.lines().filter_map(|l| l.split(' ').next_back()).collect();
    let functions = [
        "probeFire",
        "probeIsEnabled",
        "providerAddProbe",
        "providerDestroy",
        "providerInit",
        "providerLoad",
        "providerUnload",
        "providerUseMemfd",
    ];
    assert_eq!(exported, BTreeSet::from(functions));
    let text = run(Command::new("readelf").arg("-dlW").arg(&library));
    assert!(text.contains("[libstapsdt.so.0]"), "{text}");
    let stack = text.lines().find(|l| l.contains("GNU_STACK")).unwrap();
    assert!(!stack.contains('E'), "{stack}");
}

/// Python with the package `stapsdt` as its registry has it.
fn python() -> PathBuf {
    let folder = lab::cached("python-stapsdt", &"stapsdt 0.1.1", |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder));
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "stapsdt==0.1.1"]));
    });
    folder.join("bin/python")
}

const PROGRAM: &str = r#"
import os, time
from stapsdt import ArgTypes, Provider
provider = Provider("pythonapp")
probe = provider.add_probe("firstProbe", ArgTypes.uint64, ArgTypes.int32)
other = provider.add_probe("otherProbe")
assert probe.fire("too early", 1) is False
assert provider.load() is False
assert not probe.is_enabled
print(os.getpid(), flush=True)
while True:
    probe.fire("My little probe", -42)
    assert other.fire() is False
    time.sleep(0.001)
"#;

#[test]
fn the_python_package_runs_unchanged() {
    let (_running, pid) =
        start(Command::new(python()).args(["-c", PROGRAM]).env("LD_LIBRARY_PATH", libraries()));
    let script = "usdt::pythonapp:firstProbe { printf(\"%s %d\\n\", str(arg0), arg1); exit(); }";
    let text = bpftrace(&pid, script);
    assert!(text.contains("My little probe -42"), "{text}");
    for door in ["user", "kernel"] {
        let args = trace(&pid, "pythonapp:firstProbe", door);
        assert_eq!(args["arg1"], -42, "{door}: {args}");
        assert!(args["arg0"].as_u64().is_some_and(|address| address > 4096), "{door}: {args}");
    }
    // With a type for the argument nopal shows the text, too.
    let names = scratch("runtime-python").join("pythonapp.d");
    std::fs::write(&names, "provider pythonapp { probe firstProbe(char *text, int number); };").unwrap();
    for door in ["user", "kernel"] {
        let text = run(Command::new("timeout")
            .arg("60")
            .arg(nopal())
            .args([
                "trace",
                "--json",
                "--limit",
                "1",
                "--door",
                door,
                "-p",
                &pid,
                "pythonapp:firstProbe",
                "--provider",
            ])
            .arg(&names));
        let event: Value = serde_json::from_str(text.lines().next().expect("an event")).unwrap();
        assert_eq!(event["args"], json!({"text": "My little probe", "number": -42}), "{door}");
    }
}
