//! Random programs.

use crate::maps::{aggregates, def};
use crate::operations::{BINARY, NUMBERS};
use crate::{MEMORY, agree, program, shown};
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Binary, Op, Slot, Unary};
use nopal_program::{MapDef, MapValue, Program, Type};

/// xorshift: the same programs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn reg(&mut self) -> u16 {
        self.below(u64::from(N_REGS)) as u16
    }

    fn number(&mut self) -> i64 {
        match self.below(4) {
            0 => self.pick(&NUMBERS) as i64,
            1 => -(self.below(300) as i64),
            _ => self.below(300) as i64,
        }
    }

    /// Somewhere in the free part of the frame.
    fn slot(&mut self) -> Slot {
        let at = self.below(u64::from(FREE_BYTES / 8) - 4) as u32 * 8;
        Slot { at, len: self.below(33) as u32 }
    }
}

const N_REGS: u16 = 8;
/// What random operations may write to; behind it lie keys and what loops copy.
const FREE_BYTES: u32 = 128;
const KEY_AT: u32 = FREE_BYTES;
const LOOP_AT: u32 = FREE_BYTES + 40;

/// Registers above [`N_REGS`] belong to loops.
struct Maker {
    random: Random,
    ops: Vec<Op>,
    maps: Vec<MapDef>,
    n_regs: u16,
}

impl Maker {
    fn key(&mut self, map: usize) -> Slot {
        let len = self.maps[map].key_bytes();
        // Few different keys, so that they meet again.
        for at in (0..len).step_by(8) {
            let src = self.random.reg();
            let dst = self.n_regs;
            self.ops.push(Op::BinaryConst { op: Binary::And, dst, a: src, b: 3 });
            self.ops.push(Op::Store { at: KEY_AT + at, src: dst, size_bytes: 8 });
        }
        Slot { at: KEY_AT, len }
    }

    fn map(&mut self, is_fitting: impl Fn(&MapDef) -> bool) -> u32 {
        let fitting: Vec<usize> = (0..self.maps.len()).filter(|map| is_fitting(&self.maps[*map])).collect();
        self.random.pick(&fitting) as u32
    }

    fn one(&mut self, depth: u32) {
        let is_plain = |def: &MapDef| matches!(def.value, MapValue::Plain(_));
        let (dst, a, b) = (self.random.reg(), self.random.reg(), self.random.reg());
        let constant = self.random.number();
        let op = self.random.pick(&BINARY);
        let size_bytes = self.random.pick(&[1, 2, 4, 8]);
        let is_signed = self.random.below(2) == 0;
        let (to, from) = (self.random.slot(), self.random.slot());
        let at =
            self.random.below(u64::from(FREE_BYTES) / u64::from(size_bytes)) as u32 * u32::from(size_bytes);
        let index = self.random.below(12) as u8;
        let op = match self.random.below(31) {
            0 => Op::Const { dst, value: constant },
            1 => Op::Copy { dst, src: a },
            2 => Op::Unary { op: self.random.pick(&[Unary::Neg, Unary::BitNot, Unary::Not]), dst, a },
            3 | 4 => Op::Binary { op, dst, a, b },
            5 | 6 => Op::BinaryConst { op, dst, a, b: constant },
            7 => Op::Extend { dst, src: a, size_bytes, is_signed },
            8 => Op::Arg { dst, index },
            9 => Op::Load { dst, at, size_bytes, is_signed },
            10 => Op::Store { at, src: a, size_bytes },
            11 => Op::Zero { to },
            12 => Op::Constant { to, constant: self.random.below(4) as u32 },
            13 => Op::Move {
                to: if to.at < from.at { to } else { from },
                from: if to.at < from.at { from } else { to },
            },
            14 => Op::Equal { dst, a: to, b: from },
            15 => Op::Strncmp { dst, a: to, b: from, n: self.random.below(40) as u32 },
            16 => Op::StrFind { dst, haystack: to, needle: from },
            17 => Op::Strlen { dst, a: to },
            18 => Op::ArgString { to, index, len: is_signed.then_some(a) },
            19 => Op::Emit { action: self.random.below(4) as u32, payload: to },
            20 | 21 => {
                let map = self.map(|_| true);
                let key = self.key(map as usize);
                match self.random.below(3) {
                    0 => Op::MapLoad { dst, map, key },
                    1 => Op::MapHas { dst, map, key },
                    _ => Op::MapDelete { map, key },
                }
            }
            22 => Op::MapLen { dst, map: self.map(|_| true) },
            23 => {
                let map = self.map(is_plain);
                let key = self.key(map as usize);
                match self.random.below(3) {
                    0 => Op::MapStore { map, key, src: a },
                    1 => Op::MapAdd { dst, map, key, delta: a },
                    _ => Op::MapRead { to, map, key },
                }
            }
            24 => {
                let map = self.map(is_plain);
                let key = self.key(map as usize);
                Op::MapWrite { map, key, from }
            }
            25 | 26 => {
                let map = self.map(|def| !is_plain(def));
                let key = self.key(map as usize);
                Op::Aggregate { map, key, value: a }
            }
            30 => {
                let n = self.random.below(u64::from(to.len / u32::from(size_bytes)) + 1) as u32;
                Op::Element { dst, from: to, index: a, n, size_bytes, is_signed }
            }
            27 if depth > 0 => return self.choice(a, depth),
            28 if depth > 0 => return self.repeat(depth),
            29 if depth > 1 => return self.each(),
            _ => Op::Copy { dst, src: a },
        };
        self.ops.push(op);
    }

    fn some(&mut self, n: u64, depth: u32) {
        for _ in 0..self.random.below(n) + 1 {
            self.one(depth);
        }
    }

    fn end(&self) -> u32 {
        self.ops.len() as u32
    }

    fn choice(&mut self, condition: u16, depth: u32) {
        let at = self.ops.len();
        self.ops.push(Op::Return);
        self.some(4, depth - 1);
        let to = self.end();
        self.ops[at] = match self.random.below(2) {
            0 => Op::JumpIf { condition, to },
            _ => Op::JumpUnless { condition, to },
        };
    }

    /// A few rounds, with a way out in between.
    fn repeat(&mut self, depth: u32) {
        let (counter, test) = (self.n_regs + 1, self.n_regs + 2);
        self.n_regs += 2;
        self.ops.push(Op::Const { dst: counter, value: 0 });
        let head = self.ops.len();
        let n = self.random.below(6) as i64;
        self.ops.push(Op::BinaryConst { op: Binary::LtUnsigned, dst: test, a: counter, b: n });
        let leave = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::BinaryConst { op: Binary::Add, dst: counter, a: counter, b: 1 });
        self.some(4, depth - 1);
        let out = self.ops.len();
        self.ops.push(Op::Return);
        self.some(3, depth - 1);
        self.ops.push(Op::Jump { to: head as u32 });
        let to = self.end();
        self.ops[leave] = Op::JumpUnless { condition: test, to };
        self.ops[out] = Op::JumpIf { condition: self.random.reg(), to };
        self.ops.push(Op::Const { dst: counter, value: 0 });
    }

    /// Adds up what a map has in another, by key: the order of the entries does not show.
    fn each(&mut self) {
        let map = self.map(|def| def.key_bytes() == 8);
        let sums = SUMS;
        if map == sums {
            return;
        }
        let (value, test) = (self.n_regs + 1, self.n_regs + 2);
        self.n_regs += 2;
        let (key, slot) = (Slot { at: LOOP_AT, len: 8 }, Slot { at: LOOP_AT + 8, len: 8 });
        let at = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::Load { dst: value, at: slot.at, size_bytes: 8, is_signed: true });
        self.ops.push(Op::BinaryConst { op: Binary::And, dst: test, a: value, b: 1 });
        let pass = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::Aggregate { map: sums, key, value });
        let end = self.end();
        self.ops[at] = Op::ForEach { map, key, value: slot, end };
        self.ops[pass] = Op::JumpIf { condition: test, to: end };
        self.ops.push(Op::Zero { to: Slot { at: LOOP_AT, len: 16 } });
        self.ops.push(Op::Const { dst: value, value: 0 });
        self.ops.push(Op::Const { dst: test, value: 0 });
    }
}

/// The map that sums of other maps go into.
const SUMS: u32 = 0;

fn random_program(seed: u64) -> Program {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(7);
    let all = aggregates();
    let mut maps =
        vec![def("@sums", vec![Type::U64], MapValue::Aggregate(Aggregate::Sum { is_signed: true }))];
    for _ in 0..4 {
        let key = match random.below(3) {
            0 => Vec::new(),
            1 => vec![Type::U64],
            _ => vec![Type::U64, Type::Str { max_bytes: 16 }],
        };
        maps.push(def("@a", key.clone(), MapValue::Aggregate(all[random.below(all.len() as u64) as usize])));
        let value = random.pick(&[8, 16, 24]);
        let value = if value == 8 { Type::I64 } else { Type::Str { max_bytes: value } };
        maps.push(def("@p", key, MapValue::Plain(value)));
    }
    let frame = random.pick(&[256, 256, 700, 2000]);
    let mut maker = Maker { random, ops: Vec::new(), maps, n_regs: N_REGS };
    maker.some(40, 3);
    let Maker { ops, maps, n_regs, .. } = maker;
    let mut program = program(shown(ops, n_regs + 1, frame), maps);
    // Keys never meet this bound: full maps are another test's.
    program.limits.map_entries = 1024;
    program
}

#[test]
fn random_programs() {
    let mut inputs = vec![NUMBERS, [0; 12]];
    let mut texts = [0; 12];
    for (index, text) in texts.iter_mut().enumerate() {
        *text = MEMORY.as_ptr() as u64 + 3 * index as u64;
    }
    inputs.push(texts);
    inputs.push([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    // More with NOPAL_PROGRAMS=n.
    let n = std::env::var("NOPAL_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..n {
        let result = std::panic::catch_unwind(|| agree(&random_program(seed), &inputs));
        assert!(result.is_ok(), "program {seed}");
    }
}
