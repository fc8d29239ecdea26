//! The items of a file: providers with their probes, type definitions, clauses of D scripts.

use super::argument::single_blanks;
use super::{Parser, is_misspelt};
use crate::ast::{Declaration, File, Probe, Provider};
use crate::lex::{Token, TokenKind};
use crate::{doc, pair};
use std::collections::HashMap;

/// First words of declarations at the top of a file.
const DECLARATORS: [&str; 17] = [
    "typedef",
    "struct",
    "union",
    "enum",
    "translator",
    "inline",
    "extern",
    "static",
    "const",
    "int",
    "char",
    "short",
    "long",
    "unsigned",
    "signed",
    "self",
    "this",
];

/// The longest text of a declaration that is kept.
const MAX_DECLARATION: usize = 64 * 1024;

impl<'a> Parser<'a> {
    pub(super) fn file(&mut self) -> File {
        let mut file = File::default();
        while !self.is_end() {
            if self.is_word("provider") {
                self.provider(&mut file);
            } else if self.accept(';') {
                // An empty declaration.
            } else {
                let start = self.token;
                let is_fine = match self.word() {
                    Some(word) if DECLARATORS.contains(&word) => self.declaration(),
                    Some(_) => self.clause(),
                    None => self.unexpected("expected `provider`", start),
                };
                if is_fine {
                    let text = self.lexer.text_of((start.start, self.last_end));
                    let kept = text.len().min(MAX_DECLARATION);
                    let kept = (0..=kept).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
                    file.declarations.push(Declaration { text: single_blanks(&text[..kept]) });
                } else {
                    self.skip_to_provider(start);
                }
            }
        }
        for provider in &mut file.providers {
            pair::by_name(provider);
        }
        file
    }

    fn unexpected(&mut self, expected: &str, at: Token) -> bool {
        let message = format!("{expected}, found {}", self.found());
        self.reporter().error(at.span(), message);
        false
    }

    /// After an error at the top: goes on at the next provider, which is behind the broken item.
    fn skip_to_provider(&mut self, start: Token) {
        if self.token.start == start.start {
            self.advance();
        }
        while !self.is_end() && !self.is_word("provider") {
            self.advance();
        }
    }

    /// A type or variable definition; ends with a semicolon.
    fn declaration(&mut self) -> bool {
        let first = self.token;
        if self.is_word("typedef") {
            self.advance();
            let Some(declarator) = self.declarator() else { return false };
            self.define_type(&declarator);
        }
        loop {
            match self.token.kind {
                TokenKind::Punct(';') => {
                    self.advance();
                    return true;
                }
                TokenKind::Punct('{' | '(' | '[') => {
                    if !self.skip_brackets() {
                        return false;
                    }
                }
                TokenKind::Word if self.is_word("provider") => break,
                TokenKind::End | TokenKind::Punct('}' | ')' | ']') => break,
                TokenKind::Word | TokenKind::Number | TokenKind::Text | TokenKind::Punct(_) => {
                    self.advance();
                }
            }
        }
        let word = self.lexer.text_of(first.span());
        let message = format!("expected `;` at the end of this `{word}`, found {}", self.found());
        let at = (self.last_end, self.last_end);
        self.reporter().error(at, message);
        false
    }

    /// `BEGIN{}` and other clauses of D scripts: `DESCRIPTION, ... /PREDICATE/ { ... }`. They declare no probe.
    fn clause(&mut self) -> bool {
        let first = self.token;
        let word = self.lexer.text_of(first.span());
        self.advance();
        let mut is_predicate = false;
        let mut was_word = true;
        loop {
            match self.token.kind {
                TokenKind::Punct('{') => {
                    let is_empty_special = matches!(word, "BEGIN" | "END" | "ERROR");
                    if !self.skip_brackets() {
                        return false;
                    }
                    if !is_empty_special {
                        let message =
                            format!("`{word}...{{}}` is a clause of a script and declares no probe");
                        self.reporter().warning(first.span(), message, None);
                    }
                    return true;
                }
                TokenKind::Punct('/') => is_predicate = !is_predicate,
                TokenKind::Word | TokenKind::Number if was_word && !is_predicate => break,
                TokenKind::Punct(':' | ',' | '*' | '?' | '-' | '.' | '$' | '!' | '[' | ']') => {}
                TokenKind::Word | TokenKind::Number => {}
                TokenKind::Text | TokenKind::Punct(_) if is_predicate => {}
                TokenKind::Text | TokenKind::Punct(_) | TokenKind::End => break,
            }
            was_word = matches!(self.token.kind, TokenKind::Word | TokenKind::Number);
            self.advance();
        }
        if word == "probe" {
            let help = "put it between the braces of `provider NAME { ... };`";
            self.reporter().error_help(first.span(), "a probe outside of a provider", help);
        } else if is_misspelt(word, "provider") {
            let message = format!("expected `provider`, found `{word}`");
            self.reporter().error_help(first.span(), message, "did you mean `provider`?");
        } else {
            let word: String = word.chars().take(40).collect();
            self.reporter().error(first.span(), format!("expected `provider`, found `{word}`"));
        }
        false
    }

    /// `provider NAME { ... };`
    fn provider(&mut self, file: &mut File) {
        let keyword = self.advance();
        let Some(name) = self.word() else {
            self.unexpected("expected the provider's name", self.token);
            return self.skip_to_provider(keyword);
        };
        let name_at = self.advance().span();
        if !self.token.is('{') {
            let message = format!("expected `{{` behind `provider {name}`, found {}", self.found());
            let help =
                self.token.is('-').then_some("a name has letters, digits and `_`; write `__` for a dash");
            let at = self.token.span();
            match help {
                Some(help) => self.reporter().error_help(at, message, help),
                None => self.reporter().error(at, message),
            }
            return self.skip_to_provider(keyword);
        }
        let open = self.advance();
        let at = match file.providers.iter().position(|p| p.name == name) {
            Some(at) => at,
            None => {
                file.providers.push(Provider { name: name.to_owned(), ..Provider::default() });
                file.providers.len() - 1
            }
        };
        let provider = &mut file.providers[at];
        if let Some(comment) = keyword.doc
            && provider.doc.is_empty()
        {
            provider.doc = doc::text(self.lexer.text_of(comment));
        }
        let first = provider.probes.len();
        let mut places = Vec::new();
        // By macro name, since that is what must be unique: `a__b` and `a_b` would both be `P_A_B`.
        let mut names: HashMap<String, String> =
            provider.probes.iter().map(|p| (macro_name(&p.name), p.name.clone())).collect();
        loop {
            if self.accept('}') {
                self.accept(';');
                break;
            }
            if self.accept(';') {
                continue;
            }
            if self.is_word("probe") {
                let Some((probe, at)) = self.probe() else {
                    self.skip_probe();
                    continue;
                };
                if let Some(other) = names.insert(macro_name(&probe.name), probe.name.clone()) {
                    let name = &probe.name;
                    let message = match other == *name {
                        true => format!("probe `{name}` is declared twice"),
                        false => format!("probes `{other}` and `{name}` would have the same macro"),
                    };
                    self.reporter().error(at, message);
                    continue;
                }
                provider.probes.push(probe);
                places.push(at);
                continue;
            }
            if self.is_end() || (self.is_word("provider") && self.token.is_first_on_line) {
                let message = format!("this `{{` of provider `{name}` is never closed");
                self.reporter().error(open.span(), message);
                break;
            }
            self.not_a_probe();
            self.skip_probe();
        }
        if provider.probes.is_empty() && !self.lexer.reporter.is_broken() {
            self.reporter().warning(name_at, format!("provider `{name}` declares no probe"), None);
        }
        pair::by_tag(provider, first, &places, self.reporter());
    }

    fn not_a_probe(&mut self) {
        let at = self.token.span();
        let message = format!("expected `probe` or `}}`, found {}", self.found());
        match self.word() {
            Some(word) if is_misspelt(word, "probe") => {
                self.reporter().error_help(at, message, "did you mean `probe`?");
            }
            Some("typedef" | "struct" | "enum" | "union") => {
                self.reporter().error_help(at, message, "types are defined in front of the provider");
            }
            _ => self.reporter().error(at, message),
        }
    }

    /// After an error in a provider: goes on behind the next semicolon, or at the next probe, provider or brace.
    fn skip_probe(&mut self) {
        loop {
            let is_keyword =
                self.is_word("probe") || (self.is_word("provider") && self.token.is_first_on_line);
            if self.is_end() || self.token.is('}') || is_keyword || self.accept(';') {
                return;
            }
            self.advance();
        }
    }

    /// `probe NAME(ARGS) [: (ARGS)];` with the place of its name; `None` after an error.
    fn probe(&mut self) -> Option<(Probe, (usize, usize))> {
        let keyword = self.advance();
        let Some(name) = self.word() else {
            self.unexpected("expected the probe's name", self.token);
            return None;
        };
        let at = self.advance().span();
        if !self.token.is('(') {
            let message = format!("expected `(` behind `probe {name}`, found {}", self.found());
            let help = match self.token.is('-') {
                true => "a name has letters, digits and `_`; write `__` for a dash",
                false => "a probe without arguments is written `NAME()`",
            };
            let here = self.token.span();
            self.reporter().error_help(here, message, help);
            return None;
        }
        let args = self.argument_list(name)?;
        let mut translated = None;
        if self.accept(':') {
            if !self.token.is('(') {
                self.unexpected("expected `(` and the translated arguments behind `:`", self.token);
                return None;
            }
            translated = Some(self.argument_list(name)?);
        }
        if !self.accept(';') {
            let here = (self.last_end, self.last_end);
            if self.is_word("probe") || self.token.is('}') {
                self.reporter().warning(here, format!("`;` is missing behind probe `{name}`"), None);
            } else {
                let message = format!("expected `;` behind probe `{name}`, found {}", self.found());
                self.reporter().error(here, message);
                return None;
            }
        }
        let mut probe = Probe { name: name.to_owned(), args, translated, ..Probe::default() };
        if let Some(comment) = keyword.doc {
            doc::apply(&mut probe, &mut self.lexer, comment);
        }
        Some((probe, at))
    }
}

/// `query__start` becomes `QUERY_START`, as in the generated macros.
pub(crate) fn macro_name(name: &str) -> String {
    name.replace("__", "_").to_ascii_uppercase()
}
