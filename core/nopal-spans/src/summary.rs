//! What many spans add up to.

use crate::histogram::Histogram;

/// Spans of one group.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    pub errors: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub durations: Histogram,
}

impl Summary {
    #[inline]
    pub fn add(&mut self, duration_ns: u64, self_ns: u64, is_error: bool) {
        self.errors += u64::from(is_error);
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.self_ns = self.self_ns.saturating_add(self_ns);
        self.durations.add(duration_ns);
    }

    pub fn merge(&mut self, other: &Summary) {
        self.errors += other.errors;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.self_ns = self.self_ns.saturating_add(other.self_ns);
        self.durations.merge(&other.durations);
    }

    pub fn count(&self) -> u64 {
        self.durations.count()
    }
}
