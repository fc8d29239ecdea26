//! Records of all shapes, and what becomes of them.

use super::*;
use nopal_abi::record::text;
use nopal_sdt::operand::{Arch, parse, split};
use nopal_sdt::probe::{Arg, Description, Element, Kind, Label};

fn site(args: &str) -> Site {
    let args = split(args)
        .into_iter()
        .map(|text| Arg { text: text.to_owned(), operand: parse(Arch::X86_64, text) })
        .collect();
    Site {
        address: 0x1000,
        file_offset: 0x1000,
        semaphore: None,
        args,
        code: vec![0x90],
        until_restartable: None,
        edge: None,
    }
}

fn probe(description: Option<Description>, sites: &[&str]) -> Probe {
    let sites = sites.iter().map(|s| site(s)).collect();
    Probe { provider: "p".into(), name: "n".into(), sites, description }
}

fn arg(operand: u8, name: &str, kind: Kind) -> ArgDescription {
    ArgDescription { operand: Some(operand), name: name.into(), kind, ..ArgDescription::default() }
}

#[test]
fn unknown_arguments_are_numbered() {
    let plan = EventPlan::new(&probe(None, &["8@%rdi -4@%esi"]), Limits::default());
    assert_eq!(plan.field_names().collect::<Vec<_>>(), ["arg0", "arg1"]);
    let mut out = Vec::new();
    let mut payload = 7u64.to_le_bytes().to_vec();
    payload.extend((-5i32).to_le_bytes());
    plan.transcode(0, &payload, &mut out).unwrap();
    assert_eq!(out, payload);
}

#[test]
fn what_is_only_copied_comes_out_as_what_is_transcoded() {
    let number = |size: usize| vec![0x80; size];
    // Two strings and a number between them: each string's word, the number, the bytes of both.
    let texts = |first: &[u8], second: &[u8]| {
        let word = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
        [&word(first)[..], &[7; 4], &word(second), first, second].concat()
    };
    let strings = Description {
        args: vec![arg(1, "a", Kind::CString), arg(2, "n", Kind::Unsigned), arg(3, "b", Kind::CString)],
        ..Description::default()
    };
    let two = &["8@%rdi 4@%esi 8@%rdx"][..];
    let mut table = vec![
        (None, &["8@%rdi 8@%rsi"][..], 0, number(16), true),
        (None, &["8@%rdi -4@%esi 1@%dl"], 0, number(13), true),
        // The stub rounds records up to 8 bytes.
        (None, &["8@%rdi -4@%esi"], 0, number(16), true),
        (None, &["4@%edi", "8@%rdi"], 0, number(4), false),
        (None, &["4@%edi", "8@%rdi"], 1, number(8), true),
        (None, &["8@%rdi 8@nonsense"], 0, number(8), false),
        (None, &["8@nonsense 8@%rdi"], 0, number(8), false),
        (None, &["8@%rdi 8@%rsi"], 0, number(15), true),
        (None, &[""], 0, number(0), true),
        (Some(&strings), two, 0, texts(b"ends early\0not seen", b"here\0"), true),
        (Some(&strings), two, 0, texts(b"\0", b"more than a word\0and a half"), true),
        (Some(&strings), two, 0, texts(b"cut", b"")[..14].to_vec(), true),
        (Some(&strings), two, 0, (text::NULL | text::UNREADABLE).to_le_bytes().repeat(3), true),
        (Some(&strings), two, 0, u32::MAX.to_le_bytes().repeat(3), true),
    ];
    let long = b"every length up to here";
    for length in 0..long.len() {
        table.push((Some(&strings), two, 0, texts(&long[..length], &long[length..]), true));
    }
    for (description, sites, site, payload, has_steps) in table {
        let plan = EventPlan::new(&probe(description.cloned(), sites), Limits::default());
        assert_eq!(plan.sites[site].steps.is_some(), has_steps, "{sites:?} {site}");
        let (mut packed, mut transcoded) = (vec![1, 2, 3], vec![1, 2, 3]);
        let result = plan.pack(site, &payload, &mut packed);
        assert_eq!(result, plan.transcode(site, &payload, &mut transcoded), "{sites:?} {payload:?}");
        assert!(result.is_err() || packed == transcoded, "{sites:?} {payload:?}: {packed:?}");
    }
}

#[test]
fn a_string_ends_at_its_first_nul() {
    for length in 0..40 {
        for nul in 0..=length {
            let mut bytes = vec![b'x'; length];
            bytes[nul..].fill(0x80);
            bytes.get_mut(nul).into_iter().for_each(|byte| *byte = 0);
            let mut out = b"before".to_vec();
            let text = Text { bytes: &bytes, is_null: false, is_unreadable: false, is_truncated: false };
            push_text(text, &mut out);
            assert_eq!(out, [&b"before"[..], &vec![b'x'; nul], b"\0"].concat(), "{nul} of {length}");
        }
    }
}

#[test]
fn sites_of_different_width_share_one_layout() {
    // memcached's command__get: the key's length is a byte on a hit and a word on a miss.
    let plan = EventPlan::new(&probe(None, &["1@%dil", "8@%rsi", "-4@$-1"]), Limits::default());
    let widths: Vec<Vec<u8>> = [(0, vec![200]), (1, 200u64.to_le_bytes().to_vec()), (2, vec![0xff; 4])]
        .into_iter()
        .map(|(site, payload)| {
            let mut out = Vec::new();
            plan.transcode(site, &payload, &mut out).unwrap();
            out
        })
        .collect();
    assert_eq!(widths[0], 200u64.to_le_bytes());
    assert_eq!(widths[1], 200u64.to_le_bytes());
    assert_eq!(widths[2], (-1i64).to_le_bytes());
}

#[test]
fn an_unsigned_byte_beside_a_signed_one_is_not_turned_negative() {
    let plan = EventPlan::new(&probe(None, &["1@%dil", "-1@%sil"]), Limits::default());
    let mut out = Vec::new();
    plan.transcode(0, &[200], &mut out).unwrap();
    assert_eq!(out, 200i16.to_le_bytes());
}

#[test]
fn strings_follow_the_fixed_part() {
    let description = Description {
        args: vec![
            arg(1, "id", Kind::Signed),
            ArgDescription { length_operand: Some(3), ..arg(2, "key", Kind::Str) },
            arg(3, "keylen", Kind::Signed),
            arg(4, "name", Kind::CString),
        ],
        ..Description::default()
    };
    let plan = EventPlan::new(&probe(Some(description), &["-4@%edi 8@%rsi 1@%dl 8@%rcx"]), Limits::default());
    let mut payload = 9i32.to_le_bytes().to_vec();
    payload.extend(3u32.to_le_bytes());
    payload.push(3);
    payload.extend((2 | text::TRUNCATED).to_le_bytes());
    payload.extend(b"keyab");
    let mut out = Vec::new();
    let texts = plan.transcode(0, &payload, &mut out).unwrap();
    assert_eq!(texts, Texts { n_truncated: 1, n_unreadable: 0 });
    assert_eq!(out, b"\x09\0\0\0key\0\x03ab\0");
    assert_eq!(plan.value(0, &payload, 3), Value::Cut(b"ab"));
    assert_eq!(plan.value(0, &payload, 0), Value::Int(9));
    assert_eq!(plan.transcode(0, &payload[..payload.len() - 1], &mut out), Err(Malformed));
    assert_eq!(plan.transcode(0, &[], &mut out), Err(Malformed));
}

#[test]
fn an_operand_that_cannot_be_read_costs_its_field_only() {
    let plan = EventPlan::new(&probe(None, &["8@%rdi 8@nonsense"]), Limits::default());
    assert_eq!(plan.sites[0].captures.len(), 1);
    assert_eq!(plan.sites[0].unread.len(), 1);
    let mut out = Vec::new();
    plan.transcode(0, &3u64.to_le_bytes(), &mut out).unwrap();
    assert_eq!(out.len(), 16);
}

#[test]
fn the_length_of_a_rust_string_is_no_field_of_its_own() {
    let description = Description {
        args: vec![ArgDescription { length_operand: Some(2), is_trusted: true, ..arg(1, "text", Kind::Str) }],
        ..Description::default()
    };
    let plan = EventPlan::new(&probe(Some(description), &["8@%rdi 8@%rsi"]), Limits::default());
    assert_eq!(plan.field_names().collect::<Vec<_>>(), ["text"]);
}

#[test]
fn packed_fields_stand_among_the_others() {
    let packed = |kind, size_bytes| ArgDescription { operand: None, size_bytes, ..arg(1, "", kind) };
    let element = |kind, size_bytes, count| Some(Element { kind, size_bytes, count });
    let description = Description {
        args: vec![
            ArgDescription {
                name: "pair".into(),
                element: element(Kind::Signed, 2, 2),
                ..packed(Kind::Array, None)
            },
            ArgDescription { is_big_endian: true, ..arg(1, "port", Kind::Unsigned) },
            ArgDescription { is_unwritten: true, ..arg(2, "hidden", Kind::CString) },
            arg(3, "name", Kind::CString),
            ArgDescription {
                name: "text".into(),
                element: element(Kind::Char, 1, 0),
                ..packed(Kind::Sequence, None)
            },
            ArgDescription {
                name: "state".into(),
                is_signed: true,
                labels: vec![Label { first: -1, last: -1, text: "gone".into() }],
                ..packed(Kind::Enum, Some(1))
            },
        ],
        packed: Some((5, 6)),
        ..Description::default()
    };
    let probe = probe(Some(description), &["2@0(%rdi) 8@8(%rdi) 8@16(%rdi) 8@$0 8@24(%rdi) 8@32(%rdi)"]);
    let plan = EventPlan::new(&probe, Limits::default());
    assert_eq!(plan.sites[0].captures.len(), 4);
    let names: Vec<&str> = plan.event_type.fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["pair", "port", "name", "_text_length", "text", "state"]);
    let block = b"\x01\0\xff\xff\x02\0\0\0hi\xff";
    let mut payload = 8080u16.to_be_bytes().to_vec();
    for length in [3, 2, block.len() as u32] {
        payload.extend(length.to_le_bytes());
    }
    payload.extend(b"sshab");
    payload.extend(block);
    let mut out = Vec::new();
    assert_eq!(plan.transcode(0, &payload, &mut out), Ok(Texts::default()));
    assert_eq!(out, b"\x01\0\xff\xff\x1f\x90ab\0\x02\0\0\0hi\xff");
    let value = |name| plan.value(0, &payload, plan.field(name).unwrap());
    assert_eq!(value("port"), Value::Int(8080));
    assert_eq!(value("hidden"), Value::Text(b"ssh"));
    assert_eq!(value("text"), Value::Text(b"hi"));
    assert_eq!(value("state"), Value::Int(-1));
    // A block that was cut costs the fields at its end.
    let payload = [&payload[..10], &7u32.to_le_bytes(), b"sshab", &block[..7]].concat();
    out.clear();
    assert_eq!(plan.transcode(0, &payload, &mut out), Ok(Texts { n_truncated: 2, n_unreadable: 0 }));
    assert_eq!(out, b"\x01\0\xff\xff\x1f\x90ab\0\0\0\0\0\0");
}

#[test]
fn elements_of_a_size_that_no_number_has_are_absent() {
    for size_bytes in [0, 3, 9, 255] {
        let element = Some(Element { kind: Kind::Unsigned, size_bytes, count: 2 });
        let description = Description {
            args: vec![ArgDescription { element, length_operand: Some(2), ..arg(1, "list", Kind::Sequence) }],
            ..Description::default()
        };
        let plan = EventPlan::new(&probe(Some(description), &["8@%rdi 8@%rsi"]), Limits::default());
        let payload = [&24u32.to_le_bytes()[..], &[7; 24]].concat();
        assert_eq!(plan.element(0, &payload, 0, 0), Value::Absent, "{size_bytes}");
    }
}
