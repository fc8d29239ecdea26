//! The stub space on the tracer's side: where code is put, and who may put it there. Works on the tracer's own mapping of
//! the memfd, which is the only one that can be written through: the traced processes may read and run what is in it,
//! and nothing else. Whoever calls these functions holds ptrace on the process, which keeps other tracers out. Sites and
//! their chains of stubs are in `chain`, the journal is in `journal`.

use core::mem::offset_of;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{
    JournalEntry, JournalState, MAGIC, MAX_SESSIONS, PatchForm, Path, RSEQ_SIGNATURE, SessionEntry,
    SessionState, StubSpace, VERSION,
};

use super::journal::Journal;
pub use super::journal::{Entry, ObjectIdentity};
use super::{StubError, Surroundings, routines};
use crate::ring::{Mapping, RingLayout, seal_code};

pub(super) const LINE: usize = 64;
/// Larger than any space is.
const MAX_BYTES: usize = 1 << 30;

/// A stub space as the tracer sees it.
#[derive(Debug)]
pub struct Space {
    pub(super) mapping: Mapping,
    pub(super) address: u64,
    journal_offset: usize,
    pub(super) journal_capacity: usize,
    pub(super) code_offset: usize,
    rseq_signature: u32,
    journal: Mutex<Journal>,
    /// Stretches of the code that nobody needs any more, in order, each beginning on a line.
    pub(super) free: Mutex<Vec<Range<usize>>>,
}

#[derive(Debug)]
pub enum SpaceError {
    Io {
        what: &'static str,
        source: io::Error,
    },
    /// Left by another version of nopal, or not a stub space.
    Foreign {
        what: &'static str,
        found: u64,
    },
}

impl std::fmt::Display for SpaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpaceError::Io { what, source } => write!(f, "{what}: {source}"),
            SpaceError::Foreign { what, found } => write!(
                f,
                "the process holds a stub space that this version of nopal cannot use ({what} is {found:#x}); \
                 detach with the version that made it, or restart the process"
            ),
        }
    }
}

impl std::error::Error for SpaceError {}

/// How the threads of a process image reach the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadPath {
    /// A [`Path`].
    pub path: u32,
    pub rseq_offset: i64,
    pub rseq_bytes: u32,
    pub tid_offset: i64,
}

/// A session's ring as the process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFacts {
    pub tracer_pid: u32,
    pub tracer_start: u64,
    pub generation: u64,
    pub ring_address: u64,
    pub ring_inode: u64,
    pub layout: RingLayout,
}

/// What the table of sessions says at one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLine {
    pub is_live: bool,
    pub has_left: bool,
    pub tracer_pid: u32,
    pub tracer_start: u64,
    pub generation: u64,
    pub ring_address: u64,
    pub ring_bytes: u64,
    pub(super) announce: u32,
    pub(super) announce_bytes: u32,
}

/// A session that may generate stubs here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub index: u16,
    ring: u64,
    layout: RingLayout,
    announce: u64,
}

impl Space {
    /// Sizes and fills a fresh memfd, made with `MFD_ALLOW_SEALING`, that will be at `address` in the process.
    pub fn format(
        file: impl AsFd,
        address: u64,
        total_bytes: usize,
        journal_capacity: u32,
        rseq_signature: u32,
    ) -> Result<Space, SpaceError> {
        let journal_bytes = journal_capacity as usize * size_of::<JournalEntry>();
        let code_offset = (PAGE_BYTES + journal_bytes).next_multiple_of(PAGE_BYTES);
        if code_offset + PAGE_BYTES > total_bytes || total_bytes > MAX_BYTES {
            return Err(SpaceError::Foreign { what: "its size", found: total_bytes as u64 });
        }
        let mapping = map_and_seal(file, total_bytes)?;
        let free = || SessionEntry {
            state: AtomicU32::new(SessionState::Free as u32),
            tracer_pid: 0,
            tracer_start: 0,
            generation: 0,
            ring_address: 0,
            ring_bytes: 0,
            ring_inode: 0,
            announce: 0,
            announce_bytes: 0,
            reserved: [0; 2],
        };
        let header = StubSpace {
            magic: MAGIC,
            version: VERSION,
            header_bytes: PAGE_BYTES as u32,
            total_bytes: total_bytes as u64,
            address,
            journal_offset: PAGE_BYTES as u32,
            journal_capacity,
            journal_used: AtomicU32::new(0),
            code_offset: code_offset as u32,
            code_used: AtomicU32::new(0),
            path: AtomicU32::new(Path::Locked as u32),
            rseq_signature,
            rseq_bytes: AtomicU32::new(0),
            rseq_offset: AtomicI64::new(0),
            tid_offset: AtomicI64::new(0),
            sessions: std::array::from_fn(|_| free()),
        };
        // SAFETY: the mapping is page-aligned, writable and longer than a page, and nobody else has it yet.
        unsafe { mapping.start().cast::<StubSpace>().write(header) };
        Ok(Space {
            mapping,
            address,
            journal_offset: PAGE_BYTES,
            journal_capacity: journal_capacity as usize,
            code_offset,
            rseq_signature,
            journal: Mutex::default(),
            free: Mutex::default(),
        })
    }

    /// A space like one that was found at `address` in a process and begins with `bytes`, which are not trusted; beyond
    /// them it is empty. In a fresh memfd.
    pub fn copied(
        file: impl AsFd,
        address: u64,
        bytes: &[u8],
        total_bytes: usize,
    ) -> Result<Space, SpaceError> {
        let foreign = |what, found: u64| Err(SpaceError::Foreign { what, found });
        if bytes.len() < PAGE_BYTES || bytes.len() > total_bytes || total_bytes > MAX_BYTES {
            return foreign("its size", bytes.len() as u64);
        }
        macro_rules! field {
            ($name:ident, $ty:ty) => {{
                let at = offset_of!(StubSpace, $name);
                <$ty>::from_le_bytes(bytes[at..at + size_of::<$ty>()].try_into().expect("inside the header"))
            }};
        }
        if field!(magic, u64) != MAGIC {
            return foreign("its magic number", field!(magic, u64));
        }
        if field!(version, u32) != VERSION || field!(header_bytes, u32) as usize != PAGE_BYTES {
            return foreign("its version", field!(version, u32).into());
        }
        if field!(total_bytes, u64) != total_bytes as u64 {
            return foreign("its size", field!(total_bytes, u64));
        }
        if field!(address, u64) != address {
            return foreign("its address", field!(address, u64));
        }
        let journal_offset = field!(journal_offset, u32) as usize;
        let journal_capacity = field!(journal_capacity, u32) as usize;
        let code_offset = field!(code_offset, u32) as usize;
        let journal_end = journal_offset + journal_capacity * size_of::<JournalEntry>();
        let is_ordered = journal_offset >= PAGE_BYTES
            && journal_offset.is_multiple_of(LINE)
            && journal_end <= code_offset
            && code_offset.is_multiple_of(LINE)
            && code_offset <= total_bytes;
        if !is_ordered {
            return foreign("its division", journal_offset as u64);
        }
        let code_used = field!(code_used, u32) as usize;
        if code_offset + code_used > bytes.len() {
            return foreign("its code", code_used as u64);
        }
        let used = (field!(journal_used, u32) as usize).min(journal_capacity);
        let journal =
            Journal::read(&bytes[journal_offset..journal_offset + used * size_of::<JournalEntry>()]);
        let mapping = map_and_seal(file, total_bytes)?;
        // Whole pages of zeros stay holes.
        for (n, page) in bytes.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0))
        {
            // SAFETY: the bytes fit into the mapping, which nobody else has yet.
            unsafe {
                let to = mapping.start().add(n * PAGE_BYTES);
                std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len());
            }
        }
        let space = Space {
            mapping,
            address,
            journal_offset,
            journal_capacity,
            code_offset,
            rseq_signature: field!(rseq_signature, u32),
            journal: Mutex::new(journal),
            free: Mutex::default(),
        };
        space.word32(offset_of!(StubSpace, journal_used)).store(used as u32, Ordering::Release);
        Ok(space)
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that must be mapped `r-x` at [`Space::address`]; the process page follows directly, and later
    /// the [`KeptPages`](nopal_abi::stub_space::KeptPages).
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn process_page(&self) -> u64 {
        self.address + self.mapping.len() as u64
    }

    /// Where the code begins.
    pub fn code_start(&self) -> u64 {
        self.address + self.code_offset as u64
    }

    /// The signature all code in this space was generated with.
    pub fn rseq_signature(&self) -> u32 {
        self.rseq_signature
    }

    /// What is in the space so far, from its first byte on.
    pub fn bytes(&self) -> Vec<u8> {
        self.get(0, self.code_offset + self.code_bytes_used())
    }

    /// Finds memory for every page in use now, so that we are charged for it and not the target.
    pub fn fault_in(&self) -> io::Result<()> {
        // The journal has room for all sites of a large program, 4 MiB, of which a small one fills a page.
        let journal_bytes = self.books().used() * size_of::<JournalEntry>();
        self.mapping.fault_in(self.journal_offset + journal_bytes)?;
        self.mapping.fault_in_range(self.code_offset..self.code_offset + self.code_bytes_used())
    }

    /// A word of the header.
    pub(super) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= PAGE_BYTES && offset.is_multiple_of(4), "offsets of fields");
        // SAFETY: inside the first page and aligned; we never hold another reference to it, and no other process can
        // write to it.
        unsafe { AtomicU32::from_ptr(self.mapping.start().add(offset).cast()) }
    }

    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= PAGE_BYTES && offset.is_multiple_of(8), "offsets of fields");
        // SAFETY: as in word32.
        unsafe { AtomicU64::from_ptr(self.mapping.start().add(offset).cast()) }
    }

    /// Says how the threads of this process image reach the rings. What the threads are like is stored before the path
    /// that makes stubs use it. `rseq_bytes` is what they registered as the length of their rseq area.
    pub fn set_path(&self, path: Path, rseq_offset: i64, rseq_bytes: u32, tid_offset: i64) {
        self.word64(offset_of!(StubSpace, rseq_offset)).store(rseq_offset as u64, Ordering::Relaxed);
        self.word32(offset_of!(StubSpace, rseq_bytes)).store(rseq_bytes, Ordering::Relaxed);
        self.word64(offset_of!(StubSpace, tid_offset)).store(tid_offset as u64, Ordering::Relaxed);
        self.word32(offset_of!(StubSpace, path)).store(path as u32, Ordering::Release);
    }

    pub fn path(&self) -> ThreadPath {
        ThreadPath {
            path: self.word32(offset_of!(StubSpace, path)).load(Ordering::Acquire),
            rseq_offset: self.word64(offset_of!(StubSpace, rseq_offset)).load(Ordering::Relaxed) as i64,
            rseq_bytes: self.word32(offset_of!(StubSpace, rseq_bytes)).load(Ordering::Relaxed),
            tid_offset: self.word64(offset_of!(StubSpace, tid_offset)).load(Ordering::Relaxed) as i64,
        }
    }

    // --- the journal ---

    pub(super) fn books(&self) -> MutexGuard<'_, Journal> {
        // Each step leaves it whole.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raw_entry(&self, index: usize) -> *mut JournalEntry {
        assert!(index < self.journal_capacity, "indices come from journal() and entries()");
        // SAFETY: the journal lies inside the mapping, by format() and copied().
        unsafe {
            self.mapping
                .start()
                .add(self.journal_offset + index * size_of::<JournalEntry>())
                .cast::<JournalEntry>()
        }
    }

    /// All entries that make sense, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry, JournalState)> + use<> {
        self.books().iter().collect::<Vec<_>>().into_iter()
    }

    /// Writes an entry, state Prepared; an undone one that says the same is taken again.
    pub fn journal(&self, entry: &Entry) -> Result<usize, StubError> {
        let again = self.books().find(entry, Some(JournalState::Undone));
        if let Some(index) = again {
            self.set_state(index, JournalState::Prepared);
            return Ok(index);
        }
        let mut books = self.books();
        let index = books.place(self.journal_capacity).ok_or(StubError::JournalFull)?;
        // SAFETY: inside the mapping, 64-aligned, and no other process can write there.
        unsafe { self.raw_entry(index).write_volatile(entry.raw()) };
        books.add(index, entry);
        self.word32(offset_of!(StubSpace, journal_used)).store(books.used() as u32, Ordering::Release);
        Ok(index)
    }

    /// Where an entry that says this stands, whatever its state.
    pub fn find_entry(&self, entry: &Entry) -> Option<usize> {
        self.books().find(entry, None)
    }

    pub fn set_state(&self, index: usize, state: JournalState) {
        let entry = self.raw_entry(index);
        // SAFETY: inside the mapping and aligned; no reference to it is held, and no other process can write there.
        let word = unsafe { core::sync::atomic::AtomicU16::from_ptr((&raw mut (*entry).state).cast()) };
        word.store(state as u16, Ordering::Release);
        self.books().set_state(index, state);
    }

    /// The landing pages there are: address in the process, offset in the memfd.
    pub fn landings(&self) -> Vec<(u64, u64)> {
        let is_inside = |(_, place): &(u64, u64)| self.has_page(*place);
        self.books().landings().filter(is_inside).collect()
    }

    /// The highest places that landing pages show, at most `limit`.
    pub fn landing_places(&self, limit: usize) -> Vec<u64> {
        self.books().landing_places().filter(|place| self.has_page(*place)).take(limit).collect()
    }

    /// The place of one landing page.
    pub fn landing_at(&self, page: u64) -> Option<u64> {
        self.books().landing(page).filter(|place| self.has_page(*place))
    }

    fn has_page(&self, place: u64) -> bool {
        place + PAGE_BYTES as u64 <= self.mapping.len() as u64
    }

    /// Addresses of all sites whose instructions were ever moved.
    pub fn relocations(&self) -> Vec<u64> {
        self.books().relocations().iter().copied().collect()
    }

    /// The distances that jumps with these changed bytes had, newest first.
    pub fn distances(&self, address: u64, len: usize, form: PatchForm) -> Vec<u32> {
        /// A forged journal has thousands.
        const NEWEST: usize = 16;
        let patches = self.books().patches_at(address, NEWEST);
        let is_alike = |entry: &Entry| usize::from(entry.length) == len && entry.slot == form as u32;
        patches.into_iter().filter(is_alike).map(|entry| entry.code).collect()
    }

    // --- code ---

    /// Address and offset where the next piece of code goes that is put behind all that is there.
    pub(super) fn cursor(&self) -> (u64, usize) {
        let offset = (self.code_offset + self.code_bytes_used()).next_multiple_of(LINE);
        (self.address + offset as u64, offset)
    }

    /// Puts code behind all that is there, aligned.
    pub fn append(&self, code: &[u8], align: usize) -> Result<usize, StubError> {
        let offset = (self.code_offset + self.code_bytes_used()).next_multiple_of(align);
        let end = offset + code.len();
        if end > self.mapping.len() {
            return Err(StubError::SpaceFull { bytes: code.len() });
        }
        self.put(offset, code);
        let used = (end - self.code_offset) as u32;
        self.word32(offset_of!(StubSpace, code_used)).store(used, Ordering::Release);
        Ok(offset)
    }

    /// Writes code where no thread can be, or bytes that stand there already.
    pub fn put(&self, offset: usize, code: &[u8]) {
        assert!(
            offset >= self.code_offset && offset + code.len() <= self.mapping.len(),
            "callers checked the range"
        );
        // SAFETY: inside the mapping; no reference into it is held, and no other process can write there.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.mapping.start().add(offset), code.len()) };
    }

    /// A copy of what stands at `offset`.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.mapping.len(), "callers checked the range");
        let mut copy = vec![0; len];
        // SAFETY: inside the mapping; only we write there, and not now.
        unsafe { std::ptr::copy_nonoverlapping(self.mapping.start().add(offset), copy.as_mut_ptr(), len) };
        copy
    }

    /// Whether these bytes already stand at `offset`.
    pub(super) fn holds(&self, offset: usize, code: &[u8]) -> bool {
        offset >= self.code_offset
            && offset.checked_add(code.len()).is_some_and(|end| end <= self.mapping.len())
            && self.get(offset, code.len()) == code
    }

    pub fn code_bytes_used(&self) -> usize {
        let used = self.word32(offset_of!(StubSpace, code_used)).load(Ordering::Acquire) as usize;
        used.min(self.mapping.len() - self.code_offset)
    }

    // --- sessions ---

    /// What the table says at an index below [`MAX_SESSIONS`].
    pub fn session_line(&self, index: u16) -> SessionLine {
        assert!(usize::from(index) < MAX_SESSIONS, "indices come from the table");
        let at = offset_of!(StubSpace, sessions) + usize::from(index) * size_of::<SessionEntry>();
        let half = |offset: usize| self.word32(at + offset).load(Ordering::Acquire);
        let word = |offset: usize| self.word64(at + offset).load(Ordering::Acquire);
        let state = half(offset_of!(SessionEntry, state));
        SessionLine {
            is_live: state == SessionState::Live as u32,
            has_left: state == SessionState::Left as u32,
            tracer_pid: half(offset_of!(SessionEntry, tracer_pid)),
            tracer_start: word(offset_of!(SessionEntry, tracer_start)),
            generation: word(offset_of!(SessionEntry, generation)),
            ring_address: word(offset_of!(SessionEntry, ring_address)),
            ring_bytes: word(offset_of!(SessionEntry, ring_bytes)),
            announce: half(offset_of!(SessionEntry, announce)),
            announce_bytes: half(offset_of!(SessionEntry, announce_bytes)),
        }
    }

    /// The whole table.
    pub fn session_lines(&self) -> impl Iterator<Item = (u16, SessionLine)> + '_ {
        (0..MAX_SESSIONS as u16).map(|index| (index, self.session_line(index)))
    }

    /// A session that has left and whose ring had this size: its index, and the address where the new ring can be mapped
    /// over the old one.
    pub fn left_session(&self, ring_bytes: u64) -> Option<(u16, u64)> {
        self.session_lines()
            .find(|(_, line)| line.has_left && line.ring_bytes == ring_bytes)
            .map(|(index, line)| (index, line.ring_address))
    }

    /// An index for a new session when [`Space::left_session`] has none; those never used come first.
    pub fn free_session(&self) -> Option<u16> {
        let find = |is_it: fn(&SessionLine) -> bool| {
            self.session_lines().find(|(_, line)| is_it(line)).map(|(index, _)| index)
        };
        find(|line| !line.is_live && !line.has_left).or_else(|| find(|line| line.has_left))
    }

    /// Takes an index for a session whose ring is (or will be, before the first stub is chained) at its address.
    pub fn enter_session(&self, index: u16, facts: &SessionFacts) -> Result<Session, StubError> {
        let old = self.session_line(index).announce;
        let mut session = Session { index, ring: facts.ring_address, layout: facts.layout, announce: 0 };
        let again = routines(&self.surroundings(&session, self.address + u64::from(old)))?;
        let offset = if old != 0 && self.holds(old as usize, &again) {
            old as usize
        } else {
            self.place(|address| routines(&self.surroundings(&session, address)))?
        };
        session.announce = self.address + offset as u64;
        let entry = SessionEntry {
            state: AtomicU32::new(SessionState::Live as u32),
            tracer_pid: facts.tracer_pid,
            tracer_start: facts.tracer_start,
            generation: facts.generation,
            ring_address: facts.ring_address,
            ring_bytes: facts.layout.total_bytes,
            ring_inode: facts.ring_inode,
            announce: offset as u32,
            announce_bytes: again.len() as u32,
            reserved: [0; 2],
        };
        let place = offset_of!(StubSpace, sessions) + usize::from(index) * size_of::<SessionEntry>();
        // SAFETY: inside the header; no reference to it is held, and no other process can write there.
        unsafe { self.mapping.start().add(place).cast::<SessionEntry>().write_volatile(entry) };
        Ok(session)
    }

    /// A session of ours in a copy of a space that it had entered before.
    pub fn session_again(&self, index: u16, layout: RingLayout) -> Session {
        let line = self.session_line(index);
        let announce = self.address + u64::from(line.announce);
        Session { index, ring: line.ring_address, layout, announce }
    }

    /// The session's stubs must have been unchained. Its index, ring address and code can be used again.
    pub fn leave_session(&self, index: u16) {
        assert!(usize::from(index) < MAX_SESSIONS, "indices come from the table");
        let at = offset_of!(StubSpace, sessions) + usize::from(index) * size_of::<SessionEntry>();
        self.word32(at + offset_of!(SessionEntry, state)).store(SessionState::Left as u32, Ordering::Release);
    }

    pub(super) fn surroundings(&self, session: &Session, address: u64) -> Surroundings {
        Surroundings {
            address,
            space: self.address,
            process_page: self.process_page(),
            session: session.index,
            announce: session.announce,
            ring: session.ring,
            layout: session.layout,
            rseq_signature: match self.rseq_signature {
                0 => RSEQ_SIGNATURE,
                signature => signature,
            },
        }
    }
}

/// Sizes a fresh memfd and maps it; from then on nobody can get another mapping that can be written through.
fn map_and_seal(file: impl AsFd, total_bytes: usize) -> Result<Mapping, SpaceError> {
    let io = |what| move |source| SpaceError::Io { what, source };
    let file = file.as_fd();
    // SAFETY: plain system call on a file descriptor that is borrowed for the call.
    if unsafe { libc::ftruncate(file.as_raw_fd(), total_bytes as libc::off_t) } != 0 {
        return Err(io("sizing the stub space")(io::Error::last_os_error()));
    }
    let mapping = Mapping::shared(file, total_bytes).map_err(io("mapping the stub space"))?;
    seal_code(file).map_err(io("sealing the stub space"))?;
    Ok(mapping)
}
