//! Stubs: the machine code a hit runs. Generated per site from the operands of its note and what a session wants to
//! know; [`space`] says where they are put and how they are chained, [`tail`] how the program goes on afterwards.
//!
//! A stub leaves no trace: it steps over the red zone, saves the registers it uses and the flags, uses no vector
//! register (it may read one), never calls, and touches what `%fs` points to only when the stub space says that it may and
//! [`thread`] that it is the thread's own.

pub mod asm;
pub mod chain;
mod emit;
mod journal;
mod locked;
mod operand;
mod restraint;
pub mod reuse;
pub mod space;
mod strings;
pub mod tail;
mod thread;
mod words;

use nopal_capture::{Action, Predicate, RecordLayout};
use nopal_sdt::operand::Operand;

use super::ring::RingLayout;

pub use emit::{generate, routines};

/// What a stub does at a hit.
#[derive(Debug, Clone, PartialEq)]
pub struct StubSpec {
    /// Stands in the record; the session knows what it means.
    pub event: u32,
    /// All must hold, else the hit leaves nothing.
    pub predicates: Vec<Predicate>,
    pub action: Action,
    /// What is added to the link-time addresses of symbols to get those in the process.
    pub load_bias: u64,
    /// Where in the process the file of the site itself is mapped, whole pages: readable whenever the site is reached, since
    /// nobody unmaps the code it runs. Strings there are read without asking the kernel. Empty if nothing is known.
    pub own_file: std::ops::Range<u64>,
    /// What is added to the stack pointer to get its value at the site, where the jump is on another instruction.
    pub above: i32,
    pub heap: Option<Heap>,
}

/// The process's heap, as far as its C library has it (`brk`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    pub start: u64,
    /// Address of the C library's own word that says where it ends. It grows and shrinks with the heap.
    pub end_word: u64,
}

/// Where a stub will be and what is around it, as addresses in the traced process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Of the stub's first byte; a multiple of 64.
    pub address: u64,
    /// Of the stub space.
    pub space: u64,
    /// Of the process page.
    pub process_page: u64,
    /// The session's index in the stub space.
    pub session: u16,
    /// Of the session's routines, made by [`routines`]; the one that announces a process is the first.
    pub announce: u64,
    /// Of the session's ring.
    pub ring: u64,
    pub layout: RingLayout,
    pub rseq_signature: u32,
}

/// A generated stub. Its entry is its first byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Stub {
    pub code: Vec<u8>,
    /// Where in `code` the next-slot is; 0 until the stub is chained.
    pub next_slot: u32,
    /// How to read the records it writes.
    pub layout: RecordLayout,
}

/// Why a site cannot have the stub that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StubError {
    /// The operand is of a form that this use of it does not allow.
    Operand {
        operand: Operand,
        reason: &'static str,
    },
    /// `sym(%rip)` whose symbol is not in the file's symbol tables.
    UnknownSymbol {
        name: String,
    },
    RecordTooLong {
        bytes: u32,
        limit: u32,
    },
    /// A capture's limit is 0 or too large to be written down.
    BadLimit {
        bytes: u32,
    },
    /// A cell lies outside the CPU's block, or is none: no value, no keys, no steps.
    BadCell {
        offset: u32,
    },
    /// A span is beyond those there is room for, or keeps too much, or strings.
    BadSpan {
        span: u8,
    },
    /// Something that must be near the stub is more than 2 GiB away.
    OutOfReach {
        from: u64,
        to: u64,
    },
    /// The stub space has no room for `bytes` more.
    SpaceFull {
        bytes: usize,
    },
    /// All entries of the journal are in use.
    JournalFull,
}

impl std::fmt::Display for StubError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StubError::Operand { operand, reason } => {
                write!(f, "an argument of {} bytes cannot be captured: {reason}", operand.size_bytes)
            }
            StubError::UnknownSymbol { name } => write!(
                f,
                "an argument is at the symbol `{name}`, which is not in the file's symbol tables; install its debug symbols"
            ),
            StubError::RecordTooLong { bytes, limit } => write!(
                f,
                "the event needs up to {bytes} bytes, the ring takes {limit}; keep less of the strings, or make the rings larger"
            ),
            StubError::BadLimit { bytes } => {
                write!(f, "a string limit of {bytes} bytes is not between 1 and 65536")
            }
            StubError::BadCell { offset } => {
                write!(f, "the cell at {offset} is outside the ring's cells or makes no sense")
            }
            StubError::BadSpan { span } => write!(f, "span {span} cannot be kept at the source"),
            StubError::OutOfReach { from, to } => write!(f, "{to:#x} is more than 2 GiB away from {from:#x}"),
            StubError::SpaceFull { bytes } => write!(
                f,
                "the stub space of this process is full ({bytes} bytes more are needed); restart the process or use the kernel door"
            ),
            StubError::JournalFull => write!(
                f,
                "the journal of this process's stub space is full; restart the process or use the kernel door"
            ),
        }
    }
}

impl std::error::Error for StubError {}

impl From<asm::OutOfReach> for StubError {
    fn from(failure: asm::OutOfReach) -> StubError {
        StubError::OutOfReach { from: failure.from, to: failure.to }
    }
}
