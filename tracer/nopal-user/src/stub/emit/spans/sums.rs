//! Adds up what has ended.

use super::{
    BATCHES, End, FLOOR, GROUP_AT, LEAST, MAX, NESTED, NESTED_AT, RSEQ_AT, Record, SLOT_AT, SLOW_AT, SPAN_AT,
    START_AT, TICKS_AT, TIME_AT, TOTALS, header, top,
};
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, Width, at};
use crate::stub::emit::Stubber;
use crate::stub::locked::cpu_by_segment;
use core::mem::offset_of;
use nopal_capture::span::{
    BATCH_SHIFT, BATCH_TICKS_SHIFT, BLOCK_BYTES, BUCKET_BITS, MAX_NS_SHIFT, SlowSpan, SpanBlock, SpanHeader,
};
use std::rc::Rc;

impl<'a> Stubber<'a> {
    /// Ticks in `%rax` become nanoseconds. Spoils `%rcx` and `%rdx`.
    pub(super) fn convert_ticks(&mut self) {
        let rate = header(self.around) + offset_of!(SpanHeader, rate) as u64;
        let asm = &mut self.asm;
        asm.mov_imm(RCX, rate);
        asm.multiply_wide(at(RCX, 0));
        asm.shr_from(RAX, RDX, 32);
    }

    /// Adds a span that has been measured to the sums, and writes a record if it is slow; whatever is rare goes to `done`.
    pub(super) fn add_up(&mut self, end: End<'a>, record: &Rc<Record>, done: Label) {
        let End { span, n_slowest, .. } = end;
        let block = u32::from(span) * BLOCK_BYTES;
        let position = self.position;
        let is_grouped = end.closing.grouping.is_some();
        let [long, more, less, is_more, is_less, slow, write] = std::array::from_fn(|_| self.asm.label());
        let [too_much, bounded] = [self.asm.label(), self.asm.label()];
        let (group, ungrouped) = (self.slot(GROUP_AT), self.asm.label());
        let [ticks, nested, name, is_slow] = [TICKS_AT, NESTED_AT, SPAN_AT, SLOW_AT].map(|at| self.slot(at));
        let (around, slot) = (self.around, self.slot(SLOT_AT));
        let [time, start] = [TIME_AT, START_AT].map(|at| self.slot(at));
        let asm = &mut self.asm;
        if is_grouped {
            asm.load64(RAX, group);
            asm.test(RAX, RAX);
            asm.jcc(Cond::Equal, ungrouped);
        }
        asm.load64(RAX, ticks);
        self.convert_ticks();
        let asm = &mut self.asm;
        asm.mov(RDX, RAX);
        asm.shr(RDX, MAX_NS_SHIFT);
        asm.jcc(Cond::NotEqual, long);
        self.bucket_from_0(position, BUCKET_BITS);
        if is_grouped {
            self.asm.load64(RAX, group);
            self.asm.multiply(RAX, BLOCK_BYTES as i32 / 8);
            self.asm.alu(Alu::Add, position, RAX);
        }
        self.count_bucket((block + offset_of!(SpanBlock, buckets) as u32) as i32);
        // Sums are the thread's own: one instruction each, which no signal divides.
        let asm = &mut self.asm;
        asm.load64(self.state, slot);
        asm.mov_imm(RCX, top(around, span));
        if is_grouped {
            asm.load64(RAX, group);
            asm.shl(RAX, 3);
            asm.alu(Alu::Add, self.state, RAX);
            asm.shl(RAX, 3);
            asm.alu(Alu::Add, RCX, RAX);
        }
        // A signal's handler may have ended spans within it after its own time was taken.
        asm.load64(RDX, nested);
        asm.alu_mem(Alu::Cmp, RDX, ticks);
        asm.jcc(Cond::Above, too_much);
        asm.bind(bounded);
        asm.add_to(at(self.state, NESTED + 8 * i32::from(span)), RDX, false);
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
        let record = Rc::clone(record);
        self.rarely(move |this| {
            let asm = &mut this.asm;
            asm.bind(too_much);
            asm.load64(RDX, ticks);
            asm.jmp(bounded);
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
            for (why, flag) in [(ungrouped, SlowSpan::IS_UNGROUPED), (long, SlowSpan::IS_LONG)] {
                asm.bind(why);
                if end.may_fail() {
                    asm.load32(RAX, name);
                    asm.alu_imm32(Alu::Or, RAX, flag as i32);
                    asm.store(name, RAX, Width::B4);
                } else {
                    asm.store_imm(name, (u32::from(span) | flag) as i32, Width::B4);
                }
                asm.jmp(write);
            }
            asm.bind(slow);
            if !end.may_fail() {
                asm.store_imm(name, span.into(), Width::B4);
            }
            if n_slowest > 0 {
                this.asm.mov_imm(RCX, top(around, span));
                this.raise_floor(span, n_slowest);
            }
            this.asm.bind(write);
            // Only what leaves a record needs it.
            this.asm.load64(RAX, time);
            this.asm.alu_mem(Alu::Sub, RAX, ticks);
            this.asm.store(start, RAX, Width::B8);
            this.after_record = Some(done);
            let written = this.record(&record.captures, &record.layout, record.event);
            this.after_record = None;
            this.asm.jmp(done);
            written
        });
    }

    /// One more in the bucket with the number in `position`, from `offset` in this CPU's block on.
    fn count_bucket(&mut self, offset: i32) {
        let layout = self.around.layout;
        let [slow, done] = [self.asm.label(), self.asm.label()];
        let bucket = Mem::At { base: self.state, index: Some((self.position, 8)), disp: offset };
        let has_rseq = self.slot(RSEQ_AT);
        self.asm.cmp_mem32(has_rseq, 0);
        self.asm.jcc(Cond::Equal, slow);
        let section = self.open_section(slow, None);
        self.find_cell(layout.cells_offset, false);
        self.asm.inc(bucket);
        self.end_section(section);
        self.asm.bind(done);
        self.rarely(move |this| {
            this.asm.bind(slow);
            cpu_by_segment(&mut this.asm, this.around);
            this.asm.mov32(RAX, RCX);
            let locked = layout.cells_offset + u64::from(layout.n_cpus) * u64::from(layout.cells_stride);
            this.find_cell(locked, false);
            this.asm.lock_inc(bucket);
            this.asm.jmp(done);
            Ok(())
        });
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
