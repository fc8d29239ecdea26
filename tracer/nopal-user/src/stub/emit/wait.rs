//! Waiting for the tracer, where a program must not go on before it has looked.

use super::Stubber;
use crate::stub::asm::{Alu, Cond, Mem, R10, RAX, RCX, RDI, RDX, RSI, RSP, Width, at};
use crate::stub::words::{path_word, restraint_word};
use core::mem::offset_of;
use nopal_abi::ring::ControlPage;
use nopal_abi::stub_space::Path;

const SYS_FUTEX: u64 = 202;
/// How often a waiting thread waits again that a signal has woken.
const MAX_WAITS: i32 = 8;
/// How many may wait, or have waited in vain, before the next one does not wait at all.
const MAX_UNANSWERED: i32 = 32;

impl Stubber<'_> {
    /// Takes a ticket and waits for its turn: until the tracer has finished a look that it began afterwards.
    pub(super) fn wait(&mut self, timeout_ms: u32) {
        let [begin, timeout, look, again_or_not, impatient] = std::array::from_fn(|_| self.asm.label());
        let word = |offset: usize| self.around.ring + offset as u64;
        let (turn, tickets) = (word(offset_of!(ControlPage, turn)), word(offset_of!(ControlPage, tickets)));
        let n_impatient = word(offset_of!(ControlPage, impatient));
        let looking = word(offset_of!(ControlPage, looking));
        let (ticket, tries) = (at(RSP, self.size_at), at(RSP, self.size_at + 4));
        let (asm, exit) = (&mut self.asm, self.exit);
        asm.jmp(begin);
        asm.bind(timeout);
        asm.data(&u64::from(timeout_ms / 1000).to_le_bytes());
        asm.data(&(u64::from(timeout_ms % 1000) * 1_000_000).to_le_bytes());
        asm.bind(begin);
        asm.mov_imm(RCX, tickets);
        let again = asm.here();
        asm.load32(RAX, at(RCX, 0));
        asm.lea(RDX, at(RAX, 1));
        asm.lock_cmpxchg(at(RCX, 0), RDX, Width::B4);
        asm.jcc(Cond::NotEqual, again);
        asm.store(ticket, RDX, Width::B4);
        asm.store_imm(tries, MAX_WAITS, Width::B4);
        asm.cmp_mem32(path_word(self.around), Path::LockedSilent as i32);
        asm.jcc(Cond::Equal, impatient);
        // Who must not wait: what it loads is found by looking.
        asm.cmp_mem32(restraint_word(self.around), 0);
        asm.jcc(Cond::NotEqual, impatient);
        asm.bind(look);
        asm.mov_imm(RDI, turn);
        asm.load32(RDX, at(RDI, 0));
        asm.cmp32(RDX, ticket);
        asm.jcc(Cond::AboveEqual, exit);
        // Where so many went unanswered there is no tracer any more.
        asm.lea(RAX, at(RDX, MAX_UNANSWERED));
        asm.cmp32(RAX, ticket);
        asm.jcc(Cond::Below, impatient);
        asm.mov_imm(RAX, SYS_FUTEX);
        asm.clear(RSI); // FUTEX_WAIT, shared between processes
        asm.lea(R10, Mem::Label(timeout));
        asm.syscall();
        asm.alu_imm32(Alu::Cmp, RAX, -libc::ETIMEDOUT);
        asm.jcc(Cond::NotEqual, again_or_not);
        // A tracer that is at it is waited for longer.
        asm.mov_imm(RDX, looking);
        asm.load32(RAX, at(RDX, 0));
        asm.cmp32(RAX, ticket);
        asm.jcc(Cond::Below, impatient);
        // Signals end a wait, too.
        asm.bind(again_or_not);
        asm.load32(RAX, tries);
        asm.alu_imm32(Alu::Sub, RAX, 1);
        asm.store(tries, RAX, Width::B4);
        asm.jcc(Cond::NotEqual, look);
        asm.bind(impatient);
        asm.mov_imm(RAX, n_impatient);
        asm.lock_inc(at(RAX, 0));
        asm.jmp(exit);
    }
}
