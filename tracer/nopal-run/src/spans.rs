//! The spans of a script's `latency()`, paired as those of every other answer.

use nopal_program::{Program, SPAN_KEY_AT};
use nopal_spans::{Done, Fields, Finished, KeyField, Mode, Pairing, ProbeName, Sink, Source, Span, Task};
use nopal_spans::{Unmatched, Value};

/// Spans being paired, and the durations of those that have ended since they were asked for.
#[derive(Debug)]
pub(crate) struct ScriptSpans {
    pairing: Pairing,
    ended: Ended,
    fields: Fields,
    /// Processes that have another program from a time on, CLOCK_MONOTONIC.
    restarts: Vec<(u32, u64)>,
}

/// Spans by their number, and how long they took.
#[derive(Debug, Default)]
struct Ended(Vec<(usize, u64)>);

impl Sink for Ended {
    fn finish(&mut self, span: &Finished<'_>, _: &[Done]) -> u32 {
        self.0.push((span.span, span.duration_ns()));
        0
    }
}

const KEY: &str = "key";

impl ScriptSpans {
    pub(crate) fn new(program: &Program) -> ScriptSpans {
        let probe = |number: usize, is_end: bool| {
            ProbeName::new("script", &format!("{}{number}", if is_end { "end" } else { "begin" }))
        };
        let span = |(number, def): (usize, &nopal_program::SpanDef)| {
            let (begin, end) = (probe(number, false), probe(number, true));
            let pair = Span::pair(&number.to_string(), begin, end, Source::CommandLine);
            let mode = match def.is_by_thread {
                true => Mode::Thread { matching: Vec::new() },
                false => Mode::Key(vec![KeyField::parse(KEY)]),
            };
            Span { mode, ..pair }
        };
        let mut pairing = Pairing::new(program.spans.iter().enumerate().map(span).collect());
        for number in 0..program.spans.len() {
            for is_end in [false, true] {
                let name = probe(number, is_end);
                pairing.add_class(&name.provider, &name.name, &[KEY]);
            }
        }
        ScriptSpans { pairing, ended: Ended::default(), fields: Fields::default(), restarts: Vec::new() }
    }

    /// Takes what a begin or an end handed over. How long the span took, if this ends one.
    pub(crate) fn edge(&mut self, span: u32, is_end: bool, payload: &[u8]) -> Option<u64> {
        let word = |at: usize| {
            let bytes = payload.get(at * 8..at * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let (ns, pid, tid) = (word(0)?, word(1)?, word(2)?);
        self.restart(ns);
        self.fields.clear();
        self.fields.push(Value::Text(payload.get(SPAN_KEY_AT as usize..)?));
        let class = span as usize * 2 + usize::from(is_end);
        let task = Task { pid: pid as u32, tid: tid as u32 };
        self.pairing.event(ns as i64, task, class, &self.fields, &mut self.ended);
        self.ended.0.pop().map(|(_, duration_ns)| duration_ns)
    }

    /// Hits up to this time are missing.
    pub(crate) fn loss(&mut self, to_ns: u64) {
        self.pairing.loss(to_ns as i64, &mut self.ended);
    }

    /// Processes that have another program from a time on.
    pub(crate) fn restarts(&mut self, restarts: Vec<(u32, u64)>) {
        self.restarts.extend(restarts);
    }

    fn restart(&mut self, now_ns: u64) {
        let (pairing, ended) = (&mut self.pairing, &mut self.ended);
        self.restarts.retain(|(pid, ns)| {
            let is_over = *ns <= now_ns;
            if is_over {
                pairing.restart(*pid, ended);
            }
            !is_over
        });
    }

    /// No more hits come.
    pub(crate) fn close(&mut self) {
        self.restart(u64::MAX);
        self.pairing.close(&mut self.ended);
    }

    /// What has no partner, of all spans.
    pub(crate) fn unmatched(&self) -> Unmatched {
        self.pairing.unmatched()
    }

    /// Whether the order of hits matters beyond their thread.
    pub(crate) fn is_any_by_key(&self) -> bool {
        self.pairing.spans().any(|span| matches!(span.mode, Mode::Key(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_program::SpanDef;
    use nopal_program::aggregate::{Aggregate, SPAN_BITS, hist_bucket, hist_range};
    use nopal_spans::histogram::bucket_of;

    fn payload(ns: u64, pid: u64, tid: u64, key: &[u8]) -> Vec<u8> {
        let numbers = [ns, pid, tid].map(u64::to_le_bytes).concat();
        [&numbers[..], key].concat()
    }

    fn spans() -> ScriptSpans {
        let spans = vec![SpanDef { map: 0, is_by_thread: true }, SpanDef { map: 1, is_by_thread: false }];
        ScriptSpans::new(&Program { spans, ..Program::default() })
    }

    #[test]
    fn a_thread_pairs_the_innermost_first_and_a_key_across_threads() {
        let mut s = spans();
        for ns in [10, 20] {
            assert_eq!(s.edge(0, false, &payload(ns, 1, 1, b"")), None);
        }
        assert_eq!(s.edge(0, true, &payload(25, 1, 1, b"")), Some(5));
        assert_eq!(s.edge(0, true, &payload(40, 1, 1, b"")), Some(30));
        assert_eq!(s.edge(0, true, &payload(41, 1, 1, b"")), None);
        s.edge(1, false, &payload(50, 1, 1, b"a"));
        s.edge(1, false, &payload(60, 1, 1, b"b"));
        assert_eq!(s.edge(1, true, &payload(61, 1, 2, b"a")), Some(11));
        // Another process has keys of its own.
        assert_eq!(s.edge(1, true, &payload(62, 2, 2, b"b")), None);
        s.close();
        assert_eq!(s.unmatched(), Unmatched { n_ends: 2, n_open: 1, ..Unmatched::default() });
    }

    #[test]
    fn what_is_open_does_not_outlive_a_loss_or_an_exec() {
        let mut s = spans();
        s.edge(0, false, &payload(10, 1, 1, b""));
        s.loss(30);
        assert_eq!(s.edge(0, true, &payload(40, 1, 1, b"")), None);
        s.edge(0, false, &payload(50, 1, 1, b""));
        s.restarts(vec![(1, 60)]);
        assert_eq!(s.edge(0, true, &payload(70, 1, 1, b"")), None);
        let want = Unmatched { n_ends: 2, n_begins: 1, n_by_loss: 1, ..Unmatched::default() };
        assert_eq!(s.unmatched(), want);
        // What is too short to have a task is no hit.
        assert_eq!(s.edge(0, true, &[1; 20]), None);
    }

    /// One histogram: the buckets of a script's map are those of every other answer.
    #[test]
    fn durations_go_into_the_same_buckets() {
        for value in
            (0..1000u64).chain((6..63).flat_map(|power| [(1 << power) - 1, 1 << power, 3 << (power - 1)]))
        {
            let (low, high) = hist_range(hist_bucket(value as i64, SPAN_BITS), SPAN_BITS);
            assert_eq!(
                (low.map(|low| low as u64), high as u64),
                (Some(bucket_of(value).0), bucket_of(value).1)
            );
        }
        assert_eq!(Aggregate::Quantiles { bits: SPAN_BITS }.n_words(), 2 + 58 * 64);
    }
}
