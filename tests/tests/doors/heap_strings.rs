//! Strings in a heap that grows and shrinks while they are captured: what is there arrives, what has gone is told, and the
//! program lives.

use nopal_tests::nopal;
use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const HITS: usize = 1000;

/// What a script of three phases counted, from a program that it starts or that runs.
fn counted(program: &Path, is_running: bool) -> (String, String) {
    let file = program.to_str().unwrap();
    let script = format!("usdt:{file}:heaped:text {{ @[arg0, str(arg1)] = count(); }}");
    let mut run = Command::new(nopal());
    run.args(["run", "--door", "user", "-e", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !is_running {
        run.args(["--", file, &HITS.to_string()]);
        let mut child = run.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"\n\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    }
    let mut command = Command::new(program);
    command.arg(HITS.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut target = Running(command.spawn().unwrap());
    let mut input = target.0.stdin.take().unwrap();
    let mut said = BufReader::new(target.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut child = run.args(["-p", &target.pid().to_string()]).spawn().unwrap();
    let mut heard = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    heard.read_line(&mut told).unwrap();
    assert!(told.starts_with("Attaching"), "said when all is open: {told}");
    input.write_all(b"\n").unwrap();
    line.clear();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "done\n", "the program lives");
    input.write_all(b"\n").unwrap();
    drop(input);
    assert!(target.0.wait().unwrap().success());
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    heard.read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success(), "{told}");
    (shown, told)
}

#[test]
fn texts_come_and_go_with_the_heap_they_are_in() {
    let program = build("heaped", &["heaped.c"], Build::Pie);
    for is_running in [false, true] {
        let (shown, told) = counted(&program, is_running);
        let mut lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("@[")).collect();
        lines.sort_unstable();
        assert!(
            matches!(lines[..], [first, gone, last]
                if first == format!("@[0, kept]: {HITS}")
                    && gone.starts_with("@[1, ") && gone.ends_with(&format!("]: {HITS}"))
                    && !gone.contains("kept")
                    && last == format!("@[2, again]: {HITS}")),
            "{is_running}: {shown}{told}"
        );
        assert!(told.contains("complete"), "{told}");
    }
}
