//! The hits of a block, and what can be asserted on them. Does no IO.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Range, RangeFrom, RangeInclusive, RangeToInclusive};

/// So many are shown where a test fails.
const N_SHOWN: usize = 20;

/// One hit of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// `provider:name`.
    pub probe: String,
    /// By name.
    pub args: Map<String, Value>,
    pub pid: u32,
    pub tid: u32,
    /// Since the epoch.
    pub ns: u64,
}

impl Hit {
    /// One line of `nopal trace --json`.
    pub(crate) fn parse(line: &str) -> Option<Hit> {
        let mut event: Value = serde_json::from_str(line).ok()?;
        let Value::Object(args) = event["args"].take() else { return None };
        let number = |name: &str| event[name].as_u64();
        Some(Hit {
            probe: format!("{}:{}", event["provider"].as_str()?, event["name"].as_str()?),
            args,
            pid: number("pid")?.try_into().ok()?,
            tid: number("tid")?.try_into().ok()?,
            ns: number("ts")?,
        })
    }
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.probe)?;
        self.args.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// How often a probe is expected: `3`, `1..`, `2..=4`, `..=9`.
pub trait Count: fmt::Debug {
    fn holds(&self, n: usize) -> bool;
}

impl Count for usize {
    fn holds(&self, n: usize) -> bool {
        *self == n
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl Count for $range {
            fn holds(&self, n: usize) -> bool {
                self.contains(&n)
            }
        }
    )*};
}

ranges!(Range<usize>, RangeFrom<usize>, RangeInclusive<usize>, RangeToInclusive<usize>);

/// The hits of a block, in the order of time. Probes are named as `provider:name`, with `*` and `?`.
#[derive(Debug, Clone)]
pub struct Hits {
    hits: Vec<Hit>,
    /// Every probe that was listened to.
    known: BTreeSet<String>,
}

impl Hits {
    pub(crate) fn new(hits: Vec<Hit>, opened: impl Iterator<Item = String>) -> Hits {
        let known = hits.iter().map(|hit| hit.probe.clone()).chain(opened).collect();
        Hits { hits, known }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Hit> {
        self.hits.iter()
    }

    /// Those of the thread that asks.
    pub fn on_this_thread(&self) -> Hits {
        // SAFETY: takes no argument and cannot fail.
        let tid = unsafe { libc::gettid() } as u32;
        let hits = self.hits.iter().filter(|hit| hit.tid == tid).cloned().collect();
        Hits { hits, known: self.known.clone() }
    }

    /// The hits of one probe, or of a pattern. Panics if there is no such probe: a test that it does not come would
    /// always hold.
    #[track_caller]
    pub fn of(&self, probe: &str) -> Vec<&Hit> {
        if !self.known.iter().any(|name| fits(probe, name)) {
            let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
            panic!("no probe matches `{probe}`; listened to: {}", known.join(", "));
        }
        self.hits.iter().filter(|hit| fits(probe, &hit.probe)).collect()
    }

    #[track_caller]
    pub fn count(&self, probe: &str) -> usize {
        self.of(probe).len()
    }

    /// What an argument was at each hit.
    #[track_caller]
    pub fn values(&self, probe: &str, argument: &str) -> Vec<Value> {
        let mut values = Vec::new();
        for hit in self.of(probe) {
            let Some(value) = hit.args.get(argument) else {
                let there: Vec<&str> = hit.args.keys().map(String::as_str).collect();
                panic!("{} has no argument `{argument}`; it has: {}", hit.probe, there.join(", "));
            };
            values.push(value.clone());
        }
        values
    }

    /// Panics unless the probe came that often: `3`, `1..`, `2..=4`.
    #[track_caller]
    pub fn assert_count(&self, probe: &str, expected: impl Count) {
        let n = self.count(probe);
        assert!(expected.holds(n), "{probe} came {}, expected {expected:?}\n{self}", times(n));
    }

    /// Panics unless the first comes, later the second, and so on. Others may come in between.
    #[track_caller]
    pub fn assert_order(&self, probes: &[&str]) {
        let mut rest = self.hits.iter();
        for (i, probe) in probes.iter().enumerate() {
            self.of(probe);
            let after = if i > 0 { format!(" after {}", probes[..i].join(" -> ")) } else { String::new() };
            assert!(rest.any(|hit| fits(probe, &hit.probe)), "{probe} did not come{after}\n{self}");
        }
    }

    /// Panics unless an argument had these values, hit by hit.
    #[track_caller]
    pub fn assert_values<V: Into<Value>>(
        &self,
        probe: &str,
        argument: &str,
        expected: impl IntoIterator<Item = V>,
    ) {
        let came = Value::Array(self.values(probe, argument));
        let expected = Value::Array(expected.into_iter().map(Into::into).collect());
        assert!(came == expected, "{argument} of {probe} was {came}, expected {expected}\n{self}");
    }
}

impl<'a> IntoIterator for &'a Hits {
    type Item = &'a Hit;
    type IntoIter = std::slice::Iter<'a, Hit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// For the reason why a test fails.
impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hits.is_empty() {
            return f.write_str("nothing came");
        }
        write!(f, "what came, {} in all:", self.hits.len())?;
        self.hits.iter().take(N_SHOWN).try_for_each(|hit| write!(f, "\n  {hit}"))?;
        match self.hits.len().saturating_sub(N_SHOWN) {
            0 => Ok(()),
            n => write!(f, "\n  and {n} more"),
        }
    }
}

fn times(n: usize) -> String {
    if n == 1 { "once".to_owned() } else { format!("{n} times") }
}

/// Whether a name fits a pattern with `*` and `?`.
fn fits(pattern: &str, name: &str) -> bool {
    let Some(wanted) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[wanted.len_utf8()..];
    if wanted == '*' {
        return name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fits(rest, &name[at..]));
    }
    let mut chars = name.chars();
    chars.next().is_some_and(|c| (wanted == '?' || wanted == c) && fits(rest, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("shop:sale", "shop:sale", true),
            ("shop:sale", "shop:sales", false),
            ("shop:*", "shop:sale", true),
            ("*:sale", "shop:sale", true),
            ("shop:s?le", "shop:sale", true),
            ("shop:?", "shop:", false),
            ("*", "", true),
            ("shop:*e*", "shop:sale", true),
            ("shop:*x*", "shop:sale", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
