//! Functions that the user door leaves alone at one edge or another: each reason is told, and no other function is refused for it.

use super::function_go::program as go_program;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn list(file: &Path) -> Vec<Value> {
    let text = run(Command::new(nopal()).args(["list", "--functions", "--json"]).arg(file));
    serde_json::from_str(&text).unwrap()
}

/// Why the user door does not open where it is entered, and why it does not where it is left; nothing where it does.
fn reasons(list: &[Value], name: &str) -> [String; 2] {
    let row = list.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    ["entry", "exits"].map(|edge| row[edge]["reason"].as_str().unwrap_or_default().to_owned())
}

#[track_caller]
fn check(list: &[Value], name: &str, expected: [&str; 2]) {
    let told = reasons(list, name);
    for (told, expected) in told.iter().zip(expected) {
        let is_right = if expected.is_empty() { told.is_empty() } else { told.contains(expected) };
        assert!(is_right, "{name}: {told:?} instead of {expected:?}");
    }
}

#[test]
fn each_function_that_is_left_alone_has_its_reason() {
    let list = list(&build("unfit", &["unfit.c"], Build::Pie));
    let no_place = "no instruction at its entry can have a jump put on it";
    let handlers = "signal handlers return through it";
    let linker = "part of the dynamic linker that keeps every register";
    for (name, entry, exits) in [
        ("u_plain", "", ""),
        // What these do depends on where they are; a call would leave an address of ours on the stack.
        ("u_loop", no_place, ""),
        ("u_jrcxz", no_place, ""),
        ("u_xbegin", no_place, ""),
        ("u_call", no_place, ""),
        ("u_undecodable", "are not an instruction", "are not an instruction"),
        ("u_shared", "", "another function begins inside it"),
        ("u_within", "", ""),
        ("u_computed", "", "may leave it or not"),
        ("u_at_once", "", "leaves it"),
        ("u_short", "", "it is left by a short conditional jump"),
        ("u_near", "", ""),
        ("u_runs_on", "", "it runs on into other code"),
        ("__restore_rt", handlers, handlers),
        ("_dl_runtime_resolve_made_up", linker, linker),
        ("swapcontext", "", "it returns twice or elsewhere"),
    ] {
        check(&list, name, [entry, exits]);
    }
}

#[test]
fn files_with_restartable_sequences_are_the_kernel_doors() {
    let list = list(&build("sequences", &["sequences.c"], Build::Pie));
    assert!(!list.is_empty());
    check(&list, "main", ["the file has restartable sequences"; 2]);
}

#[test]
fn functions_of_go_that_do_not_ask_for_room_are_not_opened_where_they_are_left() {
    let list = list(&go_program("pie"));
    for name in ["runtime.memmove", "runtime.nanotime1.abi0"] {
        check(&list, name, ["it is assembly or must not have its stack looked at"; 2]);
    }
    check(&list, "main.tGuards", ["", ""]);
}
