//! The operations of a [`Code`](crate::Code).
//!
//! Arithmetic wraps at 64 bits. x / 0 is 0 and x % 0 is x, as eBPF has it; shifts use the low six bits of the count.
//!
//! An operation with a slot `to` writes all of it: what it has no bytes for becomes zero, since slots are used again.
//! Operands are read before `dst` is written, so it may be one of them.

/// What [`Op::StrFind`] gives where there is nothing to find: Linux's ENOENT, negative, as bpftrace has it.
pub const NOT_FOUND: i64 = -2;

/// A 64-bit virtual register.
pub type Reg = u16;
/// Index in [`Code::ops`](crate::Code::ops); one past the end is the end.
pub type Target = u32;
/// Index in [`Program::maps`](crate::Program::maps).
pub type MapId = u32;

/// Bytes of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// A multiple of 8.
    pub at: u32,
    pub len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    // Numbers.
    Const {
        dst: Reg,
        value: i64,
    },
    Copy {
        dst: Reg,
        src: Reg,
    },
    Unary {
        op: Unary,
        dst: Reg,
        a: Reg,
    },
    Binary {
        op: Binary,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    /// `b` is a constant.
    BinaryConst {
        op: Binary,
        dst: Reg,
        a: Reg,
        b: i64,
    },
    /// Cuts to 1, 2 or 4 bytes, then extends.
    Extend {
        dst: Reg,
        src: Reg,
        size_bytes: u8,
        is_signed: bool,
    },

    // The hit.
    /// Argument `index` as the point's description of its arguments has it, extended by its own size and sign.
    Arg {
        dst: Reg,
        index: u8,
    },
    /// `size_bytes` bytes at `offset` of a tracepoint's record.
    Field {
        dst: Reg,
        offset: u16,
        size_bytes: u8,
        is_signed: bool,
    },
    Builtin {
        dst: Reg,
        what: Builtin,
    },
    /// A register of the traced thread, by its index in the kernel's `pt_regs` divided by 8.
    Register {
        dst: Reg,
        index: u8,
    },
    /// The thread's name.
    Comm {
        to: Slot,
    },
    /// u64 clause and point: see [`Type::Probe`](crate::Type::Probe).
    Probe {
        dst: Reg,
    },
    /// In the layout of [`Type::UserStack`](crate::Type::UserStack); at most as many frames as fit.
    UserStack {
        to: Slot,
    },
    KernelStack {
        to: Slot,
    },

    // Memory of the traced program. What cannot be read is left zero.
    /// The string argument `index` points to, or is. `len`: at most so many bytes.
    ArgString {
        to: Slot,
        index: u8,
        len: Option<Reg>,
    },
    /// The bytes argument `index` points to, `len` of them, in the layout of [`Type::Buffer`](crate::Type::Buffer).
    ArgBytes {
        to: Slot,
        index: u8,
        len: Reg,
    },
    String {
        to: Slot,
        address: Reg,
        len: Option<Reg>,
        space: Space,
    },
    /// In the layout of [`Type::Buffer`](crate::Type::Buffer).
    Buffer {
        to: Slot,
        address: Reg,
        len: Reg,
        space: Space,
    },
    /// Exactly `to.len` bytes.
    Read {
        to: Slot,
        address: Reg,
        space: Space,
    },
    /// 1 if the byte at an address can be read, else 0.
    Readable {
        dst: Reg,
        address: Reg,
        space: Space,
    },
    /// A string of a tracepoint's record: 32 bits at `offset` are its place and length there.
    FieldString {
        to: Slot,
        offset: u16,
    },
    /// `len` bytes at `offset` of a tracepoint's record.
    FieldBytes {
        to: Slot,
        offset: u16,
    },

    // The frame.
    Load {
        dst: Reg,
        at: u32,
        size_bytes: u8,
        is_signed: bool,
    },
    /// Element `index` of the `n` numbers that a slot begins with; 0 where there is none.
    Element {
        dst: Reg,
        from: Slot,
        index: Reg,
        n: u32,
        size_bytes: u8,
        is_signed: bool,
    },
    Store {
        at: u32,
        src: Reg,
        size_bytes: u8,
    },
    /// Where a byte of the frame lies in memory while this hit is under way: an address of the kernel.
    FrameAddress {
        dst: Reg,
        at: u32,
    },
    Zero {
        to: Slot,
    },
    /// A constant, then zeros.
    Constant {
        to: Slot,
        constant: u32,
    },
    /// As many bytes as both have, then zeros. The two may overlap where `to` begins first.
    Move {
        to: Slot,
        from: Slot,
    },

    // Strings and bytes of the frame.
    /// 1 if all bytes are equal; a shorter one counts as followed by zeros.
    Equal {
        dst: Reg,
        a: Slot,
        b: Slot,
    },
    /// 0 if the first `n` bytes, or all up to a common NUL, are equal; else 1.
    Strncmp {
        dst: Reg,
        a: Slot,
        b: Slot,
        n: u32,
    },
    /// Where the text of `needle` begins in that of `haystack`, or [`NOT_FOUND`].
    StrFind {
        dst: Reg,
        haystack: Slot,
        needle: Slot,
    },
    Strlen {
        dst: Reg,
        a: Slot,
    },
    /// The text of `a`, then that of `b`, as far as there is room for it and a NUL. `to` overlaps neither.
    StrConcat {
        to: Slot,
        a: Slot,
        b: Slot,
    },

    // Maps. `key` has the length of the map's key.
    /// 0 where there is no entry. Of an aggregate: the number it stands for over all CPUs.
    MapLoad {
        dst: Reg,
        map: MapId,
        key: Slot,
    },
    /// Zeros where there is no entry.
    MapRead {
        to: Slot,
        map: MapId,
        key: Slot,
    },
    MapStore {
        map: MapId,
        key: Slot,
        src: Reg,
    },
    MapWrite {
        map: MapId,
        key: Slot,
        from: Slot,
    },
    /// Adds to a plain number, which begins with 0; `dst` is what it was before.
    MapAdd {
        dst: Reg,
        map: MapId,
        key: Slot,
        delta: Reg,
    },
    MapDelete {
        map: MapId,
        key: Slot,
    },
    MapHas {
        dst: Reg,
        map: MapId,
        key: Slot,
    },
    MapLen {
        dst: Reg,
        map: MapId,
    },
    /// Takes `value` into an aggregate; `count` ignores it.
    Aggregate {
        map: MapId,
        key: Slot,
        value: Reg,
    },
    /// Runs the ops up to `end` for each entry, with a copy of key and value in the frame (of an aggregate: the number
    /// it stands for). Jumping to `end` goes on with the next entry; jumping behind it leaves the loop.
    ForEach {
        map: MapId,
        key: Slot,
        value: Slot,
        end: Target,
    },

    // Out.
    /// Hands the payload to the tracer, which performs the action.
    Emit {
        action: u32,
        payload: Slot,
    },

    // Control.
    Jump {
        to: Target,
    },
    JumpIf {
        condition: Reg,
        to: Target,
    },
    JumpUnless {
        condition: Reg,
        to: Target,
    },
    /// Ends this hit.
    Return,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    Neg,
    BitNot,
    /// 1 of 0, else 0.
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    DivUnsigned,
    DivSigned,
    RemUnsigned,
    RemSigned,
    And,
    Or,
    Xor,
    Shl,
    ShrUnsigned,
    ShrSigned,
    Eq,
    Ne,
    LtUnsigned,
    LtSigned,
    LeUnsigned,
    LeSigned,
    GtUnsigned,
    GtSigned,
    GeUnsigned,
    GeSigned,
}

impl Unary {
    /// What the operation gives.
    pub fn apply(self, a: i64) -> i64 {
        match self {
            Unary::Neg => a.wrapping_neg(),
            Unary::BitNot => !a,
            Unary::Not => i64::from(a == 0),
        }
    }
}

impl Binary {
    /// What the operation gives; comparisons 1 or 0.
    pub fn apply(self, a: i64, b: i64) -> i64 {
        let (ua, ub) = (a as u64, b as u64);
        match self {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::DivUnsigned => ua.checked_div(ub).unwrap_or(0) as i64,
            Binary::DivSigned if b == 0 => 0,
            Binary::DivSigned => a.wrapping_div(b),
            Binary::RemUnsigned => ua.checked_rem(ub).unwrap_or(ua) as i64,
            Binary::RemSigned if b == 0 => a,
            Binary::RemSigned => a.wrapping_rem(b),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Shl => a.wrapping_shl(b as u32),
            Binary::ShrUnsigned => ua.wrapping_shr(b as u32) as i64,
            Binary::ShrSigned => a.wrapping_shr(b as u32),
            Binary::Eq => i64::from(a == b),
            Binary::Ne => i64::from(a != b),
            Binary::LtUnsigned => i64::from(ua < ub),
            Binary::LtSigned => i64::from(a < b),
            Binary::LeUnsigned => i64::from(ua <= ub),
            Binary::LeSigned => i64::from(a <= b),
            Binary::GtUnsigned => i64::from(ua > ub),
            Binary::GtSigned => i64::from(a > b),
            Binary::GeUnsigned => i64::from(ua >= ub),
            Binary::GeSigned => i64::from(a >= b),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    Pid,
    Tid,
    Uid,
    Gid,
    Cpu,
    /// CLOCK_MONOTONIC.
    Nsecs,
    /// Since the script began.
    Elapsed,
    Rand,
    Cgroup,
    Curtask,
    /// Of a return probe.
    Retval,
    /// The address of the point's instruction.
    Ip,
    /// The kernel's pointer to what a point gives.
    Ctx,
    /// CLOCK_BOOTTIME.
    NsecsBoot,
    /// CLOCK_TAI.
    NsecsTai,
    /// The kernel's count of its ticks.
    Jiffies,
    /// The node of memory that the CPU belongs to.
    NumaNode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    User,
    Kernel,
}
