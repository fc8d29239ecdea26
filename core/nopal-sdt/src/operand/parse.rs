//! What the operand texts of all instruction sets share: splitting a note's argument text, the `[-]SIZE[f]@` head,
//! and sums of numbers and one symbol. The places themselves are in `x86_64.rs` and `arm64.rs`.

use super::{Arch, Operand, Place, arm64, x86_64};
use crate::probe::OperandError;

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

/// Splits the arguments of a note, which are separated by blanks and may contain blanks inside brackets.
pub fn split(args: &str) -> Vec<&str> {
    let bytes = args.as_bytes();
    let mut found = Vec::new();
    let mut start = None;
    let mut depth = 0usize;
    for (idx, &byte) in bytes.iter().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth = depth.saturating_sub(1),
            // A new `4@` begins an argument even where a bracket was never closed, so that one bad operand does
            // not swallow those after it.
            _ if byte.is_ascii_whitespace() && (depth == 0 || begins_with_size(&bytes[idx + 1..])) => {
                found.extend(start.take().map(|start| args[start..idx].trim_ascii_end()));
                depth = 0;
                continue;
            }
            _ => {}
        }
        start.get_or_insert(idx);
    }
    found.extend(start.map(|start| args[start..].trim_ascii_end()));
    found
}

fn begins_with_size(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let n_digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = &text[n_digits..];
    n_digits > 0 && rest.strip_prefix(b"f").unwrap_or(rest).first() == Some(&b'@')
}

/// Reads one operand such as `-4@%eax`; symbols stay unresolved.
pub fn parse(arch: Arch, text: &str) -> Result<Operand, OperandError> {
    parse_with(arch, text, &mut NoSymbols)
}

/// Reads one operand and resolves the symbol it names, if any.
pub fn parse_with(arch: Arch, text: &str, symbols: &mut dyn Symbols) -> Result<Operand, OperandError> {
    let text = text.trim();
    let (head, place) = match text.split_once('@') {
        Some((head, place)) if begins_with_size(text.as_bytes()) => (Some(head), place.trim()),
        _ => (None, text),
    };
    if place.is_empty() {
        return fail("it is empty");
    }
    let place = match arch {
        Arch::X86_64 => x86_64::place(place, symbols)?,
        Arch::Arm64 => arm64::place(place, symbols)?,
    };
    let Some(head) = head else {
        return Ok(Operand { size_bytes: natural_size(&place), is_signed: false, is_float: false, place });
    };
    let (is_signed, head) = match head.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, head),
    };
    let (is_float, digits) = match head.strip_suffix('f') {
        Some(rest) => (true, rest),
        None => (false, head),
    };
    let size_bytes = match digits.parse::<u8>() {
        Ok(size @ (1 | 2 | 4 | 8 | 16 | 32)) => size,
        _ => return fail(format!("a value of {digits} bytes does not exist")),
    };
    if is_float && !matches!(size_bytes, 2 | 4 | 8 | 16) {
        return fail(format!("a float of {size_bytes} bytes does not exist"));
    }
    Ok(Operand { size_bytes, is_signed, is_float, place })
}

/// An operand without `N@`, as hand-written assembler may have, is as wide as its register or else as a pointer.
fn natural_size(place: &Place) -> u8 {
    match place {
        Place::Register(register) => register.width_bytes,
        Place::Vector(_) => 16,
        Place::Constant(_) | Place::Memory(_) => 8,
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
