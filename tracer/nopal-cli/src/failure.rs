//! A failure as the user sees it: what is wrong, and the next thing to do.

use nopal_trace::{escape_lines, escape_styled};
use std::fmt;

/// Printed as `nopal: MESSAGE` and `  HINT`, or as one JSON object with `--json`.
#[derive(Debug)]
pub struct Failure {
    /// A short word for scripts, such as `no-such-process`.
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    pub exit: u8,
    /// The message has colours of our own.
    pub is_styled: bool,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), hint: None, exit: 1, is_styled: false }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Exit code 2 is kept for a command line that cannot be understood.
    pub fn usage(message: impl Into<String>) -> Self {
        Failure { code: "usage", message: message.into(), hint: None, exit: 2, is_styled: false }
    }

    pub fn to_json(&self) -> String {
        serde_json::json!({ "error": { "code": self.code, "message": self.message, "hint": self.hint } })
            .to_string()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.is_styled {
            true => escape_styled(&self.message),
            false => escape_lines(&self.message),
        };
        write!(f, "nopal: {message}")?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  {}", escape_lines(hint))?;
        }
        Ok(())
    }
}
