//! How long spans take: by group, the slowest of them, and interval by interval.

use crate::ask::{By, Wrong, by};
use crate::condition::Condition;
use crate::event::{At, Consumer, OrderWithin, order_of, visible_fields};
use crate::groups::Groups;
use crate::table::{Answer, Cell, Column, Slow};
use nopal_spans::fingerprint;
use nopal_spans::{
    Available, Done, Fields, Finished, GOROUTINE, KnownField, Needs, Pairing, STACK, STACK_END, Sink,
    Slowest, Span, Summary, Unmatched, Value,
};
use nopal_trace::EventType;
use std::collections::BTreeMap;

/// What is asked of spans.
#[derive(Debug, Clone)]
pub struct LatencyAsk {
    pub by: Vec<String>,
    pub condition: Option<String>,
    pub min_ns: u64,
    pub max_ns: u64,
    pub n_slowest: usize,
    /// The slowest to keep of each group, for whoever looks into one.
    pub n_slowest_each: usize,
    pub every_ns: Option<u64>,
    /// Texts to group by are SQL whose literals do not matter.
    pub has_fingerprints: bool,
}

impl Default for LatencyAsk {
    fn default() -> Self {
        LatencyAsk {
            by: Vec::new(),
            condition: None,
            min_ns: 0,
            max_ns: u64::MAX,
            n_slowest: 0,
            n_slowest_each: 0,
            every_ns: None,
            has_fingerprints: false,
        }
    }
}

/// Spans being measured.
#[derive(Debug)]
pub struct Latency {
    pairing: Pairing,
    /// Of spans that are kept at the source, by span.
    kept_unmatched: Vec<Unmatched>,
    sums: Sums,
    by: Vec<String>,
}

/// One interval of `--every`, when it is over.
#[derive(Debug)]
pub struct Interval {
    /// When it began, since the epoch.
    pub start_ns: i64,
    pub rows: Vec<(Vec<Cell>, Summary)>,
}

#[derive(Debug)]
struct Sums {
    asks: Vec<SpanAsk>,
    groups: Groups<Summary>,
    min_ns: u64,
    max_ns: u64,
    has_fingerprints: bool,
    /// Each span's group, where nothing else is asked for.
    by_span: Vec<usize>,
    slowest: Slowest<Slow>,
    n_slowest_each: usize,
    /// By group, if they are wanted.
    slowest_each: Vec<Slowest<Slow>>,
    /// Names of the fields, by class.
    fields: Vec<Vec<String>>,
    every: Option<Every>,
}

#[derive(Debug)]
pub(crate) struct SpanAsk {
    pub name: String,
    by: Vec<By>,
    condition: Option<Condition>,
    pub error: Option<Condition>,
    pub carries: Vec<String>,
    /// Fields that are worth showing, the most telling first.
    telling: Vec<String>,
    is_call: bool,
}

#[derive(Debug)]
struct Every {
    width_ns: u64,
    base_ns: Option<i64>,
    /// By number of the interval and group.
    open: BTreeMap<(i64, usize), Summary>,
}

impl Latency {
    pub fn new(spans: Vec<Span>, ask: &LatencyAsk, available: &Available) -> Result<Latency, Wrong> {
        let mut pairing = Pairing::new(spans.clone());
        let mut asks = Vec::new();
        for (idx, span) in spans.iter().enumerate() {
            asks.push(SpanAsk::new(&mut pairing, idx, span, ask, available, spans.len() > 1)?);
        }
        for name in &ask.by {
            let is_somewhere = spans.iter().any(|span| {
                let fields = available.fields_of(span);
                by(&span.full_name(), fields.as_deref(), name, |_| 0).is_ok()
            });
            if let (false, Some(span)) = (is_somewhere, spans.first()) {
                let fields = available.fields_of(span);
                by(&span.full_name(), fields.as_deref(), name, |_| 0)?;
            }
        }
        if ask.n_slowest > 0 || ask.n_slowest_each > 0 {
            pairing.want_all();
            let repeating = spans.iter().enumerate().filter(|(_, span)| available.end_repeats(span));
            repeating.for_each(|(idx, _)| pairing.end_repeats(idx));
        }
        let mut groups = Groups::default();
        let by_span = match ask.by.is_empty() {
            true => {
                asks.iter().map(|ask| groups.get([Value::Text(ask.name.as_bytes())].into_iter())).collect()
            }
            false => Vec::new(),
        };
        Ok(Latency {
            pairing,
            kept_unmatched: Vec::new(),
            sums: Sums {
                asks,
                groups,
                min_ns: ask.min_ns,
                max_ns: ask.max_ns,
                has_fingerprints: ask.has_fingerprints,
                by_span,
                slowest: Slowest::new(ask.n_slowest),
                n_slowest_each: ask.n_slowest_each,
                slowest_each: Vec::new(),
                fields: Vec::new(),
                every: ask.every_ns.map(|width_ns| Every { width_ns, base_ns: None, open: BTreeMap::new() }),
            },
            by: ask.by.clone(),
        })
    }

    /// Spans that have finished so far.
    pub fn n_spans(&self) -> u64 {
        self.sums.groups.all.iter().map(|(_, summary)| summary.count()).sum()
    }

    /// The groups and what they add up to; the values begin with the name of the span.
    pub fn groups(&self) -> impl Iterator<Item = &(Vec<Cell>, Summary)> {
        self.sums.groups.all.iter().filter(|(_, summary)| summary.count() > 0)
    }

    /// The same with their numbers, which stay what they are.
    pub fn numbered_groups(&self) -> impl Iterator<Item = (usize, &(Vec<Cell>, Summary))> {
        self.sums.groups.all.iter().enumerate().filter(|(_, (_, summary))| summary.count() > 0)
    }

    /// One group by its number, and the slowest of it.
    pub fn group(&self, number: usize) -> Option<(&Summary, Vec<Slow>)> {
        let (_, summary) = self.sums.groups.all.get(number)?;
        let slowest = self.sums.slowest_each.get(number).map(|slowest| slowest.clone().into_sorted());
        Some((summary, slowest.unwrap_or_default()))
    }

    /// The slowest of a group since this was last asked.
    pub fn take_slowest(&mut self, number: usize) -> Option<Slow> {
        let n = self.sums.n_slowest_each;
        let slowest = self.sums.slowest_each.get_mut(number)?;
        std::mem::replace(slowest, Slowest::new(n)).into_sorted().into_iter().next()
    }

    /// Beyond this many groups, what is new is one group.
    pub fn limit_groups(&mut self, max: usize) {
        self.sums.groups.limit(max);
    }

    /// Spans that are in the group of all others.
    pub fn n_folded(&self) -> u64 {
        self.sums.groups.n_folded
    }

    /// Intervals that are over at this time, since the epoch.
    pub fn take_intervals(&mut self, now_ns: i64) -> Vec<Interval> {
        let Some(every) = &mut self.sums.every else { return Vec::new() };
        let Some(base_ns) = every.base_ns else { return Vec::new() };
        let width = every.width_ns.max(1) as i64;
        let last = now_ns.saturating_sub(base_ns).div_euclid(width);
        let later = every.open.split_off(&(last, 0));
        let over = std::mem::replace(&mut every.open, later);
        let mut intervals: Vec<(i64, Interval)> = Vec::new();
        for ((number, group), summary) in over {
            let row = (self.sums.groups.all[group].0.clone(), summary);
            match intervals.last_mut() {
                Some((same, interval)) if *same == number => interval.rows.push(row),
                _ => {
                    let start_ns = base_ns.saturating_add(number.saturating_mul(width));
                    intervals.push((number, Interval { start_ns, rows: vec![row] }));
                }
            }
        }
        intervals.into_iter().map(|(_, interval)| interval).collect()
    }

    /// The columns of a row of groups.
    pub fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::text("span")];
        columns.extend(self.by.iter().map(|name| Column::new(name, "", "key")));
        columns.extend(["count", "errors"].map(Column::count));
        let durations = ["total_ns", "self_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        columns.extend(durations.map(Column::duration));
        columns
    }

    /// The numbers of a row, in the order of the columns behind its group.
    pub fn cells(summary: &Summary) -> Vec<Cell> {
        let quantile = |share| Cell::Duration(summary.durations.quantile(share));
        vec![
            Cell::Count(summary.count()),
            Cell::Count(summary.errors),
            Cell::Duration(summary.total_ns),
            Cell::Duration(summary.self_ns),
            quantile(0.5),
            quantile(0.9),
            quantile(0.99),
            quantile(0.999),
            Cell::Duration(summary.durations.max()),
        ]
    }

    /// All durations together.
    pub fn all(&self) -> Summary {
        let mut all = Summary::default();
        self.groups().for_each(|(_, summary)| all.merge(summary));
        all
    }

    /// Begins and ends without a partner so far.
    pub fn unmatched(&self) -> Unmatched {
        let mut sum = self.pairing.unmatched();
        self.kept_unmatched.iter().for_each(|of_span| sum.add(of_span));
        sum
    }

    /// What a span that is kept at the source has come to by now. For questions that group by nothing.
    pub(crate) fn set_kept(&mut self, span: usize, summary: Summary, unmatched: Unmatched) {
        let Some(group) = self.sums.by_span.get(span) else { return };
        self.sums.groups.all[*group].1 = summary;
        if self.kept_unmatched.len() <= span {
            self.kept_unmatched.resize(span + 1, Unmatched::default());
        }
        self.kept_unmatched[span] = unmatched;
    }

    /// The same for a span that is grouped by a number, with what there are too many groups for.
    pub(crate) fn set_kept_groups(
        &mut self,
        span: usize,
        groups: Vec<(Value<'_>, Summary)>,
        others: Summary,
        unmatched: Unmatched,
    ) {
        let name = self.span_name(span).to_owned();
        let mut all: Groups<Summary> = Groups::default();
        for (value, summary) in groups {
            let group = all.get([Value::Text(name.as_bytes()), value].into_iter());
            all.all[group].1.merge(&summary);
        }
        if others.count() > 0 || all.n_folded > 0 {
            let group = all.others(2);
            all.all[group].1.merge(&others);
            all.n_folded = all.all[group].1.count();
        }
        self.sums.groups = all;
        self.kept_unmatched = vec![unmatched];
    }

    /// One of the slowest spans that are kept at the source.
    pub(crate) fn offer_slow(&mut self, span: usize, slow: Slow) {
        self.sums.slowest.offer(slow.duration_ns, || slow.clone());
        if let Some(group) = self.sums.by_span.get(span).copied() {
            self.sums.offer_each(group, slow.duration_ns, || slow);
        }
    }

    /// What a span of this kind must exceed to be among the slowest that are wanted.
    pub(crate) fn slow_from_ns(&self, span: usize) -> Option<u64> {
        let each = match self.sums.n_slowest_each {
            0 => Some(u64::MAX),
            _ => {
                let group = *self.sums.by_span.get(span)?;
                self.sums.slowest_each.get(group).and_then(Slowest::threshold)
            }
        };
        Some(each?.min(self.sums.slowest.threshold()?))
    }

    /// How many of the slowest are wanted, of each span or of all.
    pub(crate) fn n_slowest(&self) -> usize {
        self.sums.n_slowest_each.max(self.sums.slowest.wanted())
    }

    pub(crate) fn span_name(&self, span: usize) -> &str {
        self.sums.asks.get(span).map_or("", |ask| &ask.name)
    }

    pub(crate) fn ask_of(&self, span: usize) -> Option<&SpanAsk> {
        self.sums.asks.get(span)
    }

    /// The answer, with rows in no order yet.
    pub fn answer(self) -> Answer {
        let columns = self.columns();
        let rows = self
            .groups()
            .map(|(values, summary)| [values.clone(), Latency::cells(summary)].concat())
            .collect();
        let mut notes = Vec::new();
        if self.sums.groups.n_folded > 0 {
            notes.push(format!(
                "there were too many groups; {} spans of the rest are in the row `(others)`",
                self.sums.groups.n_folded
            ));
        }
        let unmatched = self.unmatched();
        Answer { columns, rows, slowest: self.sums.slowest.into_sorted(), unmatched, notes }
    }
}

impl SpanAsk {
    pub(crate) fn new(
        pairing: &mut Pairing,
        idx: usize,
        span: &Span,
        ask: &LatencyAsk,
        available: &Available,
        is_one_of_many: bool,
    ) -> Result<SpanAsk, Wrong> {
        let fields = available.fields_of(span);
        let known = fields.as_deref();
        let name = span.full_name();
        let mut found = Vec::new();
        for word in &ask.by {
            match by(&name, known, word, |field| pairing.want(idx, field)) {
                Ok(by) => found.push(by),
                // Another span has it.
                Err(_) if is_one_of_many => found.push(By::Field(pairing.want(idx, word))),
                Err(wrong) => return Err(wrong),
            }
        }
        let mut condition = |text: &str| {
            let want = |field: &str| {
                let is_there = known.is_none_or(|known| crate::ask::position(known, field).is_some());
                is_there.then(|| pairing.want(idx, field))
            };
            Condition::parse(text, known, want).map_err(|error| Wrong::Condition {
                of: name.clone(),
                text: text.to_owned(),
                error,
                fields: names(known.unwrap_or_default()),
            })
        };
        let where_text = ask.condition.as_deref();
        Ok(SpanAsk {
            condition: where_text.map(&mut condition).transpose()?,
            error: match span.error.as_deref().map(&mut condition).transpose() {
                Ok(error) => error,
                // A program of another version may lack the field that the catalog goes by.
                Err(_) if span.source == nopal_spans::Source::Catalog => None,
                Err(wrong) => return Err(wrong),
            },
            by: found,
            carries: span.carries.iter().map(|carry| carry.name.clone()).collect(),
            telling: span.fields.clone(),
            is_call: span.is_call,
            name,
        })
    }
}

fn names(fields: &[KnownField]) -> Vec<String> {
    fields.iter().map(|field| field.name.clone()).collect()
}

impl Consumer for Latency {
    fn class(&mut self, ty: &EventType) -> Needs {
        let fields = visible_fields(ty);
        self.sums.fields.push(fields.iter().map(|name| (*name).to_owned()).collect());
        self.pairing.add_class(&ty.provider, &ty.name, &fields)
    }

    fn needs_no_fields(&self, provider: &str, name: &str, fields: &[&str]) -> bool {
        self.pairing.needs_of(provider, name, fields).fields.is_empty()
    }

    fn order_within(&self) -> OrderWithin {
        order_of(self.pairing.spans())
    }

    fn kin(&self, class: usize) -> u32 {
        self.pairing.kin(class)
    }

    #[inline]
    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        if let Some(every) = &mut self.sums.every {
            every.base_ns.get_or_insert(at.ns);
        }
        self.pairing.event(at.ns, at.task, class, fields, &mut self.sums);
    }

    fn loss(&mut self, to_ns: i64) {
        self.pairing.loss(to_ns, &mut self.sums);
    }

    fn restart(&mut self, pid: u32) {
        self.pairing.restart(pid, &mut self.sums);
    }

    fn end(&mut self) {
        self.pairing.close(&mut self.sums);
        self.pairing.forget_classes();
        self.sums.fields.clear();
    }
}

impl Sums {
    /// The group of a span, by the values it is grouped by.
    fn group(&mut self, span: &Finished<'_>) -> usize {
        let ask = &self.asks[span.span];
        // Texts that were made equal must live until the group is found.
        let equal = |by: &By| match by {
            By::Field(wanted) => match span.get(*wanted) {
                Value::Text(raw) => Some(fingerprint::sql(&String::from_utf8_lossy(raw))),
                _ => None,
            },
            By::Pid | By::Tid | By::Cpu => None,
        };
        let texts: Vec<Option<String>> =
            if self.has_fingerprints { ask.by.iter().map(equal).collect() } else { Vec::new() };
        let values = ask.by.iter().enumerate().map(|(at, by)| match (by, texts.get(at)) {
            (By::Pid, _) => Value::Unsigned(span.task.pid.into()),
            (By::Tid, _) => Value::Unsigned(span.task.tid.into()),
            // A span has no one CPU.
            (By::Cpu, _) => Value::Absent,
            (By::Field(_), Some(Some(text))) => Value::Text(text.as_bytes()),
            (By::Field(wanted), _) => span.get(*wanted),
        });
        self.groups.get(std::iter::once(Value::Text(ask.name.as_bytes())).chain(values))
    }
}

impl Sums {
    fn offer_each(&mut self, group: usize, duration_ns: u64, slow: impl FnOnce() -> Slow) {
        let n = self.n_slowest_each;
        if n == 0 {
            return;
        }
        if self.slowest_each.len() <= group {
            self.slowest_each.resize_with(group + 1, || Slowest::new(n));
        }
        self.slowest_each[group].offer(duration_ns, slow);
    }
}

impl Sink for Sums {
    #[inline]
    fn finish(&mut self, span: &Finished<'_>, _: &[Done]) -> u32 {
        let duration_ns = span.duration_ns();
        let ask = &self.asks[span.span];
        let get = |wanted: usize| span.get(wanted);
        if duration_ns < self.min_ns
            || duration_ns > self.max_ns
            || ask.condition.as_ref().is_some_and(|condition| !condition.holds(get))
        {
            return 0;
        }
        let is_error = span.is_failed || ask.error.as_ref().is_some_and(|error| error.holds(get));
        let group = match self.by_span.get(span.span) {
            Some(group) => *group,
            None => self.group(span),
        };
        self.groups.all[group].1.add(duration_ns, span.self_ns, is_error);
        if let Some(every) = &mut self.every
            && let Some(base_ns) = every.base_ns
        {
            let number = span.end_ns.saturating_sub(base_ns).div_euclid(every.width_ns.max(1) as i64);
            every.open.entry((number, group)).or_default().add(duration_ns, span.self_ns, is_error);
        }
        let (asks, fields) = (&self.asks, &self.fields);
        let slow = || Slow {
            span: asks[span.span].name.clone(),
            start_ns: span.start_ns,
            duration_ns,
            self_ns: span.self_ns,
            task: span.task,
            is_error,
            fields: shown(span, &asks[span.span], fields),
        };
        self.slowest.offer(duration_ns, slow);
        let each = self.slowest_each.get(group).and_then(Slowest::threshold);
        if self.n_slowest_each > 0 && each.is_none_or(|least| duration_ns > least) {
            let slow = slow();
            self.offer_each(group, duration_ns, || slow);
        }
        0
    }
}

/// The fields of a span with their names: of its begin, what it carries, and of its end what is new.
pub(crate) fn shown(span: &Finished<'_>, ask: &SpanAsk, names: &[Vec<String>]) -> Vec<(String, Cell)> {
    let mut shown: Vec<(String, Cell)> = Vec::new();
    let (class, begin) = span.begin();
    let begin_names = names[class].iter().chain(&ask.carries);
    for (at, name) in begin_names.enumerate() {
        shown.push((name.clone(), Cell::from(begin.get(at))));
    }
    if let Some((class, end)) = span.end() {
        let ends = names[class].iter().enumerate().map(|(at, name)| (name.clone(), Cell::from(end.get(at))));
        add_ends(&mut shown, ends);
    }
    keep_telling(&mut shown, ask);
    shown
}

/// Keeps the fields that are there, the most telling first. What tells calls apart tells people nothing.
pub(crate) fn keep_telling(shown: &mut Vec<(String, Cell)>, ask: &SpanAsk) {
    const APART: [&str; 3] = [STACK, STACK_END, GOROUTINE];
    let is_apart = |name: &str| APART.contains(&name.strip_prefix("end.").unwrap_or(name));
    shown.retain(|(name, cell)| *cell != Cell::None && !(ask.is_call && is_apart(name)));
    shown.sort_by_key(|(name, _)| {
        ask.telling.iter().position(|telling| telling == name).unwrap_or(usize::MAX)
    });
}

/// Adds the fields of a span's end to those of its begin: what is new.
pub(crate) fn add_ends(shown: &mut Vec<(String, Cell)>, ends: impl Iterator<Item = (String, Cell)>) {
    for (name, cell) in ends {
        match shown.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known == cell => {}
            Some(_) => shown.push((format!("end.{name}"), cell)),
            None => shown.push((name, cell)),
        }
    }
}
