//! What a hostile program says, in its probes' texts and in names of every kind: it is told as what it is, and neither passes for
//! something else nor steers the terminal that shows it.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TRACEFS: &str = "/sys/kernel/tracing";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn compile(file: &Path, program: &Path, source: &str, flags: &[&str]) {
    fs::write(file, source).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").args([&include, "-O2", "-o"]).arg(program).arg(file).args(flags));
}

/// Its text looks like the end of a line of tracefs with a whole line behind it, of another thread and another age.
const FORGER: &str = r#"#include <nopal.h>
int main(void) {
    const char *text = "x\"\n            bash-1       [000] .....  9999999999.000000: e0: (0x5555) a0=666 a1=\"y";
    for (int i = 0; i < 50; i++) NOPAL_PROBE(forger, said, NOPAL_ARG(int, n, i), NOPAL_STR(text));
    return 0;
}"#;

#[test]
fn no_text_is_taken_for_a_record_of_tracefs() {
    if !Path::new(TRACEFS).join("uprobe_events").exists() {
        run(Command::new("mount").args(["-t", "tracefs", "nodev", TRACEFS]));
    }
    let folder = scratch("hostile-tracefs");
    let program = folder.join("forger");
    compile(&folder.join("forger.c"), &program, FORGER, &[]);
    let dropped = "-sys_admin,-bpf,-perfmon";
    let output = Command::new("setpriv")
        .args(["--bounding-set", dropped, "--inh-caps", dropped])
        .arg(nopal())
        .args(["trace", "--json", "--door", "kernel", "forger:said", "--"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let told = FORGER.split("text = \"").nth(1).unwrap().split("\";\n").next().unwrap();
    let told = told.replace("\\\"", "\"").replace("\\n", "\n");
    let now_ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    let mut numbers = Vec::new();
    for line in lines.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["args"]["text"], told, "{line}");
        assert_ne!(event["pid"], 1, "{line}");
        assert!(u128::from(event["ts"].as_u64().unwrap()) < now_ns, "{line}");
        numbers.push(event["args"]["n"].as_u64().unwrap());
    }
    assert_eq!(numbers, (0..50).collect::<Vec<u64>>());
    let verdict: serde_json::Value = serde_json::from_str(said(&output).lines().last().unwrap()).unwrap();
    assert_eq!((&verdict["events"], &verdict["complete"]), (&50.into(), &true.into()), "{verdict}");
}

/// ESC, BEL, C1, a newline, DEL, and a sign that turns the line round.
const EVIL: &str = "e\x1b[2J\x07\u{9b}31m\n\x7f\u{202e}";

/// Everything a program can name by itself has a name of that kind: its file, its folder, itself, its arguments, a library, the
/// provider, the probe and what it says.
const PROGRAM: &str = r#"#include <stdio.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/sdt.h>
int main(int n, char **v) {
    prctl(PR_SET_NAME, v[1]);
    puts("ready");
    fflush(stdout);
    char c;
    while (n > 2 && read(0, &c, 1) > 0) {}
    for (int i = 0; i < 3; i++) {
        DTRACE_PROBE2(aaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbb, i, v[1]);
        usleep(1000);
    }
    return 0;
}"#;

fn evil_program(folder: &Path) -> PathBuf {
    let evil = folder.join(EVIL.trim_end());
    fs::create_dir_all(&evil).unwrap();
    let plain = folder.join("plain");
    compile(&folder.join("plain.c"), &plain, PROGRAM, &[]);
    let mut bytes = fs::read(&plain).unwrap();
    for name in [[b'a'; 18], [b'b'; 18]] {
        let at = bytes.windows(18).position(|window| window == name).expect("the note has the name");
        let mut new = [name[0]; 18];
        new[..EVIL.len()].copy_from_slice(EVIL.as_bytes());
        bytes[at..at + 18].copy_from_slice(&new);
    }
    let program = evil.join(EVIL);
    fs::write(folder.join("evil.new"), bytes).unwrap();
    copy_program(&folder.join("evil.new"), &program);
    run(Command::new("chmod").arg("755").arg(&program));
    program
}

/// No byte that a terminal would obey: colours of ours are taken out before.
#[track_caller]
fn is_harmless(what: &str, output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        let mut rest = shown.clone();
        while let Some(at) = rest.find("\x1b[") {
            let end = rest[at + 2..].find(|c: char| !c.is_ascii_digit() && c != ';').map(|end| at + 2 + end);
            match end.filter(|end| rest[*end..].starts_with('m')) {
                Some(end) => rest.replace_range(at..=end, ""),
                None => break,
            }
        }
        let is_active = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}';
        let active = rest.chars().find(|c| is_active(*c));
        assert_eq!(active, None, "{what}: {shown:?}");
    }
}

#[test]
fn no_verb_obeys_a_name() {
    let folder = scratch("hostile-words");
    let program = evil_program(&folder);
    let program_text = program.as_os_str();
    let home = folder.join(format!("home{EVIL}"));
    fs::create_dir_all(&home).unwrap();
    let command = || {
        let mut command = Command::new(nopal());
        // As on a terminal.
        command.env("CLICOLOR_FORCE", "1").env("NOPAL_HOME", home.join("n")).stdin(Stdio::null());
        command
    };
    let recording = folder.join("rec");
    let by_user = |line: &[&str]| -> Vec<std::ffi::OsString> { line.iter().map(Into::into).collect() };
    let of_program = |line: &[&str]| {
        let mut words = by_user(line);
        words.extend(["--".into(), program_text.to_owned(), EVIL.into()]);
        words
    };
    // Its own name, cut after 15 bytes, is no text.
    let output = command().args(of_program(&["trace", "*:*"])).output().unwrap();
    assert!(said(&output).ends_with("3 events, complete\n"), "{}", said(&output));
    let mut lines = vec![
        of_program(&["trace", "-v", "*:*"]),
        of_program(&["trace", "-v", "--json", "*:*"]),
        of_program(&["trace", "-v", "--door", "kernel", "*:*"]),
        of_program(&["record", "-v", "-e", "*:*", "-o", recording.to_str().unwrap()]),
        of_program(&["count", "*:*"]),
        of_program(&["count", "*:*", "--by", "comm"]),
        of_program(&["count", "*:*", "--json"]),
        of_program(&["hist", "*:*", "arg0"]),
        of_program(&["latency", "no:such"]),
        of_program(&["trace", "no:such"]),
        of_program(&["trace", "*:* if nonsense > 1"]),
        of_program(&["run", "-v", "-e", "usdt:*:* { @ = count(); }"]),
    ];
    for verb in
        [&["list"][..], &["list", "-v"], &["list", "--json"], &["doctor"], &["doctor", "--json"], &["abi"]]
    {
        let mut words = by_user(verb);
        words.push(program_text.to_owned());
        lines.push(words);
    }
    let mut functions = by_user(&["list", "--functions"]);
    functions.push(program_text.to_owned());
    lines.push(functions);
    for line in &lines {
        let output = command().args(line).output().unwrap();
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{line:?} says something");
        is_harmless(&format!("{line:?}"), &output);
    }
    // While it runs.
    let mut child = Command::new(&program)
        .args([EVIL, "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let pid = child.pid().to_string();
    wait_until("it has its name", 60, || {
        fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(b"e\x1b"))
    });
    for line in [
        &["list", "-p", &pid][..],
        &["list", "-p", &pid, "-v"],
        &["list", "-p", &pid, "--json"],
        &["doctor", "-p", &pid],
        &["doctor", "-p", &pid, "--json"],
        &["spans", "-p", &pid],
        &["trace", "-v", "-p", &pid, "*:*", "--duration", "300ms"],
        &["top", "-p", &pid, "--duration", "300ms"],
        &["detach", "-p", &pid],
        &["detach", &pid],
        &["create", EVIL],
        &["create", "s", "--output", "/no/such\x1b[2J"],
        &["status", EVIL],
        &["list", "-u"],
    ] {
        is_harmless(&format!("{line:?}"), &command().args(line).output().unwrap());
    }
    let by_name = command().args(["list", "-n"]).arg(std::ffi::OsStr::from_bytes(EVIL.as_bytes())).output();
    is_harmless("list -n", &by_name.unwrap());
    drop(child.0.stdin.take());
    child.0.wait().unwrap();
    // What is recorded.
    let dir = recording.to_str().unwrap();
    for line in [
        &["view", dir][..],
        &["view", dir, "--json"],
        &["view", dir, "--count"],
        &["view", dir, "--count", "--json"],
        &["view", dir, "*:* if nonsense > 1"],
        &["count", "*:*", "--recording", dir],
        &["count", "*:*", "--recording", dir, "--by", "arg1"],
        &["count", "*:*", "--recording", dir, "--json"],
        &["spans", "--recording", dir],
        &["query", dir, "select * from events"],
        &["query", dir, "select * from events", "--json"],
        &["query", dir, "select nonsense from events"],
        &["run", "--recording", dir, "-e", "usdt:*:* { @ = count(); }"],
    ] {
        let output = command().args(line).output().unwrap();
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{line:?} says something");
        is_harmless(&format!("{line:?}"), &output);
    }
}
