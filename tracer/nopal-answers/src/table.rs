//! What an answer says, before anybody prints it: described columns, rows, and the slowest beside them.

use nopal_spans::{Task, Unmatched, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// `ns`, `1/s`, or nothing.
    pub unit: &'static str,
    /// `text`, `number`, `count`, `duration`, `timestamp` or `ratio`.
    pub class: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    None,
    Text(String),
    Count(u64),
    Integer(i128),
    Float(f64),
    Duration(u64),
    /// Since the epoch.
    Time(i64),
}

/// One of the slowest spans.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    pub span: String,
    /// When it began, since the epoch.
    pub start_ns: i64,
    pub duration_ns: u64,
    pub self_ns: u64,
    pub task: Task,
    pub is_error: bool,
    pub fields: Vec<(String, Cell)>,
}

/// A table with all that belongs to it.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    pub slowest: Vec<Slow>,
    pub unmatched: Unmatched,
    /// What the reader should know, as sentences.
    pub notes: Vec<String>,
}

impl Column {
    pub fn new(name: &str, unit: &'static str, class: &'static str) -> Column {
        Column { name: name.to_owned(), unit, class }
    }

    pub fn duration(name: &str) -> Column {
        Column::new(name, "ns", "duration")
    }

    pub fn count(name: &str) -> Column {
        Column::new(name, "", "count")
    }

    pub fn text(name: &str) -> Column {
        Column::new(name, "", "text")
    }
}

impl From<Value<'_>> for Cell {
    fn from(value: Value<'_>) -> Cell {
        match value {
            Value::Absent => Cell::None,
            Value::Signed(n) => Cell::Integer(n.into()),
            Value::Unsigned(n) => Cell::Integer(n.into()),
            Value::Float(n) => Cell::Float(n),
            Value::Text(text) | Value::Label(_, text) => {
                Cell::Text(String::from_utf8_lossy(text).into_owned())
            }
        }
    }
}
