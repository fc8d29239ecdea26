//! `nopal serve`, scraped by Debian's Prometheus and heard by a collector: both have what the program planned.

use crate::recorded::{check, output, refusal, spans_file};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use std::fs;
use std::process::Command;

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
fn exemplars_have_the_ids_of_opentelemetry() {
    let folder = scratch("pictures-serve-otel");
    // A name that nobody else has.
    let program = folder.join(format!("so{}", std::process::id()));
    let include = format!("-I{}", root().join("include").display());
    copy_program(&build_with("otel", &["otel.c"], Build::Pie, &[&include]), &program);
    check("serve_otel.py", &[&nopal(), &program, &folder]);
}

/// The unit is understood by systemd, the file by nopal, and what the unit leaves nopal of root's rights is enough to serve
/// the processes of another user.
#[test]
fn the_file_and_the_unit_of_the_example_are_fine() {
    let folder = scratch("pictures-serve-unit");
    let example = root().join("examples/serve");
    assert!(output(&[&"serve", &example.join("serve.toml"), &"--check"]).status.success());
    let unit = fs::read_to_string(example.join("nopal-serve.service")).unwrap();
    let copy = folder.join("nopal-serve.service");
    fs::write(&copy, unit.replace("/usr/bin/nopal", nopal().to_str().unwrap())).unwrap();
    run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy));
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("rights");
    let rights: String = rights.split(' ').map(|right| format!(",+{}", right[4..].to_lowercase())).collect();
    // A name that nobody else has, where the other user may run it.
    let program = std::env::temp_dir().join(format!("su{}", std::process::id()));
    copy_program(&build("spans", &["spans.c"], Build::Pie), &program);
    let provider = root().join("tests/fixtures/targets/spans.d");
    check(
        "serve_rights.py",
        &[&nopal(), &program, &provider, &spans_file(), &folder, &format!("-all{rights}")],
    );
    fs::remove_file(&program).unwrap();
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
