//! `ustack` where only the unwind tables know the callers: in programs without frame pointers, through each door and over a
//! recording, as gdb sees them.

use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FLAGS: [&str; 6] =
    ["-O2", "-g", "-fomit-frame-pointer", "-fno-inline", "-fno-optimize-sibling-calls", "-fno-ipa-icf"];

/// A C++ program whose plan is seven exceptions, all thrown by the same callers.
fn throws(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("throws.cc"), dir.join("throws"));
    let text = r#"
__attribute__((noinline)) int inner(int n) { char room[200]; asm volatile("" :: "r"(room) : "memory"); if (n > 0) throw n; return n + room[0]; }
__attribute__((noinline)) int middle(int n) { char room[100]; asm volatile("" :: "r"(room) : "memory"); return inner(n + 1) + room[1]; }
__attribute__((noinline)) int outer(int n) { return middle(n * 2) + 3; }
int main() { int sum = 0; for (int n = 0; n < 7; n++) try { sum += outer(n); } catch (int thrown) { sum += thrown; } return sum == 49 ? 0 : 1; }
"#;
    fs::write(&source, text).unwrap();
    run(Command::new("g++").args(FLAGS).arg("-o").arg(&program).arg(&source));
    program
}

/// The functions on the stack where a program stops at gdb's `stop`, innermost first, without their parameters.
fn by_gdb(program: &Path, stop: &str) -> Vec<String> {
    let commands = ["set backtrace past-main on", stop, "run", "bt"];
    let commands = commands.iter().flat_map(|command| ["-ex", *command]);
    let text = run(Command::new("gdb").args(["-q", "-batch", "-nx"]).args(commands).arg(program));
    let frame = |line: &str| {
        let rest = line.strip_prefix('#')?.split_once(' ')?.1.trim_start();
        let rest =
            rest.split_once(" in ").filter(|(head, _)| head.starts_with("0x")).map_or(rest, |(_, r)| r);
        Some(plain(rest))
    };
    let frames: Vec<String> = text.lines().filter_map(frame).collect();
    assert!(frames.len() > 4, "{text}");
    frames
}

/// `inner(int) [clone .cold]+5` and `inner (n=1) at ...` to `inner`.
fn plain(frame: &str) -> String {
    let end = frame.find(['(', '+', ' ', '[']).unwrap_or(frame.len());
    frame[..end].split('@').next().unwrap_or_default().to_owned()
}

fn nopal_run(arguments: &[&str]) -> Output {
    Command::new(nopal()).arg("run").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn answer(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", errors(output)));
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {text}{}", errors(output)))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The stacks of a map with their counts, as functions.
fn stacks(answer: &Value, map: &str) -> Vec<(Vec<String>, u64)> {
    let rows = answer["rows"].as_array().unwrap();
    let rows = rows.iter().filter(|row| row["map"] == map);
    rows.map(|row| {
        let names = row["key"][0].as_str().unwrap().lines().map(plain).collect();
        (names, row["value"].as_u64().unwrap())
    })
    .collect()
}

#[test]
fn exceptions_have_the_callers_that_gdb_sees() {
    let dir = scratch("stacks-throw");
    let program = throws(&dir);
    let seen = by_gdb(&program, "catch throw");
    // gdb is in `__cxa_throw`, as the probe is.
    let planned = ["inner", "middle", "outer", "main"];
    assert_eq!(&seen[1..5], planned, "{seen:?}");
    let file = program.to_str().unwrap();
    let recording = dir.join("recording");
    let recording = recording.to_str().unwrap();
    run(Command::new(nopal())
        .args(["record", "-e", "libstdcxx:throw", "--context", "ustack", "-o", recording, "--"])
        .arg(&program));
    let script = "usdt:libstdcxx:throw { @whole[ustack] = count(); @three[ustack(perf, 3)] = count(); @n = max(len(ustack)); }";
    let ways: [&[&str]; 3] = [
        &["--door", "user", "-e", script, "--json", "--", file],
        &["--door", "kernel", "-e", script, "--json", "--", file],
        &["-e", script, "--json", "--recording", recording],
    ];
    for way in ways {
        let output = nopal_run(way);
        let answer = answer(&output);
        assert_eq!(answer["complete"], true, "{way:?}: {answer} {}", errors(&output));
        let whole = stacks(&answer, "@whole");
        assert_eq!(whole.len(), 1, "{way:?}: {whole:?} {}", errors(&output));
        let (frames, n) = &whole[0];
        assert_eq!((*n, frames.len()), (7, seen.len()), "{way:?}: {frames:?} {seen:?}");
        // What the C library's own start is called, its stripped file says less well than gdb.
        assert_eq!(frames[1..5], seen[1..5], "{way:?}: {frames:?}");
        assert_eq!(frames.last(), seen.last(), "{way:?}: {frames:?}");
        let rows = answer["rows"].as_array().unwrap();
        let n_frames = rows.iter().find(|row| row["map"] == "@n").unwrap();
        assert_eq!(n_frames["value"], seen.len(), "{way:?}: {answer}");
        // Address, function and file.
        let three = rows.iter().find(|row| row["map"] == "@three").unwrap()["key"].to_string();
        assert!(three.contains(" inner(int)") && three.contains(&format!("({file})")), "{way:?}: {three}");
        assert!(three.contains("libstdc++") && !three.contains("outer"), "{way:?}: {three}");
    }
    // The same as text.
    let script =
        "usdt:libstdcxx:throw { printf(\"%s|%d\\n\", ustack(2), arg1 == 0); print(ustack(raw, 5)); exit(); }";
    let output = nopal_run(&["-e", script, "--", file]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("inner(int)") && !text.contains("middle"), "{text}{}", errors(&output));
    assert!(text.lines().filter(|line| u64::from_str_radix(line.trim(), 16).is_ok()).count() >= 5, "{text}");
}

#[test]
fn functions_have_callers_where_they_are_entered_and_where_they_are_left() {
    let dir = scratch("stacks-functions");
    let program = throws(&dir);
    let file = program.to_str().unwrap();
    let seen = by_gdb(&program, "break *inner");
    assert_eq!(&seen[..4], ["inner", "middle", "outer", "main"], "{seen:?}");
    let script = format!("uprobe:{file}:_Z5inneri {{ @in[ustack] = count(); }}");
    for door in ["user", "kernel"] {
        let output = nopal_run(&["--door", door, "-e", &script, "--json", "--", file]);
        let answer = answer(&output);
        let entered = stacks(&answer, "@in");
        assert_eq!(entered.len(), 1, "{door}: {answer} {}", errors(&output));
        assert_eq!(entered[0].1, 7, "{door}: {answer}");
        assert_eq!(entered[0].0[..4], seen[..4], "{door}: {answer}");
        assert_eq!(entered[0].0.len(), seen.len(), "{door}: {answer} {seen:?}");
    }
    let (source, program) = (dir.join("calls.c"), dir.join("calls"));
    let text = r#"
__attribute__((noinline)) int leaf(int n) { char room[80]; asm volatile("" :: "r"(room) : "memory"); return n + 1 + (room[0] & 0); }
__attribute__((noinline)) int twig(int n) { char room[40]; asm volatile("" :: "r"(room) : "memory"); return leaf(n) * 2 + (room[0] & 0); }
__attribute__((noinline)) int branch(int n) { return twig(n) + 3; }
int main(void) { int sum = 0; for (int n = 0; n < 9; n++) sum += branch(n); return sum == 117 ? 0 : 1; }
"#;
    fs::write(&source, text).unwrap();
    run(Command::new("gcc").args(FLAGS).arg("-o").arg(&program).arg(&source));
    let file = program.to_str().unwrap();
    let script = format!("uretprobe:{file}:leaf {{ @[ustack(4)] = count(); }}");
    for door in ["auto", "kernel"] {
        let output = nopal_run(&["--door", door, "-e", &script, "--json", "--", file]);
        let answer = answer(&output);
        let left = stacks(&answer, "@");
        let planned = ["leaf", "twig", "branch", "main"].map(str::to_owned).to_vec();
        assert_eq!(left, [(planned, 9)], "{door}: {answer} {}", errors(&output));
    }
}

#[test]
fn a_recorded_stack_is_named_while_its_files_are_the_same() {
    let dir = scratch("stacks-view");
    let program = throws(&dir);
    let recording = dir.join("recording");
    let view = |form: &[&str]| run(Command::new(nopal()).arg("view").arg(&recording).args(form));
    run(Command::new(nopal())
        .args(["record", "-e", "libstdcxx:throw", "--context", "ustack", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program));
    let short = view(&["--format", "short"]);
    assert_eq!(short.lines().count(), 7, "{short}");
    for line in short.lines() {
        let stack = line.split_once("ustack=[").unwrap().1.strip_suffix(']').unwrap();
        let names: Vec<String> = stack.split(", ").map(plain).collect();
        assert_eq!(names[1..5], ["inner", "middle", "outer", "main"], "{line}");
    }
    let json: Value = serde_json::from_str(view(&["--json"]).lines().next().unwrap()).unwrap();
    let names = json["context"]["ustack_names"].as_array().unwrap();
    assert_eq!(names.len(), json["context"]["ustack"].as_array().unwrap().len(), "{json}");
    assert_eq!(plain(names[2].as_str().unwrap()), "middle", "{json}");
    // What babeltrace2 prints stays what it is.
    assert_eq!(view(&["--format", "babeltrace"]), run(Command::new("babeltrace2").arg(&recording)));
    // Another file in its place has other functions there, if any.
    fs::copy("/bin/true", &program).unwrap();
    let line = view(&["--format", "short"]);
    assert!(!line.contains("middle") && line.contains(", 0x"), "{line}");
    // A recording without stacks says how to make one with them.
    let bare = dir.join("bare");
    let program = throws(&dir);
    run(Command::new(nopal())
        .args(["record", "-e", "libstdcxx:throw", "-o"])
        .arg(&bare)
        .arg("--")
        .arg(&program));
    let script = "usdt:libstdcxx:throw { @[ustack] = count(); }";
    let output = nopal_run(&["-e", script, "--recording", bare.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("nopal record --context ustack"), "{}", errors(&output));
}

/// Of a process that has ended before the tracer could look: names from the file for what lies in it, and for nothing else.
#[test]
fn a_program_that_has_ended_has_the_names_of_its_file() {
    let dir = scratch("stacks-ended");
    let (source, program) = (dir.join("ends.c"), dir.join("ends"));
    let text = "__attribute__((noinline)) int hit(int n) { return n + 2; }\n\
                __attribute__((noinline)) int caller(int n) { return hit(n) + 1; }\n\
                int main(void) { return caller(1) == 4 ? 0 : 1; }\n";
    fs::write(&source, text).unwrap();
    let flags =
        ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-ipa-pure-const", "-no-pie"];
    run(Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&source));
    let script =
        format!("uprobe:{}:hit {{ print(ustack); print(usym(0x7ffff0000000)); exit(); }}", program.display());
    let mut command = Command::new(nopal());
    command.args(["run", "--all-processes", "-e", &script]).stdin(Stdio::null());
    let mut tracer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, tracer.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("Attaching 1 probe"), "{line}");
    let pid = tracer.id().to_string();
    run(Command::new("kill").args(["-STOP", &pid]));
    run(&mut Command::new(&program));
    run(Command::new("kill").args(["-CONT", &pid]));
    let output = tracer.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let frames: Vec<&str> = shown.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(frames.first(), Some(&"hit+0"), "{shown}");
    let Some(main) = frames.iter().position(|frame| frame.starts_with("main+")) else { panic!("{shown}") };
    // Kernels before 6.12 miss the function that has called.
    assert!(frames[1..main].iter().all(|frame| frame.starts_with("caller+")), "{shown}");
    // The rest is of libraries, and of nobody.
    let rest = &frames[main + 1..];
    assert!(rest.len() > 1 && rest.iter().all(|frame| frame.starts_with("0x")), "{shown}");
}
