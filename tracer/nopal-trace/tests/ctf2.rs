//! CTF 2, read and written: traces made here bit by bit with every field class, whose lines are planned; recordings of ours in both
//! versions; and traces that mean harm. The lines of classes that babeltrace2 2.1 can print are those that it prints.

use nopal_trace::{
    EventType, Integer, JsonLines, Recording, RecordingInfo, Selection, TextForm, TextLines, Type, Version,
    print,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ctf2").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// The lines, and whether the recording was read whole.
fn lines(dir: &Path, is_json: bool) -> (String, bool) {
    let recording = Recording::open(dir).unwrap_or_else(|e| panic!("{e}"));
    let (mut out, stop, all) = (Vec::new(), AtomicBool::new(false), Selection::default());
    let form = TextForm { is_utc: true, ..TextForm::default() };
    let printed = match is_json {
        true => print(&recording, &all, || JsonLines::new(false), &mut out, &stop),
        false => print(&recording, &all, || TextLines::new(form), &mut out, &stop),
    };
    (String::from_utf8(out).unwrap(), printed.unwrap().report.verdict.is_complete())
}

const UINT: &str = r#""type":"fixed-length-unsigned-integer","byte-order":"little-endian","alignment":8"#;

fn uint(bits: u32, more: &str) -> String {
    format!("{{{UINT},\"length\":{bits}{more}}}")
}

fn structure(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, class)| format!("{{\"name\":\"{name}\",\"field-class\":{class}}}"))
        .collect();
    format!("{{\"type\":\"structure\",\"member-classes\":[{}]}}", members.join(","))
}

/// Metadata with one event `e` of the given members; the time in its header is of class `time`.
fn metadata(members: &[(&str, String)], time: &str) -> String {
    let role = |name: &str| format!(",\"roles\":[\"{name}\"]");
    let header = structure(&[
        ("m", uint(32, &role("packet-magic-number"))),
        ("u", format!("{{\"type\":\"static-length-blob\",\"length\":16{}}}", role("metadata-stream-uuid"))),
        ("s", uint(8, &role("data-stream-class-id"))),
        ("d", format!("{{\"type\":\"variable-length-unsigned-integer\"{}}}", role("data-stream-id"))),
    ]);
    let context = structure(&[
        ("b", uint(64, &role("default-clock-timestamp"))),
        ("e", uint(64, &role("packet-end-default-clock-timestamp"))),
        // One field may have two roles.
        ("size", uint(64, ",\"roles\":[\"packet-content-length\",\"packet-total-length\"]")),
        ("q", uint(64, &role("packet-sequence-number"))),
        ("l", uint(64, &role("discarded-event-record-counter-snapshot"))),
        ("cpu_id", uint(32, "")),
    ]);
    let event_header = structure(&[("i", uint(8, &role("event-record-class-id"))), ("t", time.to_owned())]);
    let uuid = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";
    [
        format!("{{\"type\":\"preamble\",\"version\":2,\"uuid\":{uuid},\"attributes\":{{\"x\":[1]}}}}"),
        format!(
            "{{\"type\":\"trace-class\",\"name\":\"t\",\"uid\":\"u\",\"environment\":{{\"hostname\":\"h\"}},\
             \"packet-header-field-class\":{header}}}"
        ),
        "{\"type\":\"clock-class\",\"id\":\"c\",\"frequency\":1000000000,\"origin\":\"unix-epoch\",\
         \"offset-from-origin\":{\"seconds\":1700000000,\"cycles\":5}}"
            .to_owned(),
        format!("{{\"type\":\"field-class-alias\",\"name\":\"u8\",\"field-class\":{}}}", uint(8, "")),
        "{\"type\":\"field-class-alias\",\"name\":\"byte\",\"field-class\":\"u8\"}".to_owned(),
        format!(
            "{{\"type\":\"data-stream-class\",\"id\":3,\"default-clock-class-id\":\"c\",\
             \"packet-context-field-class\":{context},\"event-record-header-field-class\":{event_header}}}"
        ),
        format!(
            "{{\"type\":\"event-record-class\",\"id\":1,\"data-stream-class-id\":3,\"name\":\"e\",\"uid\":\"x\",\
             \"namespace\":\"n\",\"payload-field-class\":{}}}",
            structure(members)
        ),
    ]
    .map(|fragment| format!("\u{1e}{fragment}\n"))
    .concat()
}

fn packet(events: &[u8]) -> Vec<u8> {
    let mut bytes = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    bytes.extend(0..16);
    // 7 in two bytes: the event's fields begin at a multiple of four bytes.
    bytes.extend([3, 0x87, 0]);
    let size = (bytes.len() + 44 + events.len()) as u64 * 8;
    for word in [1_000, 9_000_000, size, 0, 0] {
        bytes.extend_from_slice(&u64::to_le_bytes(word));
    }
    bytes.extend_from_slice(&5u32.to_le_bytes());
    bytes.extend_from_slice(events);
    bytes
}

fn trace(name: &str, members: &[(&str, String)], payload: &[u8]) -> PathBuf {
    let dir = folder(name);
    let time = uint(32, ",\"roles\":[\"default-clock-timestamp\"]");
    fs::write(dir.join("metadata"), metadata(members, &time)).unwrap();
    let mut event = vec![1];
    event.extend_from_slice(&2_000u32.to_le_bytes());
    event.extend_from_slice(payload);
    fs::write(dir.join("stream"), packet(&event)).unwrap();
    dir
}

/// What lengths and selectors refer to, with their bytes and their text.
fn base() -> (Vec<(&'static str, String)>, Vec<u8>, &'static str) {
    let signed = |more: &str| uint(8, more).replace("unsigned", "signed");
    let boolean =
        "{\"type\":\"fixed-length-boolean\",\"length\":8,\"byte-order\":\"big-endian\",\"alignment\":8}";
    let members = vec![
        ("n", "\"byte\"".to_owned()),
        ("no", boolean.to_owned()),
        ("yes", boolean.to_owned()),
        ("s", signed("")),
        ("sm", signed(",\"mappings\":{\"neg\":[[-5,-1]],\"pos\":[[0,9]],\"few\":[[-2,2]]}")),
        ("um", uint(8, ",\"mappings\":{\"x\":[[9,9]]}")),
    ];
    let text = "n = 2, no = false, yes = true, s = -2, sm = ( { \"neg\", \"few\" } : container = -2 ), \
                um = ( \"x\" : container = 9 )";
    (members, vec![2, 0, 4, 0xfe, 0xfe, 9], text)
}

/// Class, bytes, what the field is in text and in JSON.
#[rustfmt::skip]
const CLASSES: &[(&str, &str, &[u8], &str, &str)] = &[
    ("bit-array", r#"{"type":"fixed-length-bit-array","length":16,"byte-order":"little-endian","alignment":8}"#, b"\xf0\xa5", "0xA5F0", "42480"),
    ("bit-map", r#"{"type":"fixed-length-bit-map","length":8,"byte-order":"little-endian","alignment":8,"flags":{"B":[[1,2]],"A":[[0,0]],"C":[[2,2],[7,7]],"D":[[6,6]]}}"#, b"\x87", r#"0x87 { "A", "B", "C" }"#, "135"),
    ("bit-map-none", r#"{"type":"fixed-length-bit-map","length":8,"byte-order":"little-endian","alignment":8,"flags":{"A":[[0,0]]}}"#, b"\x02", "0x2", "2"),
    ("bit-map-big", r#"{"type":"fixed-length-bit-map","length":16,"byte-order":"big-endian","alignment":8,"flags":{"z":[[0,0]],"hi":[[15,15]]}}"#, b"\x80\0", r#"0x8000 { "hi" }"#, "32768"),
    ("bit-map-turned", r#"{"type":"fixed-length-bit-map","length":16,"byte-order":"big-endian","bit-order":"first-to-last","alignment":8,"flags":{"z":[[0,0]],"hi":[[15,15]]}}"#, b"\x80\0", r#"0x1 { "z" }"#, "1"),
    ("boolean-wide", r#"{"type":"fixed-length-boolean","length":64,"byte-order":"little-endian"}"#, b"\0\0\0\0\0\0\0\x80", "true", "true"),
    ("turned", r#"{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian","bit-order":"last-to-first"}"#, b"\xd0", "11", "11"),
    ("hexadecimal", r#"{"type":"fixed-length-unsigned-integer","length":16,"byte-order":"big-endian","preferred-display-base":16}"#, b"\xbe\xef", "0xBEEF", "48879"),
    ("octal", r#"{"type":"fixed-length-unsigned-integer","length":16,"byte-order":"big-endian","preferred-display-base":8}"#, b"\x01\xff", "0777", "511"),
    ("binary", r#"{"type":"fixed-length-signed-integer","length":8,"byte-order":"big-endian","preferred-display-base":2}"#, b"\xda", "0b11011010", "-38"),
    ("float-16", r#"{"type":"fixed-length-floating-point-number","length":16,"byte-order":"little-endian"}"#, b"\0\x3e", "1.5", "1.5"),
    ("float-32", r#"{"type":"fixed-length-floating-point-number","length":32,"byte-order":"little-endian"}"#, b"\xcd\xcc\xcc\xbd", "-0.1", "-0.1"),
    ("float-64", r#"{"type":"fixed-length-floating-point-number","length":64,"byte-order":"big-endian"}"#, b"\x40\x09\x21\xfb\x54\x44\x2d\x18", "3.14159", "3.141592653589793"),
    ("float-turned", r#"{"type":"fixed-length-floating-point-number","length":32,"byte-order":"little-endian","bit-order":"last-to-first"}"#, b"\x02\x04\0\0", "2.5", "2.5"),
    ("variable", r#"{"type":"variable-length-unsigned-integer","preferred-display-base":16}"#, b"\xac\x02", "0x12C", "300"),
    ("variable-table", r#"{"type":"variable-length-signed-integer","mappings":{"q":[[-3,-3]]}}"#, b"\x7d", r#"( "q" : container = -3 )"#, r#""q""#),
    ("variable-signed", r#"{"type":"variable-length-signed-integer","preferred-display-base":16}"#, b"\xb8\x7e", "0xFFFFFFFFFFFFFF38", "-200"),
    ("string", r#"{"type":"null-terminated-string"}"#, b"he\"l\n\0", r#""he\"l\n""#, r#""he\"l\n""#),
    ("string-16", r#"{"type":"null-terminated-string","encoding":"utf-16le"}"#, b"h\0\xe4\0\x3d\xd8\0\xde\0\0", "\"h\u{e4}\u{1f600}\"", "\"h\u{e4}\u{1f600}\""),
    ("string-32", r#"{"type":"null-terminated-string","encoding":"utf-32be"}"#, b"\0\0\0\xe9\0\0\x20\xac\0\0\0\0", "\"\u{e9}\u{20ac}\"", "\"\u{e9}\u{20ac}\""),
    ("static-string", r#"{"type":"static-length-string","length":6}"#, b"ab\0cde", r#""ab""#, r#""ab""#),
    ("static-string-16", r#"{"type":"static-length-string","length":6,"encoding":"utf-16be"}"#, b"\0x\0\0zz", r#""x""#, r#""x""#),
    ("dynamic-string", r#"{"type":"dynamic-length-string","length-field-location":{"path":["n"]}}"#, b"\xc3\xa9", "\"\u{e9}\"", "\"\u{e9}\""),
    ("static-blob", r#"{"type":"static-length-blob","length":3,"media-type":"image/tiff"}"#, b"\0\x01\xff", "{ 00 01 ff }", "[0,1,255]"),
    ("empty-blob", r#"{"type":"static-length-blob","length":0}"#, b"", "{ }", "[]"),
    ("dynamic-blob", r#"{"type":"dynamic-length-blob","length-field-location":{"origin":"event-record-payload","path":["n"]}}"#, b"\x10\x20", "{ 10 20 }", "[16,32]"),
    ("static-array", r#"{"type":"static-length-array","length":2,"element-field-class":"u8"}"#, b"\x01\x02", "[ [0] = 1, [1] = 2 ]", "[1,2]"),
    ("empty-array", r#"{"type":"static-length-array","length":0,"element-field-class":"u8"}"#, b"", "[ ]", "[]"),
    ("aligned-array", r#"{"type":"static-length-array","length":8,"minimum-alignment":32,"element-field-class":{"type":"fixed-length-boolean","length":1,"byte-order":"little-endian"}}"#, b"\0\0\x05", "[ [0] = true, [1] = false, [2] = true, [3] = false, [4] = false, [5] = false, [6] = false, [7] = false ]", "[true,false,true,false,false,false,false,false]"),
    ("dynamic-array", r#"{"type":"dynamic-length-array","length-field-location":{"path":["n"]},"element-field-class":{"type":"structure","member-classes":[{"name":"k","field-class":{"type":"null-terminated-string"}},{"name":"l","field-class":"u8"},{"name":"z","field-class":{"type":"dynamic-length-blob","length-field-location":{"path":["l"]}}}]}}"#, b"k1\0\x01\xaak2\0\0", r#"[ [0] = { k = "k1", l = 1, z = { aa } }, [1] = { k = "k2", l = 0, z = { } } ]"#, r#"[{"k":"k1","l":1,"z":[170]},{"k":"k2","l":0,"z":[]}]"#),
    ("optional-no", r#"{"type":"optional","selector-field-location":{"path":["no"]},"field-class":"u8"}"#, b"", "<none>", "null"),
    ("optional-yes", r#"{"type":"optional","selector-field-location":{"path":["yes"]},"field-class":"u8"}"#, b"\x55", "{ 85 }", "85"),
    ("optional-signed", r#"{"type":"optional","selector-field-location":{"path":["s"]},"selector-field-ranges":[[-5,-1]],"field-class":{"type":"structure","member-classes":[{"name":"x","field-class":"u8"}]}}"#, b"\x66", "{ { x = 102 } }", r#"{"x":102}"#),
    ("optional-table", r#"{"type":"optional","selector-field-location":{"path":["sm"]},"selector-field-ranges":[[0,1]],"field-class":"u8"}"#, b"", "<none>", "null"),
    ("optional-elements", r#"{"type":"static-length-array","length":2,"element-field-class":{"type":"optional","selector-field-location":{"path":["n"]},"selector-field-ranges":[[2,2]],"field-class":"u8"}}"#, b"\x01\x02", "[ [0] = { 1 }, [1] = { 2 } ]", "[1,2]"),
    ("variant-signed", r#"{"type":"variant","selector-field-location":{"path":["s"]},"options":[{"name":"o","selector-field-ranges":[[-9,-1]],"field-class":"u8"},{"selector-field-ranges":[[1,2]],"field-class":"u8"}]}"#, b"\x77", "{ 119 }", r#"{"o":119}"#),
    ("variant-table", r#"{"type":"variant","selector-field-location":{"path":["sm"]},"options":[{"name":"o","selector-field-ranges":[[-9,-1]],"field-class":"u8"}]}"#, b"\x77", "{ 119 }", r#"{"o":119}"#),
    ("variant-parent", r#"{"type":"variant","selector-field-location":{"path":["um"]},"options":[{"name":"o","selector-field-ranges":[[0,1]],"field-class":"u8"},{"selector-field-ranges":[[9,9]],"field-class":{"type":"structure","member-classes":[{"name":"i","field-class":{"type":"variable-length-unsigned-integer"}},{"name":"w","field-class":{"type":"dynamic-length-string","length-field-location":{"path":[null,"n"]}}}]}}]}"#, b"\x05wv", r#"{ { i = 5, w = "wv" } }"#, r#"{"1":{"i":5,"w":"wv"}}"#),
    ("two-parents", r#"{"type":"structure","member-classes":[{"name":"q","field-class":"u8"},{"name":"r","field-class":{"type":"structure","member-classes":[{"name":"w","field-class":{"type":"dynamic-length-string","length-field-location":{"path":[null,null,"n"]}}}]}}]}"#, b"\x01zz", r#"{ q = 1, r = { w = "zz" } }"#, r#"{"q":1,"r":{"w":"zz"}}"#),
    ("from-context", r#"{"type":"static-length-array","length":1,"element-field-class":{"type":"dynamic-length-string","length-field-location":{"origin":"packet-context","path":["cpu_id"]}}}"#, b"fives", r#"[ [0] = "fives" ]"#, r#"["fives"]"#),
    ("from-header", r#"{"type":"dynamic-length-string","length-field-location":{"origin":"packet-header","path":["s"]}}"#, b"abc", r#""abc""#, r#""abc""#),
    ("empty", r#"{"type":"structure"}"#, b"", "{ }", "{}"),
];

#[test]
fn every_field_class() {
    for (name, class, bytes, text, json) in CLASSES {
        let (mut members, mut payload, before) = base();
        members.push(("f", (*class).to_owned()));
        payload.extend_from_slice(bytes);
        let dir = trace(name, &members, &payload);
        let (found, is_complete) = lines(&dir, false);
        let line = format!(
            "[22:13:20.000002005] (+?.?????????) h e: {{ cpu_id = 5 }}, {{ {before}, f = {text} }}\n"
        );
        assert_eq!(found, line, "{name}");
        assert!(is_complete, "{name}");
        let (found, _) = lines(&dir, true);
        assert!(found.ends_with(&format!(",\"f\":{json}}}}}\n")), "{name}: {found}");
    }
}

/// A length may be one of several options' (section 6.4.2, examples 90 and 91 of the specification).
#[test]
fn a_length_in_the_options_of_a_variant() {
    let option = |at: u32, bits: u32| {
        format!("{{\"selector-field-ranges\":[[{at},{at}]],\"field-class\":{}}}", uint(bits, ""))
    };
    let variant = format!(
        "{{\"type\":\"variant\",\"selector-field-location\":{{\"path\":[\"sel\"]}},\"options\":[{},{}]}}",
        option(0, 8),
        option(1, 16)
    );
    let string = "{\"type\":\"dynamic-length-string\",\"length-field-location\":{\"path\":[\"len\"]}}";
    let members = [("sel", uint(8, "")), ("len", variant), ("f", string.to_owned())];
    for (name, payload, text) in [
        ("option-0", &b"\0\x02ab"[..], "sel = 0, len = { 2 }, f = \"ab\""),
        ("option-1", b"\x01\x03\0abc", "sel = 1, len = { 3 }, f = \"abc\""),
    ] {
        let (found, is_complete) = lines(&trace(name, &members, payload), false);
        assert!(found.ends_with(&format!("{{ {text} }}\n")) && is_complete, "{found}");
    }
}

/// Of times of variable length so many bits are given as there are bytes (section 6.3).
#[test]
fn times_of_variable_length_carry() {
    let dir = folder("variable-times");
    let time = "{\"type\":\"variable-length-unsigned-integer\",\"roles\":[\"default-clock-timestamp\"]}";
    fs::write(dir.join("metadata"), metadata(&[], time)).unwrap();
    // 2000 in 14 bits; 5 in 7 bits is 2053, the next number that ends so; 1 in 14 bits is 16385; and 5 ns of offset.
    fs::write(dir.join("stream"), packet(&[1, 0xd0, 0x0f, 1, 5, 1, 0x81, 0])).unwrap();
    let (text, _) = lines(&dir, false);
    let times: Vec<&str> = text.lines().map(|line| &line[10..20]).collect();
    assert_eq!(times, ["000002005]", "000002058]", "000016390]"]);
}

#[test]
fn recordings_of_both_versions_print_the_same() {
    let mut texts = Vec::new();
    for version in [Version::Ctf1, Version::Ctf2] {
        let dir = folder(&format!("own-{version:?}"));
        let mut info = RecordingInfo::of_this_host().context("vpid", Type::signed(32));
        info.clock_offset_ns = 1_794_710_000_123_456_789;
        info.version = version;
        let mut writer = Recording::create(&dir, info).unwrap();
        let ty = EventType::new("p", "every")
            .field("a", Type::unsigned(64))
            .field("h", Type::hex(32))
            .field("o", Type::Integer(Integer::new(16, true).base(8)))
            .field("s", Type::String)
            .field("b", Type::bool())
            .field("f", Type::float(64))
            .field("e", Type::enumeration(Integer::new(8, true), [("LOW", -9, -1), ("HIGH", 0, 9)]))
            .field("t", Type::text(4))
            .field("q", Type::sequence(Type::String))
            .field("x", Type::bytes())
            .log_level(7);
        let ty = writer.add_event_type(ty).unwrap();
        let none = writer.add_event_type(EventType::new("p", "none")).unwrap();
        let mut stream = writer.stream(3).unwrap();
        for n in 0..50u64 {
            let ns = 5_000_000_000 + n * (1 << 26);
            let context = (n as i32).to_le_bytes();
            stream
                .append_with(ty, ns, &context, |payload| {
                    payload.unsigned(64, n << 40).unsigned(32, n).signed(16, -(n as i64)).string(b"a\"b\x01");
                    payload.bool(n % 2 == 0).float64(n as f64 / 3.0).signed(8, n as i64 - 9).text(4, b"xy");
                    payload.count(2).string(b"").string(b"\xc3\xa9").bytes(&[n as u8; 3]);
                })
                .unwrap();
            stream.append(none, ns + 1, &context, &[]).unwrap();
        }
        stream.discarded(7, 9_000_000_000..9_000_000_100).unwrap();
        stream.finish().unwrap();
        assert_eq!(fs::read(dir.join("metadata")).unwrap()[0] == 0x1e, version == Version::Ctf2);
        let recording = Recording::open(&dir).unwrap();
        assert_eq!(recording.event_classes()[0].ty.log_level, Some(7));
        texts.push([lines(&dir, false), lines(&dir, true)]);
        // Made CTF 2 of afterwards, whatever it was.
        let made = folder(&format!("made-{version:?}")).join("new");
        recording.write_ctf2(&dir, &made, |_| true).unwrap().unwrap();
        texts.push([lines(&made, false), lines(&made, true)]);
        assert!(recording.write_ctf2(&dir, &made, |_| true).is_err(), "nothing is written over");
    }
    assert_eq!(texts[0][0].0.lines().count(), 100);
    assert!(!texts[0][0].1, "what was lost is told");
    assert!(
        texts[0][0].0.contains("q = [ [0] = \"\", [1] = \"\u{e9}\" ], _x_length = 3, x = [ [0] = 0x1, "),
        "{}",
        texts[0][0].0
    );
    for text in &texts[1..] {
        assert_eq!(*text, texts[0]);
    }
}

#[test]
fn hostile_traces_are_refused_or_read_in_bounded_time_and_memory() {
    let located = |ty: &str| format!("{{\"type\":\"{ty}\",\"length-field-location\":{{\"path\":[\"n\"]}}}}");
    let most = [0xff; 8];
    let element = ",\"element-field-class\":{\"type\":\"structure\"}";
    for (name, class) in [
        ("string", located("dynamic-length-string")),
        ("blob", located("dynamic-length-blob")),
        ("array", located("dynamic-length-array").replace(",\"length", &format!("{element},\"length"))),
        ("fixed-blob", "{\"type\":\"static-length-blob\",\"length\":18446744073709551615}".to_owned()),
        ("fixed-text", "{\"type\":\"static-length-string\",\"length\":18446744073709551615}".to_owned()),
        (
            "wide",
            "{\"type\":\"static-length-string\",\"length\":18446744073709551615,\"encoding\":\"utf-16le\"}"
                .to_owned(),
        ),
        (
            "fixed-array",
            format!("{{\"type\":\"static-length-array\",\"length\":18446744073709551615{element}}}"),
        ),
        ("endless", "{\"type\":\"variable-length-unsigned-integer\"}".to_owned()),
    ] {
        let dir =
            trace(&format!("hostile-{name}"), &[("n", uint(64, "")), ("f", class)], &[most, most].concat());
        let (text, is_complete) = lines(&dir, false);
        assert_eq!((text.as_str(), is_complete), ("", false), "{name}");
    }
    // What a field refers to must be there, before it, and of the right kind.
    let (members, payload, _) = base();
    for (path, reason) in [
        ("[\"later\"]", "names no number"),
        ("[\"f\"]", "names no number"),
        ("[null,\"n\"]", "out of the outermost"),
        ("[\"s\"]", "not an unsigned integer"),
        ("[\"no\"]", "not an unsigned integer"),
    ] {
        let class =
            format!("{{\"type\":\"dynamic-length-blob\",\"length-field-location\":{{\"path\":{path}}}}}");
        let members = [members.clone(), vec![("f", class), ("later", uint(8, ""))]].concat();
        let error = Recording::open(&trace("hostile-path", &members, &payload)).unwrap_err().to_string();
        assert!(error.contains(reason), "{path}: {error}");
    }
    // Aliases that double the fields with each level.
    let dir = trace("hostile-aliases", &members, &payload);
    let mut text = fs::read_to_string(dir.join("metadata")).unwrap();
    for level in 0..30 {
        let below = if level == 0 { "u8".to_owned() } else { format!("a{}", level - 1) };
        let class = structure(&[("x", format!("\"{below}\"")), ("y", format!("\"{below}\""))]);
        text += &format!(
            "\u{1e}{{\"type\":\"field-class-alias\",\"name\":\"a{level}\",\"field-class\":{class}}}\n"
        );
    }
    text += "\u{1e}{\"type\":\"event-record-class\",\"id\":2,\"data-stream-class-id\":3,\
             \"payload-field-class\":\"a29\"}\n";
    fs::write(dir.join("metadata"), text).unwrap();
    let error = Recording::open(&dir).unwrap_err().to_string();
    assert!(error.contains("more fields than can be read"), "{error}");
}

/// Bytes and metadata with some bits turned are refused or read.
#[test]
fn damaged_traces_are_refused_or_read() {
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |end: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % end as u64) as usize
    };
    let (mut members, mut payload, _) = base();
    let names: Vec<String> = (0..CLASSES.len()).map(|i| format!("f{i}")).collect();
    for ((_, class, bytes, _, _), name) in CLASSES.iter().zip(&names) {
        members.push((name, (*class).to_owned()));
        payload.extend_from_slice(bytes);
    }
    let dir = trace("damaged", &members, &payload);
    let mut n_refused = 0;
    for file in ["stream", "metadata"] {
        let good = fs::read(dir.join(file)).unwrap();
        for _ in 0..150 {
            let mut bad = good.clone();
            for _ in 0..1 + random(4) {
                let at = random(bad.len());
                bad[at] = if random(2) == 0 { random(256) as u8 } else { bad[at] ^ 1 << random(8) };
            }
            fs::write(dir.join(file), &bad).unwrap();
            match Recording::open(&dir) {
                Ok(recording) => {
                    let (mut out, stop) = (Vec::new(), AtomicBool::new(false));
                    let all = Selection::default();
                    let _ = print(&recording, &all, || TextLines::new(TextForm::default()), &mut out, &stop);
                    let _ = print(&recording, &all, || JsonLines::new(true), &mut out, &stop);
                }
                Err(_) => n_refused += 1,
            }
        }
        fs::write(dir.join(file), &good).unwrap();
    }
    assert!(n_refused > 20, "{n_refused}");
}
