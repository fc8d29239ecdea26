//! The operands of x86-64 in AT&T spelling: `%eax`, `$-1`, `-88(%rbp)`, `(%rax,%rcx,8)`, `40+sym(%rip)`.

use super::sum::{Sum, Symbols, fail, small_number, sum};
use super::{Base, Memory, OperandError, Place, Register};

pub(super) fn place(text: &str, symbols: &mut dyn Symbols) -> Result<Place, OperandError> {
    if let Some(constant) = text.strip_prefix('$') {
        let sum = sum(constant)?;
        let Some(name) = sum.symbol else { return Ok(Place::Constant(sum.number)) };
        return match symbols.fixed_address(name) {
            Some(address) => Ok(Place::Constant((address as i64).wrapping_add(sum.number))),
            None => fail(format!("the address of `{name}` is not known before the program runs")),
        };
    }
    if text.starts_with('%') && !text.contains(':') {
        if let Some(number) = vector(text) {
            return Ok(Place::Vector(number));
        }
        return match register(text) {
            Some(register) => Ok(Place::Register(register)),
            None => fail(format!("`{text}` is not a register that holds values")),
        };
    }
    memory(text, symbols).map(Place::Memory)
}

fn memory(text: &str, symbols: &mut dyn Symbols) -> Result<Memory, OperandError> {
    if text.contains(':') {
        return fail("it is relative to a segment register (thread-local storage)");
    }
    let Some((displacement, inner)) = text.split_once('(') else {
        let sum = sum(text)?;
        let base = match sum.symbol {
            Some(name) => Base::Symbol { name: name.to_owned(), address: symbols.address(name) },
            None => Base::None,
        };
        return Ok(Memory { base, index: None, displacement: sum.number });
    };
    let Some(inner) = inner.strip_suffix(')') else { return fail("its `)` is missing") };
    let displacement = match displacement.trim() {
        "" => Sum { symbol: None, number: 0 },
        text => sum(text)?,
    };
    let mut parts = inner.split(',').map(str::trim);
    let base = parts.next().unwrap_or_default();
    let index = parts.next().unwrap_or_default();
    let scale = parts.next().unwrap_or_default();
    if parts.next().is_some() {
        return fail("it has more than base, index and scale");
    }

    if matches!(base, "%rip" | "%eip") {
        if !index.is_empty() || !scale.is_empty() {
            return fail("`%rip` takes no index");
        }
        let Some(name) = displacement.symbol else {
            // The distance from an instruction that the note does not tell.
            return fail("it is relative to `%rip` without a symbol");
        };
        let base = Base::Symbol { name: name.to_owned(), address: symbols.address(name) };
        return Ok(Memory { base, index: None, displacement: displacement.number });
    }

    let mut number = displacement.number;
    if let Some(name) = displacement.symbol {
        match symbols.fixed_address(name) {
            Some(address) => number = number.wrapping_add(address as i64),
            None => return fail(format!("the address of `{name}` is not known before the program runs")),
        }
    }
    let base = match base {
        "" => Base::None,
        name => Base::Register(address_register(name)?),
    };
    let index = match index {
        "" => None,
        name => match address_register(name)? {
            Register { number: 4, .. } => return fail("the stack pointer cannot be an index"),
            register => Some((register, scale_factor(scale)?)),
        },
    };
    if base == Base::None && index.is_none() {
        return fail("it has neither base nor index");
    }
    Ok(Memory { base, index, displacement: number })
}

fn scale_factor(text: &str) -> Result<u8, OperandError> {
    match text {
        "" | "1" => Ok(1),
        "2" => Ok(2),
        "4" => Ok(4),
        "8" => Ok(8),
        _ => fail(format!("`{text}` is not a scale factor")),
    }
}

fn address_register(name: &str) -> Result<Register, OperandError> {
    match register(name) {
        Some(register) if register.width_bytes >= 4 => Ok(register),
        _ => fail(format!("`{name}` cannot be part of an address")),
    }
}

/// `%xmm3`, `%ymm3` and `%zmm3` are one register; the size of the value says how much of it counts.
fn vector(text: &str) -> Option<u8> {
    let digits = ["%xmm", "%ymm", "%zmm"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    small_number(digits).filter(|&number| number < 32)
}

/// The names of registers 0 to 7 by width; `None` where no such name exists.
const CLASSIC: [[&str; 4]; 8] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
];
const WIDTHS: [u8; 4] = [8, 4, 2, 1];
const HIGH_BYTES: [&str; 4] = ["ah", "ch", "dh", "bh"];

fn register(text: &str) -> Option<Register> {
    let name = text.strip_prefix('%')?;
    for (number, names) in (0u8..).zip(&CLASSIC) {
        for (known, width_bytes) in names.iter().zip(WIDTHS) {
            if *known == name {
                return Some(Register { number, width_bytes, is_high_byte: false });
            }
        }
    }
    if let Some(number) = HIGH_BYTES.iter().position(|known| *known == name) {
        return Some(Register { number: number as u8, width_bytes: 1, is_high_byte: true });
    }
    let digits_and_width = name.strip_prefix('r')?;
    let (digits, width_bytes) = match digits_and_width.as_bytes().last()? {
        b'd' => (&digits_and_width[..digits_and_width.len() - 1], 4),
        b'w' => (&digits_and_width[..digits_and_width.len() - 1], 2),
        // Intel's manuals say `r8l` for what assemblers call `r8b`.
        b'b' | b'l' => (&digits_and_width[..digits_and_width.len() - 1], 1),
        _ => (digits_and_width, 8),
    };
    let number = small_number(digits).filter(|number| (8..16).contains(number))?;
    Some(Register { number, width_bytes, is_high_byte: false })
}
