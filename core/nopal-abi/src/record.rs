//! The bytes one hit leaves in a ring.
//!
//! ```text
//! u32 word     size in bytes of the whole record (multiple of 8) | flags << 24
//! u32 event    the number the session gave to this site's event
//! u64 time     if TIME: the processor's time stamp counter
//! u32 tid      if TASK: as the traced process's own namespace counts
//! u32 pid      if TASK
//! ...          fixed part: values, each in its own size, without padding; a u32 per string
//! ...          the bytes of the strings, one after the other
//! ...          up to 7 bytes of padding
//! ```

/// Size and alignment unit of records.
pub const UNIT_BYTES: u32 = 8;

/// What every record begins with.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Size in bytes in the low 24 bits, flags above.
    pub word: u32,
    /// The event's number; in a [`flags::BUSY`] record the tid of the thread that is writing it.
    pub event: u32,
}

const _: () = assert!(size_of::<RecordHeader>() == 8);

pub const SIZE_MASK: u32 = 0x00ff_ffff;

/// The eight flags of a record's first word, as they stand in that word.
pub mod flags {
    /// A u64 time stamp follows the header.
    pub const TIME: u32 = 1 << 24;
    /// u32 tid and u32 pid follow.
    pub const TASK: u32 = 1 << 25;
    /// Locked rings only: reserved, not yet committed.
    pub const BUSY: u32 = 1 << 26;
    /// Nothing in it: fills a sub-buffer up to its end.
    pub const PADDING: u32 = 1 << 27;
    /// The first hit of a session in a process; its payload is the process's `comm`, 16 bytes.
    pub const PROCESS: u32 = 1 << 28;
    pub const KNOWN: u32 = TIME | TASK | BUSY | PADDING | PROCESS;
}

pub const COMM_BYTES: usize = 16;

/// The u32 that stands for a string or byte string in the fixed part.
pub mod text {
    /// How many bytes were copied.
    pub const LENGTH_MASK: u32 = 0x00ff_ffff;
    /// The pointer was NULL; nothing was copied.
    pub const NULL: u32 = 1 << 29;
    /// The memory could not be read beyond the bytes that were copied.
    pub const UNREADABLE: u32 = 1 << 30;
    /// There was more than the limit of the capture.
    pub const TRUNCATED: u32 = 1 << 31;
}

/// Rounds up to whole units.
pub const fn round_up(bytes: u32) -> u32 {
    (bytes + UNIT_BYTES - 1) & !(UNIT_BYTES - 1)
}

/// Bytes before the payload of a record with these flags.
pub const fn payload_offset(word: u32) -> u32 {
    8 + if word & flags::TIME != 0 { 8 } else { 0 } + if word & flags::TASK != 0 { 8 } else { 0 }
}
