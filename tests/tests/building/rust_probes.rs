//! Probes of the `nopal` crate in files: bytes, notes, base and semaphores for every linker and profile.

use nopal_sdt::probe::{Kind, PairRole, Probe};
use nopal_tests::fixture::Build;
use nopal_tests::{run, scratch};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// `nop`, then the 10-byte nop.
const SITE: [u8; 11] = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

const PROFILES: [&str; 5] = ["dev", "release", "single", "thin", "fat"];

/// Flags that choose a linker, and what that linker leaves in a file.
const LINKERS: [(&str, &str, &str); 5] = [
    ("default", "", "LLD"),
    ("bfd", "-Clinker-features=-lld -Clink-arg=-fuse-ld=bfd", ""),
    // gold refuses every note of a function that it drops, so it is asked to drop none.
    ("gold", "-Clinker-features=-lld -Clink-arg=-fuse-ld=gold -Clink-arg=-Wl,--no-gc-sections", "gold"),
    ("lld", "-Clinker-features=-lld -Clink-arg=-fuse-ld=lld", "Debian LLD"),
    ("mold", "-Clinker-features=-lld -Clink-arg=-fuse-ld=mold", "mold"),
];

/// Provider, name, least number of sites, has a semaphore.
const APP: [(&str, &str, usize, bool); 14] = [
    ("shop", "order__start", 2, true),
    ("shop", "order__end", 2, true),
    ("shop", "heartbeat", 1, false),
    ("shop", "re__named", 1, true),
    ("shop", "measure", 3, false),
    ("shop", "measure__lazy", 3, true),
    ("types", "signed", 1, false),
    ("types", "unsigned", 1, false),
    ("types", "text", 1, true),
    ("types", "others", 1, true),
    ("types", "twelve", 1, true),
    ("types", "none", 1, true),
    ("types", "four", 1, false),
    ("types", "seven", 1, false),
];

const PLUGIN: [(&str, &str, usize, bool); 5] = [
    ("plugin", "run", 1, false),
    ("plugin", "run__lazy", 1, true),
    ("shop", "order__start", 1, true),
    ("shop", "order__end", 1, true),
    ("shop", "heartbeat", 1, false),
];

fn check_linker(linker: usize) {
    let (label, flags, trace) = LINKERS[linker];
    for profile in PROFILES {
        let out = Build { fixture: "rust-probes", label, profile, rustflags: flags }.run();
        let what = format!("{label} {profile}");
        assert_linked_by(&out.join("app"), trace, &what);
        run(&mut Command::new(out.join("app")));
        check_file(&out.join("app"), &APP, &what);
        check_file(&out.join("libplugin.so"), &PLUGIN, &what);
        check_descriptions(&out.join("app"), &what);
        check_strip(&out.join("app"), label);
    }
}

#[test]
fn default_linker_keeps_probes_in_every_profile() {
    check_linker(0);
}

#[test]
fn bfd_keeps_probes_in_every_profile() {
    check_linker(1);
}

#[test]
fn gold_keeps_probes_in_every_profile() {
    check_linker(2);
}

#[test]
fn lld_keeps_probes_in_every_profile() {
    check_linker(3);
}

#[test]
fn mold_keeps_probes_in_every_profile() {
    check_linker(4);
}

fn assert_linked_by(file: &Path, trace: &str, what: &str) {
    let notes = run(Command::new("readelf").args(["-p", ".comment", "-n"]).arg(file));
    assert!(notes.contains(trace), "{what}: not linked by {trace}\n{notes}");
}

/// What the file must have, read by readelf and by `nopal-sdt`.
fn check_file(file: &Path, expected: &[(&str, &str, usize, bool)], what: &str) {
    let what = format!("{what} {}", file.display());
    let notes = readelf_notes(file);
    let sections = run(Command::new("readelf").args(["-SW"]).arg(file));
    let base = section_address(&sections, ".stapsdt.base");
    let probes_start = section_address(&sections, ".probes");
    assert!(sections.contains(".note.nopal"), "{what}\n{sections}");
    for note in &notes {
        assert_eq!(Some(note.base), base, "{what}: base of {note:?}\n{sections}");
    }

    let object = nopal_sdt::read(&fs::read(file).unwrap()[..]).unwrap();
    assert!(object.warnings.is_empty(), "{what}: {:?}", object.warnings);
    assert_eq!(
        object.n_sites() + object.n_ghosts + object.n_duplicates,
        notes.len(),
        "{what}: readelf and nopal-sdt see the same notes"
    );
    let mut semaphores = BTreeMap::new();
    for &(provider, name, least, has_semaphore) in expected {
        let probe = object.probe(provider, name).unwrap_or_else(|| panic!("{what}: no {provider}:{name}"));
        assert!(probe.sites.len() >= least, "{what}: {provider}:{name} has {} sites", probe.sites.len());
        for site in &probe.sites {
            assert!(site.code.starts_with(&SITE), "{what}: {provider}:{name} has {:02x?}", site.code);
            assert_eq!(site.semaphore.is_some(), has_semaphore, "{what}: {provider}:{name}");
            for arg in &site.args {
                assert!(arg.operand.is_ok(), "{what}: {provider}:{name} {arg:?}");
            }
        }
        let distinct: BTreeSet<u64> =
            probe.sites.iter().filter_map(|s| s.semaphore.map(|s| s.address)).collect();
        assert_eq!(distinct.len(), usize::from(has_semaphore), "{what}: {provider}:{name} {distinct:x?}");
        for address in distinct {
            assert!(probes_start.is_some_and(|start| address >= start), "{what}: {provider}:{name}");
            let other = semaphores.insert(address, name);
            assert_eq!(other, None, "{what}: {name} shares its semaphore");
        }
        assert!(probe.description.is_some(), "{what}: {provider}:{name} is not described");
    }
    // bfd keeps some functions that nobody calls, gold all of them: their probes may be there too.
    for probe in &object.probes {
        assert!(["shop", "types", "plugin"].contains(&probe.provider.as_str()), "{what}: {probe:?}");
        for site in &probe.sites {
            assert!(site.code.starts_with(&SITE), "{what}: {probe:?}");
        }
    }
}

/// The descriptions of two probes, whole.
fn check_descriptions(file: &Path, what: &str) {
    let object = nopal_sdt::read(&fs::read(file).unwrap()[..]).unwrap();
    let description =
        |provider: &str, name: &str| object.probe(provider, name).unwrap().description.clone().unwrap();

    let start = description("shop", "order__start");
    assert_eq!(
        start.doc, "An order \"begins\": {braces}, a \\ and more.\n\nIn a second paragraph.",
        "{what}"
    );
    let pair = start.pair.expect("order__start has a pair");
    assert_eq!((pair.role, pair.partner.as_str()), (PairRole::Start, "order__end"), "{what}");
    assert_eq!(start.log_level, Some(6), "{what}");
    assert_eq!(start.args.len(), 2, "{what}");
    let [id, customer] = &start.args[..] else { panic!("{what}: {:?}", start.args) };
    assert_eq!((id.name.as_str(), id.c_type.as_str(), id.kind), ("id", "i32", Kind::Signed), "{what}");
    assert_eq!(id.doc, "Number of the order.", "{what}");
    assert_eq!((customer.operand, customer.length_operand), (Some(2), Some(3)), "{what}");
    assert!(customer.is_trusted && customer.kind == Kind::Str, "{what}: {customer:?}");

    let end = description("shop", "order__end");
    assert_eq!(end.pair.map(|p| (p.role, p.partner)), Some((PairRole::End, "order__start".into())), "{what}");
    assert_eq!(end.args[1].kind, Kind::Enum, "{what}");
    let labels: Vec<_> = end.args[1].labels.iter().map(|l| (l.first, l.text.as_str())).collect();
    assert_eq!(labels, [(0, "shipped"), (-1, "refused")], "{what}");
    assert_eq!(end.args[2].kind, Kind::Float, "{what}");

    let kinds: Vec<_> = description("shop", "re__named").args.iter().map(|a| (a.operand, a.kind)).collect();
    let expected = [
        (Some(1), Kind::Sequence),
        (Some(3), Kind::Str),
        (Some(5), Kind::Bytes),
        (Some(7), Kind::Char),
        (Some(8), Kind::Bool),
    ];
    assert_eq!(kinds, expected, "{what}");
    let items = description("shop", "re__named").args[0].element.expect("a sequence has elements");
    assert_eq!((items.kind, items.size_bytes, items.count), (Kind::Unsigned, 4, 0), "{what}");
}

/// `strip` takes symbols, not probes.
fn check_strip(file: &Path, label: &str) {
    let stripped = scratch(&format!("rust-strip-{label}")).join("app");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(file));
    assert_eq!(readelf_notes(&stripped), readelf_notes(file), "{label}: strip");
    let probes =
        |file: &Path| -> Vec<Probe> { nopal_sdt::read(&fs::read(file).unwrap()[..]).unwrap().probes };
    assert!(probes(&stripped) == probes(file), "{label}: strip changed what nopal-sdt reads");
    run(&mut Command::new(stripped));
}

#[test]
fn sizes_and_signs_are_those_of_the_types() {
    let out = Build { fixture: "rust-probes", label: "default", profile: "release", rustflags: "" }.run();
    let object = nopal_sdt::read(&fs::read(out.join("app")).unwrap()[..]).unwrap();
    let cases: [(&str, &[i32]); 7] = [
        ("signed", &[-1, -2, -4, -8, -8]),
        ("unsigned", &[1, 2, 4, 8, 8]),
        ("text", &[8, 8, 8, 8, 8]),
        ("others", &[1, 1, 4, 4, 8, 8]),
        ("twelve", &[-4; 12]),
        ("none", &[]),
        ("seven", &[1, 8, 8, -2, 8, 8, 8, 8, 8, 8, 8, 8]),
    ];
    for (name, expected) in cases {
        let site = &object.probe("types", name).unwrap().sites[0];
        let sizes: Vec<i32> = site
            .args
            .iter()
            .map(|a| a.operand.as_ref().unwrap())
            .map(|o| i32::from(o.size_bytes) * if o.is_signed { -1 } else { 1 })
            .collect();
        assert_eq!(sizes, expected, "types:{name}");
    }
}

#[test]
fn switched_off_leaves_nothing_and_still_runs() {
    for profile in ["dev", "release"] {
        let out = Build { fixture: "rust-probes", label: "off", profile, rustflags: "--cfg nopal_off" }.run();
        run(&mut Command::new(out.join("app")));
        for file in ["app", "libplugin.so"] {
            let sections = run(Command::new("readelf").args(["-SW"]).arg(out.join(file)));
            for name in [".note.stapsdt", ".note.nopal", ".probes", ".stapsdt.base"] {
                assert!(!sections.contains(name), "{profile} {file}: {sections}");
            }
        }
    }
}

#[test]
fn a_d_file_becomes_a_module_in_a_build_script() {
    let out =
        Build { fixture: "examples/rust-build-d", label: "default", profile: "release", rustflags: "" }.run();
    let program = out.join("rust-build-d");
    run(Command::new(&program).arg("1"));
    let object = nopal_sdt::read(&fs::read(&program).unwrap()[..]).unwrap();
    let start = object.probe("shop", "order__start").unwrap();
    assert!(start.sites.iter().all(|s| s.code.starts_with(&SITE) && s.semaphore.is_some()), "{start:?}");
    let description = start.description.as_ref().unwrap();
    assert_eq!(description.doc, "An order came in.");
    assert_eq!(description.pair.as_ref().unwrap().partner, "order__done");
    let args: Vec<_> = description.args.iter().map(|a| (a.name.as_str(), a.kind, a.doc.as_str())).collect();
    assert_eq!(
        args,
        [("id", Kind::Signed, "number of the order"), ("customer", Kind::CString, "who ordered")]
    );
}

#[derive(Debug, PartialEq, Eq)]
struct Note {
    provider: String,
    name: String,
    location: u64,
    base: u64,
    semaphore: u64,
    operands: String,
}

/// The stapsdt notes as readelf reads them.
fn readelf_notes(file: &Path) -> Vec<Note> {
    let text = run(Command::new("readelf").args(["-nW"]).arg(file));
    let hex = |line: &str, key: &str| -> u64 {
        let rest = &line[line.find(key).unwrap() + key.len()..];
        u64::from_str_radix(rest.split(',').next().unwrap().trim().trim_start_matches("0x"), 16).unwrap()
    };
    let mut notes = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((_, provider)) = line.split_once("Provider: ") else { continue };
        let name = lines.next().unwrap().trim().strip_prefix("Name: ").unwrap();
        let places = lines.next().unwrap();
        let operands = lines.next().unwrap().trim().strip_prefix("Arguments:").unwrap();
        notes.push(Note {
            provider: provider.to_string(),
            name: name.to_string(),
            location: hex(places, "Location: "),
            base: hex(places, "Base: "),
            semaphore: hex(places, "Semaphore: "),
            operands: operands.trim().to_string(),
        });
    }
    notes
}

fn section_address(sections: &str, name: &str) -> Option<u64> {
    let line = sections.lines().find(|l| l.split_whitespace().any(|w| w == name))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == name)?;
    u64::from_str_radix(words.get(at + 2)?, 16).ok()
}
