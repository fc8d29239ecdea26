//! Why a file, or a note in it, cannot be read.

use std::fmt;

/// Reads as the end of a sentence that begins with the file's name: `x.txt: not an ELF file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    NotElf,
    /// An object file, a core dump or something unknown, by its `e_type`.
    NotLinked {
        kind: u16,
    },
    /// The file says of itself what cannot be, usually because its end is missing.
    Broken {
        part: &'static str,
        reason: String,
    },
    /// More notes than any real program has.
    TooManyNotes {
        bytes: u64,
        limit: u64,
    },
}

impl ReadError {
    pub(super) fn broken(part: &'static str, reason: impl fmt::Display) -> Self {
        ReadError::Broken { part, reason: reason.to_string() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotElf => write!(f, "not an ELF file"),
            ReadError::NotLinked { kind: 1 } => {
                write!(f, "an object file, whose probes have no address until it is linked")
            }
            ReadError::NotLinked { kind: 4 } => write!(f, "a core dump, which has no notes of probes"),
            ReadError::NotLinked { kind } => {
                write!(f, "an ELF file of type {kind}, neither a program nor a library")
            }
            ReadError::Broken { part, reason } => {
                write!(f, "a damaged or truncated ELF file: its {part} cannot be read ({reason})")
            }
            ReadError::TooManyNotes { bytes, limit } => write!(
                f,
                "an ELF file with {bytes} bytes of notes, more than the {limit} that any real program needs"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

/// A note that could not be used; the rest of the file was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A stapsdt note that ends early or has no NUL where one must be.
    BadStapsdtNote { index: usize },
    /// The notes of a section end in the middle of one.
    NotesCutShort { section: usize },
    /// A nopal note that cannot be read; `probe` is empty if it did not get that far.
    BadNopalNote { probe: String, reason: String },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::BadStapsdtNote { index } => write!(f, "stapsdt note {index} is damaged; left out"),
            Warning::NotesCutShort { section } => {
                write!(f, "the notes of section {section} end in the middle of one")
            }
            Warning::BadNopalNote { probe, reason } if probe.is_empty() => {
                write!(f, "a nopal note cannot be read: {reason}")
            }
            Warning::BadNopalNote { probe, reason } => {
                write!(f, "the nopal note of {probe} cannot be read: {reason}")
            }
        }
    }
}
