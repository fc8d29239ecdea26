//! count, sum, avg, min, max, stats, hist, lhist, quantiles: what a map gathers.

use super::{AggregateFunction, Call, check_count};
use crate::ast::Expr;
use crate::compile::Lowered;
use crate::compile::body::Body;
use crate::compile::types::Value;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::aggregate::{Aggregate, QUANTILE_BITS, n_lhist_buckets};

/// bpftrace's limit too.
const MAX_LHIST_BUCKETS: u32 = 1002;

pub(super) const FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "count",
        signature: "count()",
        doc: "How often the body came here.",
        n_args: 0..=0,
        make: |_, call| Ok((Aggregate::Count, Value::number(1, call.span))),
    },
    AggregateFunction {
        name: "sum",
        signature: "sum(n)",
        doc: "The sum of the values.",
        n_args: 1..=1,
        make: |body, call| {
            let value = body.number(&call.args[0])?;
            Ok((Aggregate::Sum { is_signed: value.ty.is_signed() }, value))
        },
    },
    AggregateFunction {
        name: "avg",
        signature: "avg(n)",
        doc: "The mean of the values, a whole number.",
        n_args: 1..=1,
        make: |body, call| with_sign(body, call, |is_signed| Aggregate::Avg { is_signed }),
    },
    AggregateFunction {
        name: "min",
        signature: "min(n)",
        doc: "The least value.",
        n_args: 1..=1,
        make: |body, call| with_sign(body, call, |is_signed| Aggregate::Min { is_signed }),
    },
    AggregateFunction {
        name: "max",
        signature: "max(n)",
        doc: "The greatest value.",
        n_args: 1..=1,
        make: |body, call| with_sign(body, call, |is_signed| Aggregate::Max { is_signed }),
    },
    AggregateFunction {
        name: "stats",
        signature: "stats(n)",
        doc: "Number, mean and sum of the values.",
        n_args: 1..=1,
        make: |body, call| with_sign(body, call, |is_signed| Aggregate::Stats { is_signed }),
    },
    AggregateFunction {
        name: "hist",
        signature: "hist(n), hist(n, bits)",
        doc: "A histogram by powers of two, each parted into 2^bits (0 to 5).",
        n_args: 1..=2,
        make: hist,
    },
    AggregateFunction {
        name: "lhist",
        signature: "lhist(n, min, max, step)",
        doc: "A histogram with buckets of one width.",
        n_args: 4..=4,
        make: lhist,
    },
    AggregateFunction {
        name: "quantiles",
        signature: "quantiles(n)",
        doc: "p50, p90, p99, p99.9 and the maximum of the values.",
        n_args: 1..=1,
        make: |body, call| Ok((Aggregate::Quantiles { bits: QUANTILE_BITS }, body.number(&call.args[0])?)),
    },
];

pub(crate) fn is_aggregate(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}

/// The aggregate and the value it is given.
pub(crate) fn aggregate(
    body: &mut Body<'_, '_>,
    name: &str,
    args: &[Expr],
    span: Span,
) -> Lowered<(Aggregate, Value)> {
    let Some(function) = FUNCTIONS.iter().find(|function| function.name == name) else {
        return Err(Diagnostic::error(span, format!("there is no aggregate `{name}`")));
    };
    let call = Call { name: function.name, args, span };
    check_count(&call, &function.n_args, function.signature)?;
    (function.make)(body, &call)
}

fn with_sign(
    body: &mut Body<'_, '_>,
    call: &Call<'_>,
    make: impl FnOnce(bool) -> Aggregate,
) -> Lowered<(Aggregate, Value)> {
    let value = body.number(&call.args[0])?;
    let value = body.signed_of_function(&call.args[0], value);
    Ok((make(value.ty.is_signed()), value))
}

fn constant(body: &mut Body<'_, '_>, call: &Call<'_>, index: usize) -> Lowered<i64> {
    let expr = &call.args[index];
    body.number(expr)?.constant().ok_or_else(|| {
        Diagnostic::error(expr.span, format!("this argument of `{}` must be a constant", call.name))
    })
}

fn hist(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<(Aggregate, Value)> {
    let bits = if call.args.len() == 2 { constant(body, call, 1)? } else { 0 };
    if !(0..=5).contains(&bits) {
        return Err(Diagnostic::error(call.args[1].span, "a histogram has 0 to 5 bits"));
    }
    let value = body.number(&call.args[0])?;
    Ok((Aggregate::Hist { bits: bits as u8 }, value))
}

fn lhist(body: &mut Body<'_, '_>, call: &Call<'_>) -> Lowered<(Aggregate, Value)> {
    let (min, max, step) = (constant(body, call, 1)?, constant(body, call, 2)?, constant(body, call, 3)?);
    if step <= 0 {
        return Err(Diagnostic::error(call.args[3].span, "the step of a histogram must be above 0"));
    }
    if min < 0 {
        return Err(Diagnostic::error(
            call.args[1].span,
            format!("lhist() begins at 0 or above, not at {min}"),
        )
        .help("what is below the minimum is counted in a bucket of its own"));
    }
    if max < min {
        return Err(Diagnostic::error(
            call.span,
            format!("lhist() ends at {max}, below its minimum of {min}"),
        )
        .help("write `lhist(n, min, max, step)`"));
    }
    let n_buckets = (max.wrapping_sub(min) as u64) / step as u64;
    if n_buckets > u64::from(MAX_LHIST_BUCKETS - 2) {
        return Err(Diagnostic::error(call.span, format!("{n_buckets} buckets are too many (1000 are not)"))
            .help("take a larger step"));
    }
    debug_assert!(n_lhist_buckets(min, max, step) <= MAX_LHIST_BUCKETS + 1);
    Ok((Aggregate::Lhist { min, max, step }, body.number(&call.args[0])?))
}
