//! Events without an order between streams: each stream is one worker's, and workers run side by side.

use super::event::Event;
use super::files::StreamFiles;
use super::recording::Recording;
use super::report::{Range, Report};
use super::stream::{Rank, StreamCursor};
use crate::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a stream that was gone through says of itself: its place among the others, what is missing, its events.
type Ended = (Rank, Report, Option<(usize, u64)>);

impl Recording {
    /// Gives every event of a part of the recording to one of `workers`, until `each` returns false. Those of one stream come to one
    /// worker in their order. The report is that of [`Recording::events`] read to its end.
    pub fn visit<W: Send>(
        &self,
        range: Range,
        workers: &mut [W],
        each: impl Fn(&mut W, &Event<'_>) -> bool + Sync,
    ) -> Result<Report, Error> {
        let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let one = |worker: &mut W, stream: &StreamFiles| -> Result<Ended, Error> {
            let mut cursor = StreamCursor::open(self, stream, range)?;
            let rank = cursor.for_each(|event| {
                if !each(worker, event) {
                    is_stopped.store(true, Ordering::Relaxed);
                }
                !is_stopped.load(Ordering::Relaxed)
            })?;
            Ok((rank, std::mem::take(&mut cursor.report), cursor.n_all()))
        };
        let work = |worker: &mut W| {
            let mut ended = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(stream) = self.streams.get(at) else { return ended };
                ended.push((at, one(worker, stream)));
            }
        };
        let parts: Vec<Vec<(usize, Result<Ended, Error>)>> = std::thread::scope(|scope| {
            let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut all: Vec<(usize, Result<Ended, Error>)> = parts.into_iter().flatten().collect();
        all.sort_by_key(|(at, _)| *at);
        // Of several streams that cannot be read, the first tells why.
        let mut ended = all.into_iter().map(|(_, ended)| ended).collect::<Result<Vec<Ended>, Error>>()?;
        ended.sort_by_key(|(rank, ..)| *rank);
        let mut report = self.report();
        ended.iter().for_each(|(_, of_stream, _)| report.add(of_stream));
        let found: Option<Vec<(usize, u64)>> = ended.into_iter().map(|(_, _, n_all)| n_all).collect();
        self.account(found, &mut report.verdict);
        Ok(report)
    }

    /// How many workers are of use.
    pub fn n_workers(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from).min(self.streams.len()).max(1)
    }
}
