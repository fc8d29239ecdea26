//! The words of a stub space and of its process's pages that stubs look at, as they address them.

use core::mem::offset_of;

use nopal_abi::stub_space::{KEPT_OFFSET, KeptPages, ProcessPage, StubSpace};

use super::Surroundings;
use super::asm::Mem;

/// How threads reach the rings.
pub(super) fn path_word(around: &Surroundings) -> Mem {
    Mem::Near(around.space + offset_of!(StubSpace, path) as u64)
}

/// Where threads have their number, as a distance from `%fs`.
pub(super) fn tid_offset_word(around: &Surroundings) -> Mem {
    Mem::Near(around.space + offset_of!(StubSpace, tid_offset) as u64)
}

/// What the process has forbidden itself.
pub(super) fn restraint_word(around: &Surroundings) -> Mem {
    Mem::Near(around.process_page + (KEPT_OFFSET + offset_of!(KeptPages, restraint)) as u64)
}

/// Which pages of the heap can be read.
pub(super) fn readable_table(around: &Surroundings) -> Mem {
    Mem::Near(around.process_page + offset_of!(ProcessPage, readable) as u64)
}
