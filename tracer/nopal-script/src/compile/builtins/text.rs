//! str, kstr, buf, join, strlen, strncmp, strstr, strcontains, str_concat, memcmp, strerror: strings and bytes.

use super::labels;
use super::{Call, Function};
use crate::ast::{BinaryOp, Expr, ExprKind};
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::ctype::CType;
use crate::diagnostic::Diagnostic;
use nopal_program::op::{Binary, Op, Slot, Space};
use nopal_program::{Action, Type};

/// Bytes a constant length may ask for.
const MAX_BUFFER_BYTES: i64 = 4096;
/// Strings `join` reads, as in bpftrace.
const MAX_JOINED: u32 = 16;

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "syscall_name",
        signature: "syscall_name(number)",
        doc: "The name of an x86-64 system call, or its number if it has no name here.",
        n_args: 1..=1,
        lower: |body, call| named(body, call, &labels::SYSCALLS),
    },
    Function {
        name: "signal_name",
        signature: "signal_name(number)",
        doc: "A signal in words.",
        n_args: 1..=1,
        lower: signal_name,
    },
    Function {
        name: "str",
        signature: "str(address), str(address, length)",
        doc: "The string at an address, up to its NUL, at most `length` bytes. Where memory ends before a NUL comes: \
              by the user door what there is, in the kernel nothing, as with bpftrace.",
        n_args: 1..=2,
        lower: |body, call| string(body, call, None),
    },
    Function {
        name: "kstr",
        signature: "kstr(address), kstr(address, length)",
        doc: "As str(), from the memory of the kernel.",
        n_args: 1..=2,
        lower: |body, call| string(body, call, Some(Space::Kernel)),
    },
    Function {
        name: "buf",
        signature: "buf(address, length), buf(string, length)",
        doc: "Bytes at an address or of a string, shown by `%r`.",
        n_args: 1..=2,
        lower: buf,
    },
    Function {
        name: "join",
        signature: "join(argv), join(argv, \"separator\")",
        doc: "Prints the strings of an array of pointers that ends with 0.",
        n_args: 1..=2,
        lower: join,
    },
    Function {
        name: "strlen",
        signature: "strlen(string)",
        doc: "Its length in bytes.",
        n_args: 1..=1,
        lower: strlen,
    },
    Function {
        name: "strncmp",
        signature: "strncmp(a, b, n)",
        doc: "0 if the first n bytes of both are the same, else 1.",
        n_args: 3..=3,
        lower: strncmp,
    },
    Function {
        name: "strerror",
        signature: "strerror(n)",
        doc: "What an error number of Linux means, such as 2: No such file or directory.",
        n_args: 1..=1,
        lower: |body, call| {
            let number = body.number(&call.args[0])?;
            Ok(Value { ty: Ty::Plain(Type::ErrorText), space: None, span: call.span, ..number })
        },
    },
    Function {
        name: "strstr",
        signature: "strstr(haystack, needle)",
        doc: "Where the second begins in the first, from 0; -2 if it is not in it.",
        n_args: 2..=2,
        lower: strstr,
    },
    Function {
        name: "str_concat",
        signature: "str_concat(a, b)",
        doc: "Both strings as one.",
        n_args: 2..=2,
        lower: str_concat,
    },
    Function {
        name: "memcmp",
        signature: "memcmp(a, b, n)",
        doc: "0 if the first n bytes of both are the same, else the difference of the first that are not.",
        n_args: 3..=3,
        lower: memcmp,
    },
    Function {
        name: "strcontains",
        signature: "strcontains(haystack, needle)",
        doc: "1 if the first has the second in it, else 0.",
        n_args: 2..=2,
        lower: strcontains,
    },
];

/// A number that is shown by its name.
fn named(body: &mut Body<'_, '_>, call: &Call<'_>, names: &[(i64, &str)]) -> Lowered<Value> {
    let number = body.number(&call.args[0])?;
    let labels = names.iter().map(|(number, name)| (*number, (*name).to_owned())).collect();
    Ok(Value { ty: Ty::Plain(Type::Enum { labels }), space: None, span: call.span, ..number })
}

/// What is no signal has a name, too.
fn signal_name(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    const NONE: i64 = 65;
    let number = named(body, call, &labels::SIGNALS)?;
    let Ty::Plain(Type::Enum { mut labels }) = number.ty.clone() else { return Ok(number) };
    labels.push((NONE, "N/A".to_owned()));
    let ty = Ty::Plain(Type::Enum { labels });
    if let At::Const(constant) = number.at {
        let at = At::Const(if (0..NONE).contains(&constant) { constant } else { NONE });
        return Ok(Value { ty, at, ..number });
    }
    let src = body.reg(&number);
    let (is_signal, shown) = (body.temp(), body.temp());
    body.emit(Op::BinaryConst { op: Binary::LtUnsigned, dst: is_signal, a: src, b: NONE });
    body.emit(Op::BinaryConst { op: Binary::Add, dst: shown, a: src, b: 0 });
    let known = body.jump(Op::JumpIf { condition: is_signal, to: 0 });
    body.emit(Op::Const { dst: shown, value: NONE });
    body.patch(&[known]);
    Ok(Value { ty, at: At::Reg(shown), ..number })
}

fn string(body: &mut Body<'_, '_>, call: &Call<'_>, space: Option<Space>) -> Lowered<Value> {
    let span = call.span;
    let length = constant_length(body, call.args.get(1))?;
    if let ExprKind::Param(index) = &call.args[0].kind {
        let text = body.shared.script.parameters.get(index - 1).cloned().unwrap_or_default();
        let mut bytes = text.into_bytes();
        bytes.truncate(length.unwrap_or(MAX_BUFFER_BYTES - 1) as usize);
        return Ok(body.literal(&bytes, span));
    }
    if let ExprKind::Binary { op: BinaryOp::Add, left, right } = &call.args[0].kind
        && let ExprKind::Param(index) = &left.kind
        && let Some(text) = body.shared.script.parameters.get(index - 1).cloned()
        && crate::number::parse_number(&text).is_none()
        && let Some(skipped) = body.number(right)?.constant()
    {
        // Text of the command line is an array of characters: `str($1 + 1)` leaves out the first.
        let bytes = text.as_bytes().get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
        let length = length.map_or(bytes.len(), |length| bytes.len().min(length as usize));
        return Ok(body.literal(&bytes[..length], span));
    }
    let max_bytes = match length {
        Some(length) => (length as u32 + 1).min(body.string_bytes()),
        None => body.string_bytes(),
    };
    let ty = Ty::str(max_bytes);
    let mark = body.mark();
    if let (Some(index), None) = (body.arg_of(&call.args[0]), space) {
        let to = body.alloc(ty.size_bytes());
        let above = body.mark();
        let len = string_length(body, call, max_bytes)?;
        body.emit(Op::ArgString { to, index, len });
        body.release(above);
        return Ok(Value::new(ty, At::Slot(to), span));
    }
    let value = body.expr(&call.args[0])?;
    match &value.ty {
        Ty::Plain(Type::Str { max_bytes: has }) if call.args.len() == 1 || *has <= max_bytes => {
            return Ok(value);
        }
        Ty::Plain(Type::Str { .. }) => {
            let from = body.slot(&value);
            let to = body.alloc(ty.size_bytes());
            body.emit(Op::Zero { to });
            body.emit(Op::Move { to: Slot { at: to.at, len: max_bytes - 1 }, from });
            return Ok(Value::new(ty, At::Slot(to), span));
        }
        ty if ty.is_number() => {}
        other => {
            return Err(Diagnostic::error(
                call.args[0].span,
                format!("`{}` needs an address, found {}", call.name, other.text()),
            ));
        }
    }
    let space = space.unwrap_or(match &value.ty {
        Ty::Pointer { space, .. } => *space,
        _ => value.space.unwrap_or(body.variant.space()),
    });
    let to = body.alloc(ty.size_bytes());
    let above = body.mark();
    let address = body.reg(&value);
    let len = string_length(body, call, max_bytes)?;
    body.emit(Op::String { to, address, len, space });
    body.check_readable(address, space, true, call.span);
    body.release(above);
    body.release_regs(mark);
    Ok(Value::new(ty, At::Slot(to), span))
}

/// The register with the length, where the room alone does not say it.
fn string_length(body: &mut Body<'_, '_>, call: &Call<'_>, max_bytes: u32) -> Lowered<Option<u16>> {
    let fits = max_bytes.is_multiple_of(8);
    match call.args.get(1) {
        Some(expr) => {
            let length = body.number(expr)?;
            match length.constant() {
                Some(_) if fits => Ok(None),
                Some(_) => Ok(Some(body.reg(&Value::number(i64::from(max_bytes) - 1, call.span)))),
                None => Ok(Some(body.reg(&length))),
            }
        }
        None if fits => Ok(None),
        None => Ok(body.length_limit(call.span)),
    }
}

fn constant_length(body: &mut Body<'_, '_>, expr: Option<&Expr>) -> Lowered<Option<i64>> {
    let Some(expr) = expr else { return Ok(None) };
    let (mark, start) = (body.mark(), body.here());
    let length = body.number(expr)?.constant();
    body.truncate(start);
    body.release(mark);
    match length {
        Some(length) if length < 0 => Err(Diagnostic::error(expr.span, "a length cannot be negative")),
        Some(length) => Ok(Some(length.min(MAX_BUFFER_BYTES))),
        None => Ok(None),
    }
}

fn max_bytes_of(length: Option<i64>, has: u32) -> u32 {
    length.map_or(has, |length| length as u32).max(1)
}

/// Bytes of a string, its NUL and what follows included where so many are asked for.
fn text_bytes(
    body: &mut Body<'_, '_>,
    call: &Call<'_>,
    from: Slot,
    has: u32,
    max_bytes: u32,
) -> Lowered<Value> {
    let Some(expr) = call.args.get(1) else {
        return Err(Diagnostic::error(call.span, "the length of this is not known")
            .help("write `buf(string, length)`"));
    };
    let length = body.number(expr)?;
    let len = match length.constant() {
        Some(constant) => body.reg(&Value::number(constant.min(i64::from(max_bytes)), call.span)),
        None => {
            // Not more than there is room for.
            let (a, is_more) = (body.reg(&length), body.temp());
            let len = body.temp();
            body.emit(Op::Copy { dst: len, src: a });
            body.emit(Op::BinaryConst { op: Binary::GtUnsigned, dst: is_more, a, b: i64::from(max_bytes) });
            let fits = body.jump(Op::JumpUnless { condition: is_more, to: 0 });
            body.emit(Op::Const { dst: len, value: i64::from(max_bytes) });
            body.patch(&[fits]);
            len
        }
    };
    let (to, ty) = buffer(body, max_bytes);
    body.emit(Op::Zero { to });
    body.emit(Op::Store { at: to.at, src: len, size_bytes: 8 });
    let room = Slot { at: to.at + 8, len: to.len - 8 };
    body.emit(Op::Move { to: room, from: Slot { at: from.at, len: from.len.min(has) } });
    Ok(Value::new(ty, At::Slot(to), call.span))
}

fn buf(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let length = constant_length(body, call.args.get(1))?;
    let max_bytes = match length {
        Some(length) => (length as u32).max(1),
        None => body.string_bytes(),
    };
    let is_argument = body.arg_of(&call.args[0]);
    if let (Some(index), Some(expr)) = (is_argument, call.args.get(1)) {
        let (to, ty) = buffer(body, max_bytes);
        let mark = body.mark();
        let length = body.number(expr)?;
        let len = body.reg(&length);
        body.emit(Op::ArgBytes { to, index, len });
        body.release(mark);
        return Ok(Value::new(ty, At::Slot(to), call.span));
    }
    let value = body.place(&call.args[0])?;
    let (n_elements, address) = match (&value.ty, value.at) {
        (Ty::Plain(Type::Buffer { .. }), _) if call.args.len() == 1 => return Ok(value),
        (Ty::Plain(Type::Str { max_bytes }), At::Slot(from)) => {
            let has = *max_bytes;
            return text_bytes(body, call, from, has, max_bytes_of(length, has));
        }
        (Ty::Memory(array @ CType::Array(..)), At::Memory { base, offset, space }) => {
            let array = array.clone();
            (Some(body.size_of(&array, call.span)?), (base, offset, space))
        }
        (ty, _) if ty.is_number() => {
            let space = match ty {
                Ty::Pointer { space, .. } => *space,
                _ => value.space.unwrap_or(body.variant.space()),
            };
            (None, (body.reg(&value), 0, space))
        }
        (other, _) => {
            return Err(Diagnostic::error(
                call.args[0].span,
                format!("`buf` needs an address, found {}", other.text()),
            ));
        }
    };
    let length = match (call.args.get(1), n_elements) {
        (Some(expr), _) => body.number(expr)?,
        (None, Some(size_bytes)) => Value::number(i64::from(size_bytes).min(MAX_BUFFER_BYTES), call.span),
        (None, None) => {
            return Err(Diagnostic::error(call.span, "the length of this is not known")
                .help("write `buf(address, length)`"));
        }
    };
    let max_bytes = match length.constant() {
        Some(length) => (length.clamp(1, MAX_BUFFER_BYTES)) as u32,
        None => max_bytes,
    };
    let (base, offset, space) = address;
    let address = body.address(base, offset);
    let len = body.reg(&length);
    let (to, ty) = buffer(body, max_bytes);
    body.emit(Op::Buffer { to, address, len, space });
    Ok(Value::new(ty, At::Slot(to), call.span))
}

fn buffer(body: &mut Body<'_, '_>, max_bytes: u32) -> (Slot, Ty) {
    let ty = Ty::Plain(Type::Buffer { max_bytes });
    (body.alloc(ty.size_bytes()), ty)
}

/// A count, then room for each string. One after the other until a pointer is 0.
fn join(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let separator = match call.args.get(1) {
        Some(expr) => body.literal_text(call.name, expr)?,
        None => " ".to_string(),
    };
    let max_bytes = body.string_bytes().next_multiple_of(8);
    let payload = body.alloc(8 + MAX_JOINED * max_bytes);
    let pointer = body.alloc(8);
    let value = body.number(&call.args[0])?;
    let space = match &value.ty {
        Ty::Pointer { space, .. } => *space,
        _ => value.space.unwrap_or(body.variant.space()),
    };
    let argv = body.reg(&value);
    let (count, address, entry) = (body.temp(), body.temp(), body.temp());
    body.emit(Op::Zero { to: payload });
    body.emit(Op::Const { dst: count, value: 0 });
    let mut ends = Vec::new();
    for index in 0..MAX_JOINED {
        body.emit(Op::BinaryConst { op: Binary::Add, dst: address, a: argv, b: i64::from(index) * 8 });
        body.emit(Op::Read { to: pointer, address, space });
        body.emit(Op::Load { dst: entry, at: pointer.at, size_bytes: 8, is_signed: false });
        ends.push(body.jump(Op::JumpUnless { condition: entry, to: 0 }));
        let to = Slot { at: payload.at + 8 + index * max_bytes, len: max_bytes };
        body.emit(Op::String { to, address: entry, len: None, space });
        body.emit(Op::BinaryConst { op: Binary::Add, dst: count, a: count, b: 1 });
    }
    body.patch(&ends);
    body.emit(Op::Store { at: payload.at, src: count, size_bytes: 8 });
    let action = body.action(Action::Join { at: 0, max_count: MAX_JOINED, max_bytes, separator });
    body.emit(Op::Emit { action, payload });
    Ok(Value::nothing(call.span))
}

fn strlen(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let value = body.string(&call.args[0])?;
    let a = body.slot(&value);
    let result = body.result(mark, Ty::I64, call.span, |dst| Op::Strlen { dst, a });
    body.release_frame(mark);
    Ok(result)
}

fn strncmp(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let n = match constant_length(body, Some(&call.args[2]))? {
        Some(n) => n as u32,
        None => {
            return Err(Diagnostic::error(call.args[2].span, "the length must be a constant"));
        }
    };
    let (a, b) = two_strings(body, call)?;
    let result = body.result(mark, Ty::I64, call.span, |dst| Op::Strncmp { dst, a, b, n });
    body.release_frame(mark);
    Ok(result)
}

fn strcontains(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let (haystack, needle) = two_strings(body, call)?;
    let at = body.temp();
    body.emit(Op::StrFind { dst: at, haystack, needle });
    let result = body.result(mark, Ty::BOOL, call.span, |dst| Op::BinaryConst {
        op: Binary::GeSigned,
        dst,
        a: at,
        b: 0,
    });
    body.release_frame(mark);
    Ok(result)
}

fn strstr(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let (haystack, needle) = two_strings(body, call)?;
    let result = body.result(mark, Ty::I64, call.span, |dst| Op::StrFind { dst, haystack, needle });
    body.release_frame(mark);
    Ok(result)
}

fn str_concat(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let (here, sizes) = (body.here(), two_strings(body, call)?);
    body.truncate(here);
    body.release(mark);
    // Each has room for a NUL of its own.
    let room = (sizes.0.len + sizes.1.len).saturating_sub(1).clamp(8, body.string_bytes().max(8));
    let ty = Ty::str(room.next_multiple_of(8));
    let to = body.alloc(ty.size_bytes());
    let above = body.mark();
    let (a, b) = two_strings(body, call)?;
    body.emit(Op::StrConcat { to, a, b });
    body.release(above);
    Ok(Value::new(ty, At::Slot(to), call.span))
}

/// Byte after byte; what is behind the end of either counts as zeros.
fn memcmp(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let mut slots = Vec::new();
    for arg in &call.args[..2] {
        let value = body.expr(arg)?;
        let value = body.whole(value)?;
        slots.push(match value.ty.is_scalar() {
            true => {
                let to = body.alloc(8);
                let src = body.reg(&value);
                body.emit(Op::Store { at: to.at, src, size_bytes: 8 });
                to
            }
            false => body.slot(&value),
        });
    }
    let length = body.number(&call.args[2])?;
    let n = body.reg(&length);
    let [i, is_in, x, y] = [(); 4].map(|()| body.temp());
    let longest = slots.iter().map(|slot| slot.len).max().unwrap_or(0);
    body.emit(Op::Const { dst: i, value: 0 });
    body.emit(Op::Const { dst: x, value: 0 });
    let start = body.here();
    body.emit(Op::Binary { op: Binary::LtUnsigned, dst: is_in, a: i, b: n });
    let mut ends = vec![body.jump(Op::JumpUnless { condition: is_in, to: 0 })];
    body.emit(Op::BinaryConst { op: Binary::LtUnsigned, dst: is_in, a: i, b: i64::from(longest) });
    ends.push(body.jump(Op::JumpUnless { condition: is_in, to: 0 }));
    for (dst, from) in [(x, slots[0]), (y, slots[1])] {
        body.emit(Op::Element { dst, from, index: i, n: from.len, size_bytes: 1, is_signed: false });
    }
    body.emit(Op::Binary { op: Binary::Sub, dst: x, a: x, b: y });
    ends.push(body.jump(Op::JumpIf { condition: x, to: 0 }));
    body.emit(Op::BinaryConst { op: Binary::Add, dst: i, a: i, b: 1 });
    body.emit(Op::Jump { to: start });
    body.patch(&ends);
    let result = body.result(mark, Ty::I64, call.span, |dst| Op::Copy { dst, src: x });
    body.release_frame(mark);
    Ok(result)
}

fn two_strings(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<(Slot, Slot)> {
    let a = body.string(&call.args[0])?;
    let b = body.string(&call.args[1])?;
    Ok((body.slot(&a), body.slot(&b)))
}
