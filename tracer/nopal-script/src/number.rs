//! Numbers as scripts write them: `12`, `0x1f`, `017`, `1_000`, `1e6`, `10ms`, `5UL`.

/// None if it is no number, Err if it is too large.
pub(crate) fn parse_number(word: &str) -> Option<Result<u64, ()>> {
    let word = word.replace('_', "");
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (&word[..], 10),
    };
    let length = digits.bytes().take_while(|byte| (*byte as char).is_digit(radix)).count();
    let (digits, suffix) = digits.split_at(length);
    if digits.is_empty() && !(radix == 8 && suffix_factor(suffix).is_some()) {
        return None;
    }
    let value = if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, radix).map_err(|_| ()) };
    let exponent = suffix.strip_prefix('e').or_else(|| suffix.strip_prefix('E'));
    let factor = match exponent {
        Some(exponent)
            if radix == 10 && !exponent.is_empty() && exponent.bytes().all(|b| b.is_ascii_digit()) =>
        {
            exponent.parse().ok().and_then(|exponent| 10u64.checked_pow(exponent)).ok_or(())
        }
        _ => Ok(suffix_factor(suffix)?),
    };
    Some(value.and_then(|value| value.checked_mul(factor?).ok_or(())))
}

/// Units of time give nanoseconds; those of C say nothing here.
fn suffix_factor(suffix: &str) -> Option<u64> {
    Some(match suffix {
        "" | "u" | "l" | "ul" | "lu" | "ll" | "ull" | "llu" | "U" | "L" | "UL" | "LU" | "LL" | "ULL"
        | "LLU" | "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let cases: [(&str, Option<Result<u64, ()>>); 20] = [
            ("0", Some(Ok(0))),
            ("12", Some(Ok(12))),
            ("0x1f", Some(Ok(31))),
            ("0XFF", Some(Ok(255))),
            ("017", Some(Ok(15))),
            ("1_000", Some(Ok(1000))),
            ("1e6", Some(Ok(1_000_000))),
            ("10us", Some(Ok(10_000))),
            ("2ms", Some(Ok(2_000_000))),
            ("3s", Some(Ok(3_000_000_000))),
            ("1m", Some(Ok(60_000_000_000))),
            ("0s", Some(Ok(0))),
            ("5UL", Some(Ok(5))),
            ("18446744073709551615", Some(Ok(u64::MAX))),
            ("18446744073709551616", Some(Err(()))),
            ("1e30", Some(Err(()))),
            ("999999999999s", Some(Err(()))),
            ("12abc", None),
            ("0x", None),
            ("089", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_number(text), expected, "{text}");
        }
    }
}
