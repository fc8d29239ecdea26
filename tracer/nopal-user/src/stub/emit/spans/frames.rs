//! Which of the frames of a thread a hit is about, and what becomes of those around it.

use super::{
    DEPTH, END_AT, END_OF_FRAMES, End, FRAME_BYTES, FRAME_NESTED, FRAME_REACH, FRAME_SPAN, FRAME_STACK,
    FRAME_START, FRAMES, NESTED_AT, top,
};
use crate::stub::StubError;
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, Width, at};
use crate::stub::emit::Stubber;
use core::mem::offset_of;
use nopal_capture::span::{FRAME_SHIFT, SpanTop};
use nopal_sdt::operand::Operand;

impl<'a> Stubber<'a> {
    /// Ends the innermost open span of this kind that is not the last frame, `%rcx`. What began within it and is open stays so,
    /// but for its parts; what has ended within those lies within it.
    pub(super) fn find_below(
        &mut self,
        end: &End<'a>,
        parts: &[u8],
        unmatched: Label,
        done: Label,
    ) -> Result<(), StubError> {
        let (position, next) = (self.position, self.asm.label());
        let end_of_frames = self.slot(END_AT);
        let asm = &mut self.asm;
        asm.lea(RAX, at(RCX, FRAME_BYTES));
        asm.store(end_of_frames, RAX, Width::B8);
        asm.bind(next);
        asm.test(position, position);
        asm.jcc(Cond::Equal, unmatched);
        asm.alu_imm(Alu::Sub, position, FRAME_BYTES);
        asm.alu_imm(Alu::Sub, RCX, FRAME_BYTES);
        asm.load(RAX, at(RCX, FRAME_SPAN), Width::B1, false);
        asm.alu_imm32(Alu::Cmp, RAX, i32::from(end.span));
        asm.jcc(Cond::NotEqual, next);
        asm.load64(RAX, at(RCX, FRAME_START));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, next);
        self.require_stack(end, next)?;
        self.leave_within(end, done);
        self.measure(end);
        self.close_gap(parts);
        Ok(())
    }

    /// Moves what is open behind the frame at `%rcx`, which has ended, into its place; parts of it are dropped.
    pub(super) fn close_gap(&mut self, parts: &[u8]) {
        let (state, position) = (self.state, self.position);
        let [shift, closed] = std::array::from_fn(|_| self.asm.label());
        let [nested, end] = [NESTED_AT, END_AT].map(|at| self.slot(at));
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
        self.asm.bind(closed);
        self.cut_frames();
        let asm = &mut self.asm;
        asm.shr(position, FRAME_SHIFT);
        asm.store(at(state, DEPTH), position, Width::B8);
    }

    /// From `%rcx` on nothing is open any more; `position` becomes how far that is behind the first frame.
    fn cut_frames(&mut self) {
        let (state, position) = (self.state, self.position);
        let [next, cut] = [self.asm.label(), self.asm.label()];
        let end = self.slot(END_AT);
        let asm = &mut self.asm;
        asm.mov(position, RCX);
        asm.bind(next);
        asm.alu_mem(Alu::Cmp, position, end);
        asm.jcc(Cond::AboveEqual, cut);
        asm.store_imm(at(position, FRAME_START), 0, Width::B8);
        asm.alu_imm(Alu::Add, position, FRAME_BYTES);
        asm.jmp(next);
        asm.bind(cut);
        asm.mov(position, RCX);
        asm.alu(Alu::Sub, position, state);
        asm.alu_imm(Alu::Sub, position, FRAMES);
    }

    /// Goes to `otherwise` if the frame at `%rcx` is that of another call.
    pub(super) fn require_stack(&mut self, end: &End<'_>, otherwise: Label) -> Result<(), StubError> {
        if let Some(stack) = end.stack {
            self.frame.load(&mut self.asm, stack, RAX, RDX)?;
            self.asm.not(RAX);
            self.asm.alu_mem(Alu::Cmp, RAX, at(RCX, FRAME_STACK));
            self.asm.jcc(Cond::NotEqual, otherwise);
        }
        Ok(())
    }

    /// The next frame, `%rcx`, `position` behind the first, is that of a call. `full` is where it goes if there is no room; if
    /// there is none then either, it goes to `too_deep`.
    pub(super) fn begin_call(
        &mut self,
        stack: &'a Operand,
        full: Label,
        too_deep: Label,
    ) -> Result<(), StubError> {
        let position = self.position;
        let [begun_with, told_apart] = [self.asm.label(), self.asm.label()];
        self.frame.load(&mut self.asm, stack, RAX, RDX)?;
        let asm = &mut self.asm;
        asm.not(RAX);
        asm.alu_mem(Alu::Cmp, RAX, at(RCX, FRAME_REACH - FRAME_BYTES));
        asm.jcc(Cond::BelowEqual, begun_with);
        asm.store(at(RCX, FRAME_STACK), RAX, Width::B8);
        asm.store(at(RCX, FRAME_REACH), RAX, Width::B8);
        asm.bind(told_apart);
        self.rarely(move |this| {
            this.asm.bind(full);
            this.asm.jcc(Cond::Above, too_deep);
            this.asm.bind(begun_with);
            this.drop_left(stack)?;
            let asm = &mut this.asm;
            asm.alu_imm(Alu::Cmp, position, END_OF_FRAMES);
            asm.jcc(Cond::AboveEqual, too_deep);
            asm.store(at(RCX, FRAME_STACK), RAX, Width::B8);
            asm.load64(RDX, at(RCX, FRAME_REACH - FRAME_BYTES));
            asm.alu(Alu::Cmp, RDX, RAX);
            let is_beyond = asm.label();
            asm.jcc(Cond::AboveEqual, is_beyond);
            asm.mov(RDX, RAX);
            asm.bind(is_beyond);
            asm.store(at(RCX, FRAME_REACH), RDX, Width::B8);
            asm.jmp(told_apart);
            Ok(())
        });
        Ok(())
    }

    /// Drops what is open before `%rcx` and began with the stack pointer of the call that begins now: it was left by an
    /// exception or a jump. Then `%rcx` and `position` are where the next frame goes, `%rax` is what the call is told apart by.
    fn drop_left(&mut self, stack: &Operand) -> Result<(), StubError> {
        let (around, state, position) = (self.around, self.state, self.position);
        let [look, next, stays, in_place, advance, closed] = std::array::from_fn(|_| self.asm.label());
        let end = self.slot(END_AT);
        let asm = &mut self.asm;
        asm.store(end, RCX, Width::B8);
        asm.lea(position, at(state, FRAMES));
        // One that is being made or has just ended is that of a stub which a signal has interrupted: it stays where it is.
        asm.bind(look);
        asm.alu_mem(Alu::Cmp, position, end);
        asm.lea(RCX, at(state, FRAMES));
        asm.jcc(Cond::AboveEqual, next);
        asm.load64(RDX, at(position, FRAME_START));
        asm.alu_imm(Alu::Add, position, FRAME_BYTES);
        asm.test(RDX, RDX);
        asm.jcc(Cond::NotEqual, look);
        asm.load64(RCX, end);
        asm.jmp(closed);
        asm.bind(next);
        asm.mov(position, RCX);
        let again = asm.here();
        asm.alu_mem(Alu::Cmp, position, end);
        asm.jcc(Cond::AboveEqual, closed);
        self.frame.load(&mut self.asm, stack, RAX, RDX)?;
        let asm = &mut self.asm;
        asm.not(RAX);
        asm.alu_mem(Alu::Cmp, RAX, at(position, FRAME_STACK));
        asm.jcc(Cond::NotEqual, stays);
        // What has ended within it lies within the one before it.
        asm.load64(RDX, at(position, FRAME_NESTED));
        asm.mov(RAX, RDX);
        asm.shl(RDX, 8);
        asm.shr(RDX, 8);
        asm.add_to(at(RCX, FRAME_NESTED - FRAME_BYTES), RDX, false);
        asm.shr(RAX, 56);
        asm.multiply(RAX, size_of::<SpanTop>() as i32);
        asm.mov_imm(RDX, top(around, 0) + offset_of!(SpanTop, n_begins) as u64);
        asm.lock_inc(Mem::At { base: RDX, index: Some((RAX, 1)), disp: 0 });
        asm.jmp(advance);
        asm.bind(stays);
        asm.alu(Alu::Cmp, RCX, position);
        asm.jcc(Cond::Equal, in_place);
        for word in (0..FRAME_BYTES).step_by(8) {
            asm.load64(RDX, at(position, word));
            asm.store(at(RCX, word), RDX, Width::B8);
        }
        asm.bind(in_place);
        asm.alu_imm(Alu::Add, RCX, FRAME_BYTES);
        asm.bind(advance);
        asm.alu_imm(Alu::Add, position, FRAME_BYTES);
        asm.jmp(again);
        asm.bind(closed);
        self.cut_frames();
        let asm = &mut self.asm;
        asm.mov(RDX, position);
        asm.shr(RDX, FRAME_SHIFT);
        asm.store(at(state, DEPTH), RDX, Width::B8);
        self.frame.load(&mut self.asm, stack, RAX, RDX)?;
        self.asm.not(RAX);
        Ok(())
    }
}
