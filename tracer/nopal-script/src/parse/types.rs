//! Types of C: in casts, and the `struct`, `union`, `enum` and `typedef` definitions of a script.

use super::{Parsed, Parser};
use crate::ast::Declared;
use crate::ctype::{CType, Member, Record};
use crate::diagnostic::{Diagnostic, Span};
use crate::lex::Token;

/// Larger ones are mistakes.
const MAX_RECORD_BYTES: u32 = 1 << 20;

impl Parser<'_> {
    /// Whether a type comes next, as in a cast.
    pub(super) fn is_type_next(&mut self) -> Parsed<bool> {
        let (token, _) = self.peek()?.clone();
        let Token::Name(name) = token else { return Ok(false) };
        Ok(matches!(name.as_str(), "struct" | "union" | "enum" | "const" | "volatile" | "typeof")
            || base_word(&name)
            || self.script.records.typedefs.contains_key(&name))
    }

    /// `struct foo *`, `uint8`, `int32[4]`.
    pub(super) fn type_name(&mut self) -> Parsed<CType> {
        let mut named = self.base_type()?;
        while self.accept("*")? {
            self.skip_qualifiers()?;
            named = named.pointer();
        }
        let span = self.peek()?.1;
        self.array_of(named, span)
    }

    /// Bounds after a declared name, the last the innermost.
    pub(super) fn array_of(&mut self, of: CType, span: Span) -> Parsed<CType> {
        let mut bounds = Vec::new();
        while self.accept("[")? {
            match self.take()? {
                (Token::Int { value, .. }, bound_span) => {
                    if !(0..=i64::from(MAX_RECORD_BYTES)).contains(&value) || bounds.len() >= 4 {
                        return Err(Diagnostic::error(bound_span, "this array is too large"));
                    }
                    bounds.push(value as u32);
                    self.expect("]")?;
                }
                (Token::Punct("]"), _) => bounds.push(0),
                (token, span) => {
                    return Err(Diagnostic::error(
                        span,
                        format!("expected a number, found {}", token.text()),
                    ));
                }
            }
        }
        let array = bounds.into_iter().rev().fold(of, |of, n| CType::Array(Box::new(of), n));
        match self.script.records.layout(&array) {
            Some((size_bytes, _)) if size_bytes > u64::from(MAX_RECORD_BYTES) => {
                Err(Diagnostic::error(span, "this array is too large"))
            }
            _ => Ok(array),
        }
    }

    fn skip_qualifiers(&mut self) -> Parsed<()> {
        while matches!(self.peek()?, (Token::Name(name), _) if matches!(name.as_str(), "const" | "volatile" | "restrict" | "__user"))
        {
            self.take()?;
        }
        Ok(())
    }

    /// The same, or `typeof(value)`.
    pub(super) fn type_or_like(&mut self) -> Parsed<Declared> {
        if !matches!(self.peek()?, (Token::Name(name), _) if name == "typeof") {
            return Ok(Declared::Type(self.type_name()?));
        }
        self.take()?;
        self.behind_typeof()
    }

    /// `(value)` or `(type)` behind `typeof`, and stars behind that.
    pub(super) fn behind_typeof(&mut self) -> Parsed<Declared> {
        self.expect("(")?;
        let declared = match self.is_type_next()? {
            true => Declared::Type(self.type_name()?),
            false => Declared::Like(self.expression()?),
        };
        self.expect(")")?;
        Ok(match declared {
            Declared::Type(mut named) => {
                while self.accept("*")? {
                    named = named.pointer();
                }
                Declared::Type(named)
            }
            like @ Declared::Like(_) => like,
        })
    }

    /// Without the stars. A record may be defined on the spot.
    fn base_type(&mut self) -> Parsed<CType> {
        self.skip_qualifiers()?;
        let (word, span) = self.name("a type")?;
        let found = match word.as_str() {
            "struct" | "union" => self.record_type(&word, span)?,
            "enum" => self.enum_type(span)?,
            "typeof" => {
                self.expect("(")?;
                let named = self.type_name()?;
                self.expect(")")?;
                named
            }
            _ => self.number_type(word, span)?,
        };
        self.skip_qualifiers()?;
        Ok(found)
    }

    fn number_type(&mut self, word: String, span: Span) -> Parsed<CType> {
        if let Some(named) = self.script.records.typedefs.get(&word) {
            return Ok(named.clone());
        }
        let mut words = vec![word];
        while let (Token::Name(next), _) = self.peek()? {
            if !matches!(next.as_str(), "unsigned" | "signed" | "char" | "short" | "int" | "long" | "double")
            {
                break;
            }
            words.push(next.clone());
            self.take()?;
            if words.len() > 4 {
                return Err(Diagnostic::error(span, "this is not a type"));
            }
        }
        let names: Vec<&str> = words.iter().map(String::as_str).collect();
        number_type(&names).ok_or_else(|| {
            Diagnostic::error(span, format!("there is no type `{}`", words.join(" "))).help(
                "types are int8 to int64, uint8 to uint64, char, void, those of C, and `struct` definitions",
            )
        })
    }

    fn record_type(&mut self, word: &str, start: Span) -> Parsed<CType> {
        let name = match self.peek()? {
            (Token::Name(_), _) => format!("{word} {}", self.name("a name")?.0),
            _ => {
                self.n_anonymous += 1;
                format!("{word} (anonymous {})", self.n_anonymous)
            }
        };
        if self.is_next("{")? {
            let record = self.deeper(|parser| parser.record_body(word == "union", start))?;
            let attributes = self.attributes()?;
            let mut record = match attributes.is_packed {
                true => self.packed(record, word == "union", start)?,
                false => record,
            };
            record.align_bytes = record.align_bytes.max(attributes.align_bytes);
            record.size_bytes = record.size_bytes.next_multiple_of(record.align_bytes.max(1));
            self.script.records.records.insert(name.clone(), record);
        }
        Ok(CType::Record(name))
    }

    /// `__attribute__((packed))`, `__attribute__((aligned(16)))`. Others change the layout in ways of their own, so they are
    /// refused.
    fn attributes(&mut self) -> Parsed<Attributes> {
        let mut attributes = Attributes::default();
        while matches!(self.peek()?, (Token::Name(name), _) if name == "__attribute__") {
            self.take()?;
            self.expect("(")?;
            self.expect("(")?;
            let (name, span) = self.name("an attribute")?;
            match name.as_str() {
                "packed" | "__packed__" => attributes.is_packed = true,
                "aligned" | "__aligned__" => {
                    let align_bytes = self.alignment()?;
                    attributes.align_bytes = attributes.align_bytes.max(align_bytes);
                }
                _ => {
                    return Err(Diagnostic::error(span, format!("the attribute `{name}` is not supported"))
                        .help("`packed` and `aligned(8)` are"));
                }
            }
            self.expect(")")?;
            self.expect(")")?;
        }
        Ok(attributes)
    }

    /// `(8)`.
    fn alignment(&mut self) -> Parsed<u32> {
        self.expect("(")?;
        let (token, span) = self.take()?;
        let align_bytes = match token {
            Token::Int { value, .. } if (1..=4096).contains(&value) && value.count_ones() == 1 => {
                value as u32
            }
            _ => return Err(Diagnostic::error(span, "an alignment is a power of two from 1 to 4096")),
        };
        self.expect(")")?;
        Ok(align_bytes)
    }

    /// The same members without room between them.
    fn packed(&self, record: Record, is_union: bool, span: Span) -> Parsed<Record> {
        let mut layout = Layout { is_union, ..Layout::default() };
        for member in record.members {
            if member.bits.is_some() {
                return Err(Diagnostic::error(span, "bit fields in packed records are not supported"));
            }
            let size = self.script.records.layout(&member.value_type).map_or(0, |(size, _)| size);
            layout.place(member.name, member.value_type, size, 1, None);
        }
        Ok(layout.finish())
    }

    fn record_body(&mut self, is_union: bool, start: Span) -> Parsed<Record> {
        self.expect("{")?;
        let mut layout = Layout { is_union, ..Layout::default() };
        while !self.accept("}")? {
            let base = self.base_type()?;
            if self.accept(";")? {
                // The members of an unnamed one are reached as if they were its own.
                self.place(&mut layout, String::new(), base, None, start)?;
                continue;
            }
            loop {
                let (name, value_type, bits, span) = self.declarator(base.clone())?;
                self.place(&mut layout, name, value_type, bits, span)?;
                if !self.accept(",")? {
                    break;
                }
            }
            // The last one may do without, as bpftrace has it.
            if !self.is_next("}")? {
                self.expect(";")?;
            }
        }
        Ok(layout.finish())
    }

    /// `*name[3]`, `name : 4`, `(*name)(int)`.
    fn declarator(&mut self, mut base: CType) -> Parsed<(String, CType, Option<u8>, Span)> {
        while self.accept("*")? {
            self.skip_qualifiers()?;
            base = base.pointer();
        }
        if self.accept("(")? {
            self.expect("*")?;
            let (name, span) = self.name("a name")?;
            self.expect(")")?;
            self.expect("(")?;
            let mut n_open = 1u32;
            while n_open > 0 {
                match self.take()? {
                    (Token::Punct("("), _) => n_open += 1,
                    (Token::Punct(")"), _) => n_open -= 1,
                    (Token::End, span) => return Err(Diagnostic::error(span, "expected `)`")),
                    _ => {}
                }
            }
            return Ok((name, CType::Void.pointer(), None, span));
        }
        if self.is_next(":")? {
            let span = self.peek()?.1;
            let bits = self.bits()?;
            return Ok((String::new(), base, bits, span));
        }
        let (name, span) = self.name("the name of a member")?;
        let value_type = self.array_of(base, span)?;
        let bits = self.bits()?;
        Ok((name, value_type, bits, span))
    }

    fn bits(&mut self) -> Parsed<Option<u8>> {
        if !self.accept(":")? {
            return Ok(None);
        }
        match self.take()? {
            (Token::Int { value, .. }, _) if (0..=64).contains(&value) => Ok(Some(value as u8)),
            (_, span) => Err(Diagnostic::error(span, "expected a number of bits")),
        }
    }

    fn place(
        &self,
        layout: &mut Layout,
        name: String,
        value_type: CType,
        bits: Option<u8>,
        span: Span,
    ) -> Parsed<()> {
        let Some((size_bytes, align_bytes)) = self.script.records.layout(&value_type) else {
            return Err(Diagnostic::error(
                span,
                format!("the size of `{}` is not known here", value_type.text()),
            )
            .help("define it before, or use a pointer to it"));
        };
        if layout.record.members.len() >= 4096 || layout.at + size_bytes > u64::from(MAX_RECORD_BYTES) {
            return Err(Diagnostic::error(span, "this record is too large"));
        }
        if !name.is_empty() && layout.record.members.iter().any(|member| member.name == name) {
            return Err(Diagnostic::error(span, format!("there are two members `{name}`")));
        }
        layout.place(name, value_type, size_bytes, align_bytes, bits);
        Ok(())
    }

    fn enum_type(&mut self, start: Span) -> Parsed<CType> {
        let name = match self.peek()? {
            (Token::Name(_), _) => self.name("a name")?.0,
            _ => {
                self.n_anonymous += 1;
                format!("(anonymous {})", self.n_anonymous)
            }
        };
        let full = format!("enum {name}");
        if !self.accept("{")? {
            return Ok(CType::Enum(full));
        }
        let mut labels: Vec<(i64, String)> = Vec::new();
        let mut next = 0i64;
        while !self.accept("}")? {
            let (label, label_span) = self.name("a label")?;
            if self.accept("=")? {
                next = self.constant()?;
            }
            if self.script.records.constants.insert(label.clone(), next).is_some() {
                return Err(Diagnostic::error(label_span, format!("there are two labels `{label}`")));
            }
            labels.push((next, label));
            next = next.wrapping_add(1);
            if !self.accept(",")? {
                self.expect("}")?;
                break;
            }
        }
        if labels.is_empty() {
            return Err(Diagnostic::error(start, "this enum has no labels"));
        }
        self.script.records.enums.insert(full.clone(), labels);
        Ok(CType::Enum(full))
    }

    /// A number, its negative, or an earlier label.
    fn constant(&mut self) -> Parsed<i64> {
        let is_negative = self.accept("-")?;
        let value = match self.take()? {
            (Token::Int { value, .. }, _) => value,
            (Token::Name(name), span) => match self.script.records.constants.get(&name) {
                Some(value) => *value,
                None => {
                    return Err(Diagnostic::error(span, format!("there is no label `{name}` before this")));
                }
            },
            (token, span) => {
                return Err(Diagnostic::error(span, format!("expected a number, found {}", token.text())));
            }
        };
        Ok(if is_negative { value.wrapping_neg() } else { value })
    }

    /// A definition at the top level of the script.
    pub(super) fn definition(&mut self) -> Parsed<()> {
        let is_typedef = matches!(self.peek()?, (Token::Name(name), _) if name == "typedef");
        if is_typedef {
            self.take()?;
        }
        let (_, start) = self.peek()?.clone();
        let base = self.base_type()?;
        if is_typedef {
            let (name, value_type, bits, span) = self.declarator(base)?;
            if bits.is_some() || base_word(&name) {
                return Err(Diagnostic::error(span, format!("`{name}` cannot be defined")));
            }
            self.script.records.typedefs.insert(name, value_type);
            self.expect(";")?;
            return Ok(());
        } else if !matches!(&base, CType::Record(_) | CType::Enum(_)) {
            return Err(Diagnostic::error(start, "expected a definition"));
        }
        self.accept(";")?;
        // Points are read from the text, so a token looked at is given back.
        if let Some((_, span)) = self.peeked.take() {
            self.lexer.at = span.start as usize;
        }
        Ok(())
    }
}

/// What stands behind a record.
#[derive(Default)]
struct Attributes {
    is_packed: bool,
    align_bytes: u32,
}

/// Where the next member goes.
#[derive(Default)]
struct Layout {
    is_union: bool,
    at: u64,
    /// Bits taken of the unit that began at `at - size`.
    bit: Option<(u32, u8, u64)>,
    record: Record,
}

impl Layout {
    fn place(
        &mut self,
        name: String,
        value_type: CType,
        size_bytes: u64,
        align_bytes: u64,
        bits: Option<u8>,
    ) {
        self.record.align_bytes = self.record.align_bytes.max(align_bytes as u32);
        if let Some(width) = bits {
            return self.place_bits(name, value_type, size_bytes, width);
        }
        self.bit = None;
        let offset = if self.is_union { 0 } else { self.at.next_multiple_of(align_bytes.max(1)) };
        self.at = self.at.max(offset + size_bytes);
        self.record.members.push(Member { name, offset: offset as u32, value_type, bits: None });
    }

    /// As the x86-64 ABI has it: a field never straddles a unit of its own type.
    fn place_bits(&mut self, name: String, value_type: CType, size_bytes: u64, width: u8) {
        let unit_bits = size_bytes * 8;
        let first = match self.bit {
            _ if self.is_union => 0,
            Some((_, _, bit)) => bit,
            None => self.at * 8,
        };
        if width == 0 {
            let next = first.next_multiple_of(unit_bits.max(8));
            self.bit = Some((0, 0, next));
            self.at = self.at.max(next / 8);
            return;
        }
        let first = if first / unit_bits != (first + u64::from(width) - 1) / unit_bits {
            first.next_multiple_of(unit_bits)
        } else {
            first
        };
        let unit = first / unit_bits * size_bytes;
        self.bit = Some((0, 0, first + u64::from(width)));
        self.at = self.at.max((first + u64::from(width)).div_ceil(8));
        if !name.is_empty() {
            let bits = Some(((first - unit * 8) as u8, width.min(unit_bits as u8)));
            self.record.members.push(Member { name, offset: unit as u32, value_type, bits });
        }
    }

    fn finish(mut self) -> Record {
        let align = u64::from(self.record.align_bytes.max(1));
        self.record.align_bytes = align as u32;
        self.record.size_bytes = self.at.next_multiple_of(align) as u32;
        self.record
    }
}

/// Words a type of numbers may begin with.
fn base_word(word: &str) -> bool {
    matches!(word, "unsigned" | "signed") || number_type(&[word]).is_some()
}

fn number_type(words: &[&str]) -> Option<CType> {
    let int = |size_bytes, is_signed| Some(CType::Int { size_bytes, is_signed });
    if let [word] = words {
        let found = match *word {
            "void" => Some(CType::Void),
            "char" => Some(CType::Char),
            "float" | "double" => (*word == "double").then_some(CType::Float),
            "bool" | "_Bool" => Some(CType::Bool),
            "uint8" | "uint8_t" | "u8" | "__u8" => int(1, false),
            "int8" | "int8_t" | "s8" | "__s8" => int(1, true),
            "uint16" | "uint16_t" | "u16" | "__u16" | "__be16" | "__le16" => int(2, false),
            "int16" | "int16_t" | "s16" | "__s16" => int(2, true),
            "uint32" | "uint32_t" | "u32" | "__u32" | "__be32" | "__le32" | "uid_t" | "gid_t" | "mode_t" => {
                int(4, false)
            }
            "int32" | "int32_t" | "s32" | "__s32" | "pid_t" => int(4, true),
            "uint64" | "uint64_t" | "u64" | "__u64" | "__be64" | "__le64" | "size_t" | "uintptr_t" => {
                int(8, false)
            }
            "int64" | "int64_t" | "s64" | "__s64" | "ssize_t" | "intptr_t" | "off_t" | "time_t"
            | "ptrdiff_t" => int(8, true),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    let count = |wanted: &str| words.iter().filter(|word| **word == wanted).count();
    let is_unsigned = count("unsigned") == 1;
    let n_long = count("long");
    let n_known =
        ["unsigned", "signed", "char", "short", "int", "long"].iter().map(|word| count(word)).sum::<usize>();
    if n_known != words.len() || words.is_empty() || n_long > 2 || count("unsigned") + count("signed") > 1 {
        return None;
    }
    match (count("char"), count("short"), n_long) {
        (1, 0, 0) => int(1, !is_unsigned),
        (0, 1, 0) => int(2, !is_unsigned),
        (0, 0, 0) => int(4, !is_unsigned),
        (0, 0, _) => int(8, !is_unsigned),
        _ => None,
    }
}
