//! Probes and their sites as read from one ELF file.

use crate::operand::{Operand, OperandError};

/// A probe `provider:name` of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    pub provider: String,
    pub name: String,
    pub sites: Vec<Site>,
    /// What the probe says of itself: from its nopal note, a `.d` file or the built-in catalog.
    pub description: Option<Description>,
}

/// One address of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Link-time virtual address, already corrected by `.stapsdt.base`.
    pub address: u64,
    /// Where that address is in the file.
    pub file_offset: u64,
    pub semaphore: Option<Semaphore>,
    pub args: Vec<Arg>,
    /// The bytes in the file from the site on; fewer than 32 only at the end of a segment.
    pub code: Vec<u8>,
    /// How many bytes further on a restartable sequence of the program begins; 0: the site is inside one. `None`: the file
    /// describes none from here on.
    pub until_restartable: Option<u64>,
    /// For a site that no note tells of, but that is an edge of a function.
    pub edge: Option<Edge>,
}

/// Where a function is entered or left, and the code around.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub side: Side,
    /// Link-time address of the function.
    pub function: u64,
    /// Link-time address of `code`.
    pub start: u64,
    /// A straight line of instructions that is run as a whole, and some bytes behind it.
    pub code: Vec<u8>,
    /// How much of `code` the line is. At an exit it ends with the instruction that leaves.
    pub line_len: usize,
    /// Bytes behind an exit that are never run.
    pub n_filling: usize,
    /// Of a function of Go, which has its arguments in other registers.
    pub is_go: bool,
    /// Why only the kernel can open it, if that is so.
    pub unfit: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Entry,
    Return,
    /// A jump to another function, which returns to the caller of this one.
    Tail,
    /// The same, if a condition holds.
    ConditionalTail,
    /// Every return, at the function's entry: the kernel puts its own return address in the place of the caller's.
    AnyReturn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Semaphore {
    pub address: u64,
    pub file_offset: u64,
}

/// One argument of a site. An operand that cannot be read costs this argument only.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    /// As the note has it, such as `-4@%eax`.
    pub text: String,
    pub operand: Result<Operand, OperandError>,
}

/// What a probe says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Description {
    pub doc: String,
    pub args: Vec<ArgDescription>,
    pub pair: Option<Pair>,
    pub log_level: Option<i32>,
    pub model_uri: Option<String>,
    /// Operands (1-based) with address and length of the block that holds the packed fields.
    pub packed: Option<(u8, u8)>,
}

impl Description {
    /// Takes over what another note says of the same probe and none has said before.
    pub fn add(&mut self, other: Description) {
        if self.doc.is_empty() {
            self.doc = other.doc;
        }
        if self.args.is_empty() && self.packed.is_none() {
            (self.args, self.packed) = (other.args, other.packed);
        }
        self.pair = self.pair.take().or(other.pair);
        self.log_level = self.log_level.or(other.log_level);
        self.model_uri = self.model_uri.take().or(other.model_uri);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub role: PairRole,
    pub partner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairRole {
    Start,
    End,
}

/// What one argument means. `docs/formats.md` section 3 has the same in bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArgDescription {
    /// 1-based operand; `None` for a field of the packed block.
    pub operand: Option<u8>,
    pub kind: Kind,
    pub name: String,
    pub c_type: String,
    pub doc: String,
    /// Operand (1-based) with the length in bytes of a string or byte string.
    pub length_operand: Option<u8>,
    pub labels: Vec<Label>,
    pub element: Option<Element>,
    pub is_big_endian: bool,
    /// 2, 8, 10 or 16.
    pub base: Option<u8>,
    pub is_trusted: bool,
    /// Size of a field in the packed block.
    pub size_bytes: Option<u8>,
    /// Of an enum in the packed block, where no operand tells.
    pub is_signed: bool,
    /// For conditions only: it is not part of the recorded event.
    pub is_unwritten: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    #[default]
    Unknown = 0,
    Signed = 1,
    Unsigned = 2,
    Pointer = 3,
    Bool = 4,
    /// Ends at its NUL.
    CString = 5,
    /// Has its length in another operand.
    Str = 6,
    Bytes = 7,
    Float = 8,
    Enum = 9,
    Array = 10,
    Sequence = 11,
    Char = 12,
}

impl Kind {
    /// The kind with this number in a nopal note; kinds of later versions are unknown.
    pub fn from_code(code: u8) -> Kind {
        match code {
            1 => Kind::Signed,
            2 => Kind::Unsigned,
            3 => Kind::Pointer,
            4 => Kind::Bool,
            5 => Kind::CString,
            6 => Kind::Str,
            7 => Kind::Bytes,
            8 => Kind::Float,
            9 => Kind::Enum,
            10 => Kind::Array,
            11 => Kind::Sequence,
            12 => Kind::Char,
            _ => Kind::Unknown,
        }
    }
}

/// One row of an enum table; `first == last` but for ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub first: i64,
    pub last: i64,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    pub kind: Kind,
    pub size_bytes: u8,
    /// 0: the length operand counts the elements.
    pub count: u32,
}
