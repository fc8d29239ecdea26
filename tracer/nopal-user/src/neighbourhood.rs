//! One stub space and all that belongs to it around one stretch of code: the memfd, the code for lists of calls, the
//! landing pages, and in each process the process page and the ledger. Does not touch a process except to read it.
//!
//! ```text
//! address         the memfd, r-x, shared by forked relatives
//! + len           process page   private, wiped in forked children
//! + len + 4096    ledger         private, copied to forked children: four bits per journal entry
//! + len + 36864   kept pages     private, copied to forked children: what stubs have found out
//! landing pages   single pages of the same memfd, r-x, where punned jumps land; one page of it at many addresses
//! ```

use super::call_code::CALL_LIST;
use super::error::{Error, Result};
use super::maps::{Maps, is_memfd};
use super::memory::Memory;
use super::ring;
use super::stub::StubError;
use super::stub::space::{Entry, ObjectIdentity, SessionLine, Space, SpaceError};
use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{
    DEFAULT_BYTES, DEFAULT_JOURNAL_ENTRIES, JournalKind, JournalState, KEPT_OFFSET, KeptPages, MAGIC,
    NO_SESSION, StubSpace, VERSION,
};
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// The name of the memfd in `/proc/PID/maps`.
pub const MEMFD_NAME: &str = "/memfd:nopal-stubs";
const PAGE: u64 = PAGE_BYTES as u64;
/// Process page, ledger and kept pages.
pub(crate) const PRIVATE_BYTES: u64 = (KEPT_OFFSET + size_of::<KeptPages>()) as u64;

#[derive(Debug)]
pub struct Neighbourhood {
    file: std::fs::File,
    pub inode: u64,
    pub space: Space,
    /// Which of the session's rings the processes have that it is for.
    pub ring: usize,
    /// Where in the processes code of before was given up for what comes: no thread may be there.
    pub reused: Vec<Range<u64>>,
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
        made.space.append(&CALL_LIST, 64).map_err(stub_failed)?;
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
        let code_end = u64::from(half(offset_of!(StubSpace, code_offset)))
            + u64::from(half(offset_of!(StubSpace, code_used)));
        let is_ours = word(offset_of!(StubSpace, total_bytes)) == DEFAULT_BYTES as u64
            && half(offset_of!(StubSpace, journal_capacity)) == DEFAULT_JOURNAL_ENTRIES
            && code_end <= DEFAULT_BYTES as u64;
        if !is_ours {
            return Err(Error::ForeignSpace { pid, version });
        }
        // What was looked at may have changed since: it is looked at again in these bytes, which do not.
        let bytes = memory.read_vec(address, (code_end as usize).max(PAGE_BYTES))?;
        Neighbourhood::copied(pid, address, &bytes)
    }

    /// A copy of one that is ours.
    pub fn twin(&self) -> Result<Neighbourhood> {
        Neighbourhood::copied(0, self.address(), &self.space.bytes())
    }

    pub fn of_ring(mut self, ring: usize) -> Neighbourhood {
        self.ring = ring;
        self
    }

    fn copied(pid: i32, address: u64, bytes: &[u8]) -> Result<Neighbourhood> {
        let file = memfd()?;
        let space = Space::copied(&file, address, bytes, DEFAULT_BYTES).map_err(|e| space_failed(pid, e))?;
        Neighbourhood::around(file, space)
    }

    fn around(file: std::fs::File, space: Space) -> Result<Neighbourhood> {
        let inode = file.metadata().map_err(Error::io("look at the stub space"))?.ino();
        Ok(Neighbourhood { file, inode, space, ring: 0, reused: Vec::new() })
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

    /// Whether process page, ledger and kept pages are there in this process.
    pub fn has_private_pages(&self, maps: &Maps) -> bool {
        let page = self.process_page();
        // The process page stands alone, since what is wiped on fork is not joined with other memory; before it was
        // made so, all are one.
        maps.find(page).is_some_and(|r| {
            let is_own = r.start == page && (r.end == page + PAGE || r.end == page + PRIVATE_BYTES);
            is_own && r.is_writable && !r.is_shared && r.inode == 0
        }) && maps
            .find(self.ledger())
            .is_some_and(|r| r.end >= page + PRIVATE_BYTES && r.is_writable && !r.is_shared && r.inode == 0)
    }

    pub fn ledger(&self) -> u64 {
        self.process_page() + PAGE
    }

    /// Where the code for lists of calls is.
    pub fn list_code(&self) -> u64 {
        self.space.code_start()
    }

    /// True if a jump between any place of the space and any address of the range is possible.
    pub fn reaches(&self, low: u64, high: u64) -> bool {
        let (start, end) = (self.address(), self.address() + self.len());
        let reach = i32::MAX as u64 - PAGE;
        high.abs_diff(start) < reach && low.abs_diff(end) < reach && low.abs_diff(start) < reach
    }

    /// Finds memory for every page in use now, so that we are charged for it and not the target.
    pub fn fault_in(&self) -> Result<()> {
        self.space.fault_in().map_err(Error::io("find memory for the stub space"))
    }

    /// The landing pages there are: address in the process, offset in the memfd.
    pub fn landing_pages(&self) -> Vec<(u64, u64)> {
        self.space.landings()
    }

    /// One more page of the memfd, for landings: its offset.
    pub(super) fn add_page(&self) -> Result<u64> {
        let offset = self.space.append(&[0; PAGE_BYTES], PAGE_BYTES).map_err(stub_failed)?;
        Ok(offset as u64)
    }

    /// Writes down that the page of the memfd is shown at this address.
    pub(super) fn note_landing_page(&self, address: u64, offset: u64) -> Result<()> {
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
        self.journal_once(&entry).map(drop)
    }

    /// Writes an entry in force, unless it stands there already; its index.
    pub fn journal_once(&self, entry: &Entry) -> Result<usize> {
        let index = match self.space.find_entry(entry) {
            Some(index) => index,
            None => self.space.journal(entry).map_err(stub_failed)?,
        };
        self.space.set_state(index, JournalState::InForce);
        Ok(index)
    }

    /// The index of the live session with this number.
    pub fn session(&self, generation: u64) -> Option<u16> {
        let is_it = |line: &SessionLine| line.is_live && line.generation == generation;
        self.space.session_lines().find(|(_, line)| is_it(line)).map(|(index, _)| index)
    }

    /// The sessions that say they are live: index, and whether their tracer really is.
    pub fn sessions(&self) -> Vec<(u16, bool)> {
        self.space
            .session_lines()
            .filter(|(_, line)| line.is_live)
            .map(|(index, line)| {
                let tracer = line.tracer_pid as i32;
                // A killed tracer stays a zombie until its parent looks.
                (index, super::process::is_still(tracer, Some(line.tracer_start)))
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
pub(crate) fn spaces_in(maps: &Maps) -> Vec<&nopal_proc::Mapping> {
    maps.ranges
        .iter()
        .filter(|r| r.offset == 0 && r.is_executable && r.is_shared && is_memfd(r, MEMFD_NAME))
        .filter(|r| r.end - r.start == DEFAULT_BYTES as u64)
        .collect()
}

fn memfd() -> Result<std::fs::File> {
    let fd: OwnedFd = ring::memfd(c"nopal-stubs").map_err(Error::io("make a memfd for stubs"))?;
    Ok(fd.into())
}

pub(crate) fn space_failed(pid: i32, error: SpaceError) -> Error {
    match error {
        SpaceError::Io { what, source } => Error::Io { what: what.into(), source },
        SpaceError::Foreign { found, .. } => Error::ForeignSpace { pid, version: found as u32 },
    }
}

pub(crate) fn stub_failed(error: StubError) -> Error {
    match error {
        StubError::SpaceFull { .. } => Error::SpaceFull { pid: 0, what: "stub space" },
        StubError::JournalFull => Error::SpaceFull { pid: 0, what: "journal" },
        other => Error::Io { what: "generate code".into(), source: std::io::Error::other(other.to_string()) },
    }
}
