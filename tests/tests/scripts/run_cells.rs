//! Aggregates with a key that the traced program counts itself: small keys in its cells, others by the tracer, and the sum of
//! both is what the kernel door and a recording say.

use nopal_tests::{nopal, root, run, scratch};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn target(dir: &Path) -> PathBuf {
    let program = dir.join("target");
    let source = root().join("tests/fixtures/scripts/target.c");
    run(Command::new("gcc")
        .args(["-O2", "-g", "-I"])
        .arg(root().join("include"))
        .arg("-o")
        .arg(&program)
        .arg(source));
    program
}

fn lines(output: &Output) -> BTreeSet<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.ends_with("complete\n"), "{errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// How many hits the program sent, by what -v tells.
fn n_sent(output: &Output) -> u64 {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("aggregates itself, keys below"), "{errors}");
    let told = errors.lines().find_map(|line| line.strip_prefix("nopal: ")?.strip_suffix(" hits were sent"));
    told.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{errors}"))
}

#[test]
fn keys_inside_and_outside_the_cells_are_counted_alike() {
    let dir = scratch("run_cells");
    let program = target(&dir);
    let recording = dir.join("recording");
    run(Command::new(nopal())
        .args(["record", "--door", "user", "-e", "app:*", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program));
    // The hits of a probe that are outside, of 100: by the values that tests/fixtures/scripts/target.c gives them.
    for (probe, body, n_outside) in [
        ("hit", "@[arg0] = count();", 0),
        ("hit", "@[arg1] = count();", 99),
        ("small", "@[arg0] = count(); @n = count(); @sum = sum(arg1);", 0),
        ("small", "@[arg1] = hist(arg0);", 0),
        ("middle", "@[arg0] = count();", 99),
        ("middle", "@[arg1] = sum(arg0); @least = min(arg0); @most[arg0] = max(arg1);", 99),
        ("inner", "@[arg0] = quantiles(arg0);", 72),
        ("hit /arg0 >= 50 && arg0 != 60/", "@[arg0] = stats(arg1); @l = lhist(arg0, 0, 100, 10);", 0),
        ("hit /arg0 >= 50 && arg0 != 60/", "@[arg0] = lhist(arg1, 0, 1000000000000, 100000000000);", 0),
        ("hit /arg1 > 1000000007/", "@[arg1] = count(); @by[arg0] = min(arg1);", 98),
    ] {
        let (probe, predicate) = probe.split_once(' ').unwrap_or((probe, ""));
        let script = format!("usdt:{}:app:{probe} {predicate} {{ {body} }}", program.display());
        let through = |more: &[&str]| {
            let mut command = Command::new(nopal());
            command.args(["run", "-e", &script]).args(more);
            command.output().unwrap()
        };
        let file = program.to_str().unwrap();
        let by_user = through(&["--door", "user", "-v", "--", file]);
        let by_kernel = lines(&through(&["--door", "kernel", "--", file]));
        let over = lines(&through(&["--recording", recording.to_str().unwrap()]));
        assert_eq!(lines(&by_user), by_kernel, "{script}");
        assert_eq!(over, by_kernel, "{script}");
        assert!(!over.is_empty());
        assert_eq!(n_sent(&by_user), n_outside, "{script}");
    }
}
