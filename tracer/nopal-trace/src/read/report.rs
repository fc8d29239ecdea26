//! What reading a recording found out beside the events: losses, and what could not be read.

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
    /// What the recorder says, and what reading found to be missing: all of it counted.
    pub verdict: Verdict,
    /// The first losses, in the order of time.
    pub losses: Vec<Loss>,
    pub n_losses: u64,
    /// A stream ends in the middle of a packet: the recorder was cut short.
    pub is_truncated: bool,
}

/// Losses that are listed one by one.
const MAX_LISTED: usize = 256;

impl Report {
    pub(crate) fn lose(&mut self, loss: Loss) {
        if loss.is_packets {
            self.verdict.n_lost_packets = self.verdict.n_lost_packets.saturating_add(loss.count);
            self.verdict.lose(0, loss.from_ns, loss.to_ns);
        } else {
            self.verdict.lose(loss.count, loss.from_ns, loss.to_ns);
        }
        self.n_losses += 1;
        if self.losses.len() < MAX_LISTED {
            self.losses.push(loss);
        }
    }

    /// Adds what another stream found.
    pub fn add(&mut self, other: &Report) {
        self.verdict.add(&other.verdict);
        self.n_losses += other.n_losses;
        self.losses.extend_from_slice(&other.losses);
        self.losses.sort_by_key(|l| (l.from_ns, l.to_ns));
        self.losses.truncate(MAX_LISTED);
        self.is_truncated |= other.is_truncated;
    }
}
