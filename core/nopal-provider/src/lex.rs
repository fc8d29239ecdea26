//! Words, punctuation and comments of a `.d` file, read on demand. Lines that begin with `#` are not tokens: pragmas
//! and a preprocessor's line markers are noted, the rest is a comment.

use crate::diagnostic::{LineMarker, Reporter};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or keyword.
    Word,
    Number,
    /// A string or character constant with its quotes.
    Text,
    Punct(char),
    End,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
    /// The comment that documents what this token begins.
    pub doc: Option<(usize, usize)>,
    pub is_first_on_line: bool,
}

impl Token {
    pub(crate) fn span(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    pub(crate) fn is(&self, punct: char) -> bool {
        self.kind == TokenKind::Punct(punct)
    }
}

#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    pub text: &'a str,
    pub reporter: Reporter<'a>,
    /// Texts of `#pragma D` lines behind these two words.
    pub pragmas: Vec<(usize, usize)>,
    offset: usize,
    /// Nothing but blanks since the last line break.
    is_line_start: bool,
}

/// Directives that change what the file means if a preprocessor reads it.
const DIRECTIVES: [&str; 9] =
    ["define", "undef", "include", "if", "ifdef", "ifndef", "elif", "else", "endif"];

impl<'a> Lexer<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        Lexer {
            text,
            reporter: Reporter::new(name, text),
            pragmas: Vec::new(),
            // Some editors put a byte order mark in front.
            offset: if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 },
            is_line_start: true,
        }
    }

    pub(crate) fn text_of(&self, (start, end): (usize, usize)) -> &'a str {
        &self.text[start..end]
    }

    pub(crate) fn next(&mut self) -> Token {
        let previous_end = self.offset;
        let was_line_start = self.is_line_start;
        let comment = self.skip_blanks_and_comments();
        let start = self.offset;
        let doc = comment.filter(|comment| self.is_doc(*comment, previous_end, start, was_line_start));
        let is_first_on_line = self.is_line_start;
        self.is_line_start = false;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else {
            return Token { kind: TokenKind::End, start, end: start, doc, is_first_on_line };
        };
        let (kind, length) = match first {
            'A'..='Z' | 'a'..='z' | '_' => (TokenKind::Word, word_length(rest)),
            '0'..='9' => (TokenKind::Number, word_length(rest)),
            '"' | '\'' => (TokenKind::Text, self.quoted_length(start, first)),
            other => (TokenKind::Punct(other), other.len_utf8()),
        };
        self.offset = start + length;
        Token { kind, start, end: self.offset, doc, is_first_on_line }
    }

    /// Returns the last comment passed; a run of `//` lines counts as one.
    fn skip_blanks_and_comments(&mut self) -> Option<(usize, usize)> {
        let bytes = self.text.as_bytes();
        let mut last: Option<(usize, usize)> = None;
        while let Some(&byte) = bytes.get(self.offset) {
            match byte {
                b'\n' => {
                    self.is_line_start = true;
                    self.offset += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.offset += 1,
                // A line that goes on, as a preprocessor reads it.
                b'\\' if bytes[self.offset + 1..].starts_with(b"\n") => self.offset += 2,
                b'\\' if bytes[self.offset + 1..].starts_with(b"\r\n") => self.offset += 3,
                b'/' if bytes.get(self.offset + 1) == Some(&b'*') => {
                    let start = self.offset;
                    let end = match self.text[start + 2..].find("*/") {
                        Some(length) => start + 2 + length + 2,
                        None => {
                            self.reporter.error_help(
                                (start, start + 2),
                                "this comment has no end",
                                "close it with `*/`",
                            );
                            self.text.len()
                        }
                    };
                    self.offset = end;
                    last = Some((start, end));
                }
                b'/' if bytes.get(self.offset + 1) == Some(&b'/') => {
                    let start = self.offset;
                    let end = self.line_end(start);
                    self.offset = end;
                    last = match last {
                        Some((first, previous)) if self.is_continued(first, previous, start) => {
                            Some((first, end))
                        }
                        _ => Some((start, end)),
                    };
                }
                b'#' if self.is_line_start => self.directive(),
                _ => break,
            }
        }
        last
    }

    /// Whether the `//` comment at `next` goes on where the one that ends at `end` stopped.
    fn is_continued(&self, first: usize, end: usize, next: usize) -> bool {
        let between = &self.text[end..next];
        self.text[first..].starts_with("//")
            && between.matches('\n').count() == 1
            && between.trim().is_empty()
    }

    /// Whether a comment documents the token behind it. `/**` and `///` always do; another comment must stand on the
    /// lines directly above, and a comment behind something else on its line belongs to that.
    fn is_doc(
        &self,
        (start, end): (usize, usize),
        previous_end: usize,
        token: usize,
        was_line_start: bool,
    ) -> bool {
        let gap = &self.text[end..token];
        let is_trailing =
            !was_line_start && !self.text[previous_end..start].contains('\n') && gap.contains('\n');
        let comment = &self.text[start..end];
        let is_marked = (comment.starts_with("/**") && comment.len() > 4) || comment.starts_with("///");
        !is_trailing && (is_marked || (gap.trim().is_empty() && gap.matches('\n').count() <= 1))
    }

    /// A line that begins with `#`, with its continuations.
    fn directive(&mut self) {
        let start = self.offset;
        let mut end = self.line_end(start);
        while self.text[start..end].trim_end_matches('\r').ends_with('\\') && end < self.text.len() {
            end = self.line_end(end + 1);
        }
        self.offset = end;
        let line = &self.text[start + 1..end];
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        let number = if first == "line" { words.next().unwrap_or_default() } else { first };
        if let Ok(number) = number.parse::<u32>() {
            self.line_marker(number, (start, end));
        } else if first == "pragma" && words.next() == Some("D") {
            let skipped = line.find('D').unwrap_or_default() + 1;
            self.pragmas.push((start + 1 + skipped, end));
        } else if DIRECTIVES.contains(&first) && line.starts_with(first) {
            // `# if you read this` is prose, `#if X` is not.
            self.reporter.warning(
                (start, start + 1 + first.len()),
                format!("`#{first}` is taken for a comment"),
                Some("run with -C to preprocess the file".to_owned()),
            );
        }
    }

    fn line_marker(&mut self, line: u32, (start, end): (usize, usize)) {
        let quoted = &self.text[start..end];
        let Some(open) = quoted.find('"') else { return };
        let Some(length) = quoted[open + 1..].find('"') else { return };
        let file = (start + open + 1, start + open + 1 + length);
        let offset = (end + 1).min(self.text.len());
        self.reporter.markers.push(LineMarker { offset, line, file });
    }

    fn line_end(&self, from: usize) -> usize {
        self.text[from..].find('\n').map_or(self.text.len(), |i| from + i)
    }

    fn quoted_length(&mut self, start: usize, quote: char) -> usize {
        let mut is_escaped = false;
        for (i, c) in self.text[start + 1..].char_indices() {
            match c {
                '\n' => {
                    self.reporter.error((start, start + 1 + i), "this constant has no closing quote");
                    return 1 + i;
                }
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                _ if c == quote => return 1 + i + 1,
                _ => {}
            }
        }
        self.reporter.error((start, self.text.len()), "this constant has no closing quote");
        self.text.len() - start
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}
