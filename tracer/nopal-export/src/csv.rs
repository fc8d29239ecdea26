//! Comma-separated values, as RFC 4180 has them: a header, then one event or one span to a line.

use crate::columns::{Columns, OF_EVERY_EVENT};
use crate::out::Out;
use crate::run::{Exporter, is_wanted};
use crate::{json_of, json_of_fields};
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_answers::{At, Cell};
use nopal_spans::{Fields, Span, Value};
use nopal_trace::{EventType, Recording, Selection};
use std::io::Write;

/// Events, each field in the column of its name.
#[derive(Debug)]
pub struct EventsCsv {
    out: Out,
    columns: Columns,
    classes: Vec<Option<Class>>,
    line: Vec<u8>,
}

#[derive(Debug)]
struct Class {
    /// `provider,name`
    names: Vec<u8>,
    host: Vec<u8>,
    /// By column: the position of its field.
    fields: Vec<Option<usize>>,
}

impl EventsCsv {
    pub fn new(mut out: Out, columns: Columns) -> EventsCsv {
        let mut line = Vec::new();
        let fields = columns.fields.iter().map(|column| column.name.as_str());
        header(OF_EVERY_EVENT.into_iter().chain(fields), &mut line);
        out.write(&line);
        EventsCsv { out, columns, classes: Vec::new(), line }
    }
}

impl Taker for EventsCsv {
    fn class(&mut self, class: usize, _: &EventType) -> Wish {
        if self.classes[class].is_some() { Wish::Fields } else { Wish::Nothing }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let Some(class) = &self.classes[class] else { return };
        let line = &mut self.line;
        line.clear();
        // Writing to memory cannot fail.
        let _ = write!(line, "{},", at.ns);
        line.extend_from_slice(&class.host);
        let _ = write!(line, ",{},{},{},", at.cpu, at.task.pid, at.task.tid);
        line.extend_from_slice(&class.names);
        for field in &class.fields {
            line.push(b',');
            match field.map_or(Value::Absent, |field| fields.get(field)) {
                Value::Absent => {}
                Value::Signed(n) => drop(write!(line, "{n}")),
                Value::Unsigned(n) => drop(write!(line, "{n}")),
                Value::Float(n) => drop(write!(line, "{n}")),
                Value::Text(text) | Value::Label(_, text) => quote(text, line),
            }
        }
        line.extend_from_slice(b"\r\n");
        self.out.write(line);
    }

    fn slice(&mut self, _: &Slice) {}
}

impl Exporter for EventsCsv {
    fn recording(&mut self, recording: &Recording, selection: &Selection) {
        let class = |class: &nopal_trace::EventClass| {
            let mut names = Vec::new();
            quote(class.ty.provider.as_bytes(), &mut names);
            names.push(b',');
            quote(class.ty.name.as_bytes(), &mut names);
            let mut host = Vec::new();
            quote(recording.host_of(class).as_bytes(), &mut host);
            let mut fields = vec![None; self.columns.fields.len()];
            for (position, column) in self.columns.places(&class.ty).into_iter().enumerate() {
                if let Some(column) = column {
                    fields[column] = Some(position);
                }
            }
            Class { names, host, fields }
        };
        let classes = recording.event_classes().iter();
        self.classes = classes.map(|c| is_wanted(selection, c.index).then(|| class(c))).collect();
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

/// Spans.
#[derive(Debug)]
pub struct SpansCsv {
    out: Out,
    names: Vec<String>,
    hosts: Vec<String>,
    line: Vec<u8>,
}

/// The columns of spans, wherever spans are rows.
pub const OF_SPANS: [&str; 13] =
    ["ts", "dur", "self", "name", "key", "host", "pid", "tid", "depth", "parent", "id", "error", "args"];

impl SpansCsv {
    pub fn new(mut out: Out, spans: &[Span]) -> SpansCsv {
        let mut line = Vec::new();
        header(OF_SPANS.into_iter(), &mut line);
        out.write(&line);
        SpansCsv { out, names: spans.iter().map(Span::full_name).collect(), hosts: Vec::new(), line }
    }
}

impl Taker for SpansCsv {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let line = &mut self.line;
        line.clear();
        // Writing to memory cannot fail.
        let _ = write!(line, "{},{},{},", slice.start_ns, slice.duration_ns, slice.self_ns);
        quote(self.names[slice.span].as_bytes(), line);
        line.push(b',');
        match &slice.key {
            Cell::None => {}
            Cell::Text(text) => quote(text.as_bytes(), line),
            other => drop(write!(line, "{}", json_of(other))),
        }
        line.push(b',');
        quote(self.hosts.get(slice.class).map_or("", String::as_str).as_bytes(), line);
        let _ = write!(line, ",{},{},", slice.task.pid, slice.task.tid);
        if let Some(depth) = slice.depth {
            let _ = write!(line, "{depth}");
        }
        line.push(b',');
        if let Some(parent) = slice.parent {
            let _ = write!(line, "{parent}");
        }
        let _ = write!(line, ",{},{},", slice.id, u8::from(slice.is_error));
        quote(json_of_fields(&slice.fields).to_string().as_bytes(), line);
        line.extend_from_slice(b"\r\n");
        self.out.write(line);
    }
}

impl Exporter for SpansCsv {
    fn recording(&mut self, recording: &Recording, _: &Selection) {
        self.hosts = crate::run::hosts(recording);
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}

fn header<'a>(names: impl Iterator<Item = &'a str>, line: &mut Vec<u8>) {
    for (at, name) in names.enumerate() {
        if at > 0 {
            line.push(b',');
        }
        quote(name.as_bytes(), line);
    }
    line.extend_from_slice(b"\r\n");
}

/// Appends a text, in quotes if it must be. An empty text has quotes, so that it differs from no value.
fn quote(text: &[u8], into: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        into.extend_from_slice(text.as_bytes());
        return;
    }
    into.push(b'"');
    into.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    into.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("a", "a"),
            ("", "\"\""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("a\nb", "\"a\nb\""),
        ] {
            let mut line = Vec::new();
            quote(text.as_bytes(), &mut line);
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }
}
