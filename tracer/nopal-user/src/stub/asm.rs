//! A small x86-64 assembler: just the instructions the stubs are made of, with labels and RIP-relative addresses.
//! It knows nothing of stubs.

/// A 64-bit general purpose register, as the instruction set numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(pub u8);

pub const RAX: Reg = Reg(0);
pub const RCX: Reg = Reg(1);
pub const RDX: Reg = Reg(2);
pub const RSP: Reg = Reg(4);
pub const RSI: Reg = Reg(6);
pub const RDI: Reg = Reg(7);
pub const R10: Reg = Reg(10);
pub const R11: Reg = Reg(11);

/// A place in the code; bound once, used any number of times before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mem {
    /// base + index * scale + displacement
    At { base: Reg, index: Option<(Reg, u8)>, disp: i32 },
    /// `%fs:` base + displacement
    Fs { base: Reg, disp: i32 },
    /// Relative to the instruction pointer, in this code.
    Label(Label),
    /// Relative to the instruction pointer, outside this code.
    Near(u64),
}

/// base + displacement
pub fn at(base: Reg, disp: i32) -> Mem {
    Mem::At { base, index: None, disp }
}

/// Width of an access in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    B1,
    B2,
    B4,
    B8,
}

impl Width {
    pub fn of(bytes: u8) -> Option<Width> {
        Some(match bytes {
            1 => Width::B1,
            2 => Width::B2,
            4 => Width::B4,
            8 => Width::B8,
            _ => return None,
        })
    }
}

/// The two-operand arithmetic instructions; the number is their place in the opcode map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Conditions; the number is the low nibble of the opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cond {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Sign = 8,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

impl Cond {
    pub fn inverse(self) -> Cond {
        match self {
            Cond::Below => Cond::AboveEqual,
            Cond::AboveEqual => Cond::Below,
            Cond::Equal => Cond::NotEqual,
            Cond::NotEqual => Cond::Equal,
            Cond::BelowEqual => Cond::Above,
            Cond::Above => Cond::BelowEqual,
            Cond::Sign => unreachable!("the sign is only ever tested, never inverted"),
            Cond::Less => Cond::GreaterEqual,
            Cond::GreaterEqual => Cond::Less,
            Cond::LessEqual => Cond::Greater,
            Cond::Greater => Cond::LessEqual,
        }
    }
}

#[derive(Debug)]
enum Fixup {
    /// rel32 at `position`, counted from `end`.
    Relative { position: usize, end: usize, label: Label },
    /// Address of the label as a u64.
    Absolute { position: usize, label: Label },
    /// Distance between two labels as a u64.
    Distance { position: usize, from: Label, to: Label },
}

/// A target that cannot be reached with 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfReach {
    pub from: u64,
    pub to: u64,
}

/// `to - end` as the 32 bits of a jump or address.
pub fn rel32(end: u64, to: u64) -> Result<i32, OutOfReach> {
    i32::try_from(to.wrapping_sub(end) as i64).map_err(|_| OutOfReach { from: end, to })
}

/// Code under construction.
#[derive(Debug)]
pub struct Asm {
    address: u64,
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    fixups: Vec<Fixup>,
    out_of_reach: Option<OutOfReach>,
}

enum Rm {
    Reg(Reg),
    Mem(Mem),
}

impl Asm {
    /// Code that will run at `address`.
    pub fn new(address: u64) -> Asm {
        Asm {
            address,
            bytes: Vec::with_capacity(1024),
            labels: Vec::new(),
            fixups: Vec::new(),
            out_of_reach: None,
        }
    }

    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "a label is bound once");
        self.labels[label.0] = Some(self.bytes.len());
    }

    /// A new label, here.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Fills in what refers to labels.
    pub fn finish(mut self) -> Result<Vec<u8>, OutOfReach> {
        if let Some(failure) = self.out_of_reach {
            return Err(failure);
        }
        let place = |label: Label| self.labels[label.0].expect("every label is bound before finish");
        for fixup in &self.fixups {
            match *fixup {
                Fixup::Relative { position, end, label } => {
                    let value = place(label) as i64 - end as i64;
                    self.bytes[position..position + 4].copy_from_slice(&(value as i32).to_le_bytes());
                }
                Fixup::Absolute { position, label } => {
                    let value = self.address + place(label) as u64;
                    self.bytes[position..position + 8].copy_from_slice(&value.to_le_bytes());
                }
                Fixup::Distance { position, from, to } => {
                    let value = (place(to) - place(from)) as u64;
                    self.bytes[position..position + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok(self.bytes)
    }

    pub fn data(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Fills with `int3`, which nobody reaches.
    pub fn align(&mut self, to: usize) {
        while !self.bytes.len().is_multiple_of(to) {
            self.bytes.push(0xcc);
        }
    }

    pub fn address_of(&mut self, label: Label) {
        self.fixups.push(Fixup::Absolute { position: self.bytes.len(), label });
        self.data(&[0; 8]);
    }

    pub fn distance(&mut self, from: Label, to: Label) {
        self.fixups.push(Fixup::Distance { position: self.bytes.len(), from, to });
        self.data(&[0; 8]);
    }

    // Prefixes, REX, opcode, ModRM, SIB and displacement. `imm` is how many immediate bytes the caller appends. An opcode
    // may begin with the prefix that goes before REX.
    fn op(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: Rm, byte_reg: bool, imm: usize) {
        if matches!(rm, Rm::Mem(Mem::Fs { .. })) {
            self.bytes.push(0x64);
        }
        let (prefix, opcode) = opcode.split_at(usize::from(matches!(opcode[0], 0x66 | 0xf2 | 0xf3)));
        self.data(prefix);
        let (x, b) = match rm {
            Rm::Reg(r) => (0, r.0 >> 3),
            Rm::Mem(Mem::At { base, index, .. }) => (index.map_or(0, |(i, _)| i.0 >> 3), base.0 >> 3),
            Rm::Mem(Mem::Fs { base, .. }) => (0, base.0 >> 3),
            Rm::Mem(Mem::Label(_) | Mem::Near(_)) => (0, 0),
        };
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3 & 1) << 2 | x << 1 | b;
        // Without a REX prefix byte registers 4 to 7 would mean ah, ch, dh, bh.
        let rm_needs_rex = matches!(rm, Rm::Reg(Reg(4..=7)));
        if rex != 0x40 || (byte_reg && ((4..8).contains(&reg) || rm_needs_rex)) {
            self.bytes.push(rex);
        }
        self.data(opcode);
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(r) => self.bytes.push(0xc0 | reg | (r.0 & 7)),
            Rm::Mem(Mem::At { base, index, disp }) => self.memory(reg, base, index, disp),
            Rm::Mem(Mem::Fs { base, disp }) => self.memory(reg, base, None, disp),
            Rm::Mem(Mem::Label(label)) => {
                self.bytes.push(reg | 5);
                let position = self.bytes.len();
                self.fixups.push(Fixup::Relative { position, end: position + 4 + imm, label });
                self.data(&[0; 4]);
            }
            Rm::Mem(Mem::Near(to)) => {
                self.bytes.push(reg | 5);
                let end = self.address + (self.bytes.len() + 4 + imm) as u64;
                self.near(end, to);
            }
        }
    }

    fn near(&mut self, end: u64, to: u64) {
        let value = rel32(end, to).unwrap_or_else(|failure| {
            self.out_of_reach = Some(failure);
            0
        });
        self.data(&value.to_le_bytes());
    }

    fn memory(&mut self, reg: u8, base: Reg, index: Option<(Reg, u8)>, disp: i32) {
        let low = base.0 & 7;
        // A base of rbp or r13 without displacement would mean something else.
        let (mode, size) = match disp {
            0 if low != 5 => (0x00, 0),
            -128..=127 => (0x40, 1),
            _ => (0x80, 4),
        };
        if index.is_some() || low == 4 {
            let (index, scale) = index.map_or((4, 1), |(i, scale)| (i.0 & 7, scale));
            self.bytes.push(mode | reg | 4);
            self.bytes.push((scale.trailing_zeros() as u8) << 6 | index << 3 | low);
        } else {
            self.bytes.push(mode | reg | low);
        }
        self.data(&disp.to_le_bytes()[..size]);
    }

    pub fn mov(&mut self, to: Reg, from: Reg) {
        self.op(true, &[0x89], from.0, Rm::Reg(to), false, 0);
    }

    /// 32 bits, clearing the upper half.
    pub fn mov32(&mut self, to: Reg, from: Reg) {
        self.op(false, &[0x89], from.0, Rm::Reg(to), false, 0);
    }

    /// Any constant, in the shortest way.
    pub fn mov_imm(&mut self, to: Reg, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            if to.0 >= 8 {
                self.bytes.push(0x41);
            }
            self.bytes.push(0xb8 | (to.0 & 7));
            self.data(&value.to_le_bytes());
        } else {
            self.data(&[0x48 | to.0 >> 3, 0xb8 | (to.0 & 7)]);
            self.data(&value.to_le_bytes());
        }
    }

    fn extending(&mut self, to: Reg, rm: Rm, width: Width, is_signed: bool) {
        match (width, is_signed) {
            (Width::B1, false) => self.op(false, &[0x0f, 0xb6], to.0, rm, true, 0),
            (Width::B2, false) => self.op(false, &[0x0f, 0xb7], to.0, rm, false, 0),
            (Width::B4, false) => self.op(false, &[0x8b], to.0, rm, false, 0),
            (Width::B1, true) => self.op(true, &[0x0f, 0xbe], to.0, rm, true, 0),
            (Width::B2, true) => self.op(true, &[0x0f, 0xbf], to.0, rm, false, 0),
            (Width::B4, true) => self.op(true, &[0x63], to.0, rm, false, 0),
            (Width::B8, _) => self.op(true, &[0x8b], to.0, rm, false, 0),
        }
    }

    /// Load, widened to 64 bits.
    pub fn load(&mut self, to: Reg, from: Mem, width: Width, is_signed: bool) {
        self.extending(to, Rm::Mem(from), width, is_signed);
    }

    /// Copy of the low part, widened to 64 bits.
    pub fn extend(&mut self, to: Reg, from: Reg, width: Width, is_signed: bool) {
        self.extending(to, Rm::Reg(from), width, is_signed);
    }

    pub fn load64(&mut self, to: Reg, from: Mem) {
        self.load(to, from, Width::B8, false);
    }

    pub fn load32(&mut self, to: Reg, from: Mem) {
        self.load(to, from, Width::B4, false);
    }

    pub fn store(&mut self, to: Mem, from: Reg, width: Width) {
        match width {
            Width::B1 => self.op(false, &[0x88], from.0, Rm::Mem(to), true, 0),
            Width::B2 => self.op(false, &[0x66, 0x89], from.0, Rm::Mem(to), false, 0),
            Width::B4 => self.op(false, &[0x89], from.0, Rm::Mem(to), false, 0),
            Width::B8 => self.op(true, &[0x89], from.0, Rm::Mem(to), false, 0),
        }
    }

    /// Stores a constant; 8 bytes wide it is widened from 32 bits with its sign.
    pub fn store_imm(&mut self, to: Mem, value: i32, width: Width) {
        match width {
            Width::B1 => {
                self.op(false, &[0xc6], 0, Rm::Mem(to), false, 1);
                self.data(&value.to_le_bytes()[..1]);
            }
            Width::B2 => {
                self.op(false, &[0x66, 0xc7], 0, Rm::Mem(to), false, 2);
                self.data(&value.to_le_bytes()[..2]);
            }
            Width::B4 | Width::B8 => {
                self.op(width == Width::B8, &[0xc7], 0, Rm::Mem(to), false, 4);
                self.data(&value.to_le_bytes());
            }
        }
    }

    pub fn lea(&mut self, to: Reg, of: Mem) {
        self.op(true, &[0x8d], to.0, Rm::Mem(of), false, 0);
    }

    pub fn alu(&mut self, op: Alu, to: Reg, from: Reg) {
        self.op(true, &[(op as u8) << 3 | 1], from.0, Rm::Reg(to), false, 0);
    }

    pub fn alu_mem(&mut self, op: Alu, to: Reg, from: Mem) {
        self.op(true, &[(op as u8) << 3 | 3], to.0, Rm::Mem(from), false, 0);
    }

    fn alu_immediate(&mut self, op: Alu, wide: bool, rm: Rm, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.op(wide, &[0x83], op as u8, rm, false, 1);
            self.data(&short.to_le_bytes());
        } else {
            self.op(wide, &[0x81], op as u8, rm, false, 4);
            self.data(&value.to_le_bytes());
        }
    }

    /// 64 bits; the constant is widened with its sign.
    pub fn alu_imm(&mut self, op: Alu, to: Reg, value: i32) {
        self.alu_immediate(op, true, Rm::Reg(to), value);
    }

    /// 32 bits, clearing the upper half.
    pub fn alu_imm32(&mut self, op: Alu, to: Reg, value: i32) {
        self.alu_immediate(op, false, Rm::Reg(to), value);
    }

    pub fn cmp_mem32(&mut self, what: Mem, value: i32) {
        self.alu_immediate(Alu::Cmp, false, Rm::Mem(what), value);
    }

    pub fn cmp32(&mut self, reg: Reg, with: Mem) {
        self.op(false, &[0x3b], reg.0, Rm::Mem(with), false, 0);
    }

    pub fn test(&mut self, a: Reg, b: Reg) {
        self.op(true, &[0x85], b.0, Rm::Reg(a), false, 0);
    }

    /// Tests bits of `%al`.
    pub fn test_al(&mut self, bits: u8) {
        self.data(&[0xa8, bits]);
    }

    pub fn clear(&mut self, reg: Reg) {
        self.op(false, &[0x31], reg.0, Rm::Reg(reg), false, 0);
    }

    pub fn not(&mut self, reg: Reg) {
        self.op(true, &[0xf7], 2, Rm::Reg(reg), false, 0);
    }

    pub fn shl(&mut self, reg: Reg, by: u8) {
        self.op(true, &[0xc1], 4, Rm::Reg(reg), false, 1);
        self.bytes.push(by);
    }

    pub fn shr(&mut self, reg: Reg, by: u8) {
        self.op(true, &[0xc1], 5, Rm::Reg(reg), false, 1);
        self.bytes.push(by);
    }

    /// Left by `%cl`.
    pub fn shl_cl(&mut self, reg: Reg) {
        self.op(true, &[0xd3], 4, Rm::Reg(reg), false, 0);
    }

    /// Right by `%cl`, filling with zeros.
    pub fn shr_cl(&mut self, reg: Reg) {
        self.op(true, &[0xd3], 5, Rm::Reg(reg), false, 0);
    }

    /// `%rdx:%rax`, unsigned, by this; the quotient in `%rax`, the rest in `%rdx`.
    pub fn divide(&mut self, by: Reg) {
        self.op(true, &[0xf7], 6, Rm::Reg(by), false, 0);
    }

    /// `%rax` by this, unsigned, into `%rdx:%rax`.
    pub fn multiply_wide(&mut self, by: Mem) {
        self.op(true, &[0xf7], 4, Rm::Mem(by), false, 0);
    }

    /// Right by `by` bits, filled from the low end of `from`.
    pub fn shr_from(&mut self, reg: Reg, from: Reg, by: u8) {
        self.op(true, &[0x0f, 0xac], from.0, Rm::Reg(reg), false, 1);
        self.bytes.push(by);
    }

    pub fn multiply(&mut self, reg: Reg, by: i32) {
        self.multiply_to(reg, reg, by);
    }

    /// `to = from * by`
    pub fn multiply_to(&mut self, to: Reg, from: Reg, by: i32) {
        self.op(true, &[0x69], to.0, Rm::Reg(from), false, 4);
        self.data(&by.to_le_bytes());
    }

    /// Index of the lowest set bit.
    pub fn lowest_bit(&mut self, to: Reg, from: Reg) {
        self.op(true, &[0x0f, 0xbc], to.0, Rm::Reg(from), false, 0);
    }

    /// Index of the highest set bit.
    pub fn highest_bit(&mut self, to: Reg, from: Reg) {
        self.op(true, &[0x0f, 0xbd], to.0, Rm::Reg(from), false, 0);
    }

    pub fn jmp(&mut self, to: Label) {
        self.bytes.push(0xe9);
        let position = self.bytes.len();
        self.fixups.push(Fixup::Relative { position, end: position + 4, label: to });
        self.data(&[0; 4]);
    }

    pub fn jcc(&mut self, condition: Cond, to: Label) {
        self.data(&[0x0f, 0x80 | condition as u8]);
        let position = self.bytes.len();
        self.fixups.push(Fixup::Relative { position, end: position + 4, label: to });
        self.data(&[0; 4]);
    }

    /// Jump to code outside.
    pub fn jmp_near(&mut self, to: u64) {
        self.bytes.push(0xe9);
        let end = self.address + (self.bytes.len() + 4) as u64;
        self.near(end, to);
    }

    /// `jmp *mem`
    pub fn jmp_through(&mut self, slot: Mem) {
        self.op(false, &[0xff], 4, Rm::Mem(slot), false, 0);
    }

    /// `jmp *reg`
    pub fn jmp_reg(&mut self, reg: Reg) {
        self.op(false, &[0xff], 4, Rm::Reg(reg), false, 0);
    }

    /// `lock cmpxchg`: if `what` equals `%rax` it becomes `new`, else `%rax` becomes `what`.
    pub fn lock_cmpxchg(&mut self, what: Mem, new: Reg, width: Width) {
        self.bytes.push(0xf0);
        self.op(width == Width::B8, &[0x0f, 0xb1], new.0, Rm::Mem(what), false, 0);
    }

    pub fn lock_inc(&mut self, what: Mem) {
        self.bytes.push(0xf0);
        self.inc(what);
    }

    pub fn inc(&mut self, what: Mem) {
        self.op(true, &[0xff], 0, Rm::Mem(what), false, 0);
    }

    pub fn dec(&mut self, what: Mem) {
        self.op(true, &[0xff], 1, Rm::Mem(what), false, 0);
    }

    pub fn lock_or32(&mut self, what: Mem, bits: Reg) {
        self.bytes.push(0xf0);
        self.op(false, &[0x09], bits.0, Rm::Mem(what), false, 0);
    }

    /// `add %reg, mem`, with a lock prefix or without.
    pub fn add_to(&mut self, what: Mem, reg: Reg, is_locked: bool) {
        if is_locked {
            self.bytes.push(0xf0);
        }
        self.op(true, &[0x01], reg.0, Rm::Mem(what), false, 0);
    }

    /// The address `%fs` stands for (`rdfsbase`); touches no memory. Not every processor has it, nor every kernel allows it.
    pub fn read_fs_base(&mut self, to: Reg) {
        self.op(true, &[0xf3, 0x0f, 0xae], 0, Rm::Reg(to), false, 0);
    }

    /// Segment limit: Linux keeps the CPU number in that of selector 0x7b.
    pub fn segment_limit(&mut self, to: Reg, selector: Reg) {
        self.op(false, &[0x0f, 0x03], to.0, Rm::Reg(selector), false, 0);
    }

    /// Stores 4, 8 or 16 bytes of an SSE register.
    pub fn store_xmm(&mut self, to: Mem, xmm: u8, bytes: u8) {
        let opcode: &[u8] = match bytes {
            4 => &[0xf3, 0x0f, 0x11],
            8 => &[0xf2, 0x0f, 0x11],
            _ => &[0x0f, 0x11],
        };
        self.op(false, opcode, xmm, Rm::Mem(to), false, 0);
    }

    /// `vmovups %ymm, disp(base)` for ymm0 to ymm15.
    pub fn store_ymm(&mut self, base: Reg, disp: i32, ymm: u8) {
        // VEX3: inverted R, X, B and map 1; W 0, vvvv 1111, L 1 (256 bits), no prefix.
        self.data(&[0xc4, (!ymm >> 3 & 1) << 7 | 0x40 | (!base.0 >> 3 & 1) << 5 | 1, 0x7c, 0x11]);
        self.memory((ymm & 7) << 3, base, None, disp);
    }

    /// The low 32 bits of an SSE register.
    pub fn mov_from_xmm(&mut self, to: Reg, xmm: u8) {
        self.op(false, &[0x66, 0x0f, 0x7e], xmm, Rm::Reg(to), false, 0);
    }

    /// Asks for a cache line that will be written to; never faults. Does nothing on processors that do not know it.
    pub fn prefetch_for_write(&mut self, what: Mem) {
        self.op(false, &[0x0f, 0x0d], 1, Rm::Mem(what), false, 0);
    }

    /// Time stamp counter into `%rax`, spoiling `%rdx`.
    pub fn time(&mut self) {
        self.data(&[0x0f, 0x31]); // rdtsc
        self.shl(RDX, 32);
        self.alu(Alu::Or, RAX, RDX);
    }

    /// What comes behind begins when all before has its results.
    pub fn wait_for_loads(&mut self) {
        self.data(&[0x0f, 0xae, 0xe8]); // lfence
    }

    pub fn syscall(&mut self) {
        self.data(&[0x0f, 0x05]);
    }

    /// The flags into `%ax`: `lahf; seto %al`.
    pub fn flags_to_ax(&mut self) {
        self.data(&[0x9f, 0x0f, 0x90, 0xc0]);
    }

    /// And back: `add $0x7f, %al; sahf`. The addition overflows exactly when `%al` is 1.
    pub fn flags_from_ax(&mut self) {
        self.data(&[0x04, 0x7f, 0x9e]);
    }
}

#[cfg(test)]
mod tests;
