//! Triggers that more than one event decides: whoever can pair events watches them for the recorder.

use super::error::SessionError;
use nopal_live::Live;
use std::fmt;

/// Takes the hits of a trigger.
pub trait Watch: fmt::Debug + Send {
    /// The probes it needs.
    fn patterns(&self) -> Vec<String>;

    /// Takes what is in the rings.
    fn poll(&mut self, live: &mut Live) -> Fired;
}

/// What came of a look at the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fired {
    /// How often there was a reason for a snapshot.
    pub n: u64,
    /// Events among which a reason may have been.
    pub n_lost: u64,
}

/// Makes a watch of those triggers that need one, for processes that run. None if no trigger does.
pub type MakeWatch = fn(triggers: &[String], pids: &[u32]) -> Result<Option<Box<dyn Watch>>, SessionError>;

/// Whether a trigger is one that has to be watched: `latency(SPAN) > 10ms`.
pub fn is_watched(text: &str) -> bool {
    text.trim_start().strip_prefix("latency").is_some_and(|rest| rest.trim_start().starts_with('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_begins_with_latency_of_something() {
        assert!(is_watched("latency(query) > 1ms") && is_watched(" latency (a, b)>1"));
        assert!(!is_watched("app:latency if us > 3") && !is_watched("latency:x"));
    }
}
