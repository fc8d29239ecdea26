//! pid, tid, uid, gid, username, comm, cpu, cgroup, curtask, rand, cpid: who is here.

use super::{Builtin as Variable, Call, Function};
use crate::ast::ExprKind;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::{Builtin, Op, Space};
use nopal_program::{Look, Type};

const COMM_BYTES: u32 = 16;

pub(super) const VARIABLES: &[Variable] = &[
    Variable { name: "pid", doc: "Process.", lower: |body, span| Ok(number(body, Builtin::Pid, span)) },
    Variable { name: "tid", doc: "Thread.", lower: |body, span| Ok(number(body, Builtin::Tid, span)) },
    Variable { name: "uid", doc: "User.", lower: |body, span| Ok(number(body, Builtin::Uid, span)) },
    Variable { name: "gid", doc: "Group.", lower: |body, span| Ok(number(body, Builtin::Gid, span)) },
    Variable {
        name: "username",
        doc: "Name of the user.",
        lower: |body, span| Ok(Value { ty: Ty::Plain(Type::Username), ..number(body, Builtin::Uid, span) }),
    },
    Variable { name: "comm", doc: "Name of the thread.", lower: comm },
    Variable { name: "cpu", doc: "CPU.", lower: |body, span| Ok(number(body, Builtin::Cpu, span)) },
    Variable {
        name: "cgroup",
        doc: "Number of the thread's cgroup.",
        lower: |body, span| Ok(number(body, Builtin::Cgroup, span)),
    },
    Variable { name: "curtask", doc: "Address of the kernel's task_struct.", lower: curtask },
    Variable {
        name: "rand",
        doc: "A random number.",
        lower: |body, span| Ok(number(body, Builtin::Rand, span)),
    },
    Variable {
        name: "ncpus",
        doc: "Number of CPUs there can be.",
        lower: |body, span| Ok(Value::new(Ty::U64, At::Const(i64::from(body.shared.catalog.n_cpus())), span)),
    },
    Variable {
        name: "numaid",
        doc: "Node of memory that the CPU belongs to.",
        lower: |body, span| Ok(number(body, Builtin::NumaNode, span)),
    },
    Variable { name: "cpid", doc: "The process started for the script.", lower: cpid },
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "pid",
        signature: "pid(), pid(curr_ns), pid(init)",
        doc: "As `pid`; `init` is the number that the whole machine knows it by.",
        n_args: 0..=1,
        lower: |body, call| in_namespace(body, call, Builtin::Pid),
    },
    Function {
        name: "tid",
        signature: "tid(), tid(curr_ns), tid(init)",
        doc: "As `tid`; `init` is the number that the whole machine knows it by.",
        n_args: 0..=1,
        lower: |body, call| in_namespace(body, call, Builtin::Tid),
    },
    Function {
        name: "comm",
        signature: "comm()",
        doc: "As `comm`.",
        n_args: 0..=0,
        lower: |body, call| comm(body, call.span),
    },
    Function {
        name: "getopt",
        signature: "getopt(\"name\", default, \"description\")",
        doc: "The value of `--name` behind `--` on the command line: a string, a number or a boolean, as the default is.",
        n_args: 1..=3,
        lower: getopt,
    },
    Function {
        name: "cgroup_path",
        signature: "cgroup_path(number), cgroup_path(number, \"hierarchies\")",
        doc: "Where a control group is, looked up when it is shown; of the hierarchies that match a wildcard, `unified` is that of version 2.",
        n_args: 1..=2,
        lower: cgroup_path,
    },
    Function {
        name: "cgroupid",
        signature: "cgroupid(\"path\")",
        doc: "Number of the cgroup at a path, to be compared with `cgroup`.",
        n_args: 1..=1,
        lower: |body, call| {
            let path = body.literal_text(call.name, &call.args[0])?;
            match body.shared.catalog.cgroup_id(&path) {
                Some(id) => Ok(Value::new(Ty::U64, At::Const(id as i64), call.span)),
                None => Err(Diagnostic::error(call.args[0].span, format!("there is no cgroup at `{path}`"))),
            }
        },
    },
];

/// `pid(init)`: the same as `pid`, unless this is a container.
fn in_namespace(body: &mut Body<'_, '_>, call: &Call<'_>, what: Builtin) -> Lowered<Value> {
    let name = match call.args.first().map(|arg| &arg.kind) {
        None => "curr_ns",
        Some(ExprKind::Name(name)) => name.as_str(),
        Some(_) => "",
    };
    match name {
        "curr_ns" => Ok(number(body, what, call.span)),
        "init" if body.shared.catalog.has_initial_pids() => Ok(number(body, what, call.span)),
        "init" => Err(Diagnostic::error(call.span, "numbers of the whole machine are not known here")
            .help(format!("write `{0}`, or run the script outside of the container", call.name))),
        _ => Err(Diagnostic::error(call.span, "this is not a namespace of processes")
            .help(format!("write `{0}(curr_ns)` or `{0}(init)`", call.name))),
    }
}

/// `cgroup_path(number, "hierarchies")`.
fn cgroup_path(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let filter = match call.args.get(1) {
        Some(arg) => body.literal_text(call.name, arg)?,
        None => "*".to_owned(),
    };
    let id = body.number(&call.args[0])?;
    Ok(Value { ty: Ty::Plain(Type::CgroupPath { filter }), space: None, span: call.span, ..id })
}

/// What stands behind `--name` is known when the script is compiled.
fn getopt(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let name = body.literal_text(call.name, &call.args[0])?;
    let named = body.shared.script.options.named.clone();
    let (mut is_given, mut given) = (false, None);
    for word in &named {
        let Some(rest) = word.strip_prefix("--").and_then(|word| word.strip_prefix(name.as_str())) else {
            continue;
        };
        if let Some(value) = rest.strip_prefix('=') {
            (is_given, given) = (true, Some(value.to_owned()));
        } else if rest.is_empty() {
            (is_given, given) = (true, None);
        }
    }
    let look = body.look();
    let wrong = |value: &str, what: &str| {
        if look == Look::New {
            let what = if what == "a number" { "invalid integer" } else { "invalid boolean" };
            let message = format!("program command line option --{name} {what} (value: {value})");
            return Diagnostic::error(Span::default(), message);
        }
        Diagnostic::error(call.span, format!("`--{name}` is {what}, not `{value}`"))
    };
    let truth = |is_true: bool| Ok(Value::new(Ty::BOOL, At::Const(i64::from(is_true)), call.span));
    let boolean = |value: Option<&str>| match value.map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "1") => truth(true),
        Some("false" | "0") => truth(false),
        Some(_) => Err(wrong(value.unwrap_or_default(), "true or false")),
    };
    let Some(default) = call.args.get(1) else {
        return if is_given { boolean(given.as_deref()) } else { truth(false) };
    };
    match &default.kind {
        ExprKind::Name(word) if word == "true" || word == "false" => match is_given {
            true => boolean(given.as_deref()),
            false => boolean(Some(word)),
        },
        ExprKind::Str(text) => match given {
            Some(value) => Ok(body.literal(value.as_bytes(), call.span)),
            None => Ok(body.literal(text, call.span)),
        },
        _ => {
            let fallback = body.number(default)?;
            let Some(text) = given else {
                return match is_given {
                    true => Err(wrong("", "a number")),
                    false => Ok(fallback),
                };
            };
            let (is_negative, digits) = match text.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, text.as_str()),
            };
            match crate::number::parse_number(digits) {
                Some(Ok(value)) if is_negative => Ok(Value::number((value as i64).wrapping_neg(), call.span)),
                Some(Ok(value)) => {
                    let ty = if value > i64::MAX as u64 { Ty::U64 } else { Ty::I64 };
                    Ok(Value::new(ty, At::Const(value as i64), call.span))
                }
                _ => Err(wrong(&text, "a number")),
            }
        }
    }
}

/// In newer releases it is a pointer.
fn curtask(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    let value = Value { space: Some(Space::Kernel), ..number(body, Builtin::Curtask, span) };
    let pointer = || Ty::Pointer { to: CType::Record("struct task_struct".to_owned()), space: Space::Kernel };
    Ok(match body.look() {
        Look::Old => value,
        Look::New => Value { ty: pointer(), ..value },
    })
}

pub(super) fn number(body: &mut Body<'_, '_>, what: Builtin, span: Span) -> Value {
    let dst = body.temp();
    body.emit(Op::Builtin { dst, what });
    Value::new(Ty::U64, At::Reg(dst), span)
}

fn comm(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    let to = body.alloc(COMM_BYTES);
    body.emit(Op::Comm { to });
    Ok(Value::new(Ty::str(COMM_BYTES), At::Slot(to), span))
}

fn cpid(body: &mut Body<'_, '_>, span: Span) -> Lowered<Value> {
    match body.shared.catalog.child_pid() {
        Some(pid) => Ok(Value::new(Ty::U64, At::Const(i64::from(pid)), span)),
        None => Err(Diagnostic::error(span, "`cpid` has no value: no process is started for the script")
            .help("start one with `-- COMMAND`; a process that runs already is `pid`")),
    }
}
