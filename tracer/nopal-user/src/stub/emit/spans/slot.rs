//! Where a thread keeps what it has open.

use super::{OWNER, RSEQ_AT, SLOT_AT, header};
use crate::stub::Surroundings;
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, RSP, Width, at};
use crate::stub::emit::{Stubber, load_generation};
use crate::stub::locked::Size;
use crate::stub::words::tid_offset_word;
use core::mem::offset_of;
use nopal_abi::ring::ControlPage;
use nopal_abi::stub_space::ProcessPage;
use nopal_capture::span::{HEADER_BYTES, N_PROBED, SLOT_SHIFT};

impl<'a> Stubber<'a> {
    /// `state` becomes the thread's slot, which is also kept; without one goes to `no_room`.
    pub(super) fn find_slot(&mut self, no_room: Label) {
        let around = self.around;
        let (state, position) = (self.state, self.position);
        let [enrol, probe, found] = std::array::from_fn(|_| self.asm.label());
        let [otherwise, numbered, ask] = std::array::from_fn(|_| self.asm.label());
        let (has_rseq, tid) = (self.slot(RSEQ_AT), at(RSP, self.tid_at));
        self.require_rseq(otherwise);
        let asm = &mut self.asm;
        asm.load64(position, tid_offset_word(around));
        asm.load32(position, Mem::Fs { base: position, disp: 0 });
        asm.store(tid, position, Width::B4);
        asm.store_imm(has_rseq, 1, Width::B4);
        asm.bind(numbered);
        asm.test(position, position);
        asm.jcc(Cond::Equal, no_room);
        asm.bind(ask);
        load_generation(asm, around);
        asm.cmp32(RAX, image_word(around, 4));
        asm.jcc(Cond::NotEqual, enrol);
        asm.load32(RDX, image_word(around, 0));
        asm.shl(RDX, 32);
        asm.alu(Alu::Or, RDX, position);
        asm.alu_imm32(Alu::And, position, around.layout.span_slots as i32 - 1);
        asm.shl(position, SLOT_SHIFT);
        asm.mov_imm(state, header(around) + HEADER_BYTES as u64);
        asm.alu(Alu::Add, state, position);
        asm.alu_mem(Alu::Cmp, RDX, at(state, OWNER));
        asm.jcc(Cond::NotEqual, probe);
        asm.bind(found);
        let slot = self.slot(SLOT_AT);
        self.asm.store(slot, state, Width::B8);
        self.rarely(move |this| {
            this.asm.bind(otherwise);
            this.asm.store_imm(has_rseq, 0, Width::B4);
            let question = this.locked(Size::Fixed(0), 0, 0).find_tid(&mut this.asm, around);
            this.questions.push(question);
            this.asm.mov32(position, RAX);
            this.asm.jmp(numbered);
            this.probe(probe, found, no_room);
            this.enrol(enrol);
            this.asm.load32(position, tid);
            this.asm.jmp(ask);
            Ok(())
        });
    }

    /// At `probe`: one of the slots behind `state`, or the first of them that is free; then goes to `found`.
    fn probe(&mut self, probe: Label, found: Label, no_room: Label) {
        let (state, position) = (self.state, self.position);
        let asm = &mut self.asm;
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
    }

    /// At `enrol`: the first hit of this image, which takes a number.
    fn enrol(&mut self, enrol: Label) {
        let (asm, around) = (&mut self.asm, self.around);
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
    }
}

/// The session's word with the number of this process image, `offset` bytes into it.
fn image_word(around: &Surroundings, offset: u64) -> Mem {
    let images = offset_of!(ProcessPage, images) as u64;
    Mem::Near(around.process_page + images + 8 * u64::from(around.session) + offset)
}
