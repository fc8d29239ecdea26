//! Processes of several hosts under numbers of their own: two hosts may have a process of one number. Only so many are told
//! apart: a recording may name as many as it has events.

use std::collections::{HashMap, HashSet};

/// Numbers for processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    shown: HashMap<(String, u32), u32>,
    taken: HashSet<u32>,
    /// Below it no number of our own is free.
    next_free: u32,
    threads: HashSet<(u32, u32)>,
}

/// Above every number that Linux gives.
const FIRST_FREE: u32 = 1 << 22;
/// What is beyond is shown as one process.
const MAX_PROCESSES: usize = 1 << 18;
const OTHERS: u32 = i32::MAX as u32;
/// Threads that have a track of their own; what is beyond is shown on that of its process.
pub(crate) const MAX_THREADS: usize = 1 << 20;

impl Processes {
    /// The number a process is shown under, its own if it is free; and whether it is new.
    pub(crate) fn get(&mut self, host: &str, pid: u32) -> (u32, bool) {
        // Most recordings are of one host.
        if let Some(shown) = self.shown.get(&(host.to_owned(), pid)) {
            return (*shown, false);
        }
        if self.shown.len() >= MAX_PROCESSES {
            return (OTHERS, self.taken.insert(OTHERS));
        }
        let mut shown = pid;
        if self.taken.contains(&shown) {
            self.next_free = self.next_free.max(FIRST_FREE);
            while self.taken.contains(&self.next_free) {
                self.next_free += 1;
            }
            shown = self.next_free;
        }
        self.taken.insert(shown);
        self.shown.insert((host.to_owned(), pid), shown);
        (shown, true)
    }

    /// Whether a thread is new, and to be introduced.
    pub(crate) fn is_new_thread(&mut self, shown_pid: u32, tid: u32) -> bool {
        self.threads.len() < MAX_THREADS && self.threads.insert((shown_pid, tid))
    }
}

/// How a process is called in a timeline.
pub(crate) fn name(host: &str, pid: u32, shown: u32) -> String {
    match (shown, host) {
        (OTHERS, _) => "other processes".to_owned(),
        (_, "") => format!("pid {pid}"),
        (_, host) => format!("{host} pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_two_hosts_are_two() {
        let mut processes = Processes::default();
        assert_eq!(processes.get("a", 7), (7, true));
        assert_eq!(processes.get("b", 7), (FIRST_FREE, true));
        assert_eq!(processes.get("c", 7), (FIRST_FREE + 1, true));
        assert_eq!(processes.get("a", 7), (7, false));
    }

    #[test]
    fn however_many_there_are_they_have_room() {
        let mut processes = Processes::default();
        // Half of them have a number that another host's process has.
        for pid in 0..MAX_PROCESSES as u32 / 2 {
            assert_eq!(processes.get("a", pid), (pid, true));
            assert_eq!(processes.get("b", pid), (FIRST_FREE + pid, true));
        }
        assert_eq!(processes.get("c", 1), (OTHERS, true));
        assert_eq!(processes.get("c", 2), (OTHERS, false));
        assert_eq!(processes.get("b", 1), (FIRST_FREE + 1, false));
        assert_eq!(name("c", 1, OTHERS), "other processes");
        let n_new = (0..2 * MAX_THREADS as u32).filter(|tid| processes.is_new_thread(1, *tid)).count();
        assert_eq!(n_new, MAX_THREADS);
    }
}
