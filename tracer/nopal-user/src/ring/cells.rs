//! What stubs gathered in cells, over all CPUs.

use super::RingMemory;
use nopal_capture::cell::{Cell, identity};
use nopal_program::aggregate::Aggregate;
use std::sync::atomic::{AtomicU64, Ordering};

/// The contents of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellReading {
    /// Key and the words of its [`Aggregate`], for the keys that had hits, in rising order. Without a key: 0.
    pub keys: Vec<(i64, Vec<u64>)>,
    /// Hits whose key was outside the table; they are in none of the words.
    pub overflow: u64,
}

impl RingMemory {
    /// What all CPUs together have gathered in a cell so far. A cell outside the cells there are has nothing.
    pub fn read_cell(&self, cell: &Cell) -> CellReading {
        let mut reading = CellReading::default();
        let stride = u64::from(self.layout.cells_stride);
        if u64::from(cell.offset).saturating_add(cell.bytes()) > stride || !cell.offset.is_multiple_of(8) {
            return reading;
        }
        let n_words = cell.words();
        let first = cell.key.as_ref().map_or(0, |key| key.first);
        for index in 0..cell.n_keys() {
            let mut words = vec![0; cell.aggregate.n_words() as usize];
            let mut is_hit = false;
            for block in 0..self.n_blocks() {
                let at = u64::from(cell.offset) + 8 * n_words * index;
                let stored: Vec<u64> =
                    (0..n_words).map(|word| self.cell_word(block, at + 8 * word)).collect();
                if let Some(one) = decode(cell.aggregate, stored) {
                    cell.aggregate.merge(&mut words, &one);
                    is_hit = true;
                }
            }
            if is_hit {
                reading.keys.push((first.wrapping_add(index as i64), words));
            }
        }
        if cell.key.is_some() {
            let at = u64::from(cell.offset) + cell.bytes() - 8;
            let hits = (0..self.n_blocks()).map(|block| self.cell_word(block, at));
            reading.overflow = hits.fold(0, u64::wrapping_add);
        }
        reading
    }

    /// Sets a cell back to nothing. Hits that come meanwhile may be in it or not.
    pub fn clear_cell(&self, cell: &Cell) {
        let end = u64::from(cell.offset).saturating_add(cell.bytes());
        if end > u64::from(self.layout.cells_stride) || !cell.offset.is_multiple_of(8) {
            return;
        }
        for block in 0..self.n_blocks() {
            for at in (u64::from(cell.offset)..end).step_by(8) {
                self.cell_at(block, at).store(0, Ordering::Relaxed);
            }
        }
    }

    /// A block for each CPU, twice: rseq and locked.
    fn n_blocks(&self) -> u64 {
        2 * u64::from(self.layout.n_cpus)
    }

    fn cell_word(&self, block: u64, offset: u64) -> u64 {
        self.cell_at(block, offset).load(Ordering::Relaxed)
    }

    fn cell_at(&self, block: u64, offset: u64) -> &AtomicU64 {
        let stride = u64::from(self.layout.cells_stride);
        assert!(
            block < self.n_blocks() && offset + 8 <= stride,
            "callers checked the cell against the stride"
        );
        let at = self.layout.cells_offset + block * stride + offset;
        // SAFETY: inside the cells by the check above, 8-aligned as offset, stride and cells_offset are.
        unsafe { &*self.mapping.start().add(at as usize).cast::<AtomicU64>() }
    }
}

/// The aggregate's own words of what a block holds; `None` if it had no hit.
fn decode(aggregate: Aggregate, mut stored: Vec<u64>) -> Option<Vec<u64>> {
    let is_hit = match aggregate {
        Aggregate::Count
        | Aggregate::Avg { .. }
        | Aggregate::Min { .. }
        | Aggregate::Max { .. }
        | Aggregate::Stats { .. } => stored[0] > 0,
        Aggregate::Sum { .. } => stored.pop() != Some(0),
        Aggregate::Hist { .. } | Aggregate::Lhist { .. } => stored.iter().any(|n| *n > 0),
        Aggregate::Quantiles { .. } => stored[1..].iter().any(|n| *n > 0),
    };
    match aggregate {
        Aggregate::Min { is_signed } => stored[1] ^= identity(is_signed, false),
        Aggregate::Max { is_signed } => stored[1] ^= identity(is_signed, true),
        Aggregate::Count
        | Aggregate::Sum { .. }
        | Aggregate::Avg { .. }
        | Aggregate::Stats { .. }
        | Aggregate::Hist { .. }
        | Aggregate::Lhist { .. }
        | Aggregate::Quantiles { .. } => {}
    }
    is_hit.then_some(stored)
}
