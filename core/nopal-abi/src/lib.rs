//! What tracer and tracee agree on byte for byte: the stub space, the ring with its control page, the record.
//! `docs/formats.md` sections 4 to 6 say the same in words. Does no IO.
#![no_std]

pub mod record;
pub mod ring;
pub mod stub_space;

/// The page size of the machines nopal traces.
pub const PAGE_BYTES: usize = 4096;

/// The processors a ring may be divided over; bounds what a reader believes of a control page.
pub const MAX_CPUS: u32 = 8192;
