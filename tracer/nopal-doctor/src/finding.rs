//! One thing that was looked at, and what to do about it.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Fine,
    /// Works, but less well, or only for some.
    Notice,
    /// Does not work until something is done.
    Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short word for scripts, such as `yama`.
    pub code: &'static str,
    pub level: Level,
    pub what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn fine(code: &'static str, what: impl Into<String>) -> Finding {
        Finding { code, level: Level::Fine, what: what.into(), remedy: None }
    }

    pub fn notice(code: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { code, level: Level::Notice, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub fn problem(code: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { code, level: Level::Problem, what: what.into(), remedy: Some(remedy.into()) }
    }
}
