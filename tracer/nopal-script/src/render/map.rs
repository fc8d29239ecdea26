//! Maps as text: in the order and with the bars that bpftrace's users know.

use super::value::{self, Place};
use super::{Names, word};
use nopal_program::aggregate::{Aggregate, average, hist_range, n_lhist_buckets};
use nopal_program::rank::Rank;
use nopal_program::{Look, MapDef, MapValue, Type};
use std::cmp::Ordering;

/// How a map is printed: how many entries (0: all), by what their numbers are divided, and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MapShown {
    pub top: u32,
    pub div: u64,
    pub rank: Rank,
}

/// One entry: the key's bytes, and the value's or the aggregate's words.
pub type Entry = (Vec<u8>, Vec<u64>);

/// The last `top` entries (0: all) in the order they are printed: by value, or by key where values have no order.
pub fn sorted(def: &MapDef, mut entries: Vec<Entry>, top: u32, rank: Rank) -> Vec<Entry> {
    entries.retain(|(_, words)| words.len() * 8 == def.value_bytes() as usize);
    // A counter that was never hit is 0 for bpftrace, too.
    if entries.is_empty() && def.key.is_empty() && def.value == MapValue::Aggregate(Aggregate::Count) {
        entries.push((Vec::new(), vec![0]));
    }
    let rank_of = |words: &[u64]| value_rank(&def.value, words, rank);
    entries
        .sort_by(|a, b| rank_of(&a.1).cmp(&rank_of(&b.1)).then_with(|| compare_keys(&def.key, &a.0, &b.0)));
    if top > 0 && entries.len() > top as usize {
        entries.drain(..entries.len() - top as usize);
    }
    entries
}

/// The number by which a value has its place; the same for all where they have none.
fn value_rank(value: &MapValue, words: &[u64], rank: Rank) -> i128 {
    let number =
        |value: i64, is_signed: bool| if is_signed { i128::from(value) } else { i128::from(value as u64) };
    let aggregate = match value {
        MapValue::Aggregate(aggregate) => aggregate,
        MapValue::Plain(Type::Int { is_signed, .. }) if rank == Rank::Usual => {
            return number(words[0] as i64, *is_signed);
        }
        MapValue::Plain(_) | MapValue::Series(_) => return 0,
    };
    let is_signed = match aggregate {
        Aggregate::Sum { is_signed }
        | Aggregate::Avg { is_signed }
        | Aggregate::Min { is_signed }
        | Aggregate::Max { is_signed }
        | Aggregate::Stats { is_signed } => *is_signed,
        Aggregate::Count | Aggregate::Hist { .. } | Aggregate::Lhist { .. } | Aggregate::Quantiles { .. } => {
            false
        }
    };
    match (rank, aggregate) {
        (Rank::Key, _) => 0,
        (
            Rank::Count,
            Aggregate::Avg { .. } | Aggregate::Stats { .. } | Aggregate::Min { .. } | Aggregate::Max { .. },
        ) => words[0].into(),
        (Rank::Sum, Aggregate::Avg { .. } | Aggregate::Stats { .. }) => number(words[1] as i64, is_signed),
        (Rank::Max, Aggregate::Quantiles { .. }) => words[0].into(),
        (Rank::Quantile(per_mille), Aggregate::Quantiles { bits }) => {
            Quantiles::of(words, *bits).quantile(per_mille).into()
        }
        // Buckets are in the order of their values.
        (Rank::Quantile(per_mille), Aggregate::Hist { .. } | Aggregate::Lhist { .. }) => {
            quantile_bucket(words, per_mille).map_or(-1, |(bucket, _)| bucket as i128)
        }
        (Rank::Usual | Rank::Count | Rank::Sum | Rank::Mean | Rank::Max | Rank::Quantile(_), _) => {
            number(aggregate.number(words), is_signed)
        }
    }
}

fn compare_keys(types: &[Type], a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a, b);
    for member in types {
        let n = (member.size_bytes() as usize).min(a.len()).min(b.len());
        let ((own_a, rest_a), (own_b, rest_b)) = (a.split_at(n), b.split_at(n));
        let order = match member {
            Type::Int { is_signed: true, .. } => (word(own_a, 0) as i64).cmp(&(word(own_b, 0) as i64)),
            Type::Int { .. }
            | Type::Bool
            | Type::Pointer
            | Type::Probe
            | Type::KernelSymbol
            | Type::UserSymbol
            | Type::Time { .. }
            | Type::Enum { .. }
            | Type::Username
            | Type::ErrorText
            | Type::CgroupPath { .. } => word(own_a, 0).cmp(&word(own_b, 0)),
            Type::Float => f64::from_bits(word(own_a, 0)).total_cmp(&f64::from_bits(word(own_b, 0))),
            Type::Tuple(members) => compare_keys(members, own_a, own_b),
            Type::Record(members) => {
                let members: Vec<Type> = members.iter().map(|(_, member)| member.clone()).collect();
                compare_keys(&members, own_a, own_b)
            }
            Type::Str { .. }
            | Type::Whole(_)
            | Type::Buffer { .. }
            | Type::UserStack { .. }
            | Type::KernelStack { .. }
            | Type::Inet
            | Type::Mac => own_a.cmp(own_b),
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

/// Whether it is printed below its name.
pub(super) fn has_buckets(def: &MapDef) -> bool {
    matches!(def.value, MapValue::Aggregate(Aggregate::Hist { .. } | Aggregate::Lhist { .. }))
}

/// How the numbers of a map are shown.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// At least 1.
    pub div: u64,
    /// Behind the values of quantiles.
    pub unit: &'static str,
    pub look: Look,
}

pub(super) fn text(def: &MapDef, entries: &[Entry], scale: Scale, names: &dyn Names, out: &mut Vec<u8>) {
    for (key, words) in entries {
        out.extend_from_slice(def.name.as_bytes());
        if !def.key.is_empty() {
            out.push(b'[');
            value::tuple(&def.key, key, out, |member, bytes, out| {
                value::at(member, bytes, names, Place::Key, out);
            });
            out.push(b']');
        }
        out.push(b':');
        if scale.look == Look::Old || !has_buckets(def) {
            out.push(b' ');
        }
        value(def, words, scale, names, out);
    }
    if scale.look == Look::Old {
        line_behind(def, entries, out);
    }
}

/// Old releases end some maps with an empty line, and show nothing as one.
fn line_behind(def: &MapDef, entries: &[Entry], out: &mut Vec<u8>) {
    if entries.is_empty() {
        out.push(b'\n');
    }
    if matches!(def.value, MapValue::Aggregate(Aggregate::Avg { .. } | Aggregate::Stats { .. })) {
        out.push(b'\n');
    }
}

/// What an entry has, and the end of its line.
pub(super) fn value(def: &MapDef, words: &[u64], scale: Scale, names: &dyn Names, out: &mut Vec<u8>) {
    match &def.value {
        MapValue::Plain(Type::Int { is_signed, .. }) => {
            out.extend_from_slice(divided(words[0], *is_signed, scale.div).as_bytes());
            out.push(b'\n');
        }
        MapValue::Plain(value_type) => {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            value::value(value_type, &bytes, names, out);
            out.push(b'\n');
        }
        MapValue::Aggregate(aggregate) => aggregated(*aggregate, words, scale, out),
        // Shown on its own.
        MapValue::Series(_) => {}
    }
}

fn aggregated(aggregate: Aggregate, words: &[u64], scale: Scale, out: &mut Vec<u8>) {
    let Scale { div, unit, look } = scale;
    let line = match aggregate {
        Aggregate::Count => divided(words[0], false, div),
        Aggregate::Sum { is_signed } => divided(words[0], is_signed, div),
        Aggregate::Min { is_signed } | Aggregate::Max { is_signed } => divided(words[1], is_signed, div),
        Aggregate::Avg { is_signed } => divided(average(words, is_signed) as u64, is_signed, div),
        Aggregate::Stats { is_signed } => {
            let count = words[0];
            let average = divided(average(words, is_signed) as u64, is_signed, div);
            let total = divided(words[1], is_signed, div);
            match look {
                Look::Old => format!("count {count}, average {average}, total {total}"),
                Look::New => format!("{{ .count = {count}, .average = {average}, .total = {total} }}"),
            }
        }
        Aggregate::Quantiles { bits } => {
            let q = Quantiles::of(words, bits);
            let [p50, p90, p99, p999] = q.at.map(|value| value / div as i64);
            let (count, max) = (q.count, q.max / div);
            format!(
                "count {count}, p50 {p50}{unit}, p90 {p90}{unit}, p99 {p99}{unit}, p99.9 {p999}{unit}, max {max}{unit}"
            )
        }
        Aggregate::Hist { .. } | Aggregate::Lhist { .. } => {
            out.push(b'\n');
            let is_linear = matches!(aggregate, Aggregate::Lhist { .. });
            bars(&buckets(aggregate, words), is_linear, div, out);
            String::new()
        }
    };
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
}

pub(super) fn divided(value: u64, is_signed: bool, div: u64) -> String {
    if is_signed {
        (i128::from(value as i64) / i128::from(div.max(1))).to_string()
    } else {
        (value / div.max(1)).to_string()
    }
}

/// The values a bucket takes; `None` is without end. `last` is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    pub first: Option<i64>,
    pub last: Option<i64>,
    pub count: u64,
}

/// From the first bucket that has something to the last.
pub(super) fn buckets(aggregate: Aggregate, words: &[u64]) -> Vec<Bucket> {
    let Some(first) = words.iter().position(|count| *count > 0) else { return Vec::new() };
    let last = words.iter().rposition(|count| *count > 0).unwrap_or(first);
    let range = |bucket: usize| -> (Option<i64>, Option<i64>) {
        match aggregate {
            Aggregate::Lhist { min, max, step } => match bucket {
                0 => (None, Some(min.wrapping_sub(1))),
                n if n as u32 == n_lhist_buckets(min, max, step) - 1 => (Some(max), None),
                n => {
                    let low = min.wrapping_add((n as i64 - 1).wrapping_mul(step));
                    (Some(low), Some(low.wrapping_add(step - 1).min(max - 1)))
                }
            },
            Aggregate::Hist { bits } => {
                let (low, high) = hist_range(bucket as u32, bits);
                (low, Some(high))
            }
            _ => (None, None),
        }
    };
    (first..=last)
        .map(|bucket| {
            let (first, last) = range(bucket);
            Bucket { first, last, count: words[bucket] }
        })
        .collect()
}

const BAR_WIDTH: u128 = 52;

fn bars(buckets: &[Bucket], is_linear: bool, div: u64, out: &mut Vec<u8>) {
    let most = buckets.iter().map(|b| b.count).max().unwrap_or(0).max(1);
    for bucket in buckets {
        let label = match (bucket.first, bucket.last) {
            (None, last) => format!("(..., {})", short(last.map_or(0, |last| i128::from(last) + 1))),
            (Some(first), None) => format!("[{}, ...)", short(first.into())),
            (Some(first), Some(last)) if !is_linear && first == last && (0..=1).contains(&first) => {
                format!("[{first}]")
            }
            (Some(first), Some(last)) => {
                format!("[{}, {})", short(first.into()), short(i128::from(last) + 1))
            }
        };
        let n = (u128::from(bucket.count) * BAR_WIDTH / u128::from(most)) as usize;
        let line = format!(
            "{label:<16}{:>8} |{:<width$}|\n",
            bucket.count / div,
            "@".repeat(n),
            width = BAR_WIDTH as usize
        );
        out.extend_from_slice(line.as_bytes());
    }
}

/// Powers of 1024 by their letter: `2K`, `1M`; 1000 stays 1000.
fn short(number: i128) -> String {
    let mut number = number;
    for letter in ["", "K", "M", "G", "T", "P", "E"] {
        if number == 0 || number % 1024 != 0 || letter == "E" {
            return format!("{number}{letter}");
        }
        number /= 1024;
    }
    number.to_string()
}

/// What `quantiles()` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub count: u64,
    /// p50, p90, p99, p99.9
    pub at: [i64; 4],
    pub max: u64,
}

impl Quantiles {
    const PER_MILLE: [u16; 4] = [500, 900, 990, 999];

    pub(super) fn of(words: &[u64], bits: u8) -> Quantiles {
        let (max, counts) = (words[0], &words[1..]);
        let count = counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let greatest = max.min(i64::MAX as u64) as i64;
        let at = Self::PER_MILLE.map(|per_mille| match quantile_bucket(counts, per_mille) {
            None => 0,
            // The last value is known exactly.
            Some((bucket, true)) => {
                if bucket == 0 {
                    -1
                } else {
                    greatest
                }
            }
            Some((bucket, false)) => {
                let (low, high) = hist_range(bucket as u32, bits);
                // The middle of the bucket, but never more than was seen.
                low.map_or(-1, |low| low + (high - low) / 2).min(greatest)
            }
        });
        Quantiles { count, at, max }
    }

    fn quantile(&self, per_mille: u16) -> i64 {
        Self::PER_MILLE.iter().position(|known| *known == per_mille).map_or(0, |place| self.at[place])
    }
}

/// The bucket in which a quantile is, and whether it is the very last value.
fn quantile_bucket(counts: &[u64], per_mille: u16) -> Option<(usize, bool)> {
    let count: u128 = counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n)).into();
    let rank = (count * u128::from(per_mille)).div_ceil(1000).max(1);
    let mut seen = 0u128;
    let bucket = counts.iter().position(|n| {
        seen += u128::from(*n);
        seen >= rank
    })?;
    Some((bucket, rank == count))
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestNames;
    use super::*;

    fn map(key: Vec<Type>, value: MapValue) -> MapDef {
        MapDef { name: "@x".into(), key, value }
    }

    fn gather(aggregate: Aggregate, values: &[i64]) -> Vec<u64> {
        let mut words = vec![0; aggregate.n_words() as usize];
        values.iter().for_each(|value| aggregate.take(&mut words, *value));
        words
    }

    fn shown(def: &MapDef, entries: Vec<Entry>, top: u32, div: u64) -> String {
        let mut out = Vec::new();
        text(
            def,
            &sorted(def, entries, top, Rank::Usual),
            Scale { div: div.max(1), unit: "", look: Look::Old },
            &TestNames,
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    fn key(n: i64) -> Vec<u8> {
        n.to_le_bytes().to_vec()
    }

    /// The expected texts are what bpftrace 0.17 printed.
    #[test]
    fn histograms_as_bpftrace_prints_them() {
        let hist = Aggregate::Hist { bits: 0 };
        let def = map(vec![], MapValue::Aggregate(hist));
        let values = [-1, -100, 3];
        let want = "\
@x: 
(..., 0)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[0]                    0 |                                                    |
[1]                    0 |                                                    |
[2, 4)                 1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

";
        assert_eq!(shown(&def, vec![(vec![], gather(hist, &values))], 0, 1), want);
        let large = shown(&def, vec![(vec![], gather(hist, &[1000, 1024, 600_000, i64::MAX]))], 0, 1);
        for label in ["[512, 1K)  ", "[1K, 2K)  ", "[512K, 1M)  ", "[4E, 8E)  "] {
            assert!(large.contains(label), "{label} in {large}");
        }
        let lhist = Aggregate::Lhist { min: 0, max: 100, step: 10 };
        let def = map(vec![], MapValue::Aggregate(lhist));
        let out = shown(&def, vec![(vec![], gather(lhist, &[55, -5, 200, 0]))], 0, 1);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 14);
        assert!(lines[1].starts_with("(..., 0)               1 |@@@"));
        assert!(lines[2].starts_with("[0, 10)                1 |@@@"));
        assert!(lines[12].starts_with("[100, ...)             1 |@@@"), "{}", lines[12]);
    }

    #[test]
    fn entries_are_printed_by_value_and_the_top_of_them() {
        let count = map(vec![Type::I64], MapValue::Aggregate(Aggregate::Count));
        let entries = || vec![(key(7), vec![3]), (key(-5), vec![1]), (key(2), vec![2])];
        assert_eq!(shown(&count, entries(), 0, 1), "@x[-5]: 1\n@x[2]: 2\n@x[7]: 3\n");
        assert_eq!(shown(&count, entries(), 2, 1), "@x[2]: 2\n@x[7]: 3\n");
        assert_eq!(shown(&count, entries(), 0, 2), "@x[-5]: 0\n@x[2]: 1\n@x[7]: 1\n");
        let plain = map(vec![Type::I64], MapValue::Plain(Type::I64));
        let entries = vec![(key(1), vec![5]), (key(2), vec![-5i64 as u64])];
        assert_eq!(shown(&plain, entries, 0, 1), "@x[2]: -5\n@x[1]: 5\n");
    }

    #[test]
    fn entries_are_printed_by_what_was_asked_for() {
        let keys = |aggregate: Aggregate, rank: &str| -> Vec<i64> {
            let def = map(vec![Type::I64], MapValue::Aggregate(aggregate));
            let rank = Rank::parse(rank).unwrap();
            assert!(rank.fits(&def.value), "{aggregate:?} {rank:?}");
            // 1: most values, 2: the largest sum and value, 3: the largest mean and p50.
            let taken: [(i64, Vec<i64>); 3] =
                [(1, vec![1; 40]), (2, [vec![3; 20], vec![900]].concat()), (3, vec![60, 70, 80])];
            let entries = taken.iter().map(|(n, values)| (key(*n), gather(aggregate, values))).collect();
            sorted(&def, entries, 0, rank).iter().map(|(key, _)| word(key, 0) as i64).collect()
        };
        let (stats, quantiles) = (Aggregate::Stats { is_signed: true }, Aggregate::Quantiles { bits: 4 });
        let (hist, lhist) = (Aggregate::Hist { bits: 0 }, Aggregate::Lhist { min: 0, max: 1000, step: 10 });
        for (aggregate, rank, order) in [
            (stats, "count", [3, 2, 1]),
            (stats, "sum", [1, 3, 2]),
            (stats, "total", [1, 3, 2]),
            (stats, "avg", [1, 2, 3]),
            (stats, "key", [1, 2, 3]),
            (Aggregate::Avg { is_signed: true }, "sum", [1, 3, 2]),
            (Aggregate::Max { is_signed: true }, "max", [1, 3, 2]),
            (Aggregate::Max { is_signed: true }, "count", [3, 2, 1]),
            (quantiles, "count", [3, 2, 1]),
            (quantiles, "p50", [1, 2, 3]),
            (quantiles, "p99", [1, 3, 2]),
            (quantiles, "max", [1, 3, 2]),
            (hist, "p50", [1, 2, 3]),
            (hist, "p99.9", [1, 3, 2]),
            (hist, "count", [3, 2, 1]),
            (lhist, "p99", [1, 3, 2]),
        ] {
            assert_eq!(keys(aggregate, rank), order, "{aggregate:?} by {rank}");
        }
    }

    #[test]
    fn values_without_an_order_are_printed_by_key() {
        let def =
            map(vec![Type::I64, Type::Str { max_bytes: 8 }], MapValue::Plain(Type::Str { max_bytes: 8 }));
        let entry = |n: i64, text: &[u8; 8]| {
            ([&key(n)[..], text].concat(), vec![u64::from_le_bytes(*b"val\0\0\0\0\0")])
        };
        let entries =
            vec![entry(3, b"x\0\0\0\0\0\0\0"), entry(1, b"z\0\0\0\0\0\0\0"), entry(1, b"y\0\0\0\0\0\0\0")];
        assert_eq!(shown(&def, entries, 0, 1), "@x[1, y]: val\n@x[1, z]: val\n@x[3, x]: val\n");
    }

    #[test]
    fn stacks_as_keys() {
        let def = map(
            vec![Type::UserStack { max_frames: 2, form: Default::default() }, Type::I64],
            MapValue::Aggregate(Aggregate::Count),
        );
        let bytes: Vec<u8> = [7u64, 2, 0x1001, 0x1000, 9].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(shown(&def, vec![(bytes, vec![4])], 0, 1), "@x[\n    main+1\n    main+0\n, 9]: 4\n");
    }

    #[test]
    fn other_aggregates() {
        let table = [
            (Aggregate::Stats { is_signed: true }, "@x: count 2, average -10, total -20\n\n"),
            (Aggregate::Avg { is_signed: true }, "@x: -10\n\n"),
            (Aggregate::Min { is_signed: true }, "@x: -30\n"),
            (Aggregate::Max { is_signed: true }, "@x: 10\n"),
            (Aggregate::Sum { is_signed: true }, "@x: -20\n"),
            (Aggregate::Count, "@x: 2\n"),
        ];
        for (aggregate, want) in table {
            let def = map(vec![], MapValue::Aggregate(aggregate));
            assert_eq!(shown(&def, vec![(vec![], gather(aggregate, &[10, -30]))], 0, 1), want);
        }
        let quantiles = Aggregate::Quantiles { bits: 4 };
        let def = map(vec![], MapValue::Aggregate(quantiles));
        let values: Vec<i64> = (1..=1000).collect();
        let out = shown(&def, vec![(vec![], gather(quantiles, &values))], 0, 1);
        assert_eq!(out, "@x: count 1000, p50 503, p90 911, p99 975, p99.9 1000, max 1000\n");
    }

    #[test]
    fn maps_without_entries() {
        let of = |value, key| shown(&map(key, MapValue::Aggregate(value)), vec![], 0, 1);
        assert_eq!(of(Aggregate::Count, vec![]), "@x: 0\n");
        assert_eq!(of(Aggregate::Count, vec![Type::I64]), "\n");
        assert_eq!(of(Aggregate::Hist { bits: 0 }, vec![]), "\n");
        assert_eq!(of(Aggregate::Stats { is_signed: true }, vec![]), "\n\n");
    }
}
