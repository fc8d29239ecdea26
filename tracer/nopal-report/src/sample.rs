//! A few spans of each cell of time: the slowest with all that is known of them, and some that chance picks.

use std::collections::BTreeMap;

const N_SLOWEST: usize = 12;
const N_PICKED: usize = 40;

/// A span as a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub end_ns: i64,
    pub duration_ns: u64,
    pub kind: u32,
    pub thread: u32,
    pub is_error: bool,
}

/// One of the slowest.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    pub point: Point,
    pub self_ns: u64,
    pub key: Option<String>,
    /// In one line.
    pub fields: String,
}

#[derive(Debug, Default)]
struct OfCell {
    /// In no order; the least of them is `least`.
    slowest: Vec<Slow>,
    /// With the numbers that chance gave them: those with the least stay.
    picked: Vec<(u64, Point)>,
}

impl OfCell {
    fn least(&self) -> Option<u64> {
        let is_full = self.slowest.len() >= N_SLOWEST;
        is_full.then(|| self.slowest.iter().map(|slow| slow.point.duration_ns).min()).flatten()
    }

    fn shrink(&mut self) {
        self.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.point.duration_ns));
        self.slowest.truncate(N_SLOWEST);
        self.picked.sort_by_key(|(number, _)| *number);
        self.picked.truncate(N_PICKED);
    }
}

/// The samples of all cells.
#[derive(Debug)]
pub(crate) struct Samples {
    cells: BTreeMap<u32, OfCell>,
    random: u64,
}

impl Default for Samples {
    fn default() -> Self {
        // The same recording gives the same page.
        Samples { cells: BTreeMap::new(), random: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl Samples {
    /// Whether a span of this cell is among the slowest so far.
    pub(crate) fn is_slow(&self, cell: u32, duration_ns: u64) -> bool {
        self.cells.get(&cell).and_then(OfCell::least).is_none_or(|least| duration_ns > least)
    }

    pub(crate) fn add(&mut self, cell: u32, point: Point, slow: impl FnOnce() -> Slow) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let of_cell = self.cells.entry(cell).or_default();
        if of_cell.least().is_none_or(|least| point.duration_ns > least) {
            of_cell.slowest.push(slow());
            if of_cell.slowest.len() > N_SLOWEST {
                let least = of_cell.slowest.iter().enumerate().min_by_key(|(_, slow)| slow.point.duration_ns);
                if let Some((at, _)) = least {
                    of_cell.slowest.swap_remove(at);
                }
            }
        }
        if of_cell.picked.len() < N_PICKED {
            of_cell.picked.push((self.random, point));
        } else if let Some(worst) = of_cell.picked.iter_mut().max_by_key(|(number, _)| *number)
            && worst.0 > self.random
        {
            *worst = (self.random, point);
        }
    }

    pub(crate) fn halve(&mut self) {
        for (at, cell) in std::mem::take(&mut self.cells) {
            let of_cell = self.cells.entry(at / 2).or_default();
            of_cell.slowest.extend(cell.slowest);
            of_cell.picked.extend(cell.picked);
            of_cell.shrink();
        }
    }

    pub(crate) fn slowest(&self) -> impl Iterator<Item = &Slow> {
        self.cells.values().flat_map(|cell| &cell.slowest)
    }

    pub(crate) fn picked(&self) -> impl Iterator<Item = &Point> {
        self.cells.values().flat_map(|cell| cell.picked.iter().map(|(_, point)| point))
    }
}
