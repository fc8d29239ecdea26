//! What `nopal_sdt::read` makes of well-formed files: sites, ghosts, shifts, copies, symbols, the nopal note.

mod elf;

use elf::{BASE_ADDRESS, Elf};
use nopal_sdt::operand::{Base, Place};
use nopal_sdt::probe::{Kind, PairRole};
use nopal_sdt::{Object, ReadError, read};

fn object(elf: &Elf) -> Object {
    read(&elf.bytes()[..]).expect("the file is well formed")
}

/// `provider:name@address,address` for each probe.
fn sites(object: &Object) -> String {
    let probes = object.probes.iter().map(|probe| {
        let sites: Vec<_> = probe.sites.iter().map(|site| format!("{:#x}", site.address)).collect();
        format!("{}:{}@{}", probe.provider, probe.name, sites.join(","))
    });
    probes.collect::<Vec<_>>().join(" ")
}

#[test]
fn probes_with_their_sites() {
    let mut elf = Elf::default();
    elf.probe("b:two", 0x1020, BASE_ADDRESS, 0, "8@%rax -4@$1")
        .probe("a:one", 0x1010, BASE_ADDRESS, 0x5002, "")
        .probe("b:two", 0x1008, BASE_ADDRESS, 0, "1@%al")
        .note("GNU", 3, &[0xab; 20])
        .note("other", 3, b"anything");
    let object = object(&elf);
    assert_eq!(sites(&object), "a:one@0x1010 b:two@0x1008,0x1020");
    assert_eq!((object.n_ghosts, object.n_duplicates, object.n_sites()), (0, 0, 3));
    assert_eq!(object.build_id.as_deref(), Some(&[0xab; 20][..]));
    assert!(!object.is_fixed && object.is_64_bit && !object.is_debug_copy && object.warnings.is_empty());

    let one = &object.probes[0].sites[0];
    assert_eq!(one.file_offset, 0x410, "through the segment of the code");
    assert_eq!(one.code, (0x10..0x30).collect::<Vec<u8>>());
    let semaphore = one.semaphore.expect("it has one");
    assert_eq!(
        (semaphore.address, semaphore.file_offset),
        (0x5002, 0x502),
        "through the segment of the data"
    );
    assert_eq!(object.probes[1].sites[1].args.len(), 2);
    assert_eq!(object.probes[1].sites[1].semaphore, None);
}

#[test]
fn code_bytes_end_with_the_segment() {
    let mut elf = Elf::default();
    elf.probe("a:b", 0x10fd, BASE_ADDRESS, 0, "");
    assert_eq!(object(&elf).probes[0].sites[0].code, [0xfd, 0xfe, 0xff]);
}

#[test]
fn ghosts_are_counted_and_not_shown() {
    for (location, why) in [
        (0, "the linker's mark for discarded code"),
        (0x25, "an unreasonably low address, in the head of the file"),
        (0x5000, "data"),
        (0x1100, "beyond what the file has of the code"),
        (0x9000, "nowhere"),
        (u64::MAX, "nowhere"),
    ] {
        let mut elf = Elf::default();
        elf.probe("a:alive", 0x1010, BASE_ADDRESS, 0, "").probe("a:ghost", location, BASE_ADDRESS, 0, "");
        elf.probe("a:alive", location, BASE_ADDRESS, 0, "");
        let object = object(&elf);
        assert_eq!((sites(&object).as_str(), object.n_ghosts), ("a:alive@0x1010", 2), "{location:#x}: {why}");
    }
}

#[test]
fn duplicates_are_counted_and_shown_once() {
    let mut elf = Elf::default();
    for _ in 0..3 {
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax");
    }
    elf.probe("a:c", 0x1010, BASE_ADDRESS, 0, "");
    let object = object(&elf);
    assert_eq!((sites(&object).as_str(), object.n_duplicates), ("a:b@0x1010 a:c@0x1010", 2));
}

#[test]
fn a_prelink_shift_is_undone() {
    for (base_now, base_in_note, want) in [
        (Some(0x800), 0x800, 0x1010),
        (Some(0x810), 0x800, 0x1020),
        (Some(0x800), 0x810, 0x1000),
        // Thrown away by the linker: nothing to compare with.
        (Some(0x800), 0, 0x1010),
        (None, 0x700, 0x1010),
    ] {
        let mut elf = Elf { base: base_now, ..Elf::default() };
        elf.probe("a:b", 0x1010, base_in_note, 0x5010, "");
        let object = object(&elf);
        let site = &object.probes[0].sites[0];
        let semaphore = site.semaphore.expect("it has one").address;
        assert_eq!((site.address, semaphore), (want, want + 0x4000), "{base_now:?} {base_in_note:#x}");
    }
}

#[test]
fn a_semaphore_outside_the_file_is_none() {
    for (address, want) in [(0x5000, Some(0x500)), (0x50fe, Some(0x5fe)), (0x5100, None), (0x9000, None)] {
        let mut elf = Elf::default();
        elf.probe("a:b", 0x1010, BASE_ADDRESS, address, "");
        let semaphore = object(&elf).probes[0].sites[0].semaphore;
        assert_eq!(semaphore.map(|semaphore| semaphore.file_offset), want, "{address:#x}");
    }
}

#[test]
fn a_separate_debug_file_is_known() {
    let mut elf = Elf { is_debug_copy: true, ..Elf::default() };
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax").probe("a:c", 0, BASE_ADDRESS, 0, "");
    let object = object(&elf);
    assert!(object.is_debug_copy);
    assert_eq!((sites(&object).as_str(), object.n_ghosts), ("a:b@0x1010", 1));
    let site = &object.probes[0].sites[0];
    assert_eq!((site.file_offset, site.code.len()), (0, 0));
}

fn symbol_address(object: &Object) -> Option<u64> {
    match &object.probes[0].sites[0].args[0].operand.as_ref().expect("it is read").place {
        Place::Memory(memory) => match &memory.base {
            Base::Symbol { address, .. } => *address,
            base => panic!("{base:?}"),
        },
        place => panic!("{place:?}"),
    }
}

#[test]
fn symbols_are_found_in_both_tables() {
    let full =
        vec![("local", 0x11, true), ("twice", 0x12, true), ("twice", 0x13, true), ("both", 0x14, true)];
    let dynamic = vec![("both", 0x15, false), ("exported", 0x16, false)];
    for (name, want) in [
        ("local", Some(0x11)),
        ("twice", None),
        ("both", Some(0x15)),
        ("exported", Some(0x16)),
        ("exporte", None),
        ("exported2", None),
        ("missing", None),
    ] {
        let mut elf = Elf { symbols: full.clone(), dynamic_symbols: dynamic.clone(), ..Elf::default() };
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, &format!("-4@8+{name}(%rip)"));
        assert_eq!(symbol_address(&object(&elf)), want, "{name}");
    }
}

#[test]
fn only_a_fixed_program_knows_absolute_symbols() {
    for (kind, is_fixed) in [(2, true), (3, false)] {
        let mut elf = Elf { kind, symbols: vec![("table", 0x4000, false)], ..Elf::default() };
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@$table+8 8@table(,%rax,8) 8@%rdi");
        let object = object(&elf);
        let args = &object.probes[0].sites[0].args;
        assert_eq!(object.is_fixed, is_fixed);
        assert_eq!(
            args[0].operand.as_ref().ok().map(|o| &o.place),
            is_fixed.then_some(&Place::Constant(0x4008))
        );
        assert_eq!(args[1].operand.is_ok(), is_fixed);
        assert!(args[2].operand.is_ok(), "an operand that cannot be read costs that argument only");
    }
}

#[test]
fn other_word_sizes_and_byte_orders_are_read() {
    for (is_64_bit, is_big_endian, machine) in
        [(false, false, 3), (false, true, 20), (true, true, 22), (true, false, 243), (false, false, 40)]
    {
        let mut elf = Elf { is_64_bit, is_big_endian, machine, ..Elf::default() };
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0x5010, "4@%r1 4@0");
        let object = object(&elf);
        assert_eq!(sites(&object), "a:b@0x1010", "machine {machine}");
        assert_eq!((object.is_64_bit, object.is_big_endian, object.arch), (is_64_bit, is_big_endian, None));
        let args = &object.probes[0].sites[0].args;
        assert_eq!(args.len(), 2);
        assert!(args.iter().all(|arg| arg.operand.is_err()));
    }
}

#[test]
fn files_that_are_not_linked_programs() {
    for (bytes, want) in [
        (b"#!/bin/sh\n".to_vec(), "not an ELF file"),
        (Vec::new(), "not an ELF file"),
        (
            Elf { kind: 1, ..Elf::default() }.bytes(),
            "an object file, whose probes have no address until it is linked",
        ),
        (Elf { kind: 4, ..Elf::default() }.bytes(), "a core dump, which has no notes of probes"),
        (Elf { kind: 9, ..Elf::default() }.bytes(), "an ELF file of type 9, neither a program nor a library"),
    ] {
        assert_eq!(read(&bytes[..]).map_err(|error| error.to_string()), Err(want.to_owned()));
    }
    assert_eq!(
        read(&b"\x7fELF"[..]),
        Err(ReadError::Broken { part: "header", reason: "it ends early".to_owned() })
    );
}

#[test]
fn a_file_without_sections_has_no_probes() {
    let mut elf = Elf { has_sections: false, ..Elf::default() };
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "");
    assert_eq!(object(&elf).probes, []);
}

#[test]
fn names_that_are_no_text_are_one_probe() {
    let mut elf = Elf::default();
    for name in [b"\xff\0", b"\xfe\0"] {
        let mut description = Vec::new();
        for address in [0x1010u64, BASE_ADDRESS, 0] {
            description.extend(address.to_le_bytes());
        }
        description.extend(b"a\0");
        description.extend(name);
        description.push(0);
        elf.note("stapsdt", 3, &description);
    }
    elf.probe("a:z", 0x1010, BASE_ADDRESS, 0, "");
    let object = object(&elf);
    assert_eq!(sites(&object), "a:z@0x1010 a:\u{fffd}@0x1010");
}

#[test]
fn damaged_stapsdt_notes_cost_themselves_only() {
    let addresses: Vec<u8> = [0x1010u64, BASE_ADDRESS, 0].iter().flat_map(|a| a.to_le_bytes()).collect();
    for texts in [&b""[..], b"a", b"a\0b", b"a\0b\0", b"a\0b\0args without end", b"\0b\0\0", b"a\0\0\0"] {
        let mut elf = Elf::default();
        elf.note("stapsdt", 3, &[&addresses[..], texts].concat());
        elf.note("stapsdt", 3, &addresses[..texts.len() % 24]);
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "");
        let object = object(&elf);
        assert_eq!((sites(&object).as_str(), object.warnings.len()), ("a:b@0x1010", 2), "{texts:?}");
    }
}

fn item(tag: u16, value: &[u8]) -> Vec<u8> {
    let mut item = tag.to_le_bytes().to_vec();
    item.extend((value.len() as u16).to_le_bytes());
    item.extend(value);
    item
}

fn nopal_note(version: u16, items: &[Vec<u8>]) -> Vec<u8> {
    let mut note = version.to_le_bytes().to_vec();
    note.extend([0, 0]);
    note.extend(items.concat());
    note
}

fn named() -> Vec<Vec<u8>> {
    vec![item(1, b"a"), item(2, b"b")]
}

#[test]
fn the_nopal_note_is_read_whole() {
    let label = [&1i64.to_le_bytes()[..], &9i64.to_le_bytes(), &[3], b"few"].concat();
    let mut items = named();
    items.extend([
        item(3, b"What it reports."),
        item(4, b"\x02start"),
        item(5, &(-3i32).to_le_bytes()),
        item(6, b"http://model"),
        item(0x7777, b"of a later version"),
        item(0x10, &[1, 6]),
        item(0x11, b"key"),
        item(0x12, b"&str"),
        item(0x13, b"the key"),
        item(0x14, &[2]),
        item(0x19, b""),
        item(0x10, &[255, 9]),
        item(0x15, &label),
        item(0x16, &[2, 4, 7, 0, 0, 0]),
        item(0x17, &[2]),
        item(0x18, &[16]),
        item(0x1a, &[4]),
        item(0x1b, b""),
        item(0x1c, &[1]),
        item(0x2f, b"of a later version"),
        item(0x30, &[3, 4]),
    ]);
    let mut elf = Elf::default();
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax 8@%rbx 8@%rcx 8@%rdx").note(
        "nopal",
        1,
        &nopal_note(1, &items),
    );
    // Said again by another object file, and otherwise: the first counts.
    elf.note("nopal", 1, &nopal_note(1, &named()));
    let object = object(&elf);
    assert_eq!(object.warnings, []);
    let description = object.probes[0].description.as_ref().expect("the note describes it");
    assert_eq!(description.doc, "What it reports.");
    let pair = description.pair.as_ref().expect("it has a partner");
    assert_eq!((pair.role, pair.partner.as_str()), (PairRole::End, "start"));
    assert_eq!((description.log_level, description.model_uri.as_deref()), (Some(-3), Some("http://model")));
    assert_eq!(description.packed, Some((3, 4)));
    let [key, field] = &description.args[..] else { panic!("two arguments") };
    assert_eq!((key.operand, key.kind, key.name.as_str()), (Some(1), Kind::Str, "key"));
    assert_eq!((key.c_type.as_str(), key.doc.as_str()), ("&str", "the key"));
    assert!(key.length_operand == Some(2) && key.is_trusted);
    assert_eq!((field.operand, field.kind, field.base), (None, Kind::Enum, Some(16)));
    assert_eq!((field.labels[0].first, field.labels[0].last, field.labels[0].text.as_str()), (1, 9, "few"));
    assert_eq!(field.element.map(|e| (e.kind, e.size_bytes, e.count)), Some((Kind::Unsigned, 4, 7)));
    assert!(field.is_big_endian && field.size_bytes == Some(4));
    assert!(field.is_unwritten && field.is_signed && !key.is_unwritten && !key.is_signed);
}

#[test]
fn nopal_notes_add_up() {
    let note = |items: Vec<Vec<u8>>| nopal_note(1, &[named(), items].concat());
    let mut elf = Elf::default();
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax");
    for items in [
        vec![item(5, &4i32.to_le_bytes())],
        vec![item(0x10, &[1, 2]), item(0x11, b"first")],
        vec![item(6, b"http://model"), item(5, &7i32.to_le_bytes()), item(3, b"Doc.")],
        vec![item(0x10, &[1, 2]), item(0x11, b"second"), item(0x30, &[1, 2])],
    ] {
        elf.note("nopal", 1, &note(items));
    }
    let object = object(&elf);
    let description = object.probes[0].description.as_ref().expect("the notes describe it");
    assert_eq!((description.log_level, description.model_uri.as_deref()), (Some(4), Some("http://model")));
    assert_eq!(description.doc, "Doc.");
    assert_eq!(description.args.iter().map(|arg| arg.name.as_str()).collect::<Vec<_>>(), ["first"]);
    assert_eq!(description.packed, None, "the block belongs to the note that has the arguments");
}

#[test]
fn nopal_notes_that_are_refused() {
    let with = |extra: Vec<u8>| nopal_note(1, &[named(), vec![extra]].concat());
    for (note, want) in [
        (
            nopal_note(2, &named()),
            "a nopal note cannot be read: it has version 2 and this nopal reads up to 1; a newer nopal is needed",
        ),
        (Vec::new(), "a nopal note cannot be read: the item at byte 0 reaches past its end"),
        (vec![1, 0, 0], "a nopal note cannot be read: the item at byte 2 reaches past its end"),
        (nopal_note(1, &[]), "a nopal note cannot be read: it does not begin with provider and name"),
        (
            nopal_note(1, &[item(2, b"b"), item(1, b"a")]),
            "a nopal note cannot be read: it does not begin with provider and name",
        ),
        (
            nopal_note(1, &[item(1, b"a")]),
            "the nopal note of a cannot be read: it does not begin with provider and name",
        ),
        (
            with(vec![3, 0, 9, 0, b'x']),
            "the nopal note of a:b cannot be read: the item at byte 14 reaches past its end",
        ),
        (with(item(0x11, b"x")), "the nopal note of a:b cannot be read: the item 0x11 describes no argument"),
        (
            with(item(0x10, &[0, 1])),
            "the nopal note of a:b cannot be read: the item 0x10 at byte 14 has a value that it cannot have",
        ),
        (
            with(item(4, &[3, b'x'])),
            "the nopal note of a:b cannot be read: the item 0x04 at byte 14 has a value that it cannot have",
        ),
    ] {
        let mut elf = Elf::default();
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax").note("nopal", 1, &note);
        let object = object(&elf);
        assert_eq!(sites(&object), "a:b@0x1010", "the probe is there all the same");
        assert_eq!(object.probes[0].description, None);
        let warnings: Vec<String> = object.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, [want]);
    }
}
