//! `printf` and what works like it: the format in pieces, checked against the values, which are laid out in a payload.

use super::Lowered;
use super::body::Body;
use super::types::{Ty, Value};
use crate::ast::{Expr, ExprKind};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::Slot;
use nopal_program::{ALLOCATION_FLAGS, Field, Format, Look, Piece, Spec, Type};

impl Body<'_, '_> {
    /// The format with its fields, and the payload they lie in. `args[0]` is the format.
    pub(crate) fn format(&mut self, name: &str, args: &[Expr], span: Span) -> Lowered<(Format, Slot)> {
        let text = self.literal_text(name, &args[0])?;
        let parsed = parse_format(&text).map_err(|message| Diagnostic::error(args[0].span, message))?;
        let n_specs = parsed.iter().filter(|piece| matches!(piece, Parsed::Spec(_))).count();
        let n_values = args.len() - 1;
        if n_specs != n_values {
            let what = if n_values < n_specs { "too few" } else { "too many" };
            return Err(Diagnostic::error(span, format!("{name}: {what} values for the format"))
                .label(format!("the format takes {n_specs}, {n_values} given")));
        }
        let start = self.frame_top();
        let mut pieces = Vec::new();
        let mut values = args[1..].iter();
        for piece in parsed {
            match piece {
                Parsed::Text(text) => pieces.push(Piece::Text(text)),
                Parsed::Spec(mut spec) => {
                    let Some(expr) = values.next() else { break };
                    let field = self.field(start, expr, |value| check(name, &spec, value))?;
                    // In newer releases `%d` is that of C.
                    let is_int = matches!(field.value_type, Type::Int { .. });
                    if is_int && "diuxXo".contains(spec.conversion) && self.look() == Look::New {
                        spec.size_bytes = spec.size_bytes.or(Some(4));
                    }
                    pieces.push(Piece::Field { spec, field });
                }
            }
        }
        let payload = self.payload_since(start);
        Ok((Format { pieces }, payload))
    }

    /// Lays a value out behind those of the payload that begins at `start`.
    pub(crate) fn field(
        &mut self,
        start: u32,
        expr: &Expr,
        check: impl FnOnce(&Value) -> Lowered<()>,
    ) -> Lowered<Field> {
        let cursor = self.frame_top();
        let mark = self.mark();
        let value = self.expr(expr)?;
        let value = self.whole(value)?;
        self.check_storable(&value, "a value")?;
        check(&value)?;
        let slot = self.put(cursor, &value, value.ty.size_bytes());
        self.release_regs(mark);
        Ok(Field { at: slot.at.saturating_sub(start), value_type: value.ty.to_type() })
    }

    pub(crate) fn payload_since(&self, start: u32) -> Slot {
        let len = self.frame_top().saturating_sub(start);
        Slot { at: if len == 0 { 0 } else { start }, len }
    }

    /// A string that stands in the script.
    pub(crate) fn literal_text(&self, name: &str, expr: &Expr) -> Lowered<String> {
        match &expr.kind {
            ExprKind::Str(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            _ => match self.parameter_text(expr) {
                Some(text) => Ok(text),
                None => Err(Diagnostic::error(expr.span, format!("{name} needs a string that stands here"))
                    .help("write it in quotes: \"...\"")),
            },
        }
    }

    /// `str($1)`.
    pub(crate) fn parameter_text(&self, expr: &Expr) -> Option<String> {
        match &expr.kind {
            ExprKind::Call { name, args, .. } if name == "str" => match args.first().map(|arg| &arg.kind) {
                Some(ExprKind::Param(index)) => {
                    Some(self.shared.script.parameters.get(index - 1).cloned().unwrap_or_default())
                }
                _ => None,
            },
            _ => None,
        }
    }
}

enum Parsed {
    Text(String),
    Spec(Spec),
}

fn parse_format(text: &str) -> Result<Vec<Parsed>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            plain.push('%');
            rest = after;
            continue;
        }
        if !plain.is_empty() {
            pieces.push(Parsed::Text(std::mem::take(&mut plain)));
        }
        let (spec, after) = parse_spec(rest)?;
        pieces.push(Parsed::Spec(spec));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Parsed::Text(plain));
    }
    Ok(pieces)
}

/// What follows a `%`.
fn parse_spec(text: &str) -> Result<(Spec, &str), String> {
    let mut spec = Spec::default();
    let mut rest = text;
    loop {
        let flag = match rest.chars().next() {
            Some('-') => &mut spec.is_left,
            Some('+') => &mut spec.has_plus,
            Some(' ') => &mut spec.has_space,
            Some('0') => &mut spec.has_zeros,
            Some('#') => &mut spec.is_alternate,
            _ => break,
        };
        *flag = true;
        rest = &rest[1..];
    }
    spec.width = number(&mut rest)?;
    if let Some(after) = rest.strip_prefix('.') {
        rest = after;
        spec.precision = Some(number(&mut rest)?.unwrap_or(0));
    }
    for (modifier, size_bytes) in [("hh", 1), ("h", 2), ("ll", 8), ("l", 8), ("j", 8), ("z", 8), ("t", 8)] {
        if let Some(after) = rest.strip_prefix(modifier) {
            spec.size_bytes = Some(size_bytes);
            rest = after;
            break;
        }
    }
    let Some(conversion) = rest.chars().next() else { return Err("`%` at the end of the format".into()) };
    rest = &rest[conversion.len_utf8()..];
    if let ('g', Some(after)) = (conversion, rest.strip_prefix('r')) {
        return Ok((Spec { conversion: ALLOCATION_FLAGS, ..spec }, after));
    }
    if !"diuxXocsprfeg".contains(conversion) {
        return Err(format!("there is no conversion `%{conversion}`; a percent sign is `%%`"));
    }
    spec.conversion = conversion;
    if conversion == 'r' {
        for (suffix, meaning) in [('x', 'x'), ('h', 'h')] {
            if let Some(after) = rest.strip_prefix(suffix) {
                spec.conversion = meaning;
                // Told from the `%x` of a number by the type of the field.
                rest = after;
                return Ok((Spec { size_bytes: None, ..spec }, rest));
            }
        }
    }
    Ok((spec, rest))
}

fn number(rest: &mut &str) -> Result<Option<u32>, String> {
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at(length);
    *rest = after;
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse::<u32>() {
        Ok(number) if number <= 4096 => Ok(Some(number)),
        _ => Err(format!("a width of {digits} is too much")),
    }
}

/// Whether the conversion can show the value.
fn check(name: &str, spec: &Spec, value: &Value) -> Lowered<()> {
    let is_buffer = matches!(value.ty, Ty::Plain(Type::Buffer { .. }));
    let (is_right, wanted) = match spec.conversion {
        'x' | 'h' if is_buffer => (true, "buffer"),
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' | 'p' | ALLOCATION_FLAGS => (value.ty.is_number(), "integer"),
        's' => (is_text(&value.ty), "string"),
        'r' | 'h' => (is_buffer, "buffer"),
        _ => (value.ty == Ty::Plain(Type::Float), "double"),
    };
    if is_right || value.ty == Ty::Unknown {
        return Ok(());
    }
    let found = match &value.ty {
        Ty::Int { .. } => "integer".to_string(),
        other => other.text(),
    };
    let message = format!("{name}: `%{}` shows a value of type {wanted}, this is {found}", spec.conversion);
    let diagnostic = Diagnostic::error(value.span, message);
    Err(match (&value.ty, wanted) {
        (Ty::Int { .. } | Ty::Pointer { .. }, "string") => {
            diagnostic.help("use `%d`, or read a string from this address with str()")
        }
        (Ty::Plain(Type::Str { .. }), _) => diagnostic.help("use `%s`"),
        (Ty::Plain(Type::Buffer { .. }), _) => diagnostic.help("use `%r`"),
        (Ty::Tuple(_), _) => diagnostic.help("print() shows tuples"),
        _ => diagnostic,
    })
}

/// What is shown as text.
fn is_text(ty: &Ty) -> bool {
    matches!(
        ty,
        Ty::Plain(
            Type::Str { .. }
                | Type::Probe
                | Type::UserSymbol
                | Type::KernelSymbol
                | Type::UserStack { .. }
                | Type::KernelStack { .. }
                | Type::Time { .. }
                | Type::Enum { .. }
                | Type::Inet
                | Type::Mac
                | Type::Username
                | Type::ErrorText
                | Type::CgroupPath { .. }
                | Type::Bool
        )
    )
}
