//! Script text to tokens. Skips blanks and comments, does what lines of the C preprocessor say. Points are read by the parser from
//! the text itself, since a path in them may hold anything.

use crate::diagnostic::{Diagnostic, Span};
use crate::number::parse_number;
use crate::preprocess::Defines;
use std::collections::VecDeque;

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
    defines: Defines,
    /// Tokens that a defined name stands for, all in its place.
    pending: VecDeque<(Token, Span)>,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        // Editors of other systems begin a file with a byte order mark.
        let at = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        Lexer {
            text,
            at,
            n_conditionals: 0,
            is_after_dot: false,
            defines: Defines::default(),
            pending: VecDeque::new(),
        }
    }

    /// As lines of `#define` before the text would.
    pub(crate) fn define(&mut self, defines: &[(String, String)]) {
        for (name, text) in defines {
            // Names come from such lines of headers, so they are right.
            self.defines.define(&format!("{name} {text}")).unwrap_or_default();
        }
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
        let after = line[1..].trim_start();
        let (word, rest) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len()));
        self.skip_line();
        if line.starts_with("#!") {
            return Ok(());
        }
        match word {
            "include" | "pragma" | "" => {}
            "define" => self.defines.define(rest).map_err(|why| Diagnostic::error(span, why))?,
            "undef" => self.defines.undefine(rest),
            "error" => return Err(Diagnostic::error(span, rest.trim().to_owned())),
            "if" | "ifdef" | "ifndef" => {
                self.n_conditionals += 1;
                if !self.holds(word, rest, span)? {
                    self.skip_branches(span)?;
                }
            }
            // The branch before it was taken.
            "else" | "elif" if self.n_conditionals > 0 => self.skip_rest(span)?,
            "endif" if self.n_conditionals > 0 => self.n_conditionals -= 1,
            "else" | "elif" | "endif" => {
                return Err(Diagnostic::error(span, format!("`#{word}` without `#if`")));
            }
            _ => {
                return Err(Diagnostic::error(span, format!("`#{word}` is not supported")).help(
                    "there are #define, #undef, #if, #ifdef, #ifndef, #elif, #else, #endif, #error and #include",
                ));
            }
        }
        Ok(())
    }

    fn holds(&self, word: &str, rest: &str, span: Span) -> Result<bool, Diagnostic> {
        match word {
            "ifdef" => Ok(self.defines.is_defined(rest)),
            "ifndef" => Ok(!self.defines.is_defined(rest)),
            _ => self.defines.condition(rest).ok_or_else(|| {
                Diagnostic::error(span, "this condition cannot be understood")
                    .help("use numbers, names of #define, defined(NAME), ! && || == != < > and arithmetic")
            }),
        }
    }

    /// Past branches that do not hold: to the first that does, or behind `#endif`.
    fn skip_branches(&mut self, opened: Span) -> Result<(), Diagnostic> {
        loop {
            let (word, rest, span) = self.skip_branch(opened)?;
            match word {
                "else" => return Ok(()),
                "elif" if self.holds("if", rest, span)? => return Ok(()),
                "elif" => {}
                _ => {
                    self.n_conditionals -= 1;
                    return Ok(());
                }
            }
        }
    }

    /// Past the matching `#endif`.
    fn skip_rest(&mut self, opened: Span) -> Result<(), Diagnostic> {
        while self.skip_branch(opened)?.0 != "endif" {}
        self.n_conditionals -= 1;
        Ok(())
    }

    /// Past the next `#else`, `#elif` or `#endif` of this level; gives its word and what follows.
    fn skip_branch(&mut self, opened: Span) -> Result<(&'a str, &'a str, Span), Diagnostic> {
        let mut n_inner = 0u32;
        while !self.rest().is_empty() {
            let start = self.at;
            let line: &'a str = self.rest().lines().next().unwrap_or("");
            let span = Span::new(start, start + line.trim_end().len());
            let after = line.trim_start().strip_prefix('#').map_or("", str::trim_start);
            let length = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            let (word, rest) = after.split_at(length);
            self.skip_line();
            match word {
                "ifdef" | "ifndef" | "if" => n_inner += 1,
                "else" | "elif" | "endif" if n_inner == 0 => return Ok((word, rest, span)),
                "endif" => n_inner -= 1,
                _ => {}
            }
        }
        Err(Diagnostic::error(opened, "no `#endif` for this"))
    }

    pub(crate) fn next(&mut self) -> Result<(Token, Span), Diagnostic> {
        if let Some(pending) = self.pending.pop_front() {
            return Ok(pending);
        }
        let (token, span) = self.next_written()?;
        match &token {
            Token::Name(name) if self.defines.is_defined(name) => {
                let name = name.clone();
                self.stand_in(&name, span)?;
                self.next()
            }
            _ => Ok((token, span)),
        }
    }

    /// What a defined name stands for comes next.
    fn stand_in(&mut self, name: &str, span: Span) -> Result<(), Diagnostic> {
        let Some(text) = self.defines.text(name) else {
            return Err(Diagnostic::error(span, format!("`{name}` is defined by itself")));
        };
        let text = text.to_owned();
        let mut inner = Lexer::new(&text);
        loop {
            let (token, _) = inner.next_written().map_err(|error| {
                Diagnostic::error(span, format!("`{name}` stands for `{text}`: {}", error.message))
            })?;
            match token {
                Token::End => return Ok(()),
                // A name in the middle of it.
                Token::Name(part) if self.defines.is_defined(&part) => {
                    if self.pending.len() > 1000 || part == name {
                        return Err(Diagnostic::error(span, format!("`{name}` is defined by itself")));
                    }
                    let value = self.defines.text(&part).unwrap_or("");
                    let mut part_lexer = Lexer::new(value);
                    loop {
                        match part_lexer.next_written() {
                            Ok((Token::End, _)) | Err(_) => break,
                            Ok((token, _)) => self.pending.push_back((token, span)),
                        }
                    }
                }
                token => self.pending.push_back((token, span)),
            }
        }
    }

    fn next_written(&mut self) -> Result<(Token, Span), Diagnostic> {
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
            None => Err(Diagnostic::error(span, format!("`{}` is not a number", &rest[..word.len()]))
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
        let text = "#define A 5\n#define B A\n#if A == 5 && !defined(C)\nA\n# if 0\n6\n# elif 1\nB\n# else\n7\n# endif\n#elif 1\n8\n#else\n9\n#endif\n#undef A\n#ifdef A\n1\n#endif\n2";
        let fives = [5, 5, 2].map(|value| Token::Int { value, is_signed: true });
        assert_eq!(tokens(text).unwrap(), fives);
        for (text, message) in [
            ("/* a", "comment without an end"),
            ("#define A(x) 1", "`A` takes parameters; a `macro` of the script can do that"),
            ("#define A A\nA", "`A` is defined by itself"),
            ("#unknown", "`#unknown` is not supported"),
            ("#ifdef A\n1", "no `#endif` for this"),
            ("#endif", "`#endif` without `#if`"),
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
