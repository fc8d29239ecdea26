//! The way into the locked rings: one `lock cmpxchg` reserves, one store of the header commits. For threads without
//! rseq, and for the rare records that nobody measures.

use core::mem::offset_of;

use nopal_abi::record::flags;
use nopal_abi::ring::{RingState, STATE_SHIFT};
use nopal_abi::stub_space::Path;

use super::asm::{Alu, Asm, Cond, Label, Mem, R11, RAX, RCX, RDX, RSP, Reg, Width, at};
use super::words::{path_word, restraint_word, tid_offset_word};
use super::{Surroundings, thread};

pub(super) const HEAD: i32 = offset_of!(RingState, head) as i32;
pub(super) const TAIL: i32 = offset_of!(RingState, tail) as i32;
const LOST: i32 = offset_of!(RingState, lost) as i32;
const LOST_FIRST: i32 = offset_of!(RingState, lost_first) as i32;
const LOST_LAST: i32 = offset_of!(RingState, lost_last) as i32;

const SYS_GETTID: u64 = 186;
/// The selector in whose segment limit Linux keeps the CPU number, for the vdso's `getcpu`.
const CPU_SELECTOR: u64 = 0x7b;
const CPU_MASK: i32 = 0xfff;

/// How long a record is: known when the stub is made, or only at the hit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Fixed(u32),
    /// u64 at this offset from `%rsp`.
    Slot(i32),
}

/// What the code here needs to know of the stub around it. It uses `%rax`, `%rdx` and `%rcx`, which ends up pointing to
/// the record, and the two registers named here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Locked {
    /// For the ring's state.
    pub state: Reg,
    /// For the position in the ring.
    pub position: Reg,
    pub size: Size,
    /// Offsets from `%rsp`: u32 tid, u64 time, a place to keep `%r11`.
    pub tid_at: i32,
    pub time_at: i32,
    pub keep_at: i32,
    /// The flags of the record's first word.
    pub word_flags: u32,
    pub event: u32,
}

/// `%ecx` becomes the CPU's number, or 0 when that is beyond the rings there are. Spoils `%rax`.
pub(super) fn cpu_by_segment(asm: &mut Asm, around: &Surroundings) {
    let in_range = asm.label();
    asm.mov_imm(RAX, CPU_SELECTOR);
    asm.clear(RCX);
    asm.segment_limit(RCX, RAX);
    asm.alu_imm32(Alu::And, RCX, CPU_MASK);
    asm.alu_imm32(Alu::Cmp, RCX, around.layout.n_cpus as i32);
    asm.jcc(Cond::Below, in_range);
    asm.clear(RCX);
    asm.bind(in_range);
}

/// `state` becomes that of the locked ring of the CPU with the number in `cpu`. Spoils `%rax`.
pub(super) fn state_of_locked(asm: &mut Asm, around: &Surroundings, state: Reg, cpu: Reg) {
    let layout = &around.layout;
    asm.mov32(state, cpu);
    asm.shl(state, STATE_SHIFT as u8);
    asm.mov_imm(RAX, around.ring + layout.states_offset + (u64::from(layout.n_cpus) << STATE_SHIFT));
    asm.alu(Alu::Add, state, RAX);
}

impl Locked {
    /// The thread's tid into its slot, by whichever way the path word allows. Asks whether `%fs` is the thread's own.
    pub(super) fn find_tid(&self, asm: &mut Asm, around: &Surroundings) -> thread::Question {
        let [by_call, none, store] = [asm.label(), asm.label(), asm.label()];
        asm.load32(RAX, path_word(around));
        asm.alu_imm32(Alu::Cmp, RAX, Path::Locked as i32);
        asm.jcc(Cond::Equal, by_call);
        asm.alu_imm32(Alu::Cmp, RAX, Path::LockedSilent as i32);
        asm.jcc(Cond::Equal, none);
        let question = thread::require_own(asm, by_call);
        asm.load64(RAX, tid_offset_word(around));
        asm.load32(RAX, Mem::Fs { base: RAX, disp: 0 });
        asm.jmp(store);
        asm.bind(none);
        asm.clear(RAX);
        asm.jmp(store);
        asm.bind(by_call);
        asm.cmp_mem32(restraint_word(around), 0);
        asm.jcc(Cond::NotEqual, none);
        // The call spoils %rcx, which is ours, and %r11, which may not be.
        asm.store(at(RSP, self.keep_at), R11, Width::B8);
        asm.mov_imm(RAX, SYS_GETTID);
        asm.syscall();
        asm.load64(R11, at(RSP, self.keep_at));
        asm.bind(store);
        asm.store(at(RSP, self.tid_at), RAX, Width::B4);
        question
    }

    fn end_of_record(&self, asm: &mut Asm, to: Reg, from: Reg) {
        match self.size {
            Size::Fixed(bytes) => asm.lea(to, at(from, bytes as i32)),
            Size::Slot(slot) => {
                asm.mov(to, from);
                asm.alu_mem(Alu::Add, to, at(RSP, slot));
            }
        }
    }

    /// Reserves and writes the BUSY header; `%rcx` is the record afterwards. The time is read between the load of head
    /// and the exchange, and again when another thread was faster, so that it rises along the ring.
    pub(super) fn reserve(&self, asm: &mut Asm, around: &Surroundings, full: Label) {
        let layout = &around.layout;
        let ring = layout.locked;
        let sub_mask = (1i64 << ring.sub_shift) as i32 - 1;
        let ring_mask = (1i64 << ring.ring_shift) as i32 - 1;

        cpu_by_segment(asm, around);
        state_of_locked(asm, around, self.state, RCX);
        asm.shl(RCX, ring.ring_shift as u8);
        asm.mov_imm(RAX, around.ring + ring.offset);
        asm.alu(Alu::Add, RCX, RAX);

        let [again, fits, no_padding] = [asm.here(), asm.label(), asm.label()];
        asm.load64(self.position, at(self.state, HEAD));
        if self.word_flags & flags::TIME != 0 {
            // The time must not be taken before the head is known: whoever moved it has an earlier one.
            asm.wait_for_loads();
            asm.time();
            asm.store(at(RSP, self.time_at), RAX, Width::B8);
        }
        asm.mov32(RDX, self.position);
        asm.alu_imm32(Alu::And, RDX, sub_mask);
        self.end_of_record(asm, RDX, RDX);
        asm.alu_imm(Alu::Cmp, RDX, sub_mask + 1);
        asm.mov(RAX, self.position);
        asm.jcc(Cond::BelowEqual, fits);
        asm.alu_imm(Alu::Or, self.position, sub_mask);
        asm.alu_imm(Alu::Add, self.position, 1);
        asm.bind(fits);
        self.end_of_record(asm, RDX, self.position);
        asm.alu_mem(Alu::Sub, RDX, at(self.state, TAIL));
        asm.alu_imm(Alu::Cmp, RDX, ring_mask + 1);
        // Signed: a stale head may lie behind a tail that has moved on.
        asm.jcc(Cond::Greater, full);
        self.end_of_record(asm, RDX, self.position);
        asm.lock_cmpxchg(at(self.state, HEAD), RDX, Width::B8);
        asm.jcc(Cond::NotEqual, again);

        asm.alu(Alu::Cmp, RAX, self.position);
        asm.jcc(Cond::Equal, no_padding);
        asm.mov(RDX, self.position);
        asm.alu(Alu::Sub, RDX, RAX);
        asm.alu_imm(Alu::Or, RDX, flags::PADDING as i32);
        asm.alu_imm32(Alu::And, RAX, ring_mask);
        asm.store(Mem::At { base: RCX, index: Some((RAX, 1)), disp: 0 }, RDX, Width::B8);
        asm.bind(no_padding);
        asm.alu_imm32(Alu::And, self.position, ring_mask);
        asm.alu(Alu::Add, RCX, self.position);

        asm.load32(RAX, at(RSP, self.tid_at));
        asm.shl(RAX, 32);
        asm.alu_imm(Alu::Or, RAX, (self.word_flags | flags::BUSY) as i32);
        self.add_size(asm);
        asm.store(at(RCX, 0), RAX, Width::B8);
    }

    fn add_size(&self, asm: &mut Asm) {
        match self.size {
            Size::Fixed(bytes) => asm.alu_imm(Alu::Add, RAX, bytes as i32),
            Size::Slot(slot) => asm.alu_mem(Alu::Add, RAX, at(RSP, slot)),
        }
    }

    /// The header without BUSY. Everything else must have been stored.
    pub(super) fn commit(&self, asm: &mut Asm) {
        asm.mov_imm(RAX, u64::from(self.event) << 32 | u64::from(self.word_flags));
        self.add_size(asm);
        asm.store(at(RCX, 0), RAX, Width::B8);
    }
}

/// Counts a record where the time cannot be told.
pub(super) fn count_lost_untimed(asm: &mut Asm, state: Reg) {
    asm.lock_inc(at(state, LOST));
}

/// Counts a record that found the ring of `state` full. Spoils `%rax` and `%rdx`.
///
/// The time comes after the count: a reader that takes the count in between finds the time as the start of the next loss,
/// which then begins too early. The other way round a count could come after its time was taken, and no loss would hold it.
pub(super) fn count_lost(asm: &mut Asm, state: Reg) {
    asm.time();
    asm.mov(RDX, RAX);
    asm.clear(RAX);
    asm.lock_inc(at(state, LOST));
    asm.lock_cmpxchg(at(state, LOST_FIRST), RDX, Width::B8);
    asm.store(at(state, LOST_LAST), RDX, Width::B8);
}
