//! Finds the processes a session tracks: by number, and by the name of their program, also those yet to be started.

use super::config::{Tracked, TrackedProcess};
use nopal_engine::target::Process;
use std::collections::{HashMap, HashSet};
use std::fs;
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
}

impl Programs {
    pub fn new(tracked: &Tracked) -> Programs {
        Programs {
            names: tracked.programs.clone(),
            seen: HashMap::new(),
            last_look: None,
            last_full_look: None,
        }
    }

    pub fn set(&mut self, tracked: &Tracked) {
        self.names.clone_from(&tracked.programs);
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
        if self.names.is_empty() || self.last_look.is_some_and(|last| last.elapsed() < LOOK) {
            return Vec::new();
        }
        self.last_look = Some(Instant::now());
        let is_full = self.last_full_look.is_none_or(|last| last.elapsed() >= LOOK_AGAIN);
        if is_full {
            self.last_full_look = self.last_look;
        }
        let own = std::process::id();
        let mut fresh = Vec::new();
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
            if pid != own && !known.contains(&pid) && is_wanted() {
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
    let Ok(program) = process.program() else { return false };
    match name.contains('/') {
        true => program.as_os_str() == name,
        false => program.file_name().is_some_and(|file| file == name),
    }
}
