//! The arrows of ARCHITECTURE.md, checked: which crate may use which, who prints, who calls bpf(2).

use nopal_tests::{root, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace by storey: each may use crates of the storeys above it in this list, and no others.
const STOREYS: [&[&str]; 10] = [
    &["nopal-abi", "nopal-provider", "nopal-program", "nopal-files", "nopal-runtime"],
    &["nopal-sdt", "nopal-script", "nopal-trace", "nopal", "nopal-c", "nopal-stapsdt"],
    &["nopal-capture", "nopal-spans", "nopal-proc", "nopal-demo"],
    &["nopal-user", "nopal-kernel"],
    &["nopal-live"],
    &["nopal-run", "nopal-session", "nopal-doctor"],
    &["nopal-answers"],
    &["nopal-export"],
    &["nopal-parquet"],
    &["nopal-cli", "nopal-tests", "nopal-bench-stub"],
];

/// What runs in a traced program and what traces it share no code; the demo's server runs only as a process of its own.
const FROM_TRACER_TO_TRACEE: [(&str, &str); 1] = [("nopal-cli", "nopal-demo")];

#[test]
fn arrows_between_crates_point_down() {
    let text = run(Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root()));
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let storey = |name: &str| {
        let found = STOREYS.iter().position(|storey| storey.contains(&name));
        found.unwrap_or_else(|| panic!("{name} has no place in STOREYS"))
    };
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let folder = |text: &serde_json::Value, part: &str| text.as_str().is_some_and(|t| t.contains(part));
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_ours = dependency["path"].is_string();
            if !is_ours || dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let used = dependency["name"].as_str().unwrap();
            assert!(storey(used) < storey(name), "{name} must not use {used}");
            let is_crossing =
                folder(&package["manifest_path"], "/tracer/") && folder(&dependency["path"], "/tracee/");
            assert!(
                !is_crossing || FROM_TRACER_TO_TRACEE.contains(&(name, used)),
                "{name} must not use {used}"
            );
        }
    }
}

/// Every file that ARCHITECTURE.md sends its reader to is there.
#[test]
fn the_page_names_files_that_are_there() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files: Vec<String> = ["core", "tracee", "tracer", "tests"]
        .iter()
        .flat_map(|f| sources(&root().join(f)))
        .map(|f| f.display().to_string())
        .collect();
    let named = page.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs"));
    let absent: Vec<&str> =
        named.filter(|name| !files.iter().any(|file| file.ends_with(&format!("/{name}")))).collect();
    assert!(absent.is_empty(), "ARCHITECTURE.md names {absent:?}");
}

#[test]
fn only_the_command_prints() {
    for folder in
        ["core", "tracee/nopal", "tracee/nopal-runtime", "tracee/nopal-c", "tracee/nopal-stapsdt", "tracer"]
    {
        for file in sources(&root().join(folder)) {
            if file.starts_with(root().join("tracer/nopal-cli"))
                || file.components().any(|c| c.as_os_str() == "tests")
            {
                continue;
            }
            // What runs in a build script speaks to cargo by printing.
            if file.file_name().is_some_and(|name| name == "build.rs") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or("");
            for (number, line) in code.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//"))
            {
                let prints = ["println!(", "print!("].iter().any(|word| line.contains(word));
                assert!(!prints, "{}:{}: {line}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn only_one_file_calls_bpf() {
    let callers: Vec<PathBuf> = ["core", "tracee", "tracer"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .filter(|file| fs::read_to_string(file).unwrap().contains("SYS_bpf"))
        .collect();
    assert_eq!(callers, [root().join("tracer/nopal-kernel/src/bpf.rs")]);
}

/// Every crate that is built in may be passed on under the licence of nopal: one that each `OR` offers and each `AND` asks for.
#[test]
fn licences_permit_passing_on() {
    const PERMITTED: [&str; 7] =
        ["MIT", "Apache-2.0", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "Unicode-3.0"];
    let text = run(Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root()));
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut refused = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none");
        let is_permitted = licence
            .replace(['(', ')'], "")
            .replace('/', " OR ")
            .split(" AND ")
            .all(|part| part.split(" OR ").any(|name| PERMITTED.contains(&name.trim())));
        if !is_permitted {
            refused.push(format!("{}: {licence}", package["name"]));
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
