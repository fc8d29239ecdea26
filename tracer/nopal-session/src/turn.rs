//! Whose a hit is while a channel is opened anew beside the old one, so that both see it.
//!
//! No moment divides the hits: each channel takes the time of a hit by itself, and a thread may be held up between the two.
//! But a hit comes to the newer channel first, and a thread has one hit at a time. So the old channel keeps whatever it saw
//! until it was closed, and of each thread the new one has what came after the thread's last hit there.

use nopal_live::Hit;
use std::collections::HashMap;

/// The last hits of the channel before. There may be none.
#[derive(Debug, Default)]
pub struct Turn {
    last_ns: HashMap<u32, u64>,
    /// The latest of them all.
    until_ns: u64,
}

impl Turn {
    /// The old channel has it.
    pub(crate) fn note(&mut self, hit: &Hit<'_>) {
        let last_ns = self.last_ns.entry(hit.task.tid).or_default();
        *last_ns = hit.ns.max(*last_ns);
        self.until_ns = hit.ns.max(self.until_ns);
    }

    /// Whether it is the new channel's.
    #[inline]
    pub(crate) fn takes(&self, hit: &Hit<'_>) -> bool {
        self.is_over(hit.ns) || self.last_ns.get(&hit.task.tid).is_none_or(|last_ns| hit.ns > *last_ns)
    }

    /// Whether everything is the new channel's by then.
    #[inline]
    pub(crate) fn is_over(&self, ns: u64) -> bool {
        ns > self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_capture::Task;
    use nopal_live::{StreamId, StreamKind};

    fn hit(tid: u32, ns: u64) -> Hit<'static> {
        let stream = StreamId { ring: 0, cpu: 0, kind: StreamKind::Rseq };
        Hit { stream, event: 0, ns, task: Task { pid: 1, tid }, payload: &[] }
    }

    /// Hits as (thread, time at the new channel, time at the old one): some only one of them saw.
    #[test]
    fn each_hit_has_one_owner() {
        let hits = [
            (1, None, Some(10)),     // before the new channel was there
            (1, Some(20), Some(21)), // both saw it
            (2, Some(22), Some(90)), // held up in between
            (1, Some(30), Some(31)),
            (3, None, Some(95)), // held up since before the new channel was there
            (1, Some(40), None), // held up until the old one was closed
            (4, Some(41), None),
            (2, Some(91), None),
            (3, Some(96), None),
            (1, Some(50), None),
        ];
        let mut turn = Turn::default();
        hits.iter().for_each(|(tid, _, old)| old.iter().for_each(|ns| turn.note(&hit(*tid, *ns))));
        for (tid, new, old) in hits {
            let n_owners =
                u32::from(old.is_some()) + u32::from(new.is_some_and(|ns| turn.takes(&hit(tid, ns))));
            assert_eq!(n_owners, 1, "the hit of thread {tid} at {new:?} and {old:?}");
        }
        assert!(!turn.is_over(95) && turn.is_over(96));
    }

    #[test]
    fn a_channel_with_none_before_it_has_everything() {
        let turn = Turn::default();
        assert!(turn.takes(&hit(1, 1)) && turn.is_over(1));
    }
}
