//! Why the user door could not do what it was asked. Facts as fields; the text names the cause and the next step.

use nopal_proc::launch::LaunchError;
use std::fmt;
use std::io;

/// One failure of the user door. Unless a variant says otherwise the target was left untouched.
#[derive(Debug)]
pub enum Error {
    NoSuchProcess {
        pid: i32,
    },
    /// It ended (or called exec) while being worked on.
    Gone {
        pid: i32,
    },
    /// It ended while sites were being opened that it is known to have.
    EndedEarly {
        pid: i32,
    },
    Permission {
        pid: i32,
        reason: String,
    },
    AlreadyTraced {
        pid: i32,
        tracer: i32,
        name: String,
    },
    ThirtyTwoBit {
        pid: i32,
    },
    KernelThread {
        pid: i32,
    },
    Seccomp {
        pid: i32,
        mode: u8,
    },
    ShadowStack {
        pid: i32,
    },
    /// Another program runs it by translating its code.
    Translated {
        pid: i32,
        by: &'static str,
    },
    /// No thread could be stopped at a point where borrowing it is safe.
    NoSafeThread {
        pid: i32,
        reason: String,
    },
    /// A borrowed thread went back by itself, as if its tracer had been killed: what it did is not known.
    TooSlow {
        pid: i32,
    },
    /// The bytes at the program's entry are not those of its file.
    EntryChanged {
        pid: i32,
        address: u64,
    },
    /// A system call made inside the target failed.
    CallFailed {
        pid: i32,
        call: &'static str,
        errno: i32,
    },
    /// No free address range for the stubs within reach of the code.
    NoRoom {
        pid: i32,
        near: u64,
    },
    /// What an earlier tracer left in the target cannot be used by this version.
    ForeignSpace {
        pid: i32,
        version: u32,
    },
    /// Another nopal process works on the same family of processes.
    Busy {
        pid: i32,
    },
    SpaceFull {
        pid: i32,
        what: &'static str,
    },
    /// Its credentials are those of no other process of the session, and there is no memory for one more ring.
    TooManyRings {
        pid: i32,
        n_rings: usize,
    },
    /// It has become somebody else and still has the ring of those it was like.
    NotApart {
        pid: i32,
        reason: String,
    },
    /// The command could not be started.
    Launch(LaunchError),
    Io {
        what: String,
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// Reads an error of a file of `/proc/PID`. Only a file that is not there means that the process is not: the reason may
    /// be ours, such as having too many files open.
    pub(crate) fn of_process(pid: i32, path: &str) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Error::NoSuchProcess { pid },
            _ => Error::Io { what: format!("read {path}"), source },
        }
    }

    /// Reads an error of an operation on a process: ESRCH and its kin mean that the process has ended.
    pub(crate) fn on(pid: i32, what: &str) -> impl FnOnce(io::Error) -> Error {
        let what = format!("{what} (process {pid})");
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => Error::Gone { pid },
            _ => Error::Io { what, source },
        }
    }
}

/// What happened, without what to do about it.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a>(&'a Error);

impl Error {
    pub fn cause(&self) -> Cause<'_> {
        Cause(self)
    }

    /// Whether it is a matter of what the program is, which the kernel door does not ask.
    pub fn is_of_program(&self) -> bool {
        matches!(self, Error::Seccomp { .. } | Error::ShadowStack { .. })
    }

    /// What to do about it.
    pub fn next_step(&self) -> Option<String> {
        let step = match self {
            Error::NoSuchProcess { .. } => "`nopal list -u` shows running programs that have probes",
            Error::AlreadyTraced { .. } => "detach it first or use --door kernel",
            Error::ThirtyTwoBit { .. }
            | Error::Seccomp { .. }
            | Error::ShadowStack { .. }
            | Error::CallFailed { .. }
            | Error::NoRoom { .. } => "use --door kernel",
            Error::Translated { by, .. } => return Some(format!("trace it without {by}")),
            Error::NoSafeThread { .. } | Error::TooSlow { .. } => "try again or use --door kernel",
            Error::EntryChanged { .. } => "remove its breakpoint or use --door kernel",
            Error::ForeignSpace { pid, .. } => {
                return Some(format!("use that version's `nopal detach -p {pid}` or restart the program"));
            }
            Error::Busy { .. } => "try again",
            Error::SpaceFull { .. } => "trace fewer probes at once or restart the program",
            Error::TooManyRings { .. } => "trace it by itself, make the rings smaller or use --door kernel",
            Error::Gone { .. }
            | Error::EndedEarly { .. }
            | Error::Permission { .. }
            | Error::NotApart { .. }
            | Error::KernelThread { .. }
            | Error::Launch(_)
            | Error::Io { .. } => return None,
        };
        Some(step.to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause())?;
        self.next_step().map_or(Ok(()), |next| write!(f, "; {next}"))
    }
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::NoSuchProcess { pid } => {
                write!(f, "no process {pid}")
            }
            Error::Gone { pid } => write!(f, "process {pid} has ended, or has just started another program"),
            Error::EndedEarly { pid } => {
                write!(f, "process {pid} ended before its sites could be opened, and their hits are missing")
            }
            Error::Permission { pid, reason } => write!(f, "not allowed to trace process {pid}: {reason}"),
            Error::AlreadyTraced { pid, tracer, name } => write!(
                f,
                "process {pid} is being traced by process {tracer} ({name}), and Linux allows one ptracer at a time"
            ),
            Error::ThirtyTwoBit { pid } => {
                write!(f, "process {pid} is a 32-bit program; the user door is 64-bit only")
            }
            Error::KernelThread { pid } => write!(f, "process {pid} is a kernel thread and has no user code"),
            Error::Seccomp { pid, mode } => write!(
                f,
                "process {pid} has its system calls filtered (seccomp mode {mode}) and could be killed for the calls \
                 the user door makes in it"
            ),
            Error::ShadowStack { pid } => {
                write!(f, "process {pid} runs with a user shadow stack, which the user door does not support")
            }
            Error::Translated { pid, by } => write!(
                f,
                "process {pid} runs in {by}, which translates its code and would take a changed byte for the program's own"
            ),
            Error::NoSafeThread { pid, reason } => {
                write!(f, "no thread of process {pid} could be borrowed safely ({reason})")
            }
            Error::TooSlow { pid } => {
                write!(f, "this machine is too busy to keep up with a thread borrowed from process {pid}")
            }
            Error::EntryChanged { pid, address } => write!(
                f,
                "the code at the entry of process {pid} ({address:#x}) is not that of its file, so another tool has \
                 changed it"
            ),
            Error::CallFailed { pid, call, errno } => {
                write!(f, "process {pid} could not {call}: {}", io::Error::from_raw_os_error(*errno))
            }
            Error::NoRoom { pid, near } => {
                write!(f, "process {pid} has no free address range within 2 GiB of {near:#x}")
            }
            Error::ForeignSpace { pid, version } => {
                write!(f, "process {pid} holds stubs of another nopal version (layout {version})")
            }
            Error::Busy { pid } => {
                write!(f, "another nopal is changing process {pid} or a relative of it right now")
            }
            Error::SpaceFull { pid, what } => {
                write!(f, "the {what} nopal reserved in process {pid} is used up")
            }
            Error::TooManyRings { pid, n_rings } => write!(
                f,
                "process {pid} has other credentials than the rest, and {n_rings} rings are as many as a session may \
                 have, so that its hits are missing"
            ),
            Error::NotApart { pid, reason } => write!(
                f,
                "process {pid} has changed its credentials, or could not be asked for them, and could not be given a ring of its own \
                 ({reason}); it may read and forge the hits of those it was forked with"
            ),
            Error::Launch(error) => write!(f, "{error}"),
            Error::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
