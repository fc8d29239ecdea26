//! Conditions on the fields of a span or an event, in the words of `nopal trace`.

use nopal_live::predicate::{self, Predicate, PredicateError, Source, Truth};
use nopal_spans::{KnownField, Value};
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
        Predicate::parse_labelled(text, &field, &label).map(Condition)
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
