//! Numbers as people write and read them: sizes, times, counts.

use std::ffi::OsString;
use std::time::Duration;

/// `4M`, `64k`, `1G`, `4096`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("a size is a number with k, M or G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a size is a number with k, M or G".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "that is too much".to_owned())
}

pub(crate) fn string_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| within(size, 1, 8 << 10, "a string can have 1 byte to 8k"))
}

pub(crate) fn ring_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| within(size, 64 << 10, 1 << 30, "a ring can have 64k to 1G"))
}

fn within(size: u64, least: u64, most: u64, rule: &str) -> Result<u64, String> {
    if (least..=most).contains(&size) { Ok(size) } else { Err(rule.to_owned()) }
}

/// `--duration 1 s`, which would be a time of one second and something called `s`: the option, and how it is written.
pub(crate) fn broken_time(args: &[OsString]) -> Option<(String, String)> {
    let words: Vec<&str> =
        args.iter().map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    words.windows(3).find_map(|three| match three {
        [
            option @ ("--duration" | "--every" | "--before" | "--after" | "--wait" | "--min" | "--max"),
            number,
            unit,
        ] if is_number(number) && matches!(*unit, "s" | "ms" | "us" | "ns" | "m" | "h") => {
            Some(((*option).to_owned(), format!("{number}{unit}")))
        }
        _ => None,
    })
}

/// `10s`, `500ms`, `2m`, `1h`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("not a valid duration: `{text}`; use `10s`, `500ms` or `2m`");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(invalid()),
    };
    let number: f64 = digits.parse().map_err(|_| invalid())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| invalid())
}

/// `1.2 MiB`
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1 event`, `2 events`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A text that begins in this column, broken at its spaces where the screen ends.
pub(crate) fn wrapped(text: &str, column: usize, width: usize) -> String {
    let room = width.saturating_sub(column).max(20);
    let (mut out, mut n_letters) = (String::new(), 0);
    for word in text.split(' ') {
        let n = word.chars().count();
        if n_letters > 0 && n_letters + 1 + n > room {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', column));
            n_letters = 0;
        } else if n_letters > 0 {
            out.push(' ');
            n_letters += 1;
        }
        out.push_str(word);
        n_letters += n;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("4M"), Ok(4 << 20));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(
            (string_size("8k"), ring_size("64k"), ring_size("1G")),
            (Ok(8192), Ok(65536), Ok(1 << 30))
        );
        assert!(string_size("0").is_err() && string_size("8193").is_err());
        assert!(ring_size("1").is_err() && ring_size("2G").is_err());
        assert!(size("4X").is_err() && size("").is_err() && size("99999999999G").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("x").is_err() && duration("-1s").is_err());
        assert_eq!(bytes_in_words(1536), "1.5 KiB");
        assert_eq!(bytes_in_words(7), "7 bytes");
    }

    #[test]
    fn a_time_in_two_words_is_noticed() {
        let of = |line: &str| broken_time(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("nopal count x --duration 1 s"), Some(("--duration".to_owned(), "1s".to_owned())));
        assert_eq!(
            of("nopal trace --duration 500 ms x"),
            Some(("--duration".to_owned(), "500ms".to_owned()))
        );
        for right in
            ["nopal count --duration 1 x", "nopal count --limit 1 s", "nopal trace x -- a --duration 1 s"]
        {
            assert_eq!(of(right), None, "{right}");
        }
    }

    #[test]
    fn texts_are_broken_where_the_screen_ends() {
        let text = "one two three four five six";
        assert_eq!(wrapped(text, 3, 26), "one two three four five\n   six");
        assert_eq!(wrapped(text, 3, usize::MAX), text);
        assert_eq!(
            wrapped("a-word-that-has-no-room-at-all and more", 2, 10),
            "a-word-that-has-no-room-at-all\n  and more"
        );
    }
}
