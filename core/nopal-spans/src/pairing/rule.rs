//! A span as the pairing uses it, and what events of a class mean to each.

use super::key::KeyAt;
use crate::pairing::Unmatched;
use crate::span::{Shape, Span, Unit};

/// Which fields of a class's events are needed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// By position. Empty if no field is needed.
    pub fields: Vec<bool>,
    /// Whether its events mean anything at all.
    pub is_used: bool,
}

/// A span and its account.
#[derive(Debug)]
pub(super) struct Rule {
    pub span: Span,
    wanted: Vec<Wanted>,
    /// Of an event that is the whole span: which wanted field is its duration.
    pub duration: Option<(usize, Unit)>,
    /// By carry: the place where a thread keeps it.
    pub carried: Vec<usize>,
    /// The end has the fields of the begin.
    pub end_repeats: bool,
    /// Rules whose parent this is.
    pub children: Vec<usize>,
    pub unmatched: Unmatched,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    end: Option<End>,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Begin,
    End,
}

/// What events of one kind mean.
#[derive(Debug)]
pub(super) struct Class {
    /// Ends first, then what is carried, then begins.
    pub roles: Vec<Role>,
    /// Rules that it makes fail.
    pub fails: Vec<Role>,
    pub n_fields: usize,
    pub needs: Needs,
}

#[derive(Debug)]
pub(super) struct Role {
    pub rule: usize,
    pub part: Part,
    /// By wanted field: its position among the event's, or behind them if it is carried.
    pub positions: Vec<Option<u16>>,
    /// By key field.
    pub key: Vec<KeyAt>,
    /// How much later than it did the span may seem to begin.
    pub slack_ns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    End,
    Whole,
    Carry { slot: u16, field: u16 },
    Begin,
}

impl Rule {
    pub(super) fn new(span: Span) -> Rule {
        let mut rule = Rule {
            span,
            wanted: Vec::new(),
            duration: None,
            carried: Vec::new(),
            end_repeats: false,
            children: Vec::new(),
            unmatched: Unmatched::default(),
        };
        if let Shape::Whole { duration, unit, .. } = &rule.span.shape {
            let (duration, unit) = (duration.clone(), *unit);
            rule.duration = Some((rule.want(&duration), unit));
        }
        rule
    }

    pub(super) fn want(&mut self, name: &str) -> usize {
        let wanted = match name.split_once('.') {
            Some(("begin", name)) => Wanted { end: Some(End::Begin), name: name.to_owned() },
            Some(("end", name)) => Wanted { end: Some(End::End), name: name.to_owned() },
            _ => Wanted { end: None, name: name.to_owned() },
        };
        match self.wanted.iter().position(|known| *known == wanted) {
            Some(at) => at,
            None => {
                self.wanted.push(wanted);
                self.wanted.len() - 1
            }
        }
    }

    /// Where an event at one end has what is wanted.
    fn positions(&self, end: End, fields: &[&str]) -> Vec<Option<u16>> {
        let of = |wanted: &Wanted| {
            if wanted.end.is_some_and(|asked| asked != end) {
                return None;
            }
            let carried = self.span.carries.iter().position(|carry| carry.name == wanted.name);
            let at = match carried {
                Some(carried) if end == End::Begin => Some(fields.len() + carried),
                Some(_) => None,
                None => position(fields, &wanted.name),
            };
            at.and_then(|at| u16::try_from(at).ok())
        };
        self.wanted.iter().map(of).collect()
    }
}

/// By name, or `argN` by position.
fn position(fields: &[&str], name: &str) -> Option<usize> {
    fields.iter().position(|field| *field == name).or_else(|| {
        let at = name.strip_prefix("arg")?.parse::<usize>().ok()?;
        (at < fields.len()).then_some(at)
    })
}

impl Class {
    pub(super) fn new(rules: &[Rule], provider: &str, name: &str, fields: &[&str], wants_all: bool) -> Class {
        let mut class =
            Class { roles: Vec::new(), fails: Vec::new(), n_fields: fields.len(), needs: Needs::default() };
        let mut needed = vec![false; fields.len()];
        for (idx, rule) in rules.iter().enumerate() {
            let span = &rule.span;
            let at = |name: &str| position(fields, name).map(|at| at as u16);
            let key_at = |name: &str, less: Option<&str>| KeyAt { at: at(name), less: less.and_then(at) };
            let mut add = |into: &mut Vec<Role>, part: Part, end: End, wants_all: bool| {
                let key = span.key().iter();
                let key = match end {
                    End::Begin => key.map(|key| key_at(&key.begin, key.less.as_deref())).collect::<Vec<_>>(),
                    End::End => key.map(|key| key_at(&key.end, key.less.as_deref())).collect(),
                };
                if wants_all {
                    needed.fill(true);
                }
                let positions = rule.positions(end, fields);
                let of_key = key.iter().flat_map(|key| [key.at, key.less]);
                for at in positions.iter().copied().chain(of_key).flatten() {
                    if let Some(needed) = needed.get_mut(usize::from(at)) {
                        *needed = true;
                    }
                }
                let slack_ns = rule.duration.map_or(0, |(_, unit)| unit.ns() as i64);
                into.push(Role { rule: idx, part, positions, key, slack_ns });
            };
            match &span.shape {
                Shape::Pair { begins, ends } => {
                    if begins.iter().any(|probe| probe.is(provider, name)) {
                        add(&mut class.roles, Part::Begin, End::Begin, wants_all);
                    }
                    if ends.iter().any(|probe| probe.is(provider, name)) {
                        add(&mut class.roles, Part::End, End::End, wants_all && !rule.end_repeats);
                    }
                }
                Shape::Whole { probe, .. } => {
                    if probe.is(provider, name) {
                        add(&mut class.roles, Part::Whole, End::Begin, wants_all);
                    }
                }
            }
            if span.fails.iter().any(|probe| probe.is(provider, name)) {
                add(&mut class.fails, Part::End, End::End, wants_all);
            }
            for (at, carry) in span.carries.iter().enumerate() {
                // What nobody asks for need not be carried.
                let is_wanted = wants_all || rule.wanted.iter().any(|wanted| wanted.name == carry.name);
                let is_it = is_wanted && carry.probe.is(provider, name);
                let Some(field) = position(fields, &carry.field).filter(|_| is_it) else {
                    continue;
                };
                needed[field] = true;
                let slot = rule.carried[at] as u16;
                let part = Part::Carry { slot, field: field as u16 };
                class.roles.push(Role {
                    rule: idx,
                    part,
                    positions: Vec::new(),
                    key: Vec::new(),
                    slack_ns: 0,
                });
            }
        }
        class.roles.sort_by_key(|role| role.part);
        class.needs.is_used = !class.roles.is_empty() || !class.fails.is_empty();
        if class.needs.is_used && needed.iter().any(|needed| *needed) {
            class.needs.fields = needed;
        }
        class
    }
}
