//! Finds the fields that lengths and selectors name, among those that come before them.

use crate::location::Location;
use crate::model::Enum;
use std::sync::Arc;

/// More possible places of one field than this are refused.
const MAX_LEAVES: usize = 256;

#[derive(Debug, Clone)]
pub(super) struct Name {
    pub raw: String,
    pub target: Target,
}

/// What a name leads to.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Leaf(Leaf),
    Struct(Vec<Name>),
    /// One of these: a variant, or an optional with what it may hold.
    Choice {
        step: usize,
        targets: Vec<Target>,
    },
    /// Cannot be referred to.
    Other,
}

/// A step with an integer, an enum or a boolean.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub step: usize,
    pub is_bool: bool,
    pub is_signed: bool,
    pub table: Option<Arc<Enum>>,
}

/// A struct that is being compiled, or an option, whose names are hidden from those who come after it.
#[derive(Debug)]
pub(super) struct Frame {
    /// The members that come before.
    pub names: Vec<Name>,
    /// The member that is being compiled.
    pub current: String,
    is_struct: bool,
}

impl Frame {
    pub(super) fn of_struct() -> Self {
        Frame { names: Vec::new(), current: String::new(), is_struct: true }
    }

    pub(super) fn of_option() -> Self {
        Frame { is_struct: false, ..Frame::of_struct() }
    }
}

/// The steps that a location may mean.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub leaves: Vec<Leaf>,
    /// The variants and optionals around them.
    pub choices: Vec<usize>,
}

impl Found {
    /// From the innermost of the open structs on, or from the outermost if the location has an origin.
    pub(super) fn among(frames: &[Frame], location: &Location) -> Result<Found, String> {
        let open: Vec<&Frame> = frames.iter().filter(|frame| frame.is_struct).collect();
        let path = normal(&location.path);
        let n_up = path.iter().take_while(|part| part.is_none()).count();
        let start = if location.origin.is_some() { 0 } else { open.len().saturating_sub(1) };
        let Some(mut at) = start.checked_sub(n_up) else {
            return Err(format!("`{location}` leads out of the outermost structure"));
        };
        let mut rest: Vec<&str> = path.into_iter().flatten().collect();
        // The way may lead through structs that are being compiled: an array's current element, a variant's option.
        while let [name, _, ..] = rest.as_slice()
            && at + 1 < open.len()
            && open[at].current == *name
        {
            rest.remove(0);
            at += 1;
        }
        let mut found = Found::default();
        if let Some(frame) = open.get(at) {
            found.collect(&frame.names, &rest)?;
        }
        Ok(found)
    }

    /// In a scope that was compiled before.
    pub(super) fn within(names: &[Name], location: &Location) -> Result<Found, String> {
        let path = normal(&location.path);
        let rest: Option<Vec<&str>> = path.into_iter().collect();
        let Some(rest) = rest else {
            return Err(format!("`{location}` leads out of the outermost structure"));
        };
        let mut found = Found::default();
        found.collect(names, &rest)?;
        Ok(found)
    }

    fn collect(&mut self, names: &[Name], path: &[&str]) -> Result<(), String> {
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        match names.iter().rev().find(|name| name.raw == *first) {
            Some(name) => self.follow(&name.target, rest),
            None => Ok(()),
        }
    }

    fn follow(&mut self, target: &Target, rest: &[&str]) -> Result<(), String> {
        if self.leaves.len() > MAX_LEAVES {
            return Err("a length or selector may be at more places than can be read".to_owned());
        }
        match target {
            Target::Leaf(leaf) if rest.is_empty() => self.leaves.push(leaf.clone()),
            Target::Struct(names) => self.collect(names, rest)?,
            Target::Choice { step, targets } => {
                let n_before = self.leaves.len();
                for target in targets {
                    self.follow(target, rest)?;
                }
                if self.leaves.len() > n_before {
                    self.choices.push(*step);
                }
            }
            Target::Leaf(_) | Target::Other => {}
        }
        Ok(())
    }
}

/// Without names that are left again.
fn normal(path: &[Option<String>]) -> Vec<Option<&str>> {
    let mut parts: Vec<Option<&str>> = Vec::new();
    for part in path {
        match (part, parts.last()) {
            (None, Some(Some(_))) => {
                parts.pop();
            }
            _ => parts.push(part.as_deref()),
        }
    }
    parts
}

/// What a path of TSDL leads to: a step, and its table if it is an enum.
pub(super) fn find(names: &[Name], path: &[String]) -> Option<(usize, Option<Arc<Enum>>)> {
    let (first, rest) = path.split_first()?;
    let name = names.iter().rev().find(|n| n.raw == *first)?;
    match &name.target {
        Target::Leaf(leaf) if rest.is_empty() => Some((leaf.step, leaf.table.clone())),
        Target::Struct(inner) if !rest.is_empty() => find(inner, rest),
        _ => None,
    }
}
