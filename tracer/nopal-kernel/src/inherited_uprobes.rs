//! Uprobes that a process and everything it forks have, from the first instruction of a child on.
//!
//! A `uprobe_multi` link holds for one process: its children inherit the breakpoints, trap, and leave nothing. perf events
//! can be inherited. So the sites get one named uprobe event; a perf event of it on every thread of a process says that
//! the process takes part, and the kernel copies that event at each fork. The program is attached to another perf event,
//! which is nobody's parent: a child's copy would take it along when the child ends, and away from everybody.
//!
//! Nobody else who maps the file is touched.

use super::idle_process;
use super::tracefs::{NamedEvent, Place, Tracefs};
use nopal_proc::perf::{self, DISABLED, INHERIT, PerfAttr};
use nopal_proc::threads;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::Hash;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// PERF_SAMPLE_READ with PERF_SAMPLE_TID. Nothing is ever sampled; but the kernel does not swap the events of two tasks
/// with each other (it does so on a context switch between relatives, to save time) where inherited events have this. A
/// child that ends with the swapped event of another would take the uprobes from that one. Kernels before 6.12 refuse it.
const KEEP_WITH_TASK: u64 = 0x12;

/// Sites of one file with the programs that serve them, for every process that joins and for its descendants.
#[derive(Debug, Default)]
pub(super) struct Family {
    groups: Vec<Group>,
}

/// Sites of one event, and the programs that serve them.
#[derive(Debug)]
struct Group {
    // Closed before the name is removed.
    _program_holders: Vec<OwnedFd>,
    event: NamedEvent,
}

/// A process that has joined. Dropping it takes the uprobes from it and from all its descendants.
#[derive(Debug)]
pub(super) struct Member {
    /// When it had joined, in clock ticks since boot, as `/proc/PID/stat` tells when a process started.
    since_ticks: u64,
    _events: Vec<OwnedFd>,
}

impl Family {
    /// Adds one event at all places, at which the programs run, one after the other.
    pub(crate) fn add(
        &mut self,
        tracefs: &Arc<Tracefs>,
        file: &File,
        places: &[Place],
        is_return: bool,
        programs: &[Arc<OwnedFd>],
    ) -> io::Result<()> {
        let event = tracefs.define(file, places, is_return)?;
        let mut holders = Vec::new();
        for program in programs {
            // On one that never passes the sites.
            let holder = open_event(event.id, idle_process::pid()?, DISABLED)?;
            perf::attach_program(&holder, program)?;
            holders.push(holder);
        }
        self.groups.push(Group { _program_holders: holders, event });
        Ok(())
    }

    /// Arms the sites in a process, in all it forks from now on, and in what those fork.
    fn join(&self, pid: u32) -> io::Result<Member> {
        let mut events = Vec::new();
        let mut joined: Vec<u32> = Vec::new();
        loop {
            // A thread made by one that had not joined yet has inherited nothing.
            let fresh: Vec<u32> = threads(pid)?.filter(|tid| !joined.contains(tid)).collect();
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
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if events.is_empty() && !self.groups.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(Member { since_ticks: ticks_since_boot(), _events: events })
    }
}

/// Which process has which sites through families, joined or inherited. `K` names what a family gives.
#[derive(Debug)]
pub struct Inheritance<K> {
    /// Also of processes that have ended: their descendants have what they have through them.
    members: Vec<Member>,
    covered: HashMap<u32, Covered<K>>,
}

/// What families give a process.
#[derive(Debug, Clone)]
struct Covered<K> {
    keys: HashSet<K>,
    /// When it joined, in clock ticks since boot; children started later have the same.
    since_ticks: u64,
}

impl<K> Default for Inheritance<K> {
    fn default() -> Self {
        Inheritance { members: Vec::new(), covered: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Inheritance<K> {
    pub fn has(&self, pid: u32, key: K) -> bool {
        self.covered.get(&pid).is_some_and(|covered| covered.keys.contains(&key))
    }

    pub(super) fn join(&mut self, family: &Family, pid: u32, keys: &[K]) -> io::Result<()> {
        let member = family.join(pid)?;
        self.cover(pid, keys, member.since_ticks);
        self.members.push(member);
        Ok(())
    }

    /// A process has these from now on, and so has all it starts after this time.
    fn cover(&mut self, pid: u32, keys: &[K], since_ticks: u64) {
        let covered =
            self.covered.entry(pid).or_insert_with(|| Covered { keys: HashSet::new(), since_ticks: 0 });
        covered.keys.extend(keys);
        covered.since_ticks = since_ticks;
    }

    /// The same where whatever it starts has them in any case.
    pub fn cover_all(&mut self, pid: u32, keys: &[K]) {
        self.cover(pid, keys, 0);
    }

    /// A child has what its parent had when it was forked; if that was in the very moment of joining, it must join, too.
    /// `root` is the ancestor of every process there is, if there is only one: a parent that has ended cannot be asked.
    pub fn inherit(&mut self, child: &nopal_proc::Process, root: Option<u32>) {
        let known = self.covered.get(&child.parent).or_else(|| self.covered.get(&root?));
        if let Some(parent) = known.filter(|parent| child.start_time_ticks > parent.since_ticks) {
            let keys = parent.keys.clone();
            self.covered.entry(child.pid).or_insert(Covered { keys, since_ticks: 0 });
        }
    }

    /// Says that a process could not fork while it joined: all its children have what it has.
    pub fn was_held(&mut self, pid: u32) {
        if let Some(covered) = self.covered.get_mut(&pid) {
            covered.since_ticks = 0;
        }
    }

    /// Waits until every child of those who have joined is either one that can be seen, or has what its parent has.
    pub fn settle(&self) {
        let last = self.covered.values().map(|covered| covered.since_ticks).max().unwrap_or(0);
        while last > 0 && ticks_since_boot() <= last {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Forgets processes that have ended; their numbers may come again.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.covered.retain(|pid, _| !is_gone(*pid));
    }

    /// Nobody has anything any more; what is to be dropped for it.
    pub(super) fn end(&mut self) -> Vec<Member> {
        self.covered.clear();
        std::mem::take(&mut self.members)
    }
}

/// Now, in the unit of [`Member::since_ticks`].
fn ticks_since_boot() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives over the call; the clock exists since Linux 2.6.39.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    // SAFETY: sysconf has no preconditions.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    now.tv_sec as u64 * hz + now.tv_nsec as u64 * hz / 1_000_000_000
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

    fn process(pid: u32, parent: u32, start_time_ticks: u64) -> nopal_proc::Process {
        let own = nopal_proc::Process::read(std::process::id()).expect("a process may read itself");
        nopal_proc::Process { pid, parent, start_time_ticks, ..own }
    }

    #[test]
    fn a_child_has_what_its_parent_had_when_it_was_forked() {
        let mut inheritance = Inheritance::default();
        inheritance.cover(10, &['a', 'b'], 100);
        inheritance.inherit(&process(11, 10, 101), None);
        // In the very moment of joining, or before.
        inheritance.inherit(&process(12, 10, 100), None);
        // Of a parent that has ended.
        inheritance.inherit(&process(13, 7, 200), Some(10));
        inheritance.inherit(&process(14, 7, 200), None);
        // Of a child, however soon.
        inheritance.inherit(&process(15, 11, 101), None);
        let has = |inheritance: &Inheritance<char>, key| {
            (10..16).filter(|pid| inheritance.has(*pid, key)).collect::<Vec<_>>()
        };
        assert_eq!(has(&inheritance, 'a'), [10, 11, 13, 15]);
        inheritance.was_held(10);
        inheritance.inherit(&process(12, 10, 100), None);
        // Joined later: those who were there before do not have it.
        inheritance.cover(10, &['c'], 300);
        assert_eq!(has(&inheritance, 'b'), [10, 11, 12, 13, 15]);
        assert_eq!(has(&inheritance, 'c'), [10]);
        inheritance.forget(|pid| pid == 11);
        assert_eq!(has(&inheritance, 'a'), [10, 12, 13, 15]);
        assert!(inheritance.end().is_empty() && has(&inheritance, 'a').is_empty());
    }
}
