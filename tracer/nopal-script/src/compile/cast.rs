//! Casts, and what `sizeof` says of a value.

use super::Lowered;
use super::body::{Body, Width, least_bytes};
use super::types::{At, Ty, Value};
use crate::ast::{Expr, ExprKind};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::Op;
use nopal_program::{Look, Type};

impl Body<'_, '_> {
    pub(super) fn cast(&mut self, to: &CType, operand: &Expr, span: Span) -> Lowered<Value> {
        let mark = self.mark();
        let value = self.expr(operand)?;
        if let (CType::Array(..), Ty::Plain(Type::Str { .. })) = (to, &value.ty) {
            return self.array_of_text(value, to, span);
        }
        let value = self.number_of_array(value, mark)?;
        if !value.ty.is_number() {
            return Err(Diagnostic::error(
                span,
                format!("{} cannot be made a `{}`", value.ty.text(), to.text()),
            ));
        }
        let space = match &value.ty {
            Ty::Pointer { space, .. } => Some(*space),
            _ => value.space,
        };
        let (size_bytes, is_signed) = match to {
            CType::Int { size_bytes, is_signed } => (*size_bytes, *is_signed),
            CType::Char => (1, true),
            CType::Pointer(to) => {
                let space = space.unwrap_or(self.variant.space());
                let value = self.literal_as_address(value);
                return Ok(Value {
                    ty: Ty::Pointer { to: (**to).clone(), space },
                    space: Some(space),
                    span,
                    ..value
                });
            }
            CType::Enum(name) => {
                let Some(labels) = self.shared.script.records.enums.get(name) else {
                    return Err(Diagnostic::error(span, format!("`{name}` is not defined")));
                };
                return Ok(Value { ty: Ty::Plain(Type::Enum { labels: labels.clone() }), span, ..value });
            }
            CType::Array(..) => return self.cast_array(&value, to, span),
            CType::Bool => {
                let zero = Value::number(0, span);
                return self.combine(crate::ast::BinaryOp::Ne, value, zero, mark, span);
            }
            CType::Void | CType::Float | CType::Record(_) => {
                return Err(Diagnostic::error(span, format!("a cast to `{}` is not supported", to.text()))
                    .help("cast to an integer, or to a pointer to it"));
            }
        };
        let ty = Ty::Int { size_bytes, is_signed };
        if size_bytes == 8 {
            return Ok(Value { ty, space, span, ..value });
        }
        if let Some(constant) = value.constant() {
            return Ok(Value::new(ty, At::Const(cut(constant, size_bytes, is_signed)), span));
        }
        let src = self.reg(&value);
        Ok(self.result(mark, ty, span, |dst| Op::Extend { dst, src, size_bytes, is_signed }))
    }

    /// As newer releases have it, a negative literal has as many bits as it needs, and no sign as an address.
    fn literal_as_address(&self, value: Value) -> Value {
        match value.constant() {
            Some(constant) if constant < 0 && self.look() == Look::New && value.ty == Ty::I64 => {
                Value { at: At::Const(cut(constant, least_bytes(&value), false)), ..value }
            }
            _ => value,
        }
    }

    /// Of a number what a variable of this width keeps.
    pub(super) fn narrow(&mut self, value: &Value, width: Width) -> Value {
        let Width { size_bytes, is_signed } = width;
        let ty = Ty::Int { size_bytes, is_signed };
        if let Some(constant) = value.constant() {
            return Value::new(ty, At::Const(cut(constant, size_bytes, is_signed)), value.span);
        }
        let (src, dst) = (self.reg(value), self.temp());
        self.emit(Op::Extend { dst, src, size_bytes, is_signed });
        Value::new(ty, At::Reg(dst), value.span)
    }

    pub(super) fn sizeof_expr(&mut self, operand: &Expr, span: Span) -> Lowered<Value> {
        // Made for its type alone; nothing of it runs.
        let mark = self.mark();
        let start = self.here();
        let value = self.place(operand)?;
        self.truncate(start);
        self.release(mark);
        if self.look() == Look::New
            && let Ty::Int { .. } = value.ty
            && let Some(least) = match &operand.kind {
                ExprKind::Var(name) => self.least_bytes_of(name),
                _ if is_literal(operand) => Some(u32::from(least_bytes(&value))),
                _ => None,
            }
        {
            return Ok(Value::number(i64::from(least), span));
        }
        let size_bytes = match &value.ty {
            // Of old releases a comparison is a number.
            Ty::Plain(Type::Bool) if self.look() == Look::Old => 8,
            Ty::Int { size_bytes, .. } => u32::from(*size_bytes),
            Ty::Memory(what) => self.size_of(what, span)?,
            other => packed_bytes(other),
        };
        Ok(Value::number(i64::from(size_bytes), span))
    }
}

/// A number that stands in the script, or is calculated from such.
fn is_literal(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int { .. } => true,
        ExprKind::Unary { operand, .. } => is_literal(operand),
        ExprKind::Binary { left, right, .. } => is_literal(left) && is_literal(right),
        _ => false,
    }
}

/// Bytes a value has by itself: those of a tuple as bpftrace packs them, each member aligned to its own size.
fn packed_bytes(ty: &Ty) -> u32 {
    fn tuple<'t>(members: impl Iterator<Item = &'t Ty>) -> (u32, u32) {
        let (end, align) = members.fold((0, 1), |(at, most): (u32, u32), member| {
            let (size, align) = sizes(member);
            (at.next_multiple_of(align) + size, most.max(align))
        });
        (end.next_multiple_of(align), align)
    }
    fn sizes(ty: &Ty) -> (u32, u32) {
        match ty {
            Ty::Int { size_bytes, .. } => (u32::from(*size_bytes), u32::from(*size_bytes)),
            Ty::Plain(Type::Bool) => (1, 1),
            Ty::Plain(Type::Str { max_bytes }) => (*max_bytes, 1),
            Ty::Whole { layout, .. } => (layout.size_bytes(), 1),
            Ty::Tuple(members) => tuple(members.iter()),
            Ty::Record(members) => tuple(members.iter().map(|(_, member)| member)),
            other => (other.size_bytes(), 8),
        }
    }
    sizes(ty).0
}

/// Cuts a number to fewer bytes, then extends it.
fn cut(value: i64, size_bytes: u8, is_signed: bool) -> i64 {
    let unused = 64 - 8 * u32::from(size_bytes.clamp(1, 8));
    if is_signed { value << unused >> unused } else { (((value as u64) << unused) >> unused) as i64 }
}
