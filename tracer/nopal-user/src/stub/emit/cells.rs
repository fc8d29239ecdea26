//! The code that updates the cells of aggregates, see [`nopal_capture::cell`]. Reading them is in
//! [`ring`](crate::ring).
//!
//! Each word is updated by one instruction in a restartable sequence of its own, or by a locked one where a thread has no
//! such sequences.

use nopal_capture::cell::{Cell, identity};
use nopal_program::aggregate::{Aggregate, n_lhist_buckets};

use super::Stubber;
use crate::stub::StubError;
use crate::stub::asm::{Alu, Cond, Label, Mem, RAX, RCX, RDX, RSP, Reg, Width, at};
use crate::stub::locked::cpu_by_segment;

/// What happens to one word.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// One more.
    Increment,
    /// One more in the word that `position` counts from here.
    IncrementAt,
    /// `position` more; the word behind it becomes 1.
    Add,
    /// `position` more.
    AddAlone,
    /// `position`, if it is better.
    Extreme { is_signed: bool, is_max: bool },
}

impl Stubber<'_> {
    /// Updates one cell. A hit whose key is not in its table is counted behind it.
    pub(super) fn update(&mut self, cell: &Cell) -> Result<(), StubError> {
        let [overflow, done] = [self.asm.label(), self.asm.label()];
        self.find_key(cell, overflow)?;
        self.update_words(cell)?;
        if cell.key.is_some() {
            self.asm.jmp(done);
            self.asm.bind(overflow);
            let last = cell.offset + cell.bytes() as u32 - 8;
            self.step(last, false, Step::Increment);
        } else {
            self.asm.bind(overflow);
        }
        self.asm.bind(done);
        Ok(())
    }

    /// Updates all cells, or none and goes to `outside` if a key is not in its table.
    pub(super) fn update_all_or(&mut self, cells: &[Cell], outside: Label) -> Result<(), StubError> {
        let (keyed, plain): (Vec<&Cell>, Vec<&Cell>) = cells.iter().partition(|cell| cell.key.is_some());
        // All keys before the first change. A key that is alone is looked at once.
        if keyed.len() > 1 {
            for cell in &keyed {
                self.find_key(cell, outside)?;
            }
        }
        for cell in keyed.into_iter().chain(plain) {
            self.find_key(cell, outside)?;
            self.update_words(cell)?;
        }
        Ok(())
    }

    /// Keeps how far the key's words are from the first ones, or goes to `outside`.
    fn find_key(&mut self, cell: &Cell, outside: Label) -> Result<(), StubError> {
        let bad = StubError::BadCell { offset: cell.offset };
        let end = u64::from(cell.offset).saturating_add(cell.bytes());
        let stride = u64::from(self.around.layout.cells_stride);
        if !cell.offset.is_multiple_of(8) || cell.n_keys() == 0 || end > stride {
            return Err(bad);
        }
        if let Aggregate::Lhist { min, max, step } = cell.aggregate
            && (step < 1 || max < min)
        {
            return Err(bad);
        }
        if let Some(key) = &cell.key {
            self.frame.load(&mut self.asm, &key.operand, RAX, RDX)?;
            let asm = &mut self.asm;
            if key.first != 0 {
                asm.mov_imm(RDX, key.first as u64);
                asm.alu(Alu::Sub, RAX, RDX);
            }
            asm.alu_imm(Alu::Cmp, RAX, key.n_keys as i32);
            asm.jcc(Cond::AboveEqual, outside);
            asm.multiply(RAX, 8 * cell.words() as i32);
            asm.store(at(RSP, self.keep_at), RAX, Width::B8);
        }
        Ok(())
    }

    fn update_words(&mut self, cell: &Cell) -> Result<(), StubError> {
        for (word, step) in self.steps(cell)? {
            self.load_position(cell, word)?;
            self.step(cell.offset + 8 * word, cell.key.is_some(), step);
        }
        Ok(())
    }

    /// The words to be updated, in this order: who sees a count of 1 finds the rest there.
    fn steps(&self, cell: &Cell) -> Result<Vec<(u32, Step)>, StubError> {
        if cell.aggregate != Aggregate::Count && cell.value.is_none() {
            return Err(StubError::BadCell { offset: cell.offset });
        }
        let extreme = |is_signed, is_max| Step::Extreme { is_signed, is_max };
        Ok(match cell.aggregate {
            Aggregate::Count => vec![(0, Step::Increment)],
            Aggregate::Sum { .. } => vec![(0, Step::Add)],
            Aggregate::Avg { .. } | Aggregate::Stats { .. } => {
                vec![(1, Step::AddAlone), (0, Step::Increment)]
            }
            Aggregate::Min { is_signed } => vec![(1, extreme(is_signed, false)), (0, Step::Increment)],
            Aggregate::Max { is_signed } => vec![(1, extreme(is_signed, true)), (0, Step::Increment)],
            Aggregate::Hist { .. } | Aggregate::Lhist { .. } => vec![(0, Step::IncrementAt)],
            Aggregate::Quantiles { .. } => vec![(0, extreme(false, true)), (1, Step::IncrementAt)],
        })
    }

    /// What a step needs of the value: itself, or the number of its bucket.
    fn load_position(&mut self, cell: &Cell, word: u32) -> Result<(), StubError> {
        let Some(value) = &cell.value else { return Ok(()) };
        let position = self.position;
        match cell.aggregate {
            Aggregate::Count => {}
            Aggregate::Sum { .. }
            | Aggregate::Avg { .. }
            | Aggregate::Stats { .. }
            | Aggregate::Min { .. }
            | Aggregate::Max { .. } => {
                if word == 1 || matches!(cell.aggregate, Aggregate::Sum { .. }) {
                    self.frame.load(&mut self.asm, value, position, RAX)?;
                }
            }
            Aggregate::Hist { bits } => {
                self.frame.load(&mut self.asm, value, RAX, RDX)?;
                self.bucket(position, bits);
            }
            Aggregate::Lhist { min, max, step } => {
                self.frame.load(&mut self.asm, value, RAX, RDX)?;
                self.linear_bucket(position, min, max, step);
            }
            Aggregate::Quantiles { .. } if word == 0 => {
                self.frame.load(&mut self.asm, value, position, RAX)?;
                let positive = self.asm.label();
                self.asm.test(position, position);
                self.asm.jcc(Cond::GreaterEqual, positive);
                self.asm.clear(position);
                self.asm.bind(positive);
            }
            Aggregate::Quantiles { bits } => {
                self.frame.load(&mut self.asm, value, RAX, RDX)?;
                self.bucket(position, bits);
            }
        }
        Ok(())
    }

    /// One word of this CPU's block, both ways.
    fn step(&mut self, offset: u32, is_keyed: bool, step: Step) {
        let layout = self.around.layout;
        let (state, position) = (self.state, self.position);
        let [slow, done] = [self.asm.label(), self.asm.label()];
        let index = matches!(step, Step::IncrementAt).then_some((position, 8));
        let word = Mem::At { base: state, index, disp: offset as i32 };
        if let Step::Extreme { is_signed, is_max } = step {
            self.asm.mov_imm(RDX, identity(is_signed, is_max));
        }

        let section = self.begin_section(slow);
        self.find_cell(layout.cells_offset, is_keyed);
        let asm = &mut self.asm;
        match step {
            Step::Increment | Step::IncrementAt => asm.inc(word),
            Step::Add | Step::AddAlone => asm.add_to(word, position, false),
            Step::Extreme { is_signed, is_max } => {
                asm.load64(RAX, word);
                asm.alu(Alu::Xor, RAX, RDX);
                asm.alu(Alu::Cmp, position, RAX);
                asm.jcc(worse(is_signed, is_max), done);
                asm.mov(RAX, position);
                asm.alu(Alu::Xor, RAX, RDX);
                asm.store(word, RAX, Width::B8);
            }
        }
        self.end_section(section);
        self.asm.jmp(done);

        self.asm.bind(slow);
        cpu_by_segment(&mut self.asm, self.around);
        self.asm.mov32(RAX, RCX);
        let locked = layout.cells_offset + u64::from(layout.n_cpus) * u64::from(layout.cells_stride);
        self.find_cell(locked, is_keyed);
        let asm = &mut self.asm;
        match step {
            Step::Increment | Step::IncrementAt => asm.lock_inc(word),
            Step::Add | Step::AddAlone => asm.add_to(word, position, true),
            Step::Extreme { is_signed, is_max } => {
                let again = asm.here();
                asm.load64(RCX, word);
                asm.mov(RAX, RCX);
                asm.alu(Alu::Xor, RCX, RDX);
                asm.alu(Alu::Cmp, position, RCX);
                asm.jcc(worse(is_signed, is_max), done);
                asm.mov(RCX, position);
                asm.alu(Alu::Xor, RCX, RDX);
                asm.lock_cmpxchg(word, RCX, Width::B8);
                asm.jcc(Cond::NotEqual, again);
            }
        }
        self.asm.bind(done);
        if matches!(step, Step::Add) {
            // Says the same whoever stores it, so that it need not be part of the sequence.
            self.asm.store_imm(at(state, offset as i32 + 8), 1, Width::B8);
        }
    }

    /// `state` becomes the block of the CPU in `%rax`, which is spoilt, in the cells at `offset`, moved by the key.
    pub(super) fn find_cell(&mut self, offset: u64, is_keyed: bool) {
        let asm = &mut self.asm;
        asm.multiply(RAX, self.around.layout.cells_stride as i32);
        asm.mov_imm(self.state, self.around.ring + offset);
        asm.alu(Alu::Add, self.state, RAX);
        if is_keyed {
            asm.alu_mem(Alu::Add, self.state, at(RSP, self.keep_at));
        }
    }

    /// The [`hist_bucket`](nopal_program::aggregate::hist_bucket) of the value in `%rax`. Spoils `%rcx`.
    pub(super) fn bucket(&mut self, to: Reg, bits: u8) {
        let done = self.asm.label();
        self.asm.clear(to);
        self.asm.test(RAX, RAX);
        self.asm.jcc(Cond::Sign, done);
        self.bucket_from_0(to, bits);
        self.asm.alu_imm32(Alu::Add, to, 1);
        self.asm.bind(done);
    }

    /// The same of a value that is not negative, without the bucket for those that are.
    pub(super) fn bucket_from_0(&mut self, to: Reg, bits: u8) {
        let asm = &mut self.asm;
        let small = asm.label();
        asm.mov(to, RAX);
        asm.alu_imm(Alu::Cmp, RAX, 1 << bits);
        asm.jcc(Cond::Below, small);
        // (octave - bits) << bits, and the highest 1 + bits bits of the value.
        asm.highest_bit(RCX, RAX);
        if bits > 0 {
            asm.alu_imm32(Alu::Sub, RCX, i32::from(bits));
            asm.shr_cl(to);
            asm.shl(RCX, bits);
            asm.alu(Alu::Add, to, RCX);
        } else {
            asm.mov32(to, RCX);
            asm.alu_imm32(Alu::Add, to, 1);
        }
        asm.bind(small);
    }

    /// The [`lhist_bucket`](nopal_program::aggregate::lhist_bucket) of the value in `%rax`. Spoils `%rcx` and `%rdx`.
    fn linear_bucket(&mut self, to: Reg, min: i64, max: i64, step: i64) {
        let asm = &mut self.asm;
        let done = asm.label();
        asm.clear(to);
        asm.mov_imm(RCX, min as u64);
        asm.alu(Alu::Cmp, RAX, RCX);
        asm.jcc(Cond::Less, done);
        asm.mov_imm(to, u64::from(n_lhist_buckets(min, max, step) - 1));
        asm.mov_imm(RDX, max as u64);
        asm.alu(Alu::Cmp, RAX, RDX);
        asm.jcc(Cond::GreaterEqual, done);
        asm.alu(Alu::Sub, RAX, RCX);
        if (step as u64).is_power_of_two() {
            asm.shr(RAX, step.trailing_zeros() as u8);
        } else {
            asm.clear(RDX);
            asm.mov_imm(RCX, step as u64);
            asm.divide(RCX);
        }
        asm.lea(to, at(RAX, 1));
        asm.bind(done);
    }
}

/// When a value, compared with the best so far, is no better.
fn worse(is_signed: bool, is_max: bool) -> Cond {
    match (is_signed, is_max) {
        (false, false) => Cond::AboveEqual,
        (true, false) => Cond::GreaterEqual,
        (false, true) => Cond::BelowEqual,
        (true, true) => Cond::LessEqual,
    }
}
