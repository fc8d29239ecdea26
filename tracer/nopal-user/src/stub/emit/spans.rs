//! The code that pairs and adds up spans where they happen; the memory it works on is drawn in [`nopal_capture::span`].
//! Reading it is in [`ring`](crate::ring).
//!
//! A thread alone writes to its slot, so that a begin is a few plain stores. A signal may come between any two of them, and its
//! handler hit probes, too: a frame counts from its start time on, which is stored last, and no more once that is 0.

use core::mem::offset_of;

use nopal_abi::ring::ControlPage;
use nopal_abi::stub_space::ProcessPage;
use nopal_capture::span::{
    BATCH_SHIFT, BATCH_TICKS_SHIFT, BLOCK_BYTES, BUCKET_BITS, FRAME_SHIFT, Frame, HEADER_BYTES, KEPT_BYTES,
    MAX_DEPTH, MAX_NS_SHIFT, MAX_SPANS, N_PROBED, SLOT_SHIFT, SlowSpan, SpanBlock, SpanHeader, SpanTop,
    ThreadSlot,
};
use nopal_capture::{Capture, RecordLayout, SpanSite, SpanStep};
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};

use super::{Stubber, load_generation};
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, RSP, Width, at};
use crate::stub::locked::{Size, cpu_by_segment};
use crate::stub::words::tid_offset_word;
use crate::stub::{Stub, StubError, StubSpec, Surroundings};

/// Below the frames of [`Stubber`]: a [`SlowSpan`], then the thread's slot, the end of its frames, and whether the
/// span is slow.
pub(super) const SLOT_BYTES: i32 = SlowSpan::BYTES as i32 + 24;
const SLOT_AT: i32 = SlowSpan::BYTES as i32;
const END_AT: i32 = SLOT_AT + 8;
const SLOW_AT: i32 = END_AT + 8;
/// Whether the thread has restartable sequences.
const RSEQ_AT: i32 = SLOW_AT + 4;
const START_AT: i32 = offset_of!(SlowSpan, start) as i32;
const TICKS_AT: i32 = offset_of!(SlowSpan, ticks) as i32;
const NESTED_AT: i32 = offset_of!(SlowSpan, nested) as i32;
const EVENT_AT: i32 = offset_of!(SlowSpan, event) as i32;
const SPAN_AT: i32 = offset_of!(SlowSpan, span) as i32;
const KEPT_AT: i32 = offset_of!(SlowSpan, kept) as i32;

const OWNER: i32 = offset_of!(ThreadSlot, owner) as i32;
const DEPTH: i32 = offset_of!(ThreadSlot, depth) as i32;
const BEYOND: i32 = offset_of!(ThreadSlot, beyond) as i32;
const BATCHES: i32 = offset_of!(ThreadSlot, batches) as i32;
const TOTALS: i32 = offset_of!(ThreadSlot, totals) as i32;
const NESTED: i32 = offset_of!(ThreadSlot, nested) as i32;
const FRAMES: i32 = offset_of!(ThreadSlot, frames) as i32;
const FRAME_BYTES: i32 = 1 << FRAME_SHIFT;
const FRAME_START: i32 = offset_of!(Frame, start) as i32;
const FRAME_NESTED: i32 = offset_of!(Frame, nested) as i32;
/// The highest byte of the same word.
const FRAME_SPAN: i32 = FRAME_NESTED + 7;
const FRAME_EVENT: i32 = offset_of!(Frame, event) as i32;
const FRAME_KEPT: i32 = offset_of!(Frame, kept) as i32;
const MAX: i32 = offset_of!(SpanTop, max) as i32;
const LEAST: i32 = offset_of!(SpanTop, least) as i32;
const FLOOR: i32 = offset_of!(SpanTop, floor) as i32;

/// Makes the stub of a site where spans begin or end.
pub(super) fn generate(spec: &StubSpec, site: &SpanSite, around: &Surroundings) -> Result<Stub, StubError> {
    let values: Vec<Capture> =
        site.values.iter().map(|operand| Capture::Value { operand: operand.clone() }).collect();
    let kept = RecordLayout::new(&values, false, false);
    for step in &site.steps {
        let span = step.span();
        let end = (u32::from(span) + 1) * BLOCK_BYTES;
        let is_kept = kept.fixed_bytes() as usize <= KEPT_BYTES || matches!(step, SpanStep::End { .. });
        if usize::from(span) >= MAX_SPANS
            || end > around.layout.cells_stride
            || around.layout.span_slots == 0
            || !is_kept
        {
            return Err(StubError::BadSpan { span });
        }
    }
    let mut stubber = Stubber::new(spec, &[], &kept, around);
    let captures = stubber.slow_captures(&values);
    let layout = RecordLayout::new(&captures, true, true);
    let limit = around.layout.max_record_bytes;
    if layout.max_bytes() > limit {
        return Err(StubError::RecordTooLong { bytes: layout.max_bytes(), limit });
    }
    stubber.enter();
    stubber.leave_if_disabled();
    for predicate in &spec.predicates {
        let exit = stubber.exit;
        stubber.frame.require(&mut stubber.asm, predicate, RDX, exit)?;
    }
    let [silenced, no_room] = [stubber.asm.label(), stubber.asm.label()];
    stubber.require_time(silenced);
    stubber.find_slot(no_room);
    for step in &site.steps {
        match step {
            SpanStep::Begin { span } => stubber.begin(*span, spec.event, &site.values, &kept)?,
            SpanStep::End { span, parts } => {
                let record = Record { captures: &captures, layout: &layout, event: spec.event };
                stubber.end(*span, parts, site.n_slowest, &record)?;
            }
        }
    }
    stubber.restore();
    stubber.asm.bind(no_room);
    stubber.count(offset_of!(SpanHeader, n_no_room));
    let exit = stubber.exit;
    stubber.asm.jmp(exit);
    stubber.asm.bind(silenced);
    stubber.lose();
    let next_slot = stubber.leave();
    Ok(Stub { code: stubber.asm.finish()?, next_slot, layout })
}

/// The record of a slow span.
struct Record<'a> {
    captures: &'a [Capture],
    layout: &'a RecordLayout,
    event: u32,
}

/// Of the header in the traced processes.
fn header(around: &Surroundings) -> u64 {
    around.ring + around.layout.spans_offset
}

fn top(around: &Surroundings, span: u8) -> u64 {
    let spans = offset_of!(SpanHeader, spans) + usize::from(span) * size_of::<SpanTop>();
    header(around) + spans as u64
}

impl Stubber<'_> {
    /// What a slow span's record keeps: the words this stub has gathered, then what the site says.
    fn slow_captures(&self, site: &[Capture]) -> Vec<Capture> {
        let stack = Register { number: RSP.0, width_bytes: 8, is_high_byte: false };
        let word = |at: i32| {
            // As seen from the site, whose stack pointer such operands count from.
            let displacement = i64::from(self.spans_at + at - self.frame.depth - self.frame.above);
            let memory = Memory { base: Base::Register(stack), index: None, displacement };
            let place = Place::Memory(memory);
            Capture::Value { operand: Operand { size_bytes: 8, is_signed: false, is_float: false, place } }
        };
        let own = (0..SlowSpan::BYTES as i32).step_by(8).map(word);
        own.chain(site.iter().cloned()).collect()
    }

    fn slot(&self, at_slot: i32) -> Mem {
        at(RSP, self.spans_at + at_slot)
    }

    /// One more in a word of the header. Spoils `%rax`.
    fn count(&mut self, offset: usize) {
        self.asm.mov_imm(RAX, header(self.around) + offset as u64);
        self.asm.lock_inc(at(RAX, 0));
    }

    /// The same in a word of what all CPUs share of a span.
    fn count_of(&mut self, span: u8, offset: usize) {
        self.asm.mov_imm(RAX, top(self.around, span) + offset as u64);
        self.asm.lock_inc(at(RAX, 0));
    }

    /// `state` becomes the thread's slot, which is also kept; without one goes to `no_room`.
    fn find_slot(&mut self, no_room: Label) {
        let around = self.around;
        let (state, position) = (self.state, self.position);
        let [enrol, probe, found, beyond] = std::array::from_fn(|_| self.asm.label());
        let [otherwise, numbered] = [self.asm.label(), self.asm.label()];
        let has_rseq = self.slot(RSEQ_AT);
        self.require_rseq(otherwise);
        self.asm.load64(RAX, tid_offset_word(around));
        self.asm.load32(RAX, Mem::Fs { base: RAX, disp: 0 });
        self.asm.store(at(RSP, self.tid_at), RAX, Width::B4);
        self.asm.store_imm(has_rseq, 1, Width::B4);
        self.asm.jmp(numbered);
        self.asm.bind(otherwise);
        self.asm.store_imm(has_rseq, 0, Width::B4);
        let question = self.locked(Size::Fixed(0), 0, 0).find_tid(&mut self.asm, around);
        self.questions.push(question);
        self.asm.bind(numbered);
        self.asm.test(RAX, RAX);
        self.asm.jcc(Cond::Equal, no_room);
        let ask = self.asm.here();
        load_generation(&mut self.asm, around);
        self.asm.cmp32(RAX, image_word(around, 4));
        self.asm.jcc(Cond::NotEqual, enrol);
        let asm = &mut self.asm;
        asm.load32(RDX, image_word(around, 0));
        asm.shl(RDX, 32);
        asm.load32(RAX, at(RSP, self.tid_at));
        asm.alu(Alu::Or, RDX, RAX);
        asm.alu_imm32(Alu::And, RAX, around.layout.span_slots as i32 - 1);
        asm.shl(RAX, SLOT_SHIFT);
        asm.mov_imm(state, header(around) + HEADER_BYTES as u64);
        asm.alu(Alu::Add, state, RAX);
        asm.alu_mem(Alu::Cmp, RDX, at(state, OWNER));
        asm.jcc(Cond::NotEqual, probe);
        asm.bind(found);
        asm.store(at(RSP, self.spans_at + SLOT_AT), state, Width::B8);
        asm.jmp(beyond);

        // One of the next slots, or the first of them that is free.
        asm.bind(probe);
        let [hit, claim, taken] = [asm.label(), asm.label(), asm.label()];
        for pass in 0..2 {
            asm.mov(position, state);
            asm.mov_imm(RCX, N_PROBED as u64);
            let next = asm.here();
            asm.load64(RAX, at(position, OWNER));
            asm.alu(Alu::Cmp, RAX, RDX);
            asm.jcc(Cond::Equal, hit);
            if pass == 1 {
                asm.test(RAX, RAX);
                asm.jcc(Cond::Equal, claim);
                asm.bind(taken);
            }
            asm.alu_imm(Alu::Add, position, 1 << SLOT_SHIFT);
            asm.alu_imm32(Alu::Sub, RCX, 1);
            asm.jcc(Cond::NotEqual, next);
        }
        asm.jmp(no_room);
        asm.bind(claim);
        asm.lock_cmpxchg(at(position, OWNER), RDX, Width::B8);
        asm.jcc(Cond::NotEqual, taken);
        asm.bind(hit);
        asm.mov(state, position);
        asm.jmp(found);

        // The first hit of this image: it takes a number.
        asm.bind(enrol);
        asm.mov_imm(RCX, around.ring + offset_of!(ControlPage, images) as u64);
        let again = asm.here();
        asm.load32(RAX, at(RCX, 0));
        asm.lea(RDX, at(RAX, 1));
        asm.lock_cmpxchg(at(RCX, 0), RDX, Width::B4);
        asm.jcc(Cond::NotEqual, again);
        asm.mov32(RDX, RDX);
        load_generation(asm, around);
        asm.mov32(RCX, RAX);
        asm.shl(RCX, 32);
        asm.alu(Alu::Or, RCX, RDX);
        asm.load64(RAX, image_word(around, 0));
        // If another thread was first, its number counts.
        asm.lock_cmpxchg(image_word(around, 0), RCX, Width::B8);
        self.meet_process();
        self.asm.jmp(ask);
        self.asm.bind(beyond);
    }

    fn begin(
        &mut self,
        span: u8,
        event: u32,
        values: &[Operand],
        kept: &RecordLayout,
    ) -> Result<(), StubError> {
        let (state, position) = (self.state, self.position);
        let [too_deep, done] = [self.asm.label(), self.asm.label()];
        let slot = self.slot(SLOT_AT);
        let asm = &mut self.asm;
        asm.load64(state, slot);
        asm.load64(position, at(state, DEPTH));
        asm.alu_imm(Alu::Cmp, position, MAX_DEPTH as i32);
        asm.jcc(Cond::AboveEqual, too_deep);
        // The frame is ours before it is filled: what a signal's handler begins comes behind it.
        asm.inc(at(state, DEPTH));
        asm.shl(position, FRAME_SHIFT);
        asm.lea(RCX, Mem::At { base: state, index: Some((position, 1)), disp: FRAMES });
        asm.mov_imm(RAX, u64::from(span) << 56);
        asm.store(at(RCX, FRAME_NESTED), RAX, Width::B8);
        asm.store_imm(at(RCX, FRAME_EVENT), event as i32, Width::B4);
        for (operand, field) in values.iter().zip(kept.fields()) {
            self.frame.store(&mut self.asm, operand, RCX, FRAME_KEPT + field.offset as i32, RDX)?;
        }
        let asm = &mut self.asm;
        asm.time();
        asm.store(at(RCX, FRAME_START), RAX, Width::B8);
        asm.jmp(done);
        asm.bind(too_deep);
        asm.inc(at(state, BEYOND));
        self.count(offset_of!(SpanHeader, n_too_deep));
        self.asm.bind(done);
        Ok(())
    }

    fn end(&mut self, span: u8, parts: &[u8], n_slowest: u16, record: &Record<'_>) -> Result<(), StubError> {
        let (state, position) = (self.state, self.position);
        let [search, unmatched, beyond, measured, done] = std::array::from_fn(|_| self.asm.label());
        let slot = self.slot(SLOT_AT);
        let asm = &mut self.asm;
        asm.load64(state, slot);
        asm.cmp_mem32(at(state, BEYOND), 0);
        asm.jcc(Cond::NotEqual, beyond);
        asm.load64(position, at(state, DEPTH));
        asm.alu_imm(Alu::Sub, position, 1);
        // Below nothing, or what no stub has written.
        asm.alu_imm(Alu::Cmp, position, MAX_DEPTH as i32);
        asm.jcc(Cond::AboveEqual, unmatched);
        asm.shl(position, FRAME_SHIFT);
        asm.lea(RCX, Mem::At { base: state, index: Some((position, 1)), disp: FRAMES });
        asm.load(RAX, at(RCX, FRAME_SPAN), Width::B1, false);
        asm.alu_imm32(Alu::Cmp, RAX, i32::from(span));
        asm.jcc(Cond::NotEqual, search);
        asm.load64(RAX, at(RCX, FRAME_START));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, search);
        self.measure(span, n_slowest);
        self.asm.mov_imm(RDX, u64::MAX);
        self.asm.add_to(at(state, DEPTH), RDX, false);
        self.asm.bind(measured);
        self.add_up(span, n_slowest, record, done)?;

        self.asm.bind(search);
        self.find_below(span, parts, n_slowest, unmatched);
        self.asm.jmp(measured);
        self.asm.bind(unmatched);
        self.count_of(span, offset_of!(SpanTop, n_ends));
        self.asm.jmp(done);
        self.asm.bind(beyond);
        self.asm.mov_imm(RDX, u64::MAX);
        self.asm.add_to(at(state, BEYOND), RDX, false);
        self.count(offset_of!(SpanHeader, n_too_deep));
        self.asm.bind(done);
        Ok(())
    }

    /// Takes the time of the frame at `%rcx`, which is `position` behind the first: it ends, and the one before it has it
    /// within.
    fn measure(&mut self, span: u8, n_slowest: u16) {
        let [forward, outermost, fast] = std::array::from_fn(|_| self.asm.label());
        let [start, ticks, nested] = [START_AT, TICKS_AT, NESTED_AT].map(|at| self.slot(at));
        let (event, slow) = (self.slot(EVENT_AT), self.slot(SLOW_AT));
        let asm = &mut self.asm;
        asm.time();
        asm.load64(RDX, at(RCX, FRAME_START));
        asm.store(start, RDX, Width::B8);
        asm.alu(Alu::Sub, RAX, RDX);
        // Counters of two processors may be a little apart.
        asm.jcc(Cond::GreaterEqual, forward);
        asm.clear(RAX);
        asm.bind(forward);
        asm.store(ticks, RAX, Width::B8);
        asm.store_imm(at(RCX, FRAME_START), 0, Width::B8);
        asm.test(self.position, self.position);
        asm.jcc(Cond::Equal, outermost);
        asm.add_to(at(RCX, FRAME_NESTED - FRAME_BYTES), RAX, false);
        asm.bind(outermost);
        asm.load64(RDX, at(RCX, FRAME_NESTED));
        asm.shl(RDX, 8);
        asm.shr(RDX, 8);
        asm.store(nested, RDX, Width::B8);
        if n_slowest == 0 {
            return;
        }
        asm.store_imm(slow, 0, Width::B4);
        asm.mov_imm(RDX, top(self.around, span));
        asm.alu_mem(Alu::Cmp, RAX, at(RDX, FLOOR));
        asm.jcc(Cond::BelowEqual, fast);
        asm.store_imm(slow, 1, Width::B4);
        asm.load32(RDX, at(RCX, FRAME_EVENT));
        asm.store(event, RDX, Width::B4);
        for word in (0..KEPT_BYTES as i32).step_by(8) {
            asm.load64(RDX, at(RCX, FRAME_KEPT + word));
            asm.store(at(RSP, self.spans_at + KEPT_AT + word), RDX, Width::B8);
        }
        asm.bind(fast);
    }

    /// Ends the innermost open span of this kind that is not the last frame, `%rcx`. What began within it and is open stays so,
    /// but for its parts; what has ended within those lies within it.
    fn find_below(&mut self, span: u8, parts: &[u8], n_slowest: u16, unmatched: Label) {
        let (state, position) = (self.state, self.position);
        let [next, shift, closed] = std::array::from_fn(|_| self.asm.label());
        let [nested, end] = [NESTED_AT, END_AT].map(|at| self.slot(at));
        let asm = &mut self.asm;
        asm.lea(RAX, at(RCX, FRAME_BYTES));
        asm.store(end, RAX, Width::B8);
        asm.bind(next);
        asm.test(position, position);
        asm.jcc(Cond::Equal, unmatched);
        asm.alu_imm(Alu::Sub, position, FRAME_BYTES);
        asm.alu_imm(Alu::Sub, RCX, FRAME_BYTES);
        asm.load(RAX, at(RCX, FRAME_SPAN), Width::B1, false);
        asm.alu_imm32(Alu::Cmp, RAX, i32::from(span));
        asm.jcc(Cond::NotEqual, next);
        asm.load64(RAX, at(RCX, FRAME_START));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, next);
        self.measure(span, n_slowest);

        // %rcx is where the next frame that stays goes, position where it is.
        let asm = &mut self.asm;
        asm.lea(position, at(RCX, 0));
        asm.bind(shift);
        asm.alu_imm(Alu::Add, position, FRAME_BYTES);
        asm.alu_mem(Alu::Cmp, position, end);
        asm.jcc(Cond::AboveEqual, closed);
        asm.load64(RAX, at(position, FRAME_NESTED));
        asm.mov(RDX, RAX);
        asm.shl(RDX, 8);
        asm.shr(RDX, 8);
        asm.add_to(nested, RDX, false);
        asm.shr(RAX, 56);
        let mut dropped = Vec::new();
        for part in parts {
            let is_part = asm.label();
            asm.alu_imm32(Alu::Cmp, RAX, i32::from(*part));
            asm.jcc(Cond::Equal, is_part);
            dropped.push((is_part, *part));
        }
        asm.shl(RAX, 56);
        asm.store(at(RCX, FRAME_NESTED), RAX, Width::B8);
        for word in (0..FRAME_BYTES).step_by(8).filter(|word| *word != FRAME_NESTED) {
            asm.load64(RAX, at(position, word));
            asm.store(at(RCX, word), RAX, Width::B8);
        }
        asm.alu_imm(Alu::Add, RCX, FRAME_BYTES);
        asm.jmp(shift);
        for (is_part, part) in dropped {
            self.asm.bind(is_part);
            self.count_of(part, offset_of!(SpanTop, n_begins));
            self.asm.jmp(shift);
        }
        let asm = &mut self.asm;
        asm.bind(closed);
        asm.alu(Alu::Sub, RCX, state);
        asm.alu_imm(Alu::Sub, RCX, FRAMES);
        asm.shr(RCX, FRAME_SHIFT);
        asm.store(at(state, DEPTH), RCX, Width::B8);
    }

    /// Adds a span that has been measured to the sums, and writes a record if it is slow; then goes to `done`.
    fn add_up(
        &mut self,
        span: u8,
        n_slowest: u16,
        record: &Record<'_>,
        done: Label,
    ) -> Result<(), StubError> {
        let block = u32::from(span) * BLOCK_BYTES;
        let position = self.position;
        let [long, more, less, is_more, is_less, slow, write] = std::array::from_fn(|_| self.asm.label());
        let [ticks, nested, name, is_slow] = [TICKS_AT, NESTED_AT, SPAN_AT, SLOW_AT].map(|at| self.slot(at));
        let (around, slot) = (self.around, self.slot(SLOT_AT));
        let asm = &mut self.asm;
        asm.store_imm(name, i32::from(span), Width::B4);
        asm.mov_imm(RCX, header(around));
        asm.load64(RAX, ticks);
        asm.load64(RDX, at(RCX, offset_of!(SpanHeader, rate) as i32));
        asm.multiply_wide(RDX);
        asm.shr(RAX, 32);
        asm.shl(RDX, 32);
        asm.alu(Alu::Or, RAX, RDX);
        asm.mov(RDX, RAX);
        asm.shr(RDX, MAX_NS_SHIFT);
        asm.jcc(Cond::NotEqual, long);
        // Whose buckets begin with one for negative values.
        self.bucket(position, BUCKET_BITS);
        self.count_bucket((block + offset_of!(SpanBlock, buckets) as u32) as i32 - 8);
        // Sums are the thread's own: one instruction each, which no signal divides.
        let asm = &mut self.asm;
        asm.load64(self.state, slot);
        asm.load64(RDX, nested);
        asm.add_to(at(self.state, NESTED + 8 * i32::from(span)), RDX, false);
        asm.mov_imm(RCX, top(around, span));
        asm.load64(RDX, ticks);
        asm.add_to(at(self.state, TOTALS + 8 * i32::from(span)), RDX, false);
        asm.alu_mem(Alu::Cmp, RDX, at(RCX, MAX));
        asm.jcc(Cond::Above, more);
        asm.bind(is_more);
        asm.not(RDX);
        asm.alu_mem(Alu::Cmp, RDX, at(RCX, LEAST));
        asm.jcc(Cond::Above, less);
        asm.bind(is_less);
        if n_slowest > 0 {
            asm.not(RDX);
            asm.cmp_mem32(is_slow, 0);
            asm.jcc(Cond::NotEqual, slow);
        }
        asm.jmp(done);

        for (entry, back, offset) in [(more, is_more, MAX), (less, is_less, LEAST)] {
            asm.bind(entry);
            let again = asm.here();
            asm.load64(RAX, at(RCX, offset));
            asm.alu(Alu::Cmp, RDX, RAX);
            asm.jcc(Cond::BelowEqual, back);
            asm.lock_cmpxchg(at(RCX, offset), RDX, Width::B8);
            asm.jcc(Cond::NotEqual, again);
            asm.jmp(back);
        }
        asm.bind(long);
        asm.store_imm(name, (u32::from(span) | SlowSpan::IS_LONG) as i32, Width::B4);
        asm.jmp(write);
        asm.bind(slow);
        if n_slowest > 0 {
            self.raise_floor(span, n_slowest);
        }
        self.asm.bind(write);
        self.after_record = Some(done);
        let written = self.record(record.captures, record.layout, record.event);
        self.after_record = None;
        self.asm.jmp(done);
        written
    }

    /// One more in the bucket with the number in `position`, from `offset` in this CPU's block on.
    fn count_bucket(&mut self, offset: i32) {
        let layout = self.around.layout;
        let [slow, done] = [self.asm.label(), self.asm.label()];
        let bucket = Mem::At { base: self.state, index: Some((self.position, 8)), disp: offset };
        let has_rseq = self.slot(RSEQ_AT);
        self.asm.cmp_mem32(has_rseq, 0);
        self.asm.jcc(Cond::Equal, slow);
        let section = self.open_section(slow, |_| {});
        self.find_cell(layout.cells_offset, false);
        self.asm.inc(bucket);
        self.end_section(section);
        self.asm.jmp(done);
        self.asm.bind(slow);
        cpu_by_segment(&mut self.asm, self.around);
        self.asm.mov32(RAX, RCX);
        let locked = layout.cells_offset + u64::from(layout.n_cpus) * u64::from(layout.cells_stride);
        self.find_cell(locked, false);
        self.asm.lock_inc(bucket);
        self.asm.bind(done);
    }

    /// `%rdx` ticks are slow, `%rcx` is the span's [`SpanTop`]: once as many of this thread were slow as are wanted, nothing
    /// that is no longer than the shortest of them can be among the slowest.
    fn raise_floor(&mut self, span: u8, n_slowest: u16) {
        let (state, position) = (self.state, self.position);
        let [first, counted, full, done] = std::array::from_fn(|_| self.asm.label());
        let slot = self.slot(SLOT_AT);
        let batch = at(state, BATCHES + 8 * i32::from(span));
        let asm = &mut self.asm;
        asm.mov(RAX, RDX);
        asm.shr(RAX, BATCH_TICKS_SHIFT);
        asm.jcc(Cond::NotEqual, done);
        asm.load64(state, slot);
        asm.shl(RDX, BATCH_SHIFT);
        asm.load64(RAX, batch);
        asm.mov32(position, RAX);
        asm.alu_imm32(Alu::And, position, (1 << BATCH_SHIFT) - 1);
        asm.jcc(Cond::Equal, first);
        asm.alu(Alu::Sub, RAX, position);
        asm.alu(Alu::Cmp, RAX, RDX);
        asm.jcc(Cond::BelowEqual, counted);
        asm.bind(first);
        asm.mov(RAX, RDX);
        asm.bind(counted);
        asm.alu_imm32(Alu::Add, position, 1);
        asm.alu_imm32(Alu::Cmp, position, i32::from(n_slowest));
        asm.jcc(Cond::AboveEqual, full);
        asm.alu(Alu::Or, RAX, position);
        asm.store(batch, RAX, Width::B8);
        asm.jmp(done);
        asm.bind(full);
        asm.store_imm(batch, 0, Width::B8);
        asm.shr(RAX, BATCH_SHIFT);
        // A lower floor that another thread stores meanwhile only lets more through.
        asm.alu_mem(Alu::Cmp, RAX, at(RCX, FLOOR));
        asm.jcc(Cond::BelowEqual, done);
        asm.store(at(RCX, FLOOR), RAX, Width::B8);
        asm.bind(done);
    }
}

/// The session's word with the number of this process image, `offset` bytes into it.
fn image_word(around: &Surroundings, offset: u64) -> Mem {
    let images = offset_of!(ProcessPage, images) as u64;
    Mem::Near(around.process_page + images + 8 * u64::from(around.session) + offset)
}
