//! Expressions: literals, names, variables, maps, tuples, casts. Operators and memory have files of their own.

use super::body::{Body, Width};
use super::builtins::arg_index;
use super::config::is_config;
use super::maps::Held;
use super::types::{At, Ty, Value};
use super::{Lowered, builtins};
use crate::ast::walk;
use crate::ast::{Expr, ExprKind, MapRef, scope};
use crate::catalog::ArgType;
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Binary, Op, Slot};
use nopal_program::{Look, PointKind, Type};

/// Longer literals are mistakes.
const MAX_LITERAL_BYTES: usize = 4095;
const MAX_TUPLE_BYTES: u32 = 16 << 10;

impl Body<'_, '_> {
    /// The value of an expression. Arrays of characters become strings.
    pub(crate) fn expr(&mut self, expr: &Expr) -> Lowered<Value> {
        let value = self.place(expr)?;
        self.decay(value)
    }

    /// A number: an integer, a pointer, the label of an enum.
    pub(crate) fn number(&mut self, expr: &Expr) -> Lowered<Value> {
        let value = self.expr(expr)?;
        if value.ty.is_number() {
            return Ok(value);
        }
        Err(Diagnostic::error(expr.span, format!("expected a number, found {}", value.ty.text())))
    }

    pub(crate) fn string(&mut self, expr: &Expr) -> Lowered<Value> {
        let value = self.expr(expr)?;
        match &value.ty {
            Ty::Plain(Type::Str { .. }) => Ok(value),
            Ty::Unknown => Ok(self.empty_string(expr.span)),
            other => {
                let diagnostic =
                    Diagnostic::error(expr.span, format!("expected a string, found {}", other.text()));
                Err(if other.is_number() {
                    diagnostic.help("read one from memory with str()")
                } else {
                    diagnostic
                })
            }
        }
    }

    fn empty_string(&mut self, span: Span) -> Value {
        self.literal(b"", span)
    }

    /// As [`Body::expr`], with records and arrays left where they are.
    pub(crate) fn place(&mut self, expr: &Expr) -> Lowered<Value> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Int { value, is_signed } => {
                let ty = if *is_signed { Ty::I64 } else { Ty::U64 };
                Ok(Value::new(ty, At::Const(*value), span))
            }
            ExprKind::Str(bytes) => {
                if bytes.len() > MAX_LITERAL_BYTES {
                    return Err(Diagnostic::error(span, "this string is too long"));
                }
                Ok(self.literal(bytes, span))
            }
            ExprKind::Param(index) => self.parameter(*index, span),
            ExprKind::ParamCount => Ok(Value::number(self.shared.script.parameters.len() as i64, span)),
            ExprKind::Name(name) => self.name(name, span),
            ExprKind::Var(name) => self.read_variable(name, span),
            ExprKind::Map(map) => self.read_map(map),
            ExprKind::Call { name, name_span, args } => builtins::call(self, name, *name_span, args, span),
            ExprKind::Member { base, name, is_arrow: false, name_span } if is_config(base) => {
                self.setting(name, *name_span)
            }
            ExprKind::Member { base, name, is_arrow, name_span } => {
                self.member(base, name, *is_arrow, *name_span, span)
            }
            ExprKind::TupleMember { base, index } => self.tuple_member(base, *index, span),
            ExprKind::Index { base, index } => self.index(base, index, span),
            ExprKind::Unary { op, operand } => self.unary(*op, operand, span),
            ExprKind::Binary { op, left, right } => self.binary(*op, left, right, expr),
            ExprKind::Ternary { condition, then, otherwise } => {
                self.ternary(condition, then, otherwise, span)
            }
            ExprKind::Cast { to, operand } => self.cast(to, operand, span),
            ExprKind::Block { body, value, call } => {
                let n_before = self.expansions.len();
                self.expansions.extend(*call);
                self.block(body);
                let value = match value {
                    Some(value) => self.place(value),
                    None => Ok(Value::nothing(span)),
                };
                self.expansions.truncate(n_before);
                value
            }
            ExprKind::Tuple(members) => self.tuple(members, span),
            ExprKind::Record(members) => self.record(members, span),
            ExprKind::Step { target, by, is_prefix } => self.step(target, *by, *is_prefix, span),
            ExprKind::SizeofType(what) => {
                let size_bytes = self.size_of(what, span)?;
                Ok(Value::number(i64::from(size_bytes), span))
            }
            ExprKind::SizeofExpr(operand) => self.sizeof_expr(operand, span),
            ExprKind::AddressOf(of) => self.address_of_variable(of, span),
            ExprKind::Type(_) | ExprKind::TypeOf(_) | ExprKind::PointerType(_) | ExprKind::CastTo { .. } => {
                Err(Diagnostic::error(span, "this is a type, where a value is needed")
                    .help("`typeof()` is given to macros, and stands in `sizeof()` and behind `let $name:`"))
            }
            ExprKind::Offsetof { record, path } => self.offset_of(record, path, span),
        }
    }

    pub(crate) fn literal(&mut self, bytes: &[u8], span: Span) -> Value {
        let ty = Ty::str(bytes.len() as u32 + 1);
        let to = self.alloc(ty.size_bytes());
        let constant = self.shared.constant(bytes);
        self.emit(Op::Constant { to, constant });
        Value::new(ty, At::Slot(to), span)
    }

    /// `$1` as a number; where none is given 0.
    fn parameter(&mut self, index: usize, span: Span) -> Lowered<Value> {
        let Some(text) = self.shared.script.parameters.get(index - 1) else {
            return Ok(Value::number(0, span));
        };
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.as_str()),
        };
        match crate::number::parse_number(digits) {
            Some(Ok(value)) if is_negative => Ok(Value::number((value as i64).wrapping_neg(), span)),
            Some(Ok(value)) => {
                let ty = if value > i64::MAX as u64 { Ty::U64 } else { Ty::I64 };
                Ok(Value::new(ty, At::Const(value as i64), span))
            }
            _ if self.look() == Look::New => {
                let text = text.clone();
                Ok(self.literal(text.as_bytes(), span))
            }
            _ => Err(Diagnostic::error(span, format!("`${index}` is used as a number but is `{text}`"))
                .help(format!("its text is `str(${index})`"))),
        }
    }

    /// A builtin, or the label of an enum.
    fn name(&mut self, name: &str, span: Span) -> Lowered<Value> {
        if let Some(value) = builtins::variable(self, name, span) {
            return value;
        }
        if matches!(name, "true" | "false") {
            return Ok(Value::new(Ty::BOOL, At::Const(i64::from(name == "true")), span));
        }
        let records = &self.shared.script.records;
        let constant = (records.constants.get(name).copied())
            .or_else(|| self.label(name))
            .or_else(|| self.shared.catalog.constant(name));
        if let Some(value) = constant {
            let of_script =
                records.enums.values().find(|labels| labels.iter().any(|(_, label)| label == name));
            let ty = of_script.map_or(Ty::I64, |labels| Ty::Plain(Type::Enum { labels: labels.clone() }));
            return Ok(Value::new(ty, At::Const(value), span));
        }
        let message = format!("there is no builtin `{name}`");
        let known: Vec<&str> = builtins::variable_names()
            .map(|name| -> &str { name })
            .chain(records.constants.keys().map(String::as_str))
            .collect();
        Err(match nearest(name, known.into_iter()) {
            Some(near) => Diagnostic::error(span, message).help(format!("did you mean `{near}`?")),
            None => {
                Diagnostic::error(span, message).help("variables are `$name`, maps `@name`, text \"...\"")
            }
        })
    }

    /// A label of one of the point's own enums.
    fn label(&self, name: &str) -> Option<i64> {
        self.variant.args.iter().find_map(|arg| match &arg.arg_type {
            ArgType::Enum { labels } | ArgType::InRegister { labels, .. } => {
                labels.iter().find(|(_, label)| label == name).map(|(value, _)| *value)
            }
            _ => None,
        })
    }

    fn read_variable(&mut self, name: &str, span: Span) -> Lowered<Value> {
        if let Some((_, value)) = self.bindings.iter().rev().find(|(bound, _)| bound == name) {
            return Ok(Value { span, ..value.clone() });
        }
        let found = self.variable(name).filter(|_| self.assigned.iter().any(|assigned| assigned == name));
        match found {
            Some((variable, at)) => Ok(Value { ty: variable.ty.clone(), at, space: variable.space, span }),
            None => {
                let name = scope::written(name);
                let message = format!("nothing was assigned to `${name}` before this");
                let known: Vec<&str> = self.assigned.iter().map(String::as_str).collect();
                Err(match nearest(name, known.into_iter()) {
                    Some(near) => Diagnostic::error(span, message).help(format!("did you mean `${near}`?")),
                    None => Diagnostic::error(span, message)
                        .help("variables last for one run of a body; keep longer what is in a map: `@name`"),
                })
            }
        }
    }

    // Maps.

    /// The key of an entry, in the frame; gives the map's number with it.
    pub(crate) fn key(&mut self, map: &MapRef) -> Lowered<(usize, Slot)> {
        let id = self.shared.maps.id(&map.name);
        self.key_of(id, &map.keys, map.span).map(|slot| (id, slot))
    }

    pub(crate) fn key_of(&mut self, id: usize, keys: &[Expr], span: Span) -> Lowered<Slot> {
        let known = self.shared.maps.get(id).key.clone().map(|(known, _)| known).unwrap_or_default();
        let (key, types) = self.key_values(known, keys)?;
        self.shared.maps.learn_key(id, &types, span)?;
        Ok(key)
    }

    /// Puts a key one value after another, as wide as is known of each, and gives their types.
    pub(crate) fn key_values(&mut self, known: Vec<Ty>, keys: &[Expr]) -> Lowered<(Slot, Vec<Ty>)> {
        let start = self.frame_top();
        let mut values = Vec::new();
        // `@x[(a, b)]` is `@x[a, b]`, and `@x[$both]` is it, too.
        let (keys, known) = match keys {
            [Expr { kind: ExprKind::Tuple(members), .. }] => (&members[..], known),
            [_] if known.len() > 1 => (keys, vec![Ty::Tuple(known)]),
            _ => (keys, known),
        };
        for (index, key) in keys.iter().enumerate() {
            let cursor = self.frame_top();
            let mark = self.mark();
            let value = self.expr(key)?;
            let value = self.whole(value)?;
            let value = self.signed_of_function(key, value);
            self.check_storable(&value, "a key")?;
            let wanted = known.get(index).unwrap_or(&value.ty).clone();
            let value = self.fit(value, &wanted);
            let len = wanted.size_bytes().max(value.ty.size_bytes());
            self.put(cursor, &value, len);
            self.release_regs(mark);
            values.push(value.ty);
        }
        let len = self.frame_top().saturating_sub(start);
        Ok((if len == 0 { Slot { at: 0, len: 0 } } else { Slot { at: start, len } }, values))
    }

    /// What a function is given and returns has no type that were known. As bpftrace does, it is taken as signed where it
    /// would be told apart: as a key, and by min() and the like.
    pub(crate) fn signed_of_function(&self, expr: &Expr, value: Value) -> Value {
        let is_of_function = matches!(
            self.variant.kind(),
            PointKind::Uprobe { .. }
                | PointKind::Uretprobe { .. }
                | PointKind::Kprobe { .. }
                | PointKind::Kretprobe { .. }
        );
        let is_one = |name: &str| {
            name == "retval" || arg_index(name).or_else(|| arg_index(name.strip_prefix('s')?)).is_some()
        };
        match &expr.kind {
            ExprKind::Name(name) if is_of_function && value.ty == Ty::U64 && is_one(name) => {
                Value { ty: Ty::I64, ..value }
            }
            _ => value,
        }
    }

    pub(crate) fn check_storable(&self, value: &Value, what: &str) -> Lowered<()> {
        let refused = match &value.ty {
            Ty::Nothing => "has no value".to_string(),
            Ty::Memory(memory) => format!("is a whole `{}`, which cannot be kept", memory.text()),
            Ty::Unknown
            | Ty::Int { .. }
            | Ty::Pointer { .. }
            | Ty::Tuple(_)
            | Ty::Record(_)
            | Ty::Whole { .. }
            | Ty::Plain(_) => return Ok(()),
        };
        Err(Diagnostic::error(value.span, format!("{what} is needed, but this {refused}")))
    }

    /// An entry's value. Of an aggregate the number it stands for.
    fn read_map(&mut self, map: &MapRef) -> Lowered<Value> {
        let id = self.shared.maps.id(&map.name);
        let held = self.shared.maps.get(id).value.clone();
        let is_plain = matches!(held, Some((Held::Plain(_), _)));
        let ty = match held {
            None => {
                self.key_of(id, &map.keys, map.span)?;
                if !self.shared.maps.has_changed {
                    return Err(self.shared.maps.undefined(id, map.span));
                }
                return Ok(Value::new(Ty::Unknown, At::Const(0), map.span));
            }
            Some((Held::Plain(ty), _)) => ty,
            Some((Held::Series(_), _)) => {
                self.shared.maps.check_readable(id, map.span)?;
                Ty::U64
            }
            Some((Held::Aggregate(aggregate), first)) => match aggregate {
                Aggregate::Count => Ty::U64,
                Aggregate::Sum { is_signed }
                | Aggregate::Avg { is_signed }
                | Aggregate::Min { is_signed }
                | Aggregate::Max { is_signed }
                | Aggregate::Stats { is_signed } => Ty::Int { size_bytes: 8, is_signed },
                Aggregate::Hist { .. } | Aggregate::Lhist { .. } | Aggregate::Quantiles { .. } => {
                    let what = Held::Aggregate(aggregate).text();
                    return Err(Diagnostic::error(
                        map.span,
                        format!("`{}` is a {what}, not a number", map.name),
                    )
                    .related(first, what)
                    .help("it can be printed, cleared and zeroed"));
                }
            },
        };
        if ty.is_scalar() {
            let mark = self.mark();
            let key = self.key_of(id, &map.keys, map.span)?;
            if is_plain {
                self.check_entry(id, key, map.span);
            }
            let value = self.result(mark, ty, map.span, |dst| Op::MapLoad { dst, map: id as u32, key });
            self.release_frame(mark);
            return Ok(value);
        }
        // Room for the value first, so that what is behind it can be given back.
        let to = self.alloc(ty.size_bytes());
        let mark = self.mark();
        let key = self.key_of(id, &map.keys, map.span)?;
        self.check_entry(id, key, map.span);
        self.emit(Op::MapRead { to, map: id as u32, key });
        self.release(mark);
        Ok(Value::new(ty, At::Slot(to), map.span))
    }

    // Tuples.

    fn tuple(&mut self, members: &[Expr], span: Span) -> Lowered<Value> {
        let start = self.frame_top();
        let mut types = Vec::new();
        for member in members {
            let cursor = self.frame_top();
            let mark = self.mark();
            let value = self.expr(member)?;
            let value = self.whole(value)?;
            self.check_storable(&value, "a value")?;
            self.put(cursor, &value, value.ty.size_bytes());
            self.release_regs(mark);
            types.push(value.ty);
        }
        let ty = Ty::Tuple(types);
        let len = ty.size_bytes();
        if len > MAX_TUPLE_BYTES {
            return Err(Diagnostic::error(
                span,
                format!("this tuple takes more than {MAX_TUPLE_BYTES} bytes"),
            ));
        }
        Ok(Value::new(ty, At::Slot(Slot { at: start, len }), span))
    }

    pub(crate) fn record(&mut self, members: &[(String, Expr)], span: Span) -> Lowered<Value> {
        let (names, values): (Vec<String>, Vec<Expr>) = members.iter().cloned().unzip();
        let tuple = self.tuple(&values, span)?;
        match tuple.ty {
            Ty::Tuple(types) => Ok(Value { ty: Ty::Record(names.into_iter().zip(types).collect()), ..tuple }),
            _ => Ok(tuple),
        }
    }

    pub(super) fn tuple_member(&mut self, base: &Expr, index: u32, span: Span) -> Lowered<Value> {
        let value = self.expr(base)?;
        match (&value.ty, value.at) {
            (Ty::Tuple(members), At::Slot(slot)) => match members.get(index as usize) {
                Some(member) => {
                    let at = slot.at + members[..index as usize].iter().map(Ty::size_bytes).sum::<u32>();
                    let part = Slot { at, len: member.size_bytes() };
                    Ok(Value::new(member.clone(), At::Slot(part), span))
                }
                None => Err(Diagnostic::error(
                    span,
                    format!("this tuple has {} members, the first is `.0`", members.len()),
                )),
            },
            (Ty::Unknown, _) => Ok(Value::new(Ty::Unknown, At::Const(0), span)),
            (other, _) => {
                Err(Diagnostic::error(span, format!("`.{index}` needs a tuple, found {}", other.text())))
            }
        }
    }

    pub(crate) fn copy_to(&mut self, dst: u16, value: &Value) {
        match value.at {
            At::Const(value) => self.emit(Op::Const { dst, value }),
            At::Reg(src) if src == dst => {}
            At::Nowhere | At::Reg(_) | At::Slot(_) | At::Memory { .. } => {
                let mark = self.mark();
                let src = self.reg(value);
                self.release_regs(mark);
                self.emit(Op::Copy { dst, src });
            }
        }
    }

    /// `$x++`, `--@x[key]`.
    fn step(&mut self, target: &Expr, by: i64, is_prefix: bool, span: Span) -> Lowered<Value> {
        match &target.kind {
            ExprKind::Var(name) => {
                let value = self.read_variable(name, target.span)?;
                let At::Reg(reg) = value.at else {
                    return Err(Diagnostic::error(
                        span,
                        format!("`${}` is not a number that can be changed", scope::written(name)),
                    ));
                };
                if !value.ty.is_number() || self.bindings.iter().any(|(bound, _)| bound == name) {
                    return Err(Diagnostic::error(
                        span,
                        format!("`${}` is not a number that can be changed", scope::written(name)),
                    ));
                }
                let by = by * self.pointer_step(&value.ty, span)?;
                let result = if is_prefix { reg } else { self.temp() };
                if !is_prefix {
                    self.emit(Op::Copy { dst: result, src: reg });
                }
                self.emit(Op::BinaryConst { op: Binary::Add, dst: reg, a: reg, b: by });
                if let Some(Width { size_bytes, is_signed }) = self.width(name) {
                    self.emit(Op::Extend { dst: reg, src: reg, size_bytes, is_signed });
                }
                self.keep_in_memory(name);
                Ok(Value { at: At::Reg(result), span, ..value })
            }
            ExprKind::Map(map) => {
                let mark = self.mark();
                let (id, key) = self.key(map)?;
                let (held, size) = self.held_pointer(id, span)?;
                self.shared.maps.learn_value(id, Held::Plain(held.unwrap_or(Ty::I64)), map.span)?;
                let by = by * size;
                let delta = self.reg(&Value::number(by, span));
                let value =
                    self.result(mark, Ty::I64, span, |dst| Op::MapAdd { dst, map: id as u32, key, delta });
                self.release_frame(mark);
                if !is_prefix {
                    return Ok(value);
                }
                let mark = self.mark();
                let a = self.reg(&value);
                self.release_regs(mark);
                self.emit(Op::BinaryConst { op: Binary::Add, dst: a, a, b: by });
                Ok(value)
            }
            _ => Err(Diagnostic::error(span, "only variables and maps can be counted up")),
        }
    }

    /// A copy of a number in a register that what follows may change.
    pub(super) fn guarded(&mut self, value: Value, later: &Expr) -> Value {
        match value.at {
            At::Reg(src) if walk::has_step(later) => {
                let dst = self.temp();
                self.emit(Op::Copy { dst, src });
                Value { at: At::Reg(dst), ..value }
            }
            At::Nowhere | At::Const(_) | At::Reg(_) | At::Slot(_) | At::Memory { .. } => value,
        }
    }
}

/// Of two numbers the result is signed if both are; a constant that is not negative is as the other.
pub(super) fn sign_of_both(a: &Value, b: &Value, unified: Ty) -> Ty {
    let Ty::Int { size_bytes, .. } = unified else { return unified };
    Ty::Int { size_bytes, is_signed: both_signed(a, b) }
}

pub(super) fn both_signed(a: &Value, b: &Value) -> bool {
    let adapts =
        |value: &Value| value.ty.is_signed() && value.constant().is_some_and(|constant| constant >= 0);
    match (adapts(a), adapts(b)) {
        (true, true) => true,
        (true, false) => b.ty.is_signed(),
        (false, true) => a.ty.is_signed(),
        (false, false) => a.ty.is_signed() && b.ty.is_signed(),
    }
}
