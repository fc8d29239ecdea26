//! Spans as OpenTelemetry's OTLP/JSON, as its file exporter writes them: one `TracesData` object to a line. What lies within
//! one outermost span is one trace.

use crate::out::Out;
use crate::run::Exporter;
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_answers::{At, Cell};
use nopal_spans::{Fields, Span};
use nopal_trace::{EventType, Recording, Selection};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Debug)]
pub struct Otlp {
    out: Out,
    spans: Vec<(String, String)>,
    hosts: Vec<String>,
    /// Spans that wait to be written, by host, process and provider.
    waiting: BTreeMap<(String, u32, String), Vec<Value>>,
    n_waiting: usize,
    /// Of the outermost span that is being handed over.
    trace_id: Option<u128>,
    n_open: usize,
    /// Makes identifiers of different recordings different.
    seed: u64,
}

/// Spans that wait until they are written.
const BATCH: usize = 2048;

impl Otlp {
    pub fn new(out: Out, spans: &[Span]) -> Otlp {
        Otlp {
            out,
            spans: spans.iter().map(|span| (span.full_name(), span.provider.clone())).collect(),
            hosts: Vec::new(),
            waiting: BTreeMap::new(),
            n_waiting: 0,
            trace_id: None,
            n_open: 0,
            seed: 0,
        }
    }

    fn id(&self, number: u64, salt: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, number, salt).hash(&mut hasher);
        // Zero is not an identifier.
        hasher.finish().max(1)
    }

    fn write(&mut self) {
        for ((host, pid, provider), spans) in std::mem::take(&mut self.waiting) {
            let service = if provider.is_empty() { "nopal" } else { &provider };
            let line = json!({ "resourceSpans": [{
                "resource": { "attributes": [
                    attribute("service.name", &Cell::Text(service.to_owned())),
                    attribute("host.name", &Cell::Text(host)),
                    attribute("process.pid", &Cell::Integer(pid.into())),
                ] },
                "scopeSpans": [{ "scope": { "name": "nopal" }, "spans": spans }],
            }] });
            self.out.write(format!("{line}\n").as_bytes());
        }
        self.n_waiting = 0;
    }
}

fn attribute(name: &str, cell: &Cell) -> Value {
    let value = match cell {
        Cell::None => json!({ "stringValue": "" }),
        Cell::Text(text) => json!({ "stringValue": text }),
        Cell::Count(n) | Cell::Duration(n) => json!({ "intValue": n.to_string() }),
        // Integers have 64 bits and a sign there.
        Cell::Integer(n) if i64::try_from(*n).is_ok() => json!({ "intValue": n.to_string() }),
        Cell::Integer(n) => json!({ "stringValue": n.to_string() }),
        Cell::Float(n) if n.is_finite() => json!({ "doubleValue": n }),
        Cell::Float(n) => json!({ "stringValue": n.to_string() }),
        Cell::Time(ns) => json!({ "intValue": ns.to_string() }),
    };
    json!({ "key": name, "value": value })
}

impl Taker for Otlp {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        let is_root = self.n_open == 0;
        self.n_open += 1;
        let own = u128::from(self.id(slice.id, 1)) << 64 | u128::from(self.id(slice.id, 2));
        let trace_id = if is_root { own } else { self.trace_id.unwrap_or(own) };
        self.trace_id = Some(trace_id);
        // A parent of another trace cannot be named.
        let parent = slice.parent.filter(|_| !is_root);
        let mut attributes: Vec<Value> = slice
            .fields
            .iter()
            .filter(|(_, cell)| *cell != Cell::None)
            .map(|(name, cell)| attribute(name, cell))
            .collect();
        attributes.push(attribute("thread.id", &Cell::Integer(slice.task.tid.into())));
        let (title, provider) = &self.spans[slice.span];
        let end_ns = slice.start_ns.saturating_add_unsigned(slice.duration_ns);
        const INTERNAL: u32 = 1;
        const FAILED: u32 = 2;
        let mut span = json!({
            "traceId": format!("{trace_id:032x}"),
            "spanId": format!("{:016x}", self.id(slice.id, 0)),
            "name": title,
            "kind": INTERNAL,
            "startTimeUnixNano": slice.start_ns.max(0).to_string(),
            "endTimeUnixNano": end_ns.max(0).to_string(),
            "attributes": attributes,
            "status": if slice.is_error { json!({ "code": FAILED }) } else { json!({}) },
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = Value::from(format!("{:016x}", self.id(parent, 0)));
        }
        let host = self.hosts.get(slice.class).cloned().unwrap_or_default();
        self.waiting.entry((host, slice.task.pid, provider.clone())).or_default().push(span);
        self.n_waiting += 1;
    }

    fn close(&mut self, _: &Slice) {
        self.n_open = self.n_open.saturating_sub(1);
        if self.n_open == 0 && self.n_waiting >= BATCH {
            self.write();
        }
    }
}

impl Exporter for Otlp {
    fn recording(&mut self, recording: &Recording, _: &Selection) {
        self.hosts = crate::run::hosts(recording);
        let mut hasher = DefaultHasher::new();
        (self.seed, &self.hosts).hash(&mut hasher);
        recording.traces().iter().for_each(|trace| trace.dir.hash(&mut hasher));
        self.seed = hasher.finish();
    }

    fn finish(&mut self) {
        self.write();
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}
