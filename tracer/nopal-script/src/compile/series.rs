//! `@name = tseries(...)`: each hit hands over its time, its value and its key; the tracer keeps what comes of them.

use super::Lowered;
use super::body::Body;
use super::maps::Held;
use super::types::Value;
use crate::ast::{Expr, ExprKind, MapRef};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Action;
use nopal_program::op::{Builtin, Op};
use nopal_program::series::{How, Series};

/// bpftrace's limit too.
const MAX_INTERVALS: i64 = 1_000_000;

impl Body<'_, '_> {
    pub(super) fn assign_series(
        &mut self,
        map: &MapRef,
        args: &[Expr],
        call: Span,
        span: Span,
    ) -> Lowered<()> {
        if !(3..=4).contains(&args.len()) {
            let message = format!("`tseries` takes 3 or 4 arguments, {} are given", args.len());
            return Err(Diagnostic::error(call, message)
                .help("tseries(value, interval, intervals), tseries(value, interval, intervals, \"avg\")"));
        }
        let interval_ns = self.constant_from(&args[1], 1, i64::MAX, "the interval of a time series")?;
        let n = self.constant_from(&args[2], 1, MAX_INTERVALS - 1, "the number of intervals")?;
        let how = args.get(3).map_or(Ok(How::Last), how)?;
        let start = self.frame_top();
        let given = self.shared.script.options.time_map.clone();
        self.time_of_series(given.as_deref(), call)?;
        let to = self.alloc(8);
        let mark = self.mark();
        let value = self.number(&args[0])?;
        let value = self.signed_of_function(&args[0], value);
        let src = self.reg(&value);
        self.emit(Op::Store { at: to.at, src, size_bytes: 8 });
        self.release_regs(mark);
        let id = self.shared.maps.id(&map.name);
        let series = Series {
            interval_ns: interval_ns as u64,
            n: n as u32,
            how,
            is_signed: value.ty.is_signed(),
            is_given_time: given.is_some(),
        };
        self.shared.maps.learn_value(id, Held::Series(series), span)?;
        self.key_of(id, &map.keys, map.span)?;
        let payload = self.payload_since(start);
        let action = self.action(Action::TakeSeries { map: id as u32 });
        self.emit(Op::Emit { action, payload });
        Ok(())
    }

    /// When the hit was, or what the script keeps instead.
    fn time_of_series(&mut self, given: Option<&str>, span: Span) -> Lowered<()> {
        let to = self.alloc(8);
        let mark = self.mark();
        let src = match given {
            None => {
                let dst = self.temp();
                self.emit(Op::Builtin { dst, what: Builtin::Nsecs });
                dst
            }
            Some(name) => {
                let map = MapRef { name: name.to_owned(), keys: Vec::new(), span };
                let value = self.number(&Expr { kind: ExprKind::Map(map), span, depth: 0 })?;
                self.reg(&value)
            }
        };
        self.emit(Op::Store { at: to.at, src, size_bytes: 8 });
        self.release_regs(mark);
        Ok(())
    }

    fn constant_from(&mut self, expr: &Expr, least: i64, most: i64, what: &str) -> Lowered<i64> {
        let value: Value = self.number(expr)?;
        let constant = value.constant().filter(|constant| (least..=most).contains(constant));
        constant.ok_or_else(|| {
            let bound = if most == i64::MAX { String::new() } else { format!(" and at most {most}") };
            Diagnostic::error(expr.span, format!("{what} is a constant of at least {least}{bound}"))
                .help("such as `tseries(n, 100ms, 20)`")
        })
    }
}

fn how(expr: &Expr) -> Lowered<How> {
    let names = || How::NAMES.map(|(name, _)| format!("\"{name}\"")).join(", ");
    let ExprKind::Str(text) = &expr.kind else {
        return Err(Diagnostic::error(expr.span, format!("one of {} is needed", names())));
    };
    let found = How::NAMES.iter().find(|(name, _)| name.as_bytes() == text);
    found.map(|(_, how)| *how).ok_or_else(|| {
        Diagnostic::error(
            expr.span,
            format!("a time series cannot be gathered by \"{}\"", String::from_utf8_lossy(text)),
        )
        .help(format!("use one of {}, or nothing for the last value", names()))
    })
}
