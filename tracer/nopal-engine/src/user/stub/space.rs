//! The stub space on the tracer's side: where code is put, how stubs are chained to a site, and the journal. Works on the
//! tracer's own mapping of the memfd; putting it into a process is somebody else's job. Whoever calls these functions
//! holds ptrace on the process, which keeps other tracers out.

use core::mem::offset_of;
use core::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{
    JournalEntry, JournalKind, JournalState, MAGIC, MAX_SESSIONS, NO_SESSION, Path, RSEQ_SIGNATURE,
    SessionEntry, SessionState, StubSpace, VERSION,
};

use super::asm::{Asm, Mem, rel32};
use super::tail::Tail;
use super::{Stub, StubError, StubSpec, Surroundings, announce, generate};
use crate::user::ring::{Mapping, RingLayout};
use nopal_capture::record::RecordLayout;

const LINE: usize = 64;

/// A stub space as the tracer sees it.
#[derive(Debug)]
pub struct Space {
    mapping: Mapping,
    address: u64,
    journal_offset: usize,
    journal_capacity: usize,
    code_offset: usize,
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

/// Which object an address belongs to, so that it is found again in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectIdentity {
    pub device: u64,
    pub inode: u64,
    /// First 8 bytes of the build id, 0 = none.
    pub build_id: u64,
    /// Link-time address of what the entry is about.
    pub link_address: u64,
}

/// A journal entry, out of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub kind: JournalKind,
    pub session: u16,
    pub length: u16,
    pub address: u64,
    pub code: u32,
    pub slot: u32,
    pub extent: u32,
    pub pid: u32,
    pub object: ObjectIdentity,
}

/// A site that has its thunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Run-time address.
    pub address: u64,
    /// Address of the thunk, where landings jump to.
    pub thunk: u64,
    /// Address of the resume code.
    pub resume: u64,
    slot: u32,
}

/// A stub in the space.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedStub {
    pub site: Site,
    /// Address of its entry.
    pub entry: u64,
    pub layout: RecordLayout,
    next_slot: u32,
    journal: usize,
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
        let io = |what| move |source| SpaceError::Io { what, source };
        let file = file.as_fd();
        let journal_bytes = journal_capacity as usize * size_of::<JournalEntry>();
        let code_offset = (PAGE_BYTES + journal_bytes).next_multiple_of(PAGE_BYTES);
        if code_offset + PAGE_BYTES > total_bytes || total_bytes > 1 << 30 {
            return Err(SpaceError::Foreign { what: "its size", found: total_bytes as u64 });
        }
        // SAFETY: plain system call on a file descriptor that is borrowed for the call.
        if unsafe { libc::ftruncate(file.as_raw_fd(), total_bytes as libc::off_t) } != 0 {
            return Err(io("sizing the stub space")(io::Error::last_os_error()));
        }
        crate::user::ring::seal(file).map_err(io("sealing the stub space"))?;
        let mapping = Mapping::shared(file, total_bytes).map_err(io("mapping the stub space"))?;
        let free = || SessionEntry {
            state: AtomicU32::new(SessionState::Free as u32),
            tracer_pid: 0,
            tracer_start: 0,
            generation: 0,
            ring_address: 0,
            ring_bytes: 0,
            ring_inode: 0,
            announce: 0,
            reserved: [0; 3],
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
            reserved: 0,
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
        })
    }

    /// Maps a space that was left in a process. `address` is where it was found there.
    pub fn open(file: impl AsFd, address: u64) -> Result<Space, SpaceError> {
        let mapping = Mapping::whole(file.as_fd())
            .map_err(|source| SpaceError::Io { what: "mapping the stub space", source })?;
        let foreign = |what, found: u64| Err(SpaceError::Foreign { what, found });
        if mapping.len() < 2 * PAGE_BYTES {
            return foreign("its size", mapping.len() as u64);
        }
        // SAFETY: at least a page is mapped, page-aligned; all bit patterns are valid for StubSpace.
        let header = unsafe { &*mapping.start().cast::<StubSpace>() };
        if header.magic != MAGIC {
            return foreign("its magic number", header.magic);
        }
        if header.version != VERSION || header.header_bytes as usize != PAGE_BYTES {
            return foreign("its version", header.version.into());
        }
        if header.total_bytes != mapping.len() as u64 || mapping.len() > 1 << 30 {
            return foreign("its size", header.total_bytes);
        }
        if header.address != address {
            return foreign("its address", header.address);
        }
        let journal_offset = header.journal_offset as usize;
        let journal_capacity = header.journal_capacity as usize;
        let code_offset = header.code_offset as usize;
        let journal_end = journal_offset + journal_capacity * size_of::<JournalEntry>();
        let is_ordered = journal_offset >= PAGE_BYTES
            && journal_offset.is_multiple_of(LINE)
            && journal_end <= code_offset
            && code_offset.is_multiple_of(LINE)
            && code_offset <= mapping.len();
        if !is_ordered {
            return foreign("its division", header.journal_offset.into());
        }
        Ok(Space { mapping, address, journal_offset, journal_capacity, code_offset })
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes that must be mapped `r-x` at [`Space::address`]; the process page follows directly.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn process_page(&self) -> u64 {
        self.address + self.mapping.len() as u64
    }

    pub fn header(&self) -> &StubSpace {
        // SAFETY: format() and open() saw to it that the first page is a StubSpace.
        unsafe { &*self.mapping.start().cast::<StubSpace>() }
    }

    /// Says how the threads of this process image reach the rings. `rseq_offset` and `tid_offset` are stored before the
    /// path that makes stubs use them.
    pub fn set_path(&self, path: Path, rseq_offset: i64, tid_offset: i64) {
        let header = self.header();
        header.rseq_offset.store(rseq_offset, Ordering::Relaxed);
        header.tid_offset.store(tid_offset, Ordering::Relaxed);
        header.path.store(path as u32, Ordering::Release);
    }

    /// A word of the space, by offset; `None` beyond its end or off its alignment.
    fn word(&self, offset: u32) -> Option<&AtomicU64> {
        let offset = offset as usize;
        let is_inside = offset >= self.code_offset && offset.checked_add(8)? <= self.mapping.len();
        // SAFETY: inside the mapping and 8-aligned, as checked.
        (is_inside && offset.is_multiple_of(8))
            .then(|| unsafe { &*self.mapping.start().add(offset).cast::<AtomicU64>() })
    }

    // --- the journal ---

    fn raw_entry(&self, index: usize) -> *mut JournalEntry {
        assert!(index < self.journal_capacity, "indices come from journal() and entries()");
        // SAFETY: the journal lies inside the mapping, by format() and open().
        unsafe {
            self.mapping
                .start()
                .add(self.journal_offset + index * size_of::<JournalEntry>())
                .cast::<JournalEntry>()
        }
    }

    /// All entries that make sense, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (usize, Entry, JournalState)> + '_ {
        let used = (self.header().journal_used.load(Ordering::Acquire) as usize).min(self.journal_capacity);
        (0..used).filter_map(|index| self.read_entry(index))
    }

    fn read_entry(&self, index: usize) -> Option<(usize, Entry, JournalState)> {
        // SAFETY: raw_entry gives a place inside the mapping, 64-aligned; every bit pattern is a valid JournalEntry.
        let raw = unsafe { &*self.raw_entry(index) };
        let kind = match raw.kind {
            1 => JournalKind::Patch,
            2 => JournalKind::Semaphore,
            3 => JournalKind::Landing,
            4 => JournalKind::Scratch,
            5 => JournalKind::Site,
            6 => JournalKind::Stub,
            _ => return None,
        };
        let state = match raw.state.load(Ordering::Acquire) {
            0 => JournalState::Prepared,
            1 => JournalState::InForce,
            2 => JournalState::Undone,
            _ => return None,
        };
        let entry = Entry {
            kind,
            session: raw.session,
            length: raw.length,
            address: raw.address,
            code: raw.code,
            slot: raw.slot,
            extent: raw.extent,
            pid: raw.pid,
            object: ObjectIdentity {
                device: raw.object_device,
                inode: raw.object_inode,
                build_id: raw.object_build_id,
                link_address: raw.link_address,
            },
        };
        Some((index, entry, state))
    }

    /// Writes an entry, state Prepared; an undone one that says the same is taken again.
    pub fn journal(&self, entry: &Entry) -> Result<usize, StubError> {
        let again = self.entries().find(|(_, old, state)| *state == JournalState::Undone && old == entry);
        if let Some((index, _, _)) = again {
            self.set_state(index, JournalState::Prepared);
            return Ok(index);
        }
        let used = self.header().journal_used.load(Ordering::Acquire) as usize;
        if used >= self.journal_capacity {
            return Err(StubError::JournalFull);
        }
        let raw = JournalEntry {
            kind: entry.kind as u16,
            state: AtomicU16::new(JournalState::Prepared as u16),
            session: entry.session,
            length: entry.length,
            address: entry.address,
            code: entry.code,
            slot: entry.slot,
            extent: entry.extent,
            pid: entry.pid,
            link_address: entry.object.link_address,
            object_device: entry.object.device,
            object_inode: entry.object.inode,
            object_build_id: entry.object.build_id,
        };
        // SAFETY: inside the mapping; nobody reads an entry before journal_used counts it.
        unsafe { self.raw_entry(used).write(raw) };
        self.header().journal_used.store(used as u32 + 1, Ordering::Release);
        Ok(used)
    }

    pub fn set_state(&self, index: usize, state: JournalState) {
        // SAFETY: as in read_entry.
        unsafe { &*self.raw_entry(index) }.state.store(state as u16, Ordering::Release);
    }

    // --- code ---

    /// Address and offset where the next piece of code would be put.
    fn cursor(&self) -> (u64, usize) {
        let used = self.header().code_used.load(Ordering::Acquire) as usize;
        let offset = (self.code_offset + used).next_multiple_of(LINE);
        (self.address + offset as u64, offset)
    }

    /// Puts code at the cursor.
    fn append(&self, code: &[u8]) -> Result<usize, StubError> {
        let (_, offset) = self.cursor();
        let end = offset + code.len();
        if end > self.mapping.len() {
            return Err(StubError::SpaceFull { bytes: code.len() });
        }
        // SAFETY: the range is inside the mapping and beyond what is in use, so no thread can be there.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.mapping.start().add(offset), code.len()) };
        self.header().code_used.store((end - self.code_offset) as u32, Ordering::Release);
        Ok(offset)
    }

    /// Whether these bytes already stand at `offset`.
    fn holds(&self, offset: usize, code: &[u8]) -> bool {
        if offset < self.code_offset || offset + code.len() > self.mapping.len() {
            return false;
        }
        // SAFETY: inside the mapping, as checked; a concurrent store by a hostile process only changes the answer.
        let bytes = unsafe { std::slice::from_raw_parts(self.mapping.start().add(offset), code.len()) };
        bytes == code
    }

    pub fn code_bytes_used(&self) -> usize {
        self.header().code_used.load(Ordering::Acquire) as usize
    }

    // --- sessions ---

    /// A session that has left and whose ring had this size: its index, and the address where the new ring can be mapped
    /// over the old one.
    pub fn left_session(&self, ring_bytes: u64) -> Option<(u16, u64)> {
        let sessions = &self.header().sessions;
        (0u16..).zip(sessions).find_map(|(index, entry)| {
            let has_left = entry.state.load(Ordering::Acquire) == SessionState::Left as u32;
            (has_left && entry.ring_bytes == ring_bytes).then_some((index, entry.ring_address))
        })
    }

    /// An index for a new session when [`Space::left_session`] has none; those never used come first.
    pub fn free_session(&self) -> Option<u16> {
        let sessions = &self.header().sessions;
        [SessionState::Free, SessionState::Left].into_iter().find_map(|wanted| {
            let place =
                sessions.iter().position(|entry| entry.state.load(Ordering::Acquire) == wanted as u32);
            place.map(|index| index as u16)
        })
    }

    /// Takes an index for a session whose ring is (or will be, before the first stub is chained) at its address.
    pub fn enter_session(&self, index: u16, facts: &SessionFacts) -> Result<Session, StubError> {
        assert!(usize::from(index) < MAX_SESSIONS, "indices come from left_session() and free_session()");
        let old = self.header().sessions[usize::from(index)].announce;
        let mut session = Session { index, ring: facts.ring_address, layout: facts.layout, announce: 0 };
        let again = announce(&self.surroundings(&session, self.address + u64::from(old)))?;
        let offset = if old != 0 && self.holds(old as usize, &again) {
            old as usize
        } else {
            self.append(&announce(&self.surroundings(&session, self.cursor().0))?)?
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
            reserved: [0; 3],
        };
        let place = offset_of!(StubSpace, sessions) + usize::from(index) * size_of::<SessionEntry>();
        // SAFETY: inside the header; this session is the only one that uses the entry, by the state we found.
        unsafe { self.mapping.start().add(place).cast::<SessionEntry>().write(entry) };
        Ok(session)
    }

    /// A session of ours in a copy of a space that it had entered before.
    pub fn session_again(&self, index: u16, layout: RingLayout) -> Option<Session> {
        let entry = self.header().sessions.get(usize::from(index))?;
        let announce = self.address + u64::from(entry.announce);
        Some(Session { index, ring: entry.ring_address, layout, announce })
    }

    /// The session's stubs must have been unchained. Its index, ring address and code can be used again.
    pub fn leave_session(&self, index: u16) {
        if let Some(entry) = self.header().sessions.get(usize::from(index)) {
            entry.state.store(SessionState::Left as u32, Ordering::Release);
        }
    }

    fn surroundings(&self, session: &Session, address: u64) -> Surroundings {
        Surroundings {
            address,
            space: self.address,
            process_page: self.process_page(),
            session: session.index,
            announce: session.announce,
            ring: session.ring,
            layout: session.layout,
            rseq_signature: match self.header().rseq_signature {
                0 => RSEQ_SIGNATURE,
                signature => signature,
            },
        }
    }

    // --- sites and stubs ---

    /// The site's thunk, if it has one.
    pub fn site(&self, address: u64) -> Option<Site> {
        self.entries().find_map(|(_, entry, _)| {
            (entry.kind == JournalKind::Site && entry.address == address).then(|| Site {
                address,
                thunk: self.address + u64::from(entry.code),
                resume: self.address + u64::from(entry.extent),
                slot: entry.slot,
            })
        })
    }

    /// Whether the site has this way on behind its stubs.
    pub fn goes_on(&self, address: u64, tail: &Tail) -> bool {
        self.site(address).is_some_and(|site| {
            let code = tail.encode(site.resume);
            code.is_ok_and(|code| self.holds((site.resume - self.address) as usize, &code))
        })
    }

    /// Makes thunk, slot and resume code, or finds those that are there. The slot leads to the resume code.
    pub fn add_site(&self, address: u64, tail: &Tail, object: ObjectIdentity) -> Result<Site, StubError> {
        let (at, offset) = self.cursor();
        // The slot, on a line of its own; the thunk; the resume code.
        let (thunk, resume) = (offset + LINE, offset + LINE + 8);
        let resume_code = tail.encode(self.address + resume as u64)?;
        if let Some(site) = self.site(address)
            && self.holds((site.resume - self.address) as usize, &tail.encode(site.resume)?)
        {
            return Ok(site);
        }
        let mut asm = Asm::new(at);
        asm.data(&(self.address + resume as u64).to_le_bytes());
        asm.align(LINE);
        asm.jmp_through(Mem::Near(at));
        asm.align(8);
        asm.data(&resume_code);
        self.append(&asm.finish()?)?;
        let entry = Entry {
            kind: JournalKind::Site,
            session: NO_SESSION,
            length: 0,
            address,
            code: thunk as u32,
            slot: offset as u32,
            extent: resume as u32,
            pid: 0,
            object,
        };
        let index = self.journal(&entry)?;
        self.set_state(index, JournalState::InForce);
        Ok(Site {
            address,
            thunk: self.address + thunk as u64,
            resume: self.address + resume as u64,
            slot: offset as u32,
        })
    }

    /// Makes the session's stub for a site, or takes an old one that is byte for byte the same. It is not chained yet.
    pub fn add_stub(&self, site: &Site, session: &Session, spec: &StubSpec) -> Result<PlacedStub, StubError> {
        let old: Vec<_> = self
            .entries()
            .filter(|(_, entry, state)| {
                entry.kind == JournalKind::Stub
                    && *state == JournalState::Undone
                    && entry.address == site.address
                    && entry.session == session.index
            })
            .collect();
        for (index, entry, _) in old {
            let address = self.address + u64::from(entry.code);
            let stub = generate(spec, &self.surroundings(session, address))?;
            if entry.slot == entry.code.wrapping_add(stub.next_slot)
                && self.holds_stub(entry.code as usize, &stub)
            {
                self.set_state(index, JournalState::Prepared);
                return Ok(self.placed(site, entry.code as usize, stub, index));
            }
        }
        let (address, _) = self.cursor();
        let stub = generate(spec, &self.surroundings(session, address))?;
        let offset = self.append(&stub.code)?;
        let index = self.journal(&Entry {
            kind: JournalKind::Stub,
            session: session.index,
            length: 0,
            address: site.address,
            code: offset as u32,
            slot: offset as u32 + stub.next_slot,
            extent: stub.code.len() as u32,
            pid: 0,
            object: ObjectIdentity::default(),
        })?;
        Ok(self.placed(site, offset, stub, index))
    }

    /// The session's stub for a site if it is in the chain already: in a copy of a space that has it.
    pub fn chained_stub(
        &self,
        site: &Site,
        session: &Session,
        spec: &StubSpec,
    ) -> Result<Option<PlacedStub>, StubError> {
        for (index, entry, state) in self.entries() {
            let is_own = entry.kind == JournalKind::Stub
                && state == JournalState::InForce
                && entry.address == site.address
                && entry.session == session.index;
            if !is_own {
                continue;
            }
            let stub = generate(spec, &self.surroundings(session, self.address + u64::from(entry.code)))?;
            if entry.slot == entry.code.wrapping_add(stub.next_slot)
                && self.holds_stub(entry.code as usize, &stub)
            {
                return Ok(Some(self.placed(site, entry.code as usize, stub, index)));
            }
        }
        Ok(None)
    }

    fn holds_stub(&self, offset: usize, stub: &Stub) -> bool {
        let slot = stub.next_slot as usize;
        self.holds(offset, &stub.code[..slot]) && self.holds(offset + slot + 8, &stub.code[slot + 8..])
    }

    fn placed(&self, site: &Site, offset: usize, stub: Stub, journal: usize) -> PlacedStub {
        PlacedStub {
            site: *site,
            entry: self.address + offset as u64,
            next_slot: offset as u32 + stub.next_slot,
            layout: stub.layout,
            journal,
        }
    }

    /// Puts the stub at the head of its site's chain.
    pub fn link(&self, stub: &PlacedStub) {
        let (Some(slot), Some(next)) = (self.word(stub.site.slot), self.word(stub.next_slot)) else { return };
        next.store(slot.load(Ordering::Acquire), Ordering::Release);
        slot.store(stub.entry, Ordering::Release);
        self.set_state(stub.journal, JournalState::InForce);
    }

    /// Takes the stub out of its site's chain. Threads that are inside go on through it.
    pub fn unlink(&self, stub: &PlacedStub) {
        self.unchain(stub.site.slot, stub.entry, stub.next_slot);
        self.set_state(stub.journal, JournalState::Undone);
    }

    /// Unchains every stub of a session, as its tracer would have done; for sessions whose tracer has died.
    pub fn unlink_session(&self, session: u16) {
        let stubs: Vec<_> = self
            .entries()
            .filter(|(_, entry, state)| {
                entry.kind == JournalKind::Stub && entry.session == session && *state != JournalState::Undone
            })
            .collect();
        for (index, entry, _) in stubs {
            if let Some(site) = self.site(entry.address) {
                self.unchain(site.slot, self.address + u64::from(entry.code), entry.slot);
            }
            self.set_state(index, JournalState::Undone);
        }
    }

    fn unchain(&self, mut slot: u32, entry: u64, next_slot: u32) {
        let Some(next) = self.word(next_slot).map(|word| word.load(Ordering::Acquire)) else { return };
        // No chain is longer than the sessions there can be; a damaged one must not hold us up.
        for _ in 0..=MAX_SESSIONS {
            let Some(word) = self.word(slot) else { return };
            let target = word.load(Ordering::Acquire);
            if target == entry {
                word.store(next, Ordering::Release);
                return;
            }
            let stub = self.entries().find(|(_, old, _)| {
                old.kind == JournalKind::Stub && self.address + u64::from(old.code) == target
            });
            match stub {
                Some((_, old, _)) => slot = old.slot,
                None => return,
            }
        }
    }

    /// Whether any session's stub is in the chain of this site.
    pub fn is_chained(&self, site: &Site) -> bool {
        self.word(site.slot).is_some_and(|word| word.load(Ordering::Acquire) != site.resume)
    }
}

/// What a landing at `from` holds: 5 bytes if the thunk is within reach, else 14.
pub fn landing(from: u64, thunk: u64) -> Vec<u8> {
    match rel32(from.wrapping_add(5), thunk) {
        Ok(offset) => [&[0xe9][..], &offset.to_le_bytes()].concat(),
        Err(_) => [&[0xff, 0x25, 0, 0, 0, 0][..], &thunk.to_le_bytes()].concat(),
    }
}
