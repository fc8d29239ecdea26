//! One stub space and all that belongs to it around one stretch of code: the memfd, the code for lists of calls, the
//! landing pages, and in each process the process page and the ledger. Does not touch a process except to read it.
//!
//! ```text
//! address         the memfd, r-x, shared by forked relatives
//! + len           process page   private, wiped in forked children
//! + len + 4096    ledger         private, copied to forked children: four bits per journal entry
//! landing pages   single pages of the same memfd, r-x, where punned jumps land
//! ```

use super::error::{Error, Result};
use super::hijack::CALL_LIST;
use super::maps::Maps;
use super::memory::Memory;
use super::ring::{self, Mapping};
use super::stub::StubError;
use super::stub::space::{Entry, ObjectIdentity, Space, SpaceError};
use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{
    DEFAULT_BYTES, DEFAULT_JOURNAL_ENTRIES, JournalKind, JournalState, MAGIC, NO_SESSION, SessionState,
    StubSpace, VERSION,
};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

/// The name of the memfd in `/proc/PID/maps`.
pub const MEMFD_NAME: &str = "/memfd:nopal-stubs";
const PAGE: u64 = PAGE_BYTES as u64;
/// Process page and ledger.
pub const PRIVATE_BYTES: u64 = 2 * PAGE;

#[derive(Debug)]
pub struct Neighbourhood {
    file: std::fs::File,
    pub inode: u64,
    pub space: Space,
    bytes: Mapping,
}

impl Neighbourhood {
    /// Bytes of address space one takes in a process.
    pub const RESERVED: u64 = DEFAULT_BYTES as u64 + PRIVATE_BYTES;

    /// A fresh one that will be at `address`.
    pub fn create(address: u64, rseq_signature: u32) -> Result<Neighbourhood> {
        let file = memfd()?;
        let space = Space::format(&file, address, DEFAULT_BYTES, DEFAULT_JOURNAL_ENTRIES, rseq_signature)
            .map_err(|e| space_failed(0, e))?;
        let made = Neighbourhood::around(file, space)?;
        // The first code of every space, so that it is found again.
        made.append(&CALL_LIST, 64)?;
        Ok(made)
    }

    /// A copy of the one that lies at `address` in a process, in a memfd of our own: to read it, or to be mapped over the
    /// original, which nobody but its maker can write to.
    pub fn copy_of(memory: &Memory, address: u64) -> Result<Neighbourhood> {
        let pid = memory.pid();
        let head = memory.read_vec(address, PAGE_BYTES)?;
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes of a page"));
        let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes of a page"));
        let version = half(offset_of!(StubSpace, version));
        if word(0) != MAGIC || version != VERSION {
            return Err(Error::ForeignSpace { pid, version });
        }
        let total = word(offset_of!(StubSpace, total_bytes));
        let code_end = u64::from(half(offset_of!(StubSpace, code_offset)))
            + u64::from(half(offset_of!(StubSpace, code_used)));
        if total != DEFAULT_BYTES as u64 || code_end > total {
            return Err(Error::ForeignSpace { pid, version });
        }
        let file = memfd()?;
        let failed = |what| move |source| Error::Io { what, source };
        file.set_len(total).map_err(failed("size the copy of a stub space".to_string()))?;
        ring::seal(file.as_fd()).map_err(failed("seal the copy of a stub space".to_string()))?;
        let used = memory.read_vec(address, code_end as usize)?;
        // Whole pages of zeros stay holes.
        for (n, page) in used.chunks(PAGE_BYTES).enumerate() {
            if page.iter().any(|b| *b != 0) {
                file.write_all_at(page, n as u64 * PAGE)
                    .map_err(failed("fill the copy of a stub space".to_string()))?;
            }
        }
        let space = Space::open(&file, address).map_err(|e| space_failed(pid, e))?;
        Neighbourhood::around(file, space)
    }

    fn around(file: std::fs::File, space: Space) -> Result<Neighbourhood> {
        let inode = file.metadata().map_err(Error::io("look at the stub space"))?.ino();
        let bytes = Mapping::whole(file.as_fd()).map_err(Error::io("map the stub space"))?;
        Ok(Neighbourhood { file, inode, space, bytes })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn address(&self) -> u64 {
        self.space.address()
    }

    pub fn len(&self) -> u64 {
        self.space.len() as u64
    }

    pub fn process_page(&self) -> u64 {
        self.space.process_page()
    }

    /// Whether process page and ledger are there in this process.
    pub fn has_private_pages(&self, maps: &Maps) -> bool {
        let page = self.process_page();
        // The process page stands alone, since what is wiped on fork is not joined with other memory; before it was
        // made so, both pages are one.
        maps.find(page).is_some_and(|r| {
            let is_own = r.start == page && (r.end == page + PAGE || r.end == page + PRIVATE_BYTES);
            is_own && r.is_writable && !r.is_shared && r.inode == 0
        }) && maps.find(self.ledger()).is_some_and(|r| r.is_writable && !r.is_shared && r.inode == 0)
    }

    pub fn ledger(&self) -> u64 {
        self.process_page() + PAGE
    }

    /// Where the code for lists of calls is.
    pub fn list_code(&self) -> u64 {
        self.address() + u64::from(self.space.header().code_offset)
    }

    /// True if a jump between any place of the space and any address of the range is possible.
    pub fn reaches(&self, low: u64, high: u64) -> bool {
        let (start, end) = (self.address(), self.address() + self.len());
        let reach = i32::MAX as u64 - PAGE;
        high.abs_diff(start) < reach && low.abs_diff(end) < reach && low.abs_diff(start) < reach
    }

    /// Finds memory for every page in use now, so that we are charged for it and not the target.
    pub fn fault_in(&self) -> Result<()> {
        let header = self.space.header();
        let end = header.code_offset as usize + header.code_used.load(Ordering::Acquire) as usize;
        for offset in (0..end).step_by(PAGE_BYTES) {
            // SAFETY: inside the mapping; adding nothing to a byte changes nothing.
            unsafe { &*self.bytes.start().add(offset).cast::<std::sync::atomic::AtomicU8>() }
                .fetch_add(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts bytes at the end of the code, aligned.
    fn append(&self, code: &[u8], align: usize) -> Result<usize> {
        let header = self.space.header();
        let start = header.code_offset as usize;
        let offset = (start + header.code_used.load(Ordering::Acquire) as usize).next_multiple_of(align);
        let end = offset + code.len();
        if end > self.space.len() {
            return Err(Error::SpaceFull { pid: 0, what: "stub space" });
        }
        self.put(offset, code);
        header.code_used.store((end - start) as u32, Ordering::Release);
        Ok(offset)
    }

    fn put(&self, offset: usize, code: &[u8]) {
        assert!(offset + code.len() <= self.bytes.len(), "callers checked the range");
        // SAFETY: inside the mapping; the bytes are not in use yet, or are equal to what is written.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.bytes.start().add(offset), code.len()) };
    }

    fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len(), "callers checked the range");
        let mut copy = vec![0; len];
        // SAFETY: inside the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.start().add(offset), copy.as_mut_ptr(), len) };
        copy
    }

    /// The landing pages there are: address in the process, offset in the memfd.
    pub fn landing_pages(&self) -> Vec<(u64, u64)> {
        self.space
            .entries()
            .filter(|(_, e, _)| e.kind == JournalKind::Landing)
            .map(|(_, e, _)| (e.address, u64::from(e.code)))
            .filter(|(address, offset)| {
                address % PAGE == 0 && offset % PAGE == 0 && *offset != 0 && offset + PAGE <= self.len()
            })
            .collect()
    }

    /// The memfd page for a landing page, made if there is none yet.
    pub fn landing_page(&self, address: u64) -> Result<u64> {
        if let Some((_, offset)) = self.landing_pages().into_iter().find(|(a, _)| *a == address) {
            return Ok(offset);
        }
        let offset = self.append(&[0; PAGE_BYTES], PAGE_BYTES)?;
        let entry = Entry {
            kind: JournalKind::Landing,
            session: NO_SESSION,
            length: 1,
            address,
            code: offset as u32,
            slot: 0,
            extent: 0,
            pid: 0,
            object: ObjectIdentity::default(),
        };
        self.journal_once(&entry)?;
        Ok(offset as u64)
    }

    /// Writes a landing's code, unless another site's landing overlaps it.
    pub fn write_landing(&self, address: u64, code: &[u8]) -> Result<bool> {
        let mut places = Vec::new();
        for (i, byte) in code.iter().enumerate() {
            let at = address + i as u64;
            let page = self.landing_page(at & !(PAGE - 1))?;
            places.push(((page + at % PAGE) as usize, *byte));
        }
        let is_free = places.iter().all(|(offset, _)| self.get(*offset, 1) == [0]);
        let is_there = places.iter().all(|(offset, byte)| self.get(*offset, 1) == [*byte]);
        if !is_free && !is_there {
            return Ok(false);
        }
        // The opcode last: whoever reads a half-written landing reads a zero there.
        for (offset, byte) in places.into_iter().rev() {
            self.put(offset, &[byte]);
        }
        Ok(true)
    }

    /// Writes an entry in force, unless it stands there already; its index.
    pub fn journal_once(&self, entry: &Entry) -> Result<usize> {
        let found = self.space.entries().find(|(_, old, _)| old == entry).map(|(index, _, _)| index);
        let index = match found {
            Some(index) => index,
            None => self.space.journal(entry).map_err(stub_failed)?,
        };
        self.space.set_state(index, JournalState::InForce);
        Ok(index)
    }

    /// Addresses of all sites whose instructions were ever moved: their patches are journalled with slot 1.
    pub fn relocations(&self) -> impl Iterator<Item = u64> + '_ {
        self.space.entries().filter_map(|(_, entry, _)| {
            (entry.kind == JournalKind::Patch && entry.length == 5 && entry.slot == 1)
                .then_some(entry.address)
        })
    }

    /// The index of the live session with this number.
    pub fn session(&self, generation: u64) -> Option<u16> {
        let sessions = &self.space.header().sessions;
        (0u16..).zip(sessions).find_map(|(index, s)| {
            let is_live = s.state.load(Ordering::Acquire) == SessionState::Live as u32;
            (is_live && s.generation == generation).then_some(index)
        })
    }

    /// The sessions that say they are live: index, and whether their tracer really is.
    pub fn sessions(&self) -> Vec<(u16, bool)> {
        let sessions = &self.space.header().sessions;
        (0u16..)
            .zip(sessions)
            .filter(|(_, s)| s.state.load(Ordering::Acquire) == SessionState::Live as u32)
            .map(|(index, s)| {
                let tracer = s.tracer_pid as i32;
                // A killed tracer stays a zombie until its parent looks.
                (index, super::process::is_still(tracer, Some(s.tracer_start)))
            })
            .collect()
    }

    /// Takes out the stubs of sessions whose tracers were killed, so that their places can be used again.
    pub fn bury_dead_sessions(&self) {
        for (index, is_alive) in self.sessions() {
            if !is_alive {
                self.space.unlink_session(index);
                self.space.leave_session(index);
            }
        }
    }
}

/// The stub spaces in a process, by their first mapping.
pub fn spaces_in(maps: &Maps) -> Vec<&crate::target::Mapping> {
    maps.ranges
        .iter()
        .filter(|r| r.offset == 0 && r.is_executable && r.is_shared && r.is_called(MEMFD_NAME))
        .filter(|r| r.end - r.start == DEFAULT_BYTES as u64)
        .collect()
}

fn memfd() -> Result<std::fs::File> {
    let fd: OwnedFd = ring::memfd(c"nopal-stubs").map_err(Error::io("make a memfd for stubs"))?;
    Ok(fd.into())
}

pub fn space_failed(pid: i32, error: SpaceError) -> Error {
    match error {
        SpaceError::Io { what, source } => Error::Io { what: what.into(), source },
        SpaceError::Foreign { found, .. } => Error::ForeignSpace { pid, version: found as u32 },
    }
}

pub fn stub_failed(error: StubError) -> Error {
    match error {
        StubError::SpaceFull { .. } => Error::SpaceFull { pid: 0, what: "stub space" },
        StubError::JournalFull => Error::SpaceFull { pid: 0, what: "journal" },
        other => Error::Io { what: "generate code".into(), source: std::io::Error::other(other.to_string()) },
    }
}
