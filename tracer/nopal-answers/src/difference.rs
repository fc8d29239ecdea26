//! Two recordings side by side: how counts, rates and quantiles of the same spans differ, and how sure that is.
//!
//! Quantiles of a few hundred spans move by themselves from run to run. The interval beside a change says how far: both
//! histograms are drawn anew many times from themselves (a bootstrap), and 95 % of the changes that come out lie within it.

use crate::trigger::duration_with_unit_ns;
use nopal_spans::Summary;
use nopal_spans::histogram::Bucket;
use std::fmt;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Count,
    /// Spans a second.
    Rate,
    Errors,
    Mean,
    P50,
    P90,
    P99,
    P999,
    Max,
}

impl Metric {
    pub const ALL: [(&'static str, Metric); 9] = [
        ("count", Metric::Count),
        ("rate", Metric::Rate),
        ("errors", Metric::Errors),
        ("mean", Metric::Mean),
        ("p50", Metric::P50),
        ("p90", Metric::P90),
        ("p99", Metric::P99),
        ("p999", Metric::P999),
        ("max", Metric::Max),
    ];

    pub fn name(self) -> &'static str {
        Metric::ALL.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }

    fn is_time(self) -> bool {
        !matches!(self, Metric::Count | Metric::Rate | Metric::Errors)
    }

    fn share(self) -> Option<f64> {
        match self {
            Metric::P50 => Some(0.5),
            Metric::P90 => Some(0.9),
            Metric::P99 => Some(0.99),
            Metric::P999 => Some(0.999),
            Metric::Count | Metric::Rate | Metric::Errors | Metric::Mean | Metric::Max => None,
        }
    }

    /// Its value of one side, which took this long.
    pub fn of(self, summary: &Summary, duration_ns: u64) -> f64 {
        let n = summary.count() as f64;
        match self {
            Metric::Count => n,
            Metric::Rate if duration_ns == 0 => 0.0,
            Metric::Rate => n / (duration_ns as f64 / 1e9),
            Metric::Errors => summary.errors as f64,
            Metric::Mean if n == 0.0 => 0.0,
            Metric::Mean => summary.total_ns as f64 / n,
            Metric::Max => summary.durations.max() as f64,
            Metric::P50 | Metric::P90 | Metric::P99 | Metric::P999 => {
                summary.durations.quantile(self.share().unwrap_or(0.5)) as f64
            }
        }
    }
}

/// A change from one side to the other: 0.1 is a tenth more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub before: f64,
    pub after: f64,
    /// Nothing if there was nothing before.
    pub share: Option<f64>,
    /// 95 % of the changes that chance alone would give around this one, for means and quantiles.
    pub interval: Option<(f64, f64)>,
}

impl Change {
    /// Whether chance alone does not explain it.
    pub fn is_sure(&self) -> bool {
        match self.interval {
            Some((low, high)) => low > 0.0 || high < 0.0,
            None => self.before != self.after,
        }
    }
}

/// Draws to make an interval of.
const N_DRAWS: usize = 400;

/// How one metric differs between two sides.
pub fn change(metric: Metric, before: (&Summary, u64), after: (&Summary, u64)) -> Change {
    let (old, new) = (metric.of(before.0, before.1), metric.of(after.0, after.1));
    let share = (old > 0.0).then(|| new / old - 1.0);
    let interval = match metric {
        Metric::Mean | Metric::P50 | Metric::P90 | Metric::P99 | Metric::P999 if share.is_some() => {
            bootstrap(metric, before.0, after.0)
        }
        _ => None,
    };
    Change { before: old, after: new, share, interval }
}

fn bootstrap(metric: Metric, before: &Summary, after: &Summary) -> Option<(f64, f64)> {
    let (old, new): (Vec<Bucket>, Vec<Bucket>) =
        (before.durations.buckets().collect(), after.durations.buckets().collect());
    if old.is_empty() || new.is_empty() {
        return None;
    }
    // The same recordings give the same intervals.
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut shares: Vec<f64> = (0..N_DRAWS)
        .filter_map(|_| {
            let (a, b) = (draw(metric, &old, &mut random)?, draw(metric, &new, &mut random)?);
            (a > 0.0).then(|| b / a - 1.0)
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    let at =
        |share: f64| shares.get(((shares.len() as f64 * share) as usize).min(shares.len().checked_sub(1)?));
    Some((*at(0.025)?, *at(0.975)?))
}

/// A metric of as many values drawn anew: of each bucket as many as chance gives.
fn draw(metric: Metric, buckets: &[Bucket], random: &mut Random) -> Option<f64> {
    let drawn: Vec<(f64, u64)> = buckets
        .iter()
        .map(|bucket| ((bucket.low as f64 + bucket.high as f64) / 2.0, random.poisson(bucket.count)))
        .collect();
    let n: u64 = drawn.iter().map(|(_, n)| n).sum();
    if n == 0 {
        return None;
    }
    let Some(share) = metric.share() else {
        return Some(drawn.iter().map(|(value, n)| value * *n as f64).sum::<f64>() / n as f64);
    };
    let rank = ((share * n as f64).ceil() as u64).clamp(1, n);
    let mut seen = 0;
    drawn.iter().find_map(|(value, n)| {
        seen += n;
        (seen >= rank).then_some(*value)
    })
}

/// SplitMix64: small, and good enough to draw from.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1, never 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// How often something happens that happens this often on average.
    fn poisson(&mut self, mean: u64) -> u64 {
        if mean < 30 {
            let (limit, mut product, mut n) = ((-(mean as f64)).exp(), self.unit(), 0);
            while product > limit {
                product *= self.unit();
                n += 1;
            }
            return n;
        }
        // Nearly normal from here on.
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        (mean as f64 + normal * (mean as f64).sqrt()).round().max(0.0) as u64
    }
}

/// `p99 > +10%`, `rate < -5%`, `errors > 0`, `max > 5ms`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    pub metric: Metric,
    is_above: bool,
    /// Of a change; else a number of the new side itself.
    is_share: bool,
    limit: f64,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRule(pub String);

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a rule: `{}`; write `p99 > +10%`, `rate < -5%`, `errors > 0` or `max > 5ms`", self.0)
    }
}

impl Rule {
    pub fn parse(text: &str) -> Result<Rule, BadRule> {
        let bad = || BadRule(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(bad)?;
        let name = text[..at].trim();
        let metric = Metric::ALL.iter().find(|(known, _)| *known == name).ok_or_else(bad)?.1;
        let limit = text[at + 1..].trim();
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let (limit, is_share) = match limit.strip_suffix('%') {
            Some(percent) => (number(percent).map(|percent| percent / 100.0), true),
            // A bare number may have been meant as a share, or in another unit.
            None if metric.is_time() => (duration_with_unit_ns(limit).map(|ns| ns as f64), false),
            None => (number(limit).filter(|_| !limit.starts_with('+')), false),
        };
        let limit = limit.ok_or_else(bad)?;
        Ok(Rule { metric, is_above: text.as_bytes()[at] == b'>', is_share, limit })
    }

    /// Whether a change breaks it. One that chance explains does not.
    pub fn is_broken(&self, change: &Change) -> bool {
        let value = match (self.is_share, change.share) {
            (false, _) => change.after,
            (true, Some(share)) => share,
            // Something where nothing was is more than any share of it.
            (true, None) if change.after > 0.0 => f64::INFINITY,
            (true, None) => 0.0,
        };
        let is_beyond = if self.is_above { value > self.limit } else { value < self.limit };
        is_beyond && (!self.is_share || change.is_sure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(values: impl Iterator<Item = u64>) -> Summary {
        let mut summary = Summary::default();
        values.for_each(|value| summary.add(value, value, false));
        summary
    }

    #[test]
    fn the_same_is_the_same_and_twice_is_twice() {
        let (a, b) = (summary(1000..2000), summary((1000..2000).map(|v| v * 2)));
        let same = change(Metric::P99, (&a, 1), (&a, 1));
        let (low, high) = same.interval.unwrap();
        assert!(same.share == Some(0.0) && low <= 0.0 && high >= 0.0 && !same.is_sure(), "{same:?}");
        let twice = change(Metric::P50, (&a, 1), (&b, 1));
        let (low, high) = twice.interval.unwrap();
        assert!((twice.share.unwrap() - 1.0).abs() < 0.02 && low < 1.0 && high > 1.0, "{twice:?}");
        assert!(twice.is_sure() && low > 0.8 && high < 1.2);
        let mean = change(Metric::Mean, (&a, 1), (&b, 1));
        assert!((mean.share.unwrap() - 1.0).abs() < 1e-9, "{mean:?}");
    }

    /// Of twenty values the 99th percentile is the greatest: chance moves it far.
    #[test]
    fn few_values_make_wide_intervals() {
        let values = |n: u64| summary((0..n).map(|i| 1000 + (i * i * 37) % 9000));
        let width = |n: u64| {
            let (low, high) = change(Metric::P90, (&values(n), 1), (&values(n), 1)).interval.unwrap();
            high - low
        };
        assert!(width(20) > 2.0 * width(20_000), "{} {}", width(20), width(20_000));
    }

    #[test]
    fn rules_are_read_and_kept() {
        let rule = Rule::parse("p99 > +10%").unwrap();
        let change = |share: f64, low: f64, high: f64| Change {
            before: 1.0,
            after: 1.0 + share,
            share: Some(share),
            interval: Some((low, high)),
        };
        assert!(rule.is_broken(&change(0.2, 0.05, 0.3)));
        assert!(!rule.is_broken(&change(0.2, -0.05, 0.3)));
        assert!(!rule.is_broken(&change(0.05, 0.01, 0.1)));
        assert!(Rule::parse("rate < -5%").unwrap().is_broken(&change(-0.2, -0.3, -0.1)));
        let errors = Rule::parse("errors>0").unwrap();
        assert!(errors.is_broken(&Change { before: 0.0, after: 1.0, share: None, interval: None }));
        let longest = Rule::parse("max > 5ms").unwrap();
        let after = |after| Change { before: 0.0, after, share: None, interval: None };
        assert!(longest.is_broken(&after(5e6 + 1.0)) && !longest.is_broken(&after(5e6)));
        for text in [
            "",
            "p99",
            "p98 > 10%",
            "p99 > ten",
            "p99 = 10%",
            "p99 > inf%",
            "p50 > +50",
            "p50 > 50",
            "count > +5",
            "count > 5ms",
        ] {
            assert!(Rule::parse(text).is_err(), "{text}");
        }
    }
}
