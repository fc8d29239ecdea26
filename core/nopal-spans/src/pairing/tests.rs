//! The rules of `docs/spans.md` as tables: spans, events, and what must come of them.

use super::*;
use crate::file;
use crate::span::Source;

/// Writes down what finishes.
#[derive(Default)]
struct Log {
    names: Vec<String>,
    lines: Vec<String>,
    field: Option<usize>,
}

impl Sink for Log {
    fn finish(&mut self, span: &Finished<'_>, nested: &[Done]) -> u32 {
        let failed = if span.is_failed { " failed" } else { "" };
        let field = self.field.map(|wanted| format!(" {}", span.get(wanted).text())).unwrap_or_default();
        let within: Vec<String> = nested.iter().map(|done| done.token.to_string()).collect();
        let within = if within.is_empty() { String::new() } else { format!(" has {}", within.join(",")) };
        self.lines.push(format!(
            "{} {}..{} self {}{field}{failed}{within}",
            self.names[span.span], span.start_ns, span.end_ns, span.self_ns
        ));
        self.lines.len() as u32
    }
}

/// Events are `TIME THREAD PROBE [ARG...]`, separated by commas; THREAD is `1` or `PID/TID`; `LOSS` is until ARG, `EXEC`
/// is of the whole process.
#[track_caller]
fn check(spans: &str, events: &str, want: &[&str], unmatched: [u64; 4]) {
    check_field(spans, events, None, want, unmatched);
}

#[track_caller]
fn check_field(spans: &str, events: &str, field: Option<&str>, want: &[&str], unmatched: [u64; 4]) {
    check_spans(file::parse(spans, &Source::CommandLine).unwrap(), events, field, want, unmatched);
}

#[track_caller]
fn check_spans(spans: Vec<Span>, events: &str, field: Option<&str>, want: &[&str], unmatched: [u64; 4]) {
    let names = spans.iter().map(|span| span.name.clone()).collect();
    let mut pairing = Pairing::new(spans);
    let wanted = field.map(|field| {
        let all: Vec<usize> = (0..pairing.rules.len()).map(|span| pairing.want(span, field)).collect();
        all[0]
    });
    let mut log = Log { names, lines: Vec::new(), field: wanted };
    let mut classes: Vec<String> = Vec::new();
    for event in events.split(',').map(str::trim).filter(|event| !event.is_empty()) {
        let mut words = event.split_whitespace();
        let ns: i64 = words.next().unwrap().parse().unwrap();
        let thread = words.next().unwrap();
        let (pid, tid) = thread.split_once('/').unwrap_or(("1", thread));
        let task = Task { pid: pid.parse().unwrap(), tid: tid.parse().unwrap() };
        let probe = words.next().unwrap();
        if probe == "LOSS" {
            pairing.loss(words.next().unwrap().parse().unwrap(), &mut log);
            continue;
        }
        if probe == "EXEC" {
            pairing.restart(task.pid, &mut log);
            continue;
        }
        let class = classes.iter().position(|known| known == probe).unwrap_or_else(|| {
            pairing.add_class("p", probe, &["a", "b"]);
            classes.push(probe.to_owned());
            classes.len() - 1
        });
        let mut fields = Fields::default();
        for word in words {
            fields.push(match word.parse::<i64>() {
                Ok(number) => Value::Signed(number),
                Err(_) => Value::Text(word.as_bytes()),
            });
        }
        pairing.event(ns, task, class, &fields, &mut log);
    }
    pairing.close(&mut log);
    assert_eq!(log.lines, want);
    let Unmatched { n_ends, n_begins, n_by_loss, n_open } = pairing.unmatched();
    assert_eq!([n_ends, n_begins, n_by_loss, n_open], unmatched, "ends, begins, by loss, open");
}

const F: &str = "[spans.'p:f']\nbegin = 'b'\nend = 'e'";
const FG: &str = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\n[spans.'p:g']\nbegin = 'c'\nend = 'd'";
const KEYED: &str = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nkey = 'a'";
const MATCHED: &str = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nmatch = 'a'";
const FAILING: &str =
    "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nfail = 'x'\n[spans.'p:g']\nbegin = 'c'\nend = 'd'\nfail = 'x'";

#[test]
fn by_thread_the_innermost_first() {
    check(F, "1 1 b, 5 1 e", &["f 1..5 self 4"], [0; 4]);
    check(F, "1 1 b, 2 1 b, 5 1 e, 9 1 e", &["f 2..5 self 3", "f 1..9 self 5 has 1"], [0; 4]);
    check(F, "1 1 b, 2 2 b, 3 1 e, 7 2 e", &["f 1..3 self 2", "f 2..7 self 5"], [0; 4]);
    // One number of a thread in two processes is two threads.
    check(F, "1 1/1 b, 2 2/1 b, 3 1/1 e, 7 2/1 e", &["f 1..3 self 2", "f 2..7 self 5"], [0; 4]);
    check(
        FG,
        "1 1 b, 2 1 c, 3 1 d, 4 1 c, 6 1 d, 10 1 e",
        &["g 2..3 self 1", "g 4..6 self 2", "f 1..10 self 6 has 1,2"],
        [0; 4],
    );
}

/// The first argument is the stack pointer.
#[test]
fn calls_pair_by_their_stack_pointer() {
    let call = |name: &str, [begin, end]: [&str; 2]| {
        let probe = |name| crate::ProbeName::new("p", name);
        let span = Span::call(name, probe(begin), probe(end), Source::CommandLine);
        Span { mode: Mode::Thread { matching: vec![crate::KeyField::parse("a")] }, ..span }
    };
    let calls = || vec![call("f", ["b", "e"]), call("g", ["c", "d"])];
    for (events, want, unmatched) in [
        // Recursion.
        ("1 1 b 90, 2 1 b 80, 5 1 e 80, 9 1 e 90", &["f 2..5 self 3", "f 1..9 self 5 has 1"][..], [0; 4]),
        // The inner one is left by an exception, which the outer one catches.
        ("1 1 b 90, 2 1 b 80, 9 1 e 90", &["f 1..9 self 8"], [0, 0, 0, 1]),
        // What has its stack pointer next says that it was left.
        (
            "1 1 b 90, 2 1 b 80, 4 1 c 80, 5 1 d 80, 9 1 e 90",
            &["g 4..5 self 1", "f 1..9 self 7 has 1"],
            [0, 1, 0, 0],
        ),
        ("1 1 b 90, 3 1 b 90, 4 1 e 90", &["f 3..4 self 1"], [0, 1, 0, 0]),
        // It had returned, by a clock that is a little behind.
        ("1 1 b 80, 4 1 c 80, 5 1 e 80, 9 1 d 80", &["f 1..5 self 4", "g 4..9 self 5"], [0; 4]),
        // That is long ago: it never will.
        (
            "1 1 b 80, 4 1 c 80, 5 1 d 80, 2000000 1 c 80, 2000001 1 d 80, 2000002 1 e 80",
            &["g 4..5 self 1", "g 2000000..2000001 self 1"],
            [1, 1, 0, 0],
        ),
        // Left by exceptions at two depths by turns, from below a call that returns.
        (
            "1 1 c 95, 2 1 b 80, 3 1 d 95, 4 1 b 85, 5 1 c 95, 6 1 b 80, 7 1 d 95, 8 1 b 85",
            &["g 1..3 self 2", "g 5..7 self 2"],
            [0, 2, 0, 2],
        ),
        // Two stacks of one thread: neither call is an end of the other.
        ("1 1 b 90, 2 1 b 500, 4 1 e 90, 7 1 e 500", &["f 1..4 self 3", "f 2..7 self 5"], [0; 4]),
        ("1 1 b 500, 2 1 b 90, 4 1 e 500, 7 1 e 90", &["f 1..4 self 3", "f 2..7 self 5"], [0; 4]),
        // Entered before anybody looked.
        ("4 1 e 90, 5 1 b 80, 6 1 e 80", &["f 5..6 self 1"], [1, 0, 0, 0]),
    ] {
        check_spans(calls(), events, None, want, unmatched);
    }
}

/// The first argument is the end of the goroutine's stack, the second the stack pointer.
#[test]
fn calls_pair_by_how_deep_in_their_stack_they_began() {
    let span = || {
        let probe = |name| crate::ProbeName::new("p", name);
        let span = Span::goroutine_call("f", probe("b"), probe("e"), Source::CommandLine);
        let depth = crate::KeyField { less: Some("b".into()), ..crate::KeyField::parse("a") };
        vec![Span { mode: Mode::Key(vec![depth]), ..span }]
    };
    for (events, want, unmatched) in [
        // Recursion, of which the inner call moved the stack.
        (
            "1 1 b 100 90, 2 1 b 100 80, 5 1 e 500 480, 9 1 e 500 490",
            &["f 2..5 self 3", "f 1..9 self 8"][..],
            [0; 4],
        ),
        // Another thread goes on.
        ("1 1 b 100 90, 5 2 e 100 90", &["f 1..5 self 4"], [0; 4]),
        // A panic passes the inner call.
        ("1 1 b 100 90, 2 1 b 100 80, 9 1 e 100 90", &["f 1..9 self 8"], [0, 0, 0, 1]),
        ("1 1 b 100 90, 3 1 b 100 90, 4 1 e 100 90", &["f 3..4 self 1"], [0, 1, 0, 0]),
        ("4 1 e 100 90", &[], [1, 0, 0, 0]),
    ] {
        check_spans(span(), events, None, want, unmatched);
    }
}

#[test]
fn self_time_counts_what_is_directly_within() {
    check(
        FG,
        "0 1 b, 1 1 c, 2 1 b, 4 1 e, 8 1 d, 9 1 e",
        &["f 2..4 self 2", "g 1..8 self 5 has 1", "f 0..9 self 2 has 2"],
        [0; 4],
    );
    // Spans that only overlap are not within each other.
    check(FG, "0 1 b, 2 1 c, 5 1 e, 9 1 d", &["f 0..5 self 5", "g 2..9 self 7"], [0; 4]);
    check(
        FG,
        "0 1 b, 2 1 c, 5 1 e, 6 1 b, 7 1 e, 8 1 b, 9 1 d, 11 1 e",
        &["f 0..5 self 5", "f 6..7 self 1", "g 2..9 self 6 has 2", "f 8..11 self 3"],
        [0; 4],
    );
}

#[test]
fn what_has_no_partner_is_counted() {
    check(F, "1 1 e", &[], [1, 0, 0, 0]);
    check(F, "1 1 b", &[], [0, 0, 0, 1]);
    check(F, "1 1 b, 2 1 e, 3 1 e", &["f 1..2 self 1"], [1, 0, 0, 0]);
    // The end of a thread's span on another thread is not its end.
    check(F, "1 1 b, 2 2 e", &[], [1, 0, 0, 1]);
    // A child has what it begins itself; what its parent had begun ends there only.
    check(
        F,
        "1 1/1 b, 2 2/2 b, 3 2/2 e, 4 2/2 e, 5 1/1 e",
        &["f 2..3 self 1", "f 1..5 self 4"],
        [1, 0, 0, 0],
    );
}

#[test]
fn by_key_on_any_thread() {
    check(KEYED, "1 1 b 7, 2 1 b 8, 3 2 e 7, 9 3 e 8", &["f 1..3 self 2", "f 2..9 self 7"], [0; 4]);
    check(KEYED, "1 1 b x, 2 1 e y", &[], [1, 0, 0, 1]);
    // A second begin of one key: the end of the first was skipped.
    check(KEYED, "1 1 b 7, 4 1 b 7, 5 1 e 7, 6 1 e 7", &["f 4..5 self 1"], [1, 1, 0, 0]);
    // Keys of one process mean nothing to another.
    check(KEYED, "1 1/1 b 7, 2 2/2 e 7", &[], [1, 0, 0, 1]);
    let two = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nkey = ['a', 'b=a']";
    check(two, "1 1 b 7 7, 2 2 e 7", &["f 1..2 self 1"], [0; 4]);
    let other = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nkey = ['a=b']";
    check(other, "1 1 b 7 0, 2 2 e 0 7", &["f 1..2 self 1"], [0; 4]);
}

#[test]
fn an_exception_that_skips_ends() {
    // Fields that must agree find the right begin; the ones within it are counted.
    check(MATCHED, "1 1 b out, 2 1 b in, 5 1 e out", &["f 1..5 self 4"], [0, 1, 0, 0]);
    check(MATCHED, "1 1 b out, 2 1 e in, 5 1 e out", &["f 1..5 self 4"], [1, 0, 0, 0]);
    check(MATCHED, "1 1 b f, 2 1 b f, 3 1 e f, 4 1 e f", &["f 2..3 self 1", "f 1..4 self 2 has 1"], [0; 4]);
    // A part of another span cannot outlive it.
    let parts = format!("{FG}\nparent = 'f'");
    check(&parts, "1 1 b, 2 1 c, 3 1 e, 4 1 d", &["f 1..3 self 2"], [1, 1, 0, 0]);
    // A probe where failures come out ends all that is open, the innermost first.
    check(FAILING, "1 1 b, 2 1 c, 5 1 x", &["g 2..5 self 3 failed", "f 1..5 self 1 failed has 1"], [0; 4]);
    check(FAILING, "1 1 b, 2 2 x, 5 1 e, 6 1 x", &["f 1..5 self 4"], [0; 4]);
    let keyed = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nfail = 'x'\nkey = 'a'";
    check(keyed, "1 1 b 7, 2 1 b 8, 3 2 x 8, 4 1 e 7", &["f 2..3 self 1 failed", "f 1..4 self 3"], [0; 4]);
}

#[test]
fn a_loss_ends_all_belief() {
    check(F, "1 1 b, 2 1 LOSS 3, 4 1 e, 5 1 b, 6 1 e", &["f 5..6 self 1"], [1, 0, 1, 0]);
    check(F, "1 1 b, 2 1 LOSS 6, 4 1 b, 5 1 e, 7 1 b, 8 1 e", &["f 7..8 self 1"], [1, 0, 2, 0]);
    check(KEYED, "1 1 b 7, 2 1 LOSS 3, 4 1 e 7", &[], [1, 0, 1, 0]);
}

#[test]
fn only_the_outermost() {
    let outermost = format!("{F}\noutermost = true");
    check(
        &outermost,
        "1 1 b, 2 1 b, 3 1 e, 9 1 e, 10 1 b, 11 1 e",
        &["f 1..9 self 8", "f 10..11 self 1"],
        [0; 4],
    );
    let failing = format!("{outermost}\nfail = 'x'");
    check(
        &failing,
        "1 1 b, 2 1 b, 3 1 x, 10 1 b, 11 1 e",
        &["f 1..3 self 2 failed", "f 10..11 self 1"],
        [0; 4],
    );
}

#[test]
fn an_event_that_carries_its_duration() {
    let whole =
        "[spans.'p:f']\nevent = 'w'\nduration = 'a'\n[spans.'p:g']\nevent = 'v'\nduration = 'a'\nunit = 'us'";
    check(whole, "10 1 w 4", &["f 6..10 self 4"], [0; 4]);
    check(
        whole,
        "5000 1 w 900, 7000 1 w 500, 9000 1 v 5",
        &["f 4100..5000 self 900", "f 6500..7000 self 500", "g 4000..9000 self 3600 has 1,2"],
        [0; 4],
    );
    // What began before it does not lie within it, unless by less than its unit.
    check(whole, "5000 1 w 4000, 6000 1 v 2", &["f 1000..5000 self 4000", "g 4000..6000 self 2000"], [0; 4]);
    check(
        whole,
        "5000 1 w 1500, 6000 1 v 2",
        &["f 3500..5000 self 1500", "g 4000..6000 self 500 has 1"],
        [0; 4],
    );
    check(whole, "5 1 w many", &[], [1, 0, 0, 0]);
    // Between two probes, too.
    let mixed = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\n[spans.'p:g']\nevent = 'v'\nduration = 'a'";
    check(mixed, "1 1 b, 5 1 v 2, 9 1 e", &["g 3..5 self 2", "f 1..9 self 6 has 1"], [0; 4]);
}

#[test]
fn fields_of_begin_end_and_others() {
    let carrying = format!("{F}\ncarry = {{ text = 's.a' }}");
    let events = "1 1 s first, 2 1 b 1 2, 3 1 s second, 4 1 e 3, 5 1 b, 6 1 e";
    check_field(&carrying, events, Some("text"), &["f 2..4 self 2 first", "f 5..6 self 1 second"], [0; 4]);
    check_field(&carrying, "2 2 s other, 3 1 b, 4 1 e", Some("text"), &["f 3..4 self 1 -"], [0; 4]);
    check_field(&carrying, "1 1 s a, 2 1 LOSS 2, 3 1 b, 4 1 e", Some("text"), &["f 3..4 self 1 -"], [0; 4]);
    for (field, want) in [("a", "1"), ("end.a", "3"), ("begin.b", "2"), ("arg1", "2"), ("none", "-")] {
        check_field(F, "2 1 b 1 2, 4 1 e 3 4", Some(field), &[&format!("f 2..4 self 2 {want}")], [0; 4]);
    }
}

#[test]
fn another_program_has_nothing_open() {
    // All threads of the process, and nobody else's.
    let events = "1 1/1 b, 2 1/7 b, 3 2/2 b, 4 1/1 EXEC, 5 1/1 e, 6 1/1 b, 7 1/1 e, 8 1/7 e, 9 2/2 e";
    check(F, events, &["f 6..7 self 1", "f 3..9 self 6"], [2, 2, 0, 0]);
    check(KEYED, "1 1/1 b k, 2 2/2 b k, 3 1/1 EXEC, 4 1/1 e k, 5 2/2 e k", &["f 2..5 self 3"], [1, 1, 0, 0]);
    let carrying = format!("{F}\ncarry = {{ text = 's.a' }}");
    check_field(&carrying, "1 1 s old, 2 1 EXEC, 3 1 b, 4 1 e", Some("text"), &["f 3..4 self 1 -"], [0; 4]);
    // A forked child is another process: it has nothing open either.
    check(F, "1 1/1 b, 2 2/2 e, 3 1/1 e", &["f 1..3 self 2"], [1, 0, 0, 0]);
}

#[test]
fn one_event_ends_one_and_begins_the_next() {
    check(
        "[spans.'p:f']\nbegin = ['b', 'n']\nend = ['n', 'e']",
        "1 1 b, 3 1 n, 7 1 n, 8 1 e",
        &["f 1..3 self 2", "f 3..7 self 4", "f 7..8 self 1"],
        [0; 4],
    );
}

#[test]
fn memory_has_a_bound() {
    let mut pairing = Pairing::new(file::parse(F, &Source::CommandLine).unwrap());
    let mut log = Log { names: vec!["f".into()], ..Log::default() };
    pairing.add_class("p", "b", &[]);
    let n = 200_000;
    for tid in 0..n {
        let task = Task { pid: 1, tid };
        pairing.event(tid.into(), task, 0, &Fields::default(), &mut log);
    }
    for ns in 0..10_000 {
        pairing.event(ns, Task { pid: 2, tid: 2 }, 0, &Fields::default(), &mut log);
    }
    pairing.close(&mut log);
    let unmatched = pairing.unmatched();
    assert_eq!(unmatched.n_begins + unmatched.n_open, u64::from(n) + 10_000);
    assert!(unmatched.n_open <= (1 << 16) + 4096);
}

#[test]
fn which_fields_are_needed_is_known_beforehand() {
    let spans = "[spans.'p:a']\nbegin = 'a__start'\nend = 'a__done'\n\
                 [spans.'p:b']\nbegin = 'b__start'\nend = 'b__done'\nmatch = 'id'\n";
    let mut pairing = Pairing::new(file::parse(spans, &Source::CommandLine).unwrap());
    let of = |pairing: &Pairing, name| pairing.needs_of("p", name, &["id", "more"]);
    let needs = |is_used, fields: &[bool]| Needs { is_used, fields: fields.to_vec() };
    assert_eq!(of(&pairing, "a__start"), needs(true, &[]));
    assert_eq!(of(&pairing, "b__done"), needs(true, &[true, false]));
    assert_eq!(of(&pairing, "other"), needs(false, &[]));
    // Asking makes nothing known.
    assert_eq!(pairing.add_class("p", "b__done", &["id", "more"]), of(&pairing, "b__done"));
    assert_eq!(pairing.classes.len(), 1);
    pairing.want_all();
    assert_eq!(of(&pairing, "a__start"), needs(true, &[true, true]));
    assert_eq!(of(&pairing, "a__done"), needs(true, &[true, true]));
    (0..2).for_each(|span| pairing.end_repeats(span));
    assert_eq!(of(&pairing, "a__start"), needs(true, &[true, true]));
    assert_eq!(of(&pairing, "a__done"), needs(true, &[]), "the begin has said it all");
    assert_eq!(of(&pairing, "b__done"), needs(true, &[true, false]), "what pairs is needed");
    pairing.want(0, "end.more");
    assert_eq!(of(&pairing, "a__done"), needs(true, &[false, true]), "somebody asks for it");
}

#[test]
fn what_is_carried_is_read_if_it_is_asked_for() {
    let carrying = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\ncarry = { u = 'l.a' }";
    for (wanted, is_used) in [(None, false), (Some("b"), false), (Some("u"), true)] {
        let mut pairing = Pairing::new(file::parse(carrying, &Source::CommandLine).unwrap());
        if let Some(wanted) = wanted {
            pairing.want(0, wanted);
        }
        let fields = if is_used { vec![true, false] } else { Vec::new() };
        assert_eq!(pairing.add_class("p", "l", &["a", "b"]), Needs { fields, is_used }, "{wanted:?}");
    }
    let mut pairing = Pairing::new(file::parse(carrying, &Source::CommandLine).unwrap());
    pairing.want_all();
    assert!(pairing.add_class("p", "l", &["a", "b"]).is_used, "all fields are asked for");
}
