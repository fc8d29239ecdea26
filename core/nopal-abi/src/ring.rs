//! The session's shared memory: a control page, the state of each ring, the rings. One memfd for all traced processes that
//! have the same credentials, mapped read-write in the tracer and in each of them.
//!
//! ```text
//! 0               ControlPage
//! states_offset   RingState[n_cpus] of the rseq rings, then RingState[n_cpus] of the locked rings
//! rseq.offset     n_cpus rings of 1 << rseq.ring_shift bytes
//! locked.offset   n_cpus rings of 1 << locked.ring_shift bytes
//! cells_offset    n_cpus blocks of cells_stride bytes, then n_cpus blocks for the locked path
//! (behind them)   the table of spans that are kept at the source, if there are span_slots
//! ```

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64};

pub const MAGIC: u64 = u64::from_le_bytes(*b"nopalrng");
pub const VERSION: u32 = 1;

/// What a full ring does with the next record.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Drops and counts it.
    Discard = 0,
    /// Writes over the oldest; for the rseq rings only, locked rings discard.
    Overwrite = 1,
}

/// One set of rings: where it starts and how each is divided.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// From the start of the memfd, a multiple of the page size.
    pub offset: u64,
    /// log2 of the bytes of a sub-buffer; no record crosses its end.
    pub sub_shift: u32,
    /// log2 of the bytes of a ring.
    pub ring_shift: u32,
}

/// The first page of the memfd. Apart from the atomics it is written once, before any stub can see it.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ControlPage {
    pub magic: u64,
    pub version: u32,
    pub header_bytes: u32,
    pub total_bytes: u64,
    /// Drawn at random for each memfd: tells a ring from the one that was mapped at its address before. Its low half is
    /// not 0.
    pub generation: u64,
    /// 0: every stub of the session leaves at once.
    pub enabled: AtomicU32,
    /// A [`Mode`].
    pub mode: u32,
    pub n_cpus: u32,
    /// No stub of the session writes a longer record.
    pub max_record_bytes: u32,
    pub states_offset: u64,
    pub rseq: Geometry,
    pub locked: Geometry,
    pub cells_offset: u64,
    pub cells_stride: u32,
    /// Threads that the table of spans has room for; 0 = there is none.
    pub span_slots: u32,
    /// A futex: the last of the `tickets` that had been taken when the tracer began to look at the libraries, once it has
    /// done so.
    pub turn: AtomicU32,
    /// How many threads have loaded or unloaded libraries: each adds one and waits for its `turn`.
    pub tickets: AtomicU32,
    /// How many of them went on before it was their turn.
    pub impatient: AtomicU64,
    /// The last of the `tickets` that had been taken when the tracer began the look that it is at: who is among them waits
    /// longer.
    pub looking: AtomicU32,
    /// How many process images have taken a number, by which the table of spans tells them apart.
    pub images: AtomicU32,
}

/// Head and tail of one ring, on cache lines of their own.
#[repr(C, align(256))]
#[derive(Debug)]
pub struct RingState {
    /// Bytes ever committed (rseq) or reserved (locked); never wraps. Stored by stubs.
    pub head: AtomicU64,
    /// Records that found the ring full. Stored by stubs.
    pub lost: AtomicU64,
    /// Time of the first lost record since the reader last set this to 0.
    pub lost_first: AtomicU64,
    /// Time of the last lost record.
    pub lost_last: AtomicU64,
    pub reserved: [AtomicU64; 12],
    /// Bytes ever freed. Stored by the reader; unused when overwriting.
    pub tail: AtomicU64,
}

const _: () = assert!(size_of::<Geometry>() == 16);
const _: () = assert!(size_of::<ControlPage>() == crate::PAGE_BYTES);
const _: () = assert!(offset_of!(ControlPage, generation) == 24);
const _: () = assert!(offset_of!(ControlPage, enabled) == 32);
const _: () = assert!(offset_of!(ControlPage, rseq) == 56);
const _: () = assert!(offset_of!(ControlPage, turn) == 104);
const _: () = assert!(offset_of!(ControlPage, tickets) == 108);
const _: () = assert!(offset_of!(ControlPage, impatient) == 112);
const _: () = assert!(offset_of!(ControlPage, looking) == 120);
const _: () = assert!(offset_of!(ControlPage, images) == 124);
const _: () = assert!(size_of::<RingState>() == 1 << STATE_SHIFT);
const _: () = assert!(offset_of!(RingState, tail) == 128);

/// log2 of the size of a [`RingState`].
pub const STATE_SHIFT: u32 = 8;

/// Bounds on what a control page may say.
pub const MIN_SUB_SHIFT: u32 = 12;
pub const MAX_RING_SHIFT: u32 = 30;
