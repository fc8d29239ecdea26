//! What lies in memory: members of records, elements of arrays, what a pointer leads to; and the arguments of a point,
//! which are read like members of `args`.

use super::Lowered;
use super::body::{Body, Mark};
use super::types::{At, Ty, Value};
use crate::ast::{Expr, ExprKind};
use crate::catalog::ArgType;
use crate::ctype::{CType, Member, Record};
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::captures::RETURN_VALUE;
use nopal_program::op::{Binary, Op, Reg, Slot, Space};
use nopal_program::{PointKind, Type};

/// Longer character arrays are cut.
const MAX_CHARS: u32 = 4096;

impl Body<'_, '_> {
    pub(crate) fn size_of(&mut self, what: &CType, span: Span) -> Lowered<u32> {
        if let CType::Record(name) = what {
            return Ok(self.shared.record(name, span)?.size_bytes);
        }
        if let CType::Array(of, n) = what {
            let size_bytes = self.size_of(of, span)?;
            return size_bytes
                .checked_mul(*n)
                .ok_or_else(|| Diagnostic::error(span, "this array is too large"));
        }
        match self.shared.script.records.layout(what) {
            Some((size_bytes, _)) => Ok(size_bytes as u32),
            None => Err(Diagnostic::error(span, format!("`{}` has no size", what.text()))),
        }
    }

    /// A member and its offset, also of unnamed records within.
    fn find_member(&self, record: &Record, name: &str, depth: u32) -> Option<Member> {
        for member in &record.members {
            if member.name == name {
                return Some(member.clone());
            }
            if let (true, CType::Record(inner), true) =
                (member.name.is_empty(), &member.value_type, depth < 16)
            {
                let inner = self.shared.record(inner, Span::default()).ok()?;
                if let Some(mut found) = self.find_member(&inner, name, depth + 1) {
                    found.offset = found.offset.saturating_add(member.offset);
                    return Some(found);
                }
            }
        }
        None
    }

    fn member_of(&self, record_name: &str, name: &str, span: Span) -> Lowered<Member> {
        let record = self.shared.record(record_name, span)?;
        self.find_member(&record, name, 0).ok_or_else(|| {
            let names =
                record.members.iter().map(|member| member.name.as_str()).filter(|name| !name.is_empty());
            let message = format!("`{record_name}` has no member `{name}`");
            match nearest(name, names.clone()) {
                Some(near) => Diagnostic::error(span, message).help(format!("did you mean `{near}`?")),
                None => Diagnostic::error(span, message)
                    .help(format!("it has {}", names.take(20).collect::<Vec<_>>().join(", "))),
            }
        })
    }

    pub(super) fn offset_of(&mut self, record: &CType, path: &[String], span: Span) -> Lowered<Value> {
        let mut at = record.clone();
        let mut offset = 0i64;
        for name in path {
            let CType::Record(record_name) = &at else {
                return Err(Diagnostic::error(span, format!("`{}` has no members", at.text())));
            };
            let member = self.member_of(record_name, name, span)?;
            offset += i64::from(member.offset);
            at = member.value_type;
        }
        Ok(Value::number(offset, span))
    }

    /// `base.name`, `base->name`.
    pub(super) fn member(
        &mut self,
        base: &Expr,
        name: &str,
        is_arrow: bool,
        name_span: Span,
        span: Span,
    ) -> Lowered<Value> {
        if matches!(&base.kind, ExprKind::Name(args) if args == "args") {
            return self.named_arg(name, name_span, span);
        }
        let mark = self.mark();
        let value = self.place(base)?;
        if value.ty == Ty::Unknown {
            return Ok(Value::new(Ty::Unknown, At::Const(0), span));
        }
        if let (Ty::Record(members), At::Slot(slot)) = (&value.ty, value.at) {
            return named_member(members, name, slot, name_span, span);
        }
        if let (Ty::Whole { what: CType::Record(record), .. }, At::Slot(slot), false) =
            (&value.ty, value.at, is_arrow)
        {
            let member = self.member_of(&record.clone(), name, name_span)?;
            return self.part(&member.value_type, member.bits, slot.at + member.offset, mark, span);
        }
        let is_curtask = matches!(&base.kind, ExprKind::Name(name) if name == "curtask");
        let (record_name, place) = match (&value.ty, value.at) {
            (Ty::Int { .. }, _) if is_curtask => {
                let base = self.reg(&value);
                ("struct task_struct".to_owned(), At::Memory { base, offset: 0, space: Space::Kernel })
            }
            (Ty::Pointer { to: CType::Record(record), space }, _) => {
                let space = *space;
                (record.clone(), At::Memory { base: self.reg(&value), offset: 0, space })
            }
            (Ty::Memory(CType::Record(record)), at) => {
                if is_arrow {
                    return Err(Diagnostic::error(
                        span,
                        format!("this is a `{record}` and no pointer to one"),
                    )
                    .help(format!("write `.{name}`")));
                }
                (record.clone(), at)
            }
            (Ty::Pointer { to, .. }, _) => {
                return Err(Diagnostic::error(span, format!("a pointer to `{}` has no members", to.text()))
                    .help("cast it: `((struct name *)pointer)->member`"));
            }
            (Ty::Int { .. }, _) => {
                return Err(Diagnostic::error(span, "a number has no members")
                    .help("cast it: `((struct name *)number)->member`"));
            }
            (other, _) => {
                return Err(Diagnostic::error(span, format!("{} has no members", other.text())));
            }
        };
        let member = self.member_of(&record_name, name, name_span)?;
        let At::Memory { base, offset, space } = place else {
            return Err(Diagnostic::error(span, "this record cannot be reached"));
        };
        let at = At::Memory { base, offset: offset + i64::from(member.offset), space };
        self.load(&member.value_type, member.bits, at, mark, span)
    }

    /// `base[index]`.
    pub(super) fn index(&mut self, base: &Expr, index: &Expr, span: Span) -> Lowered<Value> {
        let mark = self.mark();
        let value = self.place(base)?;
        if value.ty == Ty::Unknown {
            return Ok(Value::new(Ty::Unknown, At::Const(0), span));
        }
        let (element, n_elements, place) = match (&value.ty, value.at) {
            (Ty::Memory(CType::Array(of, n)), at) => ((**of).clone(), Some(*n), at),
            (Ty::Tuple(members), _) => {
                let n = members.len() as i64;
                return match self.number(index)?.constant() {
                    Some(constant) if (0..n).contains(&constant) => {
                        self.tuple_member(base, constant as u32, span)
                    }
                    _ => Err(Diagnostic::error(
                        index.span,
                        format!("a constant from 0 to {} is needed", n - 1),
                    )),
                };
            }
            (Ty::Plain(Type::Str { max_bytes }), At::Slot(slot)) => {
                let n = *max_bytes;
                return self.element(&CType::Char, n, slot, index, mark, span);
            }
            (Ty::Whole { what: CType::Array(of, n), .. }, At::Slot(slot)) => {
                let (of, n) = ((**of).clone(), *n);
                return self.element(&of, n, slot, index, mark, span);
            }
            (Ty::Pointer { to, space }, _) => {
                let (to, space) = (to.clone(), *space);
                (to, None, At::Memory { base: self.reg(&value), offset: 0, space })
            }
            (other, _) => {
                return Err(Diagnostic::error(
                    span,
                    format!("`[]` needs an array or a pointer, found {}", other.text()),
                ));
            }
        };
        let At::Memory { base, offset, space } = place else {
            return Err(Diagnostic::error(span, "this array cannot be reached"));
        };
        let size_bytes = i64::from(self.size_of(&element, span)?);
        let number = self.number(index)?;
        if let Some(constant) = number.constant() {
            if n_elements.is_some_and(|n| n > 0 && !(0..i64::from(n)).contains(&constant)) {
                let n = n_elements.unwrap_or(0);
                return Err(Diagnostic::error(
                    index.span,
                    format!("the index {constant} is out of bounds for array of size {n}"),
                ));
            }
            let offset = offset.wrapping_add(constant.wrapping_mul(size_bytes));
            return self.load(&element, None, At::Memory { base, offset, space }, mark, span);
        }
        let a = self.reg(&number);
        self.check_index(a, n_elements.unwrap_or(0), span);
        let address = self.temp();
        self.emit(Op::BinaryConst { op: Binary::Mul, dst: address, a, b: size_bytes });
        self.emit(Op::Binary { op: Binary::Add, dst: address, a: address, b: base });
        self.load(&element, None, At::Memory { base: address, offset, space }, mark, span)
    }

    /// `*pointer`. A number is taken for a pointer to one of 64 bits.
    pub(super) fn deref(&mut self, operand: &Expr, span: Span) -> Lowered<Value> {
        let mark = self.mark();
        let value = self.number(operand)?;
        if let Ty::Pointer { to, .. } = &value.ty
            && let Some(ty) = self.variable_behind(to)
        {
            return Ok(self.load_variable(ty, &value, span));
        }
        let (to, space) = match &value.ty {
            Ty::Pointer { to: CType::Void, .. } => {
                return Err(Diagnostic::error(span, "what a `void *` leads to has no type")
                    .help("cast it: `*(uint32 *)pointer`"));
            }
            Ty::Pointer { to, space } => (to.clone(), *space),
            Ty::Unknown => return Ok(Value::new(Ty::Unknown, At::Const(0), span)),
            _ => (CType::U64, value.space.unwrap_or(self.variant.space())),
        };
        let base = self.reg(&value);
        self.load(&to, None, At::Memory { base, offset: 0, space }, mark, span)
    }

    /// Reads what is small enough for a register; records and arrays stay where they are. What was taken since `mark` is
    /// given back.
    fn load(
        &mut self,
        what: &CType,
        bits: Option<(u8, u8)>,
        at: At,
        mark: Mark,
        span: Span,
    ) -> Lowered<Value> {
        let At::Memory { base, offset, space } = at else {
            return Err(Diagnostic::error(span, "this cannot be reached"));
        };
        let (size_bytes, is_signed, ty) = match what {
            CType::Record(_) | CType::Array(..) => {
                return Ok(Value { ty: Ty::Memory(what.clone()), at, space: Some(space), span });
            }
            CType::Void => return Err(Diagnostic::error(span, "`void` has no value")),
            _ => self.scalar(what, space),
        };
        let address = self.address(base, offset);
        let to = Slot { len: u32::from(size_bytes), ..self.alloc(8) };
        self.emit(Op::Read { to, address, space });
        self.check_readable(address, space, false, span);
        self.release(mark);
        let dst = self.temp();
        let Some((shift, width)) = bits else {
            self.emit(Op::Load { dst, at: to.at, size_bytes, is_signed });
            return Ok(Value { ty, at: At::Reg(dst), space: Some(space), span });
        };
        self.emit(Op::Load { dst, at: to.at, size_bytes, is_signed: false });
        self.cut_bits(dst, (shift, width), is_signed);
        Ok(Value::new(ty, At::Reg(dst), span))
    }

    /// Size, sign and type of what fits a register.
    pub(super) fn scalar(&self, what: &CType, space: Space) -> (u8, bool, Ty) {
        match what {
            CType::Bool => (1, false, Ty::BOOL),
            CType::Char => (1, true, Ty::Int { size_bytes: 1, is_signed: true }),
            CType::Int { size_bytes, is_signed } => {
                (*size_bytes, *is_signed, Ty::Int { size_bytes: *size_bytes, is_signed: *is_signed })
            }
            CType::Float => (8, false, Ty::Plain(Type::Float)),
            CType::Pointer(to) => (8, false, Ty::Pointer { to: (**to).clone(), space }),
            CType::Enum(name) => match self.shared.script.records.enums.get(name) {
                Some(labels) => (4, true, Ty::Plain(Type::Enum { labels: labels.clone() })),
                None => (4, true, Ty::Int { size_bytes: 4, is_signed: true }),
            },
            CType::Void | CType::Array(..) | CType::Record(_) => (8, false, Ty::U64),
        }
    }

    /// The field's highest bit to the top, then down with or without its sign.
    pub(super) fn cut_bits(&mut self, dst: Reg, (shift, width): (u8, u8), is_signed: bool) {
        let up = 64u32.saturating_sub(u32::from(shift) + u32::from(width));
        let down = 64 - u32::from(width);
        let shift_down = if is_signed { Binary::ShrSigned } else { Binary::ShrUnsigned };
        self.emit(Op::BinaryConst { op: Binary::Shl, dst, a: dst, b: i64::from(up) });
        self.emit(Op::BinaryConst { op: shift_down, dst, a: dst, b: i64::from(down) });
    }

    pub(crate) fn address(&mut self, base: Reg, offset: i64) -> Reg {
        if offset == 0 {
            return base;
        }
        let dst = self.temp();
        self.emit(Op::BinaryConst { op: Binary::Add, dst, a: base, b: offset });
        dst
    }

    /// An array of characters is a string where its value is wanted.
    pub(super) fn decay(&mut self, value: Value) -> Lowered<Value> {
        let (Ty::Memory(CType::Array(of, n)), At::Memory { base, offset, space }) = (&value.ty, value.at)
        else {
            return Ok(value);
        };
        if **of != CType::Char {
            return Ok(value);
        }
        let n = (*n).min(MAX_CHARS);
        let ty = Ty::str(n + 1);
        let to = self.alloc(ty.size_bytes());
        self.emit(Op::Zero { to });
        let mark = self.mark();
        let address = self.address(base, offset);
        self.emit(Op::Read { to: Slot { at: to.at, len: n }, address, space });
        self.release(mark);
        Ok(Value::new(ty, At::Slot(to), value.span))
    }

    // Arguments.

    /// The index and shape of `args.name`.
    fn arg_named(&self, name: &str) -> Option<(u8, ArgType)> {
        let index = self.variant.args.iter().position(|arg| arg.name == name)?;
        Some((u8::try_from(index).ok()?, self.variant.args[index].arg_type.clone()))
    }

    /// The argument an expression names: `arg0`, `args.name`.
    pub(crate) fn arg_of(&self, expr: &Expr) -> Option<u8> {
        let is_return = matches!(self.variant.kind(), PointKind::Uretprobe { .. });
        let has_args = matches!(
            self.variant.kind(),
            PointKind::Usdt { .. } | PointKind::UsdtLater(_) | PointKind::Uprobe { .. }
        );
        if !has_args && !is_return {
            return None;
        }
        match &expr.kind {
            ExprKind::Name(name) if is_return => (name == "retval").then_some(RETURN_VALUE),
            ExprKind::Name(name) => super::builtins::arg_index(name),
            ExprKind::Member { base, name, .. } if matches!(&base.kind, ExprKind::Name(args) if args == "args") => {
                match self.arg_named(name)? {
                    (_, ArgType::InRegister { number, .. }) => Some(number),
                    (_, ArgType::Absent { .. } | ArgType::TextInRegisters { .. }) => None,
                    (index, _) => Some(index),
                }
            }
            // A cast of the address changes nothing about where it leads.
            ExprKind::Cast { to: CType::Pointer(_), operand } => self.arg_of(operand),
            _ => None,
        }
    }

    fn named_arg(&mut self, name: &str, name_span: Span, span: Span) -> Lowered<Value> {
        let point = self.variant.points[0].name.clone();
        let Some((index, arg_type)) = self.arg_named(name) else {
            let names: Vec<&str> = self
                .variant
                .args
                .iter()
                .map(|arg| arg.name.as_str())
                .filter(|name| !name.is_empty())
                .collect();
            let message = format!("`{point}` has no argument `{name}`");
            let help = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `args.{near}`?"),
                None if !names.is_empty() => format!("it has {}", names.join(", ")),
                None if matches!(self.variant.kind(), PointKind::Uprobe { .. }) => {
                    "no debug information of it is here: install that, or use arg0, arg1...".into()
                }
                None if self.variant.args.is_empty() => "it has no arguments that are known by name".into(),
                None => "names are not known here; use arg0, arg1...".into(),
            };
            return Err(Diagnostic::error(name_span, message).help(help));
        };
        if let ArgType::Absent { why } = arg_type {
            return Err(Diagnostic::error(
                name_span,
                format!("`{name}` of `{point}` is not to be had: {why}"),
            ));
        }
        let known = self.shared.catalog.arg_type(&self.variant.points[0], name);
        let space = self.variant.space();
        let mut value = self.arg(index, &arg_type, span);
        if let Some(CType::Pointer(to)) = known {
            value.ty = Ty::Pointer { to: *to, space };
        }
        Ok(value)
    }

    /// The value of an argument, as what it is.
    pub(crate) fn arg(&mut self, index: u8, arg_type: &ArgType, span: Span) -> Value {
        let space = Some(self.variant.space());
        let mark = self.mark();
        let plain = |body: &mut Self, ty| {
            let mut value = body.result(mark, ty, span, |dst| Op::Arg { dst, index });
            value.space = space;
            value
        };
        match arg_type {
            ArgType::Int { size_bytes, is_signed } => {
                plain(self, Ty::Int { size_bytes: (*size_bytes).max(1), is_signed: *is_signed })
            }
            ArgType::Enum { labels } => plain(self, Ty::Plain(Type::Enum { labels: labels.clone() })),
            ArgType::Pointer | ArgType::Bytes { length_arg: None } => {
                plain(self, Ty::Pointer { to: CType::Void, space: Space::User })
            }
            ArgType::Float => plain(self, Ty::Plain(Type::Float)),
            ArgType::InRegister { number, value, labels } => self.in_register(*number, value, labels, span),
            ArgType::TextInRegisters { number, length } => {
                let ty = Ty::str(self.string_bytes());
                let to = self.alloc(ty.size_bytes());
                let len = self.temp();
                self.emit(Op::Arg { dst: len, index: *length });
                self.emit(Op::ArgString { to, index: *number, len: Some(len) });
                self.release_regs(mark);
                Value::new(ty, At::Slot(to), span)
            }
            ArgType::Absent { .. } => Value::new(Ty::Unknown, At::Const(0), span),
            ArgType::Str => {
                let ty = Ty::str(self.string_bytes());
                let to = self.alloc(ty.size_bytes());
                let len = self.length_limit(span);
                self.emit(Op::ArgString { to, index, len });
                self.release_regs(mark);
                Value::new(ty, At::Slot(to), span)
            }
            ArgType::Bytes { length_arg: Some(length_arg) } => {
                let ty = Ty::Plain(Type::Buffer { max_bytes: self.string_bytes() });
                let to = self.alloc(ty.size_bytes());
                let len = self.temp();
                self.emit(Op::Arg { dst: len, index: *length_arg });
                self.emit(Op::ArgBytes { to, index, len });
                self.release_regs(mark);
                Value::new(ty, At::Slot(to), span)
            }
            ArgType::Field { offset, size_bytes, is_signed } => {
                let (offset, size_bytes, is_signed) = (*offset, *size_bytes, *is_signed);
                let ty = Ty::Int { size_bytes: size_bytes.max(1), is_signed };
                let mut value =
                    self.result(mark, ty, span, |dst| Op::Field { dst, offset, size_bytes, is_signed });
                value.space = space;
                value
            }
            ArgType::FieldChars { offset, size_bytes } => {
                let n = u32::from(*size_bytes).min(MAX_CHARS);
                let ty = Ty::str(n + 1);
                let to = self.alloc(ty.size_bytes());
                self.emit(Op::Zero { to });
                self.emit(Op::FieldBytes { to: Slot { at: to.at, len: n }, offset: *offset });
                Value::new(ty, At::Slot(to), span)
            }
            ArgType::FieldString { offset } => {
                let ty = Ty::str(self.string_bytes());
                let to = self.alloc(ty.size_bytes());
                self.emit(Op::FieldString { to, offset: *offset });
                Value::new(ty, At::Slot(to), span)
            }
        }
    }

    /// A parameter of a function. Above a narrow one the register may hold anything.
    fn in_register(&mut self, number: u8, value: &CType, labels: &[(i64, String)], span: Span) -> Value {
        let mark = self.mark();
        let space = Some(self.variant.space());
        let (size_bytes, is_signed, ty) = match value {
            CType::Pointer(to) => (8, false, Ty::Pointer { to: (**to).clone(), space: Space::User }),
            CType::Bool => (1, false, Ty::BOOL),
            CType::Char => (1, true, Ty::Int { size_bytes: 1, is_signed: true }),
            CType::Int { size_bytes, is_signed } if !labels.is_empty() => {
                (*size_bytes, *is_signed, Ty::Plain(Type::Enum { labels: labels.to_vec() }))
            }
            CType::Int { size_bytes, is_signed } => {
                (*size_bytes, *is_signed, Ty::Int { size_bytes: *size_bytes, is_signed: *is_signed })
            }
            CType::Void | CType::Float | CType::Array(..) | CType::Record(_) | CType::Enum(_) => {
                (8, false, Ty::U64)
            }
        };
        if size_bytes == 8 {
            let mut value = self.result(mark, ty, span, |dst| Op::Arg { dst, index: number });
            value.space = space;
            return value;
        }
        let src = self.temp();
        self.emit(Op::Arg { dst: src, index: number });
        self.result(mark, ty, span, |dst| Op::Extend { dst, src, size_bytes, is_signed })
    }

    /// A slot holds a multiple of 8 bytes; where strings are to be shorter, their length is given.
    pub(crate) fn length_limit(&mut self, span: Span) -> Option<Reg> {
        let string_bytes = self.string_bytes();
        (!string_bytes.is_multiple_of(8)).then(|| self.reg(&Value::number(i64::from(string_bytes) - 1, span)))
    }

    pub(crate) fn arg_shape(&self, index: u8) -> Option<ArgType> {
        self.variant.args.get(usize::from(index)).map(|arg| arg.arg_type.clone())
    }
}

/// A member of a record that the script made.
fn named_member(
    members: &[(String, Ty)],
    name: &str,
    slot: Slot,
    name_span: Span,
    span: Span,
) -> Lowered<Value> {
    let mut at = slot.at;
    for (known, ty) in members {
        let part = Slot { at, len: ty.size_bytes() };
        if known == name {
            return Ok(Value::new(ty.clone(), At::Slot(part), span));
        }
        at += part.len;
    }
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    Err(Diagnostic::error(name_span, format!("this record has no member `{name}`"))
        .help(format!("it has {}", names.join(", "))))
}
