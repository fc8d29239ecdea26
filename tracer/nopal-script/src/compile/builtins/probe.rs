//! probe, func, ctx, retval, arg0..., sarg0..., args, reg: the point and what it gives.

use super::process::number;
use super::{Builtin as Variable, Call, Function};
use crate::ast::{Expr, ExprKind};
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::op::{Builtin, Op, Slot, Space};
use nopal_program::{PointKind, Type};

/// Arguments the System V ABI passes in registers.
const N_REGISTER_ARGS: u8 = 6;
/// In the order of the kernel's `pt_regs`, with other names they go by.
const REGISTERS: [&[&str]; 21] = [
    &["r15"],
    &["r14"],
    &["r13"],
    &["r12"],
    &["bp", "rbp"],
    &["bx", "rbx"],
    &["r11"],
    &["r10"],
    &["r9"],
    &["r8"],
    &["ax", "rax"],
    &["cx", "rcx"],
    &["dx", "rdx"],
    &["si", "rsi"],
    &["di", "rdi"],
    &["orig_ax"],
    &["ip", "rip", "pc"],
    &["cs"],
    &["flags"],
    &["sp", "rsp"],
    &["ss"],
];
const STACK_POINTER: u8 = 19;

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "probetype",
        doc: "The type of the point, such as `usdt`.",
        lower: |body, span| {
            let name = kind_name(body.variant.kind());
            Ok(body.literal(name.as_bytes(), span))
        },
    },
    Variable {
        name: "usermode",
        doc: "1 where the point is in a program, 0 where it is in the kernel.",
        lower: |body, span| match body.variant.kind() {
            PointKind::Begin
            | PointKind::End
            | PointKind::Signal
            | PointKind::Bench { .. }
            | PointKind::Usdt { .. }
            | PointKind::UsdtLater(_)
            | PointKind::Uprobe { .. }
            | PointKind::Uretprobe { .. } => Ok(Value::new(Ty::U64, At::Const(1), span)),
            PointKind::Tracepoint { .. } | PointKind::Kprobe { .. } | PointKind::Kretprobe { .. } => {
                Ok(Value::new(Ty::U64, At::Const(0), span))
            }
            PointKind::Interval { .. }
            | PointKind::Profile { .. }
            | PointKind::Software { .. }
            | PointKind::Hardware { .. }
            | PointKind::Watchpoint { .. } => Err(Diagnostic::error(
                span,
                "what such a point meets is not known to be a program or the kernel",
            )
            .help("`usermode` is known at usdt, uprobe, tracepoint and kprobe")),
        },
    },
    Variable { name: "probe", doc: "Full name of the point.", lower: probe },
    Variable { name: "func", doc: "Function the point is in.", lower: func },
    Variable {
        name: "ctx",
        doc: "Address of what the kernel gives of the point.",
        lower: |body, span| Ok(Value { space: Some(Space::Kernel), ..number(body, Builtin::Ctx, span) }),
    },
    Variable { name: "retval", doc: "What the function returned.", lower: retval },
    Variable {
        name: "args",
        doc: "Arguments by name: `args.name`; alone, all of them as a record.",
        lower: args,
    },
];

pub(super) const FUNCTIONS: &[Function] = &[Function {
    name: "reg",
    signature: "reg(\"ip\")",
    doc: "A register of the traced thread.",
    n_args: 1..=1,
    lower: reg,
}];

fn probe(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    if body.variant.has_probe_text {
        let point = &body.variant.points[0];
        if matches!(point.kind, PointKind::UsdtLater(_)) {
            return Err(Diagnostic::error(
                span,
                "which probe it is, is not known before its program is there",
            )
            .help("name it whole, or use `@[probe] = count()`"));
        }
        let name = point.name.clone();
        return Ok(body.literal(name.as_bytes(), span));
    }
    let dst = body.temp();
    body.emit(Op::Probe { dst });
    Ok(Value::new(Ty::Plain(Type::Probe), At::Reg(dst), span))
}

/// All arguments that have names.
fn args(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    let names: Vec<String> = body.variant.args.iter().map(|arg| arg.name.clone()).collect();
    if names.is_empty() || names.iter().any(String::is_empty) {
        return Err(Diagnostic::error(span, "the names of the arguments are not known here")
            .help("use `arg0`, `arg1` and so on"));
    }
    let args = Expr { kind: ExprKind::Name("args".to_owned()), span, depth: 0 };
    let member = |name: String| {
        let base = Box::new(args.clone());
        let kind = ExprKind::Member { base, name: name.clone(), is_arrow: false, name_span: span };
        (name, Expr { kind, span, depth: 1 })
    };
    let members: Vec<(String, Expr)> = names.into_iter().map(member).collect();
    body.record(&members, span)
}

fn func(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    match body.variant.kind() {
        PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uprobe { .. }
        | PointKind::Uretprobe { .. } => {
            let address = number(body, Builtin::Ip, span);
            Ok(user_symbol(body, &address, span))
        }
        PointKind::Kprobe { .. } | PointKind::Kretprobe { .. } => {
            let address = number(body, Builtin::Ip, span);
            Ok(Value { ty: Ty::Plain(Type::KernelSymbol), ..address })
        }
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Tracepoint { .. }
        | PointKind::Interval { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. }
        | PointKind::Watchpoint { .. } => {
            Err(only(body, "func", "usdt, uprobe, uretprobe, kprobe and kretprobe", span))
        }
    }
}

/// Address and process in the layout of [`Type::UserSymbol`].
pub(super) fn user_symbol(body: &mut Body<'_, '_>, address: &Value, span: Span) -> Value {
    let ty = Ty::Plain(Type::UserSymbol);
    let to = body.alloc(ty.size_bytes());
    let mark = body.mark();
    let src = body.reg(address);
    body.emit(Op::Store { at: to.at, src, size_bytes: 8 });
    let pid = number(body, Builtin::Pid, span);
    let src = body.reg(&pid);
    body.emit(Op::Store { at: to.at + 8, src, size_bytes: 8 });
    body.release_regs(mark);
    Value::new(ty, At::Slot(to), span)
}

fn retval(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    match body.variant.kind() {
        PointKind::Uretprobe { .. } | PointKind::Kretprobe { .. } => {
            let space = Some(body.variant.space());
            Ok(Value { space, ..number(body, Builtin::Retval, span) })
        }
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uprobe { .. }
        | PointKind::Tracepoint { .. }
        | PointKind::Kprobe { .. }
        | PointKind::Interval { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. }
        | PointKind::Watchpoint { .. } => Err(only(body, "retval", "uretprobe and kretprobe", span)),
    }
}

fn only(body: &Body<'_, '_>, what: &str, kinds: &str, span: Span) -> Diagnostic {
    let name = body.variant.points[0].name.split(':').next().unwrap_or("").to_string();
    Diagnostic::error(span, format!("`{what}` has no value in `{name}`"))
        .help(format!("it can be used in {kinds}"))
}

/// The 0 of `arg0`.
pub(crate) fn arg_index(name: &str) -> Option<u8> {
    name.strip_prefix("arg").filter(|digits| digits.len() <= 2)?.parse().ok().filter(|index| *index < 64)
}

/// `arg0`, `sarg0`.
pub(super) fn numbered(body: &mut Body<'_, '_>, name: &str, span: Span) -> Option<Lowered<Value>> {
    if let Some(index) = arg_index(name) {
        return Some(arg(body, index, span));
    }
    name.strip_prefix('s').and_then(arg_index).map(|index| stack_arg(body, index, span))
}

fn arg(body: &mut Body<'_, '_>, index: u8, span: Span) -> Lowered<Value> {
    let refuse = |message: String| Err(Diagnostic::error(span, message));
    let point = body.variant.points[0].name.clone();
    let n_args = body.variant.args.len();
    match body.variant.kind() {
        PointKind::Usdt { .. } | PointKind::UsdtLater(_) => {
            if usize::from(index) >= n_args {
                return refuse(match n_args {
                    0 => format!("`{point}` has no arguments"),
                    1 => format!("`{point}` has one argument, arg0"),
                    _ => format!("`{point}` has {n_args} arguments, arg0 to arg{}", n_args - 1),
                });
            }
        }
        PointKind::Uprobe { .. } | PointKind::Kprobe { .. } => {
            if index >= N_REGISTER_ARGS {
                let further = index - N_REGISTER_ARGS;
                return refuse(format!("only arg0 to arg{} are in registers", N_REGISTER_ARGS - 1))
                    .map_err(|error| error.help(format!("further ones are on the stack: `sarg{further}`")));
            }
        }
        PointKind::Tracepoint { .. } => {
            return Err(only(body, &format!("arg{index}"), "usdt, uprobe and kprobe", span)
                .help("fields of a tracepoint have names: `args.name`"));
        }
        PointKind::Uretprobe { .. } | PointKind::Kretprobe { .. } => {
            return Err(only(body, &format!("arg{index}"), "usdt, uprobe and kprobe", span)
                .help("keep it in a map at the entry: `@arg[tid] = arg0`; what is returned is `retval`"));
        }
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Interval { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. }
        | PointKind::Watchpoint { .. } => {
            return Err(only(body, &format!("arg{index}"), "usdt, uprobe and kprobe", span));
        }
    }
    // Addresses are numbers here: what they lead to is asked for with str() and the like.
    let ty = match body.arg_shape(index) {
        Some(crate::catalog::ArgType::Int { size_bytes, is_signed }) => {
            Ty::Int { size_bytes: size_bytes.max(1), is_signed }
        }
        Some(crate::catalog::ArgType::Float) => Ty::Plain(Type::Float),
        Some(crate::catalog::ArgType::Enum { labels }) => Ty::Plain(Type::Enum { labels }),
        _ => Ty::U64,
    };
    let space = Some(body.variant.space());
    let dst = body.temp();
    body.emit(Op::Arg { dst, index });
    Ok(Value { ty, at: At::Reg(dst), space, span })
}

/// Above the return address at a function's entry.
fn stack_arg(body: &mut Body<'_, '_>, index: u8, span: Span) -> Lowered<Value> {
    let space = match body.variant.kind() {
        PointKind::Uprobe { .. } => Space::User,
        PointKind::Kprobe { .. } => Space::Kernel,
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uretprobe { .. }
        | PointKind::Tracepoint { .. }
        | PointKind::Kretprobe { .. }
        | PointKind::Interval { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. }
        | PointKind::Watchpoint { .. } => {
            return Err(only(body, &format!("sarg{index}"), "uprobe and kprobe", span));
        }
    };
    let mark = body.mark();
    let base = body.temp();
    body.emit(Op::Register { dst: base, index: STACK_POINTER });
    let address = body.address(base, 8 * (i64::from(index) + 1));
    let to: Slot = body.alloc(8);
    body.emit(Op::Read { to, address, space });
    body.release(mark);
    let dst = body.temp();
    body.emit(Op::Load { dst, at: to.at, size_bytes: 8, is_signed: false });
    Ok(Value { ty: Ty::U64, at: At::Reg(dst), space: Some(space), span })
}

fn reg(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let name = body.literal_text(call.name, &call.args[0])?;
    let known = REGISTERS.iter().flat_map(|names| names.iter().copied());
    let Some(index) = REGISTERS.iter().position(|names| names.contains(&name.as_str())) else {
        let help = match nearest(&name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("registers are {}", REGISTERS.map(|names| names[0]).join(", ")),
        };
        return Err(Diagnostic::error(call.args[0].span, format!("there is no register `{name}`")).help(help));
    };
    match body.variant.kind() {
        PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uprobe { .. }
        | PointKind::Uretprobe { .. }
        | PointKind::Kprobe { .. }
        | PointKind::Kretprobe { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. }
        | PointKind::Watchpoint { .. } => {}
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Tracepoint { .. }
        | PointKind::Interval { .. } => {
            return Err(only(
                body,
                "reg",
                "usdt, uprobe, uretprobe, kprobe, kretprobe, profile and software",
                call.span,
            ));
        }
    }
    let dst = body.temp();
    body.emit(Op::Register { dst, index: index as u8 });
    Ok(Value { ty: Ty::U64, at: At::Reg(dst), space: Some(body.variant.space()), span: call.span })
}

/// As a script writes it.
fn kind_name(kind: &PointKind) -> &'static str {
    match kind {
        PointKind::Begin | PointKind::End => "special",
        PointKind::Usdt { .. } | PointKind::UsdtLater(_) => "usdt",
        PointKind::Uprobe { .. } => "uprobe",
        PointKind::Uretprobe { .. } => "uretprobe",
        PointKind::Tracepoint { .. } => "tracepoint",
        PointKind::Kprobe { .. } => "kprobe",
        PointKind::Kretprobe { .. } => "kretprobe",
        PointKind::Interval { .. } => "interval",
        PointKind::Profile { .. } => "profile",
        PointKind::Software { .. } => "software",
        PointKind::Hardware { .. } => "hardware",
        PointKind::Watchpoint { .. } => "watchpoint",
        PointKind::Signal => "self",
        PointKind::Bench { .. } => "bench",
    }
}
