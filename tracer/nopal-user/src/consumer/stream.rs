//! One ring, from the reader's side: what is committed, what was lost, what was left by threads that died.

use super::{Gap, Polled, Source};
use crate::ring::{RingMemory, Set, time_stamp};
use core::sync::atomic::{AtomicU64, Ordering};
use nopal_abi::record::{self, flags};
use nopal_abi::ring::RingState;
use nopal_capture::record::{Parsed, RecordView};
use std::time::{Duration, Instant};

/// A record that stays uncommitted this long may have been left by a thread that died.
pub(super) const STALL: Duration = Duration::from_secs(1);
/// And is taken to have been, when nobody can tell.
const LONG_STALL: Duration = Duration::from_secs(30);

/// More than this nobody loses between two readings.
const MOST_LOST: u64 = 1 << 48;

/// How long a reader waits for records that are not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until their writer is known to be dead for a while.
    Usual,
    /// No new hit comes: only for writers that live.
    Last,
    /// For nobody.
    Over,
}

/// Tells whether the thread with this number lives; 0: whether any does.
pub(super) type Liveness = Box<dyn FnMut(u32) -> bool + Send>;

/// One ring, from the reader's side.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) set: Set,
    pub(super) cpu: u32,
    /// Bytes ever read.
    pub(super) position: u64,
    lost_seen: u64,
    /// No loss that is not told yet was before this.
    told_until: u64,
    /// A place where nothing was committed, since when.
    stalled: Option<(u64, Instant)>,
    /// The newest time that was read.
    pub(super) newest: u64,
}

impl Stream {
    /// Starts at what has not been read yet.
    pub(super) fn new(memory: &RingMemory, set: Set, cpu: u32) -> Stream {
        Stream {
            set,
            cpu,
            position: memory.state(set, cpu).tail.load(Ordering::Relaxed),
            lost_seen: 0,
            told_until: 0,
            stalled: None,
            newest: memory.made_at(),
        }
    }

    /// What the writers counted as lost since the last time.
    pub(super) fn lost(&mut self, state: &RingState, now: u64, polled: &mut Polled) -> Option<Gap> {
        // A writer counts and then says when: what is not counted now says when afterwards.
        let until = state.lost_last.load(Ordering::Acquire).min(now);
        let lost = state.lost.load(Ordering::Acquire);
        let count = lost.wrapping_sub(self.lost_seen);
        if count == 0 {
            return None;
        }
        self.lost_seen = lost;
        if count > MOST_LOST {
            polled.damaged += 1;
            return None;
        }
        let first = match state.lost_first.swap(0, Ordering::AcqRel) {
            0 => self.told_until,
            first => first.min(now),
        };
        let last = state.lost_last.load(Ordering::Acquire).min(now).max(first);
        self.told_until = if until == 0 { first } else { until };
        if first == 0 {
            // Writers that must not read the time, or have not said it yet: it was before now.
            let now = time_stamp();
            return Some(Gap { cpu: self.cpu, set: self.set, count, first: now, last: now });
        }
        Some(Gap { cpu: self.cpu, set: self.set, count, first, last })
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn drain(
        &mut self,
        memory: &RingMemory,
        head: u64,
        patience: Patience,
        copy: &mut Vec<u8>,
        is_alive: &mut Option<Liveness>,
        polled: &mut Polled,
        each: &mut impl FnMut(Source, RecordView<'_>),
    ) {
        let state = memory.state(self.set, self.cpu);
        let (ring, ring_bytes) = memory.ring(self.set, self.cpu);
        let sub_bytes = 1u64 << memory.layout().geometry(self.set).sub_shift;
        let ahead = head.wrapping_sub(self.position);
        if ahead == 0 {
            return;
        }
        if ahead > ring_bytes as u64 || !head.is_multiple_of(record::UNIT_BYTES.into()) {
            // No writer of ours does this. What lies between cannot be told from rubbish; go on from where head is.
            polled.damaged += 1;
            self.position = head & !u64::from(record::UNIT_BYTES - 1);
            if self.set == Set::Locked {
                // Old headers would be taken for new records.
                // SAFETY: the whole ring, which is mapped. A writer that is inside loses its record to us.
                unsafe { ring.write_bytes(0, ring_bytes) };
            }
            state.tail.store(self.position, Ordering::Release);
            return;
        }
        while self.position < head {
            let sub_end = (self.position / sub_bytes + 1).saturating_mul(sub_bytes);
            let end = sub_end.min(head);
            let ready = match self.set {
                Set::Rseq => end,
                Set::Locked => self.committed(ring, ring_bytes, end),
            };
            let mut damaged = false;
            if ready > self.position {
                copy_out(ring, ring_bytes, self.position, ready, copy);
                let (used, is_whole) =
                    deliver(copy, Source { ring: 0, cpu: self.cpu, set: self.set }, polled, each);
                polled.bytes += used as u64;
                damaged = !is_whole;
            }
            let next = if damaged {
                polled.damaged += 1;
                end
            } else if ready < end {
                match self.give_up(ring, ring_bytes, ready..end, patience, is_alive, polled) {
                    Some(next) => next,
                    None => {
                        self.free(state, ring, ring_bytes, ready);
                        return;
                    }
                }
            } else {
                ready
            };
            self.free(state, ring, ring_bytes, next);
        }
    }

    /// Up to where the records of a locked ring are committed; `end` is in the sub-buffer of the position.
    fn committed(&self, ring: *mut u8, ring_bytes: usize, end: u64) -> u64 {
        let mut at = self.position;
        while at < end {
            let word = header_word(ring, ring_bytes, at) as u32;
            let size = u64::from(word & record::SIZE_MASK);
            // Zero: reserved, and not even the header has been written.
            if word == 0 || word & flags::BUSY != 0 {
                return at;
            }
            if size < 8 || size > end - at || !size.is_multiple_of(8) {
                return end; // Rubbish, which the parser will find again in the copy.
            }
            at += size;
        }
        at
    }

    /// Decides about an uncommitted record where `rest` of its sub-buffer begins: where to go on, or `None` to wait for its
    /// writer.
    fn give_up(
        &mut self,
        ring: *mut u8,
        ring_bytes: usize,
        rest: std::ops::Range<u64>,
        patience: Patience,
        is_alive: &mut Option<Liveness>,
        polled: &mut Polled,
    ) -> Option<u64> {
        let at = rest.start;
        let since = match self.stalled {
            Some((place, since)) if place == at => since,
            _ => {
                self.stalled = Some((at, Instant::now()));
                Instant::now()
            }
        };
        if patience == Patience::Usual && since.elapsed() < STALL {
            return None;
        }
        let header = header_word(ring, ring_bytes, at);
        let mut probe = vec![0; (rest.end - at) as usize];
        probe[..8].copy_from_slice(&header.to_le_bytes());
        let (tid, next) = match RecordView::parse(&probe) {
            // Nothing was stored but the head, so all of the record is zeros, and what is not belongs to the next one.
            _ if header == 0 => (0, next_header(ring, ring_bytes, rest)),
            Parsed::Busy { tid, bytes } => (tid, at + bytes as u64),
            // Committed meanwhile.
            Parsed::Record(..) | Parsed::Padding(_) => {
                self.stalled = None;
                return None;
            }
            Parsed::Damaged => {
                self.stalled = None;
                polled.damaged += 1;
                return Some(rest.end);
            }
        };
        let lives = is_alive.as_mut().map(|is_alive| is_alive(tid));
        let must_wait = match (patience, lives) {
            (Patience::Over, _) | (_, Some(false)) => false,
            (Patience::Last, _) => true,
            (Patience::Usual, Some(true)) if tid != 0 => {
                // Not asked again before another second.
                self.stalled = Some((at, Instant::now()));
                true
            }
            // Whose it is is not known.
            (Patience::Usual, _) => since.elapsed() < LONG_STALL,
        };
        if must_wait {
            return None;
        }
        self.stalled = None;
        polled.abandoned += 1;
        Some(next)
    }

    /// Moves position and tail; a locked ring is zeroed first, so that the next lap begins without headers.
    fn free(&mut self, state: &RingState, ring: *mut u8, ring_bytes: usize, until: u64) {
        if self.set == Set::Locked {
            let mut at = self.position;
            while at < until && until - self.position <= ring_bytes as u64 {
                let offset = (at % ring_bytes as u64) as usize;
                let len = (until - at).min((ring_bytes - offset) as u64) as usize;
                // SAFETY: inside the ring; the tail has not passed this range, so no writer can have reserved it.
                unsafe { ring.add(offset).write_bytes(0, len) };
                at += len as u64;
            }
        }
        self.position = until;
        state.tail.store(until, Ordering::Release);
    }
}

/// The 8 bytes at a position that is a multiple of 8.
fn header_word(ring: *mut u8, ring_bytes: usize, at: u64) -> u64 {
    let offset = (at % ring_bytes as u64) as usize & !7;
    // SAFETY: inside the ring, 8-aligned as the ring is page-aligned.
    unsafe { AtomicU64::from_ptr(ring.add(offset).cast()) }.load(Ordering::Acquire)
}

/// Where in a range, which begins with a header of zeros, something else than zeros begins; its end if nowhere.
fn next_header(ring: *mut u8, ring_bytes: usize, range: std::ops::Range<u64>) -> u64 {
    let end = range.end;
    range.step_by(8).find(|at| header_word(ring, ring_bytes, *at) != 0).unwrap_or(end)
}

/// Copies a range that lies in one sub-buffer.
fn copy_out(ring: *mut u8, ring_bytes: usize, from: u64, to: u64, copy: &mut Vec<u8>) {
    let offset = (from % ring_bytes as u64) as usize;
    let len = ((to - from) as usize).min(ring_bytes - offset);
    copy.clear();
    copy.reserve(len);
    // SAFETY: the range is inside the ring and the copy has room for it. Another process may be writing to it: then we get
    // some bytes or others, and check them as we check all of them.
    unsafe {
        std::ptr::copy_nonoverlapping(ring.add(offset), copy.as_mut_ptr(), len);
        copy.set_len(len);
    }
}

/// Hands out the records of a copied range. Gives the bytes that made sense and whether those were all.
fn deliver(
    bytes: &[u8],
    source: Source,
    polled: &mut Polled,
    each: &mut impl FnMut(Source, RecordView<'_>),
) -> (usize, bool) {
    let mut at = 0;
    while at < bytes.len() {
        match RecordView::parse(&bytes[at..]) {
            Parsed::Record(view, size) => {
                polled.records += 1;
                each(source, view);
                at += size;
            }
            Parsed::Padding(size) => at += size,
            Parsed::Busy { .. } | Parsed::Damaged => return (at, false),
        }
    }
    (at, true)
}

/// Hands out what a ring that is written over holds.
pub(super) fn snapshot_ring(
    memory: &RingMemory,
    cpu: u32,
    copy: &mut Vec<u8>,
    polled: &mut Polled,
    each: &mut impl FnMut(Source, RecordView<'_>),
) {
    let layout = memory.layout();
    let state = memory.state(Set::Rseq, cpu);
    let (ring, ring_bytes) = memory.ring(Set::Rseq, cpu);
    let sub_bytes = 1u64 << layout.rseq.sub_shift;
    let n_subs = ring_bytes as u64 / sub_bytes;
    // A writer that has not committed may have scribbled up to the longest record beyond head.
    let oldest = |head: u64| {
        let last = head.saturating_add(layout.max_record_bytes.into()) / sub_bytes;
        (last + 1).saturating_sub(n_subs) * sub_bytes
    };
    let head = state.head.load(Ordering::Acquire);
    let mut position = oldest(head);
    polled.overwritten_bytes = polled.overwritten_bytes.saturating_add(position);
    while position < head {
        let end = position.saturating_add(sub_bytes).min(head);
        copy_out(ring, ring_bytes, position, end, copy);
        core::sync::atomic::fence(Ordering::AcqRel);
        let now = oldest(state.head.load(Ordering::Acquire));
        if now > position {
            polled.overwritten_bytes = polled.overwritten_bytes.saturating_add(now - position);
            position = now;
            continue;
        }
        let (used, is_whole) = deliver(copy, Source { ring: 0, cpu, set: Set::Rseq }, polled, each);
        polled.bytes += used as u64;
        polled.damaged += u64::from(!is_whole);
        position = end;
    }
}
