//! `let $name: type = value;`

use super::Lowered;
use super::body::{Body, Width};
use super::types::{At, Ty, Value};
use crate::ast::{Declared, Expr};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::Op;

impl Body<'_, '_> {
    pub(super) fn declare(
        &mut self,
        name: &str,
        declared: Option<&Declared>,
        value: Option<&Expr>,
        target: Span,
        span: Span,
    ) -> Lowered<()> {
        let like = match declared {
            Some(Declared::Like(like)) => self.type_of(like)?,
            _ => None,
        };
        let declared = match declared {
            Some(Declared::Type(declared)) => Some(declared),
            _ => None,
        };
        let ty = match declared {
            None => like,
            Some(CType::Int { size_bytes, is_signed }) => {
                Some(Ty::Int { size_bytes: *size_bytes, is_signed: *is_signed })
            }
            Some(CType::Bool) => Some(Ty::BOOL),
            // Whose memory it leads to is known when something is assigned.
            Some(CType::Pointer(_)) if value.is_none() => None,
            Some(CType::Pointer(to)) => Some(Ty::Pointer { to: (**to).clone(), space: self.variant.space() }),
            Some(what @ (CType::Array(..) | CType::Record(_))) => {
                Some(Ty::Whole { what: what.clone(), layout: self.layout_of(what, span, 0)? })
            }
            Some(other) => {
                return Err(Diagnostic::error(
                    span,
                    format!("a variable cannot be declared as `{}`", other.text()),
                )
                .help("let it take the type of what is assigned"));
            }
        };
        if let (Some(ty @ Ty::Whole { .. }), None) = (&ty, value) {
            let zeros = self.alloc(ty.size_bytes().next_multiple_of(8));
            self.emit(Op::Zero { to: zeros });
            let start = self.here();
            return self.store_variable(
                name,
                &Value::new(ty.clone(), At::Slot(zeros), target),
                None,
                target,
                start,
            );
        }
        let start = self.here();
        let value = match value {
            Some(value) => self.whole_value(value)?,
            None => Value::new(ty.clone().unwrap_or(Ty::Unknown), At::Const(0), target),
        };
        if let Some(ty) = ty {
            // Whose memory it leads to is that of what is assigned.
            let ty = match (ty, &value.ty) {
                (Ty::Pointer { to, .. }, Ty::Pointer { space, .. }) => Ty::Pointer { to, space: *space },
                (ty, _) => ty,
            };
            // The declared type is the first the variable has.
            let width = Width::of(&ty);
            self.learn_variable(name, &Value::new(ty.clone(), At::Const(0), target), width, target)?;
            self.takes_width(name, &ty);
        }
        self.store_variable(name, &value, None, target, start)
    }
}
