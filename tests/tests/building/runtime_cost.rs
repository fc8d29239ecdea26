//! What a probe that is declared at run time costs while nobody traces, in instructions.

use nopal_tests::runtime::compile;
use nopal_tests::{root, run, target_dir};
use std::process::Command;

#[test]
fn a_hit_that_nobody_listens_to_is_twelve_instructions() {
    // As it is shipped: with optimisation.
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "nopal-c"])
        .current_dir(root()));
    let library = target_dir().join("release");
    let program = compile("cost", &["-lnopal"]);
    for (name, at_most) in [("nopal_probe_fire", 12), ("nopal_probe_enabled", 12)] {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--toggle-collect={name}"))
            .arg(&program)
            .arg(name)
            .env("LD_LIBRARY_PATH", &library)
            .env("LD_PRELOAD", library.join("libnopal.so"))
            .output()
            .expect("valgrind runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {text}");
        let collected = text.lines().find_map(|l| l.split_once("Collected : ")).expect("callgrind tells");
        let per_call = collected.1.trim().parse::<u64>().unwrap() / 1000;
        assert!((1..=at_most).contains(&per_call), "{name}: {per_call} instructions a call");
    }
}
