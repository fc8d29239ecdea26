//! Reads the rows of a table on a thread of its own and hands them over in batches. It ends when it has read all, or when
//! nobody takes them any more.

mod few;
mod source;

use crate::batch::{Batch, Datum};
use crate::plan::{Ask, Op};
use crate::shared::Shared;
use crate::tables::Rows;
use nopal_answers::event::OrderWithin;
use nopal_answers::recorded::read_part;
use nopal_answers::slices::{Slice, Slices, Taker, Wish};
use nopal_answers::{At, Cell, Consumer};
use nopal_export::{json_of, json_of_fields};
use nopal_spans::{Fields, Needs};
use nopal_trace::{Error, EventType, Range, Recording, json_text};
use source::texts_of;
pub(crate) use source::{Day, From, sources};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What a comparison compares with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Side {
    Integer(i64),
    Text(String),
    /// SQLite compares it by itself.
    Other,
}

/// The part of the rows that is wanted. SQLite checks each row again, so that too many are not a fault.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub ask: Ask,
    range: Range,
    pid: Option<i64>,
    tid: Option<i64>,
    recording: Option<i64>,
    /// Names of columns and what they must be.
    texts: Vec<(&'static str, String)>,
}

impl Part {
    pub(crate) fn new(ask: Ask, sides: &[Side], columns: &[String]) -> Part {
        let mut part = Part {
            range: Range::default(),
            pid: None,
            tid: None,
            recording: None,
            texts: Vec::new(),
            ask: ask.clone(),
        };
        for ((column, op), side) in ask.comparisons.iter().zip(sides) {
            let name = columns.get(*column).map_or("", String::as_str);
            match (name, op, side) {
                ("ts", op, Side::Integer(ns)) => part.narrow(*op, *ns),
                ("pid", Op::Eq, Side::Integer(n)) => part.pid = Some(*n),
                ("tid", Op::Eq, Side::Integer(n)) => part.tid = Some(*n),
                ("recording", Op::Eq, Side::Integer(n)) => part.recording = Some(*n),
                (name, Op::Eq, Side::Text(text)) => {
                    let known =
                        ["host", "provider", "name", "event"].into_iter().find(|known| *known == name);
                    part.texts.extend(known.map(|known| (known, text.clone())));
                }
                _ => {}
            }
        }
        part
    }

    fn narrow(&mut self, op: Op, ns: i64) {
        let (from, to) = match op {
            Op::Eq => (ns, ns),
            Op::Gt => (ns.saturating_add(1), i64::MAX),
            Op::Ge => (ns, i64::MAX),
            Op::Lt => (i64::MIN, ns.saturating_sub(1)),
            Op::Le => (i64::MIN, ns),
        };
        self.range.from_ns = self.range.from_ns.max(from);
        self.range.to_ns = self.range.to_ns.min(to);
    }

    fn is_of(&self, recording: usize) -> bool {
        self.recording.is_none_or(|wanted| wanted == recording as i64 + 1)
    }

    fn is_task(&self, pid: u32, tid: u32) -> bool {
        self.pid.is_none_or(|wanted| wanted == i64::from(pid))
            && self.tid.is_none_or(|wanted| wanted == i64::from(tid))
    }

    fn is_text(&self, column: &str, text: &str) -> bool {
        self.texts.iter().all(|(name, wanted)| *name != column || wanted == text)
    }
}

/// The receiving end of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    rows: Receiver<Result<Batch, String>>,
    /// Memory goes back to be filled again.
    empty: SyncSender<Batch>,
}

/// Batches under way.
const N_BATCHES: usize = 8;

impl Scan {
    pub(crate) fn start(shared: &Arc<Shared>, table: usize, part: Part) -> Scan {
        let (to, rows) = sync_channel(N_BATCHES);
        let (empty, back) = sync_channel(N_BATCHES);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let sender = Sender { batch: Batch::default(), to, back, is_gone: false };
            read(&shared, table, part, sender);
        });
        Scan { rows, empty }
    }

    /// The next rows in exchange for those that are done with; none at the end.
    pub(crate) fn next(&mut self, mut done: Batch) -> Result<Option<Batch>, String> {
        done.clear();
        // A thread that has ended needs no memory.
        let _ = self.empty.try_send(done);
        self.rows.recv().ok().transpose()
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Sender {
    pub batch: Batch,
    to: SyncSender<Result<Batch, String>>,
    back: Receiver<Batch>,
    is_gone: bool,
}

impl Sender {
    #[inline]
    pub(crate) fn end_row(&mut self) {
        self.batch.end_row();
        if self.batch.is_full() {
            self.send();
        }
    }

    fn send(&mut self) {
        let empty = self.back.try_recv().unwrap_or_default();
        let full = std::mem::replace(&mut self.batch, empty);
        if full.n_rows() > 0 && self.to.send(Ok(full)).is_err() {
            self.is_gone = true;
        }
    }
}

fn read(shared: &Shared, table: usize, part: Part, mut sender: Sender) {
    let result = match &shared.tables[table].rows {
        Rows::Events | Rows::Type(..) => read_events(shared, table, &part, &mut sender),
        Rows::Spans => read_spans(shared, &part, &mut sender),
        Rows::Losses => few::losses(shared, &part.ask, &mut sender),
        Rows::Recordings => few::recordings(shared, &part.ask, &mut sender),
    };
    match result {
        Ok(()) => sender.send(),
        // Nobody may be there any more.
        Err(why) => {
            shared.has_failed(&why);
            drop(sender.to.send(Err(why)));
        }
    }
}

fn read_events(shared: &Shared, table: usize, part: &Part, sender: &mut Sender) -> Result<(), String> {
    for (at, (_, recording)) in shared.recordings.iter().enumerate().filter(|(at, _)| part.is_of(*at)) {
        let (classes, day) = (Vec::new(), Day::default());
        let mut rows = EventRows { shared, table, part, recording, at, classes, day, sender };
        read_one(shared, at, part.range, &mut rows, |rows| rows.sender.is_gone)?;
        if sender.is_gone {
            break;
        }
    }
    Ok(())
}

pub(crate) fn read_one<C: Consumer>(
    shared: &Shared,
    at: usize,
    range: Range,
    consumer: &mut C,
    is_gone: impl Fn(&C) -> bool,
) -> Result<(), String> {
    let mut is_whole = range == Range::default();
    let read = read_part(&shared.recordings[at].1, range, consumer, |consumer, _| {
        let goes_on = !shared.is_stopped() && !is_gone(consumer);
        is_whole &= goes_on;
        goes_on
    });
    let read = read.map_err(|error: Error| format!("{}: {error}", shared.recordings[at].0.display()))?;
    if is_whole && !is_gone(consumer) {
        shared.was_read(at, read.report, read.n_damaged);
    }
    Ok(())
}

struct EventRows<'a> {
    shared: &'a Shared,
    table: usize,
    part: &'a Part,
    recording: &'a Recording,
    at: usize,
    classes: Vec<Vec<From>>,
    day: Day,
    sender: &'a mut Sender,
}

impl EventRows<'_> {
    /// Where the values in use come from; none if no event of the class is wanted.
    fn plan(&self, class: usize, ty: &EventType) -> Option<Vec<From>> {
        let sources = sources(self.shared, self.table, self.recording, class, ty)?;
        // Columns of its own may bear the other names.
        let is_type = matches!(&self.shared.tables[self.table].rows, Rows::Type(..));
        let texts = texts_of(self.recording, class, ty);
        let mut known = texts.iter().filter(|(column, _)| !is_type || *column == "host");
        if !known.all(|(column, text)| self.part.is_text(column, text)) {
            return None;
        }
        let used = sources.into_iter().enumerate().filter(|(column, _)| self.part.ask.uses(*column));
        Some(used.map(|(_, from)| from).collect())
    }
}

impl Consumer for EventRows<'_> {
    fn class(&mut self, ty: &EventType) -> Needs {
        let plan = self.plan(self.classes.len(), ty);
        let is_used = plan.is_some();
        let plan = plan.unwrap_or_default();
        let mut fields = Vec::new();
        for from in &plan {
            match from {
                From::Args(names) => fields = vec![true; names.len()],
                From::Field(field) => {
                    fields.resize(fields.len().max(field + 1), false);
                    fields[*field] = true;
                }
                From::Ts | From::Cpu | From::Pid | From::Tid => {}
                From::Recording | From::Day | From::Text(_) | From::Nothing => {}
            }
        }
        self.classes.push(plan);
        Needs { fields, is_used }
    }

    #[inline]
    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        if self.sender.is_gone || !self.part.is_task(at.task.pid, at.task.tid) {
            return;
        }
        for from in &self.classes[class] {
            let batch = &mut self.sender.batch;
            match from {
                From::Ts => batch.put(Datum::Integer(at.ns)),
                From::Cpu => batch.put(Datum::Integer(at.cpu.into())),
                From::Pid => batch.put(Datum::Integer(at.task.pid.into())),
                From::Tid => batch.put(Datum::Integer(at.task.tid.into())),
                From::Recording => batch.put(Datum::Integer(self.at as i64 + 1)),
                From::Day => batch.put_text(self.day.text(at.ns).as_bytes()),
                From::Text(text) => batch.put_text(text.as_bytes()),
                From::Field(field) => batch.put_value(fields.get(*field)),
                From::Args(names) => batch.put_text(args(names, fields).as_bytes()),
                From::Nothing => batch.put(Datum::Null),
            }
        }
        self.sender.end_row();
    }

    fn order_within(&self) -> OrderWithin {
        OrderWithin::Nothing
    }

    fn loss(&mut self, _: i64) {}

    fn end(&mut self) {
        self.classes.clear();
    }
}

/// The fields of an event as one JSON object.
fn args(names: &[String], fields: &Fields) -> String {
    let mut text = String::from("{");
    for (at, name) in names.iter().enumerate() {
        let value = json_of(&Cell::from(fields.get(at)));
        let comma = if at > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{}:{value}", json_text(name.as_bytes()));
    }
    text.push('}');
    text
}

fn read_spans(shared: &Shared, part: &Part, sender: &mut Sender) -> Result<(), String> {
    // Only args needs all fields of both ends.
    let has_args = part.ask.uses(nopal_export::OF_SPANS.len() - 1);
    let names = shared.spans.iter().map(nopal_spans::Span::full_name).collect();
    let rows = SpanRows { part, names, hosts: Vec::new(), at: 0, sender };
    let mut slices =
        Slices::new(&shared.spans, &shared.available, rows, has_args).map_err(|wrong| wrong.to_string())?;
    for (at, (_, recording)) in shared.recordings.iter().enumerate().filter(|(at, _)| part.is_of(*at)) {
        let rows = slices.taker();
        rows.at = at;
        rows.hosts = nopal_export::hosts(recording);
        // A span that began in time may end later, and one that ends in time may have begun before.
        read_one(shared, at, Range::default(), &mut slices, |slices| slices.taker_ref().sender.is_gone)?;
        if slices.taker().sender.is_gone {
            return Ok(());
        }
    }
    shared.was_paired(slices.pairing().unmatched());
    Ok(())
}

struct SpanRows<'a> {
    part: &'a Part,
    names: Vec<String>,
    hosts: Vec<String>,
    at: usize,
    sender: &'a mut Sender,
}

impl Taker for SpanRows<'_> {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let part = self.part;
        let host = self.hosts.get(slice.class).map_or("", String::as_str);
        let name = &self.names[slice.span];
        if self.sender.is_gone
            || !(part.range.from_ns..=part.range.to_ns).contains(&slice.start_ns)
            || !part.is_task(slice.task.pid, slice.task.tid)
            || !part.is_text("name", name)
            || !part.is_text("host", host)
        {
            return;
        }
        let batch = &mut self.sender.batch;
        let optional = |n: Option<u64>| n.map_or(Datum::Null, |n| Datum::Integer(n as i64));
        for column in (0..=nopal_export::OF_SPANS.len()).filter(|column| part.ask.uses(*column)) {
            match column {
                0 => batch.put(Datum::Integer(slice.start_ns)),
                1 => batch.put_unsigned(slice.duration_ns),
                2 => batch.put_unsigned(slice.self_ns),
                3 => batch.put_text(name.as_bytes()),
                4 => match &slice.key {
                    Cell::None => batch.put(Datum::Null),
                    Cell::Text(text) => batch.put_text(text.as_bytes()),
                    other => batch.put_text(json_of(other).to_string().as_bytes()),
                },
                5 => batch.put_text(host.as_bytes()),
                6 => batch.put(Datum::Integer(slice.task.pid.into())),
                7 => batch.put(Datum::Integer(slice.task.tid.into())),
                8 => batch.put(optional(slice.depth.map(u64::from))),
                9 => batch.put(optional(slice.parent)),
                10 => batch.put_unsigned(slice.id),
                11 => batch.put(Datum::Integer(slice.is_error.into())),
                12 => batch.put_text(json_of_fields(&slice.fields).to_string().as_bytes()),
                _ => batch.put(Datum::Integer(self.at as i64 + 1)),
            }
        }
        self.sender.end_row();
    }
}
