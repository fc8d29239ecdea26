//! Conditions on the fields of a span or an event, in the words of `nopal trace`.

use crate::ask::position;
use nopal_live::predicate::{self, Mismatch, Predicate, PredicateError, Source, Truth};
use nopal_spans::{FieldKind, KnownField, Value};
use std::cell::RefCell;

/// A condition over fields by their number.
#[derive(Debug)]
pub(crate) struct Condition(Predicate);

impl Condition {
    /// `want` gives the number of a field, or none if there is no such field.
    pub(crate) fn parse(
        text: &str,
        known: Option<&[KnownField]>,
        want: impl FnMut(&str) -> Option<usize>,
    ) -> Result<Condition, PredicateError> {
        let (want, names) = (RefCell::new(want), RefCell::new(Vec::new()));
        let field = |name: &str| {
            let number = (want.borrow_mut())(name)?;
            names.borrow_mut().push((number, name.to_owned()));
            Some(number)
        };
        let label = |field: usize, label: &str| {
            let names = names.borrow();
            let (_, name) = names.iter().find(|(number, _)| *number == field)?;
            let name = name.rsplit('.').next().unwrap_or(name);
            let known = known?.iter().find(|known| known.name == name)?;
            known.labels.iter().find(|(text, ..)| text == label).map(|(_, first, last)| (*first, *last))
        };
        let condition = Predicate::parse_labelled(text, &field, &label)?;
        let names = names.into_inner();
        let wrong =
            |name: &str, reason: String| PredicateError { offset: text.find(name).unwrap_or(0), reason };
        if condition.has_source(&|source| matches!(source, Source::Context(_))) {
            return Err(wrong("$ctx", "only fields can be asked for here".to_owned()));
        }
        if condition.has_source(&|source| matches!(source, Source::Element { .. })) {
            return Err(wrong("[", "elements of a field cannot be asked for here".to_owned()));
        }
        let kind = |number: usize| {
            let (_, name) = names.iter().find(|(known, _)| *known == number)?;
            let known = known?;
            position(known, name).map(|at| known[at].kind)
        };
        // What nobody knows yet may fit.
        let is_known = |source| match source {
            Source::Field(field) => !matches!(kind(field), None | Some(FieldKind::Other)),
            Source::Element { .. } | Source::Context(_) => true,
        };
        let is_text = |source| matches!(source, Source::Field(field) if kind(field) == Some(FieldKind::Text));
        if !condition.has_source(&|source| !is_known(source))
            && let Some(mismatch) = condition.mismatch(&is_text)
        {
            let field = match mismatch {
                Mismatch::Field(field) => names.iter().find(|(known, _)| *known == field),
                Mismatch::Context(_) | Mismatch::Constant => None,
            };
            return Err(match field {
                Some((number, name)) => {
                    let what = if is_text(Source::Field(*number)) { "a string" } else { "a number" };
                    wrong(name, format!("`{name}` is {what}; compare it with {what}"))
                }
                None => wrong("\"", "a string must be compared with a string".to_owned()),
            });
        }
        Ok(Condition(condition))
    }

    /// With fields by the numbers that `want` gave.
    pub(crate) fn predicate(&self) -> &Predicate {
        &self.0
    }

    pub(crate) fn holds<'v>(&self, get: impl Fn(usize) -> Value<'v>) -> bool {
        let value = |source| match source {
            Source::Field(field) => match get(field) {
                Value::Absent => predicate::Value::Absent,
                Value::Signed(n) | Value::Label(n, _) => predicate::Value::Int(n.into()),
                Value::Unsigned(n) => predicate::Value::Int(n.into()),
                Value::Float(n) => predicate::Value::Float(n),
                Value::Text(text) => predicate::Value::Text(text),
            },
            Source::Element { .. } | Source::Context(_) => predicate::Value::Absent,
        };
        self.0.decide(&value) == Truth::Yes
    }
}
