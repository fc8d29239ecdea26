//! Types of C as a script names them in casts and in its own `struct` definitions, and where the members lie.

use std::collections::HashMap;

/// A type as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CType {
    Void,
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    Bool,
    /// An `Int` that is text where it stands in an array.
    Char,
    Float,
    Pointer(Box<CType>),
    Array(Box<CType>, u32),
    /// `struct name`, `union name`; looked up when a member is wanted.
    Record(String),
    Enum(String),
}

impl CType {
    pub const U64: CType = CType::Int { size_bytes: 8, is_signed: false };

    pub fn pointer(self) -> CType {
        CType::Pointer(Box::new(self))
    }

    /// As a script would write it.
    pub fn text(&self) -> String {
        match self {
            CType::Void => "void".into(),
            CType::Bool => "bool".into(),
            CType::Char => "char".into(),
            CType::Float => "double".into(),
            CType::Int { size_bytes, is_signed } => {
                format!("{}int{}", if *is_signed { "" } else { "u" }, u32::from(*size_bytes) * 8)
            }
            CType::Pointer(to) => format!("{} *", to.text()),
            CType::Array(of, n) => format!("{}[{n}]", of.text()),
            CType::Record(name) => name.clone(),
            CType::Enum(name) => name.clone(),
        }
    }
}

/// `struct` or `union` with the places of its members.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    pub size_bytes: u32,
    pub align_bytes: u32,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Empty where its own members stand in for it.
    pub name: String,
    pub offset: u32,
    pub value_type: CType,
    /// Lowest bit and number of bits, counted from `offset`.
    pub bits: Option<(u8, u8)>,
}

/// What a script defines. Names of records are `struct x` and `union x`.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub(crate) records: HashMap<String, Record>,
    /// Labels of enums, by name and in the order of the script.
    pub(crate) enums: HashMap<String, Vec<(i64, String)>>,
    pub(crate) constants: HashMap<String, i64>,
    pub(crate) typedefs: HashMap<String, CType>,
    /// Bytes of records of the kernel that members of the script's own are.
    pub(crate) of_kernel: HashMap<String, u64>,
}

impl Records {
    /// Size and alignment in bytes, if known.
    pub(crate) fn layout(&self, value_type: &CType) -> Option<(u64, u64)> {
        Some(match value_type {
            CType::Void => return None,
            CType::Bool | CType::Char => (1, 1),
            CType::Int { size_bytes, .. } => (u64::from(*size_bytes), u64::from(*size_bytes)),
            CType::Float | CType::Pointer(_) => (8, 8),
            CType::Enum(_) => (4, 4),
            CType::Array(of, n) => {
                let (size_bytes, align_bytes) = self.layout(of)?;
                (size_bytes.checked_mul(u64::from(*n))?, align_bytes)
            }
            CType::Record(name) => match self.records.get(name) {
                Some(record) => (u64::from(record.size_bytes), u64::from(record.align_bytes)),
                None => (*self.of_kernel.get(name)?, 8),
            },
        })
    }
}
