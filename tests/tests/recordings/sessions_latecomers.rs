//! Sessions on what comes later: libraries of programs that have nothing to record before, and programs that are soon gone.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{copy_program, lttng, nopal, run, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
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
fn a_process_that_has_no_such_probe_yet_is_recorded_when_it_loads_one() {
    let dir = scratch("sessions_loads_one");
    let library = build_with("loaded", &["loaded.c"], Build::Pie, &["-shared", "-fPIC"]);
    let mut late = Command::new(build("late", &["late.c"], Build::Pie));
    let mut late = Running(late.arg(&library).stdin(Stdio::piped()).spawn().unwrap());
    let call = |line: &[&str]| {
        Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")).output().unwrap()
    };
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "loads:*"]);
    session(&["track", "-u", "-p", &late.pid().to_string()]);
    let started = call(&["start"]);
    let said = String::from_utf8_lossy(&started.stderr);
    assert!(started.status.success() && said.contains("loaded later may have it"), "{said}");
    late.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(late.0.wait().unwrap().success());
    let stopped = session(&["stop"]);
    let seen = run(Command::new("babeltrace2").arg(&output));
    let n = |event: &str| seen.lines().filter(|line| line.contains(event)).count();
    assert_eq!((n(" loads:first:"), n(" loads:call:")), (3, 200), "{stopped}");
    assert!(stopped.contains(", complete"), "{stopped}");
}

#[test]
fn programs_that_live_a_moment_are_recorded_from_their_first_hit_to_their_last() {
    let dir = scratch("sessions_a_moment");
    let program = dir.join("a_moment");
    copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "forks:*"]);
    session(&["track", "-u", "--program", program.to_str().unwrap()]);
    session(&["start"]);
    for _ in 0..20 {
        run(Command::new(&program).arg("5"));
    }
    // Several at the same time.
    let mut started: Vec<_> = (0..10).map(|_| Command::new(&program).arg("5").spawn().unwrap()).collect();
    for child in &mut started {
        assert!(child.wait().unwrap().success());
    }
    // Nothing is held of those that have ended: no descriptor, and of their memory only what they used of it.
    let recorder = std::fs::read_to_string(dir.join("home/sessions/s/lock")).unwrap();
    let folder = std::path::Path::new("/proc").join(recorder.trim());
    wait_until("it has let go of them", 5, || {
        let descriptors = std::fs::read_dir(folder.join("fd")).unwrap().flatten();
        let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("pidfd")).count() == 0
    });
    let status = std::fs::read_to_string(folder.join("status")).unwrap();
    let shared_kib = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    let shared_kib: u64 = shared_kib.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(shared_kib < 64 << 10, "{shared_kib} KiB for 30 programs");
    let stopped = session(&["stop"]);
    let seen = run(Command::new("babeltrace2").arg(&output));
    assert_eq!(seen.lines().filter(|line| line.contains(" forks:pass:")).count(), 30 * 5, "{stopped}");
    assert!(stopped.contains(", complete"), "{stopped}");
    // Nobody waits for a session that is stopped.
    run(Command::new(&program).arg("5"));
}

#[test]
fn a_recorder_that_stands_still_or_is_killed_holds_no_program_up() {
    let dir = scratch("sessions_halted");
    let program = dir.join("held_up");
    copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "forks:*"]);
    session(&["track", "-u", "--program", program.to_str().unwrap()]);
    session(&["start"]);
    run(Command::new(&program).arg("5"));
    let recorder: i32 = std::fs::read_to_string(dir.join("home/sessions/s/lock")).unwrap().parse().unwrap();
    // SAFETY: kill has no preconditions; the recorder is the session's own.
    let send = |signal: i32| assert_eq!(unsafe { libc::kill(recorder, signal) }, 0);
    send(libc::SIGSTOP);
    for _ in 0..3 {
        run(Command::new(&program).arg("5"));
    }
    let halted = session(&["status"]);
    assert!(
        halted.contains("was stopped by a signal") && halted.contains(&format!("kill -CONT {recorder}")),
        "{halted}"
    );
    send(libc::SIGCONT);
    wait_until("the recorder answers again", 60, || session(&["status"]).contains("s"));
    let status = session(&["status"]);
    run(Command::new(&program).arg("5"));
    send(libc::SIGKILL);
    run(Command::new(&program).arg("5"));
    let stopped = Command::new(nopal()).arg("stop").env("NOPAL_HOME", dir.join("home")).output().unwrap();
    assert_eq!(stopped.status.code(), Some(17), "{status}\n{stopped:?}");
    // Those that did not wait long enough are told.
    assert!(status.matches("picked up").count() >= 3, "{status}");
}

#[test]
fn a_tracked_program_that_is_soon_gone_is_not_forgotten() {
    let dir = scratch("sessions_soon_gone");
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "forks:*"]);
    session(&["track", "-u", "--program", "soon_gone"]);
    session(&["start"]);
    // Each lives about a millisecond, and its file is one that nobody could know of.
    let mut pids = Vec::new();
    for number in 0..10 {
        let program = dir.join(number.to_string()).join("soon_gone");
        std::fs::create_dir(dir.join(number.to_string())).unwrap();
        copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
        let mut child = Command::new(&program).arg("5").spawn().unwrap();
        pids.push(child.id());
        assert!(child.wait().unwrap().success());
    }
    // One that was found as it ended is told in other words.
    let told = |pid: &u32| session(&["status"]).contains(&format!("process {pid} "));
    wait_until("all ten are told of", 20, || pids.iter().all(told));
    let stopped = session(&["stop"]);
    assert!(stopped.contains("not complete"), "{stopped}");
}

#[test]
fn programs_after_one_that_could_not_be_picked_up_are_recorded() {
    let dir = scratch("sessions_after_a_failure");
    let program = dir.join("after_a_failure");
    copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", "forks:*"]);
    session(&["track", "-u", "--program", program.to_str().unwrap()]);
    session(&["start"]);
    // The first is another tracer's.
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null"]).arg(&program).args(["1", "1"]);
    let strace = Running(strace.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    wait_until("it is told of", 30, || session(&["status"]).contains("could not be picked up"));
    for _ in 0..5 {
        run(Command::new(&program).arg("5"));
    }
    let stopped = session(&["stop"]);
    let seen = run(Command::new("babeltrace2").arg(&output));
    assert_eq!(seen.lines().filter(|line| line.contains(" forks:pass:")).count(), 5 * 5, "{stopped}");
    assert!(stopped.contains("not complete"), "{stopped}");
    drop(strace);
}

/// Processes that do nothing but take time from the others.
fn load() -> Vec<Running> {
    (0..2).map(|_| Running::start(Command::new("sh").args(["-c", "while :; do :; done"]))).collect()
}

/// How many events of each process there are, by number.
fn events_by_process(recording: &Path) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for line in run(Command::new("babeltrace2").arg(recording)).lines() {
        let pid = line.split_once("vpid = ").unwrap().1.split(',').next().unwrap();
        *counts.entry(pid.parse().unwrap()).or_default() += 1;
    }
    counts
}

/// A hundred runs one after another while the machine is busy: each is recorded whole.
fn a_hundred_runs(name: &str, program: &Path, events: &str, n_each: usize, start: impl Fn() -> Command) {
    let dir = scratch(&format!("sessions_hundred_{name}"));
    let session = |line: &[&str]| run(Command::new(nopal()).args(line).env("NOPAL_HOME", dir.join("home")));
    let output = dir.join("out");
    session(&["create", "s", "-o", output.to_str().unwrap()]);
    session(&["enable-event", "-u", events]);
    session(&["track", "-u", "--program", program.to_str().unwrap()]);
    session(&["start"]);
    let busy = load();
    let mut expected = BTreeMap::new();
    for _ in 0..100 {
        let mut child = start().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        expected.insert(child.id(), n_each);
    }
    drop(busy);
    let stopped = session(&["stop"]);
    // Nothing is missing; on a machine that is starved it may be told that something could be.
    assert_eq!(events_by_process(&output), expected, "{stopped}");
    assert!(stopped.contains(&format!("; {} events", 100 * n_each)), "{stopped}");
}

/// LTTng's example `demo` with our headers: 8 events of three providers, which are in a library that is preloaded.
fn lttngs_demo(dir: &Path) -> PathBuf {
    let examples = Path::new("/usr/share/doc/liblttng-ust-dev/examples/demo");
    assert!(examples.exists(), "liblttng-ust-dev was installed without its documentation");
    run(Command::new("cp").arg("-r").arg(examples.join(".")).arg(dir));
    let flags = lttng::ours();
    let script = format!(
        "for n in tp tp2 tp3; do gcc -O2 -I. {0} -fpic -c $n.c; done
         gcc -shared -o all.so tp.o tp2.o tp3.o {1}
         gcc -O2 -I. {0} -o demo demo.c -ldl",
        flags[0],
        flags[1..].join(" ")
    );
    run(Command::new("sh").args(["-e", "-c", &script]).current_dir(dir));
    dir.join("demo")
}

#[test]
fn lttngs_demo_is_recorded_whole_a_hundred_times_under_load() {
    let dir = scratch("sessions_lttng_demo");
    let program = lttngs_demo(&dir);
    a_hundred_runs("demo", &program, "ust_tests_demo*:*", 8, || {
        let mut command = Command::new(&program);
        command.arg("0").env("LD_PRELOAD", dir.join("all.so"));
        command
    });
}

/// Nobody holds programs for users other than root: those built with our headers knock.
#[test]
fn programs_of_an_ordinary_user_with_our_headers_are_recorded_from_their_first_event_on() {
    const USER: u32 = 54391;
    let dir = scratch("sessions_knocking");
    let program = lttngs_demo(&dir);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let home = dir.join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    symlink(nopal(), dir.join("lttng")).unwrap();
    let as_user = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]).arg(program);
        command.env("HOME", &home).env("NOPAL_HOME", home.join("nopal")).current_dir(&home);
        command
    };
    let session = |line: &[&str]| run(as_user(nopal()).args(line));
    let hundred = |n_runs: usize| {
        let busy = load();
        let mut expected = BTreeMap::new();
        for _ in 0..n_runs {
            let mut command = as_user(Path::new("env"));
            command.arg(format!("LD_PRELOAD={}", dir.join("all.so").display())).arg(&program).arg("0");
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            assert!(child.wait().unwrap().success());
            expected.insert(child.id(), 8);
        }
        drop(busy);
        expected
    };
    session(&["create", "s", "-o", home.join("named").to_str().unwrap()]);
    session(&["enable-event", "-u", "ust_tests_demo*:*"]);
    session(&["track", "-u", "--program", program.to_str().unwrap()]);
    session(&["start"]);
    let expected = hundred(100);
    let stopped: Value = serde_json::from_str(&session(&["stop", "--json"])).unwrap();
    assert_eq!(events_by_process(&home.join("named")), expected, "{stopped}");
    // What does not knock could be missed, and nobody would know.
    assert!(stopped["gaps"][0].as_str().unwrap().contains("lives a moment"), "{stopped}");

    // As it is typed with LTTng: nothing is named, all of the user is recorded.
    let link = |line: &[&str]| run(as_user(&dir.join("lttng")).args(line));
    link(&["create", "all", "--output", home.join("all").to_str().unwrap()]);
    link(&["enable-event", "-u", "ust_tests_demo*:*"]);
    link(&["start"]);
    let expected = hundred(20);
    let stopped = link(&["stop"]);
    assert_eq!(events_by_process(&home.join("all")), expected, "{stopped}");
    link(&["destroy", "--all"]);
    // Nobody waits any more.
    assert_eq!(hundred(2).len(), 2);
}

#[test]
fn a_program_that_lives_a_millisecond_is_recorded_whole_a_hundred_times_under_load() {
    let program = scratch("sessions_millisecond").join("millisecond");
    copy_program(&build("forks", &["forks.c"], Build::Pie), &program);
    a_hundred_runs("millisecond", &program, "forks:*", 5, || {
        let mut command = Command::new(&program);
        command.arg("5");
        command
    });
}
