//! Fields in a probe's packed block, `docs/formats.md` section 3: their shapes, and their bytes one after the other. The
//! block comes from the traced program and may end anywhere.

use crate::record::{Text, Value, sign_extended, unsigned};

/// How the bytes of a field are read, in a block or in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Integer {
        size_bytes: u8,
        is_signed: bool,
    },
    Float {
        size_bytes: u8,
    },
    Text,
    Elements {
        size_bytes: u8,
    },
    /// In a packed block only.
    Array {
        size_bytes: u8,
        count: u32,
    },
}

impl Shape {
    /// A number of this shape from its bits; the others have none.
    pub fn number(self, bits: u64) -> Option<Value<'static>> {
        Some(match self {
            Shape::Float { size_bytes: 4 } => Value::Float(f64::from(f32::from_bits(bits as u32))),
            Shape::Float { .. } => Value::Float(f64::from_bits(bits)),
            Shape::Integer { size_bytes, is_signed: true } => Value::Signed(sign_extended(bits, size_bytes)),
            Shape::Integer { .. } => Value::Unsigned(bits),
            Shape::Text | Shape::Elements { .. } | Shape::Array { .. } => return None,
        })
    }
}

/// A number whose highest byte comes first, from its bits as if the lowest did.
pub fn swapped(bits: u64, size_bytes: u8) -> u64 {
    bits.swap_bytes() >> (64 - 8 * u32::from(size_bytes.clamp(1, 8)))
}

/// In the count of a sequence: the program cut it.
const HAD_MORE: u32 = 1 << 31;

/// An element of some bytes, if they have so many.
pub fn element(bytes: &[u8], shape: Shape, index: usize, is_big_endian: bool) -> Option<Value<'static>> {
    let (Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes }) = shape else { return None };
    if size_bytes == 0 {
        return None;
    }
    let bits = unsigned(bytes.chunks_exact(usize::from(size_bytes)).nth(index)?)?;
    shape.number(if is_big_endian { swapped(bits, size_bytes) } else { bits })
}

/// The rest of a block.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a>(&'a [u8]);

/// One field's part of a block.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
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
                let size_bytes = usize::from(size_bytes.max(1));
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
                let count = self.bytes.len() / usize::from(size_bytes.max(1));
                into.extend_from_slice(&(count as u32).to_le_bytes());
                into.len() + self.bytes.len()
            }
        };
        into.extend_from_slice(self.bytes);
        into.resize(end, 0);
    }

    /// `None` if the block ended before the end of a number. An array or a sequence is a text of its bytes.
    pub fn value(self, is_big_endian: bool) -> Option<Value<'a>> {
        match self.shape {
            Shape::Text | Shape::Elements { .. } | Shape::Array { .. } => Some(Value::Text(Text {
                bytes: self.bytes,
                is_null: false,
                is_unreadable: false,
                is_truncated: self.is_cut,
            })),
            Shape::Integer { .. } | Shape::Float { .. } => element(self.bytes, self.shape, 0, is_big_endian),
        }
    }
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
    fn values_in_either_byte_order() {
        let text = |bytes, is_truncated| {
            Value::Text(Text { bytes, is_null: false, is_unreadable: false, is_truncated })
        };
        for (shape, is_big_endian, bytes, value) in [
            (I16, false, &b"\xfe\xff"[..], Some(Value::Signed(-2))),
            (I16, true, b"\xff\xfe", Some(Value::Signed(-2))),
            (
                Shape::Integer { size_bytes: 4, is_signed: false },
                true,
                b"\0\0\x01\0",
                Some(Value::Unsigned(256)),
            ),
            (Shape::Float { size_bytes: 4 }, false, &1.5f32.to_le_bytes(), Some(Value::Float(1.5))),
            (Shape::Float { size_bytes: 8 }, true, &1.5f64.to_be_bytes(), Some(Value::Float(1.5))),
            (Shape::Text, false, b"ab\0c", Some(text(b"ab", false))),
            (Shape::Text, false, b"ab", Some(text(b"ab", true))),
            (Shape::Array { size_bytes: 1, count: 4 }, false, b"ab\0c", Some(text(b"ab\0c", false))),
            (I16, false, b"\xfe", None),
        ] {
            let mut block = Block::new(bytes);
            assert_eq!(block.take(shape).value(is_big_endian), value, "{shape:?}");
        }
    }
}
