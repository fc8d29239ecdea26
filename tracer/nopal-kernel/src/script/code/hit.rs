//! What a hit has to say: arguments, fields, the task, stacks.

use super::super::super::capture_program::is_elsewhere;
use super::super::super::insn::{Alu, Cond, Helper, Label, Reg, Width};
use super::super::super::pt_regs;
use super::{COOKIE_AT, CTX, CodeError, Gen, Kind, TEMP, Which};
use nopal_program::op::{Builtin, Op, Slot};
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};

/// How the arguments of a site are read. Sites that have them in the same places share a layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArgLayout {
    pub args: Vec<(Source, Option<Source>)>,
}

/// Where a number is; with each argument comes that of its length, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `address` is the site's at link time: symbols are found by their distance from it.
    Operand { operand: Operand, address: u64 },
    /// A field in the block an operand points to.
    Packed { pointer: Operand, offset: u32, size_bytes: u8, is_signed: bool, is_float: bool },
    /// The address of such a field.
    PackedAddress { pointer: Operand, offset: u32 },
    /// A register as the instruction set numbers it.
    Register(u8),
    /// Bytes from the stack pointer.
    Stack(u32),
    /// It cannot be read; the reason.
    Unreadable(String),
}

impl ArgLayout {
    /// Whether it takes the program's memory beside its stack, which may not be there yet when it is read.
    pub fn reads_memory(&self) -> bool {
        self.args.iter().any(|(source, length)| {
            source.reads_memory() || length.as_ref().is_some_and(Source::reads_memory)
        })
    }
}

impl Source {
    fn reads_memory(&self) -> bool {
        match self {
            Source::Operand { operand, .. } => is_elsewhere(operand),
            Source::Packed { .. } => true,
            Source::PackedAddress { .. } | Source::Register(_) | Source::Stack(_) | Source::Unreadable(_) => {
                false
            }
        }
    }

    /// Why it cannot be read, if so.
    pub fn trouble(&self) -> Option<String> {
        let operand = match self {
            Source::Operand { operand, .. }
            | Source::Packed { pointer: operand, .. }
            | Source::PackedAddress { pointer: operand, .. } => operand,
            Source::Register(_) | Source::Stack(_) => return None,
            Source::Unreadable(reason) => return Some(reason.clone()),
        };
        match &operand.place {
            _ if !matches!(operand.size_bytes, 1 | 2 | 4 | 8) => {
                Some("it has more bytes than eBPF reads at once".to_owned())
            }
            Place::Vector(_) => Some("it is in a vector register, which eBPF cannot read".to_owned()),
            Place::Memory(Memory { base: Base::Symbol { name, address: None }, .. }) => {
                Some(format!("the file has no symbol `{name}`"))
            }
            Place::Register(_) | Place::Constant(_) | Place::Memory(_) => None,
        }
    }
}

const USER_STACK: i32 = 256;
/// The kernel puts a pointer of its own over the first eight bytes of a record, which are common to all tracepoints: only
/// the thread is known anyway.
const COMMON_PID_AT: u16 = 4;

impl Gen<'_> {
    pub(super) fn hit(&mut self, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::Arg { dst, index } => {
                self.arg(index)?;
                self.store(dst, Reg::R0);
            }
            Op::Field { dst, offset, size_bytes, is_signed } => {
                self.field(offset, size_bytes);
                if is_signed {
                    self.extend(Reg::R0, size_bytes, true);
                }
                self.store(dst, Reg::R0);
            }
            Op::Builtin { dst, what } => {
                self.builtin(what);
                self.store(dst, Reg::R0);
            }
            Op::Register { dst, index } => {
                let offset = i16::from(index) * 8;
                if self.spec.kind.has_registers() && offset < pt_regs::BYTES {
                    self.asm.load(Width::W64, Reg::R0, CTX, offset);
                } else {
                    self.asm.mov_imm(Reg::R0, 0);
                }
                self.store(dst, Reg::R0);
            }
            Op::Comm { to } => self.comm(to),
            Op::Probe { dst } => {
                match self.spec.which {
                    Which::Cookie | Which::Fixed(_) | Which::Table(_) | Which::Among(_) => {
                        self.asm.load(Width::W32, Reg::R0, self.fp, COOKIE_AT + 4);
                    }
                    Which::Point(point) => self.constant(Reg::R0, i64::from(point)),
                }
                self.asm.alu_imm(Alu::Lsh, Reg::R0, 32);
                self.asm.alu_imm(Alu::Or, Reg::R0, self.spec.clause as i32);
                self.store(dst, Reg::R0);
            }
            Op::UserStack { to } => {
                self.stack(to, 8, USER_STACK);
                if to.len >= 8 {
                    self.asm.call(Helper::GetCurrentPidTgid);
                    self.asm.alu_imm(Alu::Rsh, Reg::R0, 32);
                    let (base, offset) = self.base(self.plan.frame, to.at);
                    self.asm.store(Width::W64, base, offset, Reg::R0);
                }
            }
            Op::KernelStack { to } => self.stack(to, 0, 0),
            Op::FieldString { to, offset } => self.field_string(to, offset),
            Op::FieldBytes { to, offset } => {
                if self.spec.kind == Kind::Tracepoint && to.len > 0 {
                    self.slot_address(Reg::R1, to);
                    self.asm.mov_imm(Reg::R2, to.len as i32);
                    self.asm.mov(Reg::R3, CTX);
                    self.asm.alu_imm(Alu::Add, Reg::R3, i32::from(offset));
                    self.asm.call(Helper::ProbeReadKernel);
                } else {
                    self.zero(to);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn comm(&mut self, to: Slot) {
        self.zero_rest(to, to.len.min(16));
        if to.len > 0 {
            self.slot_address(Reg::R1, to);
            self.asm.mov_imm(Reg::R2, to.len.min(16) as i32);
            self.asm.call(Helper::GetCurrentComm);
        }
    }

    /// Number of frames at byte `head` of `to`, then their addresses.
    fn stack(&mut self, to: Slot, head: u32, flags: i32) {
        let room = to.len.saturating_sub(head + 8) / 8 * 8;
        if room == 0 {
            self.zero(to);
            return;
        }
        let positive = self.asm.label();
        self.zero_rest(to, head + 8 + room);
        self.asm.mov(Reg::R1, CTX);
        self.address_of(Reg::R2, self.plan.frame, to.at + head + 8);
        self.asm.mov_imm(Reg::R3, room as i32);
        self.asm.mov_imm(Reg::R4, flags);
        self.asm.call(Helper::GetStack);
        self.asm.jump_if_imm(Cond::SGe, Reg::R0, 0, positive);
        self.asm.mov_imm(Reg::R0, 0);
        self.asm.bind(positive);
        self.asm.alu_imm(Alu::Rsh, Reg::R0, 3);
        let (base, offset) = self.base(self.plan.frame, to.at + head);
        self.asm.store(Width::W64, base, offset, Reg::R0);
    }

    /// R0 = a number of a tracepoint's record, without its sign.
    fn field(&mut self, offset: u16, size_bytes: u8) {
        let size = if matches!(size_bytes, 1 | 2 | 4 | 8) { size_bytes } else { 8 };
        if self.spec.kind != Kind::Tracepoint {
            self.asm.mov_imm(Reg::R0, 0);
        } else if offset == COMMON_PID_AT && size == 4 {
            self.asm.call(Helper::GetCurrentPidTgid);
            self.extend(Reg::R0, 4, false);
        } else if offset < 8 {
            self.asm.mov_imm(Reg::R0, 0);
        } else if offset.is_multiple_of(u16::from(size)) && offset < 8192 {
            self.asm.load(Width::of(size), Reg::R0, CTX, offset as i16);
        } else {
            self.asm.store_imm(Width::W64, Reg::R10, TEMP[2], 0);
            self.address(Reg::R1, Reg::R10, TEMP[2]);
            self.asm.mov_imm(Reg::R2, i32::from(size));
            self.asm.mov(Reg::R3, CTX);
            self.asm.alu_imm(Alu::Add, Reg::R3, i32::from(offset));
            self.asm.call(Helper::ProbeReadKernel);
            self.asm.load(Width::W64, Reg::R0, Reg::R10, TEMP[2]);
        }
    }

    /// 32 bits at `offset`: the place in the record in the low half, the length in the high half.
    fn field_string(&mut self, to: Slot, offset: u16) {
        self.zero(to);
        let Some(room) = to.len.checked_sub(1).filter(|room| *room > 0) else { return };
        if self.spec.kind != Kind::Tracepoint {
            return;
        }
        self.field(offset, 4);
        let fits = self.asm.label();
        self.asm.mov(Reg::R2, Reg::R0);
        self.asm.alu_imm(Alu::Rsh, Reg::R2, 16);
        self.asm.jump_if_imm(Cond::Le, Reg::R2, room as i32, fits);
        self.asm.mov_imm(Reg::R2, room as i32);
        self.asm.bind(fits);
        self.asm.alu_imm(Alu::Add, Reg::R2, 1);
        self.asm.alu_imm(Alu::And, Reg::R0, 0xffff);
        self.asm.mov(Reg::R3, CTX);
        self.asm.alu(Alu::Add, Reg::R3, Reg::R0);
        self.slot_address(Reg::R1, to);
        self.asm.call(Helper::ProbeReadKernelStr);
    }

    pub(super) fn builtin(&mut self, what: Builtin) {
        match what {
            Builtin::Pid => {
                self.asm.call(Helper::GetCurrentPidTgid);
                self.asm.alu_imm(Alu::Rsh, Reg::R0, 32);
            }
            Builtin::Tid => {
                self.asm.call(Helper::GetCurrentPidTgid);
                self.extend(Reg::R0, 4, false);
            }
            Builtin::Uid => {
                self.asm.call(Helper::GetCurrentUidGid);
                self.extend(Reg::R0, 4, false);
            }
            Builtin::Gid => {
                self.asm.call(Helper::GetCurrentUidGid);
                self.asm.alu_imm(Alu::Rsh, Reg::R0, 32);
            }
            Builtin::Cpu => self.asm.call(Helper::GetSmpProcessorId),
            Builtin::Nsecs => self.asm.call(Helper::KtimeGetNs),
            Builtin::NsecsBoot => self.asm.call(Helper::KtimeGetBootNs),
            Builtin::NsecsTai => self.asm.call(Helper::KtimeGetTaiNs),
            Builtin::Jiffies => self.asm.call(Helper::Jiffies64),
            Builtin::NumaNode => {
                self.asm.call(Helper::GetNumaNodeId);
                self.extend(Reg::R0, 4, true);
            }
            Builtin::Elapsed => {
                self.asm.call(Helper::KtimeGetNs);
                self.constant(Reg::R1, self.spec.start_ns as i64);
                self.asm.alu(Alu::Sub, Reg::R0, Reg::R1);
            }
            Builtin::Rand => {
                self.asm.call(Helper::GetPrandomU32);
                self.extend(Reg::R0, 4, false);
            }
            Builtin::Cgroup => self.asm.call(Helper::GetCurrentCgroupId),
            Builtin::Curtask => self.asm.call(Helper::GetCurrentTask),
            Builtin::Retval => match self.spec.kind {
                Kind::Uretprobe | Kind::Kretprobe => {
                    self.asm.load(Width::W64, Reg::R0, CTX, pt_regs::offset(0))
                }
                _ => self.asm.mov_imm(Reg::R0, 0),
            },
            Builtin::Ip => match self.spec.kind {
                Kind::Uretprobe | Kind::Kretprobe | Kind::Kprobe => {
                    self.asm.mov(Reg::R1, CTX);
                    self.asm.call(Helper::GetFuncIp);
                }
                Kind::Uprobe | Kind::PerfEvent => self.asm.load(Width::W64, Reg::R0, CTX, pt_regs::IP),
                Kind::Tracepoint | Kind::Once => self.asm.mov_imm(Reg::R0, 0),
            },
            Builtin::Ctx => {
                // Read back by a helper it is a plain number, not a pointer the verifier has rules for.
                self.asm.store(Width::W64, Reg::R10, TEMP[0], CTX);
                self.address(Reg::R1, Reg::R10, TEMP[2]);
                self.asm.mov_imm(Reg::R2, 8);
                self.address(Reg::R3, Reg::R10, TEMP[0]);
                self.asm.call(Helper::ProbeReadKernel);
                self.asm.load(Width::W64, Reg::R0, Reg::R10, TEMP[2]);
            }
        }
    }

    /// R0 = argument `index`, extended.
    fn arg(&mut self, index: u8) -> Result<(), CodeError> {
        match self.spec.kind {
            Kind::Once if index < 12 => {
                self.asm.load(Width::W64, Reg::R0, CTX, i16::from(index) * 8);
                Ok(())
            }
            Kind::Once | Kind::Tracepoint | Kind::PerfEvent => {
                self.asm.mov_imm(Reg::R0, 0);
                Ok(())
            }
            Kind::Uprobe | Kind::Uretprobe | Kind::Kprobe | Kind::Kretprobe => {
                let sources = self.sources(index, |(value, _)| Some(value))?;
                self.by_layout(index, &sources)
            }
        }
    }

    /// R3 = the address argument `index` holds.
    pub(super) fn arg_address(&mut self, index: u8) -> Result<(), CodeError> {
        self.arg(index)?;
        self.asm.mov(Reg::R3, Reg::R0);
        Ok(())
    }

    /// Puts the length an argument has by itself into temp 4; false if it has none.
    pub(super) fn arg_length(&mut self, index: u8) -> Result<bool, CodeError> {
        if !matches!(self.spec.kind, Kind::Uprobe | Kind::Uretprobe) {
            return Ok(false);
        }
        let sources = self.sources(index, |(_, length)| length.as_ref())?;
        if sources.iter().all(Option::is_none) {
            return Ok(false);
        }
        self.by_layout(index, &sources)?;
        self.store_temp(4, Reg::R0);
        Ok(true)
    }

    /// What each layout has.
    fn sources(
        &self,
        index: u8,
        of: impl Fn(&(Source, Option<Source>)) -> Option<&Source>,
    ) -> Result<Vec<Option<Source>>, CodeError> {
        self.spec
            .layouts
            .iter()
            .map(|layout| match layout.args.get(usize::from(index)) {
                Some(arg) => Ok(of(arg).cloned()),
                None => Err(CodeError::NoArg { index, n_args: layout.args.len() }),
            })
            .collect()
    }

    /// R0 = what the layout of this site has; no source counts as a length without end.
    fn by_layout(&mut self, index: u8, sources: &[Option<Source>]) -> Result<(), CodeError> {
        let mut distinct: Vec<Option<Source>> = Vec::new();
        for source in sources {
            if !distinct.contains(source) {
                distinct.push(source.clone());
            }
        }
        let done = self.asm.label();
        let labels: Vec<Label> = distinct.iter().map(|_| self.asm.label()).collect();
        if labels.len() > 1 {
            self.asm.load(Width::W32, Reg::R0, self.fp, COOKIE_AT);
            let targets: Vec<Label> = sources
                .iter()
                .map(|source| labels[distinct.iter().position(|d| d == source).unwrap_or(0)])
                .collect();
            self.search(&targets, 0);
        }
        for (source, label) in distinct.iter().zip(&labels) {
            self.asm.bind(*label);
            match source {
                Some(source) => self.source(index, source)?,
                None => self.asm.mov_imm(Reg::R0, -1),
            }
            self.asm.jump(done);
        }
        if labels.is_empty() {
            self.asm.mov_imm(Reg::R0, 0);
        }
        self.asm.bind(done);
        Ok(())
    }

    /// Jumps to `labels[R0 - first]`; what is behind the last counts as the last.
    fn search(&mut self, labels: &[Label], first: usize) {
        match labels {
            [] => {}
            [one] => self.asm.jump(*one),
            many if many.iter().all(|label| *label == many[0]) => self.asm.jump(many[0]),
            many => {
                let middle = many.len() / 2;
                let upper = self.asm.label();
                self.asm.jump_if_imm(Cond::Ge, Reg::R0, (first + middle) as i32, upper);
                self.search(&many[..middle], first);
                self.asm.bind(upper);
                self.search(&many[middle..], first + middle);
            }
        }
    }

    fn source(&mut self, index: u8, source: &Source) -> Result<(), CodeError> {
        if let Some(reason) = source.trouble() {
            return Err(CodeError::Arg { index, reason });
        }
        match source {
            Source::Operand { operand, address } => self.operand(operand, *address),
            Source::Packed { pointer, offset, size_bytes, is_signed, is_float } => {
                self.operand(pointer, 0);
                self.asm.mov(Reg::R3, Reg::R0);
                self.asm.alu_imm(Alu::Add, Reg::R3, *offset as i32);
                self.user_number(*size_bytes);
                self.number_of(*size_bytes, *is_signed, *is_float);
            }
            Source::PackedAddress { pointer, offset } => {
                self.operand(pointer, 0);
                self.asm.alu_imm(Alu::Add, Reg::R0, *offset as i32);
            }
            Source::Register(number) => {
                self.asm.load(Width::W64, Reg::R0, CTX, pt_regs::offset(*number));
            }
            Source::Stack(offset) => {
                self.asm.load(Width::W64, Reg::R3, CTX, pt_regs::offset(4));
                self.asm.alu_imm(Alu::Add, Reg::R3, *offset as i32);
                self.user_number(8);
            }
            Source::Unreadable(_) => self.asm.mov_imm(Reg::R0, 0),
        }
        Ok(())
    }

    /// R0 = the number at R3 in the traced program, without its sign.
    fn user_number(&mut self, size_bytes: u8) {
        self.asm.store_imm(Width::W64, Reg::R10, TEMP[2], 0);
        if self.may_sleep() {
            self.store_temp(3, Reg::R3);
        }
        self.address(Reg::R1, Reg::R10, TEMP[2]);
        self.asm.mov_imm(Reg::R2, i32::from(size_bytes));
        self.asm.call(Helper::ProbeReadUser);
        if self.may_sleep() {
            let read = self.asm.label();
            self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, read);
            self.address(Reg::R1, Reg::R10, TEMP[2]);
            self.asm.mov_imm(Reg::R2, i32::from(size_bytes));
            self.load_temp(Reg::R3, 3);
            self.asm.call(Helper::CopyFromUser);
            self.asm.bind(read);
        }
        self.asm.load(Width::W64, Reg::R0, Reg::R10, TEMP[2]);
    }

    /// R0 = an operand, extended by its size and sign.
    fn operand(&mut self, operand: &Operand, address: u64) {
        match &operand.place {
            Place::Register(register) => self.machine_register(Reg::R0, *register),
            Place::Vector(_) => self.asm.mov_imm(Reg::R0, 0),
            Place::Constant(value) => self.constant(Reg::R0, *value),
            Place::Memory(memory) => {
                self.memory_address(memory, address);
                self.user_number(operand.size_bytes);
            }
        }
        self.number_of(operand.size_bytes, operand.is_signed, operand.is_float);
    }

    /// R0 = what its lowest bytes stand for, in eight: numbers extended, floats as doubles.
    fn number_of(&mut self, size_bytes: u8, is_signed: bool, is_float: bool) {
        self.extend(Reg::R0, size_bytes, is_signed && !is_float);
        if is_float && size_bytes == 4 {
            self.float_to_double();
        }
    }

    fn machine_register(&mut self, dst: Reg, register: Register) {
        self.asm.load(Width::W64, dst, CTX, pt_regs::offset(register.number));
        if register.is_high_byte {
            self.asm.alu_imm(Alu::Rsh, dst, 8);
        }
    }

    /// R3 = the address of a memory operand.
    fn memory_address(&mut self, memory: &Memory, site: u64) {
        let mut displacement = memory.displacement;
        match &memory.base {
            Base::None | Base::Symbol { address: None, .. } => self.asm.mov_imm(Reg::R3, 0),
            Base::Register(register) => self.machine_register(Reg::R3, *register),
            Base::Symbol { address: Some(address), .. } => {
                self.asm.load(Width::W64, Reg::R3, CTX, pt_regs::IP);
                displacement = displacement.wrapping_add(address.wrapping_sub(site) as i64);
            }
        }
        if let Some((register, scale)) = memory.index {
            self.machine_register(Reg::R1, register);
            self.asm.alu_imm(Alu::Lsh, Reg::R1, scale.trailing_zeros() as i32);
            self.asm.alu(Alu::Add, Reg::R3, Reg::R1);
        }
        if displacement != 0 {
            self.constant(Reg::R1, displacement);
            self.asm.alu(Alu::Add, Reg::R3, Reg::R1);
        }
    }
}
