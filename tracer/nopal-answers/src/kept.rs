//! Spans that stubs pair and add up in the traced program itself: which questions allow it, and the way from what they have
//! gathered to an answer.

use crate::ask::position;
use crate::condition::Condition;
use crate::decode::FieldReader;
use crate::event::visible_fields;
use crate::groups::MAX_GROUPS;
use crate::latency::{Latency, LatencyAsk, SpanAsk, add_ends, keep_telling};
use crate::table::{Cell, Slow};
use nopal_capture::span::{MAX_QUESTIONS, MAX_SPANS};
use nopal_capture::{Formula, Hit, SlowSpan, StreamKind};
use nopal_live::predicate::{self, Comparison, Constant, Predicate, Term};
use nopal_live::registry::{FieldComparison, Registry, Side, SpanField, SpanQuestions, SpanRole, SpanRoles};
use nopal_live::tasks::Tasks;
use nopal_live::{KeptSpan, Live, Polled};
use nopal_spans::{
    Available, FieldKind, Fields, Histogram, Mode, Shape, Source, Span, Summary, Task, Unmatched, Value,
};
use nopal_trace::Scratch;
use nopal_trace::live::LiveClass;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Why a question needs every event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotKept {
    By,
    /// More is asked of fields of this span than comparisons of integers.
    Condition(String),
    Every,
    /// Pairs by fields.
    Key(String),
    /// Its event says how long it took.
    Whole(String),
    Error(String),
    /// The slowest are to be shown with texts, which are gone by the end.
    Texts(String),
    /// The same, and nobody knows the arguments yet.
    NotYet(String),
    TooManySpans(usize),
    TooManySlowest(usize),
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotKept::By => f.write_str("--by is kept for one integer of one span"),
            NotKept::Condition(span) => {
                write!(f, "--where is about more than integers of {span} and constants")
            }
            NotKept::Every => f.write_str("--every needs the time of each span"),
            NotKept::Key(span) => write!(f, "{span} pairs by fields"),
            NotKept::Whole(span) => write!(f, "{span} is one event that says how long it took"),
            NotKept::Error(span) => {
                write!(f, "whether {span} failed is decided by more than integers and constants")
            }
            NotKept::Texts(span) => {
                write!(f, "the slowest of {span} are shown with texts; --slowest 0 does without")
            }
            NotKept::NotYet(span) => write!(
                f,
                "the slowest of {span} are shown with their arguments, which nobody knows before its probes are there; \
                 --slowest 0 does without"
            ),
            NotKept::TooManySpans(n) => write!(f, "{n} spans are more than {MAX_SPANS}"),
            NotKept::TooManySlowest(n) => write!(f, "{n} slowest are too many"),
        }
    }
}

/// What each probe of the spans does if they can be kept at the source.
pub fn roles(spans: &[Span], ask: &LatencyAsk, available: &Available) -> Result<SpanRoles, NotKept> {
    if ask.every_ns.is_some() {
        return Err(NotKept::Every);
    }
    if spans.len() > MAX_SPANS {
        return Err(NotKept::TooManySpans(spans.len()));
    }
    let wanted = ask.n_slowest.max(ask.n_slowest_each);
    let n_slowest = u16::try_from(wanted).map_err(|_| NotKept::TooManySlowest(wanted))?;
    let by = match (&ask.by[..], spans) {
        ([], _) => None,
        ([field], [span]) if ask.n_slowest_each == 0 => {
            Some(number(field, span, available).ok_or(NotKept::By)?)
        }
        _ => return Err(NotKept::By),
    };
    let mut roles = SpanRoles { n_slowest, by, ..SpanRoles::default() };
    for (number, span) in spans.iter().enumerate() {
        check(span, n_slowest > 0, available)?;
        let is_part = |(at, other): (usize, &Span)| {
            let is_it = other.parent.as_ref() == Some(&span.name) && other.provider == span.provider;
            is_it.then_some(at as u8)
        };
        let parts: Vec<u8> = spans.iter().enumerate().filter_map(is_part).collect();
        let number = number as u8;
        roles.spans.push(questions(span, ask, available)?);
        let begins = span.begins().iter().map(|probe| (probe, SpanRole::Begin { span: number }));
        let ends =
            span.ends().iter().map(|probe| (probe, SpanRole::End { span: number, parts: parts.clone() }));
        let fails = span.fails.iter().map(|probe| (probe, SpanRole::Fail { spans: vec![number] }));
        for (probe, role) in begins.chain(ends).chain(fails) {
            let name = (probe.provider.clone(), probe.name.clone());
            add(roles.by_probe.entry(name).or_default(), role);
        }
    }
    // An event that is end of one span and begin of another ends first.
    for of_probe in roles.by_probe.values_mut() {
        of_probe.sort_by_key(|role| match role {
            SpanRole::End { .. } => 0,
            SpanRole::Fail { .. } => 1,
            SpanRole::Begin { .. } => 2,
        });
    }
    Ok(roles)
}

/// What one probe makes fail, it makes fail at once, the innermost first.
fn add(of_probe: &mut Vec<SpanRole>, role: SpanRole) {
    let failing = of_probe.iter_mut().find_map(|known| match known {
        SpanRole::Fail { spans } => Some(spans),
        SpanRole::Begin { .. } | SpanRole::End { .. } => None,
    });
    match (role, failing) {
        (SpanRole::Fail { spans: more }, Some(spans)) => spans.extend(more),
        (role, _) => of_probe.push(role),
    }
}

/// What is to be asked of a span's fields where it happens.
fn questions(span: &Span, ask: &LatencyAsk, available: &Available) -> Result<SpanQuestions, NotKept> {
    let has_bounds = ask.min_ns > 0 || ask.max_ns < u64::MAX;
    let mut questions = SpanQuestions {
        bounds: has_bounds.then_some((ask.min_ns, ask.max_ns)),
        is_outermost: span.is_outermost,
        is_call: span.is_call,
        ..SpanQuestions::default()
    };
    if let Some(text) = &ask.condition {
        let formula = formula(text, span, available, &mut questions.comparisons);
        questions.counts = Some(formula.ok_or_else(|| NotKept::Condition(span.full_name()))?);
    }
    if let Some(text) = &span.error {
        questions.fails = match formula(text, span, available, &mut questions.comparisons) {
            Some(formula) => Some(formula),
            // A program of another version may lack the field that the catalog goes by.
            None if span.source == Source::Catalog && condition(text, span, available).is_none() => None,
            None => return Err(NotKept::Error(span.full_name())),
        };
    }
    Ok(questions)
}

/// A condition that can be read, and the names of its fields by their numbers.
fn condition(text: &str, span: &Span, available: &Available) -> Option<(Condition, Vec<String>)> {
    let known = available.fields_of(span)?;
    let mut names: Vec<String> = Vec::new();
    let want = |name: &str| {
        position(&known, name)?;
        names.push(name.to_owned());
        Some(names.len() - 1)
    };
    let condition = Condition::parse(text, Some(&known), want).ok()?;
    Some((condition, names))
}

/// A condition in comparisons of integers with constants, if that is all it has.
fn formula(
    text: &str,
    span: &Span,
    available: &Available,
    comparisons: &mut Vec<FieldComparison>,
) -> Option<Formula> {
    let (condition, names) = condition(text, span, available)?;
    let mut add = |field: usize, comparison: Comparison, constant: i128| {
        let of = side(&names[field], span, available)?;
        let bit = u8::try_from(comparisons.len()).ok().filter(|bit| usize::from(*bit) < MAX_QUESTIONS)?;
        comparisons.push(FieldComparison { of, comparison, constant });
        Some(Formula::Bit(bit))
    };
    lowered(condition.predicate(), &mut add)
}

type Add<'a> = dyn FnMut(usize, Comparison, i128) -> Option<Formula> + 'a;

fn lowered(predicate: &Predicate, add: &mut Add<'_>) -> Option<Formula> {
    match predicate {
        Predicate::Compare { field, comparison, constant: Constant::Int(constant) } => {
            add(*field, *comparison, *constant)
        }
        Predicate::Holds(Term::Source(predicate::Source::Field(field))) => add(*field, Comparison::Ne, 0),
        Predicate::Not(inner) => Some(Formula::Not(Box::new(lowered(inner, add)?))),
        Predicate::All(parts) => {
            Some(Formula::All(parts.iter().map(|part| lowered(part, add)).collect::<Option<_>>()?))
        }
        Predicate::Any(parts) => {
            Some(Formula::Any(parts.iter().map(|part| lowered(part, add)).collect::<Option<_>>()?))
        }
        Predicate::Compare { .. } | Predicate::Relate { .. } | Predicate::Holds(_) => None,
    }
}

/// A field that is a number and has no names for its values.
fn number(name: &str, span: &Span, available: &Available) -> Option<SpanField> {
    let known = available.fields_of(span)?;
    let field = &known[position(&known, name)?];
    side(name, span, available).filter(|_| field.kind == FieldKind::Number)
}

/// At which end of a span a field is to be had.
fn side(name: &str, span: &Span, available: &Available) -> Option<SpanField> {
    let (side, name) = match name.split_once('.') {
        Some(("begin", name)) => (Some(Side::Begin), name),
        Some(("end", name)) => (Some(Side::End), name),
        _ => (None, name),
    };
    if span.carries.iter().any(|carry| carry.name == name) {
        return None;
    }
    let of = |side: Side, is_of_side: bool| SpanField { field: name.to_owned(), side, is_of_side };
    if let Some(side) = side {
        return Some(of(side, true));
    }
    let begins = span.begins().iter().filter_map(|probe| available.probe(probe));
    let has: Vec<bool> = begins.map(|probe| position(&probe.fields, name).is_some()).collect();
    match (has.contains(&true), has.contains(&false)) {
        (true, false) => Some(of(Side::Begin, false)),
        (false, true) => Some(of(Side::End, false)),
        // Some begins have it, or nobody knows.
        (true, true) | (false, false) => None,
    }
}

fn check(span: &Span, has_slowest: bool, available: &Available) -> Result<(), NotKept> {
    let name = || span.full_name();
    if matches!(span.shape, Shape::Whole { .. }) {
        return Err(NotKept::Whole(name()));
    }
    match &span.mode {
        // Calls pair by the stack pointer, which a stub knows.
        Mode::Thread { matching } if matching.is_empty() || span.is_call => {}
        Mode::Thread { .. } | Mode::Key(_) => return Err(NotKept::Key(name())),
    }
    if !has_slowest {
        return Ok(());
    }
    // Where nobody knows the fields yet, they may be texts.
    let fields = available.fields_of(span).ok_or_else(|| NotKept::NotYet(name()))?;
    let of_failures = span.fails.iter().filter_map(|probe| available.probe(probe));
    let mut all = fields.iter().chain(of_failures.flat_map(|probe| &probe.fields));
    if !span.carries.is_empty() || !all.all(|field| field.kind == FieldKind::Number) {
        return Err(NotKept::Texts(name()));
    }
    Ok(())
}

/// Spans that are kept at the source, on their way into an answer.
#[derive(Debug)]
pub struct Kept {
    /// By span: those that were too long for the table.
    long: Vec<Summary>,
    /// The spans are grouped by a number.
    is_grouped: bool,
    /// By number: those that were too long, or had no room in the table of groups.
    ungrouped: BTreeMap<u64, Summary>,
    /// Those of numbers beyond [`MAX_GROUPS`].
    others: Summary,
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
    /// Hits at which something is asked that a stub cannot tell.
    pub n_undecided: u64,
    pub n_no_room: u64,
    pub n_too_deep: u64,
}

/// How often the sums are read.
const READ: Duration = Duration::from_millis(200);

impl Kept {
    pub fn new(n_spans: usize, is_grouped: bool) -> Kept {
        Kept {
            long: vec![Summary::default(); n_spans],
            is_grouped,
            ungrouped: BTreeMap::new(),
            others: Summary::default(),
            tasks: Tasks::default(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            scratch: Scratch::default(),
            last_read: None,
            n_spans: 0,
            reached_ns: 0,
            n_elsewhere: 0,
            n_undecided: 0,
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
        self.n_undecided += arrived.n_undecided;
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
            // Whether it failed is counted at the source, but of what has no group there.
            let is_error = slow.is_ungrouped() && slow.is_error();
            if self.is_grouped && (slow.is_ungrouped() || slow.is_long()) {
                let is_known = self.ungrouped.contains_key(&slow.key());
                match is_known || self.ungrouped.len() < MAX_GROUPS {
                    true => self.ungrouped.entry(slow.key()).or_default().add(duration_ns, self_ns, is_error),
                    false => self.others.add(duration_ns, self_ns, is_error),
                }
            } else if slow.is_long() {
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
                        is_error: slow.is_error(),
                        fields: self.read_fields(live, &sides, latency.ask_of(span)),
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
        let kept = live.kept_spans(self.long.len());
        (self.n_no_room, self.n_too_deep, self.n_spans) = (kept.n_no_room, kept.n_too_deep, 0);
        for (span, (of_span, long)) in kept.spans.iter().zip(&self.long).enumerate() {
            let unmatched = Unmatched {
                n_ends: of_span.n_ends,
                n_begins: of_span.n_begins,
                n_by_loss: 0,
                n_open: of_span.n_open,
            };
            if self.is_grouped {
                let groups = self.groups(live);
                self.n_spans = groups.iter().map(|(_, summary)| summary.count()).sum();
                self.n_spans += self.others.count();
                latency.set_kept_groups(span, groups, self.others.clone(), unmatched);
            } else {
                let mut summary = summary(of_span);
                summary.merge(long);
                self.n_spans += summary.count();
                latency.set_kept(span, summary, unmatched);
            }
            if let Some(ns) = latency.slow_from_ns(span) {
                live.raise_span_floor(span, ns);
            }
        }
    }

    /// What spans come to by the number they are grouped by.
    fn groups(&self, live: &Live) -> Vec<(Value<'static>, Summary)> {
        let mut groups = self.ungrouped.clone();
        for (key, kept) in live.kept_groups() {
            groups.entry(key).or_default().merge(&summary(&kept));
        }
        let is_signed = live.registry().has_signed_groups();
        let value = |key: u64| if is_signed { Value::Signed(key as i64) } else { Value::Unsigned(key) };
        groups.into_iter().map(|(key, summary)| (value(key), summary)).collect()
    }

    /// The fields of a slow span, of its begin and then of its end.
    fn read_fields(
        &mut self,
        live: &Live,
        sides: &[(u32, Vec<u8>)],
        ask: Option<&SpanAsk>,
    ) -> Vec<(String, Cell)> {
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
        if let Some(ask) = ask {
            keep_telling(&mut shown, ask);
        }
        shown
    }
}

fn summary(kept: &KeptSpan) -> Summary {
    Summary {
        errors: kept.n_errors,
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
    n_undecided: u64,
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
        if registry.events[hit.event as usize].undecidable.is_some() {
            self.n_undecided += 1;
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
    use nopal_spans::{KeyField, KnownProbe, ProbeName};

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
        let by_thread = Mode::Thread { matching: vec![KeyField::parse("x")] };
        let [begin, end] = ["a__start", "a__done"].map(|name| ProbeName::new("p", name));
        let call = Span::call("a", begin.clone(), end.clone(), Source::CommandLine);
        let goroutine = Span::goroutine_call("a", begin, end, Source::CommandLine);
        for (span, ask, reason) in [
            (plain(), LatencyAsk { by: vec!["x".into(), "end.x".into()], ..ask() }, "--by"),
            (plain(), LatencyAsk { by: vec!["pid".into()], ..ask() }, "--by"),
            (plain(), LatencyAsk { by: vec!["x".into()], n_slowest_each: 1, ..ask() }, "--by"),
            (plain(), LatencyAsk { condition: Some("x & 1".into()), ..ask() }, "--where"),
            (plain(), LatencyAsk { condition: Some("x > 1.5".into()), ..ask() }, "--where"),
            (plain(), LatencyAsk { every_ns: Some(1), ..ask() }, "--every"),
            (plain(), LatencyAsk { n_slowest: 1 << 20, ..ask() }, "1048576 slowest"),
            (Span { mode: key, ..plain() }, ask(), "pairs by fields"),
            (Span { mode: by_thread, ..plain() }, ask(), "pairs by fields"),
            (goroutine, ask(), "pairs by fields"),
            (Span { error: Some("x == end.x".into()), ..plain() }, ask(), "more than integers"),
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
        let kept = roles(&[call, plain()], &slowest, &available(FieldKind::Number)).unwrap();
        assert_eq!(kept.spans.iter().map(|span| span.is_call).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_probe_has_a_role_in_each_span_and_ends_come_first() {
        let probe = |name| ProbeName::new("p", name);
        let next = Span::pair("b", probe("a__done"), probe("b__done"), Source::CommandLine);
        let part = Span { parent: Some("a".into()), ..next };
        let roles = roles(&[part, plain()], &LatencyAsk::default(), &available(FieldKind::Number)).unwrap();
        let of = |name: &str| &roles.by_probe[&("p".to_owned(), name.to_owned())];
        assert_eq!(of("a__start"), &[SpanRole::Begin { span: 1 }]);
        let end = SpanRole::End { span: 1, parts: vec![0] };
        assert_eq!(of("a__done"), &[end, SpanRole::Begin { span: 0 }]);
    }

    #[test]
    fn one_probe_makes_all_fail_at_once_after_ends_and_before_begins() {
        let probe = |name| ProbeName::new("p", name);
        let failing = |span: Span| Span { fails: vec![probe("f")], ..span };
        let next = Span::pair("b", probe("f"), probe("b__done"), Source::CommandLine);
        let roles =
            roles(&[failing(next), failing(plain())], &LatencyAsk::default(), &available(FieldKind::Number))
                .unwrap();
        let at_failure = &roles.by_probe[&("p".to_owned(), "f".to_owned())];
        assert_eq!(at_failure, &[SpanRole::Fail { spans: vec![0, 1] }, SpanRole::Begin { span: 0 }]);
    }

    #[test]
    fn conditions_are_asked_of_the_side_that_has_the_field() {
        let probe = |name: &str, field: &str| KnownProbe {
            name: ProbeName::new("p", name),
            fields: vec![nopal_spans::KnownField {
                name: field.to_owned(),
                kind: FieldKind::Number,
                labels: vec![("bad".to_owned(), 7, 7)],
            }],
            pair: None,
        };
        let available =
            Available::new(Vec::new(), vec![probe("a__start", "x"), probe("a__done", "y")], false);
        let asked = |text: &str| {
            let ask = LatencyAsk { condition: Some(text.to_owned()), ..LatencyAsk::default() };
            let mut roles = roles(&[plain()], &ask, &available).ok()?;
            let SpanQuestions { comparisons, counts, .. } = roles.spans.remove(0);
            let each = comparisons.iter().map(|c| (c.of.side, c.of.field.clone(), c.constant)).collect();
            Some((each, counts?))
        };
        let x = |constant| (Side::Begin, "x".to_owned(), constant);
        let y = |constant| (Side::End, "y".to_owned(), constant);
        let (a, b) = (Formula::Bit(0), Formula::Bit(1));
        for (text, comparisons, formula) in [
            ("x > 1", vec![x(1)], a.clone()),
            ("x == 1 && y < 5", vec![x(1), y(5)], Formula::All(vec![a.clone(), b.clone()])),
            ("!(x == 1 || y == bad)", vec![x(1), y(7)], Formula::Not(Box::new(Formula::Any(vec![a, b])))),
        ] {
            assert_eq!(asked(text), Some((comparisons, formula)), "{text}");
        }
    }
}
