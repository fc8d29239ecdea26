//! The arrows of ARCHITECTURE.md, checked: which crate may use which, who prints, who calls bpf(2).

use nopal_tests::{root, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate of the workspace and the crates of the workspace it may use.
const ARROWS: [(&str, &[&str]); 20] = [
    ("nopal", &["nopal-provider"]),
    ("nopal-demo", &["nopal"]),
    ("nopal-runtime", &[]),
    ("nopal-c", &["nopal-runtime"]),
    ("nopal-stapsdt", &["nopal-runtime"]),
    ("nopal-abi", &[]),
    ("nopal-provider", &[]),
    ("nopal-sdt", &["nopal-provider"]),
    ("nopal-program", &[]),
    ("nopal-spans", &["nopal-provider", "nopal-sdt"]),
    (
        "nopal-answers",
        &[
            "nopal-capture",
            "nopal-engine",
            "nopal-provider",
            "nopal-sdt",
            "nopal-session",
            "nopal-spans",
            "nopal-trace",
        ],
    ),
    ("nopal-capture", &["nopal-abi", "nopal-program", "nopal-sdt"]),
    ("nopal-script", &["nopal-program"]),
    ("nopal-files", &[]),
    (
        "nopal-engine",
        &["nopal-abi", "nopal-capture", "nopal-files", "nopal-program", "nopal-provider", "nopal-sdt"],
    ),
    ("nopal-trace", &["nopal-files"]),
    ("nopal-bench-stub", &["nopal-abi", "nopal-capture", "nopal-engine", "nopal-program", "nopal-sdt"]),
    (
        "nopal-session",
        &[
            "nopal-abi",
            "nopal-capture",
            "nopal-engine",
            "nopal-files",
            "nopal-program",
            "nopal-sdt",
            "nopal-trace",
            "nopal-provider",
            "nopal-script",
        ],
    ),
    (
        "nopal-cli",
        &[
            "nopal-answers",
            "nopal-capture",
            "nopal-demo",
            "nopal-engine",
            "nopal-files",
            "nopal-program",
            "nopal-provider",
            "nopal-script",
            "nopal-sdt",
            "nopal-session",
            "nopal-spans",
            "nopal-trace",
        ],
    ),
    (
        "nopal-tests",
        &[
            "nopal-abi",
            "nopal-capture",
            "nopal-engine",
            "nopal-program",
            "nopal-provider",
            "nopal-script",
            "nopal-sdt",
            "nopal-session",
            "nopal-trace",
        ],
    ),
];

#[test]
fn arrows_between_crates_point_down() {
    let text = run(Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root()));
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no row in ARROWS"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_ours = dependency["path"].is_string();
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            let used = dependency["name"].as_str().unwrap();
            assert!(!is_ours || is_for_tests || allowed.contains(&used), "{name} must not use {used}");
        }
    }
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
    assert_eq!(callers, [root().join("tracer/nopal-engine/src/kernel/bpf.rs")]);
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
