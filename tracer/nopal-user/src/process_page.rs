//! The end of a stub space's process page, which calls in the process use.

use nopal_abi::PAGE_BYTES;

/// Sixteen numbers, each with one added; 0: none.
pub(crate) const NOTES_BYTES: usize = 64;
/// Behind them it is noted which descriptors we have in the process.
pub(crate) const NOTES_OFFSET: u64 = SCRATCH_OFFSET - NOTES_BYTES as u64;
/// The end of the process page holds arguments of calls.
pub(crate) const SCRATCH_OFFSET: u64 = PAGE_BYTES as u64 - SCRATCH_BYTES as u64;
pub(crate) const SCRATCH_BYTES: usize = 512;
