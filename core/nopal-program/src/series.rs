//! Values by the interval of time in which they came: what `tseries()` gathers. The tracer keeps them; a hit hands over its
//! time, its value and its key.

use std::collections::BTreeMap;

/// What a map of time series keeps of each key: the newest `n` intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Series {
    pub interval_ns: u64,
    pub n: u32,
    pub how: How,
    pub is_signed: bool,
    /// Times are since the epoch already, given by the script.
    pub is_given_time: bool,
}

/// What becomes of several values of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    Last,
    Sum,
    Avg,
    Min,
    Max,
}

impl How {
    pub const NAMES: [(&'static str, How); 4] =
        [("avg", How::Avg), ("max", How::Max), ("min", How::Min), ("sum", How::Sum)];
}

/// Where the key lies in what a hit hands over: behind the time and the value, a u64 each.
pub const SERIES_KEY_AT: u32 = 16;

/// The values of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Points {
    /// By the number of their interval.
    of: BTreeMap<u64, Gathered>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gathered {
    value: u64,
    count: u64,
    /// When the newest of them came.
    at_ns: u64,
}

impl Points {
    /// Takes in a value of a time; what is older than the newest `n` intervals is forgotten.
    pub fn take(&mut self, series: Series, at_ns: u64, value: u64) {
        let interval = at_ns / series.interval_ns.max(1);
        let new = Gathered { value, count: 1, at_ns };
        let is_less = |a: u64, b: u64| if series.is_signed { (a as i64) < (b as i64) } else { a < b };
        self.of
            .entry(interval)
            .and_modify(|known| {
                known.value = match series.how {
                    How::Last if at_ns >= known.at_ns => value,
                    How::Last => known.value,
                    How::Sum | How::Avg => known.value.wrapping_add(value),
                    How::Min if is_less(value, known.value) => value,
                    How::Max if is_less(known.value, value) => value,
                    How::Min | How::Max => known.value,
                };
                known.count += 1;
                known.at_ns = known.at_ns.max(at_ns);
            })
            .or_insert(new);
        while self.newest().is_some_and(|newest| newest - self.first() >= u64::from(series.n)) {
            self.of.pop_first();
        }
    }

    /// The number of the newest interval.
    pub fn newest(&self) -> Option<u64> {
        self.of.keys().next_back().copied()
    }

    fn first(&self) -> u64 {
        self.of.keys().next().copied().unwrap_or(0)
    }

    /// Of each interval up to `newest` its number and value, beginning with the first that has one.
    pub fn shown(&self, series: Series, newest: u64) -> Vec<(u64, Option<i128>)> {
        let oldest = newest.saturating_sub(u64::from(series.n.max(1)) - 1);
        let Some((first, _)) = self.of.range(oldest..).next() else { return Vec::new() };
        (*first..=newest).map(|number| (number, self.of.get(&number).map(|of| of.shown(series)))).collect()
    }
}

impl Gathered {
    fn shown(&self, series: Series) -> i128 {
        let number = |value: u64| if series.is_signed { i128::from(value as i64) } else { i128::from(value) };
        match series.how {
            How::Avg => number(self.value) / i128::from(self.count.max(1)),
            How::Last | How::Sum | How::Min | How::Max => number(self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(how: How, n: u32) -> Series {
        Series { interval_ns: 10, n, how, is_signed: true, is_given_time: true }
    }

    #[test]
    fn values_of_one_interval_become_one() {
        for (how, want) in [(How::Last, -3), (How::Sum, 6), (How::Avg, 2), (How::Min, -3), (How::Max, 7)] {
            let mut points = Points::default();
            // The second comes late.
            for (at_ns, value) in [(105, 7), (101, 2), (107, -3i64)] {
                points.take(series(how, 5), at_ns, value as u64);
            }
            assert_eq!(points.shown(series(how, 5), 10), [(10, Some(want))]);
        }
    }

    #[test]
    fn only_the_newest_intervals_are_kept_and_gaps_are_shown() {
        let mut points = Points::default();
        for (at_ns, value) in [(0, 1), (20, 2), (30, 3), (50, 5)] {
            points.take(series(How::Last, 4), at_ns, value);
        }
        let some = |number: u64| (number, Some(i128::from(number)));
        assert_eq!(points.shown(series(How::Last, 4), 5), [some(2), some(3), (4, None), some(5)]);
        // Another key has a newer one.
        assert_eq!(points.shown(series(How::Last, 4), 7), [(5, Some(5)), (6, None), (7, None)]);
        assert_eq!(points.shown(series(How::Last, 4), 99), []);
        points.take(series(How::Last, 4), 0, 9);
        assert_eq!(points.newest(), Some(5));
        assert_eq!(points.shown(series(How::Last, 4), 5)[0], some(2));
    }

    #[test]
    fn the_last_interval_there_can_be_is_one_like_others() {
        let by_one = Series { interval_ns: 1, ..series(How::Last, 3) };
        let mut points = Points::default();
        for at_ns in [u64::MAX - 2, u64::MAX] {
            points.take(by_one, at_ns, 1);
        }
        let shown = points.shown(by_one, u64::MAX);
        assert_eq!(shown, [(u64::MAX - 2, Some(1)), (u64::MAX - 1, None), (u64::MAX, Some(1))]);
    }

    #[test]
    fn numbers_without_a_sign_stay_large() {
        let unsigned = Series { is_signed: false, ..series(How::Max, 1) };
        let mut points = Points::default();
        points.take(unsigned, 0, u64::MAX);
        points.take(unsigned, 0, 5);
        assert_eq!(points.shown(unsigned, 0), [(0, Some(i128::from(u64::MAX)))]);
    }
}
