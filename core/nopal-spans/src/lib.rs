//! Spans: what lies between two probes, or one event that carries its duration. Definitions and where they come from,
//! pairing, and what many spans add up to. `docs/spans.md` is the specification. Pure: events in, numbers out.

pub mod available;
pub mod catalog;
mod convention;
pub mod file;
pub mod fingerprint;
pub mod histogram;
mod known_probe;
mod no_span;
pub mod pairing;
pub mod slowest;
pub mod span;
mod started;
pub mod summary;
pub mod tree;
pub mod value;

pub use available::Available;
pub use histogram::Histogram;
pub use known_probe::{FieldKind, KnownField, KnownPair, KnownProbe};
pub use no_span::NoSpan;
pub use pairing::{Done, Finished, Needs, Pairing, Sink, Task, Unmatched};
pub use slowest::Slowest;
pub use span::{Carry, GOROUTINE, KeyField, Mode, ProbeName, STACK, STACK_END, Shape, Source, Span, Unit};
pub use started::Started;
pub use summary::Summary;
pub use value::{Fields, Value};
