//! Spans that are calls of functions, which the stack pointer tells apart, and spans that signals interrupt.

use crate::harness::{Harness, Place, Timer, distinct, hit2, operand};
use crate::spans::{N_SPANS, begin, begins, end, ends, harness, paths, set_path, slow_spans, spec};
use nopal_capture::span::MAX_DEPTH;
use nopal_capture::{Closing, SlowSpan, SpanStep};

/// Spans 0 and 1 are calls, told apart by the low half of the second argument; 2 and 3 are not.
fn open_calls(harness: &mut Harness, n_slowest: u16) {
    for span in 0..N_SPANS {
        let stack = || (span < 2).then(|| operand("4@%esi"));
        let begin =
            SpanStep::Begin { span, is_outermost: false, questions: vec![], key: None, stack: stack() };
        let closing = Closing::default();
        let end = SpanStep::End { span, is_outermost: false, parts: vec![], closing, stack: stack() };
        harness.attach(Place::TwoArguments, &spec(100, span, begin, n_slowest, &["8@%rsi"]));
        harness.attach(Place::Everything, &spec(200, span, end, n_slowest, &["8@%rsi"]));
    }
}

/// Calls on several stacks, left by jumps at random, with other spans around them: two calls that are under way never have the
/// same stack pointer.
#[test]
fn calls_pair_by_the_stack_pointer() {
    for path in paths() {
        let mut harness = harness(64);
        set_path(&harness, path);
        open_calls(&mut harness, u16::MAX);
        let (mut open, mut finished) = (Vec::<(u8, u64)>::new(), Vec::new());
        let [mut n_ends, mut n_left] = [[0u64; N_SPANS as usize]; 2];
        let (mut state, mut seed) = (distinct(), 0x2545_f491_4f6c_dd1du64);
        for id in 1..8000u64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let span = (seed >> 8) as u8 % N_SPANS;
            let is_call = span < 2;
            let stack = 0x1000 + (seed >> 16) % 12 * 16;
            let argument = id << 32 | stack;
            let has_this_stack = |begun: &u64| *begun as u32 == stack as u32;
            if seed % 5 < 2 && open.len() < MAX_DEPTH {
                begin(span, argument);
                if is_call {
                    open.retain(|(other, begun)| {
                        let is_left = *other < 2 && has_this_stack(begun);
                        n_left[usize::from(*other)] += u64::from(is_left);
                        !is_left
                    });
                }
                open.push((span, argument));
                continue;
            }
            end(&harness, &mut state, span, argument);
            let fits = |(other, begun): &(u8, u64)| *other == span && (!is_call || has_this_stack(begun));
            match open.iter().rposition(fits) {
                Some(at) => finished.push((span, open.remove(at).1, argument)),
                None => n_ends[usize::from(span)] += 1,
            }
        }
        let slow = slow_spans(&harness);
        let kept = |slow: &SlowSpan| u64::from_le_bytes(slow.kept[..8].try_into().unwrap());
        let seen: Vec<(u8, u64, u64)> =
            slow.iter().map(|(_, slow, ended)| (slow.span() as u8, kept(slow), *ended)).collect();
        assert_eq!(seen, finished, "{path:?}");
        let still_open = harness.ring.open_spans();
        for span in 0..usize::from(N_SPANS) {
            let reading = harness.ring.read_span(span);
            assert_eq!((reading.n_ends, reading.n_begins), (n_ends[span], n_left[span]), "{path:?} {span}");
            let n_open = open.iter().filter(|(open, _)| usize::from(*open) == span).count();
            assert_eq!(still_open.n_open[span], n_open as u64);
            assert!(reading.nested <= reading.total);
        }
        assert!(finished.len() > 1000 && n_left[0] > 100 && n_left[1] > 100 && n_ends[0] > 100);
        assert_eq!(still_open.n_too_deep, 0);
    }
}

/// A function that only ever is left by exceptions does not fill the table, nor hide what goes on around it.
#[test]
fn calls_that_are_left_by_exceptions_make_room_for_the_next() {
    let mut harness = harness(64);
    open_calls(&mut harness, 0);
    let mut state = distinct();
    let n = 5 * MAX_DEPTH as u64;
    for _ in 0..n {
        begin(0, 0x2000);
        begin(1, 0x1000);
        end(&harness, &mut state, 0, 0x2000);
    }
    let readings = [0, 1].map(|span| harness.ring.read_span(span));
    assert_eq!(readings[0].buckets.iter().sum::<u64>(), n);
    assert_eq!((readings[0].n_begins, readings[1].n_begins, readings[1].n_ends), (0, n - 1, 0));
    let open = harness.ring.open_spans();
    assert_eq!((open.n_open[0], open.n_open[1], open.n_too_deep), (0, 1, 0));
    // As many as there is room for have been left, on other stacks: the next ones that have their stack pointers find room.
    (1..MAX_DEPTH as u64).for_each(|at| begin(1, 0x1000 + 16 * at));
    begin(0, 0x1000 + 16 * 7);
    end(&harness, &mut state, 0, 0x1000 + 16 * 7);
    assert_eq!(harness.ring.open_spans().n_too_deep, 0);
    assert_eq!(harness.ring.read_span(0).buckets.iter().sum::<u64>(), n + 1);
    begin(0, 0x9000);
    begin(0, 0x9010);
    assert_eq!(harness.ring.open_spans().n_too_deep, 1);
}

extern "C" fn on_signal(_: i32) {
    hit2(7, 0);
    hit2(8, 0);
}

/// A handler's spans may come after an end has taken its time and before it has found what it ends.
#[test]
fn no_span_has_more_within_than_it_took() {
    let mut harness = harness(64);
    for (argument, step) in
        [(2, begins(2)), (3, ends(2, Closing::default())), (7, begins(3)), (8, ends(3, Closing::default()))]
    {
        harness.attach(Place::TwoArguments, &spec(argument, argument as u8, step, u16::MAX, &["8@%rsi"]));
    }
    let timer = Timer::start(libc::SIGUSR1, on_signal, 50_000);
    let (mut n_beyond, mut within) = (0, 0);
    for _ in 0..20_000 {
        for _ in 0..200 {
            hit2(2, 0);
            hit2(3, 0);
        }
        for (_, slow, _) in slow_spans(&harness).iter().filter(|(_, slow, _)| slow.span() == 2) {
            n_beyond += u64::from(slow.nested > slow.ticks);
            within += slow.nested.min(slow.ticks);
        }
        if n_beyond >= 20 {
            break;
        }
    }
    drop(timer);
    assert!(n_beyond > 0, "no signal came where it matters");
    assert_eq!(harness.ring.read_span(2).nested, within);
}
