//! Programs that do unusual things with what the stubs of the user door rely on: they compute what they compute without
//! nopal, and every hit is recorded or told lost.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{nopal, scratch};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// What became of a program that was recorded, and what nopal said.
struct Outcome {
    status: ExitStatus,
    said: String,
    told: Value,
    messages: String,
    recording: PathBuf,
}

impl Outcome {
    fn number(&self, key: &str) -> u64 {
        self.told[key].as_u64().unwrap_or_else(|| panic!("{key}: {}", self.told))
    }

    /// What the program counted.
    #[track_caller]
    fn counted(&self, key: &str) -> u64 {
        let value = self.said.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{key}: {}", self.said))
    }

    /// It ended well, and says so.
    #[track_caller]
    fn assert_ended_well(&self) {
        assert_eq!(self.status.signal(), None, "{}\n{}", self.said, self.messages);
        assert!(self.status.success(), "{}\n{}", self.said, self.messages);
    }

    fn events(&self) -> Vec<Value> {
        let text = nopal_tests::run(Command::new(nopal()).args(["view", "--json"]).arg(&self.recording));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn start(program: &Path, gate: &Path, args: &[&str], tunables: &str) -> Running {
    let mut command = Command::new(program);
    command.arg(gate).args(args).env("GLIBC_TUNABLES", tunables);
    Running::start(command.stdout(Stdio::piped()).stderr(Stdio::inherit()))
}

/// Starts the program, which waits for its gate, opens the probes, opens the gate, and waits for the end of both.
fn record(name: &str, program: &Path, args: &[&str], tunables: &str, more: &[&str]) -> Outcome {
    let folder = scratch(&format!("programs-{name}"));
    let (gate, messages, recording) = (folder.join("gate"), folder.join("messages"), folder.join("rec"));
    let mut running = start(program, &gate, args, tunables);
    let mut tracer = Running::start(
        Command::new(nopal())
            .args(["record", "-v", "--json", "-p", &running.pid().to_string(), "-o"])
            .arg(&recording)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&messages).unwrap()),
    );
    let read = || fs::read_to_string(&messages).unwrap();
    wait_until("nopal to be at work", 120, || {
        assert!(tracer.0.try_wait().unwrap().is_none(), "{name}: nopal has ended: {}", read());
        read().contains("sites: ")
    });
    fs::write(&gate, "").unwrap();
    let mut said = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = running.0.wait().unwrap();
    let told = finish(tracer, &messages);
    Outcome { status, said, told, messages: read(), recording }
}

fn finish(mut tracer: Running, messages: &Path) -> Value {
    let mut told = String::new();
    tracer.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    let status = tracer.0.wait().unwrap();
    let messages = fs::read_to_string(messages).unwrap();
    assert!(status.success(), "{messages}");
    serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {told}{messages}"))
}

#[test]
fn a_program_that_switches_its_thread_storage() {
    const ROUNDS: u64 = 3000;
    for (name, how, tunables) in [
        ("rseq", Build::Pie, ""),
        ("no-rseq", Build::Pie, "glibc.pthread.rseq=0"),
        ("static", Build::Static, ""),
        ("musl", Build::Musl, ""),
    ] {
        let program = build("switches", &["switches.c"], how);
        let rounds = ROUNDS.to_string();
        let more = ["--door", "user", "-e", "switches:*"];
        let outcome = record(&format!("switches-{name}"), &program, &[&rounds], tunables, &more);
        outcome.assert_ended_well();
        assert_eq!((outcome.counted("rounds"), outcome.counted("changed")), (ROUNDS, 0), "{name}");
        assert_eq!(outcome.number("events") + outcome.number("lost"), 2 * ROUNDS, "{name}: {}", outcome.told);
        assert_eq!(outcome.told["complete"], Value::Bool(outcome.number("lost") == 0), "{name}");
        // All hits are of one thread, with its own storage or without.
        let mut tids: Vec<String> = outcome.events().iter().map(|event| event["tid"].to_string()).collect();
        tids.sort_unstable();
        tids.dedup();
        assert_eq!(tids.len(), 1, "{name}: {tids:?}");
    }
}

#[test]
fn a_probe_inside_a_restartable_sequence_of_the_program() {
    for (name, how) in [("pie", Build::Pie), ("fixed", Build::NonPie), ("static", Build::Static)] {
        let program = build("sequences", &["sequences.c"], how);
        let alone = record(
            &format!("sequences-{name}"),
            &program,
            &["400000", "6"],
            "",
            &["--door", "user", "-e", "sequences:*"],
        );
        alone.assert_ended_well();
        assert_eq!(alone.counted("added"), alone.counted("held"), "{name}");
        assert!(alone.messages.contains("restartable sequence"), "{}", alone.messages);
        assert_eq!(alone.told["sites"]["user"], 1, "{name}: the other probe is open");
    }
    // The kernel door passes the nop without leaving its place.
    let program = build("sequences", &["sequences.c"], Build::Pie);
    let both = record("sequences-auto", &program, &["40000", "6"], "", &["-e", "sequences:*"]);
    both.assert_ended_well();
    assert_eq!(both.counted("added"), both.counted("held"));
    let sites = &both.told["sites"];
    assert_eq!((sites["user"].as_u64(), sites["kernel"].as_u64()), (Some(1), Some(1)), "{}", both.messages);
}

const LOCKS_IN: &str = "provider locksin {\n  probe hit(long n, char *heap, char *stack);\n};\n";

/// What becomes of the hits after a program has locked itself in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    /// Recorded, with strings that were not read.
    Recorded,
    /// Counted as lost: not even the time can be taken.
    Lost,
}

#[test]
fn a_program_that_locks_itself_in_lives_on() {
    const ROUNDS: u64 = 1000;
    let provider = scratch("programs-locksin-provider").join("locksin.d");
    fs::write(&provider, LOCKS_IN).unwrap();
    let (provider, rounds) = (provider.to_str().unwrap(), ROUNDS.to_string());
    let builds = [
        ("rseq", Build::Pie, ""),
        ("no-rseq", Build::Pie, "glibc.pthread.rseq=0"),
        ("static", Build::Static, ""),
        ("musl", Build::Musl, ""),
    ];
    for (build_name, how, tunables) in builds {
        // The kernel's headers, which musl-gcc does not look for.
        let program = build_with("locksin", &["locksin.c"], how, &["-idirafter", "/usr/include"]);
        for (mode, after, n_processes) in [
            ("strict", After::Lost, 1),
            ("filter", After::Recorded, 1),
            ("tight", After::Recorded, 1),
            ("seccomp", After::Recorded, 1),
            ("time", After::Lost, 1),
            ("strict-child", After::Lost, 1),
            ("filter-child", After::Recorded, 1),
            ("tight-child", After::Recorded, 1),
            ("filter-fork", After::Recorded, 2),
        ] {
            // The one jump that fits the beginning of `syscall` leads below zero there.
            if how == Build::Static && mode == "seccomp" {
                continue;
            }
            let what = format!("{build_name}, {mode}");
            let more = ["--door", "user", "--provider", provider, "-e", "locksin:hit"];
            let name = format!("locksin-{build_name}-{mode}");
            let outcome = record(&name, &program, &[mode, &rounds], tunables, &more);
            assert_eq!(outcome.status.signal(), None, "{what}: {}", outcome.messages);
            assert_eq!(outcome.status.code(), Some(0), "{what}: {}", outcome.messages);
            let hits = outcome.counted("hits");
            assert_eq!(hits, ROUNDS * (1 + n_processes), "{what}");
            let (events, lost) = (outcome.number("events"), outcome.number("lost"));
            assert_eq!(events + lost, hits, "{what}: {}", outcome.told);
            let expected_lost = if after == After::Lost { hits - ROUNDS } else { 0 };
            assert_eq!(lost, expected_lost, "{what}: {}", outcome.told);
            assert_eq!(outcome.told["complete"], Value::Bool(lost == 0), "{what}");
            // Two strings of each hit that was recorded after the door was shut.
            let unreadable = outcome.told["strings"]["unreadable"].as_u64().unwrap();
            assert_eq!(unreadable, 2 * (events - ROUNDS), "{what}: {}", outcome.told);
        }
    }
}

#[test]
fn who_locks_itself_in_is_told() {
    let program = build("locksin", &["locksin.c"], Build::Pie);
    let provider = scratch("programs-locksin-told-provider").join("locksin.d");
    fs::write(&provider, LOCKS_IN).unwrap();
    // It waits so long at its end that somebody looks meanwhile.
    let more = ["--door", "user", "--provider", provider.to_str().unwrap(), "-e", "locksin:hit"];
    let outcome = record("locksin-told", &program, &["filter", "1000", "3000000"], "", &more);
    outcome.assert_ended_well();
    assert!(outcome.messages.contains("has restricted its system calls (seccomp)"), "{}", outcome.messages);
}
