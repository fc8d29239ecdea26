//! Maps and aggregates. A map with a key is a hash, per CPU where it holds an aggregate; one without is an array of one
//! element whose first word says whether there is a value.
//!
//! The least and the greatest value are kept in a form in which greater is better and 0 is worst, so that an untouched
//! share needs no test and a concurrent one costs a compare and exchange: see [`extreme_mask`].

use super::super::super::insn::{Alu, Cond, Helper, Label, Reg, Width};
use super::{CodeError, Gen, KEPT, STAT_FULL, TEMP};
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Op, Slot};
use nopal_program::{MapDef, MapValue};

/// In front of the value of a map without a key.
pub const PRESENCE_BYTES: u32 = 8;
/// The kernel's limit on one CPU's share of an entry.
pub const MAX_AGGREGATE_WORDS: u32 = (32 << 10) / 8 - 1;
const NO_EXIST: i32 = 1;
/// Tries of a compare and exchange against interruptions on the same CPU.
const TRIES: u32 = 4;

/// What a stored extreme is combined with to become a value and back: an exclusive or.
pub fn extreme_mask(aggregate: Aggregate) -> u64 {
    match aggregate {
        Aggregate::Max { is_signed: true } => 1 << 63,
        Aggregate::Max { is_signed: false } => 0,
        Aggregate::Min { is_signed: true } => !(1 << 63),
        Aggregate::Min { is_signed: false } => !0,
        _ => 0,
    }
}

/// Where the numbers of a share begin, and whether it says itself that it is there.
fn first_word(def: &MapDef) -> i16 {
    if def.key_bytes() > 0 { 0 } else { PRESENCE_BYTES as i16 }
}

impl Gen<'_> {
    pub(super) fn map_op(&mut self, at: usize, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::MapLoad { dst, map, key } => {
                match self.def(map, key, at)?.value {
                    MapValue::Plain(_) | MapValue::Series(_) => self.plain_number(map, key, at)?,
                    MapValue::Aggregate(aggregate) => self.aggregate_number(at, map, key, aggregate)?,
                }
                self.store(dst, Reg::R0);
            }
            Op::MapRead { to, map, key } => self.map_read(at, to, map, key)?,
            Op::MapStore { map, key, src } => {
                let def = self.def(map, key, at)?;
                if def.value_bytes() == 8 && def.key_bytes() > 0 {
                    self.load(Reg::R1, src);
                    self.store_temp(0, Reg::R1);
                    self.update(map, key, at, |gen_| gen_.address(Reg::R3, Reg::R10, TEMP[0]))?;
                } else {
                    let (full, done) = (self.asm.label(), self.asm.label());
                    self.find_or_make(at, map, key, full)?;
                    self.load(Reg::R1, src);
                    self.asm.store(Width::W64, Reg::R0, first_word(&def), Reg::R1);
                    self.full_unless(full, done, &def);
                }
            }
            Op::MapWrite { map, key, from } => self.map_write(at, map, key, from)?,
            Op::MapAdd { dst, map, key, delta } => {
                let def = self.def(map, key, at)?;
                let (full, out) = (self.asm.label(), self.asm.label());
                self.find_or_make(at, map, key, full)?;
                self.load(Reg::R1, delta);
                self.asm.atomic_fetch_add64(Reg::R0, first_word(&def), Reg::R1);
                self.store(dst, Reg::R1);
                self.asm.jump(out);
                self.asm.bind(full);
                self.count(STAT_FULL);
                self.asm.mov_imm(Reg::R1, 0);
                self.store(dst, Reg::R1);
                self.asm.bind(out);
            }
            Op::MapDelete { map, key } => self.map_delete(at, map, key)?,
            Op::MapHas { dst, map, key } => {
                let def = self.def(map, key, at)?;
                let has_key = def.key_bytes() > 0;
                match def.value {
                    MapValue::Aggregate(aggregate) if !has_key => {
                        self.aggregate_number(at, map, key, aggregate)?;
                        self.store(dst, Reg::R1);
                    }
                    _ => {
                        let absent = self.asm.label();
                        self.find(at, map, key)?;
                        self.asm.mov_imm(Reg::R1, 0);
                        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, absent);
                        self.asm.mov_imm(Reg::R1, 1);
                        if !has_key {
                            self.asm.load(Width::W64, Reg::R1, Reg::R0, 0);
                        }
                        self.asm.bind(absent);
                        self.store(dst, Reg::R1);
                    }
                }
            }
            Op::MapLen { dst, map } => {
                let (def, fd) = self.map(map, at)?;
                let empty = Slot { at: 0, len: 0 };
                match (def.key_bytes(), def.value.clone()) {
                    (0, MapValue::Aggregate(aggregate)) => {
                        self.aggregate_number(at, map, empty, aggregate)?;
                        self.store(dst, Reg::R1);
                    }
                    (0, MapValue::Plain(_) | MapValue::Series(_)) => {
                        self.map_op(at, &Op::MapHas { dst, map, key: empty })?;
                    }
                    _ => {
                        let label = self.asm.label();
                        self.ends.push((label, None));
                        self.call_for_each(fd, label);
                        self.store(dst, Reg::R0);
                    }
                }
            }
            Op::Aggregate { map, key, value } => self.aggregate(at, map, key, value)?,
            _ => {}
        }
        Ok(())
    }

    /// The map's definition, with the key's length checked.
    fn def(&self, map: u32, key: Slot, op: usize) -> Result<MapDef, CodeError> {
        let def = self.map(map, op)?.0;
        if key.len != def.key_bytes() {
            return Err(CodeError::BadOp { op, reason: "the key does not have the map's length" });
        }
        Ok(def.clone())
    }

    /// R2 = the address of the key; a map without one has the index 0.
    fn key(&mut self, key: Slot) {
        if key.len > 0 {
            self.slot_address(Reg::R2, key);
        } else {
            self.asm.store_imm(Width::W32, Reg::R10, TEMP[1], 0);
            self.address(Reg::R2, Reg::R10, TEMP[1]);
        }
    }

    /// R0 = the value, or 0.
    fn find(&mut self, op: usize, map: u32, key: Slot) -> Result<(), CodeError> {
        let fd = self.map(map, op)?.1;
        self.key(key);
        self.asm.load_map(Reg::R1, fd);
        self.asm.call(Helper::MapLookupElem);
        Ok(())
    }

    /// R0 = the value, made of zeros if it was not there; goes to `full` if there is no room.
    fn find_or_make(&mut self, op: usize, map: u32, key: Slot, full: Label) -> Result<(), CodeError> {
        let found = self.asm.label();
        let def = self.def(map, key, op)?;
        self.find(op, map, key)?;
        if def.key_bytes() == 0 {
            self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, full);
            self.asm.store_imm(Width::W64, Reg::R0, 0, 1);
            return Ok(());
        }
        self.asm.jump_if_imm(Cond::Ne, Reg::R0, 0, found);
        if def.value_bytes() <= 16 {
            self.asm.store_imm(Width::W64, Reg::R10, TEMP[4], 0);
            self.asm.store_imm(Width::W64, Reg::R10, TEMP[4] + 8, 0);
            self.address(Reg::R3, Reg::R10, TEMP[4]);
        } else {
            self.asm.store_imm(Width::W32, Reg::R10, TEMP[1], 0);
            self.lookup(self.spec.zeros, TEMP[1]);
            self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, full);
            self.asm.mov(Reg::R3, Reg::R0);
        }
        let fd = self.map(map, op)?.1;
        self.key(key);
        self.asm.load_map(Reg::R1, fd);
        self.asm.mov_imm(Reg::R4, NO_EXIST);
        self.asm.call(Helper::MapUpdateElem);
        self.find(op, map, key)?;
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, full);
        self.asm.bind(found);
        Ok(())
    }

    /// The way on, and the way of a store that found no room.
    fn full_unless(&mut self, full: Label, done: Label, def: &MapDef) {
        self.asm.jump(done);
        self.asm.bind(full);
        if def.key_bytes() > 0 {
            self.count(STAT_FULL);
        }
        self.asm.bind(done);
    }

    /// Stores a value whose address `value` puts into R3.
    fn update(
        &mut self,
        map: u32,
        key: Slot,
        op: usize,
        value: impl FnOnce(&mut Self),
    ) -> Result<(), CodeError> {
        let fd = self.map(map, op)?.1;
        let stored = self.asm.label();
        value(self);
        self.key(key);
        self.asm.load_map(Reg::R1, fd);
        self.asm.mov_imm(Reg::R4, 0);
        self.asm.call(Helper::MapUpdateElem);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, stored);
        self.count(STAT_FULL);
        self.asm.bind(stored);
        Ok(())
    }

    /// R0 = a plain number, 0 where there is none.
    fn plain_number(&mut self, map: u32, key: Slot, op: usize) -> Result<(), CodeError> {
        let def = self.def(map, key, op)?;
        let absent = self.asm.label();
        self.find(op, map, key)?;
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, absent);
        self.asm.load(Width::W64, Reg::R0, Reg::R0, first_word(&def));
        self.asm.bind(absent);
        Ok(())
    }

    fn map_read(&mut self, op: usize, to: Slot, map: u32, key: Slot) -> Result<(), CodeError> {
        let def = self.def(map, key, op)?;
        if let MapValue::Aggregate(_) = def.value {
            return Err(CodeError::BadOp { op, reason: "the bytes of an aggregate" });
        }
        let (absent, done) = (self.asm.label(), self.asm.label());
        self.find(op, map, key)?;
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, absent);
        self.asm.mov(KEPT, Reg::R0);
        let n = to.len.min(def.value_bytes());
        let destination = self.base(self.plan.frame, to.at);
        self.copy_bytes(destination, (KEPT, first_word(&def)), n);
        self.zero_rest(to, n);
        self.asm.jump(done);
        self.asm.bind(absent);
        self.zero(to);
        self.asm.bind(done);
        Ok(())
    }

    fn map_write(&mut self, op: usize, map: u32, key: Slot, from: Slot) -> Result<(), CodeError> {
        let def = self.def(map, key, op)?;
        let size = def.value_bytes();
        if def.key_bytes() > 0 && from.len >= size {
            return self.update(map, key, op, |gen_| gen_.slot_address(Reg::R3, from));
        }
        let (full, done) = (self.asm.label(), self.asm.label());
        self.find_or_make(op, map, key, full)?;
        self.asm.mov(KEPT, Reg::R0);
        let n = from.len.min(size);
        let first = first_word(&def);
        let source = self.base(self.plan.frame, from.at);
        self.copy_bytes((KEPT, first), source, n);
        for at in n..size {
            self.asm.store_imm(Width::W8, KEPT, first + at as i16, 0);
        }
        self.full_unless(full, done, &def);
        Ok(())
    }

    fn map_delete(&mut self, op: usize, map: u32, key: Slot) -> Result<(), CodeError> {
        let def = self.def(map, key, op)?;
        if def.key_bytes() > 0 {
            let fd = self.map(map, op)?.1;
            self.key(key);
            self.asm.load_map(Reg::R1, fd);
            self.asm.call(Helper::MapDeleteElem);
            return Ok(());
        }
        let size = def.value_bytes() + PRESENCE_BYTES;
        match def.value {
            MapValue::Plain(_) | MapValue::Series(_) => {
                let absent = self.asm.label();
                self.find(op, map, key)?;
                self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, absent);
                self.clear_value(size);
                self.asm.bind(absent);
            }
            MapValue::Aggregate(_) => {
                self.each_share(op, map, key, |gen_, _| gen_.clear_value(size))?;
            }
        }
        Ok(())
    }

    /// Zeros at R0.
    fn clear_value(&mut self, size: u32) {
        if size > 128 {
            self.asm.mov(Reg::R1, Reg::R0);
            self.asm.mov_imm(Reg::R2, size as i32);
            self.asm.mov_imm(Reg::R3, 0);
            self.asm.call(Helper::ProbeReadKernel);
        } else {
            for at in (0..size).step_by(8) {
                self.asm.store_imm(Width::W64, Reg::R0, at as i16, 0);
            }
        }
    }

    /// Runs `body` with R0 at every CPU's share. The CPU is counted in temp 5.
    fn each_share(
        &mut self,
        op: usize,
        map: u32,
        key: Slot,
        body: impl FnOnce(&mut Self, Label),
    ) -> Result<(), CodeError> {
        let fd = self.map(map, op)?.1;
        let (head, next, out) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.opaque_zero(Reg::R1);
        self.store_temp(5, Reg::R1);
        self.asm.bind(head);
        self.may_goto(out);
        self.load_temp(Reg::R3, 5);
        self.asm.jump_if_imm(Cond::Ge, Reg::R3, self.spec.n_cpus as i32, out);
        self.key(key);
        self.asm.load_map(Reg::R1, fd);
        self.asm.call(Helper::MapLookupPercpuElem);
        self.asm.jump_if_imm(Cond::Eq, Reg::R0, 0, next);
        body(self, next);
        self.asm.bind(next);
        self.load_temp(Reg::R1, 5);
        self.asm.alu_imm(Alu::Add, Reg::R1, 1);
        self.store_temp(5, Reg::R1);
        self.asm.jump(head);
        self.asm.bind(out);
        Ok(())
    }

    /// R0 = the number an aggregate stands for over all CPUs, R1 = 1 if there is one. Uses temps 2, 3 and 4.
    pub(super) fn aggregate_number(
        &mut self,
        op: usize,
        map: u32,
        key: Slot,
        aggregate: Aggregate,
    ) -> Result<(), CodeError> {
        let def = self.map(map, op)?.0;
        let first = first_word(def);
        let has_key = def.key_bytes() > 0;
        // Is there one; first and second number.
        const IS_THERE: usize = 2;
        const FIRST: usize = 3;
        const SECOND: usize = 4;
        for temp in [IS_THERE, FIRST, SECOND] {
            self.asm.store_imm(Width::W64, Reg::R10, TEMP[temp], 0);
        }
        let n_words = aggregate.n_words();
        self.each_share(op, map, key, |gen_, next| {
            if has_key {
                gen_.asm.store_imm(Width::W64, Reg::R10, TEMP[IS_THERE], 1);
            } else {
                gen_.asm.load(Width::W64, Reg::R1, Reg::R0, 0);
                gen_.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, next);
                gen_.store_temp(IS_THERE, Reg::R1);
            }
            let add = |gen_: &mut Self, temp: usize, offset: i16| {
                gen_.load_temp(Reg::R1, temp);
                gen_.asm.load(Width::W64, Reg::R2, Reg::R0, offset);
                gen_.asm.alu(Alu::Add, Reg::R1, Reg::R2);
                gen_.store_temp(temp, Reg::R1);
            };
            match aggregate {
                Aggregate::Count | Aggregate::Sum { .. } => add(gen_, FIRST, first),
                Aggregate::Avg { .. } | Aggregate::Stats { .. } => {
                    add(gen_, FIRST, first);
                    add(gen_, SECOND, first + 8);
                }
                Aggregate::Min { .. } | Aggregate::Max { .. } => {
                    add(gen_, FIRST, first);
                    let worse = gen_.asm.label();
                    gen_.load_temp(Reg::R1, SECOND);
                    gen_.asm.load(Width::W64, Reg::R2, Reg::R0, first + 8);
                    gen_.asm.jump_if(Cond::Ge, Reg::R1, Reg::R2, worse);
                    gen_.store_temp(SECOND, Reg::R2);
                    gen_.asm.bind(worse);
                }
                Aggregate::Hist { .. } | Aggregate::Lhist { .. } => gen_.add_words(FIRST, first, n_words),
                Aggregate::Quantiles { .. } => gen_.add_words(FIRST, first + 8, n_words - 1),
            }
        })?;
        match aggregate {
            Aggregate::Avg { is_signed } | Aggregate::Stats { is_signed } => {
                self.load_temp(Reg::R1, SECOND);
                self.load_temp(Reg::R2, FIRST);
                self.binary(if is_signed {
                    nopal_program::op::Binary::DivSigned
                } else {
                    nopal_program::op::Binary::DivUnsigned
                });
                self.asm.mov(Reg::R0, Reg::R1);
            }
            Aggregate::Min { .. } | Aggregate::Max { .. } => {
                let none = self.asm.label();
                self.asm.mov_imm(Reg::R0, 0);
                self.load_temp(Reg::R1, FIRST);
                self.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, none);
                self.load_temp(Reg::R0, SECOND);
                self.constant(Reg::R1, extreme_mask(aggregate) as i64);
                self.asm.alu(Alu::Xor, Reg::R0, Reg::R1);
                self.asm.bind(none);
            }
            Aggregate::Count
            | Aggregate::Sum { .. }
            | Aggregate::Hist { .. }
            | Aggregate::Lhist { .. }
            | Aggregate::Quantiles { .. } => self.load_temp(Reg::R0, FIRST),
        }
        self.load_temp(Reg::R1, IS_THERE);
        Ok(())
    }

    /// Adds the `n` words at R0 + `first` to a temp.
    fn add_words(&mut self, temp: usize, first: i16, n: u32) {
        self.load_temp(Reg::R3, temp);
        if n <= 80 {
            for word in 0..n as i16 {
                self.asm.load(Width::W64, Reg::R2, Reg::R0, first + word * 8);
                self.asm.alu(Alu::Add, Reg::R3, Reg::R2);
            }
        } else {
            self.asm.mov(Reg::R4, Reg::R0);
            self.each_byte(n, |gen_, _| {
                gen_.asm.mov(Reg::R1, KEPT);
                gen_.asm.alu_imm(Alu::Lsh, Reg::R1, 3);
                gen_.asm.mov(Reg::R2, Reg::R4);
                gen_.asm.alu(Alu::Add, Reg::R2, Reg::R1);
                gen_.asm.load(Width::W64, Reg::R2, Reg::R2, first);
                gen_.asm.alu(Alu::Add, Reg::R3, Reg::R2);
            });
        }
        self.store_temp(temp, Reg::R3);
    }

    fn aggregate(&mut self, op: usize, map: u32, key: Slot, value: u16) -> Result<(), CodeError> {
        let def = self.def(map, key, op)?;
        let MapValue::Aggregate(aggregate) = def.value else {
            return Err(CodeError::BadOp { op, reason: "the map is not an aggregate" });
        };
        if aggregate.n_words() > MAX_AGGREGATE_WORDS {
            return Err(CodeError::AggregateTooLarge { map: def.name.clone(), n_words: aggregate.n_words() });
        }
        let first = first_word(&def);
        let (full, done) = (self.asm.label(), self.asm.label());
        self.find_or_make(op, map, key, full)?;
        self.load(Reg::R1, value);
        match aggregate {
            Aggregate::Count => {
                self.asm.mov_imm(Reg::R1, 1);
                self.asm.atomic_add64(Reg::R0, first, Reg::R1);
            }
            Aggregate::Sum { .. } => self.asm.atomic_add64(Reg::R0, first, Reg::R1),
            Aggregate::Avg { .. } | Aggregate::Stats { .. } => {
                self.asm.atomic_add64(Reg::R0, first + 8, Reg::R1);
                self.asm.mov_imm(Reg::R1, 1);
                self.asm.atomic_add64(Reg::R0, first, Reg::R1);
            }
            Aggregate::Min { .. } | Aggregate::Max { .. } => {
                self.constant(Reg::R2, extreme_mask(aggregate) as i64);
                self.asm.alu(Alu::Xor, Reg::R1, Reg::R2);
                self.asm.mov(Reg::R3, Reg::R0);
                self.asm.mov_imm(Reg::R2, 1);
                self.asm.atomic_add64(Reg::R3, first, Reg::R2);
                self.raise(first + 8);
            }
            Aggregate::Hist { bits } => {
                self.hist_bucket(bits);
                self.bump(first, aggregate.n_words());
            }
            Aggregate::Lhist { min, max, step } => {
                if step <= 0 {
                    return Err(CodeError::BadOp { op, reason: "buckets without a width" });
                }
                self.lhist_bucket(min, max, step, aggregate.n_words());
                self.bump(first, aggregate.n_words());
            }
            Aggregate::Quantiles { bits } => {
                self.asm.mov(Reg::R3, Reg::R0);
                self.asm.mov(Reg::R5, Reg::R1);
                let positive = self.asm.label();
                self.asm.jump_if_imm(Cond::SGe, Reg::R1, 0, positive);
                self.asm.mov_imm(Reg::R1, 0);
                self.asm.bind(positive);
                self.raise(first);
                self.asm.mov(Reg::R0, Reg::R3);
                self.asm.mov(Reg::R1, Reg::R5);
                self.hist_bucket(bits);
                self.bump(first + 8, aggregate.n_words() - 1);
            }
        }
        self.full_unless(full, done, &def);
        Ok(())
    }

    /// Makes the word at R3 + `at` at least R1. Clobbers R0 and R4.
    fn raise(&mut self, at: i16) {
        let done = self.asm.label();
        for _ in 0..TRIES {
            self.asm.load(Width::W64, Reg::R0, Reg::R3, at);
            self.asm.jump_if(Cond::Ge, Reg::R0, Reg::R1, done);
            self.asm.mov(Reg::R4, Reg::R0);
            self.asm.atomic_compare_exchange64(Reg::R3, at, Reg::R1);
            self.asm.jump_if(Cond::Eq, Reg::R0, Reg::R4, done);
        }
        self.asm.bind(done);
    }

    /// Adds one to word R1 of those at R0 + `first`.
    fn bump(&mut self, first: i16, n_words: u32) {
        let outside = self.asm.label();
        self.asm.jump_if_imm(Cond::Ge, Reg::R1, n_words as i32, outside);
        self.asm.alu_imm(Alu::Lsh, Reg::R1, 3);
        self.asm.alu(Alu::Add, Reg::R0, Reg::R1);
        self.asm.mov_imm(Reg::R1, 1);
        self.asm.atomic_add64(Reg::R0, first, Reg::R1);
        self.asm.bind(outside);
    }

    /// R1 = the bucket of R1. Clobbers R2 to R4.
    fn hist_bucket(&mut self, bits: u8) {
        let (below, small, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let bits = i32::from(bits);
        self.asm.jump_if_imm(Cond::SLt, Reg::R1, 0, below);
        self.asm.jump_if_imm(Cond::Lt, Reg::R1, 1 << bits, small);
        // R2: the octave, found by halves.
        self.asm.mov(Reg::R3, Reg::R1);
        self.asm.mov_imm(Reg::R2, 0);
        for step in [32, 16, 8, 4, 2, 1] {
            let lower = self.asm.label();
            self.asm.mov(Reg::R4, Reg::R3);
            self.asm.alu_imm(Alu::Rsh, Reg::R4, step);
            self.asm.jump_if_imm(Cond::Eq, Reg::R4, 0, lower);
            self.asm.mov(Reg::R3, Reg::R4);
            self.asm.alu_imm(Alu::Add, Reg::R2, step);
            self.asm.bind(lower);
        }
        self.asm.alu_imm(Alu::Sub, Reg::R2, bits);
        self.asm.alu(Alu::Rsh, Reg::R1, Reg::R2);
        self.asm.alu_imm(Alu::And, Reg::R1, (1 << bits) - 1);
        self.asm.alu_imm(Alu::Add, Reg::R2, 1);
        self.asm.alu_imm(Alu::Lsh, Reg::R2, bits);
        self.asm.alu(Alu::Add, Reg::R1, Reg::R2);
        self.asm.bind(small);
        self.asm.alu_imm(Alu::Add, Reg::R1, 1);
        self.asm.jump(done);
        self.asm.bind(below);
        self.asm.mov_imm(Reg::R1, 0);
        self.asm.bind(done);
    }

    /// R1 = the bucket of R1. Clobbers R2.
    fn lhist_bucket(&mut self, min: i64, max: i64, step: i64, n_words: u32) {
        let (below, above, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.constant(Reg::R2, min);
        self.asm.jump_if(Cond::SLt, Reg::R1, Reg::R2, below);
        self.asm.mov(Reg::R3, Reg::R1);
        self.asm.alu(Alu::Sub, Reg::R3, Reg::R2);
        self.constant(Reg::R2, max);
        self.asm.jump_if(Cond::SGe, Reg::R1, Reg::R2, above);
        self.constant(Reg::R2, step);
        self.asm.mov(Reg::R1, Reg::R3);
        self.asm.alu(Alu::Div, Reg::R1, Reg::R2);
        self.asm.alu_imm(Alu::Add, Reg::R1, 1);
        self.asm.jump(done);
        self.asm.bind(below);
        self.asm.mov_imm(Reg::R1, 0);
        self.asm.jump(done);
        self.asm.bind(above);
        self.asm.mov_imm(Reg::R1, n_words as i32 - 1);
        self.asm.bind(done);
    }
}
