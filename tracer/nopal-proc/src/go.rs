//! Programs of Go. Their functions have arguments in registers of Go's choice, ask first whether the stack has room for them,
//! and run on stacks that move; what unwinds these knows no return address but the program's own. With C in the program, functions
//! of both are in one file.

use super::Bytes;
use super::symbols::FileSymbols;
use nopal_functions::GO_ARGUMENTS;
use object::{Object as _, ObjectSection as _};
use std::ops::Range;

pub use nopal_functions::stack_check_len;

/// How many arguments are asked for, of any language.
const N_ARGUMENTS: usize = 6;
/// In which a function asks whether its stack has room.
pub const CHECK_BYTES: u64 = 48;

/// The names of the registers that the first arguments are in.
pub fn argument_names() -> [&'static str; N_ARGUMENTS] {
    std::array::from_fn(|index| GO_ARGUMENTS[index].0)
}

/// The same registers by number.
pub fn argument_numbers() -> [u8; N_ARGUMENTS] {
    std::array::from_fn(|index| GO_ARGUMENTS[index].1.number() as u8)
}

/// Whether a file is a program or a library of Go.
pub fn is_go(bytes: Bytes<'_>) -> bool {
    object::File::parse(bytes).is_ok_and(|file| {
        file.sections().any(|section| matches!(section.name(), Ok(".gopclntab" | ".go.buildinfo")))
    })
}

/// Where a file has code of Go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoCode {
    /// Link-time addresses.
    text: Range<u64>,
}

impl GoCode {
    /// `None`: it is not a program of Go.
    pub fn read(bytes: Bytes<'_>, symbols: &FileSymbols) -> Option<GoCode> {
        let address = |name: &str| {
            let mut named = symbols.functions().filter(|function| function.name == name);
            named.next().map(|function| function.address)
        };
        is_go(bytes).then(|| match (address("runtime.text"), address("runtime.etext")) {
            // Go's linker makes one piece of all of it.
            (Some(start), Some(end)) if start < end => GoCode { text: start..end },
            // Of a function of Go less may be done than of one of C.
            _ => GoCode { text: 0..u64::MAX },
        })
    }

    pub fn contains(&self, address: u64) -> bool {
        self.text.contains(&address)
    }
}
