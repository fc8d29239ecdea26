//! Results as JSON: bpftrace's line shapes, and the rows of an answer.

use super::map::{self, Entry, Quantiles};
use super::value::{self, buffer, kernel_frames, user_frames};
use super::{Names, word};
use nopal_program::aggregate::{Aggregate, average};
use nopal_program::layout::{self, Layout};
use nopal_program::{MapDef, MapValue, Type};

/// A string in quotes; bytes that are no text are replaced.
pub(super) fn string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if (c as u32) < 0x20 => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// A text as a JSON string.
pub fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    string(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn value(value_type: &Type, bytes: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    let number = || word(bytes, 0);
    match value_type {
        Type::Int { is_signed: true, .. } => out.extend_from_slice((number() as i64).to_string().as_bytes()),
        Type::Bool => out.extend_from_slice(if number() == 0 { b"false" } else { b"true" }),
        Type::Int { .. } | Type::Pointer => out.extend_from_slice(number().to_string().as_bytes()),
        Type::Float if f64::from_bits(number()).is_finite() => {
            out.extend_from_slice(f64::from_bits(number()).to_string().as_bytes());
        }
        Type::Float => out.extend_from_slice(b"null"),
        Type::Tuple(members) => {
            out.push(b'[');
            let mut is_first = true;
            value::tuple(members, bytes, &mut Vec::new(), |member, bytes, _| {
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                value(member, bytes, names, out);
            });
            out.push(b']');
        }
        Type::Record(members) => {
            let mut rest = bytes;
            out.push(b'{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b", ");
                }
                string(name.as_bytes(), out);
                out.extend_from_slice(b": ");
                let (own, behind) = rest.split_at((member.size_bytes() as usize).min(rest.len()));
                value(member, own, names, out);
                rest = behind;
            }
            out.push(b'}');
        }
        Type::Whole(layout) => whole(layout, None, bytes, out),
        Type::UserStack { form, .. } => frames(&user_frames(bytes, *form, names), out),
        Type::KernelStack { form, .. } => frames(&kernel_frames(bytes, *form, names), out),
        Type::Buffer { .. } => {
            let mut text = Vec::new();
            value::escape(buffer(bytes), &mut text);
            string(&text, out);
        }
        Type::Str { .. }
        | Type::Probe
        | Type::UserSymbol
        | Type::KernelSymbol
        | Type::Time { .. }
        | Type::Enum { .. }
        | Type::Inet
        | Type::Mac
        | Type::Username
        | Type::ErrorText
        | Type::CgroupPath { .. } => {
            let mut text = Vec::new();
            value::value(value_type, bytes, names, &mut text);
            string(&text, out);
        }
    }
}

/// Arrays and records of C as those of JSON.
fn whole(layout: &Layout, bits: Option<(u8, u8)>, bytes: &[u8], out: &mut Vec<u8>) {
    match layout {
        Layout::Int { size_bytes, is_signed } => {
            let number = layout::number(bytes, *size_bytes, *is_signed, bits);
            let text = if *is_signed { number.to_string() } else { (number as u64).to_string() };
            out.extend_from_slice(text.as_bytes());
        }
        Layout::Float if f64::from_bits(word(bytes, 0)).is_finite() => {
            out.extend_from_slice(f64::from_bits(word(bytes, 0)).to_string().as_bytes());
        }
        Layout::Float => out.extend_from_slice(b"null"),
        Layout::Bool => {
            let is_false = bytes.first().is_none_or(|byte| *byte == 0);
            out.extend_from_slice(if is_false { b"false" } else { b"true" });
        }
        Layout::Pointer => out.extend_from_slice(word(bytes, 0).to_string().as_bytes()),
        Layout::Text { n } => string(value::string(&bytes[..bytes.len().min(*n as usize)]), out),
        Layout::Array { of, n } => {
            out.push(b'[');
            let size = of.size_bytes() as usize;
            for index in 0..*n as usize {
                if index > 0 {
                    out.push(b',');
                }
                whole(of, None, bytes.get(index * size..).unwrap_or_default(), out);
            }
            out.push(b']');
        }
        Layout::Record { members, .. } => {
            out.push(b'{');
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b", ");
                }
                string(member.name.as_bytes(), out);
                out.extend_from_slice(b": ");
                whole(
                    &member.layout,
                    member.bits,
                    bytes.get(member.offset as usize..).unwrap_or_default(),
                    out,
                );
            }
            out.push(b'}');
        }
    }
}

fn frames(frames: &[String], out: &mut Vec<u8>) {
    string(frames.join("\n").as_bytes(), out);
}

/// bpftrace's line for a map.
pub(super) fn map(def: &MapDef, entries: &[Entry], div: u64, names: &dyn Names, out: &mut Vec<u8>) {
    let kind = match &def.value {
        MapValue::Aggregate(Aggregate::Hist { .. } | Aggregate::Lhist { .. }) => "hist",
        MapValue::Aggregate(
            Aggregate::Avg { .. } | Aggregate::Stats { .. } | Aggregate::Quantiles { .. },
        ) => "stats",
        MapValue::Aggregate(
            Aggregate::Count | Aggregate::Sum { .. } | Aggregate::Min { .. } | Aggregate::Max { .. },
        )
        | MapValue::Plain(_)
        | MapValue::Series(_) => "map",
    };
    if entries.is_empty() {
        return;
    }
    out.extend_from_slice(format!("{{\"type\": \"{kind}\", \"data\": {{").as_bytes());
    string(def.name.as_bytes(), out);
    out.extend_from_slice(b": ");
    if def.key.is_empty() {
        map_value(def, &entries[0].1, div, names, out);
    } else {
        out.push(b'{');
        for (index, (key, words)) in entries.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            self::key(&def.key, key, names, out);
            out.extend_from_slice(b": ");
            map_value(def, words, div, names, out);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"}}\n");
}

/// A key as the name of a member.
pub(super) fn key(types: &[Type], key: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    let mut is_first = true;
    value::tuple(types, key, &mut Vec::new(), |member, bytes, _| {
        if !is_first {
            text.push(b',');
        }
        is_first = false;
        value::value(member, bytes, names, &mut text);
    });
    string(&text, out);
}

/// What `print(@map[key])` prints.
pub(super) fn entry(def: &MapDef, words: &[u64], names: &dyn Names, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\": \"value\", \"data\": ");
    map_value(def, words, 1, names, out);
    out.extend_from_slice(b"}\n");
}

fn map_value(def: &MapDef, words: &[u64], div: u64, names: &dyn Names, out: &mut Vec<u8>) {
    let mut put = |text: String| out.extend_from_slice(text.as_bytes());
    let aggregate = match &def.value {
        MapValue::Plain(Type::Int { is_signed, .. }) => {
            return put(map::divided(words[0], *is_signed, div));
        }
        MapValue::Plain(value_type) => {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            return value(value_type, &bytes, names, out);
        }
        MapValue::Aggregate(aggregate) => *aggregate,
        // Shown on its own.
        MapValue::Series(_) => return,
    };
    match aggregate {
        Aggregate::Count => put(map::divided(words[0], false, div)),
        Aggregate::Sum { is_signed } => put(map::divided(words[0], is_signed, div)),
        Aggregate::Min { is_signed } | Aggregate::Max { is_signed } => {
            put(map::divided(words[1], is_signed, div));
        }
        Aggregate::Avg { is_signed } => {
            put(map::divided(average(words, is_signed) as u64, is_signed, div));
        }
        Aggregate::Stats { is_signed } => put(format!(
            "{{\"count\": {}, \"average\": {}, \"total\": {}}}",
            words[0],
            map::divided(average(words, is_signed) as u64, is_signed, div),
            map::divided(words[1], is_signed, div)
        )),
        Aggregate::Quantiles { bits } => {
            let q = Quantiles::of(words, bits);
            put(format!(
                "{{\"count\": {}, \"p50\": {}, \"p90\": {}, \"p99\": {}, \"p99.9\": {}, \"max\": {}}}",
                q.count, q.at[0], q.at[1], q.at[2], q.at[3], q.max
            ));
        }
        Aggregate::Hist { .. } | Aggregate::Lhist { .. } => {
            out.push(b'[');
            for (index, bucket) in map::buckets(aggregate, words).iter().enumerate() {
                if index > 0 {
                    out.extend_from_slice(b", ");
                }
                let mut members = Vec::new();
                members.extend(bucket.first.map(|first| format!("\"min\": {first}")));
                members.extend(bucket.last.map(|last| format!("\"max\": {last}")));
                members.push(format!("\"count\": {}", bucket.count / div.max(1)));
                out.extend_from_slice(format!("{{{}}}", members.join(", ")).as_bytes());
            }
            out.push(b']');
        }
    }
}

/// The entries of a map as objects with `map`, `key` and `value`, separated by commas.
pub fn json_rows(def: &MapDef, entries: &[Entry], names: &dyn Names, out: &mut Vec<u8>) {
    for (index, (key, words)) in entries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        row_head(def, key, names, out);
        map_value(def, words, 1, names, out);
        out.push(b'}');
    }
}

/// A row up to its value.
pub(super) fn row_head(def: &MapDef, key: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"map\":");
    string(def.name.as_bytes(), out);
    out.extend_from_slice(b",\"key\":");
    value(&Type::Tuple(def.key.clone()), key, names, out);
    out.extend_from_slice(b",\"value\":");
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestNames;
    use super::*;

    fn words_of(aggregate: Aggregate, values: &[i64]) -> Vec<u64> {
        let mut words = vec![0; aggregate.n_words() as usize];
        values.iter().for_each(|value| aggregate.take(&mut words, *value));
        words
    }

    /// The expected lines are what bpftrace 0.17 printed with `-f json`.
    #[test]
    fn maps_in_the_shapes_of_bpftrace() {
        let text = Type::Str { max_bytes: 8 };
        let key = |name: &[u8; 8], n: i64| [&name[..], &n.to_le_bytes()].concat();
        let table = [
            (
                MapDef {
                    name: "@s".into(),
                    key: vec![text.clone(), Type::I64],
                    value: MapValue::Aggregate(Aggregate::Sum { is_signed: true }),
                },
                vec![(key(b"abd\0\0\0\0\0", 1), vec![-2i64 as u64]), (key(b"abc\0\0\0\0\0", 3), vec![7])],
                r#"{"type": "map", "data": {"@s": {"abd,1": -2, "abc,3": 7}}}"#,
            ),
            (
                MapDef {
                    name: "@st".into(),
                    key: vec![],
                    value: MapValue::Aggregate(Aggregate::Stats { is_signed: true }),
                },
                vec![(vec![], words_of(Aggregate::Stats { is_signed: true }, &[10, -30]))],
                r#"{"type": "stats", "data": {"@st": {"count": 2, "average": -10, "total": -20}}}"#,
            ),
            (
                MapDef {
                    name: "@h".into(),
                    key: vec![text.clone()],
                    value: MapValue::Aggregate(Aggregate::Hist { bits: 0 }),
                },
                vec![(b"y\0\0\0\0\0\0\0".to_vec(), words_of(Aggregate::Hist { bits: 0 }, &[3, 4]))],
                r#"{"type": "hist", "data": {"@h": {"y": [{"min": 2, "max": 3, "count": 1}, {"min": 4, "max": 7, "count": 1}]}}}"#,
            ),
            (
                MapDef {
                    name: "@t".into(),
                    key: vec![],
                    value: MapValue::Plain(Type::Tuple(vec![Type::I64, text.clone()])),
                },
                vec![(vec![], vec![1, u64::from_le_bytes(*b"t\"o\0\0\0\0\0")])],
                r#"{"type": "map", "data": {"@t": [1,"t\"o"]}}"#,
            ),
        ];
        for (def, entries, want) in table {
            let mut out = Vec::new();
            map(&def, &entries, 1, &TestNames, &mut out);
            assert_eq!(String::from_utf8(out).unwrap().trim_end(), want);
        }
    }

    #[test]
    fn rows_have_their_keys_as_values() {
        let def = MapDef {
            name: "@".into(),
            key: vec![Type::I64, Type::Str { max_bytes: 8 }],
            value: MapValue::Aggregate(Aggregate::Count),
        };
        let mut out = Vec::new();
        let key = [&5i64.to_le_bytes()[..], b"a\nb\0\0\0\0\0"].concat();
        json_rows(&def, &[(key, vec![3])], &TestNames, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"map":"@","key":[5,"a\nb"],"value":3}"#);
    }
}
