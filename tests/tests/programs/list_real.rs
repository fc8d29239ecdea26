//! `nopal list` on Debian's own binaries: what `readelf -n` prints, the known numbers, the catalog's names.

use nopal_tests::{nopal, run};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// File, probes, sites, semaphores in use.
const BINARIES: [(&str, usize, usize, usize); 12] = [
    ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", 517, 531, 0),
    ("/usr/lib/postgresql/15/bin/postgres", 57, 71, 57),
    ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", 22, 40, 22),
    ("/usr/lib/x86_64-linux-gnu/libvirt.so.0", 40, 41, 40),
    ("/usr/sbin/libvirtd", 3, 9, 3),
    ("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", 8, 8, 8),
    ("/usr/bin/php8.2", 11, 14, 11),
    ("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", 8, 8, 8),
    ("/usr/bin/python3.11", 8, 8, 8),
    ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 3, 3, 0),
    ("/usr/bin/stap", 31, 32, 0),
    ("/usr/bin/staprun", 7, 7, 0),
];

/// Provider, name, location, semaphore, operands.
type Row = (String, String, u64, u64, String);

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).expect("readelf prints hexadecimal numbers")
}

fn readelf(file: &str) -> BTreeSet<Row> {
    let text = run(Command::new("readelf").arg("-n").arg(file));
    let mut rows = BTreeSet::new();
    let (mut provider, mut name, mut location, mut semaphore) = (String::new(), String::new(), 0, 0);
    for line in text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("Provider: ") {
            provider = value.to_owned();
        } else if let Some(value) = line.strip_prefix("Name: ") {
            name = value.to_owned();
        } else if let Some(value) = line.strip_prefix("Location: ") {
            let mut parts = value.split(", ");
            location = hex(parts.next().expect("a location"));
            semaphore = hex(parts.last().expect("a semaphore").trim_start_matches("Semaphore: "));
        } else if let Some(value) = line.strip_prefix("Arguments:") {
            rows.insert((provider.clone(), name.clone(), location, semaphore, value.trim().to_owned()));
        }
    }
    rows
}

fn listed(file: &str) -> Value {
    let text = run(Command::new(nopal()).args(["list", "--json", file]));
    serde_json::from_str(&text).expect("--json prints JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is text in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list in {value}"))
}

#[test]
fn notes_are_those_of_readelf() {
    for (file, n_probes, n_sites, n_semaphores) in BINARIES {
        let probes = listed(file);
        let probes = probes.as_array().expect("a list of probes");
        let mut rows = BTreeSet::new();
        let mut semaphores = BTreeSet::new();
        for probe in probes {
            for site in list(probe, "sites") {
                assert_eq!(text(site, "file"), file);
                let operands: Vec<&str> = list(site, "args").iter().map(|arg| text(arg, "operand")).collect();
                let semaphore = site["semaphore"].as_u64().unwrap_or(0);
                semaphores.insert(semaphore);
                rows.insert((
                    text(probe, "provider").to_owned(),
                    text(probe, "name").to_owned(),
                    site["address"].as_u64().expect("an address"),
                    semaphore,
                    operands.join(" "),
                ));
                for arg in list(site, "args") {
                    assert_eq!(arg.get("error"), None, "every operand is read: {arg}");
                }
            }
        }
        semaphores.remove(&0);
        assert_eq!((probes.len(), rows.len(), semaphores.len()), (n_probes, n_sites, n_semaphores), "{file}");
        let differences: Vec<_> = rows.symmetric_difference(&readelf(file)).take(3).cloned().collect();
        assert_eq!(differences, [], "{file}");
    }
}

#[test]
fn offsets_lead_to_a_nop() {
    for (file, ..) in BINARIES {
        let bytes = std::fs::read(file).expect("the binary can be read");
        for probe in listed(file).as_array().expect("a list of probes") {
            for site in list(probe, "sites") {
                let offset = site["offset"].as_u64().expect("an offset") as usize;
                assert_eq!(bytes[offset], 0x90, "{file} {}", text(probe, "name"));
                if let Some(offset) = site["semaphore_offset"].as_u64() {
                    let offset = offset as usize;
                    assert_eq!(bytes[offset..offset + 2], [0, 0], "{file}: nobody traces a file at rest");
                }
            }
        }
    }
}

#[test]
fn the_catalog_names_every_argument() {
    for (file, ..) in BINARIES {
        for probe in listed(file).as_array().expect("a list of probes") {
            assert!(!text(probe, "doc").is_empty(), "{file} {probe}");
            for arg in list(probe, "sites").iter().flat_map(|site| list(site, "args")) {
                assert!(!text(arg, "name").is_empty() && !text(arg, "type").is_empty(), "{file} {probe}");
            }
        }
    }
}

#[test]
fn lines_people_read() {
    for (file, pattern, want) in [
        (
            "/usr/lib/postgresql/15/bin/postgres",
            "postgresql:query__s*",
            "/usr/lib/postgresql/15/bin/postgres: 1 probe, 1 site\n  \
             PROBE                    SITES  SEMAPHORE  ARGUMENTS\n  \
             postgresql:query__start      1  yes        const char *query\n",
        ),
        (
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            "libstdcxx:throw",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6: 1 probe, 1 site\n  \
             PROBE            SITES  SEMAPHORE  ARGUMENTS\n  \
             libstdcxx:throw      1  -          void *object, void *tinfo\n",
        ),
        (
            "/usr/bin/stap",
            "cache__get",
            "/usr/bin/stap: 1 probe, 1 site\n  \
             PROBE            SITES  SEMAPHORE  ARGUMENTS\n  \
             stap:cache__get      1  -          const char *source, const char *module\n",
        ),
    ] {
        assert_eq!(run(Command::new(nopal()).args(["list", file, pattern])), want);
    }
    let postgres = run(Command::new(nopal()).args(["list", "/usr/lib/postgresql/15/bin/postgres"]));
    assert!(postgres.starts_with("/usr/lib/postgresql/15/bin/postgres: 57 probes, 71 sites\n"), "{postgres}");
    assert_eq!(postgres.lines().count(), 2 + 57);
}

#[test]
fn symbols_of_a_stripped_program_are_found() {
    // checkpoint__done reads global variables, which a stripped postgres has in its dynamic symbols only.
    let program = std::fs::read("/usr/lib/postgresql/15/bin/postgres").expect("postgres can be read");
    let object = nopal_sdt::read(&program[..]).expect("postgres is ELF");
    let probe = object.probe("postgresql", "checkpoint__done").expect("it has the probe");
    let symbols =
        run(Command::new("readelf").args(["--dyn-syms", "-W", "/usr/lib/postgresql/15/bin/postgres"]));
    for (idx, name) in [(0, "CheckpointStats"), (1, "NBuffers")] {
        let line =
            symbols.lines().find(|l| l.split_whitespace().last() == Some(name)).expect("it is exported");
        let address = hex(line.split_whitespace().nth(1).expect("the value is the second column"));
        let operand = probe.sites[0].args[idx].operand.as_ref().expect("it is read");
        let nopal_sdt::operand::Place::Memory(memory) = &operand.place else { panic!("{operand:?}") };
        let want = nopal_sdt::operand::Base::Symbol { name: name.to_owned(), address: Some(address) };
        assert_eq!(memory.base, want);
    }
}
