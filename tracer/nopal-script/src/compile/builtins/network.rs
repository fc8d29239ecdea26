//! ntop, pton, macaddr, AF_INET, AF_INET6: addresses of networks.

use super::{Builtin as Variable, Call, Function};
use crate::ast::{Expr, ExprKind};
use crate::catalog::ArgType;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Type;
use nopal_program::layout::Layout;
use nopal_program::op::{Op, Slot, Space};

const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;

pub(super) const VARIABLES: &[Variable] = &[
    Variable { name: "AF_INET", doc: "2", lower: |_, span| Ok(Value::number(AF_INET, span)) },
    Variable { name: "AF_INET6", doc: "10", lower: |_, span| Ok(Value::number(AF_INET6, span)) },
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "ntop",
        signature: "ntop(address), ntop(family, address)",
        doc: "An IPv4 address (a number, or 4 bytes) or IPv6 address (16 bytes) as text.",
        n_args: 1..=2,
        lower: ntop,
    },
    Function {
        name: "pton",
        signature: "pton(\"address\")",
        doc: "The 4 or 16 bytes of an IPv4 or IPv6 address that stands in the script.",
        n_args: 1..=1,
        lower: pton,
    },
    Function {
        name: "macaddr",
        signature: "macaddr(address)",
        doc: "Six bytes at an address as text.",
        n_args: 1..=1,
        lower: macaddr,
    },
];

/// An array of bytes in the order of the network.
fn pton(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let text = body.literal_text(call.name, &call.args[0])?;
    let octets = match text.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(address)) => address.octets().to_vec(),
        Ok(std::net::IpAddr::V6(address)) => address.octets().to_vec(),
        Err(_) => {
            let message = format!("`{text}` is not an address of IPv4 or IPv6");
            return Err(Diagnostic::error(call.args[0].span, message).help("write \"127.0.0.1\" or \"::1\""));
        }
    };
    let byte = CType::Int { size_bytes: 1, is_signed: false };
    let n = octets.len() as u32;
    let of = Box::new(Layout::Int { size_bytes: 1, is_signed: false });
    let to = body.alloc(n.next_multiple_of(8));
    let constant = body.shared.constant(&octets);
    body.emit(Op::Constant { to, constant });
    let what = CType::Array(Box::new(byte), n);
    Ok(Value::new(Ty::Whole { what, layout: Layout::Array { of, n } }, At::Slot(to), call.span))
}

/// Bytes at an address.
struct Bytes {
    base: u16,
    offset: i64,
    space: Space,
    size_bytes: Option<u32>,
}

/// An array, or what a pointer leads to.
fn bytes(body: &mut Body<'_, '_>, value: &Value, span: Span) -> Lowered<Option<Bytes>> {
    Ok(match (&value.ty, value.at) {
        (Ty::Memory(array @ CType::Array(..)), At::Memory { base, offset, space }) => {
            let size_bytes = body.size_of(array, span)?;
            Some(Bytes { base, offset, space, size_bytes: Some(size_bytes) })
        }
        (Ty::Pointer { to, space }, _) => {
            let (space, to) = (*space, to.clone());
            let size_bytes = if to == CType::Void { None } else { Some(body.size_of(&to, span)?) };
            Some(Bytes { base: body.reg(value), offset: 0, space, size_bytes: size_bytes.filter(|n| *n > 1) })
        }
        _ => None,
    })
}

fn ntop(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let ty = Ty::Plain(Type::Inet);
    let to = body.alloc(ty.size_bytes());
    let mark = body.mark();
    let family = match call.args.len() {
        2 => Some(body.number(&call.args[0])?),
        _ => None,
    };
    let address = &call.args[call.args.len() - 1];
    let known = address_bytes(body, address, Slot { at: to.at + 8, len: 16 }, to, family.as_ref())?;
    let family = match (family, known) {
        (Some(family), _) => family,
        (None, 16) => Value::number(AF_INET6, call.span),
        (None, _) => Value::number(AF_INET, call.span),
    };
    let src = body.reg(&family);
    body.emit(Op::Store { at: to.at, src, size_bytes: 8 });
    body.release(mark);
    Ok(Value::new(ty, At::Slot(to), call.span))
}

/// Brings the address to its place; gives how many bytes it has.
fn address_bytes(
    body: &mut Body<'_, '_>,
    expr: &Expr,
    place: Slot,
    whole: Slot,
    family: Option<&Value>,
) -> Lowered<u32> {
    body.emit(Op::Zero { to: whole });
    if let Some((offset, size_bytes)) = field_bytes(body, expr) {
        let len = u32::from(size_bytes).min(place.len);
        body.emit(Op::FieldBytes { to: Slot { at: place.at, len }, offset });
        return Ok(len);
    }
    let value = body.place(expr)?;
    if let (Ty::Whole { layout, .. }, At::Slot(from)) = (&value.ty, value.at) {
        let len = layout.size_bytes().min(place.len);
        body.emit(Op::Move { to: Slot { at: place.at, len }, from: Slot { at: from.at, len } });
        return Ok(len);
    }
    if let Some(bytes) = bytes(body, &value, expr.span)? {
        let len = match (bytes.size_bytes, family.and_then(Value::constant)) {
            (Some(n @ (4 | 16)), _) => n,
            (None, Some(AF_INET6)) => 16,
            (None, Some(AF_INET)) => 4,
            _ => {
                return Err(Diagnostic::error(expr.span, "an address has 4 or 16 bytes").help(
                    "cast it to a pointer to such an array, or name the family: `ntop(AF_INET6, address)`",
                ));
            }
        };
        let address = body.address(bytes.base, bytes.offset);
        body.emit(Op::Read { to: Slot { at: place.at, len }, address, space: bytes.space });
        return Ok(len);
    }
    if !value.ty.is_number() {
        return Err(Diagnostic::error(expr.span, format!("expected an address, found {}", value.ty.text())));
    }
    let src = body.reg(&value);
    body.emit(Op::Store { at: place.at, src, size_bytes: 4 });
    Ok(4)
}

/// An array in a tracepoint's record.
fn field_bytes(body: &Body<'_, '_>, expr: &Expr) -> Option<(u16, u16)> {
    let ExprKind::Member { base, name, .. } = &expr.kind else { return None };
    if !matches!(&base.kind, ExprKind::Name(args) if args == "args") {
        return None;
    }
    let arg = body.variant.args.iter().find(|arg| arg.name == *name)?;
    match arg.arg_type {
        ArgType::FieldChars { offset, size_bytes } => Some((offset, size_bytes)),
        _ => None,
    }
}

fn macaddr(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let expr = &call.args[0];
    let mark = body.mark();
    let room = body.alloc(8);
    body.emit(Op::Zero { to: room });
    let six = Slot { at: room.at, len: 6 };
    if let Some((offset, _)) = field_bytes(body, expr) {
        body.emit(Op::FieldBytes { to: six, offset });
    } else {
        let value = body.place(expr)?;
        let bytes = match bytes(body, &value, expr.span)? {
            Some(bytes) => bytes,
            None if value.ty.is_number() => {
                let space = value.space.unwrap_or(body.variant.space());
                Bytes { base: body.reg(&value), offset: 0, space, size_bytes: None }
            }
            None => {
                let message = format!("expected the address of six bytes, found {}", value.ty.text());
                return Err(Diagnostic::error(expr.span, message));
            }
        };
        if bytes.size_bytes.is_some_and(|size_bytes| size_bytes != 6) {
            return Err(Diagnostic::error(expr.span, "expected an array of six bytes"));
        }
        let address = body.address(bytes.base, bytes.offset);
        body.emit(Op::Read { to: six, address, space: bytes.space });
    }
    let ty = Ty::Plain(Type::Mac);
    let at = room.at;
    let value = body.result(mark, ty, call.span, |dst| Op::Load { dst, at, size_bytes: 8, is_signed: false });
    body.release_frame(mark);
    Ok(value)
}
