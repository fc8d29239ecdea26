//! Fields in a probe's packed block, `docs/formats.md` section 3: their shapes, and their bytes one after the other. The
//! block comes from the traced program and may end anywhere.

use crate::plan::{Limits, Shape};
use crate::predicate::Value;
use nopal_sdt::probe::{ArgAbout, Kind};

/// In the count of a sequence: the program cut it.
const HAD_MORE: u32 = 1 << 31;

pub(crate) fn shape(about: &ArgAbout, limits: Limits) -> Shape {
    let size_bytes = about.size_bytes.filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(8);
    let element_bytes =
        about.element.map(|e| e.size_bytes).filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(1);
    match about.kind {
        Kind::CString | Kind::Str => Shape::Text,
        Kind::Float if size_bytes >= 4 => Shape::Float { size_bytes },
        Kind::Sequence | Kind::Bytes => Shape::Elements { size_bytes: element_bytes },
        Kind::Array => {
            let most = limits.max_packed_bytes() / u32::from(element_bytes);
            let count = about.element.map_or(0, |e| e.count).min(most);
            Shape::Array { size_bytes: element_bytes, count }
        }
        Kind::Enum => Shape::Integer { size_bytes, is_signed: about.is_signed },
        Kind::Signed => Shape::Integer { size_bytes, is_signed: true },
        Kind::Unknown | Kind::Unsigned | Kind::Pointer | Kind::Bool | Kind::Float | Kind::Char => {
            Shape::Integer { size_bytes, is_signed: false }
        }
    }
}

/// How an element of an array or a sequence is read.
pub(crate) fn element_shape(about: &ArgAbout) -> Option<Shape> {
    let size_bytes = match about.kind {
        Kind::Bytes => 1,
        Kind::Array | Kind::Sequence => about.element.map_or(1, |e| e.size_bytes),
        _ => return None,
    };
    let kind = about.element.map_or(Kind::Unsigned, |e| e.kind);
    Some(match kind {
        Kind::Float => Shape::Float { size_bytes },
        // A `char` of C has a sign here.
        kind => Shape::Integer { size_bytes, is_signed: matches!(kind, Kind::Signed | Kind::Char) },
    })
}

/// An element of some bytes, if they have so many.
pub(crate) fn element_value(
    bytes: &[u8],
    shape: Shape,
    index: usize,
    is_big_endian: bool,
) -> Option<Value<'static>> {
    let (Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes }) = shape else { return None };
    let element = bytes.chunks_exact(usize::from(size_bytes)).nth(index)?;
    let mut block = Block::new(element);
    match block.take(shape).value(is_big_endian)? {
        Value::Int(n) => Some(Value::Int(n)),
        Value::Float(n) => Some(Value::Float(n)),
        Value::Text(_) | Value::Cut(_) | Value::Absent => None,
    }
}

/// A text for conditions: it ends at its NUL, as in the event.
pub(crate) fn text_value(bytes: &[u8], is_cut: bool) -> Value<'_> {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => Value::Text(&bytes[..end]),
        None if is_cut => Value::Cut(bytes),
        None => Value::Text(bytes),
    }
}

/// What a field takes of the block at least.
pub(crate) fn least_bytes(shape: Shape) -> u32 {
    match shape {
        Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes } => u32::from(size_bytes),
        Shape::Text => 1,
        Shape::Elements { .. } => 4,
        // An array without elements, too, is counted: there may be many fields.
        Shape::Array { size_bytes, count } => (u32::from(size_bytes) * count).max(1),
    }
}

/// The rest of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a>(&'a [u8]);

/// One field's part of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    shape: Shape,
    /// A string without its NUL, a sequence without its count; shorter than the field if the block ended.
    bytes: &'a [u8],
    /// There was more.
    pub is_cut: bool,
}

impl<'a> Block<'a> {
    pub fn new(bytes: &'a [u8]) -> Block<'a> {
        Block(bytes)
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, shape: Shape) -> Piece<'a> {
        let (bytes, is_cut) = match shape {
            Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes } => {
                self.bytes(usize::from(size_bytes))
            }
            Shape::Array { size_bytes, count } => self.bytes(usize::from(size_bytes) * count as usize),
            Shape::Text => match self.0.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    let text = &self.0[..end];
                    self.0 = &self.0[end + 1..];
                    (text, false)
                }
                None => (std::mem::take(&mut self.0), true),
            },
            Shape::Elements { size_bytes } => {
                let (count, is_cut) = self.bytes(4);
                let count = u32::from_le_bytes(count.try_into().unwrap_or_default());
                let size_bytes = usize::from(size_bytes);
                let n_bytes = (count & !HAD_MORE) as usize * size_bytes;
                let (bytes, is_short) = self.bytes(n_bytes);
                let whole = bytes.len() / size_bytes * size_bytes;
                (&bytes[..whole], is_cut || is_short || count & HAD_MORE != 0)
            }
        };
        Piece { shape, bytes, is_cut }
    }

    /// As many of `n_bytes` as there are, and whether there are fewer.
    fn bytes(&mut self, n_bytes: usize) -> (&'a [u8], bool) {
        let (taken, rest) = self.0.split_at(n_bytes.min(self.0.len()));
        self.0 = rest;
        (taken, taken.len() < n_bytes)
    }
}

impl<'a> Piece<'a> {
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Appends the field as the event's type lays it out; what is missing is 0.
    pub fn push(self, into: &mut Vec<u8>) {
        let end = match self.shape {
            Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes } => {
                into.len() + usize::from(size_bytes)
            }
            Shape::Array { size_bytes, count } => into.len() + usize::from(size_bytes) * count as usize,
            Shape::Text => into.len() + self.bytes.len() + 1,
            Shape::Elements { size_bytes } => {
                let count = self.bytes.len() / usize::from(size_bytes);
                into.extend_from_slice(&(count as u32).to_le_bytes());
                into.len() + self.bytes.len()
            }
        };
        into.extend_from_slice(self.bytes);
        into.resize(end, 0);
    }

    /// For conditions; `None` if the block ended before it.
    pub fn value(self, is_big_endian: bool) -> Option<Value<'a>> {
        match self.shape {
            Shape::Text | Shape::Elements { .. } | Shape::Array { .. } => {
                Some(text_value(self.bytes, self.is_cut))
            }
            Shape::Integer { .. } | Shape::Float { .. } if self.is_cut => None,
            Shape::Float { size_bytes: 4 } => {
                Some(Value::Float(f64::from(f32::from_bits(self.raw(is_big_endian) as u32))))
            }
            Shape::Float { .. } => Some(Value::Float(f64::from_bits(self.raw(is_big_endian)))),
            Shape::Integer { size_bytes, is_signed } => {
                Some(integer(self.raw(is_big_endian), size_bytes, is_signed))
            }
        }
    }

    fn raw(self, is_big_endian: bool) -> u64 {
        let mut whole = [0u8; 8];
        whole[..self.bytes.len()].copy_from_slice(self.bytes);
        match is_big_endian {
            true => u64::from_be_bytes(whole) >> (64 - 8 * self.bytes.len()),
            false => u64::from_le_bytes(whole),
        }
    }
}

/// A number of `size_bytes` bytes, extended by its sign.
pub(crate) fn integer<'a>(raw: u64, size_bytes: u8, is_signed: bool) -> Value<'a> {
    let shift = 64 - 8 * u32::from(size_bytes);
    Value::Int(match is_signed {
        true => i128::from((raw << shift) as i64 >> shift),
        false => i128::from(raw << shift >> shift),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const I16: Shape = Shape::Integer { size_bytes: 2, is_signed: true };

    #[test]
    fn fields_follow_each_other_and_a_block_may_end_anywhere() {
        let block = b"\xfe\xffab\0\x02\0\0\0\x01\0\x02\0xyz";
        let shapes =
            [I16, Shape::Text, Shape::Elements { size_bytes: 2 }, Shape::Array { size_bytes: 1, count: 4 }];
        // Up to this length of the block each field is cut.
        for (n_bytes, is_cut, out) in [
            (16, [false, false, false, true], &b"\xfe\xffab\0\x02\0\0\0\x01\0\x02\0xyz\0"[..]),
            (12, [false, false, true, true], b"\xfe\xffab\0\x01\0\0\0\x01\0\0\0\0\0"),
            (4, [false, true, true, true], b"\xfe\xffab\0\0\0\0\0\0\0\0\0"),
            (1, [true, true, true, true], b"\xfe\0\0\0\0\0\0\0\0\0\0"),
            (0, [true, true, true, true], b"\0\0\0\0\0\0\0\0\0\0\0"),
        ] {
            let mut rest = Block::new(&block[..n_bytes]);
            let pieces = shapes.map(|shape| rest.take(shape));
            assert_eq!(pieces.map(|piece| piece.is_cut), is_cut, "{n_bytes}");
            let mut pushed = Vec::new();
            pieces.into_iter().for_each(|piece| piece.push(&mut pushed));
            assert_eq!(pushed, out, "{n_bytes}");
        }
    }

    #[test]
    fn a_count_beyond_the_block_and_one_that_says_there_was_more() {
        for (count, n_bytes) in [(3u32, 3), (u32::MAX, 5), (1 << 31 | 2, 2), (0, 0)] {
            let block = [&count.to_le_bytes()[..], b"abcde"].concat();
            let piece = Block::new(&block).take(Shape::Elements { size_bytes: 1 });
            assert_eq!((piece.bytes.len(), piece.is_cut), (n_bytes, count > 5), "{count:#x}");
        }
    }

    #[test]
    fn values_for_conditions() {
        for (shape, is_big_endian, bytes, value) in [
            (I16, false, &b"\xfe\xff"[..], Some(Value::Int(-2))),
            (I16, true, b"\xff\xfe", Some(Value::Int(-2))),
            (Shape::Integer { size_bytes: 4, is_signed: false }, true, b"\0\0\x01\0", Some(Value::Int(256))),
            (Shape::Float { size_bytes: 4 }, false, &1.5f32.to_le_bytes(), Some(Value::Float(1.5))),
            (Shape::Float { size_bytes: 8 }, true, &1.5f64.to_be_bytes(), Some(Value::Float(1.5))),
            (Shape::Text, false, b"ab\0c", Some(Value::Text(b"ab"))),
            (Shape::Array { size_bytes: 1, count: 4 }, false, b"ab\0c", Some(Value::Text(b"ab"))),
            (I16, false, b"\xfe", None),
        ] {
            let mut block = Block::new(bytes);
            assert_eq!(block.take(shape).value(is_big_endian), value, "{shape:?}");
        }
    }
}
