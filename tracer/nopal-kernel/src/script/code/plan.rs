//! Where a clause keeps its registers and its frame: on eBPF's stack of 512 bytes while they fit, else in scratch memory.

use super::{CodeError, FIXED_BYTES};
use nopal_program::Code;
use nopal_program::op::{Op, Slot, Space};

/// The kernel takes at most 32 KiB for an element of a per-CPU array.
pub const MAX_SCRATCH_BYTES: u32 = 1 << 15;
/// Hits that may be under way on one CPU: preempted, interrupted or waiting for memory.
pub const SCRATCH_LEVELS: u32 = 8;

/// eBPF's stack, less what the kernel takes for itself where loops are.
const STACK_BYTES: u32 = 512 - 16;
/// A callback has a stack of its own, cut from the same 512 bytes.
const CALLBACK_BYTES: u32 = 96;

const MAX_LOOP_DEPTH: u32 = 4;

/// Offset of the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// From the stack's end.
    Stack(i16),
    Scratch(i16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub(super) regs: Place,
    pub(super) frame: Place,
    /// What an element of the scratch memory must have for this clause; 0 if it needs none.
    pub scratch_bytes: u32,
}

/// Finds a place for everything, and checks that every op stays within the frame. With `is_opaque` nothing is on the
/// stack: the verifier then does not follow what is in registers and frame, which it cannot do in programs of many branches.
/// Where callbacks work on the stack of their caller, Linux 6.18 finds a bug in its own verifier: with loops over maps
/// nothing is on the stack either.
pub fn plan(code: &Code, is_opaque: bool) -> Result<Plan, CodeError> {
    // What is kept as an address of the frame must be a number for the verifier, as what comes from such memory is.
    let is_opaque =
        is_opaque || code.ops.iter().any(|op| matches!(op, Op::ForEach { .. } | Op::FrameAddress { .. }));
    for (op, operation) in code.ops.iter().enumerate() {
        for slot in slots(operation) {
            let end = slot.at.checked_add(slot.len);
            if end.is_none_or(|end| end > code.frame_bytes) {
                return Err(CodeError::BadOp { op, reason: "bytes outside the frame" });
            }
            if slot.at % 8 != 0 {
                return Err(CodeError::BadOp {
                    op,
                    reason: "bytes of the frame that do not begin at a multiple of 8",
                });
            }
        }
    }
    let regs_bytes = u32::from(code.n_regs) * 8;
    let frame_bytes = code.frame_bytes.next_multiple_of(8);
    let depth = loop_depth(code);
    if depth > MAX_LOOP_DEPTH {
        return Err(CodeError::TooDeep { depth });
    }
    let room = STACK_BYTES.saturating_sub(FIXED_BYTES as u32 + CALLBACK_BYTES * depth);
    let first = |bytes: u32| -(FIXED_BYTES + bytes as i16);
    if regs_bytes + frame_bytes <= room && has_aligned_numbers(code) && !is_opaque {
        return Ok(Plan {
            regs: Place::Stack(first(regs_bytes)),
            frame: Place::Stack(first(regs_bytes + frame_bytes)),
            scratch_bytes: 0,
        });
    }
    // The first word of an element says whether it is in use.
    let are_regs_on_stack = regs_bytes <= room && !is_opaque;
    let frame_at = if are_regs_on_stack { 8 } else { 8 + regs_bytes };
    let scratch_bytes = frame_at.saturating_add(frame_bytes);
    if scratch_bytes > MAX_SCRATCH_BYTES {
        return Err(CodeError::FrameTooLarge { bytes: scratch_bytes });
    }
    Ok(Plan {
        regs: if are_regs_on_stack { Place::Stack(first(regs_bytes)) } else { Place::Scratch(8) },
        frame: Place::Scratch(frame_at as i16),
        scratch_bytes,
    })
}

/// On the stack the verifier wants every number at a multiple of its size.
fn has_aligned_numbers(code: &Code) -> bool {
    code.ops.iter().all(|op| match *op {
        Op::Load { at, size_bytes, .. } | Op::Store { at, size_bytes, .. } => {
            at.is_multiple_of(u32::from(size_bytes.max(1)))
        }
        _ => true,
    })
}

/// How many `for` loops are inside one another at most.
fn loop_depth(code: &Code) -> u32 {
    let mut ends: Vec<u32> = Vec::new();
    let mut most = u32::from(code.ops.iter().any(|op| matches!(op, Op::MapLen { .. })));
    for (at, op) in code.ops.iter().enumerate() {
        ends.retain(|end| *end > at as u32);
        if let Op::ForEach { end, .. } = op {
            ends.push(*end);
        }
        most = most.max(ends.len() as u32);
    }
    most
}

/// The parts of the frame an op names.
fn slots(op: &Op) -> Vec<Slot> {
    match *op {
        Op::Comm { to }
        | Op::UserStack { to }
        | Op::KernelStack { to }
        | Op::ArgString { to, .. }
        | Op::ArgBytes { to, .. }
        | Op::String { to, .. }
        | Op::Buffer { to, .. }
        | Op::Read { to, .. }
        | Op::FieldString { to, .. }
        | Op::FieldBytes { to, .. }
        | Op::Zero { to }
        | Op::Constant { to, .. } => vec![to],
        Op::Move { to, from } => vec![to, from],
        Op::Equal { a, b, .. } | Op::Strncmp { a, b, .. } => vec![a, b],
        Op::StrFind { haystack, needle, .. } => vec![haystack, needle],
        Op::StrConcat { to, a, b } => vec![to, a, b],
        Op::Strlen { a, .. } => vec![a],
        Op::Element { from, .. } => vec![from],
        Op::MapLoad { key, .. }
        | Op::MapStore { key, .. }
        | Op::MapAdd { key, .. }
        | Op::MapDelete { key, .. }
        | Op::MapHas { key, .. }
        | Op::Aggregate { key, .. } => vec![key],
        Op::MapRead { to, key, .. } => vec![to, key],
        Op::MapWrite { key, from, .. } => vec![key, from],
        Op::ForEach { key, value, .. } => vec![key, value],
        Op::Emit { payload, .. } => vec![payload],
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
        | Op::Probe { .. }
        | Op::Load { .. }
        | Op::Store { .. }
        | Op::Readable { .. }
        | Op::FrameAddress { .. }
        | Op::MapLen { .. }
        | Op::Jump { .. }
        | Op::JumpIf { .. }
        | Op::JumpUnless { .. }
        | Op::Return => Vec::new(),
    }
}

/// Whether a clause reads memory of the traced program, which may have to be read in first.
pub fn reads_user_memory(code: &Code) -> bool {
    code.ops.iter().any(|op| match op {
        Op::ArgString { .. } | Op::ArgBytes { .. } => true,
        Op::String { space, .. }
        | Op::Buffer { space, .. }
        | Op::Read { space, .. }
        | Op::Readable { space, .. } => *space == Space::User,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_clauses_live_on_the_stack_large_ones_in_scratch_memory() {
        let code = |n_regs, frame_bytes| Code { ops: Vec::new(), n_regs, frame_bytes };
        // registers, frame -> scratch bytes
        let cases = [(0, 0, 0), (10, 100, 0), (52, 0, 0), (53, 0, 8 + 53 * 8), (10, 400, 8 + 400)];
        for (n_regs, frame_bytes, want) in cases {
            let plan = plan(&code(n_regs, frame_bytes), false).unwrap();
            assert_eq!(plan.scratch_bytes, want, "{n_regs} registers, {frame_bytes} bytes");
        }
        assert!(matches!(plan(&code(1, 40_000), false), Err(CodeError::FrameTooLarge { .. })));
    }

    #[test]
    fn bytes_outside_the_frame_are_refused() {
        let code = Code { ops: vec![Op::Zero { to: Slot { at: 8, len: 9 } }], n_regs: 0, frame_bytes: 16 };
        assert!(matches!(plan(&code, false), Err(CodeError::BadOp { op: 0, .. })));
    }
}
