//! Types of the kernel, as it describes them in /sys/kernel/btf/vmlinux. Checks every offset it is given.
//!
//! ```text
//! u16 0xeb9f, u8 version, u8 flags, u32 header length, then offset and length of the types and of the names
//! a type: u32 name, u32 kind << 24 | number of parts (bit 31: members may be bit fields), u32 size or type, then its parts
//! ```

mod declare;
mod padding;

use nopal_script::ctype::{CType, Member, Record};
use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const FLOAT: u32 = 16;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;
/// A typedef of a typedef of a ... has an end.
const MAX_CHAIN: u32 = 64;

#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Where each type begins; the first is `void` and has no place.
    types: Vec<usize>,
    names_at: usize,
    /// `struct x`, `union x`: the type.
    records: HashMap<String, u32>,
}

/// The first three words of a type.
#[derive(Debug, Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    n_parts: u32,
    has_bit_fields: bool,
    /// Or the type it is about.
    size: u32,
    parts_at: usize,
}

impl Btf {
    /// Of the kernel that runs, if it tells.
    pub(crate) fn of_kernel() -> Option<Btf> {
        Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux").ok()?)
    }

    fn parse(bytes: Vec<u8>) -> Option<Btf> {
        let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
        let word = |at: usize| word(&bytes, at).map(|word| word as usize);
        let header_bytes = word(4)?;
        let (types_at, types_bytes) = (header_bytes.checked_add(word(8)?)?, word(12)?);
        let names_at = header_bytes.checked_add(word(16)?)?;
        let end = types_at.checked_add(types_bytes)?;
        if magic != MAGIC || end > bytes.len() || names_at > bytes.len() {
            return None;
        }
        let mut btf = Btf { bytes, types: vec![0], names_at, records: HashMap::new() };
        let mut at = types_at;
        while at < end {
            let head = btf.head_at(at)?;
            let part_bytes = match head.kind {
                INT | 14 | 17 => 4,
                ARRAY => 12,
                STRUCT | UNION | 15 | ENUM64 => 12 * head.n_parts as usize,
                ENUM | PROTOTYPE => 8 * head.n_parts as usize,
                POINTER | FORWARD..=FUNCTION | FLOAT | TYPE_TAG => 0,
                // What a later kernel has more of cannot be stepped over.
                _ => return None,
            };
            if let STRUCT | UNION = head.kind {
                let name = btf.record_name(btf.types.len() as u32, &head);
                btf.records.entry(name).or_insert(btf.types.len() as u32);
            }
            btf.types.push(at);
            at = head.parts_at.checked_add(part_bytes)?;
        }
        Some(btf)
    }

    /// By its full name: `struct task_struct`.
    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        let head = self.head(*self.records.get(name)?)?;
        let mut members = Vec::new();
        for index in 0..head.n_parts as usize {
            let at = head.parts_at + 12 * index;
            let (name, member_type, place) =
                (word(&self.bytes, at)?, word(&self.bytes, at + 4)?, word(&self.bytes, at + 8)?);
            let value_type = self.c_type(member_type, 0)?;
            let (bit, n_bits) =
                if head.has_bit_fields { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let (offset, bits) = match n_bits {
                0 => (bit / 8, None),
                n_bits => {
                    // The unit of its type that it lies in, as a compiler reads it.
                    let unit = self.size_bytes(member_type, 0)?.clamp(1, 8);
                    let offset = bit / 8 / unit * unit;
                    (offset, Some(((bit - 8 * offset) as u8, n_bits as u8)))
                }
            };
            members.push(Member { name: self.name(name).to_owned(), offset, value_type, bits });
        }
        Some(Record { size_bytes: head.size, align_bytes: 8, members })
    }

    /// Bytes of a record.
    pub(crate) fn record_bytes(&self, name: &str) -> Option<u64> {
        Some(u64::from(self.head(*self.records.get(name)?)?.size))
    }

    /// The number of a label of any enum.
    pub(crate) fn constant(&self, label: &str) -> Option<i64> {
        (1..self.types.len() as u32).find_map(|id| {
            let head = self.head(id).filter(|head| matches!(head.kind, ENUM | ENUM64))?;
            self.labels(&head).find(|(known, _)| *known == label).map(|(_, value)| value)
        })
    }

    /// The labels of an enum.
    fn labels(&self, head: &Head) -> impl Iterator<Item = (&str, i64)> {
        let (is_wide, is_signed, first) = (head.kind == ENUM64, head.has_bit_fields, head.parts_at);
        let step = if is_wide { 12 } else { 8 };
        (0..head.n_parts as usize).map_while(move |index| {
            let at = first + step * index;
            let low = word(&self.bytes, at + 4)?;
            let value = match is_wide {
                true => (u64::from(word(&self.bytes, at + 8)?) << 32 | u64::from(low)) as i64,
                // The bit that says members may be bit fields says here that the numbers are signed.
                false if is_signed => i64::from(low as i32),
                false => i64::from(low),
            };
            Some((self.name(word(&self.bytes, at)?), value))
        })
    }

    fn c_type(&self, id: u32, n_chained: u32) -> Option<CType> {
        if id == 0 {
            return Some(CType::Void);
        }
        let head = self.head(id).filter(|_| n_chained < MAX_CHAIN)?;
        Some(match head.kind {
            INT => {
                let is_signed = word(&self.bytes, head.parts_at)? >> 24 & 1 == 1;
                match (self.name(head.name), head.size) {
                    ("char", _) => CType::Char,
                    (_, size @ (1 | 2 | 4 | 8)) => CType::Int { size_bytes: size as u8, is_signed },
                    (_, size) => CType::Array(Box::new(CType::Int { size_bytes: 1, is_signed: false }), size),
                }
            }
            // What it leads to is looked at when it is followed: records point at each other.
            POINTER => self.c_type(head.size, n_chained + 1).unwrap_or(CType::Void).pointer(),
            ARRAY => {
                let of = self.c_type(word(&self.bytes, head.parts_at)?, n_chained + 1)?;
                CType::Array(Box::new(of), word(&self.bytes, head.parts_at + 8)?)
            }
            STRUCT | UNION => CType::Record(self.record_name(id, &head)),
            FORWARD => {
                let word = if head.has_bit_fields { "union" } else { "struct" };
                CType::Record(format!("{word} {}", self.name(head.name)))
            }
            ENUM | ENUM64 => {
                let size_bytes = if matches!(head.size, 1 | 2 | 4 | 8) { head.size as u8 } else { 4 };
                CType::Int { size_bytes, is_signed: head.has_bit_fields }
            }
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => self.c_type(head.size, n_chained + 1)?,
            FLOAT if head.size == 8 => CType::Float,
            _ => CType::Void,
        })
    }

    /// Of a number.
    fn size_bytes(&self, id: u32, n_chained: u32) -> Option<u32> {
        let head = self.head(id).filter(|_| n_chained < MAX_CHAIN)?;
        match head.kind {
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => self.size_bytes(head.size, n_chained + 1),
            _ => Some(head.size),
        }
    }

    fn record_name(&self, id: u32, head: &Head) -> String {
        let word = if head.kind == UNION { "union" } else { "struct" };
        match self.name(head.name) {
            "" => format!("{word} (of the kernel {id})"),
            name => format!("{word} {name}"),
        }
    }

    fn head(&self, id: u32) -> Option<Head> {
        self.types.get(id as usize).filter(|at| **at > 0).and_then(|at| self.head_at(*at))
    }

    fn head_at(&self, at: usize) -> Option<Head> {
        let info = word(&self.bytes, at + 4)?;
        Some(Head {
            name: word(&self.bytes, at)?,
            kind: info >> 24 & 0x1f,
            n_parts: info & 0xffff,
            has_bit_fields: info >> 31 == 1,
            size: word(&self.bytes, at + 8)?,
            parts_at: at + 12,
        })
    }

    fn name(&self, offset: u32) -> &str {
        let text = self.bytes.get(self.names_at..).and_then(|names| names.get(offset as usize..));
        let text = text.unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        std::str::from_utf8(&text[..end]).unwrap_or_default()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct a { char text[4]; const int n; struct { unsigned low : 3, high : 5; }; struct a *next; }; enum e { ONE = 1 };`
    fn small() -> Vec<u8> {
        let names = b"\0char\0int\0unsigned\0a\0text\0n\0low\0high\0next\0e\0ONE\0";
        let name = |word: &str| {
            let wanted = [word.as_bytes(), b"\0"].concat();
            names.windows(wanted.len()).position(|window| window == wanted).unwrap() as u32
        };
        let kind = |kind: u32, n_parts: u32| kind << 24 | n_parts;
        let types: Vec<u32> = [
            &[name("char"), kind(INT, 0), 1, 8][..],
            &[name("int"), kind(INT, 0), 4, 1 << 24 | 32],
            &[name("unsigned"), kind(INT, 0), 4, 32],
            &[0, kind(ARRAY, 0), 0, 1, 3, 4],
            &[0, kind(CONST, 0), 2],
            &[0, kind(STRUCT, 2) | 1 << 31, 4, name("low"), 3, 3 << 24, name("high"), 3, 5 << 24 | 3],
            &[0, kind(POINTER, 0), 8],
            &[name("a"), kind(STRUCT, 4), 24],
            &[name("text"), 4, 0, name("n"), 5, 32, 0, 6, 64, name("next"), 7, 128],
            &[name("e"), kind(ENUM, 1), 4, name("ONE"), 1],
        ]
        .concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = [24, 0, types.len() as u32, types.len() as u32, names.len() as u32];
        let mut bytes = [MAGIC.to_le_bytes(), [1, 0]].concat();
        bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        [bytes, types, names.to_vec()].concat()
    }

    #[test]
    fn a_record_with_everything_in_it() {
        let btf = Btf::parse(small()).unwrap();
        let record = btf.record("struct a").unwrap();
        let anonymous = "struct (of the kernel 6)";
        let member =
            |name: &str, offset, value_type| Member { name: name.into(), offset, value_type, bits: None };
        assert_eq!(
            record.members,
            [
                member("text", 0, CType::Array(Box::new(CType::Char), 4)),
                member("n", 4, CType::Int { size_bytes: 4, is_signed: true }),
                member("", 8, CType::Record(anonymous.into())),
                member("next", 16, CType::Record("struct a".into()).pointer()),
            ]
        );
        assert_eq!(record.size_bytes, 24);
        let inner: Vec<_> =
            btf.record(anonymous).unwrap().members.into_iter().map(|m| (m.name, m.bits)).collect();
        assert_eq!(inner, [("low".to_owned(), Some((0, 3))), ("high".to_owned(), Some((3, 5)))]);
        assert_eq!((btf.constant("ONE"), btf.constant("TWO")), (Some(1), None));
        assert_eq!(btf.record("struct b"), None);
    }

    #[test]
    fn definitions_are_those_of_c() {
        let btf = Btf::parse(small()).unwrap();
        let text = |name: &str| btf.definitions(|known| known == name).pop().map(|(_, text)| text);
        assert_eq!(text("enum e").as_deref(), Some("enum e {\n\tONE = 1,\n}"));
        let record = "struct a {\n\tchar text[4];\n\tconst int n;\n\tstruct {\n\t\tunsigned low: 3;\n\t\tunsigned high: 5;\n\t};\n\tstruct a *next;\n}";
        assert_eq!(text("struct a").as_deref(), Some(record));
        assert_eq!(text("struct b"), None);
    }

    #[test]
    fn damaged_descriptions_are_no_types() {
        let whole = small();
        for length in 0..whole.len() {
            // Names may be cut; nothing may be read beyond the end.
            if let Some(btf) = Btf::parse(whole[..length].to_vec()) {
                let _ = (btf.record("struct a"), btf.constant("ONE"));
            }
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            if let Some(btf) = Btf::parse(bytes) {
                let _ = (btf.record("struct a"), btf.constant("ONE"), btf.definitions(|_| true));
            }
        }
    }
}
