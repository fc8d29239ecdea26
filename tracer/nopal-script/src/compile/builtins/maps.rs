//! clear, zero, delete, len, has_key: what is done with maps as a whole and with their keys.

use super::{Call, Function};
use crate::ast::{Expr, ExprKind, MapRef};
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::diagnostic::Diagnostic;
use nopal_program::op::{Op, Slot};
use nopal_program::{Action, Look, Type};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "clear",
        signature: "clear(@map)",
        doc: "Forgets all entries.",
        n_args: 1..=1,
        lower: |body, call| whole(body, call, |map| Action::Clear { map }),
    },
    Function {
        name: "zero",
        signature: "zero(@map)",
        doc: "Sets all values to 0 and keeps the keys.",
        n_args: 1..=1,
        lower: |body, call| whole(body, call, |map| Action::Zero { map }),
    },
    Function {
        name: "delete",
        signature: "delete(@map[key]), delete(@map, key)",
        doc: "Forgets one entry; 1 if it was there, else 0.",
        n_args: 1..=2,
        lower: delete,
    },
    Function {
        name: "has_key",
        signature: "has_key(@map, key)",
        doc: "1 if there is an entry, else 0.",
        n_args: 2..=2,
        lower: has_key,
    },
    Function {
        name: "len",
        signature: "len(@map), len(ustack), len(kstack)",
        doc: "The number of entries, or of frames.",
        n_args: 1..=1,
        lower: len,
    },
];

/// The map itself, without a key, that something was assigned to.
pub(super) fn map_arg(body: &mut Body<'_, '_>, call: &Call<'_>, index: usize) -> Lowered<usize> {
    let expr = &call.args[index];
    let ExprKind::Map(map) = &expr.kind else {
        return Err(Diagnostic::error(expr.span, format!("`{}` needs a map", call.name))
            .help(format!("write `{}(@name)`", call.name)));
    };
    if !map.keys.is_empty() {
        return Err(Diagnostic::error(expr.span, format!("`{}` works on a whole map", call.name))
            .help(format!("write `{}({})`", call.name, map.name)));
    }
    known(body, map)
}

fn known(body: &mut Body<'_, '_>, map: &MapRef) -> Lowered<usize> {
    let id = body.shared.maps.id(&map.name);
    if body.shared.maps.get(id).value.is_none() && !body.shared.maps.has_changed() {
        return Err(body.shared.maps.undefined(id, map.span));
    }
    Ok(id)
}

fn whole(body: &mut Body<'_, '_>, call: &Call<'_>, action: impl FnOnce(u32) -> Action) -> Lowered<Value> {
    let id = map_arg(body, call, 0)?;
    let action = body.action(action(id as u32));
    body.emit(Op::Emit { action, payload: Slot { at: 0, len: 0 } });
    Ok(Value::nothing(call.span))
}

/// `@map[key]` in one argument, or `@map, key` in two. A key of several parts may be given as a tuple.
fn entry(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<(usize, Slot)> {
    let ExprKind::Map(map) = &call.args[0].kind else {
        return Err(Diagnostic::error(call.args[0].span, format!("`{}` needs a map", call.name)));
    };
    let id = known(body, map)?;
    let Some(second) = call.args.get(1) else {
        return Ok((id, body.key_of(id, &map.keys, map.span)?));
    };
    if !map.keys.is_empty() {
        return Err(Diagnostic::error(call.span, "the key is given twice"));
    }
    let n_keys = body.shared.maps.get(id).key.as_ref().map_or(1, |(key, _)| key.len());
    if n_keys == 0 {
        return Err(no_keys(call));
    }
    let keys: &[Expr] = match &second.kind {
        ExprKind::Tuple(members) if n_keys == members.len() && n_keys > 1 => members,
        _ => std::slice::from_ref(second),
    };
    Ok((id, body.key_of(id, keys, second.span)?))
}

fn delete(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let (id, key) = entry(body, call)?;
    if body.shared.maps.is_series(id) {
        let action = body.action(Action::ForgetSeries { map: id as u32 });
        body.emit(Op::Emit { action, payload: key });
        body.release_frame(mark);
        return Ok(Value::new(Ty::Nothing, At::Const(0), call.span));
    }
    let was_there = body.result(mark, Ty::BOOL, call.span, |dst| Op::MapHas { dst, map: id as u32, key });
    body.check_deleted(&was_there, call.span);
    body.emit(Op::MapDelete { map: id as u32, key });
    body.release_frame(mark);
    Ok(was_there)
}

fn has_key(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let (id, key) = entry(body, call)?;
    body.shared.maps.check_readable(id, call.span)?;
    let value = body.result(mark, Ty::BOOL, call.span, |dst| Op::MapHas { dst, map: id as u32, key });
    body.release_frame(mark);
    Ok(value)
}

/// bpftrace's words.
fn no_keys(call: &Call<'_>) -> Diagnostic {
    let message = format!("call to {}() expects a map with explicit keys (non-scalar map)", call.name);
    Diagnostic::error(call.span, message)
}

fn len(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    if matches!(&call.args[0].kind, ExprKind::Map(map) if map.keys.is_empty()) {
        let id = map_arg(body, call, 0)?;
        body.shared.maps.check_readable(id, call.span)?;
        let is_scalar = body.shared.maps.get(id).key.as_ref().is_some_and(|(key, _)| key.is_empty());
        if is_scalar && body.look() == Look::New {
            return Err(no_keys(call));
        }
        return Ok(body.result(mark, Ty::I64, call.span, |dst| Op::MapLen { dst, map: id as u32 }));
    }
    let value = body.expr(&call.args[0])?;
    let at = match (&value.ty, value.at) {
        (Ty::Plain(Type::UserStack { .. }), At::Slot(slot)) => slot.at + 8,
        (Ty::Plain(Type::KernelStack { .. }), At::Slot(slot)) => slot.at,
        (Ty::Unknown, _) => return Ok(Value::number(0, call.span)),
        (other, _) => {
            return Err(Diagnostic::error(
                call.span,
                format!("`len` needs a map or a stack, found {}", other.text()),
            )
            .help("the length of a string is `strlen`"));
        }
    };
    let value =
        body.result(mark, Ty::I64, call.span, |dst| Op::Load { dst, at, size_bytes: 8, is_signed: true });
    body.release_frame(mark);
    Ok(value)
}
