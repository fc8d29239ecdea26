//! Why a script does not run in the kernel.

use super::super::bpf::LoadError;
use super::code::CodeError;
use nopal_proc::TargetError;
use std::fmt;
use std::io;

#[derive(Debug)]
pub enum ScriptError {
    /// `what` needs a capability this process has not.
    NotPermitted {
        what: String,
        capability: &'static str,
    },
    /// A clause for which no eBPF can be made.
    Code {
        clause: usize,
        error: CodeError,
    },
    /// The verifier refused a program of ours; the log is its.
    Refused {
        clause: usize,
        error: io::Error,
        log: String,
    },
    /// The map is larger than the kernel allows, or memory is short.
    Map {
        name: String,
        error: io::Error,
    },
    NoSuchMap {
        map: u32,
    },
    /// The process cannot be looked into.
    Target(TargetError),
    Io {
        what: String,
        error: io::Error,
    },
}

impl ScriptError {
    pub(super) fn io(what: impl Into<String>, error: io::Error) -> ScriptError {
        let what = what.into();
        match error.raw_os_error() {
            Some(libc::EPERM) => ScriptError::NotPermitted { what, capability: "CAP_BPF and CAP_PERFMON" },
            Some(libc::EACCES) => ScriptError::NotPermitted { what, capability: "CAP_PERFMON" },
            _ => ScriptError::Io { what, error },
        }
    }

    pub(super) fn load(clause: usize, refused: LoadError) -> ScriptError {
        match refused.error.raw_os_error() {
            Some(libc::EPERM) => ScriptError::NotPermitted {
                what: "loading an eBPF program".to_owned(),
                capability: "CAP_BPF and CAP_PERFMON",
            },
            _ => ScriptError::Refused { clause, error: refused.error, log: refused.log },
        }
    }
}

impl ScriptError {
    /// What happened, without which rights it takes.
    pub fn cause(&self) -> String {
        match self {
            ScriptError::NotPermitted { what, .. } => format!("{what} is not permitted"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptError::NotPermitted { what, capability } => write!(
                f,
                "{what} is not permitted: the kernel door needs {capability}, or root; `--door user` needs neither for \
                 your own processes"
            ),
            ScriptError::Code { error, .. } => write!(f, "{error}"),
            ScriptError::Refused { clause, error, log } => {
                write!(f, "the kernel refused the program of clause {}: {error}", clause + 1)?;
                match log.lines().rev().find(|line| !line.starts_with("processed ") && !line.is_empty()) {
                    Some(line) => write!(f, " ({line})"),
                    None => Ok(()),
                }
            }
            ScriptError::Map { name, error } => match error.raw_os_error() {
                Some(libc::E2BIG | libc::ENOMEM) => write!(
                    f,
                    "the kernel has no room for the map {name} ({error}); shorter keys, fewer buckets or fewer entries help"
                ),
                _ => write!(f, "cannot make the map {name}: {error}"),
            },
            ScriptError::NoSuchMap { map } => write!(f, "the script has no map {map}"),
            ScriptError::Target(error) => write!(f, "{error}"),
            ScriptError::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ScriptError {}
