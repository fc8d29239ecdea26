//! Leaving a process: code and semaphores as they were, stubs taken out of their chains. For a session's own end, and for
//! processes whose tracer was killed. What is mapped stays, since a thread may still be inside.

use super::core::Core;
use super::enter::{Entered, wait_until_idle};
use super::entry;
use super::error::{Error, Result};
use super::hijack::{Call, Hijack, check};
use super::ledger::Ledger;
use super::left_fds;
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::{Neighbourhood, spaces_in};
use super::pass_fd::Caller;
use super::patch::{Direction, Files, Found, Patch, apply};
use super::process;
use super::protocol::{CLOSING, Closing};
use super::relocate::{pages_of, protect};
use super::ring::RING_NAME;
use super::stopped_thread::Lock;
use super::traced::Traced;
use nopal_abi::ring::ControlPage;
use nopal_abi::stub_space::{JournalKind, JournalState};
use nopal_proc::births::Births;
use nopal_proc::ptrace::in_own_thread;
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What was put back.
#[derive(Debug, Default)]
pub struct LeaveReport {
    /// Processes that were visited.
    pub processes: Vec<i32>,
    /// Changed places in the code that were put back, over all processes.
    pub n_restored: usize,
    /// Semaphores that were put back.
    pub n_lowered: usize,
    /// Places that hold neither our bytes nor the file's and were left alone: process, address, what stands there.
    pub left_alone: Vec<(i32, u64, Found)>,
    /// Sessions of killed tracers that were found.
    pub n_orphans: usize,
    /// Tracers that are alive and go on: their sites stay open.
    pub live_tracers: Vec<u32>,
    /// Processes that could not be visited.
    pub failures: Vec<(i32, String)>,
}

/// Ends a session everywhere.
pub fn leave(core: &mut Core, traced: &mut Vec<Traced>) -> LeaveReport {
    let mut report = LeaveReport::default();
    let generation = core.generation();
    for step in CLOSING {
        match step {
            // Threads inside a stub go on through it; new hits pass by it from here on.
            Closing::Unlink => {
                for n in &core.neighbourhoods {
                    if let Some(index) = n.session(generation) {
                        n.space.unlink_session(index);
                    }
                }
            }
            Closing::Patch => close_all(core, traced, Whose::Session(generation), &mut report),
            // Done in each process after its code.
            Closing::Lower => {}
            Closing::Leave => {
                for n in &core.neighbourhoods {
                    if let Some(index) = n.session(generation) {
                        n.space.leave_session(index);
                    }
                }
            }
        }
    }
    traced.clear();
    report
}

/// Visits every process that has something of the session, those included that are forked meanwhile.
fn close_all(core: &Core, traced: &[Traced], whose: Whose, report: &mut LeaveReport) {
    let births = Births::from_now_on();
    let inodes: HashSet<u64> = core.neighbourhoods.iter().map(|n| n.inode).collect();
    let mut pids: Vec<i32> = traced.iter().map(|t| t.pid).collect();
    pids.extend(sharing(&inodes));
    pids.sort_unstable();
    pids.dedup();
    let neighbourhoods = &core.neighbourhoods;
    let views = |maps: &Maps, memory: &Memory| own_spaces(neighbourhoods, maps, memory);
    for pid in pids.iter().copied().filter(|pid| process::is_alive(*pid)) {
        report.add(pid, close_while_it_shares(pid, &inodes, &views, whose));
    }
    close_newborn(&births, &pids, &inodes, &views, whose, report);
}

/// Gives the memory of the rings back once they have been read; it stays mapped in the processes, as a hole.
pub fn free_rings(core: &Core) {
    let page = nopal_abi::PAGE_BYTES as i64;
    for (_, domain) in core.domains.iter() {
        // SAFETY: plain system call on a descriptor we own. If it fails the memory lives as long as the processes.
        unsafe {
            libc::fallocate(
                domain.file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                page,
                core.layout().total_bytes as i64 - page,
            );
        }
    }
}

impl LeaveReport {
    fn add(&mut self, pid: i32, outcome: Result<LeaveReport>) {
        match outcome {
            Ok(one) => {
                self.processes.push(pid);
                self.n_restored += one.n_restored;
                self.n_lowered += one.n_lowered;
                self.left_alone.extend(one.left_alone);
                self.n_orphans += one.n_orphans;
                for tracer in one.live_tracers {
                    if !self.live_tracers.contains(&tracer) {
                        self.live_tracers.push(tracer);
                    }
                }
            }
            Err(Error::Gone { .. } | Error::NoSuchProcess { .. }) => {}
            Err(error) => self.failures.push((pid, error.to_string())),
        }
    }
}

/// Whose changes are taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Of the session with this generation, and of tracers that are dead or have left.
    Session(u64),
    Dead,
    /// Of the dead, and of the tracer that this process was before an exec.
    DeadAndPast,
}

/// Processes with something of the tracer that this process was before an exec.
pub fn left_by_this_process() -> Vec<i32> {
    let has_ours = |pid: &i32| -> Result<bool> {
        let (memory, maps) = (Memory::open(*pid)?, Maps::read(*pid)?);
        let spaces = all_spaces(&maps, &memory)?;
        Ok(spaces
            .iter()
            .map(View::get)
            .any(|n| n.sessions().iter().any(|(index, is_alive)| *is_alive && is_of_this_process(n, *index))))
    };
    let pids = nopal_proc::processes().into_iter().map(|p| p.pid as i32);
    pids.filter(|pid| has_ours(pid).unwrap_or(false)).collect()
}

fn is_of_this_process(n: &Neighbourhood, session: u16) -> bool {
    n.space.session_line(session).tracer_pid == std::process::id()
}

/// Whether a process has something that a killed tracer left; `None` if that cannot be seen. Only looks.
pub fn has_leftovers(pid: i32) -> Option<bool> {
    look_for_changes(pid, &all_spaces, Whose::Dead).ok()
}

/// Puts back what killed tracers left in a process and in every other that shares its stubs. Sessions whose tracer is
/// alive are not touched.
pub fn detach(pid: i32) -> Result<LeaveReport> {
    put_back(pid, Whose::Dead)
}

/// The same, and what this process traced before an exec. It may trace nothing now.
pub fn detach_past(pid: i32) -> Result<LeaveReport> {
    put_back(pid, Whose::DeadAndPast)
}

fn put_back(pid: i32, whose: Whose) -> Result<LeaveReport> {
    if matches!(process::status(pid)?.state, 'Z' | 'X') {
        return Err(Error::Gone { pid });
    }
    let memory = Memory::open(pid)?;
    let maps = Maps::read(pid)?;
    let inodes: HashSet<u64> = spaces_in(&maps).iter().map(|r| r.inode).collect();
    drop(memory);
    let births = Births::from_now_on();
    let mut pids = vec![pid];
    pids.extend(sharing(&inodes));
    for descendant in nopal_proc::descendants(pid as u32) {
        pids.push(descendant as i32);
    }
    pids[1..].sort_unstable();
    pids.dedup();
    let mut report = LeaveReport::default();
    for (i, one) in pids.iter().copied().enumerate() {
        match close_while_it_shares(one, &inodes, &all_spaces, whose) {
            Err(error) if i == 0 => return Err(error),
            other => report.add(one, other),
        }
    }
    close_newborn(&births, &pids, &inodes, &all_spaces, whose, &mut report);
    Ok(report)
}

fn close_while_it_shares<'c>(
    pid: i32,
    inodes: &HashSet<u64>,
    views: &(impl Fn(&Maps, &Memory) -> Result<Vec<View<'c>>> + Sync),
    whose: Whose,
) -> Result<LeaveReport> {
    while_it_shares(pid, inodes, || {
        in_own_thread(|| {
            let mut report = LeaveReport::default();
            close_process(pid, views, whose, &mut report)?;
            Ok(report)
        })
    })
}

/// How often, and how long apart, children are looked for that may have been forked from a process before it was closed.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// However many come.
const MAX_LOOKS: u32 = 200;

/// A child that was forked from a process before it was closed is a copy of what that was, and can be seen only some
/// moments later. Where nobody has ever forked, one look is enough.
fn close_newborn<'c>(
    births: &Births,
    visited: &[i32],
    inodes: &HashSet<u64>,
    views: &(impl Fn(&Maps, &Memory) -> Result<Vec<View<'c>>> + Sync),
    whose: Whose,
    report: &mut LeaveReport,
) {
    if inodes.is_empty() {
        return;
    }
    let mut known: HashSet<i32> = visited.iter().copied().collect();
    let (mut n_looks, mut n_quiet) = (0, if visited.len() > 1 { 0 } else { LOOKS - 1 });
    while n_quiet < LOOKS && n_looks < MAX_LOOKS {
        let fresh = births.so_far().into_iter().map(|pid| pid as i32).filter(|pid| !known.contains(pid));
        // One that cannot be read is on its way still, or gone.
        let fresh: Vec<i32> = fresh.filter(|pid| shares(*pid, inodes)).collect();
        known.extend(&fresh);
        let touched: Vec<i32> = fresh.iter().copied().filter(|pid| is_touched(*pid, views, whose)).collect();
        // Those that have nothing were forked afterwards.
        (n_looks, n_quiet) = (n_looks + 1, if touched.is_empty() { n_quiet + 1 } else { 0 });
        for pid in touched {
            report.add(pid, close_while_it_shares(pid, inodes, views, whose));
        }
        if n_quiet < LOOKS {
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Whether a process has something to be put back.
fn is_touched<'c>(pid: i32, views: &impl Fn(&Maps, &Memory) -> Result<Vec<View<'c>>>, whose: Whose) -> bool {
    // What cannot be looked at is closed, if that can be.
    look_for_changes(pid, views, whose).unwrap_or(true)
}

fn look_for_changes<'c>(
    pid: i32,
    views: &impl Fn(&Maps, &Memory) -> Result<Vec<View<'c>>>,
    whose: Whose,
) -> Result<bool> {
    let (memory, maps, mut files) = (Memory::open(pid)?, Maps::read(pid)?, Files::of(pid)?);
    let all = views(&maps, &memory)?;
    let mut changed = all.iter().map(|view| {
        let n = view.get();
        Changes::of(n, &Ending::of(n, whose), &mut files, &memory, &maps)
    });
    Ok(changed.any(|changes| !changes.patches.is_empty() || !changes.semaphores.is_empty()))
}

/// Processes that map one of these stub spaces.
fn sharing(inodes: &HashSet<u64>) -> Vec<i32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    nopal_proc::processes().into_iter().map(|p| p.pid as i32).filter(|pid| shares(*pid, inodes)).collect()
}

fn shares(pid: i32, inodes: &HashSet<u64>) -> bool {
    Maps::read(pid).is_ok_and(|maps| spaces_in(&maps).iter().any(|r| inodes.contains(&r.inode)))
}

/// A process in the middle of exec may not be looked into for a moment, and then has nothing of ours any more: a failure
/// counts only if it stays.
fn while_it_shares(
    pid: i32,
    inodes: &HashSet<u64>,
    mut close: impl FnMut() -> Result<LeaveReport>,
) -> Result<LeaveReport> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match close() {
            Err(Error::Permission { .. }) => {}
            outcome => return outcome,
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        // Its maps cannot be read either while it is not ours to look into.
        if Maps::read(pid).is_ok() && !shares(pid, inodes) {
            return Err(Error::Gone { pid });
        }
    }
    close()
}

/// A stub space to be left, ours or a copy made for reading.
enum View<'c> {
    Ours(&'c Neighbourhood),
    Copy(Box<Neighbourhood>),
}

impl View<'_> {
    fn get(&self) -> &Neighbourhood {
        match self {
            View::Ours(n) => n,
            View::Copy(n) => n,
        }
    }
}

fn own_spaces<'c>(ours: &'c [Neighbourhood], maps: &Maps, memory: &Memory) -> Result<Vec<View<'c>>> {
    spaces_in(maps)
        .into_iter()
        .map(|range| match ours.iter().find(|n| n.inode == range.inode) {
            Some(n) => Ok(View::Ours(n)),
            // Another session replaced ours by a copy, with our stubs in it.
            None => Ok(View::Copy(Box::new(Neighbourhood::copy_of(memory, range.start)?))),
        })
        .collect()
}

fn all_spaces<'c>(maps: &Maps, memory: &Memory) -> Result<Vec<View<'c>>> {
    spaces_in(maps)
        .into_iter()
        .map(|range| Ok(View::Copy(Box::new(Neighbourhood::copy_of(memory, range.start)?))))
        .collect()
}

/// Whose changes are to be taken back: the session's named, and those of tracers that are dead or have left.
struct Ending {
    own: Option<u16>,
    /// With whether their tracer is alive.
    sessions: Vec<(u16, bool)>,
}

impl Ending {
    fn of(n: &Neighbourhood, whose: Whose) -> Ending {
        let own = match whose {
            Whose::Session(generation) => n.session(generation),
            Whose::Dead | Whose::DeadAndPast => None,
        };
        let mut sessions = n.sessions();
        if whose == Whose::DeadAndPast {
            sessions.iter_mut().for_each(|(index, is_alive)| *is_alive &= !is_of_this_process(n, *index));
        }
        Ending { own, sessions }
    }

    fn is_ending(&self, index: u16) -> bool {
        self.own == Some(index) || !self.sessions.iter().any(|(i, is_alive)| *i == index && *is_alive)
    }
}

/// What is to be put back in one process, of one stub space.
struct Changes {
    patches: Vec<Patch>,
    /// Entries of the journal, with the address.
    semaphores: Vec<(usize, u64)>,
    /// Sites that others go on with.
    wanted: HashSet<u64>,
}

impl Changes {
    fn of(n: &Neighbourhood, ending: &Ending, files: &mut Files, memory: &Memory, maps: &Maps) -> Changes {
        let wanted: HashSet<u64> = n
            .space
            .entries()
            .filter(|(_, e, state)| {
                e.kind == JournalKind::Stub && *state != JournalState::Undone && !ending.is_ending(e.session)
            })
            .map(|(_, e, _)| e.address)
            .collect();
        let patches = patches(n, files, memory, |site| wanted.contains(&site));
        let mut semaphores = Vec::new();
        if n.has_private_pages(maps) {
            let ledger = Ledger::new(memory, n.ledger());
            for (index, entry, _) in n.space.entries() {
                let is_left = entry.kind == JournalKind::Semaphore && ending.is_ending(entry.session);
                if is_left && ledger.is_noted(index) {
                    semaphores.push((index, entry.address));
                }
            }
        }
        Changes { patches, semaphores, wanted }
    }
}

/// Leaves one process. Sessions to be ended: the one named, and all whose tracer is dead or has left.
fn close_process<'c>(
    pid: i32,
    views: &impl Fn(&Maps, &Memory) -> Result<Vec<View<'c>>>,
    whose: Whose,
    report: &mut LeaveReport,
) -> Result<()> {
    let memory = Memory::open(pid)?;
    let maps = Maps::read(pid)?;
    let has_spaces = !spaces_in(&maps).is_empty();
    let _lock = Lock::take(pid)?;
    // Also in a child that was forked while its parent was being entered.
    if entry::mend(&memory, &[])? {
        report.n_restored += 1;
    }
    if !has_spaces {
        return Ok(());
    }
    if !matches!(whose, Whose::Session(_)) {
        close_left(&memory, &maps)?;
    }
    let mut files = Files::of(pid)?;
    for view in views(&maps, &memory)? {
        let n = view.get();
        let ending = Ending::of(n, whose);
        for (index, is_alive) in &ending.sessions {
            if ending.own == Some(*index) {
                continue;
            }
            if *is_alive {
                report.live_tracers.push(n.space.session_line(*index).tracer_pid);
            } else {
                // Its place stays in the stub space; once it is silent it is nobody's.
                report.n_orphans += usize::from(silence(&memory, &maps, n, *index)?);
            }
        }
        let changes = Changes::of(n, &ending, &mut files, &memory, &maps);
        for step in CLOSING {
            match step {
                // For all processes at once.
                Closing::Unlink | Closing::Leave => {}
                Closing::Patch => {
                    let outcome = apply(&memory, &changes.patches, Direction::Out, &[])?;
                    for (patch, found) in changes.patches.iter().zip(outcome) {
                        match found {
                            None => report.n_restored += 1,
                            Some(found) => report.left_alone.push((pid, patch.address, found)),
                        }
                    }
                    lock_pages(n, &memory, |site| changes.wanted.contains(&site))?;
                }
                Closing::Lower => {
                    let ledger = Ledger::new(&memory, n.ledger());
                    let ours: HashSet<u64> =
                        changes.semaphores.iter().map(|(_, semaphore)| *semaphore).collect();
                    settle(&memory, n, |semaphore| ours.contains(&semaphore))?;
                    for (index, semaphore) in &changes.semaphores {
                        report.n_lowered += usize::from(ledger.lower(*index, *semaphore)?);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Ends what killed tracers had begun with these semaphores, before somebody changes them.
pub(super) fn settle(memory: &Memory, n: &Neighbourhood, is_one: impl Fn(u64) -> bool) -> Result<()> {
    let ledger = Ledger::new(memory, n.ledger());
    for (index, entry, _) in n.space.entries() {
        if entry.kind == JournalKind::Semaphore && is_one(entry.address) {
            ledger.settle(index, entry.address)?;
        }
    }
    Ok(())
}

/// The changes to be taken back: those of sites no remaining session wants, where our bytes are.
fn patches(
    n: &Neighbourhood,
    files: &mut Files,
    memory: &Memory,
    is_wanted: impl Fn(u64) -> bool,
) -> Vec<Patch> {
    let mut patches: Vec<(Patch, bool)> = Vec::new();
    for (_, entry, _) in n.space.entries() {
        let site = entry.address.wrapping_sub(entry.extent as i32 as i64 as u64);
        if entry.kind != JournalKind::Patch || is_wanted(site) {
            continue;
        }
        let Some(patch) = Patch::of_entry(&entry, files) else { continue };
        match patch.found(memory) {
            // A site that was never opened in this process, or is closed already, needs nothing.
            Ok(Found::Original) | Err(_) => {}
            Ok(Found::Other(_)) => patches.push((patch, false)),
            Ok(Found::Ours | Found::FirstByteBack | Found::Breakpoint) => patches.push((patch, true)),
        }
    }
    // The same site opened otherwise at another time: all begin alike, and the longest that stands there is the one.
    let mut longest: HashMap<u64, usize> = HashMap::new();
    for (patch, _) in patches.iter().filter(|(_, stands)| *stands) {
        let len = longest.entry(patch.address).or_default();
        *len = patch.patched.len().max(*len);
    }
    let is_one = |(patch, stands): &(Patch, bool)| {
        longest.get(&patch.address).is_none_or(|len| *stands && patch.patched.len() == *len)
    };
    patches.into_iter().filter(is_one).map(|(patch, _)| patch).collect()
}

/// Closes the descriptors that killed tracers had open in the process.
fn close_left(memory: &Memory, maps: &Maps) -> Result<()> {
    let pages: Vec<u64> = spaces_in(maps).iter().map(|range| range.end).collect();
    let has_none = || pages.iter().all(|page| left_fds::left_in(memory, *page).is_empty());
    if has_none() || process::status(memory.pid())?.seccomp != 0 {
        return Ok(());
    }
    wait_until_idle(memory)?;
    let mut entered = Entered::new(memory, Hijack::choose(memory, None)?);
    for page in pages {
        // Asked again: what a thread was still busy with is done now.
        entered.calls(&left_fds::closing(&left_fds::left_in(memory, page)))?;
        left_fds::forget(memory, page)?;
    }
    entered.hijack.restore()
}

/// Pages that were made writable for moved instructions are so no longer.
fn lock_pages(n: &Neighbourhood, memory: &Memory, is_wanted: impl Fn(u64) -> bool) -> Result<()> {
    let maps = Maps::read(memory.pid())?;
    let (kept, left): (Vec<u64>, Vec<u64>) =
        n.space.relocations().into_iter().partition(|site| is_wanted(*site));
    let kept: HashSet<u64> = kept.into_iter().flat_map(pages_of).collect();
    let mut pages: Vec<u64> = left.into_iter().flat_map(pages_of).collect();
    pages.sort_unstable();
    pages.dedup();
    pages.retain(|page| {
        let is_unlocked = maps
            .find(*page)
            .is_some_and(|r| r.is_writable && r.is_executable && !r.is_shared && r.inode != 0);
        is_unlocked && !kept.contains(page)
    });
    // Who has locked itself in might die of a call.
    if pages.is_empty() || process::status(memory.pid())?.seccomp != 0 {
        return Ok(());
    }
    wait_until_idle(memory)?;
    let mut entered = Entered::new(memory, Hijack::choose(memory, None)?);
    entered.use_lists(n, &maps);
    let rights = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let calls: Vec<Call> = pages.iter().map(|page| protect(*page, rights)).collect();
    for result in entered.calls(&calls)? {
        check(memory.pid(), "make code read-only again", result)?;
    }
    entered.hijack.restore()
}

/// Switches a dead session's stubs off, in the ring they share with whoever traced here; whether they were on.
fn silence(memory: &Memory, maps: &Maps, n: &Neighbourhood, session: u16) -> Result<bool> {
    let line = n.space.session_line(session);
    // Which of the session's rings it is does not matter: whatever is there is this process's alone to write to.
    let is_there = maps.find(line.ring_address).is_some_and(|r| {
        r.start == line.ring_address && r.end - r.start == line.ring_bytes && r.is_called(RING_NAME)
    });
    if !is_there {
        return Ok(false);
    }
    let at = line.ring_address + offset_of!(ControlPage, enabled) as u64;
    let mut enabled = [0; 4];
    memory.read(at, &mut enabled)?;
    memory.write(at, &[0; 4])?;
    Ok(enabled != [0; 4])
}
