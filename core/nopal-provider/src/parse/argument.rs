//! Argument lists: C parameter declarations with or without a name.

use super::Parser;
use super::kind::{ARITHMETIC, Base, QUALIFIERS, UNKNOWN, base_of, kind_of};
use crate::ast::{Arg, Kind};
use crate::lex::TokenKind;

/// `sys/sdt.h` has macros for this many.
pub(super) const MAX_ARGS: usize = 12;

/// A parameter, or a `typedef` without that word.
pub(super) struct Declarator<'a> {
    pub name: Option<&'a str>,
    pub c_type: String,
    pub words: Vec<&'a str>,
    /// Stars and brackets.
    pub n_pointers: usize,
    pub is_function: bool,
}

impl<'a> Parser<'a> {
    /// `( ARG, ... )`, the current token being the opening parenthesis. `None` after an error.
    pub(super) fn argument_list(&mut self, probe: &str) -> Option<Vec<Arg>> {
        self.advance();
        let mut args: Vec<Arg> = Vec::new();
        if self.accept(')') {
            return Some(args);
        }
        loop {
            let start = self.token.start;
            let declarator = self.declarator()?;
            let at = (start, self.last_end);
            let is_void =
                declarator.n_pointers == 0 && declarator.words == ["void"] && !declarator.is_function;
            if is_void && declarator.name.is_none() && args.is_empty() && self.token.is(')') {
                self.advance();
                return Some(args);
            }
            if is_void {
                self.reporter().error(at, "an argument cannot have type `void`");
            }
            if let Some(name) = declarator.name
                && args.iter().any(|a| a.name.as_deref() == Some(name))
            {
                self.reporter().error(at, format!("probe `{probe}` has two arguments named `{name}`"));
            }
            if args.len() == MAX_ARGS {
                self.reporter().error_help(
                    at,
                    format!("probe `{probe}` has more than {MAX_ARGS} arguments"),
                    "`sys/sdt.h` has no macro for more; pass a pointer to a struct",
                );
            }
            if args.len() <= MAX_ARGS {
                args.push(self.arg(declarator));
            }
            if self.accept(')') {
                return Some(args);
            }
            if self.accept(',') {
                continue;
            }
            let found = self.found();
            if self.is_end() || self.token.is(';') || self.token.is('}') {
                let message = format!("expected `)` behind the arguments of probe `{probe}`, found {found}");
                let here = (self.last_end, self.last_end);
                self.reporter().error(here, message);
            } else {
                let at = self.token.span();
                let message = format!("expected `,` or `)`, found {found}");
                match self.token.kind {
                    TokenKind::Word => {
                        let help =
                            "an argument is a type and a name; if one of the words is a macro, run with -C";
                        self.reporter().error_help(at, message, help);
                    }
                    _ => self.reporter().error(at, message),
                }
            }
            return None;
        }
    }

    fn arg(&self, declarator: Declarator<'a>) -> Arg {
        let (kind, size_bytes) = match declarator.is_function {
            true => (Kind::Pointer, Some(8)),
            false => kind_of(&declarator.words, declarator.n_pointers, &self.types),
        };
        Arg {
            name: declarator.name.map(str::to_owned),
            c_type: declarator.c_type,
            kind,
            size_bytes,
            ..Arg::default()
        }
    }

    /// One parameter declaration up to the `,` or `)` (or `;`) behind it.
    pub(super) fn declarator(&mut self) -> Option<Declarator<'a>> {
        let mut words = Vec::new();
        let mut c_type = String::new();
        let mut has_base = false;
        // `unsigned long` may go on, `size_t` and `struct x` may not.
        let mut is_named = false;
        while let Some(word) = self.word() {
            let is_arithmetic = ARITHMETIC.contains(&word);
            if has_base && !QUALIFIERS.contains(&word) && (is_named || !is_arithmetic) {
                break;
            }
            is_named |= !is_arithmetic && !QUALIFIERS.contains(&word);
            self.advance();
            words.push(word);
            push_word(&mut c_type, word);
            if matches!(word, "struct" | "union" | "enum") {
                if let Some(tag) = self.word() {
                    self.advance();
                    push_word(&mut c_type, tag);
                }
                if self.token.is('{') {
                    if !self.skip_brackets() {
                        return None;
                    }
                    c_type.push_str(" {...}");
                } else if c_type.ends_with(word) {
                    let message = format!("expected a name behind `{word}`, found {}", self.found());
                    let at = self.token.span();
                    self.reporter().error(at, message);
                    return None;
                }
            }
            has_base |= !QUALIFIERS.contains(&word);
        }
        if !has_base {
            let message = format!("expected a type, found {}", self.found());
            let at = self.token.span();
            if self.token.is('.') {
                self.reporter().error_help(at, message, "a probe cannot have a variable number of arguments");
            } else {
                self.reporter().error(at, message);
            }
            return None;
        }
        let mut n_pointers = self.stars(&mut c_type);
        let mut name = None;
        let mut is_function = false;
        if self.token.is('(') {
            // A pointer to a function: the name, if any, is inside the first parentheses.
            self.advance();
            c_type.push_str(" (");
            self.stars(&mut c_type);
            name = self.take_name();
            if !self.accept(')') || !self.token.is('(') {
                let message = format!("expected a pointer to a function, found {}", self.found());
                let at = self.token.span();
                self.reporter().error(at, message);
                return None;
            }
            let start = self.token.start;
            if !self.skip_brackets() {
                return None;
            }
            c_type.push(')');
            c_type.push_str(&single_blanks(self.lexer.text_of((start, self.last_end))));
            is_function = true;
        } else {
            name = self.take_name().or(name);
        }
        while self.token.is('[') {
            let start = self.token.start;
            if !self.skip_brackets() {
                return None;
            }
            c_type.push_str(&single_blanks(self.lexer.text_of((start, self.last_end))));
            n_pointers += 1;
        }
        Some(Declarator { name, c_type, words, n_pointers, is_function })
    }

    fn take_name(&mut self) -> Option<&'a str> {
        let name = self.word().filter(|w| !ARITHMETIC.contains(w))?;
        self.advance();
        Some(name)
    }

    /// Stars with their qualifiers; returns how many.
    fn stars(&mut self, c_type: &mut String) -> usize {
        let mut n_stars = 0;
        loop {
            if self.accept('*') {
                if !c_type.ends_with(['*', '(']) {
                    c_type.push(' ');
                }
                c_type.push('*');
                n_stars += 1;
            } else if let Some(word) = self.word().filter(|w| n_stars > 0 && QUALIFIERS.contains(w)) {
                self.advance();
                if !c_type.ends_with('*') {
                    c_type.push(' ');
                }
                c_type.push_str(word);
            } else {
                return n_stars;
            }
        }
    }

    /// Notes what a `typedef` calls its type.
    pub(super) fn define_type(&mut self, declarator: &Declarator<'a>) {
        let Some(name) = declarator.name else { return };
        let mut base = base_of(&declarator.words, &self.types);
        if declarator.is_function {
            base = Base { n_pointers: 1, ..UNKNOWN };
        }
        let n_pointers = u8::try_from(declarator.n_pointers).unwrap_or(u8::MAX);
        base.n_pointers = base.n_pointers.saturating_add(n_pointers);
        self.types.insert(name, base);
    }
}

fn push_word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

/// The text with every run of blanks and line breaks made one blank.
pub(super) fn single_blanks(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}
