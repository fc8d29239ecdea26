//! Threads, signal handlers, migration and forked children on the same rings: every hit arrives once and in order.

use std::cell::Cell;
use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nopal_capture::record::{RecordKind, Value};
use nopal_user::ring::Set;

use crate::harness::{Harness, Place, Timer, distinct, has_rseq, hit2, record, value};

thread_local! {
    /// This thread's number and how many hits its signal handler has made.
    static MY_NUMBER: Cell<u64> = const { Cell::new(0) };
    static IN_HANDLER: Cell<u64> = const { Cell::new(0) };
}

/// Handlers count under a number of their own.
const HANDLER: u64 = 1 << 32;

extern "C" fn on_signal(_: i32) {
    let number = MY_NUMBER.get();
    if number != 0 {
        let n = IN_HANDLER.get();
        IN_HANDLER.set(n + 1);
        hit2(number | HANDLER, n);
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn pin(tid: i32, cpu: usize) {
    // SAFETY: zeroed is an empty set; the calls only read it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// What the reader has seen.
#[derive(Default)]
struct Seen {
    /// By writer: its counts in the order they were read, all CPUs together.
    counts: HashMap<u64, Vec<u64>>,
    /// By ring and writer: the last count.
    last: HashMap<(u32, Set, u64), u64>,
    last_time: HashMap<(u32, Set), u64>,
    tasks: HashMap<u64, (u32, u32)>,
    processes: Vec<u32>,
    lost: u64,
    damaged: u64,
}

impl Seen {
    fn poll(
        &mut self,
        reader: &mut nopal_user::consumer::Reader,
        layout: &nopal_capture::record::RecordLayout,
    ) {
        let polled = reader.poll(|source, view| {
            let time = view.time.expect("asked for");
            let last = self.last_time.insert((source.cpu, source.set), time).unwrap_or(0);
            assert!(time >= last, "time goes back from {last} to {time} on {source:?}");
            let task = view.task.expect("asked for");
            if view.kind == RecordKind::Process {
                assert!(!view.comm().is_empty());
                self.processes.push(task.pid);
                return;
            }
            let values: Vec<_> = layout.values(view.payload).map(Result::unwrap).collect();
            let [Value::Unsigned(writer), Value::Unsigned(count)] = values[..] else { panic!("{values:?}") };
            if let Some(last) = self.last.insert((source.cpu, source.set, writer), count) {
                assert!(count > last, "writer {writer:#x}: {count} after {last} on {source:?}");
            }
            let who = *self.tasks.entry(writer).or_insert((task.tid, task.pid));
            assert_eq!(who, (task.tid, task.pid), "writer {writer:#x}");
            self.counts.entry(writer).or_default().push(count);
        });
        self.lost += polled.gaps.iter().map(|gap| gap.count).sum::<u64>();
        for gap in &polled.gaps {
            assert!(gap.first <= gap.last && gap.first > 0, "{gap:?}");
        }
        self.damaged += polled.damaged + polled.abandoned;
    }

    fn expect_complete(&mut self, sent: &[(u64, u64)]) {
        assert_eq!((self.lost, self.damaged), (0, 0));
        for (writer, n) in sent {
            let mut counts = self.counts.remove(writer).unwrap_or_default();
            counts.sort_unstable();
            assert_eq!(counts.len() as u64, *n, "writer {writer:#x}");
            assert!(counts.iter().copied().eq(0..*n), "writer {writer:#x}");
        }
        assert!(self.counts.is_empty(), "unknown writers {:?}", self.counts.keys());
    }
}

/// Hits until `n` are made or told to stop; gives the two numbers of hits.
fn work(number: u64, n: u64) -> Vec<(u64, u64)> {
    MY_NUMBER.set(number);
    let timer = Timer::start(libc::SIGUSR2, on_signal, 100_000);
    for count in 0..n {
        hit2(number, count);
    }
    drop(timer);
    MY_NUMBER.set(0);
    vec![(number, n), (number | HANDLER, IN_HANDLER.get())]
}

/// Lets threads that run until they are told end when an assertion fails, too.
struct EndsOthers<'a>(&'a AtomicBool);

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_lost_doubled_or_out_of_order() {
    let n_threads = 4;
    let n = 100_000;
    let mut harness = Harness::new(|config| {
        config.ring_bytes = 64 << 20;
        config.locked_ring_bytes = if has_rseq() { 1 << 20 } else { 64 << 20 };
    });
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let mut reader = harness.reader();
    let mut seen = Seen::default();
    let is_done = AtomicBool::new(false);
    let mut sent = Vec::new();
    std::thread::scope(|scope| {
        let (tids, tid_of) = std::sync::mpsc::channel();
        let workers: Vec<_> = (1..=n_threads)
            .map(|number| {
                let tids = tids.clone();
                scope.spawn(move || {
                    // SAFETY: no arguments, no effect.
                    tids.send(unsafe { libc::gettid() }).unwrap();
                    work(number, n)
                })
            })
            .collect();
        let tids: Vec<i32> = (0..n_threads).map(|_| tid_of.recv().unwrap()).collect();
        let is_done = &is_done;
        let _ends = EndsOthers(is_done);
        scope.spawn(move || {
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                for (i, tid) in tids.iter().enumerate() {
                    pin(*tid, (round + i) % cpus());
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        // A child that was forked while the others are busy writes to the same rings.
        // SAFETY: the child runs only the site and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for count in 0..n {
                hit2(100, count);
            }
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !workers.iter().all(|worker| worker.is_finished()) {
            seen.poll(&mut reader, &stub.layout);
            assert!(Instant::now() < deadline, "the writers do not come to an end");
            std::thread::sleep(Duration::from_micros(500));
        }
        let mut status = 0;
        // SAFETY: waits for the child we made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        is_done.store(true, Ordering::Relaxed);
        for worker in workers {
            sent.extend(worker.join().unwrap());
        }
        sent.push((100, n));
        seen.poll(&mut reader, &stub.layout);
        seen.processes.sort_unstable();
        let mut expected = [std::process::id(), child as u32];
        expected.sort_unstable();
        assert_eq!(seen.processes, expected, "one PROCESS record each");
        assert_eq!(seen.tasks[&100].1, child as u32);
        assert_eq!(seen.tasks[&1].1, std::process::id());
    });
    sent.retain(|(_, n)| *n > 0);
    seen.expect_complete(&sent);
}

#[test]
fn a_killed_process_leaves_no_hole() {
    if !has_rseq() {
        return; // A locked ring may hold one reserved record of the dead; see hostile.rs.
    }
    let mut harness = Harness::new(|config| config.ring_bytes = 32 << 20);
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let mut reader = harness.reader();
    let mut seen = Seen::default();
    for writer in 1..=40u64 {
        // SAFETY: the child runs only the site, until it is killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            for count in 0.. {
                hit2(writer, count);
            }
        }
        assert!(child > 0);
        std::thread::sleep(Duration::from_micros(200 + 37 * writer));
        // SAFETY: the child is ours and has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        seen.poll(&mut reader, &stub.layout);
        assert_eq!((seen.lost, seen.damaged), (0, 0));
        let mut counts = seen.counts.remove(&writer).unwrap_or_default();
        counts.sort_unstable();
        assert!(counts.iter().copied().eq(0..counts.len() as u64), "writer {writer}");
    }
    hit2(1000, 0);
    seen.poll(&mut reader, &stub.layout);
    assert_eq!(seen.counts[&1000], [0], "the rings go on");
}

#[test]
fn what_a_small_ring_cannot_take_is_counted_exactly() {
    let n_threads = 3u64;
    let n = 60_000;
    let mut harness = Harness::new(|config| {
        (config.ring_bytes, config.sub_bytes) = (32 << 10, 4 << 10);
        (config.locked_ring_bytes, config.locked_sub_bytes) = (32 << 10, 4 << 10);
    });
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let mut reader = harness.reader();
    let mut seen = Seen::default();
    let sent: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=n_threads).map(|number| scope.spawn(move || work(number, n))).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            seen.poll(&mut reader, &stub.layout);
            std::thread::sleep(Duration::from_micros(100));
        }
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).map(|(_, n)| n).sum()
    });
    seen.poll(&mut reader, &stub.layout);
    seen.poll(&mut reader, &stub.layout);
    let received: u64 = seen.counts.values().map(|counts| counts.len() as u64).sum();
    // The PROCESS record may be among the lost.
    let missing = 1 - seen.processes.len() as u64;
    assert_eq!(received + seen.lost, sent + missing);
    assert!(seen.lost > 0, "the ring was never full");
    assert!(received > 100, "only {received} arrived");
    assert_eq!(seen.damaged, 0);
}

#[test]
fn signals_inside_stubs_leave_registers_alone() {
    let mut harness = Harness::new(|config| {
        config.ring_bytes = 16 << 20;
        config.locked_ring_bytes = 16 << 20;
    });
    harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let captures = ["8@%rax", "-4@%edx", "8@16(%rsp)", "8@%r10", "8@-8(%rsp)"].map(value).to_vec();
    harness.attach(Place::Everything, &record(2, captures));
    let harness = &harness;
    std::thread::scope(|scope| {
        for number in 1..=2 {
            scope.spawn(move || {
                MY_NUMBER.set(number);
                let timer = Timer::start(libc::SIGUSR2, on_signal, 100_000);
                let mut state = distinct();
                for round in 0..30_000u64 {
                    state.gpr[0] = round;
                    state.flags = 2 | (round & 1) << 11 | (round >> 1 & 1) | (round >> 2 & 1) << 7;
                    harness.pass(&state);
                }
                drop(timer);
                MY_NUMBER.set(0);
            });
        }
    });
    assert!(harness.reader().poll(|_, _| {}).records >= 60_000);
}

#[test]
fn without_rseq_the_locked_rings_do_it() {
    if !has_rseq() {
        return; // This is the inner run.
    }
    let tests = [
        "load::nothing_is_lost_doubled_or_out_of_order",
        "load::what_a_small_ring_cannot_take_is_counted_exactly",
        "load::signals_inside_stubs_leave_registers_alone",
        "strings::c_strings_of_every_length_and_place",
        "operands::symbols_floats_and_vectors",
        "cells::every_aggregate_of_several_threads_is_exact",
    ];
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--test-threads=1"])
        .args(tests)
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("{} passed", tests.len())), "{text}");
}
