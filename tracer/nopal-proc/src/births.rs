//! Processes that come while something is done to their parents. A child is a copy of what its parent was some moments
//! before it can be seen, so that it is waited for a while.

use super::process::processes;
use super::tree::last_number;

/// More numbers than these are not looked at one by one.
const MAX_NUMBERS: u32 = 4096;

/// The processes that were born since a moment.
#[derive(Debug)]
pub struct Births {
    /// The last number that had been given out; nothing where the kernel does not say.
    since: Option<u32>,
}

impl Births {
    pub fn from_now_on() -> Births {
        Births { since: last_number() }
    }

    /// All that may have been born since; more than those, where numbers began again or are not known.
    pub fn so_far(&self) -> Vec<u32> {
        let all = || processes().into_iter().map(|process| process.pid).collect();
        match (self.since, last_number()) {
            (Some(since), Some(last)) if last >= since && last - since <= MAX_NUMBERS => {
                (since + 1..=last).collect()
            }
            _ => all(),
        }
    }
}
