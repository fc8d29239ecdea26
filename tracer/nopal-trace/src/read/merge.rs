//! The events of all streams in the order of time, and what was lost on the way.

use super::event::{Event, Found};
use super::packet::Packet;
use super::recording::Recording;
use super::report::{Loss, Range, Report};
use super::stream::StreamCursor;
use crate::error::Error;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// All events of a recording in the order of time; memory does not grow with the recording.
#[derive(Debug)]
pub struct Events<'r> {
    recording: &'r Recording,
    cursors: Vec<StreamCursor<'r>>,
    /// Heads of the streams that are not being read from, the earliest first.
    waiting: BinaryHeap<Reverse<(i64, usize)>>,
    heads: Vec<Option<Found>>,
    current: Option<usize>,
    /// Losses that nobody has asked for yet.
    fresh: Vec<Loss>,
}

impl Recording {
    /// The events of the given part of the recording.
    pub fn events(&self, range: Range) -> Result<Events<'_>, Error> {
        let mut opened = Vec::with_capacity(self.streams.len());
        for stream in &self.streams {
            let mut cursor = StreamCursor::open(self, stream, range)?;
            let head = cursor.next()?;
            opened.push((cursor, head));
        }
        // The order of streams decides between events of the same time; babeltrace2 has the same.
        opened.sort_by_cached_key(|(cursor, _)| cursor.rank());
        let (cursors, heads): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let waiting = heads
            .iter()
            .enumerate()
            .filter_map(|(stream, head)| head.map(|found| Reverse((found.ns, stream))))
            .collect();
        let mut events =
            Events { recording: self, cursors, waiting, heads, current: None, fresh: Vec::new() };
        for cursor in &mut events.cursors {
            events.fresh.extend(cursor.fresh.take());
        }
        Ok(events)
    }
}

impl Recording {
    /// When the last packet ends, in nanoseconds since the epoch; nothing if none says so. Reads no events.
    pub fn end_ns(&self) -> Result<Option<i64>, Error> {
        let after_all = Range { from_ns: i64::MAX, to_ns: i64::MAX };
        let mut end = None;
        for stream in &self.streams {
            let mut cursor = StreamCursor::open(self, stream, after_all)?;
            while cursor.next_packet()? {}
            end = end.max(cursor.end_ns());
        }
        Ok(end)
    }
}

impl<'r> Events<'r> {
    /// The next event in time. (Not an iterator: the event borrows from the reader.)
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        let Some((stream, found)) = self.next_found()? else { return Ok(None) };
        let cursor = &self.cursors[stream];
        let (Some(packet), Some(class)) = (&cursor.packet, cursor.class()) else { return Ok(None) };
        Ok(Some(Event { recording: self.recording, stream: class, packet, found }))
    }

    /// The next event in time and its stream, whose packet stays until the next call.
    #[inline]
    pub(crate) fn next_found(&mut self) -> Result<Option<(usize, Found)>, Error> {
        if let Some(last) = self.current {
            let head = self.cursors[last].next()?;
            if let Some(loss) = self.cursors[last].fresh.take() {
                self.fresh.push(loss);
            }
            self.heads[last] = head;
            match (head, self.waiting.peek()) {
                // Ties go to the stream that comes first.
                (Some(found), Some(Reverse(other))) if (found.ns, last) > *other => {
                    self.waiting.push(Reverse((found.ns, last)));
                }
                (Some(found), _) => return Ok(Some((last, found))),
                (None, _) => {}
            }
        }
        self.current = self.waiting.pop().map(|Reverse((_, stream))| stream);
        Ok(self.current.and_then(|stream| Some((stream, self.heads[stream]?))))
    }

    /// Whether there are events that came by nopal's kernel door beside others.
    pub fn has_both_doors(&self) -> bool {
        let has =
            |is_by_kernel| self.cursors.iter().any(|cursor| cursor.is_by_kernel() == Some(is_by_kernel));
        has(true) && has(false)
    }

    /// How much of the streams has been read, from 0 to 1.
    pub fn share(&self) -> f64 {
        let (read, all) = self.cursors.iter().fold((0u64, 0u64), |(read, all), cursor| {
            let (of_this, of_all) = cursor.progress();
            (read.saturating_add(of_this), all.saturating_add(of_all))
        });
        if all == 0 { 1.0 } else { read as f64 / all as f64 }
    }

    /// The losses found since this was last asked. One is found before the first event that is later than its start.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether there are any.
    #[inline]
    pub fn has_losses(&self) -> bool {
        !self.fresh.is_empty()
    }

    pub(crate) fn n_streams(&self) -> usize {
        self.cursors.len()
    }

    pub(crate) fn packet(&self, stream: usize) -> Option<&Arc<Packet>> {
        self.cursors[stream].packet.as_ref()
    }

    pub(crate) fn stream_class(&self, stream: usize) -> Option<&'r super::class::StreamClass> {
        self.cursors[stream].class()
    }

    /// What was lost and what could not be read, of the part read so far.
    pub fn report(&self) -> Report {
        let mut report = self.recording.report();
        for cursor in &self.cursors {
            report.add(&cursor.report);
        }
        let found: Option<Vec<(usize, u64)>> = self.cursors.iter().map(StreamCursor::n_all).collect();
        self.recording.account(found, &mut report.verdict);
        report
    }
}
