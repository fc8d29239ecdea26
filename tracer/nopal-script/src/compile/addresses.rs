//! `&$x`: where a variable lies while the body runs, and what such a pointer leads to.

use super::Lowered;
use super::body::Body;
use super::types::{At, Ty, Value};
use crate::ast::{Expr, ExprKind, scope};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Type;
use nopal_program::op::{Op, Slot, Space};

impl Body<'_, '_> {
    pub(super) fn address_of_variable(&mut self, of: &Expr, span: Span) -> Lowered<Value> {
        let ExprKind::Var(name) = &of.kind else {
            return Err(Diagnostic::error(span, "only variables have an address: `&$name`"));
        };
        if self.bindings.iter().any(|(bound, _)| bound == name) {
            let message = format!("`${}` is the variable of a loop and has no address", scope::written(name));
            return Err(Diagnostic::error(span, message).help("assign it to another variable first"));
        }
        let value = self.expr(of)?;
        let mark = self.mark();
        let memory = self.memory_of(name);
        self.keep_in_memory(name);
        let ty = Ty::Pointer { to: pointed_to(name, &value.ty), space: Space::Kernel };
        let mut pointer = self.result(mark, ty, span, |dst| Op::FrameAddress { dst, at: memory.at });
        pointer.space = Some(Space::Kernel);
        Ok(pointer)
    }

    /// The type of what the variables of this name hold, if a pointer leads to one.
    pub(super) fn variable_behind(&self, to: &CType) -> Option<Ty> {
        let CType::Record(name) = to else { return None };
        let name = name.strip_prefix('$')?;
        self.variable(name).map(|(variable, _)| variable.ty)
    }

    /// The value that lies at an address, as a variable holds it.
    pub(super) fn load_variable(&mut self, ty: Ty, value: &Value, span: Span) -> Value {
        let address = self.reg(value);
        let to = self.alloc(ty.size_bytes());
        self.emit(Op::Read { to: Slot { at: to.at, len: ty.size_bytes() }, address, space: Space::Kernel });
        if !ty.is_scalar() {
            return Value::new(ty, At::Slot(to), span);
        }
        let dst = self.temp();
        self.emit(Op::Load { dst, at: to.at, size_bytes: 8, is_signed: false });
        Value::new(ty, At::Reg(dst), span)
    }
}

/// As C would call it; what C has no name for by the variable itself.
fn pointed_to(name: &str, ty: &Ty) -> CType {
    match ty {
        Ty::Int { size_bytes, is_signed } => CType::Int { size_bytes: *size_bytes, is_signed: *is_signed },
        Ty::Pointer { to, .. } => to.clone().pointer(),
        Ty::Plain(Type::Bool) => CType::Bool,
        Ty::Whole { what, .. } => what.clone(),
        _ => CType::Record(format!("${name}")),
    }
}
