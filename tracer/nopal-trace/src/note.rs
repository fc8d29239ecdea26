//! Something of a recording that could not be read.

use std::fmt;
use std::path::PathBuf;

/// Something of a recording that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub path: PathBuf,
    /// Of the packet in the file, in bytes, if it is about one.
    pub offset: Option<u64>,
    pub reason: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{}, packet at byte {offset}: {}", self.path.display(), self.reason),
            None => write!(f, "{}: {}", self.path.display(), self.reason),
        }
    }
}
