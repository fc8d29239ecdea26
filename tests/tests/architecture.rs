//! The arrows of ARCHITECTURE.md, checked: which crate may use which, who prints, who calls bpf(2).

use nopal_tests::{root, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace by storey: each may use crates of the storeys above it in this list, and no others.
const STOREYS: [&[&str]; 11] = [
    &["nopal-abi", "nopal-provider", "nopal-program", "nopal-files", "nopal-runtime"],
    &["nopal-sdt", "nopal-script", "nopal-trace", "nopal", "nopal-c", "nopal-stapsdt"],
    &["nopal-capture", "nopal-functions", "nopal-spans", "nopal-demo", "nopal-testing"],
    &["nopal-proc"],
    &["nopal-user", "nopal-kernel", "nopal-dwarf"],
    &["nopal-live"],
    &["nopal-run", "nopal-session", "nopal-doctor"],
    &["nopal-answers"],
    &["nopal-export", "nopal-serve"],
    &["nopal-parquet", "nopal-query", "nopal-report"],
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

/// Every file and folder that ARCHITECTURE.md sends its reader to is there.
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
    let folders: Vec<String> = [
        "bench", "bindings", "core", "dist", "docs", "examples", "fleet", "fuzz", "include", "tests",
        "tools", "tracee", "tracer",
    ]
    .iter()
    .flat_map(|f| folders(&root().join(f)))
    .map(|f| format!("{}/", f.display()))
    .collect();
    let named = page.split('`').skip(1).step_by(2).filter(|word| word.ends_with('/'));
    let absent: Vec<&str> =
        named.filter(|name| !folders.iter().any(|folder| folder.ends_with(&format!("/{name}")))).collect();
    assert!(absent.is_empty(), "ARCHITECTURE.md names {absent:?}");
}

/// A folder and those below it.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let below = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let below = below.filter(|path| path.is_dir() && !path.is_symlink());
    std::iter::once(dir.to_owned()).chain(below.flat_map(|folder| folders(&folder))).collect()
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

/// Whether a line formats something as Rust's `Debug` does.
fn shows_debug_text(line: &str) -> bool {
    line.match_indices(":?}").any(|(at, _)| {
        let name = line[..at].rsplit('{').next().unwrap_or_default();
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '#')
    }) || line.contains(":#?}")
}

#[test]
fn nothing_is_told_as_debug_text() {
    assert!(
        shows_debug_text("format!(\"{error:?}\")")
            && shows_debug_text("\"{:?}\"")
            && shows_debug_text("{x:#?}")
    );
    assert!(!shows_debug_text("format!(\"{error}\")"));
    // What can only be seen when nopal itself is wrong.
    let is_for_makers =
        |line: &str| ["assert", "unreachable!", "panic!"].iter().any(|word| line.contains(word));
    for file in sources(&root().join("tracer")) {
        if file.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for (number, line) in code.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")) {
            let is_wrong = shows_debug_text(line) && !is_for_makers(line);
            assert!(!is_wrong, "{}:{}: {line}", file.display(), number + 1);
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

/// Crates without examples in their comments are not searched for them, which would take as long as compiling them.
#[test]
fn examples_in_comments_are_run() {
    for folder in ["core", "tracee", "tracer"].map(|folder| root().join(folder)) {
        for krate in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let Ok(manifest) = fs::read_to_string(krate.join("Cargo.toml")) else { continue };
            let has_example = sources(&krate.join("src")).iter().any(|file| {
                let text = fs::read_to_string(file).unwrap();
                let fences = text.lines().filter_map(|line| {
                    let line = line.trim_start();
                    line.strip_prefix("//! ```").or(line.strip_prefix("/// ```"))
                });
                // Every other one ends a block. One without a word is Rust.
                fences.step_by(2).any(|language| !["text", "toml"].contains(&language))
            });
            let is_searched = !manifest.contains("doctest = false");
            assert!(is_searched || !has_example, "{}: doctest = false", krate.display());
        }
    }
}

/// Every crate that is built in may be passed on under the licence of nopal: one that each `OR` offers and each `AND` asks for.
#[test]
fn licences_permit_passing_on() {
    const PERMITTED: [&str; 8] =
        ["MIT", "Apache-2.0", "0BSD", "CC0-1.0", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "Unicode-3.0"];
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

/// Modules that stand side by side do not use each other in a circle. What is below a module counts as part of it, and a
/// module may use what it stands in.
#[test]
fn arrows_between_modules_make_no_circle() {
    let mut circles = Vec::new();
    for manifest in ["core", "tracer"].iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap()) {
        let folder = manifest.unwrap().path();
        let modules = Modules::read(&folder.join("src"));
        for (parent, arrows) in modules.arrows_between_siblings() {
            for circle in circles_of(&arrows) {
                let name = folder.file_name().unwrap().to_string_lossy();
                circles.push(format!("{name} {parent}: {}", circle.join(" -> ")));
            }
        }
    }
    assert!(circles.is_empty(), "modules use each other in a circle:\n{}", circles.join("\n"));
}

type ModulePath = Vec<String>;
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate, and which uses which, as far as their paths say.
struct Modules(BTreeMap<ModulePath, String>);

impl Modules {
    fn read(folder: &Path) -> Modules {
        let module = |file: PathBuf| {
            let relative = file.strip_prefix(folder).unwrap().with_extension("");
            let mut path: ModulePath =
                relative.components().map(|c| c.as_os_str().to_str().unwrap().to_owned()).collect();
            if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                path.pop();
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            (path, code.lines().filter(is_code).collect::<Vec<_>>().join(" "))
        };
        Modules(sources(folder).into_iter().map(module).collect())
    }

    fn arrows_between_siblings(&self) -> BTreeMap<String, Arrows> {
        let mut levels: BTreeMap<String, Arrows> = BTreeMap::new();
        for (user, code) in self.0.iter().filter(|(path, _)| path.last().is_none_or(|name| name != "tests")) {
            for used in paths_in(code).iter().filter_map(|path| self.find(user, path)) {
                let n_shared = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (user.get(n_shared), used.get(n_shared)) {
                    let level = levels.entry(user[..n_shared].join("::")).or_default();
                    level.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        levels
    }

    /// The module that a path leads into, seen from another.
    fn find(&self, from: &ModulePath, path: &str) -> Option<ModulePath> {
        let mut words: Vec<&str> = path.split("::").map(str::trim).collect();
        let mut at = match words[0] {
            "crate" => Vec::new(),
            _ => from.clone(),
        };
        while matches!(words.first(), Some(&("crate" | "self" | "super"))) {
            if words.remove(0) == "super" {
                at.pop();
            }
        }
        let is_relative = matches!(path.split("::").next(), Some("crate" | "self" | "super"));
        let mut found = is_relative.then(|| at.clone());
        for word in words {
            at.push(word.to_owned());
            if !self.0.contains_key(&at) {
                break;
            }
            found = Some(at.clone());
        }
        found
    }
}

/// Every path in a `use`, and every other one that begins with `crate` or `super`.
fn paths_in(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (start, _) in code.match_indices("use ") {
        if !code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            unfold("", code[start + 4..].split(';').next().unwrap_or(""), &mut paths);
        }
    }
    for (start, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        if !code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let end = code[start..].find(|c| !is_path(c)).unwrap_or(code.len() - start);
            paths.push(code[start..start + end].trim_end_matches(':').to_owned());
        }
    }
    paths
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn unfold(before: &str, tree: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or("").trim();
        into.push(format!("{before}{path}"));
        return;
    };
    let (head, inner) =
        (format!("{before}{}", head.trim()), rest.rsplit_once('}').map_or(rest, |(inner, _)| inner));
    let mut depth = 0;
    let is_end = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    for part in inner.split(is_end).filter(|part| !part.trim().is_empty()) {
        unfold(&head, part, into);
    }
}

/// The modules that reach themselves again, in groups.
fn circles_of(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut reached: BTreeSet<String> = BTreeSet::new();
        let mut next: Vec<&String> = arrows.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module.clone()) {
                next.extend(arrows.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|m| (m, reach(m))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (module, reachable) in &reached {
        if !reachable.contains(*module) || circles.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let is_with_it = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*module));
        circles.push(reachable.iter().filter(is_with_it).cloned().collect());
    }
    circles
}
