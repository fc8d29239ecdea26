//! `latency(START, END, KEY)`: one statement for what takes two bodies and two maps.
//!
//! Stands for a body at START that keeps the time under the key, a body at END that takes the difference into a map of
//! quantiles named after the two, and a body at `END` that forgets what never ended.

use super::{Parsed, Parser};
use crate::ast::{BinaryOp, Clause, Expr, ExprKind, MapRef, PointRef, Stmt, StmtKind};
use crate::catalog::PointSpec;
use crate::diagnostic::{Diagnostic, Span};

impl Parser<'_> {
    pub(super) fn latency(&mut self) -> Parsed<()> {
        let (_, word_span) = self.take()?;
        self.expect("(")?;
        let start = self.point_in_list()?;
        let end = self.point_in_list()?;
        let mut keys = Vec::new();
        loop {
            keys.push(self.expression()?);
            if !self.accept(",")? {
                break;
            }
        }
        let span = word_span.to(self.expect(")")?);
        self.accept(";")?;
        if let Some((_, span)) = self.peeked.take() {
            self.lexer.at = span.start as usize;
        }
        let name = self.pair_name(start, end);
        self.expand(&name, start, end, keys, span);
        Ok(())
    }

    /// A point and the comma after it.
    fn point_in_list(&mut self) -> Parsed<PointRef> {
        self.lexer.skip_blank()?;
        let point = self.point(true)?;
        self.lexer.skip_blank()?;
        if !self.lexer.rest().starts_with(',') {
            return Err(Diagnostic::error(point.span, "`latency` needs two probes and a key")
                .help("write `latency(usdt:FILE:PROVIDER:START, usdt:FILE:PROVIDER:END, tid)`"));
        }
        self.lexer.at += 1;
        Ok(point)
    }

    /// `@request_start_to_request_done`.
    fn pair_name(&self, start: PointRef, end: PointRef) -> String {
        let last = |point: PointRef| {
            let spec = &self.script.specs[point.spec];
            let name = spec.parts.last().unwrap_or(&spec.kind);
            let word: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            word.trim_matches('_').to_string()
        };
        let name = format!("@{}_to_{}", last(start), last(end));
        let n_same = self.script.clauses.iter().filter(|clause| assigns(clause, &name)).count();
        if n_same == 0 { name } else { format!("{name}_{}", n_same + 1) }
    }

    fn expand(&mut self, name: &str, start: PointRef, end: PointRef, keys: Vec<Expr>, span: Span) {
        let depth = keys.iter().map(|key| key.depth).max().unwrap_or(0) + 1;
        let expr = |kind| Expr { kind, span, depth };
        let stmt = |kind| Stmt { kind, span };
        let started = MapRef { name: format!("{name}_started"), keys, span };
        let nsecs = || expr(ExprKind::Name("nsecs".into()));
        let call =
            |name: &str, arg| expr(ExprKind::Call { name: name.into(), name_span: span, args: vec![arg] });
        let entry = || expr(ExprKind::Map(started.clone()));
        let difference =
            expr(ExprKind::Binary { op: BinaryOp::Sub, left: Box::new(nsecs()), right: Box::new(entry()) });
        let taken = MapRef { name: name.into(), keys: Vec::new(), span };
        let begin = stmt(StmtKind::AssignMap { map: started.clone(), op: None, value: nsecs() });
        let finish = vec![
            stmt(StmtKind::AssignMap { map: taken, op: None, value: call("quantiles", difference) }),
            stmt(StmtKind::Expr(call("delete", entry()))),
        ];
        let whole = MapRef { keys: Vec::new(), ..started.clone() };
        let forget = stmt(StmtKind::Expr(call("clear", expr(ExprKind::Map(whole)))));
        let at_end = PointRef { spec: self.script.specs.len(), span };
        self.script.specs.push(PointSpec { kind: "END".into(), parts: Vec::new() });
        self.script.clauses.extend([
            Clause { points: vec![start], predicate: None, body: vec![begin] },
            Clause { points: vec![end], predicate: Some(entry()), body: finish },
            Clause { points: vec![at_end], predicate: None, body: vec![forget] },
        ]);
    }
}

fn assigns(clause: &Clause, name: &str) -> bool {
    clause.body.iter().any(|statement| match &statement.kind {
        StmtKind::AssignMap { map, .. } => {
            map.name == name
                || map
                    .name
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('_') && rest[1..].parse::<u32>().is_ok())
        }
        _ => false,
    })
}
