//! The code that pairs and adds up spans where they happen; the memory it works on is drawn in [`nopal_capture::span`].
//! Reading it is in [`ring`](crate::ring).
//!
//! A thread alone writes to its slot, so that a begin is a few plain stores. A signal may come between any two of them, and its
//! handler hit probes, too: a frame counts from its start time on, which is stored last, and no more once that is 0.

mod frames;
mod judge;
mod slot;
mod sums;

use core::mem::offset_of;
use std::rc::Rc;

use nopal_capture::span::{
    BLOCK_BYTES, FRAME_SHIFT, Frame, KEPT_BYTES, KEY_AT, MAX_DEPTH, MAX_SPANS, SlowSpan, SpanHeader, SpanTop,
    ThreadSlot,
};
use nopal_capture::{Capture, Closing, Question, RecordLayout, SpanSite, SpanStep};
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};

use super::Stubber;
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, RSP, Width, at};
use crate::stub::{Stub, StubError, StubSpec, Surroundings};

/// Below the frames of [`Stubber`]: the thread's slot, the end of its frames, whether the span is slow, whether the thread has
/// restartable sequences, the answers of the span, its group, the time of the hit if something may end, then a [`SlowSpan`].
pub(super) const SLOT_BYTES: i32 = RECORD_AT + SlowSpan::BYTES as i32;
const SLOT_AT: i32 = 0;
const END_AT: i32 = SLOT_AT + 8;
const SLOW_AT: i32 = END_AT + 8;
const RSEQ_AT: i32 = SLOW_AT + 4;
const ANSWERS_AT: i32 = RSEQ_AT + 4;
/// As a span, or 0 if there is no room for it.
const GROUP_AT: i32 = ANSWERS_AT + 8;
const TIME_AT: i32 = GROUP_AT + 8;
const RECORD_AT: i32 = TIME_AT + 8;
const START_AT: i32 = RECORD_AT + offset_of!(SlowSpan, start) as i32;
const TICKS_AT: i32 = RECORD_AT + offset_of!(SlowSpan, ticks) as i32;
const NESTED_AT: i32 = RECORD_AT + offset_of!(SlowSpan, nested) as i32;
const EVENT_AT: i32 = RECORD_AT + offset_of!(SlowSpan, event) as i32;
const SPAN_AT: i32 = RECORD_AT + offset_of!(SlowSpan, span) as i32;
const KEPT_AT: i32 = RECORD_AT + offset_of!(SlowSpan, kept) as i32;

const OWNER: i32 = offset_of!(ThreadSlot, owner) as i32;
const DEPTH: i32 = offset_of!(ThreadSlot, depth) as i32;
const BEYOND: i32 = offset_of!(ThreadSlot, beyond) as i32;
const IMAGE: i32 = offset_of!(ThreadSlot, image) as i32;
const BATCHES: i32 = offset_of!(ThreadSlot, batches) as i32;
const TOTALS: i32 = offset_of!(ThreadSlot, totals) as i32;
const NESTED: i32 = offset_of!(ThreadSlot, nested) as i32;
const FRAMES: i32 = offset_of!(ThreadSlot, frames) as i32;
const FRAME_BYTES: i32 = 1 << FRAME_SHIFT;
/// Behind the first frame.
const END_OF_FRAMES: i32 = (MAX_DEPTH as i32) << FRAME_SHIFT;
const FRAME_START: i32 = offset_of!(Frame, start) as i32;
const FRAME_NESTED: i32 = offset_of!(Frame, nested) as i32;
/// The highest byte of the same word.
const FRAME_SPAN: i32 = FRAME_NESTED + 7;
const FRAME_EVENT: i32 = offset_of!(Frame, event) as i32;
const FRAME_ANSWERS: i32 = offset_of!(Frame, answers) as i32;
const FRAME_STACK: i32 = offset_of!(Frame, stack) as i32;
const FRAME_REACH: i32 = offset_of!(Frame, reach) as i32;
const FRAME_KEPT: i32 = offset_of!(Frame, kept) as i32;
const MAX: i32 = offset_of!(SpanTop, max) as i32;
const LEAST: i32 = offset_of!(SpanTop, least) as i32;
const FLOOR: i32 = offset_of!(SpanTop, floor) as i32;

/// Makes the stub of a site where spans begin or end.
pub(super) fn generate<'a>(
    spec: &'a StubSpec,
    site: &'a SpanSite,
    around: &'a Surroundings,
) -> Result<Stub, StubError> {
    let values: Vec<Capture> =
        site.values.iter().map(|operand| Capture::Value { operand: operand.clone() }).collect();
    let kept = RecordLayout::new(&values, false, false);
    for step in &site.steps {
        let room = match step {
            SpanStep::Begin { key: Some(_), .. } => KEY_AT,
            SpanStep::Begin { .. } => KEPT_BYTES,
            SpanStep::End { .. } | SpanStep::Fail { .. } => usize::MAX,
        };
        let is_kept = kept.fixed_bytes() as usize <= room;
        for span in step.spans() {
            let is_grouped = |closing: &Closing| closing.grouping.is_some();
            let has_groups = match step {
                SpanStep::Begin { .. } => false,
                SpanStep::End { closing, .. } => is_grouped(closing),
                SpanStep::Fail { spans } => spans.iter().any(|(_, closing)| is_grouped(closing)),
            };
            let last = if has_groups { MAX_SPANS as u32 - 1 } else { u32::from(span) };
            let end = (last + 1) * BLOCK_BYTES;
            if usize::from(span) >= MAX_SPANS
                || end > around.layout.cells_stride
                || around.layout.span_slots == 0
                || !is_kept
            {
                return Err(StubError::BadSpan { span });
            }
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
    if site.steps.iter().any(|step| !matches!(step, SpanStep::Begin { .. })) {
        // Reading the time waits for all that was begun before it, and holds up what comes after. So an end reads it first, a
        // begin last: what lies between the two is the program's, and the rest runs beside each other.
        stubber.asm.time();
        let time = stubber.slot(TIME_AT);
        stubber.asm.store(time, RAX, Width::B8);
    }
    stubber.find_slot(no_room);
    let record = Rc::new(Record { captures, layout: layout.clone(), event: spec.event });
    for (at, step) in site.steps.iter().enumerate() {
        if at > 0 {
            stubber.load_slot();
        }
        match step {
            SpanStep::Begin { span, is_outermost, questions, key, stack } => {
                let known = stubber.asm.label();
                if *is_outermost {
                    stubber.count_within(*span, known);
                }
                let begin = Begin {
                    span: *span,
                    event: spec.event,
                    questions,
                    key: key.as_ref(),
                    stack: stack.as_ref(),
                    is_among_calls: site.has_calls,
                };
                stubber.begin(&begin, &site.values, &kept)?;
                stubber.asm.bind(known);
            }
            SpanStep::End { span, is_outermost, parts, closing, stack } => {
                let end = End {
                    span: *span,
                    n_slowest: site.n_slowest,
                    closing,
                    is_failure: false,
                    is_outermost: *is_outermost,
                    stack: stack.as_ref(),
                };
                stubber.end(end, parts, &record)?;
            }
            SpanStep::Fail { spans } => stubber.fail(spans, site.n_slowest, &record)?,
        }
    }
    stubber.restore();
    stubber.write_rare()?;
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
struct Record {
    captures: Vec<Capture>,
    layout: RecordLayout,
    event: u32,
}

/// How a span begins here.
struct Begin<'a> {
    span: u8,
    event: u32,
    questions: &'a [Question],
    key: Option<&'a Operand>,
    /// Of a call.
    stack: Option<&'a Operand>,
    /// Some span of the session is calls.
    is_among_calls: bool,
}

/// How a span ends here.
#[derive(Clone, Copy)]
struct End<'a> {
    span: u8,
    n_slowest: u16,
    closing: &'a Closing,
    /// Whatever its fields say.
    is_failure: bool,
    /// Those within it that do not count end first.
    is_outermost: bool,
    /// Of a call: only one that began with this stack pointer ends.
    stack: Option<&'a Operand>,
}

impl End<'_> {
    /// If not, the name of its record is known beforehand.
    fn may_fail(&self) -> bool {
        self.is_failure || self.closing.fails.is_some()
    }
}

/// Of the header in the traced processes.
fn header(around: &Surroundings) -> u64 {
    around.ring + around.layout.spans_offset
}

fn top(around: &Surroundings, span: u8) -> u64 {
    let spans = offset_of!(SpanHeader, spans) + usize::from(span) * size_of::<SpanTop>();
    header(around) + spans as u64
}

impl<'a> Stubber<'a> {
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
        let own = (RECORD_AT..RECORD_AT + SlowSpan::BYTES as i32).step_by(8).map(word);
        own.chain(site.iter().cloned()).collect()
    }

    fn slot(&self, at_slot: i32) -> Mem {
        at(RSP, self.spans_at + at_slot)
    }

    /// `state` becomes the thread's slot again.
    fn load_slot(&mut self) {
        let slot = self.slot(SLOT_AT);
        self.asm.load64(self.state, slot);
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

    fn begin(&mut self, begin: &Begin<'a>, values: &[Operand], kept: &RecordLayout) -> Result<(), StubError> {
        let Begin { span, event, questions, key, stack, is_among_calls } = *begin;
        let (state, position) = (self.state, self.position);
        let [full, too_deep, done] = std::array::from_fn(|_| self.asm.label());
        let asm = &mut self.asm;
        asm.load64(position, at(state, DEPTH));
        asm.shl(position, FRAME_SHIFT);
        asm.lea(RCX, Mem::At { base: state, index: Some((position, 1)), disp: FRAMES });
        asm.alu_imm(Alu::Cmp, position, END_OF_FRAMES);
        asm.jcc(Cond::AboveEqual, if stack.is_some() { full } else { too_deep });
        if let Some(stack) = stack {
            self.begin_call(stack, full, too_deep)?;
        } else if is_among_calls {
            asm.load64(RAX, at(RCX, FRAME_REACH - FRAME_BYTES));
            asm.store(at(RCX, FRAME_REACH), RAX, Width::B8);
            asm.store_imm(at(RCX, FRAME_STACK), 0, Width::B8);
        }
        let asm = &mut self.asm;
        // The frame is ours before it is filled: what a signal's handler begins comes behind it.
        asm.inc(at(state, DEPTH));
        asm.mov_imm(RAX, u64::from(span) << 56);
        asm.store(at(RCX, FRAME_NESTED), RAX, Width::B8);
        // Both halves of one word, the answers being 0.
        asm.mov_imm(RAX, event.into());
        asm.store(at(RCX, FRAME_EVENT), RAX, Width::B8);
        for (operand, field) in values.iter().zip(kept.fields()) {
            self.frame.store(&mut self.asm, operand, RCX, FRAME_KEPT + field.offset as i32, RDX)?;
        }
        if let Some(key) = key {
            self.frame.load(&mut self.asm, key, RAX, RDX)?;
            self.asm.store(at(RCX, FRAME_KEPT + KEY_AT as i32), RAX, Width::B8);
        }
        self.ask(questions, at(RCX, FRAME_ANSWERS))?;
        let asm = &mut self.asm;
        asm.time();
        asm.store(at(RCX, FRAME_START), RAX, Width::B8);
        asm.bind(done);
        self.rarely(move |this| {
            this.asm.bind(too_deep);
            this.asm.inc(at(state, BEYOND));
            this.count(offset_of!(SpanHeader, n_too_deep));
            this.asm.jmp(done);
            Ok(())
        });
        Ok(())
    }

    fn end(&mut self, end: End<'a>, parts: &'a [u8], record: &Rc<Record>) -> Result<(), StubError> {
        let span = end.span;
        let (state, position) = (self.state, self.position);
        let [search, unmatched, beyond, measured, done] = std::array::from_fn(|_| self.asm.label());
        let asm = &mut self.asm;
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
        self.require_stack(&end, search)?;
        self.leave_within(&end, done);
        self.measure(&end);
        self.asm.dec(at(state, DEPTH));
        self.asm.bind(measured);
        self.judge(&end, done)?;
        self.add_up(end, record, done);
        self.asm.bind(done);
        self.rarely(move |this| {
            this.asm.bind(search);
            this.find_below(&end, parts, unmatched, done)?;
            this.asm.jmp(measured);
            this.asm.bind(unmatched);
            this.count_of(span, offset_of!(SpanTop, n_ends));
            this.asm.jmp(done);
            this.asm.bind(beyond);
            this.asm.dec(at(state, BEYOND));
            this.count(offset_of!(SpanHeader, n_too_deep));
            this.asm.jmp(done);
            Ok(())
        });
        Ok(())
    }

    /// Ends all open spans of these kinds, the innermost first.
    fn fail(
        &mut self,
        spans: &'a [(u8, Closing)],
        n_slowest: u16,
        record: &Rc<Record>,
    ) -> Result<(), StubError> {
        let (state, position) = (self.state, self.position);
        let [next, done] = [self.asm.label(), self.asm.label()];
        let [slot, end_of_frames] = [SLOT_AT, END_AT].map(|at| self.slot(at));
        let again = self.asm.here();
        let asm = &mut self.asm;
        asm.load64(state, slot);
        asm.load64(position, at(state, DEPTH));
        asm.alu_imm(Alu::Cmp, position, MAX_DEPTH as i32);
        asm.jcc(Cond::Above, done);
        asm.shl(position, FRAME_SHIFT);
        asm.lea(RCX, Mem::At { base: state, index: Some((position, 1)), disp: FRAMES });
        asm.store(end_of_frames, RCX, Width::B8);
        asm.bind(next);
        asm.test(position, position);
        asm.jcc(Cond::Equal, done);
        asm.alu_imm(Alu::Sub, position, FRAME_BYTES);
        asm.alu_imm(Alu::Sub, RCX, FRAME_BYTES);
        asm.load64(RAX, at(RCX, FRAME_START));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, next);
        asm.load(RAX, at(RCX, FRAME_SPAN), Width::B1, false);
        let labels: Vec<Label> = spans.iter().map(|_| asm.label()).collect();
        for ((span, _), label) in spans.iter().zip(&labels) {
            asm.alu_imm32(Alu::Cmp, RAX, i32::from(*span));
            asm.jcc(Cond::Equal, *label);
        }
        asm.jmp(next);
        for ((span, closing), label) in spans.iter().zip(labels) {
            let end =
                End { span: *span, n_slowest, closing, is_failure: true, is_outermost: false, stack: None };
            self.asm.bind(label);
            self.measure(&end);
            self.close_gap(&[]);
            self.judge(&end, again)?;
            self.add_up(end, record, again);
            self.asm.jmp(again);
        }
        self.asm.bind(done);
        Ok(())
    }

    /// Takes the time of the frame at `%rcx`, which is `position` behind the first: it ends, and the one before it has it
    /// within.
    fn measure(&mut self, end: &End<'_>) {
        let [forward, backward] = std::array::from_fn(|_| self.asm.label());
        let [ticks, nested] = [TICKS_AT, NESTED_AT].map(|at| self.slot(at));
        let (event, slow, answers) = (self.slot(EVENT_AT), self.slot(SLOW_AT), self.slot(ANSWERS_AT));
        let time = self.slot(TIME_AT);
        let asm = &mut self.asm;
        asm.load64(RAX, time);
        asm.alu_mem(Alu::Sub, RAX, at(RCX, FRAME_START));
        asm.jcc(Cond::Less, backward);
        asm.bind(forward);
        asm.store(ticks, RAX, Width::B8);
        asm.store_imm(at(RCX, FRAME_START), 0, Width::B8);
        // Of the first frame into `ThreadSlot::outside`.
        asm.add_to(at(RCX, FRAME_NESTED - FRAME_BYTES), RAX, false);
        asm.load64(RDX, at(RCX, FRAME_NESTED));
        asm.shl(RDX, 8);
        asm.shr(RDX, 8);
        asm.store(nested, RDX, Width::B8);
        if end.closing.counts.is_some() || end.closing.fails.is_some() {
            asm.load32(RDX, at(RCX, FRAME_ANSWERS));
            asm.store(answers, RDX, Width::B4);
        }
        self.rarely(move |this| {
            // Counters of two processors may be a little apart.
            this.asm.bind(backward);
            this.asm.clear(RAX);
            this.asm.jmp(forward);
            Ok(())
        });
        let (is_grouped, n_slowest) = (end.closing.grouping.is_some(), end.n_slowest);
        if n_slowest == 0 && !is_grouped {
            return;
        }
        let [is_slow, kept] = [self.asm.label(), self.asm.label()];
        let asm = &mut self.asm;
        asm.store_imm(slow, 0, Width::B4);
        asm.mov_imm(RDX, top(self.around, end.span));
        asm.alu_mem(Alu::Cmp, RAX, at(RDX, FLOOR));
        asm.jcc(Cond::Above, is_slow);
        let keep = move |this: &mut Stubber<'a>| {
            let asm = &mut this.asm;
            asm.load32(RDX, at(RCX, FRAME_EVENT));
            asm.store(event, RDX, Width::B4);
            for word in (0..KEPT_BYTES as i32).step_by(8) {
                asm.load64(RDX, at(RCX, FRAME_KEPT + word));
                asm.store(at(RSP, this.spans_at + KEPT_AT + word), RDX, Width::B8);
            }
        };
        if is_grouped {
            // Where there is no room for its group, one that is not slow leaves a record, too.
            keep(self);
        }
        self.asm.bind(kept);
        self.rarely(move |this| {
            this.asm.bind(is_slow);
            this.asm.store_imm(slow, i32::from(n_slowest > 0), Width::B4);
            keep(this);
            this.asm.jmp(kept);
            Ok(())
        });
    }
}
