//! Text in UTF-16 and UTF-32, made UTF-8. What is not a character becomes U+FFFD.

use crate::model::{ByteOrder, Encoding};

pub(super) const fn unit_bytes(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Utf16(_) => 2,
        Encoding::Utf32(_) => 4,
    }
}

/// Where the text ends that a NUL ends, in bytes.
pub(super) fn end(bytes: &[u8], encoding: Encoding) -> Option<usize> {
    let size = unit_bytes(encoding);
    bytes.chunks_exact(size).position(|unit| unit.iter().all(|byte| *byte == 0)).map(|at| at * size)
}

/// The text up to its NUL, if it has one.
pub(super) fn utf8(bytes: &[u8], encoding: Encoding) -> String {
    let bytes = &bytes[..end(bytes, encoding).unwrap_or(bytes.len())];
    let whole = bytes.chunks_exact(unit_bytes(encoding));
    let is_cut = !whole.remainder().is_empty();
    let mut text: String = match encoding {
        Encoding::Utf16(order) => {
            let units = whole.map(|unit| match order {
                ByteOrder::Little => u16::from_le_bytes([unit[0], unit[1]]),
                ByteOrder::Big => u16::from_be_bytes([unit[0], unit[1]]),
            });
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Encoding::Utf32(order) => {
            let units = whole.map(|unit| match order {
                ByteOrder::Little => u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]),
                ByteOrder::Big => u32::from_be_bytes([unit[0], unit[1], unit[2], unit[3]]),
            });
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
    };
    if is_cut {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_become_characters() {
        let little = Encoding::Utf16(ByteOrder::Little);
        assert_eq!(utf8(b"h\0\x3d\xd8\x00\xde\0\0zz", little), "h\u{1f600}");
        assert_eq!(utf8(b"\x3d\xd8A\0!", little), "\u{fffd}A\u{fffd}");
        let big = Encoding::Utf32(ByteOrder::Big);
        assert_eq!(utf8(b"\0\0\x20\xac\0\x11\0\0", big), "\u{20ac}\u{fffd}");
        assert_eq!(end(b"a\0\0b\0\0", little), Some(4));
        assert_eq!(end(b"a\0\0b\0", little), None);
    }
}
