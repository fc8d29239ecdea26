//! What recordings hold, in numbers.

use serde::{Deserialize, Serialize};

/// Of one recording, or of several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Events that a reader finds.
    pub n_events: u64,
    /// Events that are missing, however they were lost.
    pub n_lost: u64,
    pub n_bytes: u64,
    /// Events that went with the oldest files, as their number is limited.
    pub n_let_go: u64,
    /// None of those is later, in nanoseconds since the epoch.
    pub let_go_until_ns: Option<i64>,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.n_events += other.n_events;
        self.n_lost += other.n_lost;
        self.n_bytes += other.n_bytes;
        self.n_let_go += other.n_let_go;
        self.let_go_until_ns = self.let_go_until_ns.max(other.let_go_until_ns);
    }
}
