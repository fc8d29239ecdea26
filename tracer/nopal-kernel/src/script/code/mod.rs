//! Code generation: one clause of a script becomes one eBPF program. Pure: makes instructions, loads nothing.
//!
//! R6 holds the context of the hit, R7 the scratch memory where the clause needs it, R8 is free between operations. The
//! body of a `for` becomes a callback; it reaches what the program's stack holds through R9, which there is what R10 is in
//! the program itself.

mod control;
mod hit;
mod maps;
mod memory;
mod number;
mod plan;
mod text;

pub use hit::{ArgLayout, Source};
pub use maps::{MAX_AGGREGATE_WORDS, PRESENCE_BYTES, extreme_mask};
pub use plan::{MAX_SCRATCH_BYTES, Plan, SCRATCH_LEVELS, plan, reads_user_memory};

use super::super::insn::{Alu, Assembler, Cond, Helper, Insn, Label, Reg, Width};
use super::super::uprobes::PAGE_BYTES;
pub use crate::code_error::CodeError;
use control::Region;
use nopal_program::op::{Builtin, Op, Reg as VirtualReg, Slot};
use nopal_program::{Code, MapDef, Program};
use plan::Place;

/// What a program is attached to: decides what its context is and what it may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Registers of the thread.
    Uprobe,
    Uretprobe,
    Kprobe,
    Kretprobe,
    /// A tracepoint's record.
    Tracepoint,
    /// Registers of what was interrupted.
    PerfEvent,
    /// Twelve numbers; run by the tracer itself.
    Once,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Uprobe => "uprobe",
            Kind::Uretprobe => "uretprobe",
            Kind::Kprobe => "kprobe",
            Kind::Kretprobe => "kretprobe",
            Kind::Tracepoint => "tracepoint",
            Kind::PerfEvent => "perf event",
            Kind::Once => "run once",
        })
    }
}

impl Kind {
    fn has_registers(self) -> bool {
        match self {
            Kind::Uprobe | Kind::Uretprobe | Kind::Kprobe | Kind::Kretprobe | Kind::PerfEvent => true,
            Kind::Tracepoint | Kind::Once => false,
        }
    }
}

/// How the program knows which point was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// From the link's cookie: the layout of the arguments in the low half, the point in the high half.
    Cookie,
    /// The same for every hit.
    Fixed(u64),
    /// From this array, by the place in its page of the site that was hit: [`PAGE_BYTES`] cookies.
    Table(i32),
    /// The same where other programs have sites of the same event: 0 where the hit is theirs, else the cookie and one.
    Among(i32),
    Point(u32),
}

/// A map of the script as the program sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptMap {
    pub fd: i32,
}

/// Everything the code depends on.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    pub program: &'a Program,
    pub clause: usize,
    pub kind: Kind,
    pub which: Which,
    /// By the low half of the cookie.
    pub layouts: &'a [ArgLayout],
    pub maps: &'a [ScriptMap],
    pub ring: i32,
    /// Per CPU, one element: [`Stats`].
    pub stats: i32,
    /// Per CPU, [`SCRATCH_LEVELS`] elements; the first word of each says whether it is in use.
    pub scratch: i32,
    /// One element of zeros, as large as the largest aggregate.
    pub zeros: i32,
    pub n_cpus: u32,
    pub start_ns: u64,
    /// The program may wait for memory to be read in.
    pub is_sleepable: bool,
    pub has_may_goto: bool,
    /// See [`plan`].
    pub is_opaque: bool,
}

/// The per-CPU counters of a script.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub n_lost: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub n_full: u64,
    pub n_cut: u64,
    pub n_crowded: u64,
}

pub const STATS_BYTES: u32 = size_of::<Stats>() as u32;
const STAT_FULL: i16 = 24;
const STAT_CUT: i16 = 32;
const STAT_CROWDED: i16 = 40;

/// In front of each emitted payload: u32 cpu, u32 action, u64 ns, u32 tid, u32 pid.
pub const HEADER_BYTES: u32 = 24;

#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    pub insns: Vec<Insn>,
    /// Where callbacks begin.
    pub callbacks: Vec<usize>,
}

/// The context of the hit.
const CTX: Reg = Reg::R6;
const SCRATCH: Reg = Reg::R7;
/// Kept over helper calls.
const KEPT: Reg = Reg::R8;

// Fixed places of the program's stack, from R10.
const CTX_AT: i16 = -8;
const SCRATCH_AT: i16 = -16;
const COOKIE_AT: i16 = -24;
const EXIT_AT: i16 = -32;
/// Words for the length of one operation, in every function its own; the fourth and fifth lie together.
const TEMP: [i16; 6] = [-40, -48, -56, -64, -80, -72];
const FIXED_BYTES: i16 = 80;

/// The instructions of a clause.
pub fn generate(spec: &Spec<'_>) -> Result<Generated, CodeError> {
    let code = &spec.program.clauses[spec.clause].code;
    let plan = plan(code, spec.is_opaque)?;
    let mut asm = Assembler::default();
    let labels = (0..=code.ops.len()).map(|_| asm.label()).collect();
    let regions = control::regions(code)?;
    let mut gen_ = Gen { asm, spec, code, plan, labels, regions, region: 0, fp: Reg::R10, ends: Vec::new() };
    gen_.program()?;
    let callbacks = gen_.callbacks()?;
    let mut asm = gen_.asm;
    let callbacks = asm.drop_unreachable(&callbacks).into_iter().map(|label| asm.position(label)).collect();
    Ok(Generated { insns: asm.finish()?, callbacks })
}

struct Gen<'a> {
    asm: Assembler,
    spec: &'a Spec<'a>,
    code: &'a Code,
    plan: Plan,
    /// Of each op, and of the end.
    labels: Vec<Label>,
    regions: Vec<Region>,
    /// The one being generated.
    region: usize,
    /// What reaches the program's stack.
    fp: Reg,
    /// Functions still to be generated: label, and the region or nothing for one that only counts.
    ends: Vec<(Label, Option<usize>)>,
}

impl Gen<'_> {
    /// The program's own function, without callbacks.
    fn program(&mut self) -> Result<(), CodeError> {
        self.asm.mov(CTX, Reg::R1);
        let has_callbacks = self.code.ops.iter().any(|op| matches!(op, Op::ForEach { .. }));
        if has_callbacks {
            self.asm.store(Width::W64, Reg::R10, CTX_AT, CTX);
        }
        let out = self.asm.label();
        self.cookie(out);
        if self.plan.scratch_bytes > 0 {
            self.take_scratch(out);
            if has_callbacks {
                self.asm.store(Width::W64, Reg::R10, SCRATCH_AT, SCRATCH);
            }
        }
        self.begin_with_zeros();
        self.region(0)?;
        self.asm.bind(self.labels[self.code.ops.len()]);
        if self.plan.scratch_bytes > 0 {
            self.asm.store_imm(Width::W64, SCRATCH, 0, 0);
        }
        self.asm.bind(out);
        self.asm.mov_imm(Reg::R0, 0);
        self.asm.exit();
        self.cut_of_program();
        Ok(())
    }

    /// Puts the cookie of the hit where the clause finds it.
    fn cookie(&mut self, out: Label) {
        match self.spec.which {
            Which::Point(_) => return,
            Which::Cookie => {
                self.asm.mov(Reg::R1, CTX);
                self.asm.call(Helper::GetAttachCookie);
            }
            Which::Fixed(cookie) => self.constant(Reg::R0, cookie as i64),
            Which::Table(table) | Which::Among(table) => {
                self.builtin(Builtin::Ip);
                self.asm.alu_imm(Alu::And, Reg::R0, PAGE_BYTES as i32 - 1);
                self.asm.store(Width::W32, Reg::R10, TEMP[0], Reg::R0);
                self.lookup(table, TEMP[0]);
                self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, out);
                self.asm.load(Width::W64, Reg::R0, Reg::R0, 0);
                if matches!(self.spec.which, Which::Among(_)) {
                    self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, out);
                    self.asm.alu_imm(Alu::Sub, Reg::R0, 1);
                }
            }
        }
        self.asm.store(Width::W64, Reg::R10, COOKIE_AT, Reg::R0);
    }

    /// Takes an element of this CPU's scratch memory that nobody uses; goes to `out` if there is none. Other hits may come
    /// in between on the same CPU, and go on sleeping while this one ends: only a flag in each element tells.
    fn take_scratch(&mut self, out: Label) {
        let taken = self.asm.label();
        for level in 0..SCRATCH_LEVELS {
            let next = self.asm.label();
            self.asm.store_imm(Width::W32, Reg::R10, TEMP[0], level as i32);
            self.lookup(self.spec.scratch, TEMP[0]);
            self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, next);
            self.asm.mov(SCRATCH, Reg::R0);
            self.asm.mov_imm(Reg::R0, 0);
            self.asm.mov_imm(Reg::R1, 1);
            self.asm.atomic_compare_exchange64(SCRATCH, 0, Reg::R1);
            self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, taken);
            self.asm.bind(next);
        }
        self.count(STAT_CROWDED);
        self.asm.jump(out);
        self.asm.bind(taken);
    }

    /// Registers and frame are zero when a hit begins.
    fn begin_with_zeros(&mut self) {
        let regs_bytes = u32::from(self.code.n_regs) * 8;
        let (regs, frame) = (self.plan.regs, self.plan.frame);
        self.zero_bytes(regs, 0, regs_bytes);
        self.zero_bytes(frame, 0, self.code.frame_bytes.next_multiple_of(8));
    }

    /// Stores zeros; large pieces by a read that the kernel refuses and answers with zeros.
    fn zero_bytes(&mut self, place: Place, at: u32, len: u32) {
        if len > 128 {
            self.address_of(Reg::R1, place, at);
            self.asm.mov_imm(Reg::R2, len as i32);
            self.asm.mov_imm(Reg::R3, 0);
            self.asm.call(Helper::ProbeReadKernel);
            return;
        }
        let (base, offset) = self.base(place, at);
        for (at, size) in pieces(len) {
            self.asm.store_imm(Width::of(size), base, offset + at as i16, 0);
        }
    }

    /// Register and offset of byte `at` of a place.
    fn base(&self, place: Place, at: u32) -> (Reg, i16) {
        // The plan has checked that everything lies within 32 KiB.
        match place {
            Place::Stack(first) => (self.fp, first + at as i16),
            Place::Scratch(first) => (SCRATCH, first + at as i16),
        }
    }

    fn address_of(&mut self, dst: Reg, place: Place, at: u32) {
        let (base, offset) = self.base(place, at);
        self.address(dst, base, offset);
    }

    fn address(&mut self, dst: Reg, base: Reg, offset: i16) {
        self.asm.mov(dst, base);
        self.asm.alu_imm(Alu::Add, dst, i32::from(offset));
    }

    fn slot_address(&mut self, dst: Reg, slot: Slot) {
        self.address_of(dst, self.plan.frame, slot.at);
    }

    fn load(&mut self, dst: Reg, virtual_reg: VirtualReg) {
        let (base, offset) = self.base(self.plan.regs, u32::from(virtual_reg) * 8);
        self.asm.load(Width::W64, dst, base, offset);
    }

    fn store(&mut self, virtual_reg: VirtualReg, src: Reg) {
        let (base, offset) = self.base(self.plan.regs, u32::from(virtual_reg) * 8);
        self.asm.store(Width::W64, base, offset, src);
    }

    fn store_temp(&mut self, index: usize, src: Reg) {
        self.asm.store(Width::W64, Reg::R10, TEMP[index], src);
    }

    fn load_temp(&mut self, dst: Reg, index: usize) {
        self.asm.load(Width::W64, dst, Reg::R10, TEMP[index]);
    }

    /// R0 = the element of `map` whose key is at `key_at` of the stack.
    fn lookup(&mut self, map: i32, key_at: i16) {
        self.address(Reg::R2, Reg::R10, key_at);
        self.asm.load_map(Reg::R1, map);
        self.asm.call(Helper::MapLookupElem);
    }

    /// Adds one to a counter of [`Stats`].
    fn count(&mut self, stat: i16) {
        let done = self.asm.label();
        self.asm.store_imm(Width::W32, Reg::R10, TEMP[0], 0);
        self.lookup(self.spec.stats, TEMP[0]);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, done);
        self.asm.mov_imm(Reg::R1, 1);
        self.asm.atomic_add64(Reg::R0, stat, Reg::R1);
        self.asm.bind(done);
    }

    /// A zero of which the verifier does not know that it is one: a loop that counts from it is looked at once, not once
    /// for every round.
    fn opaque_zero(&mut self, dst: Reg) {
        if self.spec.has_may_goto {
            // The first bytes of a tracepoint's record are not for programs to read.
            self.asm.load(Width::W64, dst, CTX, 8);
            self.asm.alu(Alu::Sub, dst, dst);
        } else {
            self.asm.mov_imm(dst, 0);
        }
    }

    fn may_goto(&mut self, to: Label) {
        if self.spec.has_may_goto {
            self.asm.may_goto(to);
        }
    }

    fn map(&self, map: u32, op: usize) -> Result<(&MapDef, i32), CodeError> {
        let bad = CodeError::BadOp { op, reason: "there is no such map" };
        let def = self.spec.program.maps.get(map as usize).ok_or(bad.clone())?;
        Ok((def, self.spec.maps.get(map as usize).ok_or(bad)?.fd))
    }

    fn op(&mut self, at: usize, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::Const { .. }
            | Op::Copy { .. }
            | Op::Unary { .. }
            | Op::Binary { .. }
            | Op::BinaryConst { .. }
            | Op::Extend { .. } => self.number(op),
            Op::Arg { .. }
            | Op::Field { .. }
            | Op::Builtin { .. }
            | Op::Register { .. }
            | Op::Comm { .. }
            | Op::Probe { .. }
            | Op::UserStack { .. }
            | Op::KernelStack { .. }
            | Op::FieldString { .. }
            | Op::FieldBytes { .. } => self.hit(op)?,
            Op::ArgString { .. }
            | Op::ArgBytes { .. }
            | Op::String { .. }
            | Op::Buffer { .. }
            | Op::Read { .. }
            | Op::Readable { .. } => self.read(op)?,
            Op::Load { .. }
            | Op::Element { .. }
            | Op::Store { .. }
            | Op::FrameAddress { .. }
            | Op::Zero { .. }
            | Op::Constant { .. }
            | Op::Move { .. } => {
                self.frame(at, op)?;
            }
            Op::Equal { .. }
            | Op::Strncmp { .. }
            | Op::StrFind { .. }
            | Op::StrConcat { .. }
            | Op::Strlen { .. } => {
                self.text(op);
            }
            Op::MapLoad { .. }
            | Op::MapRead { .. }
            | Op::MapStore { .. }
            | Op::MapWrite { .. }
            | Op::MapAdd { .. }
            | Op::MapDelete { .. }
            | Op::MapHas { .. }
            | Op::MapLen { .. }
            | Op::Aggregate { .. } => self.map_op(at, op)?,
            Op::ForEach { .. } | Op::Jump { .. } | Op::JumpIf { .. } | Op::JumpUnless { .. } | Op::Return => {
                self.control(at, op)?
            }
            Op::Emit { action, payload } => self.emit(action, payload),
        }
        Ok(())
    }

    /// Writes header and payload into the ring; counts what finds no room.
    fn emit(&mut self, action: u32, payload: Slot) {
        let (lost, done) = (self.asm.label(), self.asm.label());
        self.asm.load_map(Reg::R1, self.spec.ring);
        self.asm.mov_imm(Reg::R2, (HEADER_BYTES + payload.len) as i32);
        self.asm.mov_imm(Reg::R3, 0);
        self.asm.call(Helper::RingbufReserve);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, lost);
        self.asm.mov(KEPT, Reg::R0);
        self.asm.call(Helper::GetSmpProcessorId);
        self.asm.store(Width::W32, KEPT, 0, Reg::R0);
        self.asm.store_imm(Width::W32, KEPT, 4, action as i32);
        self.asm.call(Helper::KtimeGetNs);
        self.asm.store(Width::W64, KEPT, 8, Reg::R0);
        self.asm.call(Helper::GetCurrentPidTgid);
        self.asm.store(Width::W64, KEPT, 16, Reg::R0);
        let (base, offset) = self.base(self.plan.frame, payload.at);
        self.copy_bytes((KEPT, HEADER_BYTES as i16), (base, offset), payload.len);
        self.asm.mov(Reg::R1, KEPT);
        self.asm.mov_imm(Reg::R2, RINGBUF_NO_WAKEUP);
        self.asm.call(Helper::RingbufSubmit);
        self.asm.jump(done);
        self.asm.bind(lost);
        self.count_lost();
        self.asm.bind(done);
    }

    /// Counts what the ring had no room for, with its time.
    fn count_lost(&mut self) {
        let (done, is_later) = (self.asm.label(), self.asm.label());
        self.asm.store_imm(Width::W32, Reg::R10, TEMP[0], 0);
        self.lookup(self.spec.stats, TEMP[0]);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, done);
        self.asm.mov(KEPT, Reg::R0);
        self.asm.call(Helper::KtimeGetNs);
        self.asm.load(Width::W64, Reg::R1, KEPT, 8);
        self.asm.jump_if_imm(Cond::Ne, Reg::R1, 0, is_later);
        self.asm.store(Width::W64, KEPT, 8, Reg::R0);
        self.asm.bind(is_later);
        self.asm.store(Width::W64, KEPT, 16, Reg::R0);
        self.asm.mov_imm(Reg::R1, 1);
        self.asm.atomic_add64(KEPT, 0, Reg::R1);
        self.asm.bind(done);
    }

    /// Copies bytes that do not overlap; large pieces by a helper, which leaves only R6 to R9. The source must not be R0
    /// to R2.
    fn copy_bytes(&mut self, to: (Reg, i16), from: (Reg, i16), len: u32) {
        if len > 128 {
            self.address(Reg::R3, from.0, from.1);
            self.address(Reg::R1, to.0, to.1);
            self.asm.mov_imm(Reg::R2, len as i32);
            self.asm.call(Helper::ProbeReadKernel);
            return;
        }
        for (at, size) in pieces(len) {
            self.asm.load(Width::of(size), Reg::R0, from.0, from.1 + at as i16);
            self.asm.store(Width::of(size), to.0, to.1 + at as i16, Reg::R0);
        }
    }
}

const RINGBUF_NO_WAKEUP: i32 = 1;

/// `len` bytes from an aligned place in words, then in smaller pieces: offset and size of each.
fn pieces(len: u32) -> impl Iterator<Item = (u32, u8)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let size: u32 = match len - at {
            0 => return None,
            8.. => 8,
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
        at += size;
        Some((at - size, size as u8))
    })
}
