//! Probes that fire only if something else is done, too: what it is, and doing it where a tracer can.

use crate::known;
use crate::open::Open;
use crate::target_args::TargetArgs;
use nopal_sdt::Pattern;
use nopal_spans::{Available, FieldKind, ProbeName, catalog};

/// A probe that must be traced for these to fire, with a condition that none of its hits meets.
pub(crate) fn companions(probes: &[ProbeName], available: &Available) -> Vec<String> {
    let mut companions = Vec::new();
    for probe in probes {
        let Some(with) = catalog::trap(&probe.provider, &probe.name).and_then(|trap| trap.with.as_ref())
        else {
            continue;
        };
        let with = ProbeName::parse(with, &probe.provider);
        let is_asked_for = probes.contains(&with);
        let field = available
            .probe(&with)
            .and_then(|known| known.fields.iter().find(|field| field.kind == FieldKind::Number));
        if let (false, Some(field)) = (is_asked_for, field) {
            companions.push(format!("{with} if {field} < 0 && {field} > 0", field = field.name));
        }
    }
    companions.dedup();
    companions
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
        // What a companion mends is no reason.
        if let Some(trap) = trap.filter(|trap| trap.with.is_none() && open.needs.may_lack(trap))
            && !notes.contains(&trap.needs.as_str())
        {
            notes.push(trap.needs.as_str());
        }
    }
    notes
}
