//! Works out expressions for one row.

use super::expression::{Arithmetic, Compare, Expr};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A value as SQLite has them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
}

/// SQLite has a rule for this that is not known here, so that it must do all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Odd;

/// A row of a table.
pub(crate) trait Row {
    fn get(&self, column: usize) -> Scalar<'_>;
}

impl<'a> Scalar<'a> {
    /// Numbers of 64 bits without a sign that SQLite has no room for are texts.
    #[inline]
    pub(crate) fn unsigned(n: u64) -> Scalar<'a> {
        i64::try_from(n).map_or_else(|_| Scalar::Text(Cow::Owned(n.to_string())), Scalar::Integer)
    }

    /// SQLite has no number that is none.
    #[inline]
    pub(crate) fn real(n: f64) -> Scalar<'a> {
        if n.is_nan() { Scalar::Null } else { Scalar::Real(n) }
    }

    #[inline]
    pub(crate) fn text(bytes: &'a [u8]) -> Scalar<'a> {
        Scalar::Text(match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        })
    }

    /// As a condition; none if it is unknown.
    #[inline]
    fn truth(&self) -> Result<Option<bool>, Odd> {
        match self {
            Scalar::Null => Ok(None),
            Scalar::Integer(n) => Ok(Some(*n != 0)),
            Scalar::Real(n) => Ok(Some(*n != 0.0)),
            Scalar::Text(_) => Err(Odd),
        }
    }
}

fn of_truth(truth: Option<bool>) -> Scalar<'static> {
    truth.map_or(Scalar::Null, |truth| Scalar::Integer(truth.into()))
}

/// Whether a row fulfils a condition.
#[inline]
pub(crate) fn is_true(condition: &Expr, row: &impl Row) -> Result<bool, Odd> {
    Ok(evaluate(condition, row)?.truth()? == Some(true))
}

#[inline]
pub(crate) fn evaluate<'a, R: Row>(expr: &'a Expr, row: &'a R) -> Result<Scalar<'a>, Odd> {
    match expr {
        Expr::Column(column) => Ok(row.get(*column)),
        Expr::Integer(n) => Ok(Scalar::Integer(*n)),
        Expr::Text(text) => Ok(Scalar::Text(Cow::Borrowed(text))),
        other => evaluate_more(other, row),
    }
}

fn evaluate_more<'a, R: Row>(expr: &'a Expr, row: &'a R) -> Result<Scalar<'a>, Odd> {
    Ok(match expr {
        Expr::Column(_) | Expr::Integer(_) | Expr::Text(_) => return evaluate(expr, row),
        Expr::Null => Scalar::Null,
        Expr::Real(n) => Scalar::Real(*n),
        Expr::Arithmetic(op, a, b) => arithmetic(*op, &evaluate(a, row)?, &evaluate(b, row)?)?,
        Expr::Compare(how, a, b) => {
            let (a, b) = (evaluate(a, row)?, evaluate(b, row)?);
            if a == Scalar::Null || b == Scalar::Null {
                return Ok(Scalar::Null);
            }
            let is_text = |scalar: &Scalar<'_>| matches!(scalar, Scalar::Text(_));
            if is_text(&a) != is_text(&b) || is_text(&a) && how.is_of_numbers {
                return Err(Odd);
            }
            let order = order(&a, &b);
            Scalar::Integer(i64::from(match how.op {
                Compare::Eq => order.is_eq(),
                Compare::Ne => order.is_ne(),
                Compare::Lt => order.is_lt(),
                Compare::Le => order.is_le(),
                Compare::Gt => order.is_gt(),
                Compare::Ge => order.is_ge(),
            }))
        }
        Expr::And(a, b) => {
            let a = evaluate(a, row)?.truth()?;
            if a == Some(false) {
                return Ok(Scalar::Integer(0));
            }
            match (a, evaluate(b, row)?.truth()?) {
                (_, Some(false)) => Scalar::Integer(0),
                (Some(true), b) => of_truth(b),
                _ => Scalar::Null,
            }
        }
        Expr::Or(a, b) => {
            let a = evaluate(a, row)?.truth()?;
            if a == Some(true) {
                return Ok(Scalar::Integer(1));
            }
            match (a, evaluate(b, row)?.truth()?) {
                (_, Some(true)) => Scalar::Integer(1),
                (Some(false), b) => of_truth(b),
                _ => Scalar::Null,
            }
        }
        Expr::Not(a) => of_truth(evaluate(a, row)?.truth()?.map(|truth| !truth)),
        Expr::IsNull(a) => Scalar::Integer((evaluate(a, row)? == Scalar::Null).into()),
        Expr::Like(a, pattern) => match evaluate(a, row)? {
            Scalar::Null => Scalar::Null,
            Scalar::Integer(n) => Scalar::Integer(is_like(&n.to_string(), pattern).into()),
            Scalar::Text(text) => Scalar::Integer(is_like(&text, pattern).into()),
            Scalar::Real(_) => return Err(Odd),
        },
        Expr::Case(arms, other) => {
            for (condition, value) in arms {
                if is_true(condition, row)? {
                    return evaluate(value, row);
                }
            }
            return evaluate(other, row);
        }
    })
}

fn arithmetic(op: Arithmetic, a: &Scalar<'_>, b: &Scalar<'_>) -> Result<Scalar<'static>, Odd> {
    let whole = |n: Option<i64>| n.map(Scalar::Integer).ok_or(Odd);
    match (a, b) {
        (Scalar::Text(_), _) | (_, Scalar::Text(_)) => Err(Odd),
        (Scalar::Null, _) | (_, Scalar::Null) => Ok(Scalar::Null),
        // What does not fit becomes a real number in SQLite.
        (Scalar::Integer(a), Scalar::Integer(b)) => match op {
            Arithmetic::Add => whole(a.checked_add(*b)),
            Arithmetic::Subtract => whole(a.checked_sub(*b)),
            Arithmetic::Multiply => whole(a.checked_mul(*b)),
            Arithmetic::Divide | Arithmetic::Remainder if *b == 0 => Ok(Scalar::Null),
            Arithmetic::Divide => whole(a.checked_div(*b)),
            Arithmetic::Remainder => Ok(Scalar::Integer(a.wrapping_rem(*b))),
        },
        (Scalar::Real(_) | Scalar::Integer(_), Scalar::Real(_) | Scalar::Integer(_)) => {
            let real = |scalar: &Scalar<'_>| match scalar {
                Scalar::Integer(n) => *n as f64,
                Scalar::Real(n) => *n,
                Scalar::Null | Scalar::Text(_) => 0.0,
            };
            let (a, b) = (real(a), real(b));
            match op {
                Arithmetic::Add => Ok(Scalar::real(a + b)),
                Arithmetic::Subtract => Ok(Scalar::real(a - b)),
                Arithmetic::Multiply => Ok(Scalar::real(a * b)),
                Arithmetic::Divide if b == 0.0 => Ok(Scalar::Null),
                Arithmetic::Divide => Ok(Scalar::real(a / b)),
                Arithmetic::Remainder => Err(Odd),
            }
        }
    }
}

/// SQLite's order: nothing, then numbers by their value, then texts by their bytes.
pub(crate) fn order(a: &Scalar<'_>, b: &Scalar<'_>) -> Ordering {
    let rank = |scalar: &Scalar<'_>| match scalar {
        Scalar::Null => 0,
        Scalar::Integer(_) | Scalar::Real(_) => 1,
        Scalar::Text(_) => 2,
    };
    match (a, b) {
        (Scalar::Integer(a), Scalar::Integer(b)) => a.cmp(b),
        (Scalar::Real(a), Scalar::Real(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        (Scalar::Integer(a), Scalar::Real(b)) => whole_and_real(*a, *b),
        (Scalar::Real(a), Scalar::Integer(b)) => whole_and_real(*b, *a).reverse(),
        (Scalar::Text(a), Scalar::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Without rounding either.
fn whole_and_real(a: i64, b: f64) -> Ordering {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if b < -BOUND {
        Ordering::Greater
    } else if b >= BOUND {
        Ordering::Less
    } else {
        let whole = b as i64;
        a.cmp(&whole).then_with(|| (a as f64).partial_cmp(&b).unwrap_or(Ordering::Equal))
    }
}

/// SQLite's `LIKE`: `%` for any text, `_` for one character, letters of ASCII in either case.
pub(super) fn is_like(text: &str, pattern: &str) -> bool {
    let first = |text: &str, at: usize| text[at..].chars().next();
    let (mut t, mut p) = (0, 0);
    // Where to go on if what follows the last `%` does not fit.
    let mut again: Option<(usize, usize)> = None;
    while let Some(c) = first(text, t) {
        match first(pattern, p) {
            Some('%') => {
                again = Some((t, p));
                p += 1;
                continue;
            }
            Some(wanted) if wanted == '_' || wanted.eq_ignore_ascii_case(&c) => {
                t += c.len_utf8();
                p += wanted.len_utf8();
                continue;
            }
            _ => {}
        }
        let Some((from, at)) = again else { return false };
        t = from + first(text, from).map_or(1, char::len_utf8);
        again = Some((t, at));
        p = at + 1;
    }
    pattern[p..].bytes().all(|c| c == b'%')
}

/// The expression with what is known of some columns put into it.
pub(crate) fn fold(expr: &Expr, known: &impl Fn(usize) -> Option<Scalar<'static>>) -> Expr {
    let sub = |expr: &Expr| Box::new(fold(expr, known));
    let folded = match expr {
        Expr::Null | Expr::Integer(_) | Expr::Real(_) | Expr::Text(_) => return expr.clone(),
        Expr::Column(column) => return known(*column).map_or(Expr::Column(*column), constant),
        Expr::Arithmetic(op, a, b) => Expr::Arithmetic(*op, sub(a), sub(b)),
        Expr::Compare(how, a, b) => Expr::Compare(*how, sub(a), sub(b)),
        Expr::And(a, b) => {
            let (a, b) = (sub(a), sub(b));
            if is_constant_false(&a) || is_constant_false(&b) {
                return Expr::Integer(0);
            }
            Expr::And(a, b)
        }
        Expr::Or(a, b) => Expr::Or(sub(a), sub(b)),
        Expr::Not(a) => Expr::Not(sub(a)),
        Expr::IsNull(a) => Expr::IsNull(sub(a)),
        Expr::Like(a, pattern) => Expr::Like(sub(a), pattern.clone()),
        Expr::Case(arms, other) => {
            let arms = arms.iter().map(|(a, b)| (fold(a, known), fold(b, known))).collect();
            Expr::Case(arms, sub(other))
        }
    };
    let mut has_columns = false;
    folded.columns(&mut |_| has_columns = true);
    if has_columns {
        return folded;
    }
    // What is odd is found again for each row, if there is one.
    evaluate(&folded, &Nothing).map(constant).unwrap_or(folded)
}

/// A row of which nothing is asked.
struct Nothing;

impl Row for Nothing {
    fn get(&self, _: usize) -> Scalar<'_> {
        Scalar::Null
    }
}

fn constant(scalar: Scalar<'_>) -> Expr {
    match scalar {
        Scalar::Null => Expr::Null,
        Scalar::Integer(n) => Expr::Integer(n),
        Scalar::Real(n) => Expr::Real(n),
        Scalar::Text(text) => Expr::Text(text.into_owned()),
    }
}

fn is_constant_false(expr: &Expr) -> bool {
    matches!(expr, Expr::Integer(0))
}

/// Whether it is the same for all rows that it is not fulfilled.
pub(crate) fn is_never(condition: &Expr) -> bool {
    matches!(condition, Expr::Integer(0) | Expr::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sqlite() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let texts = ["", "a", "A", "ab", "aab", "xaby", "äb", "a%b", "abcabc", "aXbXc"];
        let patterns = ["", "%", "_", "a%", "%b", "%a%b%", "_b", "a_b", "%abc", "a%b%c", "%%", "_%_", "Ä%"];
        for text in texts {
            for pattern in patterns {
                let theirs: bool =
                    connection.query_row("SELECT ?1 LIKE ?2", [text, pattern], |row| row.get(0)).unwrap();
                assert_eq!(is_like(text, pattern), theirs, "{text} LIKE {pattern}");
            }
        }
    }

    #[test]
    fn whole_and_real_numbers_compare_without_rounding() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for a in [0, 1, -1, 1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN, i64::MAX - 1] {
            for b in [
                0.0,
                -0.5,
                1.5,
                9_007_199_254_740_992.0,
                9.3e18,
                -9.3e18,
                9.223372036854775e18,
                f64::INFINITY,
            ] {
                let sql = "SELECT (?1 > ?2) - (?1 < ?2)";
                let theirs: i32 = connection.query_row(sql, (a, b), |row| row.get(0)).unwrap();
                assert_eq!(whole_and_real(a, b) as i32, theirs, "{a} {b}");
            }
        }
    }
}
