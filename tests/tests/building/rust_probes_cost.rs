//! What a probe of the `nopal` crate costs while nobody traces, in instructions, beside systemtap's C header.

use nopal_tests::fixture::Build;
use nopal_tests::{root, run, scratch};
use std::path::Path;
use std::process::Command;

/// Turns of each loop, and sites in a turn.
const TURNS: u64 = 1000;
const SITES: u64 = 8;

/// Instructions that the function `name` of `program` executes.
fn instructions(program: &Path, name: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={name}"))
        .arg(program)
        .arg(name)
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}");
    let line =
        text.lines().find_map(|l| l.split_once("Collected : ")).unwrap_or_else(|| panic!("{name}: {text}"));
    line.1.trim().parse().unwrap()
}

/// Instructions at one site, from a loop of eight in a row and the same loop without them.
fn per_site(program: &Path, name: &str, empty: &str) -> u64 {
    let [full, empty] = [name, empty].map(|name| instructions(program, name));
    assert!(empty >= TURNS, "the empty loop turns: {empty}");
    let added = full - empty;
    // A few instructions before and after the loop may differ, fewer than one per turn.
    assert!(added % (TURNS * SITES) < TURNS / 10, "{name}: {added} instructions in {TURNS} turns");
    added / (TURNS * SITES)
}

#[test]
fn costs_what_systemtap_costs_and_one_nop_at_most() {
    let c = scratch("rust-cost").join("cost");
    let fixture = root().join("tests/fixtures/rust-cost");
    // The system's header, not ours.
    run(Command::new("gcc").args(["-O2", "-o"]).arg(&c).arg(fixture.join("cost.c")));
    let rust = Build { fixture: "rust-cost", label: "default", profile: "release", rustflags: "" }
        .run()
        .join("cost");

    for (name, empty, theirs_name, allowed_more) in [
        ("plain_none", "empty_long", "plain_none", 1),
        ("plain_long", "empty_long", "plain_long", 1),
        ("plain_int", "empty_int", "plain_int", 1),
        ("declared_long", "empty_long", "plain_long", 1),
        ("declared_int", "empty_int", "plain_int", 1),
        ("guarded_long", "empty_long", "guarded_long", 0),
        ("guarded_int", "empty_int", "guarded_int", 0),
        ("guarded_text", "empty_long", "guarded_long", 0),
        ("lazy_long", "empty_long", "guarded_long", 0),
        ("enabled_long", "empty_long", "guarded_long", 0),
    ] {
        let ours = per_site(&rust, name, empty);
        let theirs = per_site(&c, theirs_name, empty);
        assert_eq!(ours, theirs + allowed_more, "{name}: ours {ours}, systemtap's {theirs}");
    }
}

/// Of the two instructions of a guard none jumps: the traced path is behind the loop.
#[test]
fn an_untraced_guard_takes_no_branch() {
    let rust = Build { fixture: "rust-cost", label: "default", profile: "release", rustflags: "" }
        .run()
        .join("cost");
    let text = run(Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "--disassemble=guarded_long"])
        .arg(&rust));
    let code: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (address, rest) = line.trim().split_once(":\t")?;
            Some((u64::from_str_radix(address, 16).ok()?, rest.trim()))
        })
        .collect();
    let guards: Vec<usize> = (0..code.len())
        .filter(|&i| code[i].1.starts_with("cmpw   $0x0,") && code[i].1.contains("semaphore"))
        .collect();
    assert_eq!(guards.len() as u64, SITES, "{text}");
    let last_guard = code[*guards.last().unwrap()].0;
    for (n, &i) in guards.iter().enumerate() {
        let target =
            code[i + 1].1.strip_prefix("jne").unwrap_or_else(|| panic!("no jne after a guard: {text}"));
        let target = u64::from_str_radix(target.split_whitespace().next().unwrap(), 16).unwrap();
        assert!(target > last_guard, "the traced path of guard {n} is out of line\n{text}");
        if n + 1 < guards.len() {
            assert_eq!(guards[n + 1], i + 2, "nothing between guards {n} and {}\n{text}", n + 1);
        }
    }
}
