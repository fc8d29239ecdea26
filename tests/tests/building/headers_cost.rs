//! What a probe costs that nobody traces, in instructions, against systemtap's header. Counted, not timed.

use nopal_tests::{root, run, scratch};
use std::path::Path;
use std::process::Command;

const N_ROUNDS: u64 = 1000;
const N_PROBES: u64 = 3;

/// Instructions executed below `work` in `tests/fixtures/c-cost/cost.c`.
fn instructions(compiler: &str, optimise: &str, flags: &[&str], folder: &Path) -> u64 {
    let program = folder.join("cost");
    // -isystem would come before systemtap's header, which is in the compiler's own folders; hence -I for ours only.
    run(Command::new(compiler)
        .args([optimise, "-Wall", "-Werror", "-static"])
        .args(flags)
        .arg(root().join("tests/fixtures/c-cost/cost.c"))
        .arg("-o")
        .arg(&program));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=work"])
        .arg(&program)
        .output()
        .expect("valgrind can be run");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let count =
        text.lines().find_map(|line| line.split_once("Collected :")).unwrap_or_else(|| panic!("{text}")).1;
    count.trim().parse().unwrap_or_else(|e| panic!("{count}: {e}"))
}

#[test]
fn untraced_probes_cost_what_systemtaps_cost_and_one_nop() {
    let folder = scratch("headers_cost");
    let include = format!("-I{}", root().join("include").display());
    for (compiler, optimise) in [("gcc", "-O1"), ("gcc", "-O2"), ("gcc", "-O3"), ("clang", "-O2")] {
        let count = |flags: &[&str]| instructions(compiler, optimise, flags, &folder);
        let plain = count(&[]);
        let guarded = count(&["-DGUARDED"]);
        // Else the comparison would be of nothing: systemtap's nops and guards are in the count.
        assert!(plain > N_ROUNDS * N_PROBES && guarded > N_ROUNDS * N_PROBES * 2);
        for named in [&[][..], &["-DNAMED"]] {
            let ours = count(&[&[include.as_str()], named].concat());
            let what = format!("{compiler} {optimise} {named:?}: {ours} for {plain}");
            assert!(ours <= plain + N_ROUNDS * N_PROBES, "{what}");
            let ours = count(&[&[include.as_str(), "-DGUARDED"], named].concat());
            assert_eq!(ours, guarded, "guarded, {compiler} {optimise} {named:?}");
        }
    }
}
