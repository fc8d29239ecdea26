//! What a killed tracer leaves in tracefs: names of uprobe events, and instances in which they are armed. A tracer that
//! comes later removes it, and `nopal detach` does.

use nopal_proc::Process;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The groups of ours: the pid of the tracer follows.
pub const GROUPS: [&str; 2] = ["nopal_ftrace_", "nopal_"];
/// What a killed process had open is on its way for a moment.
const PATIENCE: Duration = Duration::from_millis(200);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub n_events: usize,
    pub n_instances: usize,
}

/// Removes what tracers have left that no longer live. Whoever may not write to tracefs removes nothing.
pub fn sweep() -> Removed {
    root().map_or_else(Removed::default, |root| sweep_in(&root, Process::is_alive))
}

/// The same by a process that traces nothing: what has its number was left by what it was before.
pub fn sweep_own_too() -> Removed {
    let is_alive = |pid| pid != std::process::id() && Process::is_alive(pid);
    root().map_or_else(Removed::default, |root| sweep_in(&root, is_alive))
}

/// Where tracefs is mounted.
pub fn root() -> Option<PathBuf> {
    ROOTS.iter().map(PathBuf::from).find(|root| root.join("uprobe_events").exists())
}

fn sweep_in(root: &Path, is_alive: impl Fn(u32) -> bool) -> Removed {
    let mut removed = Removed::default();
    let end = Instant::now() + PATIENCE;
    for entry in fs::read_dir(root.join("instances")).into_iter().flatten().flatten() {
        let is_left = entry.file_name().to_str().is_some_and(|group| is_of_nobody(group, &is_alive));
        // The kernel disarms what is armed in it. It refuses where somebody reads, as a tracer does that lives in a pid
        // namespace that we do not see.
        if is_left && retried(end, || fs::remove_dir(entry.path())).is_ok() {
            removed.n_instances += 1;
        }
    }
    let events = fs::read_to_string(root.join("uprobe_events")).unwrap_or_default();
    for name in stale_events(&events, &is_alive) {
        // The kernel refuses where it is armed.
        removed.n_events += usize::from(retried(end, || command(root, &format!("-:{name}"))).is_ok());
    }
    removed
}

fn retried(end: Instant, mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match work() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            result => return result,
        }
    }
}

/// Gives tracefs a line that defines or removes an event.
pub fn command(root: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(root.join("uprobe_events"))?
        .write_all(format!("{line}\n").as_bytes())
}

/// Whether a group is one of ours and its tracer is gone: `nopal_12`, `nopal_ftrace_12_0`.
fn is_of_nobody(group: &str, is_alive: impl Fn(u32) -> bool) -> bool {
    let rest = GROUPS.iter().find_map(|ours| group.strip_prefix(ours));
    let pid = rest.and_then(|rest| rest.split('_').next()).and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| !is_alive(pid))
}

/// The names of events whose process is gone, each once.
pub(super) fn stale_events(text: &str, is_alive: impl Fn(u32) -> bool) -> Vec<&str> {
    let mut stale: Vec<&str> = Vec::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once(':') else { continue };
        let Some(name) = rest.split_whitespace().next() else { continue };
        let group = name.split('/').next().unwrap_or_default();
        // The lines of an event with several places follow each other.
        if stale.last() != Some(&name) && is_of_nobody(group, &is_alive) {
            stale.push(name);
        }
    }
    stale.sort_unstable();
    stale.dedup();
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_ended_processes_of_ours_are_stale() {
        let text = "p:nopal_12/s0 /proc/self/fd/3:0x10\np:nopal_12/s0 /proc/self/fd/3:0x20\n\
                    p:nopal_13/s1 /x:0x10(0x20)\nr:probe_libc/malloc /x:0x1\np:nopal_x/s1 /y:0x1\nnonsense\np:\n\
                    p:nopal_ftrace_12_0/e0 /x:0x1\np:nopal_ftrace_13_1/e0 /x:0x1\n";
        assert_eq!(stale_events(text, |pid| pid == 13), ["nopal_12/s0", "nopal_ftrace_12_0/e0"]);
        assert_eq!(stale_events(text, |_| false).len(), 4);
    }
}
