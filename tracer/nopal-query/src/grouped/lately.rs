//! Groups that were found lately, by what events of a class have in them. Most events find theirs here, without a key being made.

/// By the numbers that tell the groups of a class apart.
pub(super) const MAX_NUMBERS: usize = 3;

/// Places for groups of either kind; as many more as there are groups, up to a bound.
const N_FIRST: usize = 1 << 10;
const N_MOST: usize = 1 << 16;

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub class: u32,
    pub numbers: [i64; MAX_NUMBERS],
}

#[derive(Debug)]
pub(super) struct Lately {
    last: (Numbers, u32),
    by_numbers: Vec<(Numbers, u32)>,
    /// The class and its values as bytes.
    by_bytes: Vec<(Vec<u8>, u32)>,
}

impl Default for Lately {
    fn default() -> Lately {
        let none = Numbers { class: NONE, numbers: [0; MAX_NUMBERS] };
        Lately { last: (none, NONE), by_numbers: Vec::new(), by_bytes: Vec::new() }
    }
}

impl Lately {
    /// The group of some numbers, if it has been seen lately.
    #[inline]
    pub(super) fn by_numbers(&mut self, wanted: &Numbers) -> Option<u32> {
        if self.last.0 != *wanted {
            let mut near = near(hash_numbers(wanted), self.by_numbers.len());
            let at = near.find(|at| self.by_numbers[*at].0 == *wanted)?;
            self.last = self.by_numbers[at];
        }
        Some(self.last.1)
    }

    /// Keeps what was found for later; there are so many groups by now.
    pub(super) fn keep_numbers(&mut self, numbers: Numbers, group: u32, n_groups: usize) {
        if let Some(n) = grown(self.by_numbers.len(), n_groups) {
            let none = (Numbers { class: NONE, numbers: [0; MAX_NUMBERS] }, NONE);
            self.by_numbers.clear();
            self.by_numbers.resize(n, none);
        }
        let hash = hash_numbers(&numbers);
        let at = place(hash, self.by_numbers.len(), |at| self.by_numbers[at].1 == NONE);
        self.last = (numbers, group);
        self.by_numbers[at] = self.last;
    }

    /// The same for bytes, which are never empty.
    #[inline]
    pub(super) fn by_bytes(&self, wanted: &[u8]) -> Option<u32> {
        let mut near = near(hash_bytes(wanted), self.by_bytes.len());
        let at = near.find(|at| self.by_bytes[*at].0 == wanted)?;
        Some(self.by_bytes[at].1)
    }

    pub(super) fn keep_bytes(&mut self, bytes: &[u8], group: u32, n_groups: usize) {
        if bytes.len() > MAX_BYTES {
            return;
        }
        if let Some(n) = grown(self.by_bytes.len(), n_groups) {
            self.by_bytes.clear();
            self.by_bytes.resize(n, (Vec::new(), NONE));
        }
        let at = place(hash_bytes(bytes), self.by_bytes.len(), |at| self.by_bytes[at].1 == NONE);
        let (known, of) = &mut self.by_bytes[at];
        known.clear();
        known.extend_from_slice(bytes);
        *of = group;
    }
}

/// Longer ones are looked up each time; so the memory is bounded.
const MAX_BYTES: usize = 256;

/// How many places there should be, if not as many as there are.
fn grown(n: usize, n_groups: usize) -> Option<usize> {
    let wanted = (n_groups * 2).next_power_of_two().clamp(N_FIRST, N_MOST);
    (wanted > n).then_some(wanted)
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn hash_numbers(of: &Numbers) -> u64 {
    let first = u64::from(of.class);
    of.numbers.iter().fold(first, |hash, n| (hash.rotate_left(29) ^ *n as u64).wrapping_mul(FACTOR))
}

#[inline]
fn hash_bytes(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(hash, rest.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

/// Places that are looked at for one group.
const N_NEAR: usize = 4;

/// Of as many places as a power of two says, or none; the upper bits are the well mixed ones.
#[inline]
fn near(hash: u64, n: usize) -> impl Iterator<Item = usize> {
    let first = (hash >> 32) as usize;
    (first..first + N_NEAR.min(n)).map(move |at| at & (n - 1))
}

/// The first place that is free, or else one of a group that then has to be found again.
fn place(hash: u64, n: usize, is_free: impl Fn(usize) -> bool) -> usize {
    near(hash, n).find(|at| is_free(*at)).unwrap_or((hash >> 32) as usize & (n - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_group_is_mistaken_for_another() {
        const N: u32 = 100_000;
        let mut lately = Lately::default();
        let numbers = |n: u32| Numbers { class: n % 3, numbers: [i64::from(n / 3), -1, i64::MIN] };
        let bytes = |n: u32| format!("{n}{}", "x".repeat(n as usize % 300));
        let mut n_found = 0;
        for n in (0..N).chain(0..N).chain(0..500).chain(0..500) {
            match lately.by_numbers(&numbers(n)) {
                Some(group) => assert_eq!(group, n),
                None => lately.keep_numbers(numbers(n), n, n as usize),
            }
            match lately.by_bytes(bytes(n).as_bytes()) {
                Some(group) => {
                    assert_eq!(group, n);
                    n_found += 1;
                }
                None => lately.keep_bytes(bytes(n).as_bytes(), n, 600),
            }
        }
        assert_eq!(lately.by_numbers(&numbers(499)), Some(499));
        assert_eq!((lately.by_numbers.len(), lately.by_bytes.len()), (N_MOST, 2048));
        assert!(n_found > 300, "{n_found}");
    }
}
