//! The metadata of CTF 2 (CTF2-SPEC-2.0, section 5) of what TSDL says: the bytes of the streams are the same in both, so a
//! recording of CTF 1.8 becomes one of CTF 2 by its metadata alone.

use super::metadata::uuid_text;
use crate::json::json_text;
use crate::location::ScopeKind;
use crate::model::{ByteOrder, Enum, Field, Integer, Label, Length, Tag, Type};
use crate::tsdl::{Clock, EnvValue, EventDecl, Metadata, StreamDecl};
use std::collections::HashSet;
use std::fmt::Write;

/// Who gives the attributes their meaning.
const NAMESPACE: &str = "nopal";

/// Everything of a trace that CTF 1.8 describes.
pub(crate) fn whole(metadata: &Metadata) -> Result<String, String> {
    let mut text = head(metadata)?;
    for event in &metadata.events {
        text.push_str(&event_text(metadata, event)?);
    }
    Ok(text)
}

/// Everything before the first event.
pub(super) fn head(metadata: &Metadata) -> Result<String, String> {
    let mut preamble = Object::of_type("preamble").with("version", "2");
    if let Some(uuid) = metadata.uuid {
        preamble = preamble.with("uuid", list(uuid.iter().map(u8::to_string)));
    }
    let mut text = preamble.fragment();
    let environment = metadata.env.iter().fold(Object::default(), |object, (key, value)| match value {
        EnvValue::Number(n) => object.with(key, n.to_string()),
        EnvValue::Text(text) => object.text(key, text),
    });
    let mut trace = Object::of_type("trace-class").with("environment", environment.close());
    // Parts of one trace, such as rotated ones, are known by it.
    if let Some(uuid) = &metadata.uuid {
        trace = trace.text("uid", &uuid_text(uuid));
    }
    let mut known = Known::default();
    if let Some(ty) = &metadata.packet_header {
        let class = Emitter::new(metadata, ScopeKind::PacketHeader, &known).scope(ty)?;
        known.push((ScopeKind::PacketHeader, ty));
        trace = trace.with("packet-header-field-class", class);
    }
    text.push_str(&trace.fragment());
    for clock in &metadata.clocks {
        text.push_str(&clock_text(clock));
    }
    let default = StreamDecl::default();
    let mut streams: Vec<(u64, &StreamDecl)> = metadata.streams.iter().map(|(id, s)| (*id, s)).collect();
    if streams.is_empty() {
        streams.push((0, &default));
    }
    for (id, stream) in streams {
        let mut known = known.clone();
        let mut object = Object::of_type("data-stream-class").with("id", id.to_string());
        if let Some(clock) = clock_of_stream(metadata, stream) {
            object = object.text("default-clock-class-id", &clock.name);
        }
        for (kind, key, ty) in [
            (ScopeKind::PacketContext, "packet-context-field-class", &stream.packet_context),
            (ScopeKind::EventHeader, "event-record-header-field-class", &stream.event_header),
            (ScopeKind::StreamContext, "event-record-common-context-field-class", &stream.event_context),
        ] {
            if let Some(ty) = ty {
                object = object.with(key, Emitter::new(metadata, kind, &known).scope(ty)?);
                known.push((kind, ty));
            }
        }
        text.push_str(&object.fragment());
    }
    Ok(text)
}

/// One event record class.
pub(super) fn event_text(metadata: &Metadata, event: &EventDecl) -> Result<String, String> {
    let mut known: Known<'_> = Vec::new();
    known.extend(metadata.packet_header.as_ref().map(|ty| (ScopeKind::PacketHeader, ty)));
    if let Some(stream) = metadata.streams.get(&event.stream_id) {
        known.extend(stream.packet_context.as_ref().map(|ty| (ScopeKind::PacketContext, ty)));
        known.extend(stream.event_header.as_ref().map(|ty| (ScopeKind::EventHeader, ty)));
        known.extend(stream.event_context.as_ref().map(|ty| (ScopeKind::StreamContext, ty)));
    }
    let mut object = Object::of_type("event-record-class")
        .with("id", event.id.to_string())
        .with("data-stream-class-id", event.stream_id.to_string())
        .text("name", &event.name);
    let mut attributes = Object::default();
    if let Some(level) = event.log_level {
        attributes = attributes.with("log-level", level.to_string());
    }
    if let Some(uri) = &event.model_uri {
        attributes = attributes.text("emf-uri", uri);
    }
    if !attributes.0.is_empty() {
        let attributes = Object::default().with(NAMESPACE, attributes.close());
        object = object.with("attributes", attributes.close());
    }
    for (kind, key, ty) in [
        (ScopeKind::EventContext, "specific-context-field-class", &event.context),
        (ScopeKind::EventFields, "payload-field-class", &event.fields),
    ] {
        if let Some(ty) = ty {
            let class = Emitter::new(metadata, kind, &known).scope(ty);
            object = object.with(key, class.map_err(|reason| format!("event `{}`: {reason}", event.name))?);
            known.push((kind, ty));
        }
    }
    Ok(object.fragment())
}

/// The clock's offset is told in whole seconds and less than a second's cycles.
fn clock_text(clock: &Clock) -> String {
    let freq = i128::from(clock.freq);
    let cycles = i128::from(clock.offset_s) * freq + i128::from(clock.offset);
    let offset = Object::default()
        .with("seconds", cycles.div_euclid(freq).to_string())
        .with("cycles", cycles.rem_euclid(freq).to_string());
    Object::of_type("clock-class")
        .text("id", &clock.name)
        .text("name", &clock.name)
        .with("frequency", clock.freq.to_string())
        .text("origin", "unix-epoch")
        .with("offset-from-origin", offset.close())
        .fragment()
}

fn clock_of_stream<'m>(metadata: &'m Metadata, stream: &StreamDecl) -> Option<&'m Clock> {
    let name = [&stream.event_header, &stream.packet_context]
        .into_iter()
        .flatten()
        .find_map(crate::read::clock_of)?;
    metadata.clocks.iter().find(|clock| clock.name == name)
}

/// Scopes that come before, and their types.
type Known<'m> = Vec<(ScopeKind, &'m Type)>;

/// Writes the types of one scope.
struct Emitter<'m> {
    order: ByteOrder,
    kind: ScopeKind,
    before: &'m [(ScopeKind, &'m Type)],
    has_clock: bool,
    /// The structs that are open, the innermost last: their members, and which of them is being written.
    open: Vec<(&'m [Field], usize)>,
}

impl<'m> Emitter<'m> {
    fn new(metadata: &Metadata, kind: ScopeKind, before: &'m [(ScopeKind, &'m Type)]) -> Self {
        Emitter {
            order: metadata.order.unwrap_or(ByteOrder::Little),
            kind,
            before,
            has_clock: !metadata.clocks.is_empty(),
            open: Vec::new(),
        }
    }

    fn scope(mut self, ty: &'m Type) -> Result<String, String> {
        self.class("", ty)
    }

    fn structure(&mut self, fields: &'m [Field], align_bits: u32) -> Result<String, String> {
        let mut members = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            self.open.push((fields, index));
            let class = self.class(&field.raw, &field.ty);
            self.open.pop();
            let class = class.map_err(|reason| format!("`{}`: {reason}", field.raw))?;
            members.push(
                Object::default().text("name", shown(fields, field)).with("field-class", class).close(),
            );
        }
        Ok(Object::of_type("structure")
            .with("member-classes", list(members.into_iter()))
            .with("minimum-alignment", align_bits.to_string())
            .close())
    }

    fn class(&mut self, raw: &str, ty: &'m Type) -> Result<String, String> {
        Ok(match ty {
            Type::Integer(i) => self.integer(raw, i, None),
            Type::Enum(e) => self.integer(raw, &e.integer, Some(e)),
            Type::Float(f) => Object::of_type("fixed-length-floating-point-number")
                .with("length", f.bits.to_string())
                .text("byte-order", self.order_text(f.order))
                .with("alignment", f.align_bits.to_string())
                .close(),
            Type::String => Object::of_type("null-terminated-string").close(),
            Type::Struct(s) => self.structure(&s.fields, s.align_bits)?,
            Type::Array(a) => {
                if self.kind == ScopeKind::PacketHeader && raw == "uuid" && a.length == Length::Fixed(16) {
                    return Ok(Object::of_type("static-length-blob")
                        .with("length", "16")
                        .with("roles", "[\"metadata-stream-uuid\"]")
                        .close());
                }
                let is_text = matches!(
                    &a.element,
                    Type::Integer(Integer { is_text: true, bits: 8, align_bits: 8, .. })
                );
                let what = if is_text { "string" } else { "array" };
                let object = match &a.length {
                    Length::Fixed(n) => {
                        Object::of_type(&format!("static-length-{what}")).with("length", n.to_string())
                    }
                    Length::Field(path) => Object::of_type(&format!("dynamic-length-{what}"))
                        .with("length-field-location", self.location(path)?.0),
                    Length::Located(_) => return Err(OF_CTF2.to_owned()),
                };
                match is_text {
                    true => object.close(),
                    false => object.with("element-field-class", self.class("", &a.element)?).close(),
                }
            }
            Type::Variant(v) => {
                let Tag::Label(path) = &v.tag else { return Err(OF_CTF2.to_owned()) };
                let (location, target) = self.location(path)?;
                let Type::Enum(table) = target else {
                    return Err(format!("the tag `{}` is not an enum", path.join(".")));
                };
                let mut options = Vec::new();
                for option in &v.options {
                    let rows: Vec<&Label> = table.labels.iter().filter(|l| l.text == option.raw).collect();
                    // An option that no value stands for cannot be, and CTF 2 has no word for it.
                    if !rows.is_empty() {
                        let class = self.class(&option.raw, &option.ty)?;
                        let object = Object::default()
                            .text("name", shown(&v.options, option))
                            .with("selector-field-ranges", ranges(&rows))
                            .with("field-class", class);
                        options.push(object.close());
                    }
                }
                Object::of_type("variant")
                    .with("selector-field-location", location)
                    .with("options", list(options.into_iter()))
                    .close()
            }
            Type::Bool(_)
            | Type::BitMap(_)
            | Type::Variable(_)
            | Type::Wide(_)
            | Type::Blob(_)
            | Type::Optional(_) => {
                return Err(OF_CTF2.to_owned());
            }
        })
    }

    fn order_text(&self, order: Option<ByteOrder>) -> &'static str {
        match order.unwrap_or(self.order) {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        }
    }

    fn integer(&self, raw: &str, i: &Integer, table: Option<&Enum>) -> String {
        let sign = if i.is_signed { "signed" } else { "unsigned" };
        let mut object = Object::of_type(&format!("fixed-length-{sign}-integer"))
            .with("length", i.bits.to_string())
            .text("byte-order", self.order_text(i.order))
            .with("alignment", i.align_bits.to_string());
        if i.base != 10 {
            object = object.with("preferred-display-base", i.base.to_string());
        }
        if let Some(table) = table {
            let mut mappings = Object::default();
            let mut told = HashSet::new();
            for label in table.labels.iter().filter(|label| told.insert(label.text.as_str())) {
                let rows: Vec<&Label> = table.labels.iter().filter(|l| l.text == label.text).collect();
                mappings = mappings.with(&label.text, ranges(&rows));
            }
            object = object.with("mappings", mappings.close());
        }
        if let Some(role) = self.role(raw, i).filter(|_| !i.is_signed) {
            object = object.with("roles", format!("[\"{role}\"]"));
        }
        object.close()
    }

    /// What the name of a field says of it in CTF 1.8.
    fn role(&self, raw: &str, i: &Integer) -> Option<&'static str> {
        let is_top = self.open.len() == 1;
        match (self.kind, raw) {
            (ScopeKind::PacketHeader, "magic") if is_top => Some("packet-magic-number"),
            (ScopeKind::PacketHeader, "stream_id") if is_top => Some("data-stream-class-id"),
            (ScopeKind::PacketHeader, "stream_instance_id") if is_top => Some("data-stream-id"),
            (ScopeKind::PacketContext, "timestamp_begin") if is_top && self.has_clock => {
                Some("default-clock-timestamp")
            }
            (ScopeKind::PacketContext, "timestamp_end") if is_top && self.has_clock => {
                Some("packet-end-default-clock-timestamp")
            }
            (ScopeKind::PacketContext, "content_size") if is_top => Some("packet-content-length"),
            (ScopeKind::PacketContext, "packet_size") if is_top => Some("packet-total-length"),
            (ScopeKind::PacketContext, "packet_seq_num") if is_top => Some("packet-sequence-number"),
            (ScopeKind::PacketContext, "events_discarded") if is_top => {
                Some("discarded-event-record-counter-snapshot")
            }
            (ScopeKind::EventHeader, _) if i.clock.is_some() => Some("default-clock-timestamp"),
            (ScopeKind::EventHeader, "id") => Some("event-record-class-id"),
            _ => None,
        }
    }

    /// The location of what a path of TSDL names, looked for as TSDL does it: outwards from here, then in the scopes before.
    fn location(&self, path: &[String]) -> Result<(String, &'m Type), String> {
        for (depth, (fields, index)) in self.open.iter().enumerate().rev() {
            if let Some((mut names, ty)) = follow(&fields[..*index], path) {
                if depth + 1 == self.open.len() {
                    return Ok((location_text(None, &names), ty));
                }
                let way = self.open[..depth].iter().map(|(fields, index)| shown(fields, &fields[*index]));
                names.splice(0..0, way);
                return Ok((location_text(Some(self.kind), &names), ty));
            }
        }
        let rest_of = |kind: ScopeKind| {
            let prefix = kind.prefix();
            let is_it = path.len() > prefix.len() && path.iter().zip(prefix).all(|(a, b)| a == b);
            is_it.then(|| &path[prefix.len()..])
        };
        if let (Some(rest), Some((fields, index))) = (rest_of(self.kind), self.open.first())
            && let Some((names, ty)) = follow(&fields[..*index], rest)
        {
            return Ok((location_text(Some(self.kind), &names), ty));
        }
        for (kind, ty) in self.before.iter().rev() {
            let rest = rest_of(*kind).unwrap_or(path);
            if let Some((names, ty)) = follow(crate::tsdl::fields_of(ty), rest) {
                return Ok((location_text(Some(*kind), &names), ty));
            }
        }
        Err(format!("`{}` names nothing before the place that needs it", path.join(".")))
    }
}

const OF_CTF2: &str = "it is of CTF 2 already";

/// The name of a field as people see it; where two would be the same, as the metadata has it.
fn shown<'f>(fields: &'f [Field], field: &'f Field) -> &'f str {
    let n_same = fields.iter().filter(|other| other.name == field.name).count();
    if n_same > 1 { &field.raw } else { &field.name }
}

fn follow<'f>(fields: &'f [Field], path: &[String]) -> Option<(Vec<&'f str>, &'f Type)> {
    let (first, rest) = path.split_first()?;
    let field = fields.iter().rev().find(|field| field.raw == *first)?;
    let name = shown(fields, field);
    if rest.is_empty() {
        return Some((vec![name], &field.ty));
    }
    let (mut names, ty) = follow(crate::tsdl::fields_of(&field.ty), rest)?;
    names.insert(0, name);
    Some((names, ty))
}

fn location_text(origin: Option<ScopeKind>, names: &[&str]) -> String {
    let object = match origin {
        Some(origin) => Object::default().text("origin", origin.origin()),
        None => Object::default(),
    };
    object.with("path", list(names.iter().map(|name| json_text(name.as_bytes())))).close()
}

fn ranges(rows: &[&Label]) -> String {
    list(rows.iter().map(|row| format!("[{},{}]", row.first, row.last)))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// A JSON object in the making; members keep their order.
#[derive(Debug, Default)]
struct Object(String);

impl Object {
    fn of_type(ty: &str) -> Object {
        Object::default().text("type", ty)
    }

    fn text(self, key: &str, value: &str) -> Object {
        self.with(key, json_text(value.as_bytes()))
    }

    /// With a value that is JSON already.
    fn with(mut self, key: &str, value: impl AsRef<str>) -> Object {
        let comma = if self.0.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{comma}{}:{}", json_text(key.as_bytes()), value.as_ref());
        self
    }

    fn close(self) -> String {
        format!("{{{}}}", self.0)
    }

    fn fragment(self) -> String {
        format!("\u{1e}{{{}}}\n", self.0)
    }
}
