//! One ring's memory, mapped by the tracer. The processes that have it may write anything to any of it at any time:
//! what the tracer must know of it is kept apart, and the rest is read through atomics and copies.

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd};

use nopal_abi::PAGE_BYTES;
use nopal_abi::ring::{ControlPage, MAGIC, RingState, STATE_SHIFT, VERSION};

use super::mapping::{self, Mapping};
use super::{RingConfig, RingError, RingLayout, Set};

/// Words of four bytes of the control page, before the one that changes by itself.
const CONTROL_WORDS: usize = offset_of!(ControlPage, turn) / 4;
const ENABLED: usize = offset_of!(ControlPage, enabled) / 4;
const TURN: usize = CONTROL_WORDS;
const TICKETS: usize = offset_of!(ControlPage, tickets) / 4;
const LOOKING: usize = offset_of!(ControlPage, looking) / 4;

/// A mapped ring.
#[derive(Debug)]
pub struct RingMemory {
    pub(super) mapping: Mapping,
    pub(super) layout: RingLayout,
    generation: u64,
    is_enabled: AtomicBool,
    /// The time stamp counter when it was made: nothing in it is older.
    made_at: u64,
    /// The control page as it has to be, but for `enabled`.
    control: [u32; CONTROL_WORDS],
}

/// What the time stamp counter says now.
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; it reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl RingMemory {
    /// Sizes and fills a fresh memfd, made with `MFD_ALLOW_SEALING`, and faults in every page of it, so that this process
    /// is charged for them.
    pub fn format(file: impl AsFd, config: &RingConfig) -> Result<RingMemory, RingError> {
        let layout = RingLayout::plan(config)?;
        let file = file.as_fd();
        // SAFETY: plain system call on a file descriptor that is borrowed for the call.
        if unsafe { libc::ftruncate(file.as_raw_fd(), layout.total_bytes as libc::off_t) } != 0 {
            return Err(RingError::Io { what: "sizing the ring", source: std::io::Error::last_os_error() });
        }
        // A traced program that shrank the file would take the tracer down with SIGBUS.
        mapping::seal(file).map_err(|source| RingError::Io { what: "sealing the ring", source })?;
        let mapping = Mapping::shared(file, layout.total_bytes as usize)
            .map_err(|source| RingError::Io { what: "mapping the ring", source })?;
        mapping
            .fault_in(mapping.len())
            .map_err(|source| RingError::Io { what: "finding memory for the ring", source })?;
        let page = mapping.start().cast::<ControlPage>();
        // Never 0 in its low half: that is what a new process's page holds.
        let generation = random()? | 1;
        let control = ControlPage {
            magic: MAGIC,
            version: VERSION,
            header_bytes: PAGE_BYTES as u32,
            total_bytes: layout.total_bytes,
            generation,
            enabled: AtomicU32::new(0),
            mode: layout.mode as u32,
            n_cpus: layout.n_cpus,
            max_record_bytes: layout.max_record_bytes,
            states_offset: layout.states_offset,
            rseq: layout.rseq,
            locked: layout.locked,
            cells_offset: layout.cells_offset,
            cells_stride: layout.cells_stride,
            span_slots: layout.span_slots,
            turn: AtomicU32::new(0),
            tickets: AtomicU32::new(0),
            impatient: AtomicU64::new(0),
            looking: AtomicU32::new(0),
            images: AtomicU32::new(0),
        };
        // SAFETY: the mapping has at least one page, is page-aligned and writable, and no stub knows it yet.
        unsafe { page.write(control) };
        Ok(RingMemory::around(mapping, layout, generation, time_stamp()))
    }

    /// Maps a ring that already is one.
    pub fn open(file: impl AsFd) -> Result<RingMemory, RingError> {
        let io = |what| move |source| RingError::Io { what, source };
        let mapping = Mapping::whole(file.as_fd()).map_err(io("mapping the ring"))?;
        if mapping.len() < PAGE_BYTES {
            return Err(RingError::Foreign { what: "its size", found: mapping.len() as u64 });
        }
        let mut page = MaybeUninit::<ControlPage>::uninit();
        // SAFETY: at least one page is mapped, page-aligned, and is copied before it is looked at; all bit patterns are
        // valid for ControlPage.
        let page = unsafe {
            std::ptr::copy_nonoverlapping(mapping.start().cast(), page.as_mut_ptr(), 1);
            page.assume_init()
        };
        let layout = RingLayout::check(&page, mapping.len())?;
        Ok(RingMemory::around(mapping, layout, page.generation, 0))
    }

    fn around(mapping: Mapping, layout: RingLayout, generation: u64, made_at: u64) -> RingMemory {
        let mut memory = RingMemory {
            mapping,
            layout,
            generation,
            is_enabled: AtomicBool::new(false),
            made_at,
            control: [0; CONTROL_WORDS],
        };
        memory.control = std::array::from_fn(|word| memory.control_word(word).load(Ordering::Acquire));
        memory.is_enabled = AtomicBool::new(memory.control[ENABLED] != 0);
        memory
    }

    pub fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// Tells this ring from the one that was mapped at its address before.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    /// Whether all that is to be read of a ring that is written over has been.
    pub(crate) fn is_drained(&self) -> bool {
        (0..self.layout.n_cpus).all(|cpu| {
            let state = self.state(Set::Locked, cpu);
            state.head.load(Ordering::Acquire) == state.tail.load(Ordering::Acquire)
        })
    }

    pub(crate) fn made_at(&self) -> u64 {
        self.made_at
    }

    fn control_word(&self, word: usize) -> &AtomicU32 {
        assert!(word <= LOOKING, "words of the control page");
        // SAFETY: inside the first page and aligned; we never hold another reference to it.
        unsafe { AtomicU32::from_ptr(self.mapping.start().cast::<u32>().add(word)) }
    }

    /// Lets the session's stubs record, or stops them, at once.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Release);
        self.control_word(ENABLED).store(u32::from(is_enabled), Ordering::Release);
    }

    /// Makes the control page again what it has to be; true if it was not, which a program must have done that has it.
    pub(crate) fn mend_control(&self) -> bool {
        let mut is_damaged = false;
        for word in 0..CONTROL_WORDS {
            let expected = if word == ENABLED { u32::from(self.is_enabled()) } else { self.control[word] };
            if self.control_word(word).load(Ordering::Acquire) != expected {
                self.control_word(word).store(expected, Ordering::Release);
                is_damaged = true;
            }
        }
        is_damaged
    }

    /// How many threads have ever waited in a [`Wait`](nopal_capture::Action::Wait) stub, or wait now.
    pub fn tickets(&self) -> u32 {
        self.control_word(TICKETS).load(Ordering::Acquire)
    }

    /// Whether a thread waits whose turn has not come.
    pub fn is_waited_for(&self) -> bool {
        self.tickets() != self.control_word(TURN).load(Ordering::Acquire)
    }

    /// Says to the threads that wait with tickets up to this one that they are being looked after.
    pub fn begin_look(&self, ticket: u32) {
        self.control_word(LOOKING).store(ticket, Ordering::Release);
    }

    /// Lets go on the threads that wait with tickets up to this one.
    pub fn take_turn(&self, ticket: u32) {
        let turn = self.control_word(TURN);
        turn.store(ticket, Ordering::Release);
        // SAFETY: wakes whoever waits on this word; it is mapped as long as we are.
        unsafe { libc::syscall(libc::SYS_futex, turn.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    /// How many threads have gone on before their turn.
    pub fn impatient(&self) -> u64 {
        let at = offset_of!(ControlPage, impatient);
        // SAFETY: inside the first page and aligned; we never hold another reference to it.
        unsafe { AtomicU64::from_ptr(self.mapping.start().add(at).cast()) }.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self, set: Set, cpu: u32) -> &RingState {
        let index = match set {
            Set::Rseq => u64::from(cpu),
            Set::Locked => u64::from(self.layout.n_cpus + cpu),
        };
        let offset = self.layout.states_offset + (index << STATE_SHIFT);
        assert!(cpu < self.layout.n_cpus, "streams are made for the CPUs of the layout");
        // SAFETY: the layout places 2 * n_cpus states inside the mapping, 256-aligned; all their fields are atomics.
        unsafe { &*self.mapping.start().add(offset as usize).cast::<RingState>() }
    }

    /// The ring of one CPU: its first byte and its length.
    pub(crate) fn ring(&self, set: Set, cpu: u32) -> (*mut u8, usize) {
        let geometry = self.layout.geometry(set);
        assert!(cpu < self.layout.n_cpus, "streams are made for the CPUs of the layout");
        let offset = geometry.offset + (u64::from(cpu) << geometry.ring_shift);
        // SAFETY: the layout places n_cpus rings of that size inside the mapping.
        (unsafe { self.mapping.start().add(offset as usize) }, 1 << geometry.ring_shift)
    }
}

fn random() -> Result<u64, RingError> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if n != 8 {
        return Err(RingError::Io {
            what: "drawing a session number",
            source: std::io::Error::last_os_error(),
        });
    }
    Ok(u64::from_le_bytes(bytes))
}
