//! What becomes of a session when its recorder, its target or its disk fails, or the request is wrong.

use super::sessions_place::{Place, Server, is_alive};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{copy_program, nopal, run};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_killed_recorder_costs_nothing_that_was_written() {
    let (server, place) = (Server::start(), Place::new("killed"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    let text = nopal_tests::user_door::text(server.pid);
    place.nopal(&["start"]);
    server.send("set", 100);
    // What was asked for is written.
    assert_eq!(place.nopal(&["view", "s"]).lines().count(), 100);
    let recorder = place.recorder();
    // SAFETY: kill has no preconditions; the recorder is ours.
    unsafe { libc::kill(recorder as i32, libc::SIGKILL) };
    wait_until("the session is seen to be stale", 10, || place.state() == "stale");
    server.send("set", 10);
    assert_eq!(place.count("set"), 100);
    assert!(place.nopal(&["status", "s"]).contains("The recorder was killed"));
    let said = place.fails(17, &["stop"]);
    assert!(said.contains("put back") && said.contains("nopal view s"), "{said}");
    nopal_tests::user_door::text(server.pid).assert_is(&text);
    assert_eq!(place.state(), "stopped");
    // The same again, going on instead.
    place.nopal(&["start"]);
    server.send("set", 30);
    place.nopal(&["view", "s"]);
    // SAFETY: as above.
    unsafe { libc::kill(place.recorder() as i32, libc::SIGKILL) };
    wait_until("the session is stale again", 10, || place.state() == "stale");
    place.nopal(&["start"]);
    server.send("set", 7);
    let stopped: Value = serde_json::from_str(&place.nopal(&["stop", "--json"])).unwrap();
    assert_eq!(place.count("set"), 137);
    // What killed recorders had written counts too, and what they had not is missing, whoever is asked.
    assert_eq!(stopped["events"], place.events(&place.out()).len());
    assert_eq!((&stopped["complete"], place.is_complete()), (&Value::Bool(false), false), "{stopped}");
    assert!(is_alive(server.pid));
}

#[test]
fn a_killed_target_loses_no_committed_event() {
    let (mut server, place) = (Server::start(), Place::new("target"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    server.send("set", 500);
    server.running.0.kill().unwrap();
    // SAFETY: kill has no preconditions; the server is ours.
    unsafe { libc::kill(server.pid as i32, libc::SIGKILL) };
    wait_until("the server is gone", 10, || !is_alive(server.pid));
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains("500 events") && stopped.contains("complete"), "{stopped}");
    assert_eq!(place.count("set"), 500);
    // Started again there is nothing left to record.
    let said = place.fails(20, &["start"]);
    assert!(said.contains("every tracked process has ended"), "{said}");
}

#[test]
fn a_full_disk_ends_the_recording_and_keeps_what_was_written() {
    let (server, place) = (Server::start(), Place::new("disk"));
    fs::create_dir(place.out()).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(place.out()));
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let out = place.out();
    let _mounted = Mounted(&out);
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    server.send("set", 20_000);
    wait_until("the recorder gives up", 30, || place.state() == "failed");
    assert!(place.nopal(&["status", "s"]).contains("the disk is full"));
    assert!(place.count("set") > 500, "what was written is readable");
    let said = place.fails(18, &["stop"]);
    assert!(said.contains("the disk is full"), "{said}");
    assert_eq!(place.state(), "stopped");
    assert!(is_alive(server.pid));
    // With room again it goes on, and what was lost stays lost.
    run(Command::new("mount").args(["-o", "remount,size=64m"]).arg(place.out()));
    place.nopal(&["start"]);
    server.send("set", 5);
    let stopped: Value = serde_json::from_str(&place.nopal(&["stop", "--json"])).unwrap();
    let theirs = run(Command::new("babeltrace2").arg(place.out()));
    assert_eq!(stopped["events"], theirs.lines().count(), "{stopped}");
    assert_eq!((&stopped["complete"], place.is_complete()), (&Value::Bool(false), false), "{stopped}");
    assert!(stopped["lost"].as_u64().unwrap() > 0, "{stopped}");
}

#[test]
fn wrong_requests_say_what_to_do() {
    let (server, place) = (Server::start(), Place::new("wrong"));
    let pid = server.pid.to_string();
    let check = |exit: i32, line: &[&str], parts: &[&str]| {
        let said = place.fails(exit, line);
        assert!(parts.iter().all(|part| said.contains(part)), "{line:?}: {said}");
    };
    check(10, &["start"], &["no current session", "nopal create"]);
    place.create(&[]);
    let out = place.dir.join("other");
    check(11, &["create", "s", "--output", out.to_str().unwrap()], &["already", "nopal destroy s"]);
    check(10, &["start", "t"], &["no session `t`", "did you mean `s`"]);
    check(1, &["create", "../x"], &["cannot be a name"]);
    check(15, &["start"], &["no event is enabled", "nopal enable-event"]);
    // What can never be right is told of at once.
    let trigger = ["create", "t", "--output", out.to_str().unwrap(), "--snapshot", "--trigger"];
    for (text, part) in [("a:b if size >", "column"), ("a:b if", "in ``"), ("", "not the name of an event")] {
        check(1, &[&trigger[..], &[text]].concat(), &[part]);
    }
    check(
        1,
        &["create", "t", "--output", place.out().to_str().unwrap()],
        &["session `s` records into", "--output"],
    );
    for event in ["", "a:b:c"] {
        check(1, &["enable-event", "-u", event], &["not the name of an event", "provider:name"]);
    }
    check(1, &["enable-channel", "-u", "a/b"], &["cannot be a name for a channel"]);
    for program in ["", "late*", "./"] {
        check(2, &["track", "-u", "--program", program], &["not the name of a program"]);
    }
    check(2, &["enable-event", "-k", "sched_switch"], &["only the userspace domain"]);
    check(2, &["enable-channel", "-u", "c", "--tracefile-count", "3"], &["needs --tracefile-size", "8M"]);
    check(1, &["enable-event", "-u", "a:b", "--filter", "size >"], &["column", "filter"]);
    check(1, &["enable-event", "-u", "a:b", "--loglevel", "LOUD"], &["no log level", "EMERG"]);
    check(1, &["add-context", "-u", "-t", "hue"], &["no context `hue`", "procname"]);
    place.nopal(&["enable-event", "-u", "valkey_comands:*"]);
    check(14, &["start"], &["no process is tracked", "nopal track"]);
    check(1, &["track", "-u", "-p", "4194304"], &["4194304"]);
    place.nopal(&["track", "-u", "-p", &pid]);
    check(16, &["start"], &["valkey_comands:*", "did you mean `valkey_commands:*`"]);
    check(12, &["stop"], &["not started"]);
    check(12, &["rotate"], &["not started", "nopal start s"]);
    check(1, &["disable-event", "-u", "no:such"], &["not enabled", "valkey_comands:*"]);
    // One that fits is enough; the other is told of.
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    let started = place.output(&["start"]);
    assert!(started.status.success());
    assert!(String::from_utf8_lossy(&started.stderr).contains("valkey_comands:*"));
    check(13, &["start"], &["started already"]);
    check(1, &["snapshot", "record"], &["--snapshot"]);
    // Each rule that fits nothing is told of, and one that is excluded does not get itself for an answer.
    place.nopal(&["enable-event", "-u", "redis:*", "--filter", "size > 1"]);
    let said = place.output(&["enable-event", "-u", "valkey_db:*", "--exclude", "*"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let told =
        ["`valkey_comands:*`", "no argument `size`", "matches `valkey_db:*`", "it is there, but excluded"];
    assert!(told.iter().all(|part| said.contains(part)), "{said}");
    check(1, &["untrack", "-u", "-p", "1"], &["not tracked"]);
    let json = place.fails(13, &["start", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["error"]["code"], "already-started");
    place.nopal(&["stop"]);

    let read_only = place.dir.join("read-only");
    fs::create_dir(&read_only).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&read_only));
    let said = place.output(&["create", "ro", "--output", read_only.join("x").to_str().unwrap()]);
    run(Command::new("umount").arg(&read_only));
    assert_eq!(said.status.code(), Some(19));
    assert!(String::from_utf8_lossy(&said.stderr).contains("--output"));
    check(10, &["status", "ro"], &["no session `ro`"]);
}

#[test]
fn sessions_are_their_owners() {
    let place = Place::new("owners");
    place.create(&[]);
    let home = place.dir.join("home/sessions");
    assert_eq!(fs::metadata(home.join("s")).unwrap().permissions().mode() & 0o777, 0o700);
    // Another user has a session of the same name, and cannot use this one's folder.
    let theirs = std::env::temp_dir().join(format!("nopal-owners-{}", std::process::id()));
    fs::create_dir_all(&theirs).unwrap();
    chown(&theirs, Some(65534), Some(65534)).unwrap();
    let program = theirs.join("nopal");
    copy_program(nopal(), &program);
    let as_other = |home: &Path, line: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(line);
        command.env("NOPAL_HOME", home).env("HOME", &theirs).output().unwrap()
    };
    assert!(as_other(&theirs.join("home"), &["create", "s"]).status.success());
    // SAFETY: getpid has no preconditions; this process is not the other user's.
    let own = unsafe { libc::getpid() }.to_string();
    assert_eq!(as_other(&theirs.join("home"), &["track", "-u", "-p", &own]).status.code(), Some(19));
    let forbidden = place.dir.join("forbidden");
    fs::create_dir(&forbidden).unwrap();
    fs::set_permissions(&forbidden, fs::Permissions::from_mode(0o700)).unwrap();
    let line = ["create", "t", "--output", forbidden.to_str().unwrap()];
    assert_eq!(as_other(&theirs.join("home"), &line).status.code(), Some(19));
    assert_eq!(as_other(&forbidden, &["status"]).status.code(), Some(19));
    let said = as_other(&place.dir.join("home"), &["create", "mine"]);
    assert!(!said.status.success());
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("belongs to another user") || said.contains("ermission denied"), "{said}");
    fs::remove_dir_all(&theirs).unwrap();
}

#[test]
fn a_view_tells_that_the_recorder_was_killed() {
    let (server, place) = (Server::start(), Place::new("live-killed"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    let mut command = place.command(&["view", "s", "--live"]);
    let mut viewer = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(viewer.0.stdout.take().unwrap()).lines();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| lines.next().unwrap().unwrap());
        wait_until("the viewer shows something", 30, || {
            server.send("get", 1);
            reader.is_finished()
        });
    });
    let recorder = place.recorder();
    // SAFETY: kill has no preconditions; the recorder is ours.
    unsafe { libc::kill(recorder as i32, libc::SIGKILL) };
    assert_eq!(lines.map(|line| line.unwrap()).filter(|line| !line.contains("\"get\"")).count(), 0);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut viewer.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(viewer.0.wait().unwrap().code(), Some(17), "{said}");
    assert!(said.contains("the recorder of session `s` was killed"), "{said}");
    // It goes on at once, though the kernel may not have put the old one away.
    place.nopal(&["start"]);
    // SAFETY: as above.
    unsafe { libc::kill(place.recorder() as i32, libc::SIGKILL) };
    place.fails(17, &["stop"]);
}
