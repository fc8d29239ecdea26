//! Where a parameter is when its function is entered.

use crate::find::Reader;
use gimli::{Operation, RawLocListEntry, Reader as _};

/// A general purpose register of x86-64, as DWARF numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(u8);

const NAMES: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
/// Those that C passes its first six numbers and addresses in.
const ARGUMENTS: [u8; 6] = [5, 4, 1, 2, 8, 9];
const FIRST_VECTOR: u16 = 17;
const N_VECTORS: u16 = 16;

impl Register {
    /// Where C returns numbers and addresses.
    pub const RETURNED: Register = Register(0);

    /// That of `arg0` to `arg5`.
    pub fn of_argument(index: usize) -> Option<Register> {
        ARGUMENTS.get(index).map(|number| Register(*number))
    }

    /// Which of `arg0` to `arg5` it is.
    pub fn argument(self) -> Option<u8> {
        ARGUMENTS.iter().position(|number| *number == self.0).map(|index| index as u8)
    }

    pub(crate) fn numbered(number: u16) -> Option<Register> {
        (usize::from(number) < NAMES.len()).then_some(Register(number as u8))
    }

    /// Without a percent sign.
    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Register(Register),
    /// The lower part of `xmmN`.
    Vector(u8),
    /// On the stack, in several registers, optimized away, or not known.
    Elsewhere,
}

/// What the information says of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Place(Place),
    /// A place of the function's own, to which it copies what it was given: it was given by the rules of calls.
    ByRules,
    /// The same, and what it was given is the address of the value.
    AddressByRules,
}

/// Of one expression that describes where a value is.
pub(crate) fn told(expression: gimli::Expression<Reader>, encoding: gimli::Encoding) -> Told {
    let mut operations = expression.operations(encoding);
    let first = operations.next().ok().flatten();
    let (second, third) = (operations.next().ok().flatten(), operations.next().ok().flatten());
    match (first, second, third) {
        (Some(Operation::Register { register }), None, None) => Told::Place(of_register(register.0)),
        (Some(Operation::FrameOffset { .. } | Operation::RegisterOffset { .. }), None, None) => Told::ByRules,
        (Some(Operation::FrameOffset { .. }), Some(Operation::Deref { .. }), None) => Told::AddressByRules,
        _ => Told::Place(Place::Elsewhere),
    }
}

fn of_register(number: u16) -> Place {
    match number {
        0..=15 => Place::Register(Register(number as u8)),
        FIRST_VECTOR.. if number < FIRST_VECTOR + N_VECTORS => Place::Vector((number - FIRST_VECTOR) as u8),
        _ => Place::Elsewhere,
    }
}

/// At an address, of a list of places that hold for parts of a function.
pub(crate) fn told_at(list: gimli::LocListIter<Reader>, address: u64, encoding: gimli::Encoding) -> Told {
    match expression_at(list, address).map(|expression| told(expression, encoding)) {
        Some(Told::Place(place)) => Told::Place(place),
        // Optimized code does not copy: it is on the stack already.
        Some(Told::ByRules | Told::AddressByRules) | None => Told::Place(Place::Elsewhere),
    }
}

/// What a list says of an address.
pub(crate) fn expression_at(
    mut list: gimli::LocListIter<Reader>,
    address: u64,
) -> Option<gimli::Expression<Reader>> {
    while let Ok(Some(raw)) = list.next_raw() {
        let Ok(Some(entry)) = list.convert_raw(not_empty(raw)) else { continue };
        if entry.range.begin <= address && address < entry.range.end {
            return Some(entry.data);
        }
    }
    None
}

/// Several descriptions may hold for one address, in the order of the source: the first is that of the entry, and where it holds
/// for no instruction its range is empty.
fn not_empty(entry: RawLocListEntry<Reader>) -> RawLocListEntry<Reader> {
    match entry {
        RawLocListEntry::OffsetPair { begin, end, data } if begin == end => {
            RawLocListEntry::OffsetPair { begin, end: end.saturating_add(1), data }
        }
        RawLocListEntry::AddressOrOffsetPair { begin, end, data } if begin == end => {
            RawLocListEntry::AddressOrOffsetPair { begin, end: end.saturating_add(1), data }
        }
        RawLocListEntry::StartLength { begin, length: 0, data } => {
            RawLocListEntry::StartLength { begin, length: 1, data }
        }
        RawLocListEntry::StartEnd { begin, end, data } if begin == end => {
            RawLocListEntry::StartEnd { begin, end: end.saturating_add(1), data }
        }
        other => other,
    }
}

/// The text of an attribute, cut where it is longer than names are.
pub(crate) fn text(reader: &Reader) -> String {
    const MAX_NAME_BYTES: usize = 4096;
    let bytes = reader.to_slice().unwrap_or_default();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME_BYTES)]).into_owned()
}
