//! Processes that are tracked by what holds them together: a user, a control group, a container. Who belongs to them
//! changes all the time.

use super::config::Tracked;
use nopal_proc::groups;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Groups {
    users: Vec<u32>,
    cgroups: Vec<PathBuf>,
    containers: Vec<String>,
}

impl Groups {
    pub(crate) fn of(tracked: &Tracked) -> Groups {
        let Tracked { users, cgroups, containers, processes: _, programs: _ } = tracked;
        Groups { users: users.clone(), cgroups: cgroups.clone(), containers: containers.clone() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.cgroups.is_empty() && self.containers.is_empty()
    }

    /// All that belong to one of them now. A group that is not there has nobody.
    pub(crate) fn members(&self) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> = self.of_cgroups_and_containers();
        if !self.users.is_empty() {
            let all = nopal_proc::processes();
            found.extend(all.iter().map(|process| process.pid).filter(|pid| self.has_user_of(*pid)));
        }
        found.retain(|pid| !is_nopal(*pid));
        found
    }

    /// Those of the processes that belong to one of them.
    pub(crate) fn members_among(&self, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
        if pids.is_empty() || self.is_empty() {
            return BTreeSet::new();
        }
        let others = self.of_cgroups_and_containers();
        let is_member = |pid: &u32| (others.contains(pid) || self.has_user_of(*pid)) && !is_nopal(*pid);
        pids.iter().copied().filter(is_member).collect()
    }

    fn of_cgroups_and_containers(&self) -> BTreeSet<u32> {
        let cgroups = self.cgroups.iter().filter_map(|path| groups::of_cgroup(path).ok());
        let containers = self.containers.iter().filter_map(|name| groups::of_container(name).ok());
        cgroups.chain(containers).flatten().collect()
    }

    fn has_user_of(&self, pid: u32) -> bool {
        !self.users.is_empty() && user_of(pid).is_some_and(|user| self.users.contains(&user))
    }
}

/// As whom a process acts: its effective user.
fn user_of(pid: u32) -> Option<u32> {
    let status = nopal_proc::read_text(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A tracer is not among those that are traced.
fn is_nopal(pid: u32) -> bool {
    let file = |path: &str| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let own = file("/proc/self/exe");
    pid == std::process::id() || own.is_some() && file(&format!("/proc/{pid}/exe")) == own
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn members_are_those_of_the_user_and_no_tracer() {
        // SAFETY: geteuid has no arguments and cannot fail.
        let me = unsafe { libc::geteuid() };
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat starts");
        let groups = Groups { users: vec![me], ..Groups::default() };
        let (own, cat) = (std::process::id(), child.id());
        // The kernel lets the parent go on before the program is there.
        while is_nopal(cat) {
            std::thread::yield_now();
        }
        let members = groups.members();
        assert!(members.contains(&cat) && !members.contains(&own));
        assert_eq!(groups.members_among(&BTreeSet::from([own, cat])), BTreeSet::from([cat]));
        let other = Groups { users: vec![me + 1], ..Groups::default() };
        assert!(other.members_among(&BTreeSet::from([own, cat])).is_empty());
        drop(child.stdin.take());
        child.wait().expect("cat ends");
        assert!(groups.members_among(&BTreeSet::from([cat])).is_empty());
    }
}
