//! Expressions of whole numbers, worked out from events as they lie in the recording, exactly as `evaluate.rs` does it. What that
//! has other values for is not made a term, or is `Other` when it comes.

use super::evaluate::is_like;
use super::expression::{Arithmetic, Compare, Expr};
use nopal_trace::{Event, FixedInteger};

/// What comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Whole(i64),
    Null,
    /// Not a whole number, or one that does not fit.
    Other,
}

/// An event, with the fields in use as they were picked.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawRow<'a> {
    pub event: &'a Event<'a>,
    pub picked: &'a [u64],
}

/// Where a column's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Ts,
    Cpu,
    /// A process or a thread.
    Task(FixedInteger),
    /// Among the picked values.
    Signed(usize),
    Unsigned(usize),
    Text(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Term {
    Whole(i64),
    Null,
    Ts,
    Cpu,
    Task(FixedInteger),
    Signed(usize),
    Unsigned(usize),
    Arithmetic(Arithmetic, Box<Term>, Box<Term>),
    Compare(Compare, Box<Term>, Box<Term>),
    /// Whether a text is this one.
    TextIs(usize, Box<[u8]>),
    /// Whether a text fits a pattern of `LIKE`.
    TextLike(usize, String),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
    Not(Box<Term>),
    IsNull(Box<Term>),
    Case(Vec<(Term, Term)>, Box<Term>),
}

impl Term {
    /// None if there may be other values in it than whole numbers.
    pub(super) fn of(expr: &Expr, place: &impl Fn(usize) -> Option<Place>) -> Option<Term> {
        let sub = |expr: &Expr| Term::of(expr, place).map(Box::new);
        Some(match expr {
            Expr::Null => Term::Null,
            Expr::Integer(n) => Term::Whole(*n),
            Expr::Real(_) | Expr::Text(_) => return None,
            Expr::Like(a, pattern) => match &**a {
                Expr::Column(column) => match place(*column)? {
                    Place::Text(at) => Term::TextLike(at, pattern.clone()),
                    _ => return None,
                },
                _ => return None,
            },
            Expr::Column(column) => match place(*column)? {
                Place::Ts => Term::Ts,
                Place::Cpu => Term::Cpu,
                Place::Task(place) => Term::Task(place),
                Place::Signed(at) => Term::Signed(at),
                Place::Unsigned(at) => Term::Unsigned(at),
                Place::Text(_) => return None,
            },
            Expr::Arithmetic(op, a, b) => Term::Arithmetic(*op, sub(a)?, sub(b)?),
            Expr::Compare(how, a, b) => match text_is(a, b, place).or_else(|| text_is(b, a, place)) {
                Some(_) if how.is_of_numbers => return None,
                Some(is) if how.op == Compare::Eq => is,
                Some(is) if how.op == Compare::Ne => Term::Not(Box::new(is)),
                Some(_) => return None,
                None => Term::Compare(how.op, sub(a)?, sub(b)?),
            },
            Expr::And(a, b) => Term::And(sub(a)?, sub(b)?),
            Expr::Or(a, b) => Term::Or(sub(a)?, sub(b)?),
            Expr::Not(a) => Term::Not(sub(a)?),
            Expr::IsNull(a) => match &**a {
                Expr::Column(column) if matches!(place(*column)?, Place::Text(_)) => Term::Whole(0),
                other => Term::IsNull(sub(other)?),
            },
            Expr::Case(arms, other) => {
                let arm = |(condition, value): &(Expr, Expr)| Some((*sub(condition)?, *sub(value)?));
                Term::Case(arms.iter().map(arm).collect::<Option<_>>()?, sub(other)?)
            }
        })
    }

    #[inline]
    pub(super) fn evaluate(&self, row: &RawRow<'_>) -> Number {
        match self {
            Term::Whole(n) => Number::Whole(*n),
            Term::Ts => Number::Whole(row.event.ns().unwrap_or(0)),
            Term::Cpu => Number::Whole(i64::from(row.event.cpu().unwrap_or(0) as u32)),
            Term::Task(place) => {
                row.event.integer(*place).map_or(Number::Other, |n| Number::Whole(i64::from(n as u32)))
            }
            Term::Signed(at) => row.picked.get(*at).map_or(Number::Other, |n| Number::Whole(*n as i64)),
            Term::Unsigned(at) => {
                let n = row.picked.get(*at).and_then(|n| i64::try_from(*n).ok());
                n.map_or(Number::Other, Number::Whole)
            }
            more => more.evaluate_more(row),
        }
    }

    fn evaluate_more(&self, row: &RawRow<'_>) -> Number {
        match self {
            Term::Whole(_) | Term::Ts | Term::Cpu | Term::Task(_) | Term::Signed(_) | Term::Unsigned(_) => {
                self.evaluate(row)
            }
            Term::Null => Number::Null,
            Term::Arithmetic(op, a, b) => match (a.evaluate(row), b.evaluate(row)) {
                (Number::Other, _) | (_, Number::Other) => Number::Other,
                (Number::Whole(a), Number::Whole(b)) => arithmetic(*op, a, b),
                (Number::Null, _) | (_, Number::Null) => Number::Null,
            },
            Term::Compare(op, a, b) => match (a.evaluate(row), b.evaluate(row)) {
                (Number::Other, _) | (_, Number::Other) => Number::Other,
                (Number::Whole(a), Number::Whole(b)) => Number::Whole(i64::from(match op {
                    Compare::Eq => a == b,
                    Compare::Ne => a != b,
                    Compare::Lt => a < b,
                    Compare::Le => a <= b,
                    Compare::Gt => a > b,
                    Compare::Ge => a >= b,
                })),
                (Number::Null, _) | (_, Number::Null) => Number::Null,
            },
            Term::TextIs(at, text) => match row.picked.get(*at) {
                Some(place) => Number::Whole((row.event.picked_text(*place) == &**text).into()),
                None => Number::Other,
            },
            Term::TextLike(at, pattern) => match row.picked.get(*at) {
                Some(place) => {
                    let text = String::from_utf8_lossy(row.event.picked_text(*place));
                    Number::Whole(is_like(&text, pattern).into())
                }
                None => Number::Other,
            },
            Term::And(a, b) => match (a.evaluate(row), || b.evaluate(row)) {
                (Number::Other, _) => Number::Other,
                (Number::Whole(0), _) => Number::Whole(0),
                (a, b) => match (a, b()) {
                    (_, Number::Other) => Number::Other,
                    (_, Number::Whole(0)) => Number::Whole(0),
                    (Number::Whole(_), Number::Whole(_)) => Number::Whole(1),
                    _ => Number::Null,
                },
            },
            Term::Or(a, b) => match (a.evaluate(row), || b.evaluate(row)) {
                (Number::Other, _) => Number::Other,
                (Number::Whole(a), _) if a != 0 => Number::Whole(1),
                (a, b) => match (a, b()) {
                    (_, Number::Other) => Number::Other,
                    (_, Number::Whole(b)) if b != 0 => Number::Whole(1),
                    (Number::Whole(_), Number::Whole(_)) => Number::Whole(0),
                    _ => Number::Null,
                },
            },
            Term::Not(a) => match a.evaluate(row) {
                Number::Whole(n) => Number::Whole((n == 0).into()),
                other => other,
            },
            Term::IsNull(a) => match a.evaluate(row) {
                Number::Whole(_) => Number::Whole(0),
                Number::Null => Number::Whole(1),
                Number::Other => Number::Other,
            },
            Term::Case(arms, other) => {
                for (condition, value) in arms {
                    match condition.evaluate(row) {
                        Number::Whole(0) | Number::Null => {}
                        Number::Whole(_) => return value.evaluate(row),
                        Number::Other => return Number::Other,
                    }
                }
                other.evaluate(row)
            }
        }
    }
}

/// A column of texts beside a text. What is not UTF-8 in a recording becomes U+FFFD, so that other bytes can be the same text as one
/// with that in it.
fn text_is(column: &Expr, text: &Expr, place: &impl Fn(usize) -> Option<Place>) -> Option<Term> {
    let (Expr::Column(column), Expr::Text(text)) = (column, text) else { return None };
    let Place::Text(at) = place(*column)? else { return None };
    (!text.contains(char::REPLACEMENT_CHARACTER)).then(|| Term::TextIs(at, text.as_bytes().into()))
}

#[inline]
fn arithmetic(op: Arithmetic, a: i64, b: i64) -> Number {
    let result = match op {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide | Arithmetic::Remainder if b == 0 => return Number::Null,
        Arithmetic::Divide => a.checked_div(b),
        Arithmetic::Remainder => Some(a.wrapping_rem(b)),
    };
    result.map_or(Number::Other, Number::Whole)
}
