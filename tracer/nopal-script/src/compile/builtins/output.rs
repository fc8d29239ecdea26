//! printf, print, cat, system, exit: what the tracer does when a body asks for it.

use super::maps::map_arg;
use super::{Call, Function};
use crate::ast::{Expr, ExprKind};
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::maps::Held;
use crate::compile::types::{Ty, Value};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::{Op, Slot};
use nopal_program::rank::Rank;
use nopal_program::{Action, Field, Format, MapValue, MessageOf};

pub(super) const FUNCTIONS: &[Function] = &[
    Function {
        name: "printf",
        signature: "printf(\"format\", values...)",
        doc: "Prints values by a format as that of C.",
        n_args: 1..=64,
        lower: |body, call| formatted(body, call, |format| Action::Printf { format }),
    },
    Function {
        name: "print",
        signature: "print(value), print(@map), print(@map, top, divisor), print(@map, top, divisor, \"rank\"), print(@map[key])",
        doc: "Prints a value, or a map: the last `top` entries, numbers divided by `divisor`. The order is that of the values (see \"Maps in order\"), or by `rank`, always the last argument: `key`, `count`, `sum`, `avg`, `max`, `p50`, `p90`, `p99` or `p99.9`.",
        n_args: 1..=4,
        lower: print,
    },
    Function {
        name: "errorf",
        signature: "errorf(\"format\", values...)",
        doc: "Tells an error on standard error, with its place in the script.",
        n_args: 1..=64,
        lower: |body, call| message(body, call, MessageOf::Error),
    },
    Function {
        name: "warnf",
        signature: "warnf(\"format\", values...)",
        doc: "The same as a warning.",
        n_args: 1..=64,
        lower: |body, call| message(body, call, MessageOf::Warning),
    },
    Function {
        name: "fail",
        signature: "fail(\"format\", constants...)",
        doc: "The script is refused, with this message; for macros, where it is not left out by `if comptime`.",
        n_args: 1..=64,
        lower: fail,
    },
    Function {
        name: "cat",
        signature: "cat(\"format\", values...)",
        doc: "Prints a file, whose name is made as by printf().",
        n_args: 1..=64,
        lower: |body, call| formatted(body, call, |format| Action::Cat { format }),
    },
    Function {
        name: "system",
        signature: "system(\"format\", values...)",
        doc: "Runs a command of the shell, made as by printf(). Needs --unsafe.",
        n_args: 1..=64,
        lower: system,
    },
    Function {
        name: "exit",
        signature: "exit(), exit(code)",
        doc: "Ends the script; nothing after it in the body is run.",
        n_args: 0..=1,
        lower: exit,
    },
];

fn formatted(
    body: &mut Body<'_, '_>,
    call: &Call<'_>,
    action: impl FnOnce(Format) -> Action,
) -> Lowered<Value> {
    let (format, payload) = body.format(call.name, call.args, call.span)?;
    let action = body.action(action(format));
    body.emit(Op::Emit { action, payload });
    Ok(Value::nothing(call.span))
}

fn message(body: &mut Body<'_, '_>, call: &Call<'_>, of: MessageOf) -> Lowered<Value> {
    let (format, payload) = body.format(call.name, call.args, call.span)?;
    let action = body.message(format, of, call.span);
    body.emit(Op::Emit { action, payload });
    Ok(Value::nothing(call.span))
}

/// The format with its constants, as far as they are known.
fn fail(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let mut text = body.literal_text(call.name, &call.args[0])?;
    for arg in &call.args[1..] {
        let Some(at) = text.find('%').filter(|at| at + 1 < text.len()) else { break };
        let shown = match &arg.kind {
            ExprKind::Str(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => body.number(arg)?.constant().map(|n| n.to_string()).unwrap_or_default(),
        };
        let end = text[at + 1..].find(|c: char| c.is_ascii_alphabetic()).map_or(text.len(), |n| at + n + 2);
        text.replace_range(at..end, &shown);
    }
    Err(Diagnostic::error(call.span, text))
}

fn system(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    if !body.shared.script.options.is_unsafe {
        return Err(Diagnostic::error(call.span, "`system` runs commands, which is not allowed")
            .help("allow it with --unsafe"));
    }
    formatted(body, call, |format| Action::System { format })
}

fn exit(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let start = body.frame_top();
    let code = match call.args.first() {
        Some(expr) => Some(body.field(start, expr, |value| {
            if !value.ty.is_number() {
                let message = format!("expected a number, found {}", value.ty.text());
                return Err(Diagnostic::error(value.span, message));
            }
            match value.constant() {
                Some(code) if !(0..256).contains(&code) => {
                    Err(Diagnostic::error(value.span, "an exit code is from 0 to 255"))
                }
                Some(_) | None => Ok(()),
            }
        })?),
        None => None,
    };
    let payload = body.payload_since(start);
    let action = body.action(Action::Exit { code });
    body.emit(Op::Emit { action, payload });
    body.emit(Op::Return);
    Ok(Value::nothing(call.span))
}

fn print(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    if let ExprKind::Map(map) = &call.args[0].kind {
        if map.keys.is_empty() {
            return print_map(body, call);
        }
        if call.args.len() == 1 {
            return print_entry(body, call, &map.name, &map.keys);
        }
    }
    if call.args.len() > 1 {
        return Err(Diagnostic::error(call.span, "only whole maps are printed by rank")
            .help("write `print(@map, top, divisor)` or `print(@map, top, divisor, \"p99\")`"));
    }
    let start = body.frame_top();
    let field = body.field(start, &call.args[0], |_| Ok(()))?;
    let payload = body.payload_since(start);
    let action = body.action(Action::PrintValue { field });
    body.emit(Op::Emit { action, payload });
    Ok(Value::nothing(call.span))
}

fn print_map(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<Value> {
    let id = map_arg(body, call, 0)?;
    let (given, rank) = match call.args.last().map(|expr| (&expr.kind, expr.span)) {
        Some((ExprKind::Str(word), span)) => {
            (&call.args[1..call.args.len() - 1], rank_of(body, id, &String::from_utf8_lossy(word), span)?)
        }
        _ => (&call.args[1..], Rank::Usual),
    };
    if let Some(more) = given.get(2) {
        return Err(Diagnostic::error(more.span, "this must be the order in quotes, such as \"p99\"")
            .help("write `print(@map, top, divisor, \"p99\")`"));
    }
    let mut numbers = [0i64, 0];
    for (number, expr) in numbers.iter_mut().zip(given) {
        *number = match body.number(expr)?.constant() {
            Some(constant) if (0..=i64::from(u32::MAX)).contains(&constant) => constant,
            _ => return Err(Diagnostic::error(expr.span, "this must be a constant that is not negative")),
        };
    }
    let (top, div) = (numbers[0] as u32, numbers[1] as u64);
    let action = body.action(Action::PrintMap { map: id as u32, top, div, rank });
    body.emit(Op::Emit { action, payload: Slot { at: 0, len: 0 } });
    Ok(Value::nothing(call.span))
}

/// The order that a word stands for, if the map's values have it.
fn rank_of(body: &Body<'_, '_>, map: usize, word: &str, span: Span) -> Lowered<Rank> {
    let known = body.shared.maps.get(map);
    let value = known.value.as_ref().map(|(held, _)| match held {
        Held::Plain(ty) => MapValue::Plain(ty.to_type()),
        Held::Aggregate(aggregate) => MapValue::Aggregate(*aggregate),
        Held::Series(series) => MapValue::Series(*series),
    });
    let fits = |rank: Rank| value.as_ref().is_none_or(|value| rank.fits(value));
    match Rank::parse(word) {
        Some(rank) if fits(rank) => Ok(rank),
        rank => {
            let message = match rank {
                Some(_) => format!("`{}` has no {word} to be put in order by", known.name),
                None => format!("maps are not put in order by \"{word}\""),
            };
            let words: Vec<String> = Rank::WORDS
                .iter()
                .filter(|(word, rank)| fits(*rank) && rank.word() == Some(word))
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            Err(Diagnostic::error(span, message).help(format!("it can be {}", words.join(", "))))
        }
    }
}

/// The key, then the value.
fn print_entry(body: &mut Body<'_, '_>, call: &Call<'_>, name: &str, keys: &[Expr]) -> Lowered<Value> {
    let id = body.shared.maps.id(name);
    let start = body.frame_top();
    let key = body.key_of(id, keys, call.args[0].span)?;
    let at = body.frame_top();
    let ty = match body.shared.maps.get(id).value.clone() {
        Some((Held::Plain(ty), _)) => ty,
        // Reading tells what cannot be read; only the type is wanted of it.
        _ => {
            let (mark, here) = (body.mark(), body.here());
            let ty = body.expr(&call.args[0])?.ty;
            body.truncate(here);
            body.release(mark);
            ty
        }
    };
    body.set_frame_top(at);
    let to = body.alloc(ty.size_bytes());
    if ty.is_scalar() || ty == Ty::Unknown {
        let mark = body.mark();
        let dst = body.temp();
        body.emit(Op::MapLoad { dst, map: id as u32, key });
        body.emit(Op::Store { at: to.at, src: dst, size_bytes: 8 });
        body.release_regs(mark);
    } else {
        body.emit(Op::MapRead { to, map: id as u32, key });
    }
    let value = Field { at: to.at.saturating_sub(start), value_type: ty.to_type() };
    let payload = body.payload_since(start);
    let action = body.action(Action::PrintEntry { map: id as u32, key_at: 0, value });
    body.emit(Op::Emit { action, payload });
    Ok(Value::nothing(call.span))
}
