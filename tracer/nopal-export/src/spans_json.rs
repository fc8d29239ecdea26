//! Spans as JSON, one object to a line.

use crate::out::Out;
use crate::run::Exporter;
use crate::{json_of, json_of_fields};
use nopal_answers::At;
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_spans::{Fields, Span};
use nopal_trace::{EventType, Recording, Selection};
use serde_json::json;

#[derive(Debug)]
pub struct SpansJson {
    out: Out,
    names: Vec<String>,
    hosts: Vec<String>,
}

impl SpansJson {
    pub fn new(out: Out, spans: &[Span]) -> SpansJson {
        SpansJson { out, names: spans.iter().map(Span::full_name).collect(), hosts: Vec::new() }
    }
}

impl Taker for SpansJson {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let line = json!({
            "ts": slice.start_ns,
            "dur": slice.duration_ns,
            "self": slice.self_ns,
            "name": self.names[slice.span],
            "key": json_of(&slice.key),
            "host": self.hosts.get(slice.class),
            "pid": slice.task.pid,
            "tid": slice.task.tid,
            "depth": slice.depth,
            "parent": slice.parent,
            "id": slice.id,
            "error": slice.is_error,
            "args": json_of_fields(&slice.fields),
        });
        self.out.write(format!("{line}\n").as_bytes());
    }
}

impl Exporter for SpansJson {
    fn recording(&mut self, recording: &Recording, _: &Selection) {
        self.hosts = crate::run::hosts(recording);
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}
