//! Numbers as people read them: durations with a unit, counts with k and M.

/// `12.3ms`, `870ns`, `1.05s`, `2.0m`: three digits and a unit.
pub(crate) fn duration(ns: u64) -> String {
    const UNITS: [(&str, f64); 3] = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    if ns < 1000 {
        return format!("{ns}ns");
    }
    if ns >= 600_000_000_000 {
        let minutes = ns as f64 / 60e9;
        return if minutes < 600.0 { three(minutes, "m") } else { three(minutes / 60.0, "h") };
    }
    let value = ns as f64;
    for (unit, factor) in UNITS {
        // 999.96us would be printed as 1000us.
        if value / factor < 999.5 || unit == "s" {
            return three(value / factor, unit);
        }
    }
    format!("{ns}ns")
}

/// `999`, `12.3k`, `4.56M`, `7.00G`.
pub(crate) fn count(n: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
    if n < 10_000 {
        return n.to_string();
    }
    let value = n as f64;
    let (unit, factor) =
        UNITS.into_iter().find(|(_, factor)| value / factor < 999.5).unwrap_or(UNITS[UNITS.len() - 1]);
    three(value / factor, unit)
}

/// A whole number that may be negative.
pub(crate) fn integer(n: i128) -> String {
    match u64::try_from(n.unsigned_abs()) {
        Ok(size) if n >= 0 => count(size),
        Ok(size) => format!("-{}", count(size)),
        Err(_) => n.to_string(),
    }
}

fn three(value: f64, unit: &str) -> String {
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_counts_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00us"),
            (12_345, "12.3us"),
            (999_499, "999us"),
            (999_960, "1.00ms"),
            (1_500_000_000, "1.50s"),
            (59_000_000_000, "59.0s"),
            (599_000_000_000, "599s"),
            (600_000_000_000, "10.0m"),
            (36_000_000_000_000, "10.0h"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
        for (n, text) in
            [(0, "0"), (9_999, "9999"), (12_345, "12.3k"), (999_600, "1.00M"), (7_000_000_000, "7.00G")]
        {
            assert_eq!(count(n), text, "{n}");
        }
        assert_eq!(integer(-20_000), "-20.0k");
    }
}
