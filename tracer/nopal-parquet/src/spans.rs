//! Spans as rows.

use crate::table::{Datum, Table};
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_answers::{At, Cell};
use nopal_export::{Column, Exporter, Kind, OF_SPANS, Out, hosts, json_of, json_of_fields};
use nopal_spans::{Fields, Span};
use nopal_trace::{EventType, Recording, Selection};
use std::io;

#[derive(Debug)]
pub struct SpansParquet {
    table: Table,
    names: Vec<String>,
    hosts: Vec<String>,
}

impl SpansParquet {
    pub fn new(out: Out, spans: &[Span]) -> io::Result<SpansParquet> {
        let columns = OF_SPANS.map(|name| {
            let is_text = matches!(name, "name" | "key" | "host" | "args");
            Column { name: name.to_owned(), kind: if is_text { Kind::Text } else { Kind::Integer } }
        });
        let names = spans.iter().map(Span::full_name).collect();
        Ok(SpansParquet { table: Table::new(out, &columns)?, names, hosts: Vec::new() })
    }
}

impl Taker for SpansParquet {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let key = match &slice.key {
            Cell::None => None,
            Cell::Text(text) => Some(text.clone()),
            other => Some(json_of(other).to_string()),
        };
        let args = json_of_fields(&slice.fields).to_string();
        let host = self.hosts.get(slice.class).map_or("", String::as_str);
        let number = |n: Option<u64>| n.map_or(Datum::None, Datum::Unsigned);
        let row = [
            Datum::Integer(slice.start_ns),
            Datum::Unsigned(slice.duration_ns),
            Datum::Unsigned(slice.self_ns),
            Datum::Text(self.names[slice.span].as_bytes()),
            key.as_ref().map_or(Datum::None, |key| Datum::Text(key.as_bytes())),
            Datum::Text(host.as_bytes()),
            Datum::Integer(slice.task.pid.into()),
            Datum::Integer(slice.task.tid.into()),
            number(slice.depth.map(u64::from)),
            number(slice.parent),
            Datum::Unsigned(slice.id),
            Datum::Integer(slice.is_error.into()),
            Datum::Text(args.as_bytes()),
        ];
        for (column, value) in row.into_iter().enumerate() {
            self.table.put(column, value);
        }
        self.table.end_row();
    }
}

impl Exporter for SpansParquet {
    fn recording(&mut self, recording: &Recording, _: &Selection) {
        self.hosts = hosts(recording);
    }

    fn finish(&mut self) {
        self.table.finish();
    }

    fn out(&mut self) -> &mut Out {
        self.table.out()
    }
}
