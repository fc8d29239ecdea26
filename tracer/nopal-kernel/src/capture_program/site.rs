//! What a program does at one of its sites: captures into a record, the record into the ring buffer.

use super::super::insn::{Alu, Assembler, Cond, Helper, Label, Reg, Width};
use super::super::pt_regs;
use super::super::uprobes::PAGE_BYTES;
use super::{
    CTX, MAX_STRING_BYTES, Maps, PREFIX_BYTES, ProgramError, ProgramSite, SCRATCH_BYTES, SCRATCH_LEVELS,
    is_elsewhere, is_stack,
};
use nopal_abi::record::{self, flags, text};
use nopal_capture::Capture;
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};

/// The scratch memory of this hit, where the site has strings.
const SCRATCH: Reg = Reg::R7;
/// Where the next string goes, from the start of the scratch memory.
const CURSOR: Reg = Reg::R8;

const PREFIX: u32 = PREFIX_BYTES as u32;
/// Strings start below this offset; the rest of the scratch memory is room for the last of them.
pub(super) const STRINGS_LIMIT: u32 = 1 << 14;
/// Bytes of the frame below the record that hold keys and values for helper calls.
const TEMP_BYTES: i16 = 16;

/// Size in bytes a capture takes in the fixed part of a record.
fn fixed_bytes(capture: &Capture) -> u32 {
    match capture {
        Capture::Value { operand } => u32::from(operand.size_bytes),
        Capture::CString { .. } | Capture::Bytes { .. } | Capture::ThreadContext { .. } => 4,
    }
}

/// Where a record is being built: on the frame (no strings) or in scratch memory.
#[derive(Clone, Copy)]
struct Buffer {
    reg: Reg,
    offset: i16,
    /// The verifier wants aligned stores to the frame.
    is_frame: bool,
}

/// The part of the program for one site.
pub(super) struct SiteProgram<'a> {
    pub(super) asm: &'a mut Assembler,
    pub(super) site: &'a ProgramSite,
    pub(super) maps: Maps,
    pub(super) end: Label,
    pub(super) may_sleep: bool,
}

impl SiteProgram<'_> {
    pub(super) fn emit(&mut self) -> Result<(), ProgramError> {
        let word_flags = flags::TIME | flags::TASK;
        let head = record::payload_offset(word_flags);
        let fixed = PREFIX + head + self.site.captures.iter().map(fixed_bytes).sum::<u32>();
        let strings: u32 = self.site.captures.iter().map(max_string_bytes).sum();
        let has_strings = self.site.captures.iter().any(|c| !matches!(c, Capture::Value { .. }));
        if has_strings {
            if fixed + strings > STRINGS_LIMIT || strings > MAX_STRING_BYTES {
                return Err(ProgramError::TooManyBytes { event: self.site.event });
            }
            // Others who come by on this CPU would find the scratch memory taken.
            self.may_sleep = false;
            self.emit_with_strings(word_flags, fixed)
        } else {
            // 12 values of 8 bytes and the head stay far below the frame's 512 bytes.
            if fixed > 384 {
                return Err(ProgramError::TooManyBytes { event: self.site.event });
            }
            self.emit_values(word_flags, fixed)
        }
    }

    fn emit_values(&mut self, word_flags: u32, fixed: u32) -> Result<(), ProgramError> {
        let size = record::round_up(fixed);
        let buffer = Buffer { reg: Reg::R10, offset: -(size as i16) - TEMP_BYTES, is_frame: true };
        self.asm.store_imm(Width::W64, Reg::R10, buffer.offset + size as i16 - 8, 0);
        self.header(buffer, word_flags | (size - PREFIX));
        let mut offset = (PREFIX + record::payload_offset(word_flags)) as i16;
        for capture in &self.site.captures {
            if let Capture::Value { operand } = capture {
                self.value(operand, buffer, offset)?;
            }
            offset += fixed_bytes(capture) as i16;
        }
        self.asm.mov(Reg::R2, Reg::R10);
        self.asm.alu_imm(Alu::Add, Reg::R2, i32::from(buffer.offset));
        self.asm.mov_imm(Reg::R3, size as i32);
        let lost = self.asm.label();
        self.output(lost);
        self.asm.bind(lost);
        self.count_loss();
        Ok(())
    }

    fn emit_with_strings(&mut self, word_flags: u32, fixed: u32) -> Result<(), ProgramError> {
        let lost = self.asm.label();
        let leave = self.asm.label();
        self.take_scratch(lost, leave);
        let buffer = Buffer { reg: SCRATCH, offset: 0, is_frame: false };
        self.header(buffer, 0);
        let mut offset = (PREFIX + record::payload_offset(word_flags)) as i16;
        self.asm.mov_imm(CURSOR, fixed as i32);
        for capture in &self.site.captures {
            match capture {
                Capture::Value { operand } => self.value(operand, buffer, offset)?,
                Capture::CString { pointer, max_bytes, .. } => self.c_string(pointer, *max_bytes, offset)?,
                Capture::Bytes { pointer, length, unit_bytes, max_bytes, .. } => {
                    self.bytes(pointer, length, *unit_bytes, *max_bytes, offset)?;
                }
                // It is per process and behind the thread pointer, neither of which a program for all of them knows.
                Capture::ThreadContext { .. } => {
                    self.asm.store_imm(Width::W32, SCRATCH, offset, text::NULL as i32);
                }
            }
            offset += fixed_bytes(capture) as i16;
        }
        // Zeroes behind the last string, then rounds the size up to whole units.
        self.asm.alu_imm(Alu::And, CURSOR, (SCRATCH_BYTES - 1) as i32);
        let too_long = self.asm.label();
        self.asm.jump_if_imm(Cond::Gt, CURSOR, (SCRATCH_BYTES - 8) as i32, too_long);
        self.asm.mov(Reg::R1, SCRATCH);
        self.asm.alu(Alu::Add, Reg::R1, CURSOR);
        self.asm.store_imm(Width::W64, Reg::R1, 0, 0);
        self.asm.mov(Reg::R3, CURSOR);
        self.asm.alu_imm(Alu::Add, Reg::R3, 7);
        self.asm.alu_imm(Alu::And, Reg::R3, !7);
        self.asm.mov(Reg::R1, Reg::R3);
        self.asm.alu_imm(Alu::Sub, Reg::R1, PREFIX as i32);
        self.asm.alu_imm(Alu::Or, Reg::R1, word_flags as i32);
        self.asm.store(Width::W32, SCRATCH, PREFIX as i16, Reg::R1);
        self.asm.mov(Reg::R2, SCRATCH);
        self.asm.load_map(Reg::R1, self.maps.ring);
        self.asm.mov_imm(Reg::R4, RINGBUF_NO_WAKEUP);
        self.asm.call(Helper::RingbufOutput);
        self.asm.mov(CURSOR, Reg::R0);
        self.leave_scratch(leave);
        self.asm.jump_if_imm(Cond::Eq, CURSOR, 0, self.end);
        self.asm.jump(lost);
        self.asm.bind(too_long);
        self.leave_scratch(leave);
        self.asm.bind(lost);
        self.count_loss();
        // Reached only if the depth counter's element did not exist, which an array of one element rules out.
        self.asm.bind(leave);
        self.asm.jump(self.end);
        Ok(())
    }

    /// Writes what every record begins with.
    fn header(&mut self, buffer: Buffer, word: u32) {
        let (reg, start) = (buffer.reg, buffer.offset + PREFIX as i16);
        self.asm.call(Helper::GetSmpProcessorId);
        self.asm.store(Width::W32, reg, buffer.offset, Reg::R0);
        self.asm.store_imm(Width::W32, reg, buffer.offset + 4, 0);
        self.asm.store_imm(Width::W32, reg, start, word as i32);
        self.asm.store_imm(Width::W32, reg, start + 4, self.site.event as i32);
        self.asm.call(Helper::KtimeGetNs);
        self.asm.store(Width::W64, reg, start + 8, Reg::R0);
        self.asm.call(Helper::GetCurrentPidTgid);
        self.asm.store(Width::W32, reg, start + 16, Reg::R0);
        self.asm.alu_imm(Alu::Rsh, Reg::R0, 32);
        self.asm.store(Width::W32, reg, start + 20, Reg::R0);
    }

    /// Puts the operand's bits at `offset` of the record.
    fn value(&mut self, operand: &Operand, buffer: Buffer, offset: i16) -> Result<(), ProgramError> {
        self.load_operand(operand, Reg::R1)?;
        self.store_value(buffer, buffer.offset + offset, operand.size_bytes);
        Ok(())
    }

    /// Stores the low `size` bytes of R1, in pieces where the frame demands alignment.
    fn store_value(&mut self, buffer: Buffer, offset: i16, size: u8) {
        let piece = if buffer.is_frame { size.min(1 << (offset.trailing_zeros().min(3))) } else { size };
        let mut done = 0;
        while done < size {
            self.asm.store(Width::of(piece), buffer.reg, offset + i16::from(done), Reg::R1);
            done += piece;
            if done < size {
                self.asm.alu_imm(Alu::Rsh, Reg::R1, i32::from(piece) * 8);
            }
        }
    }

    /// Loads the operand's bits, without extending them, into `dst`. Clobbers R0 to R5.
    fn load_operand(&mut self, operand: &Operand, dst: Reg) -> Result<(), ProgramError> {
        let event = self.site.event;
        if !matches!(operand.size_bytes, 1 | 2 | 4 | 8) {
            return Err(ProgramError::ValueSize { event, size_bytes: operand.size_bytes });
        }
        match &operand.place {
            Place::Register(register) => self.load_register(*register, dst),
            Place::Vector(_) => return Err(ProgramError::VectorRegister { event }),
            Place::Constant(value) => self.asm.load_imm64(dst, *value as u64),
            Place::Memory(memory) => {
                self.address(memory)?;
                self.asm.store_imm(Width::W64, Reg::R10, -8, 0);
                let waits = self.may_sleep && is_elsewhere(operand);
                if waits {
                    self.asm.store(Width::W64, Reg::R10, -16, Reg::R3);
                }
                self.read_number(operand, Helper::ProbeReadUser);
                if waits {
                    let read = self.asm.label();
                    self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, read);
                    self.asm.load(Width::W64, Reg::R3, Reg::R10, -16);
                    self.read_number(operand, Helper::CopyFromUser);
                    self.asm.bind(read);
                }
                self.asm.load(Width::W64, dst, Reg::R10, -8);
            }
        }
        Ok(())
    }

    /// Reads the operand's bytes at R3 onto the frame.
    fn read_number(&mut self, operand: &Operand, helper: Helper) {
        self.asm.mov(Reg::R1, Reg::R10);
        self.asm.alu_imm(Alu::Add, Reg::R1, -8);
        self.asm.mov_imm(Reg::R2, i32::from(operand.size_bytes));
        self.asm.call(helper);
    }

    /// The same with the operand's sign or zero extension, as a number of 64 bits.
    fn load_number(&mut self, operand: &Operand, dst: Reg) -> Result<(), ProgramError> {
        self.load_operand(operand, dst)?;
        let shift = 64 - 8 * i32::from(operand.size_bytes);
        if shift > 0 {
            self.asm.alu_imm(Alu::Lsh, dst, shift);
            self.asm.alu_imm(if operand.is_signed { Alu::Arsh } else { Alu::Rsh }, dst, shift);
        }
        Ok(())
    }

    fn load_register(&mut self, register: Register, dst: Reg) {
        self.asm.load(Width::W64, dst, CTX, pt_regs::offset(register.number));
        if register.is_high_byte {
            self.asm.alu_imm(Alu::Rsh, dst, 8);
        }
    }

    /// Computes the address of a memory operand into R3.
    fn address(&mut self, memory: &Memory) -> Result<(), ProgramError> {
        let mut displacement = memory.displacement;
        match &memory.base {
            Base::None => self.asm.mov_imm(Reg::R3, 0),
            Base::Register(register) => self.load_register(*register, Reg::R3),
            Base::Symbol { name, address } => {
                let Some(address) = address else {
                    return Err(ProgramError::UnknownSymbol { event: self.site.event, name: name.clone() });
                };
                self.asm.load(Width::W64, Reg::R3, CTX, pt_regs::IP);
                displacement = displacement.wrapping_add(address.wrapping_sub(self.site.address) as i64);
            }
        }
        if let Some((register, scale)) = memory.index {
            self.load_register(register, Reg::R1);
            self.asm.alu_imm(Alu::Lsh, Reg::R1, scale.trailing_zeros() as i32);
            self.asm.alu(Alu::Add, Reg::R3, Reg::R1);
        }
        if displacement != 0 {
            self.asm.load_imm64(Reg::R1, displacement as u64);
            self.asm.alu(Alu::Add, Reg::R3, Reg::R1);
        }
        Ok(())
    }

    /// Copies a string that ends in a NUL to the cursor.
    fn c_string(&mut self, pointer: &Operand, max_bytes: u32, offset: i16) -> Result<(), ProgramError> {
        self.load_number(pointer, Reg::R3)?;
        let (null, done, unreadable, store) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.jump_if_imm(Cond::Eq, Reg::R3, 0, null);
        self.point_at_cursor();
        // Room for one byte more than the limit and the NUL: only then is a string of the limit told from a longer one.
        self.asm.mov_imm(Reg::R2, max_bytes as i32 + 2);
        self.asm.call(Helper::ProbeReadUserStr);
        self.asm.jump_if_imm(Cond::SLe, Reg::R0, 0, unreadable);
        self.asm.alu_imm(Alu::Sub, Reg::R0, 1);
        self.asm.mov(Reg::R1, Reg::R0);
        self.asm.jump_if_imm(Cond::Le, Reg::R0, max_bytes as i32, store);
        self.asm.mov_imm(Reg::R0, max_bytes as i32);
        self.asm.load_imm64(Reg::R1, u64::from(max_bytes | text::TRUNCATED));
        self.asm.bind(store);
        self.asm.store(Width::W32, SCRATCH, offset, Reg::R1);
        self.asm.alu(Alu::Add, CURSOR, Reg::R0);
        self.asm.jump(done);
        self.asm.bind(null);
        self.asm.store_imm(Width::W32, SCRATCH, offset, text::NULL as i32);
        self.asm.jump(done);
        self.asm.bind(unreadable);
        self.asm.store_imm(Width::W32, SCRATCH, offset, text::UNREADABLE as i32);
        self.asm.bind(done);
        Ok(())
    }

    /// Copies bytes whose number is in another operand to the cursor.
    fn bytes(
        &mut self,
        pointer: &Operand,
        length: &Operand,
        unit_bytes: u32,
        max_bytes: u32,
        offset: i16,
    ) -> Result<(), ProgramError> {
        let (null, done, unreadable, fits, copy) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.load_number(pointer, Reg::R3)?;
        // R9 keeps the pointer over the reading of the length, which may call a helper.
        self.asm.mov(Reg::R9, Reg::R3);
        self.load_number(length, Reg::R2)?;
        self.asm.jump_if_imm(Cond::Eq, Reg::R9, 0, null);
        let max_units = max_bytes / unit_bytes.max(1);
        self.asm.mov_imm(Reg::R1, 0);
        self.asm.jump_if_imm(Cond::SGe, Reg::R2, 0, fits);
        self.asm.mov_imm(Reg::R2, 0);
        self.asm.bind(fits);
        self.asm.jump_if_imm(Cond::Le, Reg::R2, max_units as i32, copy);
        self.asm.mov_imm(Reg::R2, max_units as i32);
        self.asm.load_imm64(Reg::R1, u64::from(text::TRUNCATED));
        self.asm.bind(copy);
        if unit_bytes > 1 {
            self.asm.alu_imm(Alu::Lsh, Reg::R2, unit_bytes.trailing_zeros() as i32);
        }
        self.asm.alu(Alu::Or, Reg::R1, Reg::R2);
        self.asm.store(Width::W32, SCRATCH, offset, Reg::R1);
        self.asm.store(Width::W64, Reg::R10, -8, Reg::R2);
        self.asm.mov(Reg::R3, Reg::R9);
        self.point_at_cursor();
        self.asm.call(Helper::ProbeReadUser);
        if is_stack(pointer) {
            self.read_page_instead(offset, max_bytes);
        }
        self.asm.jump_if_imm(Cond::Ne, Reg::R0, 0, unreadable);
        self.asm.load(Width::W64, Reg::R1, Reg::R10, -8);
        self.asm.alu(Alu::Add, CURSOR, Reg::R1);
        self.asm.jump(done);
        self.asm.bind(null);
        self.asm.store_imm(Width::W32, SCRATCH, offset, text::NULL as i32);
        self.asm.jump(done);
        self.asm.bind(unreadable);
        self.asm.store_imm(Width::W32, SCRATCH, offset, text::UNREADABLE as i32);
        self.asm.bind(done);
        Ok(())
    }

    /// A stack may end before so many bytes: if they could not be read (R0), those up to the end of the page at R9 are.
    fn read_page_instead(&mut self, offset: i16, max_bytes: u32) {
        let (read, fits) = (self.asm.label(), self.asm.label());
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, read);
        self.asm.mov(Reg::R1, Reg::R9);
        self.asm.alu_imm(Alu::And, Reg::R1, (PAGE_BYTES - 1) as i32);
        self.asm.mov_imm(Reg::R2, PAGE_BYTES as i32);
        self.asm.alu(Alu::Sub, Reg::R2, Reg::R1);
        self.asm.jump_if_imm(Cond::Le, Reg::R2, max_bytes as i32, fits);
        self.asm.mov_imm(Reg::R2, max_bytes as i32);
        self.asm.bind(fits);
        self.asm.store(Width::W32, SCRATCH, offset, Reg::R2);
        self.asm.store(Width::W64, Reg::R10, -8, Reg::R2);
        self.asm.mov(Reg::R3, Reg::R9);
        self.point_at_cursor();
        self.asm.call(Helper::ProbeReadUser);
        self.asm.bind(read);
    }

    /// R1 = scratch + cursor, with the bound the verifier needs.
    fn point_at_cursor(&mut self) {
        self.asm.alu_imm(Alu::And, CURSOR, (STRINGS_LIMIT - 1) as i32);
        self.asm.mov(Reg::R1, SCRATCH);
        self.asm.alu(Alu::Add, Reg::R1, CURSOR);
    }

    /// Takes a level of this CPU's scratch memory into [`SCRATCH`]; jumps to `lost` when all are in use.
    fn take_scratch(&mut self, lost: Label, leave: Label) {
        self.lookup(self.maps.depth);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, leave);
        self.asm.mov_imm(Reg::R1, 1);
        self.asm.atomic_fetch_add64(Reg::R0, 0, Reg::R1);
        let has_level = self.asm.label();
        self.asm.jump_if_imm(Cond::Lt, Reg::R1, SCRATCH_LEVELS as i32, has_level);
        self.asm.mov_imm(Reg::R1, -1);
        self.asm.atomic_add64(Reg::R0, 0, Reg::R1);
        self.asm.jump(lost);
        self.asm.bind(has_level);
        self.asm.store(Width::W32, Reg::R10, -12, Reg::R1);
        self.asm.mov(Reg::R2, Reg::R10);
        self.asm.alu_imm(Alu::Add, Reg::R2, -12);
        self.asm.load_map(Reg::R1, self.maps.scratch);
        self.asm.call(Helper::MapLookupElem);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, leave);
        self.asm.mov(SCRATCH, Reg::R0);
    }

    fn leave_scratch(&mut self, leave: Label) {
        self.lookup(self.maps.depth);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, leave);
        self.asm.mov_imm(Reg::R1, -1);
        self.asm.atomic_add64(Reg::R0, 0, Reg::R1);
    }

    /// R0 = this CPU's element 0 of `map`.
    fn lookup(&mut self, map: i32) {
        self.asm.store_imm(Width::W32, Reg::R10, -12, 0);
        self.asm.mov(Reg::R2, Reg::R10);
        self.asm.alu_imm(Alu::Add, Reg::R2, -12);
        self.asm.load_map(Reg::R1, map);
        self.asm.call(Helper::MapLookupElem);
    }

    /// Sends R2 (data), R3 (size); falls through to the end, or jumps to `lost`.
    fn output(&mut self, lost: Label) {
        self.asm.load_map(Reg::R1, self.maps.ring);
        self.asm.mov_imm(Reg::R4, RINGBUF_NO_WAKEUP);
        self.asm.call(Helper::RingbufOutput);
        self.asm.jump_if_imm(Cond::Ne, Reg::R0, 0, lost);
        self.asm.jump(self.end);
    }

    /// Counts a record that found no room, with its time.
    fn count_loss(&mut self) {
        self.lookup(self.maps.loss);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, self.end);
        self.asm.mov(Reg::R9, Reg::R0);
        self.asm.call(Helper::KtimeGetNs);
        let is_later = self.asm.label();
        self.asm.load(Width::W64, Reg::R1, Reg::R9, 8);
        self.asm.jump_if_imm(Cond::Ne, Reg::R1, 0, is_later);
        self.asm.store(Width::W64, Reg::R9, 8, Reg::R0);
        self.asm.bind(is_later);
        self.asm.store(Width::W64, Reg::R9, 16, Reg::R0);
        self.asm.mov_imm(Reg::R1, 1);
        self.asm.atomic_add64(Reg::R9, 0, Reg::R1);
        self.asm.jump(self.end);
    }
}

const RINGBUF_NO_WAKEUP: i32 = 1;

fn max_string_bytes(capture: &Capture) -> u32 {
    match capture {
        Capture::Value { .. } | Capture::ThreadContext { .. } => 0,
        Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => max_bytes + 2,
    }
}
