//! Uprobes that a process and everything it forks have, from the first instruction of a child on.
//!
//! A `uprobe_multi` link holds for one process: its children inherit the breakpoints, trap, and leave nothing. perf events
//! can be inherited. So the sites get one named uprobe event; a perf event of it on every thread of a process says that
//! the process takes part, and the kernel copies that event at each fork. The program is attached to another perf event,
//! which is nobody's parent: a child's copy would take it along when the child ends, and away from everybody.
//!
//! Nobody else who maps the file is touched.

use super::capture_program::{self, Dispatch, ProgramSite};
use super::idle_process;
use super::tracefs::{NamedEvent, Place, Tracefs};
use super::{KernelDoor, KernelError, KernelSite, SITES_PER_PROGRAM};
use crate::perf::{self, DISABLED, INHERIT, PerfAttr};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// PERF_SAMPLE_READ with PERF_SAMPLE_TID. Nothing is ever sampled; but the kernel does not swap the events of two tasks
/// with each other (it does so on a context switch between relatives, to save time) where inherited events have this. A
/// child that ends with the swapped event of another would take the uprobes from that one. Kernels before 6.12 refuse it.
const KEEP_WITH_TASK: u64 = 0x12;

/// Sites of one file with the programs that serve them, for every process that joins and for its descendants.
#[derive(Debug)]
pub struct Family {
    groups: Vec<Group>,
}

/// Sites that one program serves.
#[derive(Debug)]
pub(super) struct Group {
    // Closed before the name is removed.
    _program_holder: OwnedFd,
    event: NamedEvent,
}

/// A process that has joined. Dropping it takes the uprobes from it and from all its descendants.
#[derive(Debug)]
pub struct Member {
    /// When it had joined, in clock ticks since boot, as `/proc/PID/stat` tells when a process started.
    pub since_ticks: u64,
    _events: Vec<OwnedFd>,
}

impl KernelDoor {
    /// Loads programs for sites of the file at `path`. Sites that cannot be served are returned with the reason.
    pub fn found_family(
        &self,
        tracefs: &Arc<Tracefs>,
        sites: &[KernelSite],
        path: &Path,
    ) -> Result<(Family, Vec<(u32, KernelError)>), KernelError> {
        let (accepted, refused) = self.accept(sites);
        let file =
            File::open(path).map_err(|error| KernelError::Io { what: "opening the traced file", error })?;
        let mut groups = Vec::new();
        for group in by_page_offset(&accepted) {
            let programs: Vec<ProgramSite> = group.iter().map(|(_, bare)| bare.clone()).collect();
            let program = self.load(&programs, Dispatch::PageOffset)?;
            let places: Vec<Place> = group
                .iter()
                .map(|(site, _)| Place {
                    file_offset: site.site.file_offset,
                    ref_ctr_offset: site.site.semaphore.map_or(0, |s| s.file_offset),
                })
                .collect();
            groups.push(Group::new(tracefs, &file, &places, false, &program)?);
        }
        Ok((Family { groups }, refused))
    }
}

impl Group {
    /// One event at all places, at which the program runs.
    pub(super) fn new(
        tracefs: &Arc<Tracefs>,
        file: &File,
        places: &[Place],
        is_return: bool,
        program: &OwnedFd,
    ) -> Result<Group, KernelError> {
        let failed = |what| move |error| KernelError::Io { what, error };
        let event = tracefs.define(file, places, is_return).map_err(failed("defining a uprobe event"))?;
        // On one that never passes the sites.
        let idle = idle_process::pid().map_err(failed("starting a process that holds a uprobe event"))?;
        let holder = open_event(event.id, idle, DISABLED).map_err(failed("opening a uprobe event"))?;
        perf::attach_program(&holder, program)
            .map_err(failed("attaching an eBPF program to a uprobe event"))?;
        Ok(Group { _program_holder: holder, event })
    }
}

impl Family {
    pub(super) fn of(groups: Vec<Group>) -> Family {
        Family { groups }
    }

    /// Arms the sites in a process, in all it forks from now on, and in what those fork.
    pub fn join(&self, pid: u32) -> Result<Member, KernelError> {
        let failed = |error| KernelError::Link { path: format!("/proc/{pid}").into(), pid, error };
        let mut events = Vec::new();
        let mut joined: Vec<u32> = Vec::new();
        loop {
            let threads = threads(pid).map_err(failed)?;
            // A thread made by one that had not joined yet has inherited nothing.
            let fresh: Vec<u32> = threads.into_iter().filter(|tid| !joined.contains(tid)).collect();
            if fresh.is_empty() {
                break;
            }
            for tid in fresh {
                joined.push(tid);
                for group in &self.groups {
                    // Never counted by perf itself: that a process has it is all that is wanted.
                    match open_event(group.event.id, tid, DISABLED | INHERIT) {
                        Ok(event) => events.push(event),
                        // It has ended meanwhile.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                            return Err(KernelError::NotPermitted { what: "putting uprobes on a process" });
                        }
                        Err(error) => return Err(failed(error)),
                    }
                }
            }
        }
        if events.is_empty() && !self.groups.is_empty() {
            return Err(failed(io::Error::from_raw_os_error(libc::ESRCH)));
        }
        Ok(Member { since_ticks: ticks_since_boot(), _events: events })
    }
}

/// Puts sites into groups in which no two are at the same place of a page: there the instruction pointer's low bits tell
/// which one was hit, wherever the file is loaded.
fn by_page_offset<'a, 'b>(
    sites: &'b [(&'a KernelSite, ProgramSite)],
) -> Vec<Vec<&'b (&'a KernelSite, ProgramSite)>> {
    let mut groups: Vec<Vec<&(&KernelSite, ProgramSite)>> = Vec::new();
    for site in sites {
        let key = capture_program::page_offset(site.1.address);
        let has_room = |group: &&mut Vec<&(&KernelSite, ProgramSite)>| {
            group.len() < SITES_PER_PROGRAM
                && group.iter().all(|(_, other)| capture_program::page_offset(other.address) != key)
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => group.push(site),
            None => groups.push(vec![site]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|(_, bare)| capture_program::page_offset(bare.address));
    }
    groups
}

/// Now, in the unit of [`Member::since_ticks`].
pub fn ticks_since_boot() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives over the call; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    // SAFETY: sysconf has no preconditions.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    now.tv_sec as u64 * hz + now.tv_nsec as u64 * hz / 1_000_000_000
}

/// Waits until processes that are started can be told from those that were there at this time.
pub fn wait_until_after(ticks: u64) {
    while ticks_since_boot() <= ticks {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn open_event(id: u64, tid: u32, flags: u64) -> io::Result<OwnedFd> {
    match try_open_event(id, tid, flags) {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            raise_descriptor_limit()?;
            try_open_event(id, tid, flags)
        }
        result => result,
    }
}

fn try_open_event(id: u64, tid: u32, flags: u64) -> io::Result<OwnedFd> {
    let attr = PerfAttr {
        event_type: perf::TYPE_TRACEPOINT,
        config: id,
        sample_period: 1,
        sample_type: if flags & INHERIT != 0 { KEEP_WITH_TASK } else { 0 },
        flags,
        ..PerfAttr::default()
    };
    perf::open(&attr, tid as i32, -1)
}

/// A descriptor for each thread can be more than the usual limit of 1024.
fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives over the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_sdt::probe::Site;

    #[test]
    fn no_two_sites_of_a_group_share_the_place_in_a_page() {
        let addresses = [0x1010, 0x2010, 0x1020, 0x3010, 0x10, 0x1030];
        let sites: Vec<KernelSite> = (0..)
            .zip(addresses)
            .map(|(event, address)| KernelSite {
                event,
                site: Site { address, file_offset: address, semaphore: None, args: vec![], code: vec![0x90] },
                captures: vec![],
            })
            .collect();
        let accepted: Vec<_> = sites
            .iter()
            .map(|s| (s, ProgramSite { event: s.event, address: s.site.address, captures: vec![] }))
            .collect();
        let groups: Vec<Vec<u64>> = by_page_offset(&accepted)
            .into_iter()
            .map(|group| group.into_iter().map(|(_, bare)| bare.address).collect())
            .collect();
        assert_eq!(groups, [vec![0x1010, 0x1020, 0x1030], vec![0x2010], vec![0x3010], vec![0x10]]);
    }
}
