//! Probes that fire only if something else is done, too: what it is, and doing it where a tracer can.

use crate::known;
use crate::needs::started_as;
use crate::open::Open;
use crate::target_args::TargetArgs;
use nopal_program::{PointKind, Program};
use nopal_sdt::Pattern;
use nopal_spans::file::{Companion, Trap};
use nopal_spans::{Available, ProbeName, Started, catalog};
use std::collections::BTreeSet;

/// A probe that must be traced for these to fire, with a condition that none of its hits meets.
pub(crate) fn companions(probes: &[ProbeName], available: &Available) -> Vec<String> {
    let mut companions = Vec::new();
    for probe in probes {
        let trap = catalog::trap(&probe.provider, &probe.name);
        let Some(Companion { probe: with, never }) = trap.and_then(|trap| trap.with.as_ref()) else {
            continue;
        };
        let with = ProbeName::parse(with, &probe.provider);
        if !probes.contains(&with) && available.probe(&with).is_some() {
            companions.push(format!("{with} if {never}"));
        }
    }
    companions.dedup();
    companions
}

/// File, provider and name of the probes of a script.
fn probes_of(program: &Program) -> BTreeSet<(&str, &str, &str)> {
    let points = program.clauses.iter().flat_map(|clause| &clause.points);
    points
        .filter_map(|point| match &point.kind {
            PointKind::Usdt { path, provider, name } => {
                Some((path.as_str(), provider.as_str(), name.as_str()))
            }
            PointKind::UsdtLater(later) => {
                Some((later.file.as_str(), later.provider.as_str(), later.name.as_str()))
            }
            _ => None,
        })
        .collect()
}

/// What probes of a script need that these processes may be without.
pub(crate) fn needs_of_script(program: &Program, pids: &[u32]) -> BTreeSet<&'static str> {
    let started: Vec<Started> = pids.iter().map(|pid| started_as(*pid)).collect();
    let traps =
        probes_of(program).into_iter().filter_map(|(_, provider, name)| catalog::trap(provider, name));
    let has_all = |trap: &Trap| !started.is_empty() && started.iter().all(|one| one.has_what_it_needs(trap));
    traps.filter(|trap| trap.with.is_none() && !has_all(trap)).map(|trap| trap.needs.as_str()).collect()
}

/// What must be traced for the probes of a script to fire, as more of its text.
pub(crate) fn companions_of_script(program: &Program) -> String {
    let named = probes_of(program);
    let mut clauses = BTreeSet::new();
    for (path, provider, name) in &named {
        // A point without a file means every file.
        if !path.is_empty() && named.contains(&("", *provider, *name)) {
            continue;
        }
        let trap = catalog::trap(provider, name);
        let Some(Companion { probe, never }) = trap.and_then(|trap| trap.with.as_ref()) else { continue };
        let with = ProbeName::parse(probe, provider);
        if !named.contains(&(*path, with.provider.as_str(), with.name.as_str())) {
            clauses.insert(format!("\nusdt:{path}:{with} /args.{never}/ {{ }}"));
        }
    }
    clauses.into_iter().collect()
}

/// The patterns of a command line with what they need beside them.
pub(crate) fn with_companions(patterns: &[String], target: &TargetArgs) -> Vec<String> {
    let mut all = patterns.to_vec();
    let parsed = |text: &String| Pattern::parse(text.split(" if ").next().unwrap_or(text).trim());
    let may_need = patterns.iter().map(parsed).any(|pattern| {
        catalog::traps().iter().filter(|trap| trap.with.is_some()).flat_map(|trap| &trap.probes).any(
            |probe| {
                let ProbeName { provider, name } = ProbeName::parse(probe, "");
                pattern.matches(&provider, &name)
            },
        )
    });
    // What cannot be read here is said by whoever opens it.
    if may_need && let Ok(available) = known::available(target, None) {
        let chosen: Vec<ProbeName> = available
            .probes
            .iter()
            .map(|known| known.name.clone())
            .filter(|name| patterns.iter().map(parsed).any(|p| p.matches(&name.provider, &name.name)))
            .collect();
        all.extend(companions(&chosen, &available));
    }
    all
}

/// Why none of the probes that are traced may have fired.
pub(crate) fn why_silent(open: &Open) -> Vec<&'static str> {
    let mut notes = Vec::new();
    for plan in &open.live.registry().plans {
        let trap = catalog::trap(&plan.event_type.provider, &plan.event_type.name);
        // What a companion mends is not a reason.
        if let Some(trap) = trap.filter(|trap| trap.with.is_none() && open.needs.may_lack(trap))
            && !notes.contains(&trap.needs.as_str())
        {
            notes.push(trap.needs.as_str());
        }
    }
    notes
}
