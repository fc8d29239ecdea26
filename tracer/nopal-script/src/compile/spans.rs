//! The two ends of what `latency()` measures: each hands over when it was hit, by whom, and its key.

use super::body::Body;
use super::maps::Held;
use super::{Lowered, Shared};
use crate::ast::Expr;
use crate::diagnostic::Span;
use nopal_program::aggregate::{Aggregate, SPAN_BITS};
use nopal_program::op::{Builtin, Op};
use nopal_program::{Action, SpanDef};

impl Body<'_, '_> {
    pub(super) fn span_edge(&mut self, of: usize, is_end: bool, keys: &[Expr], span: Span) -> Lowered<()> {
        let script = self.shared.script;
        let name = &script.spans[of].map;
        let map = self.shared.maps.id(name);
        self.shared.maps.learn_key(map, &[], span)?;
        let held = Held::Aggregate(Aggregate::Quantiles { bits: SPAN_BITS });
        self.shared.maps.learn_value(map, held, span)?;
        let start = self.frame_top();
        for what in [Builtin::Nsecs, Builtin::Pid, Builtin::Tid] {
            let to = self.alloc(8);
            let mark = self.mark();
            let dst = self.temp();
            self.emit(Op::Builtin { dst, what });
            self.emit(Op::Store { at: to.at, src: dst, size_bytes: 8 });
            self.release_regs(mark);
        }
        // Both ends must have it in the same form.
        let key = self.shared.span_keys.id(name);
        let known = self.shared.span_keys.get(key).key.clone().map(|(known, _)| known).unwrap_or_default();
        let (_, types) = self.key_values(known, keys)?;
        self.shared.span_keys.learn_key(key, &types, span)?;
        let payload = self.payload_since(start);
        let action = self.action(Action::SpanEdge { span: of as u32, is_end });
        self.emit(Op::Emit { action, payload });
        Ok(())
    }
}

impl Shared<'_> {
    /// Those of which neither end is there have no map.
    pub(super) fn spans(&mut self) -> Vec<SpanDef> {
        let script = self.script;
        let define = |span: &crate::ast::DeclaredSpan| SpanDef {
            map: self.maps.id(&span.map) as u32,
            is_by_thread: span.is_by_thread,
        };
        script.spans.iter().map(define).collect()
    }
}
