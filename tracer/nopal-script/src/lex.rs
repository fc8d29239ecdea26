//! Script text to tokens. Skips blanks, comments and the lines of the C preprocessor. Points are read by the parser from
//! the text itself, since a path in them may hold anything.

use crate::diagnostic::{Diagnostic, Span};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Int {
        value: i64,
        is_signed: bool,
    },
    Str(Vec<u8>),
    Name(String),
    /// Without its `$`.
    Var(String),
    /// `$1`.
    Param(usize),
    /// `$#`.
    ParamCount,
    /// With its `@`.
    Map(String),
    Punct(&'static str),
    /// The `/` that ends a predicate: one with a `{` after it.
    EndPredicate,
    End,
}

impl Token {
    /// As a message names it.
    pub(crate) fn text(&self) -> String {
        match self {
            Token::Int { value, is_signed: true } => format!("`{value}`"),
            Token::Int { value, is_signed: false } => format!("`{}`", *value as u64),
            Token::Str(_) => "a string".into(),
            Token::Name(name) => format!("`{name}`"),
            Token::Var(name) => format!("`${name}`"),
            Token::Param(n) => format!("`${n}`"),
            Token::ParamCount => "`$#`".into(),
            Token::Map(name) => format!("`{name}`"),
            Token::Punct(punct) => format!("`{punct}`"),
            Token::EndPredicate => "`/`".into(),
            Token::End => "the end of the script".into(),
        }
    }
}

/// Longest first.
const PUNCTS: [&str; 46] = [
    "<<=", ">>=", "...", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "++", "--", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "..", "{", "}", "(", ")", "[", "]", ";", ",", ":", "?", "+", "-", "*", "/",
    "%", "&", "|", "^", "~", "!", "<", ">", "=",
];

#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    pub text: &'a str,
    pub at: usize,
    /// `#ifdef` and the like that are open.
    n_conditionals: u32,
    /// A number after a dot is that of a tuple's member: `$t.2.1` has no fraction.
    is_after_dot: bool,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        // Editors of other systems begin a file with a byte order mark.
        let at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        Lexer { text, at, n_conditionals: 0, is_after_dot: false }
    }

    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// To the next byte that means something.
    pub(crate) fn skip_blank(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            if rest.starts_with("//") {
                self.skip_line();
            } else if rest.starts_with("/*") {
                let Some(length) = rest.find("*/") else {
                    return Err(Diagnostic::error(Span::new(self.at, self.at + 2), "comment without an end")
                        .help("end it with `*/`"));
                };
                self.at += length + 2;
            } else if rest.starts_with('#') && self.is_line_start() {
                self.directive()?;
            } else {
                return Ok(());
            }
        }
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').map_or(self.rest().len(), |length| length + 1);
    }

    fn is_line_start(&self) -> bool {
        let line = self.text[..self.at].rsplit('\n').next().unwrap_or_default();
        line.trim_start_matches(BYTE_ORDER_MARK).trim().is_empty()
    }

    /// Kernel types come from the kernel itself, so headers are not read and `BPFTRACE_HAVE_BTF` counts as defined.
    fn directive(&mut self) -> Result<(), Diagnostic> {
        let start = self.at;
        let line = self.rest().lines().next().unwrap_or("");
        let span = Span::new(start, start + line.trim_end().len());
        let mut words = line[1..].split_whitespace();
        let word = words.next().unwrap_or("");
        let is_defined = words.next() == Some("BPFTRACE_HAVE_BTF");
        self.skip_line();
        if line.starts_with("#!") {
            return Ok(());
        }
        match word {
            "include" | "pragma" | "" => {}
            "ifdef" | "ifndef" => {
                self.n_conditionals += 1;
                if is_defined != (word == "ifdef") {
                    self.skip_branch(span, true)?;
                }
            }
            "else" if self.n_conditionals > 0 => self.skip_branch(span, false)?,
            "endif" if self.n_conditionals > 0 => self.n_conditionals -= 1,
            "else" | "endif" => {
                return Err(Diagnostic::error(span, format!("`#{word}` without `#ifdef`")));
            }
            _ => {
                return Err(Diagnostic::error(span, format!("`#{word}` is not supported")).help(
                    "of the C preprocessor only #ifdef, #ifndef, #else, #endif and #include are accepted",
                ));
            }
        }
        Ok(())
    }

    /// Past the matching `#endif`, or `#else` where that is wanted.
    fn skip_branch(&mut self, opened: Span, stops_at_else: bool) -> Result<(), Diagnostic> {
        let mut n_inner = 0u32;
        while !self.rest().is_empty() {
            let line = self.rest().lines().next().unwrap_or("").trim_start();
            let word = line.strip_prefix('#').and_then(|line| line.split_whitespace().next()).unwrap_or("");
            self.skip_line();
            match word {
                "ifdef" | "ifndef" | "if" => n_inner += 1,
                "else" if n_inner == 0 && stops_at_else => return Ok(()),
                "endif" if n_inner == 0 => {
                    self.n_conditionals -= 1;
                    return Ok(());
                }
                "endif" => n_inner -= 1,
                _ => {}
            }
        }
        Err(Diagnostic::error(opened, "no `#endif` for this"))
    }

    pub(crate) fn next(&mut self) -> Result<(Token, Span), Diagnostic> {
        self.skip_blank()?;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((Token::End, Span::new(start, start))) };
        let token = match first {
            '0'..='9' => self.number()?,
            '"' => Token::Str(self.string()?),
            'a'..='z' | 'A'..='Z' | '_' => Token::Name(self.word()),
            '@' => {
                self.at += 1;
                Token::Map(format!("@{}", self.word()))
            }
            '$' => self.variable()?,
            '/' if ends_predicate(rest) => {
                self.at += 1;
                Token::EndPredicate
            }
            '.' if !rest.starts_with("..") => {
                self.at += 1;
                Token::Punct(".")
            }
            _ => match PUNCTS.into_iter().find(|punct| rest.starts_with(punct)) {
                Some(punct) => {
                    self.at += punct.len();
                    Token::Punct(punct)
                }
                None => {
                    let span = Span::new(start, start + first.len_utf8());
                    let refused = |shown| Diagnostic::error(span, format!("`{shown}` has no meaning here"));
                    return Err(match first {
                        '\'' => refused("'".to_owned()).help("text stands in double quotes: \"text\""),
                        _ => refused(first.escape_debug().to_string()),
                    });
                }
            },
        };
        self.is_after_dot = token == Token::Punct(".");
        Ok((token, Span::new(start, self.at)))
    }

    /// Letters, digits and underscores; may be none.
    pub(crate) fn word(&mut self) -> String {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        self.at += length;
        rest[..length].to_string()
    }

    fn variable(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at;
        self.at += 1;
        if self.rest().starts_with('#') {
            self.at += 1;
            return Ok(Token::ParamCount);
        }
        let name = self.word();
        let span = Span::new(start, self.at);
        match name.parse::<usize>() {
            Ok(0) => Err(Diagnostic::error(span, "parameters are counted from `$1`")),
            Ok(index) if index <= 1000 => Ok(Token::Param(index)),
            Ok(_) => Err(Diagnostic::error(span, "no script has so many parameters")),
            Err(_) if name.is_empty() || name.as_bytes()[0].is_ascii_digit() => {
                Err(Diagnostic::error(span, "`$` needs the name of a variable or the number of a parameter"))
            }
            Err(_) => Ok(Token::Var(name)),
        }
    }

    /// `12`, `0x1f`, `017`, `1_000`, `1e6`, `10ms`, `5UL`.
    fn number(&mut self) -> Result<Token, Diagnostic> {
        let start = self.at;
        let rest = self.rest();
        let word = self.word();
        let is_member = self.is_after_dot;
        if !is_member
            && self.rest().starts_with('.')
            && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit())
        {
            let span = Span::new(start, self.at + 2);
            return Err(Diagnostic::error(span, "numbers have no fraction")
                .help("use whole numbers, in a smaller unit"));
        }
        let span = Span::new(start, self.at);
        match parse_number(&word) {
            Some(Ok(value)) => Ok(Token::Int { value: value as i64, is_signed: value <= i64::MAX as u64 }),
            Some(Err(())) => Err(Diagnostic::error(span, format!("`{word}` does not fit into 64 bits"))),
            None => Err(Diagnostic::error(span, format!("`{}` is no number", &rest[..word.len()]))
                .help("numbers look like 12, 0x1f, 017, 1_000, 1e6, 10ms")),
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, Diagnostic> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut out = Vec::new();
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                None | Some(b'\n') => {
                    return Err(Diagnostic::error(Span::new(start, self.at), "string without an end")
                        .help("end it with `\"` on the same line; a line break is `\\n`"));
                }
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(byte) => {
                    out.push(*byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), Diagnostic> {
        let start = self.at;
        let rest = &self.rest()[1..];
        let Some(letter) = rest.chars().next() else {
            self.at += 1;
            return Ok(());
        };
        self.at += 1 + letter.len_utf8();
        let byte = match letter {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 7,
            'b' => 8,
            'e' => 27,
            'f' => 12,
            'v' => 11,
            '\\' | '"' | '\'' => letter as u8,
            '0'..='7' => {
                let n_digits = rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                self.at = start + 1 + n_digits;
                u16::from_str_radix(&rest[..n_digits], 8).unwrap_or(0) as u8
            }
            'x' => {
                let n_digits = rest.bytes().skip(1).take(2).take_while(u8::is_ascii_hexdigit).count();
                self.at = start + 2 + n_digits;
                match u8::from_str_radix(&rest[1..1 + n_digits], 16) {
                    Ok(byte) => byte,
                    Err(_) => {
                        let span = Span::new(start, self.at);
                        return Err(Diagnostic::error(span, "`\\x` needs hexadecimal digits"));
                    }
                }
            }
            _ => {
                let span = Span::new(start, self.at);
                return Err(Diagnostic::error(span, format!("unknown escape `\\{}`", letter.escape_debug()))
                    .help("a backslash itself is `\\\\`"));
            }
        };
        out.push(byte);
        Ok(())
    }
}

/// A `/` with nothing but blanks and comments between it and a `{`.
fn ends_predicate(rest: &str) -> bool {
    let mut rest = rest[1..].trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.find('\n').map(|end| &comment[end..])
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map(|end| &comment[end + 2..])
        } else {
            return rest.starts_with('{');
        };
        match after {
            Some(after) => rest = after.trim_start(),
            None => return false,
        }
    }
}

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

    fn tokens(text: &str) -> Result<Vec<Token>, String> {
        let mut lexer = Lexer::new(text);
        let mut out = Vec::new();
        loop {
            match lexer.next().map_err(|diagnostic| diagnostic.message)?.0 {
                Token::End => return Ok(out),
                token => out.push(token),
            }
        }
    }

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

    #[test]
    fn strings_and_escapes() {
        let string = |text| tokens(text).map(|tokens| tokens.into_iter().next().unwrap());
        assert_eq!(string(r#""a\n\t\\\"\x41\101\0z""#), Ok(Token::Str(b"a\n\t\\\"AA\0z".to_vec())));
        assert_eq!(string(r#""é""#), Ok(Token::Str("é".as_bytes().to_vec())));
        for (text, message) in [
            ("\"abc", "string without an end"),
            ("\"a\nb\"", "string without an end"),
            (r#""\q""#, "unknown escape `\\q`"),
            (r#""\x""#, "`\\x` needs hexadecimal digits"),
            (r#""\"#, "string without an end"),
        ] {
            assert_eq!(string(text), Err(message.into()), "{text}");
        }
    }

    #[test]
    fn comments_and_directives_mean_nothing() {
        let text = "\u{feff}#!/usr/bin/bpftrace\n/* a */ 1 // b\n#include <x.h>\n#ifndef BPFTRACE_HAVE_BTF\n2\n#else\n3\n#endif\n4";
        let ints: Vec<i64> = tokens(text)
            .unwrap()
            .into_iter()
            .map(|token| match token {
                Token::Int { value, .. } => value,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ints, [1, 3, 4]);
        for (text, message) in [
            ("/* a", "comment without an end"),
            ("#define A 1", "`#define` is not supported"),
            ("#ifdef A\n1", "no `#endif` for this"),
            ("#endif", "`#endif` without `#ifdef`"),
            ("1.5", "numbers have no fraction"),
            ("`", "``` has no meaning here"),
        ] {
            assert_eq!(tokens(text), Err(message.into()), "{text}");
        }
    }

    #[test]
    fn names_maps_variables() {
        assert_eq!(
            tokens("a @ @b $c $1 $# 0..9 / { x"),
            Ok(vec![
                Token::Name("a".into()),
                Token::Map("@".into()),
                Token::Map("@b".into()),
                Token::Var("c".into()),
                Token::Param(1),
                Token::ParamCount,
                Token::Int { value: 0, is_signed: true },
                Token::Punct(".."),
                Token::Int { value: 9, is_signed: true },
                Token::EndPredicate,
                Token::Punct("{"),
                Token::Name("x".into()),
            ])
        );
    }
}
