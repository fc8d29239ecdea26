//! How C must be told about holes between members, where its own rules would lay them out otherwise.

use super::{
    ARRAY, Btf, CONST, Head, MAX_CHAIN, POINTER, RESTRICT, STRUCT, TYPE_TAG, TYPEDEF, UNION, VOLATILE, word,
};

/// A member of a record as it is laid out.
#[derive(Debug)]
pub(super) struct LaidOut {
    pub name: String,
    pub type_id: u32,
    pub bit: u64,
    /// 0 unless it is a bit field.
    pub n_bits: u32,
}

/// Larger ones are those of damaged descriptions.
const MAX_HOLE_BITS: u64 = 1 << 20;

const PADS: [(&str, u64); 4] = [("long", 64), ("int", 32), ("short", 16), ("char", 8)];

/// Members without a name that take the bits between two offsets: `long: 64`. Uses what alignment gives by itself.
pub(super) fn between(from: u64, to: u64, align_bytes: u64, is_in_bit_field: bool) -> Vec<String> {
    let mut pads = Vec::new();
    if from >= to || to - from > MAX_HOLE_BITS {
        return pads;
    }
    let mut at = from;
    let fits = PADS.iter().find(|(_, bits)| at.next_multiple_of(*bits) <= to);
    let (mut word, mut bits) = *fits.unwrap_or(&PADS[3]);
    let aligned = at.next_multiple_of(bits);
    if aligned > at && aligned <= to {
        let is_on_edge = aligned == to && at.next_multiple_of(align_bytes.max(1) * 8) != aligned;
        let would_be_lost = aligned != to && to - aligned <= aligned - at;
        if is_in_bit_field || is_on_edge || would_be_lost {
            pads.push(format!("{word}: {}", if is_in_bit_field { aligned - at } else { 0 }));
        }
        at = aligned;
    }
    while at < to {
        let left = (to - at).min(bits);
        if left < bits {
            (word, bits) = *PADS.iter().rev().find(|(_, bits)| *bits >= left).unwrap_or(&PADS[0]);
        }
        pads.push(format!("{word}: {left}"));
        at += left;
    }
    pads
}

impl Btf {
    pub(super) fn members(&self, head: &Head) -> Vec<LaidOut> {
        let member = |index: usize| {
            let at = head.parts_at + 12 * index;
            let place = word(&self.bytes, at + 8)?;
            let (bit, n_bits) =
                if head.has_bit_fields { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let name = self.name(word(&self.bytes, at)?).to_owned();
            Some(LaidOut { name, type_id: word(&self.bytes, at + 4)?, bit: u64::from(bit), n_bits })
        };
        (0..head.n_parts as usize).map_while(member).collect()
    }

    pub(super) fn align_bytes(&self, id: u32, n_chained: u32) -> u64 {
        let Some(head) = self.head(id).filter(|_| n_chained < MAX_CHAIN) else { return 1 };
        match head.kind {
            POINTER => 8,
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => self.align_bytes(head.size, n_chained + 1),
            ARRAY => self.align_bytes(word(&self.bytes, head.parts_at).unwrap_or(0), n_chained + 1),
            STRUCT | UNION => {
                let mut largest = 1;
                for member in self.members(&head) {
                    let align = self.align_bytes(member.type_id, n_chained + 1);
                    if member.n_bits == 0 && member.bit % (8 * align) != 0 {
                        return 1;
                    }
                    largest = largest.max(align);
                }
                if u64::from(head.size) % largest == 0 { largest } else { 1 }
            }
            _ => u64::from(head.size).clamp(1, 8),
        }
    }

    /// Whether its members lie closer together than their types would have it.
    pub(super) fn is_packed(&self, head: &Head) -> bool {
        let mut largest = 1;
        for member in self.members(head) {
            let align = self.align_bytes(member.type_id, 0);
            if member.n_bits == 0 && member.bit % (8 * align) != 0 {
                return true;
            }
            largest = largest.max(align);
        }
        u64::from(head.size) % largest != 0
    }

    /// Of any type, arrays among them.
    pub(super) fn full_size_bytes(&self, id: u32, n_chained: u32) -> u64 {
        let Some(head) = self.head(id).filter(|_| n_chained < MAX_CHAIN) else { return 0 };
        match head.kind {
            POINTER => 8,
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => {
                self.full_size_bytes(head.size, n_chained + 1)
            }
            ARRAY => {
                let element = word(&self.bytes, head.parts_at).unwrap_or(0);
                let n_elements = u64::from(word(&self.bytes, head.parts_at + 8).unwrap_or(0));
                self.full_size_bytes(element, n_chained + 1).saturating_mul(n_elements)
            }
            _ => u64::from(head.size),
        }
    }
}
