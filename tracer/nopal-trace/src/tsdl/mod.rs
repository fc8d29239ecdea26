//! TSDL, the language of a recording's `metadata` file: text in, [`Metadata`] out. Does no IO.

mod lexer;
mod parser;
mod types;

use crate::model::{ByteOrder, Field, Type};
pub(crate) use lexer::{Place, Unreadable};
use std::collections::BTreeMap;

/// What a `metadata` file says.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
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
pub(crate) struct Clock {
    pub name: String,
    pub freq: u64,
    pub offset_s: i64,
    pub offset: i64,
}

#[derive(Debug, Default)]
pub(crate) struct StreamDecl {
    /// Name of the clock, if the metadata says it by itself.
    pub clock: Option<String>,
    pub packet_context: Option<Type>,
    pub event_header: Option<Type>,
    pub event_context: Option<Type>,
}

#[derive(Debug)]
pub(crate) struct EventDecl {
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
pub(crate) fn parse(text: &str) -> Result<Metadata, Unreadable> {
    parser::Parser::new(text)?.metadata()
}

/// The fields of a struct type; none for anything else.
pub(crate) fn fields_of(ty: &Type) -> &[Field] {
    match ty {
        Type::Struct(s) => &s.fields,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        for (text, line, column, reason) in [
            ("trace { major = 2; };", 1, 9, "only CTF 1"),
            ("event {\n\tname = \"a\";\n\tfields := struct { int x; };\n};", 3, 21, "`int`"),
            ("event { id = 1", 1, 15, "`;` is missing before the end"),
            ("stream { id = 0; };\nstream { };", 2, 1, "declared twice"),
            ("typealias integer { size = 65; } := x;", 1, 19, "1 to 64 bits"),
            ("typealias integer { align = 8; } := x;", 1, 19, "needs a size"),
            ("struct s { integer { size = 8; align = 3; } x; };", 1, 20, "power of two"),
            ("clock { freq = 0; };", 1, 9, "above zero"),
            ("hello;", 1, 1, "block or a type declaration"),
        ] {
            let failure = parse(text).unwrap_err();
            assert!(failure.reason.contains(reason), "{text}: {}", failure.reason);
            assert_eq!(
                (failure.place.line, failure.place.column),
                (line, column),
                "{text}: {}",
                failure.reason
            );
        }
    }

    #[test]
    fn types_that_nest_through_names_are_refused_in_time() {
        let mut text = String::from("struct s0 { string a; };\n");
        for i in 1..100_000 {
            text.push_str(&format!("struct s{i} {{ struct s{} a; struct s{0} b; }};\n", i - 1));
        }
        assert!(parse(&text).unwrap_err().reason.contains("too deeply"));
    }
}
