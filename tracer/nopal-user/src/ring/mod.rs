//! The session's shared memory on the tracer's side: its size and division. One ring's mapping is in `memory`, all rings of
//! a session are in `rings`; reading them is in [`super::consumer`].

mod cells;
mod mapping;
mod memory;
mod rings;
mod spans;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nopal_abi::ring::{
    ControlPage, Geometry, MAGIC, MAX_RING_SHIFT, MIN_SUB_SHIFT, Mode, STATE_SHIFT, VERSION,
};
use nopal_abi::{MAX_CPUS, PAGE_BYTES, record};
use nopal_capture::span::table_bytes;

pub use cells::CellReading;
pub use mapping::Mapping;
pub(super) use mapping::seal_code;
pub use memory::RingMemory;
pub(super) use memory::time_stamp;
pub use rings::{Members, Rings, Tickets};
pub use spans::{OpenSpans, SpanReading};

/// The name of the ring's memfd in `/proc/PID/maps`.
pub const RING_NAME: &str = "/memfd:nopal-ring";

/// What a session wants of its ring. Sizes are rounded up to powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    pub mode: Mode,
    /// See [`possible_cpus`](nopal_proc::possible_cpus).
    pub n_cpus: u32,
    pub ring_bytes: u64,
    pub sub_bytes: u64,
    /// The rings for threads without rseq; they also take the PROCESS records.
    pub locked_ring_bytes: u64,
    pub locked_sub_bytes: u64,
    /// Bytes of aggregation cells per CPU.
    pub cells_bytes: u32,
    /// Threads whose spans can be kept at the source: 0, or a power of two.
    pub span_slots: u32,
}

impl RingConfig {
    pub fn new(n_cpus: u32) -> RingConfig {
        RingConfig::sized(n_cpus, 4 << 20)
    }

    /// With rings of this size. Programs without rseq (all of musl's) have nothing but the locked rings, so those get half
    /// as much again: what comes in during 50 ms, a usual delay of the reader, at a million events a second.
    pub fn sized(n_cpus: u32, ring_bytes: u64) -> RingConfig {
        let locked_ring_bytes = (ring_bytes / 2).max(64 << 10);
        RingConfig {
            mode: Mode::Discard,
            n_cpus,
            ring_bytes,
            // A record takes half a sub-buffer at most; three of the longest strings of the command line fit.
            sub_bytes: (ring_bytes / 4).clamp(4 << 10, 64 << 10),
            locked_ring_bytes,
            locked_sub_bytes: (locked_ring_bytes / 4).min(64 << 10),
            cells_bytes: 0,
            span_slots: 0,
        }
    }
}

/// How a ring's memory is divided. Only made by [`RingLayout::plan`] and from a control page that was checked, so its
/// numbers fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    pub mode: Mode,
    pub n_cpus: u32,
    pub max_record_bytes: u32,
    pub states_offset: u64,
    pub rseq: Geometry,
    pub locked: Geometry,
    pub cells_offset: u64,
    pub cells_stride: u32,
    pub span_slots: u32,
    pub spans_offset: u64,
    pub total_bytes: u64,
}

/// Why a ring cannot be made or used.
#[derive(Debug)]
pub enum RingError {
    Io {
        what: &'static str,
        source: std::io::Error,
    },
    BadConfig {
        what: &'static str,
    },
    /// The memory is not a ring of this version.
    Foreign {
        what: &'static str,
        found: u64,
    },
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RingError::Io { what, source } => write!(f, "{what}: {source}"),
            RingError::BadConfig { what } => write!(f, "no ring of this size: {what}"),
            RingError::Foreign { what, found } => {
                write!(f, "not a ring that this version of nopal can read: {what} is {found:#x}")
            }
        }
    }
}

impl std::error::Error for RingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RingError::Io { source, .. } => Some(source),
            RingError::BadConfig { .. } | RingError::Foreign { .. } => None,
        }
    }
}

fn round_to_page(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES as u64)
}

fn shift(bytes: u64) -> u32 {
    bytes.checked_next_power_of_two().map_or(64, u64::trailing_zeros)
}

impl RingLayout {
    pub fn plan(config: &RingConfig) -> Result<RingLayout, RingError> {
        let bad = |what| Err(RingError::BadConfig { what });
        if config.n_cpus == 0 || config.n_cpus > MAX_CPUS {
            return bad("between 1 and 8192 CPUs");
        }
        if config.cells_bytes > 1 << 20 {
            return bad("at most 1 MiB of cells per CPU");
        }
        let slots = config.span_slots;
        if slots != 0 && (!slots.is_power_of_two() || slots > 1 << 16) {
            return bad("the threads of spans are a power of two, at most 65536");
        }
        let sets =
            [(config.sub_bytes, config.ring_bytes), (config.locked_sub_bytes, config.locked_ring_bytes)];
        for (sub, ring) in sets.map(|(sub, ring)| (shift(sub), shift(ring))) {
            if sub < MIN_SUB_SHIFT || ring > MAX_RING_SHIFT {
                return bad("sub-buffers have at least 4 KiB, rings at most 1 GiB");
            }
            if ring < sub + 1 {
                return bad("a ring has at least two sub-buffers");
            }
        }
        let n = u64::from(config.n_cpus);
        let states_offset = PAGE_BYTES as u64;
        let rseq_offset = round_to_page(states_offset + ((2 * n) << STATE_SHIFT));
        let [rseq_shift, locked_shift] = sets.map(|(_, ring)| shift(ring));
        let [rseq_sub, locked_sub] = sets.map(|(sub, _)| shift(sub));
        let locked_offset = rseq_offset + (n << rseq_shift);
        let cells_offset = locked_offset + (n << locked_shift);
        let cells_stride = config.cells_bytes.next_multiple_of(64);
        let spans_offset = round_to_page(cells_offset + 2 * n * u64::from(cells_stride));
        Ok(RingLayout {
            mode: config.mode,
            n_cpus: config.n_cpus,
            // Half a sub-buffer, so that padding never takes more than half.
            max_record_bytes: ((1u64 << rseq_sub.min(locked_sub)) / 2).min(u64::from(record::SIZE_MASK) / 2)
                as u32
                & !7,
            states_offset,
            rseq: Geometry { offset: rseq_offset, sub_shift: rseq_sub, ring_shift: rseq_shift },
            locked: Geometry { offset: locked_offset, sub_shift: locked_sub, ring_shift: locked_shift },
            cells_offset,
            cells_stride,
            span_slots: slots,
            spans_offset,
            total_bytes: round_to_page(spans_offset + table_bytes(slots)),
        })
    }

    /// Takes nothing on trust that a control page says.
    fn check(page: &ControlPage, mapped_bytes: usize) -> Result<RingLayout, RingError> {
        let foreign = |what, found: u64| Err(RingError::Foreign { what, found });
        if page.magic != MAGIC {
            return foreign("its magic number", page.magic);
        }
        if page.version != VERSION || page.header_bytes as usize != PAGE_BYTES {
            return foreign("its version", page.version.into());
        }
        let mode = match page.mode {
            0 => Mode::Discard,
            1 => Mode::Overwrite,
            other => return foreign("its mode", other.into()),
        };
        let (Some(ring_bytes), Some(locked_ring_bytes)) =
            (1u64.checked_shl(page.rseq.ring_shift), 1u64.checked_shl(page.locked.ring_shift))
        else {
            return foreign("its ring size", page.rseq.ring_shift.into());
        };
        let (Some(sub_bytes), Some(locked_sub_bytes)) =
            (1u64.checked_shl(page.rseq.sub_shift), 1u64.checked_shl(page.locked.sub_shift))
        else {
            return foreign("its sub-buffer size", page.rseq.sub_shift.into());
        };
        // The division follows from the sizes: work it out again and compare.
        let config = RingConfig {
            mode,
            n_cpus: page.n_cpus,
            ring_bytes,
            sub_bytes,
            locked_ring_bytes,
            locked_sub_bytes,
            cells_bytes: page.cells_stride,
            span_slots: page.span_slots,
        };
        let layout = RingLayout::plan(&config)?;
        let is_same = layout.states_offset == page.states_offset
            && layout.rseq == page.rseq
            && layout.locked == page.locked
            && layout.cells_offset == page.cells_offset
            && layout.max_record_bytes == page.max_record_bytes
            && layout.total_bytes == page.total_bytes;
        if !is_same || layout.total_bytes != mapped_bytes as u64 {
            return foreign("its size", page.total_bytes);
        }
        Ok(layout)
    }

    pub fn geometry(&self, set: Set) -> Geometry {
        match set {
            Set::Rseq => self.rseq,
            Set::Locked => self.locked,
        }
    }
}

/// The two sets of rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    Rseq,
    Locked,
}

/// Gives the memory of a ring back, whoever still has it mapped. It is empty from there on.
pub(crate) fn free(file: &std::fs::File, n_bytes: u64) {
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // Where it fails, the last one to unmap it gives it back.
    // SAFETY: the descriptor is open; the rest are numbers.
    unsafe { libc::fallocate(file.as_raw_fd(), how, 0, n_bytes as libc::off_t) };
}

/// A memfd of this process, for rings that are not shared through a traced process's own.
pub fn memfd(name: &std::ffi::CStr) -> std::io::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
