//! What tells open spans of one rule apart.

use crate::value::{Fields, Value};

/// Where an event has one part of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyAt {
    pub at: Option<u16>,
    /// What is taken off it.
    pub less: Option<u16>,
}

impl KeyAt {
    pub(super) fn value(self, fields: &Fields) -> Value<'_> {
        let of = |at: Option<u16>| at.map_or(Value::Absent, |at| fields.get(usize::from(at)));
        match self.less {
            None => of(self.at),
            Some(_) => match (of(self.at).integer(), of(self.less).integer()) {
                (Some(all), Some(less)) => Value::Unsigned((all as u64).wrapping_sub(less as u64)),
                _ => Value::Absent,
            },
        }
    }
}

/// What tells open spans of one rule and one process apart.
pub(super) fn identify(key: &mut Vec<u8>, rule: usize, at: &[KeyAt], pid: u32, fields: &Fields) {
    key.clear();
    key.extend_from_slice(&(rule as u32).to_le_bytes());
    key.extend_from_slice(&pid.to_le_bytes());
    at.iter().for_each(|at| at.value(fields).identify(key));
}

/// Whether begin and end agree in the fields that they must agree in.
pub(super) fn is_same_key(
    begin: &[KeyAt],
    begin_fields: &Fields,
    end: &[KeyAt],
    end_fields: &Fields,
) -> bool {
    begin.iter().zip(end).all(|(begin, end)| {
        match (begin.value(begin_fields), end.value(end_fields)) {
            // A side that lacks the field, in another version of a program, cannot disagree.
            (Value::Absent, _) | (_, Value::Absent) => true,
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            (a, b) => match (a.integer(), b.integer()) {
                (Some(a), Some(b)) => a as u64 == b as u64,
                _ => false,
            },
        }
    })
}
