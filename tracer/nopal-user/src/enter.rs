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
    /// The process pages that were used.
    pages: Vec<u64>,
}

/// Code and room in the target for making many calls at once.
#[derive(Debug, Clone, Copy)]
struct Lists {
    code: u64,
    process_page: u64,
}

impl<'a> Entered<'a> {
    pub(crate) fn new(memory: &'a Memory, hijack: Hijack<'a>) -> Entered<'a> {
        Entered { memory, hijack, lists: None, pages: Vec::new() }
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
        let Some(lists) = self.lists else {
            return calls.iter().map(|call| self.hijack.single(*call)).collect();
        };
        let mut results = Vec::with_capacity(calls.len());
        for some in calls.chunks(CALLS_PER_LIST) {
            results.extend(self.hijack.list(lists.code, lists.process_page + DESK_OFFSET, some)?);
        }
        Ok(results)
    }

    fn scratch(&mut self) -> Result<u64> {
        match self.lists {
            Some(lists) => Ok(lists.process_page + SCRATCH_OFFSET),
            None => self.hijack.scratch(),
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
