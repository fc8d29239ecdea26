//! nopal called as `lttng`: the commands of Valkey's document as they are printed there, and what else people type.

use super::sessions_place::{Place, Server, is_alive};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, run};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A folder for PATH in which `lttng` is nopal, and `pidof` knows the server of this test alone.
fn tools(place: &Place, pid: u32) -> PathBuf {
    let dir = place.dir.join("bin");
    fs::create_dir(&dir).unwrap();
    symlink(nopal(), dir.join("lttng")).unwrap();
    let pidof = dir.join("pidof");
    fs::write(&pidof, format!("#!/bin/sh\n[ \"$*\" = valkey-server ] && echo {pid}\n")).unwrap();
    fs::set_permissions(&pidof, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Runs lines of a shell, with a HOME of the test's own.
fn shell(place: &Place, lines: &str) -> Output {
    let path = format!("{}:{}", place.dir.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", lines]).env("PATH", path).env("HOME", &place.dir);
    command.env("NOPAL_HOME", place.dir.join("home")).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn works(place: &Place, lines: &str) -> String {
    let output = shell(place, lines);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{lines}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(place: &Place, line: &str) -> String {
    let output = shell(place, line);
    assert!(!output.status.success(), "{line}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_commands_of_valkeys_document_as_they_stand() {
    let (server, place) = (Server::start(), Place::new("link-document"));
    tools(&place, server.pid);
    // There is none yet.
    assert!(refused(&place, "lttng destroy valkey").contains("valkey"));
    works(
        &place,
        "set -e
lttng create valkey
lttng enable-event -u 'valkey_server:*'
lttng enable-event -u 'valkey_commands:*'
lttng track -u -p `pidof valkey-server`
lttng start",
    );
    server.send("set", 120);
    server.send("get", 30);
    works(&place, "lttng stop");
    let lines = works(&place, "lttng view");
    let calls = |word: &str| lines.matches(&format!("name = \"{word}\", duration = ")).count();
    assert_eq!((calls("set"), calls("get")), (120, 30));
    assert!(lines.contains(" valkey_commands:command_call: { cpu_id = "), "{lines}");
    let traces = place.dir.join("nopal-traces");
    assert_eq!(lines, run(Command::new("babeltrace2").arg(&traces)));
    // LTTng's other way to the same lines.
    assert_eq!(works(&place, "lttng view -e babeltrace2"), lines);
    works(&place, "lttng destroy valkey");
    assert_eq!(works(&place, &format!("lttng view --trace-path={}", traces.display())), lines);
    assert!(is_alive(server.pid));
}

#[test]
fn what_people_type_beside_the_document() {
    let (server, place) = (Server::start(), Place::new("link-more"));
    tools(&place, server.pid);
    works(
        &place,
        "set -e
lttng --no-sessiond create one --set-url=file://$HOME/one
lttng enable-channel -u a,b --subbuf-size=1M --num-subbuf=4 --tracefile-size=1M --tracefile-count=4
lttng enable-event -u -c a 'valkey_commands:*' --filter='name == \"get\"'
lttng enable-event -u --channel=b --all --exclude='eventloop*' --loglevel=TRACE_DEBUG
lttng disable-channel -u b
lttng add-context -u -c a -t procname -t vpid
lttng add-context --list
lttng track -u --vpid=`pidof valkey-server`
lttng enable-rotation --timer=1h --session=one
lttng save
lttng start one",
    );
    server.send("set", 5);
    server.send("get", 7);
    works(&place, "lttng rotate && lttng clear && lttng disable-rotation --timer && lttng status");
    server.send("get", 2);
    works(&place, "lttng stop --no-wait one");
    let lines = works(&place, "lttng view one");
    assert_eq!(lines.lines().count(), 9);
    assert!(
        lines.lines().all(|line| line.contains("procname = \"") && line.contains("name = \"get\"")),
        "{lines}"
    );
    assert_eq!(lines, run(Command::new("babeltrace2").arg(place.dir.join("one"))));
    let listed = works(&place, "lttng list one && lttng list");
    assert!(listed.contains("channel   a: discard") && listed.contains("valkey_commands:*"), "{listed}");

    // Sessions by the dozen.
    works(&place, "lttng destroy one && lttng load && lttng list one");
    works(&place, "lttng create two && lttng create three && lttng save --force && lttng destroy 't*'");
    let listed = works(&place, "lttng list");
    assert!(listed.contains("one") && !listed.contains("two") && !listed.contains("three"), "{listed}");
    works(
        &place,
        "lttng load two && lttng load one --force && lttng load one --override-name=again; lttng destroy --all",
    );
    assert!(works(&place, "lttng list").contains("No session"));

    for (line, instead) in [
        ("lttng create x --live", "view NAME --live"),
        ("lttng create x --set-url=net://localhost", "network"),
        ("lttng enable-event -k --all sched_switch", "userspace"),
        ("lttng enable-event --kernel --syscall open", "userspace"),
        ("lttng list --kernel", "userspace"),
        ("lttng regenerate metadata", "rotate"),
        ("lttng --mi=xml list", "--json"),
        ("lttng bogus", "lttng help"),
        ("lttng track -u --vgid=users", "--cgroup"),
    ] {
        let said = refused(&place, line);
        assert!(said.contains(instead), "{line}: {said}");
    }
    assert!(works(&place, "lttng --version && lttng version").starts_with("lttng 2."));
    assert!(works(&place, "lttng help start").contains("Usage: nopal start"));
    assert!(works(&place, "lttng help").contains("enable-rotation"));
}

#[test]
fn fields_of_running_programs_are_listed() {
    let (server, place) = (Server::start(), Place::new("link-fields"));
    tools(&place, server.pid);
    let listed = works(&place, "lttng list -u -f");
    let call = "command_call(Transport prot, &CStr addr, &CStr laddr, &CStr name, u64 duration)";
    assert!(listed.contains(call), "{listed}");
    let json: Value =
        serde_json::from_str(&place.nopal(&["list", "-u", "-f", "valkey_commands:*", "--json"])).unwrap();
    let mine = json.as_array().unwrap().iter().find(|program| program["pid"] == server.pid).unwrap();
    assert_eq!(mine["providers"][0]["names"][0]["fields"][0], "Transport prot");
}

#[test]
fn without_a_process_named_those_of_the_user_are_recorded() {
    // Nobody else has processes of this user.
    const USER: u32 = 54377;
    let place = Place::new("link-user");
    tools(&place, 0);
    let program = place.dir.join("counter");
    copy_program(&build("flight", &["flight.c"], Build::Pie), &program);
    fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let home = place.dir.join("of-user");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    let as_user = |command: &str| {
        let mut shell = Command::new("setpriv");
        shell.args([
            &format!("--reuid={USER}"),
            &format!("--regid={USER}"),
            "--clear-groups",
            "sh",
            "-c",
            command,
        ]);
        let path = format!("{}:/usr/bin:/bin", place.dir.join("bin").display());
        shell.env("HOME", &home).env("NOPAL_HOME", home.join("nopal")).env("PATH", path).current_dir(&home);
        shell
    };
    let mut before = as_user(&format!("exec {} 0", program.display()));
    let mut before = Running(before.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    wait_until("it is the program", 30, || {
        fs::read_link(format!("/proc/{}/exe", before.pid())).is_ok_and(|exe| exe == program)
    });
    let started =
        as_user("lttng create s --output=$HOME/out && lttng enable-event -u 'flight:*' && lttng start");
    let output = { started }.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    before.0.stdin.take().unwrap().write_all(b"hit 20\n").unwrap();
    assert!(before.0.wait().unwrap().success());
    let stopped = as_user("lttng stop; lttng view; lttng destroy s").output().unwrap();
    let (out, said) = (String::from_utf8_lossy(&stopped.stdout), String::from_utf8_lossy(&stopped.stderr));
    assert_eq!(out.matches(" flight:pass: ").count(), 20, "{out}{said}");
    assert_eq!(run(Command::new("babeltrace2").arg(home.join("out"))).lines().count(), 20);
}
