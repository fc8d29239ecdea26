//! The kernel door where the kernel's ways are not what one would think.

use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run, scratch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The rows of the only map of a script, by their keys. It is complete.
fn rows(script: &str, command: &[&str]) -> BTreeMap<String, u64> {
    let (rows, n_gaps, errors) = rows_and_gaps(script, command);
    assert_eq!(n_gaps, 0, "{errors}");
    rows
}

/// The same of a script that need not be, with the number of gaps and what was said of them.
fn rows_and_gaps(script: &str, command: &[&str]) -> (BTreeMap<String, u64>, u64, String) {
    let output = Command::new(nopal())
        .args(["run", "--json", "--door", "kernel", "-e", script, "--"])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let answer: serde_json::Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap();
    let n_gaps = answer["gaps"].as_u64().unwrap();
    assert_eq!(answer["complete"], n_gaps == 0, "{errors}");
    let key = |row: &serde_json::Value| match &row["key"][0] {
        serde_json::Value::String(text) => text.rsplit(':').next().unwrap_or(text).to_owned(),
        other => other.to_string(),
    };
    let rows = answer["rows"].as_array().unwrap().iter();
    (rows.map(|row| (key(row), row["value"].as_u64().unwrap())).collect(), n_gaps, errors)
}

fn far() -> PathBuf {
    build("far", &["far.c"], Build::Pie)
}

#[test]
fn the_tracer_does_not_count_itself() {
    let counted = rows("uprobe:libc:malloc { @[comm] = count(); }", &["/bin/ls", "/"]);
    assert_eq!(counted.keys().map(String::as_str).collect::<Vec<_>>(), ["ls"], "{counted:?}");
}

#[test]
fn arguments_in_pages_that_nobody_has_touched_are_read() {
    let program = far();
    let notes = run(Command::new("readelf").arg("-n").arg(&program));
    assert!(notes.contains("-4@") && notes.contains('('), "the argument is in memory: {notes}");
    let file = program.to_str().unwrap();
    let script = format!("usdt:{file}:far:passed {{ @[arg0] = count(); }}");
    let want: BTreeMap<String, u64> = (1..=16).map(|n: u64| (n.to_string(), 1)).collect();
    assert_eq!(rows(&script, &[file]), want);
    let recording = scratch("run_kernel").join("far.rec");
    let mut record = Command::new(nopal());
    record.args(["record", "--door", "kernel", "-e", "far:passed", "-o"]).arg(&recording);
    run(record.arg("--").arg(file).stdin(Stdio::null()));
    let seen = run(Command::new("babeltrace2").arg(&recording));
    let values: Vec<&str> =
        seen.lines().filter_map(|line| line.rsplit("= ").next()?.split(' ').next()).collect();
    assert_eq!(values, (1..=16).map(|n| n.to_string()).collect::<Vec<_>>(), "{seen}");
}

#[test]
fn each_name_of_a_function_is_a_point() {
    let program = far();
    let file = program.to_str().unwrap();
    let script = format!("uprobe:{file}:many_* {{ @[probe] = count(); }}");
    let named = |of: &str, n: u64| ["a", "b", "c"].map(|name| (format!("many_{of}_{name}"), n));
    let want: BTreeMap<String, u64> = named("first", 1).into_iter().chain(named("second", 2)).collect();
    assert_eq!(rows(&script, &[file]), want);
}

#[test]
fn functions_that_the_kernel_refuses_keep_no_other_away() {
    let program = far();
    let file = program.to_str().unwrap();
    let script = format!("uprobe:{file}:odd_* {{ @[probe] = count(); }}");
    let (counted, n_gaps, errors) = rows_and_gaps(&script, &[file]);
    let want: BTreeMap<String, u64> = [0, 1, 3, 4, 6, 7].map(|n| (format!("odd_{n}"), 1)).into();
    assert_eq!((counted, n_gaps), (want, 2), "{errors}");
    for name in ["odd_2", "odd_5"] {
        let is_told =
            |line: &str| line.contains(name) && line.contains("takes no uprobe on this instruction");
        assert!(errors.lines().any(is_told), "{errors}");
    }
}
