//! What stubs have gathered of spans, over all CPUs. Whoever has the memory may have written anything there: numbers are read
//! one by one, and only ever added up.

use super::RingMemory;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use nopal_capture::span::{
    BLOCK_BYTES, FRAME_SHIFT, Frame, GROUP_IS_READY, Group, HEADER_BYTES, MAX_DEPTH, MAX_GROUPS, MAX_SPANS,
    N_BUCKETS, N_PROBED, SLOT_SHIFT, SpanBlock, SpanHeader, SpanTop, ThreadSlot,
};

/// What is known of one span, in ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanReading {
    pub total: u64,
    pub nested: u64,
    pub max: u64,
    /// Nothing if no span has ended.
    pub min: Option<u64>,
    /// As drawn in [`nopal_capture::span`].
    pub buckets: Vec<u64>,
    pub n_ends: u64,
    pub n_begins: u64,
    pub n_errors: u64,
}

/// What is open, and what could not be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSpans {
    /// By span.
    pub n_open: [u64; MAX_SPANS],
    pub n_no_room: u64,
    pub n_too_deep: u64,
    /// Slots that have a thread.
    pub n_threads: usize,
}

impl Default for SpanReading {
    fn default() -> Self {
        SpanReading {
            total: 0,
            nested: 0,
            max: 0,
            min: None,
            buckets: vec![0; N_BUCKETS],
            n_ends: 0,
            n_begins: 0,
            n_errors: 0,
        }
    }
}

impl Default for OpenSpans {
    fn default() -> Self {
        OpenSpans { n_open: [0; MAX_SPANS], n_no_room: 0, n_too_deep: 0, n_threads: 0 }
    }
}

impl SpanReading {
    /// Adds what another ring has.
    pub fn merge(&mut self, other: &SpanReading) {
        self.total = self.total.wrapping_add(other.total);
        self.nested = self.nested.wrapping_add(other.nested);
        self.max = self.max.max(other.max);
        self.min = self.min.into_iter().chain(other.min).min();
        for (ours, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *ours = ours.wrapping_add(*theirs);
        }
        self.n_ends = self.n_ends.wrapping_add(other.n_ends);
        self.n_begins = self.n_begins.wrapping_add(other.n_begins);
        self.n_errors = self.n_errors.wrapping_add(other.n_errors);
    }
}

impl OpenSpans {
    /// Adds what another ring has.
    pub fn merge(&mut self, other: &OpenSpans) {
        for (ours, theirs) in self.n_open.iter_mut().zip(other.n_open) {
            *ours += theirs;
        }
        self.n_no_room = self.n_no_room.wrapping_add(other.n_no_room);
        self.n_too_deep = self.n_too_deep.wrapping_add(other.n_too_deep);
        self.n_threads += other.n_threads;
    }
}

impl RingMemory {
    /// A word of the table of spans.
    fn span_word(&self, offset: usize) -> &AtomicU64 {
        let at = self.layout.spans_offset + offset as u64;
        assert!(at + 8 <= self.layout.total_bytes && at.is_multiple_of(8), "callers stay inside the table");
        // SAFETY: inside the mapping, which has total_bytes, and aligned; others only ever see it as atomics or raw bytes.
        unsafe { &*self.mapping.start().add(at as usize).cast::<AtomicU64>() }
    }

    fn top_word(&self, span: usize, offset: usize) -> &AtomicU64 {
        assert!(span < MAX_SPANS, "a span of the table");
        self.span_word(offset_of!(SpanHeader, spans) + span * size_of::<SpanTop>() + offset)
    }

    fn has_spans(&self) -> bool {
        self.layout.span_slots != 0
    }

    /// How many nanoseconds a tick has, in units of 2^-32.
    pub fn set_span_rate(&self, rate: u64) {
        if self.has_spans() {
            self.span_word(offset_of!(SpanHeader, rate)).store(rate, Ordering::Release);
        }
    }

    /// Spans that took no longer than these ticks need not be reported.
    pub fn raise_span_floor(&self, span: usize, ticks: u64) {
        if self.has_spans() && span < MAX_SPANS {
            self.top_word(span, offset_of!(SpanTop, floor)).fetch_max(ticks, Ordering::AcqRel);
        }
    }

    /// What all CPUs together have gathered of a span so far.
    pub fn read_span(&self, span: usize) -> SpanReading {
        let mut reading = SpanReading::default();
        let (block, stride) = (span * BLOCK_BYTES as usize, self.layout.cells_stride as usize);
        if !self.has_spans() || span >= MAX_SPANS || block + BLOCK_BYTES as usize > stride {
            return reading;
        }
        for cpu in 0..2 * u64::from(self.layout.n_cpus) {
            let word = |offset: usize| {
                let at = self.layout.cells_offset as usize + cpu as usize * stride + block + offset;
                // SAFETY: inside the block of this CPU by the check above, 8-aligned as all its parts are.
                unsafe { &*self.mapping.start().add(at).cast::<AtomicU64>() }.load(Ordering::Relaxed)
            };
            for (bucket, count) in reading.buckets.iter_mut().enumerate() {
                *count = count.wrapping_add(word(offset_of!(SpanBlock, buckets) + 8 * bucket));
            }
        }
        for slot in self.slots() {
            let word = |offset: usize| self.span_word(slot + offset + 8 * span).load(Ordering::Relaxed);
            reading.total = reading.total.wrapping_add(word(offset_of!(ThreadSlot, totals)));
            reading.nested = reading.nested.wrapping_add(word(offset_of!(ThreadSlot, nested)));
        }
        let top = |offset: usize| self.top_word(span, offset).load(Ordering::Relaxed);
        reading.max = top(offset_of!(SpanTop, max));
        reading.min = Some(top(offset_of!(SpanTop, least))).filter(|least| *least != 0).map(|least| !least);
        reading.n_ends = top(offset_of!(SpanTop, n_ends));
        reading.n_begins = top(offset_of!(SpanTop, n_begins));
        reading.n_errors = top(offset_of!(SpanTop, n_errors));
        reading
    }

    /// The groups of a span that is grouped by a number, with what they have gathered. A number may be there twice.
    pub fn read_groups(&self) -> Vec<(u64, SpanReading)> {
        if !self.has_spans() {
            return Vec::new();
        }
        let group = |at: usize| {
            let entry = offset_of!(SpanHeader, groups) + at * size_of::<Group>();
            let word = |offset: usize| self.span_word(entry + offset).load(Ordering::Acquire);
            let is_ready = word(offset_of!(Group, state)) == GROUP_IS_READY;
            is_ready.then(|| (word(offset_of!(Group, key)), self.read_span(at + 1)))
        };
        (0..MAX_GROUPS).filter_map(group).collect()
    }

    /// What threads have open, those that have ended among them.
    pub fn open_spans(&self) -> OpenSpans {
        let mut open = OpenSpans::default();
        if !self.has_spans() {
            return open;
        }
        let word = |offset: usize| self.span_word(offset).load(Ordering::Relaxed);
        open.n_no_room = word(offset_of!(SpanHeader, n_no_room));
        open.n_too_deep = word(offset_of!(SpanHeader, n_too_deep));
        for slot in self.slots() {
            if word(slot + offset_of!(ThreadSlot, owner)) != 0 {
                open.n_threads += 1;
                self.count_frames(slot, &mut open.n_open);
            }
        }
        open
    }

    /// Gives the slots of threads that have ended to others. `is_alive` gets the slot's owner, with the number that a thread has
    /// of itself in the low half. What they had open is added to `n_open`.
    pub fn free_slots(&self, mut is_alive: impl FnMut(u64) -> bool, n_open: &mut [u64; MAX_SPANS]) {
        if !self.has_spans() {
            return;
        }
        for slot in self.slots() {
            let owner = self.span_word(slot + offset_of!(ThreadSlot, owner));
            let now = owner.load(Ordering::Acquire);
            if now == 0 || is_alive(now) {
                continue;
            }
            let depth = self.count_frames(slot, n_open);
            // The sums stay: whoever is next adds to them.
            for offset in (8..offset_of!(ThreadSlot, totals)).step_by(8) {
                self.span_word(slot + offset).store(0, Ordering::Relaxed);
            }
            // Beyond, nothing is open.
            for frame in 0..depth {
                let start = slot + offset_of!(ThreadSlot, frames) + (frame << FRAME_SHIFT);
                self.span_word(start).store(0, Ordering::Relaxed);
            }
            owner.store(0, Ordering::Release);
        }
    }

    /// Where each slot is in the table.
    fn slots(&self) -> impl Iterator<Item = usize> {
        (0..self.layout.span_slots as usize + N_PROBED).map(|slot| HEADER_BYTES + (slot << SLOT_SHIFT))
    }

    /// Adds what is open in a slot, and says how many frames it has.
    fn count_frames(&self, slot: usize, n_open: &mut [u64; MAX_SPANS]) -> usize {
        let word = |offset: usize| self.span_word(slot + offset).load(Ordering::Relaxed);
        let depth = word(offset_of!(ThreadSlot, depth)).min(MAX_DEPTH as u64) as usize;
        for frame in 0..depth {
            let at = offset_of!(ThreadSlot, frames) + (frame << FRAME_SHIFT);
            let is_open = word(at + offset_of!(Frame, start)) != 0;
            let span = (word(at + offset_of!(Frame, nested)) >> 56) as usize;
            if let Some(count) = n_open.get_mut(span).filter(|_| is_open) {
                *count += 1;
            }
        }
        depth
    }
}
