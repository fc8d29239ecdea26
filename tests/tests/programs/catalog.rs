//! The built-in catalog against the notes of Debian's binaries: every probe is described, with as many arguments as
//! the program passes, and texts that carry their length say so.

use nopal_provider::catalog;
use nopal_tests::run;
use std::collections::BTreeMap;
use std::process::Command;

/// Binary, and how many probes of which provider its notes name.
const BINARIES: [(&str, &[(&str, usize)]); 12] = [
    ("/usr/lib/postgresql/15/bin/postgres", &[("postgresql", 57)]),
    (
        "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
        &[("hotspot", 42), ("hotspot_jni", 473), ("hs_private", 2)],
    ),
    ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", &[("ruby", 22)]),
    ("/usr/bin/php8.2", &[("php", 11)]),
    ("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", &[("python", 8)]),
    ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", &[("libstdcxx", 3)]),
    ("/usr/lib/x86_64-linux-gnu/libvirt.so.0", &[("libvirt", 40)]),
    ("/usr/sbin/libvirtd", &[("libvirt", 3)]),
    ("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", &[("libvirt", 8)]),
    ("/usr/bin/stap", &[("stap", 31)]),
    ("/usr/bin/staprun", &[("stap", 4), ("staprun", 2), ("stapio", 1)]),
    ("/usr/lib/systemtap/stapio", &[("staprun", 1), ("stapio", 1)]),
];

/// Probe to the largest number of arguments any of its sites has, as readelf prints them.
fn notes(binary: &str) -> BTreeMap<(String, String), usize> {
    let text = run(Command::new("readelf").arg("-n").arg(binary));
    let mut probes = BTreeMap::new();
    let (mut provider, mut name) = ("", "");
    for line in text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("Provider: ") {
            provider = value;
        } else if let Some(value) = line.strip_prefix("Name: ") {
            name = value;
        } else if let Some(value) = line.strip_prefix("Arguments:") {
            let n_args = value.split_whitespace().count();
            let most = probes.entry((provider.to_owned(), name.to_owned())).or_insert(0);
            *most = n_args.max(*most);
        }
    }
    probes
}

#[test]
fn every_probe_of_debian_binaries_is_described_with_its_arguments() {
    let mut wrong = Vec::new();
    for (binary, providers) in BINARIES {
        let notes = notes(binary);
        for (provider, n_probes) in providers {
            let found = notes.keys().filter(|(p, _)| p == provider).count();
            assert_eq!(found, *n_probes, "{binary}: probes of {provider}");
        }
        assert_eq!(notes.len(), providers.iter().map(|(_, n)| n).sum::<usize>(), "{binary}: other providers");
        for ((provider, name), n_args) in notes {
            match catalog::provider(&provider).and_then(|p| p.probe(&name)) {
                Some(probe) if probe.args.len() == n_args => {}
                Some(probe) => {
                    wrong.push(format!("{provider}:{name}: {n_args} in {binary}, {} here", probe.args.len()));
                }
                None => wrong.push(format!("{provider}:{name}: not described")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Providers that no binary the tests install has, by number of probes.
#[test]
fn providers_without_an_installed_binary_are_whole() {
    let expected = [
        ("memcached", 31),
        ("redis", 24),
        ("node", 8),
        ("glib", 48),
        ("gobject", 11),
        ("mysql", 56),
        ("sssd", 46),
        ("valkey_commands", 1),
        ("valkey_server", 7),
        ("valkey_db", 8),
        ("valkey_cluster", 8),
        ("valkey_rdb", 2),
        ("valkey_aof", 9),
    ];
    for (name, n_probes) in expected {
        let provider = catalog::provider(name).unwrap_or_else(|| panic!("{name} is not in the catalog"));
        assert_eq!(provider.probes.len(), n_probes, "{name}");
    }
}

#[test]
fn every_argument_has_a_name_and_a_description() {
    for provider in catalog::catalog().iter().flat_map(|e| &e.file().providers) {
        for probe in &provider.probes {
            let name = format!("{}:{}", provider.name, probe.name);
            assert!(!probe.doc.is_empty(), "{name} says nothing of itself");
            for (i, arg) in probe.args.iter().enumerate() {
                assert!(arg.name.is_some() && !arg.doc.is_empty(), "{name}: argument {i}");
            }
        }
    }
}

/// Texts without a NUL at their end: reading them as C strings would run into what lies behind.
#[test]
fn texts_with_a_length_say_where_it_is() {
    let is_length = |arg: &nopal_provider::Arg| {
        let name = arg.name.as_deref().unwrap_or_default();
        name.ends_with("len") || name.ends_with("Len")
    };
    for (name, expected) in [("memcached", 20), ("redis", 7), ("hotspot", 47)] {
        let mut n_texts = 0;
        for probe in &catalog::provider(name).expect("is in the catalog").probes {
            for (i, length) in probe.args.iter().enumerate().filter(|(_, a)| is_length(a)) {
                let n_owners = probe.args.iter().filter(|a| a.length == Some(i)).count();
                assert_eq!(n_owners, 1, "{name}:{}: whose length is {:?}?", probe.name, length.name);
                n_texts += 1;
            }
        }
        assert_eq!(n_texts, expected, "{name}");
    }
}

#[test]
fn partners_name_each_other() {
    // A transaction that begins may end in either of two ways.
    let one_sided = ["postgresql:transaction__abort"];
    for provider in catalog::catalog().iter().flat_map(|e| &e.file().providers) {
        for probe in &provider.probes {
            let name = format!("{}:{}", provider.name, probe.name);
            let Some(pair) = &probe.pair else { continue };
            let partner = provider.probe(&pair.partner).and_then(|p| p.pair.as_ref());
            if !one_sided.contains(&name.as_str()) {
                let partner = partner.unwrap_or_else(|| panic!("{name}: its partner has no partner"));
                assert_eq!(partner.partner, probe.name, "{name}");
                assert_ne!(partner.role, pair.role, "{name}");
            }
        }
    }
}
