//! Operators on numbers and strings, conditions, and the folding of constants.

use super::Lowered;
use super::body::Body;
use super::expression::both_signed;
use super::types::{At, Ty, Value};
use crate::ast::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::{Binary, Op, Slot, Unary};
use nopal_program::{Look, MessageOf, Type};

impl Body<'_, '_> {
    pub(super) fn unary(&mut self, op: UnaryOp, operand: &Expr, span: Span) -> Lowered<Value> {
        let op = match op {
            UnaryOp::Deref => return self.deref(operand, span),
            UnaryOp::Neg => Unary::Neg,
            UnaryOp::BitNot => Unary::BitNot,
            UnaryOp::Not => Unary::Not,
        };
        let mark = self.mark();
        let value = self.number(operand)?;
        let ty = match op {
            Unary::Neg => Ty::I64,
            Unary::Not => Ty::BOOL,
            Unary::BitNot => Ty::Int { size_bytes: 8, is_signed: value.ty.is_signed() },
        };
        if let Some(constant) = value.constant() {
            return Ok(Value::new(ty, At::Const(op.apply(constant)), span));
        }
        let a = self.reg(&value);
        Ok(self.result(mark, ty, span, |dst| Op::Unary { op, dst, a }))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr, whole: &Expr) -> Lowered<Value> {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            return self.logical(whole);
        }
        let mark = self.mark();
        let a = self.expr(left)?;
        let a = self.guarded(a, right);
        let b = self.expr(right)?;
        self.combine(op, a, b, mark, whole.span)
    }

    /// The operation on two values, whose registers are given back.
    pub(super) fn combine(
        &mut self,
        op: BinaryOp,
        a: Value,
        b: Value,
        mark: super::body::Mark,
        span: Span,
    ) -> Lowered<Value> {
        if a.ty.is_str() || b.ty.is_str() {
            return self.compare_strings(op, a, b, mark, span);
        }
        if let (Ty::Tuple(left), Ty::Tuple(right)) = (&a.ty, &b.ty) {
            let members = (left.clone(), right.clone());
            return self.compare_tuples(op, &a, &b, members, mark, span);
        }
        if let (Ty::Record(left), Ty::Record(right)) = (&a.ty, &b.ty) {
            let types =
                |members: &[(String, Ty)]| members.iter().map(|(_, ty)| ty.clone()).collect::<Vec<_>>();
            let members = (types(left), types(right));
            return self.compare_tuples(op, &a, &b, members, mark, span);
        }
        let is_buffer = |ty: &Ty| matches!(ty, Ty::Plain(Type::Buffer { .. }));
        if is_buffer(&a.ty) && is_buffer(&b.ty) {
            return self.compare_slots(op, &a, &b, mark, span);
        }
        if matches!(a.ty, Ty::Memory(_) | Ty::Whole { .. })
            && matches!(b.ty, Ty::Memory(_) | Ty::Whole { .. })
        {
            return self.compare_whole(op, a, b, mark, span);
        }
        if !a.ty.is_number() || !b.ty.is_number() {
            let message = format!("`{}` cannot be used with {} and {}", op.text(), a.ty.text(), b.ty.text());
            return Err(Diagnostic::error(span, message));
        }
        if let (Ty::Pointer { .. }, BinaryOp::Add | BinaryOp::Sub) = (&a.ty, op) {
            return self.move_pointer(op, a, b, mark, span);
        }
        let is_signed = both_signed(&a, &b) || op.is_comparison() && is_wider_signed(&a.ty, &b.ty);
        let space = a.space.or(b.space);
        let is_shift = matches!(op, BinaryOp::Shl | BinaryOp::Shr);
        let is_left_signed = a.ty.is_signed();
        self.warn_of_signs(op, &a, &b, span);
        let machine_op = machine(op, if is_shift { is_left_signed } else { is_signed });
        let ty = if op.is_comparison() {
            Ty::BOOL
        } else {
            Ty::Int { size_bytes: 8, is_signed: if is_shift { is_left_signed } else { is_signed } }
        };
        let may_be_zero = b.constant().is_none_or(|divisor| divisor == 0);
        let is_division = matches!(op, BinaryOp::Div | BinaryOp::Rem);
        let mut value = match is_division && may_be_zero && self.look() == Look::New {
            true => self.division(machine_op, &a, &b, ty, mark, span),
            false => self.arithmetic(machine_op, &a, &b, ty, mark, span),
        };
        value.space = if op.is_comparison() { None } else { space };
        Ok(value)
    }

    fn warn_of_signs(&mut self, op: BinaryOp, a: &Value, b: &Value, span: Span) {
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) && b.constant() == Some(0) {
            let result = if op == BinaryOp::Div { "0" } else { "the dividend" };
            self.shared
                .report(Diagnostic::warning(span, "division by zero").label(format!("this gives {result}")));
        }
        let adapts = |value: &Value| value.constant().is_some_and(|constant| constant >= 0);
        let is_ordering = matches!(op, BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge);
        let are_ints = matches!((&a.ty, &b.ty), (Ty::Int { .. }, Ty::Int { .. }));
        let is_mixed = a.ty.is_signed() != b.ty.is_signed() && !is_wider_signed(&a.ty, &b.ty);
        if is_ordering && are_ints && is_mixed && !adapts(a) && !adapts(b) {
            self.shared.report(
                Diagnostic::warning(
                    span,
                    format!("{} and {} are compared as unsigned", a.ty.text(), b.ty.text()),
                )
                .help("cast one of them: `(int64)`"),
            );
        }
    }

    /// As newer releases do it: what is divided by zero gives 1, and a warning.
    fn division(
        &mut self,
        op: Binary,
        a: &Value,
        b: &Value,
        ty: Ty,
        mark: super::body::Mark,
        span: Span,
    ) -> Value {
        let (a, b) = (self.reg(a), self.reg(b));
        let zero = self.jump(Op::JumpUnless { condition: b, to: 0 });
        let quotient = self.temp();
        self.emit(Op::Binary { op, dst: quotient, a, b });
        let end = self.jump(Op::Jump { to: 0 });
        self.patch(&[zero]);
        let text = "Divide or modulo by 0 detected. This can lead to unexpected results. 1 is being used as the result.";
        self.tell(text, MessageOf::Check, span);
        self.emit(Op::Const { dst: quotient, value: 1 });
        self.patch(&[end]);
        self.result(mark, ty, span, |dst| Op::Copy { dst, src: quotient })
    }

    fn arithmetic(
        &mut self,
        op: Binary,
        a: &Value,
        b: &Value,
        ty: Ty,
        mark: super::body::Mark,
        span: Span,
    ) -> Value {
        match (a.constant(), b.constant()) {
            (Some(x), Some(y)) => Value::new(ty, At::Const(op.apply(x, y)), span),
            (None, Some(y)) => {
                let a = self.reg(a);
                self.result(mark, ty, span, |dst| Op::BinaryConst { op, dst, a, b: y })
            }
            (Some(x), None) if swapped(op).is_some() => {
                let op = swapped(op).expect("checked");
                let a = self.reg(b);
                self.result(mark, ty, span, |dst| Op::BinaryConst { op, dst, a, b: x })
            }
            _ => {
                let (a, b) = (self.reg(a), self.reg(b));
                self.result(mark, ty, span, |dst| Op::Binary { op, dst, a, b })
            }
        }
    }

    /// A number of elements in bytes.
    pub(super) fn scaled(&mut self, n: &Value, size: i64, mark: super::body::Mark, span: Span) -> Value {
        self.arithmetic(Binary::Mul, n, &Value::number(size, span), Ty::I64, mark, span)
    }

    /// By whole elements, as in C.
    fn move_pointer(
        &mut self,
        op: BinaryOp,
        a: Value,
        b: Value,
        mark: super::body::Mark,
        span: Span,
    ) -> Lowered<Value> {
        let size_bytes = self.pointer_step(&a.ty, span)?;
        let space = a.space;
        let machine_op = machine(op, false);
        if matches!(b.ty, Ty::Pointer { .. }) {
            if op == BinaryOp::Add {
                return Err(Diagnostic::error(span, "two pointers cannot be added"));
            }
            let apart = self.arithmetic(machine_op, &a, &b, Ty::I64, mark, span);
            let size = Value::number(size_bytes, span);
            return Ok(self.arithmetic(Binary::DivSigned, &apart, &size, Ty::I64, mark, span));
        }
        let inner = self.mark();
        let size = Value::number(size_bytes, span);
        let by = if size_bytes == 1 {
            b
        } else {
            // The pointer's register may be where the product would go, so it has a place above it.
            self.arithmetic(Binary::Mul, &b, &size, Ty::I64, inner, span)
        };
        let ty = a.ty.clone();
        let mut value = self.arithmetic(machine_op, &a, &by, ty, mark, span);
        value.space = space;
        Ok(value)
    }

    /// Bytes from one element to the next.
    pub(super) fn pointer_step(&mut self, ty: &Ty, span: Span) -> Lowered<i64> {
        match ty {
            Ty::Pointer { to: crate::ctype::CType::Void, .. } => Ok(1),
            Ty::Pointer { to, .. } => {
                let to = to.clone();
                self.size_of(&to, span).map(i64::from)
            }
            _ => Ok(1),
        }
    }

    fn compare_strings(
        &mut self,
        op: BinaryOp,
        a: Value,
        b: Value,
        mark: super::body::Mark,
        span: Span,
    ) -> Lowered<Value> {
        let is_text = |ty: &Ty| matches!(ty, Ty::Plain(Type::Str { .. }) | Ty::Unknown);
        if !is_text(&a.ty) || !is_text(&b.ty) {
            let message = format!("`{}` cannot be used with {} and {}", op.text(), a.ty.text(), b.ty.text());
            return Err(Diagnostic::error(span, message));
        }
        if !matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            return Err(Diagnostic::error(span, format!("`{}` does not work on strings", op.text()))
                .help("strings can be compared with `==`, `!=` and strncmp()"));
        }
        let (a, b) = (self.slot(&a), self.slot(&b));
        let value = self.result(mark, Ty::BOOL, span, |dst| Op::Equal { dst, a, b });
        self.release_frame(mark);
        if op == BinaryOp::Ne {
            let reg = self.reg(&value);
            self.emit(Op::Unary { op: Unary::Not, dst: reg, a: reg });
        }
        Ok(value)
    }

    /// Equal if all members are, each by the rules of its type.
    fn compare_tuples(
        &mut self,
        op: BinaryOp,
        a: &Value,
        b: &Value,
        (left, right): (Vec<Ty>, Vec<Ty>),
        mark: super::body::Mark,
        span: Span,
    ) -> Lowered<Value> {
        if !matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            return Err(Diagnostic::error(span, format!("`{}` does not work on tuples", op.text()))
                .help("tuples can be compared with `==` and `!=`; their members are `.0`, `.1`..."));
        }
        if left.len() != right.len() {
            let message = format!("a tuple of {} cannot be equal to one of {}", left.len(), right.len());
            return Err(Diagnostic::error(span, message));
        }
        let (a, b) = (self.slot(a), self.slot(b));
        let all = self.result(mark, Ty::BOOL, span, |dst| Op::Const { dst, value: 1 });
        let dst = self.reg(&all);
        let (mut at_a, mut at_b) = (a.at, b.at);
        for (ty_a, ty_b) in left.into_iter().zip(right) {
            let member = |ty: Ty, at: &mut u32| {
                let slot = Slot { at: *at, len: ty.size_bytes() };
                *at += slot.len;
                Value::new(ty, At::Slot(slot), span)
            };
            let inner = self.mark();
            let (a, b) = (member(ty_a, &mut at_a), member(ty_b, &mut at_b));
            let is_equal = self.combine(BinaryOp::Eq, a, b, inner, span)?;
            let b = self.reg(&is_equal);
            self.emit(Op::Binary { op: Binary::And, dst, a: dst, b });
            self.release(inner);
        }
        self.release_frame(mark);
        if op == BinaryOp::Ne {
            self.emit(Op::Unary { op: Unary::Not, dst, a: dst });
        }
        Ok(all)
    }

    /// `a && b`, `a || b` as a number.
    fn logical(&mut self, whole: &Expr) -> Lowered<Value> {
        let dst = self.temp();
        let mark = self.mark();
        let start = self.here();
        let no = self.jump_unless(whole)?;
        self.release(mark);
        if no.is_empty() && self.here() == start {
            return Ok(Value::new(Ty::BOOL, At::Const(1), whole.span));
        }
        self.emit(Op::Const { dst, value: 1 });
        let end = self.jump(Op::Jump { to: 0 });
        self.patch(&no);
        self.emit(Op::Const { dst, value: 0 });
        self.patch(&[end]);
        Ok(Value::new(Ty::BOOL, At::Reg(dst), whole.span))
    }

    // Conditions. The jumps wait for their target.

    pub(super) fn jump_unless(&mut self, condition: &Expr) -> Lowered<Vec<usize>> {
        self.branch(condition, false)
    }

    /// Jumps taken where the condition is `wanted`.
    fn branch(&mut self, condition: &Expr, wanted: bool) -> Lowered<Vec<usize>> {
        match &condition.kind {
            ExprKind::Unary { op: UnaryOp::Not, operand } => return self.branch(operand, !wanted),
            ExprKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), left, right } => {
                // Whether the left side alone can decide for the jump.
                let decides = (*op == BinaryOp::Or) == wanted;
                let mut jumps = self.branch(left, if decides { wanted } else { !wanted })?;
                if decides {
                    jumps.extend(self.branch(right, wanted)?);
                    return Ok(jumps);
                }
                let later = self.branch(right, wanted)?;
                self.patch(&jumps);
                return Ok(later);
            }
            _ => {}
        }
        let mark = self.mark();
        let value = self.expr(condition)?;
        if !value.ty.is_number() {
            let diagnostic = Diagnostic::error(
                condition.span,
                format!("a condition is a number, this is {}", value.ty.text()),
            );
            return Err(if value.ty.is_str() {
                diagnostic.help("compare it: `!= \"\"`")
            } else {
                diagnostic
            });
        }
        if let Some(constant) = value.constant() {
            let is_taken = (constant != 0) == wanted && value.ty != Ty::Unknown;
            return Ok(if is_taken { vec![self.jump(Op::Jump { to: 0 })] } else { Vec::new() });
        }
        let condition = self.reg(&value);
        self.release(mark);
        let op = if wanted { Op::JumpIf { condition, to: 0 } } else { Op::JumpUnless { condition, to: 0 } };
        Ok(vec![self.jump(op)])
    }
}

fn machine(op: BinaryOp, is_signed: bool) -> Binary {
    let pick = |signed, unsigned| if is_signed { signed } else { unsigned };
    match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => pick(Binary::DivSigned, Binary::DivUnsigned),
        BinaryOp::Rem => pick(Binary::RemSigned, Binary::RemUnsigned),
        BinaryOp::BitAnd | BinaryOp::And => Binary::And,
        BinaryOp::BitOr | BinaryOp::Or => Binary::Or,
        BinaryOp::BitXor => Binary::Xor,
        BinaryOp::Shl => Binary::Shl,
        BinaryOp::Shr => pick(Binary::ShrSigned, Binary::ShrUnsigned),
        BinaryOp::Eq => Binary::Eq,
        BinaryOp::Ne => Binary::Ne,
        BinaryOp::Lt => pick(Binary::LtSigned, Binary::LtUnsigned),
        BinaryOp::Le => pick(Binary::LeSigned, Binary::LeUnsigned),
        BinaryOp::Gt => pick(Binary::GtSigned, Binary::GtUnsigned),
        BinaryOp::Ge => pick(Binary::GeSigned, Binary::GeUnsigned),
    }
}

/// Whether two numbers are compared as signed although one has no sign, as in C: if both fit an `int`, or the signed one is
/// the wider one.
fn is_wider_signed(a: &Ty, b: &Ty) -> bool {
    let (
        Ty::Int { size_bytes: a_bytes, is_signed: is_a_signed },
        Ty::Int { size_bytes: b_bytes, is_signed: is_b_signed },
    ) = (a, b)
    else {
        return false;
    };
    let (signed, unsigned) = match (is_a_signed, is_b_signed) {
        (true, false) => (*a_bytes, *b_bytes),
        (false, true) => (*b_bytes, *a_bytes),
        (true, true) => return true,
        (false, false) => return false,
    };
    unsigned < signed.max(4)
}

/// The operation that gives the same with the operands exchanged.
fn swapped(op: Binary) -> Option<Binary> {
    Some(match op {
        Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne => op,
        Binary::LtUnsigned => Binary::GtUnsigned,
        Binary::LtSigned => Binary::GtSigned,
        Binary::LeUnsigned => Binary::GeUnsigned,
        Binary::LeSigned => Binary::GeSigned,
        Binary::GtUnsigned => Binary::LtUnsigned,
        Binary::GtSigned => Binary::LtSigned,
        Binary::GeUnsigned => Binary::LeUnsigned,
        Binary::GeSigned => Binary::LeSigned,
        Binary::Sub
        | Binary::DivUnsigned
        | Binary::DivSigned
        | Binary::RemUnsigned
        | Binary::RemSigned
        | Binary::Shl
        | Binary::ShrUnsigned
        | Binary::ShrSigned => return None,
    })
}
