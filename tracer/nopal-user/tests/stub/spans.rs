//! Spans that stubs pair and add up themselves, compared with a plan: which begin has which end is decided here, too, by the
//! written rules, and every number is worked out again from the records of all spans.

use nopal_abi::stub_space::Path;
use nopal_capture::record::RecordKind;
use nopal_capture::span::{BLOCK_BYTES, MAX_DEPTH, MAX_GROUPS, MAX_SPANS, N_BUCKETS};
use nopal_capture::{
    Action, Closing, Formula, Grouping, Predicate, Question, Relation, SlowSpan, SpanSite, SpanStep,
};
use nopal_user::stub::{StubError, StubSpec};

use crate::harness::{Harness, Place, State, distinct, has_rseq, hit2, operand, record};

/// Ticks are nanoseconds.
const RATE: u64 = 1 << 32;
pub(crate) const N_SPANS: u8 = 4;
/// Span 1 is a part of span 0.
const PARTS: [&[u8]; N_SPANS as usize] = [&[1], &[], &[], &[]];
/// A hit with this argument makes these fail.
const FAILURE: u8 = 9;
const FAILING: [u8; 2] = [0, 2];

pub(crate) fn harness(span_slots: u32) -> Harness {
    let harness = Harness::new(|config| {
        config.cells_bytes = u32::from(N_SPANS) * BLOCK_BYTES;
        config.span_slots = span_slots;
    });
    harness.ring.set_span_rate(RATE);
    harness
}

pub(crate) fn spec(event: u32, span: u8, step: SpanStep, n_slowest: u16, values: &[&str]) -> StubSpec {
    let values = values.iter().map(|text| operand(text)).collect();
    StubSpec {
        predicates: vec![Predicate {
            operand: operand("8@%rdi"),
            relation: Relation::Equal,
            constant: span.into(),
        }],
        action: Action::Spans(SpanSite { steps: vec![step], values, n_slowest, has_calls: true }),
        ..record(event, vec![])
    }
}

pub(crate) fn begins(span: u8) -> SpanStep {
    SpanStep::Begin { span, is_outermost: false, questions: vec![], key: None, stack: None }
}

pub(crate) fn ends(span: u8, closing: Closing) -> SpanStep {
    SpanStep::End { span, is_outermost: false, parts: vec![], closing, stack: None }
}

/// Spans begin at one place and end at the other; which one, the first argument says.
fn open(harness: &mut Harness, n_slowest: u16) {
    let spans = FAILING.map(|span| (span, Closing::default())).to_vec();
    let fail = spec(300, FAILURE, SpanStep::Fail { spans }, n_slowest, &["8@%rsi"]);
    harness.attach(Place::Everything, &fail);
    for span in 0..N_SPANS {
        let begin = spec(100 + u32::from(span), span, begins(span), n_slowest, &["8@%rsi", "-4@%edi"]);
        let parts = PARTS[usize::from(span)].to_vec();
        let end =
            SpanStep::End { span, is_outermost: false, parts, closing: Closing::default(), stack: None };
        let end = spec(200 + u32::from(span), span, end, n_slowest, &["8@%rsi"]);
        harness.attach(Place::TwoArguments, &begin);
        harness.attach(Place::Everything, &end);
    }
}

pub(crate) fn begin(span: u8, argument: u64) {
    hit2(span.into(), argument);
}

pub(crate) fn end(harness: &Harness, state: &mut State, span: u8, argument: u64) {
    (state.gpr[7], state.gpr[6]) = (span.into(), argument);
    harness.pass(state);
}

pub(crate) fn paths() -> Vec<Path> {
    let all = [Path::Rseq, Path::LockedTls, Path::Locked];
    all.into_iter().filter(|path| *path != Path::Rseq || has_rseq()).collect()
}

pub(crate) fn set_path(harness: &Harness, path: Path) {
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
    n_errors: [u64; N_SPANS as usize],
}

impl Model {
    fn fail(&mut self, argument: u64) {
        for at in (0..self.open.len()).rev() {
            if FAILING.contains(&self.open[at].0) {
                let (span, begun) = self.open.remove(at);
                self.finished.push((span, begun, argument));
                self.n_errors[usize::from(span)] += 1;
            }
        }
    }

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

pub(crate) fn slow_spans(harness: &Harness) -> Vec<(u32, SlowSpan, u64)> {
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
            if seed.is_multiple_of(97) {
                end(&harness, &mut state, FAILURE, argument);
                model.fail(argument);
            } else if begins && model.open.len() < MAX_DEPTH {
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
                let number = slow.span() as u32;
                let ended_by = if slow.is_error() { 300 } else { 200 + number };
                assert_eq!((*event, slow.event), (ended_by, 100 + number));
                let argument = u64::from_le_bytes(slow.kept[..8].try_into().unwrap());
                let span = u32::from_le_bytes(slow.kept[8..12].try_into().unwrap());
                assert_eq!(span, number, "what the begin kept");
                (number as u8, argument, *ended)
            })
            .collect();
        assert_eq!(seen, model.finished, "{path:?}");
        assert!(model.finished.len() > 1000 && model.n_begins[1] > 10 && model.n_ends[2] > 10);
        assert!(model.n_errors[0] > 10 && model.n_errors[2] > 10 && model.n_errors[1] == 0);
        let open = harness.ring.open_spans();
        for span in 0..usize::from(N_SPANS) {
            let of: Vec<&SlowSpan> =
                slow.iter().map(|(_, slow, _)| slow).filter(|slow| slow.span() == span).collect();
            let reading = harness.ring.read_span(span);
            assert_eq!(reading.total, of.iter().map(|slow| slow.ticks).sum::<u64>());
            // Two that overlap may be longer than what both lie within.
            assert_eq!(reading.nested, of.iter().map(|slow| slow.nested.min(slow.ticks)).sum::<u64>());
            assert_eq!(reading.max, of.iter().map(|slow| slow.ticks).max().unwrap());
            assert_eq!(reading.min, of.iter().map(|slow| slow.ticks).min());
            let mut buckets = vec![0u64; N_BUCKETS];
            of.iter().for_each(|slow| buckets[bucket(slow.ticks)] += 1);
            assert_eq!(reading.buckets, buckets);
            assert_eq!((reading.n_ends, reading.n_begins), (model.n_ends[span], model.n_begins[span]));
            assert_eq!(reading.n_errors, model.n_errors[span]);
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
fn a_failure_ends_the_innermost_first() {
    let mut harness = harness(64);
    open(&mut harness, 100);
    let mut state = distinct();
    (0..N_SPANS).for_each(|span| begin(span, span.into()));
    end(&harness, &mut state, FAILURE, 0);
    end(&harness, &mut state, 3, 0);
    end(&harness, &mut state, 1, 0);
    // Nothing is open: a failure of nothing is no end without a begin.
    end(&harness, &mut state, FAILURE, 0);
    let slow: Vec<SlowSpan> = slow_spans(&harness).into_iter().map(|(_, slow, _)| slow).collect();
    let seen: Vec<(usize, bool)> = slow.iter().map(|slow| (slow.span(), slow.is_error())).collect();
    assert_eq!(seen, [(2, true), (0, true), (3, false), (1, false)]);
    // 2 lies within 1 and 0, and what ends first has it.
    assert_eq!(slow[1].nested, slow[0].ticks);
    assert_eq!(slow[3].nested, slow[2].ticks);
    let n_ends: u64 = (0..usize::from(N_SPANS)).map(|span| harness.ring.read_span(span).n_ends).sum();
    assert_eq!((n_ends, harness.ring.open_spans().n_open.iter().sum::<u64>()), (0, 0));
}

#[test]
fn conditions_decide_what_counts_and_what_has_failed() {
    let ask = |bit: u8, relation: Relation, constant: i128| Question {
        bit,
        predicate: Predicate { operand: operand("8@%rsi"), relation, constant },
    };
    let (bit, not) = (Formula::Bit, |bit: u8| Formula::Not(Box::new(Formula::Bit(bit))));
    for path in paths() {
        let mut harness = harness(64);
        set_path(&harness, path);
        // Of the begin: 0, less than 20; 1, more than 5. Of the end: 2, is 3; 15, more than 8. 7 is never asked.
        let counts = Formula::Any(vec![Formula::All(vec![bit(0), bit(1), not(7)]), bit(2)]);
        let closing = Closing {
            questions: vec![ask(2, Relation::Equal, 3), ask(15, Relation::Greater, 8)],
            counts: Some(Formula::Not(Box::new(Formula::Not(Box::new(counts))))),
            fails: Some(Formula::All(vec![bit(15), not(2)])),
            bounds: None,
            grouping: None,
        };
        let questions = vec![ask(0, Relation::Less, 20), ask(1, Relation::Greater, 5)];
        let asking = SpanStep::Begin { span: 0, is_outermost: false, questions, key: None, stack: None };
        harness.attach(Place::TwoArguments, &spec(100, 0, asking, 0, &[]));
        harness.attach(Place::TwoArguments, &spec(101, 1, begins(1), 0, &[]));
        harness.attach(Place::Everything, &spec(200, 0, ends(0, closing), 0, &[]));
        harness.attach(Place::Everything, &spec(201, 1, ends(1, Closing::default()), 0, &[]));
        let mut state = distinct();
        let (mut n_counted, mut n_failed) = (0, 0);
        begin(1, 0);
        for begun in 0..25u64 {
            for ended in 0..12u64 {
                begin(0, begun);
                end(&harness, &mut state, 0, ended);
                let has_counted = (begun < 20 && begun > 5) || ended == 3;
                n_counted += u64::from(has_counted);
                n_failed += u64::from(has_counted && ended > 8 && ended != 3);
            }
        }
        end(&harness, &mut state, 1, 0);
        let reading = harness.ring.read_span(0);
        assert_eq!(
            (reading.buckets.iter().sum::<u64>(), reading.n_errors),
            (n_counted, n_failed),
            "{path:?}"
        );
        assert_eq!(harness.ring.open_spans().n_open[0], 0);
        // What does not count lies within all the same.
        assert!(harness.ring.read_span(1).nested > reading.total);
    }
}

/// Spans of which only the outermost counts, with others that begin in and around them.
#[test]
fn only_the_outermost_counts_and_only_within_bounds() {
    for path in paths() {
        let mut harness = harness(64);
        set_path(&harness, path);
        let step = |span: u8, is_begin: bool, closing: Closing| match is_begin {
            true => {
                SpanStep::Begin { span, is_outermost: span == 0, questions: vec![], key: None, stack: None }
            }
            false => SpanStep::End { span, is_outermost: span == 0, parts: vec![], closing, stack: None },
        };
        let bounds = [None, None, Some((0, 0)), Some((1, u64::MAX))];
        for (span, bounds) in (0..N_SPANS).zip(bounds) {
            let closing = Closing { bounds, ..Closing::default() };
            let begin = spec(100, span, step(span, true, Closing::default()), 100, &["8@%rsi"]);
            harness.attach(Place::TwoArguments, &begin);
            harness.attach(Place::Everything, &spec(200, span, step(span, false, closing), 100, &["8@%rsi"]));
        }
        let mut state = distinct();
        // 0 three deep, 1 overlaps it; then 0 once more, alone.
        begin(0, 1);
        begin(1, 2);
        begin(0, 3);
        begin(0, 4);
        end(&harness, &mut state, 0, 5);
        end(&harness, &mut state, 0, 6);
        assert_eq!(harness.ring.open_spans().n_open[..2], [1, 1]);
        end(&harness, &mut state, 0, 7);
        end(&harness, &mut state, 1, 8);
        begin(0, 9);
        end(&harness, &mut state, 0, 10);
        end(&harness, &mut state, 0, 11);
        let seen: Vec<(usize, u64, u64)> = slow_spans(&harness)
            .into_iter()
            .map(|(_, slow, ended)| {
                (slow.span(), u64::from_le_bytes(slow.kept[..8].try_into().unwrap()), ended)
            })
            .collect();
        assert_eq!(seen, [(0, 1, 7), (1, 2, 8), (0, 9, 10)], "{path:?}");
        assert_eq!(harness.ring.read_span(0).n_ends, 1);
        // Ticks are nanoseconds, and no two readings are equal.
        for span in [2, 3] {
            begin(span, 0);
            end(&harness, &mut state, span, 0);
        }
        let counts = [2, 3].map(|span| harness.ring.read_span(span).buckets.iter().sum::<u64>());
        assert_eq!(counts, [0, 1]);
    }
}

/// Each number has its own sums; those without room leave records, and are in none.
#[test]
fn spans_are_grouped_by_a_number_of_begin_or_end() {
    for (is_by_end, path) in paths().into_iter().flat_map(|path| [(false, path), (true, path)]) {
        let mut harness = Harness::new(|config| {
            config.cells_bytes = MAX_SPANS as u32 * BLOCK_BYTES;
            config.span_slots = 64;
        });
        harness.ring.set_span_rate(RATE);
        set_path(&harness, path);
        let argument = || operand("-8@%rsi");
        let grouping = if is_by_end { Grouping::ByEnd(argument()) } else { Grouping::ByBegin };
        let questions = vec![Question {
            bit: 0,
            predicate: Predicate { operand: argument(), relation: Relation::Less, constant: 0 },
        }];
        let closing = Closing {
            questions,
            fails: Some(Formula::Bit(0)),
            grouping: Some(grouping),
            ..Closing::default()
        };
        let key = (!is_by_end).then(argument);
        let begin_of = SpanStep::Begin { span: 0, is_outermost: false, questions: vec![], key, stack: None };
        harness.attach(Place::TwoArguments, &spec(100, 0, begin_of, 3, &["8@%rsi"]));
        harness.attach(Place::Everything, &spec(200, 0, ends(0, closing), 3, &["8@%rsi"]));
        let mut state = distinct();
        // The first 47 numbers have room, half of them negative; more hits of the ones that come first.
        let numbers = |at: i64| if at % 2 == 0 { at } else { -at };
        let (mut planned, mut n_failed) = (std::collections::BTreeMap::new(), [0; 2]);
        for round in 0..60i64 {
            for at in (0..60 - round).rev() {
                let number = numbers(at);
                begin(0, number as u64);
                end(&harness, &mut state, 0, number as u64);
                *planned.entry(number).or_insert(0u64) += 1;
                n_failed[usize::from(at <= 12)] += u64::from(number < 0);
            }
        }
        let groups = harness.ring.read_groups();
        assert_eq!(groups.len(), MAX_GROUPS);
        let mut seen = std::collections::BTreeMap::new();
        let mut n_errors = 0;
        for (key, reading) in &groups {
            *seen.entry(*key as i64).or_insert(0) += reading.buckets.iter().sum::<u64>();
            assert!(reading.total >= reading.max && reading.max >= reading.min.unwrap(), "{reading:?}");
            assert!(reading.buckets.iter().sum::<u64>() <= reading.total, "a tick or more each");
            n_errors += reading.n_errors;
            // The first that come are those with the highest numbers.
            assert!((*key as i64).unsigned_abs() > 12, "{key}");
        }
        assert_eq!(n_errors, n_failed[0], "{path:?}");
        let (mut n_slow, mut n_ungrouped_errors) = (0, 0);
        for (_, slow, _) in slow_spans(&harness) {
            assert_eq!(u64::from_le_bytes(slow.kept[..8].try_into().unwrap()), slow.key());
            match slow.is_ungrouped() {
                true => {
                    *seen.entry(slow.key() as i64).or_insert(0) += 1;
                    n_ungrouped_errors += u64::from(slow.is_error());
                }
                false => n_slow += 1,
            }
        }
        assert_eq!(seen, planned, "{path:?}");
        assert_eq!(n_ungrouped_errors, n_failed[1]);
        assert!((1..1000).contains(&n_slow), "{n_slow}");
        assert_eq!(harness.ring.read_span(0).buckets.iter().sum::<u64>(), 0, "all are in groups");
    }
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
    for (step, values, has_table) in [
        (begins(N_SPANS), &[][..], true),
        (begins(0), &["8@%rsi"; 12][..], true),
        (begins(0), &[][..], false),
        (ends(60, Closing::default()), &[][..], true),
    ] {
        let harness = harness(if has_table { 4 } else { 0 });
        let span = step.spans().next().unwrap();
        let refused = harness.try_stub(Place::TwoArguments, &spec(1, 0, step, 1, values));
        assert_eq!(refused.err(), Some(StubError::BadSpan { span }));
    }
}
