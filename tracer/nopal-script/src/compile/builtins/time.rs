//! nsecs, elapsed, jiffies, time, strftime.

use super::process::number;
use super::{Builtin as Variable, Call, Function};
use crate::ast::ExprKind;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::diagnostic::Diagnostic;
use nopal_program::op::{Binary, Builtin, Op, Slot};
use nopal_program::{Action, Type};

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "nsecs",
        doc: "Nanoseconds of the monotonic clock.",
        lower: |body, span| Ok(number(body, Builtin::Nsecs, span)),
    },
    Variable {
        name: "elapsed",
        doc: "Nanoseconds since the script began.",
        lower: |body, span| Ok(number(body, Builtin::Elapsed, span)),
    },
    Variable {
        name: "jiffies",
        doc: "Ticks of the kernel's clock.",
        lower: |body, span| Ok(number(body, Builtin::Jiffies, span)),
    },
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "nsecs",
        signature: "nsecs(clock)",
        doc: "Nanoseconds of `monotonic`, of `boot` (with the time that the machine slept), of `tai` or `sw_tai` (TAI since 1970).",
        n_args: 0..=1,
        lower: nsecs,
    },
    Function {
        name: "time",
        signature: "time(), time(\"format\")",
        doc: "Prints the time of day, as strftime(3) has it.",
        n_args: 0..=1,
        lower: time,
    },
    Function {
        name: "strftime",
        signature: "strftime(\"format\", nsecs)",
        doc: "A moment of the monotonic clock as text.",
        n_args: 2..=2,
        lower: strftime,
    },
];

fn nsecs(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let Some(arg) = call.args.first() else { return Ok(number(body, Builtin::Nsecs, call.span)) };
    let clock = match &arg.kind {
        ExprKind::Name(clock) => clock.as_str(),
        _ => "",
    };
    match clock {
        "monotonic" => Ok(number(body, Builtin::Nsecs, call.span)),
        "boot" => Ok(number(body, Builtin::NsecsBoot, call.span)),
        "tai" => Ok(number(body, Builtin::NsecsTai, call.span)),
        "sw_tai" => {
            let Some(offset_ns) = body.shared.catalog.tai_offset_ns() else {
                return Err(Diagnostic::error(arg.span, "the clock `sw_tai` is not known here")
                    .help("over a recording there is `nsecs`, since the epoch"));
            };
            let now = number(body, Builtin::Nsecs, call.span);
            let dst = body.reg(&now);
            body.emit(Op::BinaryConst { op: Binary::Add, dst, a: dst, b: offset_ns });
            Ok(now)
        }
        _ => Err(Diagnostic::error(arg.span, "this is not a clock")
            .help("clocks are monotonic, boot, tai and sw_tai")),
    }
}

fn time(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let format = match call.args.first() {
        Some(arg) => body.literal_text(call.name, arg)?,
        None => "%H:%M:%S\n".to_string(),
    };
    let action = body.action(Action::Time { format });
    body.emit(Op::Emit { action, payload: Slot { at: 0, len: 0 } });
    Ok(Value::nothing(call.span))
}

fn strftime(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let format = body.literal_text(call.name, &call.args[0])?;
    let value = body.number(&call.args[1])?;
    let ty = Ty::Plain(Type::Time { format });
    let at = match value.at {
        At::Nowhere | At::Memory { .. } => At::Const(0),
        At::Const(_) | At::Reg(_) | At::Slot(_) => value.at,
    };
    Ok(Value::new(ty, at, call.span))
}
