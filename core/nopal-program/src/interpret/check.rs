//! Whether a program names only what it has: registers, bytes of its frame, maps, places to jump to. The interpreter
//! relies on it.

use crate::op::{MapId, Op, Reg, Slot, Target};
use crate::{Code, MapDef, MapValue, Program};

/// An op that names what is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadProgram {
    pub clause: usize,
    pub op: usize,
    pub reason: &'static str,
}

impl std::fmt::Display for BadProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} of clause {}: {}", self.op, self.clause, self.reason)
    }
}

impl std::error::Error for BadProgram {}

/// Larger frames and maps are refused.
const MAX_FRAME_BYTES: u32 = 16 << 20;

pub(super) fn check(program: &Program) -> Result<(), BadProgram> {
    for (clause, code) in program.clauses.iter().map(|c| &c.code).enumerate() {
        if code.frame_bytes > MAX_FRAME_BYTES {
            return Err(BadProgram { clause, op: 0, reason: "the frame is larger than 16 MiB" });
        }
        for (op, operation) in code.ops.iter().enumerate() {
            Checker { program, code }.check(op, operation).map_err(|reason| BadProgram {
                clause,
                op,
                reason,
            })?;
        }
    }
    Ok(())
}

struct Checker<'a> {
    program: &'a Program,
    code: &'a Code,
}

impl Checker<'_> {
    fn check(&self, at: usize, op: &Op) -> Result<(), &'static str> {
        match *op {
            Op::Const { dst, .. }
            | Op::Arg { dst, .. }
            | Op::Field { dst, .. }
            | Op::Builtin { dst, .. }
            | Op::Register { dst, .. }
            | Op::Probe { dst } => self.regs(&[dst]),
            Op::Copy { dst, src } | Op::Extend { dst, src, .. } => self.regs(&[dst, src]),
            Op::Unary { dst, a, .. } | Op::BinaryConst { dst, a, .. } => self.regs(&[dst, a]),
            Op::Binary { dst, a, b, .. } => self.regs(&[dst, a, b]),
            Op::Comm { to }
            | Op::UserStack { to }
            | Op::KernelStack { to }
            | Op::FieldString { to, .. }
            | Op::FieldBytes { to, .. }
            | Op::Zero { to } => self.slots(&[to]),
            Op::ArgString { to, len, .. } => {
                self.slots(&[to])?;
                len.map_or(Ok(()), |len| self.regs(&[len]))
            }
            Op::ArgBytes { to, len, .. } => {
                self.slots(&[to])?;
                self.regs(&[len])
            }
            Op::String { to, address, len, .. } => {
                self.slots(&[to])?;
                self.regs(&[address, len.unwrap_or(address)])
            }
            Op::Buffer { to, address, len, .. } => {
                self.slots(&[to])?;
                self.regs(&[address, len])
            }
            Op::Read { to, address, .. } => {
                self.slots(&[to])?;
                self.regs(&[address])
            }
            Op::Readable { dst, address, .. } => self.regs(&[dst, address]),
            Op::FrameAddress { dst, at } => {
                self.regs(&[dst])?;
                self.slots(&[Slot { at, len: 1 }])
            }
            Op::Load { dst, at, size_bytes, .. } => {
                self.regs(&[dst])?;
                self.number(at, size_bytes)
            }
            Op::Store { at, src, size_bytes } => {
                self.regs(&[src])?;
                self.number(at, size_bytes)
            }
            Op::Constant { to, constant } => {
                self.slots(&[to])?;
                if (constant as usize) < self.program.constants.len() {
                    Ok(())
                } else {
                    Err("there is no such constant")
                }
            }
            Op::Move { to, from } => self.slots(&[to, from]),
            Op::StrConcat { to, a, b } => self.slots(&[to, a, b]),
            Op::Equal { dst, a, b } | Op::Strncmp { dst, a, b, .. } => {
                self.slots(&[a, b])?;
                self.regs(&[dst])
            }
            Op::StrFind { dst, haystack, needle } => {
                self.slots(&[haystack, needle])?;
                self.regs(&[dst])
            }
            Op::Element { dst, from, index, .. } => {
                self.slots(&[from])?;
                self.regs(&[dst, index])
            }
            Op::Strlen { dst, a } => {
                self.slots(&[a])?;
                self.regs(&[dst])
            }
            Op::MapLoad { dst, map, key } | Op::MapHas { dst, map, key } => {
                self.regs(&[dst])?;
                self.map(map, key).map(|_| ())
            }
            Op::MapRead { to, map, key } => {
                self.slots(&[to])?;
                self.map(map, key).map(|_| ())
            }
            Op::MapStore { map, key, src } => {
                self.regs(&[src])?;
                self.plain(map, key)
            }
            Op::MapWrite { map, key, from } => {
                self.slots(&[from])?;
                self.plain(map, key)
            }
            Op::MapAdd { dst, map, key, delta } => {
                self.regs(&[dst, delta])?;
                self.plain(map, key)
            }
            Op::MapDelete { map, key } => self.map(map, key).map(|_| ()),
            Op::MapLen { dst, map } => {
                self.regs(&[dst])?;
                self.def(map).map(|_| ())
            }
            Op::Aggregate { map, key, value } => {
                self.regs(&[value])?;
                match self.map(map, key)?.value {
                    MapValue::Aggregate(_) => Ok(()),
                    MapValue::Plain(_) | MapValue::Series(_) => Err("the map is not an aggregate"),
                }
            }
            Op::ForEach { map, key, value, end } => {
                self.map(map, key)?;
                self.slots(&[value])?;
                self.target(end)?;
                if (end as usize) > at { Ok(()) } else { Err("a loop ends before it begins") }
            }
            Op::Emit { action, payload } => {
                self.slots(&[payload])?;
                if (action as usize) < self.program.actions.len() {
                    Ok(())
                } else {
                    Err("there is no such action")
                }
            }
            Op::Jump { to } => self.target(to),
            Op::JumpIf { condition, to } | Op::JumpUnless { condition, to } => {
                self.regs(&[condition])?;
                self.target(to)
            }
            Op::Return => Ok(()),
        }
    }

    fn regs(&self, regs: &[Reg]) -> Result<(), &'static str> {
        if regs.iter().all(|reg| *reg < self.code.n_regs) { Ok(()) } else { Err("there is no such register") }
    }

    fn slots(&self, slots: &[Slot]) -> Result<(), &'static str> {
        let is_inside =
            |slot: &Slot| slot.at.checked_add(slot.len).is_some_and(|end| end <= self.code.frame_bytes);
        if slots.iter().all(is_inside) { Ok(()) } else { Err("bytes outside the frame") }
    }

    fn number(&self, at: u32, size_bytes: u8) -> Result<(), &'static str> {
        if !matches!(size_bytes, 1 | 2 | 4 | 8) {
            return Err("a number has 1, 2, 4 or 8 bytes");
        }
        self.slots(&[Slot { at, len: u32::from(size_bytes) }])
    }

    fn target(&self, to: Target) -> Result<(), &'static str> {
        if to as usize <= self.code.ops.len() { Ok(()) } else { Err("a jump behind the end") }
    }

    fn def(&self, map: MapId) -> Result<&MapDef, &'static str> {
        self.program.maps.get(map as usize).ok_or("there is no such map")
    }

    fn map(&self, map: MapId, key: Slot) -> Result<&MapDef, &'static str> {
        self.slots(&[key])?;
        let def = self.def(map)?;
        if key.len == def.key_bytes() { Ok(def) } else { Err("the key does not have the map's length") }
    }

    fn plain(&self, map: MapId, key: Slot) -> Result<(), &'static str> {
        match &self.map(map, key)?.value {
            MapValue::Plain(value) if value.size_bytes() >= 8 => Ok(()),
            MapValue::Plain(_) => Err("the map has values without bytes"),
            MapValue::Aggregate(_) | MapValue::Series(_) => Err("the map holds no values"),
        }
    }
}
