//! Whose storage `%fs` points to. A program may switch it (green threads, emulators), to a block of its own, to nothing
//! at all: a stub reads and writes relative to `%fs` only after it has found the address in the process's table of
//! [`threads`](nopal_abi::stub_space::KeptPages::threads). An address gets there once the kernel has said, to the very
//! thread that has it in `%fs`, that the thread's restartable sequences are registered there, or else that the place of the
//! thread's number is there.

use core::mem::offset_of;

use nopal_abi::stub_space::{KEPT_OFFSET, KeptPages, N_THREADS, Path, StubSpace};

use super::Surroundings;
use super::asm::{Alu, Asm, Cond, Label, Mem, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP, Reg, Width, at};
use super::words::{path_word, restraint_word, tid_offset_word};

const SYS_PRCTL: u64 = 157;
const SYS_RSEQ: u64 = 334;
const PR_GET_TID_ADDRESS: u64 = 40;
const RSEQ_UNREGISTER: u64 = 1;
const EPERM: i32 = 1;
const EBUSY: i32 = 16;

/// Spreads addresses over the table: their low bits are alike.
const SPREAD: i32 = 0x1e37_79b1;
const PLACE_MASK: i32 = (N_THREADS as i32 - 1) * 8;
const _: () = assert!(N_THREADS.is_power_of_two());

/// Where in the code that every session has the routine here begins; see [`super::emit::routines`].
pub(super) const ROUTINE_AT: u64 = 8;

/// What the routine uses; its caller expects to find all but the first two as they were.
const REGISTERS: [Reg; 7] = [RAX, RCX, RDX, RSI, RDI, R10, R11];

/// A question whose rare half is written behind the code that asks it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    ask: Label,
    own: Label,
    otherwise: Label,
    table: Label,
}

fn threads(around: &Surroundings) -> u64 {
    around.process_page + (KEPT_OFFSET + offset_of!(KeptPages, threads)) as u64
}

/// Goes to `otherwise` unless `%fs` is the thread's own. Spoils `%rax` and `%rcx`.
pub(super) fn require_own(asm: &mut Asm, otherwise: Label) -> Question {
    let [ask, own, table] = [asm.label(), asm.label(), asm.label()];
    asm.read_fs_base(RAX);
    place(asm, RCX, RAX);
    asm.alu_mem(Alu::Add, RCX, Mem::Label(table));
    asm.not(RAX);
    asm.alu_mem(Alu::Cmp, RAX, at(RCX, 0));
    asm.jcc(Cond::NotEqual, ask);
    asm.bind(own);
    Question { ask, own, otherwise, table }
}

/// How far into the table the first of an address's two places is.
fn place(asm: &mut Asm, to: Reg, address: Reg) {
    asm.multiply_to(to, address, SPREAD);
    asm.shr(to, 32);
    asm.alu_imm32(Alu::And, to, PLACE_MASK);
}

/// Where the [`routine`] is, from the code that needs it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Routine {
    Here(Label),
    /// In the session's routines.
    Shared,
}

/// The rare half of questions, behind the end of the code.
pub(super) fn answer(asm: &mut Asm, around: &Surroundings, questions: &[Question], routine: Routine) {
    for question in questions {
        asm.bind(question.ask);
        asm.lea(RAX, Mem::Label(question.own));
        asm.lea(RCX, Mem::Label(question.otherwise));
        match routine {
            Routine::Here(label) => asm.jmp(label),
            Routine::Shared => asm.jmp_near(around.announce + ROUTINE_AT),
        }
    }
    asm.align(8);
    for question in questions {
        asm.bind(question.table);
        asm.data(&threads(around).to_le_bytes());
    }
}

/// The routine that a stub runs with an address that is not in its first place: goes on at `%rax` if `%fs` is the thread's
/// own, else at `%rcx`. Keeps all registers but these two, and not the flags.
pub(super) fn routine(asm: &mut Asm, around: &Surroundings) {
    let slot = |reg: Reg| 8 * REGISTERS.iter().position(|r| *r == reg).expect("one of ours") as i32;
    let number_at = 8 * REGISTERS.len() as i32;
    let depth = number_at + 8;
    let [known, by_number, is_proved, not_own, first, out] =
        [asm.label(), asm.label(), asm.label(), asm.label(), asm.label(), asm.label()];
    asm.lea(RSP, at(RSP, -depth));
    for reg in REGISTERS {
        asm.store(at(RSP, slot(reg)), reg, Width::B8);
    }
    find_places(asm, around);
    asm.alu_mem(Alu::Cmp, RAX, at(RDX, 0));
    asm.jcc(Cond::Equal, known);

    // What cannot be asked is not known.
    asm.cmp_mem32(restraint_word(around), 0);
    asm.jcc(Cond::NotEqual, not_own);
    asm.load32(RDX, path_word(around));
    asm.alu_imm32(Alu::Cmp, RDX, Path::Rseq as i32);
    asm.jcc(Cond::NotEqual, by_number);
    // To give up a registration with a wrong signature is refused for the signature only if the address is right.
    registration(asm, around, RSEQ_UNREGISTER, !around.rseq_signature);
    asm.alu_imm(Alu::Cmp, RAX, -EPERM);
    asm.jcc(Cond::NotEqual, not_own);
    // A filter of system calls may have said that; but it would say it again, and not that the area is registered already.
    registration(asm, around, 0, around.rseq_signature);
    asm.alu_imm(Alu::Cmp, RAX, -EBUSY);
    asm.jcc(Cond::NotEqual, not_own);
    asm.jmp(is_proved);

    // The kernel knows where it has to write when the thread ends: the place of the thread's number. What stands there does
    // not count, since a copy of it is as good.
    asm.bind(by_number);
    asm.mov_imm(RAX, SYS_PRCTL);
    asm.mov_imm(RDI, PR_GET_TID_ADDRESS);
    asm.lea(RSI, at(RSP, number_at));
    asm.syscall();
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, not_own);
    asm.read_fs_base(RAX);
    asm.alu_mem(Alu::Add, RAX, tid_offset_word(around));
    asm.alu_mem(Alu::Cmp, RAX, at(RSP, number_at));
    asm.jcc(Cond::NotEqual, not_own);

    asm.bind(is_proved);
    find_places(asm, around);
    asm.load64(RSI, at(RCX, 0));
    asm.test(RSI, RSI);
    asm.jcc(Cond::Equal, first);
    asm.store(at(RDX, 0), RAX, Width::B8);
    asm.jmp(known);
    asm.bind(first);
    asm.store(at(RCX, 0), RAX, Width::B8);

    asm.bind(known);
    asm.load64(RAX, at(RSP, slot(RAX)));
    asm.jmp(out);
    asm.bind(not_own);
    asm.load64(RAX, at(RSP, slot(RCX)));
    asm.bind(out);
    for reg in REGISTERS.into_iter().filter(|reg| *reg != RAX && *reg != RCX) {
        asm.load64(reg, at(RSP, slot(reg)));
    }
    asm.lea(RSP, at(RSP, depth));
    asm.jmp_reg(RAX);
}

/// `%rax` becomes what the table has for the address in `%fs`, `%rcx` its first place there, `%rdx` its second.
fn find_places(asm: &mut Asm, around: &Surroundings) {
    asm.read_fs_base(RAX);
    place(asm, RCX, RAX);
    asm.mov(RDX, RCX);
    asm.alu_imm(Alu::Xor, RDX, 8);
    asm.lea(RSI, Mem::Near(threads(around)));
    asm.alu(Alu::Add, RCX, RSI);
    asm.alu(Alu::Add, RDX, RSI);
    asm.not(RAX);
}

/// `rseq(2)` on the area that would be this thread's.
fn registration(asm: &mut Asm, around: &Surroundings, flags: u64, signature: u32) {
    let header = |offset: usize| Mem::Near(around.space + offset as u64);
    asm.read_fs_base(RDI);
    asm.alu_mem(Alu::Add, RDI, header(offset_of!(StubSpace, rseq_offset)));
    asm.load32(RSI, header(offset_of!(StubSpace, rseq_bytes)));
    asm.mov_imm(RDX, flags);
    asm.mov_imm(R10, signature.into());
    asm.mov_imm(RAX, SYS_RSEQ);
    asm.syscall();
}
