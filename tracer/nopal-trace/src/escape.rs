//! Text of others on its way to people: names, paths and messages from files, programs and recordings must not steer the
//! terminal that shows them, nor pass for lines of ours.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

/// Whether a character does something else than show itself: control characters (with ESC, BEL, newline and those of
/// 0x80 to 0x9f), and those that turn the direction of what follows.
fn is_active(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// For one name or value: what is active is shown as `\n` or `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_but(text, |_| false)
}

/// For a message of several lines: newlines and tabs stay.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_but(text, |c| matches!(c, '\n' | '\t'))
}

fn escape_but(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |c: char| is_active(c) && !stays(c);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The same for a message that has colours of ours: sequences that choose a colour stay, too.
pub fn escape_styled(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return escape_lines(text);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (plain, sequence) = rest.split_at(at);
        out.push_str(&escape_lines(plain));
        let len = colour_length(sequence).unwrap_or(1);
        match len {
            1 => out.push_str("\\u{1b}"),
            _ => out.push_str(&sequence[..len]),
        }
        rest = &sequence[len..];
    }
    out.push_str(&escape_lines(rest));
    Cow::Owned(out)
}

/// `ESC [ 1;31 m`
fn colour_length(sequence: &str) -> Option<usize> {
    let body = sequence.strip_prefix("\x1b[")?;
    let end = body.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    body[end..].starts_with('m').then_some(end + 3)
}

/// For a text in JSON that others wrote out: characters that are active stand only in its strings, but for newlines and tabs
/// between them, and a string may have any character by its number.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_active(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            // Writing to a String cannot fail.
            true => _ = fmt::Write::write_fmt(&mut out, format_args!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A JSON string; what is not UTF-8 becomes U+FFFD.
pub(crate) fn json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                c if is_active(c) => {
                    // Writing to a Vec cannot fail.
                    let _ = write!(out, "\\u{:04x}", c as u32);
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal_either() {
        let name = "a\x1b\u{9b}31m\x7f\u{202e}\n\u{20ac}";
        let mut written = Vec::new();
        json_string(&mut written, name.as_bytes());
        let by_others = serde_json::to_string(name).unwrap();
        for text in [&*String::from_utf8(written).unwrap(), &escape_json(&by_others)] {
            assert!(!text.contains(is_active), "{text:?}");
            assert_eq!(serde_json::from_str::<String>(text).unwrap(), name);
        }
        assert!(matches!(escape_json("[\n\t\"\u{20ac}\"\n]"), Cow::Borrowed(_)));
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let cases = [
            ("plain \u{20ac}", "plain \u{20ac}", "plain \u{20ac}"),
            ("a\x1b[2Jb", "a\\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\x07\u{9b}31m\x7f", "a\\u{7}\\u{9b}31m\\u{7f}", "a\\u{7}\\u{9b}31m\\u{7f}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r", "a\nb\tc\\r"),
            ("x\u{202e}y", "x\\u{202e}y", "x\\u{202e}y"),
        ];
        for (text, name, lines) in cases {
            assert_eq!(escape(text), name);
            assert_eq!(escape_lines(text), lines);
            assert_eq!(escape_styled(text), lines);
        }
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
        let styled = "\x1b[1;31merror\x1b[0m: \x1b]0;title\x07 \x1b";
        assert_eq!(escape_styled(styled), "\x1b[1;31merror\x1b[0m: \\u{1b}]0;title\\u{7} \\u{1b}");
    }
}
