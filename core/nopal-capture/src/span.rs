//! Spans kept at the source: stubs pair begins with ends and add up what lies between; only the slowest leave a record.
//!
//! In the ring's memory, which its tracees can write to as they like:
//! ```text
//! cells_offset            in the block of each CPU, for each span: SpanBlock
//! spans_offset            SpanHeader
//! + HEADER_BYTES          ThreadSlot[span_slots + N_PROBED]
//! ```
//! A thread has the slot with its number, or one of the next few. There it keeps what it has open, the innermost last, and its
//! sums; who gets the slot after it goes on with those. Times
//! and durations are in ticks of the time stamp counter; only buckets are those of nanoseconds.

use crate::predicate::Predicate;
use core::mem::{offset_of, size_of};
use nopal_sdt::operand::Operand;

/// Spans of one session.
pub const MAX_SPANS: usize = 48;
/// Spans that a thread can have open at once.
pub const MAX_DEPTH: usize = 245;
/// Bytes that a frame keeps of the begin's arguments.
pub const KEPT_BYTES: usize = 88;
/// Slots that a thread tries, from the one with its number on.
pub const N_PROBED: usize = 8;
/// The least number of slots of a session that is worth having.
pub const SLOTS: u32 = 1024;
/// Buckets: one for each value below 64, then 64 for each power of two.
pub const N_BUCKETS: usize = 36 * 64;
/// log2 of the number of buckets of each power of two.
pub const BUCKET_BITS: u8 = 6;
/// From 2^41 ns (36 minutes) on a span is in no bucket and in no sum: it leaves a record.
pub const MAX_NS_SHIFT: u8 = 41;
/// Where in a word of [`ThreadSlot::batches`] the number of spans ends and the duration begins.
pub const BATCH_SHIFT: u8 = 16;
/// The longest duration, as a power of two, that a batch takes in.
pub const BATCH_TICKS_SHIFT: u8 = 47;

/// What one CPU has counted of one span.
#[repr(C)]
#[derive(Debug)]
pub struct SpanBlock {
    pub buckets: [u64; N_BUCKETS],
}

/// What all CPUs share.
#[repr(C)]
#[derive(Debug)]
pub struct SpanHeader {
    /// Nanoseconds a tick, in units of 2^-32. Written by the tracer.
    pub rate: u64,
    /// Hits of threads that found no slot, or that do not know their number.
    pub n_no_room: u64,
    /// Begins and ends beyond [`MAX_DEPTH`].
    pub n_too_deep: u64,
    pub reserved: [u64; 5],
    pub spans: [SpanTop; MAX_SPANS],
    /// Of spans that are grouped by a number: the group at position N is kept as span N + 1.
    pub groups: [Group; MAX_GROUPS],
}

/// A group of spans. One number may have several.
#[repr(C)]
#[derive(Debug)]
pub struct Group {
    /// Valid in the state [`GROUP_IS_READY`].
    pub key: u64,
    /// 0 = free, 1 = being made.
    pub state: u64,
}

/// Groups that have room; spans of others leave records, and are in no sum.
pub const MAX_GROUPS: usize = MAX_SPANS - 1;
pub const GROUP_IS_READY: u64 = 2;
/// Where in [`Frame::kept`] and [`SlowSpan::kept`] the number is that a span is grouped by.
pub const KEY_AT: usize = KEPT_BYTES - 8;

/// What all CPUs share of one span.
#[repr(C)]
#[derive(Debug)]
pub struct SpanTop {
    pub max: u64,
    /// The complement of the least.
    pub least: u64,
    /// What takes longer leaves a record. Raised by stubs and by the tracer.
    pub floor: u64,
    /// Ends without a begin.
    pub n_ends: u64,
    /// Begins that were dropped, as the span they are a part of has ended.
    pub n_begins: u64,
    /// Of those that count, how many failed.
    pub n_errors: u64,
    pub reserved: [u64; 2],
}

/// What a thread has open.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadSlot {
    /// Number of the process image in the high half, of the thread in the low one; 0 = free.
    pub owner: u64,
    pub depth: u64,
    /// Begins beyond the last frame that have not ended.
    pub beyond: u64,
    /// The process image's word of its page, with the session's generation: stored by the slot's own thread when it has found
    /// the slot, so that from then on one comparison tells whether both are still what they were.
    pub image: u64,
    pub reserved: [u64; 12],
    /// By span: spans that left a record since `floor` was last raised by this thread, and the shortest of them. Once there
    /// are as many as are wanted, what is no longer than it is not among the slowest.
    pub batches: [u64; MAX_SPANS],
    /// By span: ticks of all that have ended.
    pub totals: [u64; MAX_SPANS],
    /// By span: of those, ticks of spans directly within.
    pub nested: [u64; MAX_SPANS],
    /// Stands where the frame around the first would be: takes what that one would have within.
    pub outside: Frame,
    pub frames: [Frame; MAX_DEPTH],
}

/// A span that has begun.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// 0 = it is being made or has ended.
    pub start: u64,
    /// The span in the highest byte, below it the ticks of spans directly within that have ended.
    pub nested: u64,
    /// The event of the begin.
    pub event: u32,
    /// By bit: which questions were answered with yes at the begin. From [`WITHIN_SHIFT`] on: how many of the same kind have
    /// begun within it that do not count.
    pub answers: u32,
    /// Of a call, the complement of the stack pointer, which tells it apart from others that are under way; else 0.
    pub stack: u64,
    /// The greatest `stack` of this frame and of those before it, or more: a call whose own is beyond has none that is equal.
    pub reach: u64,
    /// What was captured at the begin, as in a record.
    pub kept: [u8; KEPT_BYTES],
}

pub const HEADER_BYTES: usize = 4096;
const _: () = assert!(size_of::<SpanHeader>() <= HEADER_BYTES);
const _: () = assert!(size_of::<SpanTop>() == 64 && offset_of!(SpanHeader, spans) == 64);
const _: () = assert!(size_of::<SpanBlock>() == 8 * N_BUCKETS);
const _: () = assert!(size_of::<Frame>() == 1 << FRAME_SHIFT);
const _: () = assert!(size_of::<ThreadSlot>() == 1 << SLOT_SHIFT);
const _: () = assert!(offset_of!(ThreadSlot, frames) == 1408);
const _: () = assert!(BLOCK_BYTES as usize * MAX_SPANS <= 1 << 20);

pub const FRAME_SHIFT: u8 = 7;
pub const SLOT_SHIFT: u8 = 15;
/// Of one span in each CPU's block of cells.
pub const BLOCK_BYTES: u32 = size_of::<SpanBlock>() as u32;

/// Bytes behind the cells for this many slots.
pub fn table_bytes(n_slots: u32) -> u64 {
    if n_slots == 0 {
        0
    } else {
        HEADER_BYTES as u64 + ((u64::from(n_slots) + N_PROBED as u64) << SLOT_SHIFT)
    }
}

/// What a hit does to spans, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanSite {
    pub steps: Vec<SpanStep>,
    /// Kept by a begin, added by an end to the record of a slow span.
    pub values: Vec<Operand>,
    /// How many of the slowest are wanted of each span.
    pub n_slowest: u16,
    /// Some span of the session is calls of a function.
    pub has_calls: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SpanStep {
    Begin {
        span: u8,
        /// Within an open one of its kind it does not count.
        is_outermost: bool,
        questions: Vec<Question>,
        /// What the span is grouped by, if it is something of the begin.
        key: Option<Operand>,
        /// Of a call: the stack pointer. One that is open with the same was left by an exception or a jump.
        stack: Option<Operand>,
    },
    End {
        span: u8,
        is_outermost: bool,
        /// Spans that cannot outlive it.
        parts: Vec<u8>,
        closing: Closing,
        /// Of a call: only one that began with this stack pointer ends.
        stack: Option<Operand>,
    },
    /// Ends all that are open of these kinds, the innermost first, as errors.
    Fail { spans: Vec<(u8, Closing)> },
}

impl SpanStep {
    /// The spans that begin or end here.
    pub fn spans(&self) -> impl Iterator<Item = u8> {
        let (one, several): (Option<u8>, &[(u8, Closing)]) = match self {
            SpanStep::Begin { span, .. } | SpanStep::End { span, .. } => (Some(*span), &[]),
            SpanStep::Fail { spans } => (None, spans),
        };
        one.into_iter().chain(several.iter().map(|(span, _)| *span))
    }
}

/// Something to be asked of the arguments at one end of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Where the answer is kept.
    pub bit: u8,
    pub predicate: Predicate,
}

/// Questions of one span: so many at most.
pub const MAX_QUESTIONS: usize = 16;
/// Where in [`Frame::answers`] the answers end.
pub const WITHIN_SHIFT: u8 = 16;

/// What is asked when a span ends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Closing {
    pub questions: Vec<Question>,
    /// Whether it counts at all.
    pub counts: Option<Formula>,
    /// The same: the least and the greatest duration, in nanoseconds.
    pub bounds: Option<(u64, u64)>,
    /// Whether it has failed.
    pub fails: Option<Formula>,
    pub grouping: Option<Grouping>,
}

/// What spans are grouped by.
#[derive(Debug, Clone, PartialEq)]
pub enum Grouping {
    /// What the begin has kept.
    ByBegin,
    ByEnd(Operand),
}

/// A condition over answers. A question that was never asked is answered with no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Formula {
    Bit(u8),
    Not(Box<Formula>),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

/// The payload of the record that a slow span leaves at its end, before what is captured there.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowSpan {
    pub start: u64,
    pub ticks: u64,
    pub nested: u64,
    /// The event of the begin.
    pub event: u32,
    /// With [`SlowSpan::IS_LONG`] or [`SlowSpan::IS_UNGROUPED`] if it is in no sum, [`SlowSpan::IS_ERROR`] if it failed.
    pub span: u32,
    pub kept: [u8; KEPT_BYTES],
}

const _: () = assert!(size_of::<SlowSpan>() == 120);

impl SlowSpan {
    pub const BYTES: usize = size_of::<SlowSpan>();
    pub const IS_LONG: u32 = 1 << 31;
    pub const IS_ERROR: u32 = 1 << 30;
    pub const IS_UNGROUPED: u32 = 1 << 29;
    const FLAGS: u32 = SlowSpan::IS_LONG | SlowSpan::IS_ERROR | SlowSpan::IS_UNGROUPED;

    /// Takes the payload apart; the rest is what was captured at the end.
    pub fn read(payload: &[u8]) -> Option<(SlowSpan, &[u8])> {
        let (own, rest) = payload.split_at_checked(SlowSpan::BYTES)?;
        let word = |at: usize| own.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let half = |at: usize| own.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let slow = SlowSpan {
            start: word(0)?,
            ticks: word(8)?,
            nested: word(16)?,
            event: half(24)?,
            span: half(28)?,
            kept: own[32..].try_into().ok()?,
        };
        Some((slow, rest))
    }

    pub fn is_long(&self) -> bool {
        self.span & SlowSpan::IS_LONG != 0
    }

    pub fn is_error(&self) -> bool {
        self.span & SlowSpan::IS_ERROR != 0
    }

    pub fn span(&self) -> usize {
        (self.span & !SlowSpan::FLAGS) as usize
    }

    /// There was no room for its group.
    pub fn is_ungrouped(&self) -> bool {
        self.span & SlowSpan::IS_UNGROUPED != 0
    }

    /// What it is grouped by, if it is.
    pub fn key(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.kept[KEY_AT..]);
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_too_short_is_no_slow_span() {
        let mut payload: Vec<u8> = (0..SlowSpan::BYTES as u8 + 4).collect();
        payload[28..32].copy_from_slice(&(SlowSpan::IS_LONG | 7).to_le_bytes());
        let (slow, rest) = SlowSpan::read(&payload).unwrap();
        assert_eq!((slow.start, slow.span(), slow.is_long()), (0x0706_0504_0302_0100, 7, true));
        assert_eq!((slow.kept[0], rest), (32, &[120, 121, 122, 123][..]));
        assert_eq!(SlowSpan::read(&payload[..SlowSpan::BYTES - 1]), None);
    }
}
