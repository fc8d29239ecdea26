//! The metadata of CTF 2: a JSON text sequence (RFC 7464) of fragments in, [`Metadata`] out, the same that TSDL becomes. Does
//! no IO. Sections in comments here and below are those of CTF2-SPEC-2.0.

mod field_class;
mod fragment;
mod json;

use crate::tsdl::{Metadata, Place, Unreadable};
use fragment::Fragments;
use json::Json;

/// Stands before each fragment.
const SEPARATOR: char = '\u{1e}';
/// A fragment describes one class; larger ones are refused, as JSON in memory takes many times its size.
const MAX_FRAGMENT_BYTES: usize = 8 << 20;

/// Whether metadata is of CTF 2: TSDL has no such character.
pub(crate) fn is_ctf2(text: &str) -> bool {
    text.starts_with(SEPARATOR)
}

/// Reads a whole metadata stream (section 5).
pub(crate) fn parse(text: &str) -> Result<Metadata, Unreadable> {
    let mut fragments = Fragments::default();
    let mut start = Place { line: 1, column: 1 };
    for (index, part) in text.split(SEPARATOR).enumerate() {
        if index > 0 {
            start.column += 1;
            let place = start;
            let fail = |reason: String| Unreadable { place, reason };
            if part.len() > MAX_FRAGMENT_BYTES {
                return Err(fail("this fragment of the metadata is larger than 8 MiB".to_owned()));
            }
            // Sequences may hold nothing between two separators.
            if !part.trim().is_empty() {
                let fragment: Json = serde_json::from_str(part).map_err(|e| unreadable(place, &e))?;
                fragments.add(&fragment, place).map_err(fail)?;
            }
        }
        for c in part.chars() {
            match c {
                '\n' => start = Place { line: start.line + 1, column: 1 },
                _ => start.column += 1,
            }
        }
    }
    fragments.finish().map_err(|reason| Unreadable { place: Place { line: 1, column: 1 }, reason })
}

/// The place in the file of an error in a fragment.
fn unreadable(start: Place, error: &serde_json::Error) -> Unreadable {
    let (line, column) = (error.line().max(1) as u32, error.column() as u32);
    let place = match line {
        1 => Place { line: start.line, column: start.column + column.saturating_sub(1) },
        _ => Place { line: start.line + line - 1, column: column.max(1) },
    };
    let text = error.to_string();
    // The place is told in front.
    let reason = text.split(" at line ").next().unwrap_or(&text);
    Unreadable { place, reason: format!("this is not JSON: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREAMBLE: &str = "\u{1e}{\"type\":\"preamble\",\"version\":2}\n";

    fn with(fragments: &[&str]) -> String {
        let parts: Vec<String> = fragments.iter().map(|one| format!("\u{1e}{one}\n")).collect();
        format!("{PREAMBLE}{}", parts.concat())
    }

    fn payload(field_class: &str) -> String {
        let member = format!("{{\"name\":\"a\",\"field-class\":{field_class}}}");
        with(&[
            "{\"type\":\"data-stream-class\"}",
            &format!(
                "{{\"type\":\"event-record-class\",\"name\":\"e\",\"payload-field-class\":\
                 {{\"type\":\"structure\",\"member-classes\":[{member}]}}}}"
            ),
        ])
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let uint = |more: &str| {
            format!("{{\"type\":\"fixed-length-unsigned-integer\",\"byte-order\":\"little-endian\"{more}}}")
        };
        for (text, line, column, reason) in [
            ("\u{1e}{\"type\":\"trace-class\"}".to_owned(), 1, 2, "preamble"),
            ("\u{1e}{\"type\":\"preamble\",\"version\":3}".to_owned(), 1, 2, "version 3"),
            ("\u{1e}{\"type\":\"preamble\",\n\"version\":}".to_owned(), 2, 11, "not JSON"),
            (format!("{PREAMBLE}{PREAMBLE}"), 2, 2, "second preamble"),
            (with(&["{\"type\":\"clock\"}"]), 2, 2, "`clock`"),
            (with(&["[]"]), 2, 2, "object"),
            (
                "\u{1e}{\"type\":\"preamble\",\"version\":2,\"extensions\":{\"my.ns\":{\"piano\":1}}}"
                    .to_owned(),
                1,
                2,
                "`my.ns`: `piano`",
            ),
            (with(&["{\"type\":\"clock-class\",\"id\":\"c\",\"frequency\":0}"]), 2, 2, "above zero"),
            (with(&["{\"type\":\"data-stream-class\",\"default-clock-class-id\":\"c\"}"]), 2, 2, "`c`"),
            (with(&["{\"type\":\"event-record-class\"}"]), 2, 2, "data stream class 0"),
            (payload("\"u8\""), 3, 2, "`u8`"),
            (payload("{\"type\":\"piano\"}"), 3, 2, "`piano`"),
            (payload(&uint("")), 3, 2, "`length`"),
            (payload(&uint(",\"length\":65")), 3, 2, "1 to 64 bits"),
            (payload(&uint(",\"length\":18446744073709551616")), 3, 2, "`length`"),
            (payload(&uint(",\"length\":8,\"alignment\":3")), 3, 2, "power of two"),
            (payload(&uint(",\"length\":8,\"preferred-display-base\":7")), 3, 2, "base"),
            (payload(&uint(",\"length\":8,\"mappings\":{\"x\":[[2,1]]}")), 3, 2, "range"),
            (
                payload(
                    "{\"type\":\"fixed-length-floating-point-number\",\"length\":128,\
                      \"byte-order\":\"big-endian\"}",
                ),
                3,
                2,
                "16, 32 and 64",
            ),
            (payload("{\"type\":\"null-terminated-string\",\"encoding\":\"ebcdic\"}"), 3, 2, "`ebcdic`"),
            (
                payload("{\"type\":\"dynamic-length-string\",\"length-field-location\":{\"path\":[]}}"),
                3,
                2,
                "path",
            ),
        ] {
            let failure = parse(&text).unwrap_err();
            assert!(failure.reason.contains(reason), "{text}: {}", failure.reason);
            let place = (failure.place.line, failure.place.column);
            assert_eq!(place, (line, column), "{text}: {}", failure.reason);
        }
    }

    #[test]
    fn nesting_is_refused_in_time() {
        let deep = "{\"type\":\"static-length-array\",\"length\":1,\"element-field-class\":".repeat(100_000);
        assert!(parse(&payload(&deep)).is_err());
        let mut fragments = vec![
            "{\"type\":\"field-class-alias\",\"name\":\"a0\",\"field-class\":{\"type\":\"structure\"}}"
                .to_owned(),
        ];
        for i in 1..50_000 {
            fragments.push(format!(
                "{{\"type\":\"field-class-alias\",\"name\":\"a{i}\",\"field-class\":{{\"type\":\"structure\",\
                 \"member-classes\":[{{\"name\":\"x\",\"field-class\":\"a{0}\"}},\
                 {{\"name\":\"y\",\"field-class\":\"a{0}\"}}]}}}}",
                i - 1
            ));
        }
        let fragments: Vec<&str> = fragments.iter().map(String::as_str).collect();
        assert!(parse(&with(&fragments)).unwrap_err().reason.contains("too deeply"));
        // An alias cannot name itself: only those before it are known.
        let own = "{\"type\":\"field-class-alias\",\"name\":\"a\",\"field-class\":\"a\"}";
        assert!(parse(&with(&[own])).unwrap_err().reason.contains("`a`"));
    }
}
