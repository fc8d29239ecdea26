//! What can go wrong with a recording, with the facts that a message needs.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum Error {
    Io {
        path: PathBuf,
        doing: &'static str,
        source: io::Error,
    },
    /// No file named `metadata` in the folder or below it.
    NotARecording {
        path: PathBuf,
    },
    /// The metadata cannot be understood from this place on.
    Metadata {
        path: PathBuf,
        line: u32,
        column: u32,
        reason: String,
    },
    /// A value given to the writer does not fit the event type.
    Payload {
        event: String,
        reason: String,
    },
    NoSuchEventType {
        id: u32,
    },
    /// An event larger than a packet may be.
    TooLarge {
        event: String,
        bytes: usize,
    },
    /// The folder to be written into already holds a recording.
    Exists {
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, doing: &'static str, source: io::Error) -> Self {
        Error::Io { path: path.into(), doing, source }
    }

    /// Whether the disk (or the quota) is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if matches!(
            source.raw_os_error(),
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
        ))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { path, doing, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Error::NotARecording { path } => {
                write!(
                    f,
                    "{} is not a recording: there is no metadata file in it or below it",
                    path.display()
                )
            }
            Error::Metadata { path, line, column, reason } => {
                write!(f, "{}:{line}:{column}: {reason}", path.display())
            }
            Error::Payload { event, reason } => write!(f, "a hit of {event} cannot be written: {reason}"),
            Error::NoSuchEventType { id } => write!(f, "no event type has the number {id}"),
            Error::TooLarge { event, bytes } => {
                write!(f, "a hit of {event} has {bytes} bytes, more than a packet holds")
            }
            Error::Exists { path } => write!(f, "{} already holds a recording", path.display()),
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
