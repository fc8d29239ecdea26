//! Field classes (section 5.3) as types of the model.

use super::json::{Json, refuse_extensions, required, required_text};
use crate::location::{Location, ScopeKind};
use crate::model::{
    BitMap, Bits, Blob, ByteOrder, Encoding, Enum, Field, Flag, Float, Integer, Label, Length, Span, Tag,
    Type, Variable, Wide,
};
use crate::role::{Role, Roles};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Field classes by the names that fragments have given them.
pub(super) type Aliases = HashMap<String, Type>;

/// Deeper nesting than this is refused: nobody writes it, and everything that walks types descends once per level.
const MAX_DEPTH: u32 = 32;
/// A larger alignment is a mistake.
const MAX_ALIGN_BITS: i128 = 1 << 16;

/// A field class, or the name of one.
pub(super) fn field_class(json: &Json, aliases: &Aliases) -> Result<Type, String> {
    let ty = match json {
        Json::Text(name) => aliases
            .get(name)
            .cloned()
            .ok_or_else(|| format!("no field class alias is named `{}` before it", name.escape_debug()))?,
        Json::Object(_) => class(json, aliases)?,
        _ => return Err("a field class is an object or the name of an alias".to_owned()),
    };
    if ty.depth() > MAX_DEPTH { Err("field classes are nested too deeply".to_owned()) } else { Ok(ty) }
}

fn class(json: &Json, aliases: &Aliases) -> Result<Type, String> {
    refuse_extensions(json)?;
    Ok(match required_text(json, "type")? {
        "fixed-length-bit-array" => Type::BitMap(Arc::new(BitMap { bits: bits(json)?, flags: Vec::new() })),
        "fixed-length-bit-map" => bit_map(json)?,
        "fixed-length-boolean" => Type::Bool(bits(json)?),
        "fixed-length-unsigned-integer" => fixed_integer(json, false)?,
        "fixed-length-signed-integer" => fixed_integer(json, true)?,
        "fixed-length-floating-point-number" => float(json)?,
        "variable-length-unsigned-integer" => variable_integer(json, false)?,
        "variable-length-signed-integer" => variable_integer(json, true)?,
        "null-terminated-string" => match encoding(json)? {
            None => Type::String,
            Some(encoding) => Type::Wide(Arc::new(Wide { encoding, length: None })),
        },
        "static-length-string" => string(json, Length::Fixed(length(json)?))?,
        "dynamic-length-string" => string(json, Length::Located(location(json, "length-field-location")?))?,
        "static-length-blob" => blob(json, Length::Fixed(length(json)?))?,
        "dynamic-length-blob" => blob(json, Length::Located(location(json, "length-field-location")?))?,
        "structure" => structure(json, aliases)?,
        "static-length-array" => array(json, Length::Fixed(length(json)?), aliases)?,
        "dynamic-length-array" => {
            array(json, Length::Located(location(json, "length-field-location")?), aliases)?
        }
        "optional" => {
            let ranges = json.get("selector-field-ranges").map(spans).transpose()?;
            let ty = field_class(required(json, "field-class")?, aliases)?;
            Type::optional_of(ty, location(json, "selector-field-location")?, ranges)
        }
        "variant" => variant(json, aliases)?,
        other => return Err(format!("`{}` is not a field class of CTF 2", other.escape_debug())),
    })
}

fn length(json: &Json) -> Result<u64, String> {
    let length = required(json, "length")?.integer().and_then(|n| u64::try_from(n).ok());
    length.ok_or_else(|| "`length` is not an integer from 0 to 2^64 - 1".to_owned())
}

fn alignment(json: &Json, key: &str) -> Result<u32, String> {
    match json.get(key) {
        None => Ok(1),
        Some(Json::Integer(n)) if (1..=MAX_ALIGN_BITS).contains(n) && (*n as u64).is_power_of_two() => {
            Ok(*n as u32)
        }
        Some(_) => Err(format!("`{key}` is not a power of two up to {MAX_ALIGN_BITS}")),
    }
}

/// Section 5.3.4: what all classes of fixed length have.
fn bits(json: &Json) -> Result<Bits, String> {
    let length = length(json)?;
    if !(1..=64).contains(&length) {
        return Err(format!("a field of fixed length has 1 to 64 bits, not {length}"));
    }
    let order = match required_text(json, "byte-order")? {
        "little-endian" => ByteOrder::Little,
        "big-endian" => ByteOrder::Big,
        other => return Err(format!("`{}` is not a byte order", other.escape_debug())),
    };
    // By default the order of the bits is that of the bytes.
    let is_first_to_last = match json.get("bit-order").map(Json::text) {
        None => order == ByteOrder::Little,
        Some(Some("first-to-last")) => true,
        Some(Some("last-to-first")) => false,
        Some(_) => return Err("`bit-order` is neither `first-to-last` nor `last-to-first`".to_owned()),
    };
    Ok(Bits {
        bits: length as u32,
        align_bits: alignment(json, "alignment")?,
        order,
        is_reversed: is_first_to_last != (order == ByteOrder::Little),
    })
}

/// Section 5.3.5. Names are in alphabetical order, as babeltrace2 shows them.
fn bit_map(json: &Json) -> Result<Type, String> {
    let bits = bits(json)?;
    let flags = required(json, "flags")?.object().ok_or("`flags` is not an object")?;
    let mut flags: Vec<Flag> = flags
        .iter()
        .map(|(name, ranges)| {
            let mut mask = 0;
            for (first, last) in spans(ranges)? {
                let (Ok(first @ 0..64), Ok(last)) = (u32::try_from(first), u64::try_from(last)) else {
                    return Err(format!("the bits of `{}` are not in the field", name.escape_debug()));
                };
                let last = last.min(63) as u32;
                mask |= u64::MAX >> (63 - (last - first)) << first;
            }
            Ok(Flag { name: name.clone(), mask })
        })
        .collect::<Result<_, String>>()?;
    flags.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Type::BitMap(Arc::new(BitMap { bits, flags })))
}

/// What integers of both kinds have (section 5.3.7), with their table if values have names.
fn integer(json: &Json, bits: Bits, is_signed: bool) -> Result<(Integer, Option<Arc<Enum>>), String> {
    let base = match json.get("preferred-display-base").map(Json::integer) {
        None => 10,
        Some(Some(base @ (2 | 8 | 10 | 16))) => base as u8,
        Some(_) => return Err("`preferred-display-base` is not 2, 8, 10 or 16".to_owned()),
    };
    let roles = if is_signed { Roles::NONE } else { roles(json)? };
    let integer = Integer {
        bits: bits.bits,
        align_bits: bits.align_bits,
        is_signed,
        base,
        order: Some(bits.order),
        is_text: false,
        // The stream's class says which it is.
        clock: roles.has(Role::Clock).then(|| Arc::from("")),
        is_reversed: bits.is_reversed,
        roles: Some(roles),
    };
    let mut labels = Vec::new();
    if let Some(mappings) = json.get("mappings") {
        for (text, ranges) in mappings.object().ok_or("`mappings` is not an object")? {
            let spans = spans(ranges)?;
            labels.extend(spans.into_iter().map(|(first, last)| Label { text: text.clone(), first, last }));
        }
    }
    let table =
        (!labels.is_empty()).then(|| Arc::new(Enum { integer: integer.clone(), labels, has_braces: true }));
    Ok((integer, table))
}

/// Section 5.3.8.
fn fixed_integer(json: &Json, is_signed: bool) -> Result<Type, String> {
    let (integer, table) = integer(json, bits(json)?, is_signed)?;
    Ok(table.map_or(Type::Integer(integer), Type::Enum))
}

/// Section 5.3.10.
fn variable_integer(json: &Json, is_signed: bool) -> Result<Type, String> {
    let bits = Bits { bits: 64, align_bits: 8, order: ByteOrder::Little, is_reversed: false };
    let (integer, table) = integer(json, bits, is_signed)?;
    Ok(Type::Variable(Arc::new(Variable { integer, table })))
}

/// Section 5.3.9.
fn float(json: &Json) -> Result<Type, String> {
    let n_bits = length(json)?;
    if !matches!(n_bits, 16 | 32 | 64) {
        return Err(format!("floating point numbers of 16, 32 and 64 bits can be read, not of {n_bits}"));
    }
    let Bits { bits, align_bits, order, is_reversed } = bits(json)?;
    Ok(Type::Float(Float { bits, align_bits, order: Some(order), is_reversed }))
}

/// `None` for UTF-8 (section 5.3.11).
fn encoding(json: &Json) -> Result<Option<Encoding>, String> {
    Ok(match json.get("encoding").map(|encoding| encoding.text().unwrap_or_default()) {
        None | Some("utf-8") => None,
        Some("utf-16be") => Some(Encoding::Utf16(ByteOrder::Big)),
        Some("utf-16le") => Some(Encoding::Utf16(ByteOrder::Little)),
        Some("utf-32be") => Some(Encoding::Utf32(ByteOrder::Big)),
        Some("utf-32le") => Some(Encoding::Utf32(ByteOrder::Little)),
        Some(other) => return Err(format!("`{}` is not an encoding of CTF 2", other.escape_debug())),
    })
}

/// Sections 5.3.13 and 5.3.14.
fn string(json: &Json, length: Length) -> Result<Type, String> {
    Ok(match encoding(json)? {
        None => Type::array_of(Type::Integer(Integer::new(8, false).text()), length),
        Some(encoding) => Type::Wide(Arc::new(Wide { encoding, length: Some(length) })),
    })
}

/// Sections 5.3.16 and 5.3.17.
fn blob(json: &Json, length: Length) -> Result<Type, String> {
    let media_type = match json.get("media-type") {
        Some(ty) => ty.text().ok_or("`media-type` is not text")?.to_owned(),
        None => "application/octet-stream".to_owned(),
    };
    Ok(Type::Blob(Arc::new(Blob { length, media_type, roles: roles(json)? })))
}

/// Section 5.3.18.
fn structure(json: &Json, aliases: &Aliases) -> Result<Type, String> {
    let align_bits = alignment(json, "minimum-alignment")?;
    let members = match json.get("member-classes") {
        Some(members) => members.array().ok_or("`member-classes` is not an array")?,
        None => &[],
    };
    let mut names = HashSet::new();
    let mut fields = Vec::with_capacity(members.len());
    for member in members {
        refuse_extensions(member)?;
        let name = required_text(member, "name")?;
        let of = |reason: String| format!("member `{}`: {reason}", name.escape_debug());
        if !names.insert(name) {
            return Err(of("there are two of that name".to_owned()));
        }
        let ty = required(member, "field-class").and_then(|json| field_class(json, aliases)).map_err(of)?;
        fields.push(Field::exact(name.to_owned(), ty));
    }
    Ok(Type::struct_of(fields, align_bits))
}

/// Sections 5.3.20 and 5.3.21.
fn array(json: &Json, length: Length, aliases: &Aliases) -> Result<Type, String> {
    let element = field_class(required(json, "element-field-class")?, aliases)?;
    Ok(Type::aligned_array(element, length, alignment(json, "minimum-alignment")?))
}

/// Section 5.3.23.
fn variant(json: &Json, aliases: &Aliases) -> Result<Type, String> {
    let selector = location(json, "selector-field-location")?;
    let options = required(json, "options")?.array().ok_or("`options` is not an array")?;
    let (mut fields, mut ranges) = (Vec::new(), Vec::new());
    for (index, option) in options.iter().enumerate() {
        refuse_extensions(option)?;
        // Options need no names, but JSON of ours shows them.
        let name = match option.get("name") {
            Some(name) => name.text().ok_or("`name` of an option is not text")?.to_owned(),
            None => index.to_string(),
        };
        let of = |reason: String| format!("option `{}`: {reason}", name.escape_debug());
        ranges.push(required(option, "selector-field-ranges").and_then(spans).map_err(of)?);
        let ty = required(option, "field-class").and_then(|json| field_class(json, aliases)).map_err(of)?;
        fields.push(Field::exact(name, ty));
    }
    Ok(Type::variant_of(Tag::Ranges(selector, ranges), fields))
}

/// An integer range set (section 5.3.2).
fn spans(json: &Json) -> Result<Vec<Span>, String> {
    let one = |range: &Json| match range.array()? {
        [first, last] => Some((first.integer()?, last.integer()?)).filter(|(first, last)| first <= last),
        _ => None,
    };
    let spans: Option<Vec<Span>> =
        json.array().filter(|ranges| !ranges.is_empty()).and_then(|ranges| ranges.iter().map(one).collect());
    spans.ok_or_else(|| "a range of integers is `[FIRST, LAST]`, a set of them an array of ranges".to_owned())
}

/// Section 5.3.1.
fn location(json: &Json, key: &str) -> Result<Location, String> {
    let json = required(json, key)?;
    let origin = match json.get("origin").map(|origin| origin.text().unwrap_or_default()) {
        Some(name) => Some(
            ScopeKind::from_origin(name)
                .ok_or_else(|| format!("`{}` is not the origin of a location", name.escape_debug()))?,
        ),
        None => None,
    };
    let part = |part: &Json| match part {
        Json::Text(name) => Some(Some(name.clone())),
        Json::Null => Some(None),
        _ => None,
    };
    let path: Option<Vec<Option<String>>> =
        json.get("path").and_then(Json::array).and_then(|parts| parts.iter().map(part).collect());
    match path {
        Some(path) if path.last().is_some_and(Option::is_some) => Ok(Location { origin, path }),
        _ => Err(format!("the path of `{key}` is not an array of names that ends with one")),
    }
}

/// Section 5.3.3.
fn roles(json: &Json) -> Result<Roles, String> {
    let Some(roles) = json.get("roles") else { return Ok(Roles::NONE) };
    let mut found = Roles::NONE;
    for role in roles.array().ok_or("`roles` is not an array")? {
        found = found.with(match role.text().unwrap_or_default() {
            "data-stream-class-id" => Role::StreamId,
            "data-stream-id" => Role::StreamInstance,
            "default-clock-timestamp" => Role::Clock,
            "discarded-event-record-counter-snapshot" => Role::EventsDiscarded,
            "event-record-class-id" => Role::EventId,
            "metadata-stream-uuid" => Role::Uuid,
            "packet-content-length" => Role::ContentSize,
            "packet-end-default-clock-timestamp" => Role::TimestampEnd,
            "packet-magic-number" => Role::Magic,
            "packet-sequence-number" => Role::PacketSeqNum,
            "packet-total-length" => Role::PacketSize,
            other => return Err(format!("`{}` is not a role of CTF 2", other.escape_debug())),
        });
    }
    Ok(found)
}
