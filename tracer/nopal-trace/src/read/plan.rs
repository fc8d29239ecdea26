//! Decode plans: the layout of an event as a flat list of steps, so that no type tree is walked per event.
//! `compile.rs` makes plans of types, `decode.rs` runs them.

mod compile;

pub(crate) use compile::compile;

use super::locate::Name;
use crate::location::ScopeKind;
use crate::model::{BitMap, Encoding, Enum, Span};
use crate::role::Roles;
use std::sync::Arc;

/// Values that lengths and variants refer to. The first ones belong to scopes that several events share.
pub(super) const N_SLOTS: usize = 256;
/// Arrays within arrays.
pub(super) const MAX_LOOPS: usize = 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    /// Size in bits, from a whole byte on, if every event has the same and nothing in it needs looking at.
    pub fixed_bits: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub kind: Kind,
    pub align_bits: u32,
    /// Where the value is kept for lengths and variants; `u16::MAX` for nowhere.
    pub slot: u16,
    /// The step is the element of an array, so its index is its name.
    pub is_element: bool,
    pub name: Arc<str>,
    /// What stands before the value in text: ` name = ` or `, name = `.
    pub lead: Box<[u8]>,
    /// What stands before it in JSON: `"name":`.
    pub key: Box<[u8]>,
    /// What the value means to the reader itself.
    pub roles: Roles,
    /// Its first bit is where its last would be.
    pub is_reversed: bool,
    /// The format's own bookkeeping, of no interest to people.
    pub is_hidden: bool,
    /// A number that stands for a character.
    pub is_character: bool,
}

#[derive(Debug, Clone)]
pub enum Kind {
    /// Nothing but an alignment.
    Align,
    Integer {
        bits: u32,
        is_signed: bool,
        is_big: bool,
        base: u8,
    },
    Float {
        bits: u32,
        is_big: bool,
    },
    Enum {
        bits: u32,
        is_big: bool,
        table: Arc<Enum>,
    },
    String,
    /// An array of characters.
    Text {
        length: Count,
    },
    Array {
        length: Count,
        end: u32,
    },
    ArrayEnd {
        begin: u32,
    },
    Struct,
    StructEnd,
    /// The slot of the step itself, if it has one, is emptied: none of the values in the options is there yet.
    Variant {
        tag: u16,
        /// `None`: as the arm has it that fits.
        is_signed: Option<bool>,
        arms: Vec<Arm>,
    },
    VariantEnd {
        next: u32,
    },
    Bool {
        bits: u32,
        is_big: bool,
    },
    BitMap {
        bits: u32,
        is_big: bool,
        map: Arc<BitMap>,
    },
    /// LEB128.
    Variable {
        is_signed: bool,
        base: u8,
        table: Option<Arc<Enum>>,
    },
    /// Text in UTF-16 or UTF-32, up to its NUL or of so many bytes.
    Wide {
        encoding: Encoding,
        length: Option<Count>,
    },
    Blob {
        length: Count,
    },
    Optional {
        tag: u16,
        is_signed: bool,
        /// `None`: it is there if the tag is not zero.
        ranges: Option<Vec<Span>>,
        end: u32,
    },
    OptionalEnd,
}

#[derive(Debug, Clone, Copy)]
pub enum Count {
    Fixed(u64),
    Slot(u16),
}

#[derive(Debug, Clone)]
pub struct Arm {
    pub first: i128,
    pub last: i128,
    pub target: u32,
}

/// A compiled scope: its plan, and the names that later scopes may refer to.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub kind: ScopeKind,
    pub plan: Plan,
    names: Vec<Name>,
}

/// The slots in use: shared ones count up for a whole stream, those of an event's own scopes start again for each.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Slots {
    pub n_shared: usize,
    n_own: usize,
}

impl Slots {
    pub(crate) fn for_next_event(self) -> Slots {
        Slots { n_own: 0, ..self }
    }
}
