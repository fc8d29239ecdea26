//! A record: its size, a place in a ring, and what it is filled with.

use super::{AHEAD_BYTES, LINE_BYTES, Stubber, TIME_AT, find_ring, pid_word};
use crate::stub::asm::{Alu, Cond, Label, Mem, R10, RAX, RCX, RDX, RSP, Reg, Width, at};
use crate::stub::locked::{HEAD, Locked, Size, TAIL, count_lost};
use crate::stub::words::tid_offset_word;
use crate::stub::{StubError, strings};
use nopal_abi::record::{self, flags};
use nopal_abi::ring::Mode;
use nopal_capture::{Capture, RecordLayout};

impl Stubber<'_> {
    /// Writes a record and leaves, or goes on at `after_record`; control may also reach the end, with a record that was lost.
    pub(super) fn record(
        &mut self,
        captures: &[Capture],
        layout: &RecordLayout,
        event: u32,
    ) -> Result<(), StubError> {
        let silenced = self.asm.label();
        self.require_time(silenced);
        if layout.has_task() {
            self.meet_process();
        }
        if self.is_direct {
            let measure = self.asm.label();
            self.direct(captures, layout, event, measure)?;
            self.restore();
            self.asm.bind(measure);
        }
        let mut texts = self.texts.clone().into_iter();
        for capture in captures {
            if !matches!(capture, Capture::Value { .. }) {
                let slots = texts.next().expect("one pair of slots per string");
                strings::measure(&mut self.asm, &self.frame, capture, slots)?;
            }
        }
        let size = self.size(layout);
        let [slow, full] = [self.asm.label(), self.asm.label()];
        self.fast(captures, layout, event, size, slow, full)?;
        self.restore();
        let done = self.after_record.unwrap_or(self.exit);
        self.asm.bind(slow);
        self.slow(captures, layout, event, size, full)?;
        self.asm.jmp(done);
        self.asm.bind(silenced);
        self.lose();
        self.asm.bind(full);
        count_lost(&mut self.asm, self.state);
        Ok(())
    }

    /// The record's size; computed into its slot if it depends on strings.
    fn size(&mut self, layout: &RecordLayout) -> Size {
        let fixed = layout.payload_offset() + layout.fixed_bytes();
        if self.texts.is_empty() {
            return Size::Fixed(record::round_up(fixed));
        }
        let asm = &mut self.asm;
        asm.mov_imm(RAX, u64::from(fixed + record::UNIT_BYTES - 1));
        for slots in &self.texts {
            asm.load32(RDX, at(RSP, slots.length));
            asm.alu_imm32(Alu::And, RDX, record::text::LENGTH_MASK as i32);
            asm.alu(Alu::Add, RAX, RDX);
        }
        asm.alu_imm32(Alu::And, RAX, !(record::UNIT_BYTES as i32 - 1));
        asm.store(at(RSP, self.size_at), RAX, Width::B8);
        Size::Slot(self.size_at)
    }

    /// `to = from + size`
    fn add_size(&mut self, to: Reg, from: Reg, size: Size) {
        match size {
            Size::Fixed(bytes) => self.asm.lea(to, at(from, bytes as i32)),
            Size::Slot(slot) => {
                if to != from {
                    self.asm.mov(to, from);
                }
                self.asm.alu_mem(Alu::Add, to, at(RSP, slot));
            }
        }
    }

    /// Reserve, fill and commit in an rseq ring.
    fn fast(
        &mut self,
        captures: &[Capture],
        layout: &RecordLayout,
        event: u32,
        size: Size,
        slow: Label,
        full: Label,
    ) -> Result<(), StubError> {
        let rings = self.around.layout;
        let ring = rings.rseq;
        let sub_bytes = (1i64 << ring.sub_shift) as i32;
        let ring_bytes = (1i64 << ring.ring_shift) as i32;
        let discards = rings.mode == Mode::Discard;
        let (state, position) = (self.state, self.position);
        let [padding, fits] = [self.asm.label(), self.asm.label()];

        // %rcx is the ring, %rax how far into its sub-buffer the head is.
        self.require_rseq(slow);
        let pad = |this: &mut Self| {
            let asm = &mut this.asm;
            asm.bind(padding);
            if discards {
                asm.lea(RDX, at(position, record::UNIT_BYTES as i32));
                asm.alu_mem(Alu::Sub, RDX, at(state, TAIL));
                asm.alu_imm(Alu::Cmp, RDX, ring_bytes);
                asm.jcc(Cond::Greater, full);
            }
            asm.mov32(RDX, position);
            asm.alu_imm32(Alu::And, RDX, ring_bytes - 1);
            asm.alu(Alu::Add, RDX, RCX);
            asm.mov(RAX, position);
            asm.alu_imm(Alu::Or, position, sub_bytes - 1);
            asm.alu_imm(Alu::Add, position, 1);
            asm.not(RAX);
            asm.lea(RAX, Mem::At { base: RAX, index: Some((position, 1)), disp: 1 });
            asm.alu_imm(Alu::Or, RAX, flags::PADDING as i32);
            asm.store(at(RDX, 0), RAX, Width::B8);
            asm.jmp(fits);
        };
        let section = self.open_section(slow, Some(&pad));
        let asm = &mut self.asm;
        find_ring(asm, self.around, state);
        asm.load64(position, at(state, HEAD));
        asm.mov32(RAX, position);
        asm.alu_imm32(Alu::And, RAX, sub_bytes - 1);
        match size {
            Size::Fixed(bytes) => asm.alu_imm32(Alu::Cmp, RAX, sub_bytes - bytes as i32),
            Size::Slot(slot) => {
                asm.alu_mem(Alu::Add, RAX, at(RSP, slot));
                asm.alu_imm32(Alu::Cmp, RAX, sub_bytes);
            }
        }
        asm.jcc(Cond::Above, padding);
        asm.bind(fits);
        asm.mov32(RAX, position);
        asm.alu_imm32(Alu::And, RAX, ring_bytes - 1);
        asm.alu(Alu::Add, RCX, RAX);
        self.add_size(position, position, size);
        let asm = &mut self.asm;
        if discards {
            asm.mov(RAX, position);
            asm.alu_mem(Alu::Sub, RAX, at(state, TAIL));
            asm.alu_imm(Alu::Cmp, RAX, ring_bytes);
            // Signed: a stale head may lie behind a tail that has moved on.
            asm.jcc(Cond::Greater, full);
        }

        // The lines of the records to come: fetched now they are there by then, while a store to a line that is not would
        // hold up the program's next locked instruction.
        let longest = match size {
            Size::Fixed(bytes) => bytes as i32,
            Size::Slot(_) => 2 * LINE_BYTES,
        };
        for line in 0..(longest + LINE_BYTES - 1) / LINE_BYTES {
            asm.prefetch_for_write(at(RCX, AHEAD_BYTES + line * LINE_BYTES));
        }

        match size {
            Size::Fixed(bytes) => asm.store_imm(at(RCX, 0), (bytes | layout.word_flags) as i32, Width::B4),
            Size::Slot(slot) => {
                asm.load32(RAX, at(RSP, slot));
                asm.alu_imm32(Alu::Or, RAX, layout.word_flags as i32);
                asm.store(at(RCX, 0), RAX, Width::B4);
            }
        }
        asm.store_imm(at(RCX, 4), event as i32, Width::B4);
        self.store_task(layout);
        self.fill(captures, layout)?;
        self.store_time(layout);
        self.asm.store(at(state, HEAD), position, Width::B8);
        self.end_section(section);
        Ok(())
    }

    /// tid and pid into the record at `%rcx`, if it has them.
    pub(super) fn store_task(&mut self, layout: &RecordLayout) {
        let offset = if layout.has_time() { TIME_AT + 8 } else { TIME_AT };
        if layout.has_task() {
            let asm = &mut self.asm;
            asm.load64(RAX, tid_offset_word(self.around));
            asm.load32(RAX, Mem::Fs { base: RAX, disp: 0 });
            asm.store(at(RCX, offset), RAX, Width::B4);
            asm.load32(RAX, pid_word(self.around));
            asm.store(at(RCX, offset + 4), RAX, Width::B4);
        }
    }

    /// The time into the record at `%rcx`, if it has it. Last of all: reading the time waits for what was begun before it
    /// and holds up what comes after.
    pub(super) fn store_time(&mut self, layout: &RecordLayout) {
        if layout.has_time() {
            self.asm.time();
            self.asm.store(at(RCX, TIME_AT), RAX, Width::B8);
        }
    }

    /// The captures into the record at `%rcx`.
    fn fill(&mut self, captures: &[Capture], layout: &RecordLayout) -> Result<(), StubError> {
        let payload = layout.payload_offset() as i32;
        if !self.texts.is_empty() {
            self.asm.lea(R10, at(RCX, payload + layout.fixed_bytes() as i32));
        }
        let mut texts = self.texts.iter();
        for (capture, field) in captures.iter().zip(layout.fields()) {
            let offset = payload + field.offset as i32;
            match capture {
                Capture::Value { operand } => self.frame.store(&mut self.asm, operand, RCX, offset, RDX)?,
                Capture::CString { .. } | Capture::Bytes { .. } | Capture::ThreadContext { .. } => {
                    let slots = texts.next().expect("one pair of slots per string");
                    strings::copy(&mut self.asm, *slots, at(RCX, offset));
                }
            }
        }
        Ok(())
    }

    /// The same through a locked ring.
    fn slow(
        &mut self,
        captures: &[Capture],
        layout: &RecordLayout,
        event: u32,
        size: Size,
        full: Label,
    ) -> Result<(), StubError> {
        let locked = self.locked(size, layout.word_flags, event);
        self.questions.push(locked.find_tid(&mut self.asm, self.around));
        locked.reserve(&mut self.asm, self.around, full);
        let asm = &mut self.asm;
        let mut offset = 8;
        if layout.has_time() {
            asm.load64(RAX, at(RSP, self.time_at));
            asm.store(at(RCX, offset), RAX, Width::B8);
            offset += 8;
        }
        if layout.has_task() {
            asm.load32(RAX, at(RSP, self.tid_at));
            asm.store(at(RCX, offset), RAX, Width::B4);
            asm.load32(RAX, pid_word(self.around));
            asm.store(at(RCX, offset + 4), RAX, Width::B4);
        }
        self.fill(captures, layout)?;
        locked.commit(&mut self.asm);
        Ok(())
    }

    /// The way into a locked ring, for this stub.
    pub(super) fn locked(&self, size: Size, word_flags: u32, event: u32) -> Locked {
        Locked {
            state: self.state,
            position: self.position,
            size,
            tid_at: self.tid_at,
            time_at: self.time_at,
            keep_at: self.keep_at,
            word_flags,
            event,
        }
    }
}
