//! Whether a span counts, and whether it has failed.

use super::{
    ANSWERS_AT, DEPTH, End, FRAME_ANSWERS, FRAME_BYTES, FRAME_SPAN, FRAME_START, FRAMES, GROUP_AT, KEPT_AT,
    SPAN_AT, TICKS_AT, header, top,
};
use crate::stub::StubError;
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, Width, at};
use crate::stub::emit::Stubber;
use core::mem::offset_of;
use nopal_capture::span::{
    FRAME_SHIFT, GROUP_IS_READY, Group, KEY_AT, MAX_DEPTH, MAX_GROUPS, SlowSpan, SpanHeader, SpanTop,
    WITHIN_SHIFT,
};
use nopal_capture::{Formula, Grouping, Question};

impl Stubber<'_> {
    /// Sets the bits of what is answered with yes. Spoils `%rax` and `%rdx`.
    pub(super) fn ask(&mut self, questions: &[Question], answers: Mem) -> Result<(), StubError> {
        for Question { bit, predicate } in questions {
            let no = self.asm.label();
            self.frame.require(&mut self.asm, predicate, RDX, no)?;
            self.asm.load32(RAX, answers);
            self.asm.alu_imm32(Alu::Or, RAX, (1u32 << (bit & 31)) as i32);
            self.asm.store(answers, RAX, Width::B4);
            self.asm.bind(no);
        }
        Ok(())
    }

    /// Goes to `to` if the answers make the formula what `is` says. Spoils `%rax`.
    fn jump_if(&mut self, formula: &Formula, is: bool, to: Label) {
        match (formula, is) {
            (Formula::Bit(bit), _) => {
                let answers = self.slot(ANSWERS_AT);
                self.asm.load32(RAX, answers);
                self.asm.alu_imm32(Alu::And, RAX, (1u32 << (bit & 31)) as i32);
                self.asm.jcc(if is { Cond::NotEqual } else { Cond::Equal }, to);
            }
            (Formula::Not(inner), _) => self.jump_if(inner, !is, to),
            (Formula::All(parts), false) | (Formula::Any(parts), true) => {
                parts.iter().for_each(|part| self.jump_if(part, is, to));
            }
            (Formula::All(parts), true) | (Formula::Any(parts), false) => {
                let otherwise = self.asm.label();
                parts.iter().for_each(|part| self.jump_if(part, !is, otherwise));
                self.asm.jmp(to);
                self.asm.bind(otherwise);
            }
        }
    }

    /// Decides what a span that has been measured comes to; one that does not count goes to `done`.
    pub(super) fn judge(&mut self, end: &End<'_>, done: Label) -> Result<(), StubError> {
        let (answers, name) = (self.slot(ANSWERS_AT), self.slot(SPAN_AT));
        self.ask(&end.closing.questions, answers)?;
        if let Some(bounds) = end.closing.bounds {
            self.require_duration(bounds, done);
        }
        if let Some(counts) = &end.closing.counts {
            self.jump_if(counts, false, done);
        }
        if let Some(grouping) = &end.closing.grouping {
            self.find_group(grouping)?;
        }
        if !end.may_fail() {
            return Ok(());
        }
        self.asm.store_imm(name, i32::from(end.span), Width::B4);
        let sound = self.asm.label();
        if let (Some(fails), false) = (&end.closing.fails, end.is_failure) {
            self.jump_if(fails, false, sound);
        }
        self.asm.store_imm(name, (u32::from(end.span) | SlowSpan::IS_ERROR) as i32, Width::B4);
        if end.closing.grouping.is_some() {
            // What has no group is not counted by anybody here.
            let group = self.slot(GROUP_AT);
            self.asm.load64(RCX, group);
            self.asm.shl(RCX, 6);
            self.asm.mov_imm(RAX, top(self.around, end.span) + offset_of!(SpanTop, n_errors) as u64);
            self.asm.lock_inc(Mem::At { base: RAX, index: Some((RCX, 1)), disp: 0 });
        } else {
            self.count_of(end.span, offset_of!(SpanTop, n_errors));
        }
        self.asm.bind(sound);
        Ok(())
    }

    /// Finds the group of the span that has been measured, or makes it; there may be no room.
    fn find_group(&mut self, grouping: &Grouping) -> Result<(), StubError> {
        let (state, position) = (self.state, self.position);
        let [other, free, hit] = std::array::from_fn(|_| self.asm.label());
        let (group, key) = (self.slot(GROUP_AT), self.slot(KEPT_AT + KEY_AT as i32));
        if let Grouping::ByEnd(operand) = grouping {
            self.frame.load(&mut self.asm, operand, RAX, RDX)?;
            self.asm.store(key, RAX, Width::B8);
        }
        let groups = header(self.around) + offset_of!(SpanHeader, groups) as u64;
        let (key_at, state_at) = (offset_of!(Group, key) as i32, offset_of!(Group, state) as i32);
        let asm = &mut self.asm;
        asm.load64(RDX, key);
        asm.mov_imm(RCX, groups);
        asm.mov_imm(position, 1);
        let next = asm.here();
        asm.load64(RAX, at(RCX, state_at));
        asm.alu_imm(Alu::Cmp, RAX, GROUP_IS_READY as i32);
        asm.jcc(Cond::NotEqual, free);
        asm.alu_mem(Alu::Cmp, RDX, at(RCX, key_at));
        asm.jcc(Cond::Equal, hit);
        asm.bind(other);
        asm.alu_imm(Alu::Add, RCX, size_of::<Group>() as i32);
        asm.alu_imm(Alu::Add, position, 1);
        asm.alu_imm(Alu::Cmp, position, MAX_GROUPS as i32);
        asm.jcc(Cond::BelowEqual, next);
        asm.clear(position);
        asm.jmp(hit);
        // Whoever makes one meanwhile may make it for the same number: then it has two.
        asm.bind(free);
        asm.test(RAX, RAX);
        asm.jcc(Cond::NotEqual, other);
        asm.mov_imm(state, 1);
        asm.lock_cmpxchg(at(RCX, state_at), state, Width::B8);
        asm.jcc(Cond::NotEqual, other);
        asm.store(at(RCX, key_at), RDX, Width::B8);
        asm.store_imm(at(RCX, state_at), GROUP_IS_READY as i32, Width::B8);
        asm.bind(hit);
        asm.store(group, position, Width::B8);
        Ok(())
    }

    /// Goes to `otherwise` unless the span that has been measured took so long.
    fn require_duration(&mut self, (least, most): (u64, u64), otherwise: Label) {
        let ticks = self.slot(TICKS_AT);
        self.asm.load64(RAX, ticks);
        self.convert_ticks();
        for (bound, is_beyond) in [(least, Cond::Below), (most, Cond::Above)] {
            self.asm.mov_imm(RDX, bound);
            self.asm.alu(Alu::Cmp, RAX, RDX);
            self.asm.jcc(is_beyond, otherwise);
        }
    }

    /// If a span of this kind is open, one more has begun within it: goes to `known`.
    pub(super) fn count_within(&mut self, span: u8, known: Label) {
        let (state, position) = (self.state, self.position);
        let [next, full, none] = std::array::from_fn(|_| self.asm.label());
        let asm = &mut self.asm;
        asm.load64(position, at(state, DEPTH));
        asm.alu_imm(Alu::Cmp, position, MAX_DEPTH as i32);
        asm.jcc(Cond::Above, none);
        asm.shl(position, FRAME_SHIFT);
        asm.lea(RCX, Mem::At { base: state, index: Some((position, 1)), disp: FRAMES });
        asm.bind(next);
        asm.test(position, position);
        asm.jcc(Cond::Equal, none);
        asm.alu_imm(Alu::Sub, position, FRAME_BYTES);
        asm.alu_imm(Alu::Sub, RCX, FRAME_BYTES);
        asm.load(RAX, at(RCX, FRAME_SPAN), Width::B1, false);
        asm.alu_imm32(Alu::Cmp, RAX, i32::from(span));
        asm.jcc(Cond::NotEqual, next);
        asm.load64(RAX, at(RCX, FRAME_START));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, next);
        asm.load32(RAX, at(RCX, FRAME_ANSWERS));
        asm.shr(RAX, WITHIN_SHIFT);
        asm.alu_imm32(Alu::Cmp, RAX, 0xffff);
        asm.jcc(Cond::Equal, full);
        // One instruction, which no signal divides. What is added never leaves its half.
        asm.mov_imm(RDX, 1 << WITHIN_SHIFT);
        asm.add_to(at(RCX, FRAME_ANSWERS), RDX, false);
        asm.jmp(known);
        asm.bind(full);
        self.count(offset_of!(SpanHeader, n_too_deep));
        self.asm.jmp(known);
        self.asm.bind(none);
    }

    /// If another has begun within the frame at `%rcx` that does not count, that one ends: goes to `done`.
    pub(super) fn leave_within(&mut self, end: &End<'_>, done: Label) {
        if !end.is_outermost {
            return;
        }
        let alone = self.asm.label();
        let asm = &mut self.asm;
        asm.load32(RAX, at(RCX, FRAME_ANSWERS));
        asm.shr(RAX, WITHIN_SHIFT);
        asm.jcc(Cond::Equal, alone);
        asm.mov_imm(RDX, (1u64 << WITHIN_SHIFT).wrapping_neg());
        asm.add_to(at(RCX, FRAME_ANSWERS), RDX, false);
        asm.jmp(done);
        asm.bind(alone);
    }
}
