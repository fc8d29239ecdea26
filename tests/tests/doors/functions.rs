//! Functions: what the list says of them.

use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const NAMES: [&str; 11] = [
    "f_choice", "f_down", "f_get", "f_half", "f_jump", "f_length", "f_many", "f_maybe", "f_set", "f_sum",
    "f_tail",
];

fn program() -> PathBuf {
    build("functions", &["functions.c"], Build::Pie)
}

#[test]
fn the_list_tells_what_each_function_can_be_traced_by() {
    let program = program();
    let text = run(Command::new(nopal()).args(["list", "--functions", "--json"]).arg(&program).arg("f_*"));
    let list: Value = serde_json::from_str(&text).unwrap();
    let nm = run(Command::new("nm").args(["-S", "--defined-only"]).arg(&program));
    for name in NAMES {
        let row = list.as_array().unwrap().iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name}: {text}"));
        let line = nm.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let words: Vec<u64> =
            line.split(' ').take(2).map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        assert_eq!(
            (row["address"].as_u64(), row["size"].as_u64()),
            (Some(words[0]), Some(words[1])),
            "{name}"
        );
        assert_eq!(row["entry"]["door"], "user", "{row}");
        assert!(row["exits"]["user"].as_u64() > Some(0), "{row}");
    }
    let shown = run(Command::new(nopal()).args(["list", "--functions"]).arg(&program).arg("f_sum"));
    assert!(shown.contains("f_sum  user door; 1 exit"), "{shown}");
    let missing =
        Command::new(nopal()).args(["list", "--functions"]).arg(&program).arg("nowhere*").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no function matches `nowhere*`"));
}
