//! A log-linear histogram: each power of two has 64 buckets of equal width, values below 64 have one each. A value that
//! is read back is at most 1/128 (0.8 %) away from one that was put in. Two histograms can be added.

/// Buckets of one power of two.
const N_STEPS: usize = 64;
const STEP_BITS: u32 = N_STEPS.trailing_zeros();
/// Values below 64 are the first row; each higher power of two has its own.
const N_ROWS: usize = 65 - STEP_BITS as usize;

/// How often each value came, roughly; the least, the greatest and the number of them exactly.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// Only powers of two that were met have memory.
    rows: [Option<Box<[u64; N_STEPS]>>; N_ROWS],
    n: u64,
    min: u64,
    max: u64,
}

/// Values from `low` to `high`, both included, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub low: u64,
    pub high: u64,
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { rows: [const { None }; N_ROWS], n: 0, min: u64::MAX, max: 0 }
    }
}

fn place(value: u64) -> (usize, usize) {
    if value < N_STEPS as u64 {
        return (0, value as usize);
    }
    let power = value.ilog2();
    let step = (value >> (power - STEP_BITS)) as usize & (N_STEPS - 1);
    ((power - STEP_BITS + 1) as usize, step)
}

/// The least and the greatest value of a bucket.
fn bounds(row: usize, step: usize) -> (u64, u64) {
    if row == 0 {
        return (step as u64, step as u64);
    }
    let shift = row as u32 - 1;
    let low = ((N_STEPS + step) as u64) << shift;
    (low, low + ((1u64 << shift) - 1))
}

/// The least and the greatest value of the bucket that a value belongs to.
pub fn bucket_of(value: u64) -> (u64, u64) {
    let (row, step) = place(value);
    bounds(row, step)
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, value: u64) {
        let (row, step) = place(value);
        self.rows[row].get_or_insert_with(|| Box::new([0; N_STEPS]))[step] += 1;
        self.n += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// One that was counted elsewhere: all buckets from that of 0 on, of which there may be fewer than here, the least and the
    /// greatest value.
    pub fn of_counts(counts: &[u64], min: u64, max: u64) -> Histogram {
        let mut histogram = Histogram { min, max, ..Histogram::default() };
        for (row, counts) in histogram.rows.iter_mut().zip(counts.chunks(N_STEPS)) {
            if counts.iter().any(|count| *count > 0) {
                let mut steps = Box::new([0; N_STEPS]);
                steps.iter_mut().zip(counts).for_each(|(step, count)| *step = *count);
                histogram.n = counts.iter().fold(histogram.n, |sum, count| sum.saturating_add(*count));
                *row = Some(steps);
            }
        }
        histogram
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (row, theirs) in self.rows.iter_mut().zip(&other.rows) {
            let Some(theirs) = theirs else { continue };
            let ours = row.get_or_insert_with(|| Box::new([0; N_STEPS]));
            ours.iter_mut().zip(theirs.iter()).for_each(|(ours, theirs)| *ours += theirs);
        }
        self.n += other.n;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.n
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn min(&self) -> u64 {
        if self.n == 0 { 0 } else { self.min }
    }

    /// The buckets that hold something, the lowest first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.rows.iter().enumerate().flat_map(|(row, counts)| {
            counts.iter().flat_map(|counts| counts.iter()).enumerate().filter(|(_, n)| **n > 0).map(
                move |(step, count)| {
                    let (low, high) = bounds(row, step);
                    Bucket { low, high, count: *count }
                },
            )
        })
    }

    /// The value that this share of all values does not exceed (nearest rank); 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.n as f64).ceil() as u64).clamp(1, self.n.max(1));
        let mut seen = 0;
        for bucket in self.buckets() {
            seen += bucket.count;
            if seen >= rank {
                // The last value is known exactly.
                let middle =
                    if rank == self.n { self.max } else { bucket.low + (bucket.high - bucket.low) / 2 };
                return middle.clamp(self.min, self.max);
            }
        }
        0
    }

    /// Counts by power of two from the first that holds something to the last, for a picture.
    pub fn powers(&self) -> Vec<Bucket> {
        let mut powers: Vec<Bucket> = Vec::new();
        for bucket in self.buckets() {
            let (low, high) = match bucket.low {
                0 => (0, 0),
                low => (1 << low.ilog2(), (1u64 << low.ilog2()) - 1 + (1u64 << low.ilog2())),
            };
            while let Some(last) = powers.last().filter(|last| last.low != low) {
                let next = if last.low == 0 { 1 } else { last.low << 1 };
                powers.push(Bucket { low: next, high: next - 1 + next, count: 0 });
            }
            match powers.last_mut() {
                Some(last) => last.count += bucket.count,
                None => powers.push(Bucket { low, high, count: bucket.count }),
            }
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_no_wider_than_a_64th_of_it() {
        let mut values: Vec<u64> = (0..1000).collect();
        for power in 6..64 {
            let base = 1u64 << power;
            values.extend([base - 1, base, base + 1, base + base / 3, base + (base - 1)]);
        }
        for value in values {
            let (row, step) = place(value);
            let (low, high) = bounds(row, step);
            assert!((low..=high).contains(&value), "{value} in {low}..={high}");
            assert!((high - low) as u128 * 64 <= low as u128, "{low}..={high}");
        }
        assert_eq!(bounds(N_ROWS - 1, N_STEPS - 1).1, u64::MAX);
    }

    #[test]
    fn quantiles_keep_their_bound() {
        // Values whose order is known without a histogram.
        let mut x = 12345u64;
        let mut values: Vec<u64> = (0..20_000)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 33) >> (x % 23)
            })
            .collect();
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        values.sort_unstable();
        for share in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let got = histogram.quantile(share);
            assert!(got.abs_diff(exact) * 128 <= exact, "{share}: {got}, exactly {exact}");
        }
        assert_eq!(histogram.quantile(1.0), *values.last().unwrap());
        assert_eq!((histogram.min(), histogram.max()), (values[0], *values.last().unwrap()));
    }

    #[test]
    fn merged_is_as_if_counted_together() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for i in 0..5000u64 {
            let value = i * i;
            if i % 3 == 0 {
                a.add(value)
            } else {
                b.add(value)
            }
            both.add(value);
        }
        a.merge(&b);
        assert_eq!(a.buckets().collect::<Vec<_>>(), both.buckets().collect::<Vec<_>>());
        assert_eq!((a.count(), a.min(), a.max()), (both.count(), both.min(), both.max()));
    }

    #[test]
    fn what_was_counted_elsewhere_is_as_if_counted_here() {
        let values: Vec<u64> = (0..3000u64).map(|i| i * i * 7 % 1_000_003).collect();
        let (mut here, mut counts) = (Histogram::default(), vec![0u64; 36 * N_STEPS]);
        for value in &values {
            here.add(*value);
            let (row, step) = place(*value);
            counts[row * N_STEPS + step] += 1;
        }
        let elsewhere = Histogram::of_counts(&counts, here.min(), here.max());
        assert_eq!(elsewhere.buckets().collect::<Vec<_>>(), here.buckets().collect::<Vec<_>>());
        for share in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(elsewhere.quantile(share), here.quantile(share));
        }
        assert_eq!(Histogram::of_counts(&[0; 64], 0, 0).count(), 0);
    }

    #[test]
    fn powers_have_no_holes() {
        let mut histogram = Histogram::default();
        [0, 1, 9, 9, 1000].into_iter().for_each(|value| histogram.add(value));
        let powers: Vec<_> = histogram.powers().iter().map(|b| (b.low, b.high, b.count)).collect();
        assert_eq!(powers[..6], [(0, 0, 1), (1, 1, 1), (2, 3, 0), (4, 7, 0), (8, 15, 2), (16, 31, 0)]);
        assert_eq!(*powers.last().unwrap(), (512, 1023, 1));
        assert_eq!(powers.iter().map(|p| p.2).sum::<u64>(), 5);
        assert!(Histogram::default().powers().is_empty() && Histogram::default().quantile(0.5) == 0);
    }
}
