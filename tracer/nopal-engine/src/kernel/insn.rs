//! A small eBPF assembler: instructions by name, jumps by label. Knows nothing of maps' contents or of probes.

/// One eBPF instruction as the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    pub code: u8,
    /// Destination in the low four bits, source in the high four.
    pub regs: u8,
    pub off: i16,
    pub imm: i32,
}

const _: () = assert!(size_of::<Insn>() == 8);

/// An eBPF register: R0 result, R1-R5 helper arguments, R6-R9 kept over calls, R10 the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(dead_code, reason = "the whole register file")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mov = 0xb0,
    Arsh = 0xc0,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cond {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    Ne = 0x50,
    SGe = 0x70,
    Lt = 0xa0,
    Le = 0xb0,
    SLe = 0xd0,
}

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    W32 = 0x00,
    W16 = 0x08,
    W8 = 0x10,
    W64 = 0x18,
}

impl Width {
    pub fn of(bytes: u8) -> Width {
        match bytes {
            1 => Width::W8,
            2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        }
    }
}

/// The kernel's helper functions we call, by their number in the uapi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    MapLookupElem = 1,
    KtimeGetNs = 5,
    GetSmpProcessorId = 8,
    GetCurrentPidTgid = 14,
    ProbeReadUser = 112,
    ProbeReadUserStr = 114,
    RingbufOutput = 130,
    GetAttachCookie = 174,
}

/// A place in the program that jumps may name before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

/// A jump that does not fit eBPF's 16-bit offset: the program must be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) {
        self.insns.push(Insn { code, regs: dst as u8 | (src as u8) << 4, off, imm });
    }

    pub fn alu(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(0x0f | op as u8, dst, src, 0, 0);
    }

    pub fn alu_imm(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(0x07 | op as u8, dst, Reg::R0, 0, imm);
    }

    pub fn mov(&mut self, dst: Reg, src: Reg) {
        self.alu(Alu::Mov, dst, src);
    }

    pub fn mov_imm(&mut self, dst: Reg, imm: i32) {
        self.alu_imm(Alu::Mov, dst, imm);
    }

    /// Loads a 64-bit constant; takes two instruction slots.
    pub fn load_imm64(&mut self, dst: Reg, value: u64) {
        self.push(0x18, dst, Reg::R0, 0, value as u32 as i32);
        self.insns.push(Insn { code: 0, regs: 0, off: 0, imm: (value >> 32) as i32 });
    }

    /// Loads the address of a map by its file descriptor.
    pub fn load_map(&mut self, dst: Reg, map_fd: i32) {
        // Source register 1 is BPF_PSEUDO_MAP_FD.
        self.push(0x18, dst, Reg::R1, 0, map_fd);
        self.insns.push(Insn { code: 0, regs: 0, off: 0, imm: 0 });
    }

    pub fn load(&mut self, width: Width, dst: Reg, base: Reg, off: i16) {
        self.push(0x61 | width as u8, dst, base, off, 0);
    }

    pub fn store(&mut self, width: Width, base: Reg, off: i16, src: Reg) {
        self.push(0x63 | width as u8, base, src, off, 0);
    }

    pub fn store_imm(&mut self, width: Width, base: Reg, off: i16, imm: i32) {
        self.push(0x62 | width as u8, base, Reg::R0, off, imm);
    }

    /// `*(u64 *)(base + off) += src`, atomically.
    pub fn atomic_add64(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(0xdb, base, src, off, 0);
    }

    /// `src = *(u64 *)(base + off); *(u64 *)(base + off) += src`, atomically.
    pub fn atomic_fetch_add64(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(0xdb, base, src, off, 1);
    }

    pub fn call(&mut self, helper: Helper) {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper as i32);
    }

    pub fn exit(&mut self) {
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05, Reg::R0, Reg::R0, 0, 0);
    }

    pub fn jump_if_imm(&mut self, cond: Cond, left: Reg, right: i32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05 | cond as u8, left, Reg::R0, 0, right);
    }

    /// The finished program with every jump resolved.
    pub fn finish(mut self) -> Result<Vec<Insn>, TooLong> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label is bound before finish");
            let off = target as i64 - *at as i64 - 1;
            self.insns[*at].off = i16::try_from(off).map_err(|_| TooLong)?;
        }
        Ok(self.insns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_are_relative_to_the_next_instruction() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.jump_if_imm(Cond::Eq, Reg::R1, 7, end);
        asm.mov_imm(Reg::R0, 1);
        asm.bind(end);
        asm.exit();
        let program = asm.finish().unwrap();
        assert_eq!(program[0], Insn { code: 0x15, regs: 1, off: 1, imm: 7 });
        assert_eq!(program[2].code, 0x95);
    }

    #[test]
    fn a_jump_over_32768_instructions_is_refused() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.jump(end);
        for _ in 0..40_000 {
            asm.mov_imm(Reg::R0, 0);
        }
        asm.bind(end);
        asm.exit();
        assert_eq!(asm.finish(), Err(TooLong));
    }

    #[test]
    fn a_64_bit_constant_takes_two_slots() {
        let mut asm = Assembler::default();
        asm.load_imm64(Reg::R3, 0x1122_3344_8566_7788);
        let program = asm.finish().unwrap();
        assert_eq!((program[0].imm as u32, program[1].imm as u32), (0x8566_7788, 0x1122_3344));
    }
}
