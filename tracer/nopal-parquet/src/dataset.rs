//! A dataset of two tables in folders that engines know as partitions, to which the recordings of a fleet are added one by
//! one:
//!
//! ```text
//! events/host=H/day=2026-11-16/event=provider%3Aname/part-ID.parquet
//! histograms/host=H/day=2026-11-16/part-ID.parquet
//! ```
//!
//! A histogram row says how many spans of one kind began in one minute and took as long as one bucket says. Rows add up:
//! quantiles of a whole fleet are a sum and a GROUP BY.

use crate::events::datum;
use crate::table::{Datum, Table};
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_answers::{At, Cell};
use nopal_export::{Column, Columns, Exporter, Kind, Out, hosts, is_wanted, json_of};
use nopal_files::own::Folder;
use nopal_spans::histogram::bucket_of;
use nopal_spans::{Fields, Span, Value};
use nopal_trace::localtime::{ClockText, text_of};
use nopal_trace::{EventType, Recording, Selection};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

#[derive(Debug)]
pub struct Dataset {
    folder: Folder,
    out: Out,
    names: Vec<String>,
    /// A field of spans that histograms are told apart by.
    by: Option<String>,
    /// Tells files of one recording from those of others.
    part: String,
    hosts: Vec<String>,
    classes: Vec<Option<Class>>,
    sums: BTreeMap<Place, Sum>,
    /// Files of histograms that were written of this recording.
    n_flushes: u32,
}

#[derive(Debug)]
struct Class {
    event: String,
    host: String,
    columns: Vec<Column>,
    /// By column of a field: its position among the event's.
    fields: Vec<Option<usize>>,
    day: i64,
    table: Option<Table>,
}

/// What a histogram row is about: host, day, span, value, minute, bucket.
type Place = (String, i64, usize, String, i64, u64);

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    high: u64,
    count: u64,
    sum: u64,
    max: u64,
    errors: u64,
}

const OF_EVENTS: [&str; 4] = ["ts", "cpu", "pid", "tid"];
/// Names that columns of fields must not have: those above, and the partitions.
const TAKEN: [&str; 7] = ["ts", "cpu", "pid", "tid", "host", "day", "event"];
const OF_HISTOGRAMS: [&str; 9] =
    ["span", "value", "minute", "bucket", "bucket_high", "count", "sum", "max", "errors"];
const MINUTE_NS: i64 = 60_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;
/// Rows of histograms in memory; since rows add up, they can be written at any time.
const MAX_SUMS: usize = 1 << 18;

impl Dataset {
    pub fn new(folder: Folder, spans: &[Span], by: Option<String>) -> Dataset {
        Dataset {
            folder,
            out: Out::new(Box::new(io::sink())),
            names: spans.iter().map(Span::full_name).collect(),
            by,
            part: String::new(),
            hosts: Vec::new(),
            classes: Vec::new(),
            sums: BTreeMap::new(),
            n_flushes: 0,
        }
    }

    fn create(&self, folders: &[String], file: &str, columns: &[Column]) -> io::Result<Table> {
        let mut folder: Option<Folder> = None;
        for name in folders {
            folder = Some(folder.as_ref().unwrap_or(&self.folder).make_below(name)?);
        }
        let to = folder.as_ref().unwrap_or(&self.folder).create_new(file)?;
        Table::new(Out::new(Box::new(to)), columns)
    }

    fn finish_table(&mut self, mut table: Table) {
        table.finish();
        match table.out().finish() {
            Ok(n_bytes) => self.out.count(n_bytes),
            Err(error) => self.out.fail(error),
        }
    }

    fn write_sums(&mut self) {
        let sums = std::mem::take(&mut self.sums);
        let columns = OF_HISTOGRAMS.map(|name| Column {
            name: name.to_owned(),
            kind: if matches!(name, "span" | "value") { Kind::Text } else { Kind::Integer },
        });
        let mut open: Option<((String, i64), Table)> = None;
        self.n_flushes += 1;
        let file = format!("part-{}-{}.parquet", self.part, self.n_flushes);
        for ((host, day, span, value, minute, bucket), sum) in sums {
            let place = (host, day);
            if open.as_ref().is_none_or(|(of, _)| *of != place) {
                if let Some((_, table)) = open.take() {
                    self.finish_table(table);
                }
                let folders = ["histograms".to_owned(), partition("host", &place.0), day_folder(day)];
                match self.create(&folders, &file, &columns) {
                    Ok(table) => open = Some((place, table)),
                    Err(error) => return self.out.fail(error),
                }
            }
            let Some((_, table)) = &mut open else { return };
            let row = [
                Datum::Text(self.names[span].as_bytes()),
                Datum::Text(value.as_bytes()),
                Datum::Integer(minute),
                Datum::Unsigned(bucket),
                Datum::Unsigned(sum.high),
                Datum::Unsigned(sum.count),
                Datum::Unsigned(sum.sum),
                Datum::Unsigned(sum.max),
                Datum::Unsigned(sum.errors),
            ];
            row.into_iter().enumerate().for_each(|(column, value)| table.put(column, value));
            table.end_row();
        }
        if let Some((_, table)) = open {
            self.finish_table(table);
        }
    }

    /// The files of the recording so far.
    fn finish_recording(&mut self) {
        for mut class in std::mem::take(&mut self.classes).into_iter().flatten() {
            if let Some(table) = class.table.take() {
                self.finish_table(table);
            }
        }
        if !self.sums.is_empty() {
            self.write_sums();
        }
    }
}

/// `name=value`, with what folders and engines give a meaning to as %XX.
fn partition(name: &str, value: &str) -> String {
    let mut text = format!("{name}=");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(byte)),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn day_folder(day: i64) -> String {
    let date = text_of(day.saturating_mul(DAY_NS), ClockText::Date, true);
    format!("day={}", date.get(..10).unwrap_or("1970-01-01"))
}

impl Taker for Dataset {
    fn class(&mut self, class: usize, _: &EventType) -> Wish {
        if self.classes[class].is_some() { Wish::Fields } else { Wish::Nothing }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let day = at.ns.div_euclid(DAY_NS);
        let Some(of) = &mut self.classes[class] else { return };
        if of.table.is_none() || of.day != day {
            let done = of.table.take();
            of.day = day;
            let folders = [
                "events".to_owned(),
                partition("host", &of.host),
                day_folder(day),
                partition("event", &of.event),
            ];
            let (file, columns) = (format!("part-{}-{class}.parquet", self.part), of.columns.clone());
            if let Some(done) = done {
                self.finish_table(done);
            }
            match self.create(&folders, &file, &columns) {
                Ok(table) => {
                    if let Some(of) = &mut self.classes[class] {
                        of.table = Some(table);
                    }
                }
                Err(error) => return self.out.fail(error),
            }
        }
        let Some(of) = &mut self.classes[class] else { return };
        let Some(table) = &mut of.table else { return };
        let every = [at.ns, at.cpu.into(), at.task.pid.into(), at.task.tid.into()];
        every.into_iter().enumerate().for_each(|(column, n)| table.put(column, Datum::Integer(n)));
        for (column, field) in of.fields.iter().enumerate() {
            let value = field.map_or(Value::Absent, |field| fields.get(field));
            table.put(OF_EVENTS.len() + column, datum(value));
        }
        table.end_row();
    }

    fn slice(&mut self, slice: &Slice) {
        let value = self.by.as_ref().and_then(|by| slice.fields.iter().find(|(name, _)| name == by));
        let value = match value.map(|(_, cell)| cell) {
            None | Some(Cell::None) => String::new(),
            Some(Cell::Text(text)) => text.clone(),
            Some(other) => json_of(other).to_string(),
        };
        let host = self.hosts.get(slice.class).cloned().unwrap_or_default();
        let minute = slice.start_ns.div_euclid(MINUTE_NS) * MINUTE_NS;
        let (low, high) = bucket_of(slice.duration_ns);
        let place = (host, slice.start_ns.div_euclid(DAY_NS), slice.span, value, minute, low);
        let sum = self.sums.entry(place).or_default();
        sum.high = high;
        sum.count += 1;
        sum.sum = sum.sum.saturating_add(slice.duration_ns);
        sum.max = sum.max.max(slice.duration_ns);
        sum.errors += u64::from(slice.is_error);
        if self.sums.len() >= MAX_SUMS {
            self.write_sums();
        }
    }
}

impl Exporter for Dataset {
    fn recording(&mut self, recording: &Recording, selection: &Selection) {
        self.finish_recording();
        self.hosts = hosts(recording);
        self.n_flushes = 0;
        let mut hasher = DefaultHasher::new();
        for trace in recording.traces() {
            trace.dir.canonicalize().unwrap_or_else(|_| trace.dir.clone()).hash(&mut hasher);
        }
        self.part = format!("{:016x}", hasher.finish());
        let classes = recording.event_classes().iter();
        self.classes = classes
            .map(|class| {
                is_wanted(selection, class.index).then(|| {
                    let mut columns = Columns::beside(&TAKEN);
                    columns.add_all(recording, |other| other.index == class.index);
                    let every = OF_EVENTS.map(|name| Column { name: name.to_owned(), kind: Kind::Integer });
                    let places = columns.places(&class.ty);
                    let position = |column: usize| places.iter().position(|place| *place == Some(column));
                    Class {
                        event: class.ty.full_name(),
                        host: recording.host_of(class).to_owned(),
                        fields: (0..columns.fields.len()).map(position).collect(),
                        columns: every.into_iter().chain(columns.fields.iter().cloned()).collect(),
                        day: 0,
                        table: None,
                    }
                })
            })
            .collect();
    }

    fn finish(&mut self) {
        self.finish_recording();
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_that_engines_know() {
        assert_eq!(partition("event", "plan:took"), "event=plan%3Atook");
        assert_eq!(partition("host", "a.b/../c"), "host=a%2Eb%2F%2E%2E%2Fc");
        assert_eq!(day_folder(0), "day=1970-01-01");
        assert_eq!(day_folder(20_773), "day=2026-11-16");
    }
}
