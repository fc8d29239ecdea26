//! Rows of an answer as a table, as JSON, as comma-separated values; printed as they come.

use crate::commands::answers::{print, print_data, print_json, render};
use crate::failure::Failure;
use crate::verdict::{self, Manner};
use nopal_query::{Answer, Database, ValueRef};
use nopal_trace::Verdict;
use serde_json::{Value, json};
use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Table,
    Json,
    Csv,
}

/// Prints an answer.
pub(super) struct Printer {
    form: Form,
    columns: Vec<String>,
    /// Whether each column holds numbers, as far as rows have shown.
    is_number: Vec<bool>,
    /// Rows that wait until the widths of the columns are known.
    waiting: Vec<Vec<String>>,
    widths: Vec<usize>,
    /// Columns for which the screen has no room.
    beyond: Vec<String>,
    text: String,
    n_rows: u64,
    failure: Option<Failure>,
}

/// Rows that decide how wide the columns are.
const N_WAITING: usize = 1000;
const FLUSH_BYTES: usize = 1 << 16;

impl Printer {
    pub(super) fn new(form: Form) -> Printer {
        Printer {
            form,
            columns: Vec::new(),
            is_number: Vec::new(),
            waiting: Vec::new(),
            widths: Vec::new(),
            beyond: Vec::new(),
            text: String::new(),
            n_rows: 0,
            failure: None,
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        let printed = match self.form {
            Form::Table => print(&text),
            Form::Json => print_json(&text),
            Form::Csv => print_data(&text),
        };
        if let Err(failure) = printed {
            self.failure.get_or_insert(failure);
        }
    }

    /// Rows that waited, after the names of the columns.
    fn print_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if self.widths.is_empty() && !self.columns.is_empty() {
            let width = |at: usize| {
                let of = |row: &Vec<String>| row[at].chars().count();
                waiting.iter().map(of).chain([self.columns[at].chars().count()]).max().unwrap_or(0)
            };
            self.widths = (0..self.columns.len()).map(width).collect();
            let names = self.columns.clone();
            let ends = self.widths.iter().scan(0, |end, width| {
                *end += width + 2;
                Some(*end)
            });
            let starts = std::iter::once(0).chain(ends);
            let is_beyond = |start: usize| start + 2 >= render::width();
            let beyond = names.iter().zip(starts).filter(|(_, start)| is_beyond(*start));
            self.beyond.extend(beyond.map(|(name, _)| name.clone()));
            let line = self.line(&names);
            let _ = writeln!(self.text, "{}", render::heading(&line));
        }
        for row in waiting {
            let line = self.line(&row);
            let _ = writeln!(self.text, "{line}");
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let width = self.widths[at];
            // Writing to a String cannot fail.
            let _ = match self.is_number[at] {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        render::cut(line.trim_end(), render::width())
    }

    /// Ends the answer; how many rows it had.
    pub(super) fn finish(mut self, verdict: &Verdict, database: &Database) -> Result<u64, Failure> {
        self.end_statement();
        if self.form == Form::Json {
            let columns: Vec<Value> = self
                .columns
                .iter()
                .zip(&self.is_number)
                .map(|(name, is_number)| {
                    let (unit, class) = described(name, *is_number);
                    json!({ "name": name, "unit": unit, "class": class })
                })
                .collect();
            let _ = writeln!(
                self.text,
                "{}],\"complete\":{},\"verdict\":{},\"lost\":{},\"unmatched\":{},\"columns\":{}}}",
                if self.n_rows == 0 { "{\"rows\":[" } else { "" },
                verdict.is_complete(),
                Value::from(verdict::text(verdict, Manner::SESSION)),
                verdict.n_all_lost(),
                database.unmatched().sum(),
                Value::from(columns),
            );
        }
        self.flush();
        if !self.beyond.is_empty() {
            let columns = crate::words::counted(self.beyond.len() as u64, "column");
            let names = self.beyond.join(", ");
            tell!("no room for {columns}: {names}; a wider terminal, --json or --csv shows them");
        }
        self.failure.map_or(Ok(self.n_rows), Err)
    }

    fn end_statement(&mut self) {
        if self.form == Form::Table {
            self.print_waiting();
        }
    }
}

/// Unit and class of a column, as far as its name says.
fn described(name: &str, is_number: bool) -> (&'static str, &'static str) {
    match name {
        "ts" => ("ns", "timestamp"),
        "dur" | "self" => ("ns", "duration"),
        _ if is_number => ("", "number"),
        _ => ("", "text"),
    }
}

impl Answer for Printer {
    fn columns(&mut self, names: &[String]) {
        if names.is_empty() {
            return;
        }
        self.end_statement();
        if self.form == Form::Table && !self.columns.is_empty() {
            self.text.push('\n');
        }
        self.widths.clear();
        self.is_number = vec![true; names.len()];
        self.columns.clear();
        for name in names {
            let mut free = name.clone();
            let mut n = 1;
            // An object of JSON holds each name once.
            while self.form == Form::Json && self.columns.contains(&free) {
                n += 1;
                free = format!("{name}_{n}");
            }
            self.columns.push(free);
        }
        if self.form == Form::Csv {
            let cells: Vec<String> = names.iter().map(|name| csv_quoted(name)).collect();
            let _ = write!(self.text, "{}\r\n", cells.join(","));
        }
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> bool {
        for (is_number, value) in self.is_number.iter_mut().zip(values) {
            *is_number &= !matches!(value, ValueRef::Text(_) | ValueRef::Blob(_));
        }
        match self.form {
            Form::Table => {
                self.waiting.push(values.iter().map(shown).collect());
                if !self.widths.is_empty() || self.waiting.len() >= N_WAITING {
                    self.print_waiting();
                }
            }
            Form::Csv => {
                let cells: Vec<String> = values.iter().map(csv_cell).collect();
                let _ = write!(self.text, "{}\r\n", cells.join(","));
            }
            Form::Json => {
                let cells = self.columns.iter().zip(values);
                let object: serde_json::Map<String, Value> =
                    cells.map(|(name, value)| (name.clone(), json_of(value))).collect();
                let lead = if self.n_rows == 0 { "{\"rows\":[" } else { "," };
                let _ = write!(self.text, "{lead}{}", Value::Object(object));
            }
        }
        self.n_rows += 1;
        if self.text.len() >= FLUSH_BYTES {
            self.flush();
        }
        self.failure.is_none() && !crate::signals::is_stopped()
    }
}

/// A value for people, on one line.
fn shown(value: &ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "-".to_owned(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(text) => render::printable(&String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => hex(bytes),
    }
}

fn csv_cell(value: &ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Text(text) => csv_quoted(&String::from_utf8_lossy(text)),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => shown(value),
    }
}

fn csv_quoted(text: &str) -> String {
    match text.is_empty() || text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn json_of(value: &ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::from(*n),
        ValueRef::Real(n) => Value::from(*n),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => Value::from(hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tables and their columns; all, or one.
pub(super) fn tables(database: &Database, only: Option<&str>) -> String {
    let mut text = String::new();
    for table in database.tables().iter().filter(|table| only.is_none_or(|only| table.name == only)) {
        let columns: Vec<String> =
            table.columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
        let _ = writeln!(text, "{}: {}", render::heading(&table.name), table.about);
        let _ = writeln!(text, "  {}", columns.join(", "));
    }
    for (name, sql) in database.views().iter().filter(|(name, _)| only.is_none_or(|only| name == only)) {
        let _ = writeln!(text, "{}: a view\n  {sql}", render::heading(name));
    }
    text
}

pub(super) fn tables_json(database: &Database) -> Value {
    let tables = database.tables().iter().map(|table| {
        let columns: Vec<Value> =
            table.columns.iter().map(|column| json!({ "name": column.name, "type": column.ty })).collect();
        json!({ "name": table.name, "about": table.about, "columns": columns })
    });
    Value::from(tables.collect::<Vec<_>>())
}
