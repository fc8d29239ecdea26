//! The fields that can stand in front of every event's own.

use nopal_proc::facts::Fact;
use nopal_trace::{Integer, RecordingInfo, Type};

/// One field in front of an event's own. The names are LTTng's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextField {
    /// The process, as it counts itself.
    Vpid,
    /// The thread, as its process counts.
    Vtid,
    /// The thread's name.
    Procname,
    /// The address of the probe's instruction.
    Ip,
    /// That address and those of the callers. Hits must bring a part of their stack:
    /// [`Limits::stack_bytes`](crate::plan::Limits::stack_bytes).
    Ustack,
    /// The trace and the span of OpenTelemetry that the thread works on: two fields behind the event's own, which hits must bring:
    /// [`Limits::has_thread_context`](crate::plan::Limits::has_thread_context).
    Otel,
    /// Whose the process is, or one of its namespaces, as they were when it was last looked at.
    Fact(Fact),
}

impl ContextField {
    const OWN: [ContextField; 6] = [
        ContextField::Vpid,
        ContextField::Vtid,
        ContextField::Procname,
        ContextField::Ip,
        ContextField::Ustack,
        ContextField::Otel,
    ];
    /// What a recording has unless told otherwise.
    pub const USUAL: [ContextField; 2] = [ContextField::Vpid, ContextField::Vtid];

    /// Those there are.
    pub fn all() -> impl Iterator<Item = ContextField> {
        ContextField::OWN.into_iter().chain(Fact::ALL.map(ContextField::Fact))
    }

    pub fn name(self) -> &'static str {
        match self {
            ContextField::Vpid => "vpid",
            ContextField::Vtid => "vtid",
            ContextField::Procname => "procname",
            ContextField::Ip => "ip",
            ContextField::Ustack => "ustack",
            ContextField::Otel => "otel",
            ContextField::Fact(fact) => fact.name(),
        }
    }

    pub fn parse(name: &str) -> Option<ContextField> {
        ContextField::all().find(|field| field.name() == name)
    }

    /// Declares the field in a recording's metadata.
    pub fn declare(self, info: RecordingInfo) -> RecordingInfo {
        let ty = match self {
            ContextField::Vpid | ContextField::Vtid => Type::signed(32),
            ContextField::Procname => Type::String,
            ContextField::Ip => address(),
            ContextField::Ustack => return info.context(self.name(), Type::sequence(address())),
            ContextField::Fact(fact) if fact.is_id() => Type::unsigned(32),
            ContextField::Fact(_) => Type::unsigned(64),
            // Each event declares them itself.
            ContextField::Otel => return info,
        };
        info.context(self.name(), ty)
    }
}

fn address() -> Type {
    Type::Integer(Integer::new(64, false).base(16))
}
