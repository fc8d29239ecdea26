//! Spans that the user door keeps at the source: what has come together so far, in nanoseconds.

use super::Live;
use crate::selection::Selection;
use nopal_capture::span::{MAX_SPANS, SLOTS};
use nopal_user::consumer::threads_of;
use nopal_user::ring::SpanReading;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// What is known of one span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptSpan {
    pub total_ns: u64,
    /// Of spans directly within, on the same thread.
    pub nested_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    /// A bucket for each value below 64 ns, then 64 for each power of two.
    pub buckets: Vec<u64>,
    /// Ends without a begin.
    pub n_ends: u64,
    /// Begins that were dropped with the span they are a part of.
    pub n_begins: u64,
    /// Of those that count, how many failed.
    pub n_errors: u64,
    pub n_open: u64,
}

/// What is known of all, and what could not be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptSpans {
    pub spans: Vec<KeptSpan>,
    /// Hits of threads for which there was no room.
    pub n_no_room: u64,
    /// Begins and ends that lay too deep in others.
    pub n_too_deep: u64,
}

/// What threads that have ended had open.
#[derive(Debug)]
pub(super) struct EndedSpans {
    n_open: [u64; MAX_SPANS],
    /// Slots whose threads were not found the last time.
    missed: HashSet<u64>,
    last: Instant,
}

impl Default for EndedSpans {
    fn default() -> Self {
        EndedSpans { n_open: [0; MAX_SPANS], missed: HashSet::new(), last: Instant::now() }
    }
}

/// A process that was just forked is known by then.
const SURE: Duration = Duration::from_secs(1);

impl<S: Selection> Live<S> {
    /// Nanoseconds of CLOCK_MONOTONIC at a reading of the counter.
    pub fn ns_at(&self, tsc: u64) -> u64 {
        self.clock.ns(tsc)
    }

    /// How long so many ticks are.
    pub fn ns_of(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.clock.rate())) >> 32).min(u128::from(u64::MAX)) as u64
    }

    fn kept(&self, reading: SpanReading, n_open: u64) -> KeptSpan {
        KeptSpan {
            total_ns: self.ns_of(reading.total),
            nested_ns: self.ns_of(reading.nested),
            min_ns: reading.min.map_or(0, |ticks| self.ns_of(ticks)),
            max_ns: self.ns_of(reading.max),
            buckets: reading.buckets,
            n_ends: reading.n_ends,
            n_begins: reading.n_begins,
            n_errors: reading.n_errors,
            n_open,
        }
    }

    /// The groups of a span that is grouped by a number; a number may be there several times.
    pub fn kept_groups(&self) -> Vec<(u64, KeptSpan)> {
        let Some((session, _)) = &self.user else { return Vec::new() };
        let groups = session.rings().read_groups();
        groups.into_iter().map(|(key, reading)| (key, self.kept(reading, 0))).collect()
    }

    /// What has come together so far of the first `n` spans.
    pub fn kept_spans(&self, n: usize) -> KeptSpans {
        let Some((session, _)) = &self.user else { return KeptSpans::default() };
        let rings = session.rings();
        let open = rings.open_spans();
        let kept = |span: usize| {
            let n_open = open.n_open[span] + self.ended_spans.n_open[span];
            self.kept(rings.read_span(span), n_open)
        };
        KeptSpans {
            spans: (0..n.min(MAX_SPANS)).map(kept).collect(),
            n_no_room: open.n_no_room,
            n_too_deep: open.n_too_deep,
        }
    }

    /// Spans that took no longer need not be reported.
    pub fn raise_span_floor(&self, span: usize, ns: u64) {
        if let Some((session, _)) = &self.user {
            let ticks = (u128::from(ns) << 32) / u128::from(self.clock.rate().max(1));
            // Rounded to nanoseconds, others may be as long.
            let below = (ticks as u64).saturating_sub(4);
            session.rings().raise_span_floor(span, below);
        }
    }

    /// Gives the places of threads that have ended to others, if places are getting few. Call it now and then.
    pub fn free_span_slots(&mut self) {
        let Some((session, _)) = &self.user else { return };
        if self.ended_spans.last.elapsed() < SURE {
            return;
        }
        self.ended_spans.last = Instant::now();
        let rings = session.rings().clone();
        if rings.open_spans().n_threads < SLOTS as usize / 2 {
            return;
        }
        let alive: HashSet<u32> =
            session.processes().iter().flat_map(|traced| threads_of(traced.pid)).collect();
        let ended = &mut self.ended_spans;
        let before = std::mem::take(&mut ended.missed);
        let mut is_alive = |owner: u64| {
            let is_missed = !alive.contains(&(owner as u32));
            if is_missed && !before.contains(&owner) {
                ended.missed.insert(owner);
            }
            !(is_missed && before.contains(&owner))
        };
        rings.free_span_slots(&mut is_alive, &mut ended.n_open);
    }
}
