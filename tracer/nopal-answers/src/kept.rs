//! Spans that stubs pair and add up in the traced program itself: which questions allow it, and the way from what they have
//! gathered to an answer.

use crate::decode::FieldReader;
use crate::event::visible_fields;
use crate::latency::{Latency, LatencyAsk, add_ends};
use crate::table::{Cell, Slow};
use nopal_capture::span::MAX_SPANS;
use nopal_capture::{Hit, SlowSpan, SpanStep, StreamKind};
use nopal_live::registry::{Registry, SpanRoles};
use nopal_live::tasks::Tasks;
use nopal_live::{KeptSpan, Live, Polled};
use nopal_spans::{Available, FieldKind, Fields, Histogram, Mode, Shape, Span, Summary, Task, Unmatched};
use nopal_trace::Scratch;
use nopal_trace::live::LiveClass;
use std::fmt;
use std::time::{Duration, Instant};

/// Why a question needs every event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotKept {
    By,
    Condition,
    Bounds,
    Every,
    /// Pairs by fields.
    Key(String),
    /// Its event says how long it took.
    Whole(String),
    Fail(String),
    Error(String),
    Outermost(String),
    /// The slowest are to be shown with texts, which are gone by the end.
    Texts(String),
    TooManySpans(usize),
    TooManySlowest(usize),
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotKept::By => f.write_str("--by needs the fields of each event"),
            NotKept::Condition => f.write_str("--where needs the fields of each event"),
            NotKept::Bounds => f.write_str("--min and --max are decided span by span"),
            NotKept::Every => f.write_str("--every needs the time of each span"),
            NotKept::Key(span) => write!(f, "{span} pairs by fields"),
            NotKept::Whole(span) => write!(f, "{span} is one event that says how long it took"),
            NotKept::Fail(span) => write!(f, "{span} can end by a failure"),
            NotKept::Error(span) => write!(f, "whether {span} failed is decided by its fields"),
            NotKept::Outermost(span) => write!(f, "only the outermost of {span} counts"),
            NotKept::Texts(span) => {
                write!(f, "the slowest of {span} are shown with texts; --slowest 0 does without")
            }
            NotKept::TooManySpans(n) => write!(f, "{n} spans are more than {MAX_SPANS}"),
            NotKept::TooManySlowest(n) => write!(f, "{n} slowest are too many"),
        }
    }
}

/// What each probe of the spans does if they can be kept at the source.
pub fn roles(spans: &[Span], ask: &LatencyAsk, available: &Available) -> Result<SpanRoles, NotKept> {
    if !ask.by.is_empty() {
        return Err(NotKept::By);
    }
    if ask.condition.is_some() {
        return Err(NotKept::Condition);
    }
    if ask.min_ns > 0 || ask.max_ns < u64::MAX {
        return Err(NotKept::Bounds);
    }
    if ask.every_ns.is_some() {
        return Err(NotKept::Every);
    }
    if spans.len() > MAX_SPANS {
        return Err(NotKept::TooManySpans(spans.len()));
    }
    let wanted = ask.n_slowest.max(ask.n_slowest_each);
    let n_slowest = u16::try_from(wanted).map_err(|_| NotKept::TooManySlowest(wanted))?;
    let mut roles = SpanRoles { n_spans: spans.len() as u32, n_slowest, ..SpanRoles::default() };
    for (number, span) in spans.iter().enumerate() {
        check(span, n_slowest > 0, available)?;
        let is_part = |(at, other): (usize, &Span)| {
            let is_it = other.parent.as_ref() == Some(&span.name) && other.provider == span.provider;
            is_it.then_some(at as u8)
        };
        let parts: Vec<u8> = spans.iter().enumerate().filter_map(is_part).collect();
        let number = number as u8;
        let begins = span.begins().iter().map(|probe| (probe, SpanStep::Begin { span: number }));
        let ends =
            span.ends().iter().map(|probe| (probe, SpanStep::End { span: number, parts: parts.clone() }));
        for (probe, step) in begins.chain(ends) {
            let name = (probe.provider.clone(), probe.name.clone());
            roles.by_probe.entry(name).or_default().push(step);
        }
    }
    // An event that is end of one span and begin of another ends first.
    for steps in roles.by_probe.values_mut() {
        steps.sort_by_key(|step| matches!(step, SpanStep::Begin { .. }));
    }
    Ok(roles)
}

fn check(span: &Span, has_slowest: bool, available: &Available) -> Result<(), NotKept> {
    let name = || span.full_name();
    if matches!(span.shape, Shape::Whole { .. }) {
        return Err(NotKept::Whole(name()));
    }
    match &span.mode {
        Mode::Thread { matching } if matching.is_empty() => {}
        Mode::Thread { .. } | Mode::Key(_) => return Err(NotKept::Key(name())),
    }
    if !span.fails.is_empty() {
        return Err(NotKept::Fail(name()));
    }
    if span.error.is_some() {
        return Err(NotKept::Error(name()));
    }
    if span.is_outermost {
        return Err(NotKept::Outermost(name()));
    }
    // Where nobody knows the fields yet, they may be texts.
    let is_number = |kind: FieldKind| kind == FieldKind::Number;
    let has_numbers =
        available.fields_of(span).is_some_and(|fields| fields.iter().all(|field| is_number(field.kind)));
    if has_slowest && (!has_numbers || !span.carries.is_empty()) {
        return Err(NotKept::Texts(name()));
    }
    Ok(())
}

/// Spans that are kept at the source, on their way into an answer.
#[derive(Debug)]
pub struct Kept {
    /// By span: those that were too long for the table.
    long: Vec<Summary>,
    tasks: Tasks,
    epoch_offset_ns: i64,
    scratch: Scratch,
    last_read: Option<Instant>,
    /// Spans that have finished.
    pub n_spans: u64,
    /// Everything before this time has been looked at, since the epoch.
    pub reached_ns: i64,
    /// Hits that came by the kernel door, with nobody to pair them.
    pub n_elsewhere: u64,
    pub n_no_room: u64,
    pub n_too_deep: u64,
}

/// How often the sums are read.
const READ: Duration = Duration::from_millis(200);

impl Kept {
    pub fn new(n_spans: usize) -> Kept {
        Kept {
            long: vec![Summary::default(); n_spans],
            tasks: Tasks::default(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            scratch: Scratch::default(),
            last_read: None,
            n_spans: 0,
            reached_ns: 0,
            n_elsewhere: 0,
            n_no_room: 0,
            n_too_deep: 0,
        }
    }

    /// Takes the slow spans that have come, and now and then what all have come to.
    pub fn poll(&mut self, live: &mut Live, latency: &mut Latency, is_last: bool) -> Polled {
        self.tasks.learn(&live.tasks);
        self.reached_ns = live.settled_ns() as i64 + self.epoch_offset_ns;
        let mut arrived = Arrived::default();
        let mut polled = live.poll_by_time(is_last, &mut arrived);
        self.n_elsewhere += arrived.n_elsewhere;
        polled.n_damaged += arrived.n_malformed;
        let n_slowest = latency.n_slowest();
        for Crossed { slow, task, sides } in arrived.slow {
            let duration_ns = live.ns_of(slow.ticks);
            let self_ns = duration_ns.saturating_sub(live.ns_of(slow.nested));
            let span = slow.span();
            let Some(long) = self.long.get_mut(span) else {
                polled.n_damaged += 1;
                continue;
            };
            if slow.is_long() {
                long.add(duration_ns, self_ns, false);
            }
            if n_slowest > 0 {
                let task = self.tasks.translate(task);
                latency.offer_slow(
                    span,
                    Slow {
                        span: latency.span_name(span).to_owned(),
                        start_ns: live.ns_at(slow.start) as i64 + self.epoch_offset_ns,
                        duration_ns,
                        self_ns,
                        task: Task { pid: task.pid, tid: task.tid },
                        is_error: false,
                        fields: self.read_fields(live, &sides),
                    },
                );
            }
        }
        if is_last || self.last_read.is_none_or(|last| last.elapsed() >= READ) {
            self.last_read = Some(Instant::now());
            live.free_span_slots();
            self.read(live, latency);
        }
        polled
    }

    /// The sums as they are now.
    fn read(&mut self, live: &Live, latency: &mut Latency) {
        let kept = live.kept_spans();
        (self.n_no_room, self.n_too_deep, self.n_spans) = (kept.n_no_room, kept.n_too_deep, 0);
        for (span, (of_span, long)) in kept.spans.iter().zip(&self.long).enumerate() {
            let mut summary = summary(of_span);
            summary.merge(long);
            self.n_spans += summary.count();
            let unmatched = Unmatched {
                n_ends: of_span.n_ends,
                n_begins: of_span.n_begins,
                n_by_loss: 0,
                n_open: of_span.n_open,
            };
            latency.set_kept(span, summary, unmatched);
            if let Some(ns) = latency.slow_from_ns(span) {
                live.raise_span_floor(span, ns);
            }
        }
    }

    /// The fields of a slow span, of its begin and then of its end.
    fn read_fields(&mut self, live: &Live, sides: &[(u32, Vec<u8>)]) -> Vec<(String, Cell)> {
        let registry = live.registry();
        let mut shown = Vec::new();
        for (event, payload) in sides {
            let Some(event) = registry.events.get(*event as usize).filter(|event| event.keeps_values) else {
                continue;
            };
            let names = visible_fields(&event.plan.event_type);
            let (mut packed, mut fields) = (Vec::new(), Fields::default());
            let Ok(class) = LiveClass::new(&event.plan.event_type) else { continue };
            if event.plan.pack(event.site_idx, payload, &mut packed).is_err() {
                continue;
            }
            let needed = vec![true; names.len()];
            let mut reader = FieldReader::new(&needed, &mut fields);
            if class.fields(&packed, &mut self.scratch, &mut reader).is_ok() {
                let named = names.iter().enumerate();
                let cells = named.map(|(at, name)| ((*name).to_owned(), Cell::from(fields.get(at))));
                add_ends(&mut shown, cells);
            }
        }
        shown.retain(|(_, cell)| *cell != Cell::None);
        shown
    }
}

fn summary(kept: &KeptSpan) -> Summary {
    Summary {
        errors: 0,
        total_ns: kept.total_ns,
        self_ns: kept.total_ns.saturating_sub(kept.nested_ns),
        durations: Histogram::of_counts(&kept.buckets, kept.min_ns, kept.max_ns),
    }
}

/// A slow span as it came.
#[derive(Debug)]
struct Crossed {
    slow: SlowSpan,
    task: nopal_capture::Task,
    /// Events and values of its begin and its end.
    sides: [(u32, Vec<u8>); 2],
}

/// Hits as they come: all of them are slow spans.
#[derive(Debug, Default)]
struct Arrived {
    slow: Vec<Crossed>,
    n_elsewhere: u64,
    n_malformed: u64,
}

impl nopal_live::Consumer<Registry> for Arrived {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        if hit.stream.kind == StreamKind::Kernel {
            self.n_elsewhere += u64::from(registry.is_of_span(hit.event));
            return;
        }
        if !registry.is_of_span(hit.event) {
            return;
        }
        match SlowSpan::read(hit.payload) {
            Some((slow, rest)) => {
                let sides = [(slow.event, slow.kept.to_vec()), (hit.event, rest.to_vec())];
                self.slow.push(Crossed { slow, task: hit.task, sides });
            }
            None => self.n_malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_spans::{KeyField, KnownProbe, ProbeName, Source};

    fn available(kind: FieldKind) -> Available {
        let probe = |name: &str| KnownProbe {
            name: ProbeName::new("p", name),
            fields: vec![nopal_spans::KnownField { name: "x".to_owned(), kind, labels: Vec::new() }],
            pair: None,
        };
        Available::new(Vec::new(), vec![probe("a__start"), probe("a__done")], false)
    }

    fn plain() -> Span {
        let [begin, end] = ["a__start", "a__done"].map(|name| ProbeName::new("p", name));
        Span::pair("a", begin, end, Source::CommandLine)
    }

    #[test]
    fn what_needs_every_event_is_streamed() {
        let ask = LatencyAsk::default;
        let key = Mode::Key(vec![KeyField::parse("x")]);
        for (span, ask, reason) in [
            (plain(), LatencyAsk { by: vec!["x".into()], ..ask() }, "--by"),
            (plain(), LatencyAsk { condition: Some("x > 1".into()), ..ask() }, "--where"),
            (plain(), LatencyAsk { min_ns: 1, ..ask() }, "--min"),
            (plain(), LatencyAsk { every_ns: Some(1), ..ask() }, "--every"),
            (plain(), LatencyAsk { n_slowest: 1 << 20, ..ask() }, "1048576 slowest"),
            (Span { mode: key, ..plain() }, ask(), "pairs by fields"),
            (Span { fails: vec![ProbeName::new("p", "f")], ..plain() }, ask(), "by a failure"),
            (Span { error: Some("x > 1".into()), ..plain() }, ask(), "by its fields"),
            (Span { is_outermost: true, ..plain() }, ask(), "outermost"),
        ] {
            let said = roles(&[span], &ask, &available(FieldKind::Number)).expect_err(reason).to_string();
            assert!(said.contains(reason), "{said}");
        }
        let slowest = LatencyAsk { n_slowest: 3, ..ask() };
        assert!(matches!(
            roles(&[plain()], &slowest, &available(FieldKind::Text)),
            Err(NotKept::Texts(span)) if span == "p:a"
        ));
        assert!(roles(&[plain()], &slowest, &available(FieldKind::Number)).is_ok());
        assert!(roles(&[plain()], &ask(), &available(FieldKind::Text)).is_ok());
    }

    #[test]
    fn a_probe_has_a_role_in_each_span_and_ends_come_first() {
        let probe = |name| ProbeName::new("p", name);
        let next = Span::pair("b", probe("a__done"), probe("b__done"), Source::CommandLine);
        let part = Span { parent: Some("a".into()), ..next };
        let roles = roles(&[part, plain()], &LatencyAsk::default(), &available(FieldKind::Number)).unwrap();
        let of = |name: &str| &roles.by_probe[&("p".to_owned(), name.to_owned())];
        assert_eq!(of("a__start"), &[SpanStep::Begin { span: 1 }]);
        let end = SpanStep::End { span: 1, parts: vec![0] };
        assert_eq!(of("a__done"), &[end, SpanStep::Begin { span: 0 }]);
    }
}
