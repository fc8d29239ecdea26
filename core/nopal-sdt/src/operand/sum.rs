//! What the operand texts of all instruction sets share: numbers, symbols, and sums of them.

use super::OperandError;

/// Finds the symbols that operands name. The parser itself knows no file.
pub trait Symbols {
    /// The link-time address of a symbol.
    fn address(&mut self, name: &str) -> Option<u64>;

    /// The address of a symbol in a file that is never moved, such as a non-PIE program; `None` in any other file.
    fn fixed_address(&mut self, name: &str) -> Option<u64>;
}

/// Knows no symbol: operands keep the name with no address.
#[derive(Debug)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn address(&mut self, _name: &str) -> Option<u64> {
        None
    }

    fn fixed_address(&mut self, _name: &str) -> Option<u64> {
        None
    }
}

/// A sum such as `40+CheckpointStats`, `sym-4` or `-0x18`: numbers and at most one symbol.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sum<'a> {
    pub symbol: Option<&'a str>,
    pub number: i64,
}

pub(super) fn sum(text: &str) -> Result<Sum<'_>, OperandError> {
    let mut sum = Sum { symbol: None, number: 0 };
    let mut rest = text.trim();
    if rest.is_empty() {
        return fail("a number is missing");
    }
    let mut is_first = true;
    while !rest.is_empty() {
        let (is_negative, term) = match rest.as_bytes()[0] {
            b'-' => (true, rest[1..].trim_start()),
            b'+' => (false, rest[1..].trim_start()),
            _ if is_first => (false, rest),
            _ => return fail(format!("`{text}` is not a sum of numbers and a symbol")),
        };
        is_first = false;
        let len = term.find(['+', '-', ' ', '\t']).unwrap_or(term.len());
        let (term, after) = term.split_at(len);
        rest = after.trim_start();
        if term.starts_with(|c: char| c.is_ascii_digit()) {
            let value = number(term)?;
            sum.number = match is_negative {
                true => sum.number.wrapping_sub(value),
                false => sum.number.wrapping_add(value),
            };
        } else if is_negative || sum.symbol.is_some() {
            return fail(format!("`{text}` is a difference or sum of symbols"));
        } else {
            sum.symbol = Some(symbol(term)?);
        }
    }
    Ok(sum)
}

/// Decimal, `0x` hexadecimal or `0` octal; constants up to 2^64 keep their bits.
fn number(text: &str) -> Result<i64, OperandError> {
    let parsed = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(&text[1..], 8)
    } else {
        text.parse()
    };
    match parsed {
        Ok(value) => Ok(value as i64),
        Err(_) => fail(format!("`{text}` is not a number of 64 bits")),
    }
}

/// A symbol as assemblers spell it. `sym@GOTPCREL` and the like name a slot the linker made, not the symbol.
fn symbol(text: &str) -> Result<&str, OperandError> {
    if let Some((name, how)) = text.split_once('@') {
        return fail(format!("`{name}` goes through a linker table ({how})"));
    }
    let is_symbol = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$') || (!c.is_ascii() && !c.is_control())
    };
    match !text.is_empty() && text.chars().all(is_symbol) {
        true => Ok(text),
        false => fail(format!("`{text}` is not a symbol")),
    }
}

pub(super) fn fail<T>(reason: impl Into<String>) -> Result<T, OperandError> {
    Err(OperandError { reason: reason.into() })
}

/// A register number without sign or leading zeros.
pub(super) fn small_number(digits: &str) -> Option<u8> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let is_short = digits.len() == 1 || !digits.starts_with('0');
    (is_plain && is_short).then(|| digits.parse().ok())?
}
