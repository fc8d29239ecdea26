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

impl Stubber<'_> {
    /// `state` becomes the thread's slot, which is also kept; without one goes to `no_room`.
    pub(super) fn find_slot(&mut self, no_room: Label) {
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
}

/// The session's word with the number of this process image, `offset` bytes into it.
fn image_word(around: &Surroundings, offset: u64) -> Mem {
    let images = offset_of!(ProcessPage, images) as u64;
    Mem::Near(around.process_page + images + 8 * u64::from(around.session) + offset)
}
