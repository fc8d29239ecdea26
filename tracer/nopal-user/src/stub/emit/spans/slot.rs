//! Where a thread keeps what it has open.

use super::{IMAGE, OWNER, RSEQ_AT, SLOT_AT, header};
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
        asm.load64(RAX, tid_offset_word(around));
        asm.load32(RAX, Mem::Fs { base: RAX, disp: 0 });
        asm.store_imm(has_rseq, 1, Width::B4);
        asm.bind(numbered);
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, no_room);
        asm.bind(ask);
        asm.mov32(position, RAX);
        asm.alu_imm32(Alu::And, position, around.layout.span_slots as i32 - 1);
        asm.shl(position, SLOT_SHIFT);
        asm.mov_imm(state, header(around) + HEADER_BYTES as u64);
        asm.alu(Alu::Add, state, position);
        // A slot has the image's word, with the generation in it, only from a thread that has looked.
        asm.load64(RDX, image_word(around, 0));
        asm.alu_mem(Alu::Cmp, RDX, at(state, IMAGE));
        asm.jcc(Cond::NotEqual, probe);
        asm.cmp32(RAX, at(state, OWNER));
        asm.jcc(Cond::NotEqual, probe);
        asm.bind(found);
        let slot = self.slot(SLOT_AT);
        self.asm.store(slot, state, Width::B8);
        self.rarely(move |this| {
            this.asm.bind(otherwise);
            this.asm.store_imm(has_rseq, 0, Width::B4);
            let question = this.locked(Size::Fixed(0), 0, 0).find_tid(&mut this.asm, around);
            this.questions.push(question);
            this.asm.mov32(RAX, RAX);
            this.asm.jmp(numbered);
            this.probe(probe, enrol, found, no_room);
            this.enrol(enrol);
            this.asm.load32(RAX, tid);
            this.asm.jmp(ask);
            Ok(())
        });
    }

    /// At `probe`: one of the slots from `state` on, or the first of them that is free; then goes to `found`. `%eax` is the
    /// thread's number, `%rdx` the word of its process image, which may be that of another session.
    fn probe(&mut self, probe: Label, enrol: Label, found: Label, no_room: Label) {
        let (around, state, position) = (self.around, self.state, self.position);
        let tid = at(RSP, self.tid_at);
        let asm = &mut self.asm;
        asm.bind(probe);
        let [hit, claim, taken] = [asm.label(), asm.label(), asm.label()];
        asm.store(tid, RAX, Width::B4);
        load_generation(asm, around);
        asm.mov(RCX, RDX);
        asm.shr(RCX, 32);
        asm.alu(Alu::Cmp, RAX, RCX);
        asm.jcc(Cond::NotEqual, enrol);
        asm.load32(RAX, tid);
        asm.shl(RDX, 32);
        asm.alu(Alu::Or, RDX, RAX);
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
        // What `%rdx` was made of: number and generation, which have just been compared with the session's.
        load_generation(asm, around);
        asm.shl(RAX, 32);
        asm.shr(RDX, 32);
        asm.alu(Alu::Or, RAX, RDX);
        asm.store(at(state, IMAGE), RAX, Width::B8);
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
