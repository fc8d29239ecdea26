//! Why a script does not run in the kernel.

use std::fmt;

#[derive(Debug)]
pub enum ScriptError {
    NotYet,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel door does not run scripts yet")
    }
}

impl std::error::Error for ScriptError {}
