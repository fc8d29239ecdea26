//! Runs the `.cases` files beside the source: each has scripts, and under `---` the program or the errors that come out.
//! `NOPAL_BLESS=1` writes what comes out into them, to be read before it is committed.

mod catalog;

use catalog::TestCatalog;
use nopal_program::interpret::Interpreter;
use nopal_script::{Options, compile_with_warnings, parse};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SEPARATOR: &str = "\n===\n";

/// The program, with warnings above it, or what is wrong.
fn outcome(script: &str) -> String {
    // A first line `// $1 = ...` gives the parameters, `// unsafe` allows what needs it.
    let first = script.lines().next().unwrap_or("");
    let parameters: Vec<String> = match first.strip_prefix("// parameters: ") {
        Some(rest) => rest.split(' ').map(String::from).collect(),
        None => Vec::new(),
    };
    let options = Options { is_unsafe: first == "// unsafe", ..Options::default() };
    let render = |diagnostics: &[nopal_script::Diagnostic]| {
        diagnostics
            .iter()
            .map(|diagnostic| diagnostic.render(script, "a.bt", false) + "\n")
            .collect::<String>()
    };
    let outcome = parse(script, "a.bt", &parameters, &options)
        .and_then(|parsed| compile_with_warnings(&parsed, &TestCatalog));
    match outcome {
        Ok((program, warnings)) => {
            let text = format!("{}{program}", render(&warnings));
            if let Err(bad) = Interpreter::new(Arc::new(program), 0) {
                panic!("{script}\n{text}{bad}");
            }
            text
        }
        Err(diagnostics) => render(&diagnostics),
    }
}

fn case_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            case_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "cases") {
            found.push(path);
        }
    }
}

#[test]
fn cases() {
    let mut files = Vec::new();
    case_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    files.sort();
    assert!(files.len() >= 10, "the case files are beside the source");
    let is_blessing = std::env::var_os("NOPAL_BLESS").is_some();
    let mut n_cases = 0;
    let mut failures = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut written = Vec::new();
        for case in text.split(SEPARATOR) {
            let case = case.trim_matches('\n');
            if case.is_empty() {
                continue;
            }
            let (script, expected) = case.split_once("\n---").unwrap_or((case, ""));
            let expected = expected.trim_matches('\n');
            let found = outcome(script);
            if found.trim_end() != expected.trim_end() {
                failures +=
                    &format!("{}\n{script}\n--- expected\n{expected}\n--- found\n{found}\n", file.display());
            }
            written.push(format!("{script}\n---\n{}", found.trim_end()));
            n_cases += 1;
        }
        if is_blessing {
            std::fs::write(&file, written.join(SEPARATOR) + "\n").unwrap();
        }
    }
    assert!(is_blessing || failures.is_empty(), "{failures}");
    assert!(n_cases >= 100, "{n_cases} cases");
}
