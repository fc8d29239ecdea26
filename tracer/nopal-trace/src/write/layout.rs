//! How the packed bytes of an event lie, so that bytes given to the writer can be checked before they are written: one
//! wrong length would make the rest of the packet unreadable.

use crate::model::{Array, Field, Length, Type};

/// The parts of a payload, fixed ones joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Fixed(usize),
    /// This many strings, each with its NUL.
    Strings(u64),
    /// A 32-bit count, then so many elements of a fixed size.
    Sequence {
        element_bytes: usize,
    },
    /// A 32-bit count, then so many strings.
    StringSequence,
}

impl Layout {
    pub(super) fn of(fields: &[Field]) -> Result<Layout, String> {
        let mut layout = Layout::default();
        layout.add_fields(fields)?;
        Ok(layout)
    }

    fn fixed(&mut self, bytes: usize) -> Result<(), String> {
        match self.parts.last_mut() {
            Some(Part::Fixed(sum)) => {
                *sum = sum.checked_add(bytes).ok_or("it is too large")?;
            }
            _ => self.parts.push(Part::Fixed(bytes)),
        }
        Ok(())
    }

    fn add_fields(&mut self, fields: &[Field]) -> Result<(), String> {
        let mut fields = fields.iter().peekable();
        while let Some(field) = fields.next() {
            let of = |reason: String| format!("field `{}`: {reason}", field.name);
            // A length field belongs to the sequence behind it.
            if let Some(next) = fields.peek()
                && let Type::Array(array) = &next.ty
                && array.length == Length::Field(vec![field.raw.clone()])
            {
                if field.ty != Type::unsigned(32) {
                    return Err(of("a sequence's length has 32 bits".to_owned()));
                }
                let part = match fixed_bytes(&array.element) {
                    Some(element_bytes) => Part::Sequence { element_bytes },
                    None if array.element == Type::String => Part::StringSequence,
                    None => return Err(of("a sequence holds numbers or strings".to_owned())),
                };
                self.parts.push(part);
                fields.next();
                continue;
            }
            self.add(&field.ty).map_err(of)?;
        }
        Ok(())
    }

    fn add(&mut self, ty: &Type) -> Result<(), String> {
        if let Some(bytes) = fixed_bytes(ty) {
            return self.fixed(bytes);
        }
        match ty {
            Type::String => self.parts.push(Part::Strings(1)),
            Type::Struct(s) if s.align_bits <= 8 => self.add_fields(&s.fields)?,
            Type::Array(a) if a.element == Type::String => match a.length {
                Length::Fixed(count) => self.parts.push(Part::Strings(count)),
                Length::Field(_) | Length::Located(_) => {
                    return Err("a sequence needs its length right before it".to_owned());
                }
            },
            _ => return Err("this type can be read but not written".to_owned()),
        }
        Ok(())
    }

    /// The number of bytes at the start of `bytes` that this layout takes; `None` if they do not fit it.
    #[inline]
    pub(super) fn measure(&self, bytes: &[u8]) -> Option<usize> {
        let mut at: usize = 0;
        for part in &self.parts {
            let size = match part {
                Part::Fixed(size) => *size,
                Part::Strings(count) => strings(bytes.get(at..)?, *count)?,
                Part::Sequence { element_bytes } => {
                    let count = count_at(bytes, at)? as usize;
                    count.checked_mul(*element_bytes)?.checked_add(4)?
                }
                Part::StringSequence => {
                    strings(bytes.get(at + 4..)?, u64::from(count_at(bytes, at)?))?.checked_add(4)?
                }
            };
            at = at.checked_add(size)?;
            if at > bytes.len() {
                return None;
            }
        }
        Some(at)
    }
}

fn count_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn strings(bytes: &[u8], count: u64) -> Option<usize> {
    let mut size = 0;
    for _ in 0..count {
        size += memchr::memchr(0, bytes.get(size..)?)? + 1;
    }
    Some(size)
}

/// The size of a type that has only one; `None` also for what does not lie on whole bytes.
fn fixed_bytes(ty: &Type) -> Option<usize> {
    let whole = |bits: u32, align: u32| (bits.is_multiple_of(8) && align <= 8).then_some(bits as usize / 8);
    match ty {
        Type::Integer(i) => whole(i.bits, i.align_bits),
        Type::Float(f) => whole(f.bits, f.align_bits),
        Type::Enum(e) => whole(e.integer.bits, e.integer.align_bits),
        Type::Struct(s) if s.align_bits <= 8 => {
            s.fields.iter().try_fold(0usize, |sum, f| sum.checked_add(fixed_bytes(&f.ty)?))
        }
        Type::Array(array) => {
            let Array { element, length: Length::Fixed(count), .. } = array.as_ref() else { return None };
            fixed_bytes(element)?.checked_mul(usize::try_from(*count).ok()?)
        }
        Type::String | Type::Struct(_) | Type::Variant(_) => None,
        // Of CTF 2 alone.
        Type::Bool(_)
        | Type::BitMap(_)
        | Type::Variable(_)
        | Type::Wide(_)
        | Type::Blob(_)
        | Type::Optional(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EventType;

    #[test]
    fn payloads_are_measured() {
        let ty = EventType::new("p", "n")
            .field("a", Type::unsigned(64))
            .field("s", Type::String)
            .field("q", Type::sequence(Type::signed(16)))
            .field("z", Type::array(Type::unsigned(8), 3));
        let layout = Layout::of(&ty.fields).unwrap();
        let good = b"12345678ab\0\x02\0\0\0wwxxzzz";
        assert_eq!(layout.measure(good), Some(good.len()));
        for cut in 0..good.len() {
            assert_eq!(layout.measure(&good[..cut]), None, "{cut}");
        }
        let endless = b"12345678ab\0\xff\xff\xff\xff";
        assert_eq!(layout.measure(endless), None);
    }

    #[test]
    fn what_does_not_lie_on_bytes_is_refused() {
        let ty = EventType::new("p", "n").field("a", Type::unsigned(5));
        assert!(Layout::of(&ty.fields).unwrap_err().contains("`a`"));
    }
}
