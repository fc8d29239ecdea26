//! ELF files and notes: the input as a whole file, as the note section of a well-formed file, and as the description
//! of a nopal note.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_sdt::{Object, nopal_note};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(object) = nopal_sdt::read(bytes) {
        check(object);
    }
    if let Ok(object) = nopal_sdt::read(&file_with_notes(bytes)[..]) {
        check(object);
    }
    for is_big_endian in [false, true] {
        if let Ok(note) = nopal_note::decode(bytes, is_big_endian) {
            assert!(!note.provider.is_empty() && !note.name.is_empty());
            assert!(note.description.args.iter().all(|arg| arg.operand != Some(0)));
        }
    }
});

/// What every reader of an object relies on.
fn check(mut object: Object) {
    nopal_sdt::describe(&mut object.probes, &[]);
    for pair in object.probes.windows(2) {
        assert!((&pair[0].provider, &pair[0].name) < (&pair[1].provider, &pair[1].name));
    }
    for probe in &object.probes {
        assert!(!probe.sites.is_empty() && !probe.provider.is_empty() && !probe.name.is_empty());
        assert!(probe.sites.windows(2).all(|pair| pair[0].address < pair[1].address));
        for site in &probe.sites {
            assert!(site.address != 0 && site.code.len() <= 16 && site.args.len() <= 64);
            if !object.is_debug_copy {
                let has_site = |s: &nopal_sdt::Segment| {
                    s.is_executable && s.file_offset_of(site.address) == Some(site.file_offset)
                };
                assert!(object.segments.iter().any(has_site));
            }
        }
    }
}

/// A 64-bit little-endian library whose only sections are 4 KiB of code at 0x1000, and `notes`.
fn file_with_notes(notes: &[u8]) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.text\0.note.stapsdt\0.stapsdt.base\0";
    let headers_at = 64 + 56;
    let notes_at = headers_at + 5 * 64;
    let names_at = notes_at + notes.len();
    let mut file = Vec::with_capacity(names_at + NAMES.len());
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for value in [3u16, 62] {
        file.extend(value.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for value in [0u64, 64, headers_at as u64] {
        file.extend(value.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for value in [64u16, 56, 1, 64, 5, 4] {
        file.extend(value.to_le_bytes());
    }
    // The segment: all of the file, at 0, readable and executable.
    for value in [1u32, 5] {
        file.extend(value.to_le_bytes());
    }
    for value in [0u64, 0, 0, 0x10000, 0x10000, 0x1000] {
        file.extend(value.to_le_bytes());
    }
    let mut section = |name: u32, kind: u32, flags: u64, address: u64, offset: usize, size: usize| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for value in [flags, address, offset as u64, size as u64] {
            file.extend(value.to_le_bytes());
        }
        file.extend(0u64.to_le_bytes());
        for value in [4u64, 0] {
            file.extend(value.to_le_bytes());
        }
    };
    section(0, 0, 0, 0, 0, 0);
    section(1, 1, 6, 0x1000, 0, 0x1000);
    section(7, 7, 0, 0, notes_at, notes.len());
    section(21, 1, 2, 0x800, 0, 1);
    section(0, 3, 0, 0, names_at, NAMES.len());
    file.extend(notes);
    file.extend(NAMES);
    file
}
