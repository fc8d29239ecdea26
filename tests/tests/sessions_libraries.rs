//! Sessions on programs that have nothing to record before they load it.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{nopal, run, scratch};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn what_a_tracked_process_loads_is_recorded_from_its_first_hit_on() {
    let dir = scratch("sessions_libraries");
    let library = build_with("loaded", &["loaded.c"], Build::Pie, &["-shared", "-fPIC"]);
    let mut late = Command::new(build("late", &["late.c"], Build::Pie));
    let mut late = Running(late.arg(&library).stdin(Stdio::piped()).spawn().unwrap());
    // Another one that has probes; without any there is nothing to start for.
    let busy = Running::start(
        Command::new(build("busy", &["busy.c", "own.c"], Build::Pie))
            .args(["-q", "-t", "1"])
            .stdout(Stdio::null()),
    );
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "loads:*,busy:guarded"]);
    for pid in [late.pid(), busy.pid()] {
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
