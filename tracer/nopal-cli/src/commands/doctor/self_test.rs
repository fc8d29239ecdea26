//! Traces a small program through each door, and compares what came with what the program did.

use nopal_doctor::Finding;
use std::process::{Command, Stdio};

const N_HITS: u64 = 200;

/// The program that is traced: fires one probe with numbers from 0 on.
pub(super) fn fire(n: u64) {
    for number in 0..n {
        nopal_demo::fire_self_test(number);
    }
}

/// One finding for each door.
pub(super) fn run() -> Vec<Finding> {
    ["user", "kernel"].into_iter().map(through).collect()
}

fn through(door: &'static str) -> Finding {
    let code = if door == "user" { "self-test-user" } else { "self-test-kernel" };
    match compare(door) {
        Ok(()) => Finding::fine(
            code,
            format!("the {door} door saw all {N_HITS} hits of a test program, and their values"),
        ),
        Err(why) => Finding::problem(
            code,
            format!("the {door} door: {why}"),
            format!(
                "`nopal doctor` says what this machine allows; `--door {}` may work",
                if door == "user" { "kernel" } else { "user" }
            ),
        ),
    }
}

fn compare(door: &str) -> Result<(), String> {
    let program =
        std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let output = Command::new(&program)
        .args(["trace", "--json", "--door", door, "nopal_self_test:fired", "--"])
        .arg(&program)
        .args(["doctor", "--fire", &N_HITS.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("this program cannot be started: {error}"))?;
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if !output.status.success() && lines.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = errors.lines().find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["error"]["message"].as_str().map(str::to_owned)
        });
        return Err(said.unwrap_or_else(|| "it said nothing".to_owned()));
    }
    for (number, line) in (0..).zip(&lines) {
        let fields = &line["args"];
        if fields["number"] != number || fields["text"] != format!("hit {number}") {
            return Err(format!("hit {number} came as {fields}"));
        }
    }
    match lines.len() as u64 {
        N_HITS => Ok(()),
        n => Err(format!("of {N_HITS} hits {n} came")),
    }
}
