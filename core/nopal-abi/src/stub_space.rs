//! The stub space: generated code in the neighbourhood of a traced text, and the journal that says what was changed.
//! A memfd, r-x in the traced processes and rw in the tracer, sealed so that nobody but the tracer can ever write to it.
//!
//! ```text
//! 0               StubSpace (header)
//! journal_offset  JournalEntry[journal_capacity]
//! code_offset     thunks, slots, resume code, stubs
//! total_bytes     (end of the memfd) followed in the traced process by private pages: the ProcessPage, the tracer's
//!                 ledger, the KeptPages
//! ```
//!
//! ```text
//! site --jmp--> landing --jmp--> thunk: jmp *slot
//!                                slot  -> stub of session B: ... jmp *next
//!                                                                  next -> stub of session A: ... jmp *next
//!                                                                                               next -> resume code
//! ```

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};

pub const MAGIC: u64 = u64::from_le_bytes(*b"nopalstb");
pub const VERSION: u32 = 4;
/// What is reserved in one neighbourhood unless the creator says otherwise.
pub const DEFAULT_BYTES: usize = 16 << 20;
pub const DEFAULT_JOURNAL_ENTRIES: u32 = 65_536;
/// Sessions that can be on one process at once.
pub const MAX_SESSIONS: usize = 32;

/// How stubs of this process image get at a ring; [`StubSpace::path`]. Stubs read it at every hit.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Locked rings; nothing is known of `%fs`, the tid comes from `gettid`.
    Locked = 0,
    /// Locked rings; the tid is read at `%fs:tid_offset`.
    LockedTls = 1,
    /// rseq rings; rseq area at `%fs:rseq_offset`, tid at `%fs:tid_offset`.
    Rseq = 2,
    /// Locked rings and no system call at all: the tid is 0.
    LockedSilent = 3,
}

/// The signature glibc, librseq and the kernel's own tests register; code generated before a thread has registered
/// carries it.
pub const RSEQ_SIGNATURE: u32 = 0x5305_3053;

/// The header.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct StubSpace {
    pub magic: u64,
    pub version: u32,
    pub header_bytes: u32,
    pub total_bytes: u64,
    /// Where this byte is in the traced processes: the same in all that share the memfd.
    pub address: u64,
    pub journal_offset: u32,
    pub journal_capacity: u32,
    /// Entries from 0 on that have been filled.
    pub journal_used: AtomicU32,
    pub code_offset: u32,
    /// Bytes of code in use, from `code_offset` on.
    pub code_used: AtomicU32,
    /// A [`Path`].
    pub path: AtomicU32,
    /// The signature all code in this space was generated with; a process that registered another takes a locked path.
    pub rseq_signature: u32,
    /// The length threads registered for their rseq areas.
    pub rseq_bytes: AtomicU32,
    /// Of the thread's rseq area from `fs_base`.
    pub rseq_offset: AtomicI64,
    /// Of the thread's tid from `fs_base`.
    pub tid_offset: AtomicI64,
    pub sessions: [SessionEntry; MAX_SESSIONS],
}

/// One session that is or was on this process.
#[repr(C)]
#[derive(Debug)]
pub struct SessionEntry {
    /// A [`SessionState`].
    pub state: AtomicU32,
    pub tracer_pid: u32,
    /// Start time of the tracer as `/proc/PID/stat` has it (field 22): with the pid it names the tracer for good.
    pub tracer_start: u64,
    /// Drawn at random for each session.
    pub generation: u64,
    /// Where the session's ring is in the traced processes. Which one it is depends on the process's credentials.
    pub ring_address: u64,
    pub ring_bytes: u64,
    /// Of the ring that the first process had there.
    pub ring_inode: u64,
    /// Offset of the session's announce routine, 0 = none yet.
    pub announce: u32,
    /// Its length; 0 = not known.
    pub announce_bytes: u32,
    pub reserved: [u32; 2],
}

#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Free = 0,
    Live = 1,
    /// Detached; ring address and stubs may be taken over by the next session.
    Left = 2,
}

/// One line of the journal: a thing that was changed in the traced process. Written, with state `Prepared`, before the
/// change is made. The original bytes are not here: they are in the object's file.
#[repr(C)]
#[derive(Debug)]
pub struct JournalEntry {
    /// A [`JournalKind`].
    pub kind: u16,
    /// A [`JournalState`].
    pub state: AtomicU16,
    /// Index in [`StubSpace::sessions`]; [`NO_SESSION`] for what belongs to all.
    pub session: u16,
    /// Patch: bytes changed. Semaphore: how much was added. Landing: pages mapped.
    pub length: u16,
    /// Patch, Scratch: run-time address of the first changed byte. Semaphore: of the counter. Landing: of the page.
    /// Site, Stub: of the site.
    pub address: u64,
    /// Site: offset of the thunk. Stub: of the stub's entry. Landing: of the page that is shown there, which others may
    /// show as well. Patch: the distance of its jump, from the end of that on.
    pub code: u32,
    /// Site: offset of the slot. Stub: of its next-slot. Patch: a [`PatchForm`].
    pub slot: u32,
    /// Site: offset of the resume code. Stub: bytes of code. Patch: how far behind its site it is, with a
    /// sign: an exit may be opened before it.
    pub extent: u32,
    /// Semaphore: the process, as the tracer counts; 0 = every process that maps this space.
    pub pid: u32,
    /// The link-time address of `address` in its object.
    pub link_address: u64,
    pub object_device: u64,
    pub object_inode: u64,
    /// First 8 bytes of the object's build id, 0 = it has none.
    pub object_build_id: u64,
}

pub const NO_SESSION: u16 = u16::MAX;

/// What the changed bytes of a patch are.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    /// The opcode of a jump and as much of its distance as the length says; with ten bytes a 5-byte nop follows.
    Jump = 0,
    /// The same in place of instructions that were moved; their pages are writable meanwhile.
    Relocated = 1,
    /// As `Jump`, behind the first byte of the instruction, a prefix.
    Prefixed = 2,
    /// The distance of a jump that is the program's own, behind an opcode of one byte.
    Distance = 3,
    /// The same behind an opcode of two bytes.
    FarDistance = 4,
}

impl PatchForm {
    pub fn from_code(code: u32) -> Option<PatchForm> {
        [
            PatchForm::Jump,
            PatchForm::Relocated,
            PatchForm::Prefixed,
            PatchForm::Distance,
            PatchForm::FarDistance,
        ]
        .into_iter()
        .find(|form| *form as u32 == code)
    }
}

#[repr(u16)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JournalKind {
    /// Text bytes of an object were changed.
    Patch = 1,
    /// A semaphore was raised.
    Semaphore = 2,
    /// Pages were mapped for jumps to land on.
    Landing = 3,
    /// Bytes of an object were borrowed for a moment to run injected code.
    Scratch = 4,
    /// Thunk, slot and resume code of a site.
    Site = 5,
    /// A session's stub for a site.
    Stub = 6,
}

#[repr(u16)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalState {
    /// The change may or may not have been made.
    Prepared = 0,
    /// Made and in force.
    InForce = 1,
    /// Undone.
    Undone = 2,
}

/// The private page behind the stub space in each process: anonymous, read-write, `MADV_WIPEONFORK`.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ProcessPage {
    /// By session index: the process's own pid as its namespace counts in the low half, the low half of the ring's
    /// [`generation`](crate::ring::ControlPage::generation) in the high one. With another generation there, the ring has
    /// not met this process.
    pub met: [AtomicU64; MAX_SESSIONS],
    /// By session index: the number of this process image in the ring's table of spans in the low half, the ring's generation
    /// in the high one, as above.
    pub images: [AtomicU64; MAX_SESSIONS],
    /// Numbers of pages of the heap that the kernel has said can be read, each in the place that its low bits say; 0: none.
    pub readable: [AtomicU64; N_READABLE],
}

/// Places in the table of pages that can be read.
pub const N_READABLE: usize = 64;

/// Stub spaces that one process can have at most; each reaches 2 GiB of code on either side.
pub const N_SPACES: usize = 511;

/// Places in the table of threads.
pub const N_THREADS: usize = 4096;

/// The private pages behind the ledger in each process: anonymous, read-write; forked children begin with a copy, as they
/// do of the memory the addresses in it belong to.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct KeptPages {
    /// What the process has forbidden itself: bits of [`restraint`].
    pub restraint: AtomicU32,
    pub reserved: u32,
    /// Where the same word is in each stub space of the process, this one among them; 0: no more. The
    /// last is always 0.
    pub spaces: [AtomicU64; N_SPACES],
    /// Values of `fs_base` that were found to be a thread's own, each in one of two places that follow from it. All bits
    /// are inverted, so that an empty place stands for no address, not even 0.
    pub threads: [AtomicU64; N_THREADS],
}

/// What a stub must not do in a process, since the process has forbidden it to itself. Set before that takes effect.
pub mod restraint {
    /// System calls: a filter may answer them with death.
    pub const NO_CALLS: u32 = 1;
    /// Reading the time stamp counter, which raises a signal. A record needs its time: hits are counted as lost.
    pub const NO_TIME: u32 = 2;
}

/// Of the ledger behind the process page: four bits for each entry of the journal.
pub const LEDGER_BYTES: usize = DEFAULT_JOURNAL_ENTRIES as usize / 2;

/// From the process page to the kept pages.
pub const KEPT_OFFSET: usize = crate::PAGE_BYTES + LEDGER_BYTES;

const _: () = assert!(size_of::<StubSpace>() == crate::PAGE_BYTES);
const _: () = assert!(size_of::<ProcessPage>() == crate::PAGE_BYTES);
/// What is behind belongs to the tracer.
const _: () = assert!(offset_of!(ProcessPage, readable) + 8 * N_READABLE == 1024);
const _: () = assert!(LEDGER_BYTES.is_multiple_of(crate::PAGE_BYTES));
const _: () = assert!(size_of::<SessionEntry>() == 64);
const _: () = assert!(size_of::<JournalEntry>() == 64);
const _: () = assert!(offset_of!(StubSpace, path) == 52);
const _: () = assert!(offset_of!(StubSpace, rseq_offset) == 64);
const _: () = assert!(offset_of!(StubSpace, tid_offset) == 72);
const _: () = assert!(offset_of!(StubSpace, sessions) == 80);
