//! Sessions on what comes later: libraries of programs that have nothing to record before, and programs that are soon gone.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{copy_program, nopal, run, scratch};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn what_a_tracked_process_loads_is_recorded_from_its_first_hit_on() {
    let dir = scratch("sessions_latecomers");
    let library = build_with("loaded", &["loaded.c"], Build::Pie, &["-shared", "-fPIC"]);
    let mut late = Command::new(build("late", &["late.c"], Build::Pie));
    let mut late = Running(late.arg(&library).stdin(Stdio::piped()).spawn().unwrap());
    // Another one that has probes, and waits; without any there is nothing to start for.
    let mut other = Command::new(build("forks", &["forks.c"], Build::Pie));
    let other = Running(other.args(["1", "1"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "loads:*,forks:*"]);
    for pid in [late.pid(), other.pid()] {
        session(&["track", "-u", "-p", &pid.to_string()]);
    }
    session(&["start"]);
    late.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(late.0.wait().unwrap().success());
    let stopped = session(&["stop"]);
    let seen = run(Command::new("babeltrace2").arg(&output));
    let n = |event: &str| seen.lines().filter(|line| line.contains(event)).count();
    assert_eq!((n(" loads:first:"), n(" loads:call:")), (3, 200), "{stopped}");
    assert!(stopped.contains(", complete"), "{stopped}");
}

#[test]
fn a_tracked_program_that_is_soon_gone_is_not_forgotten() {
    let dir = scratch("sessions_soon_gone");
    let program = dir.join("soon_gone");
    copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "forks:*"]);
    session(&["track", "-u", "--program", "soon_gone"]);
    session(&["start"]);
    // Each lives about a millisecond.
    for _ in 0..10 {
        run(Command::new(&program).arg("5"));
    }
    let picked_up = || session(&["status"]).matches("picked up").count();
    wait_until("all ten are told of", 20, || picked_up() == 10);
    let stopped = session(&["stop"]);
    assert!(stopped.contains("not complete"), "{stopped}");
}
