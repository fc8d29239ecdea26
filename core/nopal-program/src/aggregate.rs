//! Aggregates: how many words each takes, how a value goes in, how the shares of two CPUs become one. The same words are
//! kept in eBPF maps, in stubs and by the interpreter.

/// What a map gathers of the values given to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// `[count]`
    Count,
    /// `[sum]`
    Sum { is_signed: bool },
    /// `[count, sum]`
    Avg { is_signed: bool },
    /// `[count, value]`
    Min { is_signed: bool },
    /// `[count, value]`
    Max { is_signed: bool },
    /// `[count, sum]`, shown as count, average and total.
    Stats { is_signed: bool },
    /// A count for each [`hist_bucket`].
    Hist { bits: u8 },
    /// A count for each [`lhist_bucket`].
    Lhist { min: i64, max: i64, step: i64 },
    /// `[max]`, then a count for each [`hist_bucket`].
    Quantiles { bits: u8 },
}

/// Sub-buckets of an octave, as a power of two, of `quantiles()`: off by at most 1/32 of the value.
pub const QUANTILE_BITS: u8 = 4;
/// Of `latency()`: those of every other answer about spans, off by at most 1/128.
pub const SPAN_BITS: u8 = 6;

impl Aggregate {
    pub fn n_words(self) -> u32 {
        match self {
            Aggregate::Count | Aggregate::Sum { .. } => 1,
            Aggregate::Avg { .. }
            | Aggregate::Min { .. }
            | Aggregate::Max { .. }
            | Aggregate::Stats { .. } => 2,
            Aggregate::Hist { bits } => n_hist_buckets(bits),
            Aggregate::Lhist { min, max, step } => n_lhist_buckets(min, max, step),
            Aggregate::Quantiles { bits } => 1 + n_hist_buckets(bits),
        }
    }

    /// Takes one value in. `words` are [`Aggregate::n_words`].
    pub fn take(self, words: &mut [u64], value: i64) {
        match self {
            Aggregate::Count => words[0] = words[0].wrapping_add(1),
            Aggregate::Sum { .. } => words[0] = words[0].wrapping_add(value as u64),
            Aggregate::Avg { .. } | Aggregate::Stats { .. } => {
                words[0] = words[0].wrapping_add(1);
                words[1] = words[1].wrapping_add(value as u64);
            }
            Aggregate::Min { is_signed } => extreme(words, 1, value as u64, |a, b| less(a, b, is_signed)),
            Aggregate::Max { is_signed } => extreme(words, 1, value as u64, |a, b| less(b, a, is_signed)),
            Aggregate::Hist { bits } => bump(words, hist_bucket(value, bits), 1),
            Aggregate::Lhist { min, max, step } => bump(words, lhist_bucket(value, min, max, step), 1),
            Aggregate::Quantiles { bits } => {
                words[0] = words[0].max(value.max(0) as u64);
                bump(&mut words[1..], hist_bucket(value, bits), 1);
            }
        }
    }

    /// Adds what another CPU or process gathered.
    pub fn merge(self, words: &mut [u64], other: &[u64]) {
        match self {
            Aggregate::Min { is_signed } if other[0] > 0 => {
                extreme(words, other[0], other[1], |a, b| less(a, b, is_signed));
            }
            Aggregate::Max { is_signed } if other[0] > 0 => {
                extreme(words, other[0], other[1], |a, b| less(b, a, is_signed));
            }
            Aggregate::Min { .. } | Aggregate::Max { .. } => {}
            Aggregate::Quantiles { .. } => {
                words[0] = words[0].max(other[0]);
                add_each(&mut words[1..], &other[1..]);
            }
            Aggregate::Count
            | Aggregate::Sum { .. }
            | Aggregate::Avg { .. }
            | Aggregate::Stats { .. }
            | Aggregate::Hist { .. }
            | Aggregate::Lhist { .. } => add_each(words, other),
        }
    }

    /// The number the aggregate stands for when a script reads it: the count, the sum, the average, the extreme.
    pub fn number(self, words: &[u64]) -> i64 {
        match self {
            Aggregate::Count | Aggregate::Sum { .. } => words[0] as i64,
            Aggregate::Avg { is_signed } | Aggregate::Stats { is_signed } => average(words, is_signed),
            Aggregate::Min { .. } | Aggregate::Max { .. } => words[1] as i64,
            Aggregate::Hist { .. } | Aggregate::Lhist { .. } => {
                words.iter().fold(0u64, |sum, n| sum.wrapping_add(*n)) as i64
            }
            Aggregate::Quantiles { .. } => words[1..].iter().fold(0u64, |sum, n| sum.wrapping_add(*n)) as i64,
        }
    }
}

/// Of `[count, sum]`.
pub fn average(words: &[u64], is_signed: bool) -> i64 {
    match (words[0], is_signed) {
        (0, _) => 0,
        (count, true) => (words[1] as i64).wrapping_div(count as i64),
        (count, false) => (words[1] / count) as i64,
    }
}

fn less(a: u64, b: u64, is_signed: bool) -> bool {
    if is_signed { (a as i64) < (b as i64) } else { a < b }
}

fn extreme(words: &mut [u64], count: u64, value: u64, is_better: impl Fn(u64, u64) -> bool) {
    if words[0] == 0 || is_better(value, words[1]) {
        words[1] = value;
    }
    words[0] = words[0].wrapping_add(count);
}

fn bump(words: &mut [u64], bucket: u32, by: u64) {
    let word = &mut words[bucket as usize];
    *word = word.wrapping_add(by);
}

fn add_each(words: &mut [u64], other: &[u64]) {
    for (word, other) in words.iter_mut().zip(other) {
        *word = word.wrapping_add(*other);
    }
}

/// Bucket 0 holds what is below zero. Then come values below 2^bits, one each, and 2^bits buckets for every octave above.
/// With `bits` 0: below zero, zero, one, [2, 4), [4, 8) and so on.
pub fn hist_bucket(value: i64, bits: u8) -> u32 {
    if value < 0 {
        return 0;
    }
    let value = value as u64;
    let bits = u32::from(bits);
    if value < 1 << bits {
        return 1 + value as u32;
    }
    let octave = 63 - value.leading_zeros();
    let within = (value >> (octave - bits)) as u32 & ((1 << bits) - 1);
    1 + ((octave - bits + 1) << bits) + within
}

pub fn n_hist_buckets(bits: u8) -> u32 {
    // The highest octave of a positive i64 is 62.
    1 + ((62 - u32::from(bits) + 2) << bits)
}

/// The values [low, high] of a bucket; the first has no lower end.
pub fn hist_range(bucket: u32, bits: u8) -> (Option<i64>, i64) {
    let Some(index) = bucket.checked_sub(1) else { return (None, -1) };
    let bits = u32::from(bits);
    if index < 1 << bits {
        return (Some(i64::from(index)), i64::from(index));
    }
    let octave = (index >> bits) + bits - 1;
    let within = u64::from(index & ((1 << bits) - 1));
    let width = 1u64 << (octave - bits);
    let low = (1u64 << octave) + within * width;
    (Some(low as i64), (low + (width - 1)) as i64)
}

/// Bucket 0 holds what is below `min`, the last what is `max` or more.
pub fn lhist_bucket(value: i64, min: i64, max: i64, step: i64) -> u32 {
    if value < min {
        0
    } else if value >= max {
        n_lhist_buckets(min, max, step) - 1
    } else {
        1 + (value.wrapping_sub(min) / step) as u32
    }
}

pub fn n_lhist_buckets(min: i64, max: i64, step: i64) -> u32 {
    2 + (max.wrapping_sub(min) as u64).div_ceil(step.max(1) as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_range_of_its_bucket() {
        let values =
            [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 1000, 123_456_789, i64::MAX - 1, i64::MAX];
        for bits in 0..=5 {
            for value in values {
                let bucket = hist_bucket(value, bits);
                assert!(bucket < n_hist_buckets(bits), "{value} with {bits} bits");
                let (low, high) = hist_range(bucket, bits);
                assert!(
                    low.unwrap() <= value && value <= high,
                    "{value} in [{low:?}, {high}] with {bits} bits"
                );
            }
            assert_eq!(hist_bucket(i64::MAX, bits), n_hist_buckets(bits) - 1);
        }
        assert_eq!(hist_bucket(-5, 0), 0);
    }

    #[test]
    fn ranges_follow_one_another() {
        for bits in [0, 4, 5] {
            for bucket in 1..n_hist_buckets(bits) - 1 {
                assert_eq!(hist_range(bucket, bits).1 + 1, hist_range(bucket + 1, bits).0.unwrap());
            }
        }
    }

    #[test]
    fn shares_of_two_cpus_merge_into_what_one_would_have() {
        let values = [5, -3, 900, 0, 17, 17, -1, 44];
        let all = [
            Aggregate::Count,
            Aggregate::Sum { is_signed: true },
            Aggregate::Avg { is_signed: true },
            Aggregate::Min { is_signed: true },
            Aggregate::Max { is_signed: true },
            Aggregate::Stats { is_signed: true },
            Aggregate::Hist { bits: 0 },
            Aggregate::Lhist { min: 0, max: 100, step: 10 },
            Aggregate::Quantiles { bits: 4 },
        ];
        for aggregate in all {
            let fresh = || vec![0u64; aggregate.n_words() as usize];
            let (mut one, mut a, mut b) = (fresh(), fresh(), fresh());
            for (index, value) in values.into_iter().enumerate() {
                aggregate.take(&mut one, value);
                aggregate.take(if index % 3 == 0 { &mut a } else { &mut b }, value);
            }
            let mut merged = fresh();
            aggregate.merge(&mut merged, &a);
            aggregate.merge(&mut merged, &b);
            assert_eq!(merged, one, "{aggregate:?}");
        }
    }

    #[test]
    fn linear_buckets() {
        let bucket = |value| lhist_bucket(value, 0, 100, 10);
        assert_eq!(
            [bucket(-1), bucket(0), bucket(9), bucket(10), bucket(99), bucket(100)],
            [0, 1, 1, 2, 10, 11]
        );
    }
}
