//! What one hit costs, in process: bursts of hits timed with the thread's CPU clock, the ring drained between them.
//! `cargo run --release -p nopal-bench-stub`. Prints min and median over the bursts,
//! what was lost, and what the reader takes for one record at best.

#[path = "../../../tracer/nopal-user/tests/stub/harness.rs"]
mod harness;

use std::time::Duration;

use harness::{Harness, Place, hit2, operand, record, value};
use nopal_abi::stub_space::Path;
use nopal_capture::{Action, Capture, Cell, Predicate, Relation};
use nopal_program::aggregate::Aggregate;
use nopal_user::stub::StubSpec;

const BURST: u64 = 16_384;
const BURSTS: usize = 300;

fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

/// ns per hit, min and median over the bursts.
fn measure(a: u64, b: u64, mut between: impl FnMut()) -> (f64, f64) {
    let mut costs = Vec::with_capacity(BURSTS);
    for _ in 0..BURSTS {
        let start = thread_ns();
        for i in 0..BURST {
            hit2(a, b + i);
        }
        costs.push((thread_ns() - start) as f64 / BURST as f64);
        between();
    }
    costs.sort_by(f64::total_cmp);
    (costs[0], costs[BURSTS / 2])
}

struct Row {
    name: &'static str,
    /// The most that min may be.
    bar: Option<f64>,
    path: Option<Path>,
    spec: StubSpec,
}

fn parts(captures: Vec<Capture>, has_time: bool, has_task: bool) -> StubSpec {
    StubSpec { action: Action::Record { captures, has_time, has_task }, ..record(1, vec![]) }
}

fn main() {
    let text = c"twenty bytes of text";
    let two = || vec![value("8@%rdi"), value("8@%rsi")];
    let string = |is_trusted| {
        vec![Capture::CString { pointer: operand("8@%rdi"), max_bytes: 256, is_trusted }, value("8@%rsi")]
    };
    let three = || {
        let text = || Capture::CString { pointer: operand("8@%rdi"), max_bytes: 256, is_trusted: true };
        vec![value("4@%esi"), text(), text(), text(), value("8@%rsi")]
    };
    let aggregate = |cells| StubSpec { action: Action::Aggregate(cells), ..record(1, vec![]) };
    let cell = |aggregate| Cell::new(0, aggregate, operand("8@%rsi"));
    let row = |name, bar, spec| Row { name, bar, path: None, spec };
    let rows = [
        row("u64,u64 time tid pid", Some(30.0), parts(two(), true, true)),
        row("u64,u64 time", None, parts(two(), true, false)),
        row("u64,u64 tid pid", None, parts(two(), false, true)),
        row("u64,u64", None, parts(two(), false, false)),
        row("string of 20, u64, foreign", Some(170.0), parts(string(false), true, true)),
        row("string of 20, u64, trusted", Some(45.0), parts(string(true), true, true)),
        row("three strings of 20, u32, u64, trusted", None, parts(three(), true, true)),
        row(
            "predicate that fails",
            None,
            StubSpec {
                predicates: vec![Predicate {
                    operand: operand("8@%rsi"),
                    relation: Relation::Less,
                    constant: 0,
                }],
                ..parts(two(), true, true)
            },
        ),
        row(
            "predicate that holds",
            None,
            StubSpec {
                predicates: vec![Predicate {
                    operand: operand("-8@%rsi"),
                    relation: Relation::Greater,
                    constant: -1,
                }],
                ..parts(two(), true, true)
            },
        ),
        row("count", Some(10.0), aggregate(vec![Cell::count(0)])),
        row("sum", None, aggregate(vec![cell(Aggregate::Sum { is_signed: false })])),
        row("max", None, aggregate(vec![cell(Aggregate::Max { is_signed: false })])),
        row("hist", Some(10.0), aggregate(vec![cell(Aggregate::Hist { bits: 0 })])),
        row("lhist", None, aggregate(vec![cell(Aggregate::Lhist { min: 0, max: 1000, step: 10 })])),
        row("count by key", Some(10.0), aggregate(vec![Cell::count(0).by_key(operand("4@%esi"), 0, 256)])),
        Row {
            name: "u64,u64 time tid pid, locked",
            bar: None,
            path: Some(Path::LockedTls),
            spec: parts(two(), true, true),
        },
        Row {
            name: "u64,u64 time tid pid, locked, gettid",
            bar: None,
            path: Some(Path::Locked),
            spec: parts(two(), true, true),
        },
    ];

    let argument = text.as_ptr() as u64;
    let (empty, empty_median) = measure(argument, 0, || {});
    let head = ["ns per hit, call included", "min", "median", "lost", "read"];
    println!("{:38} {:>7} {:>7} {:>7} {:>7}   bar", head[0], head[1], head[2], head[3], head[4]);
    println!("{:38} {empty:7.1} {empty_median:7.1}", "no stub");
    let mut is_over = false;
    for Row { name, bar, path, spec } in rows {
        let mut harness = Harness::new(|config| {
            config.cells_bytes = 4096;
            config.locked_ring_bytes = 4 << 20;
        });
        if let Some(path) = path {
            let known = harness.space.path();
            harness.space.set_path(path, known.rseq_offset, known.rseq_bytes, known.tid_offset);
        }
        harness.attach(Place::TwoArguments, &spec);
        let mut reader = harness.reader();
        let mut lost = 0;
        let mut reading = f64::INFINITY;
        let (min, median) = measure(argument, 0, || {
            let start = thread_ns();
            let mut sum = 0;
            let polled = reader.poll(|_, view| sum += view.payload.len());
            std::hint::black_box(sum);
            reading = reading.min((thread_ns() - start) as f64 / polled.records as f64);
            lost += polled.gaps.iter().map(|gap| gap.count).sum::<u64>();
        });
        let verdict =
            bar.map_or(String::new(), |bar| format!("{bar:.0}{}", if min > bar { "  OVER" } else { "" }));
        is_over |= bar.is_some_and(|bar| min > bar);
        let reading = if reading.is_finite() { format!("{reading:.1}") } else { "-".to_string() };
        println!("{name:38} {min:7.1} {median:7.1} {lost:7} {reading:>7}   {verdict}");
    }
    std::process::exit(i32::from(is_over));
}
