//! TSDL, the language of a recording's `metadata` file: text in, [`Metadata`] out. Does no IO.

mod lexer;
mod parser;
mod types;

use crate::model::{ByteOrder, Field, Type};
pub use lexer::{Place, Unreadable};
use std::collections::BTreeMap;

/// What a `metadata` file says.
#[derive(Debug, Default)]
pub struct Metadata {
    pub order: Option<ByteOrder>,
    pub uuid: Option<[u8; 16]>,
    pub packet_header: Option<Type>,
    pub env: Vec<(String, EnvValue)>,
    pub clocks: Vec<Clock>,
    pub streams: BTreeMap<u64, StreamDecl>,
    pub events: Vec<EventDecl>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    Number(i128),
    Text(String),
}

/// A clock: `ns since the epoch = offset_s * 10^9 + (offset + value) * 10^9 / freq`.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    pub name: String,
    pub freq: u64,
    pub offset_s: i64,
    pub offset: i64,
}

#[derive(Debug, Default)]
pub struct StreamDecl {
    pub packet_context: Option<Type>,
    pub event_header: Option<Type>,
    pub event_context: Option<Type>,
}

#[derive(Debug)]
pub struct EventDecl {
    pub id: u64,
    pub stream_id: u64,
    pub name: String,
    pub log_level: Option<i64>,
    pub model_uri: Option<String>,
    pub context: Option<Type>,
    pub fields: Option<Type>,
    pub place: Place,
}

/// Reads a whole metadata text.
pub fn parse(text: &str) -> Result<Metadata, Unreadable> {
    parser::Parser::new(text)?.metadata()
}

/// The fields of a struct type; none for anything else.
pub fn fields_of(ty: &Type) -> &[Field] {
    match ty {
        Type::Struct(s) => &s.fields,
        _ => &[],
    }
}
