//! The fragments of a metadata stream: preamble, aliases, and the classes of trace, clocks, data streams and event records
//! (sections 5.4 to 5.9).

use super::field_class::{Aliases, field_class};
use super::json::{Json, refuse_extensions, required, required_text};
use crate::model::Type;
use crate::tsdl::{Clock, EnvValue, EventDecl, Metadata, Place, StreamDecl};
use std::collections::HashSet;

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    metadata: Metadata,
    aliases: Aliases,
    has_preamble: bool,
    has_trace: bool,
    clocks: HashSet<String>,
    events: HashSet<(u64, u64)>,
}

impl Fragments {
    pub(super) fn add(&mut self, fragment: &Json, place: Place) -> Result<(), String> {
        if fragment.object().is_none() {
            return Err("a fragment of the metadata is an object".to_owned());
        }
        let ty = required_text(fragment, "type")?;
        if !self.has_preamble && ty != "preamble" {
            return Err(format!("the preamble is missing before this `{}`", ty.escape_debug()));
        }
        refuse_extensions(fragment)?;
        match ty {
            "preamble" => self.preamble(fragment),
            "field-class-alias" => self.alias(fragment),
            "trace-class" => self.trace(fragment),
            "clock-class" => self.clock(fragment),
            "data-stream-class" => self.stream(fragment),
            "event-record-class" => self.event(fragment, place),
            other => Err(format!("`{}` is not a fragment of CTF 2", other.escape_debug())),
        }
    }

    pub(super) fn finish(self) -> Result<Metadata, String> {
        if self.has_preamble { Ok(self.metadata) } else { Err("the metadata is empty".to_owned()) }
    }

    /// Section 5.4.
    fn preamble(&mut self, fragment: &Json) -> Result<(), String> {
        if std::mem::replace(&mut self.has_preamble, true) {
            return Err("this is a second preamble".to_owned());
        }
        match required(fragment, "version")?.integer() {
            Some(2) => {}
            Some(n) => return Err(format!("this is CTF version {n}; 1.8 and 2 can be read")),
            None => return Err("`version` is not an integer".to_owned()),
        }
        if let Some(uuid) = fragment.get("uuid") {
            let bytes: Option<Vec<u8>> = uuid
                .array()
                .and_then(|bytes| bytes.iter().map(|byte| u8::try_from(byte.integer()?).ok()).collect());
            let uuid = bytes.and_then(|bytes| bytes.try_into().ok());
            self.metadata.uuid = Some(uuid.ok_or("`uuid` is not an array of 16 bytes")?);
        }
        Ok(())
    }

    /// Section 5.5.
    fn alias(&mut self, fragment: &Json) -> Result<(), String> {
        let name = required_text(fragment, "name")?;
        let ty = field_class(required(fragment, "field-class")?, &self.aliases)?;
        if self.aliases.insert(name.to_owned(), ty).is_some() {
            return Err(format!("the alias `{}` is declared twice", name.escape_debug()));
        }
        Ok(())
    }

    /// Section 5.6.
    fn trace(&mut self, fragment: &Json) -> Result<(), String> {
        if std::mem::replace(&mut self.has_trace, true) {
            return Err("this is a second trace class".to_owned());
        }
        self.metadata.packet_header = self.scope(fragment, "packet-header-field-class")?;
        for (key, value) in fragment.get("environment").and_then(Json::object).unwrap_or_default() {
            let value = match value {
                Json::Integer(n) => EnvValue::Number(*n),
                Json::Text(text) => EnvValue::Text(text.clone()),
                _ => return Err(format!("`{}` is neither a number nor text", key.escape_debug())),
            };
            self.metadata.env.push((key.clone(), value));
        }
        Ok(())
    }

    /// Section 5.7. Times are those of the clock whatever its origin is; one without an origin counts from 1970 on, as
    /// babeltrace2 has it.
    fn clock(&mut self, fragment: &Json) -> Result<(), String> {
        let name = required_text(fragment, "id")?.to_owned();
        let freq = required(fragment, "frequency")?.integer().and_then(|n| u64::try_from(n).ok());
        let Some(freq) = freq.filter(|freq| *freq > 0) else {
            return Err("`frequency` is an integer above zero".to_owned());
        };
        let (mut offset_s, mut offset) = (0, 0);
        if let Some(from) = fragment.get("offset-from-origin") {
            for (key, value) in [("seconds", &mut offset_s), ("cycles", &mut offset)] {
                if let Some(n) = from.get(key) {
                    let n = n.integer().and_then(|n| i64::try_from(n).ok());
                    *value = n.ok_or(format!("`{key}` is not an integer of 64 bits"))?;
                }
            }
        }
        if !self.clocks.insert(name.clone()) {
            return Err(format!("the clock `{}` is declared twice", name.escape_debug()));
        }
        self.metadata.clocks.push(Clock { name, freq, offset_s, offset });
        Ok(())
    }

    /// Section 5.8.
    fn stream(&mut self, fragment: &Json) -> Result<(), String> {
        let id = number(fragment, "id")?;
        let clock = optional_text(fragment, "default-clock-class-id")?;
        if let Some(clock) = clock.as_ref().filter(|clock| !self.clocks.contains(*clock)) {
            return Err(format!("no clock is named `{}` before it", clock.escape_debug()));
        }
        let stream = StreamDecl {
            clock,
            packet_context: self.scope(fragment, "packet-context-field-class")?,
            event_header: self.scope(fragment, "event-record-header-field-class")?,
            event_context: self.scope(fragment, "event-record-common-context-field-class")?,
        };
        match self.metadata.streams.insert(id, stream) {
            Some(_) => Err(format!("data stream class {id} is declared twice")),
            None => Ok(()),
        }
    }

    /// Section 5.9.
    fn event(&mut self, fragment: &Json, place: Place) -> Result<(), String> {
        let (id, stream_id) = (number(fragment, "id")?, number(fragment, "data-stream-class-id")?);
        let name = optional_text(fragment, "name")?.unwrap_or_default();
        if !self.metadata.streams.contains_key(&stream_id) {
            return Err(format!(
                "event `{}` is of data stream class {stream_id}, which is not declared before it",
                name.escape_debug()
            ));
        }
        if !self.events.insert((stream_id, id)) {
            return Err(format!("event {id} of data stream class {stream_id} is declared twice"));
        }
        let (context, fields) = (
            self.scope(fragment, "specific-context-field-class"),
            self.scope(fragment, "payload-field-class"),
        );
        let of = |reason: String| format!("event `{}`: {reason}", name.escape_debug());
        self.metadata.events.push(EventDecl {
            id,
            stream_id,
            log_level: log_level(fragment),
            model_uri: attribute(fragment, "emf-uri").and_then(Json::text).map(str::to_owned),
            context: context.map_err(of)?,
            fields: fields.map_err(of)?,
            place,
            name,
        });
        Ok(())
    }

    /// The structure that a fragment has under a key.
    fn scope(&self, fragment: &Json, key: &str) -> Result<Option<Type>, String> {
        let Some(json) = fragment.get(key) else { return Ok(None) };
        match field_class(json, &self.aliases).map_err(|reason| format!("`{key}`: {reason}"))? {
            ty @ Type::Struct(_) => Ok(Some(ty)),
            _ => Err(format!("`{key}` is not a structure")),
        }
    }
}

/// Who gives what meaning to attributes (section 5.2) that the reader shows: LTTng, babeltrace2, and nopal itself.
const NAMESPACES: [&str; 3] = ["lttng.org,2009", "babeltrace.org,2020", "nopal"];

fn attribute<'j>(fragment: &'j Json, key: &str) -> Option<&'j Json> {
    let attributes = fragment.get("attributes")?;
    NAMESPACES.iter().find_map(|namespace| attributes.get(namespace)?.get(key))
}

/// As LTTng counts them.
fn log_level(fragment: &Json) -> Option<i64> {
    const NAMES: [&str; 15] = [
        "emergency",
        "alert",
        "critical",
        "error",
        "warning",
        "notice",
        "info",
        "debug:system",
        "debug:program",
        "debug:process",
        "debug:module",
        "debug:unit",
        "debug:function",
        "debug:line",
        "debug",
    ];
    match attribute(fragment, "log-level")? {
        Json::Integer(n) => i64::try_from(*n).ok(),
        Json::Text(name) => {
            let name = name.replace('-', ":");
            NAMES.iter().position(|known| *known == name).map(|at| at as i64)
        }
        _ => None,
    }
}

fn optional_text(json: &Json, key: &str) -> Result<Option<String>, String> {
    match json.get(key) {
        Some(value) => value.text().map(|text| Some(text.to_owned())).ok_or(format!("`{key}` is not text")),
        None => Ok(None),
    }
}

/// A number that is 0 if it is not given.
fn number(json: &Json, key: &str) -> Result<u64, String> {
    match json.get(key) {
        Some(value) => value
            .integer()
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| format!("`{key}` is not an integer from 0 to 2^64 - 1")),
        None => Ok(0),
    }
}
