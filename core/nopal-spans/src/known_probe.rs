//! The probes that a target has, as definitions of spans need to know them.

use crate::span::ProbeName;

/// A probe that the target has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownProbe {
    pub name: ProbeName,
    pub fields: Vec<KnownField>,
    pub pair: Option<KnownPair>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownField {
    pub name: String,
    pub kind: FieldKind,
    /// Names of values: text, first and last.
    pub labels: Vec<(String, i128, i128)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Number,
    /// A number whose values have names.
    Label,
    Text,
    /// Arrays and structures.
    Other,
}

/// What a probe says of its partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPair {
    pub is_start: bool,
    pub partner: String,
    /// Said by the binary's own note, else by a `.d` file.
    pub is_of_note: bool,
}
