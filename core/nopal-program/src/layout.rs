//! Bytes as C lays them out: whole records and arrays that a script keeps, compares and prints.

/// What the bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Layout {
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    Bool,
    Float,
    Pointer,
    Array {
        of: Box<Layout>,
        n: u32,
    },
    /// An array of characters: text up to its NUL.
    Text {
        n: u32,
    },
    Record {
        size_bytes: u32,
        members: Vec<Member>,
    },
}

/// A member of a record. Those of an unnamed record within stand with the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    pub name: String,
    pub offset: u32,
    /// Lowest bit and number of bits, counted from `offset`.
    pub bits: Option<(u8, u8)>,
    pub layout: Layout,
}

impl Layout {
    pub fn size_bytes(&self) -> u32 {
        match self {
            Layout::Int { size_bytes, .. } => u32::from(*size_bytes),
            Layout::Bool => 1,
            Layout::Float | Layout::Pointer => 8,
            Layout::Array { of, n } => of.size_bytes().saturating_mul(*n),
            Layout::Text { n } => *n,
            Layout::Record { size_bytes, .. } => *size_bytes,
        }
    }
}

/// The number at the beginning of some bytes; of fewer than it has, what is there.
pub fn number(bytes: &[u8], size_bytes: u8, is_signed: bool, bits: Option<(u8, u8)>) -> i64 {
    let size = usize::from(size_bytes.clamp(1, 8));
    let mut word = [0u8; 8];
    let n = size.min(bytes.len());
    word[..n].copy_from_slice(&bytes[..n]);
    let raw = u64::from_le_bytes(word);
    let (shift, width) = bits.map_or((0, 8 * size as u32), |(low, n)| (u32::from(low), u32::from(n)));
    let up = 64u32.saturating_sub(shift + width);
    let down = 64 - width.clamp(1, 64);
    match is_signed {
        true => (raw << up) as i64 >> down,
        false => (raw << up >> down) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_width_and_sign() {
        let bytes = [0xfe, 0xff, 0xff, 0x7f, 1];
        for (size_bytes, is_signed, bits, want) in [
            (1, true, None, -2),
            (1, false, None, 0xfe),
            (2, true, None, -2),
            (4, false, None, 0x7fff_fffe),
            (8, false, None, 0x1_7fff_fffe),
            (1, false, Some((1, 3)), 7),
            (1, true, Some((1, 3)), -1),
            (1, false, Some((0, 1)), 0),
        ] {
            assert_eq!(number(&bytes, size_bytes, is_signed, bits), want, "{size_bytes} {bits:?}");
        }
        assert_eq!(number(&[], 4, true, None), 0);
    }
}
