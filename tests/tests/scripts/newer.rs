//! Scripts in the language of bpftrace's newer releases, of which Debian has none: each must print what release 0.27 printed,
//! which stands beside it. Blank lines and blanks at the end of lines do not count; where a title ends with `any order`, as entries of
//! maps have none there, nor does the order of lines.

use nopal_tests::{nopal, root, scratch};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

struct Case {
    name: String,
    script: String,
    prints: Vec<String>,
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(root().join("tests/fixtures/scripts/newer.txt")).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    let mut is_output = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case { name: name.to_owned(), script: String::new(), prints: Vec::new() });
            is_output = false;
        } else if line == "-- prints" {
            is_output = true;
        } else if let Some(case) = cases.last_mut() {
            match is_output {
                true => case.prints.push(line.to_owned()),
                false => case.script += &format!("{line}\n"),
            }
        }
    }
    cases
}

#[test]
fn newer_scripts_print_what_release_0_27_printed() {
    let folder = scratch("newer");
    let link = folder.join("bpftrace");
    symlink(nopal(), &link).unwrap();
    let cases = cases();
    assert!(cases.len() >= 560, "only {} scripts", cases.len());
    let mut differences = Vec::new();
    for case in &cases {
        let mut command = Command::new("timeout");
        command.arg("180").arg(&link).args(["-q", "--no-warnings", "-e", &case.script]).stdin(Stdio::null());
        // What the scripts with `tseries` take for the time.
        command.env("BPFTRACE_DUMMY_TS_MAP", "@ts").env("TZ", "UTC");
        let output = command.output().unwrap();
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut found: Vec<&str> = found.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let mut prints: Vec<&str> = case.prints.iter().map(String::as_str).collect();
        if case.name.ends_with("any order") {
            found.sort_unstable();
            prints.sort_unstable();
        }
        if found != prints || !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            differences.push(format!(
                "== {}\n{}expected {:?}\nfound {found:?}\n{said}",
                case.name, case.script, prints
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}
