//! Finds the processes a session tracks: by number, by the name of their program, by their user, control group or
//! container; also those yet to be started.

use super::config::{Tracked, TrackedProcess};
use super::groups::Groups;
use nopal_proc::Process;
use nopal_proc::exec_gate::ExecGate;
use nopal_proc::perf_events::{Entry, PerfEvents};
use nopal_proc::start_gate::{Caller, StartGate};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A program must be noticed soon after it has started.
const LOOK: Duration = Duration::from_millis(20);
/// A process may become another program long after it was first seen.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl TrackedProcess {
    pub fn of(process: &Process) -> TrackedProcess {
        TrackedProcess { pid: process.pid, start_ticks: process.start_time_ticks }
    }

    /// Whether it still runs; a later process with its number is another one.
    pub fn is_alive(self) -> bool {
        Process::is_still(self.pid, self.start_ticks)
    }
}

/// Looks for new processes of tracked programs.
#[derive(Debug)]
pub struct Programs {
    names: Vec<String>,
    groups: Groups,
    /// Members of groups that had nothing to record when they were looked at, with the ticks of their start.
    idle: HashMap<u32, u64>,
    /// Processes that mapped files and ended before it could be seen whether they belong to a group.
    gone: Vec<(u32, Vec<PathBuf>)>,
    /// The numbers that were there, and whether it is a thread of the kernel's own: no program will ever run there.
    seen: HashMap<u32, bool>,
    last_look: Option<Instant>,
    last_full_look: Option<Instant>,
    look_again: Duration,
    /// How often numbers that are new are looked at.
    look: Duration,
    /// The number given last when it was last looked; nothing where that is not told.
    last_number: Option<u32>,
    /// Tells of those that a look would not find; nothing where the kernel does not allow it.
    perf_events: Option<PerfEvents>,
    /// Processes that have started a program, of which nothing but this is known yet.
    started: HashMap<u32, Named>,
    /// Ended before they could be looked at.
    missed: Vec<u32>,
    has_lost: bool,
    /// Holds them at their start until they are recorded; nothing where the kernel does not allow it.
    gate: Option<ExecGate>,
    can_hold: bool,
    /// Where programs knock that can; nothing if all places are taken.
    start_gate: Option<StartGate>,
    /// The files that the gate watches, as they were then.
    watched: HashMap<PathBuf, (u64, u64)>,
    /// Held at their start, or found by looking; the kernel will tell of their start all the same.
    caught: HashSet<u32>,
}

/// What the short name of a program says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    /// It is another.
    No,
    /// It begins like one that is meant: a script, perhaps, whose path the kernel does not tell.
    Perhaps,
    Yes,
}

impl Programs {
    pub fn new(tracked: &Tracked) -> Programs {
        Programs::made(tracked, true)
    }

    /// Holds nobody at the start of a program: for those who do not look often enough to let them go on at once.
    pub fn without_gate(tracked: &Tracked) -> Programs {
        Programs::made(tracked, false)
    }

    fn made(tracked: &Tracked, can_hold: bool) -> Programs {
        let mut programs = Programs {
            names: Vec::new(),
            groups: Groups::default(),
            idle: HashMap::new(),
            gone: Vec::new(),
            seen: HashMap::new(),
            last_look: None,
            last_full_look: None,
            look_again: LOOK_AGAIN,
            look: LOOK,
            last_number: None,
            perf_events: None,
            started: HashMap::new(),
            missed: Vec::new(),
            has_lost: false,
            gate: None,
            can_hold,
            start_gate: None,
            watched: HashMap::new(),
            caught: HashSet::new(),
        };
        programs.set(tracked);
        programs
    }

    pub fn set(&mut self, tracked: &Tracked) {
        self.names.clone_from(&tracked.programs);
        self.groups = Groups::of(tracked);
        self.idle.clear();
        if self.is_empty() {
            self.perf_events = None;
        } else if self.perf_events.is_none() {
            self.perf_events = PerfEvents::of_everybody().ok();
        }
        // What is not wanted any more must not wait for us.
        (self.gate, self.watched) = (None, HashMap::new());
        if !self.can_hold || self.is_empty() {
            self.start_gate = None;
        } else if self.start_gate.is_none() {
            self.start_gate = StartGate::open().ok();
        }
        if self.can_hold && !self.is_empty() {
            self.gate = ExecGate::open().ok();
            self.watch_files();
        }
    }

    /// Lets the gate watch the files that the names stand for now; a file may be replaced by another.
    fn watch_files(&mut self) {
        let files: Vec<PathBuf> = self.names.iter().flat_map(|name| files_called(name)).collect();
        files.into_iter().for_each(|file| self.watch_file(file));
    }

    fn watch_file(&mut self, file: PathBuf) {
        let Some(gate) = &mut self.gate else { return };
        let Ok(metadata) = fs::metadata(&file) else { return };
        let identity = (metadata.dev(), metadata.ino());
        if self.watched.get(&file) != Some(&identity) && gate.watch(&file).is_ok() {
            self.watched.insert(file, identity);
        }
    }

    /// Has whoever starts the program of this member of a group wait for us from now on.
    pub fn watch_program(&mut self, pid: u32) {
        // Where programs are tracked by name, too, nobody could tell which of both a process waits for.
        if self.names.is_empty()
            && let Ok(program) = Process::read(pid).and_then(|process| process.program())
        {
            self.watch_file(program);
        }
    }

    /// The same of whoever starts the program among these files: the first that was mapped.
    pub fn watch_path(&mut self, mapped: &[PathBuf]) {
        if self.names.is_empty()
            && let Some(program) = mapped.first()
        {
            self.watch_file(program.clone());
        }
    }

    /// Whether a process has one of the names.
    pub fn is_named(&self, pid: u32) -> bool {
        Process::read(pid).is_ok_and(|process| self.names.iter().any(|name| is_called(&process, name)))
    }

    /// The next process that waits to start one of the programs, and the gate that lets it go on.
    pub fn waiting(&mut self) -> Option<(u32, &mut ExecGate)> {
        let gate = self.gate.as_mut()?;
        loop {
            let pid = gate.next_waiting()?;
            if !self.names.is_empty() || !self.groups.members_among(&BTreeSet::from([pid])).is_empty() {
                return Some((pid, gate));
            }
            // Somebody else starts the same program.
            gate.let_go(pid);
        }
    }

    /// Whoever knocked next: a process that waits, or somebody who is not ours to trace.
    pub fn next_knock(&self) -> Option<Option<Caller>> {
        self.start_gate.as_ref()?.next_knock()
    }

    /// Whether a process is one of those that are looked for.
    pub fn is_meant(&self, pid: u32) -> bool {
        self.is_named(pid) || !self.groups.members_among(&BTreeSet::from([pid])).is_empty()
    }

    /// What lets those that wait go on.
    pub fn gate(&mut self) -> Option<&mut ExecGate> {
        self.gate.as_mut()
    }

    /// A member of a group has nothing to record now: it is looked at again when it maps another file.
    pub fn is_idle(&mut self, pid: u32) {
        if let Ok(process) = Process::read(pid) {
            self.idle.insert(pid, process.start_time_ticks);
        }
    }

    /// Processes that ended before it could be seen whether they belong to a group, with the files they had mapped.
    pub fn take_gone(&mut self) -> Vec<(u32, Vec<PathBuf>)> {
        std::mem::take(&mut self.gone)
    }

    /// It needs no finding any more.
    pub fn is_caught(&mut self, pid: u32) {
        // The kernel may have told half of it.
        self.started.remove(&pid);
        self.caught.insert(pid);
    }

    /// Waits until somebody wants to start one of the programs, no longer than this.
    pub fn wait(&self, at_most: Duration) {
        match (&self.gate, &self.start_gate) {
            (Some(gate), start_gate) => gate.wait_with(start_gate.as_ref(), at_most),
            (None, Some(gate)) => gate.wait(at_most),
            (None, None) => std::thread::sleep(at_most),
        }
    }

    /// Whether one of the names may be started and end without anybody's knowing.
    pub fn is_blind(&self) -> bool {
        !self.is_empty() && self.perf_events.is_none()
    }

    /// Processes that had one of the names, and ended before anybody could look at them.
    pub fn take_missed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.missed)
    }

    /// Whether the kernel had more to tell than there was room for, since this was last asked.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// Those of the names that were started just now.
    pub fn told(&mut self) -> Vec<u32> {
        let Some(perf_events) = &mut self.perf_events else { return Vec::new() };
        let (names, started, missed) = (&self.names, &mut self.started, &mut self.missed);
        let (has_lost, caught) = (&mut self.has_lost, &mut self.caught);
        let (mut told, mut perhaps) = (Vec::new(), Vec::new());
        let mut files = Vec::new();
        let has_groups = !self.groups.is_empty();
        let (mut mapped, gone) = (BTreeMap::<u32, Vec<PathBuf>>::new(), &mut self.gone);
        perf_events.read(|entry| match entry {
            Entry::Started { pid, .. } if caught.remove(&pid) => {}
            Entry::Started { pid, name } => {
                started.insert(pid, is_short_for_any(&name, names));
            }
            // The first thing that is mapped is the program, or what runs the script.
            Entry::Mapped { pid, mapping } => match started.remove(&pid) {
                Some(_) if names.iter().any(|name| is_at(&mapping.path, name)) => {
                    told.push(pid);
                    files.push(mapping.path);
                }
                Some(Named::Yes) => told.push(pid),
                Some(Named::Perhaps) => perhaps.push(pid),
                Some(Named::No) | None if has_groups => mapped.entry(pid).or_default().push(mapping.path),
                Some(Named::No) | None => {}
            },
            Entry::Ended { pid } => {
                gone.extend(mapped.remove_entry(&pid));
                caught.remove(&pid);
                started.remove(&pid);
                for among in [&mut told, &mut perhaps] {
                    if let Some(at) = among.iter().position(|one| *one == pid) {
                        missed.push(among.swap_remove(at));
                    }
                }
            }
            Entry::Forked { .. } => {}
            Entry::Lost => *has_lost = true,
        });
        for pid in perhaps {
            match Process::read(pid) {
                Ok(process) if !process.is_zombie => {
                    if names.iter().any(|name| is_called(&process, name)) {
                        told.push(pid);
                    }
                }
                Ok(_) | Err(_) => missed.push(pid),
            }
        }
        let members = self.groups.members_among(&mapped.keys().copied().collect());
        for (pid, paths) in mapped {
            match members.contains(&pid) {
                true => {
                    self.idle.remove(&pid);
                    told.push(pid);
                }
                false if Process::is_alive(pid) => {}
                false => self.gone.push((pid, paths)),
            }
        }
        // The next one that is started from such a file will not have to be found.
        files.into_iter().for_each(|file| self.watch_file(file));
        told.sort_unstable();
        told.dedup();
        told
    }

    /// How long it takes at most until a process is noticed that has become another program, untold.
    pub fn look_again_after(&mut self, pause: Duration) {
        self.look_again = pause;
        // Where the kernel tells who starts a program, new numbers say nothing more.
        self.look = if self.is_blind() { LOOK } else { pause };
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.groups.is_empty()
    }

    /// All processes that have one of the names now.
    pub fn running(&mut self) -> Vec<u32> {
        (self.last_look, self.last_full_look) = (None, None);
        self.fresh(&HashSet::new())
    }

    /// Processes that have one of the names and were not there, or not called so, the last time.
    pub fn fresh(&mut self, known: &HashSet<u32>) -> Vec<u32> {
        self.fresh_beside(|| known.clone())
    }

    /// The same; who is known is asked only if it matters.
    pub fn fresh_beside(&mut self, known: impl FnOnce() -> HashSet<u32>) -> Vec<u32> {
        let mut fresh: Vec<u32> = self.told();
        // What the kernel could not tell is looked for at once.
        let pause = if self.has_lost { LOOK } else { self.look };
        let is_due = !self.is_empty() && self.last_look.is_none_or(|last| last.elapsed() >= pause);
        if fresh.is_empty() && !is_due {
            return fresh;
        }
        let known = known();
        fresh.retain(|pid| !known.contains(pid));
        if !is_due {
            return fresh;
        }
        self.last_look = Some(Instant::now());
        let is_full =
            self.has_lost || self.last_full_look.is_none_or(|last| last.elapsed() >= self.look_again);
        if is_full {
            self.last_full_look = self.last_look;
            self.watch_files();
        }
        // Asked before looking: who starts meanwhile is found the next time.
        let last_number = last_number();
        let is_same = last_number.is_some() && last_number == self.last_number;
        self.last_number = last_number;
        if is_same && !is_full {
            return fresh;
        }
        let own = std::process::id();
        let mut seen = HashMap::with_capacity(self.seen.len());
        let mut found = Vec::new();
        for pid in if self.names.is_empty() { Vec::new() } else { numbers() } {
            let before = self.seen.get(&pid).copied();
            // Of those that are recorded, whoever records them sees what becomes of them.
            if let Some(is_of_kernel) = before
                && (!is_full || is_of_kernel || known.contains(&pid))
            {
                seen.insert(pid, is_of_kernel);
                continue;
            }
            let Ok(process) = Process::read(pid) else { continue };
            seen.insert(pid, process.is_kernel_thread);
            let is_wanted = || self.names.iter().any(|name| is_called(&process, name));
            if pid != own && !known.contains(&pid) && !fresh.contains(&pid) && is_wanted() {
                found.push(pid);
            }
        }
        self.seen = seen;
        if is_full && !self.groups.is_empty() {
            found
                .extend(self.joined().into_iter().filter(|pid| !known.contains(pid) && !fresh.contains(pid)));
        }
        found.iter().for_each(|pid| self.is_caught(*pid));
        fresh.extend(found);
        if !self.groups.is_empty() {
            return fresh;
        }
        let programs = fresh.iter().filter_map(|pid| Process::read(*pid).ok()?.program().ok());
        programs.collect::<Vec<PathBuf>>().into_iter().for_each(|program| self.watch_file(program));
        fresh
    }
}

impl Programs {
    /// Members of groups, without those that are known to have nothing to record.
    fn joined(&mut self) -> Vec<u32> {
        let members = self.groups.members();
        // Without a word from the kernel nobody knows what they have mapped since.
        let is_blind = self.is_blind();
        self.idle.retain(|pid, ticks| !is_blind && members.contains(pid) && Process::is_still(*pid, *ticks));
        members.into_iter().filter(|pid| !self.idle.contains_key(pid)).collect()
    }
}

/// The files that a name stands for: itself if it is a path, else what a shell would find.
fn files_called(name: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![PathBuf::from(name)];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(name)).filter(|file| file.is_file()).collect()
}

/// The number that was last given to a process or thread.
fn last_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().last()?.parse().ok()
}

fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// By the name of the process or of its file; a name with a slash is the file's path. A script is known by what its
/// interpreter was given to run.
fn is_called(process: &Process, name: &str) -> bool {
    if process.is_zombie {
        return false;
    }
    if !name.contains('/') && process.name == name {
        return true;
    }
    // Why it cannot be read is nobody's question here, and asking would double the work.
    if fs::read_link(format!("/proc/{}/exe", process.pid)).is_ok_and(|program| is_at(&program, name)) {
        return true;
    }
    is_short_for(&process.name, name) != Named::No && runs_script(process.pid, name)
}

fn is_at(program: &Path, name: &str) -> bool {
    match name.contains('/') {
        true => program.as_os_str() == name,
        false => program.file_name().is_some_and(|file| file == name),
    }
}

fn is_short_for_any(short: &str, names: &[String]) -> Named {
    let all = names.iter().map(|name| is_short_for(short, name));
    all.fold(Named::No, |known, one| match (known, one) {
        (Named::Yes, _) | (_, Named::Yes) => Named::Yes,
        (Named::Perhaps, _) | (_, Named::Perhaps) => Named::Perhaps,
        (Named::No, Named::No) => Named::No,
    })
}

/// Whether the kernel's name of a program, the first 15 bytes of its file's, may be that of a program that is meant.
fn is_short_for(short: &str, name: &str) -> Named {
    const MAX_SHORT_BYTES: usize = 15;
    let file = name.rsplit('/').next().unwrap_or(name);
    let is_whole = file.len() <= MAX_SHORT_BYTES && !name.contains('/');
    match short.as_bytes() == &file.as_bytes()[..file.len().min(MAX_SHORT_BYTES)] {
        true if is_whole => Named::Yes,
        true => Named::Perhaps,
        false => Named::No,
    }
}

/// Whether one of the first arguments of a process, as of `/bin/sh -e ./name`, is the script that is meant.
fn runs_script(pid: u32, name: &str) -> bool {
    const MAX_ARGUMENTS: usize = 4;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0).take(MAX_ARGUMENTS).skip(1);
    arguments.map(|argument| Path::new(std::ffi::OsStr::from_bytes(argument))).any(|argument| {
        if !name.contains('/') {
            return argument.file_name().is_some_and(|file| file == name);
        }
        // Relative to where the process is, which may have gone elsewhere since.
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let path = cwd.join(argument);
        fs::canonicalize(&path).is_ok_and(|path| path.as_os_str() == name) || path.as_os_str() == name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names() {
        for (short, name, expected) in [
            ("demo", "demo", Named::Yes),
            ("demo", "demo-trace", Named::No),
            ("a-very-long-nam", "a-very-long-name", Named::Perhaps),
            ("exactly-fifteen", "exactly-fifteen", Named::Yes),
            ("demo", "/opt/demo", Named::Perhaps),
            ("opt", "/opt/demo", Named::No),
        ] {
            assert_eq!(is_short_for(short, name), expected, "{short} {name}");
        }
        let names = ["/opt/demo".to_owned(), "demo".to_owned()];
        assert_eq!(is_short_for_any("demo", &names), Named::Yes);
    }
}
