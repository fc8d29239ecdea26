//! usym, ksym, uaddr, kaddr, uptr, kptr, bswap: addresses and numbers as they lie in memory.

use super::probe::user_symbol;
use super::{Call, Function};
use crate::catalog::UserSymbol;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::ctype::CType;
use crate::diagnostic::Diagnostic;
use nopal_program::Type;
use nopal_program::op::{Binary, Builtin, Op, Space};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "usym",
        signature: "usym(address)",
        doc: "Name of the function at an address of the program.",
        n_args: 1..=1,
        lower: |body, call| {
            let address = body.number(&call.args[0])?;
            Ok(user_symbol(body, &address, call.span))
        },
    },
    Function {
        name: "ksym",
        signature: "ksym(address)",
        doc: "Name of the function at an address of the kernel.",
        n_args: 1..=1,
        lower: |body, call| {
            let address = body.number(&call.args[0])?;
            let ty = Ty::Plain(Type::KernelSymbol);
            Ok(Value { ty, space: None, span: call.span, ..address })
        },
    },
    Function {
        name: "kaddr",
        signature: "kaddr(\"symbol\")",
        doc: "Address of a symbol of the kernel.",
        n_args: 1..=1,
        lower: kaddr,
    },
    Function {
        name: "uaddr",
        signature: "uaddr(\"symbol\")",
        doc: "Pointer to a symbol of the file the point is in: to a signed number of the symbol's size if that is 1, 2 or 4 bytes, else of 8.",
        n_args: 1..=1,
        lower: uaddr,
    },
    Function {
        name: "kptr",
        signature: "kptr(address)",
        doc: "The same address, leading into the kernel.",
        n_args: 1..=1,
        lower: |body, call| in_space(body, call, Space::Kernel),
    },
    Function {
        name: "uptr",
        signature: "uptr(address)",
        doc: "The same address, leading into the program.",
        n_args: 1..=1,
        lower: |body, call| in_space(body, call, Space::User),
    },
    Function {
        name: "bswap",
        signature: "bswap(n)",
        doc: "The bytes of a number in the other order; its type says how many.",
        n_args: 1..=1,
        lower: bswap,
    },
];

fn kaddr(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let symbol = body.literal_text(call.name, &call.args[0])?;
    match body.shared.catalog.kernel_address(&symbol) {
        Some(address) => Ok(Value {
            ty: Ty::U64,
            at: At::Const(address as i64),
            space: Some(Space::Kernel),
            span: call.span,
        }),
        None => Err(Diagnostic::error(call.span, format!("Failed to resolve kernel symbol: {symbol}"))
            .help("/proc/kallsyms has its symbols, and shows addresses to root alone")),
    }
}

fn uaddr(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let symbol = body.literal_text(call.name, &call.args[0])?;
    let found = body.shared.catalog.user_symbol(&body.variant.points[0], &symbol);
    let UserSymbol { is_relative, address, size_bytes } =
        found.map_err(|why| Diagnostic::error(call.args[0].span, why))?;
    let at = match is_relative {
        false => At::Const(address as i64),
        true if body.variant.points.len() == 1 => {
            let dst = body.temp();
            body.emit(Op::Builtin { dst, what: Builtin::Ip });
            body.emit(Op::BinaryConst { op: Binary::Add, dst, a: dst, b: address as i64 });
            At::Reg(dst)
        }
        true => {
            let message =
                format!("`{symbol}` is elsewhere in each process, and this body has several points");
            return Err(Diagnostic::error(call.args[0].span, message)
                .help("its place is known from that of the point: give each point a body of its own"));
        }
    };
    let ty = Ty::Pointer { to: number_of(size_bytes), space: Space::User };
    Ok(Value { ty, at, space: Some(Space::User), span: call.span })
}

/// What a symbol of this size holds: a number where there are numbers of that size, else several of the largest.
fn number_of(size_bytes: u64) -> CType {
    match size_bytes {
        1 | 2 | 4 => CType::Int { size_bytes: size_bytes as u8, is_signed: true },
        _ => CType::Int { size_bytes: 8, is_signed: true },
    }
}

fn in_space(body: &mut Body<'_, '_>, call: &Call<'_>, space: Space) -> Lowered<Value> {
    let value = body.number(&call.args[0])?;
    let ty = match &value.ty {
        Ty::Pointer { to, .. } => Ty::Pointer { to: to.clone(), space },
        other => other.clone(),
    };
    Ok(Value { ty, space: Some(space), span: call.span, ..value })
}

fn bswap(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mark = body.mark();
    let value = body.number(&call.args[0])?;
    let size_bytes = match &value.ty {
        Ty::Int { size_bytes, .. } => *size_bytes,
        _ => 8,
    };
    let ty = Ty::Int { size_bytes, is_signed: false };
    if let Some(constant) = value.constant() {
        let swapped = (constant as u64).swap_bytes() >> (64 - 8 * u32::from(size_bytes));
        return Ok(Value::new(ty, At::Const(swapped as i64), call.span));
    }
    if size_bytes == 1 {
        return Ok(Value { ty, span: call.span, ..value });
    }
    let a = body.reg(&value);
    let (sum, part) = (body.temp(), body.temp());
    for byte in 0..i64::from(size_bytes) {
        let to = i64::from(size_bytes) - 1 - byte;
        let dst = if byte == 0 { sum } else { part };
        body.emit(Op::BinaryConst { op: Binary::ShrUnsigned, dst, a, b: byte * 8 });
        body.emit(Op::BinaryConst { op: Binary::And, dst, a: dst, b: 0xff });
        body.emit(Op::BinaryConst { op: Binary::Shl, dst, a: dst, b: to * 8 });
        if byte > 0 {
            body.emit(Op::Binary { op: Binary::Or, dst: sum, a: sum, b: part });
        }
    }
    Ok(body.result(mark, ty, call.span, |dst| Op::Copy { dst, src: sum }))
}
