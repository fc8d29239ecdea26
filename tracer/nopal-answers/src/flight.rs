//! A flight recorder: keeps the newest hits in memory and hands those around a slow span to a recording.

use crate::ordered::Ordered;
use crate::trigger::Watched;
use nopal_capture::{Hit, Loss};
use nopal_live::registry::Registry;
use nopal_live::{Consumer, Live};
use nopal_trace::Error;
use std::collections::VecDeque;
use std::ops::Range;

/// Where what is worth keeping goes.
pub trait Recording {
    fn hit(&mut self, registry: &Registry, hit: Hit<'_>) -> Result<(), Error>;

    fn loss(&mut self, loss: &Loss) -> Result<(), Error>;

    /// Hits that could not be read.
    fn damaged(&mut self, n: u64);
}

/// Hits that wait for what comes of them.
#[derive(Debug)]
pub struct Flight {
    ordered: Ordered,
    watched: Watched,
    kept: Kept,
    before_ns: u64,
    after_ns: u64,
    /// What is wanted, in CLOCK_MONOTONIC: rising, and they do not touch.
    windows: VecDeque<Range<u64>>,
    epoch_offset_ns: i64,
    /// Spans that were too slow.
    pub n_slow: u64,
}

#[derive(Debug, Default)]
struct Kept {
    queue: VecDeque<Item>,
    n_bytes: usize,
    /// Hits that had to go before their time was up.
    n_dropped: u64,
}

/// A hit or a loss, in the order of its stream.
#[derive(Debug)]
enum Item {
    Hit { hit: Hit<'static>, payload: Box<[u8]> },
    Loss(Loss),
}

impl Item {
    fn ns(&self) -> u64 {
        match self {
            Item::Hit { hit, .. } => hit.ns,
            Item::Loss(loss) => loss.first_ns,
        }
    }

    fn bytes(&self) -> usize {
        let payload = if let Item::Hit { payload, .. } = self { payload.len() } else { 0 };
        size_of::<Item>() + payload
    }
}

/// Two streams that are read in one go are not further apart than this.
const SKEW_NS: u64 = 60_000_000_000;
/// What waits in memory at most.
const MAX_BYTES: usize = 512 << 20;

impl Consumer<Registry> for Kept {
    fn hit(&mut self, _: &Registry, hit: &Hit<'_>) {
        let Hit { stream, event, ns, task, payload } = *hit;
        self.push(Item::Hit { hit: Hit { stream, event, ns, task, payload: &[] }, payload: payload.into() });
    }

    fn loss(&mut self, loss: &Loss) {
        self.push(Item::Loss(*loss));
    }
}

impl Kept {
    fn push(&mut self, item: Item) {
        self.n_bytes += item.bytes();
        self.queue.push_back(item);
        while self.n_bytes > MAX_BYTES
            && let Some(oldest) = self.pop()
        {
            self.n_dropped += u64::from(matches!(oldest, Item::Hit { .. }));
        }
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        self.n_bytes -= item.bytes();
        Some(item)
    }
}

impl Flight {
    /// Hits count from `before_ns` before the end of a slow span to `after_ns` after it.
    pub fn new(watched: Watched, before_ns: u64, after_ns: u64) -> Flight {
        Flight {
            ordered: Ordered::default(),
            watched,
            kept: Kept::default(),
            before_ns,
            after_ns,
            windows: VecDeque::new(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            n_slow: 0,
        }
    }

    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Hits that memory had no room for although their time was not up.
    pub fn n_dropped(&self) -> u64 {
        self.kept.n_dropped
    }

    /// Takes what is in the rings, and writes what a slow span makes worth it. Gives how many hits there were.
    pub fn pass(
        &mut self,
        live: &mut Live,
        recorder: &mut impl Recording,
        is_last: bool,
    ) -> Result<u64, Error> {
        let polled = self.ordered.poll_beside(live, &mut self.watched, is_last, &mut self.kept);
        recorder.damaged(polled.n_damaged);
        for end_ns in self.watched.take_ends() {
            self.n_slow += 1;
            let end_ns = end_ns.saturating_sub(self.epoch_offset_ns).max(0) as u64;
            let after_ns = self.after_ns.saturating_add(1);
            // With the event that ended it.
            let wanted = end_ns.saturating_sub(self.before_ns)..end_ns.saturating_add(after_ns);
            match self.windows.back_mut() {
                Some(last) if wanted.start <= last.end => last.end = last.end.max(wanted.end),
                _ => self.windows.push_back(wanted),
            }
        }
        let reached_ns = match is_last {
            true => u64::MAX,
            false => self.ordered.reached_ns.saturating_sub(self.epoch_offset_ns).max(0) as u64,
        };
        self.write(live, recorder, reached_ns)?;
        Ok(polled.n_hits)
    }

    /// Writes what is wanted and drops what no span can make wanted any more.
    fn write(&mut self, live: &Live, recorder: &mut impl Recording, reached_ns: u64) -> Result<(), Error> {
        let registry = live.registry();
        let too_old_ns =
            if reached_ns == u64::MAX { u64::MAX } else { reached_ns.saturating_sub(self.before_ns) };
        while let Some(item) = self.kept.queue.front() {
            let ns = item.ns();
            let at = self.windows.partition_point(|window| window.end <= ns);
            let is_wanted = self.windows.get(at).is_some_and(|window| window.contains(&ns));
            if !is_wanted && ns >= too_old_ns {
                break;
            }
            match self.kept.pop() {
                Some(Item::Hit { hit, payload }) if is_wanted => {
                    recorder.hit(&registry, Hit { payload: &payload, ..hit })?;
                }
                // What was lost may have been a slow span: it is told, wherever it was.
                Some(Item::Loss(loss)) => recorder.loss(&loss)?,
                Some(Item::Hit { .. }) | None => {}
            }
        }
        // Streams are read one after the other, so that what waits may be a little older than what has gone.
        while self.windows.front().is_some_and(|window| window.end.saturating_add(SKEW_NS) < too_old_ns) {
            self.windows.pop_front();
        }
        Ok(())
    }
}
