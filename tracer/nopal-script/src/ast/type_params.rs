//! Types that macros are given: `typeof(type)` in the place of a value, and what a body makes of such a parameter,
//! `t*`, `t[4]`, `(t*)value` and `sizeof(t)`.

use super::{Expr, ExprKind};
use crate::ctype::CType;
use crate::diagnostic::Diagnostic;

/// Turns an expression whose parts became types into what it means; others are left alone.
pub(super) fn resolve(expr: &mut Expr) -> Result<(), Diagnostic> {
    let resolved = match &expr.kind {
        ExprKind::TypeOf(inner) => named(inner).map(|of| ExprKind::Type(of.clone())),
        ExprKind::SizeofExpr(inner) => named(inner).map(|of| ExprKind::SizeofType(of.clone())),
        ExprKind::PointerType(inner) => match named(inner) {
            Some(of) => Some(ExprKind::Type(of.clone().pointer())),
            None => {
                return Err(Diagnostic::error(expr.span, "expected a value behind `*`, found `)`")
                    .help("`name*` is a type where a macro was given one: `typeof(uint64)`"));
            }
        },
        ExprKind::Index { base, index } => match (named(base), &index.kind) {
            (Some(of), ExprKind::Int { value, .. }) => {
                Some(ExprKind::Type(CType::Array(Box::new(of.clone()), length(*value, index)?)))
            }
            _ => None,
        },
        ExprKind::CastTo { to, operand } => {
            named(to).map(|to| ExprKind::Cast { to: to.clone(), operand: operand.clone() })
        }
        _ => None,
    };
    if let Some(kind) = resolved {
        expr.kind = kind;
    }
    Ok(())
}

fn named(expr: &Expr) -> Option<&CType> {
    match &expr.kind {
        ExprKind::Type(of) => Some(of),
        _ => None,
    }
}

/// Longer arrays are mistakes.
const MAX_LENGTH: u32 = 1 << 20;

fn length(value: i64, at: &Expr) -> Result<u32, Diagnostic> {
    let length = u32::try_from(value).ok().filter(|length| *length <= MAX_LENGTH);
    length.ok_or_else(|| Diagnostic::error(at.span, "this array is too large"))
}
