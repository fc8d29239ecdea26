//! Tokens to tree: the top level of a script. Points, statements, expressions and types have a file each.

pub(crate) mod embedded;
mod expression;
pub(crate) mod items;
mod latency;
mod macros;
mod points;
mod settings;
mod statement;
mod types;

use crate::ast::expand::Macro;
use crate::ast::{Clause, MissingProbes, Options, Script, expand, scope};
use crate::ctype::Records;
use crate::diagnostic::{Diagnostic, Span};
use crate::lex::{Lexer, Token};
use nopal_program::{Limits, Look, StackForm};

/// Levels a tree may have: what walks it later does so by calling itself.
const MAX_DEPTH: u16 = 120;
/// Larger scripts are no scripts.
const MAX_TEXT_BYTES: usize = 4 << 20;

pub(crate) type Parsed<T> = Result<T, Diagnostic>;

/// Reads a script. `parameters` are what `$1`, `$2`... stand for.
pub fn parse(
    text: &str,
    file: &str,
    parameters: &[String],
    options: &Options,
) -> Result<Script, Vec<Diagnostic>> {
    if text.len() > MAX_TEXT_BYTES {
        let message =
            format!("{file} has {} bytes, more than the {MAX_TEXT_BYTES} a script may have", text.len());
        return Err(vec![Diagnostic::error(Span::default(), message)]);
    }
    let mut parser = Parser::of(text);
    parser.script.options = options.clone();
    parser.lexer.define(&options.defines);
    parser.script.records.of_kernel = options.kernel_records.iter().cloned().collect();
    if options.look == Look::New {
        parser.script.limits.string_bytes = NEW_STRING_BYTES;
    }
    parser.script.parameters = parameters.to_vec();
    let read = parser.settings_from_outside().and_then(|()| parser.script());
    // Since release 0.22 what stands outside goes before the script's own.
    let read = match options.look {
        Look::Old => read,
        Look::New => read.and_then(|()| parser.settings_from_outside()),
    };
    match read.and_then(|()| parser.resolve()) {
        Ok(()) => Ok(parser.script),
        Err(diagnostic) => Err(vec![diagnostic]),
    }
}

/// What strings have room for by default since release 0.23.
const NEW_STRING_BYTES: u32 = 1024;

pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    peeked: Option<(Token, Span)>,
    depth: u16,
    script: Script,
    macros: Vec<Macro>,
    items: Vec<items::Item>,
    /// Where the last token taken ended.
    last_end: usize,
    n_anonymous: u32,
    has_config: bool,
}

impl<'a> Parser<'a> {
    fn of(text: &'a str) -> Parser<'a> {
        Parser {
            lexer: Lexer::new(text),
            peeked: None,
            depth: 0,
            script: Script {
                clauses: Vec::new(),
                specs: Vec::new(),
                records: Records::default(),
                limits: Limits::default(),
                options: Options::default(),
                parameters: Vec::new(),
                declared: Vec::new(),
                spans: Vec::new(),
                missing_probes: MissingProbes::default(),
                probes_inlined: false,
                license: "GPL",
                stack_form: StackForm::default(),
            },
            macros: Vec::new(),
            items: Vec::new(),
            last_end: 0,
            n_anonymous: 0,
            has_config: false,
        }
    }

    fn script(&mut self) -> Parsed<()> {
        loop {
            self.lexer.skip_blank()?;
            let start = self.lexer.at;
            let word = self.lexer.word();
            let word_span = Span::new(start, self.lexer.at);
            self.lexer.at = start;
            self.items.push(items::Item { start, is_setting: word == "config", ..items::Item::default() });
            match word.as_str() {
                _ if self.lexer.rest().is_empty() => {
                    self.items.pop();
                    break;
                }
                "struct" | "union" | "enum" | "typedef" => self.definition()?,
                "config" => self.config()?,
                "latency" => self.latency()?,
                "macro" => self.macro_definition()?,
                "let" => self.map_declaration()?,
                "import" => self.import()?,
                "fn" => {
                    return Err(Diagnostic::error(
                        word_span,
                        format!("`{word}` at the top level is not supported"),
                    )
                    .help("a script is made of `probe { statements }`"));
                }
                _ => self.clause()?,
            }
            let end = self.last_end;
            if let Some(item) = self.items.last_mut() {
                item.end = end;
            }
        }
        if self.script.clauses.is_empty() {
            let span = Span::new(0, self.lexer.text.len().min(1));
            return Err(Diagnostic::error(span, "the script has no probe")
                .help("write `probe { statements }`, such as `BEGIN { printf(\"hello\\n\"); }`"));
        }
        Ok(())
    }

    /// Puts macros in place, and tells the variables of blocks apart.
    fn resolve(&mut self) -> Parsed<()> {
        let used: Vec<Macro> = macros::provided(&self.script, &self.macros)?;
        expand::expand(&mut self.script.clauses, &used, crate::compile::is_builtin)?;
        self.script.clauses.iter_mut().for_each(scope::resolve);
        Ok(())
    }

    /// `probe, probe /predicate/ { body }`.
    fn clause(&mut self) -> Parsed<()> {
        let points = self.points()?;
        let mut predicate = None;
        let predicate_at = self.lexer.at;
        if self.lexer.rest().starts_with('/') {
            self.lexer.at += 1;
            predicate = Some(self.expression()?);
            let (token, span) = self.take()?;
            if token != Token::EndPredicate {
                let help = match token {
                    Token::Punct("=") => "`==` compares, `=` assigns",
                    _ => "a predicate stands between slashes: `probe /pid == 1/ { ... }`",
                };
                let message = format!("expected `/` and a body, found {}", token.text());
                return Err(Diagnostic::error(span, message).help(help));
            }
        }
        let predicate_end = self.last_end;
        let (token, span) = self.peek()?.clone();
        if let Some(item) = self.items.last_mut() {
            item.points = points.iter().map(|p| (p.span.start as usize, p.span.end as usize)).collect();
            item.predicate = predicate.is_some().then_some((predicate_at, predicate_end));
            item.body = Some(span.start as usize);
        }
        if token != Token::Punct("{") {
            return Err(Diagnostic::error(span, format!("expected `{{`, found {}", token.text()))
                .help("the statements of a probe stand in braces: `probe { statements }`"));
        }
        let body = self.block()?;
        self.script.clauses.push(Clause { points, predicate, body });
        Ok(())
    }

    /// `config = { name = value; ... }`.
    fn config(&mut self) -> Parsed<()> {
        let (_, start) = self.take()?;
        if self.has_config || !self.script.clauses.is_empty() {
            return Err(Diagnostic::error(start, "`config` stands once, before the first probe"));
        }
        self.has_config = true;
        self.expect("=")?;
        let open = self.expect("{")?;
        self.note_body(open);
        while !self.accept("}")? {
            let (name, name_span) = self.name("the name of a setting")?;
            self.expect("=")?;
            let (value, value_span) = self.take()?;
            let text = match &value {
                Token::Int { value, .. } => value.to_string(),
                Token::Str(text) => String::from_utf8_lossy(text).into_owned(),
                Token::Name(name) => name.clone(),
                other => {
                    return Err(Diagnostic::error(
                        value_span,
                        format!("expected a value, found {}", other.text()),
                    ));
                }
            };
            self.setting(&name, &text, name_span, value_span)?;
            if !self.accept(";")? && !self.accept(",")? {
                self.expect("}")?;
                break;
            }
        }
        Ok(())
    }

    /// Where the statements of what is being read begin.
    fn note_body(&mut self, open: Span) {
        if let Some(item) = self.items.last_mut() {
            item.body = Some(open.start as usize);
        }
    }

    // Tokens.

    fn peek(&mut self) -> Parsed<&(Token, Span)> {
        if self.peeked.is_none() {
            self.peeked = Some(self.lexer.next()?);
        }
        Ok(self.peeked.as_ref().expect("filled above"))
    }

    fn take(&mut self) -> Parsed<(Token, Span)> {
        let taken = match self.peeked.take() {
            Some(taken) => taken,
            None => self.lexer.next()?,
        };
        self.last_end = taken.1.end as usize;
        Ok(taken)
    }

    /// The token that was just taken comes next again.
    fn put_back(&mut self, token: (Token, Span)) {
        debug_assert!(self.peeked.is_none(), "only one token can be put back");
        self.peeked = Some(token);
    }

    fn is_next(&mut self, punct: &str) -> Parsed<bool> {
        Ok(matches!(self.peek()?, (Token::Punct(next), _) if *next == punct))
    }

    fn accept(&mut self, punct: &str) -> Parsed<bool> {
        let is_it = self.is_next(punct)?;
        if is_it {
            self.take()?;
        }
        Ok(is_it)
    }

    fn expect(&mut self, punct: &str) -> Parsed<Span> {
        let (token, span) = self.take()?;
        if matches!(token, Token::Punct(next) if next == punct) {
            return Ok(span);
        }
        Err(Diagnostic::error(span, format!("expected `{punct}`, found {}", token.text())))
    }

    fn name(&mut self, what: &str) -> Parsed<(String, Span)> {
        match self.take()? {
            (Token::Name(name), span) => Ok((name, span)),
            (token, span) => Err(Diagnostic::error(span, format!("expected {what}, found {}", token.text()))),
        }
    }

    /// Runs `inner` one level deeper, or refuses.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            let (_, span) = self.peek()?.clone();
            return Err(too_deep(span));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(span, format!("nested more than {MAX_DEPTH} levels deep"))
        .help("keep a part of it in a variable")
}
