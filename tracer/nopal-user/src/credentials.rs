//! Who a process is to the kernel, as far as it decides which processes may ptrace each other: what two of them may both
//! write to, each could have written to anyway. Reads only.

use super::error::{Error, Result};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const CAP_SYS_PTRACE: u64 = 1 << 19;
/// More than `/proc/PID/status` has.
const STATUS_BYTES: usize = 4096;

/// The credentials of a process's first thread. Its other threads have the same memory, whatever they are themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective, saved, of the file system.
    uids: [u32; 4],
    gids: [u32; 4],
    groups: Vec<u32>,
    /// Capabilities it may have, and those it has.
    permitted: u64,
    effective: u64,
    /// The inode of its user namespace.
    user_namespace: u64,
    is_dumpable: bool,
}

impl Credentials {
    pub fn read(pid: i32) -> Result<Credentials> {
        let path = format!("/proc/{pid}/status");
        // Without room the text, which says no size, would be read in many small pieces.
        let mut text = Vec::with_capacity(STATUS_BYTES);
        let mut file = fs::File::open(&path).map_err(Error::of_process(pid, &path))?;
        file.read_to_end(&mut text).map_err(Error::of_process(pid, &path))?;
        // The name of the process may be no text.
        let mut credentials = parse(&String::from_utf8_lossy(&text)).ok_or(Error::Gone { pid })?;
        // One that may not be looked into is in none that we know.
        credentials.user_namespace = fs::metadata(format!("/proc/{pid}/ns/user")).map_or(0, |ns| ns.ino());
        let told = Pidfd::open(pid).ok().and_then(|pidfd| pidfd.info()).and_then(|info| info.is_dumpable());
        // Before Linux 6.16: the files of one that is not dumpable are root's. Of root's own it cannot be told.
        credentials.is_dumpable = told.unwrap_or_else(|| {
            let owner = fs::metadata(format!("/proc/{pid}/fd")).map(|folder| folder.uid());
            owner.is_ok_and(|owner| owner == credentials.uids[1])
        });
        Ok(credentials)
    }

    /// Of an ordinary process of this user, which can be dumped or not.
    #[cfg(test)]
    pub(super) fn of_user(uid: u32, is_dumpable: bool) -> Credentials {
        Credentials {
            uids: [uid; 4],
            gids: [uid; 4],
            groups: Vec::new(),
            permitted: 0,
            effective: 0,
            user_namespace: 1,
            is_dumpable,
        }
    }

    /// Whether the kernel keeps a process with these credentials from being traced by any other without the right to
    /// trace all, even by one with the very same.
    pub fn is_guarded(&self) -> bool {
        let is_one = |ids: [u32; 4]| ids[0] == ids[1] && ids[1] == ids[2];
        let is_open = self.is_dumpable && is_one(self.uids) && is_one(self.gids);
        self.effective & CAP_SYS_PTRACE == 0 && !is_open
    }
}

fn parse(text: &str) -> Option<Credentials> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let numbers = |name: &str| -> Option<Vec<u32>> {
        field(name)?.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
    };
    let set = |name: &str| u64::from_str_radix(field(name)?.trim(), 16).ok();
    Some(Credentials {
        uids: numbers("Uid")?.try_into().ok()?,
        gids: numbers("Gid")?.try_into().ok()?,
        groups: numbers("Groups")?,
        permitted: set("CapPrm")?,
        effective: set("CapEff")?,
        user_namespace: 0,
        is_dumpable: false,
    })
}

/// A process by a descriptor, through which the kernel tells in one call what changes most: asked many times a second.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

/// What the kernel tells of a process: `struct pidfd_info`, as far as Linux 6.16 has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Info {
    mask: u64,
    cgroup: u64,
    pid: [u32; 3],
    /// Real, effective, saved, of the file system; each uid and gid.
    ids: [u32; 8],
    exit_code: i32,
    coredump_mask: u32,
    unused: u32,
}

const _: () = assert!(size_of::<Info>() == 72);
/// `_IOWR(0xff, 11, struct pidfd_info)`
const PIDFD_GET_INFO: u64 = 0xc048_ff0b;
const INFO_CREDENTIALS: u64 = 1 << 1;
const INFO_COREDUMP: u64 = 1 << 4;
/// Of the coredump mask: a dump would be the user's.
const COREDUMP_USER: u32 = 1 << 2;

impl Pidfd {
    pub fn open(pid: i32) -> io::Result<Pidfd> {
        // SAFETY: plain numbers; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pidfd_open returned a new descriptor that nothing else owns.
        Ok(Pidfd(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// `None` where the kernel is too old to tell all of it, or the process has ended.
    pub fn info(&self) -> Option<Info> {
        let mut info = Info { mask: INFO_CREDENTIALS | INFO_COREDUMP, ..Info::default() };
        // SAFETY: the kernel writes no more than the 72 bytes that the request's number says.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO as libc::c_ulong, &raw mut info) };
        let is_all = info.mask & (INFO_CREDENTIALS | INFO_COREDUMP) == INFO_CREDENTIALS | INFO_COREDUMP;
        (result == 0 && is_all).then_some(info)
    }
}

impl Info {
    fn is_dumpable(&self) -> Option<bool> {
        (self.coredump_mask != 0).then_some(self.coredump_mask & COREDUMP_USER != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn status(uids: &str, gids: &str, effective: &str) -> Credentials {
        let text = format!(
            "Name:\tUid: 7\nUid:\t{uids}\nGid:\t{gids}\nGroups:\t4 27 \nCapInh:\t0\nCapPrm:\t{effective}\nCapEff:\t{effective}\n"
        );
        Credentials { is_dumpable: true, ..parse(&text).unwrap() }
    }

    #[test]
    fn whom_the_kernel_guards_from_its_like() {
        let all = "000001ffffffffff";
        for (uids, gids, effective, is_dumpable, is_guarded) in [
            ("33\t33\t33\t33", "33\t33\t33\t33", "0", true, false),
            ("33\t33\t33\t33", "33\t33\t33\t33", "0", false, true),
            ("33\t0\t0\t0", "33\t33\t33\t33", "0", true, true),
            ("33\t33\t33\t33", "33\t4\t4\t4", "0", true, true),
            ("0\t0\t0\t0", "0\t0\t0\t0", all, false, false),
            ("0\t33\t0\t33", "0\t0\t0\t0", all, false, false),
            ("0\t0\t0\t0", "0\t0\t0\t0", "0", false, true),
        ] {
            let credentials = Credentials { is_dumpable, ..status(uids, gids, effective) };
            assert_eq!(credentials.is_guarded(), is_guarded, "{credentials:?}");
        }
    }

    #[test]
    fn a_status_is_read_by_its_fields() {
        let found = status("1\t2\t3\t4", "5\t6\t7\t8", "80000");
        assert_eq!(
            (found.uids, found.gids, found.groups.as_slice()),
            ([1, 2, 3, 4], [5, 6, 7, 8], &[4, 27][..])
        );
        assert_eq!((found.permitted, found.effective), (CAP_SYS_PTRACE, CAP_SYS_PTRACE));
        assert_eq!(parse("Name:\tx\nUid:\t1\n"), None);
    }

    fn start(before: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Child {
        let mut command = Command::new("sleep");
        // SAFETY: system calls on numbers alone, between fork and exec.
        unsafe { command.arg("100").pre_exec(before) };
        command.spawn().expect("sleep")
    }

    #[test]
    fn processes_are_alike_until_one_changes() {
        let like = Credentials::read(std::process::id() as i32).unwrap();
        let mut same = start(|| Ok(()));
        assert_eq!(Credentials::read(same.id() as i32).unwrap(), like);
        let mut others = vec![start(|| {
            // SAFETY: a number of a group that nobody needs, which root alone may take on.
            unsafe { libc::setgid(12345) };
            Ok(())
        })];
        others.push(start(|| {
            // SAFETY: a new user namespace for this process alone.
            unsafe { libc::unshare(libc::CLONE_NEWUSER) };
            Ok(())
        }));
        // SAFETY: no arguments, no effect.
        let is_root = unsafe { libc::geteuid() } == 0;
        for other in &others {
            let is_alike = Credentials::read(other.id() as i32).unwrap() == like;
            assert!(!is_alike || !is_root, "{other:?}");
        }
        for child in others.iter_mut().chain([&mut same]) {
            child.kill().and_then(|()| child.wait()).expect("sleep");
        }
    }
}
