//! Integers that are at the same place in every event of a class: read where they are, without running a plan.

use super::event::Event;
use super::plan::{Kind, Plan, Scope};
use std::sync::Arc;

/// An integer behind the header of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedInteger {
    /// From the first whole byte behind the header.
    offset_bits: u64,
    bits: u32,
    is_big: bool,
    pub is_signed: bool,
}

/// With the name that the metadata gives it.
pub type NamedInteger = (Arc<str>, FixedInteger);

impl Event<'_> {
    /// Every context value of events of this class, if all are integers with a fixed place.
    pub fn fixed_context(&self) -> Option<Vec<NamedInteger>> {
        let (mut found, mut offset_bits) = (Vec::new(), 0);
        for scope in self.contexts() {
            offset_bits = integers(&scope.plan, offset_bits, &mut found)?;
        }
        Some(found)
    }

    /// Every field of events of this class, if all are integers with a fixed place.
    pub fn fixed_fields(&self) -> Option<Vec<NamedInteger>> {
        let mut offset_bits = 0;
        for scope in self.contexts() {
            offset_bits += scope.plan.fixed_bits?;
        }
        let mut found = Vec::new();
        if let Some(scope) = &self.class().fields {
            integers(&scope.plan, offset_bits, &mut found)?;
        }
        Some(found)
    }

    /// The value of an integer of this event's class, sign-extended; None if the event ends before it.
    #[inline]
    pub fn integer(&self, at: FixedInteger) -> Option<u64> {
        let start = (self.found.body_at + 7) & !7;
        let raw = self.packet.content().bits(start + at.offset_bits, at.bits, at.is_big).ok()?;
        let unused = 64 - at.bits;
        Some(if at.is_signed { ((raw << unused) as i64 >> unused) as u64 } else { raw })
    }

    fn contexts(&self) -> impl Iterator<Item = &Scope> {
        [&self.stream.event_context, &self.class().context].into_iter().flatten()
    }
}

/// The integers of a plan that has nothing else, from `offset_bits` on; returns where it ends.
fn integers(plan: &Plan, offset_bits: u64, found: &mut Vec<NamedInteger>) -> Option<u64> {
    let mut at = offset_bits;
    for step in &plan.steps {
        match step.kind {
            Kind::Align if step.align_bits <= 8 && at.is_multiple_of(8) => {}
            Kind::Integer { bits, is_signed, is_big, .. }
                if step.align_bits <= 8
                    && at.is_multiple_of(8)
                    && bits.is_multiple_of(8)
                    && bits > 0
                    && !step.is_reversed =>
            {
                found.push((
                    Arc::clone(&step.name),
                    FixedInteger { offset_bits: at, bits, is_big, is_signed },
                ));
                at += u64::from(bits);
            }
            Kind::Align
            | Kind::Integer { .. }
            | Kind::Float { .. }
            | Kind::Enum { .. }
            | Kind::String
            | Kind::Text { .. }
            | Kind::Array { .. }
            | Kind::ArrayEnd { .. }
            | Kind::Struct
            | Kind::StructEnd
            | Kind::Variant { .. }
            | Kind::VariantEnd { .. }
            | Kind::Bool { .. }
            | Kind::BitMap { .. }
            | Kind::Variable { .. }
            | Kind::Wide { .. }
            | Kind::Blob { .. }
            | Kind::Optional { .. }
            | Kind::OptionalEnd => return None,
        }
    }
    // Both ways of reading must agree on where it ends.
    (plan.fixed_bits.unwrap_or(0) == at - offset_bits).then_some(at)
}
