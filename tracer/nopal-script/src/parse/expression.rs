//! Expressions, with the precedence of C.

use super::{MAX_DEPTH, Parsed, Parser, too_deep};
use crate::ast::{BinaryOp, Declared, Expr, ExprKind, MapRef, UnaryOp};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use crate::lex::Token;

/// Loosest first; operators of a row go together from the left.
const LEVELS: [&[(&str, BinaryOp)]; 10] = [
    &[("||", BinaryOp::Or)],
    &[("&&", BinaryOp::And)],
    &[("|", BinaryOp::BitOr)],
    &[("^", BinaryOp::BitXor)],
    &[("&", BinaryOp::BitAnd)],
    &[("==", BinaryOp::Eq), ("!=", BinaryOp::Ne)],
    &[("<", BinaryOp::Lt), ("<=", BinaryOp::Le), (">", BinaryOp::Gt), (">=", BinaryOp::Ge)],
    &[("<<", BinaryOp::Shl), (">>", BinaryOp::Shr)],
    &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)],
    &[("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("%", BinaryOp::Rem)],
];

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.deeper(Parser::ternary)
    }

    fn ternary(&mut self) -> Parsed<Expr> {
        let condition = self.binary(0)?;
        if !self.accept("?")? {
            return Ok(condition);
        }
        // `a ?: b` is `a` unless that is 0.
        let then = if self.is_next(":")? { condition.clone() } else { self.expression()? };
        self.expect(":")?;
        let otherwise = self.expression()?;
        let span = condition.span.to(otherwise.span);
        choice(condition, then, otherwise, span)
    }

    fn binary(&mut self, level: usize) -> Parsed<Expr> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let (token, _) = self.peek()?;
            let Token::Punct(punct) = token else { return Ok(left) };
            let Some((_, op)) = operators.iter().find(|(text, _)| text == punct) else { return Ok(left) };
            let op = *op;
            self.take()?;
            left = self.joined(op, left, level)?;
        }
    }

    /// What an operator of a level makes of the value before it and the one behind it.
    fn joined(&mut self, op: BinaryOp, left: Expr, level: usize) -> Parsed<Expr> {
        let (span, depth) = (left.span, left.depth);
        if op == BinaryOp::Mul && self.is_next(")")? {
            // `type*`, where `type` is a macro's parameter.
            return make(ExprKind::PointerType(Box::new(left)), span, depth);
        }
        let right = self.binary(level + 1)?;
        let (span, depth) = (span.to(right.span), depth.max(right.depth));
        make(ExprKind::Binary { op, left: Box::new(left), right: Box::new(right) }, span, depth)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let (token, start) = self.peek()?.clone();
        let op = match token {
            Token::Punct("-") => UnaryOp::Neg,
            Token::Punct("~") => UnaryOp::BitNot,
            Token::Punct("!") => UnaryOp::Not,
            Token::Punct("*") => UnaryOp::Deref,
            Token::Punct("+") => {
                self.take()?;
                return self.deeper(Parser::unary);
            }
            Token::Punct("&") => return self.address_of(start),
            Token::Punct(step @ ("++" | "--")) => {
                self.take()?;
                let target = self.deeper(Parser::unary)?;
                return self.step(target, step, true, start);
            }
            _ => return self.postfix(),
        };
        self.take()?;
        let operand = self.deeper(Parser::unary)?;
        let (span, depth) = (start.to(operand.span), operand.depth);
        make(ExprKind::Unary { op, operand: Box::new(operand) }, span, depth)
    }

    /// `&$x`.
    fn address_of(&mut self, start: Span) -> Parsed<Expr> {
        self.take()?;
        let of = self.deeper(Parser::unary)?;
        if !matches!(of.kind, ExprKind::Var(_)) {
            return Err(Diagnostic::error(of.span, "only variables have an address: `&$name`"));
        }
        let (span, depth) = (start.to(of.span), of.depth);
        make(ExprKind::AddressOf(Box::new(of)), span, depth)
    }

    fn step(&mut self, target: Expr, step: &str, is_prefix: bool, at: Span) -> Parsed<Expr> {
        if !matches!(target.kind, ExprKind::Var(_) | ExprKind::Map(_)) {
            return Err(Diagnostic::error(target.span, format!("`{step}` needs a variable or a map")));
        }
        let by = if step == "++" { 1 } else { -1 };
        let span = if is_prefix { at.to(target.span) } else { target.span.to(at) };
        let depth = target.depth;
        make(ExprKind::Step { target: Box::new(target), by, is_prefix }, span, depth)
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut base = self.primary()?;
        loop {
            let (token, start) = self.peek()?.clone();
            base = match token {
                Token::Punct(step @ ("++" | "--")) => {
                    self.take()?;
                    self.step(base, step, false, start)?
                }
                Token::Punct("[") => {
                    self.take()?;
                    let index = self.expression()?;
                    let end = self.expect("]")?;
                    let (span, depth) = (base.span.to(end), base.depth.max(index.depth));
                    make(ExprKind::Index { base: Box::new(base), index: Box::new(index) }, span, depth)?
                }
                Token::Punct(access @ ("." | "->")) => {
                    self.take()?;
                    let depth = base.depth;
                    match self.take()? {
                        (Token::Name(name), name_span) => {
                            let span = base.span.to(name_span);
                            let is_arrow = access == "->";
                            make(
                                ExprKind::Member { base: Box::new(base), name, is_arrow, name_span },
                                span,
                                depth,
                            )?
                        }
                        (Token::Int { value, .. }, end) if access == "." && (0..=63).contains(&value) => {
                            let span = base.span.to(end);
                            make(
                                ExprKind::TupleMember { base: Box::new(base), index: value as u32 },
                                span,
                                depth,
                            )?
                        }
                        (token, span) => {
                            return Err(Diagnostic::error(
                                span,
                                format!("expected the name of a member, found {}", token.text()),
                            ));
                        }
                    }
                }
                _ => return Ok(base),
            };
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let (token, span) = self.take()?;
        let kind = match token {
            Token::Int { value, is_signed } => ExprKind::Int { value, is_signed },
            Token::Str(bytes) => ExprKind::Str(bytes),
            Token::Param(index) => ExprKind::Param(index),
            Token::ParamCount => ExprKind::ParamCount,
            Token::Var(name) => ExprKind::Var(name),
            Token::Map(name) => return self.map(name, span),
            Token::Name(name) if name == "if" => return self.if_value(span),
            Token::Name(name) if name == "typeof" && self.is_next("(")? => return self.type_of(span),
            Token::Name(name) if self.is_next("(")? => return self.call(name, span),
            Token::Name(name) => ExprKind::Name(name),
            Token::Punct("(") => return self.parenthesised(span),
            Token::Punct("{") => {
                self.put_back((token, span));
                return self.block_value();
            }
            _ => {
                return Err(Diagnostic::error(span, format!("expected a value, found {}", token.text())));
            }
        };
        make(kind, span, 0)
    }

    /// `{ statements; value }`.
    fn block_value(&mut self) -> Parsed<Expr> {
        let start = self.peek()?.1;
        let (body, value) = self.deeper(Parser::block_with_value)?;
        let depth = value.as_ref().map_or(0, |value| value.depth);
        let span = Span::new(start.start as usize, self.last_end);
        make(ExprKind::Block { body, value: value.map(Box::new), call: None }, span, depth)
    }

    /// `if condition { a } else { b }` as a value.
    fn if_value(&mut self, start: Span) -> Parsed<Expr> {
        let condition = self.expression()?;
        let then = self.block_value()?;
        let (token, span) = self.take()?;
        if token != Token::Name("else".to_owned()) {
            return Err(Diagnostic::error(span, "an `if` that gives a value needs an `else`"));
        }
        let otherwise = match self.peek()?.clone() {
            (Token::Name(name), span) if name == "if" => {
                self.take()?;
                self.deeper(|parser| parser.if_value(span))?
            }
            _ => self.block_value()?,
        };
        let span = start.to(otherwise.span);
        choice(condition, then, otherwise, span)
    }

    fn map(&mut self, name: String, start: Span) -> Parsed<Expr> {
        let mut keys = Vec::new();
        let mut span = start;
        if self.accept("[")? {
            loop {
                keys.push(self.expression()?);
                if !self.accept(",")? {
                    break;
                }
            }
            span = start.to(self.expect("]")?);
        }
        let depth = keys.iter().map(|key| key.depth).max().unwrap_or(0);
        make(ExprKind::Map(MapRef { name, keys, span }), span, depth)
    }

    fn call(&mut self, name: String, name_span: Span) -> Parsed<Expr> {
        self.expect("(")?;
        match name.as_str() {
            "sizeof" => return self.sizeof(name_span),
            "offsetof" => return self.offsetof(name_span),
            "container_of" => return self.container_of(name_span),
            _ => {}
        }
        let mut args = Vec::new();
        while !self.is_next(")")? {
            args.push(self.expression()?);
            if !self.accept(",")? {
                break;
            }
        }
        let close = self.expect(")").map_err(|error| {
            error
                .related(name_span, "the call begins here")
                .help("values stand between commas; `)` ends the call")
        })?;
        let span = name_span.to(close);
        let depth = args.iter().map(|arg| arg.depth).max().unwrap_or(0);
        make(ExprKind::Call { name, name_span, args }, span, depth)
    }

    fn sizeof(&mut self, start: Span) -> Parsed<Expr> {
        let (kind, depth) = if self.is_type_next()? {
            match self.type_or_like()? {
                Declared::Type(named) => {
                    let at = self.peek()?.1;
                    (ExprKind::SizeofType(self.array_of(named, at)?), 0)
                }
                Declared::Like(operand) => {
                    let depth = operand.depth;
                    (ExprKind::SizeofExpr(Box::new(operand)), depth)
                }
            }
        } else {
            let operand = self.expression()?;
            let depth = operand.depth;
            (ExprKind::SizeofExpr(Box::new(operand)), depth)
        };
        let span = start.to(self.expect(")")?);
        make(kind, span, depth)
    }

    /// `typeof(type)`, `typeof(value)`: the type that a macro is given.
    fn type_of(&mut self, start: Span) -> Parsed<Expr> {
        let (kind, depth) = match self.behind_typeof()? {
            Declared::Type(named) => (ExprKind::Type(named), 0),
            Declared::Like(value) => {
                let depth = value.depth;
                (ExprKind::TypeOf(Box::new(value)), depth)
            }
        };
        make(kind, Span::new(start.start as usize, self.last_end), depth)
    }

    /// `(type*)operand`, where `type` is a macro's parameter.
    fn cast_to(&mut self, to: Expr, start: Span) -> Parsed<Expr> {
        let operand = self.deeper(Parser::unary)?;
        let (span, depth) = (start.to(operand.span), to.depth.max(operand.depth));
        make(ExprKind::CastTo { to: Box::new(to), operand: Box::new(operand) }, span, depth)
    }

    fn offsetof(&mut self, start: Span) -> Parsed<Expr> {
        let record = self.type_name()?;
        self.expect(",")?;
        let mut path = vec![self.name("the name of a member")?.0];
        while self.accept(".")? {
            path.push(self.name("the name of a member")?.0);
        }
        let span = start.to(self.expect(")")?);
        make(ExprKind::Offsetof { record, path }, span, 0)
    }

    /// `container_of(pointer, type, member)`: the record that a pointer to one of its members leads into.
    fn container_of(&mut self, start: Span) -> Parsed<Expr> {
        let pointer = self.expression()?;
        self.expect(",")?;
        let type_span = self.peek()?.1;
        let record = self.type_name()?;
        self.expect(",")?;
        let mut path = vec![self.name("the name of a member")?.0];
        while self.accept(".")? {
            path.push(self.name("the name of a member")?.0);
        }
        let span = start.to(self.expect(")")?);
        let depth = pointer.depth;
        let address = make(ExprKind::Cast { to: CType::U64, operand: Box::new(pointer) }, span, depth)?;
        let offset = make(ExprKind::Offsetof { record: record.clone(), path }, type_span, 0)?;
        let (left, right) = (Box::new(address), Box::new(offset));
        let sum = make(ExprKind::Binary { op: BinaryOp::Sub, left, right }, span, depth + 1)?;
        make(ExprKind::Cast { to: record.pointer(), operand: Box::new(sum) }, span, depth + 2)
    }

    /// `(a = 1, b = 2)` from its first `=` on.
    fn record(&mut self, first: String, start: Span) -> Parsed<Expr> {
        let mut members: Vec<(String, Expr)> = Vec::new();
        let mut name = first;
        loop {
            self.expect("=")?;
            members.push((name, self.expression()?));
            if !self.accept(",")? || self.is_next(")")? {
                break;
            }
            let span;
            (name, span) = self.name("the name of a member")?;
            if members.iter().any(|(known, _)| *known == name) {
                return Err(Diagnostic::error(span, format!("there are two members `{name}`")));
            }
        }
        let span = start.to(self.expect(")")?);
        let depth = members.iter().map(|(_, member)| member.depth).max().unwrap_or(0);
        make(ExprKind::Record(members), span, depth)
    }

    /// `(value)`, `(a, b)` or the cast `(type)value`.
    fn parenthesised(&mut self, start: Span) -> Parsed<Expr> {
        if self.is_type_next()? {
            let to = self.type_name()?;
            self.expect(")")?;
            let operand = self.deeper(Parser::unary)?;
            let (span, depth) = (start.to(operand.span), operand.depth);
            return make(ExprKind::Cast { to, operand: Box::new(operand) }, span, depth);
        }
        let first = self.expression()?;
        if let (ExprKind::Name(name), true) = (&first.kind, self.is_next("=")?) {
            let name = name.clone();
            return self.record(name, start);
        }
        if !self.is_next(",")? {
            let end = self.expect(")")?;
            if matches!(first.kind, ExprKind::PointerType(_)) {
                return self.cast_to(first, start);
            }
            return Ok(Expr { span: start.to(end), ..first });
        }
        let mut members = vec![first];
        while self.accept(",")? {
            if self.is_next(")")? {
                break;
            }
            members.push(self.expression()?);
        }
        let span = start.to(self.expect(")")?);
        let depth = members.iter().map(|member| member.depth).max().unwrap_or(0);
        make(ExprKind::Tuple(members), span, depth)
    }
}

/// One of two values.
pub(super) fn choice(condition: Expr, then: Expr, otherwise: Expr, span: Span) -> Parsed<Expr> {
    let depth = condition.depth.max(then.depth).max(otherwise.depth);
    let kind = ExprKind::Ternary {
        condition: Box::new(condition),
        then: Box::new(then),
        otherwise: Box::new(otherwise),
    };
    make(kind, span, depth)
}

pub(super) fn make(kind: ExprKind, span: Span, depth_below: u16) -> Parsed<Expr> {
    if depth_below >= MAX_DEPTH {
        return Err(too_deep(span));
    }
    Ok(Expr { kind, span, depth: depth_below + 1 })
}
