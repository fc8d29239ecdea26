//! `nopal trace` and `nopal record` of programs that are several processes: children, programs that end at once, other
//! namespaces.

use super::tracing::{compile, errors, events, nopal_with, output_of};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run, scratch};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn programs_that_a_command_starts_are_found_and_their_lateness_is_stated() {
    let python = "import time\nf = lambda: 0\nfor i in range(500): f(); time.sleep(0.01)";
    for door in ["user", "kernel", "auto"] {
        let probe = r#"python:function__return if funcname == "<lambda>""#;
        let arguments = ["trace", "--json", "--limit", "1", "--door", door, probe];
        let output = nopal_with(
            &arguments,
            Path::new("/bin/sh"),
            &["-c", "/usr/bin/python3.11 -c \"$0\"; true", python],
        );
        assert!(output.status.success(), "{door}: {}", errors(&output));
        assert_eq!(events(&output.stdout).len(), 1, "{door}: {}", errors(&output));
        let verdict = events(&output.stderr).pop().expect("a verdict in JSON");
        assert_eq!(
            (&verdict["events"], &verdict["complete"]),
            (&1.into(), &false.into()),
            "{door}: {verdict}"
        );
        assert!(verdict["late_processes"].as_u64() >= Some(1), "{door}: {verdict}");
    }
}

/// What `forks` passed, by kind of process.
fn passes(recording: &Path) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for event in events(run(Command::new(nopal()).arg("view").arg("--json").arg(recording)).as_bytes()) {
        *counts.entry(event["args"]["arg0"].as_u64().unwrap()).or_default() += 1;
    }
    counts
}

#[test]
fn programs_that_end_before_they_are_seen_are_not_forgotten() {
    let folder = scratch("tracing_strangers");
    let program = compile(&folder, "forks");
    // Each lives about a millisecond, less than it takes to enter it.
    let script = format!("for i in 1 2 3 4 5; do {} 7; done", program.display());
    for door in ["auto", "user", "kernel"] {
        for n in 0..3 {
            let recording = folder.join(format!("{door}{n}.rec"));
            let result = output_of(
                Command::new(nopal())
                    .args(["record", "-e", "forks:pass", "--json", "--door", door, "-o"])
                    .arg(&recording)
                    .args(["--", "sh", "-c", &script]),
            );
            let result = events(&result.stdout).pop().unwrap_or_else(|| panic!("{}", errors(&result)));
            let is_all = result["events"] == 5 * 7;
            assert_eq!(result["complete"], is_all, "{door}: {result}");
        }
    }
}

#[test]
fn children_have_the_kernel_doors_sites_from_their_first_instruction_on() {
    const CHILDREN: u64 = 40;
    const ROUNDS: u64 = 25;
    let folder = scratch("tracing_forks");
    let program = compile(&folder, "forks");
    let numbers = [CHILDREN.to_string(), ROUNDS.to_string()];
    let numbers = numbers.each_ref().map(String::as_str);
    // The process itself, its children, theirs, and the program it starts again.
    let truth = BTreeMap::from([(0, ROUNDS), (1, CHILDREN * ROUNDS), (2, CHILDREN * ROUNDS), (3, ROUNDS)]);
    // Started by us, and running already.
    for is_running in [false, true] {
        let recording = folder.join(format!("{is_running}.rec"));
        let arguments = ["record", "-e", "forks:pass", "--json", "--door", "kernel", "-o"];
        let result = if is_running {
            let start = || {
                let mut child = Command::new(&program)
                    .args(numbers)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .map(Running)
                    .unwrap();
                let mut ready = [0; 6];
                child.0.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
                child
            };
            let (mut target, bystander) = (start(), start());
            let before = nopal_tests::user_door::text(bystander.pid());
            let recorder = Command::new(nopal())
                .args(arguments)
                .arg(&recording)
                .args(["-p", &target.pid().to_string()])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            wait_until("the recording begins", 20, || recording.join("metadata").exists());
            assert!(nopal_tests::user_door::text(bystander.pid()) == before, "nobody else is touched");
            target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            assert!(target.0.wait().unwrap().success());
            recorder.wait_with_output().unwrap()
        } else {
            output_of(
                Command::new(nopal()).args(arguments).arg(&recording).arg("--").arg(&program).args(numbers),
            )
        };
        let said = errors(&result);
        let result = events(&result.stdout).pop().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(passes(&recording), truth, "running {is_running}: {result}\n{said}");
        assert_eq!(
            (&result["complete"], &result["late_processes"]),
            (&true.into(), &0.into()),
            "running {is_running}: {result}\n{said}"
        );
    }
}

#[test]
fn processes_of_other_namespaces_have_both_numbers_in_a_recording() {
    let folder = scratch("tracing_namespaces");
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let outer = Running::start(
        Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .arg(&program)
            .args(["-q", "-t", "2"])
            .stdout(Stdio::null()),
    );
    let inner = || nopal_proc::children(outer.pid()).first().copied();
    wait_until("the inner process", 20, || {
        inner().is_some_and(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program))
    });
    let inner = inner().unwrap();
    let of_inner = |tid: u64| {
        let status = fs::read_to_string(format!("/proc/{inner}/task/{tid}/status")).unwrap();
        let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:")).unwrap();
        numbers.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    for door in ["user", "kernel"] {
        let recording = folder.join(door);
        let arguments = ["record", "-e", "busy:own", "--duration", "60ms", "--door", door, "-o"];
        run(Command::new(nopal())
            .args(arguments)
            .arg(&recording)
            .args(["-p", &outer.pid().to_string()])
            .stderr(Stdio::null()));
        let events = events(run(Command::new(nopal()).arg("view").arg("--json").arg(&recording)).as_bytes());
        assert!(events.len() > 100, "{door}");
        for event in &events {
            assert_eq!((&event["pid"], &event["vpid"]), (&inner.into(), &1.into()), "{door}: {event}");
        }
        let threads: std::collections::BTreeSet<(u64, u64)> =
            events.iter().map(|e| (e["tid"].as_u64().unwrap(), e["vtid"].as_u64().unwrap())).collect();
        assert_eq!(threads.len(), 2, "{door}");
        for (tid, vtid) in threads {
            assert_eq!(of_inner(tid), vtid, "{door}");
        }
        let babeltrace = Command::new("babeltrace2").arg(&recording).output().unwrap();
        // A program that does nothing else may be faster than the recorder; that is all there is to say.
        assert!(
            errors(&babeltrace).lines().all(|l| l.contains("Tracer discarded")),
            "{}",
            errors(&babeltrace)
        );
    }
}
