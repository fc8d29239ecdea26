//! What is known of the maps: their keys and what they hold, and where that was said.

use super::Lowered;
use super::types::Ty;
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::aggregate::Aggregate;
use nopal_program::series::Series;
use nopal_program::{MapDef, MapValue};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Maps {
    pub(super) maps: Vec<Map>,
    by_name: HashMap<String, usize>,
    pub(super) has_changed: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Map {
    pub name: String,
    pub key: Option<(Vec<Ty>, Span)>,
    pub value: Option<(Held, Span)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Held {
    Plain(Ty),
    Aggregate(Aggregate),
    Series(Series),
}

impl Held {
    pub(crate) fn text(&self) -> String {
        match self {
            Held::Plain(ty) => ty.text(),
            Held::Series(series) => format!("{} intervals of {} ns", series.n, series.interval_ns),
            Held::Aggregate(aggregate) => match aggregate {
                Aggregate::Count => "count".into(),
                Aggregate::Sum { .. } => "sum".into(),
                Aggregate::Avg { .. } => "avg".into(),
                Aggregate::Min { .. } => "min".into(),
                Aggregate::Max { .. } => "max".into(),
                Aggregate::Stats { .. } => "stats".into(),
                Aggregate::Hist { bits } => format!("hist of {bits} bits"),
                Aggregate::Lhist { min, max, step } => format!("lhist from {min} to {max} by {step}"),
                Aggregate::Quantiles { .. } => "quantiles".into(),
            },
        }
    }
}

impl Maps {
    pub(crate) fn id(&mut self, name: &str) -> usize {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = self.maps.len();
        self.maps.push(Map { name: name.to_string(), key: None, value: None });
        self.by_name.insert(name.to_string(), id);
        self.has_changed = true;
        id
    }

    /// Whether this walk is not the last.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    pub(crate) fn get(&self, id: usize) -> &Map {
        &self.maps[id]
    }

    /// Takes in a key used with the map.
    pub(crate) fn learn_key(&mut self, id: usize, key: &[Ty], span: Span) -> Lowered<()> {
        let map = &mut self.maps[id];
        let key = match key {
            [Ty::Tuple(members)] => &members[..],
            _ => key,
        };
        let key: Vec<Ty> = key.iter().map(widened).collect();
        let Some((known, first)) = &mut map.key else {
            map.key = Some((key, span));
            self.has_changed = true;
            return Ok(());
        };
        let unified: Option<Vec<Ty>> = (known.len() == key.len())
            .then(|| known.iter().zip(&key).map(|(known, new)| known.unify(new)).collect())
            .flatten();
        match unified {
            Some(unified) => {
                if unified != *known {
                    *known = unified;
                    self.has_changed = true;
                }
                Ok(())
            }
            None => {
                let (new, old) = (key_text(&key), key_text(known));
                Err(Diagnostic::error(span, format!("`{}` has {old}, and is used with {new} here", map.name))
                    .label(new)
                    .related(*first, old))
            }
        }
    }

    /// Takes in something assigned to the map.
    pub(crate) fn learn_value(&mut self, id: usize, held: Held, span: Span) -> Lowered<()> {
        let map = &mut self.maps[id];
        let held = match held {
            Held::Plain(ty) => Held::Plain(widened(&ty)),
            Held::Aggregate(_) | Held::Series(_) => held,
        };
        let Some((known, first)) = &mut map.value else {
            if held != Held::Plain(Ty::Unknown) {
                map.value = Some((held, span));
                self.has_changed = true;
            }
            return Ok(());
        };
        let unified = match (&*known, &held) {
            (Held::Plain(a), Held::Plain(b)) => a.unify(b).map(Held::Plain),
            (Held::Aggregate(a), Held::Aggregate(b)) => unify_aggregate(*a, *b).map(Held::Aggregate),
            (Held::Series(a), Held::Series(b)) => {
                (*a == Series { is_signed: a.is_signed, ..*b }).then_some(Held::Series(*a))
            }
            (Held::Plain(_) | Held::Aggregate(_) | Held::Series(_), _) => None,
        };
        match unified {
            Some(unified) => {
                if unified != *known {
                    *known = unified;
                    self.has_changed = true;
                }
                Ok(())
            }
            None => Err(Diagnostic::error(
                span,
                format!("`{}` holds {}, and is given {} here", map.name, known.text(), held.text()),
            )
            .label(held.text())
            .related(*first, known.text())
            .help("use another map for it")),
        }
    }

    pub(crate) fn is_series(&self, id: usize) -> bool {
        matches!(self.maps[id].value, Some((Held::Series(_), _)))
    }

    /// A time series is kept by the tracer, where a body cannot look.
    pub(crate) fn check_readable(&self, id: usize, span: Span) -> Lowered<()> {
        match &self.maps[id].value {
            Some((Held::Series(_), first)) => {
                let message = format!("`{}` is a time series, not a number", self.maps[id].name);
                Err(Diagnostic::error(span, message)
                    .related(*first, "a time series")
                    .help("it can be printed, cleared and deleted"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn undefined(&self, id: usize, span: Span) -> Diagnostic {
        let name = &self.maps[id].name;
        let defined = self.maps.iter().filter(|map| map.value.is_some()).map(|map| map.name.as_str());
        let diagnostic = Diagnostic::error(span, format!("nothing is ever assigned to `{name}`"));
        match nearest(name, defined) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("assign to it, such as `{name} = count()`")),
        }
    }

    /// `has_plain_pointers`: a pointer is shown as a number.
    pub(super) fn definitions(&self, has_plain_pointers: bool) -> Vec<MapDef> {
        let type_of = |ty: &Ty| match ty {
            Ty::Pointer { .. } if has_plain_pointers => Ty::U64.to_type(),
            _ => ty.to_type(),
        };
        let define = |map: &Map| MapDef {
            name: map.name.clone(),
            key: map.key.iter().flat_map(|(key, _)| key.iter().map(type_of)).collect(),
            value: match &map.value {
                Some((Held::Aggregate(aggregate), _)) => MapValue::Aggregate(*aggregate),
                Some((Held::Series(series), _)) => MapValue::Series(*series),
                Some((Held::Plain(ty), _)) => MapValue::Plain(type_of(ty)),
                None => MapValue::Plain(Ty::U64.to_type()),
            },
        };
        self.maps.iter().map(define).collect()
    }
}

/// Numbers in maps have 64 bits.
fn widened(ty: &Ty) -> Ty {
    match ty {
        Ty::Int { is_signed, .. } => Ty::Int { size_bytes: 8, is_signed: *is_signed },
        Ty::Tuple(members) => Ty::Tuple(members.iter().map(widened).collect()),
        Ty::Record(members) => {
            Ty::Record(members.iter().map(|(name, member)| (name.clone(), widened(member))).collect())
        }
        Ty::Unknown | Ty::Nothing | Ty::Pointer { .. } | Ty::Memory(_) | Ty::Whole { .. } | Ty::Plain(_) => {
            ty.clone()
        }
    }
}

/// The first decides about the sign.
fn unify_aggregate(a: Aggregate, b: Aggregate) -> Option<Aggregate> {
    let is_same_but_sign = matches!(
        (a, b),
        (Aggregate::Sum { .. }, Aggregate::Sum { .. })
            | (Aggregate::Avg { .. }, Aggregate::Avg { .. })
            | (Aggregate::Min { .. }, Aggregate::Min { .. })
            | (Aggregate::Max { .. }, Aggregate::Max { .. })
            | (Aggregate::Stats { .. }, Aggregate::Stats { .. })
    );
    (is_same_but_sign || a == b).then_some(a)
}

fn key_text(key: &[Ty]) -> String {
    match key {
        [] => "no key".into(),
        [ty] => format!("a key of type {}", ty.text()),
        _ => format!("a key of types {}", key.iter().map(Ty::text).collect::<Vec<_>>().join(", ")),
    }
}
