//! `a ? b : c`, and `if` as a value: both ways end in one place.

use super::Lowered;
use super::body::Body;
use super::expression::sign_of_both;
use super::types::{At, Ty, Value};
use crate::ast::{Expr, ExprKind, walk};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Type;
use nopal_program::op::Op;

impl Body<'_, '_> {
    pub(super) fn ternary(
        &mut self,
        condition: &Expr,
        then: &Expr,
        otherwise: &Expr,
        span: Span,
    ) -> Lowered<Value> {
        let room = match (&then.kind, &otherwise.kind) {
            (ExprKind::Str(a), ExprKind::Str(b)) => a.len().max(b.len()) as u32 + 1,
            _ => self.string_bytes(),
        };
        let mark = self.mark();
        let both = self.type_of_both(then, otherwise)?;
        let to = self.jump_unless(condition)?;
        self.release(mark);
        if let Some(ty) = both {
            return self.choose(&to, then, otherwise, ty, span);
        }
        // The type is that of the first; where it is text, room is made before the second is known.
        let start = self.frame_top();
        let dst = self.temp();
        let after_dst = self.mark();
        let first = self.expr(then)?;
        match &first.ty {
            ty if ty.is_scalar() => self.copy_to(dst, &first),
            Ty::Plain(Type::Str { .. }) => {
                self.put(start, &first, Ty::str(room).size_bytes());
            }
            Ty::Nothing => {}
            other => {
                return Err(Diagnostic::error(
                    span,
                    format!("`? :` cannot choose between values of type {}", other.text()),
                ));
            }
        }
        let end = self.jump(Op::Jump { to: 0 });
        self.patch(&to);
        self.release(after_dst);
        let second = self.expr(otherwise)?;
        let ty = match (&first.ty, &second.ty) {
            (a, b) if a.is_number() && b.is_number() && a.unify(b).is_some() => {
                self.copy_to(dst, &second);
                sign_of_both(&first, &second, a.unify(b).expect("checked"))
            }
            (Ty::Plain(Type::Str { .. }), Ty::Plain(Type::Str { .. }) | Ty::Unknown)
            | (Ty::Unknown, Ty::Plain(Type::Str { .. })) => {
                let room = Ty::str(room);
                self.put(start, &second, room.size_bytes());
                room
            }
            (Ty::Nothing, Ty::Nothing) => Ty::Nothing,
            (a, b) if a == b && a.is_scalar() => {
                self.copy_to(dst, &second);
                a.clone()
            }
            (a, b) => {
                return Err(Diagnostic::error(span, "both sides of `:` must have the same type")
                    .label(format!("{} and {}", a.text(), b.text())));
            }
        };
        self.patch(&[end]);
        if ty.is_scalar() {
            self.release(after_dst);
            return Ok(Value { ty, at: At::Reg(dst), space: first.space.or(second.space), span });
        }
        let len = if ty == Ty::Nothing { 0 } else { ty.size_bytes() };
        self.set_frame_top(start);
        let slot = self.alloc(len);
        let at = if ty == Ty::Nothing { At::Nowhere } else { At::Slot(slot) };
        Ok(Value::new(ty, at, span))
    }

    /// Of two values that are neither numbers nor strings the type that holds both.
    fn type_of_both(&mut self, then: &Expr, otherwise: &Expr) -> Lowered<Option<Ty>> {
        if walk::has_choice(then) || walk::has_choice(otherwise) {
            return Ok(None);
        }
        // Made for their types alone; nothing of it runs.
        let (mark, start) = (self.mark(), self.here());
        let mut types = Vec::new();
        for side in [then, otherwise] {
            let value = self.expr(side)?;
            types.push(self.whole(value)?.ty);
        }
        self.truncate(start);
        self.release(mark);
        let is_large = |ty: &Ty| !ty.is_scalar() && !ty.is_str() && *ty != Ty::Nothing;
        match types.iter().all(is_large) {
            true => Ok(types[0].unify(&types[1])),
            false => Ok(None),
        }
    }

    fn choose(&mut self, no: &[usize], then: &Expr, otherwise: &Expr, ty: Ty, span: Span) -> Lowered<Value> {
        let start = self.frame_top();
        let mark = self.mark();
        let mut end = None;
        for side in [then, otherwise] {
            let value = self.expr(side)?;
            let value = self.whole(value)?;
            let value = self.fit(value, &ty);
            self.put(start, &value, ty.size_bytes());
            self.release(mark);
            if end.is_none() {
                end = Some(self.jump(Op::Jump { to: 0 }));
                self.patch(no);
            }
        }
        self.patch(&[end.unwrap_or_default()]);
        self.set_frame_top(start);
        let slot = self.alloc(ty.size_bytes());
        Ok(Value::new(ty, At::Slot(slot), span))
    }
}
