//! A note's argument text, split, and the `[-]SIZE[f]@` head of each operand. The places themselves are in `x86_64.rs` and
//! `arm64.rs`.

use super::sum::{NoSymbols, Symbols, fail};
use super::{Arch, Operand, OperandError, Place, arm64, x86_64};

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
