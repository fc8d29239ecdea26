//! Strings and bytes of the frame: compared, searched, measured. Loops over bytes, with their counter in R8.

use super::super::super::insn::{Alu, Cond, Reg, Width};
use super::{Gen, KEPT, pieces};
use nopal_program::op::{NOT_FOUND, Op, Slot};

impl Gen<'_> {
    pub(super) fn text(&mut self, op: &Op) {
        match *op {
            Op::Equal { dst, a, b } => {
                self.equal(a, b);
                self.store(dst, Reg::R3);
            }
            Op::Strncmp { dst, a, b, n } => {
                self.strncmp(a, b, n);
                self.store(dst, Reg::R3);
            }
            Op::StrFind { dst, haystack, needle } => {
                self.find_text(haystack, needle);
                self.store(dst, Reg::R3);
            }
            Op::StrConcat { to, a, b } => self.concat(to, a, b),
            Op::Strlen { dst, a } => {
                self.strlen(a);
                self.store(dst, KEPT);
            }
            _ => {}
        }
    }

    /// R3 = 1 if equal, word by word; a shorter one counts as followed by zeros.
    fn equal(&mut self, a: Slot, b: Slot) {
        let (differ, done) = (self.asm.label(), self.asm.label());
        let common = a.len.min(b.len);
        let longer = if a.len > b.len { a } else { b };
        if common.max(longer.len) <= 512 {
            let frame = self.plan.frame;
            for (at, size) in pieces(common) {
                for (reg, slot) in [(Reg::R1, a), (Reg::R2, b)] {
                    let (base, offset) = self.base(frame, slot.at + at);
                    self.asm.load(Width::of(size), reg, base, offset);
                }
                self.asm.jump_if(Cond::Ne, Reg::R1, Reg::R2, differ);
            }
            for at in common..longer.len {
                let (base, offset) = self.base(frame, longer.at + at);
                self.asm.load(Width::W8, Reg::R1, base, offset);
                self.asm.jump_if_imm(Cond::Ne, Reg::R1, 0, differ);
            }
        } else {
            let all = longer.len;
            self.each_byte(all, |gen_, _| {
                gen_.byte_or_zero(Reg::R1, a);
                gen_.byte_or_zero(Reg::R2, b);
                gen_.asm.jump_if(Cond::Ne, Reg::R1, Reg::R2, differ);
            });
        }
        self.asm.mov_imm(Reg::R3, 1);
        self.asm.jump(done);
        self.asm.bind(differ);
        self.asm.mov_imm(Reg::R3, 0);
        self.asm.bind(done);
    }

    /// R3 = 0 if the first `n` bytes are equal, or all up to a common NUL.
    fn strncmp(&mut self, a: Slot, b: Slot, n: u32) {
        let (differ, done) = (self.asm.label(), self.asm.label());
        // Behind both there are only zeros.
        let n = n.min(a.len.max(b.len));
        self.each_byte(n, |gen_, out| {
            gen_.byte_or_zero(Reg::R1, a);
            gen_.byte_or_zero(Reg::R2, b);
            gen_.asm.jump_if(Cond::Ne, Reg::R1, Reg::R2, differ);
            gen_.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, out);
        });
        self.asm.mov_imm(Reg::R3, 0);
        self.asm.jump(done);
        self.asm.bind(differ);
        self.asm.mov_imm(Reg::R3, 1);
        self.asm.bind(done);
    }

    /// R3 = where the text of `needle` begins in that of `haystack`.
    fn find_text(&mut self, haystack: Slot, needle: Slot) {
        let (found, done) = (self.asm.label(), self.asm.label());
        if needle.len == 0 {
            self.asm.mov_imm(Reg::R3, 0);
            return;
        }
        // One place more than there are bytes: an empty needle is in an empty haystack.
        self.each_byte(haystack.len + 1, |gen_, out| {
            let (inner, mismatch) = (gen_.asm.label(), gen_.asm.label());
            gen_.opaque_zero(Reg::R5);
            gen_.asm.bind(inner);
            gen_.may_goto(mismatch);
            gen_.asm.jump_if_imm(Cond::Ge, Reg::R5, needle.len as i32, found);
            gen_.byte_at(Reg::R2, needle, Reg::R5);
            gen_.asm.jump_if_imm(Cond::Eq, Reg::R2, 0, found);
            gen_.asm.mov(Reg::R4, KEPT);
            gen_.asm.alu(Alu::Add, Reg::R4, Reg::R5);
            gen_.asm.jump_if_imm(Cond::Ge, Reg::R4, haystack.len as i32, mismatch);
            gen_.byte_at(Reg::R1, haystack, Reg::R4);
            gen_.asm.jump_if(Cond::Ne, Reg::R1, Reg::R2, mismatch);
            gen_.asm.alu_imm(Alu::Add, Reg::R5, 1);
            gen_.asm.jump(inner);
            gen_.asm.bind(mismatch);
            gen_.asm.jump_if_imm(Cond::Ge, KEPT, haystack.len as i32, out);
            gen_.byte_at(Reg::R1, haystack, KEPT);
            gen_.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, out);
        });
        self.asm.mov_imm(Reg::R3, NOT_FOUND as i32);
        self.asm.jump(done);
        self.asm.bind(found);
        self.asm.mov(Reg::R3, KEPT);
        self.asm.bind(done);
    }

    /// The text of `a`, then that of `b`; R5 says where the next byte goes.
    fn concat(&mut self, to: Slot, a: Slot, b: Slot) {
        self.zero(to);
        if to.len == 0 {
            return;
        }
        let room = to.len - 1;
        self.opaque_zero(Reg::R5);
        for from in [a, b] {
            self.each_byte(from.len, |gen_, out| {
                gen_.asm.jump_if_imm(Cond::Ge, Reg::R5, room as i32, out);
                gen_.byte_at(Reg::R1, from, KEPT);
                gen_.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, out);
                let (base, offset) = gen_.base(gen_.plan.frame, to.at);
                gen_.asm.mov(Reg::R0, base);
                gen_.asm.alu(Alu::Add, Reg::R0, Reg::R5);
                gen_.asm.store(Width::W8, Reg::R0, offset, Reg::R1);
                gen_.asm.alu_imm(Alu::Add, Reg::R5, 1);
            });
        }
    }

    /// R8 = how many bytes come before the first NUL.
    fn strlen(&mut self, a: Slot) {
        self.each_byte(a.len, |gen_, out| {
            gen_.byte_at(Reg::R1, a, KEPT);
            gen_.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, out);
        });
    }

    /// Runs `body` with R8 from 0 to `n` - 1; it may jump to the label it gets.
    pub(super) fn each_byte(&mut self, n: u32, body: impl FnOnce(&mut Self, super::Label)) {
        let (head, out) = (self.asm.label(), self.asm.label());
        self.opaque_zero(KEPT);
        self.asm.bind(head);
        self.may_goto(out);
        self.asm.jump_if_imm(Cond::Ge, KEPT, n as i32, out);
        body(self, out);
        self.asm.alu_imm(Alu::Add, KEPT, 1);
        self.asm.jump(head);
        self.asm.bind(out);
    }

    /// The byte at an index that is below the slot's length.
    fn byte_at(&mut self, dst: Reg, slot: Slot, index: Reg) {
        let (base, offset) = self.base(self.plan.frame, slot.at);
        self.asm.mov(Reg::R0, base);
        self.asm.alu(Alu::Add, Reg::R0, index);
        self.asm.load(Width::W8, dst, Reg::R0, offset);
    }

    /// The byte at R8, or zero behind the end.
    fn byte_or_zero(&mut self, dst: Reg, slot: Slot) {
        let behind = self.asm.label();
        self.asm.mov_imm(dst, 0);
        self.asm.jump_if_imm(Cond::Ge, KEPT, slot.len as i32, behind);
        self.byte_at(dst, slot, KEPT);
        self.asm.bind(behind);
    }
}
