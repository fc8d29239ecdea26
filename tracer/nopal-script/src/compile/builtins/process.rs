//! pid, tid, uid, gid, username, comm, cpu, cgroup, curtask, rand, cpid: who is here.

use super::{Builtin as Variable, Function};
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Type;
use nopal_program::op::{Builtin, Op, Space};

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
    Variable {
        name: "curtask",
        doc: "Address of the kernel's task_struct.",
        lower: |body, span| Ok(Value { space: Some(Space::Kernel), ..number(body, Builtin::Curtask, span) }),
    },
    Variable {
        name: "rand",
        doc: "A random number.",
        lower: |body, span| Ok(number(body, Builtin::Rand, span)),
    },
    Variable { name: "cpid", doc: "The process started for the script.", lower: cpid },
];

pub(super) const FUNCTIONS: &[Function] = &[Function {
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
}];

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
