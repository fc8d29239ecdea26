//! Why a clause of a script has no eBPF code.

use crate::insn::TooLong;
use std::fmt;

/// Why no code can be made for a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeError {
    /// The script's variables, strings and keys take more than eBPF has.
    FrameTooLarge { bytes: u32 },
    /// Loops over maps inside one another.
    TooDeep { depth: u32 },
    /// More than 32768 instructions between a jump and its target.
    TooLong,
    /// An op that names what is not there.
    BadOp { op: usize, reason: &'static str },
    /// One CPU's share of an entry takes more than the kernel gives.
    AggregateTooLarge { map: String, n_words: u32 },
    /// A site has not so many arguments.
    NoArg { index: u8, n_args: usize },
    /// An argument that eBPF cannot read.
    Arg { index: u8, reason: String },
}

impl From<TooLong> for CodeError {
    fn from(_: TooLong) -> CodeError {
        CodeError::TooLong
    }
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::FrameTooLarge { bytes } => write!(
                f,
                "the strings, keys and variables of a clause take {bytes} bytes; the kernel gives 32768: shorter strings help"
            ),
            CodeError::TooDeep { depth } => {
                write!(f, "{depth} loops over maps are inside one another; the kernel door goes 4 deep")
            }
            CodeError::TooLong => write!(f, "a clause is too long for eBPF; dividing it into several helps"),
            CodeError::BadOp { op, reason } => write!(f, "operation {op} of the program: {reason}"),
            CodeError::AggregateTooLarge { map, n_words } => {
                write!(
                    f,
                    "{map} has {n_words} buckets; the kernel door has room for 4095: wider buckets help"
                )
            }
            CodeError::NoArg { index, n_args } => {
                write!(f, "there is no arg{index}: the probe has {n_args} arguments")
            }
            CodeError::Arg { index, reason } => write!(f, "arg{index} cannot be read: {reason}"),
        }
    }
}
