//! One event, decoded where it lies: no copy, no allocation.

use super::class::{EventClass, StreamClass};
use super::decode::{Damage, Scratch, Visitor, run, skip};
use super::packet::Packet;
use super::plan::{Scope, Step};
use super::recording::Recording;
use super::trace::Trace;
use crate::frames::{EventFrames, FrameNames};
use crate::model::{Enum, number};

/// An event of a recording; borrows the packet it is in.
#[derive(Debug, Clone, Copy)]
pub struct Event<'e> {
    pub(crate) recording: &'e Recording,
    pub(crate) stream: &'e StreamClass,
    pub(crate) packet: &'e Packet,
    pub(crate) found: Found,
}

/// An event found in a stream: where it is, not yet what it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Nanoseconds since the epoch; `i64::MIN` if the stream has no clock.
    pub ns: i64,
    /// Bits from the packet's start to the event's header.
    pub header_at: u64,
    /// Bits from the packet's start to what follows the header.
    pub body_at: u64,
    /// Index of the event class.
    pub class: u32,
}

/// A value of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'e> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// Bytes of a string, which may not be UTF-8.
    String(&'e [u8]),
    /// The number and the first label that fits it.
    Enum(i128, Option<&'e str>),
}

impl<'e> Event<'e> {
    /// Nanoseconds since the epoch; `None` if the stream has no clock.
    #[inline]
    pub fn ns(&self) -> Option<i64> {
        (self.found.ns != i64::MIN).then_some(self.found.ns)
    }

    pub fn class(&self) -> &'e EventClass {
        &self.recording.classes[self.found.class as usize]
    }

    /// The place of its class among [`Recording::event_classes`].
    #[inline]
    pub fn class_index(&self) -> usize {
        self.found.class as usize
    }

    #[inline]
    pub fn cpu(&self) -> Option<u64> {
        self.packet.head.cpu
    }

    /// Whether it came by nopal's kernel door.
    pub fn is_by_kernel(&self) -> bool {
        self.packet.head.is_by_kernel
    }

    /// The trace it is of: environment, host.
    pub fn trace(&self) -> Option<&'e Trace> {
        self.recording.traces.iter().find(|t| t.streams.iter().any(|s| std::ptr::eq(s, self.stream)))
    }

    /// The names of its addresses, if there are any.
    pub(crate) fn frames<'a>(&self, names: Option<&'a dyn FrameNames>) -> Option<EventFrames<'a>>
    where
        'e: 'a,
    {
        EventFrames::new(names?, &self.trace()?.code, self.ns().unwrap_or(i64::MAX))
    }

    /// Shows the event's own fields to `visitor`.
    pub fn fields<V: Visitor>(&self, scratch: &mut Scratch, visitor: &mut V) -> Result<(), Damage> {
        let at = self.skip_contexts(scratch)?;
        if let Some(scope) = &self.class().fields {
            run(&scope.plan, self.packet.content(), at, scratch, visitor)?;
        }
        Ok(())
    }

    /// Shows the context fields (pid, tid and the like) to `visitor`.
    pub fn context<V: Visitor>(&self, scratch: &mut Scratch, visitor: &mut V) -> Result<(), Damage> {
        let mut at = self.prepare(scratch)?;
        for scope in [&self.stream.event_context, &self.class().context].into_iter().flatten() {
            at = run(&scope.plan, self.packet.content(), at, scratch, visitor)?;
        }
        Ok(())
    }

    /// Calls `each` with the name and value of every scalar field, in order. Arrays and structs are left out; see
    /// [`Event::fields`] for them.
    pub fn values(&self, scratch: &mut Scratch, each: impl FnMut(&str, Value<'_>)) -> Result<(), Damage> {
        self.fields(scratch, &mut Scalars { each, depth: 0 })
    }

    /// As [`Event::values`], for the context fields.
    pub fn context_values(
        &self,
        scratch: &mut Scratch,
        each: impl FnMut(&str, Value<'_>),
    ) -> Result<(), Damage> {
        self.context(scratch, &mut Scalars { each, depth: 0 })
    }

    /// Brings the slots up to the end of the header and returns where the body starts.
    pub(crate) fn prepare(&self, scratch: &mut Scratch) -> Result<u64, Damage> {
        if let Some(shared) = &self.packet.scratch {
            scratch.slots = shared.slots;
        }
        match &self.stream.event_header {
            Some(header) if self.stream.needs_header => {
                skip(&header.plan, self.packet.content(), self.found.header_at, scratch)
            }
            _ => Ok(self.found.body_at),
        }
    }

    fn skip_contexts(&self, scratch: &mut Scratch) -> Result<u64, Damage> {
        let mut at = self.prepare(scratch)?;
        for scope in [&self.stream.event_context, &self.class().context].into_iter().flatten() {
            at = skip(&scope.plan, self.packet.content(), at, scratch)?;
        }
        Ok(at)
    }

    /// The scopes that are printed, in order: contexts, then fields.
    pub(crate) fn scopes(&self) -> [Option<&'e Scope>; 3] {
        let class = self.class();
        [self.stream.event_context.as_ref(), class.context.as_ref(), class.fields.as_ref()]
    }
}

struct Scalars<F> {
    each: F,
    depth: u32,
}

impl<F: FnMut(&str, Value<'_>)> Scalars<F> {
    fn give(&mut self, at: &Step, value: Value<'_>) {
        if self.depth == 0 {
            (self.each)(&at.name, value);
        }
    }
}

impl<F: FnMut(&str, Value<'_>)> Visitor for Scalars<F> {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, is_signed: bool, _: u8) {
        self.give(at, if is_signed { Value::Signed(raw as i64) } else { Value::Unsigned(raw) });
    }
    fn float(&mut self, at: &Step, _: u64, value: f64, _: u32) {
        self.give(at, Value::Float(value));
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        let value = number(raw, table.integer.is_signed);
        self.give(at, Value::Enum(value, table.labels_of(value).next()));
    }
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        self.give(at, Value::String(bytes));
    }
    fn begin_array(&mut self, _: &Step, _: u64, _: u64) {
        self.depth += 1;
    }
    fn end_array(&mut self) {
        self.depth -= 1;
    }
    fn begin_struct(&mut self, _: &Step, _: u64) {
        self.depth += 1;
    }
    fn end_struct(&mut self) {
        self.depth -= 1;
    }
    fn begin_variant(&mut self, _: &Step, _: u64) {
        self.depth += 1;
    }
    fn end_variant(&mut self) {
        self.depth -= 1;
    }
    fn boolean(&mut self, at: &Step, _: u64, value: bool) {
        self.give(at, Value::Enum(i128::from(value), Some(if value { "true" } else { "false" })));
    }
}
