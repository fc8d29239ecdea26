//! The blocks of TSDL: trace, env, clock, stream, event, and the declarations between them. Types are in `types.rs`.

use super::lexer::{Place, Token, Unreadable, tokens};
use super::{Clock, EnvValue, EventDecl, Metadata, StreamDecl};
use crate::model::{ByteOrder, Type};
use std::collections::HashMap;

pub(super) struct Parser {
    tokens: Vec<(Token, Place)>,
    at: usize,
    /// Type names by scope, the innermost last.
    pub(super) scopes: Vec<HashMap<String, Type>>,
    pub(super) depth: u32,
}

/// The right side of `key = value;`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Number(i128),
    Text(String),
    /// Words joined by dots.
    Path(Vec<String>),
}

/// One statement in a block.
enum Statement {
    Assign(String, Value, Place),
    Type(String, Type),
}

impl Parser {
    pub(super) fn new(text: &str) -> Result<Self, Unreadable> {
        Ok(Parser { tokens: tokens(text)?, at: 0, scopes: vec![HashMap::new()], depth: 0 })
    }

    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    pub(super) fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn place(&self) -> Place {
        self.tokens[self.at].1
    }

    pub(super) fn take(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn fail<T>(&self, reason: impl Into<String>) -> Result<T, Unreadable> {
        Err(Unreadable { place: self.place(), reason: reason.into() })
    }

    pub(super) fn fail_at<T>(&self, place: Place, reason: impl Into<String>) -> Result<T, Unreadable> {
        Err(Unreadable { place, reason: reason.into() })
    }

    pub(super) fn eat(&mut self, mark: &'static str) -> bool {
        let is_there = *self.peek() == Token::Mark(mark);
        if is_there {
            self.take();
        }
        is_there
    }

    pub(super) fn expect(&mut self, mark: &'static str) -> Result<(), Unreadable> {
        if self.eat(mark) {
            return Ok(());
        }
        let found = self.describe();
        self.fail(format!("`{mark}` is missing before {found}"))
    }

    pub(super) fn describe(&self) -> String {
        match self.peek() {
            Token::Word(w) => format!("`{w}`"),
            Token::Number(n) => format!("`{n}`"),
            Token::Text(t) => format!("\"{}\"", t.escape_debug()),
            Token::Mark(m) => format!("`{m}`"),
            Token::End => "the end of the metadata".to_owned(),
        }
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    pub(super) fn word(&mut self) -> Result<String, Unreadable> {
        match self.peek() {
            Token::Word(_) => match self.take() {
                Token::Word(word) => Ok(word),
                _ => self.fail("a name is missing"),
            },
            _ => {
                let found = self.describe();
                self.fail(format!("a name is missing before {found}"))
            }
        }
    }

    pub(super) fn path(&mut self) -> Result<Vec<String>, Unreadable> {
        let mut path = vec![self.word()?];
        while self.eat(".") || self.eat("->") {
            path.push(self.word()?);
        }
        Ok(path)
    }

    pub(super) fn value(&mut self) -> Result<Value, Unreadable> {
        if self.eat("-") {
            return match self.take() {
                Token::Number(n) => Ok(Value::Number(-i128::from(n))),
                _ => self.fail("a number is missing after `-`"),
            };
        }
        if self.eat("+") && !matches!(self.peek(), Token::Number(_)) {
            return self.fail("a number is missing after `+`");
        }
        match self.peek().clone() {
            Token::Number(n) => {
                self.take();
                Ok(Value::Number(i128::from(n)))
            }
            Token::Text(mut text) => {
                self.take();
                // Adjacent strings are one, as in C.
                while let Token::Text(more) = self.peek().clone() {
                    self.take();
                    text.push_str(&more);
                }
                Ok(Value::Text(text))
            }
            Token::Word(_) => Ok(Value::Path(self.path()?)),
            Token::Mark(_) | Token::End => {
                let found = self.describe();
                self.fail(format!("a value is missing before {found}"))
            }
        }
    }

    pub(super) fn metadata(mut self) -> Result<Metadata, Unreadable> {
        let mut metadata = Metadata::default();
        loop {
            let place = self.place();
            let block = match self.peek() {
                Token::End => return Ok(metadata),
                Token::Mark(";") => {
                    self.take();
                    continue;
                }
                Token::Word(w) if *self.peek_second() == Token::Mark("{") => w.clone(),
                _ => String::new(),
            };
            match block.as_str() {
                "trace" => self.trace(&mut metadata)?,
                "env" => self.env(&mut metadata)?,
                "clock" => self.clock(&mut metadata)?,
                "stream" => self.stream(&mut metadata)?,
                "event" => self.event(&mut metadata, place)?,
                "callsite" => {
                    self.block()?;
                }
                _ => self.type_declaration()?,
            }
        }
    }

    /// A whole `word { ... }`: its assignments, with the types declared in it forgotten afterwards.
    fn block(&mut self) -> Result<Vec<Statement>, Unreadable> {
        self.take();
        self.expect("{")?;
        self.scopes.push(HashMap::new());
        let mut statements = Vec::new();
        while !self.eat("}") {
            if self.eat(";") {
                continue;
            }
            if self.starts_type_declaration() {
                self.type_declaration()?;
                continue;
            }
            let place = self.place();
            let key = self.path()?.join(".");
            if self.eat(":=") {
                let ty = self.type_specifier()?;
                statements.push(Statement::Type(key, ty));
            } else {
                self.expect("=")?;
                let value = self.value()?;
                statements.push(Statement::Assign(key, value, place));
            }
            self.expect(";")?;
        }
        self.scopes.pop();
        self.eat(";");
        Ok(statements)
    }

    fn trace(&mut self, metadata: &mut Metadata) -> Result<(), Unreadable> {
        for statement in self.block()? {
            match statement {
                Statement::Assign(key, value, place) => match (key.as_str(), value) {
                    ("byte_order", Value::Path(path)) => {
                        metadata.order = self.byte_order(&path, place)?;
                    }
                    ("uuid", Value::Text(text)) => {
                        let Some(uuid) = parse_uuid(&text) else {
                            return self.fail_at(place, format!("`{}` is not a UUID", text.escape_debug()));
                        };
                        metadata.uuid = Some(uuid);
                    }
                    ("major", Value::Number(major)) if major != 1 => {
                        return self.fail_at(place, format!("this is CTF {major}; only CTF 1 can be read"));
                    }
                    _ => {}
                },
                Statement::Type(key, ty) => {
                    if key == "packet.header" {
                        metadata.packet_header = Some(ty);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn byte_order(&self, path: &[String], place: Place) -> Result<Option<ByteOrder>, Unreadable> {
        match path.join(".").as_str() {
            "le" => Ok(Some(ByteOrder::Little)),
            "be" | "network" => Ok(Some(ByteOrder::Big)),
            "native" => Ok(None),
            other => self.fail_at(place, format!("`{other}` is not a byte order")),
        }
    }

    fn env(&mut self, metadata: &mut Metadata) -> Result<(), Unreadable> {
        for statement in self.block()? {
            if let Statement::Assign(key, value, _) = statement {
                let value = match value {
                    Value::Number(n) => EnvValue::Number(n),
                    Value::Text(t) => EnvValue::Text(t),
                    Value::Path(p) => EnvValue::Text(p.join(".")),
                };
                metadata.env.push((key, value));
            }
        }
        Ok(())
    }

    fn clock(&mut self, metadata: &mut Metadata) -> Result<(), Unreadable> {
        let mut clock = Clock { name: String::new(), freq: 1_000_000_000, offset_s: 0, offset: 0 };
        for statement in self.block()? {
            let Statement::Assign(key, value, place) = statement else { continue };
            match (key.as_str(), value) {
                ("name", Value::Text(name)) => clock.name = name,
                ("name", Value::Path(path)) => clock.name = path.join("."),
                ("freq", Value::Number(n)) => match u64::try_from(n) {
                    Ok(n) if n > 0 => clock.freq = n,
                    _ => return self.fail_at(place, "a clock's frequency is above zero"),
                },
                ("offset_s", Value::Number(n)) => {
                    clock.offset_s = i64::try_from(n).or_else(|_| self.fail_at(place, "offset too large"))?;
                }
                ("offset", Value::Number(n)) => {
                    clock.offset = i64::try_from(n).or_else(|_| self.fail_at(place, "offset too large"))?;
                }
                _ => {}
            }
        }
        metadata.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, metadata: &mut Metadata) -> Result<(), Unreadable> {
        let place = self.place();
        let mut id = 0;
        let mut stream = StreamDecl::default();
        for statement in self.block()? {
            match statement {
                Statement::Assign(key, Value::Number(n), place) if key == "id" => {
                    id = self.number_of("a stream id", n, place)?;
                }
                Statement::Assign(..) => {}
                Statement::Type(key, ty) => match key.as_str() {
                    "packet.context" => stream.packet_context = Some(ty),
                    "event.header" => stream.event_header = Some(ty),
                    "event.context" => stream.event_context = Some(ty),
                    _ => {}
                },
            }
        }
        if metadata.streams.insert(id, stream).is_some() {
            return self.fail_at(place, format!("stream {id} is declared twice"));
        }
        Ok(())
    }

    fn event(&mut self, metadata: &mut Metadata, place: Place) -> Result<(), Unreadable> {
        let mut event = EventDecl {
            id: 0,
            stream_id: 0,
            name: String::new(),
            log_level: None,
            model_uri: None,
            context: None,
            fields: None,
            place,
        };
        for statement in self.block()? {
            match statement {
                Statement::Assign(key, value, place) => match (key.as_str(), value) {
                    ("name", Value::Text(name)) => event.name = name,
                    ("name", Value::Path(path)) => event.name = path.join("."),
                    ("id", Value::Number(n)) => event.id = self.number_of("an event id", n, place)?,
                    ("stream_id", Value::Number(n)) => {
                        event.stream_id = self.number_of("a stream id", n, place)?;
                    }
                    ("loglevel", Value::Number(n)) => event.log_level = i64::try_from(n).ok(),
                    ("model.emf.uri", Value::Text(uri)) => event.model_uri = Some(uri),
                    _ => {}
                },
                Statement::Type(key, ty) => match key.as_str() {
                    "context" => event.context = Some(ty),
                    "fields" => event.fields = Some(ty),
                    _ => {}
                },
            }
        }
        metadata.events.push(event);
        Ok(())
    }

    fn number_of(&self, what: &str, n: i128, place: Place) -> Result<u64, Unreadable> {
        u64::try_from(n).or_else(|_| self.fail_at(place, format!("{n} cannot be {what}")))
    }
}

/// The bytes of `68ae36eb-1193-47b8-8863-778385de8e9d`.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    if digits.len() != 32 {
        return None;
    }
    bytes.try_into().ok()
}
