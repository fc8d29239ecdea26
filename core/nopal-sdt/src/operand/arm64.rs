//! The operands of arm64: `x0`, `w0`, `[sp, 8]`, `[x1, x2, lsl 3]`, `[x21, #:lo12:sym]`, bare constants, `v0`.

use super::sum::{Symbols, fail, small_number, sum};
use super::{Base, Memory, OperandError, Place, Register};

pub(super) fn place(text: &str, symbols: &mut dyn Symbols) -> Result<Place, OperandError> {
    if let Some(inner) = text.strip_prefix('[') {
        return match inner.strip_suffix(']') {
            Some(inner) => memory(inner, symbols).map(Place::Memory),
            None => fail("its `]` is missing, or it writes its base back"),
        };
    }
    if let Some(register) = register(text) {
        return Ok(Place::Register(register));
    }
    if matches!(text, "xzr" | "wzr") {
        return Ok(Place::Constant(0));
    }
    if let Some(number) = vector(text) {
        return Ok(Place::Vector(number));
    }
    let sum = sum(text.strip_prefix('#').unwrap_or(text))?;
    let Some(name) = sum.symbol else { return Ok(Place::Constant(sum.number)) };
    match symbols.fixed_address(name) {
        Some(address) => Ok(Place::Constant((address as i64).wrapping_add(sum.number))),
        None => fail(format!("the address of `{name}` is not known before the program runs")),
    }
}

fn memory(inner: &str, symbols: &mut dyn Symbols) -> Result<Memory, OperandError> {
    let mut parts = inner.split(',').map(str::trim);
    let base = parts.next().unwrap_or_default();
    let Some(base) = register(base).filter(|register| register.width_bytes == 8) else {
        return fail(format!("`{base}` cannot be the base of an address"));
    };
    let offset = parts.next();
    let extend = parts.next();
    if parts.next().is_some() {
        return fail("it has more than base, index and shift");
    }
    let plain = Memory { base: Base::Register(base), index: None, displacement: 0 };
    let Some(offset) = offset else { return Ok(plain) };

    if let Some(index) = register(offset).filter(|register| register.number != 31) {
        return Ok(Memory { index: Some((index, scale(index, extend)?)), ..plain });
    }
    if extend.is_some() {
        return fail("only a register can be shifted");
    }
    let offset = offset.strip_prefix('#').unwrap_or(offset);
    if let Some(low_bits) = offset.strip_prefix(":lo12:") {
        // The base holds the symbol's page, so that base and low bits together are the symbol.
        let sum = sum(low_bits)?;
        let Some(name) = sum.symbol else { return fail("`:lo12:` has no symbol") };
        let base = Base::Symbol { name: name.to_owned(), address: symbols.address(name) };
        return Ok(Memory { base, index: None, displacement: sum.number });
    }
    let sum = sum(offset)?;
    match sum.symbol {
        None => Ok(Memory { displacement: sum.number, ..plain }),
        Some(name) => fail(format!("`{name}` is not an offset")),
    }
}

/// `lsl 3` multiplies by 8; 32-bit indexes must say that they are zero-extended.
fn scale(index: Register, extend: Option<&str>) -> Result<u8, OperandError> {
    let (how, amount) = match extend {
        None => ("lsl", "0"),
        Some(text) => match text.split_once([' ', '#']) {
            Some((how, amount)) => (how.trim(), amount.trim().trim_start_matches('#')),
            None => (text, "0"),
        },
    };
    match (how, index.width_bytes) {
        ("lsl" | "sxtx" | "uxtx", 8) | ("uxtw", 4) => {}
        _ => return fail(format!("an index extended with `{how}` is not supported")),
    }
    match small_number(amount) {
        Some(bits @ 0..=4) => Ok(1 << bits),
        _ => fail(format!("`{amount}` is not a shift of an index")),
    }
}

fn register(text: &str) -> Option<Register> {
    let (number, width_bytes) = match text {
        "sp" => (31, 8),
        "wsp" => (31, 4),
        "fp" => (29, 8),
        "lr" => (30, 8),
        "ip0" => (16, 8),
        "ip1" => (17, 8),
        _ => {
            let width_bytes = match text.as_bytes().first()? {
                b'x' => 8,
                b'w' => 4,
                _ => return None,
            };
            (small_number(&text[1..]).filter(|&number| number <= 30)?, width_bytes)
        }
    };
    Some(Register { number, width_bytes, is_high_byte: false })
}

/// `v0`, and `q0` to `b0` for its low part; the size of the value says how much of it counts.
fn vector(text: &str) -> Option<u8> {
    let digits = text.strip_prefix(['v', 'q', 'd', 's', 'h', 'b'])?;
    small_number(digits).filter(|&number| number < 32)
}
