//! What is added up, by group.

use super::evaluate::{Odd, Row, Scalar, evaluate, is_true, order};
use super::expression::Expr;
use super::lately::{Lately, Numbers};
use super::term::Number;
use std::borrow::Cow;
use std::collections::HashMap;

/// What a statement asks of each group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub function: Function,
    /// None for `count(*)`.
    pub argument: Option<Expr>,
    /// Rows that count.
    pub filter: Option<Expr>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Function {
    Count,
    Sum,
    Total,
    Average,
    Least,
    Most,
    /// With the share below it.
    Percentile {
        share: f64,
        is_discrete: bool,
    },
}

/// The groups of a statement: by which values, of which rows, and what of them.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub filter: Option<Expr>,
    pub keys: Vec<Expr>,
    /// What is added up; several answers may come of one sum.
    pub sums: Vec<Aggregate>,
    /// Which sum, and what of it.
    pub answers: Vec<(usize, Function)>,
    /// Without `GROUP BY` there is one group, also of no rows.
    pub is_one: bool,
}

impl Question {
    /// Asks for one thing more; returns its place among the answers.
    pub(crate) fn ask(&mut self, wanted: Aggregate) -> usize {
        let is_same = |known: &Aggregate| {
            Sum::new(known.function).kind() == Sum::new(wanted.function).kind()
                && known.argument == wanted.argument
                && known.filter == wanted.filter
        };
        let function = wanted.function;
        let sum = self.sums.iter().position(is_same).unwrap_or_else(|| {
            self.sums.push(wanted);
            self.sums.len() - 1
        });
        let answer = (sum, function);
        self.answers.iter().position(|known| *known == answer).unwrap_or_else(|| {
            self.answers.push(answer);
            self.answers.len() - 1
        })
    }

    /// Every expression in it.
    pub(crate) fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let of_sums =
            self.sums.iter_mut().flat_map(|sum| sum.argument.iter_mut().chain(sum.filter.iter_mut()));
        self.filter.iter_mut().chain(self.keys.iter_mut()).chain(of_sums)
    }

    /// Calls `each` with every column in use.
    pub(crate) fn columns(&self, each: &mut impl FnMut(usize)) {
        let of_sums = self.sums.iter().flat_map(|sum| sum.argument.iter().chain(sum.filter.iter()));
        self.filter.iter().chain(self.keys.iter()).chain(of_sums).for_each(|expr| expr.columns(each));
    }
}

#[derive(Debug, Clone)]
enum Sum {
    Count(i64),
    /// The sum, the sum of all without their signs, and how many.
    Whole {
        sum: i64,
        size: u64,
        n: i64,
    },
    Least(Scalar<'static>),
    Most(Scalar<'static>),
    Values(Vec<f64>),
}

impl Sum {
    fn kind(&self) -> u8 {
        match self {
            Sum::Count(_) => 0,
            Sum::Whole { .. } => 1,
            Sum::Least(_) => 2,
            Sum::Most(_) => 3,
            Sum::Values(_) => 4,
        }
    }

    fn new(function: Function) -> Sum {
        match function {
            Function::Count => Sum::Count(0),
            Function::Sum | Function::Total | Function::Average => Sum::Whole { sum: 0, size: 0, n: 0 },
            Function::Least => Sum::Least(Scalar::Null),
            Function::Most => Sum::Most(Scalar::Null),
            Function::Percentile { .. } => Sum::Values(Vec::new()),
        }
    }

    /// Adds a value; returns the bytes that it takes.
    #[inline]
    fn add(&mut self, value: Scalar<'_>) -> Result<usize, Odd> {
        match (self, value) {
            (_, Scalar::Null) => {}
            (Sum::Count(n), _) => *n += 1,
            (Sum::Whole { sum, size, n }, Scalar::Integer(value)) => {
                // If all of them without their signs fit, no order of adding them overflows.
                *size = size.checked_add(value.unsigned_abs()).filter(|size| *size <= MAX_SIZE).ok_or(Odd)?;
                *sum += value;
                *n += 1;
            }
            // Real numbers add up to another sum in another order, and texts are read as numbers.
            (Sum::Whole { .. }, Scalar::Real(_) | Scalar::Text(_)) => return Err(Odd),
            // Two zeros that are equal and not the same.
            (Sum::Least(_) | Sum::Most(_) | Sum::Values(_), Scalar::Real(n))
                if n == 0.0 && n.is_sign_negative() =>
            {
                return Err(Odd);
            }
            (Sum::Least(known), value) => return Ok(replace(known, value, true)),
            (Sum::Most(known), value) => return Ok(replace(known, value, false)),
            (Sum::Values(all), Scalar::Integer(n)) => return Ok(push(all, n as f64)),
            (Sum::Values(all), Scalar::Real(n)) if n.is_finite() => return Ok(push(all, n)),
            (Sum::Values(_), Scalar::Real(_) | Scalar::Text(_)) => return Err(Odd),
        }
        Ok(0)
    }

    /// As [`Sum::add`] of a whole number.
    #[inline]
    fn add_whole(&mut self, value: i64) -> Result<usize, Odd> {
        match self {
            Sum::Count(n) => *n += 1,
            Sum::Least(Scalar::Integer(known)) => *known = value.min(*known),
            Sum::Most(Scalar::Integer(known)) => *known = value.max(*known),
            other => return other.add(Scalar::Integer(value)),
        }
        Ok(0)
    }

    fn merge(&mut self, other: Sum) -> Result<(), Odd> {
        match (self, other) {
            (Sum::Count(a), Sum::Count(b)) => *a += b,
            (Sum::Whole { sum, size, n }, Sum::Whole { sum: more, size: more_size, n: more_n }) => {
                *size = size.checked_add(more_size).filter(|size| *size <= MAX_SIZE).ok_or(Odd)?;
                *sum += more;
                *n += more_n;
            }
            (Sum::Least(known), Sum::Least(value)) if value != Scalar::Null => {
                replace(known, value, true);
            }
            (Sum::Most(known), Sum::Most(value)) if value != Scalar::Null => {
                replace(known, value, false);
            }
            (Sum::Values(a), Sum::Values(b)) => {
                if a.is_empty() {
                    *a = b;
                } else {
                    a.reserve_exact(b.len());
                    a.extend_from_slice(&b);
                }
            }
            (Sum::Least(_) | Sum::Most(_), _) => {}
            (Sum::Count(_) | Sum::Whole { .. } | Sum::Values(_), _) => return Err(Odd),
        }
        Ok(())
    }

    fn finish(&mut self, function: Function) -> Scalar<'static> {
        match (self, function) {
            (Sum::Count(n), _) => Scalar::Integer(*n),
            (Sum::Whole { sum, .. }, Function::Total) => Scalar::Real(*sum as f64),
            (Sum::Whole { n: 0, .. }, _) => Scalar::Null,
            (Sum::Whole { sum, n, .. }, Function::Average) => Scalar::Real(*sum as f64 / *n as f64),
            (Sum::Whole { sum, .. }, _) => Scalar::Integer(*sum),
            (Sum::Least(value) | Sum::Most(value), _) => value.clone(),
            (Sum::Values(all), Function::Percentile { share, is_discrete }) => {
                percentile(all, share, is_discrete)
            }
            (Sum::Values(_), _) => Scalar::Null,
        }
    }
}

const MAX_SIZE: u64 = i64::MAX as u64;

fn replace(known: &mut Scalar<'static>, value: Scalar<'_>, is_least: bool) -> usize {
    let order = order(&value, known);
    if *known == Scalar::Null || (is_least && order.is_lt()) || (!is_least && order.is_gt()) {
        let before = text_bytes(known);
        *known = owned(value);
        return text_bytes(known).saturating_sub(before);
    }
    0
}

fn text_bytes(value: &Scalar<'_>) -> usize {
    if let Scalar::Text(text) = value { text.len() } else { 0 }
}

fn push(all: &mut Vec<f64>, value: f64) -> usize {
    all.push(value);
    size_of::<f64>()
}

fn owned(value: Scalar<'_>) -> Scalar<'static> {
    match value {
        Scalar::Null => Scalar::Null,
        Scalar::Integer(n) => Scalar::Integer(n),
        Scalar::Real(n) => Scalar::Real(n),
        Scalar::Text(text) => Scalar::Text(Cow::Owned(text.into_owned())),
    }
}

/// As SQLite has it: between the two values next to the share.
fn percentile(all: &mut [f64], share: f64, is_discrete: bool) -> Scalar<'static> {
    let Some(last) = all.len().checked_sub(1) else { return Scalar::Null };
    let place = share * last as f64;
    let at = (place as usize).min(last);
    let (_, low, above) = all.select_nth_unstable_by(at, f64::total_cmp);
    let low = *low;
    if is_discrete {
        return Scalar::real(low);
    }
    let high = match place == at as f64 {
        true => low,
        false => above.iter().copied().min_by(f64::total_cmp).unwrap_or(low),
    };
    Scalar::real(low + (high - low) * (place - at as f64))
}

/// Groups and their sums, of one thread.
#[derive(Debug)]
pub(crate) struct Groups {
    by_key: HashMap<Box<[u8]>, u32>,
    /// Those of one group after those of another.
    sums: Vec<Sum>,
    functions: Vec<Function>,
    answers: Vec<(usize, Function)>,
    /// The key of the last row and its group.
    last: (Vec<u8>, u32),
    key: Vec<u8>,
    lately: Lately,
    /// What was kept since this was last asked.
    n_bytes: usize,
    /// Something came that SQLite must deal with.
    pub is_odd: bool,
}

/// A row of what comes out: values of keys, then of aggregates.
pub(crate) type Grouped = Vec<Scalar<'static>>;

/// What a group takes beside its key and its sums.
const BYTES_OF_GROUP: usize = 64;

impl Groups {
    pub(crate) fn new(question: &Question) -> Groups {
        let functions: Vec<Function> = question.sums.iter().map(|sum| sum.function).collect();
        let mut groups = Groups {
            by_key: HashMap::new(),
            sums: Vec::new(),
            functions,
            answers: question.answers.clone(),
            last: (Vec::new(), u32::MAX),
            key: Vec::new(),
            lately: Lately::default(),
            n_bytes: 0,
            is_odd: false,
        };
        if question.is_one {
            groups.group();
        }
        groups
    }

    /// Adds a row.
    #[inline]
    pub(crate) fn add(&mut self, question: &Question, row: &impl Row) {
        if self.try_add(question, row).is_err() {
            self.is_odd = true;
        }
    }

    /// Bytes that were taken since this was last asked.
    pub(crate) fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.n_bytes)
    }

    #[inline]
    fn try_add(&mut self, question: &Question, row: &impl Row) -> Result<(), Odd> {
        if let Some(filter) = &question.filter
            && !is_true(filter, row)?
        {
            return Ok(());
        }
        self.key.clear();
        for key in &question.keys {
            encode(&evaluate(key, row)?, &mut self.key)?;
        }
        let group =
            if self.last.1 != u32::MAX && self.last.0 == self.key { self.last.1 } else { self.group() };
        let first = group as usize * question.sums.len();
        for (sum, aggregate) in self.sums[first..].iter_mut().zip(&question.sums) {
            if let Some(filter) = &aggregate.filter
                && !is_true(filter, row)?
            {
                continue;
            }
            let value = match &aggregate.argument {
                Some(argument) => evaluate(argument, row)?,
                None => Scalar::Integer(1),
            };
            self.n_bytes += sum.add(value)?;
        }
        Ok(())
    }

    /// The group of numbers of a class; `key` makes the key of it.
    #[inline]
    pub(super) fn by_numbers(&mut self, wanted: Numbers, key: impl FnOnce(&mut Vec<u8>)) -> u32 {
        if let Some(group) = self.lately.by_numbers(&wanted) {
            return group;
        }
        let group = self.find(key);
        self.lately.keep_numbers(wanted, group, self.by_key.len());
        group
    }

    /// The same for values of a class as bytes.
    #[inline]
    pub(super) fn by_bytes(&mut self, wanted: &[u8], key: impl FnOnce(&mut Vec<u8>)) -> u32 {
        if let Some(group) = self.lately.by_bytes(wanted) {
            return group;
        }
        let group = self.find(key);
        self.lately.keep_bytes(wanted, group, self.by_key.len());
        group
    }

    fn find(&mut self, key: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.key.clear();
        key(&mut self.key);
        self.group()
    }

    /// Adds a row of a group: what it has for each sum.
    #[inline]
    pub(super) fn add_numbers(&mut self, group: u32, numbers: &[Number]) {
        let first = group as usize * numbers.len();
        for (sum, number) in self.sums[first..].iter_mut().zip(numbers) {
            if let Number::Whole(n) = number {
                match sum.add_whole(*n) {
                    Ok(n_bytes) => self.n_bytes += n_bytes,
                    Err(Odd) => self.is_odd = true,
                }
            }
        }
    }

    /// The group of the key at hand.
    fn group(&mut self) -> u32 {
        let group = match self.by_key.get(self.key.as_slice()) {
            Some(group) => *group,
            None => {
                let group = self.by_key.len() as u32;
                self.by_key.insert(self.key.as_slice().into(), group);
                self.sums.extend(self.functions.iter().map(|function| Sum::new(*function)));
                self.n_bytes += BYTES_OF_GROUP + self.key.len() + self.functions.len() * size_of::<Sum>();
                group
            }
        };
        self.last.0.clone_from(&self.key);
        self.last.1 = group;
        group
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: Groups) -> Result<(), Odd> {
        let n = self.functions.len();
        let mut theirs: Vec<Option<Sum>> = other.sums.into_iter().map(Some).collect();
        for (key, group) in other.by_key {
            self.key.clear();
            self.key.extend_from_slice(&key);
            let mine = self.group() as usize;
            for at in 0..n {
                let sum = theirs.get_mut(group as usize * n + at).and_then(Option::take);
                self.sums[mine * n + at].merge(sum.ok_or(Odd)?)?;
            }
        }
        Ok(())
    }

    /// What comes out, in the order of the keys.
    pub(crate) fn finish(mut self, is_descending: &[bool]) -> Vec<Grouped> {
        let n = self.functions.len();
        let mut rows: Vec<Grouped> = Vec::with_capacity(self.by_key.len());
        for (key, group) in std::mem::take(&mut self.by_key) {
            let mut row = decode(&key);
            for (sum, function) in &self.answers {
                row.push(self.sums[group as usize * n + sum].finish(*function));
            }
            rows.push(row);
        }
        rows.sort_unstable_by(|a, b| {
            let orders = a
                .iter()
                .zip(b)
                .zip(is_descending)
                .map(|((a, b), is_descending)| if *is_descending { order(b, a) } else { order(a, b) });
            orders.reduce(std::cmp::Ordering::then).unwrap_or(std::cmp::Ordering::Equal)
        });
        rows
    }
}

/// Appends bytes that are the same for equal values only.
#[inline]
pub(super) fn encode(value: &Scalar<'_>, into: &mut Vec<u8>) -> Result<(), Odd> {
    match value {
        Scalar::Null => into.push(0),
        Scalar::Integer(n) => {
            into.push(1);
            into.extend_from_slice(&n.to_le_bytes());
        }
        Scalar::Text(text) => {
            into.push(2);
            into.extend_from_slice(&(text.len() as u64).to_le_bytes());
            into.extend_from_slice(text.as_bytes());
        }
        // 1 and 1.0 are one group in SQLite, as are both zeros.
        Scalar::Real(_) => return Err(Odd),
    }
    Ok(())
}

fn decode(mut key: &[u8]) -> Grouped {
    let mut values = Vec::new();
    while let Some((tag, rest)) = key.split_first() {
        if *tag == 0 {
            values.push(Scalar::Null);
            key = rest;
            continue;
        }
        let (number, rest) = rest.split_at(8);
        let number = i64::from_le_bytes(number.try_into().expect("eight bytes, by encode()"));
        if *tag == 1 {
            values.push(Scalar::Integer(number));
            key = rest;
        } else {
            let (text, rest) = rest.split_at(number as usize);
            values.push(Scalar::Text(Cow::Owned(String::from_utf8_lossy(text).into_owned())));
            key = rest;
        }
    }
    values
}
