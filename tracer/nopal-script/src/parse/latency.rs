//! `latency(START, END, KEY)`: a span, and the map of quantiles named after its two points that its durations go into.
//!
//! Stands for a body at each of the two that tells the tracer when it was hit, by whom, and with which key. The tracer pairs
//! them as it pairs all spans.

use super::{Parsed, Parser};
use crate::ast::{Clause, DeclaredSpan, Expr, ExprKind, PointRef, Stmt, StmtKind};
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
        self.expand(name, start, end, keys, span);
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
        let is_taken = |name: &str| self.script.spans.iter().any(|span| span.map == name);
        let mut numbered = (2..).map(|n| format!("{name}_{n}"));
        match is_taken(&name) {
            true => numbered.find(|name| !is_taken(name)).unwrap_or(name),
            false => name,
        }
    }

    /// A body at each of the two. That of the end comes first: an event that is both ends one span and begins the next.
    fn expand(&mut self, name: String, start: PointRef, end: PointRef, keys: Vec<Expr>, span: Span) {
        let is_tid = |key: &Expr| matches!(&key.kind, ExprKind::Name(name) if name == "tid");
        let is_by_thread = matches!(&keys[..], [key] if is_tid(key));
        let number = self.script.spans.len();
        // The thread is in every payload.
        let keys = if is_by_thread { Vec::new() } else { keys };
        self.script.spans.push(DeclaredSpan { map: name, is_by_thread });
        for (point, is_end) in [(end, true), (start, false)] {
            let edge = Stmt { kind: StmtKind::SpanEdge { span: number, is_end, keys: keys.clone() }, span };
            self.script.clauses.push(Clause { points: vec![point], predicate: None, body: vec![edge] });
        }
    }
}
