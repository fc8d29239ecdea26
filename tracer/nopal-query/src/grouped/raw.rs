//! Adds up events as they lie in the recording: of classes whose fields in use are whole numbers and texts that can be picked out of
//! an event, where whole numbers are all that the question needs of them. What does not fit into that goes through `Groups::add`.

use super::evaluate::Scalar;
use super::expression::Expr;
use super::lately::{MAX_NUMBERS, Numbers};
use super::sums::{Aggregate, Function, Groups, Question, encode};
use super::term::{Number, Place, RawRow, Term};
use crate::scan::From;
use nopal_answers::recorded::{fixed_task, picker_of};
use nopal_spans::Needs;
use nopal_trace::{Event, PickedKind, Picker};

/// A question to events of one class.
#[derive(Debug)]
pub(super) struct RawPlan {
    picker: Option<Picker>,
    filter: Option<Term>,
    keys: Vec<Key>,
    sums: Vec<Share>,
    /// Keys that are numbers, if there are few and no others.
    is_of_numbers: bool,
}

#[derive(Debug)]
enum Key {
    /// The same for the class; as bytes of the whole key.
    Known(Vec<u8>),
    Number(Term),
    /// Among the picked values.
    Text(usize),
}

/// What an event adds to one sum.
#[derive(Debug)]
struct Share {
    filter: Option<Term>,
    value: Term,
}

/// Used for each event again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    picked: Vec<u64>,
    numbers: Vec<Number>,
    bytes: Vec<u8>,
}

impl RawPlan {
    /// None if events of the class must be read in another way. `event` is one of them.
    pub(super) fn of(
        event: &Event<'_>,
        question: &Question,
        sources: &[From],
        needs: &Needs,
        has_foreign: bool,
    ) -> Option<RawPlan> {
        let picker = match needs.fields.is_empty() {
            true => None,
            false => Some(picker_of(event, needs)?),
        };
        let place = |column: usize| match &sources[column] {
            From::Ts => Some(Place::Ts),
            From::Cpu => Some(Place::Cpu),
            From::Pid if !has_foreign => fixed_task(event).map(|(pid, _)| Place::Task(pid)),
            From::Tid if !has_foreign => fixed_task(event).map(|(_, tid)| Place::Task(tid)),
            From::Field(field) => {
                let at = needs.fields.get(..*field)?.iter().filter(|is_needed| **is_needed).count();
                Some(match picker.as_ref()?.kinds().get(at)? {
                    PickedKind::Signed => Place::Signed(at),
                    PickedKind::Unsigned => Place::Unsigned(at),
                    PickedKind::Text => Place::Text(at),
                })
            }
            From::Pid | From::Tid | From::Recording | From::Day | From::Text(_) | From::Args(_) => None,
            From::Nothing => None,
        };
        let term = |expr: &Expr| Term::of(expr, &place);
        let optional = |expr: &Option<Expr>| match expr {
            Some(expr) => term(expr).map(Some),
            None => Some(None),
        };
        let filter = optional(&question.filter)?;
        let keys: Vec<Key> = question.keys.iter().map(|expr| Key::of(expr, &place)).collect::<Option<_>>()?;
        let share = |sum: &Aggregate| {
            let value = match &sum.argument {
                None => Term::Whole(1),
                // A text that is there counts, whatever it is.
                Some(Expr::Column(column))
                    if sum.function == Function::Count && matches!(place(*column), Some(Place::Text(_))) =>
                {
                    Term::Whole(1)
                }
                Some(argument) => term(argument)?,
            };
            Some(Share { filter: optional(&sum.filter)?, value })
        };
        let sums = question.sums.iter().map(share).collect::<Option<_>>()?;
        let n_numbers = keys.iter().filter(|key| matches!(key, Key::Number(_))).count();
        let has_text = keys.iter().any(|key| matches!(key, Key::Text(_)));
        let is_of_numbers = !has_text && n_numbers <= MAX_NUMBERS;
        Some(RawPlan { picker, filter, keys, sums, is_of_numbers })
    }

    /// Adds an event; false if that must be done in another way.
    #[inline]
    pub(super) fn add(&self, event: &Event<'_>, groups: &mut Groups, memory: &mut Memory) -> bool {
        let Memory { picked, numbers, bytes } = memory;
        if let Some(picker) = &self.picker
            && event.pick(picker, picked).is_err()
        {
            return false;
        }
        let row = RawRow { event, picked };
        if let Some(filter) = &self.filter {
            match filter.evaluate(&row) {
                Number::Whole(0) | Number::Null => return true,
                Number::Whole(_) => {}
                Number::Other => return false,
            }
        }
        numbers.clear();
        for share in &self.sums {
            let is_in = share.filter.as_ref().map_or(Number::Whole(1), |filter| filter.evaluate(&row));
            numbers.push(match is_in {
                Number::Whole(0) | Number::Null => Number::Null,
                Number::Whole(_) => share.value.evaluate(&row),
                Number::Other => Number::Other,
            });
        }
        if numbers.contains(&Number::Other) {
            return false;
        }
        let Some(group) = self.group(&row, groups, bytes) else { return false };
        groups.add_numbers(group, numbers);
        true
    }

    /// The group of an event; none if one of its keys is something else than a number or a text.
    #[inline]
    fn group(&self, row: &RawRow<'_>, groups: &mut Groups, bytes: &mut Vec<u8>) -> Option<u32> {
        let class = row.event.class_index() as u32;
        if self.is_of_numbers {
            let (mut numbers, mut n) = ([0; MAX_NUMBERS], 0);
            for key in &self.keys {
                if let Key::Number(term) = key {
                    let Number::Whole(number) = term.evaluate(row) else { return None };
                    numbers[n] = number;
                    n += 1;
                }
            }
            let wanted = Numbers { class, numbers };
            let key = |into: &mut Vec<u8>| {
                let mut numbers = numbers.into_iter();
                for key in &self.keys {
                    match key {
                        Key::Known(known) => into.extend_from_slice(known),
                        Key::Number(_) => {
                            let number = numbers.next().unwrap_or_default();
                            encode(&Scalar::Integer(number), into).ok();
                        }
                        Key::Text(_) => {}
                    }
                }
            };
            return Some(groups.by_numbers(wanted, key));
        }
        bytes.clear();
        bytes.extend_from_slice(&class.to_le_bytes());
        for key in &self.keys {
            match key {
                Key::Known(_) => {}
                Key::Number(term) => {
                    let Number::Whole(number) = term.evaluate(row) else { return None };
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
                Key::Text(at) => {
                    let text = row.event.picked_text(*row.picked.get(*at)?);
                    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    bytes.extend_from_slice(text);
                }
            }
        }
        let key = |into: &mut Vec<u8>| {
            for key in &self.keys {
                match key {
                    Key::Known(known) => into.extend_from_slice(known),
                    Key::Number(term) => {
                        if let Number::Whole(number) = term.evaluate(row) {
                            encode(&Scalar::Integer(number), into).ok();
                        }
                    }
                    Key::Text(at) => {
                        let text = row.event.picked_text(row.picked.get(*at).copied().unwrap_or_default());
                        encode(&Scalar::text(text), into).ok();
                    }
                }
            }
        };
        Some(groups.by_bytes(bytes, key))
    }
}

impl Key {
    fn of(expr: &Expr, place: &impl Fn(usize) -> Option<Place>) -> Option<Key> {
        let known = match expr {
            Expr::Null => Scalar::Null,
            Expr::Integer(n) => Scalar::Integer(*n),
            Expr::Text(text) => Scalar::Text(text.as_str().into()),
            Expr::Column(column) => {
                if let Place::Text(at) = place(*column)? {
                    return Some(Key::Text(at));
                }
                return Term::of(expr, place).map(Key::Number);
            }
            other => return Term::of(other, place).map(Key::Number),
        };
        let mut bytes = Vec::new();
        encode(&known, &mut bytes).ok()?;
        Some(Key::Known(bytes))
    }
}
