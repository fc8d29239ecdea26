//! `printf`: a parsed format and a payload become text.

use super::value::{self, buffer, escape};
use super::{Names, gfp, part, word};
use nopal_program::{ALLOCATION_FLAGS, Format, Piece, Spec, Type};
use std::io::Write;

/// Appends the formatted text.
pub fn printf(format: &Format, payload: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    for piece in &format.pieces {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Field { spec, field } => {
                one(spec, &field.value_type, part(payload, field), names, out);
            }
        }
    }
}

fn one(spec: &Spec, value_type: &Type, bytes: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    let raw = word(bytes, 0);
    match (spec.conversion, value_type) {
        ('x', Type::Buffer { .. }) => {
            let mut text = Vec::new();
            for byte in buffer(bytes) {
                // Writing to a vector does not fail.
                write!(text, "\\x{byte:02x}").unwrap_or_default();
            }
            pad_text(spec, &text, out);
        }
        ('h', Type::Buffer { .. }) => {
            let pairs: Vec<String> = buffer(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            pad_text(spec, pairs.join(" ").as_bytes(), out);
        }
        ('r', Type::Buffer { .. }) => {
            let mut text = Vec::new();
            escape(buffer(bytes), &mut text);
            pad_text(spec, &text, out);
        }
        ('s' | 'r', _) => {
            let mut text = Vec::new();
            value::value(value_type, bytes, names, &mut text);
            pad_text(spec, &text, out);
        }
        (ALLOCATION_FLAGS, _) => pad_text(spec, gfp::flags(raw).as_bytes(), out),
        ('c', _) => pad_text(spec, &[raw as u8], out),
        ('f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a', _) => {
            let float = match value_type {
                Type::Float => f64::from_bits(raw),
                Type::Int { is_signed: true, .. } => raw as i64 as f64,
                _ => raw as f64,
            };
            number(spec, float.is_sign_negative(), "", &float_text(spec, float.abs()), out);
        }
        ('p', _) => number(spec, false, "0x", &format!("{raw:x}"), out),
        ('u' | 'x' | 'X' | 'o', _) => {
            let cut = cut(spec, raw);
            let (prefix, digits) = match spec.conversion {
                'x' => ("0x", format!("{cut:x}")),
                'X' => ("0X", format!("{cut:X}")),
                'o' => ("0", format!("{cut:o}")),
                _ => ("", cut.to_string()),
            };
            number(spec, false, if spec.is_alternate && cut != 0 { prefix } else { "" }, &digits, out);
        }
        // `d` and `i`.
        (_, Type::Float) => number(spec, false, "", &(f64::from_bits(raw) as i64).to_string(), out),
        (_, _) => {
            let unused = 64 - 8 * u32::from(spec.size_bytes.unwrap_or(8).clamp(1, 8));
            let value = (raw << unused) as i64 >> unused;
            number(spec, value < 0, "", &value.unsigned_abs().to_string(), out);
        }
    }
}

fn cut(spec: &Spec, raw: u64) -> u64 {
    let unused = 64 - 8 * u32::from(spec.size_bytes.unwrap_or(8).clamp(1, 8));
    raw << unused >> unused
}

/// Sign, prefix, zeros, digits, and the room around them.
fn number(spec: &Spec, is_negative: bool, prefix: &str, digits: &str, out: &mut Vec<u8>) {
    let sign = match (is_negative, spec.has_plus, spec.has_space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        (false, false, false) => "",
    };
    let is_float = matches!(spec.conversion, 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a');
    let mut n_zeros = match spec.precision {
        Some(precision) if !is_float => (precision as usize).saturating_sub(digits.len()),
        _ => 0,
    };
    let used = sign.len() + prefix.len() + n_zeros + digits.len();
    let room = (spec.width.unwrap_or(0) as usize).saturating_sub(used);
    let fills_with_zeros = spec.has_zeros && !spec.is_left && (spec.precision.is_none() || is_float);
    if fills_with_zeros {
        n_zeros += room;
    }
    let blanks = if fills_with_zeros { 0 } else { room };
    if !spec.is_left {
        out.resize(out.len() + blanks, b' ');
    }
    out.extend_from_slice(sign.as_bytes());
    out.extend_from_slice(prefix.as_bytes());
    out.resize(out.len() + n_zeros, b'0');
    out.extend_from_slice(digits.as_bytes());
    if spec.is_left {
        out.resize(out.len() + blanks, b' ');
    }
}

fn pad_text(spec: &Spec, text: &[u8], out: &mut Vec<u8>) {
    let text = &text[..text.len().min(spec.precision.map_or(usize::MAX, |p| p as usize))];
    let blanks = (spec.width.unwrap_or(0) as usize).saturating_sub(text.len());
    if !spec.is_left {
        out.resize(out.len() + blanks, b' ');
    }
    out.extend_from_slice(text);
    if spec.is_left {
        out.resize(out.len() + blanks, b' ');
    }
}

/// Of a number that is not negative, as C writes it.
fn float_text(spec: &Spec, float: f64) -> String {
    if !float.is_finite() {
        return if float.is_nan() { "nan".to_owned() } else { "inf".to_owned() };
    }
    // A longer one than any double needs is cut.
    let precision = spec.precision.unwrap_or(6).min(400) as usize;
    match spec.conversion {
        'e' | 'E' => exponent(float, precision, spec.conversion == 'E'),
        'g' | 'G' => {
            let significant = precision.max(1);
            let scientific = format!("{float:.*e}", significant - 1);
            let power: i32 = scientific.split('e').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
            let text = if power < -4 || power >= significant as i32 {
                exponent(float, significant - 1, spec.conversion == 'G')
            } else {
                format!("{float:.*}", (significant as i32 - 1 - power).max(0) as usize)
            };
            if spec.is_alternate { text } else { without_trailing_zeros(&text) }
        }
        _ => format!("{float:.precision$}"),
    }
}

fn exponent(float: f64, precision: usize, is_upper: bool) -> String {
    let text = format!("{float:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let letter = if is_upper { 'E' } else { 'e' };
    format!("{digits}{letter}{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

fn without_trailing_zeros(text: &str) -> String {
    let (digits, power) = match text.find(['e', 'E']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    if !digits.contains('.') {
        return text.to_owned();
    }
    format!("{}{power}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestNames;
    use super::*;
    use nopal_program::Field;

    fn spec(text: &str) -> Spec {
        let mut spec = Spec { conversion: text.chars().last().unwrap(), ..Spec::default() };
        let mut rest = &text[..text.len() - 1];
        while let Some(flag) = rest.chars().next().filter(|c| "-+ 0#".contains(*c)) {
            match flag {
                '-' => spec.is_left = true,
                '+' => spec.has_plus = true,
                ' ' => spec.has_space = true,
                '0' => spec.has_zeros = true,
                _ => spec.is_alternate = true,
            }
            rest = &rest[1..];
        }
        for (modifier, size) in [("hh", 1), ("h", 2), ("w", 4)] {
            if let Some(shorter) = rest.strip_suffix(modifier) {
                (spec.size_bytes, rest) = (Some(size), shorter);
            }
        }
        let (width, precision) = rest.split_once('.').map_or((rest, None), |(w, p)| (w, Some(p)));
        spec.width = width.parse().ok();
        spec.precision = precision.map(|p| p.parse().unwrap_or(0));
        spec
    }

    fn shown(text: &str, value_type: Type, bytes: &[u8]) -> String {
        let field = Field { at: 8, value_type };
        let format = Format {
            pieces: vec![
                Piece::Text("<".into()),
                Piece::Field { spec: spec(text), field },
                Piece::Text(">".into()),
            ],
        };
        let mut out = Vec::new();
        printf(&format, &[&[9; 8], bytes].concat(), &TestNames, &mut out);
        let out = String::from_utf8_lossy(&out);
        out[1..out.len() - 1].to_owned()
    }

    #[test]
    fn numbers_as_c_prints_them() {
        for (text, number, want) in [
            ("d", -5, "-5"),
            ("5d", 42, "   42"),
            ("-5d", 42, "42   "),
            ("05d", 42, "00042"),
            ("05d", -42, "-0042"),
            ("+d", 5, "+5"),
            (" d", 5, " 5"),
            (".3d", 5, "005"),
            ("6.3d", -5, "  -005"),
            ("x", 255, "ff"),
            ("#x", 255, "0xff"),
            ("#x", 0, "0"),
            ("08x", 255, "000000ff"),
            ("X", 255, "FF"),
            ("o", 8, "10"),
            ("u", -1, "18446744073709551615"),
            ("wu", -1, "4294967295"),
            ("hhd", 300, "44"),
            ("hd", 70000, "4464"),
            ("c", 65, "A"),
            ("3c", 65, "  A"),
            ("p", 4096, "0x1000"),
            ("f", 3, "3.000000"),
        ] {
            assert_eq!(shown(text, Type::I64, &i64::to_le_bytes(number)), want, "%{text} of {number}");
        }
        for (text, number, want) in [
            ("f", 0.5, "0.500000"),
            (".2f", 2.345, "2.35"),
            ("8.1f", -2.0, "    -2.0"),
            ("08.1f", -2.0, "-00002.0"),
            ("e", 12345.678, "1.234568e+04"),
            ("g", 0.0001, "0.0001"),
            ("g", 1e10, "1e+10"),
            ("g", 100.0, "100"),
            ("d", 2.9, "2"),
        ] {
            assert_eq!(shown(text, Type::Float, &f64::to_le_bytes(number)), want, "%{text} of {number}");
        }
    }

    #[test]
    fn texts_and_buffers() {
        let text = || Type::Str { max_bytes: 8 };
        for (spec, want) in
            [("s", "str"), ("10s", "       str"), ("-10s", "str       "), (".2s", "st"), ("5.1s", "    s")]
        {
            assert_eq!(shown(spec, text(), b"str\0\0\0\0\0"), want, "%{spec}");
        }
        let bytes = b"\x03\0\0\0\0\0\0\0a\x01z\0\0\0\0\0";
        for (spec, want) in [
            ("r", "a\\x01z"),
            ("x", "\\x61\\x01\\x7a"),
            ("h", "61 01 7a"),
            ("s", "a\\x01z"),
            ("8r", "  a\\x01z"),
        ] {
            assert_eq!(shown(spec, Type::Buffer { max_bytes: 8 }, bytes), want, "%{spec}");
        }
        assert_eq!(shown("s", Type::Probe, &[1, 0, 0, 0, 0, 0, 0, 0]), "probe1.0");
        assert_eq!(shown("s", Type::I64, b""), "0");
    }
}
