//! How processes end that are not our children: by themselves, or by which signal. The kernel tells who has had a pidfd of
//! the process since before (Linux 6.15); of others it can be seen as long as nobody has waited for them.

use crate::process::{Process, read_short};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// How a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It had been waited for before anybody could look.
    Unknown,
}

impl Exit {
    /// Ended by what a fault of a program ends in. Who was killed did not crash.
    pub fn is_crash(self) -> bool {
        const FAULTS: [i32; 7] = [
            libc::SIGSEGV,
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGSYS,
            libc::SIGTRAP,
        ];
        matches!(self, Exit::Signal(signal) if FAULTS.contains(&signal))
    }

    /// From what `wait` would give.
    fn of_status(status: i32) -> Exit {
        match status & 0x7f {
            0 => Exit::Code(status >> 8 & 0xff),
            signal => Exit::Signal(signal),
        }
    }
}

/// Processes whose end is waited for.
#[derive(Debug, Default)]
pub struct Exits(HashMap<u32, OwnedFd>);

impl Exits {
    /// From now on. Gives whether there is such a process.
    pub fn watch(&mut self, pid: u32) -> bool {
        if self.0.contains_key(&pid) {
            return true;
        }
        // SAFETY: pidfd_open takes numbers alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return false;
        }
        // SAFETY: just made, and nobody else's.
        self.0.insert(pid, unsafe { OwnedFd::from_raw_fd(fd as i32) });
        true
    }

    /// Those that have ended since this was last asked. They are not watched any more.
    pub fn take_ended(&mut self) -> Vec<(u32, Exit)> {
        let pids: Vec<u32> = self.0.keys().copied().collect();
        let mut polled: Vec<libc::pollfd> = self
            .0
            .values()
            .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: the array has as many entries as is said, and lives over the call.
        let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        if n <= 0 {
            return Vec::new();
        }
        let has_ended = |poll: &libc::pollfd| poll.revents & libc::POLLIN != 0;
        let ended = pids.into_iter().zip(&polled).filter(|(_, poll)| has_ended(poll)).map(|(pid, _)| pid);
        let ended: Vec<u32> = ended.collect();
        ended.into_iter().filter_map(|pid| Some((pid, exit_of(pid, &self.0.remove(&pid)?)))).collect()
    }
}

/// As long as nobody has waited for it, only `/proc` shows it; from then on only the pidfd does.
fn exit_of(pid: u32, pidfd: &OwnedFd) -> Exit {
    let status = exit_by_pidfd(pidfd).or_else(|| exit_by_proc(pid)).or_else(|| exit_by_pidfd(pidfd));
    status.map_or(Exit::Unknown, Exit::of_status)
}

/// `struct pidfd_info` as Linux 6.15 has it.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// `_IOWR(0xff, 11, struct pidfd_info)`
const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
const PIDFD_INFO_EXIT: u64 = 1 << 3;

fn exit_by_pidfd(pidfd: &OwnedFd) -> Option<i32> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the kernel writes no more than the size that is part of the command's number, which is that of the struct.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO as _, &raw mut info) };
    (result == 0 && info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// The last field of the line of a zombie.
fn exit_by_proc(pid: u32) -> Option<i32> {
    let is_zombie = Process::read(pid).is_ok_and(|process| process.is_zombie);
    let text = read_short(Path::new(&format!("/proc/{pid}/stat"))).ok().filter(|_| is_zombie)?;
    std::str::from_utf8(&text).ok()?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn wait_for_end(exits: &mut Exits) -> (u32, Exit) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let [ended] = exits.take_ended()[..] {
                return ended;
            }
            assert!(Instant::now() < end, "it never ends");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn ends_are_told_before_and_after_somebody_waited() {
        for (script, expected, is_crash) in [
            ("read a; exit 3", Exit::Code(3), false),
            ("read a; kill -SEGV $$", Exit::Signal(libc::SIGSEGV), true),
            ("read a; kill -ABRT $$", Exit::Signal(libc::SIGABRT), true),
            ("read a; kill -KILL $$", Exit::Signal(libc::SIGKILL), false),
        ] {
            for is_waited_for in [false, true] {
                let mut shell =
                    Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("sh starts");
                let mut exits = Exits::default();
                assert!(exits.watch(shell.id()) && exits.watch(shell.id()));
                assert_eq!(exits.take_ended(), []);
                drop(shell.stdin.take());
                if is_waited_for {
                    shell.wait().expect("it ends");
                }
                let (pid, exit) = wait_for_end(&mut exits);
                assert_eq!((pid, exit, exit.is_crash()), (shell.id(), expected, is_crash), "{script}");
                shell.wait().expect("it has ended");
                assert!(exits.0.is_empty() && !exits.watch(pid), "it is over");
            }
        }
    }
}
