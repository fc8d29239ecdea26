//! The frame, and memory of the traced program that is copied into it. What cannot be read is left zero.

use super::super::super::insn::{Alu, Cond, Helper, Reg, Width};
use super::{CodeError, Gen, TEMP, pieces};
use nopal_program::op::{Op, Reg as VirtualReg, Slot, Space};

const PAGE_BYTES: u32 = 4096;

impl Gen<'_> {
    pub(super) fn frame(&mut self, at: usize, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::Load { dst, at: from, size_bytes, is_signed } => {
                self.number_inside(at, from, size_bytes)?;
                let (base, offset) = self.base(self.plan.frame, from);
                self.asm.load(Width::of(size_bytes), Reg::R1, base, offset);
                if is_signed {
                    self.extend(Reg::R1, size_bytes, true);
                }
                self.store(dst, Reg::R1);
            }
            Op::Element { dst, from, index, n, size_bytes, is_signed } => {
                self.number_inside(at, from.at, size_bytes)?;
                let n = n.min(from.len / u32::from(size_bytes.max(1)));
                let (outside, done) = (self.asm.label(), self.asm.label());
                self.load(Reg::R2, index);
                self.asm.jump_if_imm(Cond::Ge, Reg::R2, n as i32, outside);
                self.asm.alu_imm(Alu::Lsh, Reg::R2, i32::from(size_bytes.trailing_zeros() as u8));
                self.slot_address(Reg::R3, from);
                self.asm.alu(Alu::Add, Reg::R3, Reg::R2);
                self.asm.load(Width::of(size_bytes), Reg::R1, Reg::R3, 0);
                if is_signed {
                    self.extend(Reg::R1, size_bytes, true);
                }
                self.asm.jump(done);
                self.asm.bind(outside);
                self.asm.mov_imm(Reg::R1, 0);
                self.asm.bind(done);
                self.store(dst, Reg::R1);
            }
            Op::Store { at: to, src, size_bytes } => {
                self.number_inside(at, to, size_bytes)?;
                self.load(Reg::R1, src);
                let (base, offset) = self.base(self.plan.frame, to);
                self.asm.store(Width::of(size_bytes), base, offset, Reg::R1);
            }
            Op::FrameAddress { dst, at: of } => {
                self.number_inside(at, of, 1)?;
                self.address_of(Reg::R1, self.plan.frame, of);
                self.store(dst, Reg::R1);
            }
            Op::Zero { to } => self.zero(to),
            Op::Constant { to, constant } => {
                let bytes = self
                    .spec
                    .program
                    .constants
                    .get(constant as usize)
                    .ok_or(CodeError::BadOp { op: at, reason: "there is no such constant" })?;
                self.put(to, bytes);
            }
            Op::Move { to, from } => self.move_bytes(to, from),
            _ => {}
        }
        Ok(())
    }

    fn number_inside(&self, op: usize, at: u32, size_bytes: u8) -> Result<(), CodeError> {
        if !matches!(size_bytes, 1 | 2 | 4 | 8) {
            return Err(CodeError::BadOp { op, reason: "a number has 1, 2, 4 or 8 bytes" });
        }
        if at.checked_add(u32::from(size_bytes)).is_none_or(|end| end > self.code.frame_bytes) {
            return Err(CodeError::BadOp { op, reason: "bytes outside the frame" });
        }
        Ok(())
    }

    pub(super) fn zero(&mut self, slot: Slot) {
        self.zero_bytes(self.plan.frame, slot.at, slot.len);
    }

    /// Zeros from byte `from` of a slot on. `from` is a multiple of 8 or the end.
    pub(super) fn zero_rest(&mut self, slot: Slot, from: u32) {
        let aligned = from.next_multiple_of(8).min(slot.len);
        for at in from..aligned {
            let (base, offset) = self.base(self.plan.frame, slot.at + at);
            self.asm.store_imm(Width::W8, base, offset, 0);
        }
        if aligned < slot.len {
            self.zero_bytes(self.plan.frame, slot.at + aligned, slot.len - aligned);
        }
    }

    /// Constant bytes, then zeros.
    fn put(&mut self, to: Slot, bytes: &[u8]) {
        let n = bytes.len().min(to.len as usize);
        for (at, size) in pieces(n as u32) {
            let piece = &bytes[at as usize..at as usize + usize::from(size)];
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            let value = i64::from_le_bytes(word);
            let (base, offset) = self.base(self.plan.frame, to.at + at);
            match i32::try_from(value) {
                Ok(value) => self.asm.store_imm(Width::of(size), base, offset, value),
                Err(_) if size == 4 => self.asm.store_imm(Width::W32, base, offset, value as i32),
                Err(_) => {
                    self.asm.load_imm64(Reg::R1, value as u64);
                    self.asm.store(Width::of(size), base, offset, Reg::R1);
                }
            }
        }
        self.zero_rest(to, n as u32);
    }

    /// As many bytes as both have, then zeros; the two may overlap.
    fn move_bytes(&mut self, to: Slot, from: Slot) {
        let n = to.len.min(from.len);
        let overlap = to.at < from.at + n && from.at < to.at + n;
        let (destination, source) = (self.base(self.plan.frame, to.at), self.base(self.plan.frame, from.at));
        if !overlap {
            self.copy_bytes(destination, source, n);
        } else if to.at != from.at {
            let mut all: Vec<(u32, u8)> = pieces(n).collect();
            if to.at > from.at {
                all.reverse();
            }
            for (at, size) in all {
                self.asm.load(Width::of(size), Reg::R0, source.0, source.1 + at as i16);
                self.asm.store(Width::of(size), destination.0, destination.1 + at as i16, Reg::R0);
            }
        }
        self.zero_rest(to, n);
    }

    pub(super) fn read(&mut self, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::ArgString { to, index, len } => {
                self.arg_address(index)?;
                self.store_temp(1, Reg::R3);
                let has_length = self.arg_length(index)?;
                self.load_temp(Reg::R3, 1);
                self.string(to, len, has_length, Space::User);
            }
            Op::ArgBytes { to, index, len } => {
                self.arg_address(index)?;
                self.buffer(to, len, Space::User);
            }
            Op::String { to, address, len, space } => {
                self.load(Reg::R3, address);
                self.string(to, len, false, space);
            }
            Op::Buffer { to, address, len, space } => {
                self.load(Reg::R3, address);
                self.buffer(to, len, space);
            }
            Op::Readable { dst, address, space } => {
                let done = self.asm.label();
                self.load(Reg::R3, address);
                self.address(Reg::R1, Reg::R10, TEMP[0]);
                self.asm.mov_imm(Reg::R2, 1);
                self.asm.call(match space {
                    Space::User => Helper::ProbeReadUser,
                    Space::Kernel => Helper::ProbeReadKernel,
                });
                self.asm.mov_imm(Reg::R1, 1);
                self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, done);
                self.asm.mov_imm(Reg::R1, 0);
                self.asm.bind(done);
                self.store(dst, Reg::R1);
            }
            Op::Read { to, address, space } => {
                self.load(Reg::R3, address);
                self.store_temp(1, Reg::R3);
                if to.len == 0 {
                    return Ok(());
                }
                self.asm.mov_imm(Reg::R2, to.len as i32);
                self.slot_address(Reg::R1, to);
                self.exact(to, 0, space);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the R2 bytes at R3 to R1, which is byte `from` of `to`; R0 is 0 if that succeeded. A sleepable program waits
    /// for memory that is not there yet. The address is in temp 1; where the length is not a constant it is in temp 2.
    fn exact(&mut self, to: Slot, from: u32, space: Space) {
        match space {
            Space::Kernel => self.asm.call(Helper::ProbeReadKernel),
            Space::User if !self.may_sleep() => self.asm.call(Helper::ProbeReadUser),
            Space::User => {
                let done = self.asm.label();
                self.store_temp(2, Reg::R2);
                self.asm.call(Helper::ProbeReadUser);
                self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, done);
                self.load_temp(Reg::R2, 2);
                // What the verifier knew of the length is lost on its way over the stack.
                self.bound(Reg::R2, to.len - from);
                self.address_of(Reg::R1, self.plan.frame, to.at + from);
                self.load_temp(Reg::R3, 1);
                self.asm.call(Helper::CopyFromUser);
                self.asm.bind(done);
            }
        }
    }

    /// Makes an unsigned number at most `most`.
    fn bound(&mut self, reg: Reg, most: u32) {
        let fits = self.asm.label();
        self.asm.jump_if_imm(Cond::Le, reg, most as i32, fits);
        self.asm.mov_imm(reg, most as i32);
        self.asm.bind(fits);
    }

    /// In a callback memory is only read if it is there: the kernel holds a lock around it.
    pub(super) fn may_sleep(&self) -> bool {
        self.spec.is_sleepable && self.region == 0
    }

    /// The length in `len`, at most the room of `to` behind the head, then the bytes at R3.
    fn buffer(&mut self, to: Slot, len: VirtualReg, space: Space) {
        self.store_temp(1, Reg::R3);
        self.zero(to);
        let Some(room) = to.len.checked_sub(8).filter(|room| *room > 0) else { return };
        let (unreadable, done) = (self.asm.label(), self.asm.label());
        self.load(Reg::R2, len);
        self.bound(Reg::R2, room);
        self.store_temp(3, Reg::R2);
        self.load_temp(Reg::R3, 1);
        self.address_of(Reg::R1, self.plan.frame, to.at + 8);
        self.exact(to, 8, space);
        self.asm.jump_if_imm(Cond::Ne, Reg::R0, 0, unreadable);
        self.load_temp(Reg::R1, 3);
        let (base, offset) = self.base(self.plan.frame, to.at);
        self.asm.store(Width::W64, base, offset, Reg::R1);
        self.asm.jump(done);
        self.asm.bind(unreadable);
        self.zero(to);
        self.asm.bind(done);
    }

    /// The string at R3. `len`: at most so many bytes. With `has_length` the argument's own length is in temp 4.
    fn string(&mut self, to: Slot, len: Option<VirtualReg>, has_length: bool, space: Space) {
        self.store_temp(1, Reg::R3);
        self.zero(to);
        let Some(room) = to.len.checked_sub(1).filter(|room| *room > 0) else { return };
        let (done, short) = (self.asm.label(), self.asm.label());
        let is_bounded = len.is_some() || has_length;
        self.string_size(len, has_length, room);
        if is_bounded {
            self.asm.jump_if_imm(Cond::Eq, Reg::R2, 1, done);
        }
        self.string_once(to, space);
        self.asm.jump_if_imm(Cond::SGe, Reg::R0, 0, done);
        if self.may_sleep() && space == Space::User {
            // Touches every page the string may reach, up to the first that is not there.
            for page in 0..=room.div_ceil(PAGE_BYTES) {
                self.load_temp(Reg::R3, 1);
                if page > 0 {
                    self.asm.alu_imm(Alu::Or, Reg::R3, PAGE_BYTES as i32 - 1);
                    self.asm.alu_imm(Alu::Add, Reg::R3, ((page - 1) * PAGE_BYTES) as i32 + 1);
                }
                self.address(Reg::R1, Reg::R10, TEMP[0]);
                self.asm.mov_imm(Reg::R2, 1);
                self.asm.call(Helper::CopyFromUser);
                self.asm.jump_if_imm(Cond::Ne, Reg::R0, 0, short);
            }
            self.asm.bind(short);
            self.string_size(len, has_length, room);
            self.string_once(to, space);
            self.asm.jump_if_imm(Cond::SGe, Reg::R0, 0, done);
        }
        if is_bounded {
            // Behind a string without a NUL the memory may end.
            self.string_size(len, has_length, room);
            self.asm.alu_imm(Alu::Sub, Reg::R2, 1);
            self.bound(Reg::R2, room);
            self.load_temp(Reg::R3, 1);
            self.slot_address(Reg::R1, to);
            self.asm.call(match space {
                Space::User => Helper::ProbeReadUser,
                Space::Kernel => Helper::ProbeReadKernel,
            });
        }
        self.asm.bind(done);
    }

    /// R2 = bytes to be read with the NUL: at most `room` + 1.
    fn string_size(&mut self, len: Option<VirtualReg>, has_length: bool, room: u32) {
        self.asm.mov_imm(Reg::R2, room as i32);
        for is_own in [false, true] {
            match (is_own, len) {
                (false, Some(len)) => self.load(Reg::R1, len),
                (true, _) if has_length => self.load_temp(Reg::R1, 4),
                _ => continue,
            }
            let longer = self.asm.label();
            self.asm.jump_if(Cond::Ge, Reg::R1, Reg::R2, longer);
            self.asm.mov(Reg::R2, Reg::R1);
            self.asm.bind(longer);
        }
        self.bound(Reg::R2, room);
        self.asm.alu_imm(Alu::Add, Reg::R2, 1);
    }

    fn string_once(&mut self, to: Slot, space: Space) {
        self.slot_address(Reg::R1, to);
        self.load_temp(Reg::R3, 1);
        self.asm.call(match space {
            Space::User => Helper::ProbeReadUserStr,
            Space::Kernel => Helper::ProbeReadKernelStr,
        });
    }
}
