//! What a family of processes does to its memory, told by the kernel as it happens: who was forked by whom, who has mapped
//! which code, who has ended. `/proc` shows only what is there at the moment one looks, and many processes are gone by then.
//!
//! Who may have it gets one perf event for each CPU, which costs the processes nothing, and of what it tells all but the
//! family is dropped. Others get one for each thread and CPU, which every descendant inherits, and which adds 0.1 to 0.2 us
//! to each switch to another thread.

use super::{Mapping, Process, possible_cpus};
use crate::perf::{self, PerfAttr};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};

const DUMMY: u64 = 9;
const SAMPLE_TIME: u64 = 1 << 2;
const SET_OUTPUT: libc::c_ulong = 0x2405;

const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_EXIT: u32 = 4;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// Of a record of a new name: it is that of a program.
const MISC_COMM_EXEC: u16 = 1 << 13;
/// Of a record of a mapping: it tells the file by its build id.
const MISC_BUILD_ID: u16 = 1 << 14;

const TOLD: u64 = perf::EXCLUDE_KERNEL
    | perf::MMAP
    | perf::MMAP2
    | perf::COMM
    | perf::COMM_EXEC
    | perf::TASK
    | perf::SAMPLE_ID_ALL
    | perf::USE_CLOCK;

/// Of a ring for some threads, without the page of positions before it.
const RING_BYTES: usize = 128 << 10;
/// Of a ring for everybody, who may be many.
const LARGE_RING_BYTES: usize = 1 << 20;
/// Two positions at fixed places of the first page of a ring.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// A process with many threads on a machine with many CPUs would take more descriptors than names are worth.
const MAX_EVENTS: usize = 1024;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Forked {
        pid: u32,
        parent: u32,
    },
    /// A program of its own, of which nothing is mapped yet.
    Started {
        pid: u32,
        /// Of its file, at most 15 bytes; a script's is its own, not that of what runs it.
        name: String,
    },
    /// Code of a file.
    Mapped {
        pid: u32,
        mapping: Mapping,
    },
    /// The last thread may still be on its way out.
    Ended {
        pid: u32,
    },
    /// More has happened than there was room for.
    Lost,
}

/// The entries of some processes and their descendants.
#[derive(Debug, Default)]
pub struct PerfEvents {
    rings: HashMap<u32, Ring>,
    /// Of single threads, beside those that the rings belong to.
    events: Vec<OwnedFd>,
    /// Who is followed, and what they have forked, as far as it lives.
    family: HashSet<u32>,
    scope: Scope,
    /// By time; what may still be preceded by others.
    held_back: Vec<(u64, Entry)>,
}

/// Of whom the rings tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Scope {
    /// Of the family alone.
    #[default]
    Family,
    /// Of all, of which the family is wanted.
    FamilyOfAll,
    /// Of all, and all are wanted.
    All,
}

impl PerfEvents {
    /// Of every process there is, for those who may know.
    pub fn of_everybody() -> io::Result<PerfEvents> {
        let mut perf_events = PerfEvents { scope: Scope::All, ..PerfEvents::default() };
        for cpu in 0..possible_cpus()? {
            match perf::open(&PerfAttr { flags: TOLD, ..attr() }, -1, cpu as i32) {
                Ok(event) => {
                    perf_events.rings.insert(cpu, Ring::new(event, LARGE_RING_BYTES)?);
                }
                // A CPU that is off.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(perf_events)
    }

    /// From now on, for a process and all it forks, if that costs them nothing.
    pub fn follow_for_free(&mut self, pid: u32) -> io::Result<()> {
        if self.rings.is_empty() {
            *self = PerfEvents { scope: Scope::FamilyOfAll, ..PerfEvents::of_everybody()? };
        }
        match self.scope {
            Scope::FamilyOfAll | Scope::All => {
                self.family.insert(pid);
                Ok(())
            }
            Scope::Family => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }

    /// The same, at a price if it must be.
    pub fn follow(&mut self, pid: u32) -> io::Result<()> {
        // Who was forked by one of the family has inherited what tells of it.
        if self.follow_for_free(pid).is_ok() || self.family.contains(&pid) {
            return Ok(());
        }
        let mut followed: Vec<i32> = Vec::new();
        loop {
            let threads = crate::threads(pid)?.map(|tid| tid as i32);
            // A thread made by one that was not followed yet has inherited nothing.
            let fresh: Vec<i32> = threads.filter(|tid| !followed.contains(tid)).collect();
            if fresh.is_empty() {
                self.family.insert(pid);
                return Ok(());
            }
            for tid in fresh {
                followed.push(tid);
                self.follow_thread(tid)?;
            }
        }
    }

    fn follow_thread(&mut self, tid: i32) -> io::Result<()> {
        let attr = PerfAttr { flags: TOLD | perf::INHERIT, ..attr() };
        for cpu in 0..possible_cpus()? {
            if self.events.len() + self.rings.len() >= MAX_EVENTS {
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
            let event = match perf::open(&attr, tid, cpu as i32) {
                Ok(event) => event,
                // A CPU that is off, a thread that has ended.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => continue,
                Err(error) => return Err(error),
            };
            match self.rings.get(&cpu) {
                Some(ring) => {
                    // SAFETY: both descriptors are open; the request takes a number.
                    let result =
                        unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, ring.event.as_raw_fd()) };
                    if result < 0 {
                        return Err(io::Error::last_os_error());
                    }
                    self.events.push(event);
                }
                None => {
                    self.rings.insert(cpu, Ring::new(event, RING_BYTES)?);
                }
            }
        }
        Ok(())
    }

    /// Who is followed, or was forked by them, and alive, as far as was told.
    pub fn family(&self) -> impl Iterator<Item = u32> + '_ {
        self.family.iter().copied()
    }

    /// Hands over all that had happened before the call, in its order.
    pub fn read(&mut self, mut take: impl FnMut(Entry)) {
        if self.rings.is_empty() {
            return;
        }
        // What is newer may have been preceded by an entry of a ring that was read before.
        let now_ns = monotonic_ns();
        let n_before = self.held_back.len();
        for ring in self.rings.values_mut() {
            ring.read(&mut self.held_back);
        }
        if self.held_back.len() > n_before {
            self.held_back.sort_by_key(|(time_ns, _)| *time_ns);
        }
        let n = self.held_back.partition_point(|(time_ns, _)| *time_ns <= now_ns);
        for (_, entry) in self.held_back.drain(..n) {
            if is_of(&mut self.family, self.scope, &entry) {
                take(entry);
            }
        }
    }
}

/// Whether it is wanted. The family grows and shrinks with what it tells.
fn is_of(family: &mut HashSet<u32>, scope: Scope, entry: &Entry) -> bool {
    let is_of_family = match entry {
        Entry::Forked { pid, parent } => {
            (scope == Scope::Family || family.contains(parent)) && family.insert(*pid)
        }
        Entry::Started { pid, .. } | Entry::Mapped { pid, .. } => family.contains(pid),
        Entry::Ended { pid } => family.remove(pid),
        Entry::Lost => {
            // The ends of some may be among what is lost.
            family.retain(|pid| Process::is_alive(*pid));
            true
        }
    };
    is_of_family || scope != Scope::FamilyOfAll
}

fn attr() -> PerfAttr {
    PerfAttr {
        event_type: perf::TYPE_SOFTWARE,
        config: DUMMY,
        sample_type: SAMPLE_TIME,
        clock: libc::CLOCK_MONOTONIC,
        ..PerfAttr::default()
    }
}

/// The records of one CPU: a page with positions, then the data.
#[derive(Debug)]
struct Ring {
    pages: *mut u8,
    page_bytes: usize,
    /// A power of two.
    data_bytes: usize,
    event: OwnedFd,
    /// A record that lies across the end of the data, in one piece.
    record: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone; the kernel side is synchronised by the two positions.
unsafe impl Send for Ring {}

impl Ring {
    fn new(event: OwnedFd, data_bytes: usize) -> io::Result<Ring> {
        // SAFETY: sysconf has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping of an open descriptor, at an address of the kernel's choice.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring { pages: pages.cast(), page_bytes, data_bytes, event, record: Vec::new() })
    }

    fn read(&mut self, entries: &mut Vec<(u64, Entry)>) {
        // SAFETY: both are aligned words of the first page, which is mapped as long as this value lives.
        let (head, tail) = unsafe {
            (&*self.pages.add(HEAD_AT).cast::<AtomicU64>(), &*self.pages.add(TAIL_AT).cast::<AtomicU64>())
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        while end - at >= 8 {
            self.copy(at, 8);
            let n_bytes = usize::from(u16::from_le_bytes([self.record[6], self.record[7]]));
            if n_bytes < 8 || end - at < n_bytes as u64 {
                at = end;
                break;
            }
            self.copy(at, n_bytes);
            entries.extend(parse(&self.record));
            at += n_bytes as u64;
        }
        tail.store(at, Ordering::Release);
    }

    /// Copies bytes of the data into `record`.
    fn copy(&mut self, at: u64, n_bytes: usize) {
        let first = (at as usize) & (self.data_bytes - 1);
        let n_before_end = n_bytes.min(self.data_bytes - first);
        self.record.clear();
        // SAFETY: both pieces lie within the data, and the kernel leaves alone what is before the tail we have stored.
        unsafe {
            let data = self.pages.add(self.page_bytes);
            self.record.extend_from_slice(std::slice::from_raw_parts(data.add(first), n_before_end));
            self.record.extend_from_slice(std::slice::from_raw_parts(data, n_bytes - n_before_end));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nothing borrowed from it outlives `copy`.
        unsafe { libc::munmap(self.pages.cast(), self.page_bytes + self.data_bytes) };
    }
}

/// What a record is read as.
#[cfg(fuzzing)]
pub fn parse_record(record: &[u8]) -> Option<(u64, Entry)> {
    parse(record)
}

/// One record with its time; nothing if it is of another kind.
fn parse(record: &[u8]) -> Option<(u64, Entry)> {
    let (record, time_ns) = record.split_last_chunk()?;
    let u32_at = |at: usize| Some(u32::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
    let (kind, misc) = (u32_at(0)?, u32_at(4)? as u16);
    let entry = match kind {
        // Threads of one process are forked and end by themselves, too.
        RECORD_FORK if u32_at(8)? != u32_at(12)? => Entry::Forked { pid: u32_at(8)?, parent: u32_at(12)? },
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
            let name = until_nul(record.get(16..)?);
            Entry::Started { pid: u32_at(8)?, name: String::from_utf8_lossy(name).into_owned() }
        }
        RECORD_LOST => Entry::Lost,
        RECORD_EXIT if u32_at(8)? == u32_at(16)? => Entry::Ended { pid: u32_at(8)? },
        RECORD_MMAP2 if misc & MISC_BUILD_ID == 0 => {
            let (pid, start, n_bytes, offset) = (u32_at(8)?, u64_at(16)?, u64_at(24)?, u64_at(32)?);
            let name = until_nul(record.get(72..)?);
            let is_deleted = name.ends_with(b" (deleted)");
            let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
            let protection = u32_at(64)?;
            Entry::Mapped {
                pid,
                mapping: Mapping {
                    start,
                    end: start.checked_add(n_bytes)?,
                    is_readable: protection & libc::PROT_READ as u32 != 0,
                    is_writable: protection & libc::PROT_WRITE as u32 != 0,
                    is_executable: protection & libc::PROT_EXEC as u32 != 0,
                    is_shared: u32_at(68)? & libc::MAP_SHARED as u32 != 0,
                    offset,
                    device_major: u32_at(40)?,
                    device_minor: u32_at(44)?,
                    inode: u64_at(48)?,
                    path: OsString::from_vec(name.to_vec()).into(),
                    is_deleted,
                },
            }
        }
        _ => return None,
    };
    Some((u64::from_le_bytes(*time_ns), entry))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives over the call; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Command, id};

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let n_bytes = (8 + body.len() + 8) as u16;
        let head = [&kind.to_le_bytes()[..], &0u16.to_le_bytes(), &n_bytes.to_le_bytes()].concat();
        [&head, body, &77u64.to_le_bytes()].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records() {
        for (kind, body, want) in [
            (RECORD_FORK, words(&[7, 5, 7, 5, 1, 0]), Some(Entry::Forked { pid: 7, parent: 5 })),
            // A thread.
            (RECORD_FORK, words(&[5, 5, 8, 5, 1, 0]), None),
            (RECORD_EXIT, words(&[7, 5, 7, 5, 1, 0]), Some(Entry::Ended { pid: 7 })),
            (RECORD_EXIT, words(&[5, 5, 8, 5, 1, 0]), None),
            (RECORD_LOST, words(&[1, 0, 9, 0]), Some(Entry::Lost)),
            (3, words(&[7, 7, 0, 0]), None),
            (RECORD_FORK, Vec::new(), None),
            (RECORD_MMAP2, words(&[7, 7]), None),
        ] {
            assert_eq!(parse(&record(kind, &body)), want.map(|entry| (77, entry)), "{kind} {body:?}");
        }
        let mut body = words(&[7, 8, 0x1000, 0, 0x2000, 0, 0x300, 0, 8, 1, 99, 0, 0, 0, 5, 2]);
        body.extend(b"/lib/x.so (deleted)\0\0\0\0\0");
        let Some((77, Entry::Mapped { pid: 7, mapping })) = parse(&record(RECORD_MMAP2, &body)) else {
            panic!("no mapping");
        };
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x1000, 0x3000, 0x300));
        assert_eq!((mapping.device_major, mapping.device_minor, mapping.inode), (8, 1, 99));
        assert!(mapping.is_executable && mapping.is_deleted && !mapping.is_writable && !mapping.is_shared);
        assert_eq!(mapping.path, Path::new("/lib/x.so"));
        for n in 0..body.len() {
            // Cut anywhere: nothing may be read beyond the end.
            parse(&record(RECORD_MMAP2, &body[..n]));
        }
    }

    #[test]
    fn a_child_that_is_gone_has_left_its_story() {
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        let (mut of_all, mut of_us) = (PerfEvents::default(), PerfEvents::default());
        match of_all.follow_for_free(id()) {
            // A kernel may forbid it to others.
            Err(_) if !is_root => {}
            followed => {
                followed.expect("perf events");
                tells_of_a_child(of_all);
            }
        }
        for task in std::fs::read_dir("/proc/self/task").expect("threads") {
            let tid = task.ok().and_then(|task| task.file_name().to_str()?.parse().ok()).expect("a number");
            match of_us.follow_thread(tid) {
                Err(_) if !is_root => return,
                followed => followed.expect("perf events"),
            }
        }
        tells_of_a_child(of_us);
    }

    fn tells_of_a_child(mut perf_events: PerfEvents) {
        let mut child = Command::new("true").spawn().expect("true");
        let pid = child.id();
        child.wait().expect("true");
        let mut story = Vec::new();
        perf_events.read(|entry| story.push(entry));
        assert!(story.iter().all(|entry| !matches!(entry, Entry::Ended { pid } if *pid == id())));
        let forked = story.iter().position(|entry| *entry == Entry::Forked { pid, parent: id() });
        let mapped = story.iter().position(|entry| {
            let is_true = |mapping: &Mapping| mapping.path.ends_with("true") && mapping.is_executable;
            matches!(entry, Entry::Mapped { pid: of, mapping } if *of == pid && is_true(mapping))
        });
        let started =
            story.iter().position(|entry| *entry == Entry::Started { pid, name: "true".to_owned() });
        let ended = story.iter().position(|entry| *entry == Entry::Ended { pid });
        assert!(forked.is_some() && forked < started && started < mapped && mapped < ended, "{story:?}");
    }
}
