//! What a process forbids itself. Under `seccomp` a system call may mean death, and so may reading the time stamp counter;
//! nothing but the calls that forbid it tells so in time. The functions that make these calls are opened like probe sites,
//! with the stub here: it sets the process's [`restraint`] bits before the call is made, and all stubs respect them.

use core::mem::offset_of;

use nopal_abi::stub_space::{KEPT_OFFSET, KeptPages, restraint};
use nopal_capture::Forbidding;

use super::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDI, RDX, RSI, Reg, at};
use super::emit::Stubber;
use super::locked::{count_lost_untimed, cpu_by_segment, state_of_locked};
use super::words::restraint_word;

const SYS_PRCTL: i32 = 157;
const SYS_SECCOMP: i32 = 317;
const PR_SET_SECCOMP: i32 = 22;
const PR_SET_TSC: i32 = 26;
const PR_TSC_SIGSEGV: i32 = 2;
/// Of `prctl`. The other mode is a filter.
const SECCOMP_MODE_STRICT: i32 = 1;
/// Of `seccomp`.
const SECCOMP_SET_MODE_STRICT: i32 = 0;
const SECCOMP_SET_MODE_FILTER: i32 = 1;

impl Stubber<'_> {
    /// Looks at the arguments of a function that is about to run, which are in its registers still.
    pub(super) fn restrain(&mut self, function: Forbidding) {
        match function {
            Forbidding::Prctl => self.prctl(RDI, RSI, RDX),
            Forbidding::Syscall => {
                let [prctl, filter, exit] = [self.asm.label(), self.asm.label(), self.exit];
                let asm = &mut self.asm;
                asm.alu_imm32(Alu::Cmp, RDI, SYS_PRCTL);
                asm.jcc(Cond::Equal, prctl);
                asm.alu_imm32(Alu::Cmp, RDI, SYS_SECCOMP);
                asm.jcc(Cond::NotEqual, exit);
                asm.alu_imm32(Alu::Cmp, RSI, SECCOMP_SET_MODE_FILTER);
                asm.jcc(Cond::Equal, filter);
                asm.alu_imm32(Alu::Cmp, RSI, SECCOMP_SET_MODE_STRICT);
                asm.jcc(Cond::NotEqual, exit);
                self.forbid(restraint::NO_CALLS | restraint::NO_TIME);
                self.asm.bind(filter);
                self.forbid_by(RCX);
                self.asm.bind(prctl);
                self.prctl(RSI, RDX, RCX);
            }
        }
    }

    fn prctl(&mut self, option: Reg, argument: Reg, filter: Reg) {
        let [seccomp, strict, exit] = [self.asm.label(), self.asm.label(), self.exit];
        let asm = &mut self.asm;
        asm.alu_imm32(Alu::Cmp, option, PR_SET_SECCOMP);
        asm.jcc(Cond::Equal, seccomp);
        asm.alu_imm32(Alu::Cmp, option, PR_SET_TSC);
        asm.jcc(Cond::NotEqual, exit);
        asm.alu_imm32(Alu::Cmp, argument, PR_TSC_SIGSEGV);
        asm.jcc(Cond::NotEqual, exit);
        self.forbid(restraint::NO_TIME);
        self.asm.bind(seccomp);
        self.asm.alu_imm32(Alu::Cmp, argument, SECCOMP_MODE_STRICT);
        self.asm.jcc(Cond::Equal, strict);
        self.forbid_by(filter);
        self.asm.bind(strict);
        // The kernel takes the time stamp counter away as well.
        self.forbid(restraint::NO_CALLS | restraint::NO_TIME);
    }

    /// No calls, unless there is no filter: programs ask so what the kernel knows.
    fn forbid_by(&mut self, filter: Reg) {
        let exit = self.exit;
        self.asm.test(filter, filter);
        self.asm.jcc(Cond::Equal, exit);
        self.forbid(restraint::NO_CALLS);
    }

    /// Sets bits in all stub spaces of the process and is done.
    fn forbid(&mut self, bits: u32) {
        let (next, exit) = (self.asm.label(), self.exit);
        let asm = &mut self.asm;
        let spaces = self.around.process_page + (KEPT_OFFSET + offset_of!(KeptPages, spaces)) as u64;
        asm.mov_imm(RAX, bits.into());
        asm.lea(RCX, Mem::Near(spaces));
        asm.bind(next);
        asm.load64(RDX, at(RCX, 0));
        asm.test(RDX, RDX);
        asm.jcc(Cond::Equal, exit);
        asm.lock_or32(at(RDX, 0), RAX);
        asm.alu_imm(Alu::Add, RCX, 8);
        asm.jmp(next);
    }

    /// Goes to `silenced` if the time must not be read: not even of a loss.
    pub(super) fn require_time(&mut self, silenced: Label) {
        self.asm.cmp_mem32(restraint_word(self.around), restraint::NO_TIME as i32);
        self.asm.jcc(Cond::AboveEqual, silenced);
    }

    /// Counts the hit as lost, without its time.
    pub(super) fn lose(&mut self) {
        let (asm, exit) = (&mut self.asm, self.exit);
        cpu_by_segment(asm, self.around);
        state_of_locked(asm, self.around, self.state, RCX);
        count_lost_untimed(asm, self.state);
        asm.jmp(exit);
    }
}
