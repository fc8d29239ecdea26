//! What is kept of a hit, whichever door sees it.

use crate::cell::Cell;
use crate::span::SpanSite;
use nopal_sdt::operand::Operand;

/// What is done at a hit.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Record {
        captures: Vec<Capture>,
        /// Costs more than all the rest together.
        has_time: bool,
        /// tid and pid.
        has_task: bool,
    },
    /// Per-CPU cells of the ring's memory are updated, in this order; no record is written.
    Aggregate(Vec<Cell>),
    /// The same, if the keys of all cells are in their tables; any other hit changes no cell and leaves a record.
    AggregateOrRecord { cells: Vec<Cell>, captures: Vec<Capture>, has_time: bool, has_task: bool },
    /// Begins or ends spans, which stubs pair and add up; only slow ones leave a record.
    Spans(SpanSite),
    /// No record: the thread takes a [ticket](nopal_abi::ring::ControlPage::tickets) and waits for its turn, at most this
    /// long; whoever goes on before it is counted. For the place the dynamic linker calls when libraries come and go.
    Wait { timeout_ms: u32 },
    /// Nothing is recorded: the process is noted to forbid itself what this function is asked to forbid.
    Restrain(Forbidding),
}

/// A function by which a program can forbid itself something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forbidding {
    /// `prctl(option, argument, ...)`
    Prctl,
    /// `syscall(number, arguments...)`
    Syscall,
}

/// One thing that a record keeps.
#[derive(Debug, Clone, PartialEq)]
pub enum Capture {
    /// The operand's own bits. A memory operand is read without a check: the note promises that it is there.
    Value { operand: Operand },
    /// A string that ends in a NUL.
    CString { pointer: Operand, max_bytes: u32, is_trusted: bool },
    /// Bytes with their number, in units of `unit_bytes`, in another operand. A negative number counts as 0.
    Bytes { pointer: Operand, length: Operand, unit_bytes: u32, max_bytes: u32, is_trusted: bool },
    /// The [thread context](crate::thread_context), as a byte string. Where the pointer to it is, from the thread pointer
    /// on, differs between processes: the user door finds it for each. A null pointer where it is not known, and through
    /// the kernel door.
    ThreadContext { offset: Option<i32> },
}
