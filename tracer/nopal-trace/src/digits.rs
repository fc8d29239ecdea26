//! Numbers as text, appended to a byte buffer: decimal, hexadecimal, octal, binary, and floats as C's `%g`.

use std::io::Write;

const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Decimal, without leading zeros.
#[inline]
pub(crate) fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    let mut buffer = [0; 20];
    let mut at = buffer.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        buffer[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&buffer[at..]);
}

#[inline]
pub(crate) fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
}

/// Nine digits, with leading zeros.
#[inline]
pub(crate) fn nine(out: &mut Vec<u8>, value: u32) {
    let mut buffer = [0; 9];
    let mut rest = value;
    for at in [7, 5, 3, 1] {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    buffer[0] = b'0' + (rest % 10) as u8;
    out.extend_from_slice(&buffer);
}

/// An integer of `bits` bits in one of the four bases of the format, as babeltrace2 shows it.
#[inline]
pub(crate) fn in_base(out: &mut Vec<u8>, raw: u64, bits: u32, is_signed: bool, base: u8) {
    let low = |bits: u32| if bits >= 64 { raw } else { raw & ((1 << bits) - 1) };
    match base {
        16 => {
            out.extend_from_slice(b"0x");
            hex(out, low(bits.next_multiple_of(4)));
        }
        8 => {
            out.push(b'0');
            octal(out, if is_signed { low(bits.next_multiple_of(3)) } else { raw });
        }
        2 => {
            out.extend_from_slice(b"0b");
            out.extend((0..bits).rev().map(|bit| b'0' + (raw >> bit & 1) as u8));
        }
        _ if is_signed => signed(out, raw as i64),
        _ => unsigned(out, raw),
    }
}

fn hex(out: &mut Vec<u8>, value: u64) {
    let n_digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..n_digits).rev().map(|i| b"0123456789ABCDEF"[(value >> (4 * i) & 15) as usize]));
}

fn octal(out: &mut Vec<u8>, value: u64) {
    let n_digits = (64 - value.leading_zeros()).div_ceil(3).max(1);
    out.extend((0..n_digits).rev().map(|i| b'0' + (value >> (3 * i) & 7) as u8));
}

/// As C's `%g`: six significant digits, trailing zeros dropped.
pub(crate) fn general(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        if value.is_sign_negative() {
            out.push(b'-');
        }
        out.extend_from_slice(if value.is_nan() { b"nan" } else { b"inf" });
        return;
    }
    let mut text = [0; 32];
    let mut rest: &mut [u8] = &mut text;
    // A float in this form takes 13 bytes at most, so the write cannot fail.
    let _ = write!(rest, "{value:.5e}");
    let left = rest.len();
    let text = &text[..32 - left];
    let Some(e) = text.iter().position(|b| *b == b'e') else { return };
    let exponent = std::str::from_utf8(&text[e + 1..]).ok().and_then(|t| t.parse::<i32>().ok()).unwrap_or(0);
    let (is_negative, digits) = match text[0] {
        b'-' => (true, &text[1..e]),
        _ => (false, &text[..e]),
    };
    let mut significant = [0; 6];
    let mut n = 0;
    for digit in digits.iter().filter(|b| b.is_ascii_digit()).take(6) {
        significant[n] = *digit;
        n += 1;
    }
    while n > 1 && significant[n - 1] == b'0' {
        n -= 1;
    }
    let significant = &significant[..n];
    if is_negative {
        out.push(b'-');
    }
    if !(-4..6).contains(&exponent) {
        out.push(significant[0]);
        if n > 1 {
            out.push(b'.');
            out.extend_from_slice(&significant[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.unsigned_abs() < 10 {
            out.push(b'0');
        }
        unsigned(out, u64::from(exponent.unsigned_abs()));
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(significant);
    } else {
        let whole = exponent as usize + 1;
        for at in 0..whole.max(n) {
            if at == whole {
                out.push(b'.');
            }
            out.push(significant.get(at).copied().unwrap_or(b'0'));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(print: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn decimals_are_those_of_the_standard_library() {
        let mut value: u64 = 0;
        for shift in 0..64 {
            for near in [(1u64 << shift) - 1, 1 << shift, value] {
                assert_eq!(text(|o| unsigned(o, near)), near.to_string());
                assert_eq!(text(|o| signed(o, near as i64)), (near as i64).to_string());
                let nanos = (near % 1_000_000_000) as u32;
                assert_eq!(text(|o| nine(o, nanos)), format!("{nanos:09}"));
            }
            value = value.wrapping_mul(10).wrapping_add(9);
        }
        assert_eq!(text(|o| unsigned(o, u64::MAX)), u64::MAX.to_string());
    }

    #[test]
    fn floats_are_those_of_printf() {
        for value in [
            0.0,
            -0.0,
            1.0,
            -1.5,
            0.1,
            1e10,
            123456.789,
            1e-7,
            1e300,
            std::f64::consts::PI,
            100000.0,
            1e6,
            999999.5,
            9999995.0,
            0.0001,
            0.00009999995,
            5e-324,
            1.7976931348623157e308,
            12.5,
            2.5,
            0.5,
            1e15,
            123456.5,
            1234565.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -f64::NAN,
        ] {
            let mut expected = [0; 64];
            // SAFETY: the buffer has 64 bytes, more than %g ever needs, and the format takes one double.
            let n = unsafe { libc::snprintf(expected.as_mut_ptr().cast(), 64, c"%g".as_ptr(), value) };
            let expected = String::from_utf8(expected[..n as usize].to_vec()).unwrap();
            assert_eq!(text(|o| general(o, value)), expected);
        }
    }

    #[test]
    fn bases() {
        for (raw, bits, is_signed, base, expected) in [
            (255, 8, false, 16, "0xFF"),
            (u64::MAX, 8, true, 16, "0xFF"),
            (0, 32, false, 16, "0x0"),
            (u64::MAX, 64, false, 16, "0xFFFFFFFFFFFFFFFF"),
            (8, 32, false, 8, "010"),
            (5, 8, false, 2, "0b00000101"),
            (u64::MAX, 3, true, 2, "0b111"),
            (u64::MAX, 64, true, 10, "-1"),
        ] {
            assert_eq!(text(|o| in_base(o, raw, bits, is_signed, base)), expected);
        }
    }
}
