//! What is known of threads beside their numbers: name, user, control group. Read from /proc once a second at most.

use nopal_capture::Task;
use nopal_live::remembered::make_room;
use nopal_program::captures::Captures;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// One thread, as /proc last had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TaskInfo {
    comm: [u8; 16],
    comm_bytes: u8,
    pub uid: u32,
    pub gid: u32,
    pub cgroup: u64,
}

impl TaskInfo {
    pub(crate) fn comm(&self) -> &[u8] {
        &self.comm[..usize::from(self.comm_bytes)]
    }

    fn set_comm(&mut self, comm: &[u8]) {
        let n = comm.len().min(15);
        self.comm = [0; 16];
        self.comm[..n].copy_from_slice(&comm[..n]);
        self.comm_bytes = n as u8;
    }
}

/// Every thread that was asked for.
#[derive(Debug)]
pub(crate) struct TaskCache {
    known: HashMap<u32, TaskInfo>,
    fresh: HashMap<u32, ()>,
    since: Instant,
    last: Option<(u32, TaskInfo)>,
}

/// Threads change their names and users seldom.
const KEPT: Duration = Duration::from_secs(1);

impl TaskCache {
    pub(crate) fn new() -> TaskCache {
        TaskCache { known: HashMap::new(), fresh: HashMap::new(), since: Instant::now(), last: None }
    }

    /// What is known is to be read again.
    pub(crate) fn refresh(&mut self) {
        self.fresh.clear();
        self.last = None;
        self.since = Instant::now();
    }

    /// To be called now and then.
    pub(crate) fn look(&mut self) {
        if self.since.elapsed() >= KEPT {
            self.refresh();
        }
    }

    /// The name a process's first hit brought along: all there is if it has ended since.
    pub(crate) fn introduce(&mut self, task: Task, comm: &str) {
        make_room(&mut self.known, &task.tid);
        self.known.entry(task.tid).or_default().set_comm(comm.as_bytes());
    }

    /// Only the numbers of a task are often all that is wanted.
    #[inline]
    pub(crate) fn who_if(&mut self, needs: &Captures, task: Task) -> TaskInfo {
        if needs.needs_who { self.who(task) } else { TaskInfo::default() }
    }

    #[inline]
    pub(crate) fn who(&mut self, task: Task) -> TaskInfo {
        match self.last {
            Some((tid, who)) if tid == task.tid => who,
            _ => self.look_up(task),
        }
    }

    fn look_up(&mut self, task: Task) -> TaskInfo {
        let Task { tid, pid } = task;
        make_room(&mut self.fresh, &tid);
        if self.fresh.insert(tid, ()).is_none()
            && let Some(read) = read(pid, tid)
        {
            make_room(&mut self.known, &tid);
            self.known.insert(tid, read);
        }
        let who = match self.known.get(&tid).or_else(|| self.known.get(&pid)) {
            Some(who) => *who,
            None => TaskInfo::default(),
        };
        self.last = Some((tid, who));
        who
    }
}

/// Nothing if the thread has gone.
pub(crate) fn read(pid: u32, tid: u32) -> Option<TaskInfo> {
    let folder = format!("/proc/{pid}/task/{tid}");
    let comm = fs::read(format!("{folder}/comm")).ok()?;
    let mut who = TaskInfo::default();
    who.set_comm(comm.strip_suffix(b"\n").unwrap_or(&comm));
    let status = nopal_proc::read_text(format!("{folder}/status")).unwrap_or_default();
    let number = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    who.uid = number("Uid:").unwrap_or(0);
    who.gid = number("Gid:").unwrap_or(0);
    // The number the kernel has for a control group is the inode of its folder.
    let cgroups = nopal_proc::read_text(format!("{folder}/cgroup")).unwrap_or_default();
    if let Some(path) = cgroups.lines().find_map(|l| l.strip_prefix("0::")) {
        let folder = format!("/sys/fs/cgroup{path}");
        who.cgroup = fs::metadata(folder).map_or(0, |metadata| metadata.ino());
    }
    Some(who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_live::remembered::MAX_REMEMBERED;

    #[test]
    fn this_thread_is_known_by_name() {
        let pid = std::process::id();
        let who = read(pid, pid).expect("a process may look at itself");
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(who.comm(), own.trim_end().as_bytes());
        let mut everyone = TaskCache::new();
        assert_eq!(everyone.who(Task { pid, tid: pid }), who);
        assert_eq!(everyone.who(Task { pid, tid: pid }), who);
    }

    #[test]
    fn who_has_gone_keeps_the_name_it_came_with() {
        let mut everyone = TaskCache::new();
        let task = Task { pid: u32::MAX - 1, tid: u32::MAX };
        everyone.introduce(task, "a long name of more bytes");
        assert_eq!(everyone.who(task).comm(), b"a long name of ");
    }

    #[test]
    fn threads_that_a_program_makes_up_are_forgotten_again() {
        let mut everyone = TaskCache::new();
        for tid in 0..3 * MAX_REMEMBERED as u32 {
            let task = Task { pid: u32::MAX, tid: u32::MAX - tid };
            everyone.introduce(task, "made up");
            assert_eq!(everyone.who(task).comm(), b"made up");
            assert!(everyone.known.len() <= MAX_REMEMBERED && everyone.fresh.len() <= MAX_REMEMBERED);
        }
    }
}
