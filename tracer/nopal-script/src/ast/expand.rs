//! Macros: a call becomes a block with the macro's body, its parameters replaced and its own variables renamed, so that
//! neither sees the other's.

use super::{Clause, Declared, Expr, ExprKind, MapRef, Stmt, StmtKind, type_params};
use crate::diagnostic::{Diagnostic, Span};
use std::collections::HashMap;

/// `macro name($variable, @map, expression) { body }`.
#[derive(Debug, Clone)]
pub(crate) struct Macro {
    pub name: String,
    pub params: Vec<Param>,
    pub body: Vec<Stmt>,
    pub value: Option<Expr>,
    pub span: Span,
}

/// How an argument is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Param {
    Variable(String),
    Map(String),
    Expression(String),
}

/// Macros that call each other this deep do so for ever.
const MAX_LEVELS: u32 = 40;
const MAX_CALLS: u32 = 10_000;
/// Expressions and their parts, those that arguments are put in as included: a macro may use an argument twice, and be one.
const MAX_PARTS: u32 = 500_000;

/// Replaces every call of a macro.
pub(crate) fn expand(
    clauses: &mut [Clause],
    macros: &[Macro],
    is_builtin: fn(&str) -> bool,
) -> Result<(), Diagnostic> {
    let mut expander = Expander { macros, is_builtin, n_calls: 0, n_parts: 0, level: 0 };
    let caller = Caller::default();
    for clause in clauses {
        if let Some(predicate) = &mut clause.predicate {
            expander.expr(predicate, &caller)?;
        }
        expander.block(&mut clause.body, &caller)?;
    }
    Ok(())
}

struct Expander<'m> {
    macros: &'m [Macro],
    /// A macro may have the name of what the language has, with other arguments.
    is_builtin: fn(&str) -> bool,
    n_calls: u32,
    n_parts: u32,
    level: u32,
}

/// An argument, and of how many parts it is.
#[derive(Clone)]
struct Arg {
    expr: Expr,
    n_parts: u32,
}

/// What names mean where a body is put in. Empty outside of macros.
#[derive(Default)]
struct Caller {
    /// Where the call stands, for macros whose text nobody sees.
    place: Option<Span>,
    in_macro: Option<String>,
    number: u32,
    variables: HashMap<String, String>,
    maps: HashMap<String, String>,
    expressions: HashMap<String, Arg>,
}

impl Caller {
    fn variable(&self, name: &str) -> String {
        match (&self.in_macro, self.variables.get(name)) {
            (None, _) => name.to_owned(),
            (Some(_), Some(given)) => given.clone(),
            (Some(_), None) => format!("{name}'{}", self.number),
        }
    }

    fn map(&self, name: &str, span: Span) -> Result<String, Diagnostic> {
        match (&self.in_macro, self.maps.get(name)) {
            (None, _) => Ok(name.to_owned()),
            (Some(_), Some(given)) => Ok(given.clone()),
            (Some(of), None) => Err(Diagnostic::error(
                span,
                format!("the macro `{of}` uses `{name}`, which it was not given"),
            )
            .help(format!("give it: `macro {of}({name})`"))),
        }
    }
}

impl Expander<'_> {
    fn block(&mut self, statements: &mut [Stmt], caller: &Caller) -> Result<(), Diagnostic> {
        statements.iter_mut().try_for_each(|statement| self.statement(statement, caller))
    }

    fn statement(&mut self, statement: &mut Stmt, caller: &Caller) -> Result<(), Diagnostic> {
        statement.span = caller.place.unwrap_or(statement.span);
        match &mut statement.kind {
            StmtKind::Expr(expr) => self.expr(expr, caller),
            StmtKind::AssignVar { name, value, .. } => {
                *name = caller.variable(name);
                self.expr(value, caller)
            }
            StmtKind::AssignMap { map, value, .. } => {
                self.map(map, caller)?;
                self.expr(value, caller)
            }
            StmtKind::Let { name, value, declared, .. } => {
                if let Some(Declared::Like(like)) = declared {
                    self.expr(like, caller)?;
                    if let ExprKind::Type(named) = &like.kind {
                        *declared = Some(Declared::Type(named.clone()));
                    }
                }
                *name = caller.variable(name);
                value.iter_mut().try_for_each(|value| self.expr(value, caller))
            }
            StmtKind::If { condition, then, otherwise } => {
                self.expr(condition, caller)?;
                self.block(then, caller)?;
                self.block(otherwise, caller)
            }
            StmtKind::While { condition: head, body } | StmtKind::Unroll { count: head, body } => {
                self.expr(head, caller)?;
                self.block(body, caller)
            }
            StmtKind::ForMap { variable, map, map_span, body } => {
                *variable = caller.variable(variable);
                *map = caller.map(map, *map_span)?;
                self.block(body, caller)
            }
            StmtKind::ForRange { variable, from, to, body } => {
                *variable = caller.variable(variable);
                self.expr(from, caller)?;
                self.expr(to, caller)?;
                self.block(body, caller)
            }
            StmtKind::Block(body) => self.block(body, caller),
            StmtKind::SpanEdge { keys, .. } => keys.iter_mut().try_for_each(|key| self.expr(key, caller)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return => Ok(()),
        }
    }

    fn map(&mut self, map: &mut MapRef, caller: &Caller) -> Result<(), Diagnostic> {
        map.name = caller.map(&map.name, map.span)?;
        map.keys.iter_mut().try_for_each(|key| self.expr(key, caller))
    }

    fn expr(&mut self, expr: &mut Expr, caller: &Caller) -> Result<(), Diagnostic> {
        self.parts(expr, caller)?;
        type_params::resolve(expr)
    }

    fn add_parts(&mut self, n: u32, span: Span) -> Result<(), Diagnostic> {
        self.n_parts = self.n_parts.saturating_add(n);
        match self.n_parts <= MAX_PARTS {
            true => Ok(()),
            false => Err(Diagnostic::error(span, "with its macros put in, the script is too large")),
        }
    }

    fn parts(&mut self, expr: &mut Expr, caller: &Caller) -> Result<(), Diagnostic> {
        self.add_parts(1, expr.span)?;
        if let Some(place) = caller.place {
            expr.span = place;
            if let ExprKind::Call { name_span, .. } = &mut expr.kind {
                *name_span = place;
            }
        }
        match &mut expr.kind {
            ExprKind::Name(name) => {
                if let Some(given) = caller.expressions.get(name) {
                    self.add_parts(given.n_parts, expr.span)?;
                    expr.kind = given.expr.kind.clone();
                    expr.depth = given.expr.depth;
                    return Ok(());
                }
                let name = name.clone();
                self.call(expr, &name, Vec::new())
            }
            ExprKind::Call { name, args, .. } => {
                let mut given = Vec::with_capacity(args.len());
                for arg in args {
                    let n_before = self.n_parts;
                    self.expr(arg, caller)?;
                    given.push(Arg { expr: arg.clone(), n_parts: self.n_parts - n_before });
                }
                let name = name.clone();
                self.call(expr, &name, given)
            }
            ExprKind::Var(name) => {
                *name = caller.variable(name);
                Ok(())
            }
            ExprKind::Map(map) => self.map(map, caller),
            ExprKind::Int { .. }
            | ExprKind::Str(_)
            | ExprKind::Param(_)
            | ExprKind::ParamCount
            | ExprKind::SizeofType(_)
            | ExprKind::Type(_)
            | ExprKind::Offsetof { .. } => Ok(()),
            ExprKind::Tuple(members) => members.iter_mut().try_for_each(|member| self.expr(member, caller)),
            ExprKind::Record(members) => {
                members.iter_mut().try_for_each(|(_, member)| self.expr(member, caller))
            }
            ExprKind::Member { base: inner, .. }
            | ExprKind::TupleMember { base: inner, .. }
            | ExprKind::Unary { operand: inner, .. }
            | ExprKind::Cast { operand: inner, .. }
            | ExprKind::Step { target: inner, .. }
            | ExprKind::SizeofExpr(inner)
            | ExprKind::AddressOf(inner)
            | ExprKind::TypeOf(inner)
            | ExprKind::PointerType(inner) => self.expr(inner, caller),
            ExprKind::Index { base: a, index: b }
            | ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::CastTo { to: a, operand: b } => {
                self.expr(a, caller)?;
                self.expr(b, caller)
            }
            ExprKind::Ternary { condition, then, otherwise } => {
                self.expr(condition, caller)?;
                self.expr(then, caller)?;
                self.expr(otherwise, caller)
            }
            ExprKind::Block { body, value, .. } => {
                self.block(body, caller)?;
                value.iter_mut().try_for_each(|value| self.expr(value, caller))
            }
        }
    }

    /// Puts the body in the place of a call, if there is such a macro. The arguments have been expanded.
    fn call(&mut self, at: &mut Expr, name: &str, args: Vec<Arg>) -> Result<(), Diagnostic> {
        let of_name = || self.macros.iter().filter(|each| each.name == name);
        let is_bare = matches!(at.kind, ExprKind::Name(_));
        let Some(found) = of_name().find(|each| each.params.len() == args.len()) else {
            return match of_name().next() {
                Some(other) if !is_bare && !(self.is_builtin)(name) => Err(Diagnostic::error(
                    at.span,
                    format!("`{name}` takes {} arguments, {} are given", other.params.len(), args.len()),
                )
                .related(other.span, "the macro")),
                _ => Ok(()),
            };
        };
        self.n_calls += 1;
        if self.level >= MAX_LEVELS || self.n_calls > MAX_CALLS {
            return Err(Diagnostic::error(at.span, format!("the macro `{name}` calls itself without end")));
        }
        let mut caller = Caller {
            place: (found.span == Span::default()).then_some(at.span),
            in_macro: Some(name.to_owned()),
            number: self.n_calls,
            ..Caller::default()
        };
        for (param, arg) in found.params.iter().zip(args) {
            let Arg { expr: arg, n_parts } = arg;
            match (param, arg.kind) {
                (Param::Variable(param), ExprKind::Var(given)) => {
                    caller.variables.insert(param.clone(), given);
                }
                (Param::Map(param), ExprKind::Map(map)) if map.keys.is_empty() => {
                    caller.maps.insert(param.clone(), map.name);
                }
                (Param::Expression(param), kind) => {
                    let expr = Expr { kind, ..arg };
                    caller.expressions.insert(param.clone(), Arg { expr, n_parts });
                }
                (Param::Variable(param), _) => {
                    return Err(Diagnostic::error(
                        arg.span,
                        format!("`{name}` needs a variable for `${param}`"),
                    ));
                }
                (Param::Map(param), _) => {
                    return Err(Diagnostic::error(arg.span, format!("`{name}` needs a map for `{param}`")));
                }
            }
        }
        let (mut body, mut value) = (found.body.clone(), found.value.clone());
        self.level += 1;
        self.block(&mut body, &caller)?;
        value.iter_mut().try_for_each(|value| self.expr(value, &caller))?;
        self.level -= 1;
        let depth = at.depth.max(value.as_ref().map_or(0, |value| value.depth)) + 1;
        at.kind = match value {
            Some(value) if body.is_empty() => value.kind,
            value => {
                let call = caller.place.is_none().then_some(at.span);
                ExprKind::Block { body, value: value.map(Box::new), call }
            }
        };
        at.depth = depth;
        Ok(())
    }
}
