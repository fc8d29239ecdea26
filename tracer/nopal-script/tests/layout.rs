//! `format` on the scripts of this repository: what it gives is in its form already, and means the same.

mod catalog;

use catalog::TestCatalog;
use nopal_program::Action;
use nopal_script::{Options, compile, format, parse};
use std::fs;
use std::path::Path;

fn scripts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tools = fs::read_dir(root.join("tools")).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<String> = tools
        .filter(|path| path.extension().is_some_and(|extension| extension == "bt"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert!(!scripts.is_empty());
    for file in ["differential.txt", "newer.txt"] {
        let text = fs::read_to_string(root.join("tests/fixtures/scripts").join(file)).unwrap();
        for case in format!("\n{text}").split("\n== ").skip(1) {
            let (_, case) = case.split_once('\n').unwrap_or_default();
            scripts.push(case.split("-- prints").next().unwrap_or_default().to_owned());
        }
    }
    scripts
}

#[test]
fn formatting_twice_changes_nothing_and_means_the_same() {
    let (mut n_formatted, mut n_changed) = (0, 0);
    let parameters = vec!["1".to_owned(); 9];
    let meaning = |text: &str| {
        let script = parse(text, "a.bt", &parameters, &Options { is_unsafe: true, ..Options::default() });
        let mut program = script.and_then(|script| compile(&script, &TestCatalog)).ok()?;
        // Where in its text the script says something is what formatting changes.
        for action in &mut program.actions {
            if let Action::Message { place, within, .. } = action {
                *place = (0, 0);
                within.fill((0, 0));
            }
        }
        Some(program)
    };
    for script in scripts() {
        let Ok(once) = format(&script) else { continue };
        n_formatted += 1;
        n_changed += usize::from(once != script);
        assert_eq!(format(&once).unwrap(), once, "{script}");
        assert_eq!(meaning(&once), meaning(&script), "{script}\n{once}");
    }
    assert!(n_formatted > 300 && n_changed > 300, "{n_formatted} formatted, {n_changed} changed");
}
