//! Time in cells of equal width. Their number is bounded: when the last one is passed, each two become one.

use serde::Serialize;
use std::collections::BTreeMap;

/// As many cells as there can be.
pub(crate) const MAX_CELLS: u32 = 384;
const FIRST_WIDTH_NS: u64 = 1000;

/// Where in time the cells lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ruler {
    pub base_ns: i64,
    pub width_ns: u64,
}

impl Ruler {
    pub(crate) fn new(base_ns: i64) -> Ruler {
        Ruler { base_ns, width_ns: FIRST_WIDTH_NS }
    }

    /// The cell of a time. What lies before the first event belongs to the first cell.
    pub(crate) fn cell(&self, ns: i64) -> u32 {
        let since = ns.saturating_sub(self.base_ns).max(0) as u64;
        u32::try_from(since / self.width_ns).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_beyond(&self, ns: i64) -> bool {
        self.cell(ns) >= MAX_CELLS
    }

    pub(crate) fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
    }
}

/// Spans that ended in one cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub count: u64,
    pub errors: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub max_ns: u64,
    /// Buckets that hold something, in order, and how much.
    pub buckets: Vec<(u16, u64)>,
}

/// Buckets of one power of two: a value read back is at most 1/32 (3 %) away.
const N_STEPS: u64 = 16;
const STEP_BITS: u32 = N_STEPS.trailing_zeros();

fn bucket(value: u64) -> u16 {
    if value < N_STEPS {
        return value as u16;
    }
    let power = value.ilog2();
    let step = (value >> (power - STEP_BITS)) & (N_STEPS - 1);
    (u64::from(power - STEP_BITS + 1) * N_STEPS + step) as u16
}

impl Cell {
    pub(crate) fn add(&mut self, duration_ns: u64, self_ns: u64, is_error: bool) {
        self.count += 1;
        self.errors += u64::from(is_error);
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.self_ns = self.self_ns.saturating_add(self_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        self.put(bucket(duration_ns), 1);
    }

    fn put(&mut self, bucket: u16, n: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(at, _)| *at) {
            Ok(at) => self.buckets[at].1 += n,
            Err(at) => self.buckets.insert(at, (bucket, n)),
        }
    }

    fn merge(&mut self, other: &Cell) {
        self.count += other.count;
        self.errors += other.errors;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.self_ns = self.self_ns.saturating_add(other.self_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        other.buckets.iter().for_each(|(bucket, n)| self.put(*bucket, *n));
    }
}

/// The cells of one kind of span that hold something.
#[derive(Debug, Default)]
pub(crate) struct Series(pub BTreeMap<u32, Cell>);

impl Series {
    pub(crate) fn add(&mut self, cell: u32, duration_ns: u64, self_ns: u64, is_error: bool) {
        self.0.entry(cell).or_default().add(duration_ns, self_ns, is_error);
    }

    /// Each two cells become one.
    pub(crate) fn halve(&mut self) {
        for (at, cell) in std::mem::take(&mut self.0) {
            self.0.entry(at / 2).or_default().merge(&cell);
        }
    }
}

/// A series as the page reads it: a number for each cell that holds something.
#[derive(Debug, Serialize)]
pub(crate) struct SeriesData {
    at: Vec<u32>,
    count: Vec<u64>,
    errors: Vec<u64>,
    total: Vec<u64>,
    #[serde(rename = "self")]
    self_time: Vec<u64>,
    max: Vec<u64>,
    /// By cell: bucket, number, bucket, number.
    hist: Vec<Vec<u64>>,
}

impl From<&Series> for SeriesData {
    fn from(series: &Series) -> SeriesData {
        let of = |get: fn(&Cell) -> u64| series.0.values().map(get).collect();
        SeriesData {
            at: series.0.keys().copied().collect(),
            count: of(|cell| cell.count),
            errors: of(|cell| cell.errors),
            total: of(|cell| cell.total_ns),
            self_time: of(|cell| cell.self_ns),
            max: of(|cell| cell.max_ns),
            hist: series
                .0
                .values()
                .map(|cell| cell.buckets.iter().flat_map(|(at, n)| [u64::from(*at), *n]).collect())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lower bound of a bucket, as the page computes it.
    fn low(bucket: u16) -> u64 {
        let (row, step) = (u64::from(bucket) / N_STEPS, u64::from(bucket) % N_STEPS);
        if row == 0 { step } else { (N_STEPS + step) << (row - 1) }
    }

    #[test]
    fn buckets_hold_their_values() {
        let powers = (4..64).flat_map(|power| [1u64 << power, (1 << power) + (1 << power) / 3]);
        for value in (0..2000).chain(powers).chain([u64::MAX]) {
            let at = bucket(value);
            assert!(low(at) <= value, "{value}");
            assert!(at == bucket(u64::MAX) || value < low(at + 1), "{value}");
            assert!((value - low(at)) as f64 <= value as f64 / 16.0, "{value}");
        }
    }

    #[test]
    fn halving_loses_nothing() {
        let (mut series, mut ruler) = (Series::default(), Ruler::new(1_000));
        let mut n_halved = 0;
        for n in 0..10_000u64 {
            let ns = 1_000 + (n * n) as i64;
            while ruler.is_beyond(ns) {
                ruler.halve();
                series.halve();
                n_halved += 1;
            }
            series.add(ruler.cell(ns), n, n / 2, n % 10 == 0);
        }
        assert!(n_halved > 5 && series.0.len() <= MAX_CELLS as usize);
        let sum = |get: fn(&Cell) -> u64| series.0.values().map(get).sum::<u64>();
        assert_eq!((sum(|c| c.count), sum(|c| c.errors)), (10_000, 1_000));
        assert_eq!(sum(|c| c.total_ns), (0..10_000).sum::<u64>());
        assert_eq!(sum(|c| c.buckets.iter().map(|(_, n)| n).sum()), 10_000);
        for (at, cell) in &series.0 {
            // What a cell holds is what ended in it.
            let ended = |n: u64| ruler.cell(1_000 + (n * n) as i64) == *at;
            assert_eq!(cell.count, (0..10_000).filter(|n| ended(*n)).count() as u64);
        }
    }
}
