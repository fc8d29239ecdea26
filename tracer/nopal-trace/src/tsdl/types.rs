//! Type specifiers of TSDL: integer, floating_point, string, enum, struct, variant, names given by typealias and
//! typedef, and the declarators behind them.

use super::lexer::{Place, Token, Unreadable};
use super::parser::{Parser, Value};
use crate::model::{Enum, Field, Float, Integer, Label, Length, Tag, Type, number};
use std::sync::Arc;

/// Deeper nesting than this is refused: nobody writes it, and the parser descends once per level.
const MAX_DEPTH: u32 = 32;
/// A larger alignment is a mistake.
const MAX_ALIGN_BITS: i128 = 1 << 16;

const KEYWORDS: [&str; 6] = ["integer", "floating_point", "string", "struct", "variant", "enum"];

impl Parser {
    fn starts_with_keyword(&self) -> bool {
        matches!(self.peek(), Token::Word(w) if KEYWORDS.contains(&w.as_str()))
    }

    pub(super) fn starts_type_declaration(&self) -> bool {
        self.starts_with_keyword() || self.is_word("typealias") || self.is_word("typedef")
    }

    /// `typealias X := Y;`, `typedef X Y;`, `struct name {...};`, `enum name ...;`, `variant name ...;`
    pub(super) fn type_declaration(&mut self) -> Result<(), Unreadable> {
        if self.is_word("typealias") {
            self.take();
            let ty = self.type_specifier()?;
            self.expect(":=")?;
            let name = self.type_words()?.join(" ");
            self.declare(name, ty);
        } else if self.is_word("typedef") {
            self.take();
            for field in self.declaration()? {
                self.declare(field.raw, field.ty);
            }
            return Ok(());
        } else if self.starts_with_keyword() {
            self.type_specifier()?;
        } else {
            let found = self.describe();
            return self.fail(format!("a block or a type declaration is missing before {found}"));
        }
        self.expect(";")
    }

    fn declare(&mut self, name: String, ty: Type) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, ty);
        }
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).cloned()
    }

    /// Words that name a type, such as `unsigned long` or `struct packet_context`.
    fn type_words(&mut self) -> Result<Vec<String>, Unreadable> {
        let mut words = vec![self.word()?];
        while let Token::Word(_) = self.peek() {
            words.push(self.word()?);
        }
        while self.eat("*") {
            words.push("*".to_owned());
        }
        Ok(words)
    }

    pub(super) fn type_specifier(&mut self) -> Result<Type, Unreadable> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail("types are nested too deeply");
        }
        let ty = if self.starts_with_keyword() {
            self.keyword_type()
        } else {
            let place = self.place();
            let name = self.type_words()?.join(" ");
            match self.lookup(&name) {
                Some(ty) => Ok(ty),
                None => self.fail_at(place, format!("no type is named `{name}`")),
            }
        };
        self.depth -= 1;
        // Names can nest types deeper than the text does, and everything that walks types descends once per level.
        match ty {
            Ok(ty) if ty.depth() > MAX_DEPTH => self.fail("types are nested too deeply"),
            ty => ty,
        }
    }

    fn keyword_type(&mut self) -> Result<Type, Unreadable> {
        match self.word()?.as_str() {
            "integer" => Ok(Type::Integer(self.integer()?)),
            "floating_point" => self.floating_point(),
            "string" => {
                if *self.peek() == Token::Mark("{") {
                    self.attributes()?;
                }
                Ok(Type::String)
            }
            "struct" => self.structure(),
            "variant" => self.variant(),
            _ => self.enumeration(),
        }
    }

    fn attributes(&mut self) -> Result<Vec<(String, Value)>, Unreadable> {
        self.expect("{")?;
        let mut found = Vec::new();
        while !self.eat("}") {
            if self.eat(";") {
                continue;
            }
            let key = self.path()?.join(".");
            self.expect("=")?;
            found.push((key, self.value()?));
            self.expect(";")?;
        }
        Ok(found)
    }

    fn integer(&mut self) -> Result<Integer, Unreadable> {
        let place = self.place();
        let mut integer = Integer { bits: 0, align_bits: 0, ..Integer::new(0, false) };
        for (key, value) in self.attributes()? {
            match (key.as_str(), &value) {
                ("size", Value::Number(n)) if (1..=64).contains(n) => integer.bits = *n as u32,
                ("size", _) => return self.fail_at(place, "an integer has 1 to 64 bits"),
                ("align", value) => integer.align_bits = self.align(value, place)?,
                ("signed", Value::Number(n)) => integer.is_signed = *n != 0,
                ("signed", Value::Path(p)) => {
                    integer.is_signed = matches!(p[0].as_str(), "true" | "TRUE");
                }
                ("byte_order", Value::Path(p)) => integer.order = self.byte_order(p, place)?,
                ("base", Value::Number(n)) => match n {
                    2 | 8 | 10 | 16 => integer.base = *n as u8,
                    _ => return self.fail_at(place, format!("{n} is not a base that can be printed")),
                },
                ("base", Value::Path(p)) => {
                    integer.base = match p[0].as_str() {
                        "binary" | "b" => 2,
                        "octal" | "oct" | "o" => 8,
                        "hexadecimal" | "hex" | "x" | "X" | "p" => 16,
                        _ => 10,
                    }
                }
                ("encoding", Value::Path(p)) => integer.is_text = p[0] != "none",
                ("map", Value::Path(p)) if p.len() == 3 && p[0] == "clock" => {
                    integer.clock = Some(Arc::from(p[1].as_str()));
                }
                _ => {}
            }
        }
        if integer.bits == 0 {
            return self.fail_at(place, "an integer needs a size");
        }
        if integer.align_bits == 0 {
            // The language's own default: bytes are aligned, bit fields are not.
            integer.align_bits = if integer.bits.is_multiple_of(8) { 8 } else { 1 };
        }
        Ok(integer)
    }

    fn align(&self, value: &Value, place: Place) -> Result<u32, Unreadable> {
        match value {
            Value::Number(n) if (1..=MAX_ALIGN_BITS).contains(n) && (*n as u64).is_power_of_two() => {
                Ok(*n as u32)
            }
            _ => self.fail_at(place, "an alignment is a power of two"),
        }
    }

    fn floating_point(&mut self) -> Result<Type, Unreadable> {
        let place = self.place();
        let (mut exponent, mut mantissa) = (0, 0);
        let mut float = Float { bits: 0, align_bits: 8, order: None, is_reversed: false };
        for (key, value) in self.attributes()? {
            match (key.as_str(), &value) {
                ("exp_dig", Value::Number(n)) => exponent = *n,
                ("mant_dig", Value::Number(n)) => mantissa = *n,
                ("align", value) => float.align_bits = self.align(value, place)?,
                ("byte_order", Value::Path(p)) => float.order = self.byte_order(p, place)?,
                _ => {}
            }
        }
        float.bits = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => return self.fail_at(place, "only 32 and 64 bit floating point numbers can be read"),
        };
        Ok(Type::Float(float))
    }

    fn structure(&mut self) -> Result<Type, Unreadable> {
        let place = self.place();
        let name = if let Token::Word(_) = self.peek() { Some(self.word()?) } else { None };
        if *self.peek() != Token::Mark("{") {
            let name = name.unwrap_or_default();
            return match self.lookup(&format!("struct {name}")) {
                Some(ty) => Ok(ty),
                None => self.fail_at(place, format!("no struct is named `{name}`")),
            };
        }
        let fields = self.members()?;
        let mut align_bits = 1;
        if self.is_word("align") {
            self.take();
            self.expect("(")?;
            let value = self.value()?;
            align_bits = self.align(&value, place)?;
            self.expect(")")?;
        }
        let ty = Type::struct_of(fields, align_bits);
        if let Some(name) = name {
            self.declare(format!("struct {name}"), ty.clone());
        }
        Ok(ty)
    }

    /// `{ type name; ... }` with declarations of types between.
    fn members(&mut self) -> Result<Vec<Field>, Unreadable> {
        self.expect("{")?;
        self.scopes.push(Default::default());
        let mut fields = Vec::new();
        while !self.eat("}") {
            if self.eat(";") {
                continue;
            }
            if self.is_word("typealias") || self.is_word("typedef") {
                self.type_declaration()?;
                continue;
            }
            fields.extend(self.declaration()?);
        }
        self.scopes.pop();
        Ok(fields)
    }

    /// `type name[3], other;` up to and with its semicolon.
    fn declaration(&mut self) -> Result<Vec<Field>, Unreadable> {
        let (ty, mut name) = if self.starts_with_keyword() {
            let ty = self.type_specifier()?;
            // A named type may be declared among the members without a member of its own.
            if self.eat(";") {
                return Ok(Vec::new());
            }
            while self.eat("*") {}
            (ty, self.word()?)
        } else {
            let place = self.place();
            let mut words = self.type_words()?;
            let name = match self.peek() {
                Token::Word(_) => self.word()?,
                _ => words.pop().unwrap_or_default(),
            };
            let type_name = words.join(" ");
            match self.lookup(&type_name) {
                Some(ty) => (ty, name),
                None => return self.fail_at(place, format!("no type is named `{type_name}`")),
            }
        };
        let mut fields = Vec::new();
        loop {
            let ty = self.dimensions(ty.clone())?;
            fields.push(Field::from_raw(name, ty));
            if !self.eat(",") {
                break;
            }
            name = self.word()?;
        }
        self.expect(";")?;
        Ok(fields)
    }

    /// `[3][n]` behind a name: the first one is the outermost.
    fn dimensions(&mut self, element: Type) -> Result<Type, Unreadable> {
        let mut lengths = Vec::new();
        while self.eat("[") {
            let place = self.place();
            lengths.push(match self.value()? {
                Value::Number(n) => match u64::try_from(n) {
                    Ok(n) => Length::Fixed(n),
                    Err(_) => return self.fail_at(place, format!("{n} cannot be a length")),
                },
                Value::Path(path) => Length::Field(path),
                Value::Text(_) => return self.fail_at(place, "a string cannot be a length"),
            });
            self.expect("]")?;
            if lengths.len() > MAX_DEPTH as usize {
                return self.fail("types are nested too deeply");
            }
        }
        Ok(lengths.into_iter().rev().fold(element, Type::array_of))
    }

    fn variant(&mut self) -> Result<Type, Unreadable> {
        let place = self.place();
        let name = if let Token::Word(_) = self.peek() { Some(self.word()?) } else { None };
        let mut tag = Vec::new();
        if self.eat("<") {
            tag = self.path()?;
            self.expect(">")?;
        }
        if *self.peek() == Token::Mark("{") {
            let options = self.members()?;
            let ty = Type::variant_of(Tag::Label(tag), options);
            if let Some(name) = name {
                self.declare(format!("variant {name}"), ty.clone());
            }
            return Ok(ty);
        }
        let name = name.unwrap_or_default();
        match self.lookup(&format!("variant {name}")) {
            Some(Type::Variant(named)) => {
                let tag = if tag.is_empty() { named.tag.clone() } else { Tag::Label(tag) };
                Ok(Type::variant_of(tag, named.options.clone()))
            }
            _ => self.fail_at(place, format!("no variant is named `{name}`")),
        }
    }

    fn enumeration(&mut self) -> Result<Type, Unreadable> {
        let place = self.place();
        let name = if let Token::Word(_) = self.peek() { Some(self.word()?) } else { None };
        let has_container = self.eat(":");
        if !has_container && *self.peek() != Token::Mark("{") {
            let name = name.unwrap_or_default();
            return match self.lookup(&format!("enum {name}")) {
                Some(ty) => Ok(ty),
                None => self.fail_at(place, format!("no enum is named `{name}`")),
            };
        }
        let container = if has_container { Some(self.type_specifier()?) } else { self.lookup("int") };
        let Some(Type::Integer(integer)) = container else {
            return self.fail_at(place, "an enum needs an integer type");
        };
        let labels = self.labels(integer.is_signed)?;
        let ty = Type::Enum(Arc::new(Enum { integer, labels, has_braces: false }));
        if let Some(name) = name {
            self.declare(format!("enum {name}"), ty.clone());
        }
        Ok(ty)
    }

    fn labels(&mut self, is_signed: bool) -> Result<Vec<Label>, Unreadable> {
        // A negative number in the table of an unsigned type stands for the same bits.
        let wrap = |n: i128| number(n as u64, is_signed);
        self.expect("{")?;
        let mut labels = Vec::new();
        let mut next: i128 = 0;
        while !self.eat("}") {
            let text = match self.peek().clone() {
                Token::Text(text) => {
                    self.take();
                    text
                }
                _ => self.word()?,
            };
            let (mut first, mut last) = (next, next);
            if self.eat("=") {
                first = self.label_value()?;
                last = if self.eat("...") { self.label_value()? } else { first };
            }
            next = last + 1;
            labels.push(Label { text, first: wrap(first), last: wrap(last) });
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(labels)
    }

    fn label_value(&mut self) -> Result<i128, Unreadable> {
        let place = self.place();
        match self.value()? {
            Value::Number(n) => Ok(n),
            Value::Text(_) | Value::Path(_) => self.fail_at(place, "an enum's values are numbers"),
        }
    }
}
