//! Questions about a tree that need no types.

use super::{Clause, Declared, Expr, ExprKind, Stmt, StmtKind};

/// Whether it has a name of this kind in it.
pub(crate) fn names(clause: &Clause, is_it: impl Fn(&str) -> bool) -> bool {
    let mut found = false;
    let mut look = |expr: &Expr| {
        if let ExprKind::Name(name) = &expr.kind {
            found |= is_it(name);
        }
    };
    if let Some(predicate) = &clause.predicate {
        each_expr(predicate, &mut look);
    }
    each_in(&clause.body, &mut look);
    found
}

/// Whether `probe` is taken for a text: compared, or given to a function of texts.
pub(crate) fn has_probe_text(clause: &Clause) -> bool {
    const OF_TEXTS: [&str; 5] = ["strcontains", "strncmp", "strstr", "str_concat", "strlen"];
    let is_probe = |expr: &Expr| matches!(&expr.kind, ExprKind::Name(name) if name == "probe");
    let mut found = false;
    let mut look = |expr: &Expr| {
        found |= match &expr.kind {
            ExprKind::Binary { op, left, right } => op.is_comparison() && (is_probe(left) || is_probe(right)),
            ExprKind::Call { name, args, .. } => {
                OF_TEXTS.contains(&name.as_str()) && args.iter().any(is_probe)
            }
            _ => false,
        };
    };
    if let Some(predicate) = &clause.predicate {
        each_expr(predicate, &mut look);
    }
    each_in(&clause.body, &mut look);
    found
}

/// The calls of a function, in the order of the script.
pub(crate) fn calls(clause: &Clause, function: &str, mut found: impl FnMut(&[Expr])) {
    let mut look = |expr: &Expr| {
        if let ExprKind::Call { name, args, .. } = &expr.kind
            && name == function
        {
            found(args);
        }
    };
    if let Some(predicate) = &clause.predicate {
        each_expr(predicate, &mut look);
    }
    each_in(&clause.body, &mut look);
}

/// Whether a value is chosen, or made by statements, somewhere in it.
pub(crate) fn has_choice(expr: &Expr) -> bool {
    let mut found = false;
    each_expr(expr, &mut |expr| {
        found |= matches!(expr.kind, ExprKind::Ternary { .. } | ExprKind::Block { .. });
    });
    found
}

/// Whether reading it changes a variable.
pub(crate) fn has_step(expr: &Expr) -> bool {
    let mut found = false;
    each_expr(expr, &mut |expr| found |= matches!(expr.kind, ExprKind::Step { .. } | ExprKind::Block { .. }));
    found
}

fn each_in(statements: &[Stmt], look: &mut dyn FnMut(&Expr)) {
    for statement in statements {
        match &statement.kind {
            StmtKind::Expr(expr) => each_expr(expr, look),
            StmtKind::AssignVar { value, .. } => each_expr(value, look),
            StmtKind::AssignMap { map, value, .. } => {
                map.keys.iter().for_each(|key| each_expr(key, look));
                each_expr(value, look);
            }
            StmtKind::Let { value, declared, .. } => {
                if let Some(Declared::Like(like)) = declared {
                    each_expr(like, look);
                }
                value.iter().for_each(|value| each_expr(value, look));
            }
            StmtKind::If { condition, then, otherwise } => {
                each_expr(condition, look);
                each_in(then, look);
                each_in(otherwise, look);
            }
            StmtKind::While { condition: head, body } | StmtKind::Unroll { count: head, body } => {
                each_expr(head, look);
                each_in(body, look);
            }
            StmtKind::ForMap { body, .. } | StmtKind::Block(body) => each_in(body, look),
            StmtKind::ForRange { from, to, body, .. } => {
                each_expr(from, look);
                each_expr(to, look);
                each_in(body, look);
            }
            StmtKind::SpanEdge { keys, .. } => keys.iter().for_each(|key| each_expr(key, look)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return => {}
        }
    }
}

fn each_expr(expr: &Expr, look: &mut dyn FnMut(&Expr)) {
    look(expr);
    match &expr.kind {
        ExprKind::Int { .. }
        | ExprKind::Str(_)
        | ExprKind::Param(_)
        | ExprKind::ParamCount
        | ExprKind::Name(_)
        | ExprKind::Var(_)
        | ExprKind::SizeofType(_)
        | ExprKind::Type(_)
        | ExprKind::Offsetof { .. } => {}
        ExprKind::Map(map) => map.keys.iter().for_each(|key| each_expr(key, look)),
        ExprKind::Call { args, .. } | ExprKind::Tuple(args) => {
            args.iter().for_each(|arg| each_expr(arg, look));
        }
        ExprKind::Record(members) => members.iter().for_each(|(_, member)| each_expr(member, look)),
        ExprKind::Member { base: inner, .. }
        | ExprKind::TupleMember { base: inner, .. }
        | ExprKind::Unary { operand: inner, .. }
        | ExprKind::Cast { operand: inner, .. }
        | ExprKind::Step { target: inner, .. }
        | ExprKind::SizeofExpr(inner)
        | ExprKind::AddressOf(inner)
        | ExprKind::TypeOf(inner)
        | ExprKind::PointerType(inner) => each_expr(inner, look),
        ExprKind::Index { base: a, index: b }
        | ExprKind::Binary { left: a, right: b, .. }
        | ExprKind::CastTo { to: a, operand: b } => {
            each_expr(a, look);
            each_expr(b, look);
        }
        ExprKind::Ternary { condition, then, otherwise } => {
            each_expr(condition, look);
            each_expr(then, look);
            each_expr(otherwise, look);
        }
        ExprKind::Block { body, value, .. } => {
            each_in(body, look);
            value.iter().for_each(|value| each_expr(value, look));
        }
    }
}
