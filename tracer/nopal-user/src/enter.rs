//! A process that has been entered: one of its threads is borrowed, and calls can be made in it.

use super::call_code::CALL_LIST;
use super::error::{Error, Result};
use super::hijack::{Call, Hijack, LIST_IN_PROGRESS};
use super::left_fds;
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::{Neighbourhood, spaces_in};
use super::pass_fd::Caller;
use super::process_page::{NOTES_BYTES, NOTES_OFFSET, SCRATCH_BYTES, SCRATCH_OFFSET};
use super::room::far_from_code;
use super::stopped_thread::stop_all;
use nopal_abi::PAGE_BYTES;
use nopal_proc::Mapping;
use nopal_proc::ptrace;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);

/// Where a list of calls is put: in the process page of a stub space, behind what stubs use of it.
const DESK_OFFSET: u64 = 1024;
const CALLS_PER_LIST: usize = (PAGE_BYTES - DESK_OFFSET as usize - NOTES_BYTES - SCRATCH_BYTES) / 64 - 1;

/// Waits until no thread is busy with a list whose tracer was killed; it ends by itself. A list that was written but
/// never begun has nobody in it.
pub(crate) fn wait_until_idle(memory: &Memory) -> Result<()> {
    let pid = memory.pid();
    let end = Instant::now() + PATIENCE;
    let maps = Maps::read(pid)?;
    for range in spaces_in(&maps) {
        let desk = range.end + DESK_OFFSET;
        while memory.read_u64(desk).is_ok_and(|word| word == LIST_IN_PROGRESS) && is_anyone_in(pid, range)? {
            if Instant::now() > end {
                return Err(Error::Busy { pid });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

fn is_anyone_in(pid: i32, range: &Mapping) -> Result<bool> {
    for thread in stop_all(pid, &[])? {
        let rip = ptrace::regs(thread.tid).map_err(Error::on(pid, "read registers"))?.rip;
        if (range.start..range.end).contains(&rip) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[derive(Debug)]
pub(crate) struct Entered<'a> {
    pub memory: &'a Memory,
    pub hijack: Hijack<'a>,
    lists: Option<Lists>,
    wide: Option<WideDesk>,
    /// The borrowed thread runs on for a while, as if we were not there.
    is_resting: bool,
    /// The process pages that were used.
    pages: Vec<u64>,
}

/// Code and room in the target for making many calls at once.
#[derive(Debug, Clone, Copy)]
struct Lists {
    code: u64,
    process_page: u64,
}

/// Memory of the target for longer lists than its process page has room for, for as long as many calls are made.
#[derive(Debug, Clone, Copy)]
struct WideDesk {
    address: u64,
    len: u64,
}

impl<'a> Entered<'a> {
    pub(crate) fn new(memory: &'a Memory, hijack: Hijack<'a>) -> Entered<'a> {
        Entered { memory, hijack, lists: None, wide: None, is_resting: false, pages: Vec::new() }
    }

    /// From now on calls are made by the list code of this neighbourhood, if all of it is there unharmed.
    pub(crate) fn use_lists(&mut self, n: &Neighbourhood, maps: &Maps) {
        let code = n.list_code();
        let is_there = self.memory.read_vec(code, CALL_LIST.len()).is_ok_and(|bytes| bytes == CALL_LIST);
        if is_there && n.has_private_pages(maps) {
            let process_page = n.process_page();
            self.lists = Some(Lists { code, process_page });
            if !self.pages.contains(&process_page) {
                self.pages.push(process_page);
            }
        }
    }

    /// Lets the borrowed thread run on, if that can be, until the next call is made.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.is_resting = self.is_resting || self.hijack.rest()?;
        Ok(())
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting
    }

    /// Borrows the thread again, if it was let go, or another where that one cannot be borrowed any more.
    pub(crate) fn borrow(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_resting) && self.hijack.stop_again().is_err() {
            self.hijack = Hijack::choose(self.memory, None)?;
        }
        Ok(())
    }

    /// Makes room for lists of so many calls, far from where jumps land; what cannot be had is done without. It is not given
    /// to children.
    pub(crate) fn widen(&mut self, n_calls: usize, maps: &Maps) -> Result<()> {
        const MADV_DONTFORK: u64 = 10;
        let len = (n_calls as u64 * 64).next_multiple_of(PAGE_BYTES as u64);
        let Some(place) = far_from_code(maps, len) else { return Ok(()) };
        if self.wide.is_some() || self.lists.is_none() || n_calls <= CALLS_PER_LIST {
            return Ok(());
        }
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let results = self.calls(&[
            Call::new("map", libc::SYS_mmap, [place, len, rights, flags, u64::MAX, 0]),
            Call::new("advise", libc::SYS_madvise, [place, len, MADV_DONTFORK, 0, 0, 0]),
        ])?;
        if results.first() == Some(&(place as i64)) {
            self.wide = Some(WideDesk { address: place, len });
        }
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn narrow(&mut self) -> Result<()> {
        match self.wide.take() {
            Some(WideDesk { address, len }) => {
                self.calls(&[Call::new("unmap", libc::SYS_munmap, [address, len, 0, 0, 0, 0])]).map(drop)
            }
            None => Ok(()),
        }
    }

    /// Notes which descriptors of ours the process has, for whoever comes if we are killed. Before the first list of calls
    /// there is no place to do so.
    pub(crate) fn note(&self, descriptors: impl Iterator<Item = i32>) -> Result<()> {
        match self.pages.first() {
            Some(page) => self.memory.write(page + NOTES_OFFSET, &left_fds::notes(descriptors)),
            None => Ok(()),
        }
    }

    /// Nothing of ours is open in the process any more.
    pub(crate) fn note_nothing(&self) -> Result<()> {
        self.pages.iter().try_for_each(|page| left_fds::forget(self.memory, *page))
    }
}

impl Caller for Entered<'_> {
    fn calls(&mut self, calls: &[Call]) -> Result<Vec<i64>> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        self.borrow()?;
        let Some(lists) = self.lists else {
            return calls.iter().map(|call| self.hijack.single(*call)).collect();
        };
        let flag = lists.process_page + DESK_OFFSET;
        let (desk, at_a_time) = match self.wide {
            Some(WideDesk { address, len }) => (address, (len / 64) as usize),
            None => (flag + 64, CALLS_PER_LIST),
        };
        let mut results = Vec::with_capacity(calls.len());
        for some in calls.chunks(at_a_time) {
            results.extend(self.hijack.list(lists.code, flag, desk, some)?);
        }
        Ok(results)
    }

    fn scratch(&mut self) -> Result<u64> {
        match self.lists {
            Some(lists) => Ok(lists.process_page + SCRATCH_OFFSET),
            None => {
                self.borrow()?;
                self.hijack.scratch()
            }
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write(address, bytes)
    }

    fn read(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        self.memory.read_vec(address, len)
    }

    fn pid(&self) -> i32 {
        self.memory.pid()
    }
}
