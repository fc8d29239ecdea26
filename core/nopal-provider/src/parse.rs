//! From the text of a `.d` file to [`File`]: recursive descent with recovery, so that one run shows all errors.

mod argument;
mod item;
mod kind;

pub(crate) use item::macro_name;

use crate::ast::{File, Pragma};
use crate::diagnostic::{ParseError, Reporter};
use crate::lex::{Lexer, Token, TokenKind};
use std::collections::HashMap;

/// Parses the text of a `.d` file; `name` is what diagnostics call it. Accepts text that a C preprocessor has been
/// over and then reports places in the original files.
pub fn parse(name: &str, text: &str) -> Result<File, ParseError> {
    let mut parser = Parser::new(name, text);
    let mut file = parser.file();
    file.pragmas = parser
        .lexer
        .pragmas
        .iter()
        .map(|span| Pragma {
            text: parser.lexer.text_of(*span).split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        })
        .collect();
    let reporter = parser.lexer.reporter;
    let is_broken = reporter.is_broken();
    let (diagnostics, n_left_out) = reporter.finish();
    if is_broken {
        return Err(ParseError { diagnostics, n_left_out });
    }
    file.warnings = diagnostics;
    Ok(file)
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The token to look at next.
    token: Token,
    /// End of the token before it: where something is missing.
    last_end: usize,
    /// Kinds of the types that the file defines.
    types: HashMap<&'a str, kind::Base>,
}

impl<'a> Parser<'a> {
    fn new(name: &'a str, text: &'a str) -> Self {
        let mut lexer = Lexer::new(name, text);
        let token = lexer.next();
        Parser { lexer, token, last_end: 0, types: HashMap::new() }
    }

    fn reporter(&mut self) -> &mut Reporter<'a> {
        &mut self.lexer.reporter
    }

    /// Steps over the current token and returns it.
    fn advance(&mut self) -> Token {
        let token = self.token;
        self.last_end = token.end;
        self.token = self.lexer.next();
        token
    }

    fn is_end(&self) -> bool {
        self.token.kind == TokenKind::End
    }

    fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    fn word(&self) -> Option<&'a str> {
        (self.token.kind == TokenKind::Word).then(|| self.lexer.text_of(self.token.span()))
    }

    /// Steps over `punct` if it is there.
    fn accept(&mut self, punct: char) -> bool {
        let is_there = self.token.is(punct);
        if is_there {
            self.advance();
        }
        is_there
    }

    /// What stands at the current token, for messages.
    fn found(&self) -> String {
        match self.token.kind {
            TokenKind::End => "the end of the file".to_owned(),
            _ => {
                let text = self.lexer.text_of(self.token.span());
                let short: String = text.chars().take(40).collect();
                if short.len() < text.len() { format!("`{short}...`") } else { format!("`{text}`") }
            }
        }
    }

    /// Steps over a bracketed text, the current token being its opening bracket. Iterative: nesting costs no stack.
    fn skip_brackets(&mut self) -> bool {
        let open = self.token;
        // One byte a level; the brackets in it are what still has to be closed.
        let mut expected = Vec::new();
        loop {
            match self.token.kind {
                TokenKind::Punct('{') => expected.push(b'}'),
                TokenKind::Punct('(') => expected.push(b')'),
                TokenKind::Punct('[') => expected.push(b']'),
                TokenKind::Punct(close @ ('}' | ')' | ']')) => {
                    if expected.last().is_none_or(|e| char::from(*e) != close) {
                        let bracket = self.lexer.text_of(open.span());
                        let message = format!("`{close}` does not close the `{bracket}` that is open here");
                        let at = self.token.span();
                        self.reporter().error(at, message);
                        return false;
                    }
                    expected.pop();
                }
                TokenKind::End => {
                    let bracket = self.lexer.text_of(open.span());
                    self.reporter().error(open.span(), format!("this `{bracket}` is never closed"));
                    return false;
                }
                TokenKind::Word | TokenKind::Number | TokenKind::Text | TokenKind::Punct(_) => {}
            }
            self.advance();
            if expected.is_empty() {
                return true;
            }
        }
    }
}

/// Whether `word` is `right` with one or two slips of the finger.
fn is_misspelt(word: &str, right: &str) -> bool {
    if word.len() > right.len() + 2 {
        return false;
    }
    let (a, b) = (word.to_ascii_lowercase().into_bytes(), right.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()] <= 2
}

#[cfg(test)]
mod tests;
