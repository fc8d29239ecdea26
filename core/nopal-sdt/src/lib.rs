//! stapsdt and nopal notes, the operand grammar, and the catalog of probes of a binary. Pure: bytes in, facts out.

#![warn(unreachable_pub)]

mod catalog;
pub mod describe;
pub mod nopal_note;
pub mod object;
pub mod operand;
pub mod pattern;
pub mod probe;

pub use describe::describe;
pub use object::{Object, RESTARTABLE, ReadError, Segment, Warning, read};
pub use pattern::Pattern;
