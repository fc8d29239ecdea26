//! The N slowest of many: what is faster than all of them costs one comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps the items with the greatest values; of equal ones those that came first.
#[derive(Debug, Clone)]
pub struct Slowest<T> {
    heap: BinaryHeap<Reverse<Ranked<T>>>,
    n: usize,
    n_seen: u64,
}

#[derive(Debug, Clone)]
struct Ranked<T> {
    value: u64,
    order: Reverse<u64>,
    item: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.value, self.order) == (other.value, other.order)
    }
}
impl<T> Eq for Ranked<T> {}
impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.value, self.order).cmp(&(other.value, other.order))
    }
}

impl<T> Slowest<T> {
    pub fn new(n: usize) -> Slowest<T> {
        Slowest { heap: BinaryHeap::new(), n, n_seen: 0 }
    }

    /// How many are kept.
    pub fn wanted(&self) -> usize {
        self.n
    }

    /// What a value must exceed to be kept.
    pub fn threshold(&self) -> Option<u64> {
        if self.heap.len() < self.n { None } else { Some(self.heap.peek().map_or(u64::MAX, |r| r.0.value)) }
    }

    /// Keeps the item that `make` gives if `value` is among the greatest.
    #[inline]
    pub fn offer(&mut self, value: u64, make: impl FnOnce() -> T) {
        self.n_seen += 1;
        if self.threshold().is_some_and(|threshold| value <= threshold) {
            return;
        }
        self.heap.push(Reverse(Ranked { value, order: Reverse(self.n_seen), item: make() }));
        if self.heap.len() > self.n {
            self.heap.pop();
        }
    }

    /// The slowest first.
    pub fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(ranked)| ranked.item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_are_kept_and_of_equal_ones_the_first() {
        let mut slowest = Slowest::new(3);
        for (value, item) in [(5, 'a'), (9, 'b'), (5, 'c'), (1, 'd'), (9, 'e'), (5, 'f')] {
            slowest.offer(value, || item);
        }
        assert_eq!(slowest.threshold(), Some(5));
        assert_eq!(slowest.into_sorted(), ['b', 'e', 'a']);
        let mut none: Slowest<char> = Slowest::new(0);
        none.offer(7, || panic!("nothing is kept"));
        assert!(none.into_sorted().is_empty());
    }
}
