//! What a probe of the `nopal` crate costs while nobody traces, in instructions, beside systemtap's C header.

use nopal_tests::fixture::Build;
use nopal_tests::{root, run, scratch};
use std::fs;
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

/// Most memory that the compiler has at once for a program that declares so many probes, in bytes.
fn compiling(n_probes: u32) -> u64 {
    let folder = scratch(&format!("rust-declared-{n_probes}"));
    let library = root().join("tracee/nopal");
    let manifest = format!(
        "[package]\nname = \"declared\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nnopal.path = {library:?}\n"
    );
    let probes: String = (0..n_probes)
        .map(|i| format!("/// The {i}th.\nprobe p{i}(/// A number.\na: u64, b: &str, c: i32);\n"))
        .collect();
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/lib.rs"), format!("nopal::provider! {{ pub mod many {{ {probes} }} }}"))
        .unwrap();
    let text = Command::new("/usr/bin/time")
        .args(["-f", "%M", env!("CARGO"), "check", "--quiet", "--offline"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8(text.stderr).unwrap();
    assert!(text.status.success(), "{said}");
    said.trim().parse::<u64>().unwrap_or_else(|_| panic!("{said}")) << 10
}

/// Once each took 3 MB and 30 ms: its description is handed to the assembler in hundreds of numbers.
#[test]
fn the_compiler_needs_little_for_each_declared_probe() {
    let [few, many] = [1, 401].map(compiling);
    let each = many.saturating_sub(few) / 400;
    assert!(each < 1_000_000, "{each} bytes for each probe: {few} for one, {many} for 401");
}
