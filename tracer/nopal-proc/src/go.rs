//! Programs of Go. Their functions have arguments in registers of Go's choice, ask first whether the stack has room for them,
//! and run on stacks that move; what unwinds these knows no return address but the program's own.

use super::Bytes;
use object::{Object as _, ObjectSection as _};

pub use nopal_functions::stack_check_len;

/// The first registers that arguments are in, by number: rax, rbx, rcx, rdi, rsi, r8.
pub const ARGUMENT_REGISTERS: [u8; 6] = [0, 3, 1, 7, 6, 8];

/// In which a function asks whether its stack has room.
pub const CHECK_BYTES: u64 = 48;

pub fn is_go(bytes: Bytes<'_>) -> bool {
    object::File::parse(bytes).is_ok_and(|file| {
        file.sections().any(|section| matches!(section.name(), Ok(".gopclntab" | ".go.buildinfo")))
    })
}
