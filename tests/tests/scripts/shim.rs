//! nopal called as `bpftrace`: the same command lines under both print the same results. What release 0.27 prints
//! otherwise than Debian's is written down here as it printed it.

use nopal_tests::process::wait_until;
use nopal_tests::{nopal, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A link to nopal with bpftrace's name.
pub(crate) fn link(folder: &Path) -> PathBuf {
    let link = folder.join("bpftrace");
    let _ = fs::remove_file(&link);
    symlink(nopal(), &link).unwrap();
    link
}

pub(crate) fn call(program: &Path, folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("180").arg(program).args(args).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Without the line that newer releases print elsewhere, and without blanks at the end of lines.
fn results(output: &Output) -> Vec<String> {
    let out = text(&output.stdout);
    let is_result =
        |line: &&str| !line.starts_with("Attaching ") && !line.starts_with("{\"type\": \"attached");
    out.lines().filter(is_result).map(|line| line.trim_end().to_owned()).filter(|l| !l.is_empty()).collect()
}

#[test]
fn command_lines_give_the_same_under_both() {
    let folder = scratch("shim_same");
    let ours = link(&folder);
    fs::write(folder.join("hello.bt"), "BEGIN { printf(\"hello %s %d\\n\", str($1), $2); exit(); }\n")
        .unwrap();
    for args in [
        &["-e", "BEGIN { @x = 1; @[1, 2] = count(); printf(\"hi\\n\"); exit(); }"][..],
        &["-q", "-e", "BEGIN { @x = 3; exit(); }"],
        &["-f", "json", "-e", "BEGIN { @x = 1; @y[1] = sum(4); printf(\"hi\\n\"); exit(); }"],
        &["-fjson", "-qe", "BEGIN { @h = hist(5); exit(); }"],
        &["hello.bt", "world", "7"],
        &["-B", "none", "hello.bt", "a", "8"],
        &["-B", "full", "--no-warnings", "hello.bt", "a", "8"],
        &["-e", "BEGIN { printf(\"no\\n\"); }", "-e", "BEGIN { printf(\"last\\n\"); exit(); }"],
        &["--unsafe", "-e", "BEGIN { system(\"echo from the shell\"); exit(); }"],
        &["-e", "END { printf(\"end\\n\"); } BEGIN { exit(); }"],
        &["-l", "tracepoint:syscalls:sys_enter_open*"],
        &["-l", "usdt:/no/such/file:*"],
    ] {
        let (theirs, ours) = (call(Path::new("bpftrace"), &folder, args), call(&ours, &folder, args));
        assert_eq!(results(&ours), results(&theirs), "{args:?}: {}", text(&ours.stderr));
        assert_eq!(ours.status.code(), theirs.status.code(), "{args:?}: {}", text(&ours.stderr));
    }
    for args in
        [&["-e", "BEGIN { foo; }"][..], &["/no/such/file.bt"], &["--nonsense"], &[], &["-e", "BEGIN {"]]
    {
        let (theirs, ours) = (call(Path::new("bpftrace"), &folder, args), call(&ours, &folder, args));
        assert!(ours.stdout.is_empty() && !ours.stderr.is_empty(), "{args:?}");
        // Older releases end with 255 now and then.
        assert!(!theirs.status.success(), "{args:?}");
        assert_eq!(ours.status.code(), Some(1), "{args:?}: {}", text(&ours.stderr));
    }
}

#[test]
fn points_are_listed_by_run_as_by_bpftrace() {
    let folder = scratch("shim_list");
    for search in ["tracepoint:syscalls:sys_enter_open*", "tracepoint:sched:sched_*"] {
        let theirs = call(Path::new("bpftrace"), &folder, &["-l", search]);
        let ours = call(nopal(), &folder, &["run", "-l", search]);
        let sorted = |output: &Output| -> BTreeSet<String> { results(output).into_iter().collect() };
        assert_eq!(sorted(&ours), sorted(&theirs), "{search}: {}", text(&ours.stderr));
        assert!(sorted(&ours).len() > 2, "{search}");
    }
    assert!(call(nopal(), &folder, &["run", "-k", "-kk", "-e", "BEGIN { exit(); }"]).status.success());
}

#[test]
fn streams_are_those_of_the_newest_release() {
    let folder = scratch("shim_streams");
    let ours = link(&folder);
    let output = call(&ours, &folder, &["-e", "BEGIN { @a = hist(3); @b = 1; printf(\"x\\n\"); exit(); }"]);
    let bars = "@".repeat(52);
    let expected = format!("x\n\n\n@a:\n[2, 4)                 1 |{bars}|\n\n@b: 1\n");
    assert_eq!(text(&output.stdout).replace("@a: \n", "@a:\n"), expected);
    assert_eq!(text(&output.stderr), "Attached 1 probe\n");
    // Only points at the ends of the script: there is nothing to wait for.
    let output = call(&ours, &folder, &["-e", "BEGIN { @x = 1; } END { printf(\"b\\n\"); }"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("b\n\n\n@x: 1\n", Some(0)));
    assert_eq!(text(&output.stderr), "Attached 2 probes\n");
    let output = call(&ours, &folder, &["-f", "json", "-e", "BEGIN { printf(\"hi\\n\"); exit(); }"]);
    assert_eq!(
        text(&output.stdout),
        "{\"type\": \"attached_probes\", \"count\": 1, \"data\": {\"probes\": 1}}\n{\"type\": \"printf\", \"data\": \"hi\\n\"}\n"
    );
    let output = call(&ours, &folder, &["--dry-run", "-e", "BEGIN { printf(\"hi\\n\"); } interval:s:1 { }"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", text(&output.stderr));
    let output = call(&ours, &folder, &["-e", "BEGIN { exit(3); }"]);
    assert_eq!(output.status.code(), Some(3));
    let output =
        call(&ours, &folder, &["-o", "out.txt", "-e", "BEGIN { @x = 1; printf(\"hi\\n\"); exit(); }"]);
    assert_eq!((output.stdout.len(), text(&output.stderr).as_str()), (0, "Attached 1 probe\n"));
    assert_eq!(fs::read_to_string(folder.join("out.txt")).unwrap(), "hi\n\n\n@x: 1\n");
    // The place of an error.
    let output = call(&ours, &folder, &["-e", "BEGIN { foo; }"]);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("stdin:1:9-12: ERROR: ") && said.contains("\nBEGIN { foo; }\n        ~~~"),
        "{said}"
    );
}

#[test]
fn a_signal_prints_maps_and_the_command_ends_with_the_script() {
    let folder = scratch("shim_signal");
    let ours = link(&folder);
    let (out, pid_file) = (folder.join("out"), folder.join("pid"));
    let line = format!("sh -c 'echo $$ > {}; exec sleep 600'", pid_file.display());
    let mut child = Command::new(&ours)
        .args(["-e", "BEGIN { @b = 1; @c[1] = 2; }  interval:s:600 { }", "-c", &line])
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the command runs", 60, || {
        fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let signal = |name: &str| {
        Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    };
    signal("-USR1");
    wait_until("maps are printed", 60, || fs::read_to_string(&out).unwrap() == "@b: 1\n@c[1]: 2\n");
    signal("-INT");
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert_eq!(fs::read_to_string(&out).unwrap(), "@b: 1\n@c[1]: 2\n\n\n@b: 1\n@c[1]: 2\n");
    let pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the command still runs");
}

#[test]
fn scripts_are_formatted_in_place_and_errors_left_alone() {
    let folder = scratch("formatted");
    let ours = link(&folder);
    let (good, bad) = (folder.join("good.bt"), folder.join("bad.bt"));
    let form = "BEGIN\n{\n  print(1); // one\n}\n";
    fs::write(&good, "BEGIN{print(1);// one\n}").unwrap();
    fs::write(&bad, "BEGIN{print(1;}").unwrap();
    let fmt = |args: &[&Path]| Command::new(nopal()).arg("fmt").args(args).output().unwrap();
    let output = call(&ours, &folder, &["--fmt", "good.bt"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), (form, Some(0)));
    let output = fmt(&[Path::new("--check"), &good]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), format!("{}\n", good.display())));
    assert!(fmt(&[&good]).status.success());
    assert_eq!(fs::read_to_string(&good).unwrap(), form);
    assert!(fmt(&[Path::new("--check"), &good]).status.success());
    let output = fmt(&[&bad]);
    assert!(
        !output.status.success() && text(&output.stderr).contains("bad.bt:1:"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(fs::read_to_string(&bad).unwrap(), "BEGIN{print(1;}");
}

#[test]
fn what_a_script_says_is_wrong_goes_to_standard_error() {
    let folder = scratch("shim_messages");
    let ours = link(&folder);
    let script =
        "begin { printf(\"one\\n\"); errorf(\"bad %d\", 3); warnf(\"odd %s\", \"x\"); printf(\"two\\n\"); }";
    let output = call(&ours, &folder, &["-q", "-e", script]);
    assert_eq!(text(&output.stdout).trim_end(), "one\ntwo");
    // As release 0.27 says it.
    let want = "stdin:1:26-45: ERROR: bad 3\nstdin:1:47-67: WARNING: odd x\n";
    assert_eq!(text(&output.stderr), want);
    let output = call(&ours, &folder, &["-q", "--no-warnings", "-e", script]);
    assert_eq!(text(&output.stderr), "stdin:1:26-45: ERROR: bad 3\n");
    let output = call(&ours, &folder, &["-q", "-f", "json", "-e", script]);
    let said: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error =
        serde_json::json!({ "type": "errorf", "msg": "bad 3", "filename": "stdin", "line": 1, "col": 26 });
    assert_eq!((&said[1], said[2]["type"].as_str()), (&error, Some("warnf")));
    let output =
        call(&ours, &folder, &["-q", "-e", "begin { assert(1 > 2, \"no way\"); printf(\"never\\n\"); }"]);
    assert_eq!((output.status.code(), text(&output.stdout).trim_end()), (Some(1), ""));
    assert!(text(&output.stderr).contains("assert failed: no way"), "{}", text(&output.stderr));
    let output = call(&ours, &folder, &["-q", "-e", "begin { fail(\"not with %d\", 4); }"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).starts_with("stdin:1:9-31: ERROR: not with 4\n"),
        "{}",
        text(&output.stderr)
    );
}

/// Says that it is there, waits for a line, calls getppid(2) so many times, says so, and waits again.
fn caller(n_calls: u32) -> std::process::Child {
    let script = format!(
        "import os, sys\nprint('there', flush=True)\nsys.stdin.readline()\nfor _ in range({n_calls}): os.getppid()\n\
         print('done', flush=True)\nsys.stdin.readline()"
    );
    let mut command = Command::new("python3");
    command.args(["-S", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    assert_eq!(line_of(&mut child), "there\n");
    child
}

/// What it says next; one line at a time, so that nothing is read ahead.
fn line_of(child: &mut std::process::Child) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

#[test]
fn points_of_the_kernel_are_those_of_the_named_process() {
    let folder = scratch("shim_only");
    let ours = link(&folder);
    let (mut named, mut other) = (caller(7), caller(5));
    let (out, said) = (folder.join("out"), folder.join("said"));
    let mut tracer = Command::new(&ours)
        .args(["-e", "tracepoint:syscalls:sys_enter_getppid { @[pid] = count(); }"])
        .args(["-p", &named.id().to_string()])
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    wait_until("the point is open", 60, || fs::read_to_string(&said).unwrap().contains("Attached 1 probe"));
    for child in [&mut named, &mut other] {
        writeln!(child.stdin.as_mut().unwrap()).unwrap();
        assert_eq!(line_of(child), "done\n");
    }
    Command::new("kill").args(["-INT", &tracer.id().to_string()]).status().unwrap();
    assert!(tracer.wait().unwrap().success());
    let pid = named.id();
    for mut child in [named, other] {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert_eq!(fs::read_to_string(&out).unwrap().trim(), format!("@[{pid}]: 7"));
}

#[test]
fn clauses_are_measured() {
    let folder = scratch("shim_bench");
    let ours = link(&folder);
    let script = "begin { printf(\"begin\\n\"); } bench:a { @a++; } bench:b { @b = count(); } end { printf(\"%d\\n\", @a > 0 && @b > 0); clear(@a); clear(@b); }";
    let output = call(&ours, &folder, &["-q", "--mode", "bench", "-e", script]);
    let lines = results(&output);
    let head = "Benchmark                                Time(ns)       Iterations";
    assert_eq!(lines[..3], ["begin", head, &"-".repeat(66)], "{output:?}");
    for (line, name) in lines[3..5].iter().zip(["a", "b"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            words.len() == 3 && words[0] == name && words[1..].iter().all(|n| n.parse::<u64>().is_ok()),
            "{line}"
        );
    }
    assert_eq!(lines[5], "1", "{output:?}");
    let output = call(&ours, &folder, &["-e", "bench:a { @a++; }"]);
    assert!(!output.status.success() && text(&output.stderr).contains("--mode bench"), "{output:?}");
}
