//! memcached, built with systemtap's tools and with ours, has the same probes.

use nopal_tests::{lab, run};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One note: what must be equal. Addresses differ between two builds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Note {
    provider: String,
    name: String,
    args: String,
    has_semaphore: bool,
}

fn notes(program: &Path) -> Vec<Note> {
    let text = run(Command::new("readelf").arg("-n").arg(program));
    let mut notes: Vec<Note> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, provider)) = line.split_once("Provider: ") {
            notes.push(Note {
                provider: provider.to_owned(),
                name: String::new(),
                args: String::new(),
                has_semaphore: false,
            });
        }
        let Some(note) = notes.last_mut() else { continue };
        if let Some(name) = line.strip_prefix("Name: ") {
            note.name = name.to_owned();
        } else if let Some((_, semaphore)) = line.split_once("Semaphore: ") {
            note.has_semaphore = !semaphore.trim_start_matches("0x").trim_start_matches('0').is_empty();
        } else if let Some(args) = line.strip_prefix("Arguments: ") {
            note.args = args.to_owned();
        }
    }
    notes.sort();
    notes
}

/// Sizes and signs without the places: `-4@%eax 8@(%rdi)` is `-4 8`.
fn shapes(notes: &[Note]) -> BTreeMap<(String, String), Vec<String>> {
    let mut shapes: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for note in notes {
        let shape: Vec<&str> =
            note.args.split(' ').filter_map(|a| a.split_once('@')).map(|(s, _)| s).collect();
        shapes.entry((note.provider.clone(), note.name.clone())).or_default().push(shape.join(" "));
    }
    for sites in shapes.values_mut() {
        sites.sort();
    }
    shapes
}

fn n_semaphores(program: &Path) -> usize {
    let symbols = run(Command::new("readelf").arg("-sW").arg(program));
    symbols
        .lines()
        .filter(|l| l.contains("OBJECT") && l.ends_with("_semaphore") && l.contains("HIDDEN"))
        .count()
}

fn check_memcached(program: &Path) -> Vec<Note> {
    let notes = notes(program);
    let names: std::collections::BTreeSet<&str> = notes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!((names.len(), notes.len()), (31, 46), "probes and sites of {}", program.display());
    assert!(notes.iter().all(|n| n.provider == "memcached" && n.has_semaphore));
    assert_eq!(n_semaphores(program), 31);
    notes
}

#[test]
fn memcached_has_the_probes_that_systemtap_gives_it() {
    let ours = check_memcached(&lab::memcached());
    let theirs = check_memcached(&lab::memcached_by_systemtap());
    // The places of arguments differ here and there: a site of ours is ten bytes longer, so gcc inlines otherwise.
    assert_eq!(shapes(&ours), shapes(&theirs));
}

#[test]
fn memcached_carries_descriptions_of_all_probes() {
    let program = lab::memcached();
    let text = run(Command::new("readelf").arg("-n").arg(&program));
    assert_eq!(text.lines().filter(|l| l.trim_start().starts_with("nopal ")).count(), 31);
}

#[test]
fn memcached_builds_with_musl_and_a_static_dtrace() {
    let program = lab::memcached_with_musl();
    // Another C library, other inlining: the sites are those of the source all the same.
    check_memcached(&program);
    let headers = run(Command::new("readelf").arg("-lW").arg(&program));
    assert!(!headers.contains("INTERP"), "{headers}");
    let dtrace = run(Command::new("readelf").arg("-lW").arg(lab::static_nopal()));
    assert!(!dtrace.contains("INTERP"), "{dtrace}");
    // It runs.
    let usage = run(Command::new(&program).arg("-h"));
    assert!(usage.starts_with("memcached 1."), "{usage}");
}
