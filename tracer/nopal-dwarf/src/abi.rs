//! How calls of C pass their parameters (System V ABI, x86-64, section 3.2.3), for code that says only where it copied them to.

use crate::place::{Place, Register, Told};
use crate::types::{Member, RecordId, Type};

const N_NUMBERS: usize = 6;
const N_VECTORS: u8 = 8;
const EIGHT: u64 = 8;
/// What fits into sixteen bytes has no more parts, within records and arrays within it; information that says so is not true.
const MAX_PARTS: u32 = 256;

/// As far as it says how values are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Rust,
    Other,
}

/// What the rules must know of records.
pub(crate) trait Records {
    /// `None`: it is only declared, or damaged.
    fn members(&self, id: RecordId) -> Option<Vec<Member>>;

    /// C++ passes what has a destructor by its address. `None`: the information does not say.
    fn is_passed_by_address(&self, id: RecordId, language: Language) -> Option<bool>;
}

/// Hands out registers in the order of the parameters.
#[derive(Debug)]
pub(crate) struct Rules {
    language: Language,
    n_numbers: usize,
    n_vectors: u8,
    /// A parameter that nobody knows how it is passed: nor are those behind it known.
    is_lost: bool,
}

/// One part of eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Number,
    Vector,
}

/// How a value travels.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Nothing,
    One(Class),
    Two(Class, Class),
    Stack,
    Unknown,
}

impl Rules {
    /// What is returned in memory takes the place of the first parameter: the address of that memory.
    pub(crate) fn new(info: &dyn Records, language: Language, returned: &Type) -> Rules {
        let mut rules = Rules { language, n_numbers: 0, n_vectors: 0, is_lost: false };
        let by_address = matches!(returned, Type::Record(record) if info.is_passed_by_address(record.id, language) == Some(true));
        match way(info, language, returned) {
            Way::One(_) if by_address => rules.n_numbers = 1,
            Way::Stack => rules.n_numbers = 1,
            Way::Unknown => rules.is_lost = true,
            Way::Nothing | Way::One(_) | Way::Two(..) => {}
        }
        rules
    }

    pub(crate) fn place(&mut self, info: &dyn Records, ty: &Type, told: Option<Told>) -> Place {
        if self.is_lost {
            return Place::Elsewhere;
        }
        let way = match (told, ty) {
            (Some(Told::AddressByRules), _) => Way::One(Class::Number),
            (Some(Told::ByRules), Type::Record(_)) if self.language == Language::Other => {
                record_way(info, ty)
            }
            _ => way(info, self.language, ty),
        };
        match way {
            Way::Nothing | Way::Stack => Place::Elsewhere,
            Way::One(class) => self.take(class),
            Way::Two(first, second) => {
                let n_numbers = [first, second].iter().filter(|class| **class == Class::Number).count();
                let n_vectors = 2 - n_numbers as u8;
                // All of it in registers, or nothing.
                if self.n_numbers + n_numbers <= N_NUMBERS && self.n_vectors + n_vectors <= N_VECTORS {
                    self.n_numbers += n_numbers;
                    self.n_vectors += n_vectors;
                }
                Place::Elsewhere
            }
            Way::Unknown => {
                self.is_lost = true;
                Place::Elsewhere
            }
        }
    }

    fn take(&mut self, class: Class) -> Place {
        match class {
            Class::Number => {
                let register = Register::of_argument(self.n_numbers);
                self.n_numbers = (self.n_numbers + 1).min(N_NUMBERS);
                register.map_or(Place::Elsewhere, Place::Register)
            }
            Class::Vector if self.n_vectors < N_VECTORS => {
                self.n_vectors += 1;
                Place::Vector(self.n_vectors - 1)
            }
            Class::Vector => Place::Elsewhere,
        }
    }
}

fn way(info: &dyn Records, language: Language, ty: &Type) -> Way {
    match ty {
        Type::Void => Way::Nothing,
        Type::Int { size_bytes: 16, .. } => Way::Two(Class::Number, Class::Number),
        Type::Int { .. } | Type::Bool | Type::Char | Type::Enum { .. } | Type::Pointer { .. } => {
            Way::One(Class::Number)
        }
        Type::Float { size_bytes: 4 | 8 } => Way::One(Class::Vector),
        // `long double`.
        Type::Float { .. } => Way::Stack,
        Type::Record(record) => match info.is_passed_by_address(record.id, language) {
            Some(true) => Way::One(Class::Number),
            Some(false) => record_way(info, ty),
            None => Way::Unknown,
        },
        Type::Array { .. } | Type::Other { .. } => Way::Unknown,
    }
}

fn record_way(info: &dyn Records, ty: &Type) -> Way {
    let size_bytes = ty.size_bytes();
    if size_bytes > 2 * EIGHT {
        return Way::Stack;
    }
    let mut parts = Parts { classes: [None; 2], n_left: MAX_PARTS };
    if parts.classify(info, ty, 0).is_none() {
        return Way::Unknown;
    }
    match parts.classes {
        _ if size_bytes == 0 => Way::Nothing,
        [Some(only), None] => Way::One(only),
        [Some(first), Some(second)] => Way::Two(first, second),
        [None, _] => Way::Unknown,
    }
}

/// What a record of at most sixteen bytes has in each eight of them.
struct Parts {
    classes: [Option<Class>; 2],
    n_left: u32,
}

impl Parts {
    /// A number if any number is in it. `None`: what cannot be told.
    fn classify(&mut self, info: &dyn Records, ty: &Type, at: u64) -> Option<()> {
        self.n_left = self.n_left.checked_sub(1)?;
        match ty {
            Type::Float { size_bytes: 4 | 8 } => self.put(at, Class::Vector),
            Type::Int { size_bytes: 1..=8, .. }
            | Type::Bool
            | Type::Char
            | Type::Enum { .. }
            | Type::Pointer { .. } => self.put(at, Class::Number),
            Type::Array { of, n } => {
                for index in 0..u64::from(*n) {
                    self.classify(info, of, at.checked_add(index.checked_mul(of.size_bytes())?)?)?;
                }
                Some(())
            }
            Type::Record(record) => {
                for Member { offset, ty, .. } in info.members(record.id)? {
                    self.classify(info, &ty, at.checked_add(offset)?)?;
                }
                Some(())
            }
            Type::Int { .. } | Type::Float { .. } | Type::Void | Type::Other { .. } => None,
        }
    }

    fn put(&mut self, at: u64, class: Class) -> Option<()> {
        let part = self.classes.get_mut(usize::try_from(at / EIGHT).ok()?)?;
        *part = Some(if *part == Some(Class::Number) { Class::Number } else { class });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Record;

    /// Every record has a thousand members, all of this type.
    struct Endless(Type);

    const ID: RecordId = RecordId { part: 0, at: 0 };

    fn itself() -> Type {
        Type::Record(Record { id: ID, name: "struct a".into(), size_bytes: 16, is_union: false })
    }

    impl Records for Endless {
        fn members(&self, _: RecordId) -> Option<Vec<Member>> {
            let member = Member { name: "a".into(), offset: 0, ty: self.0.clone(), bits: None };
            Some(vec![member; 1000])
        }

        fn is_passed_by_address(&self, _: RecordId, _: Language) -> Option<bool> {
            Some(false)
        }
    }

    #[test]
    fn records_and_arrays_within_themselves_have_an_end() {
        let number = Type::Int { size_bytes: 4, is_signed: true };
        let arrays = (0..8).fold(
            Type::Record(Record { id: ID, name: "struct b".into(), size_bytes: 0, is_union: false }),
            |of, _| Type::Array { of: Box::new(of), n: u32::MAX },
        );
        for records in [Endless(itself()), Endless(arrays)] {
            let mut rules = Rules::new(&records, Language::C, &Type::Void);
            assert_eq!(rules.place(&records, &itself(), None), Place::Elsewhere);
            // Nor is it known where the next one is.
            assert_eq!(rules.place(&records, &number, None), Place::Elsewhere);
        }
    }
}
