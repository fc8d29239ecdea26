//! What all rounds came to.

use super::Plan;
use super::round::Result;
use std::collections::BTreeMap;
use std::fmt;

/// Sums over rounds.
#[derive(Debug, Default)]
pub struct Figures {
    pub n_rounds: u64,
    pub n_faults: u64,
    pub n_failures: u64,
    n_hits: u64,
    n_events: u64,
    n_children: u64,
    /// Verdicts that said `complete`, each compared with the program's own count, and those that did not.
    n_complete: u64,
    n_incomplete: u64,
    /// Tracers that were killed or that refused, and so said nothing.
    n_silent: u64,
    by_harm: BTreeMap<&'static str, u64>,
    by_kind: BTreeMap<String, u64>,
}

impl Figures {
    pub(super) fn add(&mut self, plan: &Plan, result: &Result) {
        self.n_rounds += 1;
        self.n_faults += plan.n_faults() as u64;
        self.n_failures += result.failures.len() as u64;
        self.n_hits += result.n_hits;
        self.n_events += result.n_events;
        self.n_children += result.n_children;
        match result.is_complete {
            Some(true) => self.n_complete += 1,
            Some(false) => self.n_incomplete += 1,
            None => self.n_silent += 1,
        }
        let statics = [(plan.has_small_disk, "disk full"), (plan.has_other_clock, "another clock")];
        let of_plan = statics.iter().filter(|(is_so, _)| *is_so).map(|(_, name)| *name);
        for name in plan.harms.iter().map(|planned| planned.harm.name()).chain(of_plan) {
            *self.by_harm.entry(name).or_default() += 1;
        }
        for name in plan.kind.names() {
            *self.by_kind.entry(name).or_default() += 1;
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: Vec<(String, u64)>| {
            counts.into_iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "{} rounds, {} faults, {} failures", self.n_rounds, self.n_faults, self.n_failures)?;
        writeln!(
            f,
            "{} hits in {} processes besides the first, {} events kept",
            self.n_hits, self.n_children, self.n_events
        )?;
        writeln!(
            f,
            "verdicts: {} complete and true, {} not complete, {} none (killed or refused)",
            self.n_complete, self.n_incomplete, self.n_silent
        )?;
        let by_harm = self.by_harm.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        writeln!(f, "faults: {}", list(by_harm))?;
        write!(f, "programs: {}", list(self.by_kind.clone().into_iter().collect()))
    }
}
