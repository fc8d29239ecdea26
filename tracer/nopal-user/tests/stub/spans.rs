//! Spans that stubs pair and add up themselves, compared with a plan: which begin has which end is decided here, too, by the
//! written rules, and every number is worked out again from the records of all spans.

use nopal_abi::stub_space::Path;
use nopal_capture::record::RecordKind;
use nopal_capture::span::{BLOCK_BYTES, MAX_DEPTH, MAX_SPANS, N_BUCKETS};
use nopal_capture::{Action, Predicate, Relation, SlowSpan, SpanSite, SpanStep};
use nopal_user::stub::{StubError, StubSpec};

use crate::harness::{Harness, Place, State, distinct, has_rseq, hit2, operand, record};

/// Ticks are nanoseconds.
const RATE: u64 = 1 << 32;
const N_SPANS: u8 = 4;
/// Span 1 is a part of span 0.
const PARTS: [&[u8]; N_SPANS as usize] = [&[1], &[], &[], &[]];

fn harness(span_slots: u32) -> Harness {
    let harness = Harness::new(|config| {
        config.cells_bytes = u32::from(N_SPANS) * BLOCK_BYTES;
        config.span_slots = span_slots;
    });
    harness.ring.set_span_rate(RATE);
    harness
}

fn spec(event: u32, span: u8, step: SpanStep, n_slowest: u16, values: &[&str]) -> StubSpec {
    let values = values.iter().map(|text| operand(text)).collect();
    StubSpec {
        predicates: vec![Predicate {
            operand: operand("8@%rdi"),
            relation: Relation::Equal,
            constant: span.into(),
        }],
        action: Action::Spans(SpanSite { steps: vec![step], values, n_slowest }),
        ..record(event, vec![])
    }
}

/// Spans begin at one place and end at the other; which one, the first argument says.
fn open(harness: &mut Harness, n_slowest: u16) {
    for span in 0..N_SPANS {
        let begin = SpanStep::Begin { span };
        let begin = spec(100 + u32::from(span), span, begin, n_slowest, &["8@%rsi", "-4@%edi"]);
        let end = SpanStep::End { span, parts: PARTS[usize::from(span)].to_vec() };
        let end = spec(200 + u32::from(span), span, end, n_slowest, &["8@%rsi"]);
        harness.attach(Place::TwoArguments, &begin);
        harness.attach(Place::Everything, &end);
    }
}

fn begin(span: u8, argument: u64) {
    hit2(span.into(), argument);
}

fn end(harness: &Harness, state: &mut State, span: u8, argument: u64) {
    (state.gpr[7], state.gpr[6]) = (span.into(), argument);
    harness.pass(state);
}

fn paths() -> Vec<Path> {
    let all = [Path::Rseq, Path::LockedTls, Path::Locked];
    all.into_iter().filter(|path| *path != Path::Rseq || has_rseq()).collect()
}

fn set_path(harness: &Harness, path: Path) {
    let known = harness.space.path();
    harness.space.set_path(path, known.rseq_offset, known.rseq_bytes, known.tid_offset);
}

/// What the rules make of one thread's begins and ends.
#[derive(Default)]
struct Model {
    /// Span and argument of what is open.
    open: Vec<(u8, u64)>,
    finished: Vec<(u8, u64, u64)>,
    n_ends: [u64; N_SPANS as usize],
    n_begins: [u64; N_SPANS as usize],
}

impl Model {
    fn end(&mut self, span: u8, argument: u64) {
        let Some(at) = self.open.iter().rposition(|(open, _)| *open == span) else {
            self.n_ends[usize::from(span)] += 1;
            return;
        };
        let (_, begun) = self.open.remove(at);
        let within = self.open.split_off(at);
        for (inner, argument) in within {
            match PARTS[usize::from(span)].contains(&inner) {
                true => self.n_begins[usize::from(inner)] += 1,
                false => self.open.push((inner, argument)),
            }
        }
        self.finished.push((span, begun, argument));
    }
}

fn slow_spans(harness: &Harness) -> Vec<(u32, SlowSpan, u64)> {
    let mut slow = Vec::new();
    harness.reader().poll(|_, record| {
        if let RecordKind::Event(event) = record.kind {
            let (span, rest) = SlowSpan::read(record.payload).unwrap();
            slow.push((event, span, u64::from_le_bytes(rest[..8].try_into().unwrap())));
        }
    });
    slow
}

/// Buckets as nopal-spans draws them.
fn bucket(ns: u64) -> usize {
    match ns {
        0..64 => ns as usize,
        _ => ((ns.ilog2() as usize - 6) << 6) + (ns >> (ns.ilog2() - 6)) as usize,
    }
}

#[test]
fn spans_are_paired_and_added_up_as_planned() {
    for path in paths() {
        let mut harness = harness(64);
        set_path(&harness, path);
        open(&mut harness, u16::MAX);
        let (mut model, mut state, mut seed) = (Model::default(), distinct(), 0x9e37_79b9_7f4a_7c15u64);
        for argument in 0..4000u64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let span = (seed >> 8) as u8 % N_SPANS;
            let begins = seed % 5 < 2 || model.open.is_empty() && seed % 5 < 4;
            if begins && model.open.len() < MAX_DEPTH {
                begin(span, argument);
                model.open.push((span, argument));
            } else {
                end(&harness, &mut state, span, argument);
                model.end(span, argument);
            }
        }
        let slow = slow_spans(&harness);
        let seen: Vec<(u8, u64, u64)> = slow
            .iter()
            .map(|(event, slow, ended)| {
                assert_eq!((*event, slow.event), (200 + slow.span, 100 + slow.span));
                let argument = u64::from_le_bytes(slow.kept[..8].try_into().unwrap());
                let span = u32::from_le_bytes(slow.kept[8..12].try_into().unwrap());
                assert_eq!(span, slow.span, "what the begin kept");
                (slow.span as u8, argument, *ended)
            })
            .collect();
        assert_eq!(seen, model.finished, "{path:?}");
        assert!(model.finished.len() > 1000 && model.n_begins[1] > 10 && model.n_ends[2] > 10);
        let open = harness.ring.open_spans();
        for span in 0..usize::from(N_SPANS) {
            let of: Vec<&SlowSpan> =
                slow.iter().map(|(_, slow, _)| slow).filter(|slow| slow.span() == span).collect();
            let reading = harness.ring.read_span(span);
            assert_eq!(reading.total, of.iter().map(|slow| slow.ticks).sum::<u64>());
            assert_eq!(reading.nested, of.iter().map(|slow| slow.nested).sum::<u64>());
            assert_eq!(reading.max, of.iter().map(|slow| slow.ticks).max().unwrap());
            assert_eq!(reading.min, of.iter().map(|slow| slow.ticks).min());
            let mut buckets = vec![0u64; N_BUCKETS];
            of.iter().for_each(|slow| buckets[bucket(slow.ticks)] += 1);
            assert_eq!(reading.buckets, buckets);
            assert_eq!((reading.n_ends, reading.n_begins), (model.n_ends[span], model.n_begins[span]));
            let n_open = model.open.iter().filter(|(open, _)| usize::from(*open) == span).count();
            assert_eq!(open.n_open[span], n_open as u64);
        }
        assert_eq!((open.n_no_room, open.n_too_deep, open.n_threads), (0, 0, 1));
    }
}

#[test]
fn what_lies_within_is_not_self_time() {
    let mut harness = harness(64);
    open(&mut harness, 100);
    let mut state = distinct();
    // 0 holds 2, which holds 3 twice; 2 is left open by an overlap and ends after 0.
    begin(0, 0);
    begin(2, 1);
    begin(3, 2);
    end(&harness, &mut state, 3, 0);
    begin(3, 3);
    end(&harness, &mut state, 3, 0);
    end(&harness, &mut state, 0, 0);
    begin(3, 4);
    end(&harness, &mut state, 3, 0);
    end(&harness, &mut state, 2, 0);
    let slow: Vec<SlowSpan> = slow_spans(&harness).into_iter().map(|(_, slow, _)| slow).collect();
    let spans: Vec<usize> = slow.iter().map(SlowSpan::span).collect();
    assert_eq!(spans, [3, 3, 0, 3, 2]);
    // Both of 3 lie within 0 and within 2, and what ends first has them.
    assert_eq!(slow[2].nested, slow[0].ticks + slow[1].ticks);
    assert_eq!(slow[4].nested, slow[3].ticks);
    assert!(slow.iter().all(|slow| slow.nested <= slow.ticks));
}

#[test]
fn only_the_slowest_leave_records() {
    let mut harness = harness(64);
    open(&mut harness, 5);
    let mut state = distinct();
    let mut n_records = 0;
    let mut all = Vec::new();
    for argument in 0..3000u64 {
        begin(2, argument);
        let rounds = (argument * 7919) % 1009;
        (0..rounds).for_each(|round| {
            std::hint::black_box(round);
        });
        end(&harness, &mut state, 2, argument);
        if argument % 500 == 0 {
            let slow = slow_spans(&harness);
            n_records += slow.len();
            all.extend(slow);
        }
    }
    let slow = slow_spans(&harness);
    n_records += slow.len();
    all.extend(slow);
    let reading = harness.ring.read_span(2);
    assert_eq!(reading.buckets.iter().sum::<u64>(), 3000);
    assert!(n_records < 1000, "{n_records} records");
    // Every bucket above the fifth slowest has a record for each span in it.
    let mut ticks: Vec<u64> = all.iter().map(|(_, slow, _)| slow.ticks).collect();
    ticks.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(ticks[0], reading.max);
    let fifth = bucket(ticks[4]);
    let above: u64 = reading.buckets[fifth + 1..].iter().sum();
    assert_eq!(ticks.iter().filter(|ticks| bucket(**ticks) > fifth).count() as u64, above);
    // The tracer's word counts as well.
    harness.ring.raise_span_floor(2, u64::MAX);
    begin(2, 0);
    end(&harness, &mut state, 2, 0);
    assert_eq!(slow_spans(&harness), []);
    assert_eq!(harness.ring.read_span(2).buckets.iter().sum::<u64>(), 3001);
}

#[test]
fn threads_have_slots_of_their_own_and_give_them_back() {
    let mut harness = harness(4);
    open(&mut harness, 1);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let harness = &harness;
            scope.spawn(move || {
                let mut state = distinct();
                for i in 0..1000 {
                    begin(2, i);
                    end(harness, &mut state, 2, thread);
                }
                begin(3, thread);
            });
        }
    });
    let open = harness.ring.open_spans();
    assert_eq!((open.n_open[3], open.n_threads, open.n_no_room), (3, 3, 0));
    assert_eq!(harness.ring.read_span(2).buckets.iter().sum::<u64>(), 3000);
    let mut n_open = [0; MAX_SPANS];
    harness.ring.free_slots(|_| true, &mut n_open);
    assert_eq!(n_open[3], 0);
    harness.ring.free_slots(|owner| owner as u32 == std::process::id(), &mut n_open);
    assert_eq!((n_open[3], harness.ring.open_spans().n_threads), (3, 0));
    // Slots that have been given back serve more threads than there are.
    for round in 0..40 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = distinct();
                begin(2, 0);
                end(&harness, &mut state, 2, 0);
            });
        });
        harness.ring.free_slots(|_| false, &mut n_open);
        assert_eq!(harness.ring.open_spans().n_no_room, 0, "{round}");
    }
    assert_eq!(harness.ring.read_span(2).buckets.iter().sum::<u64>(), 3040);
    // Threads that stay are too many for the table at last, which is counted.
    for _ in 0..40 {
        std::thread::scope(|scope| {
            scope.spawn(|| begin(2, 0));
        });
    }
    assert!(harness.ring.open_spans().n_no_room > 0);
}

#[test]
fn what_is_too_deep_is_counted_and_pairs_with_nothing() {
    let mut harness = harness(64);
    open(&mut harness, 0);
    let mut state = distinct();
    let depth = MAX_DEPTH as u64 + 7;
    (0..depth).for_each(|i| begin(2, i));
    (0..depth).for_each(|_| end(&harness, &mut state, 2, 0));
    let reading = harness.ring.read_span(2);
    assert_eq!(reading.buckets.iter().sum::<u64>(), MAX_DEPTH as u64);
    assert_eq!((reading.n_ends, harness.ring.open_spans().n_too_deep), (0, 14));
    end(&harness, &mut state, 2, 0);
    assert_eq!(harness.ring.read_span(2).n_ends, 1);
    assert_eq!(slow_spans(&harness), []);
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    let plain = |span| SpanStep::Begin { span };
    for (step, values, has_table) in [
        (plain(N_SPANS), &[][..], true),
        (plain(0), &["8@%rsi"; 6][..], true),
        (plain(0), &[][..], false),
        (SpanStep::End { span: 60, parts: vec![] }, &[][..], true),
    ] {
        let harness = harness(if has_table { 4 } else { 0 });
        let span = step.span();
        let refused = harness.try_stub(Place::TwoArguments, &spec(1, 0, step, 1, values));
        assert_eq!(refused.err(), Some(StubError::BadSpan { span }));
    }
}
