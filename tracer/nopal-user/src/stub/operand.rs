//! Gets an operand's value when the registers it names may already be in use by the stub.

use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};

use super::asm::{Alu, Asm, Mem, RAX, RSP, Reg, Width, at};
use super::asm::{Cond, Label};
use super::{Heap, StubError};
use nopal_capture::{Predicate, Relation};

/// What the stub has done to the registers since the site.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// Registers the stub uses, each with the offset from `%rsp` where its value at the site is kept.
    pub saved: Vec<(Reg, i32)>,
    /// How far `%rsp` is below its value at the site.
    pub depth: i32,
    /// As in [`StubSpec`](super::StubSpec).
    pub above: i32,
    pub load_bias: u64,
    /// As in [`StubSpec`](super::StubSpec).
    pub own_file: std::ops::Range<u64>,
    /// As in [`StubSpec`](super::StubSpec).
    pub heap: Option<Heap>,
    /// The table of the heap's pages that can be read.
    pub readable: Mem,
    /// The word that says what the process has forbidden itself.
    pub restraint: Mem,
}

fn refuse(operand: &Operand, reason: &'static str) -> StubError {
    StubError::Operand { operand: operand.clone(), reason }
}

impl Frame {
    fn slot(&self, register: Register) -> Option<i32> {
        self.saved.iter().find(|(reg, _)| reg.0 == register.number).map(|&(_, offset)| offset)
    }

    /// The address of a memory operand; may use `first` and `second`.
    fn address(
        &self,
        asm: &mut Asm,
        operand: &Operand,
        memory: &Memory,
        first: Reg,
        second: Reg,
    ) -> Result<Mem, StubError> {
        let mut displacement = memory.displacement;
        let base = match &memory.base {
            Base::Register(Register { number: 4, .. }) => {
                displacement += i64::from(self.depth) + i64::from(self.above);
                RSP
            }
            Base::Register(register) => self.whole(asm, *register, first),
            Base::Symbol { name, address } => {
                let address = address.ok_or_else(|| StubError::UnknownSymbol { name: name.clone() })?;
                asm.mov_imm(first, address.wrapping_add(self.load_bias).wrapping_add(displacement as u64));
                displacement = 0;
                first
            }
            Base::None => {
                asm.mov_imm(first, displacement as u64);
                displacement = 0;
                first
            }
        };
        let index = match memory.index {
            None => None,
            Some((Register { number: 4, .. }, _)) => {
                return Err(refuse(operand, "the stack pointer cannot be an index"));
            }
            Some((_, scale)) if !matches!(scale, 1 | 2 | 4 | 8) => {
                return Err(refuse(operand, "the scale is not 1, 2, 4 or 8"));
            }
            Some((register, scale)) => Some((self.whole(asm, register, second), scale)),
        };
        let disp = i32::try_from(displacement)
            .map_err(|_| refuse(operand, "the displacement has more than 32 bits"))?;
        Ok(Mem::At { base, index, disp })
    }

    /// The register to address with: itself, or `spare` holding its value at the site.
    fn whole(&self, asm: &mut Asm, register: Register, spare: Reg) -> Reg {
        let width = if register.width_bytes == 4 { Width::B4 } else { Width::B8 };
        match self.slot(register) {
            Some(offset) => asm.load(spare, at(RSP, offset), width, false),
            None if width == Width::B4 => asm.mov32(spare, Reg(register.number)),
            None => return Reg(register.number),
        }
        spare
    }

    /// The value, widened to 64 bits with its sign or zeros, into `to`; may use `spare`.
    pub(super) fn load(
        &self,
        asm: &mut Asm,
        operand: &Operand,
        to: Reg,
        spare: Reg,
    ) -> Result<(), StubError> {
        let size =
            Width::of(operand.size_bytes).ok_or_else(|| refuse(operand, "it has more than 8 bytes"))?;
        match &operand.place {
            Place::Constant(value) => {
                let shift = 64 - 8 * u32::from(operand.size_bytes);
                let value = if operand.is_signed {
                    (*value << shift >> shift) as u64
                } else {
                    (*value as u64) << shift >> shift
                };
                asm.mov_imm(to, value);
            }
            Place::Memory(memory) => {
                let address = self.address(asm, operand, memory, to, spare)?;
                asm.load(to, address, size, operand.is_signed);
            }
            Place::Vector(_) => {
                return Err(refuse(operand, "a vector register holds no integer to work with"));
            }
            Place::Register(register) => {
                let width = operand.size_bytes.min(register.width_bytes);
                let width = Width::of(width).ok_or_else(|| refuse(operand, "unknown register width"))?;
                match self.slot(*register) {
                    Some(offset) if register.is_high_byte => {
                        asm.load(to, at(RSP, offset + 1), Width::B1, operand.is_signed);
                    }
                    Some(offset) => asm.load(to, at(RSP, offset), width, operand.is_signed),
                    None if register.number == RSP.0 => {
                        asm.lea(to, at(RSP, self.depth + self.above));
                        asm.extend(to, to, width, operand.is_signed);
                    }
                    None if register.is_high_byte => {
                        asm.mov(to, Reg(register.number));
                        asm.shr(to, 8);
                        asm.extend(to, to, Width::B1, operand.is_signed);
                    }
                    None => asm.extend(to, Reg(register.number), width, operand.is_signed),
                }
            }
        }
        Ok(())
    }

    /// Stores the value at `record + offset`; may use `%rax` and `spare`.
    pub(super) fn store(
        &self,
        asm: &mut Asm,
        operand: &Operand,
        record: Reg,
        offset: i32,
        spare: Reg,
    ) -> Result<(), StubError> {
        match &operand.place {
            Place::Vector(16..) => {
                return Err(refuse(operand, "only vector registers 0 to 15 can be stored"));
            }
            Place::Vector(number) => match operand.size_bytes {
                4 | 8 | 16 => asm.store_xmm(at(record, offset), *number, operand.size_bytes),
                32 => asm.store_ymm(record, offset, *number),
                size => {
                    let width = Width::of(size).ok_or_else(|| refuse(operand, "unknown size"))?;
                    asm.mov_from_xmm(RAX, *number);
                    asm.store(at(record, offset), RAX, width);
                }
            },
            Place::Memory(memory) if matches!(operand.size_bytes, 16 | 32) => {
                for part in 0..i32::from(operand.size_bytes) / 8 {
                    let address = self.address(asm, operand, memory, RAX, spare)?;
                    let Mem::At { base, index, disp } = address else {
                        unreachable!("address() gives base and index")
                    };
                    let disp = disp
                        .checked_add(8 * part)
                        .ok_or_else(|| refuse(operand, "the displacement has more than 32 bits"))?;
                    asm.load64(RAX, Mem::At { base, index, disp });
                    asm.store(at(record, offset + 8 * part), RAX, Width::B8);
                }
            }
            place => {
                let size = Width::of(operand.size_bytes).ok_or_else(|| refuse(operand, "unknown size"))?;
                match place {
                    Place::Constant(value) if size != Width::B8 || i32::try_from(*value).is_ok() => {
                        asm.store_imm(at(record, offset), *value as i32, size);
                    }
                    Place::Register(register)
                        if self.slot(*register).is_none()
                            && register.number != RSP.0
                            && !register.is_high_byte
                            && register.width_bytes >= operand.size_bytes =>
                    {
                        asm.store(at(record, offset), Reg(register.number), size);
                    }
                    _ => {
                        self.load(asm, operand, RAX, spare)?;
                        asm.store(at(record, offset), RAX, size);
                    }
                }
            }
        }
        Ok(())
    }

    /// Jumps to `otherwise` unless the predicate holds; may use `%rax` and `spare`.
    pub(super) fn require(
        &self,
        asm: &mut Asm,
        predicate: &Predicate,
        spare: Reg,
        otherwise: Label,
    ) -> Result<(), StubError> {
        let operand = &predicate.operand;
        if operand.is_float {
            return Err(refuse(operand, "a floating-point number cannot be compared in the stub"));
        }
        let (low, high) = if operand.is_signed {
            (i128::from(i64::MIN), i128::from(i64::MAX))
        } else {
            (0, i128::from(u64::MAX))
        };
        // A constant that no value of this kind can have decides the question now.
        if predicate.constant < low || predicate.constant > high {
            let is_above = predicate.constant > high;
            let holds = match predicate.relation {
                Relation::Equal => false,
                Relation::NotEqual => true,
                Relation::Less | Relation::LessEqual => is_above,
                Relation::Greater | Relation::GreaterEqual => !is_above,
            };
            if !holds {
                asm.jmp(otherwise);
            }
            return Ok(());
        }
        self.load(asm, operand, RAX, spare)?;
        let bits = predicate.constant as u64;
        match i32::try_from(bits as i64) {
            Ok(short) => asm.alu_imm(Alu::Cmp, RAX, short),
            Err(_) => {
                asm.mov_imm(spare, bits);
                asm.alu(Alu::Cmp, RAX, spare);
            }
        }
        let holds = match (predicate.relation, operand.is_signed) {
            (Relation::Equal, _) => Cond::Equal,
            (Relation::NotEqual, _) => Cond::NotEqual,
            (Relation::Less, true) => Cond::Less,
            (Relation::Less, false) => Cond::Below,
            (Relation::LessEqual, true) => Cond::LessEqual,
            (Relation::LessEqual, false) => Cond::BelowEqual,
            (Relation::Greater, true) => Cond::Greater,
            (Relation::Greater, false) => Cond::Above,
            (Relation::GreaterEqual, true) => Cond::GreaterEqual,
            (Relation::GreaterEqual, false) => Cond::AboveEqual,
        };
        asm.jcc(holds.inverse(), otherwise);
        Ok(())
    }
}
