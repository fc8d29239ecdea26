//! nopal called as `bpftrace` with NOPAL_BPFTRACE_VERSION=0.17: what it prints is what Debian's bpftrace prints, line by line.

use super::shim::{link, text};
use nopal_tests::scratch;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn call(program: &Path, folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("180").arg(program).args(args).current_dir(folder).stdin(Stdio::null());
    command.env("NOPAL_BPFTRACE_VERSION", "0.17").output().unwrap()
}

/// Without blanks at the end, and without what bpftrace says of its own memory limit.
fn lines(bytes: &[u8]) -> Vec<String> {
    let is_own = |line: &&str| line.contains("RLIMIT_MEMLOCK") || *line == "WARNING: Addrspace is not set";
    text(bytes)
        .trim_end()
        .lines()
        .filter(|line| !is_own(line))
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[test]
fn results_are_those_of_release_0_17() {
    let folder = scratch("shim_old");
    let ours = link(&folder);
    for args in [
        &["-e", "BEGIN { printf(\"hi\\n\"); @x = 1; exit(); }"][..],
        &["-e", "BEGIN { @ = stats(2); @ = stats(10); exit(); }"],
        &["-e", "BEGIN { @ = count(); @a[1] = count(); clear(@); clear(@a); exit(); }"],
        &[
            "-e",
            "BEGIN { @[\"a\"] = avg(10); @[\"b\"] = avg(20); print(@, 1, 10); print(\"END\"); clear(@); exit(); }",
        ],
        &["-e", "BEGIN { @ = (int32 *)32; @++; exit(); }"],
        &["-e", "BEGIN { printf(\"%s\", probe); exit(); } END { printf(\"-%s\\n\", probe); }"],
        &["-e", "BEGIN { printf(\"%d %d\\n\", sizeof(1 == 1), 3 / 0); exit(); }"],
        &["-e", "BEGIN { @h = hist(2); @h = hist(1025); @l = lhist(5, 0, 10, 2); exit(); }"],
        &["-q", "-e", "BEGIN { @x = 3; exit(); }"],
        &["-f", "json", "-e", "BEGIN { print(1); @x[\"a\", 2] = 5; @h = hist(3); exit(); }"],
        &["-q", "-f", "json", "-e", "BEGIN { @s = stats(4); printf(\"x\\n\"); exit(); }"],
        &["-e", "struct foo { struct task_struct t; } BEGIN { exit(); }"],
        &["--version"],
    ] {
        let (theirs, ours) = (call(Path::new("bpftrace"), &folder, args), call(&ours, &folder, args));
        let mut our_lines = lines(&ours.stdout);
        if args == ["--version"] {
            our_lines[0].truncate("bpftrace v0.17.0".len());
        }
        assert_eq!(our_lines, lines(&theirs.stdout), "{args:?} {}", text(&ours.stderr));
        assert_eq!(ours.status.code(), theirs.status.code(), "{args:?}");
    }
}

#[test]
fn messages_are_those_of_release_0_17() {
    let folder = scratch("shim_old_messages");
    let ours = link(&folder);
    for args in [
        &["-p", "a1", "-e", "BEGIN { }"][..],
        &["-p", "5000000", "-e", "BEGIN { }"],
        &["-e", "BEGIN { cat(\"/no/such/file\"); exit(); }"],
    ] {
        let (theirs, ours) = (call(Path::new("bpftrace"), &folder, args), call(&ours, &folder, args));
        let of = |output: &Output| [lines(&output.stdout), lines(&output.stderr)].concat();
        let (mut theirs, mut ours) = (of(&theirs), of(&ours));
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{args:?}");
    }
    // What it says of helpers stands on standard output there.
    for (option, script) in [
        ("-k", "i:ms:10 { @[1] = 1; delete(@[2]); exit(); }"),
        ("-kk", "i:ms:10 { @[1] = 1; printf(\"%d\\n\", @[2]); exit(); }"),
        ("-k", "i:ms:10 { @[1] = 1; printf(\"%d\\n\", @[2]); exit(); }"),
    ] {
        let args = ["-q", option, "-e", script];
        let (theirs, ours) = (call(Path::new("bpftrace"), &folder, &args), call(&ours, &folder, &args));
        let is_said = |line: &&String| line.contains("WARNING: Failed to");
        let (theirs, ours) = (lines(&theirs.stdout), lines(&ours.stderr));
        let said = |lines: &[String]| lines.iter().filter(is_said).cloned().collect::<Vec<_>>();
        assert_eq!(said(&ours), said(&theirs), "{option} {script}");
    }
}

#[test]
fn a_script_that_does_nothing_waits_and_other_releases_are_refused() {
    let folder = scratch("shim_old_waits");
    let ours = link(&folder);
    let out = fs::File::create(folder.join("out")).unwrap();
    let mut command = Command::new(&ours);
    command.args(["-q", "-e", "BEGIN { printf(\"begun\\n\"); } END { printf(\"ended\\n\"); }"]);
    let mut tracer =
        command.env("NOPAL_BPFTRACE_VERSION", "0.17").stdin(Stdio::null()).stdout(out).spawn().unwrap();
    let read = || fs::read_to_string(folder.join("out")).unwrap();
    nopal_tests::process::wait_until("it has begun", 60, || read().contains("begun"));
    assert!(tracer.try_wait().unwrap().is_none(), "{}", read());
    Command::new("kill").args(["-INT", &tracer.id().to_string()]).status().unwrap();
    assert!(tracer.wait().unwrap().success());
    assert!(read().contains("ended"), "{}", read());
    let mut command = Command::new(&ours);
    let output = command.args(["-e", "BEGIN { }"]).env("NOPAL_BPFTRACE_VERSION", "0.20").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("0.17 and 0.27"), "{}", text(&output.stderr));
}
