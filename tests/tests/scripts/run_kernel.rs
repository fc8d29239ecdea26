//! The kernel door where the kernel's ways are not what one would think.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The rows of the only map of a script, by their keys. It is complete.
fn rows(script: &str, command: &[&str]) -> BTreeMap<String, u64> {
    let (rows, n_gaps, errors) = rows_and_gaps(script, command);
    assert_eq!(n_gaps, 0, "{errors}");
    rows
}

/// The same of a script that need not be, with the number of gaps and what was said of them.
fn rows_and_gaps(script: &str, command: &[&str]) -> (BTreeMap<String, u64>, u64, String) {
    let output = Command::new(nopal())
        .args(["run", "--json", "--door", "kernel", "-e", script, "--"])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let answer: serde_json::Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap();
    let n_gaps = answer["gaps"].as_u64().unwrap();
    assert_eq!(answer["complete"], n_gaps == 0, "{errors}");
    let key = |row: &serde_json::Value| match &row["key"][0] {
        serde_json::Value::String(text) => text.rsplit(':').next().unwrap_or(text).to_owned(),
        other => other.to_string(),
    };
    let rows = answer["rows"].as_array().unwrap().iter();
    (rows.map(|row| (key(row), row["value"].as_u64().unwrap())).collect(), n_gaps, errors)
}

fn far() -> PathBuf {
    build("far", &["far.c"], Build::Pie)
}

#[test]
fn the_tracer_does_not_count_itself() {
    let counted = rows("uprobe:libc:malloc { @[comm] = count(); }", &["/bin/ls", "/"]);
    assert_eq!(counted.keys().map(String::as_str).collect::<Vec<_>>(), ["ls"], "{counted:?}");
}

#[test]
fn arguments_in_pages_that_nobody_has_touched_are_read() {
    let program = far();
    let notes = run(Command::new("readelf").arg("-n").arg(&program));
    assert!(notes.contains("-4@") && notes.contains('('), "the argument is in memory: {notes}");
    let file = program.to_str().unwrap();
    let script = format!("usdt:{file}:far:passed {{ @[arg0] = count(); }}");
    let want: BTreeMap<String, u64> = (1..=16).map(|n: u64| (n.to_string(), 1)).collect();
    assert_eq!(rows(&script, &[file]), want);
    let recording = scratch("run_kernel").join("far.rec");
    let mut record = Command::new(nopal());
    record.args(["record", "--door", "kernel", "-e", "far:passed", "-o"]).arg(&recording);
    run(record.arg("--").arg(file).stdin(Stdio::null()));
    let seen = run(Command::new("babeltrace2").arg(&recording));
    let values: Vec<&str> =
        seen.lines().filter_map(|line| line.rsplit("= ").next()?.split(' ').next()).collect();
    assert_eq!(values, (1..=16).map(|n| n.to_string()).collect::<Vec<_>>(), "{seen}");
}

#[test]
fn each_name_of_a_function_is_a_point() {
    let program = far();
    let file = program.to_str().unwrap();
    let script = format!("uprobe:{file}:many_* {{ @[probe] = count(); }}");
    let named = |of: &str, n: u64| ["a", "b", "c"].map(|name| (format!("many_{of}_{name}"), n));
    let want: BTreeMap<String, u64> = named("first", 1).into_iter().chain(named("second", 2)).collect();
    assert_eq!(rows(&script, &[file]), want);
}

#[test]
fn functions_that_the_kernel_refuses_keep_no_other_away() {
    let program = far();
    let file = program.to_str().unwrap();
    let script = format!("uprobe:{file}:odd_* {{ @[probe] = count(); }}");
    let (counted, n_gaps, errors) = rows_and_gaps(&script, &[file]);
    let want: BTreeMap<String, u64> = [0, 1, 3, 4, 6, 7].map(|n| (format!("odd_{n}"), 1)).into();
    assert_eq!((counted, n_gaps), (want, 2), "{errors}");
    for name in ["odd_2", "odd_5"] {
        let is_told =
            |line: &str| line.contains(name) && line.contains("allows no uprobe on this instruction");
        assert!(errors.lines().any(is_told), "{errors}");
    }
}

fn closely() -> PathBuf {
    build("closely", &["closely.c"], Build::Pie)
}

fn nopal_with(arguments: &[&str]) -> Output {
    Command::new(nopal()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the program says of itself, which every run must leave as it is.
fn last_words(program: &Path, rounds: &str) -> String {
    run(Command::new(program).arg(rounds).stdin(Stdio::null()))
}

/// How often a probe occurs in what `trace` prints.
fn n_events(output: &Output, probe: &str) -> usize {
    printed(output).lines().filter(|line| line.contains(&format!(" {probe}: {{"))).count()
}

/// Once more if the heap lies where the only jump would land, as it does by chance.
fn with_room(line: &[&str]) -> Output {
    (0..5)
        .map(|_| nopal_with(line))
        .find(|o| !errors(o).contains("taken by the heap"))
        .expect("room for a jump")
}

#[test]
fn a_number_that_is_said_to_be_a_float_is_one() {
    let program = closely();
    let file = program.to_str().unwrap();
    let given = scratch("run_kernel_float").join("closely.d");
    fs::write(&given, "provider closely { probe bits(float value); };").unwrap();
    let given = given.to_str().unwrap();
    let want: Vec<String> = (0..20).map(|n| format!("{n}.500000")).collect();
    for door in ["kernel", "user", "auto"] {
        for (probe, arg) in [("ratio", "arg0"), ("bits", "arg0"), ("bits", "args.value")] {
            let script = format!("usdt:{file}:closely:{probe} {{ printf(\"is %f\\n\", {arg}); }}");
            let line = ["run", "--door", door, "--provider", given, "-e", &script, "--", file, "20"];
            let output = with_room(&line);
            let shown = printed(&output);
            let values: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("is ")).collect();
            assert_eq!(values, want, "{door} {probe}: {shown}{}", errors(&output));
        }
        let script = format!("usdt:{file}:closely:special {{ printf(\"is %e\\n\", arg0); }}");
        let output = with_room(&["run", "--door", door, "-e", &script, "--", file, "1"]);
        let said = |by: &str| -> Vec<String> {
            printed(&output).lines().filter_map(|line| line.strip_prefix(by)).map(str::to_owned).collect()
        };
        assert_eq!(
            (said("is "), said("special ").len()),
            (said("special "), 10),
            "{door}: {}",
            errors(&output)
        );
    }
}

#[test]
fn a_long_nop_is_opened_where_its_function_calls_somebody() {
    const ROUNDS: &str = "300";
    let whole = closely();
    let folder = scratch("run_kernel_nop");
    // Without symbols the tables for unwinding tell where functions begin and end.
    let stripped = folder.join("stripped");
    copy_program(&whole, &stripped);
    run(Command::new("strip").arg(&stripped));
    for program in [whole, stripped] {
        let file = program.to_str().unwrap();
        let want = last_words(&program, ROUNDS);
        let why = "a function that calls no other function";
        let output = nopal_with(&["trace", "--door", "kernel", "closely:*", "--", file, ROUNDS]);
        assert!(printed(&output).contains(&want), "{}", printed(&output));
        let counted = ["closely:caller", "closely:leaf"].map(|probe| n_events(&output, probe));
        assert_eq!(counted, [300, 0], "{}", errors(&output));
        assert!(errors(&output).contains(why), "{}", errors(&output));
        let script = |probe: &str| format!("usdt:{file}:closely:{probe} {{ @n = count(); }}");
        let output = nopal_with(&["run", "--door", "kernel", "-e", &script("caller"), "--", file, ROUNDS]);
        assert!(printed(&output).contains(&want), "{}", printed(&output));
        assert!(printed(&output).contains("@n: 300"), "{}{}", printed(&output), errors(&output));
        let output = nopal_with(&["run", "--door", "kernel", "-e", &script("leaf"), "--", file, ROUNDS]);
        assert!(!output.status.success() && errors(&output).contains(why), "{}", errors(&output));
    }
}

#[test]
fn code_that_is_no_longer_the_files_is_not_called_open() {
    const ROUNDS: &str = "50";
    let folder = scratch("run_kernel_copied");
    let program = folder.join("closely");
    copy_program(&closely(), &program);
    let want = last_words(&program, ROUNDS);
    let recording = folder.join("recording");
    let script = format!(
        "usdt:{0}:closely:copied {{ @copied = count(); }} usdt:{0}:closely:bits {{ @bits = count(); }}",
        program.display()
    );
    let recording = recording.to_str().unwrap();
    for arguments in [
        &["trace", "--door", "kernel", "closely:copied", "closely:bits"][..],
        &["record", "--door", "kernel", "-e", "closely:copied", "-e", "closely:bits", "-o", recording],
        &["run", "--door", "kernel", "-e", &script],
    ] {
        let mut target = Command::new(&program)
            .args([ROUNDS, "wait", "copied"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Running)
            .unwrap();
        let mut words = BufReader::new(target.0.stdout.take().unwrap());
        let mut line = String::new();
        words.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let log = folder.join("log");
        let tracer = Command::new(nopal())
            .args(arguments)
            .args(["-v", "-p", &target.pid().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        let is_looked_at =
            |line: &str| ["closely:bits at", "closely:bits in process"].iter().any(|s| line.contains(s));
        wait_until("the sites are looked at", 60, || said().lines().any(is_looked_at));
        target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        line.clear();
        words.read_to_string(&mut line).unwrap();
        assert_eq!(line, want, "the program's own result");
        assert!(target.0.wait().unwrap().success());
        let output = tracer.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said());
        let is_told = |line: &str| line.contains("closely:copied") && line.contains("no longer the file's");
        assert!(said().lines().any(is_told), "{arguments:?}: {}", said());
        assert!(!said().contains("2 kernel door"), "{arguments:?}: {}", said());
    }
}

#[test]
fn clauses_of_one_point_run_in_their_order() {
    let program = build("script", &["script.c"], Build::Pie);
    let file = program.to_str().unwrap();
    // The second runs where the first has not run before.
    let in_order = |point: &str, filter: &str| {
        format!(
            "{point} /{filter}/ {{ @ran = 1; }} {point} /{filter} && @ran == 0/ {{ @wrong = 1; }} \
             {point} /{filter} && @ran == 1/ {{ @right = 1; }}"
        )
    };
    let points = [
        (format!("usdt:{file}:script:done"), "1"),
        (format!("uprobe:{file}:main"), "1"),
        (format!("uretprobe:{file}:main"), "1"),
        ("software:page-faults:1".to_owned(), "pid == cpid"),
        ("tracepoint:sched:sched_process_exit".to_owned(), "pid == cpid"),
    ];
    for (point, filter) in &points {
        let output =
            nopal_with(&["run", "--door", "kernel", "-e", &in_order(point, filter), "--", file, "5"]);
        let shown = printed(&output);
        assert!(shown.contains("@right: 1"), "{point}: {shown}{}", errors(&output));
        assert!(!shown.contains("@wrong"), "{point}: {shown}");
    }
    // 0 + 1 + ... + 9, if what the first keeps is what the second adds.
    let script =
        format!("usdt:{file}:script:done {{ @last = arg1; }} usdt:{file}:script:done {{ @sum += @last; }}");
    for door in ["kernel", "user", "auto"] {
        let output = nopal_with(&["run", "--door", door, "-e", &script, "--", file, "10"]);
        assert!(printed(&output).contains("@sum: 45"), "{door}: {}{}", printed(&output), errors(&output));
    }
}

#[test]
fn many_clauses_with_different_bodies_have_their_own_hits_in_their_order() {
    let program = build("bodies", &["bodies.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let names: Vec<String> = (0..64).map(|n| format!("{n:02o}")).collect();
    let mut script = String::new();
    // What the first clause of a probe keeps, the last one adds; between them are those of all other probes.
    for (n, name) in names.iter().enumerate() {
        script += &format!("usdt:{file}:bodies:p{name} {{ @kept[{n}, tid] = arg0 * {n}; }} ");
        script += &format!("uretprobe:{file}:f{name} {{ @[\"r{name}\"] = sum(retval + {n}); }} ");
    }
    for (n, name) in names.iter().enumerate() {
        script += &format!("usdt:{file}:bodies:p{name} {{ @[\"k{name}\"] = sum(@kept[{n}, tid]); }} ");
        script +=
            &format!("usdt:{file}:bodies:p{name} /str(arg1) == \"odd\"/ {{ @[\"o{name}\"] = sum(1); }} ");
    }
    script += "END { clear(@kept); }";
    // 1 to 5, by three processes.
    let mut want = BTreeMap::new();
    for (n, name) in (0..).zip(&names) {
        want.insert(format!("k{name}"), 3 * 15 * n);
        want.insert(format!("r{name}"), 3 * (3 * 15 + 5 * n));
        want.insert(format!("o{name}"), 3 * 3);
    }
    assert_eq!(rows(&script, &[file, "5"]), want);
}

/// A program that loads, calls and unloads a library for each line it reads, and a library of its own.
fn plugins(folder: &Path) -> (PathBuf, PathBuf) {
    let (program, library) = (folder.join("late"), folder.join("loaded.so"));
    let source = |name: &str| root().join("tests/fixtures/targets").join(name);
    run(Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(source("late.c")));
    run(Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source("loaded.c")));
    (program, library)
}

#[test]
fn a_library_that_is_loaded_later_is_opened_and_its_lateness_stated() {
    let folder = scratch("run_kernel_late");
    let (program, library) = plugins(&folder);
    let (out, log) = (folder.join("out"), folder.join("log"));
    let recording = folder.join("recording");
    for (verb, without_children) in [("trace", false), ("record", false), ("trace", true)] {
        let mut command = Command::new(nopal());
        command.args([verb, "-v", "--door", "kernel"]).args(without_children.then_some("--only"));
        match verb {
            "trace" => command.arg("loads:call"),
            _ => command.args(["-e", "loads:call", "-o"]).arg(&recording),
        };
        let mut tracer = command
            .arg("--")
            .arg(&program)
            .arg(&library)
            .arg("lines")
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .map(Running)
            .unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        let shown = || fs::read_to_string(&out).unwrap();
        let mut line = || tracer.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        wait_until("the program is started", 60, || shown().contains("ready"));
        // Loaded and unloaded before anybody can look: its hits are missed, and that is told.
        line();
        wait_until("the library has been there", 60, || shown().matches("called 200").count() == 1);
        wait_until("the library is noticed", 60, || said().contains("loads:call at"));
        for _ in 0..3 {
            line();
        }
        wait_until("the library has been there again", 60, || shown().matches("called 200").count() == 4);
        drop(tracer.0.stdin.take());
        assert!(tracer.0.wait().unwrap().success(), "{verb}: {}", said());
        let n_events = match verb {
            "trace" => shown().lines().filter(|line| line.contains(" loads:call: {")).count(),
            _ => run(Command::new("babeltrace2").arg(&recording)).lines().count(),
        };
        // All of the last three times; of the first what came after it was noticed.
        assert!((600..800).contains(&n_events), "{verb}: {n_events} events; {}", said());
        assert!(said().contains("not complete"), "{verb}: {}", said());
    }
}

#[test]
fn libraries_that_come_and_go_unseen_leave_no_complete_answer() {
    let folder = scratch("run_kernel_unseen");
    let (program, library) = plugins(&folder);
    let output = Command::new(nopal())
        .args(["trace", "--door", "kernel", "loads:call", "--"])
        .arg(&program)
        .arg(&library)
        .stdin(fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap();
    let n = n_events(&output, "loads:call");
    let is_complete = errors(&output).contains("complete") && !errors(&output).contains("not complete");
    assert_eq!(is_complete, n == 200, "{n} of 200: {}", errors(&output));
}
