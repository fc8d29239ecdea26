//! Aggregates kept in per-CPU cells: the words of [`Aggregate`] for one value or for a table of small keys.
//!
//! ```text
//! offset                words of key `first`, of the next key, and so on; without a key only one
//! + n_keys * 8 * words  u64: hits whose key was none of them (with a key only)
//! ```
//!
//! The words are those of [`Aggregate`], but that a sum has a second one that says whether there is one, and that an
//! extreme is kept as its distance (exclusive or) from the worst value there is: cells begin as zeros.

use nopal_program::aggregate::Aggregate;
use nopal_sdt::operand::Operand;

/// What a hit adds to cells; `offset` is in each CPU's block and a multiple of 8.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub offset: u32,
    pub aggregate: Aggregate,
    /// What is gathered. A count needs none.
    pub value: Option<Operand>,
    pub key: Option<CellKey>,
}

/// Which of a table of cells a hit belongs to: that of `operand - first`, if that is below `n_keys`.
#[derive(Debug, Clone, PartialEq)]
pub struct CellKey {
    pub operand: Operand,
    pub first: i64,
    pub n_keys: u32,
}

impl Cell {
    pub fn count(offset: u32) -> Cell {
        Cell { offset, aggregate: Aggregate::Count, value: None, key: None }
    }

    pub fn new(offset: u32, aggregate: Aggregate, value: Operand) -> Cell {
        Cell { offset, aggregate, value: Some(value), key: None }
    }

    /// The same for each of `n_keys` keys from `first` on.
    pub fn by_key(self, operand: Operand, first: i64, n_keys: u32) -> Cell {
        Cell { key: Some(CellKey { operand, first, n_keys }), ..self }
    }

    /// Words of one key.
    pub fn words(&self) -> u64 {
        match self.aggregate {
            Aggregate::Sum { .. } => 2,
            // May be more than fit anywhere.
            Aggregate::Lhist { min, max, step } => {
                (max.wrapping_sub(min) as u64).div_ceil(step.max(1) as u64).saturating_add(2)
            }
            other => u64::from(other.n_words()),
        }
    }

    pub fn n_keys(&self) -> u64 {
        self.key.as_ref().map_or(1, |key| u64::from(key.n_keys))
    }

    /// Bytes in each CPU's block.
    pub fn bytes(&self) -> u64 {
        self.words()
            .saturating_mul(self.n_keys())
            .saturating_add(u64::from(self.key.is_some()))
            .saturating_mul(8)
    }

    /// Operands that a hit reads.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.value.iter().chain(self.key.iter().map(|key| &key.operand))
    }
}

/// The worst value of an extreme, which a cell of zeros stands for.
pub fn identity(is_signed: bool, is_max: bool) -> u64 {
    match (is_signed, is_max) {
        (false, false) => u64::MAX,
        (true, false) => i64::MAX as u64,
        (false, true) => 0,
        (true, true) => i64::MIN as u64,
    }
}
