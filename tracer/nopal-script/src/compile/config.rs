//! `config().max_strlen`: what a setting is, as a constant.

use super::Lowered;
use super::body::Body;
use super::types::{At, Ty, Value};
use crate::ast::{Expr, ExprKind, MissingProbes};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::StackForm;

/// `config()`, `config` and `__builtin_config`.
pub(super) fn is_config(expr: &Expr) -> bool {
    let is_name = |name: &str| name == "config" || name == "__builtin_config";
    match &expr.kind {
        ExprKind::Name(name) => is_name(name),
        ExprKind::Call { name, args, .. } => args.is_empty() && is_name(name),
        _ => false,
    }
}

impl Body<'_, '_> {
    pub(super) fn setting(&mut self, name: &str, span: Span) -> Lowered<Value> {
        let script = self.shared.script;
        let limits = &script.limits;
        let number = |n: u32| Ok(Value::number(i64::from(n), span));
        let boolean = |is: bool| Ok(Value::new(Ty::BOOL, At::Const(i64::from(is)), span));
        let text = match name {
            "max_strlen" => return number(limits.string_bytes),
            "max_map_keys" => return number(limits.map_entries),
            "max_cat_bytes" => return number(limits.cat_bytes),
            "print_maps_on_exit" => return boolean(limits.prints_maps),
            // Names are always shown as their sources have them.
            "cpp_demangle" => return boolean(true),
            "license" => script.license,
            "missing_probes" => match script.missing_probes {
                MissingProbes::Error => "error",
                MissingProbes::Warn => "warn",
                MissingProbes::Ignore => "ignore",
            },
            "stack_mode" => match script.stack_form {
                StackForm::Bpftrace => "bpftrace",
                StackForm::Perf => "perf",
                StackForm::Raw => "raw",
                StackForm::BuildId => "build_id",
            },
            _ => {
                return Err(Diagnostic::error(span, format!("the setting `{name}` cannot be read"))
                    .help("those that can are max_strlen, max_map_keys, max_cat_bytes, print_maps_on_exit, cpp_demangle, license, missing_probes and stack_mode"));
            }
        };
        Ok(self.literal(text.as_bytes(), span))
    }
}
