//! When events were lost: each loss that a recording tells of has a span of time in which exactly that many are missing.

use nopal_tests::cycles::{Chance, kills};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, root, run, scratch};
use nopal_trace::{Range, Recording};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

const ROUNDS: u64 = 400_000;

/// Counts on one CPU, with rests in which a reader catches up.
const PROGRAM: &str = r"
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/sdt.h>

int main(int argc, char **argv) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof here, &here);
    for (unsigned long n = 0; n < strtoul(argv[1], 0, 0); n++) {
        STAP_PROBE1(losing, count, n);
        if (n % 20000 == 19999)
            usleep(30000);
    }
    return 0;
}
";

#[test]
fn every_loss_is_told_with_the_time_it_happened() {
    let folder = scratch("recording-losses");
    let (source, program) = (folder.join("losing.c"), folder.join("losing"));
    std::fs::write(&source, PROGRAM).unwrap();
    run(Command::new("cc")
        .args(["-O2", "-g0"])
        .arg("-I")
        .arg(root().join("include"))
        .arg("-o")
        .args([&program, &source]));
    let recording = folder.join("rec");
    run(Command::new(nopal())
        .args(["record", "--door", "user", "--buffer-size", "64k", "-e", "losing:count", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program)
        .arg(ROUNDS.to_string()));

    let viewed = run(Command::new(nopal()).args(["view", "--json"]).arg(&recording));
    let mut events: Vec<(i64, u64)> = viewed
        .lines()
        .map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            (event["ts"].as_i64().unwrap(), event["args"]["arg0"].as_u64().unwrap())
        })
        .collect();
    events.push((i64::MAX, ROUNDS));
    let mut jumps: Vec<(i64, i64, u64)> = Vec::new();
    let mut before = (i64::MIN, None);
    for (ns, n) in events {
        let n_missing = n - before.1.map_or(0, |n: u64| n + 1);
        if n_missing > 0 {
            jumps.push((before.0, ns, n_missing));
        }
        before = (ns, Some(n));
    }
    let opened = Recording::open(&recording).unwrap();
    let counts = opened.count(Range::default(), |_| true, &AtomicBool::new(false)).unwrap();
    let losses = counts.report.losses;
    assert!(!losses.is_empty(), "the program was not fast enough for a buffer of 64k");
    // What is missing in a row may be told in several losses, and one loss may be of several places: what has a time in
    // common must have the number in common.
    let told = losses.iter().map(|loss| (loss.from_ns, loss.to_ns, 0, loss.count));
    let missing = jumps.iter().map(|(from, to, n)| (*from, *to, *n, 0));
    let mut spans: Vec<(i64, i64, u64, u64)> = told.chain(missing).collect();
    spans.sort_unstable();
    let mut merged: Vec<(i64, i64, u64, u64)> = Vec::new();
    for (from, to, n_missing, n_told) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => {
                *last = (last.0, last.1.max(to), last.2 + n_missing, last.3 + n_told);
            }
            _ => merged.push((from, to, n_missing, n_told)),
        }
    }
    assert!(merged.len() > 1, "it was never caught up with");
    for span in &merged {
        assert_eq!(span.2, span.3, "{span:?}\n{losses:?}\n{jumps:?}");
    }
}

/// The process of `tallied.c`, and how many hits its threads had begun and had done.
fn counted(file: &std::path::Path) -> (i32, u64, u64) {
    let bytes = std::fs::read(file).unwrap();
    let words: Vec<u64> = bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
    let sum = |first: usize| words.iter().skip(first).step_by(2).sum();
    (words.first().map_or(0, |pid| *pid as i32), sum(2), sum(3))
}

/// Kills the program at any moment: what it had done by then was recorded, or is told to be lost.
fn kill_at_any_moment(name: &str, how: Build, tunables: &str) {
    let program = build("tallied", &["tallied.c"], how);
    let folder = scratch(&format!("recording-losses-{name}"));
    let file = folder.join("counts");
    let mut chance = Chance::new(name);
    for i in 0..kills(6) {
        let recording = folder.join(format!("rec-{i}"));
        let mut recorder = Running::start(
            Command::new(nopal())
                .args(["record", "--json", "--door", "user", "-e", "tallied:hit", "-o"])
                .arg(&recording)
                .arg("--")
                .arg(&program)
                .arg(&file)
                .arg("6")
                .env("GLIBC_TUNABLES", tunables)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        wait_until("hits", 60, || {
            assert!(recorder.0.try_wait().unwrap().is_none(), "nopal has ended: {}", said(&mut recorder));
            file.exists() && counted(&file).2 > 1000
        });
        std::thread::sleep(std::time::Duration::from_micros(chance.below(300_000)));
        // SAFETY: a child of the recorder that we started; it ends only by this.
        unsafe { libc::kill(counted(&file).0, libc::SIGKILL) };
        let mut told = String::new();
        recorder.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {}", said(&mut recorder)));
        let number = |key: &str| told[key].as_u64().unwrap();
        let (_, begun, done) = counted(&file);
        let (events, lost) = (number("events"), number("lost"));
        assert!(done <= events + lost && events <= begun, "{done} done, {begun} begun: {told}");
        assert_eq!(told["complete"].as_bool(), Some(lost == 0), "{told}");
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_dir_all(&recording).unwrap();
    }
}

fn said(running: &mut Running) -> String {
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn what_a_killed_program_had_done_is_recorded_or_told_lost() {
    kill_at_any_moment("rseq", Build::Pie, "");
}

#[test]
fn what_a_killed_program_without_rseq_had_done_is_recorded_or_told_lost() {
    kill_at_any_moment("no-rseq", Build::Pie, "glibc.pthread.rseq=0");
}

#[test]
fn what_a_killed_program_of_musl_had_done_is_recorded_or_told_lost() {
    kill_at_any_moment("musl", Build::Musl, "");
}

#[test]
fn a_recorder_ends_when_told_to_though_hits_come_faster_than_it_reads() {
    let program = build("tallied", &["tallied.c"], Build::Pie);
    let folder = scratch("recording-losses-flood");
    let file = folder.join("counts");
    let mut recorder = Running::start(
        Command::new(nopal())
            .args(["record", "--json", "--door", "kernel", "-e", "tallied:hit", "-o"])
            .arg(folder.join("rec"))
            .arg("--")
            .arg(&program)
            .arg(&file)
            .arg("6")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    wait_until("hits", 60, || {
        assert!(recorder.0.try_wait().unwrap().is_none(), "nopal has ended: {}", said(&mut recorder));
        file.exists() && counted(&file).2 > 300_000
    });
    let (pid, _, done) = counted(&file);
    // SAFETY: a child of ours that was not reaped.
    unsafe { libc::kill(recorder.pid() as i32, libc::SIGINT) };
    wait_until("the recorder to end", 60, || recorder.0.try_wait().unwrap().is_some());
    let (_, begun, _) = counted(&file);
    // SAFETY: the program that the recorder started; it ends only by this.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let mut told = String::new();
    recorder.0.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    let told: serde_json::Value =
        serde_json::from_str(&told).unwrap_or_else(|e| panic!("{e}: {}", said(&mut recorder)));
    let (events, lost) = (told["events"].as_u64().unwrap(), told["lost"].as_u64().unwrap());
    assert!(done <= events + lost && events + lost <= begun, "{done} done, {begun} begun: {told}");
    assert_eq!(told["complete"].as_bool(), Some(lost == 0), "{told}");
}
