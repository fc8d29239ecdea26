//! The values of one scope as text.

use super::decode::Visitor;
use super::plan::Step;
use crate::digits;
use crate::model::{BitMap, Enum, number};

/// Prints the values of one scope.
pub(crate) struct TextPrinter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> TextPrinter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        TextPrinter { out }
    }

    #[inline]
    fn lead(&mut self, at: &Step, index: u64) {
        if at.is_element {
            self.out.extend_from_slice(if index == 0 { b" [" } else { b", [" });
            digits::unsigned(self.out, index);
            self.out.extend_from_slice(b"] = ");
        } else {
            self.out.extend_from_slice(&at.lead);
        }
    }
}

impl Visitor for TextPrinter<'_> {
    #[inline]
    fn integer(&mut self, at: &Step, index: u64, raw: u64, bits: u32, is_signed: bool, base: u8) {
        if at.is_hidden {
            return;
        }
        self.lead(at, index);
        digits::in_base(self.out, raw, bits, is_signed, base);
    }

    fn float(&mut self, at: &Step, index: u64, value: f64, _bits: u32) {
        self.lead(at, index);
        digits::general(self.out, value);
    }

    fn enumeration(&mut self, at: &Step, index: u64, raw: u64, table: &Enum) {
        if at.is_hidden {
            return;
        }
        self.lead(at, index);
        self.out.extend_from_slice(b"( ");
        let mut is_known = false;
        let value = number(raw, table.integer.is_signed);
        let has_braces = table.has_braces && table.labels_of(value).nth(1).is_some();
        if has_braces {
            self.out.extend_from_slice(b"{ ");
        }
        for label in table.labels_of(value) {
            if is_known {
                self.out.extend_from_slice(b", ");
            }
            is_known = true;
            quote_more(self.out, label.as_bytes(), MORE);
        }
        if !is_known {
            self.out.extend_from_slice(b"<unknown>");
        }
        if has_braces {
            self.out.extend_from_slice(b" }");
        }
        self.out.extend_from_slice(b" : container = ");
        digits::in_base(self.out, raw, table.integer.bits, table.integer.is_signed, table.integer.base);
        self.out.extend_from_slice(b" )");
    }

    fn string(&mut self, at: &Step, index: u64, bytes: &[u8]) {
        self.lead(at, index);
        quote_more(self.out, bytes, MORE);
    }

    fn begin_array(&mut self, at: &Step, index: u64, _count: u64) {
        self.lead(at, index);
        self.out.push(b'[');
    }

    fn end_array(&mut self) {
        self.out.extend_from_slice(b" ]");
    }

    fn begin_struct(&mut self, at: &Step, index: u64) {
        self.lead(at, index);
        self.out.push(b'{');
    }

    fn end_struct(&mut self) {
        self.out.extend_from_slice(b" }");
    }

    fn begin_variant(&mut self, at: &Step, index: u64) {
        self.lead(at, index);
        self.out.extend_from_slice(b"{ ");
    }

    fn end_variant(&mut self) {
        self.out.extend_from_slice(b" }");
    }

    fn boolean(&mut self, at: &Step, index: u64, value: bool) {
        self.lead(at, index);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn bit_map(&mut self, at: &Step, index: u64, raw: u64, map: &BitMap) {
        self.lead(at, index);
        digits::in_base(self.out, raw, map.bits.bits, false, 16);
        let mut before: &[u8] = b" { ";
        for flag in map.active(raw) {
            self.out.extend_from_slice(before);
            quote_more(self.out, flag.as_bytes(), MORE);
            before = b", ";
        }
        if before == b", " {
            self.out.extend_from_slice(b" }");
        }
    }

    fn blob(&mut self, at: &Step, index: u64, bytes: &[u8]) {
        self.lead(at, index);
        self.out.extend_from_slice(b"{ ");
        for byte in bytes {
            self.out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15), b' ']);
        }
        self.out.push(b'}');
    }

    fn begin_optional(&mut self, at: &Step, index: u64) {
        self.begin_variant(at, index);
    }

    fn end_optional(&mut self) {
        self.end_variant();
    }

    fn absent(&mut self, at: &Step, index: u64) {
        self.lead(at, index);
        self.out.extend_from_slice(b"<none>");
    }
}

/// The first byte of the control characters 0x80 to 0x9f in UTF-8, and of the signs behind them.
const LATIN: u8 = 0xc2;

/// What babeltrace2 escapes, too, though it need not be.
const MORE: &[u8] = b"'?";

/// A string in quotes, control characters escaped as in C; other bytes stay as they are.
pub(crate) fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    quote_more(out, bytes, b"");
}

/// The same, with a backslash before each of these, too.
fn quote_more(out: &mut Vec<u8>, bytes: &[u8], more: &[u8]) {
    let is_plain =
        |b: u8| b >= 0x20 && b != 0x7f && b != b'"' && b != b'\\' && b != LATIN && !more.contains(&b);
    out.push(b'"');
    let mut rest = bytes;
    loop {
        let n_plain = rest.iter().position(|b| !is_plain(*b)).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..n_plain]);
        let Some(special) = rest.get(n_plain) else { break };
        rest = &rest[n_plain + 1..];
        if *special == LATIN {
            match rest.split_first() {
                Some((next @ 0x80..=0x9f, behind)) => {
                    hex(out, LATIN);
                    hex(out, *next);
                    rest = behind;
                }
                _ => out.push(LATIN),
            }
            continue;
        }
        let letter = match special {
            7 => b'a',
            8 => b'b',
            9 => b't',
            10 => b'n',
            11 => b'v',
            12 => b'f',
            13 => b'r',
            27 => b'e',
            b'"' | b'\\' => *special,
            special if more.contains(special) => *special,
            other => {
                hex(out, *other);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
    out.push(b'"');
}

/// `\x1f`
fn hex(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
}

const fn digit(half: u8) -> u8 {
    b"0123456789abcdef"[(half & 15) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_do_not_steer_the_terminal() {
        for (text, want) in [
            ("a\x1b[2J\x07\n\x7f", r#""a\e[2J\a\n\x7f""#),
            ("\u{9b}31m \u{a7} \u{e9}", "\"\\xc2\\x9b31m \u{a7} \u{e9}\""),
        ] {
            let mut out = Vec::new();
            quote(&mut out, text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }
}
