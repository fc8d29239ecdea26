//! The eBPF program of the kernel door: at a hit it reads the captures from registers and memory and writes one record,
//! in the format of the user door, into the ring buffer. Pure: makes instructions, loads nothing.
//!
//! One program serves many sites: a link's cookie or the place in the page says which one was hit, and a binary search
//! jumps to its part, which `site.rs` makes.

mod site;

use super::insn::{Alu, Assembler, Cond, Helper, Insn, Label, Reg, TooLong, Width};
use super::pt_regs;
use nopal_capture::Capture;
use nopal_sdt::operand::{Base, Memory, Operand, Place};
use site::SiteProgram;
use std::fmt;

/// What the program leaves of one site.
#[derive(Debug, Clone)]
pub struct ProgramSite {
    /// Goes into the record.
    pub event: u32,
    /// Link-time address of the site: `sym(%rip)` operands are found by their distance from it.
    pub address: u64,
    pub captures: Vec<Capture>,
}

/// Descriptors of the maps a program works on.
#[derive(Debug, Clone, Copy)]
pub struct Maps {
    pub ring: i32,
    /// Per CPU: [`Loss`].
    pub loss: i32,
    /// Per CPU, one element: how many programs are between start and end of using scratch memory.
    pub depth: i32,
    /// Per CPU, [`SCRATCH_LEVELS`] elements of [`SCRATCH_BYTES`].
    pub scratch: i32,
}

/// Programs of other threads may come in between on a preemptible kernel; each takes a level of its own.
pub const SCRATCH_LEVELS: u32 = 4;
/// The kernel takes at most 32 KiB for an element of a per-CPU array.
pub const SCRATCH_BYTES: u32 = 1 << 15;
/// No string capture may be longer: it must fit behind all others.
pub const MAX_STRING_BYTES: u32 = SCRATCH_BYTES - site::STRINGS_LIMIT - 8;

/// The per-CPU loss counter: how many records found no room, and when the first and the last of them came.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    pub n_lost: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// Why no program can be made for a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramError {
    /// eBPF sees general purpose registers only.
    VectorRegister {
        event: u32,
    },
    /// Only 1, 2, 4 and 8 bytes.
    ValueSize {
        event: u32,
        size_bytes: u8,
    },
    UnknownSymbol {
        event: u32,
        name: String,
    },
    /// The captures of one site do not fit into a record.
    TooManyBytes {
        event: u32,
    },
    TooLong,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::VectorRegister { .. } => {
                write!(f, "an argument is in a vector register, which eBPF cannot read")
            }
            ProgramError::ValueSize { size_bytes, .. } => {
                write!(f, "an argument has {size_bytes} bytes, eBPF reads at most 8")
            }
            ProgramError::UnknownSymbol { name, .. } => {
                write!(f, "the file has no symbol `{name}`, which an argument names")
            }
            ProgramError::TooManyBytes { .. } => {
                write!(f, "the arguments do not fit into a record; a smaller --max-string helps")
            }
            ProgramError::TooLong => write!(f, "the program is too long for eBPF"),
        }
    }
}

impl From<TooLong> for ProgramError {
    fn from(_: TooLong) -> Self {
        ProgramError::TooLong
    }
}

/// The context, kept in R6 for the whole program.
const CTX: Reg = Reg::R6;

/// In front of each record: u32 cpu, u32 zero.
pub const PREFIX_BYTES: usize = 8;

/// What tells the sites of a program apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatch {
    /// The cookie of the link: the number of the site.
    Cookie,
    /// There is one site only.
    Alone,
    /// Where in its page the site is. The sites must be sorted by it, and no two the same.
    PageOffset,
}

/// Where in its page an address is: the same wherever the file is loaded.
pub fn page_offset(address: u64) -> i32 {
    (address & 0xfff) as i32
}

/// Whether a number is in memory that may not be there yet when the site is hit; what is on the stack is.
pub fn reads_memory(sites: &[ProgramSite]) -> bool {
    let captures = sites.iter().flat_map(|site| &site.captures);
    captures.into_iter().any(|capture| matches!(capture, Capture::Value { operand } if is_elsewhere(operand)))
}

/// Whether a pointer is the stack pointer itself.
pub(super) fn is_stack(pointer: &Operand) -> bool {
    const RSP: u8 = 4;
    matches!(pointer.place, Place::Register(register) if register.number == RSP)
}

/// Whether an operand is in memory, but not on the stack.
pub(super) fn is_elsewhere(operand: &Operand) -> bool {
    const STACK_REGISTERS: [u8; 2] = [4, 5];
    match &operand.place {
        Place::Memory(Memory { base: Base::Register(base), .. }) => !STACK_REGISTERS.contains(&base.number),
        Place::Memory(_) => true,
        Place::Register(_) | Place::Vector(_) | Place::Constant(_) => false,
    }
}

/// The instructions for `sites`. A program that may sleep waits for memory that is not there yet, where it keeps nothing
/// that belongs to the CPU.
pub fn assemble(
    sites: &[ProgramSite],
    maps: Maps,
    dispatch: Dispatch,
    may_sleep: bool,
) -> Result<Vec<Insn>, ProgramError> {
    let mut asm = Assembler::default();
    let end = asm.label();
    asm.mov(CTX, Reg::R1);
    let keys: Vec<(i32, Label)> = match dispatch {
        Dispatch::Cookie => {
            asm.call(Helper::GetAttachCookie);
            (0..).zip(sites).map(|(key, _)| (key, asm.label())).collect()
        }
        Dispatch::Alone => {
            asm.mov_imm(Reg::R0, 0);
            (0..).zip(sites.iter().take(1)).map(|(key, _)| (key, asm.label())).collect()
        }
        Dispatch::PageOffset => {
            asm.load(Width::W64, Reg::R0, CTX, pt_regs::IP);
            asm.alu_imm(Alu::And, Reg::R0, 0xfff);
            sites.iter().map(|site| (page_offset(site.address), asm.label())).collect()
        }
    };
    search(&mut asm, &keys, end);
    for (site, (_, label)) in sites.iter().zip(&keys) {
        asm.bind(*label);
        SiteProgram { asm: &mut asm, site, maps, end, may_sleep }.emit()?;
    }
    asm.bind(end);
    asm.mov_imm(Reg::R0, 0);
    asm.exit();
    Ok(asm.finish()?)
}

/// Jumps to the label whose key is in R0.
fn search(asm: &mut Assembler, keys: &[(i32, Label)], end: Label) {
    match keys {
        [] => asm.jump(end),
        [(key, label)] => {
            asm.jump_if_imm(Cond::Eq, Reg::R0, *key, *label);
            asm.jump(end);
        }
        many => {
            let (lower, upper) = many.split_at(many.len() / 2);
            let above = asm.label();
            asm.jump_if_imm(Cond::Ge, Reg::R0, upper[0].0, above);
            search(asm, lower, end);
            asm.bind(above);
            search(asm, upper, end);
        }
    }
}
