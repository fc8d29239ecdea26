//! A program as text for people: its maps, then each clause with its operations. What `-v` prints.

use crate::op::{Binary, Op, Reg, Slot, Space, Unary};
use crate::rank::Rank;
use crate::{Action, Clause, Field, Format, MapValue, MessageOf, Piece, Program, Spec, StackForm, Type};
use std::fmt::{self, Write};

/// As many points of a clause are named.
const MAX_POINTS: usize = 8;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for map in &self.maps {
            let key: Vec<String> = map.key.iter().map(type_text).collect();
            let value = match &map.value {
                MapValue::Plain(value_type) => type_text(value_type),
                MapValue::Aggregate(aggregate) => format!("{aggregate:?}").to_lowercase(),
                MapValue::Series(series) => {
                    format!("{} intervals of {} ns", series.n, series.interval_ns)
                }
            };
            writeln!(f, "map {}[{}] = {value}", map.name, key.join(", "))?;
        }
        for (index, clause) in self.clauses.iter().enumerate() {
            if index > 0 || !self.maps.is_empty() {
                writeln!(f)?;
            }
            self.clause(f, clause)?;
        }
        Ok(())
    }
}

impl Program {
    fn clause(&self, f: &mut fmt::Formatter<'_>, clause: &Clause) -> fmt::Result {
        for point in clause.points.iter().take(MAX_POINTS) {
            writeln!(f, "{}", point.name)?;
        }
        if clause.points.len() > MAX_POINTS {
            writeln!(f, "and {} more", clause.points.len() - MAX_POINTS)?;
        }
        writeln!(f, "  {} registers, {} bytes", clause.code.n_regs, clause.code.frame_bytes)?;
        for (index, op) in clause.code.ops.iter().enumerate() {
            writeln!(f, "{index:4}: {}", self.op(op))?;
        }
        Ok(())
    }

    fn op(&self, op: &Op) -> String {
        let map = |id: &u32| {
            self.maps.get(*id as usize).map_or_else(|| format!("map {id}"), |map| map.name.clone())
        };
        let entry =
            |id: &u32, key: &Slot| if key.len == 0 { map(id) } else { format!("{}[{}]", map(id), slot(key)) };
        match op {
            Op::Const { dst, value } => format!("r{dst} = {value}"),
            Op::Copy { dst, src } => format!("r{dst} = r{src}"),
            Op::Unary { op, dst, a } => format!("r{dst} = {}r{a}", unary(*op)),
            Op::Binary { op, dst, a, b } => format!("r{dst} = r{a} {} r{b}", binary(*op)),
            Op::BinaryConst { op, dst, a, b } => format!("r{dst} = r{a} {} {b}", binary(*op)),
            Op::Extend { dst, src, size_bytes, is_signed } => {
                format!("r{dst} = {}(r{src})", int(*size_bytes, *is_signed))
            }
            Op::Arg { dst, index } => format!("r{dst} = arg{index}"),
            Op::Field { dst, offset, size_bytes, is_signed } => {
                format!("r{dst} = {} of field +{offset}", int(*size_bytes, *is_signed))
            }
            Op::Builtin { dst, what } => format!("r{dst} = {}", format!("{what:?}").to_lowercase()),
            Op::Register { dst, index } => format!("r{dst} = register {index}"),
            Op::Comm { to } => format!("{} = comm", slot(to)),
            Op::Probe { dst } => format!("r{dst} = probe"),
            Op::UserStack { to } => format!("{} = ustack", slot(to)),
            Op::KernelStack { to } => format!("{} = kstack", slot(to)),
            Op::ArgString { to, index, len } => format!("{} = str(arg{index}{})", slot(to), length(len)),
            Op::ArgBytes { to, index, len } => format!("{} = buf(arg{index}, r{len})", slot(to)),
            Op::String { to, address, len, space: at } => {
                format!("{} = {}str(r{address}{})", slot(to), space(*at), length(len))
            }
            Op::Buffer { to, address, len, space: at } => {
                format!("{} = {}buf(r{address}, r{len})", slot(to), space(*at))
            }
            Op::Read { to, address, space: at } => format!("{} = {}read(r{address})", slot(to), space(*at)),
            Op::Readable { dst, address, space: at } => {
                format!("r{dst} = {}can read r{address}", space(*at))
            }
            Op::FrameAddress { dst, at } => format!("r{dst} = address of [{at}]"),
            Op::FieldString { to, offset } => format!("{} = string of field +{offset}", slot(to)),
            Op::FieldBytes { to, offset } => format!("{} = bytes of field +{offset}", slot(to)),
            Op::Load { dst, at, size_bytes, is_signed } => {
                format!("r{dst} = {} at [{at}]", int(*size_bytes, *is_signed))
            }
            Op::Store { at, src, size_bytes } => format!("[{at}..{}] = r{src}", at + u32::from(*size_bytes)),
            Op::Zero { to } => format!("{} = zeros", slot(to)),
            Op::Constant { to, constant } => match self.constants.get(*constant as usize) {
                Some(bytes) => format!("{} = \"{}\"", slot(to), bytes.escape_ascii()),
                None => format!("{} = constant {constant}", slot(to)),
            },
            Op::Move { to, from } => format!("{} = {}", slot(to), slot(from)),
            Op::Equal { dst, a, b } => format!("r{dst} = {} equals {}", slot(a), slot(b)),
            Op::Strncmp { dst, a, b, n } => format!("r{dst} = strncmp({}, {}, {n})", slot(a), slot(b)),
            Op::StrFind { dst, haystack, needle } => {
                format!("r{dst} = strstr({}, {})", slot(haystack), slot(needle))
            }
            Op::Element { dst, from, index, n, size_bytes, is_signed } => {
                format!("r{dst} = {} of {n} in {} at r{index}", int(*size_bytes, *is_signed), slot(from))
            }
            Op::StrConcat { to, a, b } => format!("{} = {} then {}", slot(to), slot(a), slot(b)),
            Op::Strlen { dst, a } => format!("r{dst} = strlen({})", slot(a)),
            Op::MapLoad { dst, map, key } => format!("r{dst} = {}", entry(map, key)),
            Op::MapRead { to, map, key } => format!("{} = {}", slot(to), entry(map, key)),
            Op::MapStore { map, key, src } => format!("{} = r{src}", entry(map, key)),
            Op::MapWrite { map, key, from } => format!("{} = {}", entry(map, key), slot(from)),
            Op::MapAdd { dst, map, key, delta } => format!("r{dst} = {} += r{delta}", entry(map, key)),
            Op::MapDelete { map, key } => format!("delete {}", entry(map, key)),
            Op::MapHas { dst, map, key } => format!("r{dst} = has {}", entry(map, key)),
            Op::MapLen { dst, map: id } => format!("r{dst} = len {}", map(id)),
            Op::Aggregate { map, key, value } => format!("{} <- r{value}", entry(map, key)),
            Op::ForEach { map: id, key, value, end } => {
                format!("for {}, {} in {} until {end}", slot(key), slot(value), map(id))
            }
            Op::Emit { action, payload } => {
                let what = self
                    .actions
                    .get(*action as usize)
                    .map_or_else(|| format!("action {action}"), |a| self.action(a));
                if payload.len == 0 { what } else { format!("{what} from {}", slot(payload)) }
            }
            Op::Jump { to } => format!("go to {to}"),
            Op::JumpIf { condition, to } => format!("if r{condition} go to {to}"),
            Op::JumpUnless { condition, to } => format!("unless r{condition} go to {to}"),
            Op::Return => "return".into(),
        }
    }

    fn action(&self, action: &Action) -> String {
        let map = |id: &u32| {
            self.maps.get(*id as usize).map_or_else(|| format!("map {id}"), |map| map.name.clone())
        };
        match action {
            Action::Printf { format } => format!("printf({})", format_text(format)),
            Action::PrintMap { map: id, top: 0, div: 0, rank: Rank::Usual } => format!("print({})", map(id)),
            Action::PrintMap { map: id, top, div, rank } => {
                let by = rank.word().map_or(String::new(), |word| format!(", by {word}"));
                format!("print({}, {top}, {div}{by})", map(id))
            }
            Action::PrintValue { field } => format!("print({})", field_text(field)),
            Action::PrintEntry { map: id, key_at, value } => {
                format!("print({}[+{key_at}], {})", map(id), field_text(value))
            }
            Action::Clear { map: id } => format!("clear({})", map(id)),
            Action::Zero { map: id } => format!("zero({})", map(id)),
            Action::Exit { code: Some(code) } => format!("exit({})", field_text(code)),
            Action::Exit { code: None } => "exit()".into(),
            Action::Time { format } => format!("time({format:?})"),
            Action::Join { at, max_count, max_bytes, separator } => {
                format!("join(+{at}, {max_count} of {max_bytes} bytes, {separator:?})")
            }
            Action::TakeSeries { map: id } => format!("tseries({})", map(id)),
            Action::ForgetSeries { map: id } => format!("delete({})", map(id)),
            Action::SpanEdge { span, is_end } => {
                let of =
                    self.spans.get(*span as usize).map_or_else(|| format!("span {span}"), |s| map(&s.map));
                format!("{} {of}", if *is_end { "end" } else { "begin" })
            }
            Action::Message { format, of, .. } => {
                let what = match of {
                    MessageOf::Error => "errorf",
                    MessageOf::Warning => "warnf",
                    MessageOf::Check | MessageOf::Helper { .. } => "tell",
                };
                format!("{what}({})", format_text(format))
            }
            Action::Cat { format } => format!("cat({})", format_text(format)),
            Action::System { format } => format!("system({})", format_text(format)),
        }
    }
}

fn slot(slot: &Slot) -> String {
    format!("[{}..{}]", slot.at, slot.at.saturating_add(slot.len))
}

fn int(size_bytes: u8, is_signed: bool) -> String {
    format!("{}{}", if is_signed { 'i' } else { 'u' }, u32::from(size_bytes) * 8)
}

fn space(space: Space) -> &'static str {
    match space {
        Space::User => "",
        Space::Kernel => "kernel ",
    }
}

fn length(len: &Option<Reg>) -> String {
    len.map_or_else(String::new, |len| format!(", r{len}"))
}

fn unary(op: Unary) -> &'static str {
    match op {
        Unary::Neg => "-",
        Unary::BitNot => "~",
        Unary::Not => "!",
    }
}

/// Signed operations carry an s.
fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::DivUnsigned => "/",
        Binary::DivSigned => "/s",
        Binary::RemUnsigned => "%",
        Binary::RemSigned => "%s",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::Shl => "<<",
        Binary::ShrUnsigned => ">>",
        Binary::ShrSigned => ">>s",
        Binary::Eq => "==",
        Binary::Ne => "!=",
        Binary::LtUnsigned => "<",
        Binary::LtSigned => "<s",
        Binary::LeUnsigned => "<=",
        Binary::LeSigned => "<=s",
        Binary::GtUnsigned => ">",
        Binary::GtSigned => ">s",
        Binary::GeUnsigned => ">=",
        Binary::GeSigned => ">=s",
    }
}

/// As a listing names a type.
pub fn type_text(value_type: &Type) -> String {
    match value_type {
        Type::Int { size_bytes, is_signed } => int(*size_bytes, *is_signed),
        Type::Bool => "bool".into(),
        Type::Float => "f64".into(),
        Type::Pointer => "pointer".into(),
        Type::Str { max_bytes } => format!("str {max_bytes}"),
        Type::Buffer { max_bytes } => format!("buf {max_bytes}"),
        Type::Tuple(members) => format!("({})", members.iter().map(type_text).collect::<Vec<_>>().join(", ")),
        Type::Record(members) => {
            let members = members.iter().map(|(name, member)| format!("{name} = {}", type_text(member)));
            format!("({})", members.collect::<Vec<_>>().join(", "))
        }
        Type::Whole(layout) => format!("{} bytes of C", layout.size_bytes()),
        Type::Probe => "probe".into(),
        Type::UserSymbol => "usym".into(),
        Type::KernelSymbol => "ksym".into(),
        Type::UserStack { max_frames, form } => format!("ustack {max_frames}{}", stack_form(*form)),
        Type::KernelStack { max_frames, form } => format!("kstack {max_frames}{}", stack_form(*form)),
        Type::Time { format } => format!("time {format:?}"),
        Type::Enum { labels } => format!("enum of {}", labels.len()),
        Type::Inet => "inet".into(),
        Type::Mac => "mac".into(),
        Type::Username => "username".into(),
        Type::ErrorText => "strerror".into(),
        Type::CgroupPath { filter } => format!("cgroup_path {filter:?}"),
    }
}

fn stack_form(form: StackForm) -> &'static str {
    match form {
        StackForm::Bpftrace => "",
        StackForm::Perf => " perf",
        StackForm::Raw => " raw",
        StackForm::BuildId => " build_id",
    }
}

fn field_text(field: &Field) -> String {
    format!("+{}: {}", field.at, type_text(&field.value_type))
}

/// The format as it was written, then the fields.
fn format_text(format: &Format) -> String {
    let mut text = String::new();
    let mut fields = String::new();
    for piece in &format.pieces {
        match piece {
            Piece::Text(plain) => text.push_str(&plain.replace('%', "%%")),
            Piece::Field { spec, field } => {
                text.push_str(&spec_text(spec, &field.value_type));
                let _ = write!(fields, ", {}", field_text(field));
            }
        }
    }
    format!("{text:?}{fields}")
}

fn spec_text(spec: &Spec, value_type: &Type) -> String {
    let mut text = String::from("%");
    for (is_set, flag) in [
        (spec.is_left, '-'),
        (spec.has_plus, '+'),
        (spec.has_space, ' '),
        (spec.has_zeros, '0'),
        (spec.is_alternate, '#'),
    ] {
        if is_set {
            text.push(flag);
        }
    }
    if let Some(width) = spec.width {
        let _ = write!(text, "{width}");
    }
    if let Some(precision) = spec.precision {
        let _ = write!(text, ".{precision}");
    }
    text.push_str(match spec.size_bytes {
        Some(1) => "hh",
        Some(2) => "h",
        Some(8) => "l",
        _ => "",
    });
    if matches!(value_type, Type::Buffer { .. }) && spec.conversion != 'r' {
        text.push('r');
    }
    text.push(spec.conversion);
    text
}
