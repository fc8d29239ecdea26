//! Which sites the kernel door does not open, and why: the same for capture programs, scripts and lines of tracefs.

use super::capture_program::ProgramError;
use super::code_error::CodeError;
use std::fmt;
use std::path::PathBuf;

/// The kernel's own number for an instruction it cannot step over; the C library has no name for it.
const NOT_SUPPORTED: i32 = 524;

/// What an instruction begins with that the kernel may not step over: `lock`, segments, and AVX, whose opcodes it takes for
/// those of others.
const ODD_BEGINNINGS: [u8; 8] = [0xf0, 0x26, 0x2e, 0x36, 0x3e, 0xc4, 0xc5, 0x62];

/// Why a site is not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A bare 5-byte nop in a function that keeps variables below its stack pointer: kernels up to at least 6.18 put a call
    /// there, which writes over them.
    LeafNop {
        address: u64,
    },
    /// The kernel looks at the opcode alone, and would carry out a jump instead.
    VectorInstruction {
        address: u64,
    },
    /// In a restartable sequence of the program. A one-byte nop is passed without leaving its place; most other instructions
    /// run elsewhere, and a thread that is interrupted there is not started over.
    Restartable {
        address: u64,
    },
    NotAnInstruction {
        address: u64,
    },
    /// A jump out of a function that is taken or not: a uprobe there does not see which.
    Conditional {
        address: u64,
    },
    NotCode {
        address: u64,
    },
    /// When a stack of Go moves, its return addresses are looked up, and one of the kernel's is unknown.
    GoReturn,
    /// The kernel says so.
    Unsupported {
        path: PathBuf,
    },
    /// It takes the uprobe, and says that this is not permitted, not possible, or not now.
    Kernel {
        path: PathBuf,
        error: String,
    },
    /// The breakpoints are in the file, but not in this process.
    NotInMemory {
        pid: u32,
        n_missing: usize,
        n_sites: usize,
    },
    /// A debugger has a breakpoint there.
    Debugger {
        pid: u32,
    },
    /// No record can be made of the arguments.
    Capture(ProgramError),
    /// A clause cannot read them.
    Argument(CodeError),
    NoProbe {
        provider: String,
        name: String,
    },
    NoFunction {
        name: String,
    },
    BehindFunction {
        name: String,
        offset: u64,
        size_bytes: u64,
    },
    NoFile {
        name: String,
    },
    /// Neither a program in `PATH` nor a library.
    NoProgram {
        name: String,
    },
    /// Some of the sites; why the first of them.
    Some {
        n_refused: usize,
        n_sites: usize,
        why: Box<Refusal>,
    },
    /// The file or the process cannot be read; the reason.
    Unreadable {
        reason: String,
    },
}

impl Refusal {
    pub(super) fn of_kernel(path: PathBuf, error: &std::io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(NOT_SUPPORTED) => Refusal::Unsupported { path },
            _ => Refusal::Kernel { path, error: error.to_string() },
        }
    }
}

/// Whether the kernel may refuse an instruction that begins so.
pub fn is_odd(first_byte: u8) -> bool {
    ODD_BEGINNINGS.contains(&first_byte)
}

/// Whether it is an AVX instruction whose opcode is that of a jump, a call or a nop among the others: the kernel looks at
/// the opcode alone, carries out the jump, and leaves the program without what the instruction would have done.
pub(crate) fn looks_like_a_jump(code: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67);
    let code = &code[code.iter().take_while(|byte| is_prefix(byte)).count()..];
    let opcode = match code.first() {
        Some(0xc5) => code.get(2),
        Some(0xc4) => code.get(3),
        Some(0x62) => code.get(4),
        _ => None,
    };
    matches!(opcode, Some(0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::LeafNop { address } => write!(
                f,
                "the site at {address:#x} is a bare 5-byte nop in a function that calls no other function: this kernel's uprobes would \
                 destroy its local variables; `--door user` is safe"
            ),
            Refusal::VectorInstruction { address } => write!(
                f,
                "the vector instruction at {address:#x} is one that the kernel's uprobes take for a jump, and would never \
                 execute"
            ),
            Refusal::Restartable { address } => {
                write!(f, "the code at {address:#x}: {}", nopal_sdt::RESTARTABLE)
            }
            Refusal::NotAnInstruction { address } => {
                write!(f, "{address:#x} is not the beginning of an instruction")
            }
            Refusal::Conditional { address } => {
                write!(
                    f,
                    "a uprobe does not see whether the conditional jump at {address:#x} leaves its function"
                )
            }
            Refusal::GoReturn => f.write_str(
                "a return address of the kernel's would end a program of Go when its stack moves; the user door sees returns \
                 without one, if the script can be run by it (`-v` says why not)",
            ),
            Refusal::NotCode { address } => write!(f, "{address:#x} is not code of the file"),
            Refusal::Unsupported { path } => write!(
                f,
                "putting uprobes on {}: the kernel allows no uprobe on this instruction",
                path.display()
            ),
            Refusal::Kernel { path, error } => write!(f, "putting uprobes on {}: {error}", path.display()),
            Refusal::NotInMemory { pid, n_missing, n_sites } => write!(
                f,
                "the kernel took the uprobes, but {n_missing} of {n_sites} are not in the memory of process {pid}: its code \
                 there is no longer the file's"
            ),
            Refusal::Debugger { pid } => write!(
                f,
                "a debugger holds process {pid} and has a breakpoint there: it would wait for it in vain, and take the kernel's \
                 away with it when it leaves; delete the breakpoint first"
            ),
            Refusal::Capture(error) => write!(f, "{error}"),
            Refusal::Argument(error) => write!(f, "{error}"),
            Refusal::NoProbe { provider, name } => {
                write!(f, "the file has no probe {provider}:{name}; `nopal list` shows those it has")
            }
            Refusal::NoFunction { name } => write!(f, "the file has no function {name}"),
            Refusal::BehindFunction { name, offset, size_bytes } => {
                write!(f, "{name}+{offset}: Offset outside the function bounds ('{name}' size is {size_bytes})")
            }
            Refusal::NoFile { name } => write!(f, "there is no file {name}"),
            Refusal::NoProgram { name } => {
                write!(f, "neither a program in PATH nor a library is called {name}; a path helps")
            }
            Refusal::Some { n_refused, n_sites, why } => {
                write!(f, "{n_refused} of {n_sites} sites are not open, their hits are missing: {why}")
            }
            Refusal::Unreadable { reason } => f.write_str(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_instructions_that_the_kernel_takes_for_jumps() {
        for (code, want) in [
            // vpbroadcastb zmm16, esi; vpsrldq; vpcmpeqb with two and with three bytes of prefix; vpblendvb.
            (&[0x62, 0xe2, 0x7d, 0x48, 0x7a, 0xc6][..], true),
            (&[0xc5, 0xf9, 0x73, 0xd8, 0x08], true),
            (&[0xc5, 0xf9, 0x74, 0xc1], true),
            (&[0x65, 0xc4, 0xe1, 0x79, 0x74, 0xc1], true),
            (&[0xc4, 0xe3, 0x79, 0x4c, 0xc1, 0x20], false),
            // vmovdqu, a jump, a nop, push, nothing.
            (&[0xc5, 0xfe, 0x6f, 0x06], false),
            (&[0x74, 0x05], false),
            (&[0x90], false),
            (&[0x55], false),
            (&[], false),
        ] {
            assert_eq!(looks_like_a_jump(code), want, "{code:x?}");
        }
    }
}
