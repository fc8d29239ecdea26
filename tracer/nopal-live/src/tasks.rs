//! Process and thread numbers: records have those of the traced process's namespace, people want those of their own.

use crate::remembered::make_room;
use nopal_capture::{Hit, StreamKind, Task};
use std::collections::{HashMap, HashSet};

/// Translates, and remembers. Where both namespaces are the same it is the identity.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Processes of other namespaces, by the pid they know of themselves.
    foreign: HashMap<u32, u32>,
    threads: HashMap<(u32, u32), Task>,
    /// The same the other way round: by our numbers.
    own: HashMap<(u32, u32), Task>,
    /// Every process made known, by the pid it knows of itself.
    known: HashSet<u32>,
}

impl Tasks {
    /// Makes a traced process known.
    pub fn add(&mut self, pid: u32) {
        let own = own_number(&format!("/proc/{pid}/status")).unwrap_or(pid);
        self.known.insert(own);
        if own != pid {
            self.foreign.insert(own, pid);
        }
    }

    /// Whether the process that has this pid in its own namespace was made known.
    pub fn knows(&self, own_pid: u32) -> bool {
        self.known.contains(&own_pid)
    }

    /// Whether any traced process counts otherwise than we do.
    pub fn has_foreign(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// Makes known what another knows.
    pub fn learn(&mut self, other: &Tasks) {
        if self.foreign != other.foreign {
            self.foreign.clone_from(&other.foreign);
            self.known.extend(&other.known);
        }
    }

    /// The numbers in the namespace of the process itself, from those in ours.
    fn inside(&mut self, task: Task) -> Task {
        if !self.foreign.values().any(|pid| *pid == task.pid) {
            return task;
        }
        make_room(&mut self.own, &(task.pid, task.tid));
        *self.own.entry((task.pid, task.tid)).or_insert_with(|| Task {
            pid: own_number(&format!("/proc/{}/status", task.pid)).unwrap_or(task.pid),
            tid: own_number(&format!("/proc/{}/task/{}/status", task.pid, task.tid)).unwrap_or(task.tid),
        })
    }

    /// The numbers of a hit's task in the namespace of its process and in ours.
    #[inline]
    pub fn both(&mut self, hit: &Hit<'_>) -> (Task, Task) {
        match hit.stream.kind {
            _ if self.foreign.is_empty() => (hit.task, hit.task),
            // The kernel counts as we do.
            StreamKind::Kernel => (self.inside(hit.task), hit.task),
            StreamKind::Rseq | StreamKind::Locked => (hit.task, self.translate(hit.task)),
        }
    }

    /// The numbers in our namespace; unknown ones stay as they are.
    pub fn translate(&mut self, task: Task) -> Task {
        if self.foreign.is_empty() {
            return task;
        }
        if let Some(known) = self.threads.get(&(task.pid, task.tid)) {
            return *known;
        }
        let Some(pid) = self.foreign.get(&task.pid).copied() else { return task };
        let tid = nopal_proc::threads(pid)
            .into_iter()
            .flatten()
            .find(|tid| own_number(&format!("/proc/{pid}/task/{tid}/status")) == Some(task.tid))
            .unwrap_or(task.tid);
        let translated = Task { tid, pid };
        make_room(&mut self.threads, &(task.pid, task.tid));
        self.threads.insert((task.pid, task.tid), translated);
        translated
    }
}

/// The number a process or thread has in its innermost pid namespace.
fn own_number(status: &str) -> Option<u32> {
    let text = nopal_proc::read_text(status).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::MAX_REMEMBERED;

    #[test]
    fn threads_that_a_program_makes_up_are_forgotten_again() {
        let mut tasks = Tasks::default();
        // A process of another namespace that has ended since.
        tasks.foreign.insert(1, u32::MAX);
        for tid in 0..3 * MAX_REMEMBERED as u32 {
            assert_eq!(tasks.translate(Task { pid: 1, tid }), Task { pid: u32::MAX, tid });
            assert_eq!(tasks.inside(Task { pid: u32::MAX, tid }), Task { pid: u32::MAX, tid });
            assert!(tasks.threads.len() <= MAX_REMEMBERED && tasks.own.len() <= MAX_REMEMBERED);
        }
    }
}
