//! stapsdt and nopal notes, the operand grammar, and the catalog of probes of a binary. Pure: bytes in, facts out.

pub mod operand;
pub mod probe;
