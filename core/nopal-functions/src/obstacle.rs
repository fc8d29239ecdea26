//! Why the edges of a function cannot all be told from its code.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It has no code, or none that is known.
    Empty,
    /// Not an instruction.
    Undecodable { address: u64 },
    /// Its last instruction leads into what follows it.
    RunsOn { address: u64 },
    /// A short conditional jump out of it: whether it is taken cannot be seen there.
    ShortConditional { address: u64 },
    /// A jump to an address in a register or in memory, which may leave it or not.
    Indirect { address: u64 },
    /// Another function begins inside it: which of the two is left cannot be told.
    Shared { address: u64 },
    /// Its first instruction is an exit: one instruction cannot be both.
    LeavesAtOnce { address: u64 },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Empty => write!(f, "the file does not say where its code ends"),
            Obstacle::Undecodable { address } => {
                write!(f, "the bytes at {address:#x} are not an instruction")
            }
            Obstacle::RunsOn { address } => {
                write!(f, "it runs on into other code behind {address:#x}")
            }
            Obstacle::ShortConditional { address } => {
                write!(f, "it is left by a short conditional jump at {address:#x}")
            }
            Obstacle::Indirect { address } => {
                write!(f, "the jump at {address:#x} may leave it or not")
            }
            Obstacle::Shared { address } => {
                write!(f, "another function begins inside it, at {address:#x}")
            }
            Obstacle::LeavesAtOnce { address } => {
                write!(f, "its first instruction, at {address:#x}, leaves it")
            }
        }
    }
}

impl std::error::Error for Obstacle {}
