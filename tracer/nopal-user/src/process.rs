//! What `/proc` says of a process that decides whether and how it can be entered. Reads only.

use super::error::{Error, Result};
use nopal_proc::TargetError;
use nopal_proc::capability::Capability;
use nopal_proc::{Auxv, Process, read_short};
use std::fs;
use std::io;
use std::path::Path;

const SYS_IO_PGETEVENTS: i64 = 333;

/// The facts of `/proc/PID/status` that the user door needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub state: char,
    pub tracer_pid: i32,
    pub uid: u32,
    pub seccomp: u8,
    pub has_shadow_stack: bool,
    /// In the innermost namespace, last of NSpid.
    pub namespace_pid: i32,
    pub is_kernel_thread: bool,
    /// A bit for each signal that has a handler, the first for signal 1.
    pub caught: u64,
}

/// How a thread is spending its time, in the order in which threads are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// In a call that Linux restarts unseen. First, because a thread that waits gets a CPU sooner than one that works.
    Restartable,
    Running,
    /// In a call that Linux continues through its restart block; continued unseen as long as the tracer lives.
    Continued,
    /// In a call on a socket, which returns EINTR after any stop if the socket has a time-out (SO_RCVTIMEO, SO_SNDTIMEO).
    Socket,
    /// In a call that returns EINTR after any stop.
    Interruptible,
    Unknown,
}

pub fn status(pid: i32) -> Result<Status> {
    read_status(&format!("/proc/{pid}/status"), pid)
}

pub fn thread_status(pid: i32, tid: i32) -> Result<Status> {
    read_status(&format!("/proc/{pid}/task/{tid}/status"), pid)
}

fn read_status(path: &str, pid: i32) -> Result<Status> {
    nopal_proc::read_text(path).map(|text| parse_status(&text)).map_err(Error::of_process(pid, path))
}

fn parse_status(text: &str) -> Status {
    let mut status = Status { is_kernel_thread: true, ..Status::default() };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let number = || value.split_whitespace().next().and_then(|n| n.parse::<i64>().ok()).unwrap_or(0);
        match key {
            "Name" => status.name = value.to_string(),
            "State" => status.state = value.chars().next().unwrap_or('?'),
            "TracerPid" => status.tracer_pid = number() as i32,
            "Uid" => status.uid = number() as u32,
            "Seccomp" => status.seccomp = number() as u8,
            "NSpid" => {
                let last = value.split_whitespace().next_back();
                status.namespace_pid = last.and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            "x86_Thread_features" => status.has_shadow_stack = value.split_whitespace().any(|f| f == "shstk"),
            "SigCgt" => status.caught = u64::from_str_radix(value, 16).unwrap_or(u64::MAX),
            "VmSize" => status.is_kernel_thread = false,
            _ => {}
        }
    }
    status
}

/// Whether the process has a handler for one of these signals; also if nobody knows.
pub fn catches(pid: i32, signals: &[i32]) -> bool {
    status(pid).map_or(true, |status| signals.iter().any(|signal| status.caught & (1 << (signal - 1)) != 0))
}

/// True while the process has a memory of its own, i.e. is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    can_run(status(pid))
}

/// The same for a thread: a main thread that called pthread_exit stays listed as a zombie and never runs again.
pub fn is_alive_thread(pid: i32, tid: i32) -> bool {
    can_run(thread_status(pid, tid))
}

/// What cannot be read is taken to be alive: it must not be changed as if nobody ran it.
fn can_run(status: Result<Status>) -> bool {
    match status {
        Ok(status) => !matches!(status.state, 'Z' | 'X'),
        Err(Error::NoSuchProcess { .. }) => false,
        Err(_) => true,
    }
}

/// When the process started, in clock ticks since boot; tells a process from a later one with the same number.
pub fn start_time(pid: i32) -> Option<u64> {
    Process::read(pid as u32).ok().map(|process| process.start_time_ticks)
}

/// Whether this very process, not a later one with its number, still has a memory of its own. One read, as it is asked for
/// every process many times a second.
pub fn is_still(pid: i32, start_time: Option<u64>) -> bool {
    start_time.is_some_and(|ticks| Process::is_still(pid as u32, ticks))
}

/// The size of its address space. As long as it is the same, nothing was mapped, or almost never.
pub fn n_pages(pid: i32) -> Option<u64> {
    let text = read_short(Path::new(&format!("/proc/{pid}/statm"))).ok()?;
    std::str::from_utf8(&text).ok()?.split_whitespace().next()?.parse().ok()
}

/// The threads alive at this moment; the first is the main thread if it lives.
pub fn threads(pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task");
    let threads = nopal_proc::threads(pid as u32).map_err(Error::of_process(pid, &path))?;
    let mut tids: Vec<i32> = threads.map(|tid| tid as i32).collect();
    tids.sort_unstable();
    if tids.is_empty() { Err(Error::Gone { pid }) } else { Ok(tids) }
}

pub fn auxv(pid: i32) -> Result<Auxv> {
    let auxv = Auxv::read(pid as u32).map_err(Error::on(pid, "read the auxiliary vector"))?;
    auxv.ok_or(Error::Gone { pid })
}

/// Where the heap began or will begin; `None` if the kernel does not say (it says to those who may trace).
pub fn heap_start(pid: i32) -> Option<u64> {
    let stat = nopal_proc::read_text(format!("/proc/{pid}/stat")).ok()?;
    // Field 47 of the line, start_brk; the name ends field 2.
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(44)?.parse().ok()?;
    (start != 0).then_some(start)
}

/// The soft limit of the main stack's size; `None` if unlimited.
pub fn stack_limit(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find(|l| l.starts_with("Max stack size"))?;
    line["Max stack size".len()..].split_whitespace().next()?.parse().ok()
}

/// Refuses what must not be entered, before anything is touched.
pub fn check_enterable(pid: i32) -> Result<Status> {
    let status = status(pid)?;
    if status.tracer_pid != 0 && !status.is_kernel_thread {
        return Err(already_traced(pid, status.tracer_pid));
    }
    check_kind(pid, status)
}

/// The same for a process that we hold ourselves.
pub fn check_startable(pid: i32) -> Result<Status> {
    check_kind(pid, status(pid)?)
}

/// A C library turns shadow stacks on when the program has been started already, and we may be there before it.
fn will_have_shadow_stack(pid: i32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    asks_for_shadow_stack(&environment)
        && fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpus| {
            let flags = cpus.lines().find(|line| line.starts_with("flags"));
            flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "user_shstk"))
        })
}

/// By glibc's tunables.
fn asks_for_shadow_stack(environment: &[u8]) -> bool {
    let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    variables.filter_map(|text| text.strip_prefix("GLIBC_TUNABLES=").map(str::to_owned)).any(|tunables| {
        tunables
            .split(':')
            .any(|one| matches!(one, "glibc.cpu.x86_shstk=on" | "glibc.cpu.x86_shstk=permissive"))
    })
}

fn check_kind(pid: i32, status: Status) -> Result<Status> {
    if status.is_kernel_thread {
        return Err(match status.state {
            'Z' | 'X' => Error::Gone { pid },
            _ => Error::KernelThread { pid },
        });
    }
    if status.seccomp != 0 {
        return Err(Error::Seccomp { pid, mode: status.seccomp });
    }
    if status.has_shadow_stack || will_have_shadow_stack(pid) {
        return Err(Error::ShadowStack { pid });
    }
    let mut ident = [0u8; 5];
    let exe = fs::File::open(format!("/proc/{pid}/exe"))
        .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut ident));
    match exe {
        Ok(()) if ident[4] == 1 => Err(Error::ThirtyTwoBit { pid }),
        Ok(()) => Ok(status),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => Err(why_not_allowed(pid)),
        // Without its file (deleted files still open) the entry code cannot be verified; that is found later.
        Err(_) if !is_alive(pid) => Err(Error::Gone { pid }),
        Err(_) => Ok(status),
    }
}

pub fn already_traced(pid: i32, tracer: i32) -> Error {
    let name = status(tracer).map(|s| s.name).unwrap_or_else(|_| "unknown".into());
    Error::AlreadyTraced { pid, tracer, name }
}

impl Error {
    /// Reads what a look at the files of a process has found.
    pub(crate) fn of_target(pid: i32, error: TargetError) -> Error {
        match error {
            TargetError::NotPermitted { .. } => why_not_allowed(pid),
            TargetError::Translated { by, .. } => Error::Translated { pid, by },
            TargetError::Io { path, errno: Some(errno), .. } => Error::Io {
                what: format!("read {}", path.display()),
                source: io::Error::from_raw_os_error(errno),
            },
            _ => Error::Gone { pid },
        }
    }
}

/// Turns the kernel's refusal into what would have to be different.
pub fn why_not_allowed(pid: i32) -> Error {
    let status = match status(pid) {
        Ok(status) => status,
        Err(error) => return error,
    };
    if status.tracer_pid != 0 {
        return already_traced(pid, status.tracer_pid);
    }
    // SAFETY: geteuid has no arguments and cannot fail.
    let me = unsafe { libc::geteuid() };
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let reason = if me != 0 && me != status.uid {
        format!("it belongs to user {}, you are user {me}; run as that user or as root", status.uid)
    } else if me != 0 && yama.trim() == "1" {
        "kernel.yama.ptrace_scope is 1; start it with `nopal ... -- CMD`, let it call PR_SET_PTRACER, or run as root"
            .to_string()
    } else if !matches!(yama.trim(), "" | "0" | "1") {
        format!(
            "kernel.yama.ptrace_scope is {}; it takes CAP_SYS_PTRACE, and scope 3 forbids it to all",
            yama.trim()
        )
    } else if me != 0 {
        "it is not dumpable (set-user-id, or it called prctl(PR_SET_DUMPABLE, 0)); run as root".to_string()
    } else {
        why_root_is_not_allowed(Capability::is_held)
    };
    Error::Permission { pid, reason }
}

/// Root without all of its capabilities.
fn why_root_is_not_allowed(has: impl Fn(Capability) -> bool) -> String {
    if !has(Capability::SysPtrace) {
        "CAP_SYS_PTRACE is missing; a container needs --cap-add SYS_PTRACE".to_owned()
    } else if !has(Capability::DacOverride) {
        "CAP_DAC_OVERRIDE is missing, without which root may not open the memory of another user's process; \
         a container needs --cap-add DAC_OVERRIDE"
            .to_owned()
    } else {
        "it has capabilities that nopal lacks, or is in a user namespace that does not admit nopal".to_owned()
    }
}

/// What the thread is doing, from `/proc/PID/task/TID/syscall`.
pub fn activity(pid: i32, tid: i32) -> Activity {
    let is_socket = |fd: u64| {
        let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
        link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => classify(&text, is_socket),
        Err(_) => Activity::Unknown,
    }
}

/// Whether the thread has lent its memory to a child (vfork, posix_spawn) that has neither started another program nor ended:
/// until then nothing stops it.
pub fn waits_for_child(pid: i32, tid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
    let number = call.split_whitespace().next().and_then(|number| number.parse::<i64>().ok());
    matches!(number, Some(libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3))
        && thread_status(pid, tid).is_ok_and(|status| status.state == 'D')
}

fn classify(text: &str, is_socket: impl Fn(u64) -> bool) -> Activity {
    let mut fields = text.split_whitespace();
    let number: i64 = match fields.next() {
        Some("running") => return Activity::Running,
        Some(number) => number.parse().unwrap_or(-1),
        None => return Activity::Unknown,
    };
    let argument = |n: usize| {
        let hex = fields.clone().nth(n).unwrap_or("0x0");
        u64::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap_or(0)
    };
    match number {
        // A thread outside of a call that is not running just now: it was preempted or waits for a page.
        -1 => Activity::Running,
        // futex: with a time-out it goes on through the restart block.
        libc::SYS_futex if argument(3) != 0 => Activity::Continued,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_poll | libc::SYS_restart_syscall => {
            Activity::Continued
        }
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_io_getevents
        | SYS_IO_PGETEVENTS
        | libc::SYS_io_uring_enter => Activity::Interruptible,
        libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg => Activity::Socket,
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev if is_socket(argument(0)) => {
            Activity::Socket
        }
        _ => Activity::Restartable,
    }
}

/// The name of a call in [`Activity::Interruptible`], for saying which calls a stop may have interrupted.
pub fn interrupted_call(pid: i32, tid: i32) -> Option<&'static str> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    Some(match text.split_whitespace().next()?.parse::<i64>().ok()? {
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_epoll_pwait => "epoll_pwait",
        libc::SYS_epoll_pwait2 => "epoll_pwait2",
        libc::SYS_semop => "semop",
        libc::SYS_semtimedop => "semtimedop",
        libc::SYS_msgrcv => "msgrcv",
        libc::SYS_msgsnd => "msgsnd",
        libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
        libc::SYS_io_getevents => "io_getevents",
        SYS_IO_PGETEVENTS => "io_pgetevents",
        libc::SYS_io_uring_enter => "io_uring_enter",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_ask_for_shadow_stacks() {
        for (environment, asks) in [
            (&b"HOME=/root\0GLIBC_TUNABLES=glibc.cpu.x86_shstk=on\0"[..], true),
            (b"GLIBC_TUNABLES=glibc.malloc.check=1:glibc.cpu.x86_shstk=permissive", true),
            (b"GLIBC_TUNABLES=glibc.cpu.x86_shstk=off\0", false),
            (b"MORE_GLIBC_TUNABLES=glibc.cpu.x86_shstk=on\0", false),
            (b"\xff\0", false),
            (b"", false),
        ] {
            assert_eq!(asks_for_shadow_stack(environment), asks, "{}", String::from_utf8_lossy(environment));
        }
    }

    #[test]
    fn status_fields() {
        let status = parse_status(
            "Name:\tpost gres\nState:\tS (sleeping)\nTracerPid:\t42\nUid:\t33\t33\t33\t33\nNSpid:\t100\t7\n\
             VmSize:\t  10 kB\nSeccomp:\t2\nSigCgt:\t0000000000004a00\nx86_Thread_features:\tshstk wrss\n",
        );
        assert_eq!(
            status,
            Status {
                name: "post gres".into(),
                state: 'S',
                tracer_pid: 42,
                uid: 33,
                seccomp: 2,
                has_shadow_stack: true,
                namespace_pid: 7,
                is_kernel_thread: false,
                caught: 0x4a00,
            }
        );
    }

    #[test]
    fn activities() {
        for (text, expected) in [
            ("running\n", Activity::Running),
            ("-1 0x7ffc 0x7f00\n", Activity::Running),
            ("202 0x55 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n", Activity::Restartable),
            ("202 0x55 0x80 0x0 0x7ffc10 0x0 0x0 0x7ffc 0x7f00\n", Activity::Continued),
            ("230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffc 0x7f00\n", Activity::Continued),
            ("232 0x3 0x7ffd 0x40 0xffffffff 0x0 0x0 0x7ffc 0x7f00\n", Activity::Interruptible),
            ("0 0x0 0x7ffd 0x40 0x0 0x0 0x0 0x7ffc 0x7f00\n", Activity::Restartable),
            ("0 0x7 0x7ffd 0x40 0x0 0x0 0x0 0x7ffc 0x7f00\n", Activity::Socket),
            ("45 0x7 0x7ffd 0x40 0x0 0x0 0x0 0x7ffc 0x7f00\n", Activity::Socket),
            ("", Activity::Unknown),
        ] {
            assert_eq!(classify(text, |fd| fd == 7), expected, "{text}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let me = std::process::id() as i32;
        assert!(is_still(me, start_time(me)) && !is_still(me, Some(1)) && !is_still(1 << 23, None));
        assert!(n_pages(me).is_some_and(|n| n > 100));
    }

    #[test]
    fn refuses_what_is_not_there() {
        // Above the largest number Linux gives to a process.
        assert!(matches!(check_enterable(1 << 23), Err(Error::NoSuchProcess { .. })));
    }
}
