//! Statements and blocks.

use super::expression::{choice, make};
use super::points::is_probe_kind;
use super::{Parsed, Parser};
use crate::ast::{BinaryOp, Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostic::{Diagnostic, Span};
use crate::lex::Token;

impl Parser<'_> {
    /// `{ statements }`.
    pub(super) fn block(&mut self) -> Parsed<Vec<Stmt>> {
        self.block_and_end().map(|(statements, _)| statements)
    }

    /// `{ statements; value }`: the last one is the value if no `;` follows it.
    pub(super) fn block_with_value(&mut self) -> Parsed<(Vec<Stmt>, Option<Expr>)> {
        let (mut statements, has_value) = self.block_and_end()?;
        match statements.pop() {
            Some(Stmt { kind: StmtKind::Expr(value), .. }) if has_value => Ok((statements, Some(value))),
            Some(last) if has_value && gives_value(&last) => Ok((statements, Some(value_of(last)?))),
            last => {
                statements.extend(last);
                Ok((statements, None))
            }
        }
    }

    /// The statements, and whether the last ends without a `;`.
    fn block_and_end(&mut self) -> Parsed<(Vec<Stmt>, bool)> {
        let open = self.expect("{")?;
        let mut statements = Vec::new();
        let mut is_open_end = false;
        loop {
            while self.accept(";")? {
                is_open_end = false;
            }
            if self.accept("}")? {
                return Ok((statements, is_open_end));
            }
            if let (Token::End, span) = self.peek()? {
                return Err(no_end(*span, open));
            }
            let statement = self.deeper(Parser::statement)?;
            let needs_semicolon = matches!(
                statement.kind,
                StmtKind::Expr(_)
                    | StmtKind::AssignVar { .. }
                    | StmtKind::AssignMap { .. }
                    | StmtKind::Let { .. }
                    | StmtKind::Break
                    | StmtKind::Continue
                    | StmtKind::Return
            );
            statements.push(statement);
            is_open_end = true;
            if needs_semicolon && !self.is_next(";")? && !self.is_next("}")? {
                let (token, span) = self.peek()?.clone();
                if token == Token::End {
                    return Err(no_end(span, open));
                }
                let after = Span::new(self.last_end.saturating_sub(1), self.last_end);
                let error =
                    Diagnostic::error(after, format!("expected `;` after this, found {}", token.text()));
                return Err(match (&statements.last().map(|last| &last.kind), token) {
                    (Some(StmtKind::Expr(Expr { kind: ExprKind::Name(name), span, .. })), token)
                        if begins_probe(name, &token) =>
                    {
                        no_end(*span, open)
                    }
                    // `int x = 5`, as in C.
                    (Some(StmtKind::Expr(Expr { kind: ExprKind::Name(_), .. })), Token::Name(name)) => {
                        error.help(format!("a variable is declared by what it is given: `${name} = ...`"))
                    }
                    _ => error,
                });
            }
        }
    }

    fn statement(&mut self) -> Parsed<Stmt> {
        let (token, span) = self.peek()?.clone();
        let kind = match &token {
            Token::Punct("{") => match self.block_with_value()? {
                (body, None) => StmtKind::Block(body),
                // The last value of a block that is a value itself.
                (body, Some(value)) => {
                    let (span, depth) = (Span::new(span.start as usize, self.last_end), value.depth + 1);
                    let kind = ExprKind::Block { body, value: Some(Box::new(value)), call: None };
                    StmtKind::Expr(Expr { kind, span, depth })
                }
            },
            Token::Name(name) => match name.as_str() {
                "if" => return self.if_statement(),
                "while" => {
                    self.take()?;
                    let condition = self.expression()?;
                    StmtKind::While { condition, body: self.braced("while (...) { ... }")? }
                }
                "unroll" => {
                    self.take()?;
                    let count = self.expression()?;
                    StmtKind::Unroll { count, body: self.block()? }
                }
                "for" => self.for_statement()?,
                "let" => self.let_statement()?,
                "break" | "continue" => {
                    self.take()?;
                    if name == "break" { StmtKind::Break } else { StmtKind::Continue }
                }
                "return" => {
                    self.take()?;
                    if !self.is_next(";")? && !self.is_next("}")? {
                        // A probe has nobody to give a value to.
                        self.expression()?;
                    }
                    StmtKind::Return
                }
                _ => self.expression_statement()?,
            },
            _ => self.expression_statement()?,
        };
        Ok(Stmt { kind, span: Span::new(span.start as usize, self.last_end) })
    }

    /// The statements of a statement, which C would take without braces.
    fn braced(&mut self, form: &str) -> Parsed<Vec<Stmt>> {
        let (token, span) = self.peek()?.clone();
        if token != Token::Punct("{") {
            return Err(Diagnostic::error(span, format!("expected `{{`, found {}", token.text()))
                .help(format!("braces are needed around one statement too: `{form}`")));
        }
        self.block()
    }

    fn if_statement(&mut self) -> Parsed<Stmt> {
        let (_, start) = self.take()?;
        let condition = self.expression()?;
        let then = self.braced("if (...) { ... }")?;
        let mut otherwise = Vec::new();
        if matches!(self.peek()?, (Token::Name(name), _) if name == "else") {
            self.take()?;
            otherwise = match self.peek()? {
                (Token::Name(name), _) if name == "if" => vec![self.deeper(Parser::if_statement)?],
                _ => self.braced("else { ... }")?,
            };
        }
        let kind = StmtKind::If { condition, then, otherwise };
        Ok(Stmt { kind, span: Span::new(start.start as usize, self.last_end) })
    }

    /// `for ($kv : @map) { }`, `for ($i : 0..10) { }`.
    fn for_statement(&mut self) -> Parsed<StmtKind> {
        self.take()?;
        let has_parens = self.accept("(")?;
        let variable = match self.take()? {
            (Token::Var(name), _) => name,
            (token, span) => {
                return Err(Diagnostic::error(span, format!("expected a variable, found {}", token.text()))
                    .help("a loop is `for ($kv : @map) { ... }` or `for ($i : 0..10) { ... }`"));
            }
        };
        if self.is_next("=")? {
            let (_, span) = self.take()?;
            return Err(Diagnostic::error(span, "loops are not written as in C")
                .help(format!("write `for (${variable} : 0..10) {{ ... }}`, or `while (...) {{ ... }}`")));
        }
        self.expect(":")?;
        let over = self.expression()?;
        let is_range = self.accept("..")?;
        let to = if is_range { Some(self.expression()?) } else { None };
        if has_parens {
            self.expect(")")?;
        }
        let body = self.block()?;
        match (over.kind, to) {
            (kind, Some(to)) => {
                let from = Expr { kind, span: over.span, depth: over.depth };
                Ok(StmtKind::ForRange { variable, from, to, body })
            }
            (ExprKind::Map(map), None) if map.keys.is_empty() => {
                Ok(StmtKind::ForMap { variable, map: map.name, map_span: map.span, body })
            }
            (_, None) => Err(Diagnostic::error(over.span, "a loop goes over a map or a range")
                .help("a loop is `for ($kv : @map) { ... }` or `for ($i : 0..10) { ... }`")),
        }
    }

    /// `let $x`, `let $x = 1`, `let $x: int64 = 1`, `let $x: typeof($y)`.
    fn let_statement(&mut self) -> Parsed<StmtKind> {
        self.take()?;
        let (name, target) = match self.take()? {
            (Token::Var(name), span) => (name, span),
            (token, span) => {
                return Err(Diagnostic::error(span, format!("expected a variable, found {}", token.text())));
            }
        };
        let declared = if self.accept(":")? { Some(self.type_or_like()?) } else { None };
        let value = if self.accept("=")? { Some(self.expression()?) } else { None };
        Ok(StmtKind::Let { name, declared, value, target })
    }

    /// A call, a step, or an assignment.
    fn expression_statement(&mut self) -> Parsed<StmtKind> {
        let left = self.expression()?;
        let (token, span) = self.peek()?.clone();
        let op = match token {
            Token::Punct("=") => None,
            Token::Punct("+=") => Some(BinaryOp::Add),
            Token::Punct("-=") => Some(BinaryOp::Sub),
            Token::Punct("*=") => Some(BinaryOp::Mul),
            Token::Punct("/=") => Some(BinaryOp::Div),
            Token::Punct("%=") => Some(BinaryOp::Rem),
            Token::Punct("&=") => Some(BinaryOp::BitAnd),
            Token::Punct("|=") => Some(BinaryOp::BitOr),
            Token::Punct("^=") => Some(BinaryOp::BitXor),
            Token::Punct("<<=") => Some(BinaryOp::Shl),
            Token::Punct(">>=") => Some(BinaryOp::Shr),
            _ => return Ok(StmtKind::Expr(left)),
        };
        self.take()?;
        let value = self.expression()?;
        match left.kind {
            ExprKind::Var(name) => Ok(StmtKind::AssignVar { name, op, value, target: left.span }),
            ExprKind::Map(map) => Ok(StmtKind::AssignMap { map, op, value }),
            // `_ = value` says that the value is not wanted.
            ExprKind::Name(name) if name == "_" && op.is_none() => {
                let (span, depth) = (value.span, value.depth.saturating_add(1));
                let kind = ExprKind::Block { body: Vec::new(), value: Some(Box::new(value)), call: None };
                Ok(StmtKind::Expr(Expr { kind, span, depth }))
            }
            _ => Err(Diagnostic::error(left.span, "only variables and maps can be assigned to")
                .related(span, "assigned here")
                .help("a variable is `$name`, a map `@name` or `@name[key]`")),
        }
    }
}

/// A further probe in the middle of a body, as `usdt:` or `END {`.
fn begins_probe(name: &str, next: &Token) -> bool {
    let is_alone = matches!(name, "BEGIN" | "begin" | "END" | "end");
    is_probe_kind(name) && *next == Token::Punct(if is_alone { "{" } else { ":" })
}

fn no_end(at: Span, open: Span) -> Diagnostic {
    Diagnostic::error(at, "the body has no end").related(open, "begins here").help("end it with `}`")
}

/// An `if` whose ways all end with a value.
fn gives_value(statement: &Stmt) -> bool {
    match &statement.kind {
        StmtKind::Expr(_) => true,
        StmtKind::If { then, otherwise, .. } => {
            then.last().is_some_and(gives_value) && otherwise.last().is_some_and(gives_value)
        }
        _ => false,
    }
}

/// The same as a value.
fn value_of(statement: Stmt) -> Parsed<Expr> {
    let span = statement.span;
    let (condition, then, otherwise) = match statement.kind {
        StmtKind::Expr(value) => return Ok(value),
        StmtKind::If { condition, then, otherwise } => (condition, then, otherwise),
        _ => return Err(Diagnostic::error(span, "expected a value")),
    };
    let block = |mut body: Vec<Stmt>| -> Parsed<Expr> {
        let last = body.pop().ok_or_else(|| Diagnostic::error(span, "expected a value"))?;
        let value = value_of(last)?;
        let (at, depth) = (value.span, value.depth);
        let kind = ExprKind::Block { body, value: Some(Box::new(value)), call: None };
        make(kind, at, depth)
    };
    choice(condition, block(then)?, block(otherwise)?, span)
}
