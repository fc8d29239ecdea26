//! Spans kept one by one for the timeline. When there are too many, those that are short among their neighbours in time go;
//! of them it is kept how many there were, by thread and cell.

use crate::cells::Ruler;
use std::collections::BTreeMap;

/// Spans that a page can draw one by one.
pub(crate) const MAX_BARS: usize = 30_000;

/// A span as a bar of the timeline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    pub start_ns: i64,
    pub duration_ns: u64,
    pub kind: u32,
    pub thread: u32,
    pub depth: u32,
    pub key: Option<u32>,
    pub is_error: bool,
}

impl Bar {
    fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.duration_ns)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Bars {
    pub all: Vec<Bar>,
    /// By thread and cell: spans that are not drawn.
    pub left_out: BTreeMap<(u32, u32), u64>,
}

impl Bars {
    pub(crate) fn add(&mut self, bar: Bar, ruler: &Ruler) {
        self.all.push(bar);
        if self.all.len() > 2 * MAX_BARS {
            self.thin(ruler);
        }
    }

    /// Keeps the longest of each cell, as many of each as there is room for.
    pub(crate) fn thin(&mut self, ruler: &Ruler) {
        if self.all.len() <= MAX_BARS {
            return;
        }
        self.all.sort_by_key(|bar| (ruler.cell(bar.end_ns()), std::cmp::Reverse(bar.duration_ns)));
        let mut by_cell: BTreeMap<u32, usize> = BTreeMap::new();
        self.all.iter().for_each(|bar| *by_cell.entry(ruler.cell(bar.end_ns())).or_default() += 1);
        let quota = quota(by_cell.values().copied());
        let (mut cell, mut n) = (u32::MAX, 0);
        let left_out = &mut self.left_out;
        self.all.retain(|bar| {
            let at = ruler.cell(bar.end_ns());
            n = if at == cell { n + 1 } else { 1 };
            cell = at;
            if n > quota {
                *left_out.entry((bar.thread, at)).or_default() += 1;
            }
            n <= quota
        });
    }

    pub(crate) fn halve(&mut self) {
        for ((thread, at), n) in std::mem::take(&mut self.left_out) {
            *self.left_out.entry((thread, at / 2)).or_default() += n;
        }
    }
}

/// How many each cell may keep, so that all together have room.
fn quota(sizes: impl Iterator<Item = usize> + Clone) -> usize {
    let (mut low, mut high) = (1, MAX_BARS);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let sum: usize = sizes.clone().map(|size| size.min(middle)).sum();
        if sum <= MAX_BARS { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_the_longest_stay() {
        let ruler = Ruler { base_ns: 0, width_ns: 1_000_000 };
        let mut bars = Bars::default();
        const N: u64 = 200_000;
        for n in 0..N {
            let duration_ns = if n % 100 == 0 { 5_000 + n } else { n % 50 };
            let bar = Bar {
                start_ns: (n * 1000) as i64,
                duration_ns,
                kind: 0,
                thread: (n % 3) as u32,
                depth: 0,
                key: None,
                is_error: false,
            };
            bars.add(bar, &ruler);
        }
        bars.thin(&ruler);
        assert!(bars.all.len() <= MAX_BARS && bars.all.len() > MAX_BARS / 2, "{}", bars.all.len());
        assert_eq!(bars.all.len() as u64 + bars.left_out.values().sum::<u64>(), N);
        assert_eq!(bars.all.iter().filter(|bar| bar.duration_ns >= 5_000).count() as u64, N / 100);
    }

    #[test]
    fn a_cell_may_have_what_others_do_not_need() {
        assert_eq!(quota([10, 10, 10].into_iter()), MAX_BARS);
        assert_eq!(quota([MAX_BARS * 2, 10].into_iter()), MAX_BARS - 10);
    }
}
