//! Types, as far as traces and scripts need them.

/// A type without the names it was given on the way: what a `typedef` or `const` leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Void,
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    Bool,
    Char,
    Float {
        size_bytes: u8,
    },
    Enum {
        size_bytes: u8,
        is_signed: bool,
        labels: Vec<Label>,
    },
    Pointer {
        to: Box<Type>,
        is_to_const: bool,
    },
    Array {
        of: Box<Type>,
        n: u32,
    },
    Record(Record),
    /// A reference to a function, a vector of the processor, a type of another language, or one that is cut.
    Other {
        size_bytes: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub value: i64,
    pub text: String,
}

/// A `struct`, `class` or `union`. Its members are asked for by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: RecordId,
    /// `struct conn`, `union x`; one without a name has a number for one.
    pub name: String,
    pub size_bytes: u64,
    pub is_union: bool,
}

/// Where the information has it: in which of its files, and where there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordId {
    pub(crate) part: usize,
    pub(crate) at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Empty where its own members stand in for it.
    pub name: String,
    pub offset: u64,
    pub ty: Type,
    /// Lowest bit and number of bits, counted from `offset`.
    pub bits: Option<(u8, u8)>,
}

impl Type {
    pub fn size_bytes(&self) -> u64 {
        match self {
            Type::Void => 0,
            Type::Int { size_bytes, .. } | Type::Float { size_bytes } | Type::Enum { size_bytes, .. } => {
                u64::from(*size_bytes)
            }
            Type::Bool | Type::Char => 1,
            Type::Pointer { .. } => 8,
            Type::Array { of, n } => of.size_bytes().saturating_mul(u64::from(*n)),
            Type::Record(record) => record.size_bytes,
            Type::Other { size_bytes } => *size_bytes,
        }
    }

    /// Whether it leads to text that the function does not write.
    pub fn is_text(&self) -> bool {
        matches!(self, Type::Pointer { to, is_to_const: true } if **to == Type::Char)
    }
}
