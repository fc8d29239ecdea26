//! The types of arguments: how many operands each takes, and what the notes say of it.

/// The type of an argument. The numbers are those of `nopal.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Type {
    Int8 = 1,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float,
    Double,
    /// Text that ends with NUL, or null.
    String,
    /// Bytes with a length, or null.
    Bytes,
    /// Text with a length, or null.
    Text,
}

impl Type {
    /// The type with this number in `nopal.h`.
    pub fn from_number(number: u32) -> Option<Type> {
        const ALL: [Type; 13] = [
            Type::Int8,
            Type::Uint8,
            Type::Int16,
            Type::Uint16,
            Type::Int32,
            Type::Uint32,
            Type::Int64,
            Type::Uint64,
            Type::Float,
            Type::Double,
            Type::String,
            Type::Bytes,
            Type::Text,
        ];
        ALL.into_iter().find(|known| *known as u32 == number)
    }

    /// Address and length are two operands, anything else is one.
    pub const fn n_operands(self) -> usize {
        if self.has_length() { 2 } else { 1 }
    }

    pub const fn has_length(self) -> bool {
        matches!(self, Type::Bytes | Type::Text)
    }

    /// The number before the `@` of its operand: size in bytes, negative if signed.
    pub(crate) fn size(self) -> i8 {
        match self {
            Type::Int8 => -1,
            Type::Uint8 => 1,
            Type::Int16 => -2,
            Type::Uint16 => 2,
            Type::Int32 => -4,
            Type::Uint32 => 4,
            Type::Int64 => -8,
            Type::Uint64 | Type::String | Type::Bytes | Type::Text => 8,
            // The bits, unsigned: bcc and bpftrace cannot read an operand that is marked as a float, and lose what follows.
            Type::Float => 4,
            Type::Double => 8,
        }
    }

    /// The kind in the nopal note (docs/formats.md, section 3).
    pub(crate) fn kind(self) -> u8 {
        match self {
            Type::Int8 | Type::Int16 | Type::Int32 | Type::Int64 => 1,
            Type::Uint8 | Type::Uint16 | Type::Uint32 | Type::Uint64 => 2,
            Type::String => 5,
            Type::Text => 6,
            Type::Bytes => 7,
            Type::Float | Type::Double => 8,
        }
    }

    /// As C declares it.
    pub(crate) fn c_name(self) -> &'static str {
        match self {
            Type::Int8 => "int8_t",
            Type::Uint8 => "uint8_t",
            Type::Int16 => "int16_t",
            Type::Uint16 => "uint16_t",
            Type::Int32 => "int32_t",
            Type::Uint32 => "uint32_t",
            Type::Int64 => "int64_t",
            Type::Uint64 => "uint64_t",
            Type::Float => "float",
            Type::Double => "double",
            Type::String | Type::Text => "const char *",
            Type::Bytes => "const void *",
        }
    }

    /// Whether the value is an address that a tracer may follow while the probe fires.
    pub(crate) fn is_address(self) -> bool {
        matches!(self, Type::String | Type::Bytes | Type::Text)
    }
}

/// An argument as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub type_: Type,
}

impl Argument {
    pub fn new(name: impl Into<String>, type_: Type) -> Argument {
        Argument { name: name.into(), type_ }
    }
}
