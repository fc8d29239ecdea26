//! What all rounds came to.

use super::plan::Plan;
use super::round::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Sums over rounds.
#[derive(Debug, Default)]
pub struct Figures {
    pub n_rounds: u64,
    pub n_faults: u64,
    pub n_failures: u64,
    n_hits: u64,
    n_events: u64,
    n_children: u64,
    n_tracers: u64,
    by_harm: BTreeMap<&'static str, u64>,
    in_vain: BTreeMap<&'static str, u64>,
    /// Rounds, and faults in them.
    by_kind: BTreeMap<&'static str, [u64; 2]>,
    /// Verdicts that said `complete`, each compared with the program's own count; those that did not; and tracers that were
    /// killed or that refused, and so said nothing.
    by_way: BTreeMap<&'static str, [u64; 3]>,
    elapsed: Duration,
}

impl Figures {
    pub(super) fn add(&mut self, plan: &Plan, result: &Result) {
        self.n_rounds += 1;
        self.n_faults += result.n_faults();
        self.n_failures += result.failures.len() as u64;
        self.n_hits += result.n_hits;
        self.n_events += result.n_events;
        self.n_children += result.n_children;
        self.n_tracers += result.verdicts.len() as u64;
        for (sums, of_round) in [(&mut self.by_harm, &result.faults), (&mut self.in_vain, &result.in_vain)] {
            of_round.iter().for_each(|(name, n)| *sums.entry(name).or_default() += n);
        }
        let of_plan = [(plan.has_group, "in a control group"), (plan.is_launched, "started by nopal")];
        let conditions = of_plan.iter().filter(|(is_so, _)| *is_so).map(|(_, name)| *name);
        for name in plan.kind.names().into_iter().chain(conditions) {
            let sums = self.by_kind.entry(name).or_default();
            sums[0] += 1;
            sums[1] += result.n_faults();
        }
        for (way, said) in &result.verdicts {
            let column = said.map_or(2, |is_complete| usize::from(!is_complete));
            for name in way.names().into_iter().chain(["all"]) {
                self.by_way.entry(name).or_default()[column] += 1;
            }
        }
    }

    pub(super) fn took(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
    }

    pub(super) fn in_short(&self) -> String {
        format!("{} rounds, {} faults, {} failures", self.n_rounds, self.n_faults, self.n_failures)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64().max(0.001);
        writeln!(
            f,
            "{} in {seconds:.0} s; {:.1} faults a second, {:.2} s of CPU each",
            self.in_short(),
            self.n_faults as f64 / seconds,
            cpu_time().as_secs_f64() / self.n_faults.max(1) as f64
        )?;
        writeln!(
            f,
            "{} tracers; {} hits, in {} short-lived processes too; {} events kept",
            self.n_tracers, self.n_hits, self.n_children, self.n_events
        )?;
        writeln!(f, "\nfault                      times  could not come")?;
        let names: BTreeSet<_> = self.by_harm.keys().chain(self.in_vain.keys()).collect();
        for name in names {
            let [n, in_vain] =
                [&self.by_harm, &self.in_vain].map(|sums| sums.get(name).copied().unwrap_or(0));
            writeln!(f, "{name:24} {n:7} {in_vain:15}")?;
        }
        writeln!(f, "\nprogram                   rounds   faults")?;
        for (name, [rounds, faults]) in &self.by_kind {
            writeln!(f, "{name:24} {rounds:7} {faults:8}")?;
        }
        writeln!(f, "\ntracers             complete, as counted   not complete   no verdict")?;
        for (name, [complete, not, none]) in &self.by_way {
            writeln!(f, "{name:18} {complete:22} {not:14} {none:12}")?;
        }
        Ok(())
    }
}

/// Of this process and of its children that have ended.
fn cpu_time() -> Duration {
    let of = |who| {
        // SAFETY: numbers alone, for which zeroes are fine.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the place is ours and lives as long as the call.
        unsafe { libc::getrusage(who, &mut usage) };
        let time = |value: libc::timeval| Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000);
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}
