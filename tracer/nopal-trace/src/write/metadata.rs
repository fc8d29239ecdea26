//! The TSDL that the writer leaves in `metadata`, or makes CTF 2 of. Its packet context, headers and names are those of LTTng's tracers, so
//! that every reader of those reads ours.

use super::RecordingInfo;
use crate::model::{ByteOrder, EventType, Field, Float, Integer, Length, Tag, Type};
use crate::tsdl::EnvValue;
use std::fmt::Write;

/// Everything before the first event type. Writing to a String cannot fail, so results are dropped here and below.
pub(super) fn preamble(info: &RecordingInfo, uuid: &[u8; 16], is_large: bool) -> String {
    let mut text = String::from(
        "/* CTF 1.8 */\n\n\
         typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n\
         typealias integer { size = 16; align = 8; signed = false; } := uint16_t;\n\
         typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
         typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\
         typealias integer { size = 5; align = 1; signed = false; } := uint5_t;\n\n",
    );
    let _ = write!(
        text,
        "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{}\";\n\tbyte_order = le;\n\
         \tpacket.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\
         \t\tuint64_t stream_instance_id;\n\t}};\n}};\n\n",
        uuid_text(uuid)
    );
    text.push_str("env {\n");
    let own = [
        ("domain", EnvValue::Text("ust".to_owned())),
        ("tracer_name", EnvValue::Text("nopal".to_owned())),
        ("tracer_major", EnvValue::Number(version_part(0))),
        ("tracer_minor", EnvValue::Number(version_part(1))),
        ("tracer_patchlevel", EnvValue::Number(version_part(2))),
        ("hostname", EnvValue::Text(info.hostname.clone())),
    ];
    let own = own.iter().map(|(key, value)| (*key, value));
    for (key, value) in own.chain(info.env.iter().map(|(key, value)| (key.as_str(), value))) {
        let _ = match value {
            EnvValue::Number(n) => writeln!(text, "\t{key} = {n};"),
            EnvValue::Text(t) => writeln!(text, "\t{key} = {};", quoted(t)),
        };
    }
    let _ = write!(
        text,
        "}};\n\nclock {{\n\tname = \"monotonic\";\n\tdescription = \"Monotonic Clock\";\n\tfreq = 1000000000;\n\
         \toffset = {};\n}};\n\n",
        info.clock_offset_ns
    );
    let clock_type = |bits: u32, align: u32| {
        format!("integer {{ size = {bits}; align = {align}; signed = false; map = clock.monotonic.value; }}")
    };
    let (id_type, last_id, time) =
        if is_large { ("uint16_t", 65534, clock_type(32, 8)) } else { ("uint5_t", 30, clock_type(27, 1)) };
    let _ = write!(
        text,
        "stream {{\n\tid = 0;\n\tpacket.context := struct {{\n\t\t{clock} timestamp_begin;\n\t\t{clock} timestamp_end;\n\
         \t\tuint64_t content_size;\n\t\tuint64_t packet_size;\n\t\tuint64_t packet_seq_num;\n\
         \t\tuint64_t events_discarded;\n\t\tuint32_t cpu_id;\n\t}};\n\
         \tevent.header := struct {{\n\t\tenum : {id_type} {{ compact = 0 ... {last_id}, extended = {extended} }} id;\n\
         \t\tvariant <id> {{\n\t\t\tstruct {{\n\t\t\t\t{time} timestamp;\n\t\t\t}} compact;\n\
         \t\t\tstruct {{\n\t\t\t\tuint32_t id;\n\t\t\t\t{clock} timestamp;\n\t\t\t}} extended;\n\
         \t\t}} v;\n\t}} align(8);\n",
        clock = clock_type(64, 8),
        extended = last_id + 1,
    );
    if !info.context.is_empty() {
        text.push_str("\tevent.context := struct {\n");
        fields(&mut text, 2, &info.context);
        text.push_str("\t};\n");
    }
    text.push_str("};\n\n");
    text
}

/// One event type.
pub(super) fn event(id: u32, ty: &EventType) -> String {
    let mut text =
        format!("event {{\n\tname = {};\n\tid = {id};\n\tstream_id = 0;\n", quoted(&ty.full_name()));
    if let Some(level) = ty.log_level {
        let _ = writeln!(text, "\tloglevel = {level};");
    }
    if let Some(uri) = &ty.model_uri {
        let _ = writeln!(text, "\tmodel.emf.uri = {};", quoted(uri));
    }
    text.push_str("\tfields := struct {\n");
    fields(&mut text, 2, &ty.fields);
    text.push_str("\t};\n};\n\n");
    text
}

fn version_part(at: usize) -> i128 {
    env!("CARGO_PKG_VERSION").split('.').nth(at).and_then(|p| p.parse().ok()).unwrap_or(0)
}

pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in uuid.iter().enumerate() {
        let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

/// A TSDL string, with the escapes of C.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push('?'),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn fields(text: &mut String, depth: usize, fields: &[Field]) {
    for field in fields {
        text.push_str(&"\t".repeat(depth));
        // The lengths of an array stand behind its name, the outermost first.
        let mut ty = &field.ty;
        let mut lengths = String::new();
        while let Type::Array(array) = ty {
            let _ = match &array.length {
                Length::Fixed(n) => write!(lengths, "[{n}]"),
                Length::Field(path) => write!(lengths, "[{}]", path.join(".")),
                Length::Located(location) => write!(lengths, "[{location}]"),
            };
            ty = &array.element;
        }
        type_text(text, depth, ty);
        let _ = writeln!(text, " {}{lengths};", field.raw);
    }
}

fn order_text(order: Option<ByteOrder>) -> &'static str {
    match order {
        None => "",
        Some(ByteOrder::Little) => " byte_order = le;",
        Some(ByteOrder::Big) => " byte_order = be;",
    }
}

fn integer_text(text: &mut String, i: &Integer) {
    let _ = write!(
        text,
        "integer {{ size = {}; align = {}; signed = {}; encoding = {}; base = {};{} }}",
        i.bits,
        i.align_bits,
        u8::from(i.is_signed),
        if i.is_text { "UTF8" } else { "none" },
        i.base,
        order_text(i.order)
    );
}

fn type_text(text: &mut String, depth: usize, ty: &Type) {
    match ty {
        Type::Integer(i) => integer_text(text, i),
        Type::Float(Float { bits, align_bits, order, .. }) => {
            let (exponent, mantissa) = if *bits == 32 { (8, 24) } else { (11, 53) };
            let _ = write!(
                text,
                "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {align_bits};{} }}",
                order_text(*order)
            );
        }
        Type::String => text.push_str("string"),
        Type::Enum(e) => {
            text.push_str("enum : ");
            integer_text(text, &e.integer);
            text.push_str(" {");
            for label in &e.labels {
                let _ = write!(text, " {} = {}", quoted(&label.text), label.first);
                if label.last != label.first {
                    let _ = write!(text, " ... {}", label.last);
                }
                text.push(',');
            }
            text.push_str(" }");
        }
        Type::Struct(s) => {
            text.push_str("struct {\n");
            fields(text, depth + 1, &s.fields);
            text.push_str(&"\t".repeat(depth));
            text.push('}');
        }
        Type::Array(array) => type_text(text, depth, &array.element),
        Type::Variant(v) => {
            let _ = match &v.tag {
                Tag::Label(path) => writeln!(text, "variant <{}> {{", path.join(".")),
                Tag::Ranges(location, _) => writeln!(text, "variant <{location}> {{"),
            };
            fields(text, depth + 1, &v.options);
            text.push_str(&"\t".repeat(depth));
            text.push('}');
        }
        // The layout has refused what CTF 1.8 has no word for.
        Type::Bool(_)
        | Type::BitMap(_)
        | Type::Variable(_)
        | Type::Wide(_)
        | Type::Blob(_)
        | Type::Optional(_) => {}
    }
}
