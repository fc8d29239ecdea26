//! One argument of a site: how wide it is, how to read its bits, and where they are when the site is hit.

mod arm64;
mod parse;
mod sum;
#[cfg(test)]
mod tests;
mod x86_64;

pub use parse::{parse, parse_with, split};
pub use sum::{NoSymbols, Symbols};

/// The instruction sets whose operands can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Arm64,
}

/// A parsed operand such as `-4@%eax`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// Size of the value in bytes: 1, 2, 4, 8, and rarely 16 or 32.
    pub size_bytes: u8,
    pub is_signed: bool,
    pub is_float: bool,
    pub place: Place,
}

/// Where the value is at the moment of the hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Register(Register),
    /// An SSE/AVX register on x86-64, a SIMD register on arm64.
    Vector(u8),
    Constant(i64),
    Memory(Memory),
}

/// The number of x86-64's instruction pointer. No operand of a note has it, and only the kernel door reads it.
pub const RIP: u8 = 16;

/// A general purpose register as the instruction set numbers it (x86-64: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5,
/// rsi 6, rdi 7, r8 8 and so on, [`RIP`]; arm64: x0 0 to x30 30, sp 31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    pub number: u8,
    /// The width its name says (`%eax` 4, `%al` 1); the value may be narrower, see [`Operand::size_bytes`].
    pub width_bytes: u8,
    /// `%ah`, `%bh`, `%ch`, `%dh`: bits 8 to 15 of registers 0 to 3.
    pub is_high_byte: bool,
}

/// A memory operand: base + index * scale + displacement, or an address in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub base: Base,
    pub index: Option<(Register, u8)>,
    /// Added to the base; for [`Base::Symbol`] added to the symbol's address.
    pub displacement: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    None,
    Register(Register),
    /// `sym(%rip)`: the symbol's link-time address once the catalog has found it.
    Symbol {
        name: String,
        address: Option<u64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperandError {
    pub reason: String,
}

impl std::fmt::Display for OperandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for OperandError {}
