//! Arithmetic on registers.

use super::super::super::insn::{Alu, Cond, Reg};
use super::Gen;
use nopal_program::op::{Binary, Op, Unary};

impl Gen<'_> {
    pub(super) fn number(&mut self, op: &Op) {
        match *op {
            Op::Const { dst, value } => {
                self.constant(Reg::R1, value);
                self.store(dst, Reg::R1);
            }
            Op::Copy { dst, src } => {
                self.load(Reg::R1, src);
                self.store(dst, Reg::R1);
            }
            Op::Unary { op, dst, a } => {
                self.load(Reg::R1, a);
                match op {
                    Unary::Neg => self.asm.negate(Reg::R1),
                    Unary::BitNot => self.asm.alu_imm(Alu::Xor, Reg::R1, -1),
                    Unary::Not => {
                        self.asm.mov_imm(Reg::R2, 0);
                        self.compare(Cond::Eq);
                    }
                }
                self.store(dst, Reg::R1);
            }
            Op::Binary { op, dst, a, b } => {
                self.load(Reg::R1, a);
                self.load(Reg::R2, b);
                self.binary(op);
                self.store(dst, Reg::R1);
            }
            Op::BinaryConst { op, dst, a, b } => {
                self.load(Reg::R1, a);
                match (simple(op), i32::try_from(b)) {
                    (Some(alu), Ok(b)) if !matches!(alu, Alu::Lsh | Alu::Rsh | Alu::Arsh) => {
                        self.asm.alu_imm(alu, Reg::R1, b);
                    }
                    (Some(alu @ (Alu::Lsh | Alu::Rsh | Alu::Arsh)), _) => {
                        self.asm.alu_imm(alu, Reg::R1, (b & 63) as i32);
                    }
                    _ => {
                        self.constant(Reg::R2, b);
                        self.binary(op);
                    }
                }
                self.store(dst, Reg::R1);
            }
            Op::Extend { dst, src, size_bytes, is_signed } => {
                self.load(Reg::R1, src);
                self.extend(Reg::R1, size_bytes, is_signed);
                self.store(dst, Reg::R1);
            }
            _ => {}
        }
    }

    pub(super) fn constant(&mut self, dst: Reg, value: i64) {
        match i32::try_from(value) {
            Ok(value) => self.asm.mov_imm(dst, value),
            Err(_) => self.asm.load_imm64(dst, value as u64),
        }
    }

    /// Cuts to 1, 2 or 4 bytes, then extends; leaves 8.
    pub(super) fn extend(&mut self, reg: Reg, size_bytes: u8, is_signed: bool) {
        if !matches!(size_bytes, 1 | 2 | 4) {
            return;
        }
        let shift = 64 - 8 * i32::from(size_bytes);
        self.asm.alu_imm(Alu::Lsh, reg, shift);
        self.asm.alu_imm(if is_signed { Alu::Arsh } else { Alu::Rsh }, reg, shift);
    }

    /// R0 = the double of the float in its low half; the high half is zero. Clobbers R1 and R2.
    pub(super) fn float_to_double(&mut self) {
        /// What is added to an exponent: 1023 of doubles less 127 of floats.
        const BIAS: i32 = 896;
        let (sign, exponent, fraction) = (Reg::R1, Reg::R0, Reg::R2);
        let (is_normal, is_finite, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.mov(sign, Reg::R0);
        self.asm.alu_imm(Alu::Rsh, sign, 31);
        self.asm.alu_imm(Alu::Lsh, sign, 63);
        self.asm.mov(fraction, Reg::R0);
        self.asm.alu_imm(Alu::And, fraction, 0x7f_ffff);
        self.asm.alu_imm(Alu::And, exponent, 0x7fff_ffff);
        // Zero has neither.
        self.asm.jump_if_imm(Cond::Eq, exponent, 0, done);
        self.asm.alu_imm(Alu::Rsh, exponent, 23);
        self.asm.jump_if_imm(Cond::Ne, exponent, 0, is_normal);
        // Small ones have no leading one: the first bit that is set becomes it.
        self.asm.mov_imm(exponent, 1);
        for shift in [16, 8, 4, 2, 1] {
            let is_there = self.asm.label();
            self.asm.jump_if_imm(Cond::Ge, fraction, 1 << (24 - shift), is_there);
            self.asm.alu_imm(Alu::Lsh, fraction, shift);
            self.asm.alu_imm(Alu::Sub, exponent, shift);
            self.asm.bind(is_there);
        }
        self.asm.alu_imm(Alu::And, fraction, 0x7f_ffff);
        self.asm.bind(is_normal);
        self.asm.jump_if_imm(Cond::Ne, exponent, 0xff, is_finite);
        self.asm.mov_imm(exponent, 0x7ff - BIAS);
        self.asm.bind(is_finite);
        self.asm.alu_imm(Alu::Add, exponent, BIAS);
        self.asm.alu_imm(Alu::Lsh, exponent, 52);
        self.asm.alu_imm(Alu::Lsh, fraction, 29);
        self.asm.alu(Alu::Or, Reg::R0, fraction);
        self.asm.bind(done);
        self.asm.alu(Alu::Or, Reg::R0, sign);
    }

    /// R1 = R1 op R2. Clobbers R2 and R3.
    pub(super) fn binary(&mut self, op: Binary) {
        if let Some(alu) = simple(op) {
            self.asm.alu(alu, Reg::R1, Reg::R2);
            return;
        }
        match op {
            Binary::DivUnsigned => self.asm.alu(Alu::Div, Reg::R1, Reg::R2),
            Binary::RemUnsigned => self.asm.alu(Alu::Mod, Reg::R1, Reg::R2),
            Binary::DivSigned => self.signed(Alu::Div),
            Binary::RemSigned => self.signed(Alu::Mod),
            Binary::Eq => self.compare(Cond::Eq),
            Binary::Ne => self.compare(Cond::Ne),
            Binary::LtUnsigned => self.compare(Cond::Lt),
            Binary::LtSigned => self.compare(Cond::SLt),
            Binary::LeUnsigned => self.compare(Cond::Le),
            Binary::LeSigned => self.compare(Cond::SLe),
            Binary::GtUnsigned => self.compare(Cond::Gt),
            Binary::GtSigned => self.compare(Cond::SGt),
            Binary::GeUnsigned => self.compare(Cond::Ge),
            Binary::GeSigned => self.compare(Cond::SGe),
            _ => {}
        }
    }

    /// Signed division by way of the unsigned one: eBPF has its own only since Linux 6.6, and its corner cases only later.
    fn signed(&mut self, alu: Alu) {
        self.asm.mov(Reg::R3, Reg::R1);
        if alu == Alu::Div {
            self.asm.alu(Alu::Xor, Reg::R3, Reg::R2);
        }
        for reg in [Reg::R1, Reg::R2] {
            let positive = self.asm.label();
            self.asm.jump_if_imm(Cond::SGe, reg, 0, positive);
            self.asm.negate(reg);
            self.asm.bind(positive);
        }
        self.asm.alu(alu, Reg::R1, Reg::R2);
        let positive = self.asm.label();
        self.asm.jump_if_imm(Cond::SGe, Reg::R3, 0, positive);
        self.asm.negate(Reg::R1);
        self.asm.bind(positive);
    }

    /// R1 = 1 if R1 compares so with R2, else 0. Clobbers R3.
    fn compare(&mut self, cond: Cond) {
        let is_so = self.asm.label();
        self.asm.mov_imm(Reg::R3, 1);
        self.asm.jump_if(cond, Reg::R1, Reg::R2, is_so);
        self.asm.mov_imm(Reg::R3, 0);
        self.asm.bind(is_so);
        self.asm.mov(Reg::R1, Reg::R3);
    }
}

/// Operations that are one instruction, with a register or a constant.
fn simple(op: Binary) -> Option<Alu> {
    match op {
        Binary::Add => Some(Alu::Add),
        Binary::Sub => Some(Alu::Sub),
        Binary::Mul => Some(Alu::Mul),
        Binary::And => Some(Alu::And),
        Binary::Or => Some(Alu::Or),
        Binary::Xor => Some(Alu::Xor),
        Binary::Shl => Some(Alu::Lsh),
        Binary::ShrUnsigned => Some(Alu::Rsh),
        Binary::ShrSigned => Some(Alu::Arsh),
        // A constant divisor of zero is refused by the verifier; in a register it has eBPF's meaning.
        Binary::DivUnsigned
        | Binary::DivSigned
        | Binary::RemUnsigned
        | Binary::RemSigned
        | Binary::Eq
        | Binary::Ne
        | Binary::LtUnsigned
        | Binary::LtSigned
        | Binary::LeUnsigned
        | Binary::LeSigned
        | Binary::GtUnsigned
        | Binary::GtSigned
        | Binary::GeUnsigned
        | Binary::GeSigned => None,
    }
}
