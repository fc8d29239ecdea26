//! The prompt of `nopal query` on a real terminal: what is completed, kept, and shown.

use super::screens::Tmux;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, root, run, scratch};
use std::process::Command;

/// Waits until it reads what is typed. What comes between two lines is the terminal's, which takes the end of the input for itself.
fn at_prompt(tmux: &Tmux) {
    tmux.wait_for("an empty prompt", |screen| {
        screen.lines().rfind(|line| !line.trim().is_empty()).is_some_and(|line| line.trim() == "nopal>")
    });
}

/// To tmux a semicolon at the end of a word is its own.
fn end_statement(tmux: &Tmux, text: &str) {
    tmux.type_in(&format!("{text}\\;"));
    tmux.press("Enter");
}

#[test]
fn the_prompt_completes_names_and_keeps_what_was_typed() {
    let dir = scratch("prompt");
    let recording = dir.join("recording");
    let mut record = Command::new(nopal());
    record
        .args(["record", "-e", "plan:took", "--provider"])
        .arg(root().join("tests/fixtures/targets/spans.d"));
    record.arg("-o").arg(&recording).arg("--").arg(build("spans", &["spans.c"], Build::Pie));
    run(record.arg(dir.join("plan")));
    let state = format!("XDG_STATE_HOME={}", dir.display());
    let words = [nopal().to_str().unwrap(), "query", recording.to_str().unwrap()];
    let open = |name| Tmux::start_program(name, (120, 40), &[&state], &words);
    let first = open("prompt");
    at_prompt(&first);
    // Names of tables and columns are completed; a statement ends with its semicolon.
    first.type_in("select count(*) as n from plan_t");
    first.press("Tab");
    first.wait_for("the table's name", |screen| screen.contains("from plan_took"));
    first.press("Enter");
    end_statement(&first, "where us >= 0");
    let is_row = |screen: &str| screen.lines().any(|line| line.trim() == "100");
    first.wait_for("what the program planned", is_row);
    at_prompt(&first);
    end_statement(&first, "select nam from plan_took");
    first.wait_for("an error", |screen| screen.contains("did you mean `name`?"));
    at_prompt(&first);
    end_statement(&first, "select event from plan_took");
    first.wait_for("what other tables have is no advice", |screen| {
        screen.lines().any(|line| line.contains("no such column: event"))
            && screen.lines().any(|line| line.contains("`--tables` lists the columns"))
    });
    at_prompt(&first);
    first.type_in(".schema plan_took");
    first.press("Enter");
    first.wait_for("the columns", |screen| screen.contains("name TEXT, us INTEGER"));
    at_prompt(&first);
    first.type_in(".tables");
    first.press("Enter");
    first.wait_for("tables and views", |screen| {
        ["losses", "histograms"].iter().all(|name| screen.lines().any(|line| line.trim() == *name))
    });
    at_prompt(&first);
    first.type_in(".mode csv");
    // Else the prompt before is taken for the next.
    first.wait_for("what was typed", |screen| screen.contains("nopal> .mode csv"));
    first.press("Enter");
    at_prompt(&first);
    first.press("C-d");
    first.wait_for_end();
    drop(first);
    // What was typed the last time is there again.
    let second = open("prompt-again");
    at_prompt(&second);
    for _ in 0..6 {
        second.press("Up");
    }
    second.wait_for("the first statement", |screen| screen.contains("from plan_took"));
    second.press("Enter");
    second.wait_for("the same answer", is_row);
}
