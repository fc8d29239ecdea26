//! A small eBPF assembler: instructions by name, jumps by label. Knows nothing of maps' contents or of probes.

use std::collections::HashMap;

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
pub(crate) enum Reg {
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
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    /// Unsigned; by zero it gives zero.
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Neg = 0x80,
    /// Unsigned; by zero it leaves the dividend.
    Mod = 0x90,
    Xor = 0xa0,
    Mov = 0xb0,
    Arsh = 0xc0,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cond {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    Ne = 0x50,
    SGt = 0x60,
    SGe = 0x70,
    Lt = 0xa0,
    Le = 0xb0,
    SLt = 0xc0,
    SLe = 0xd0,
}

/// Width of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Width {
    W32 = 0x00,
    W16 = 0x08,
    W8 = 0x10,
    W64 = 0x18,
}

impl Width {
    pub(crate) fn of(bytes: u8) -> Width {
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
pub(crate) enum Helper {
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    KtimeGetNs = 5,
    GetPrandomU32 = 7,
    GetSmpProcessorId = 8,
    GetCurrentPidTgid = 14,
    GetCurrentUidGid = 15,
    GetCurrentComm = 16,
    GetCurrentTask = 35,
    GetNumaNodeId = 42,
    GetStack = 67,
    GetCurrentCgroupId = 80,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    ProbeReadUserStr = 114,
    ProbeReadKernelStr = 115,
    Jiffies64 = 118,
    KtimeGetBootNs = 125,
    RingbufOutput = 130,
    RingbufReserve = 131,
    RingbufSubmit = 132,
    /// In sleepable programs only.
    CopyFromUser = 148,
    ForEachMapElem = 164,
    GetFuncIp = 173,
    GetAttachCookie = 174,
    /// Asked for only: our loops do without.
    Loop = 181,
    MapLookupPercpuElem = 195,
    KtimeGetTaiNs = 208,
}

/// A place in the program that jumps may name before it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    insns: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
    functions: Vec<(usize, Label)>,
}

/// A jump that does not fit eBPF's 16-bit offset: the program must be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) {
        self.insns.push(Insn { code, regs: dst as u8 | (src as u8) << 4, off, imm });
    }

    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, src: Reg) {
        self.push(0x0f | op as u8, dst, src, 0, 0);
    }

    pub(crate) fn alu_imm(&mut self, op: Alu, dst: Reg, imm: i32) {
        self.push(0x07 | op as u8, dst, Reg::R0, 0, imm);
    }

    pub(crate) fn mov(&mut self, dst: Reg, src: Reg) {
        self.alu(Alu::Mov, dst, src);
    }

    pub(crate) fn mov_imm(&mut self, dst: Reg, imm: i32) {
        self.alu_imm(Alu::Mov, dst, imm);
    }

    /// Loads a 64-bit constant; takes two instruction slots.
    pub(crate) fn load_imm64(&mut self, dst: Reg, value: u64) {
        self.push(0x18, dst, Reg::R0, 0, value as u32 as i32);
        self.insns.push(Insn { code: 0, regs: 0, off: 0, imm: (value >> 32) as i32 });
    }

    /// Loads the address of a map by its file descriptor.
    pub(crate) fn load_map(&mut self, dst: Reg, map_fd: i32) {
        // Source register 1 is BPF_PSEUDO_MAP_FD.
        self.push(0x18, dst, Reg::R1, 0, map_fd);
        self.insns.push(Insn { code: 0, regs: 0, off: 0, imm: 0 });
    }

    pub(crate) fn load(&mut self, width: Width, dst: Reg, base: Reg, off: i16) {
        self.push(0x61 | width as u8, dst, base, off, 0);
    }

    pub(crate) fn store(&mut self, width: Width, base: Reg, off: i16, src: Reg) {
        self.push(0x63 | width as u8, base, src, off, 0);
    }

    pub(crate) fn store_imm(&mut self, width: Width, base: Reg, off: i16, imm: i32) {
        self.push(0x62 | width as u8, base, Reg::R0, off, imm);
    }

    /// `*(u64 *)(base + off) += src`, atomically.
    pub(crate) fn atomic_add64(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(0xdb, base, src, off, 0);
    }

    /// `src = *(u64 *)(base + off); *(u64 *)(base + off) += src`, atomically.
    pub(crate) fn atomic_fetch_add64(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(0xdb, base, src, off, 1);
    }

    /// Compares `*(u64 *)(base + off)` with R0 and, if equal, stores `src`; R0 is what was there. Atomic.
    pub(crate) fn atomic_compare_exchange64(&mut self, base: Reg, off: i16, src: Reg) {
        self.push(0xdb, base, src, off, 0xf1);
    }

    pub(crate) fn negate(&mut self, dst: Reg) {
        self.alu_imm(Alu::Neg, dst, 0);
    }

    /// Loads the address of the function at `label`, for helpers that call back.
    pub(crate) fn load_function(&mut self, dst: Reg, label: Label) {
        self.functions.push((self.insns.len(), label));
        // Source register 4 is BPF_PSEUDO_FUNC.
        self.push(0x18, dst, Reg::R4, 0, 0);
        self.insns.push(Insn { code: 0, regs: 0, off: 0, imm: 0 });
    }

    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper as i32);
    }

    pub(crate) fn exit(&mut self) {
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05, Reg::R0, Reg::R0, 0, 0);
    }

    pub(crate) fn jump_if_imm(&mut self, cond: Cond, left: Reg, right: i32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05 | cond as u8, left, Reg::R0, 0, right);
    }

    pub(crate) fn jump_if(&mut self, cond: Cond, left: Reg, right: Reg, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x0d | cond as u8, left, right, 0, 0);
    }

    /// Goes on, or to `to` when the program has gone round its loops too often: with it in the way, the verifier lets a
    /// loop run whose end it cannot see. Since Linux 6.9.
    pub(crate) fn may_goto(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0xe5, Reg::R0, Reg::R0, 0, 0);
    }

    /// Drops what no way leads to, which the verifier refuses. Of the functions at `labels` those that are left are
    /// returned.
    pub(crate) fn drop_unreachable(&mut self, labels: &[Label]) -> Vec<Label> {
        let at = |label: &Label| self.labels[label.0].expect("every label is bound before finish");
        let jumps: HashMap<usize, usize> = self.jumps.iter().map(|(from, to)| (*from, at(to))).collect();
        let functions: HashMap<usize, usize> =
            self.functions.iter().map(|(from, to)| (*from, at(to))).collect();
        let mut is_reached = vec![false; self.insns.len()];
        let mut open = vec![0];
        while let Some(next) = open.pop() {
            if next >= is_reached.len() || is_reached[next] {
                continue;
            }
            is_reached[next] = true;
            open.extend(jumps.get(&next));
            open.extend(functions.get(&next));
            match self.insns[next].code {
                0x05 | 0x95 => {}
                0x18 => {
                    if let Some(second) = is_reached.get_mut(next + 1) {
                        *second = true;
                    }
                    open.push(next + 2);
                }
                _ => open.push(next + 1),
            }
        }
        let left = labels.iter().filter(|label| is_reached.get(at(label)) == Some(&true)).copied().collect();
        let mut moved = Vec::with_capacity(is_reached.len() + 1);
        let mut n_kept = 0;
        for is_reached in &is_reached {
            moved.push(n_kept);
            n_kept += usize::from(*is_reached);
        }
        moved.push(n_kept);
        let mut index = 0;
        self.insns.retain(|_| {
            index += 1;
            is_reached[index - 1]
        });
        for places in [&mut self.jumps, &mut self.functions] {
            places.retain(|(from, _)| is_reached[*from]);
            places.iter_mut().for_each(|(from, _)| *from = moved[*from]);
        }
        self.labels.iter_mut().flatten().for_each(|place| *place = moved[*place]);
        left
    }

    /// Where a bound label is.
    pub(crate) fn position(&self, label: Label) -> usize {
        self.labels[label.0].expect("every label is bound before finish")
    }

    /// The finished program with every jump resolved.
    pub(crate) fn finish(mut self) -> Result<Vec<Insn>, TooLong> {
        for (at, label) in &self.jumps {
            let target = self.labels[label.0].expect("every label is bound before finish");
            let off = target as i64 - *at as i64 - 1;
            self.insns[*at].off = i16::try_from(off).map_err(|_| TooLong)?;
        }
        for (at, label) in &self.functions {
            let target = self.labels[label.0].expect("every label is bound before finish");
            self.insns[*at].imm = (target as i64 - *at as i64 - 1) as i32;
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
    fn what_no_way_leads_to_is_dropped() {
        let mut asm = Assembler::default();
        let (end, dead, called, uncalled) = (asm.label(), asm.label(), asm.label(), asm.label());
        asm.load_function(Reg::R2, called);
        asm.jump(end);
        asm.bind(dead);
        asm.load_function(Reg::R2, uncalled);
        asm.jump(dead);
        asm.bind(end);
        asm.exit();
        asm.bind(uncalled);
        asm.exit();
        asm.bind(called);
        asm.exit();
        assert_eq!(asm.drop_unreachable(&[called, uncalled]), [called]);
        assert_eq!(asm.position(called), 4);
        let program = asm.finish().unwrap();
        let codes: Vec<u8> = program.iter().map(|insn| insn.code).collect();
        assert_eq!(codes, [0x18, 0, 0x05, 0x95, 0x95]);
        assert_eq!((program[0].imm, program[2].off), (3, 0));
    }

    #[test]
    fn a_64_bit_constant_takes_two_slots() {
        let mut asm = Assembler::default();
        asm.load_imm64(Reg::R3, 0x1122_3344_8566_7788);
        let program = asm.finish().unwrap();
        assert_eq!((program[0].imm as u32, program[1].imm as u32), (0x8566_7788, 0x1122_3344));
    }
}
