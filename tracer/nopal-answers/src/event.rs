//! The seam between events and answers.

pub use nopal_live::OrderWithin;
use nopal_spans::{Fields, Mode, Needs, Span, Task};
use nopal_trace::EventType;

/// When and where an event came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Since the epoch.
    pub ns: i64,
    pub task: Task,
    pub cpu: u32,
}

/// What eats events, in the order of time.
pub trait Consumer {
    /// Makes a kind of event known; kinds are numbered in this order. Says which of its fields are needed.
    fn class(&mut self, ty: &EventType) -> Needs;

    /// Whether of events with this name and these fields only time and thread matter. Asked before there are any.
    fn needs_no_fields(&self, _provider: &str, _name: &str, _fields: &[&str]) -> bool {
        false
    }

    /// Which events must come in their order for the answer to be right.
    fn order_within(&self) -> OrderWithin {
        OrderWithin::Thread
    }

    /// Events of classes that differ in this have nothing to do with each other: if it is not known which came first, only the
    /// nesting of spans is in doubt.
    fn kin(&self, _class: usize) -> u32 {
        0
    }

    /// The next event. `fields` has a value for each visible field of its class, or none if none is needed.
    fn event(&mut self, at: &At, class: usize, fields: &Fields);

    /// One that a condition leaves out: it only says that something begins or ends.
    fn event_left_out(&mut self, _at: &At, _class: usize, _fields: &Fields) {}

    /// Events up to this time were lost, on one CPU at least.
    fn loss(&mut self, to_ns: i64);

    /// A process has begun with another program.
    fn restart(&mut self, _pid: u32) {}

    /// The stream has ended; another one may follow.
    fn end(&mut self);
}

/// Spans that pair by key can begin on one thread and end on another.
pub(crate) fn order_of<'a>(mut spans: impl Iterator<Item = &'a Span>) -> OrderWithin {
    match spans.any(|span| matches!(span.mode, Mode::Key(_))) {
        true => OrderWithin::Process,
        false => OrderWithin::Thread,
    }
}

/// The names of an event's fields that people see: without the lengths in front of sequences.
pub fn visible_fields(ty: &EventType) -> Vec<&str> {
    ty.fields.iter().map(|field| field.name.as_str()).filter(|name| !is_length(name)).collect()
}

/// Whether a field only holds the length of the one behind it.
pub(crate) fn is_length(name: &str) -> bool {
    name.starts_with('_') && name.ends_with("_length")
}
