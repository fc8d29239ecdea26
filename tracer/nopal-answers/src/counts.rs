//! How often probes are passed, by group and interval.

use crate::ask::{By, Wrong, by};
use crate::condition::Condition;
use crate::event::{At, Consumer, OrderWithin, visible_fields};
use crate::groups::Groups;
use crate::table::{Answer, Cell, Column};
use nopal_spans::{Available, Fields, KnownField, KnownProbe, Needs, ProbeName, Value};
use nopal_trace::EventType;
use std::collections::BTreeMap;

/// Events being counted.
#[derive(Debug)]
pub struct Counts {
    probes: Vec<ProbeName>,
    by: Vec<String>,
    condition: Option<String>,
    /// By class: how to group its events; none if it was not asked for.
    classes: Vec<Option<ClassAsk>>,
    groups: Groups<u64>,
    every_ns: Option<u64>,
    base_ns: Option<i64>,
    open: BTreeMap<(i64, usize), u64>,
}

#[derive(Debug)]
struct ClassAsk {
    name: String,
    by: Vec<By>,
    condition: Option<Condition>,
}

/// Groups and their counts in one interval; its start is in nanoseconds since the epoch.
pub type CountInterval = (i64, Vec<(Vec<Cell>, u64)>);

impl Counts {
    /// The probes must be known, unless more may come.
    pub fn new(
        probes: Vec<ProbeName>,
        by_words: &[String],
        condition: Option<String>,
        every_ns: Option<u64>,
        available: &Available,
    ) -> Result<Counts, Wrong> {
        let known: Vec<&KnownProbe> = probes.iter().filter_map(|probe| available.probe(probe)).collect();
        check(&known, by_words, condition.as_deref())?;
        Ok(Counts {
            probes,
            by: by_words.to_vec(),
            condition,
            classes: Vec::new(),
            groups: Groups::default(),
            every_ns,
            base_ns: None,
            open: BTreeMap::new(),
        })
    }

    pub fn n_events(&self) -> u64 {
        self.groups.all.iter().map(|(_, n)| n).sum()
    }

    /// The groups with their counts; a group's place stays what it is.
    pub fn groups(&self) -> &[(Vec<Cell>, u64)] {
        &self.groups.all
    }

    /// Beyond this many groups, what is new is one group.
    pub fn limit_groups(&mut self, max: usize) {
        self.groups.limit(max);
    }

    /// Events that are in the group of all others.
    pub fn n_folded(&self) -> u64 {
        self.groups.n_folded
    }

    /// Intervals that are over at this time.
    pub fn take_intervals(&mut self, now_ns: i64) -> Vec<CountInterval> {
        let (Some(width), Some(base_ns)) = (self.every_ns, self.base_ns) else { return Vec::new() };
        let width = width.max(1) as i64;
        let last = now_ns.saturating_sub(base_ns).div_euclid(width);
        let later = self.open.split_off(&(last, 0));
        let mut intervals: Vec<(i64, CountInterval)> = Vec::new();
        for ((number, group), count) in std::mem::replace(&mut self.open, later) {
            let row = (self.groups.all[group].0.clone(), count);
            match intervals.last_mut() {
                Some((same, (_, rows))) if *same == number => rows.push(row),
                _ => {
                    let start_ns = base_ns.saturating_add(number.saturating_mul(width));
                    intervals.push((number, (start_ns, vec![row])));
                }
            }
        }
        intervals.into_iter().map(|(_, interval)| interval).collect()
    }

    pub fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::text("probe")];
        columns.extend(self.by.iter().map(|name| Column::new(name, "", "key")));
        columns.push(Column::count("count"));
        columns
    }

    pub fn answer(self) -> Answer {
        let columns = self.columns();
        let mut notes = Vec::new();
        if self.groups.n_folded > 0 {
            notes.push(format!(
                "there were too many groups; {} events of the rest are in the row `(others)`",
                self.groups.n_folded
            ));
        }
        let rows = self.groups.all.into_iter().map(|(mut values, n)| {
            values.push(Cell::Count(n));
            values
        });
        Answer { columns, rows: rows.collect(), notes, ..Answer::default() }
    }
}

/// Whether a field is in one of the probes at least, and a condition fits one.
fn check(probes: &[&KnownProbe], by_words: &[String], condition: Option<&str>) -> Result<(), Wrong> {
    let Some(first) = probes.first() else { return Ok(()) };
    for word in by_words {
        let of = |probe: &KnownProbe| by(&probe.name.to_string(), Some(&probe.fields), word, |_| 0);
        if !probes.iter().any(|probe| of(probe).is_ok()) {
            of(first)?;
        }
    }
    if let Some(text) = condition {
        let of = |probe: &KnownProbe| parse(text, &probe.name.to_string(), &probe.fields);
        if !probes.iter().any(|probe| of(probe).is_ok()) {
            of(first)?;
        }
    }
    Ok(())
}

pub(crate) fn parse(text: &str, of: &str, fields: &[KnownField]) -> Result<Condition, Wrong> {
    Condition::parse(text, Some(fields), |name| crate::ask::position(fields, name)).map_err(|error| {
        Wrong::Condition {
            of: of.to_owned(),
            text: text.to_owned(),
            error,
            fields: fields.iter().map(|field| field.name.clone()).collect(),
        }
    })
}

impl Consumer for Counts {
    fn class(&mut self, ty: &EventType) -> Needs {
        let names = visible_fields(ty);
        if !self.probes.iter().any(|probe| probe.is(&ty.provider, &ty.name)) {
            self.classes.push(None);
            return Needs::default();
        }
        let known = crate::inventory::of_type(ty);
        let position = |word: &str| crate::ask::position(&known.fields, word).unwrap_or(usize::MAX);
        let found: Vec<By> = self
            .by
            .iter()
            .map(|word| by("", Some(&known.fields), word, position).unwrap_or(By::Field(usize::MAX)))
            .collect();
        let condition = self.condition.as_deref().map(|text| parse(text, "", &known.fields));
        let is_used = !matches!(condition, Some(Err(_)));
        let needs_fields = condition.is_some() || found.iter().any(|by| matches!(by, By::Field(_)));
        self.classes.push(is_used.then(|| ClassAsk {
            name: ty.full_name(),
            by: found,
            condition: condition.and_then(Result::ok),
        }));
        Needs { fields: if needs_fields { vec![true; names.len()] } else { Vec::new() }, is_used }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let Some(ask) = &self.classes[class] else { return };
        if ask.condition.as_ref().is_some_and(|condition| !condition.holds(|field| fields.get(field))) {
            return;
        }
        let values = ask.by.iter().map(|by| value(*by, at, fields));
        let group = self.groups.get(std::iter::once(Value::Text(ask.name.as_bytes())).chain(values));
        self.groups.all[group].1 += 1;
        if let Some(width) = self.every_ns {
            let base_ns = *self.base_ns.get_or_insert(at.ns);
            let number = at.ns.saturating_sub(base_ns).div_euclid(width.max(1) as i64);
            *self.open.entry((number, group)).or_default() += 1;
        }
    }

    fn needs_no_fields(&self, _: &str, _: &str, _: &[&str]) -> bool {
        self.by.is_empty() && self.condition.is_none()
    }

    fn order_within(&self) -> OrderWithin {
        OrderWithin::Nothing
    }

    fn loss(&mut self, _: i64) {}

    fn end(&mut self) {
        self.classes.clear();
    }
}

/// What an event is grouped by.
pub(crate) fn value<'a>(by: By, at: &At, fields: &'a Fields) -> Value<'a> {
    match by {
        By::Pid => Value::Unsigned(at.task.pid.into()),
        By::Tid => Value::Unsigned(at.task.tid.into()),
        By::Cpu => Value::Unsigned(at.cpu.into()),
        By::Field(field) => fields.get(field),
    }
}
