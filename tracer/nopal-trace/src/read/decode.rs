//! Runs decode plans over the bytes of a packet. Every length and offset is checked against the packet's content.

use super::plan::{Count, Kind, MAX_LOOPS, N_SLOTS, Plan, Step};
use super::wide;
use crate::model::{BitMap, Enum, Span, number};
use crate::role::Role;

/// The bytes that could not be made sense of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A value reaches beyond the end of the packet's content.
    Short,
    /// A string without an end.
    NoNul,
    /// A length that the rest of the packet cannot hold.
    Length,
    /// A variant whose tag names none of its options.
    Variant,
    /// A number of more than 64 bits.
    Number,
    /// An event number that the metadata does not have.
    EventId(u64),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Short => f.write_str("an event reaches beyond the end of its packet"),
            Damage::NoNul => f.write_str("a string has no end"),
            Damage::Length => f.write_str("a length is larger than the packet"),
            Damage::Variant => f.write_str("a variant's tag names none of its options"),
            Damage::Number => f.write_str("a number of variable length has more than 64 bits"),
            Damage::EventId(id) => write!(f, "event number {id} is not in the metadata"),
        }
    }
}

/// The content of a packet; positions are in bits from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content<'a> {
    pub bytes: &'a [u8],
    pub end_bits: u64,
}

/// What running a plan needs beside the bytes; made once, used for every event.
#[derive(Debug, Clone)]
pub struct Scratch {
    pub slots: [u64; N_SLOTS],
    loops: [Loop; MAX_LOOPS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Loop {
    index: u64,
    count: u64,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch { slots: [0; N_SLOTS], loops: [Loop::default(); MAX_LOOPS] }
    }
}

/// Receives the values of an event in order. `at` tells the name and role of each, `index` its place in the innermost
/// array if it is an element of one.
pub trait Visitor {
    fn integer(&mut self, _at: &Step, _index: u64, _raw: u64, _bits: u32, _is_signed: bool, _base: u8) {}
    fn float(&mut self, _at: &Step, _index: u64, _value: f64, _bits: u32) {}
    fn enumeration(&mut self, _at: &Step, _index: u64, _raw: u64, _table: &Enum) {}
    /// Without its NUL.
    fn string(&mut self, _at: &Step, _index: u64, _bytes: &[u8]) {}
    fn begin_array(&mut self, _at: &Step, _index: u64, _count: u64) {}
    fn end_array(&mut self) {}
    fn begin_struct(&mut self, _at: &Step, _index: u64) {}
    fn end_struct(&mut self) {}
    fn begin_variant(&mut self, _at: &Step, _index: u64) {}
    fn end_variant(&mut self) {}
    fn boolean(&mut self, at: &Step, index: u64, value: bool) {
        self.integer(at, index, u64::from(value), 8, false, 10);
    }
    fn bit_map(&mut self, at: &Step, index: u64, raw: u64, map: &BitMap) {
        self.integer(at, index, raw, map.bits.bits, false, 16);
    }
    fn blob(&mut self, at: &Step, index: u64, bytes: &[u8]) {
        self.string(at, index, bytes);
    }
    /// A value that is there follows under the same name.
    fn begin_optional(&mut self, _at: &Step, _index: u64) {}
    fn end_optional(&mut self) {}
    /// An optional value that is not there.
    fn absent(&mut self, _at: &Step, _index: u64) {}
}

/// A visitor that only wants to get past.
#[derive(Debug)]
pub(super) struct Skip;

impl Visitor for Skip {}

impl<'a> Content<'a> {
    /// An unsigned integer of up to 64 bits from any bit on.
    #[inline]
    pub(super) fn bits(&self, at: u64, bits: u32, is_big: bool) -> Result<u64, Damage> {
        let end = at + u64::from(bits);
        if end > self.end_bits {
            return Err(Damage::Short);
        }
        let first = (at / 8) as usize;
        if at.is_multiple_of(8) {
            // The common widths; anything else goes the long way.
            macro_rules! whole {
                ($ty:ty) => {{
                    let bytes = self.bytes.get(first..first + size_of::<$ty>()).ok_or(Damage::Short)?;
                    let bytes = bytes.try_into().map_err(|_| Damage::Short)?;
                    Ok(u64::from(if is_big {
                        <$ty>::from_be_bytes(bytes)
                    } else {
                        <$ty>::from_le_bytes(bytes)
                    }))
                }};
            }
            match bits {
                64 => return whole!(u64),
                32 => return whole!(u32),
                16 => return whole!(u16),
                8 => return whole!(u8),
                _ => {}
            }
        }
        let bytes = self.bytes.get(first..end.div_ceil(8) as usize).ok_or(Damage::Short)?;
        let shift = (at % 8) as u32;
        let mut all: u128 = 0;
        for (i, byte) in bytes.iter().enumerate() {
            if is_big {
                all = all << 8 | u128::from(*byte);
            } else {
                all |= u128::from(*byte) << (8 * i);
            }
        }
        let low = if is_big { bytes.len() as u32 * 8 - shift - bits } else { shift };
        Ok((all >> low) as u64 & mask(bits))
    }

    /// A number in LEB128 from a whole byte on, and how many bytes it has.
    fn variable(&self, at: u64, is_signed: bool) -> Result<(u64, u64), Damage> {
        let rest = self.bytes.get((at / 8) as usize..(self.end_bits / 8) as usize).ok_or(Damage::Short)?;
        let mut value: i128 = 0;
        for (i, byte) in rest.iter().enumerate() {
            let shift = 7 * i as u32;
            let low = i128::from(byte & 0x7f);
            if shift < 126 {
                value |= low << shift;
            } else if low != if is_signed && value < 0 { 0x7f } else { 0 } {
                return Err(Damage::Number);
            }
            if byte & 0x80 != 0 {
                // Sixty-four bits and their padding; what goes on longer is not a number.
                if i >= 64 {
                    return Err(Damage::Number);
                }
                continue;
            }
            if is_signed && byte & 0x40 != 0 && shift + 7 < 128 {
                value |= -1 << (shift + 7);
            }
            let raw =
                if is_signed { i64::try_from(value).map(|value| value as u64) } else { u64::try_from(value) };
            return Ok((raw.map_err(|_| Damage::Number)?, i as u64 + 1));
        }
        Err(Damage::Short)
    }

    /// So many bytes from a whole byte on.
    pub(super) fn run_of(&self, at: u64, count: u64) -> Result<&'a [u8], Damage> {
        if count > self.end_bits / 8 {
            return Err(Damage::Length);
        }
        if at + count * 8 > self.end_bits {
            return Err(Damage::Short);
        }
        let first = (at / 8) as usize;
        self.bytes.get(first..first + count as usize).ok_or(Damage::Short)
    }

    pub(super) fn string(&self, at: u64) -> Result<&'a [u8], Damage> {
        let rest = self.bytes.get((at / 8) as usize..(self.end_bits / 8) as usize).ok_or(Damage::Short)?;
        match find_nul(rest) {
            Some(nul) => Ok(&rest[..nul]),
            None => Err(Damage::NoNul),
        }
    }
}

/// Position of the first NUL, eight bytes at a time.
pub(super) fn find_nul(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().ok()?);
        let zero = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zero != 0 {
            return Some(at + zero.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    bytes[at..].iter().position(|b| *b == 0).map(|i| at + i)
}

/// The lowest `bits` bits.
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

const fn sign_extend(raw: u64, bits: u32) -> u64 {
    let unused = 64 - bits;
    ((raw << unused) as i64 >> unused) as u64
}

const fn align(at: u64, align_bits: u32) -> u64 {
    let mask = align_bits as u64 - 1;
    (at + mask) & !mask
}

/// Gets past a plan's values; leaves the slots they are kept in.
#[inline]
pub(super) fn skip(plan: &Plan, content: Content<'_>, at: u64, scratch: &mut Scratch) -> Result<u64, Damage> {
    match plan.fixed_bits {
        Some(0) => Ok(at),
        Some(bits) => {
            let end = align(at, 8) + bits;
            if end > content.end_bits { Err(Damage::Short) } else { Ok(end) }
        }
        None => run(plan, content, at, scratch, &mut Skip),
    }
}

/// Decodes from bit `at` on and returns the position behind the last value.
pub(crate) fn run<V: Visitor>(
    plan: &Plan,
    content: Content<'_>,
    mut at: u64,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> Result<u64, Damage> {
    let mut pc = 0;
    let mut depth = 0;
    // Every turn of a loop takes bits or counts here, so that no input can make this endless.
    let mut n_empty_turns = 0;
    while let Some(step) = plan.steps.get(pc) {
        pc += 1;
        if step.align_bits > 1 {
            at = align(at, step.align_bits);
        }
        let index = if step.is_element && depth > 0 { scratch.loops[depth - 1].index } else { 0 };
        match &step.kind {
            Kind::Integer { bits, is_signed, is_big, base } => {
                let mut raw = content.bits(at, *bits, *is_big)?;
                if step.is_reversed {
                    raw = reversed(raw, *bits);
                }
                if *is_signed {
                    raw = sign_extend(raw, *bits);
                }
                at += u64::from(*bits);
                keep(scratch, step, raw);
                visitor.integer(step, index, raw, *bits, *is_signed, *base);
            }
            Kind::Enum { bits, is_big, table } => {
                let mut raw = content.bits(at, *bits, *is_big)?;
                if step.is_reversed {
                    raw = reversed(raw, *bits);
                }
                if table.integer.is_signed {
                    raw = sign_extend(raw, *bits);
                }
                at += u64::from(*bits);
                keep(scratch, step, raw);
                visitor.enumeration(step, index, raw, table);
            }
            Kind::Float { bits, is_big } => {
                let mut raw = content.bits(at, *bits, *is_big)?;
                if step.is_reversed {
                    raw = reversed(raw, *bits);
                }
                at += u64::from(*bits);
                let value = match bits {
                    16 => half(raw as u16),
                    32 => f64::from(f32::from_bits(raw as u32)),
                    _ => f64::from_bits(raw),
                };
                visitor.float(step, index, value, *bits);
            }
            Kind::String => {
                let bytes = content.string(at)?;
                at += (bytes.len() as u64 + 1) * 8;
                visitor.string(step, index, bytes);
            }
            Kind::Text { length } => {
                let bytes = content.run_of(at, count(*length, scratch))?;
                at += bytes.len() as u64 * 8;
                visitor.string(step, index, find_nul(bytes).map_or(bytes, |nul| &bytes[..nul]));
            }
            Kind::Array { length, end } => {
                let count = count(*length, scratch);
                if count > content.end_bits {
                    return Err(Damage::Length);
                }
                visitor.begin_array(step, index, count);
                if count == 0 {
                    visitor.end_array();
                    pc = *end as usize;
                } else if depth < MAX_LOOPS {
                    scratch.loops[depth] = Loop { index: 0, count };
                    depth += 1;
                } else {
                    return Err(Damage::Length);
                }
            }
            Kind::ArrayEnd { begin } => {
                n_empty_turns += 1;
                if depth == 0 || n_empty_turns > content.end_bits {
                    return Err(Damage::Length);
                }
                let turn = &mut scratch.loops[depth - 1];
                turn.index += 1;
                if turn.index < turn.count {
                    pc = *begin as usize + 1;
                } else {
                    depth -= 1;
                    visitor.end_array();
                }
            }
            Kind::Struct => visitor.begin_struct(step, index),
            Kind::StructEnd => visitor.end_struct(),
            Kind::Variant { tag, is_signed, arms } => {
                let raw = scratch.slots[*tag as usize];
                keep(scratch, step, u64::MAX);
                let is_in = |value: i128| arms.iter().find(|a| a.first <= value && value <= a.last);
                let arm = match is_signed {
                    Some(is_signed) => is_in(number(raw, *is_signed)),
                    // The slot holds a sign-extended value; the table's rows were made the same way.
                    None => is_in(i128::from(raw)).or_else(|| is_in(i128::from(raw as i64))),
                };
                visitor.begin_variant(step, index);
                pc = arm.ok_or(Damage::Variant)?.target as usize;
            }
            Kind::VariantEnd { next } => {
                visitor.end_variant();
                pc = *next as usize;
            }
            Kind::Align => {}
            Kind::Bool { bits, is_big } => {
                let raw = content.bits(at, *bits, *is_big)?;
                at += u64::from(*bits);
                keep(scratch, step, raw);
                visitor.boolean(step, index, raw != 0);
            }
            Kind::BitMap { bits, is_big, map } => {
                let mut raw = content.bits(at, *bits, *is_big)?;
                if step.is_reversed {
                    raw = reversed(raw, *bits);
                }
                at += u64::from(*bits);
                visitor.bit_map(step, index, raw, map);
            }
            Kind::Variable { is_signed, base, table } => {
                let (raw, n_bytes) = content.variable(at, *is_signed)?;
                at += n_bytes * 8;
                keep(scratch, step, raw);
                match table {
                    // Of a clock's value so many bits are given as it has bytes (CTF2-SPEC-2.0, 6.3).
                    _ if step.roles.has(Role::Clock) => {
                        let bits = (n_bytes * 7).min(64) as u32;
                        visitor.integer(step, index, raw, bits, false, *base);
                    }
                    Some(table) => visitor.enumeration(step, index, raw, table),
                    None => visitor.integer(step, index, raw, 64, *is_signed, *base),
                }
            }
            Kind::Wide { encoding, length } => {
                let bytes = match length {
                    Some(length) => {
                        let bytes = content.run_of(at, count(*length, scratch))?;
                        at += bytes.len() as u64 * 8;
                        bytes
                    }
                    None => {
                        let n_left = (content.end_bits / 8).saturating_sub(at / 8);
                        let rest = content.run_of(at, n_left)?;
                        let end = wide::end(rest, *encoding).ok_or(Damage::NoNul)?;
                        at += (end + wide::unit_bytes(*encoding)) as u64 * 8;
                        &rest[..end]
                    }
                };
                visitor.string(step, index, wide::utf8(bytes, *encoding).as_bytes());
            }
            Kind::Blob { length } => {
                let bytes = content.run_of(at, count(*length, scratch))?;
                at += bytes.len() as u64 * 8;
                visitor.blob(step, index, bytes);
            }
            Kind::Optional { tag, is_signed, ranges, end } => {
                let raw = scratch.slots[*tag as usize];
                keep(scratch, step, u64::MAX);
                let is_there = match ranges {
                    Some(ranges) => is_among(ranges, number(raw, *is_signed)),
                    None => raw != 0,
                };
                if is_there {
                    visitor.begin_optional(step, index);
                } else {
                    visitor.absent(step, index);
                    pc = *end as usize;
                }
            }
            Kind::OptionalEnd => visitor.end_optional(),
        }
    }
    if at > content.end_bits { Err(Damage::Short) } else { Ok(at) }
}

/// The same bits, the last one first.
const fn reversed(raw: u64, bits: u32) -> u64 {
    raw.reverse_bits() >> (64 - bits)
}

fn is_among(ranges: &[Span], value: i128) -> bool {
    ranges.iter().any(|(first, last)| *first <= value && value <= *last)
}

/// IEEE 754's binary16: one bit sign, five exponent, ten fraction.
fn half(raw: u16) -> f64 {
    let fraction = f64::from(raw & 0x3ff);
    let magnitude = match raw >> 10 & 0x1f {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if raw >> 15 == 1 { -magnitude } else { magnitude }
}

fn keep(scratch: &mut Scratch, step: &Step, raw: u64) {
    if let Some(slot) = scratch.slots.get_mut(step.slot as usize) {
        *slot = raw;
    }
}

fn count(length: Count, scratch: &Scratch) -> u64 {
    match length {
        Count::Fixed(n) => n,
        Count::Slot(slot) => scratch.slots[slot as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_width_at_any_bit() {
        let bytes = [0b1010_0101, 0b1100_0011, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];
        let content = Content { bytes: &bytes, end_bits: 80 };
        for (at, bits, is_big, expected) in [
            (0, 5, false, 0b00101),
            (5, 6, false, 0b011_101),
            (0, 5, true, 0b10100),
            (5, 6, true, 0b101_110),
            (24, 32, false, 0x7856_3412),
            (24, 32, true, 0x1234_5678),
            (16, 64, true, 0xff12_3456_789a_bcde),
            (12, 64, true, 0x3ff1_2345_6789_abcd),
            (12, 64, false, 0xebc9_a785_6341_2ffc),
        ] {
            assert_eq!(content.bits(at, bits, is_big), Ok(expected), "{at} {bits} {is_big}");
        }
        assert_eq!(content.bits(17, 64, false), Err(Damage::Short));
    }

    #[test]
    fn numbers_of_variable_length() {
        let read = |bytes: &[u8], is_signed| {
            Content { bytes, end_bits: bytes.len() as u64 * 8 }.variable(0, is_signed)
        };
        // The examples of CTF2-SPEC-2.0, 6.4.9 and 6.4.10, and the ends of the ranges.
        assert_eq!(read(&[0xb4, 0xc7, 0x72], false), Ok((1_876_916, 3)));
        assert_eq!(read(&[0xb4, 0xc7, 0x72], true), Ok((-220_236i64 as u64, 3)));
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read(&most, false), Ok((u64::MAX, 10)));
        let least = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        assert_eq!(read(&least, true), Ok((i64::MIN as u64, 10)));
        assert_eq!(read(&[0x85, 0x80, 0x80, 0x00], false), Ok((5, 4)));
        assert_eq!(read(&[0x02], false), Ok((2, 1)));
        let mut padded = vec![0x80; 30];
        padded.push(0);
        assert_eq!(read(&padded, false), Ok((0, 31)));
        for (bytes, is_signed) in [
            (&[0xff; 10][..], false),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], false),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7e], true),
            (&[0x80; 200], true),
        ] {
            assert!(read(bytes, is_signed).is_err(), "{bytes:x?}");
        }
    }

    #[test]
    fn half_floats() {
        for (raw, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960464477539063e-8),
            (0x0400, 6.103515625e-5),
            (0x3555, 0.333251953125),
            (0x7c00, f64::INFINITY),
            (0x8000, 0.0),
        ] {
            assert_eq!(half(raw), value, "{raw:x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn the_end_of_a_string_is_found_wherever_it_is() {
        for len in 0..20 {
            let mut bytes = vec![0x80; 24];
            bytes[len] = 0;
            bytes[len + 1] = 1;
            assert_eq!(find_nul(&bytes), Some(len));
        }
        assert_eq!(find_nul(&[1; 11]), None);
    }
}
