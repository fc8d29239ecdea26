//! One trace of a recording: a folder with a `metadata` file, and what that and nopal's own files in it say.

use super::class::StreamClass;
use super::plan::Scope;
use crate::code::CodeTable;
use crate::tasks::TaskTable;
use crate::tsdl::EnvValue;
use crate::verdict::Verdict;
use std::path::PathBuf;

/// One folder with a `metadata` file.
#[derive(Debug)]
pub struct Trace {
    pub dir: PathBuf,
    pub env: Vec<(String, EnvValue)>,
    /// What its recorder says of it, if that was nopal.
    pub verdict: Option<Verdict>,
    /// Threads of other pid namespaces.
    pub tasks: TaskTable,
    /// The code of recorded addresses.
    pub code: CodeTable,
    /// Whether nopal made it.
    pub(crate) is_ours: bool,
    pub(crate) is_ctf2: bool,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) packet_header: Option<Scope>,
    pub(crate) streams: Vec<StreamClass>,
}

impl Trace {
    pub fn env_text(&self, key: &str) -> Option<&str> {
        self.env.iter().find_map(|(k, v)| match v {
            EnvValue::Text(text) if k == key => Some(text.as_str()),
            _ => None,
        })
    }

    pub fn env_number(&self, key: &str) -> Option<i128> {
        self.env.iter().find_map(|(k, v)| match v {
            EnvValue::Number(n) if k == key => Some(*n),
            _ => None,
        })
    }
}
