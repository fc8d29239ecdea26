//! What a program promises to those who trace it: its probes with the names and types of their arguments. And what two
//! versions of that promise differ in.

use nopal_sdt::operand::Operand;
use nopal_sdt::probe::{ArgDescription, Kind, Probe};
use nopal_sdt::{Object, pattern};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The probes of a program, by `provider:name`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Surface {
    #[serde(default)]
    pub probes: BTreeMap<String, Promise>,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Promise {
    /// In their order.
    pub args: Vec<Arg>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arg {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `i32`, `u64`, `f64`, `string`, `bytes`, `pointer`, `bool`, or `?` where nobody can tell.
    #[serde(rename = "type")]
    pub ty: String,
}

impl Surface {
    pub(super) fn of(object: &Object) -> Surface {
        let probes = object.probes.iter();
        Surface {
            probes: probes
                .map(|probe| (format!("{}:{}", probe.provider, probe.name), promise(probe)))
                .collect(),
        }
    }
}

fn promise(probe: &Probe) -> Promise {
    let n_args = probe.sites.iter().map(|site| site.args.len()).max().unwrap_or(0);
    let known = || probe.description.iter().flat_map(|description| &description.args);
    // Fields of a packed block have no operand each.
    if probe.description.as_ref().is_some_and(|description| description.packed.is_some()) {
        return Promise {
            args: known()
                .map(|description| Arg { name: name_of(description), ty: type_of(description, &[]) })
                .collect(),
        };
    }
    let args = (0..n_args).map(|idx| {
        let operands: Vec<&Operand> =
            probe.sites.iter().filter_map(|site| site.args.get(idx)?.operand.as_ref().ok()).collect();
        match known().find(|description| {
            description.operand == u8::try_from(idx + 1).ok() && description.operand.is_some()
        }) {
            Some(description) => Arg { name: name_of(description), ty: type_of(description, &operands) },
            None => Arg { name: None, ty: widest(&operands) },
        }
    });
    Promise { args: args.collect() }
}

fn name_of(description: &ArgDescription) -> Option<String> {
    (!description.name.is_empty()).then(|| description.name.clone())
}

fn type_of(description: &ArgDescription, operands: &[&Operand]) -> String {
    match description.kind {
        Kind::CString | Kind::Str => "string".to_owned(),
        Kind::Bytes => "bytes".to_owned(),
        Kind::Pointer => "pointer".to_owned(),
        Kind::Bool => "bool".to_owned(),
        Kind::Array | Kind::Sequence => {
            format!("{}[]", if description.c_type.is_empty() { "?" } else { &description.c_type })
        }
        _ if operands.is_empty() => description.c_type.clone(),
        _ => widest(operands),
    }
}

/// A compiler may pass a constant narrower than the variable it stands for: the widest place says what is meant.
fn widest(operands: &[&Operand]) -> String {
    let Some(operand) = operands.iter().max_by_key(|operand| operand.size_bytes) else {
        return "?".to_owned();
    };
    let letter = match (operand.is_float, operand.is_signed) {
        (true, _) => 'f',
        (false, true) => 'i',
        (false, false) => 'u',
    };
    format!("{letter}{}", u32::from(operand.size_bytes) * 8)
}

/// One difference between two versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Change {
    pub probe: String,
    pub what: String,
    /// A script that was written for the old version may fail or be wrong with the new one.
    pub is_breaking: bool,
}

/// What is different in `new`.
pub(super) fn diff(old: &Surface, new: &Surface) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut added: Vec<&String> = new.probes.keys().filter(|name| !old.probes.contains_key(*name)).collect();
    for (name, promise) in &old.probes {
        let change = |what: String, is_breaking| Change { probe: name.clone(), what, is_breaking };
        match new.probes.get(name) {
            Some(now) => {
                changes.extend(between(&promise.args, &now.args).into_iter().map(|(w, b)| change(w, b)))
            }
            None => match renamed(name, promise, new, &added) {
                Some(to) => {
                    changes.push(change(format!("renamed to {to}"), true));
                    added.retain(|name| **name != to);
                }
                None => changes.push(change("removed".to_owned(), true)),
            },
        }
    }
    let fresh = added.into_iter();
    changes.extend(fresh.map(|name| Change {
        probe: name.clone(),
        what: "added".to_owned(),
        is_breaking: false,
    }));
    changes
}

/// A new probe of the same provider with the same arguments and nearly the same name.
fn renamed(name: &str, promise: &Promise, new: &Surface, added: &[&String]) -> Option<String> {
    let provider = |name: &str| name.split_once(':').map(|(provider, _)| provider.to_owned());
    let alike = added.iter().filter(|other| {
        provider(other) == provider(name)
            && new.probes.get(**other).is_some_and(|now| now.args == promise.args)
    });
    pattern::nearest(name, alike.map(|other| other.as_str())).map(str::to_owned)
}

/// What is different in the arguments of one probe, and whether it breaks.
fn between(old: &[Arg], new: &[Arg]) -> Vec<(String, bool)> {
    let mut changes = Vec::new();
    for (idx, was) in old.iter().enumerate() {
        let said = was.name.clone().unwrap_or_else(|| format!("arg{idx}"));
        let Some(now) = new.get(idx) else {
            changes.push((format!("argument {said} removed"), true));
            continue;
        };
        if let (Some(from), Some(to)) = (&was.name, &now.name)
            && from != to
        {
            let moved = new.iter().position(|arg| arg.name.as_ref() == Some(from));
            match moved {
                Some(at) => changes
                    .push((format!("argument {from} moved from place {} to {}", idx + 1, at + 1), true)),
                None => changes.push((format!("argument {from} renamed to {to}"), true)),
            }
            if moved.is_some() {
                continue;
            }
        }
        if was.ty != now.ty && was.ty != "?" && now.ty != "?" {
            let is_breaking = !is_wider(&was.ty, &now.ty);
            let how = if is_breaking { "changed" } else { "widened" };
            changes.push((format!("argument {said} {how} from {} to {}", was.ty, now.ty), is_breaking));
        }
    }
    for (idx, now) in new.iter().enumerate().skip(old.len()) {
        let said = now.name.clone().unwrap_or_else(|| format!("arg{idx}"));
        changes.push((format!("argument {said} added at the end"), false));
    }
    changes
}

/// The same kind of number with more bits.
fn is_wider(old: &str, new: &str) -> bool {
    let split = |ty: &str| {
        let (letter, bits) = ty.split_at_checked(1)?;
        Some((letter.to_owned(), bits.parse::<u32>().ok()?))
    };
    matches!((split(old), split(new)), (Some((a, from)), Some((b, to))) if a == b && to > from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surface(text: &str) -> Surface {
        let mut surface = Surface::default();
        for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
            let (name, args) = line.split_once('(').expect("name(args)");
            let args = args.trim_end_matches(')').split(',').map(str::trim).filter(|arg| !arg.is_empty());
            let args = args.map(|arg| match arg.split_once(' ') {
                Some((name, ty)) => Arg { name: Some(name.to_owned()), ty: ty.to_owned() },
                None => Arg { name: None, ty: arg.to_owned() },
            });
            surface.probes.insert(name.to_owned(), Promise { args: args.collect() });
        }
        surface
    }

    #[test]
    fn what_breaks_and_what_does_not() {
        for (old, new, want) in [
            ("a:x(i32)", "a:x(i32)", &[][..]),
            ("a:x(i32)", "", &[("a:x removed", true)]),
            ("", "a:x(i32)", &[("a:x added", false)]),
            (
                "a:query_start(id u64)",
                "a:query__start(id u64)",
                &[("a:query_start renamed to a:query__start", true)],
            ),
            ("a:x(i32)", "b:x(i32)", &[("a:x removed", true), ("b:x added", false)]),
            ("a:x(i32)", "a:x(i32, i32)", &[("a:x argument arg1 added at the end", false)]),
            ("a:x(i32, i64)", "a:x(i32)", &[("a:x argument arg1 removed", true)]),
            ("a:x(id i32)", "a:x(id i64)", &[("a:x argument id widened from i32 to i64", false)]),
            ("a:x(id i64)", "a:x(id i32)", &[("a:x argument id changed from i64 to i32", true)]),
            ("a:x(id i32)", "a:x(id u32)", &[("a:x argument id changed from i32 to u32", true)]),
            ("a:x(id i32)", "a:x(key i32)", &[("a:x argument id renamed to key", true)]),
            ("a:x(id i32)", "a:x(id ?)", &[]),
            (
                "a:x(id i32, name string)",
                "a:x(name string, id i32)",
                &[
                    ("a:x argument id moved from place 1 to 2", true),
                    ("a:x argument name moved from place 2 to 1", true),
                ],
            ),
        ] {
            let changes = diff(&surface(old), &surface(new));
            let said: Vec<(String, bool)> =
                changes.iter().map(|c| (format!("{} {}", c.probe, c.what), c.is_breaking)).collect();
            let want: Vec<(String, bool)> = want.iter().map(|(text, b)| ((*text).to_owned(), *b)).collect();
            assert_eq!(said, want, "{old} -> {new}");
        }
    }

    #[test]
    fn a_surface_survives_its_file() {
        let surface = surface("a:x(id i32, name string); b:y()");
        let text = toml::to_string(&surface).expect("strings and lists become TOML");
        assert_eq!(toml::from_str::<Surface>(&text).expect("read back"), surface, "{text}");
    }
}
