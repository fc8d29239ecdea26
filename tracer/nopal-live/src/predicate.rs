//! Conditions on an event's arguments, such as `len > 100 && name == "get*"`: parsed once, evaluated per event without
//! allocating. Does not know where values come from.

mod fit;
mod glob;
mod parse;
#[cfg(test)]
mod tests;

pub use fit::{Fields, fit};
pub use glob::Glob;
pub use parse::PredicateError;

use nopal_capture::record::{self, Text};
use nopal_proc::facts::Fact;
use std::cmp::Ordering;

/// What an argument holds at evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Wide enough for every 64-bit integer, signed or not.
    Int(i128),
    Float(f64),
    Text(&'a [u8]),
    /// A text that begins like this and goes on: nobody knows how.
    Cut(&'a [u8]),
    /// The argument could not be read; no comparison with it holds.
    Absent,
}

/// A text ends at its NUL, as in the event.
impl<'a> From<Text<'a>> for Value<'a> {
    fn from(text: Text<'a>) -> Value<'a> {
        match text.bytes.iter().position(|byte| *byte == 0) {
            _ if text.is_null || text.is_unreadable => Value::Absent,
            Some(end) => Value::Text(&text.bytes[..end]),
            None if text.is_truncated => Value::Cut(text.bytes),
            None => Value::Text(text.bytes),
        }
    }
}

impl<'a> From<record::Value<'a>> for Value<'a> {
    fn from(value: record::Value<'a>) -> Value<'a> {
        match value {
            record::Value::Unsigned(n) => Value::Int(n.into()),
            record::Value::Signed(n) => Value::Int(n.into()),
            record::Value::Float(n) => Value::Float(n),
            record::Value::Wide(_) => Value::Absent,
            record::Value::Text(text) => Value::from(text),
        }
    }
}

/// Where a condition takes a value from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// By the field's position in the event.
    Field(usize),
    /// An element of an array or a sequence.
    Element {
        field: usize,
        index: usize,
    },
    Context(Context),
}

/// What is known of an event beside its fields, `$ctx.NAME` in LTTng's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    Vpid,
    Vtid,
    CpuId,
    Procname,
    /// Whose the process is, or one of its namespaces.
    Fact(Fact),
}

/// What a condition says of an event. A text that was cut may leave it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    Yes,
    No,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// First and last value of a label of the field's enum.
pub type LabelOf<'a> = dyn Fn(usize, &str) -> Option<(i128, i128)> + 'a;

/// Gives the values of one event.
pub type ValueOf<'a, 'v> = dyn Fn(Source) -> Value<'v> + 'a;

/// A condition over fields named by their position in the event.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// What a stub may decide.
    Compare {
        field: usize,
        comparison: Comparison,
        constant: Constant,
    },
    Relate {
        left: Term,
        comparison: Comparison,
        right: Term,
    },
    /// The term is not 0.
    Holds(Term),
    Not(Box<Predicate>),
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
}

/// A value that is computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Constant(Constant),
    Source(Source),
    Unary(Unary, Box<Term>),
    Binary(Binary, Box<Term>, Box<Term>),
    /// 1 or 0.
    Truth(Box<Predicate>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    Minus,
    Invert,
}

/// On 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    And,
    Or,
    Xor,
    Left,
    Right,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    Int(i128),
    Float(f64),
    /// May hold `*`, which stands for any bytes; `\*` is a star.
    Text(Glob),
}

/// A condition that compares what cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// A text is compared with a number, or computed with; or a number compared with a text.
    Field(usize),
    Context(Context),
    Constant,
}

/// What a term evaluates to.
enum Got<'p, 'v> {
    Value(Value<'v>),
    Pattern(&'p Glob),
}

impl Predicate {
    pub fn decide<'v>(&self, value: &ValueOf<'_, 'v>) -> Truth {
        match self {
            Predicate::Compare { field, comparison, constant } => {
                let value = Got::Value(value(Source::Field(*field)));
                comparison.decide(value, Got::of(constant))
            }
            Predicate::Relate { left, comparison, right } => {
                comparison.decide(left.get(value), right.get(value))
            }
            Predicate::Holds(term) => match term.get(value) {
                Got::Value(Value::Int(n)) => Truth::from(n as u64 != 0),
                Got::Value(Value::Float(n)) => Truth::from(n != 0.0),
                Got::Value(Value::Text(_) | Value::Cut(_) | Value::Absent) | Got::Pattern(_) => Truth::No,
            },
            Predicate::Not(inner) => inner.decide(value).inverse(),
            Predicate::All(parts) => {
                let mut all = Truth::Yes;
                for part in parts {
                    match part.decide(value) {
                        Truth::No => return Truth::No,
                        Truth::Unknown => all = Truth::Unknown,
                        Truth::Yes => {}
                    }
                }
                all
            }
            Predicate::Any(parts) => {
                let mut any = Truth::No;
                for part in parts {
                    match part.decide(value) {
                        Truth::Yes => return Truth::Yes,
                        Truth::Unknown => any = Truth::Unknown,
                        Truth::No => {}
                    }
                }
                any
            }
        }
    }

    /// The first place where a text is compared with a number, or computed with.
    pub fn mismatch(&self, is_text: &dyn Fn(Source) -> bool) -> Option<Mismatch> {
        match self {
            Predicate::Compare { field, constant, .. } => {
                let is_same = matches!(constant, Constant::Text(_)) == is_text(Source::Field(*field));
                (!is_same).then_some(Mismatch::Field(*field))
            }
            Predicate::Relate { left, right, .. } => {
                left.mismatch(is_text).or_else(|| right.mismatch(is_text)).or_else(|| {
                    let is_same = left.is_text(is_text) == right.is_text(is_text);
                    let culprit = left.culprit().or(right.culprit()).unwrap_or(Mismatch::Constant);
                    (!is_same).then_some(culprit)
                })
            }
            Predicate::Holds(term) => {
                let is_text_alone = term.is_text(is_text);
                term.mismatch(is_text)
                    .or_else(|| is_text_alone.then(|| term.culprit().unwrap_or(Mismatch::Constant)))
            }
            Predicate::Not(inner) => inner.mismatch(is_text),
            Predicate::All(parts) | Predicate::Any(parts) => parts.iter().find_map(|p| p.mismatch(is_text)),
        }
    }

    /// Whether any part takes its value from such a source.
    pub fn has_source(&self, is_it: &dyn Fn(Source) -> bool) -> bool {
        match self {
            Predicate::Compare { field, .. } => is_it(Source::Field(*field)),
            Predicate::Relate { left, right, .. } => left.has_source(is_it) || right.has_source(is_it),
            Predicate::Holds(term) => term.has_source(is_it),
            Predicate::Not(inner) => inner.has_source(is_it),
            Predicate::All(parts) | Predicate::Any(parts) => parts.iter().any(|p| p.has_source(is_it)),
        }
    }
}

impl Term {
    fn get<'p, 'v>(&'p self, value: &ValueOf<'_, 'v>) -> Got<'p, 'v> {
        match self {
            Term::Constant(constant) => Got::of(constant),
            Term::Source(source) => Got::Value(value(*source)),
            Term::Truth(predicate) => Got::Value(match predicate.decide(value) {
                Truth::Yes => Value::Int(1),
                Truth::No => Value::Int(0),
                Truth::Unknown => Value::Absent,
            }),
            Term::Unary(unary, inner) => Got::Value(match (unary, inner.get(value)) {
                (Unary::Minus, Got::Value(Value::Int(n))) => {
                    Value::Int(i128::from((n as i64).wrapping_neg()))
                }
                (Unary::Minus, Got::Value(Value::Float(n))) => Value::Float(-n),
                (Unary::Invert, Got::Value(Value::Int(n))) => Value::Int(of_bits(!(n as u64), &[n])),
                (Unary::Minus | Unary::Invert, _) => Value::Absent,
            }),
            Term::Binary(binary, left, right) => Got::Value(match (left.get(value), right.get(value)) {
                (Got::Value(Value::Int(left)), Got::Value(Value::Int(right))) => {
                    binary.compute(left, right).map_or(Value::Absent, Value::Int)
                }
                _ => Value::Absent,
            }),
        }
    }

    fn is_text(&self, is_text: &dyn Fn(Source) -> bool) -> bool {
        match self {
            Term::Constant(constant) => matches!(constant, Constant::Text(_)),
            Term::Source(source) => is_text(*source),
            Term::Unary(..) | Term::Binary(..) | Term::Truth(_) => false,
        }
    }

    fn mismatch(&self, is_text: &dyn Fn(Source) -> bool) -> Option<Mismatch> {
        let number = |term: &Term| {
            let wrong = || term.is_text(is_text).then(|| term.culprit().unwrap_or(Mismatch::Constant));
            term.mismatch(is_text).or_else(wrong)
        };
        match self {
            Term::Constant(_) | Term::Source(_) => None,
            Term::Unary(_, inner) => number(inner),
            Term::Binary(_, left, right) => number(left).or_else(|| number(right)),
            Term::Truth(predicate) => predicate.mismatch(is_text),
        }
    }

    /// What is to be named if it does not fit.
    fn culprit(&self) -> Option<Mismatch> {
        match self {
            Term::Source(Source::Field(field) | Source::Element { field, .. }) => {
                Some(Mismatch::Field(*field))
            }
            Term::Source(Source::Context(context)) => Some(Mismatch::Context(*context)),
            Term::Constant(_) | Term::Truth(_) => None,
            Term::Unary(_, inner) => inner.culprit(),
            Term::Binary(_, left, right) => left.culprit().or_else(|| right.culprit()),
        }
    }

    fn has_source(&self, is_it: &dyn Fn(Source) -> bool) -> bool {
        match self {
            Term::Constant(_) => false,
            Term::Source(source) => is_it(*source),
            Term::Unary(_, inner) => inner.has_source(is_it),
            Term::Binary(_, left, right) => left.has_source(is_it) || right.has_source(is_it),
            Term::Truth(predicate) => predicate.has_source(is_it),
        }
    }
}

impl Binary {
    /// A shift by more than there are bits has no result.
    fn compute(self, left: i128, right: i128) -> Option<i128> {
        let (a, b) = (left as u64, right as u64);
        let by = u32::try_from(right).ok();
        let both = |bits| of_bits(bits, &[left, right]);
        match self {
            Binary::And => Some(both(a & b)),
            Binary::Or => Some(both(a | b)),
            Binary::Xor => Some(both(a ^ b)),
            Binary::Left => by.and_then(|by| a.checked_shl(by)).map(both),
            // As in LTTng, zeros come in from the left.
            Binary::Right => by.and_then(|by| a.checked_shr(by)).map(i128::from),
        }
    }
}

/// A number of 64 bits that was made of others: one without a sign if one of those was too large to have one.
fn of_bits(bits: u64, made_of: &[i128]) -> i128 {
    match made_of.iter().any(|n| *n > i128::from(i64::MAX)) {
        true => bits.into(),
        false => (bits as i64).into(),
    }
}

impl<'p> Got<'p, '_> {
    fn of(constant: &'p Constant) -> Self {
        match constant {
            Constant::Int(n) => Got::Value(Value::Int(*n)),
            Constant::Float(n) => Got::Value(Value::Float(*n)),
            Constant::Text(glob) => Got::Pattern(glob),
        }
    }
}

impl Comparison {
    /// The same with its sides exchanged.
    fn mirrored(self) -> Comparison {
        match self {
            Comparison::Eq | Comparison::Ne => self,
            Comparison::Lt => Comparison::Gt,
            Comparison::Le => Comparison::Ge,
            Comparison::Gt => Comparison::Lt,
            Comparison::Ge => Comparison::Le,
        }
    }

    /// The comparison of a field with values that have one name.
    fn with_range(self, field: usize, (first, last): (i128, i128)) -> Predicate {
        let compare =
            |comparison, value| Predicate::Compare { field, comparison, constant: Constant::Int(value) };
        match self {
            Comparison::Eq if first != last => {
                Predicate::All(vec![compare(Comparison::Ge, first), compare(Comparison::Le, last)])
            }
            Comparison::Ne if first != last => {
                Predicate::Any(vec![compare(Comparison::Lt, first), compare(Comparison::Gt, last)])
            }
            Comparison::Eq | Comparison::Ne | Comparison::Lt | Comparison::Ge => compare(self, first),
            Comparison::Le | Comparison::Gt => compare(self, last),
        }
    }

    fn decide(self, left: Got<'_, '_>, right: Got<'_, '_>) -> Truth {
        let (left, right) = match (left, right) {
            (Got::Value(left), Got::Value(right)) => (left, right),
            (Got::Value(Value::Text(text)), Got::Pattern(glob)) => return self.with_glob(text, glob),
            (Got::Value(Value::Cut(start)), Got::Pattern(glob)) => {
                return self.with_glob_of_start(start, glob);
            }
            (Got::Value(Value::Absent), Got::Pattern(_)) => return Truth::No,
            (Got::Value(_), Got::Pattern(_)) => return Truth::from(self == Comparison::Ne),
            (Got::Pattern(glob), Got::Value(value)) => {
                return self.mirrored().decide(Got::Value(value), Got::Pattern(glob));
            }
            (Got::Pattern(left), Got::Pattern(right)) => return self.with_glob(left.literal(), right),
        };
        let order = match (left, right) {
            (Value::Absent, _) | (_, Value::Absent) => return Truth::No,
            // As in C and in LTTng: 64 bits that are the same are equal, whatever their signs.
            (Value::Int(left), Value::Int(right)) if left as u64 == right as u64 => Some(Ordering::Equal),
            (Value::Int(left), Value::Int(right)) => Some(left.cmp(&right)),
            (Value::Int(left), Value::Float(right)) => (left as f64).partial_cmp(&right),
            (Value::Float(left), Value::Int(right)) => left.partial_cmp(&(right as f64)),
            (Value::Float(left), Value::Float(right)) => left.partial_cmp(&right),
            (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
            (Value::Text(left) | Value::Cut(left), Value::Text(right) | Value::Cut(right)) => {
                let n_common = left.len().min(right.len());
                match left[..n_common].cmp(&right[..n_common]) {
                    Ordering::Equal => return Truth::Unknown,
                    order => Some(order),
                }
            }
            (Value::Text(_) | Value::Cut(_), Value::Int(_) | Value::Float(_))
            | (Value::Int(_) | Value::Float(_), Value::Text(_) | Value::Cut(_)) => None,
        };
        Truth::from(match order {
            Some(order) => self.accepts(order),
            None => self == Comparison::Ne,
        })
    }

    fn accepts(self, order: Ordering) -> bool {
        match self {
            Comparison::Eq => order == Ordering::Equal,
            Comparison::Ne => order != Ordering::Equal,
            Comparison::Lt => order == Ordering::Less,
            Comparison::Le => order != Ordering::Greater,
            Comparison::Gt => order == Ordering::Greater,
            Comparison::Ge => order != Ordering::Less,
        }
    }

    fn with_glob(self, text: &[u8], glob: &Glob) -> Truth {
        Truth::from(match self {
            Comparison::Eq => glob.matches(text),
            Comparison::Ne => !glob.matches(text),
            Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge => {
                self.accepts(text.cmp(glob.literal()))
            }
        })
    }

    fn with_glob_of_start(self, start: &[u8], glob: &Glob) -> Truth {
        let literal = glob.literal();
        match self {
            Comparison::Eq => glob.matches_start(start),
            Comparison::Ne => glob.matches_start(start).inverse(),
            Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge => {
                // It goes on, so it is longer than a text that it begins with.
                match start.cmp(literal) {
                    Ordering::Equal => Truth::from(self.accepts(Ordering::Greater)),
                    Ordering::Less if literal.starts_with(start) => Truth::Unknown,
                    order => Truth::from(self.accepts(order)),
                }
            }
        }
    }
}

impl Truth {
    fn inverse(self) -> Truth {
        match self {
            Truth::Yes => Truth::No,
            Truth::No => Truth::Yes,
            Truth::Unknown => Truth::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(is_true: bool) -> Truth {
        if is_true { Truth::Yes } else { Truth::No }
    }
}

impl Context {
    fn all() -> impl Iterator<Item = Context> {
        let own = [Context::Vpid, Context::Vtid, Context::CpuId, Context::Procname];
        own.into_iter().chain(Fact::ALL.map(Context::Fact))
    }

    pub fn name(self) -> &'static str {
        match self {
            Context::Vpid => "vpid",
            Context::Vtid => "vtid",
            Context::CpuId => "cpu_id",
            Context::Procname => "procname",
            Context::Fact(fact) => fact.name(),
        }
    }

    fn parse(name: &str) -> Option<Context> {
        Context::all().find(|context| context.name() == name)
    }
}
