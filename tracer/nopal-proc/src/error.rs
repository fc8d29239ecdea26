//! Why a process or a file it maps cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    NoSuchProcess {
        pid: u32,
    },
    /// The kernel answers "permission denied" to whoever could not trace the process either.
    NotPermitted {
        pid: u32,
    },
    /// It has ended and waits for its parent, so it has no memory any more.
    Zombie {
        pid: u32,
    },
    /// It runs in the kernel and maps no file.
    KernelThread {
        pid: u32,
    },
    /// A 32-bit program; only 64-bit ones can be traced.
    Is32Bit {
        pid: u32,
    },
    /// Another program runs it by translating its code.
    Translated {
        pid: u32,
        by: &'static str,
    },
    /// The file was deleted or replaced after the process mapped it, and only a privileged reader can still open it.
    Deleted {
        pid: u32,
        path: PathBuf,
    },
    /// What is at the path is not a file: a folder, a FIFO, a device, a socket.
    NotAFile {
        path: PathBuf,
    },
    Io {
        path: PathBuf,
        kind: io::ErrorKind,
        errno: Option<i32>,
        text: String,
    },
}

impl TargetError {
    /// An error of a file of `/proc/PID`, which tells about the process.
    pub(super) fn of_process(pid: u32, path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => TargetError::NoSuchProcess { pid },
            io::ErrorKind::PermissionDenied => TargetError::NotPermitted { pid },
            _ if error.raw_os_error() == Some(libc::ESRCH) => TargetError::NoSuchProcess { pid },
            _ => TargetError::of_file(path, error),
        }
    }

    pub(super) fn of_file(path: &Path, error: &io::Error) -> Self {
        TargetError::Io {
            path: path.to_owned(),
            kind: error.kind(),
            errno: error.raw_os_error(),
            text: plain_text(error),
        }
    }
}

/// The message of the operating system without Rust's `(os error 2)`.
fn plain_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

impl TargetError {
    /// What to do about a process that may not be read: to become root, unless one is.
    pub fn ask_for_permission() -> &'static str {
        // SAFETY: geteuid has no preconditions.
        match unsafe { libc::geteuid() } {
            0 => {
                "root needs CAP_SYS_PTRACE for it, which a container may lack; some processes are closed to root, too"
            }
            _ => "run nopal as that process's user or as root",
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::NoSuchProcess { pid } => write!(f, "no process has the pid {pid}"),
            TargetError::NotPermitted { pid } => {
                write!(f, "process {pid} belongs to somebody else or is protected; it may not be read")
            }
            TargetError::Zombie { pid } => write!(f, "process {pid} has ended; only its exit status is left"),
            TargetError::KernelThread { pid } => {
                write!(f, "process {pid} is a kernel thread and maps no file")
            }
            TargetError::Is32Bit { pid } => write!(f, "process {pid} runs a 32-bit program"),
            TargetError::Translated { pid, by } => write!(
                f,
                "process {pid} runs in {by}, which translates its code and would take a changed byte for the program's own"
            ),
            TargetError::Deleted { pid, path } => write!(
                f,
                "{} was deleted or replaced after process {pid} mapped it; only root with CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE can still read it",
                path.display()
            ),
            TargetError::NotAFile { path } => write!(f, "{} is not a regular file", path.display()),
            TargetError::Io { path, text, .. } => write!(f, "{}: {text}", path.display()),
        }
    }
}

impl std::error::Error for TargetError {}
