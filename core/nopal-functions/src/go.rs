//! How functions of Go begin: with a question whether the stack has room for them. Where it has not, the function calls
//! somebody who moves the stack, and begins once more from its first instruction.
//!
//! ```text
//! 49 3b 66 10        cmp  0x10(%r14),%rsp     %r14 is the goroutine, which has there how low its stack may be
//! 76 xx              jbe  more
//! ...                                         entered once for each call from here on
//! ```
//!
//! Behind that question at least 800 bytes of the stack are left below the function's frame, of which a stub takes less than half;
//! handlers of signals have a stack of their own.
//!
//! What has no such question is assembly, or must not have its stack looked at: neither is for us.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// The registers that arguments are in, in their order: what calls them, and what they are.
pub const GO_ARGUMENTS: [(&str, Register); 9] = [
    ("rax", Register::RAX),
    ("rbx", Register::RBX),
    ("rcx", Register::RCX),
    ("rdi", Register::RDI),
    ("rsi", Register::RSI),
    ("r8", Register::R8),
    ("r9", Register::R9),
    ("r10", Register::R10),
    ("r11", Register::R11),
];
/// Where a function has its goroutine.
pub const GOROUTINE: Register = Register::R14;

/// Where the goroutine has how low its stack may be.
const GUARD: u64 = 0x10;
/// The longest question: of functions with large frames, which compute how low they would come.
const MAX_INSTRUCTIONS: usize = 6;

/// How many bytes the question at the beginning of a function has; `None` if it asks none.
pub fn stack_check_len(code: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let mut is_compared = false;
    for _ in 0..MAX_INSTRUCTIONS {
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        match instruction.mnemonic() {
            Mnemonic::Jbe if is_compared => return Some(decoder.position()),
            Mnemonic::Cmp if is_guard(&instruction) => is_compared = true,
            // The frame is larger than there are addresses below; it goes to the same place.
            Mnemonic::Jb if !is_compared => {}
            Mnemonic::Lea | Mnemonic::Mov | Mnemonic::Sub if !is_compared && is_scratch(&instruction) => {}
            _ => return None,
        }
    }
    None
}

fn is_guard(instruction: &Instruction) -> bool {
    instruction.code() == Code::Cmp_r64_rm64
        && matches!(instruction.op0_register(), Register::RSP | Register::R12 | Register::R13)
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == GOROUTINE
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == GUARD
}

/// Whether it computes in a register that no argument is in, from the stack pointer and constants.
fn is_scratch(instruction: &Instruction) -> bool {
    let is_own = |register: Register| {
        matches!(register, Register::R12 | Register::R13 | Register::RSP | Register::None)
    };
    let is_plain = match instruction.op1_kind() {
        OpKind::Register => is_own(instruction.op1_register()),
        OpKind::Memory => instruction.mnemonic() == Mnemonic::Lea && is_own(instruction.memory_base()),
        _ => true,
    };
    matches!(instruction.op0_register(), Register::R12 | Register::R13)
        && instruction.memory_index() == Register::None
        && is_plain
}

#[cfg(test)]
mod tests {
    use super::stack_check_len;

    #[test]
    fn the_question_whether_the_stack_has_room() {
        let table: &[(&str, &[u8], Option<usize>)] = &[
            // cmp 0x10(%r14),%rsp; jbe
            ("small", &[0x49, 0x3b, 0x66, 0x10, 0x76, 0x30, 0x48, 0x83, 0xec, 0x18], Some(6)),
            ("far", &[0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1, 2, 0, 0, 0x90], Some(10)),
            // lea -0x108(%rsp),%r12; cmp 0x10(%r14),%r12; jbe
            (
                "large",
                &[0x4c, 0x8d, 0xa4, 0x24, 0xf8, 0xfe, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x90],
                Some(14),
            ),
            // mov %rsp,%r12; sub $0x10000,%r12; jb; cmp 0x10(%r14),%r12; jbe
            (
                "huge",
                &[
                    0x49, 0x89, 0xe4, 0x49, 0x81, 0xec, 0, 0, 1, 0, 0x72, 0x10, 0x4d, 0x3b, 0x66, 0x10, 0x76,
                    0x0a,
                ],
                Some(18),
            ),
            ("none", &[0x48, 0x83, 0xec, 0x18, 0xc3], None),
            // cmp 0x18(%r14),%rsp: of functions for the stack of the system
            ("another guard", &[0x49, 0x3b, 0x66, 0x18, 0x76, 0x30], None),
            // cmp 0x10(%r14),%rsp; ja
            ("another question", &[0x49, 0x3b, 0x66, 0x10, 0x77, 0x30], None),
            // mov (%rax),%r12
            ("reads memory", &[0x4c, 0x8b, 0x20, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x20], None),
            ("cut", &[0x49, 0x3b, 0x66, 0x10], None),
            ("empty", &[], None),
        ];
        for (what, code, expected) in table {
            assert_eq!(stack_check_len(code), *expected, "{what}");
        }
    }
}
