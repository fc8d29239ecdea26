//! What can go wrong with a session, as cause and next step.

use nopal_live::LiveError;
use std::fmt;
use std::io;
use std::path::Path;

/// A failure that can be sent from the recorder to the command that asked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionError {
    /// A short word for scripts, such as `no-such-session`.
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

impl SessionError {
    pub fn new(code: &str, message: impl Into<String>) -> SessionError {
        SessionError { code: code.to_owned(), message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> SessionError {
        self.hint = Some(hint.into());
        self
    }

    pub fn io(path: &Path, verb: &str, error: &io::Error) -> SessionError {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "not-permitted",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "disk-full",
            _ => "io",
        };
        SessionError::new(code, format!("cannot {verb} {}: {error}", path.display()))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SessionError {}

/// Says a tracing failure in the words of the command line.
pub(crate) type InWords = fn(&LiveError) -> SessionError;
