//! Finds the processes a session tracks: by number, and by the name of their program, also those yet to be started.

use super::config::{Tracked, TrackedProcess};
use nopal_proc::Process;
use nopal_proc::perf_events::{Entry, PerfEvents};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
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
    /// With the ticks of their start, so that a number used again is looked at again.
    seen: HashMap<u32, u64>,
    last_look: Option<Instant>,
    last_full_look: Option<Instant>,
    /// Tells of those that a look would not find; nothing where the kernel does not allow it.
    chronicle: Option<PerfEvents>,
    /// Processes that have started a program, of which nothing but this is known yet.
    started: HashMap<u32, Named>,
    /// Ended before they could be looked at.
    missed: Vec<u32>,
    has_lost: bool,
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
        let mut programs = Programs {
            names: Vec::new(),
            seen: HashMap::new(),
            last_look: None,
            last_full_look: None,
            chronicle: None,
            started: HashMap::new(),
            missed: Vec::new(),
            has_lost: false,
        };
        programs.set(tracked);
        programs
    }

    pub fn set(&mut self, tracked: &Tracked) {
        self.names.clone_from(&tracked.programs);
        if self.names.is_empty() {
            self.chronicle = None;
        } else if self.chronicle.is_none() {
            self.chronicle = PerfEvents::of_everybody().ok();
        }
    }

    /// Whether one of the names may be started and end without anybody's knowing.
    pub fn is_blind(&self) -> bool {
        !self.names.is_empty() && self.chronicle.is_none()
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
        let Some(chronicle) = &mut self.chronicle else { return Vec::new() };
        let (names, started, missed) = (&self.names, &mut self.started, &mut self.missed);
        let has_lost = &mut self.has_lost;
        let (mut told, mut perhaps) = (Vec::new(), Vec::new());
        chronicle.read(|entry| match entry {
            Entry::Started { pid, name } => {
                started.insert(pid, is_short_for_any(&name, names));
            }
            // The first thing that is mapped is the program, or what runs the script.
            Entry::Mapped { pid, mapping } => match started.remove(&pid) {
                Some(Named::Yes) => told.push(pid),
                Some(_) if names.iter().any(|name| is_at(&mapping.path, name)) => told.push(pid),
                Some(Named::Perhaps) => perhaps.push(pid),
                Some(Named::No) | None => {}
            },
            Entry::Ended { pid } => {
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
        told.sort_unstable();
        told.dedup();
        told
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All processes that have one of the names now.
    pub fn running(&mut self) -> Vec<u32> {
        (self.last_look, self.last_full_look) = (None, None);
        self.fresh(&HashSet::new())
    }

    /// Processes that have one of the names and were not there, or not called so, the last time.
    pub fn fresh(&mut self, known: &HashSet<u32>) -> Vec<u32> {
        let mut fresh: Vec<u32> = self.told();
        fresh.retain(|pid| !known.contains(pid));
        if self.names.is_empty() || self.last_look.is_some_and(|last| last.elapsed() < LOOK) {
            return fresh;
        }
        self.last_look = Some(Instant::now());
        let is_full = self.last_full_look.is_none_or(|last| last.elapsed() >= LOOK_AGAIN);
        if is_full {
            self.last_full_look = self.last_look;
        }
        let own = std::process::id();
        let mut seen = HashMap::with_capacity(self.seen.len());
        for pid in numbers() {
            let before = self.seen.get(&pid).copied();
            if !is_full && let Some(ticks) = before {
                seen.insert(pid, ticks);
                continue;
            }
            let Ok(process) = Process::read(pid) else { continue };
            seen.insert(pid, process.start_time_ticks);
            let is_wanted = || self.names.iter().any(|name| is_called(&process, name));
            if pid != own && !known.contains(&pid) && !fresh.contains(&pid) && is_wanted() {
                fresh.push(pid);
            }
        }
        self.seen = seen;
        fresh
    }
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
    if process.program().is_ok_and(|program| is_at(&program, name)) {
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
