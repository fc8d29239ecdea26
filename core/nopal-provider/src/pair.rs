//! Which probes open and close one interval: said by `@pair`, or seen in their names.

use crate::ast::{Pair, Provider, Role};
use crate::diagnostic::Reporter;
use std::collections::HashMap;

/// How names end at the start of an interval, and how the partner's may.
const SUFFIXES: [(&str, &[&str]); 3] =
    [("__start", &["__end", "__done"]), ("__entry", &["__return"]), ("__begin", &["__end"])];

/// Completes what `@pair` said for the probes from `first` on, whose names stand at `places`.
pub(crate) fn by_tag(
    provider: &mut Provider,
    first: usize,
    places: &[(usize, usize)],
    reporter: &mut Reporter<'_>,
) {
    let index: HashMap<String, usize> =
        provider.probes.iter().enumerate().map(|(i, p)| (p.name.clone(), i)).collect();
    let is_tagged: Vec<bool> = provider.probes.iter().map(|p| p.pair.is_some()).collect();
    for at in first..provider.probes.len() {
        if !is_tagged[at] {
            continue;
        }
        let Some(pair) = provider.probes[at].pair.take() else { continue };
        let other = match index.get(&pair.partner) {
            Some(other) if *other != at => *other,
            _ => {
                let message =
                    format!("`@pair`: provider `{}` has no other probe `{}`", provider.name, pair.partner);
                reporter.warning(places[at - first], message, None);
                continue;
            }
        };
        let name = provider.probes[at].name.clone();
        let role = role_by_name(&name)
            .or_else(|| role_by_name(&pair.partner).map(opposite))
            .unwrap_or(if at < other { Role::Start } else { Role::End });
        provider.probes[at].pair = Some(Pair { role, partner: pair.partner });
        if !is_tagged[other] && provider.probes[other].pair.is_none() {
            provider.probes[other].pair = Some(Pair { role: opposite(role), partner: name });
        }
    }
}

/// Pairs the probes that say nothing themselves but whose names match.
pub(crate) fn by_name(provider: &mut Provider) {
    let index: HashMap<String, usize> =
        provider.probes.iter().enumerate().map(|(i, p)| (p.name.clone(), i)).collect();
    for at in 0..provider.probes.len() {
        let name = provider.probes[at].name.clone();
        for (start, ends) in SUFFIXES {
            let Some(stem) = name.strip_suffix(start) else { continue };
            let partner = ends.iter().find_map(|end| index.get(&format!("{stem}{end}")));
            if let Some(&other) = partner
                && provider.probes[at].pair.is_none()
                && provider.probes[other].pair.is_none()
            {
                let partner = provider.probes[other].name.clone();
                provider.probes[at].pair = Some(Pair { role: Role::Start, partner });
                provider.probes[other].pair = Some(Pair { role: Role::End, partner: name.clone() });
            }
        }
    }
}

fn role_by_name(name: &str) -> Option<Role> {
    for (start, ends) in SUFFIXES {
        if name.ends_with(start) {
            return Some(Role::Start);
        }
        if ends.iter().any(|end| name.ends_with(end)) {
            return Some(Role::End);
        }
    }
    None
}

fn opposite(role: Role) -> Role {
    match role {
        Role::Start => Role::End,
        Role::End => Role::Start,
    }
}
