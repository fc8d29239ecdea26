//! Recordings in the formats of other programs: tables (`csv`, `spans_json`), timelines (`chrome`, `perfetto`), traces
//! (`otlp`) and folded stacks (`flamegraph`). An [`Exporter`] takes events and spans and writes; it opens no file.

#![warn(unreachable_pub)]

mod chrome;
mod columns;
mod csv;
mod flamegraph;
mod otlp;
mod out;
mod perfetto;
mod processes;
mod protobuf;
mod run;
mod spans_json;

pub use chrome::Chrome;
pub use columns::{Column, Columns, Kind, OF_EVERY_EVENT};
pub use csv::{EventsCsv, OF_SPANS, SpansCsv};
pub use flamegraph::Flamegraph;
pub use otlp::Otlp;
pub use out::Out;
pub use perfetto::Perfetto;
pub use run::{Ended, Exporter, Failed, Plan, export, hosts, is_wanted};
pub use spans_json::SpansJson;

use nopal_answers::Cell;
use serde_json::Value;

/// A value of a field as JSON.
pub fn json_of(cell: &Cell) -> Value {
    let integer = |n: i128| match (i64::try_from(n), u64::try_from(n)) {
        (Ok(n), _) => Value::from(n),
        (_, Ok(n)) => Value::from(n),
        (Err(_), Err(_)) => Value::from(n.to_string()),
    };
    match cell {
        Cell::None => Value::Null,
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Count(n) | Cell::Duration(n) => Value::from(*n),
        Cell::Integer(n) => integer(*n),
        // JSON has no word for what is not a number.
        Cell::Float(n) if !n.is_finite() => Value::from(n.to_string()),
        Cell::Float(n) => Value::from(*n),
        Cell::Time(ns) => Value::from(*ns),
    }
}

/// The fields of a span as one JSON object.
pub fn json_of_fields(fields: &[(String, Cell)]) -> Value {
    Value::Object(fields.iter().map(|(name, cell)| (name.clone(), json_of(cell))).collect())
}
