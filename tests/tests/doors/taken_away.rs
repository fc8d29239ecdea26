//! Tools that take nopal's breakpoints and jumps away with their own: what that costs is told.

use crate::complete::{Place, last_object, text};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::user_door;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that waits for files named `go` and `end`, with five hits between.
fn hits_when_told(place: &Place) -> Running {
    let (go, end) = (place.dir.join("go"), place.dir.join("end"));
    let steps = [&format!("wait:{}", text(&go)), "fire:5:0", &format!("wait:{}", text(&end))];
    let target = place.start(&steps);
    wait_until("the program waits", 10, || {
        fs::read_to_string(format!("/proc/{}/wchan", target.pid()))
            .is_ok_and(|call| call.contains("nanosleep"))
    });
    target
}

/// `trace` or `run`, with what it says in a file.
fn traced(place: &Place, verb: &str, door: &str, pid: u32) -> (Running, impl Fn() -> String) {
    let what = if verb == "run" {
        ["-e", "usdt::counted:hit { @ = count(); }"].as_slice()
    } else {
        &["counted:hit"]
    };
    let out = place.dir.join("said");
    let pid = pid.to_string();
    let mut tracer = place.nopal(&[&[verb, "-v", "--json", "--door", door, "-p", &pid], what].concat());
    let both = fs::File::create(&out).unwrap();
    let tracer = Running::start(tracer.stdout(both.try_clone().unwrap()).stderr(both));
    (tracer, move || fs::read_to_string(&out).unwrap())
}

fn is_open(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("sites: 1 ") || line.contains("armed, 1 sites"))
}

fn signal(tracer: &Running, signal: i32) {
    // SAFETY: kill has no preconditions; the process is a child that was not waited for.
    unsafe { libc::kill(tracer.pid() as i32, signal) };
}

/// A tool that came before nopal puts back what it found, and the tracer ends before it looks again.
#[test]
fn a_site_that_another_tool_closed_at_the_last_moment_is_a_gap() {
    for verb in ["trace", "run"] {
        let place = Place::new(&format!("last-moment-{verb}"));
        let mut target = hits_when_told(&place);
        let before = user_door::text(target.pid());
        let (mut tracer, said) = traced(&place, verb, "user", target.pid());
        wait_until("all is open", 60, || is_open(&said()));
        signal(&tracer, libc::SIGSTOP);
        before.put_back(target.pid());
        fs::write(place.dir.join("go"), "").unwrap();
        wait_until("the program has its hits", 10, || place.n_hits() == 5);
        std::thread::sleep(Duration::from_millis(20));
        signal(&tracer, libc::SIGINT);
        signal(&tracer, libc::SIGCONT);
        tracer.0.wait().unwrap();
        let ended = last_object(&said());
        assert_eq!(ended["complete"], false, "{verb}: {}", said());
        fs::write(place.dir.join("end"), "").unwrap();
        assert!(target.0.wait().unwrap().success(), "{verb}");
    }
}

/// As a debugger does that was there first and leaves.
#[test]
fn a_breakpoint_of_the_kernel_that_somebody_takes_away_is_a_gap() {
    for verb in ["trace", "run"] {
        let place = Place::new(&format!("taken-away-{verb}"));
        let mut target = hits_when_told(&place);
        let before = user_door::text(target.pid());
        let (mut tracer, said) = traced(&place, verb, "kernel", target.pid());
        wait_until("all is open", 60, || is_open(&said()));
        before.put_back(target.pid());
        fs::write(place.dir.join("go"), "").unwrap();
        wait_until("the program has its hits", 10, || place.n_hits() == 5);
        signal(&tracer, libc::SIGINT);
        tracer.0.wait().unwrap();
        let said = said();
        let ended = last_object(&said);
        assert!(ended["complete"] == false && said.contains("was taken away"), "{verb}: {said}");
        fs::write(place.dir.join("end"), "").unwrap();
        assert!(target.0.wait().unwrap().success(), "{verb}");
    }
}

#[test]
fn where_a_debugger_has_a_breakpoint_the_kernel_door_opens_nothing() {
    for verb in ["trace", "run"] {
        let place = Place::new(&format!("debugger-{verb}"));
        let mut target = hits_when_told(&place);
        let pid = target.pid();
        let mut gdb = Command::new("gdb");
        gdb.args(["-q", "-nx", "-batch", "-p", &pid.to_string()]);
        let lines =
            ["set debuginfod enabled off", "break -probe-stap counted:hit", "continue", "delete", "detach"];
        for line in lines {
            gdb.args(["-ex", line]);
        }
        let before = user_door::text(pid);
        let gdb = gdb.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut gdb = Running::start(gdb);
        wait_until("gdb is there", 60, || user_door::text(pid) != before);
        let (mut tracer, said) = traced(&place, verb, "kernel", pid);
        wait_until("it says so", 60, || said().contains("a debugger holds process"));
        signal(&tracer, libc::SIGINT);
        tracer.0.wait().unwrap();
        let said = said();
        // It may have ended with the reason, as there is nothing else.
        let is_complete = said.lines().any(|line| line.contains("\"complete\":true"));
        assert!(!is_complete, "{verb}: {said}");
        fs::write(place.dir.join("go"), "").unwrap();
        // The debugger is the one who sees the hit.
        assert!(gdb.0.wait().unwrap().success(), "{verb}");
        fs::write(place.dir.join("end"), "").unwrap();
        assert!(target.0.wait().unwrap().success(), "{verb}");
        assert_eq!(place.n_hits(), 5);
    }
}
