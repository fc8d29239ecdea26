//! A condition on the fields of one event: read, and checked against what the fields are. Live events and recorded ones go
//! through here, so that both take the same conditions and refuse the same ones in the same words.

use super::{Context, Mismatch, Predicate, PredicateError, Source};
use nopal_trace::Label;

/// The fields of an event that a condition may name, by their position.
pub trait Fields {
    fn names(&self) -> Vec<&str>;

    /// Whether conditions compare the field with texts.
    fn is_text(&self, field: usize) -> bool;

    /// Whether conditions may ask for single elements of the field.
    fn has_elements(&self, field: usize) -> bool;

    /// The names that values of a field have.
    fn labels(&self, field: usize) -> &[Label];

    /// By its name, or by its number as in `arg0`.
    fn position(&self, name: &str) -> Option<usize> {
        let names = self.names();
        names.iter().position(|known| *known == name).or_else(|| {
            let index = name.strip_prefix("arg")?.parse::<usize>().ok()?;
            (index < names.len()).then_some(index)
        })
    }
}

/// Reads a condition on these fields; one that compares a text with a number is refused.
pub fn fit(text: &str, fields: &dyn Fields) -> Result<Predicate, PredicateError> {
    let label = |field: usize, name: &str| {
        fields.labels(field).iter().find(|l| l.text == name).map(|l| (l.first, l.last))
    };
    let predicate = Predicate::parse_labelled(text, &|name| fields.position(name), &label)?;
    let names = fields.names();
    let name_of = |field: usize| names.get(field).copied().unwrap_or_default();
    let at = |name: &str, reason| PredicateError { offset: text.find(name).unwrap_or(0), reason };
    for field in 0..names.len() {
        let is_indexed = |source| matches!(source, Source::Element { field: f, .. } if f == field);
        if predicate.has_source(&is_indexed) && !fields.has_elements(field) {
            return Err(at(name_of(field), format!("`{}` has no elements", name_of(field))));
        }
    }
    let is_text = |source| match source {
        Source::Field(field) => fields.is_text(field),
        Source::Element { .. } => false,
        Source::Context(context) => context == Context::Procname,
    };
    match predicate.mismatch(&is_text) {
        None => Ok(predicate),
        Some(Mismatch::Field(field)) => Err(at(name_of(field), misfit(field, name_of(field), fields))),
        Some(Mismatch::Context(context)) => {
            let name = format!("$ctx.{}", context.name());
            let what = if context == Context::Procname { "a string" } else { "a number" };
            Err(at(&name, format!("`{name}` is {what}; compare it with {what}")))
        }
        Some(Mismatch::Constant) => Err(at("\"", "a string must be compared with a string".to_owned())),
    }
}

/// What a field is that was compared with something else.
fn misfit(field: usize, name: &str, fields: &dyn Fields) -> String {
    match fields.is_text(field) {
        true => format!("`{name}` is a string; compare it with a string in quotes"),
        false if !fields.labels(field).is_empty() => {
            let labels: Vec<&str> = fields.labels(field).iter().take(20).map(|l| l.text.as_str()).collect();
            format!("`{name}` is a number or one of {}", labels.join(", "))
        }
        false => format!("`{name}` is a number; compare it with a number"),
    }
}
