//! Statements: assignments, branches, loops.

use super::body::{Body, Loop, Width};
use super::maps::Held;
use super::types::{At, Ty, Value};
use super::{Lowered, builtins};
use crate::ast::{BinaryOp, Clause, Expr, ExprKind, MapRef, Stmt, StmtKind, scope};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::PointKind;
use nopal_program::op::{Binary, Builtin, Op, Reg, Slot};

const MAX_UNROLL: i64 = 100;

impl Body<'_, '_> {
    pub(super) fn clause(&mut self, clause: &Clause) {
        let mut refused = Vec::new();
        self.only_named_processes();
        if let Some(predicate) = &clause.predicate {
            let mark = self.mark();
            match self.jump_unless(predicate) {
                Ok(jumps) => refused = jumps,
                Err(error) => self.shared.report(error),
            }
            self.release(mark);
        }
        self.block(&clause.body);
        self.patch(&refused);
    }

    /// Ends a hit of the kernel's points in a process that was not named.
    fn only_named_processes(&mut self) {
        let pids = &self.shared.script.options.only_pids;
        let is_of_everyone = match self.variant.kind() {
            PointKind::Tracepoint { .. }
            | PointKind::Kprobe { .. }
            | PointKind::Kretprobe { .. }
            | PointKind::Profile { .. }
            | PointKind::Software { .. }
            | PointKind::Hardware { .. } => true,
            PointKind::Begin
            | PointKind::End
            | PointKind::Signal
            | PointKind::Bench { .. }
            | PointKind::Usdt { .. }
            | PointKind::UsdtLater(_)
            | PointKind::Uprobe { .. }
            | PointKind::Uretprobe { .. }
            | PointKind::Watchpoint { .. }
            | PointKind::Interval { .. } => false,
        };
        if pids.is_empty() || !is_of_everyone {
            return;
        }
        if !self.shared.catalog.has_initial_pids() {
            let message =
                "hits of every process count here: in this container the kernel's numbers are not known";
            self.shared.report(Diagnostic::warning(self.variant.place.span, message));
            return;
        }
        let mark = self.mark();
        let (pid, is_it) = (self.temp(), self.temp());
        self.emit(Op::Builtin { dst: pid, what: Builtin::Pid });
        let mut found = Vec::new();
        for named in pids.clone() {
            self.emit(Op::BinaryConst { op: Binary::Eq, dst: is_it, a: pid, b: i64::from(named) });
            found.push(self.jump(Op::JumpIf { condition: is_it, to: 0 }));
        }
        self.emit(Op::Return);
        self.patch(&found);
        self.release(mark);
    }

    /// What is wrong with one statement keeps none of the others from being looked at.
    pub(super) fn block(&mut self, statements: &[Stmt]) {
        for (index, statement) in statements.iter().enumerate() {
            if self.is_too_large() {
                return;
            }
            if index > 0 && leaves(&statements[index - 1]) && !leaves(statement) {
                self.shared.report(Diagnostic::warning(statement.span, "Unreachable statement."));
            }
            let mark = self.mark();
            if let Err(error) = self.statement(statement) {
                self.shared.report(error);
            }
            self.release(mark);
        }
    }

    fn statement(&mut self, statement: &Stmt) -> Lowered<()> {
        let span = statement.span;
        match &statement.kind {
            StmtKind::Expr(expr) => self.discard(expr),
            StmtKind::AssignVar { name, op, value, target } => {
                self.assign_variable(name, *op, value, *target, span)
            }
            StmtKind::AssignMap { map, op, value } => self.assign_map(map, *op, value, span),
            StmtKind::Let { name, declared, value, target } => {
                self.declare(name, declared.as_ref(), value.as_ref(), *target, span)
            }
            StmtKind::If { condition, then, otherwise } => {
                let no = self.jump_unless(condition)?;
                self.block(then);
                if otherwise.is_empty() {
                    self.patch(&no);
                    return Ok(());
                }
                let end = self.jump(Op::Jump { to: 0 });
                self.patch(&no);
                self.block(otherwise);
                self.patch(&[end]);
                Ok(())
            }
            StmtKind::While { condition, body } => {
                let start = self.here();
                let no = self.jump_unless(condition)?;
                self.loops.push(Loop::default());
                self.block(body);
                let jumps = self.loops.pop().unwrap_or_default();
                for jump in &jumps.continues {
                    self.patch_to(*jump, start);
                }
                self.emit(Op::Jump { to: start });
                self.patch(&no);
                self.patch(&jumps.breaks);
                Ok(())
            }
            StmtKind::Unroll { count, body } => self.unroll(count, body),
            StmtKind::ForMap { variable, map, map_span, body } => {
                self.for_map(variable, map, *map_span, body)
            }
            StmtKind::ForRange { variable, from, to, body } => self.for_range(variable, from, to, body),
            StmtKind::SpanEdge { span: of, is_end, keys } => self.span_edge(*of, *is_end, keys, span),
            StmtKind::Block(body) => {
                self.block(body);
                Ok(())
            }
            StmtKind::Break | StmtKind::Continue => {
                if self.loops.is_empty() {
                    return Err(Diagnostic::error(span, "there is no loop around this"));
                }
                let jump = self.jump(Op::Jump { to: 0 });
                let innermost = self.loops.last_mut().expect("checked");
                match statement.kind {
                    StmtKind::Break => innermost.breaks.push(jump),
                    _ => innermost.continues.push(jump),
                }
                Ok(())
            }
            StmtKind::Return => {
                self.emit(Op::Return);
                Ok(())
            }
        }
    }

    /// An expression as a statement: of a step only the change is wanted.
    fn discard(&mut self, expr: &Expr) -> Lowered<()> {
        if let ExprKind::Step { target, by, .. } = &expr.kind {
            let step = Expr {
                kind: ExprKind::Step {
                    target: target.clone(),
                    by: *by,
                    is_prefix: matches!(target.kind, ExprKind::Var(_)),
                },
                span: expr.span,
                depth: expr.depth,
            };
            return self.expr(&step).map(|_| ());
        }
        let value = self.place(expr)?;
        if matches!(&expr.kind, ExprKind::Call { name, .. } if name == "delete") {
            self.forget_presence();
        }
        let has_effect =
            matches!(&expr.kind, ExprKind::Call { .. } | ExprKind::Ternary { .. } | ExprKind::Block { .. });
        if !has_effect && value.ty != Ty::Unknown {
            self.shared.report(Diagnostic::warning(expr.span, "this value is not used"));
        }
        Ok(())
    }

    // Variables.

    fn assign_variable(
        &mut self,
        name: &str,
        op: Option<BinaryOp>,
        value: &Expr,
        target: Span,
        span: Span,
    ) -> Lowered<()> {
        if self.bindings.iter().any(|(bound, _)| bound == name) {
            return Err(Diagnostic::error(
                target,
                format!("`${}` is the variable of the loop and cannot be changed", scope::written(name)),
            ));
        }
        let start = self.here();
        let is_cast = op.is_none() && matches!(value.kind, ExprKind::Cast { .. });
        let value = match op {
            None => self.whole_value(value)?,
            Some(op) => {
                let mark = self.mark();
                let old =
                    self.expr(&Expr { kind: ExprKind::Var(name.to_string()), span: target, depth: 1 })?;
                let old = self.guarded(old, value);
                let new = self.expr(value)?;
                self.combine(op, old, new, mark, span)?
            }
        };
        let width = Width::of(&value.ty).filter(|_| is_cast);
        self.store_variable(name, &value, width, target, start)?;
        if is_cast {
            self.takes_width(name, &value.ty);
        }
        Ok(())
    }

    /// A value that can be kept.
    pub(super) fn whole_value(&mut self, expr: &Expr) -> Lowered<Value> {
        if let ExprKind::Call { name, name_span, .. } = &expr.kind
            && builtins::is_aggregate(name)
        {
            return Err(Diagnostic::error(*name_span, format!("`{name}` can only be assigned to a map"))
                .help(format!("write `@name = {name}(...)`")));
        }
        let value = self.expr(expr)?;
        let value = self.whole(value)?;
        self.check_storable(&value, "a value")?;
        Ok(value)
    }

    pub(super) fn store_variable(
        &mut self,
        name: &str,
        value: &Value,
        width: Option<Width>,
        target: Span,
        start: u32,
    ) -> Lowered<()> {
        let (ty, at) = self.learn_variable(name, value, width, target)?;
        let value = match self.width(name) {
            Some(narrow) if width != Some(narrow) && value.ty.is_number() => self.narrow(value, narrow),
            Some(_) | None => value.clone(),
        };
        let value = &self.fit(value, &ty);
        if !self.assigned.iter().any(|assigned| assigned == name) {
            self.assigned.push(name.to_string());
        }
        match (at, value.at) {
            (At::Reg(dst), At::Reg(src)) if self.retarget(start, src, dst) => {}
            (At::Reg(dst), _) => self.copy_to(dst, value),
            (At::Slot(to), At::Slot(from)) if to.at != from.at => self.emit(Op::Move { to, from }),
            _ => {}
        }
        self.keep_in_memory(name);
        Ok(())
    }

    /// Lets the last operation write to the variable itself, if it alone writes the result.
    fn retarget(&mut self, start: u32, src: Reg, dst: Reg) -> bool {
        let end = self.here();
        let ops = self.ops_since(start);
        let n_writers = ops.iter().filter(|op| written(op) == Some(src)).count();
        let target = |op: &Op| match op {
            Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => Some(*to),
            _ => None,
        };
        let has_jumps = ops.iter().any(|op| target(op).is_some());
        let jumps_to_end = ops.iter().any(|op| target(op) == Some(end));
        // A variable's own register is not taken over: its value is still wanted there.
        let is_temporary = !self.variables.iter().any(|variable| variable.is_in(src));
        if (has_jumps && n_writers != 1) || jumps_to_end || !is_temporary {
            return false;
        }
        let Some(last) = self.last_op() else { return false };
        match written_mut(last) {
            Some(reg) if *reg == src => {
                *reg = dst;
                true
            }
            _ => false,
        }
    }

    /// The type of a value that fits into a register, without its code.
    pub(super) fn type_of(&mut self, expr: &Expr) -> Lowered<Option<Ty>> {
        let (mark, here) = (self.mark(), self.here());
        let ty = self.expr(expr)?.ty;
        self.truncate(here);
        self.release(mark);
        Ok(Some(ty).filter(|ty| ty.is_scalar() && *ty != Ty::Unknown))
    }

    // Maps.

    fn assign_map(&mut self, map: &MapRef, op: Option<BinaryOp>, value: &Expr, span: Span) -> Lowered<()> {
        match op {
            Some(op) => self.change_map(map, op, value, span),
            None => match &value.kind {
                ExprKind::Call { name, args, .. } if name == builtins::SERIES => {
                    self.assign_series(map, args, value.span, span)
                }
                ExprKind::Call { name, args, .. } if builtins::is_aggregate(name) => {
                    let (aggregate, number) = builtins::aggregate(self, name, args, value.span)?;
                    let number = map.keys.iter().fold(number, |number, key| self.guarded(number, key));
                    let number = self.reg(&number);
                    let (id, key) = self.key(map)?;
                    self.shared.maps.learn_value(id, Held::Aggregate(aggregate), span)?;
                    self.emit(Op::Aggregate { map: id as u32, key, value: number });
                    Ok(())
                }
                ExprKind::Block { body, value: Some(last), .. } if matches!(&last.kind, ExprKind::Call { name, .. } if builtins::is_aggregate(name)) =>
                {
                    self.block(body);
                    self.assign_map(map, None, last, span)
                }
                _ => self.store_map(map, value, span),
            },
        }
    }

    fn store_map(&mut self, map: &MapRef, value: &Expr, span: Span) -> Lowered<()> {
        let id = self.shared.maps.id(&map.name);
        let start = self.frame_top();
        let value = self.whole_value(value)?;
        self.shared.maps.learn_value(id, Held::Plain(value.ty.clone()), span)?;
        if value.ty.is_scalar() {
            let value = map.keys.iter().fold(value, |value, key| self.guarded(value, key));
            let src = self.reg(&value);
            let (id, key) = self.key(map)?;
            self.emit(Op::MapStore { map: id as u32, key, src });
            return Ok(());
        }
        let wanted = match &self.shared.maps.get(id).value {
            Some((Held::Plain(ty), _)) => ty.clone(),
            _ => value.ty.clone(),
        };
        let len = wanted.size_bytes();
        let value = self.fit(value, &wanted);
        let from = match value.at {
            At::Slot(slot) if slot.len == len => slot,
            _ => self.put(start, &value, len),
        };
        let (id, key) = self.key(map)?;
        self.emit(Op::MapWrite { map: id as u32, key, from });
        Ok(())
    }

    /// `@x += value`.
    fn change_map(&mut self, map: &MapRef, op: BinaryOp, value: &Expr, span: Span) -> Lowered<()> {
        let new = self.number(value)?;
        let new = map.keys.iter().fold(new, |new, key| self.guarded(new, key));
        let id = self.shared.maps.id(&map.name);
        let (held, size) = self.held_pointer(id, span)?;
        let first = if new.ty.is_signed() { Ty::I64 } else { Ty::U64 };
        self.shared.maps.learn_value(id, Held::Plain(held.unwrap_or(first)), map.span)?;
        if matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            let mark = self.mark();
            let new = match size {
                1 => new,
                _ => self.scaled(&new, size, mark, span),
            };
            let delta = match (op, new.constant()) {
                (BinaryOp::Sub, Some(constant)) => self.reg(&Value::number(constant.wrapping_neg(), span)),
                (BinaryOp::Sub, None) => {
                    let (a, dst) = (self.reg(&new), self.temp());
                    self.emit(Op::Unary { op: nopal_program::op::Unary::Neg, dst, a });
                    dst
                }
                _ => self.reg(&new),
            };
            let (id, key) = self.key(map)?;
            let dst = self.temp();
            self.emit(Op::MapAdd { dst, map: id as u32, key, delta });
            return Ok(());
        }
        let (id, key) = self.key(map)?;
        let ty = match &self.shared.maps.get(id).value {
            Some((Held::Plain(ty), _)) => ty.clone(),
            _ => Ty::I64,
        };
        let mark = self.mark();
        let old = self.result(mark, ty, map.span, |dst| Op::MapLoad { dst, map: id as u32, key });
        let result = self.combine(op, old, new, mark, span)?;
        let src = self.reg(&result);
        self.emit(Op::MapStore { map: id as u32, key, src });
        Ok(())
    }

    /// If a map holds pointers: their type, and the bytes from one element to the next; else 1.
    pub(super) fn held_pointer(&mut self, id: usize, span: Span) -> Lowered<(Option<Ty>, i64)> {
        match self.shared.maps.get(id).value.clone() {
            Some((Held::Plain(ty @ Ty::Pointer { .. }), _)) => {
                let size = self.pointer_step(&ty, span)?;
                Ok((Some(ty), size))
            }
            _ => Ok((None, 1)),
        }
    }

    // Loops.

    fn unroll(&mut self, count: &Expr, body: &[Stmt]) -> Lowered<()> {
        let n = match self.number(count)?.constant() {
            Some(n) if (1..=MAX_UNROLL).contains(&n) => n,
            constant => {
                let message = match constant {
                    Some(n) if n < 1 => "unroll minimum value is 1".to_owned(),
                    Some(_) => format!("unroll maximum value is {MAX_UNROLL}"),
                    None => format!("`unroll` takes a constant from 1 to {MAX_UNROLL}"),
                };
                return Err(Diagnostic::error(count.span, message).help("use `while` for other loops"));
            }
        };
        let mut breaks = Vec::new();
        for _ in 0..n {
            if self.is_too_large() {
                break;
            }
            self.loops.push(Loop::default());
            self.block(body);
            let jumps = self.loops.pop().unwrap_or_default();
            self.patch(&jumps.continues);
            breaks.extend(jumps.breaks);
        }
        self.patch(&breaks);
        Ok(())
    }

    /// Key and value lie one after the other, so that `$kv` is the tuple of both.
    fn for_map(&mut self, variable: &str, map: &str, map_span: Span, body: &[Stmt]) -> Lowered<()> {
        let id = self.shared.maps.id(map);
        let known = self.shared.maps.get(id).clone();
        let Some((held, _)) = known.value else {
            if self.shared.maps.has_changed {
                return Ok(());
            }
            return Err(self.shared.maps.undefined(id, map_span));
        };
        let keys = known.key.map(|(keys, _)| keys).unwrap_or_default();
        let key_ty = match keys.len() {
            0 => {
                return Err(Diagnostic::error(map_span, format!("`{map}` has no keys to go over")));
            }
            1 => keys[0].clone(),
            _ => Ty::Tuple(keys),
        };
        let value_ty = match held {
            Held::Plain(ty) => ty,
            Held::Aggregate(_) => Ty::I64,
            Held::Series(_) => return self.shared.maps.check_readable(id, map_span),
        };
        let key = self.alloc(key_ty.size_bytes());
        let value = self.alloc(value_ty.size_bytes());
        let whole = Slot { at: key.at, len: key.len + value.len };
        let head = self.jump(Op::ForEach { map: id as u32, key, value, end: 0 });
        let bound = Value::new(Ty::Tuple(vec![key_ty, value_ty]), At::Slot(whole), map_span);
        self.bindings.push((variable.to_string(), bound));
        self.loops.push(Loop::default());
        self.block(body);
        let jumps = self.loops.pop().unwrap_or_default();
        self.bindings.pop();
        self.patch(&jumps.continues);
        self.patch(&[head]);
        if !jumps.breaks.is_empty() {
            // Leaving is a jump behind the end, so there is an operation between the two.
            let behind = self.jump(Op::Jump { to: 0 });
            self.patch(&[behind]);
            self.patch(&jumps.breaks);
        }
        Ok(())
    }

    /// `for ($i : from..to)`, without `to` itself.
    fn for_range(&mut self, variable: &str, from: &Expr, to: &Expr, body: &[Stmt]) -> Lowered<()> {
        let counter = self.temp();
        let from = self.number(from)?;
        self.copy_to(counter, &from);
        let to = self.number(to)?;
        let limit = self.temp();
        self.copy_to(limit, &to);
        let span = from.span;
        let start = self.here();
        let mark = self.mark();
        let condition = self.temp();
        self.emit(Op::Binary { op: Binary::LtSigned, dst: condition, a: counter, b: limit });
        let done = self.jump(Op::JumpUnless { condition, to: 0 });
        self.release(mark);
        self.bindings.push((variable.to_string(), Value::new(Ty::I64, At::Reg(counter), span)));
        self.loops.push(Loop::default());
        self.block(body);
        let jumps = self.loops.pop().unwrap_or_default();
        self.bindings.pop();
        self.patch(&jumps.continues);
        self.emit(Op::BinaryConst { op: Binary::Add, dst: counter, a: counter, b: 1 });
        self.emit(Op::Jump { to: start });
        self.patch(&[done]);
        self.patch(&jumps.breaks);
        Ok(())
    }
}

fn written(op: &Op) -> Option<Reg> {
    written_mut(&mut op.clone()).copied()
}

/// The register an operation writes.
fn written_mut(op: &mut Op) -> Option<&mut Reg> {
    match op {
        Op::Const { dst, .. }
        | Op::Copy { dst, .. }
        | Op::Unary { dst, .. }
        | Op::Binary { dst, .. }
        | Op::BinaryConst { dst, .. }
        | Op::Extend { dst, .. }
        | Op::Arg { dst, .. }
        | Op::Field { dst, .. }
        | Op::Builtin { dst, .. }
        | Op::Register { dst, .. }
        | Op::Probe { dst }
        | Op::Load { dst, .. }
        | Op::Readable { dst, .. }
        | Op::FrameAddress { dst, .. }
        | Op::Element { dst, .. }
        | Op::Equal { dst, .. }
        | Op::Strncmp { dst, .. }
        | Op::StrFind { dst, .. }
        | Op::Strlen { dst, .. }
        | Op::MapLoad { dst, .. }
        | Op::MapAdd { dst, .. }
        | Op::MapHas { dst, .. }
        | Op::MapLen { dst, .. } => Some(dst),
        Op::Comm { .. }
        | Op::UserStack { .. }
        | Op::KernelStack { .. }
        | Op::ArgString { .. }
        | Op::ArgBytes { .. }
        | Op::String { .. }
        | Op::Buffer { .. }
        | Op::Read { .. }
        | Op::FieldString { .. }
        | Op::FieldBytes { .. }
        | Op::Store { .. }
        | Op::Zero { .. }
        | Op::Constant { .. }
        | Op::Move { .. }
        | Op::StrConcat { .. }
        | Op::MapRead { .. }
        | Op::MapStore { .. }
        | Op::MapWrite { .. }
        | Op::MapDelete { .. }
        | Op::Aggregate { .. }
        | Op::ForEach { .. }
        | Op::Emit { .. }
        | Op::Jump { .. }
        | Op::JumpIf { .. }
        | Op::JumpUnless { .. }
        | Op::Return => None,
    }
}

/// Whether nothing behind it in its block is run.
fn leaves(statement: &Stmt) -> bool {
    match &statement.kind {
        StmtKind::Return | StmtKind::Break | StmtKind::Continue => true,
        StmtKind::Expr(expr) => matches!(&expr.kind, ExprKind::Call { name, .. } if name == "exit"),
        _ => false,
    }
}
