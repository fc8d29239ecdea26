//! Processes of several hosts under numbers of their own: two hosts may have a process of one number.

use std::collections::{HashMap, HashSet};

/// Numbers for processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    shown: HashMap<(String, u32), u32>,
    taken: HashSet<u32>,
    threads: HashSet<(u32, u32)>,
}

/// Above every number that Linux gives.
const FIRST_FREE: u32 = 1 << 22;

impl Processes {
    /// The number a process is shown under, its own if it is free; and whether it is new.
    pub(crate) fn get(&mut self, host: &str, pid: u32) -> (u32, bool) {
        // Most recordings are of one host.
        if let Some(shown) = self.shown.get(&(host.to_owned(), pid)) {
            return (*shown, false);
        }
        let mut shown = pid;
        if self.taken.contains(&shown) {
            shown = FIRST_FREE;
            while self.taken.contains(&shown) {
                shown += 1;
            }
        }
        self.taken.insert(shown);
        self.shown.insert((host.to_owned(), pid), shown);
        (shown, true)
    }

    /// Whether a thread is new.
    pub(crate) fn is_new_thread(&mut self, shown_pid: u32, tid: u32) -> bool {
        self.threads.insert((shown_pid, tid))
    }
}

/// How a process is called in a timeline.
pub(crate) fn name(host: &str, pid: u32) -> String {
    if host.is_empty() { format!("pid {pid}") } else { format!("{host} pid {pid}") }
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
}
