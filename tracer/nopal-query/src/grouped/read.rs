//! Reads the rows of a table and adds them up.

use super::evaluate::{Row, Scalar, fold, is_never};
use super::expression::{Compare, Expr};
use super::raw::{Memory, RawPlan};
use super::statement::Statement;
use super::sums::{Grouped, Groups, Question};
use crate::scan::{Day, From, read_one, sources};
use crate::shared::Shared;
use crate::tables::{Rows, TableInfo};
use nopal_answers::recorded::{Eater, read_unordered};
use nopal_answers::slices::{Slice, Slices, Taker, Wish};
use nopal_answers::{At, Cell};
use nopal_spans::{Fields, Needs, Value};
use nopal_trace::{Event, EventType, Range};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Groups and values that are kept in memory; more is SQLite's, which can go to the disk.
const MAX_BYTES: usize = 112 << 20;

/// Why there are no groups.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(String),
    Interrupted,
}

/// The groups of a statement; none if SQLite must read the rows itself.
pub(crate) fn read(shared: &Shared, statement: &Statement) -> Result<Option<Vec<Grouped>>, Failure> {
    let groups = match &shared.tables[statement.table].rows {
        Rows::Events | Rows::Type(..) => read_events(shared, statement),
        Rows::Spans => read_spans(shared, &statement.question),
        Rows::Losses | Rows::Recordings => Ok(None),
    };
    if shared.is_stopped() {
        return Err(Failure::Interrupted);
    }
    Ok(groups.map_err(Failure::Read)?.map(|groups| groups.finish(&statement.is_descending)))
}

/// How events of one class are read.
#[derive(Debug)]
struct ClassPlan {
    sources: Vec<From>,
    /// With what is known of the class put into it.
    question: Question,
    uses_day: bool,
}

impl ClassPlan {
    /// None if no event of the class counts.
    fn of(
        shared: &Shared,
        statement: &Statement,
        recording: usize,
        class: usize,
        ty: &EventType,
    ) -> Option<ClassPlan> {
        let sources = sources(shared, statement.table, &shared.recordings[recording].1, class, ty)?;
        let known = |column: usize| match &sources[column] {
            From::Recording => Some(Scalar::Integer(recording as i64 + 1)),
            From::Text(text) => Some(Scalar::Text(Cow::Owned(text.clone()))),
            From::Nothing => Some(Scalar::Null),
            From::Ts | From::Cpu | From::Pid | From::Tid | From::Day | From::Args(_) | From::Field(_) => None,
        };
        let question = folded(&statement.question, &known);
        if question.filter.as_ref().is_some_and(is_never) {
            return None;
        }
        let mut uses_day = false;
        question.columns(&mut |column| uses_day |= matches!(sources[column], From::Day));
        Some(ClassPlan { sources, question, uses_day })
    }

    fn needs(&self) -> Needs {
        let mut fields = Vec::new();
        self.question.columns(&mut |column| {
            if let From::Field(field) = self.sources[column] {
                fields.resize(fields.len().max(field + 1), false);
                fields[field] = true;
            }
        });
        Needs { fields, is_used: true }
    }
}

fn folded(question: &Question, known: &impl Fn(usize) -> Option<Scalar<'static>>) -> Question {
    let mut question = question.clone();
    for expr in question.expressions_mut() {
        *expr = fold(expr, known);
    }
    question
}

fn read_events(shared: &Shared, statement: &Statement) -> Result<Option<Groups>, String> {
    let table = &shared.tables[statement.table];
    let range = range_of(&statement.question, table);
    let n_bytes = AtomicUsize::new(0);
    let mut all = Groups::new(&statement.question);
    for at in wanted(shared, &statement.question, table) {
        let (dir, recording) = &shared.recordings[at];
        let plan = |(class, of): (usize, &nopal_trace::EventClass)| {
            ClassPlan::of(shared, statement, at, class, &of.ty)
        };
        let plans: Vec<Option<ClassPlan>> = recording.event_classes().iter().enumerate().map(plan).collect();
        let needs: Vec<Needs> =
            plans.iter().map(|plan| plan.as_ref().map_or(Needs::default(), ClassPlan::needs)).collect();
        let worker = |_| EventGroups {
            shared,
            plans: &plans,
            groups: Groups::new(&statement.question),
            raw: plans.iter().map(|_| Raw::Unknown).collect(),
            memory: Memory::default(),
            has_foreign: recording.traces().iter().any(|trace| !trace.tasks.is_empty()),
            day: Day::default(),
            n_bytes: &n_bytes,
        };
        let mut workers: Vec<EventGroups<'_>> = (0..recording.n_workers()).map(worker).collect();
        let (report, n_damaged) = read_unordered(recording, range, &needs, &mut workers)
            .map_err(|error| format!("{}: {error}", dir.display()))?;
        if shared.is_stopped() || n_bytes.load(Ordering::Relaxed) > MAX_BYTES {
            return Ok(None);
        }
        for worker in workers {
            if worker.groups.is_odd || all.merge(worker.groups).is_err() {
                return Ok(None);
            }
        }
        if range == Range::default() {
            shared.was_read(at, report, n_damaged);
        }
    }
    Ok(Some(all))
}

/// Recordings that a condition on `recording` leaves.
fn wanted(shared: &Shared, question: &Question, table: &TableInfo) -> Vec<usize> {
    let number = table.columns.iter().position(|column| column.name == "recording");
    let is_wanted = |at: &usize| {
        let known = |column: usize| (Some(column) == number).then_some(Scalar::Integer(*at as i64 + 1));
        !question.filter.as_ref().is_some_and(|filter| is_never(&fold(filter, &known)))
    };
    (0..shared.recordings.len()).filter(is_wanted).collect()
}

/// The time that conditions on `ts` leave.
fn range_of(question: &Question, table: &TableInfo) -> Range {
    let mut range = Range::default();
    let mut open: Vec<&Expr> = question.filter.iter().collect();
    while let Some(expr) = open.pop() {
        let (how, ns) = match expr {
            Expr::And(a, b) => {
                open.extend([&**a, &**b]);
                continue;
            }
            Expr::Compare(how, a, b) => match (&**a, &**b) {
                (Expr::Column(column), Expr::Integer(ns)) if table.columns[*column].name == "ts" => {
                    (how.op, *ns)
                }
                _ => continue,
            },
            _ => continue,
        };
        let (from, to) = match how {
            Compare::Eq => (ns, ns),
            Compare::Gt => (ns.saturating_add(1), i64::MAX),
            Compare::Ge => (ns, i64::MAX),
            Compare::Lt => (i64::MIN, ns.saturating_sub(1)),
            Compare::Le => (i64::MIN, ns),
            Compare::Ne => continue,
        };
        range.from_ns = range.from_ns.max(from);
        range.to_ns = range.to_ns.min(to);
    }
    range
}

/// Whether events of a class are added as they lie in the recording.
enum Raw {
    /// None was seen yet.
    Unknown,
    Plan(Box<RawPlan>),
    Not,
}

/// Adds up events on one thread.
struct EventGroups<'a> {
    shared: &'a Shared,
    plans: &'a [Option<ClassPlan>],
    groups: Groups,
    /// By class.
    raw: Vec<Raw>,
    memory: Memory,
    /// Processes and threads may have other numbers than events say.
    has_foreign: bool,
    day: Day,
    /// Of all threads.
    n_bytes: &'a AtomicUsize,
}

impl Eater for EventGroups<'_> {
    #[inline]
    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let Some(plan) = &self.plans[class] else { return };
        if plan.uses_day {
            self.day.text(at.ns);
        }
        let row = EventRow { at, fields, sources: &plan.sources, day: self.day.last() };
        self.groups.add(&plan.question, &row);
    }

    #[inline]
    fn raw(&mut self, event: &Event<'_>) -> bool {
        let class = event.class_index();
        match &self.raw[class] {
            Raw::Plan(plan) => plan.add(event, &mut self.groups, &mut self.memory),
            Raw::Not => false,
            Raw::Unknown => {
                let made = self.plans[class].as_ref().and_then(|plan| {
                    RawPlan::of(event, &plan.question, &plan.sources, &plan.needs(), self.has_foreign)
                });
                self.raw[class] = made.map_or(Raw::Not, |plan| Raw::Plan(Box::new(plan)));
                matches!(self.raw[class], Raw::Plan(_)) && self.raw(event)
            }
        }
    }

    fn goes_on(&mut self) -> bool {
        let more = self.groups.take_bytes();
        let n_bytes = self.n_bytes.fetch_add(more, Ordering::Relaxed) + more;
        !self.groups.is_odd && n_bytes <= MAX_BYTES && !self.shared.is_stopped()
    }
}

struct EventRow<'a> {
    at: &'a At,
    fields: &'a Fields,
    sources: &'a [From],
    day: &'a str,
}

impl Row for EventRow<'_> {
    #[inline]
    fn get(&self, column: usize) -> Scalar<'_> {
        match &self.sources[column] {
            From::Ts => Scalar::Integer(self.at.ns),
            From::Cpu => Scalar::Integer(self.at.cpu.into()),
            From::Pid => Scalar::Integer(self.at.task.pid.into()),
            From::Tid => Scalar::Integer(self.at.task.tid.into()),
            From::Day => Scalar::Text(Cow::Borrowed(self.day)),
            From::Field(field) => match self.fields.get(*field) {
                Value::Absent => Scalar::Null,
                Value::Signed(n) => Scalar::Integer(n),
                Value::Unsigned(n) => Scalar::unsigned(n),
                Value::Float(n) => Scalar::real(n),
                Value::Text(text) | Value::Label(_, text) => Scalar::text(text),
            },
            // Put into the question, or refused.
            From::Recording | From::Text(_) | From::Args(_) | From::Nothing => Scalar::Null,
        }
    }
}

fn read_spans(shared: &Shared, question: &Question) -> Result<Option<Groups>, String> {
    let names = shared.spans.iter().map(nopal_spans::Span::full_name).collect();
    let taker =
        SpanGroups { question, names, hosts: Vec::new(), at: 0, groups: Groups::new(question), n_bytes: 0 };
    let mut slices =
        Slices::new(&shared.spans, &shared.available, taker, false).map_err(|wrong| wrong.to_string())?;
    let table = shared.tables.iter().find(|table| matches!(table.rows, Rows::Spans));
    for at in table.map_or(Vec::new(), |table| wanted(shared, question, table)) {
        let taker = slices.taker();
        taker.at = at;
        taker.hosts = nopal_export::hosts(&shared.recordings[at].1);
        read_one(shared, at, Range::default(), &mut slices, |slices| slices.taker_ref().is_over())?;
        if shared.is_stopped() || slices.taker_ref().is_over() {
            return Ok(None);
        }
    }
    shared.was_paired(slices.pairing().unmatched());
    Ok(Some(slices.into_taker().groups))
}

/// Adds up spans.
struct SpanGroups<'a> {
    question: &'a Question,
    names: Vec<String>,
    hosts: Vec<String>,
    at: usize,
    groups: Groups,
    n_bytes: usize,
}

impl SpanGroups<'_> {
    fn is_over(&self) -> bool {
        self.groups.is_odd || self.n_bytes > MAX_BYTES
    }
}

impl Taker for SpanGroups<'_> {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let host = self.hosts.get(slice.class).map_or("", String::as_str);
        let row = SpanRow { slice, name: &self.names[slice.span], host, recording: self.at as i64 + 1 };
        self.groups.add(self.question, &row);
        self.n_bytes += self.groups.take_bytes();
    }
}

struct SpanRow<'a> {
    slice: &'a Slice,
    name: &'a str,
    host: &'a str,
    recording: i64,
}

impl Row for SpanRow<'_> {
    fn get(&self, column: usize) -> Scalar<'_> {
        let slice = self.slice;
        let optional = |n: Option<u64>| n.map_or(Scalar::Null, |n| Scalar::Integer(n as i64));
        match column {
            0 => Scalar::Integer(slice.start_ns),
            1 => Scalar::unsigned(slice.duration_ns),
            2 => Scalar::unsigned(slice.self_ns),
            3 => Scalar::Text(Cow::Borrowed(self.name)),
            4 => match &slice.key {
                Cell::None => Scalar::Null,
                Cell::Text(text) => Scalar::Text(Cow::Borrowed(text)),
                other => Scalar::Text(Cow::Owned(nopal_export::json_of(other).to_string())),
            },
            5 => Scalar::Text(Cow::Borrowed(self.host)),
            6 => Scalar::Integer(slice.task.pid.into()),
            7 => Scalar::Integer(slice.task.tid.into()),
            8 => optional(slice.depth.map(u64::from)),
            9 => optional(slice.parent),
            10 => Scalar::unsigned(slice.id),
            11 => Scalar::Integer(slice.is_error.into()),
            // Refused.
            12 => Scalar::Null,
            _ => Scalar::Integer(self.recording),
        }
    }
}
