//! The functions and variables of the language, one file for each group. A file has a table of what it brings (how it is
//! written, what it does, how many arguments it takes, and the code it becomes) and its cases in a `.cases` file.

mod aggregates;
mod labels;
mod maps;
mod memory;
mod network;
mod output;
mod probe;
mod process;
mod stacks;
mod text;
mod time;

use crate::ast::Expr;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::Value;
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::aggregate::Aggregate;
use std::ops::RangeInclusive;

pub(crate) use aggregates::{aggregate, is_aggregate};
pub(crate) use probe::arg_index;

/// `name(...)`.
pub(crate) struct Function {
    pub name: &'static str,
    /// As the reference has it.
    pub signature: &'static str,
    pub doc: &'static str,
    pub n_args: RangeInclusive<usize>,
    pub lower: fn(&mut Body<'_, '_>, &Call<'_>) -> Lowered<Value>,
}

/// `name`.
pub(crate) struct Builtin {
    pub name: &'static str,
    pub doc: &'static str,
    pub lower: fn(&mut Body<'_, '_>, Span) -> Lowered<Value>,
}

#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub name: &'a str,
    pub args: &'a [Expr],
    pub span: Span,
}

/// An aggregate: only in `@map = name(...)`.
pub(crate) struct AggregateFunction {
    pub name: &'static str,
    pub signature: &'static str,
    pub doc: &'static str,
    pub n_args: RangeInclusive<usize>,
    pub make: fn(&mut Body<'_, '_>, &Call<'_>) -> Lowered<(Aggregate, Value)>,
}

pub(crate) fn functions() -> impl Iterator<Item = &'static Function> {
    [maps::FUNCTIONS, memory::FUNCTIONS, network::FUNCTIONS, output::FUNCTIONS, probe::FUNCTIONS]
        .into_iter()
        .chain([process::FUNCTIONS, stacks::FUNCTIONS, text::FUNCTIONS, time::FUNCTIONS])
        .flatten()
}

pub(crate) fn variables() -> impl Iterator<Item = &'static Builtin> {
    [network::VARIABLES, probe::VARIABLES, process::VARIABLES, stacks::VARIABLES, time::VARIABLES]
        .into_iter()
        .flatten()
}

pub(crate) fn variable_names() -> impl Iterator<Item = &'static str> {
    variables().map(|variable| variable.name)
}

/// What the language has to offer: how it is written and what it does, in the order of the alphabet. For help texts.
pub fn reference() -> Vec<(&'static str, &'static str)> {
    let numbered =
        [("arg0, arg1...", "Arguments of the point."), ("sarg0, sarg1...", "Arguments on the stack.")];
    let mut entries: Vec<(&str, &str)> = functions()
        .map(|function| (function.signature, function.doc))
        .chain(variables().map(|variable| (variable.name, variable.doc)))
        .chain(aggregates::FUNCTIONS.iter().map(|function| (function.signature, function.doc)))
        .chain(numbered)
        .chain([(
            "tseries(n, interval, intervals), tseries(n, interval, intervals, \"avg\")",
            "The values by the interval of time in which they came, drawn as a curve: the last of each, or `avg`, `max`, `min`, `sum` of them.",
        )])
        .collect();
    entries.sort_unstable();
    entries
}

pub(crate) fn has_function(name: &str) -> bool {
    functions().any(|function| function.name == name)
}

/// The function that makes a map one of time series.
pub(crate) const SERIES: &str = "tseries";

/// What bpftrace has and this has not.
const LEFT_OUT_FUNCTIONS: [&str; 9] = [
    "signal",
    "override",
    "skboutput",
    "path",
    "unwatch",
    "socket_cookie",
    "percpu_kaddr",
    "is_ptr",
    "kfunc_exist",
];
/// The code of a call.
pub(crate) fn call(
    body: &mut Body<'_, '_>,
    name: &str,
    name_span: Span,
    args: &[Expr],
    span: Span,
) -> Lowered<Value> {
    if is_aggregate(name) || name == SERIES {
        return Err(Diagnostic::error(span, format!("`{name}` can only be assigned to a map"))
            .help(format!("write `@name = {name}(...)`")));
    }
    // `cpu()` is `cpu`.
    if args.is_empty()
        && !functions().any(|function| function.name == name)
        && let Some(variable) = variables().find(|variable| variable.name == written(name))
    {
        return (variable.lower)(body, span);
    }
    let Some(function) = functions().find(|function| function.name == name) else {
        return Err(no_function(name, name_span));
    };
    let call = Call { name: function.name, args, span };
    check_count(&call, &function.n_args, function.signature)?;
    (function.lower)(body, &call)
}

/// A builtin by either of its names: bpftrace calls `cpu` `__builtin_cpu`, too.
fn written(name: &str) -> &str {
    name.strip_prefix("__builtin_").unwrap_or(name)
}

fn check_count(call: &Call<'_>, n_args: &RangeInclusive<usize>, signature: &str) -> Lowered<()> {
    if n_args.contains(&call.args.len()) {
        return Ok(());
    }
    let what = if call.args.len() < *n_args.start() { "few" } else { "many" };
    Err(Diagnostic::error(call.span, format!("too {what} arguments for `{}`", call.name))
        .help(format!("it is used as `{signature}`")))
}

fn no_function(name: &str, span: Span) -> Diagnostic {
    if LEFT_OUT_FUNCTIONS.contains(&name) {
        return Diagnostic::error(span, format!("the function `{name}` is not supported"));
    }
    let message = format!("there is no function `{name}`");
    let known = functions().map(|function| function.name).chain(aggregates::names()).chain([SERIES]);
    match nearest(name, known) {
        Some(near) => Diagnostic::error(span, message).help(format!("did you mean `{near}`?")),
        None if variables().any(|variable| variable.name == name) => {
            Diagnostic::error(span, message).help(format!("`{name}` is written without parentheses"))
        }
        None => Diagnostic::error(span, message),
    }
}

/// The code of a builtin variable, if there is one of that name.
pub(crate) fn variable(body: &mut Body<'_, '_>, name: &str, span: Span) -> Option<Lowered<Value>> {
    if let Some(variable) = variables().find(|variable| variable.name == written(name)) {
        return Some((variable.lower)(body, span));
    }
    if let Some(value) = probe::numbered(body, name, span) {
        return Some(value);
    }
    if functions().any(|function| function.name == name) || is_aggregate(name) {
        return Some(Err(
            Diagnostic::error(span, format!("`{name}` is a function")).help(format!("write `{name}(...)`"))
        ));
    }
    None
}
