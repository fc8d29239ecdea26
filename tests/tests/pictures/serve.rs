//! `nopal serve`, scraped by Debian's Prometheus and heard by a collector: both have what the program planned.

use crate::recorded::{check, output, refusal, spans_file};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, root, scratch};
use std::fs;

#[test]
fn prometheus_has_what_was_planned_over_restarts_and_reloads() {
    let folder = scratch("pictures-serve");
    // A name that nobody else has.
    let program = folder.join(format!("sp{}", std::process::id()));
    copy_program(&build("spans", &["spans.c"], Build::Pie), &program);
    let provider = root().join("tests/fixtures/targets/spans.d");
    check("serve.py", &[&nopal(), &program, &provider, &spans_file(), &folder]);
}

#[test]
fn a_hundred_idle_processes_cost_few_system_calls_and_none_is_missed() {
    let folder = scratch("pictures-serve-idle");
    // A name that nobody else has.
    let program = folder.join(format!("si{}", std::process::id()));
    copy_program(&build("spans", &["spans.c"], Build::Pie), &program);
    let provider = root().join("tests/fixtures/targets/spans.d");
    check("serve_idle.py", &[&nopal(), &program, &provider, &spans_file(), &folder]);
}

#[test]
fn a_file_that_is_wrong_is_refused_with_the_reason() {
    let folder = scratch("pictures-serve-refused");
    let file = folder.join("serve.toml");
    let target = "[[target]]\nprogram = \"x\"\nspans = [\"a\"]\n";
    for (text, said) in [
        ("", "it has no [[target]]"),
        ("listen = \"everywhere\"\n", "invalid socket address"),
        ("[[target]]\nprogram = \"x\"\n", "neither spans nor probes"),
        (&format!("{target}spans_file = \"/nothing\"\n"), "/nothing"),
    ] {
        fs::write(&file, text).unwrap();
        let (words, _) = refusal(&[&"serve", &file, &"--check"]);
        assert!(words.contains(said), "{words}");
    }
    fs::write(&file, target).unwrap();
    let fine = output(&[&"serve", &file, &"--check"]);
    assert!(fine.status.success() && String::from_utf8_lossy(&fine.stderr).contains("1 target understood"));
    let (words, _) = refusal(&[&"serve", &folder.join("nothing.toml")]);
    assert!(words.contains("No such file"), "{words}");
}
