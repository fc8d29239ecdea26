//! Whose a process is, and in which namespaces: what LTTng's contexts of these names have.

use crate::read_text;
use std::fs;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    Vuid,
    Veuid,
    Vsuid,
    Vgid,
    Vegid,
    Vsgid,
    CgroupNs,
    IpcNs,
    MntNs,
    NetNs,
    PidNs,
    TimeNs,
    UserNs,
    UtsNs,
}

/// All of one process, in the order of [`Fact::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts([u64; Fact::ALL.len()]);

/// An id that nobody has: it is not known.
const NO_ID: u64 = u32::MAX as u64;

impl Fact {
    pub const ALL: [Fact; 14] = [
        Fact::Vuid,
        Fact::Veuid,
        Fact::Vsuid,
        Fact::Vgid,
        Fact::Vegid,
        Fact::Vsgid,
        Fact::CgroupNs,
        Fact::IpcNs,
        Fact::MntNs,
        Fact::NetNs,
        Fact::PidNs,
        Fact::TimeNs,
        Fact::UserNs,
        Fact::UtsNs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fact::Vuid => "vuid",
            Fact::Veuid => "veuid",
            Fact::Vsuid => "vsuid",
            Fact::Vgid => "vgid",
            Fact::Vegid => "vegid",
            Fact::Vsgid => "vsgid",
            Fact::CgroupNs => "cgroup_ns",
            Fact::IpcNs => "ipc_ns",
            Fact::MntNs => "mnt_ns",
            Fact::NetNs => "net_ns",
            Fact::PidNs => "pid_ns",
            Fact::TimeNs => "time_ns",
            Fact::UserNs => "user_ns",
            Fact::UtsNs => "uts_ns",
        }
    }

    pub fn parse(name: &str) -> Option<Fact> {
        Fact::ALL.into_iter().find(|fact| fact.name() == name)
    }

    /// Whether it is a number of a user or group, of 32 bits; a namespace has 64.
    pub fn is_id(self) -> bool {
        !self.name().ends_with("_ns")
    }
}

impl Facts {
    /// Of a process of which nothing is known.
    pub fn unknown() -> Facts {
        Facts(Fact::ALL.map(|fact| if fact.is_id() { NO_ID } else { 0 }))
    }

    /// What can be read now; nothing of a process that has ended.
    pub fn read(pid: u32) -> Option<Facts> {
        let status = read_text(format!("/proc/{pid}/status")).ok()?;
        let users = ids(&status, "Uid:", pid, "uid_map");
        let groups = ids(&status, "Gid:", pid, "gid_map");
        Some(Facts(Fact::ALL.map(|fact| match fact {
            Fact::Vuid => users[0],
            Fact::Veuid => users[1],
            Fact::Vsuid => users[2],
            Fact::Vgid => groups[0],
            Fact::Vegid => groups[1],
            Fact::Vsgid => groups[2],
            namespace => namespace_of(pid, namespace.name().trim_end_matches("_ns")),
        })))
    }

    pub fn get(&self, fact: Fact) -> u64 {
        self.0[fact as usize]
    }
}

/// The real, effective and saved id, as the process itself sees them.
fn ids(status: &str, key: &str, pid: u32, map: &str) -> [u64; 3] {
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u64>().unwrap_or(NO_ID));
    let ours = [(); 3].map(|()| numbers.next().unwrap_or(NO_ID));
    let map = read_text(format!("/proc/{pid}/{map}")).unwrap_or_default();
    ours.map(|id| inside(&map, id))
}

/// An id of ours as it is within a user namespace, by lines of `inside outside how-many`.
fn inside(map: &str, id: u64) -> u64 {
    for line in map.lines() {
        let mut numbers = line.split_ascii_whitespace().filter_map(|word| word.parse::<u64>().ok());
        if let (Some(first), Some(outside), Some(n)) = (numbers.next(), numbers.next(), numbers.next())
            && (outside..outside.saturating_add(n)).contains(&id)
        {
            return first + (id - outside);
        }
    }
    NO_ID
}

/// `4026531836` of `mnt:[4026531836]`.
fn namespace_of(pid: u32, name: &str) -> u64 {
    let link = fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap_or_default();
    let text = link.to_string_lossy();
    let number = text.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_in_the_order_of_their_list() {
        for (at, fact) in Fact::ALL.into_iter().enumerate() {
            assert_eq!((fact as usize, Fact::parse(fact.name())), (at, Some(fact)));
        }
        let own = Facts::read(std::process::id()).unwrap();
        // SAFETY: both have no preconditions.
        let (user, group) = unsafe { (libc::getuid(), libc::getegid()) };
        assert_eq!((own.get(Fact::Vuid), own.get(Fact::Vegid)), (user.into(), group.into()));
        let inode =
            fs::metadata("/proc/self/ns/mnt").map(|m| std::os::unix::fs::MetadataExt::ino(&m)).unwrap();
        assert_eq!(own.get(Fact::MntNs), inode);
        assert_eq!(Facts::read(u32::MAX), None);
    }

    #[test]
    fn ids_are_those_of_the_namespace() {
        let map = "         0     100000      65536\n     70000       1000          1\n";
        for (outside, expected) in [(100_000, 0), (100_033, 33), (1000, 70_000), (0, NO_ID), (165_536, NO_ID)]
        {
            assert_eq!(inside(map, outside), expected, "{outside}");
        }
    }
}
