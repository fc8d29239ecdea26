//! `latency(SPAN) > 10ms`: watches spans of a live session and tells when one was too slow.

use crate::ask::{Wrong, spans};
use crate::event::{At, Consumer, OrderWithin, order_of, visible_fields};
use nopal_spans::{Available, Done, Fields, Finished, Needs, Pairing, ProbeName, Sink, Span};
use nopal_trace::EventType;

/// A condition on the duration of spans, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerText {
    /// Spans, or two probes.
    pub words: Vec<String>,
    /// A span must take longer than this.
    pub above_ns: u64,
}

impl TriggerText {
    /// `latency(SPAN) > 10ms`, `latency(BEGIN, END) >= 1s`.
    pub fn parse(text: &str) -> Result<TriggerText, Wrong> {
        let wrong = |why: &'static str| Wrong::Trigger { text: text.to_owned(), why };
        let rest = text.trim().strip_prefix("latency").map(str::trim_start);
        let inside =
            rest.and_then(|rest| rest.strip_prefix('(')).ok_or(wrong("it does not begin with `latency(`"))?;
        let (names, limit) = inside.split_once(')').ok_or(wrong("the `)` is missing"))?;
        let words: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
        if words.iter().any(String::is_empty) {
            return Err(wrong("a span is missing in the parentheses"));
        }
        let limit = limit.trim_start();
        let (time, is_included) = match (limit.strip_prefix(">="), limit.strip_prefix('>')) {
            (Some(time), _) => (time, true),
            (None, Some(time)) => (time, false),
            (None, None) => return Err(wrong("`>` and a time must follow the `)`")),
        };
        let ns = duration_with_unit_ns(time.trim())
            .ok_or(wrong("what follows `>` is not a time with its unit, such as `5ms`"))?;
        Ok(TriggerText { words, above_ns: if is_included { ns.saturating_sub(1) } else { ns } })
    }
}

/// `10ms`, `500us`, `2s`; a bare number is seconds.
pub fn duration_ns(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ns = digits.parse::<f64>().ok()? * factor;
    (0.0..=9e18).contains(&ns).then(|| ns.round() as u64)
}

/// The same, but a bare number is none: a limit in seconds that was meant in milliseconds would never be reached.
pub fn duration_with_unit_ns(text: &str) -> Option<u64> {
    duration_ns(text).filter(|_| text.ends_with(|c: char| c.is_ascii_alphabetic()))
}

/// Spans being watched.
#[derive(Debug)]
pub struct Watched {
    pairing: Pairing,
    slow: TooSlow,
}

#[derive(Debug)]
struct TooSlow {
    /// By span.
    above_ns: Vec<u64>,
    /// When those that were too slow ended, since the epoch.
    ends_ns: Vec<i64>,
    n_spans: u64,
    max_ns: u64,
}

impl Watched {
    pub fn new(triggers: &[TriggerText], available: &Available) -> Result<Watched, Wrong> {
        let (mut all, mut above_ns) = (Vec::new(), Vec::new());
        for trigger in triggers {
            let found = spans(available, &trigger.words, &[])?;
            above_ns.resize(above_ns.len() + found.len(), trigger.above_ns);
            all.extend(found);
        }
        let slow = TooSlow { above_ns, ends_ns: Vec::new(), n_spans: 0, max_ns: 0 };
        Ok(Watched { pairing: Pairing::new(all), slow })
    }

    /// What must be traced for it.
    pub fn probes(&self) -> Vec<ProbeName> {
        let mut probes: Vec<ProbeName> = self.pairing.spans().flat_map(Span::probes).cloned().collect();
        probes.sort();
        probes.dedup();
        probes
    }

    /// When spans ended that were too slow, since this was last asked.
    pub fn take_ends(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.slow.ends_ns)
    }

    pub fn n_spans(&self) -> u64 {
        self.slow.n_spans
    }

    pub fn max_ns(&self) -> u64 {
        self.slow.max_ns
    }
}

impl Sink for TooSlow {
    fn finish(&mut self, span: &Finished<'_>, _: &[Done]) -> u32 {
        self.n_spans += 1;
        self.max_ns = self.max_ns.max(span.duration_ns());
        if span.duration_ns() > self.above_ns[span.span] {
            self.ends_ns.push(span.end_ns);
        }
        0
    }
}

impl Consumer for Watched {
    fn class(&mut self, ty: &EventType) -> Needs {
        self.pairing.add_class(&ty.provider, &ty.name, &visible_fields(ty))
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        self.pairing.event(at.ns, at.task, class, fields, &mut self.slow);
    }

    fn order_within(&self) -> OrderWithin {
        order_of(self.pairing.spans())
    }

    fn loss(&mut self, to_ns: i64) {
        self.pairing.loss(to_ns, &mut self.slow);
    }

    fn restart(&mut self, pid: u32) {
        self.pairing.restart(pid, &mut self.slow);
    }

    fn end(&mut self) {
        self.pairing.close(&mut self.slow);
        self.pairing.forget_classes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_are_spans_and_a_time() {
        for (text, words, above_ns) in [
            ("latency(query) > 10ms", &["query"][..], 10_000_000),
            ("latency( a:b , a:c )>1s", &["a:b", "a:c"], 1_000_000_000),
            ("latency (query) >= 5us", &["query"], 4_999),
            ("latency(query) > 0.5s", &["query"], 500_000_000),
        ] {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(TriggerText::parse(text), Ok(TriggerText { words, above_ns }), "{text}");
        }
        for (text, why) in [
            ("latency(query > 10ms", "the `)` is missing"),
            ("latency() > 10ms", "a span is missing"),
            ("latency(a,) > 10ms", "a span is missing"),
            ("latency(query) < 10ms", "`>` and a time"),
            ("latency(query) > 10 parsecs", "is not a time"),
            ("latency(query) > 10", "its unit"),
            ("query > 10ms", "does not begin"),
        ] {
            let said = TriggerText::parse(text).expect_err(text).to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
