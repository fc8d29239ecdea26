//! What one hit costs, in process: bursts of hits timed with the thread's CPU clock, the ring drained between them.
//! `cargo run --release -p nopal-bench-stub`. Prints min and median over the bursts,
//! what was lost, and what the reader takes for one record at best; then the bars. Exit code 1 if one is missed.

#[path = "../../../tracer/nopal-user/tests/stub/harness.rs"]
mod harness;

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::{Harness, Place, hit2, operand, pair, record, value};
use nopal_abi::stub_space::Path;
use nopal_capture::span::BLOCK_BYTES;
use nopal_capture::{Action, Capture, Cell, Closing, Predicate, Relation, SpanSite, SpanStep};
use nopal_program::aggregate::Aggregate;
use nopal_user::stub::{Heap, StubSpec};

const BURST: u64 = 16_384;
const BURSTS: usize = 300;

fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

/// ns per hit, min and median over the bursts.
fn measure(hit: impl Fn(u64), mut between: impl FnMut()) -> (f64, f64) {
    let mut costs = Vec::with_capacity(BURSTS);
    for _ in 0..BURSTS {
        let start = thread_ns();
        for i in 0..BURST {
            hit(i);
        }
        costs.push((thread_ns() - start) as f64 / BURST as f64);
        between();
    }
    costs.sort_by(f64::total_cmp);
    (costs[0], costs[BURSTS / 2])
}

/// A heap that ends behind the page of the text.
fn heap_around(text: &'static CStr) -> Heap {
    static END: AtomicU64 = AtomicU64::new(0);
    let start = text.as_ptr() as u64 & !4095;
    END.store(start + 4096, Ordering::Relaxed);
    Heap { start, end_word: END.as_ptr() as u64 }
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
        row(
            "string of 20, u64, foreign, in the heap",
            None,
            StubSpec { heap: Some(heap_around(text)), ..parts(string(false), true, true) },
        ),
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
    let (empty, empty_median) = measure(|i| hit2(argument, i), || {});
    println!(
        "\n### A hit in process, call included\n\n| | min ns | median ns | lost | ns to read a record |"
    );
    println!("|---|---|---|---|---|\n| no stub | {empty:.1} | {empty_median:.1} | | |");
    let mut bars = Vec::new();
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
        let (min, median) = measure(
            |i| hit2(argument, i),
            || {
                let start = thread_ns();
                let mut sum = 0;
                let polled = reader.poll(|_, view| sum += view.payload.len());
                std::hint::black_box(sum);
                reading = reading.min((thread_ns() - start) as f64 / polled.records as f64);
                lost += polled.gaps.iter().map(|gap| gap.count).sum::<u64>();
            },
        );
        bars.extend(bar.map(|bar| (name, min, bar)));
        let reading = if reading.is_finite() { format!("{reading:.1}") } else { "-".to_string() };
        println!("| {name} | {min:.1} | {median:.1} | {lost} | {reading} |");
    }
    spans();
    println!("\n### Bars\n\n| bar | measured | allowed | |\n|---|---|---|---|");
    for (name, min, bar) in &bars {
        let verdict = if min > bar { "FAIL" } else { "PASS" };
        println!("| a hit in process, {name}: ns | {min:.1} | at most {bar:.1} | {verdict} |");
    }
    std::process::exit(i32::from(bars.iter().any(|(_, min, bar)| min > bar)));
}

/// A begin and an end that a stub pairs and adds up, and what one reading of the clock takes.
fn spans() {
    let (clock, clock_median) = measure(
        |_| {
            // SAFETY: every processor this runs on has the instruction.
            std::hint::black_box(unsafe { std::arch::x86_64::_rdtsc() });
        },
        || {},
    );
    println!(
        "\n### A begin and an end that stubs pair and add up, in process\n\n| | min ns | median ns |\n|---|---|---|"
    );
    println!("| one reading of the clock | {clock:.1} | {clock_median:.1} |");
    for (name, n_slowest, stack) in [
        ("a begin and an end", 20, None),
        ("a begin and an end, no slowest", 0, None),
        ("a call", 20, Some("8@%rsp")),
    ] {
        let mut harness = Harness::new(|config| {
            config.cells_bytes = BLOCK_BYTES;
            config.span_slots = 64;
        });
        harness.ring.set_span_rate(1 << 31);
        let site = |steps, values| SpanSite { steps, values, n_slowest, has_calls: stack.is_some() };
        let stack = || stack.map(operand);
        let begin =
            SpanStep::Begin { span: 0, is_outermost: false, questions: vec![], key: None, stack: stack() };
        let end = SpanStep::End {
            span: 0,
            is_outermost: false,
            parts: vec![],
            closing: Closing::default(),
            stack: stack(),
        };
        for (place, step) in [(Place::PairBegin, begin), (Place::PairEnd, end)] {
            let values = if n_slowest > 0 { vec![operand("8@%rdi")] } else { vec![] };
            let action = Action::Spans(site(vec![step], values));
            harness.attach(place, &StubSpec { action, ..record(1, vec![]) });
        }
        let mut reader = harness.reader();
        let (min, median) = measure(
            |i| pair(i, i),
            || {
                reader.poll(|_, _| {});
            },
        );
        println!("| {name} | {min:.1} | {median:.1} |");
    }
}
