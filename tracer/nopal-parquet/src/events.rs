//! Events as rows: what every event has, then each field in the column of its name.

use crate::table::{Datum, Table};
use nopal_answers::At;
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_export::{Column, Columns, Exporter, Kind, OF_EVERY_EVENT, Out, is_wanted};
use nopal_spans::{Fields, Value};
use nopal_trace::{EventClass, EventType, Recording, Selection};
use std::io;

#[derive(Debug)]
pub struct EventsParquet {
    table: Table,
    columns: Columns,
    classes: Vec<Option<Class>>,
}

#[derive(Debug)]
struct Class {
    provider: String,
    name: String,
    host: String,
    /// By column: the position of its field.
    fields: Vec<Option<usize>>,
}

impl EventsParquet {
    pub fn new(out: Out, columns: Columns) -> io::Result<EventsParquet> {
        let all: Vec<Column> = of_every_event().chain(columns.fields.iter().cloned()).collect();
        Ok(EventsParquet { table: Table::new(out, &all)?, columns, classes: Vec::new() })
    }
}

fn of_every_event() -> impl Iterator<Item = Column> {
    OF_EVERY_EVENT.into_iter().map(|name| {
        let is_text = matches!(name, "host" | "provider" | "name");
        Column { name: name.to_owned(), kind: if is_text { Kind::Text } else { Kind::Integer } }
    })
}

pub(crate) fn datum(value: Value<'_>) -> Datum<'_> {
    match value {
        Value::Absent => Datum::None,
        Value::Signed(n) => Datum::Integer(n),
        Value::Unsigned(n) => Datum::Unsigned(n),
        Value::Float(n) => Datum::Float(n),
        Value::Text(text) | Value::Label(_, text) => Datum::Text(text),
    }
}

impl Taker for EventsParquet {
    fn class(&mut self, class: usize, _: &EventType) -> Wish {
        if self.classes[class].is_some() { Wish::Fields } else { Wish::Nothing }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let Some(class) = &self.classes[class] else { return };
        let every = [
            Datum::Integer(at.ns),
            Datum::Text(class.host.as_bytes()),
            Datum::Integer(at.cpu.into()),
            Datum::Integer(at.task.pid.into()),
            Datum::Integer(at.task.tid.into()),
            Datum::Text(class.provider.as_bytes()),
            Datum::Text(class.name.as_bytes()),
        ];
        for (column, value) in every.into_iter().enumerate() {
            self.table.put(column, value);
        }
        for (column, field) in class.fields.iter().enumerate() {
            let value = field.map_or(Value::Absent, |field| fields.get(field));
            self.table.put(OF_EVERY_EVENT.len() + column, datum(value));
        }
        self.table.end_row();
    }

    fn slice(&mut self, _: &Slice) {}
}

impl Exporter for EventsParquet {
    fn recording(&mut self, recording: &Recording, selection: &Selection) {
        let class = |class: &EventClass| {
            let mut fields = vec![None; self.columns.fields.len()];
            for (position, column) in self.columns.places(&class.ty).into_iter().enumerate() {
                if let Some(column) = column {
                    fields[column] = Some(position);
                }
            }
            Class {
                provider: class.ty.provider.clone(),
                name: class.ty.name.clone(),
                host: recording.host_of(class).to_owned(),
                fields,
            }
        };
        let classes = recording.event_classes().iter();
        self.classes = classes.map(|c| is_wanted(selection, c.index).then(|| class(c))).collect();
    }

    fn finish(&mut self) {
        self.table.finish();
    }

    fn out(&mut self) -> &mut Out {
        self.table.out()
    }
}
