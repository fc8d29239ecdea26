//! `nopal --version -v`: which build this is, for reports of faults and for packagers.

use object::Object;
use object::read::{File, ReadCache};
use serde_json::json;
use std::ffi::OsString;
use std::fs;

/// Whether the command line asks for nothing but a long version, and if as JSON.
pub(super) fn is_asked(args: &[OsString]) -> Option<bool> {
    let words: Vec<&str> = args.iter().skip(1).map(|word| word.to_str()).collect::<Option<_>>()?;
    let has = |names: [&str; 2]| words.iter().any(|word| names.contains(word));
    let is_known = |word: &&str| matches!(*word, "--version" | "-V" | "--verbose" | "-v" | "--json");
    let is_asked = has(["--version", "-V"]) && has(["--verbose", "-v"]) && words.iter().all(is_known);
    is_asked.then(|| words.contains(&"--json"))
}

pub(super) fn print(is_json: bool) {
    let version = env!("CARGO_PKG_VERSION");
    let build_id = build_id().unwrap_or_else(|| "none".to_owned());
    let features: Vec<&str> = if cfg!(feature = "screen") { vec!["screen"] } else { Vec::new() };
    let system = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    let checks = if cfg!(debug_assertions) { "debug" } else { "release" };
    if is_json {
        let object = json!({ "version": version, "build_id": build_id, "features": features,
            "system": system, "linked": linked, "build": checks });
        anstream::println!("{object}");
        return;
    }
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    anstream::println!("nopal {version}");
    for (name, value) in [
        ("build id", build_id.as_str()),
        ("features", &features),
        ("system", &system),
        ("linked", linked),
        ("build", checks),
    ] {
        anstream::println!("{name:<10}{value}");
    }
}

/// What the linker wrote into this very program.
fn build_id() -> Option<String> {
    let cache = ReadCache::new(fs::File::open("/proc/self/exe").ok()?);
    let file = File::parse(&cache).ok()?;
    let bytes = file.build_id().ok()??;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_version_is_asked_for() {
        for (line, expected) in [
            ("nopal --version -v", Some(false)),
            ("nopal -v -V", Some(false)),
            ("nopal --version --verbose --json", Some(true)),
            ("nopal --version", None),
            ("nopal -v", None),
            ("nopal trace --version -v", None),
            ("nopal", None),
        ] {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(is_asked(&args), expected, "{line}");
        }
    }
}
