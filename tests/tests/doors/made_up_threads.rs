//! A program that makes up a thread and a process with every hit cannot fill its tracer's memory.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, scratch};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};

/// Hits that fill what a tracer remembers, and hits after them.
const FILLING: u64 = 100_000;
const MORE: u64 = 300_000;
/// Where every thread was remembered, it was 31 MiB more.
const MOST_KIB: u64 = 6 << 10;

struct Crowd {
    running: Running,
    out: BufReader<ChildStdout>,
}

impl Crowd {
    fn start() -> Crowd {
        let program = build("crowd", &["crowd.c"], Build::Pie);
        let mut command = Command::new(program);
        let mut running = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(running.0.stdout.take().unwrap());
        Crowd { running, out }
    }

    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn write(&mut self, n: u64) {
        writeln!(self.running.0.stdin.as_mut().unwrap(), "{n}").unwrap();
        self.hear("written");
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Starts a tracer, writes hits of made-up threads, and gives what it said at its end.
#[track_caller]
fn check(name: &str, args: &[&str]) -> String {
    let folder = scratch(&format!("crowd-{name}"));
    let messages = folder.join("messages");
    // It may have to be built, and the program waits.
    let nopal = nopal();
    let mut crowd = Crowd::start();
    let mut tracer = Running::start(
        Command::new(nopal)
            .current_dir(&folder)
            .args(args)
            .args(["--door", "user", "-p", &crowd.running.pid().to_string()])
            .stdout(Stdio::null())
            .stderr(fs::File::create(&messages).unwrap()),
    );
    crowd.hear("ready");
    crowd.write(FILLING);
    let before = resident_kib(tracer.pid());
    crowd.write(MORE);
    let after = resident_kib(tracer.pid());
    assert!(after < before + MOST_KIB, "{name}: {before} KiB, then {after} KiB");
    // It passes its probe, once, and ends.
    drop(crowd.running.0.stdin.take());
    assert!(crowd.running.0.wait().unwrap().success());
    wait_until("the tracer to end", 60, || tracer.0.try_wait().unwrap().is_some());
    fs::read_to_string(messages).unwrap()
}

#[test]
fn do_not_fill_a_recorder() {
    let fields = ["--context", "procname", "--context", "ip"];
    let args = [&["record", "-e", "crowd:hit", "-o", "rec"][..], &fields].concat();
    let said = check("record", &args);
    let n_hits = FILLING + MORE + 1;
    assert!(said.contains(&format!("{n_hits} events")) && said.contains("complete"), "{said}");
}
