//! Finds the processes a session tracks: by number, and by the name of their program, also those yet to be started.

use super::config::{Tracked, TrackedProcess};
use nopal_engine::target::Process;
use nopal_engine::target::chronicle::{Chronicle, Entry};
use std::collections::{HashMap, HashSet};
use std::fs;
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
    chronicle: Option<Chronicle>,
    /// Processes that have started a program, which is not known yet.
    started: HashSet<u32>,
    /// Ended before they could be looked at.
    missed: Vec<u32>,
}

impl Programs {
    pub fn new(tracked: &Tracked) -> Programs {
        let mut programs = Programs {
            names: Vec::new(),
            seen: HashMap::new(),
            last_look: None,
            last_full_look: None,
            chronicle: None,
            started: HashSet::new(),
            missed: Vec::new(),
        };
        programs.set(tracked);
        programs
    }

    pub fn set(&mut self, tracked: &Tracked) {
        self.names.clone_from(&tracked.programs);
        if self.names.is_empty() {
            self.chronicle = None;
        } else if self.chronicle.is_none() {
            self.chronicle = Chronicle::of_everybody().ok();
        }
    }

    /// Processes that had one of the names, and ended before anybody could look at them.
    pub fn take_missed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.missed)
    }

    /// Those of the names that were started just now.
    fn told(&mut self) -> Vec<u32> {
        let Some(chronicle) = &mut self.chronicle else { return Vec::new() };
        let (names, started, missed) = (&self.names, &mut self.started, &mut self.missed);
        let mut told = Vec::new();
        chronicle.read(|entry| match entry {
            Entry::Started { pid } => {
                started.insert(pid);
            }
            // The first thing that is mapped is the program.
            Entry::Mapped { pid, mapping } => {
                if started.remove(&pid) && names.iter().any(|name| is_at(&mapping.path, name)) {
                    told.push(pid);
                }
            }
            Entry::Ended { pid } => {
                started.remove(&pid);
                if let Some(at) = told.iter().position(|one| *one == pid) {
                    missed.push(told.swap_remove(at));
                }
            }
            Entry::Forked { .. } => {}
        });
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

/// By the name of the process or of its file; a name with a slash is the file's path.
fn is_called(process: &Process, name: &str) -> bool {
    if process.is_zombie {
        return false;
    }
    if !name.contains('/') && process.name == name {
        return true;
    }
    process.program().is_ok_and(|program| is_at(&program, name))
}

fn is_at(program: &Path, name: &str) -> bool {
    match name.contains('/') {
        true => program.as_os_str() == name,
        false => program.file_name().is_some_and(|file| file == name),
    }
}
