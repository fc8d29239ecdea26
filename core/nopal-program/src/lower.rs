//! Whether a clause is so simple that a stub in the traced program can do all of it, and then as what.

use crate::aggregate::Aggregate;
use crate::captures::RETURN_VALUE;
use crate::op::{Binary, Builtin, MapId, Op, Slot, Unary};
use crate::{Clause, Code, MapValue, Program};

/// A clause as data: if all tests hold, all updates are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lowered {
    pub tests: Vec<Test>,
    pub updates: Vec<Update>,
}

/// `arg RELATION constant`, as 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    pub arg: u8,
    pub relation: Relation,
    pub constant: i64,
    /// Whether the comparison is one of signed numbers. Makes no difference to `Equal` and `NotEqual`.
    pub is_signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Relation {
    fn negated(self) -> Relation {
        match self {
            Relation::Equal => Relation::NotEqual,
            Relation::NotEqual => Relation::Equal,
            Relation::Less => Relation::GreaterEqual,
            Relation::LessEqual => Relation::Greater,
            Relation::Greater => Relation::LessEqual,
            Relation::GreaterEqual => Relation::Less,
        }
    }

    /// With the sides exchanged.
    fn flipped(self) -> Relation {
        match self {
            Relation::Equal | Relation::NotEqual => self,
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
        }
    }
}

/// Takes a value into an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    pub map: MapId,
    pub aggregate: Aggregate,
    pub key: Key,
    pub value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    None,
    Arg(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Arg(u8),
    Constant(i64),
}

/// The clause as tests and updates, if that is all it is.
pub fn lower(program: &Program, clause: &Clause) -> Option<Lowered> {
    let code = &clause.code;
    let mut path = Path::new(code);
    let mut lowered = Lowered::default();
    let mut pc = 0;
    while let Some(op) = code.ops.get(pc) {
        pc += 1;
        match *op {
            Op::Return => break,
            Op::Jump { to } if to as usize >= pc => pc = to as usize,
            Op::JumpIf { condition, to } | Op::JumpUnless { condition, to } if to as usize >= pc => {
                let is_unless = matches!(op, Op::JumpUnless { .. });
                match path.truth(condition) {
                    Known::Number(n) => {
                        if (n == 0) == is_unless {
                            pc = to as usize;
                        }
                    }
                    Known::Test(test) => {
                        // Either the jump leads to where nothing happens any more, or going on does.
                        let jumps_when =
                            if is_unless { Test { relation: test.relation.negated(), ..test } } else { test };
                        if path.is_idle_from(code, to as usize) {
                            let relation = jumps_when.relation.negated();
                            lowered.tests.push(Test { relation, ..jumps_when });
                        } else if path.is_idle_from(code, pc) {
                            lowered.tests.push(jumps_when);
                            pc = to as usize;
                        } else {
                            return None;
                        }
                    }
                    Known::Arg(_) | Known::Nothing => return None,
                }
            }
            Op::Aggregate { map, key, value } => {
                let def = program.maps.get(map as usize)?;
                let MapValue::Aggregate(aggregate) = def.value else { return None };
                let key = match def.key.len() {
                    0 => Key::None,
                    1 if def.key_bytes() == 8 => match path.word(key) {
                        Known::Arg(index) => Key::Arg(index),
                        Known::Number(_) | Known::Test(_) | Known::Nothing => return None,
                    },
                    _ => return None,
                };
                let value = match (aggregate, path.regs[usize::from(value)]) {
                    (Aggregate::Count, _) => Value::Constant(1),
                    (_, Known::Number(n)) => Value::Constant(n),
                    (_, Known::Arg(index)) => Value::Arg(index),
                    (_, Known::Test(_) | Known::Nothing) => return None,
                };
                lowered.updates.push(Update { map, aggregate, key, value });
            }
            ref op => path.step(op).then_some(())?,
        }
    }
    (!lowered.updates.is_empty()).then_some(lowered)
}

/// What is known of a register or of eight bytes of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Number(i64),
    Arg(u8),
    /// 1 if it holds, else 0.
    Test(Test),
    Nothing,
}

/// Registers and frame on the way through straight code.
#[derive(Debug, Clone)]
struct Path {
    regs: Vec<Known>,
    /// By word.
    frame: Vec<Known>,
}

impl Path {
    fn new(code: &Code) -> Path {
        Path {
            regs: vec![Known::Number(0); usize::from(code.n_regs)],
            frame: vec![Known::Number(0); code.frame_bytes as usize / 8],
        }
    }

    fn word(&self, slot: Slot) -> Known {
        self.frame.get(slot.at as usize / 8).copied().unwrap_or(Known::Nothing)
    }

    /// A condition: a number, a test, or an argument that is a test of itself.
    fn truth(&self, reg: u16) -> Known {
        match self.regs[usize::from(reg)] {
            Known::Arg(arg) => {
                Known::Test(Test { arg, relation: Relation::NotEqual, constant: 0, is_signed: true })
            }
            known => known,
        }
    }

    /// Follows an op without effect outside; false for any other.
    fn step(&mut self, op: &Op) -> bool {
        let set = |regs: &mut Vec<Known>, dst: u16, known: Known| regs[usize::from(dst)] = known;
        let get = |regs: &[Known], reg: u16| regs[usize::from(reg)];
        match *op {
            Op::Const { dst, value } => set(&mut self.regs, dst, Known::Number(value)),
            Op::Copy { dst, src } => {
                let known = get(&self.regs, src);
                set(&mut self.regs, dst, known);
            }
            Op::Arg { dst, index } => set(&mut self.regs, dst, Known::Arg(index)),
            Op::Builtin { dst, what: Builtin::Retval } => {
                set(&mut self.regs, dst, Known::Arg(RETURN_VALUE));
            }
            Op::Unary { op, dst, a } => {
                let known = match (op, get(&self.regs, a)) {
                    (_, Known::Number(n)) => Known::Number(op.apply(n)),
                    (Unary::Not, Known::Test(test)) => {
                        Known::Test(Test { relation: test.relation.negated(), ..test })
                    }
                    (Unary::Not, Known::Arg(arg)) => {
                        Known::Test(Test { arg, relation: Relation::Equal, constant: 0, is_signed: true })
                    }
                    _ => Known::Nothing,
                };
                set(&mut self.regs, dst, known);
            }
            Op::Binary { op, dst, a, b } => {
                let known = binary(op, get(&self.regs, a), get(&self.regs, b));
                set(&mut self.regs, dst, known);
            }
            Op::BinaryConst { op, dst, a, b } => {
                let known = binary(op, get(&self.regs, a), Known::Number(b));
                set(&mut self.regs, dst, known);
            }
            Op::Store { at, src, size_bytes } => {
                let known =
                    if size_bytes == 8 && at % 8 == 0 { get(&self.regs, src) } else { Known::Nothing };
                for word in at / 8..=(at + u32::from(size_bytes) - 1) / 8 {
                    self.frame[word as usize] = known;
                }
            }
            Op::Load { dst, at, size_bytes, .. } => {
                let known = match size_bytes {
                    8 if at % 8 == 0 => self.frame[at as usize / 8],
                    _ => Known::Nothing,
                };
                set(&mut self.regs, dst, known);
            }
            Op::Zero { to } => {
                for word in to.at / 8..(to.at + to.len).div_ceil(8) {
                    let is_whole = word * 8 >= to.at && (word + 1) * 8 <= to.at + to.len;
                    self.frame[word as usize] = if is_whole { Known::Number(0) } else { Known::Nothing };
                }
            }
            Op::Move { to, from } if to.len == from.len && to.len.is_multiple_of(8) => {
                for word in 0..to.len / 8 {
                    self.frame[(to.at / 8 + word) as usize] = self.frame[(from.at / 8 + word) as usize];
                }
            }
            Op::Extend { dst, src, size_bytes, is_signed } => {
                let known = match get(&self.regs, src) {
                    Known::Number(n) => {
                        let unused = 64 - 8 * u32::from(size_bytes.clamp(1, 8));
                        let cut = n << unused;
                        Known::Number(if is_signed { cut >> unused } else { (cut as u64 >> unused) as i64 })
                    }
                    _ => Known::Nothing,
                };
                set(&mut self.regs, dst, known);
            }
            _ => return false,
        }
        true
    }

    /// Whether nothing happens any more from `pc` on.
    fn is_idle_from(&self, code: &Code, mut pc: usize) -> bool {
        let mut path = self.clone();
        while let Some(op) = code.ops.get(pc) {
            pc += 1;
            match *op {
                Op::Return => return true,
                Op::Jump { to } if to as usize >= pc => pc = to as usize,
                Op::JumpIf { condition, to } | Op::JumpUnless { condition, to } if to as usize >= pc => {
                    let is_unless = matches!(op, Op::JumpUnless { .. });
                    let Known::Number(n) = path.truth(condition) else { return false };
                    if (n == 0) == is_unless {
                        pc = to as usize;
                    }
                }
                ref op => {
                    if !path.step(op) {
                        return false;
                    }
                }
            }
        }
        true
    }
}

fn binary(op: Binary, a: Known, b: Known) -> Known {
    let comparison = match op {
        Binary::Eq => Some((Relation::Equal, true)),
        Binary::Ne => Some((Relation::NotEqual, true)),
        Binary::LtUnsigned => Some((Relation::Less, false)),
        Binary::LtSigned => Some((Relation::Less, true)),
        Binary::LeUnsigned => Some((Relation::LessEqual, false)),
        Binary::LeSigned => Some((Relation::LessEqual, true)),
        Binary::GtUnsigned => Some((Relation::Greater, false)),
        Binary::GtSigned => Some((Relation::Greater, true)),
        Binary::GeUnsigned => Some((Relation::GreaterEqual, false)),
        Binary::GeSigned => Some((Relation::GreaterEqual, true)),
        _ => None,
    };
    match (a, b, comparison) {
        (Known::Number(a), Known::Number(b), _) => Known::Number(op.apply(a, b)),
        (Known::Arg(arg), Known::Number(constant), Some((relation, is_signed))) => {
            Known::Test(Test { arg, relation, constant, is_signed })
        }
        (Known::Number(constant), Known::Arg(arg), Some((relation, is_signed))) => {
            Known::Test(Test { arg, relation: relation.flipped(), constant, is_signed })
        }
        // `test == 0`, `test != 0`.
        (Known::Test(test), Known::Number(0), Some((Relation::NotEqual, _))) => Known::Test(test),
        (Known::Test(test), Known::Number(0), Some((Relation::Equal, _))) => {
            Known::Test(Test { relation: test.relation.negated(), ..test })
        }
        _ => Known::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapDef, Type};

    const KEY: Slot = Slot { at: 0, len: 8 };
    const NO_KEY: Slot = Slot { at: 0, len: 0 };

    fn program(ops: Vec<Op>) -> Program {
        let map = |key, aggregate| MapDef { name: "@".into(), key, value: MapValue::Aggregate(aggregate) };
        Program {
            clauses: vec![Clause { points: vec![], code: Code { ops, n_regs: 8, frame_bytes: 64 } }],
            maps: vec![map(vec![], Aggregate::Count), map(vec![Type::U64], Aggregate::Hist { bits: 0 })],
            ..Program::default()
        }
    }

    fn lowered(ops: Vec<Op>) -> Option<Lowered> {
        let program = program(ops);
        lower(&program, &program.clauses[0])
    }

    fn arg(dst: u16, index: u8) -> Op {
        Op::Arg { dst, index }
    }

    const COUNT: Op = Op::Aggregate { map: 0, key: NO_KEY, value: 0 };

    fn count() -> Update {
        Update { map: 0, aggregate: Aggregate::Count, key: Key::None, value: Value::Constant(1) }
    }

    #[test]
    fn a_counter_and_a_keyed_histogram() {
        assert_eq!(lowered(vec![COUNT]), Some(Lowered { tests: vec![], updates: vec![count()] }));
        let ops = vec![
            arg(1, 0),
            Op::Store { at: 0, src: 1, size_bytes: 8 },
            arg(2, 1),
            Op::Aggregate { map: 1, key: KEY, value: 2 },
            COUNT,
        ];
        let hist =
            Update { map: 1, aggregate: Aggregate::Hist { bits: 0 }, key: Key::Arg(0), value: Value::Arg(1) };
        assert_eq!(lowered(ops), Some(Lowered { tests: vec![], updates: vec![hist, count()] }));
    }

    #[test]
    fn predicates_become_tests() {
        let test = |relation, constant| Test { arg: 2, relation, constant, is_signed: true };
        for (condition, want) in [
            (
                vec![Op::BinaryConst { op: Binary::GtSigned, dst: 1, a: 1, b: 10 }],
                test(Relation::Greater, 10),
            ),
            (vec![], test(Relation::NotEqual, 0)),
            (vec![Op::Unary { op: Unary::Not, dst: 1, a: 1 }], test(Relation::Equal, 0)),
            (
                vec![Op::Const { dst: 2, value: 5 }, Op::Binary { op: Binary::LeSigned, dst: 1, a: 2, b: 1 }],
                test(Relation::GreaterEqual, 5),
            ),
        ] {
            let mut ops = vec![arg(1, 2)];
            ops.extend(condition);
            let end = ops.len() as u32 + 2;
            ops.extend([Op::JumpUnless { condition: 1, to: end }, COUNT]);
            assert_eq!(lowered(ops), Some(Lowered { tests: vec![want], updates: vec![count()] }));
        }
    }

    #[test]
    fn conditions_that_must_both_hold_become_two_tests() {
        // r3 = arg0 && arg1 > 4, as a value; then a jump on it.
        let ops = vec![
            arg(1, 0),
            Op::JumpUnless { condition: 1, to: 6 },
            arg(2, 1),
            Op::BinaryConst { op: Binary::GtUnsigned, dst: 2, a: 2, b: 4 },
            Op::JumpUnless { condition: 2, to: 6 },
            Op::Const { dst: 3, value: 1 },
            Op::JumpUnless { condition: 3, to: 8 },
            COUNT,
        ];
        let tests = vec![
            Test { arg: 0, relation: Relation::NotEqual, constant: 0, is_signed: true },
            Test { arg: 1, relation: Relation::Greater, constant: 4, is_signed: false },
        ];
        assert_eq!(lowered(ops), Some(Lowered { tests, updates: vec![count()] }));
    }

    #[test]
    fn anything_else_is_left_to_the_interpreter() {
        for ops in [
            vec![],
            vec![Op::Builtin { dst: 1, what: Builtin::Pid }, COUNT],
            vec![COUNT, Op::Emit { action: 0, payload: KEY }],
            // An if with two sides.
            vec![arg(1, 0), Op::JumpUnless { condition: 1, to: 4 }, COUNT, Op::Jump { to: 5 }, COUNT],
            // A key that is computed.
            vec![
                arg(1, 0),
                Op::BinaryConst { op: Binary::Add, dst: 1, a: 1, b: 1 },
                Op::Store { at: 0, src: 1, size_bytes: 8 },
                Op::Aggregate { map: 1, key: KEY, value: 1 },
            ],
            vec![Op::Jump { to: 0 }, COUNT],
        ] {
            assert_eq!(lowered(ops.clone()), None, "{ops:?}");
        }
    }
}
