//! JSON as metadata of CTF 2 has it: objects keep the order of their members, numbers are integers.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool,
    Integer(i128),
    /// A number that is not an integer of 64 bits.
    OtherNumber,
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The member of that name, if this is an object that has one. Of several the last counts.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().rev().find(|(name, _)| name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn integer(&self) -> Option<i128> {
        match self {
            Json::Integer(n) => Some(*n),
            _ => None,
        }
    }

    pub(super) fn array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn object(&self) -> Option<&[(String, Json)]> {
        match self {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }
}

/// An extension may change what every other word means, so none may be passed over (section 5.1).
pub(super) fn refuse_extensions(json: &Json) -> Result<(), String> {
    let Some(extensions) = json.get("extensions") else { return Ok(()) };
    let Some(extensions) = extensions.object() else {
        return Err("`extensions` is not an object".to_owned());
    };
    for (namespace, names) in extensions {
        if let Some((name, _)) = names.object().unwrap_or_default().first() {
            return Err(format!(
                "the trace uses an extension of CTF 2 that nopal does not know, `{}`: `{}`; read it with the tracer's \
                 own tools",
                namespace.escape_debug(),
                name.escape_debug()
            ));
        }
    }
    Ok(())
}

pub(super) fn required<'j>(json: &'j Json, key: &str) -> Result<&'j Json, String> {
    json.get(key).ok_or_else(|| format!("`{key}` is missing"))
}

pub(super) fn required_text<'j>(json: &'j Json, key: &str) -> Result<&'j str, String> {
    required(json, key)?.text().ok_or_else(|| format!("`{key}` is not text"))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }
    fn visit_i64<E>(self, n: i64) -> Result<Json, E> {
        Ok(Json::Integer(n.into()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Json, E> {
        Ok(Json::Integer(n.into()))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::OtherNumber)
    }
    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = from.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}
