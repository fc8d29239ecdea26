//! The tables there are and their columns.

use crate::names::table_name;
use nopal_export::{Columns, Kind, OF_SPANS};
use nopal_trace::Recording;
use std::path::PathBuf;

/// A table as people see it.
#[derive(Debug, Clone)]
pub struct TableInfo {
    pub name: String,
    pub about: String,
    pub columns: Vec<ColumnInfo>,
    pub(crate) rows: Rows,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    pub name: String,
    /// `INTEGER`, `REAL` or `TEXT`.
    pub ty: &'static str,
}

/// What the rows of a table are.
#[derive(Debug, Clone)]
pub(crate) enum Rows {
    Events,
    /// Events of one type, by its full name, with the columns of its fields.
    Type(String, Columns),
    Spans,
    Losses,
    Recordings,
}

/// In front of the fields of a table of one event type.
pub(crate) const OF_TYPES: [&str; 6] = ["ts", "host", "cpu", "pid", "tid", "recording"];
pub(crate) const OF_EVENTS: [&str; 11] =
    ["ts", "host", "cpu", "pid", "tid", "provider", "name", "event", "args", "recording", "day"];
const OF_LOSSES: [&str; 6] = ["ts", "dur", "cpu", "count", "what", "recording"];
const OF_RECORDINGS: [&str; 11] = [
    "recording",
    "dir",
    "host",
    "tracer",
    "ts",
    "events",
    "event_types",
    "lost",
    "gaps",
    "complete",
    "notes",
];

fn columns(names: &[&str]) -> Vec<ColumnInfo> {
    let texts = ["day", "host", "provider", "name", "event", "args", "key", "what", "dir", "tracer", "notes"];
    let column = |name: &&str| ColumnInfo {
        name: (*name).to_owned(),
        ty: if texts.contains(name) { "TEXT" } else { "INTEGER" },
    };
    names.iter().map(column).collect()
}

/// Those of some recordings.
pub(crate) fn tables_of(recordings: &[(PathBuf, Recording)]) -> Vec<TableInfo> {
    let fixed = |name: &str, about: &str, names: &[&str], rows: Rows| TableInfo {
        name: name.to_owned(),
        about: about.to_owned(),
        columns: columns(names),
        rows,
    };
    let of_spans: Vec<&str> = OF_SPANS.into_iter().chain(["recording"]).collect();
    let mut tables = vec![
        fixed("events", "every event, its fields as JSON in args", &OF_EVENTS, Rows::Events),
        fixed("spans", "what lies between two probes", &of_spans, Rows::Spans),
        fixed("losses", "what was lost, and when", &OF_LOSSES, Rows::Losses),
        fixed("recordings", "what is queried", &OF_RECORDINGS, Rows::Recordings),
    ];
    let mut types: Vec<String> = recordings
        .iter()
        .flat_map(|(_, recording)| recording.event_classes().iter().map(|class| class.ty.full_name()))
        .collect();
    types.sort();
    types.dedup();
    for full_name in types {
        let mut fields = Columns::beside(&OF_TYPES);
        for (_, recording) in recordings {
            fields.add_all(recording, |class| class.ty.full_name() == full_name);
        }
        let mut all = columns(&OF_TYPES);
        all.extend(fields.fields.iter().map(|field| ColumnInfo {
            name: field.name.clone(),
            ty: match field.kind {
                Kind::Integer | Kind::Unsigned => "INTEGER",
                Kind::Float => "REAL",
                Kind::Text => "TEXT",
            },
        }));
        let name = table_name(&full_name, |name| tables.iter().any(|table| table.name == name));
        let about = format!("the events {full_name}");
        tables.push(TableInfo { name, about, columns: all, rows: Rows::Type(full_name, fields) });
    }
    tables
}
