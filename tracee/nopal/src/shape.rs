//! What a type of argument looks like in the notes. The numbers are those of the note format.

/// The meaning of an argument's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Signed = 1,
    Unsigned = 2,
    Pointer = 3,
    Bool = 4,
    /// Ends at its NUL.
    CString = 5,
    /// UTF-8 with its length in the next operand.
    Str = 6,
    Bytes = 7,
    Float = 8,
    Enum = 9,
    Sequence = 11,
    Char = 12,
}

/// The elements of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    pub kind: Kind,
    pub size_bytes: u8,
}

/// One type of argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub type_name: &'static str,
    pub kind: Kind,
    pub size_bytes: u8,
    /// A second operand holds the length.
    pub has_length: bool,
    pub element: Option<Element>,
    /// The pointer is valid for the length, or up to a NUL, whenever the probe fires.
    pub is_trusted: bool,
}

impl Shape {
    pub const fn number(type_name: &'static str, kind: Kind, size_bytes: u8) -> Self {
        Shape { type_name, kind, size_bytes, has_length: false, element: None, is_trusted: false }
    }

    pub const fn pointer(type_name: &'static str, kind: Kind, is_trusted: bool) -> Self {
        Shape { type_name, kind, size_bytes: 8, has_length: false, element: None, is_trusted }
    }

    pub const fn sized(type_name: &'static str, kind: Kind, element: Option<Element>) -> Self {
        Shape { type_name, kind, size_bytes: 8, has_length: true, element, is_trusted: true }
    }

    /// The size as an operand spells it: negative for a signed integer.
    pub const fn operand_size(&self) -> i32 {
        match self.kind {
            Kind::Signed => -(self.size_bytes as i32),
            _ => self.size_bytes as i32,
        }
    }
}
