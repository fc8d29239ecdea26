//! ustack, kstack: where the thread is.

use super::{Builtin as Variable, Call, Function};
use crate::ast::ExprKind;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::{At, Ty, Value};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::Op;
use nopal_program::{StackForm, Type};

const MAX_FRAMES: i64 = 127;

pub(super) const VARIABLES: &[Variable] = &[
    Variable {
        name: "ustack",
        doc: "Stack of the program.",
        lower: |body, span| Ok(stack(body, true, body.shared.script.stack_form, None, span)),
    },
    Variable {
        name: "kstack",
        doc: "Stack of the kernel.",
        lower: |body, span| Ok(stack(body, false, body.shared.script.stack_form, None, span)),
    },
];

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "ustack",
        signature: "ustack(), ustack(frames), ustack(form, frames)",
        doc: "Stack of the program, at most so many frames. `perf` shows address, function and file, `raw` the address alone, `build_id` the file's build id and the place in it.",
        n_args: 0..=2,
        lower: |body, call| limited(body, call, true),
    },
    Function {
        name: "dw_ustack",
        signature: "dw_ustack(), dw_ustack(frames), dw_ustack(form, frames)",
        doc: "Stack of the program by its unwind tables, as `ustack` has it wherever nopal takes the stack.",
        n_args: 0..=2,
        lower: |body, call| {
            match body.shared.script.options.has_kernel_stacks {
            true => Err(Diagnostic::error(call.span, "dw_ustack requires a target process")
                .help("name it with -p or start it with -c; of all processes the kernel takes stacks, by frame pointers (`ustack`)")),
            false => limited(body, call, true),
        }
        },
    },
    Function {
        name: "kstack",
        signature: "kstack(), kstack(frames), kstack(form, frames)",
        doc: "Stack of the kernel, in the same forms.",
        n_args: 0..=2,
        lower: |body, call| limited(body, call, false),
    },
];

fn limited(body: &mut Body<'_, '_>, call: &Call<'_>, is_user: bool) -> Lowered<Value> {
    let (mut max_frames, mut form) = (None, body.shared.script.stack_form);
    for (index, arg) in call.args.iter().enumerate() {
        match &arg.kind {
            ExprKind::Name(name) if index == 0 => {
                form = match name.as_str() {
                    "bpftrace" => StackForm::Bpftrace,
                    "perf" => StackForm::Perf,
                    "raw" => StackForm::Raw,
                    "build_id" if is_user => StackForm::BuildId,
                    "build_id" => {
                        let message = "'build_id' stack mode can only be used for ustack";
                        return Err(Diagnostic::error(arg.span, message));
                    }
                    _ => {
                        return Err(Diagnostic::error(
                            arg.span,
                            format!("stacks in the form `{name}` are not supported"),
                        )
                        .help("the forms are `bpftrace`, `perf`, `raw` and `build_id`"));
                    }
                }
            }
            _ => {
                let frames = body.number(arg)?.constant();
                match frames {
                    Some(frames) if (1..=MAX_FRAMES).contains(&frames) => max_frames = Some(frames as u32),
                    _ => {
                        let message = format!("the number of frames is a constant from 1 to {MAX_FRAMES}");
                        return Err(Diagnostic::error(arg.span, message));
                    }
                }
            }
        }
    }
    Ok(stack(body, is_user, form, max_frames, call.span))
}

fn stack(
    body: &mut Body<'_, '_>,
    is_user: bool,
    form: StackForm,
    max_frames: Option<u32>,
    span: Span,
) -> Value {
    let max_frames = max_frames.unwrap_or(body.shared.script.limits.stack_frames);
    let ty = Ty::Plain(match is_user {
        true => Type::UserStack { max_frames, form },
        false => Type::KernelStack { max_frames, form },
    });
    let to = body.alloc(ty.size_bytes());
    body.emit(if is_user { Op::UserStack { to } } else { Op::KernelStack { to } });
    Value::new(ty, At::Slot(to), span)
}
