//! When events were lost: each loss that a recording tells of has a span of time in which exactly that many are missing.

use nopal_tests::{nopal, root, run, scratch};
use nopal_trace::{Range, Recording};
use std::process::Command;
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
            usleep(3000);
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
