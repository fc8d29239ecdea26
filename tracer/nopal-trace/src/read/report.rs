//! What reading a recording found out beside the events: losses, and what could not be read.

use crate::note::Note;
use crate::verdict::Verdict;

/// The part of a recording to be read, in nanoseconds since the epoch, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from_ns: i64,
    pub to_ns: i64,
}

impl Default for Range {
    fn default() -> Self {
        Range { from_ns: i64::MIN, to_ns: i64::MAX }
    }
}

/// Events (or whole packets of them) that the tracer could not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub count: u64,
    /// Packets were overwritten; how many events they held is not known.
    pub is_packets: bool,
    pub from_ns: i64,
    pub to_ns: i64,
    pub cpu: Option<u64>,
}

/// What reading found out beside the events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub lost_events: u64,
    pub lost_packets: u64,
    /// The first gaps, in the order of time; the sums above count all of them.
    pub losses: Vec<Loss>,
    pub n_gaps: u64,
    pub notes: Vec<Note>,
    /// A stream ends in the middle of a packet: the recorder was cut short.
    pub is_truncated: bool,
    /// Events that were written and are not there any more, as far as the recorder said how many it wrote and all was
    /// read.
    pub n_missing: u64,
    /// What the recorder says.
    pub verdict: Verdict,
}

/// Gaps that are listed one by one.
const MAX_LISTED: usize = 256;

impl Report {
    pub fn is_complete(&self) -> bool {
        self.lost_events == 0
            && self.lost_packets == 0
            && self.n_missing == 0
            && self.notes.is_empty()
            && self.verdict.is_complete()
    }

    /// Events that are known to be missing, those a stream tells of and the others.
    pub fn n_lost(&self) -> u64 {
        self.lost_events.saturating_add(self.verdict.n_lost()).saturating_add(self.n_missing)
    }

    pub(crate) fn lose(&mut self, loss: Loss) {
        if loss.is_packets {
            self.lost_packets = self.lost_packets.saturating_add(loss.count);
        } else {
            self.lost_events = self.lost_events.saturating_add(loss.count);
        }
        self.n_gaps += 1;
        if self.losses.len() < MAX_LISTED {
            self.losses.push(loss);
        }
    }

    /// Adds what another stream found.
    pub fn add(&mut self, other: &Report) {
        self.lost_events = self.lost_events.saturating_add(other.lost_events);
        self.lost_packets = self.lost_packets.saturating_add(other.lost_packets);
        self.n_gaps += other.n_gaps;
        self.losses.extend_from_slice(&other.losses);
        self.losses.sort_by_key(|l| (l.from_ns, l.to_ns));
        self.losses.truncate(MAX_LISTED);
        self.notes.extend_from_slice(&other.notes);
        self.is_truncated |= other.is_truncated;
        self.n_missing = self.n_missing.saturating_add(other.n_missing);
    }
}
