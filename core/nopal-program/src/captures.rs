//! What a clause needs of a hit: which arguments, strings, bytes and circumstances; and what keeps it from running
//! without the kernel.

use crate::Code;
use crate::op::{Builtin, Op};

/// Which argument of a function's exit its return value is.
pub const RETURN_VALUE: u8 = 0;

/// What a hit must leave for a clause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captures {
    /// Each once, by rising index.
    pub args: Vec<ArgUse>,
    /// `nsecs` and `elapsed`.
    pub needs_time: bool,
    /// `pid`, `tid`, and what is found out through them.
    pub needs_task: bool,
    /// `comm`, `uid`, `gid`, `cgroup`: found out through the task.
    pub needs_who: bool,
    pub needs_cpu: bool,
    pub needs_address: bool,
    /// `ustack`: registers and a part of the stack.
    pub needs_stack: bool,
}

/// How an argument is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgUse {
    pub index: u8,
    pub as_number: bool,
    /// As a string: the most bytes that are looked at, without the NUL.
    pub string_bytes: Option<u32>,
    /// As bytes: the most that are looked at.
    pub buffer_bytes: Option<u32>,
}

impl Captures {
    pub fn of(code: &Code) -> Captures {
        let mut captures = Captures::default();
        code.ops.iter().for_each(|op| captures.add(op));
        captures
    }

    /// What both need.
    pub fn join(&mut self, other: &Captures) {
        for arg in &other.args {
            let own = self.arg(arg.index);
            own.as_number |= arg.as_number;
            own.string_bytes = own.string_bytes.max(arg.string_bytes);
            own.buffer_bytes = own.buffer_bytes.max(arg.buffer_bytes);
        }
        self.needs_time |= other.needs_time;
        self.needs_task |= other.needs_task;
        self.needs_who |= other.needs_who;
        self.needs_cpu |= other.needs_cpu;
        self.needs_address |= other.needs_address;
        self.needs_stack |= other.needs_stack;
    }

    fn arg(&mut self, index: u8) -> &mut ArgUse {
        let place = self.args.partition_point(|arg| arg.index < index);
        if self.args.get(place).is_none_or(|arg| arg.index != index) {
            let fresh = ArgUse { index, as_number: false, string_bytes: None, buffer_bytes: None };
            self.args.insert(place, fresh);
        }
        &mut self.args[place]
    }

    fn add(&mut self, op: &Op) {
        match *op {
            Op::Arg { index, .. } => self.arg(index).as_number = true,
            Op::ArgString { to, index, .. } => {
                let bytes = Some(to.len.saturating_sub(1).max(1));
                let arg = self.arg(index);
                arg.string_bytes = arg.string_bytes.max(bytes);
            }
            Op::ArgBytes { to, index, .. } => {
                let bytes = Some(to.len.saturating_sub(8).max(1));
                let arg = self.arg(index);
                arg.buffer_bytes = arg.buffer_bytes.max(bytes);
            }
            Op::Comm { .. } => (self.needs_who, self.needs_task) = (true, true),
            Op::UserStack { .. } => (self.needs_stack, self.needs_task) = (true, true),
            Op::Builtin { what, .. } => match what {
                Builtin::Pid | Builtin::Tid => self.needs_task = true,
                Builtin::Uid | Builtin::Gid | Builtin::Cgroup => {
                    (self.needs_who, self.needs_task) = (true, true);
                }
                Builtin::Cpu => self.needs_cpu = true,
                Builtin::Nsecs | Builtin::Elapsed => self.needs_time = true,
                Builtin::Ip => (self.needs_address, self.needs_task) = (true, true),
                // Where a function returns that is all there is.
                Builtin::Retval => self.arg(RETURN_VALUE).as_number = true,
                Builtin::Rand
                | Builtin::Curtask
                | Builtin::Ctx
                | Builtin::NsecsBoot
                | Builtin::NsecsTai
                | Builtin::Jiffies
                | Builtin::NumaNode => {}
            },
            _ => {}
        }
    }
}

/// The first thing a clause does that only the kernel can do, in words: `kstack`, "reads memory". `has_stacks`: whether hits bring
/// a part of their stack.
pub fn obstacle(code: &Code, has_stacks: bool) -> Option<&'static str> {
    code.ops.iter().find_map(|op| match op {
        Op::Register { .. } => Some("it reads a register of the traced program (reg)"),
        Op::Field { .. } | Op::FieldString { .. } | Op::FieldBytes { .. } => {
            Some("it reads fields of a kernel tracepoint")
        }
        Op::UserStack { .. } if !has_stacks => Some("it takes stacks (ustack)"),
        Op::KernelStack { .. } => Some("it takes kernel stacks (kstack)"),
        Op::String { .. } | Op::Buffer { .. } | Op::Read { .. } | Op::Readable { .. } => {
            Some("it reads memory behind something else than an argument")
        }
        Op::Builtin { what: Builtin::Curtask, .. } => Some("it asks for curtask"),
        Op::Builtin { what: Builtin::Ctx, .. } => Some("it asks for ctx"),
        Op::Builtin { what: Builtin::NsecsBoot | Builtin::NsecsTai, .. } => {
            Some("it asks for another clock than the monotonic one")
        }
        Op::Builtin { what: Builtin::Jiffies, .. } => Some("it asks for jiffies"),
        Op::Builtin { what: Builtin::NumaNode, .. } => Some("it asks for numaid"),
        Op::Builtin { what: Builtin::Ip, .. } => Some("it asks where it is (func)"),
        _ => None,
    })
}

/// Whether it matters in which order hits are taken: anything but aggregates.
pub fn is_order_free(code: &Code) -> bool {
    code.ops.iter().all(|op| match op {
        Op::MapLoad { .. }
        | Op::MapRead { .. }
        | Op::MapStore { .. }
        | Op::MapWrite { .. }
        | Op::MapDelete { .. }
        | Op::MapHas { .. }
        | Op::MapLen { .. }
        | Op::ForEach { .. }
        | Op::Emit { .. } => false,
        // What was there before may be used.
        Op::MapAdd { .. } => false,
        Op::Const { .. }
        | Op::Copy { .. }
        | Op::Unary { .. }
        | Op::Binary { .. }
        | Op::BinaryConst { .. }
        | Op::Extend { .. }
        | Op::Arg { .. }
        | Op::Field { .. }
        | Op::Builtin { .. }
        | Op::Register { .. }
        | Op::Comm { .. }
        | Op::Probe { .. }
        | Op::UserStack { .. }
        | Op::KernelStack { .. }
        | Op::ArgString { .. }
        | Op::ArgBytes { .. }
        | Op::String { .. }
        | Op::Buffer { .. }
        | Op::Read { .. }
        | Op::Readable { .. }
        | Op::FrameAddress { .. }
        | Op::FieldString { .. }
        | Op::FieldBytes { .. }
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::Zero { .. }
        | Op::Constant { .. }
        | Op::Move { .. }
        | Op::Equal { .. }
        | Op::Strncmp { .. }
        | Op::StrFind { .. }
        | Op::StrConcat { .. }
        | Op::Strlen { .. }
        | Op::Element { .. }
        | Op::Aggregate { .. }
        | Op::Jump { .. }
        | Op::JumpIf { .. }
        | Op::JumpUnless { .. }
        | Op::Return => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Slot;

    const KEY: Slot = Slot { at: 0, len: 8 };
    const COUNT: Op = Op::Aggregate { map: 0, key: Slot { at: 0, len: 0 }, value: 0 };

    #[test]
    fn captures_name_every_argument_once() {
        let ops = vec![
            Op::Arg { dst: 0, index: 3 },
            Op::ArgString { to: Slot { at: 0, len: 16 }, index: 1, len: None },
            Op::ArgString { to: Slot { at: 0, len: 32 }, index: 1, len: None },
            Op::ArgBytes { to: Slot { at: 0, len: 24 }, index: 3, len: 0 },
            Op::Builtin { dst: 0, what: Builtin::Elapsed },
            Op::Comm { to: KEY },
        ];
        let captures = Captures::of(&Code { ops, n_regs: 1, frame_bytes: 64 });
        let want = Captures {
            args: vec![
                ArgUse { index: 1, as_number: false, string_bytes: Some(31), buffer_bytes: None },
                ArgUse { index: 3, as_number: true, string_bytes: None, buffer_bytes: Some(16) },
            ],
            needs_time: true,
            needs_task: true,
            needs_who: true,
            needs_cpu: false,
            needs_address: false,
            needs_stack: false,
        };
        assert_eq!(captures, want);
    }

    #[test]
    fn what_only_the_kernel_can_do_is_named() {
        let code = |op| Code { ops: vec![op], n_regs: 1, frame_bytes: 64 };
        assert_eq!(obstacle(&code(Op::Arg { dst: 0, index: 0 }), false), None);
        let stack = code(Op::UserStack { to: KEY });
        assert!(obstacle(&stack, false).unwrap().contains("ustack") && obstacle(&stack, true).is_none());
        assert!(obstacle(&code(Op::KernelStack { to: KEY }), true).unwrap().contains("kstack"));
        assert!(is_order_free(&code(COUNT)) && !is_order_free(&code(Op::Emit { action: 0, payload: KEY })));
    }
}
