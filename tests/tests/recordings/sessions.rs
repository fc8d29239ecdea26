//! Sessions in LTTng's words: the commands of Valkey's document, changes while recording, flight recorders. Counts come from the
//! client that drove the server.

use super::sessions_place::{Place, Server, is_alive};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{copy_program, nopal, run};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn the_commands_of_valkeys_document() {
    let (server, place) = (Server::start(), Place::new("document"));
    let pid = server.pid.to_string();
    place.fails(10, &["destroy", "valkey"]);
    let out = place.out();
    place.nopal(&["create", "valkey", "--output", out.to_str().unwrap()]);
    place.nopal(&["enable-event", "-u", "valkey_server:*"]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &pid]);
    let started = place.nopal(&["start"]);
    assert!(started.contains("`valkey` started"), "{started}");
    server.send("set", 300);
    server.send("get", 200);
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains("complete"), "{stopped}");
    let lines = place.nopal(&["view"]);
    let calls: Vec<&str> =
        lines.lines().filter(|l| l.contains("valkey_commands:command_call: { cpu_id = ")).collect();
    assert_eq!(calls.iter().filter(|l| l.contains("name = \"set\", duration = ")).count(), 300);
    assert_eq!(calls.iter().filter(|l| l.contains("name = \"get\", duration = ")).count(), 200);
    assert!(lines.contains("valkey_server:eventloop: "), "{lines}");
    // Another reader sees the same lines.
    let theirs = run(Command::new("babeltrace2").arg(&out));
    assert_eq!(lines, theirs);
    place.nopal(&["destroy", "valkey"]);
    assert!(out.join("chunk-1").is_dir(), "recordings outlive their session");
    assert!(is_alive(server.pid));
}

#[test]
fn events_are_switched_while_recording() {
    let (server, place) = (Server::start(), Place::new("switch"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*", "--filter", "name == \"set\""]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    server.send("set", 50);
    server.send("get", 50);
    place.nopal(&["enable-event", "-u", "valkey_commands:*", "--filter", "name == \"get\""]);
    server.send("set", 50);
    server.send("get", 50);
    place.nopal(&["disable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["enable-event", "-u", "redis:*", "--exclude", "call__start"]);
    server.send("set", 50);
    place.nopal(&["stop"]);
    assert_eq!((place.count("set"), place.count("get")), (100, 50));
    let redis: Vec<Value> =
        place.events(&place.out()).into_iter().filter(|e| e["provider"] == "redis").collect();
    assert_eq!(redis.len(), 50);
    assert!(redis.iter().all(|event| event["name"] == "call__end"));
}

#[test]
fn a_change_under_load_neither_loses_nor_doubles_events() {
    a_change_under_load("auto", 8);
}

#[test]
fn a_change_under_load_neither_loses_nor_doubles_events_by_the_kernel_door() {
    // To close a site takes the kernel long on a busy machine.
    a_change_under_load("kernel", 3);
}

fn a_change_under_load(door: &str, n_changes: u32) {
    let (server, place) = (Server::start(), Place::new(&format!("cut-{door}")));
    place.create(&[]);
    place.nopal(&["enable-channel", "-u", "channel0", "--door", door]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    let is_over = AtomicBool::new(false);
    let n_sent = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut n_sent = 0;
            while !is_over.load(Ordering::Relaxed) && n_sent < 1_000_000 {
                server.send("set", 100);
                n_sent += 100;
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            n_sent
        });
        // Each makes the recorder open the probes anew, or begin new files.
        for n in 0..n_changes {
            place.nopal(&["rotate"]);
            place.nopal(&["enable-event", "-u", &format!("valkey_db:*{n}*")]);
        }
        is_over.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    place.nopal(&["stop"]);
    assert_eq!(place.count("set"), n_sent);
}

#[test]
fn several_sessions_record_one_program() {
    let (server, place) = (Server::start(), Place::new("several"));
    for name in ["a", "b", "c"] {
        let out = place.dir.join(name);
        place.nopal(&["create", name, "--output", out.to_str().unwrap()]);
        place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
        place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
        place.nopal(&["start"]);
        server.send("set", 100);
    }
    for (name, expected) in [("a", 300), ("b", 200), ("c", 100)] {
        place.nopal(&["stop", name]);
        assert_eq!(place.events(&place.dir.join(name)).len(), expected, "session {name}");
    }
    let status = place.nopal(&["status"]);
    assert!(status.contains("* c") && status.contains("stopped"), "{status}");
}

#[test]
fn a_program_that_starts_later_is_picked_up() {
    let place = Place::new("program");
    let program = place.dir.join("later-server");
    copy_program(nopal(), &program);
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    let link = place.dir.join("link");
    std::os::unix::fs::symlink(&program, &link).unwrap();
    place.nopal(&["track", "-u", "--program", link.to_str().unwrap()]);
    let output = place.output(&["start"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("waiting for") && !said.contains("no probe matches"), "{said}");
    let server = Server::of(Command::new(&program).args(["demo", "--serve", "0", "--json"]));
    wait_until("the server is picked up", 30, || {
        let status: Value = serde_json::from_str(&place.nopal(&["status", "s", "--json"])).unwrap();
        let pids = status["recorder"]["pids"].as_array().unwrap();
        pids.iter().any(|pid| pid.as_u64() == Some(server.pid.into()))
    });
    server.send("set", 120);
    let stopped = place.nopal(&["stop"]);
    // The server is a child of the program, which starts itself once more: both were held at their start.
    assert!(stopped.contains(", complete"), "{stopped}");
    assert_eq!(place.count("set"), 120);
}

#[test]
fn a_flight_recorder_keeps_the_newest() {
    let (mut server, place) = (Server::start(), Place::new("flight"));
    place.create(&["--snapshot", "--trigger", "valkey_commands:command_call if name == \"del\""]);
    place.nopal(&["enable-channel", "-u", "channel0", "--subbuf-size", "16k", "--num-subbuf", "4"]);
    place.nopal(&["enable-event", "-u", "redis:call__end"]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    server.send("set", 5_000);
    server.send("get", 10);
    let answer: Value =
        serde_json::from_str(&place.nopal(&["snapshot", "record", "--name", "one", "--json"])).unwrap();
    let path = PathBuf::from(answer["path"].as_str().unwrap());
    let events = place.events(&path);
    assert_eq!(events.len() as u64, answer["events"].as_u64().unwrap());
    // The rings hold far fewer than 10,020 events, and the newest are among them.
    let named = |word: &str| events.iter().filter(|e| e["args"]["name"] == word).count();
    assert_eq!(named("get"), 10);
    assert!(named("set") > 10 && named("set") < 4_000, "{}", named("set"));

    let snapshots = |part: &str| {
        let names = fs::read_dir(place.out()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(part)).collect::<Vec<String>>()
    };
    assert!(snapshots("trigger").is_empty());
    server.send("del", 1);
    wait_until("the trigger makes a snapshot", 30, || snapshots("trigger").len() == 1);
    server.send("get", 3);
    server.running.0.kill().unwrap();
    // SAFETY: kill has no preconditions; the server is ours.
    unsafe { libc::kill(server.pid as i32, libc::SIGKILL) };
    wait_until("the server's end makes a snapshot", 30, || !snapshots("end-of").is_empty());
    let end = place.out().join(&snapshots("end-of")[0]);
    wait_until("it is whole", 30, || {
        place.events(&end).iter().filter(|e| e["args"]["name"] == "get").count() == 13
    });
    place.nopal(&["stop"]);
}

#[test]
fn a_session_is_saved_and_loaded() {
    let (server, place) = (Server::start(), Place::new("save"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*", "--filter", "name == \"get\""]);
    place.nopal(&["add-context", "-u", "-t", "procname", "-t", "ip"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    let file = place.dir.join("saved.toml");
    let file = file.to_str().unwrap();
    place.nopal(&["save", "s", "-o", file]);
    place.fails(1, &["save", "s", "-o", file]);
    let out = place.dir.join("again-out");
    place.fails(1, &["load", file, "--name", "again"]);
    place.nopal(&["load", file, "--name", "again", "--output", out.to_str().unwrap()]);
    place.nopal(&["start", "again"]);
    server.send("set", 5);
    server.send("get", 5);
    place.nopal(&["stop", "again"]);
    let lines = place.nopal(&["view", "again"]);
    assert_eq!(lines.lines().count(), 5);
    // The thread of a connection has a name of its own, and may have ended before anybody asked for it.
    let comm = fs::read_to_string(format!("/proc/{}/comm", server.pid)).unwrap();
    for line in lines.lines() {
        let is_named = |name: &str| line.contains(&format!("procname = \"{name}\", ip = 0x"));
        assert!(is_named("connection") || is_named(comm.trim()), "{line}");
    }
    assert_eq!(lines, run(Command::new("babeltrace2").arg(&out)));
}

#[test]
fn callers_come_with_the_event() {
    let place = Place::new("ustack");
    // Without frame pointers, so that only the unwind tables know the callers.
    let source = place.dir.join("deep.c");
    let text = r#"
#include <sys/mman.h>
#include <sys/sdt.h>
#include <ucontext.h>
#include <unistd.h>
__attribute__((noinline)) int inner(int n) { char room[200]; asm volatile("" :: "r"(room) : "memory"); DTRACE_PROBE1(deep, hit, n);
    /* A jump in the nop's place lands 1.6 GB before the program, where nothing is. */
    asm volatile("mov $0xa00000, %%eax" ::: "eax"); return n + room[0]; }
__attribute__((noinline)) int middle(int n) { char room[100]; asm volatile("" :: "r"(room) : "memory"); return inner(n + 1) + room[1]; }
__attribute__((noinline)) int outer(int n) { return middle(n * 2) + 3; }
__attribute__((noinline)) void *work(void *none) { volatile int sum = 0; for (int n = 0;; n++) { sum += outer(n); usleep(1000); } }
/* With an argument on another stack, which ends right behind these calls, and nothing is behind it. */
int main(int argc, char **argv) {
    if (argc > 1) {
        char *stack = mmap(0, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(stack + (1 << 16), 1 << 16, PROT_NONE);
        ucontext_t here, there; getcontext(&there);
        there.uc_stack.ss_sp = stack; there.uc_stack.ss_size = 1 << 16; there.uc_link = 0;
        makecontext(&there, (void (*)(void))work, 1, 0); swapcontext(&here, &there);
    }
    work(0);
}
"#;
    fs::write(&source, text).unwrap();
    let program = place.dir.join("deep");
    run(Command::new("gcc").args(["-O2", "-g", "-fomit-frame-pointer", "-o"]).arg(&program).arg(&source));
    let main = Running::start(&mut Command::new(&program));
    let short = Running::start(Command::new(&program).arg("short"));
    for (door, running, name) in
        [("user", &main, "user"), ("kernel", &main, "kernel"), ("kernel", &short, "short")]
    {
        let out = place.dir.join(name);
        place.nopal(&["create", name, "--output", out.to_str().unwrap()]);
        place.nopal(&["enable-channel", "-u", "channel0", "--door", door]);
        place.nopal(&["enable-event", "-u", "deep:hit"]);
        place.nopal(&["add-context", "-u", "-t", "ustack"]);
        place.nopal(&["track", "-u", "-p", &running.pid().to_string()]);
        place.nopal(&["start"]);
        wait_until("some events are there", 30, || place.events(&out).len() > 10);
        place.nopal(&["stop"]);
        let text = run(Command::new("babeltrace2").arg(&out));
        let line = text.lines().next().unwrap();
        let stack = line.split_once("ustack = [ ").unwrap().1.split_once(" ]").unwrap().0;
        let addresses: Vec<u64> = stack
            .split(", ")
            .map(|part| u64::from_str_radix(part.split_once("0x").unwrap().1, 16).unwrap())
            .collect();
        // Where the program is loaded, another tool says by name.
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
        let base = maps.lines().find(|l| l.ends_with("/deep")).unwrap().split('-').next().unwrap();
        let base = u64::from_str_radix(base, 16).unwrap();
        let offsets = addresses.iter().take(4).enumerate().map(|(n, address)| {
            // A caller goes on behind its call, which may be another function's first byte.
            format!("{:#x}", address - base - u64::from(n > 0))
        });
        let names = run(Command::new("addr2line").args(["-f", "-e"]).arg(&program).args(offsets));
        let names: Vec<&str> = names.lines().step_by(2).collect();
        assert_eq!(names, ["inner", "middle", "outer", "work"], "{name}: {line}");
        place.nopal(&["destroy", name]);
    }
}

#[test]
fn a_view_follows_a_session() {
    let (server, place) = (Server::start(), Place::new("live"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    place.nopal(&["start"]);
    server.send("set", 5);
    let mut command = place.command(&["view", "s", "--live"]);
    let mut viewer = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(viewer.0.stdout.take().unwrap()).lines();
    // Until the viewer is there what is sent is before its time.
    let mut n_sent = 0;
    let first = std::thread::scope(|scope| {
        let reader = scope.spawn(|| lines.next().unwrap().unwrap());
        while !reader.is_finished() && n_sent < 200 {
            server.send("get", 1);
            n_sent += 1;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        reader.join().unwrap()
    });
    assert!(first.contains("name = \"get\""), "{first}");
    place.nopal(&["rotate"]);
    server.send("del", 40);
    place.nopal(&["stop"]);
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(rest.iter().filter(|line| line.contains("name = \"del\"")).count(), 40);
    assert!(rest.iter().all(|line| !line.contains("(+?")), "only the first event has none before it");
    assert!(rest.iter().chain([&first]).filter(|l| l.contains("\"get\"")).count() <= n_sent);
    assert!(viewer.0.wait().unwrap().success());
}

#[test]
fn rings_that_are_written_over_are_written_at_rotate_and_stop_each_event_once() {
    for has_other in [false, true] {
        let (server, place) = (Server::start(), Place::new(&format!("ring-{has_other}")));
        place.create(&[]);
        place.nopal(&["enable-channel", "-u", "ring", "--overwrite"]);
        place.nopal(&["enable-event", "-u", "-c", "ring", "valkey_commands:*"]);
        if has_other {
            place.nopal(&["enable-event", "-u", "redis:call__end"]);
        }
        place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
        place.nopal(&["start"]);
        server.send("set", 100);
        place.nopal(&["rotate"]);
        assert_eq!(place.events(&place.out().join("chunk-1/ring")).len(), 100);
        server.send("get", 50);
        place.nopal(&["rotate"]);
        // A channel that is opened anew is written too.
        place.nopal(&["enable-event", "-u", "-c", "ring", "valkey_db:no_such"]);
        server.send("set", 30);
        let stopped = place.nopal(&["stop"]);
        let n_all = if has_other { 360 } else { 180 };
        assert!(stopped.contains(&format!("{n_all} events")), "{stopped}");
        assert_eq!((place.count("set"), place.count("get")), (130, 50));
        assert_eq!(place.events(&place.out()).len(), n_all);
    }
}

#[test]
fn a_flight_recorder_that_is_changed_keeps_what_it_held() {
    let (first, second, place) = (Server::start(), Server::start(), Place::new("changed"));
    place.create(&["--snapshot", "--trigger", "valkey_commands:command_call if name == \"del\""]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &first.pid.to_string()]);
    place.nopal(&["start"]);
    // What one snapshot has of each command.
    let held = || {
        let answer: Value = serde_json::from_str(&place.nopal(&["snapshot", "record", "--json"])).unwrap();
        let events = place.events(Path::new(answer["path"].as_str().unwrap()));
        ["set", "get"].map(|word| events.iter().filter(|e| e["args"]["name"] == word).count())
    };
    first.send("set", 40);
    place.nopal(&["enable-event", "-u", "redis:call__end"]);
    assert_eq!(held(), [40, 0]);
    first.send("get", 10);
    place.nopal(&["add-context", "-u", "-t", "procname"]);
    assert_eq!(held(), [40, 10]);
    place.nopal(&["track", "-u", "-p", &second.pid.to_string()]);
    second.send("set", 5);
    assert_eq!(held(), [45, 10]);
    // What makes a snapshot is waited for in the second too.
    second.send("del", 1);
    let has_triggered = || {
        let names = fs::read_dir(place.out()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.into_iter().any(|name| name.ends_with("trigger"))
    };
    wait_until("the trigger makes a snapshot", 30, has_triggered);
    // A name that cannot be is no snapshot.
    place.fails(1, &["snapshot", "record", "--name", "a/b"]);
    place.nopal(&["untrack", "-u", "-p", &first.pid.to_string()]);
    first.send("set", 7);
    assert_eq!(held(), [45, 10]);
    let said = place.output(&["untrack", "-u", "--all"]);
    assert!(said.status.success() && String::from_utf8_lossy(&said.stderr).contains("no process is tracked"));
    second.send("set", 7);
    place.nopal(&["track", "-u", "-p", &first.pid.to_string()]);
    first.send("set", 2);
    assert_eq!(held(), [47, 10]);
    let stopped: Value = serde_json::from_str(&place.nopal(&["stop", "--json"])).unwrap();
    assert_eq!(stopped["snapshots"], 6);
}

#[test]
fn commands_at_the_same_time_lose_no_change() {
    let (server, place) = (Server::start(), Place::new("parallel"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    let at_once = |lines: Vec<Vec<String>>| {
        let start = |line: &Vec<String>| {
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            place.command(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let running: Vec<_> = lines.iter().map(start).collect();
        running.into_iter().map(|child| child.wait_with_output().unwrap()).collect::<Vec<Output>>()
    };
    let enable = |part: &str, count: u32| {
        let lines =
            (0..count).map(|n| ["enable-event", "-u", &format!("{part}:e{n}")].map(str::to_owned).to_vec());
        at_once(lines.collect())
    };
    assert!(enable("before", 12).iter().all(|output| output.status.success()));
    let saved = place.nopal(&["save", "s"]);
    assert_eq!(saved.matches("before:e").count(), 12, "{saved}");
    place.nopal(&["start"]);
    assert!(enable("started", 4).iter().all(|output| output.status.success()));
    let saved = place.nopal(&["save", "s"]);
    assert_eq!(saved.matches("started:e").count(), 4, "{saved}");
    server.send("set", 20);
    // Whoever asks while it ends is told how it ended; who comes later, that it is over.
    let stops = at_once(vec![vec!["stop".to_owned()]; 4]);
    let codes: Vec<_> = stops.iter().map(|output| output.status.code().unwrap()).collect();
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 12].contains(code)), "{stops:?}");
    assert_eq!(place.count("set"), 20);
}

#[test]
fn descendants_are_recorded_on_when_their_parents_have_ended() {
    let place = Place::new("orphan");
    let source = place.dir.join("daemon.c");
    // Forks three children, and ends when it is told to; these tick until they are told to end, and say how often.
    let text = r#"
#include <stdio.h>
#include <sys/sdt.h>
#include <unistd.h>
int main(void) {
    while (access("go", F_OK)) usleep(1000);
    for (int child = 0; child < 3; child++)
        if (!fork()) {
            int n = 0;
            for (; access("end", F_OK) && n < 60000; n++) { DTRACE_PROBE2(orphan, tick, child, n); usleep(1000); }
            char name[20];
            snprintf(name, sizeof name, "new-%d", child);
            FILE *file = fopen(name, "w");
            fprintf(file, "%d", n);
            fclose(file);
            return rename(name, name + 4);
        }
    while (access("leave", F_OK)) usleep(1000);
    return 0;
}
"#;
    fs::write(&source, text).unwrap();
    let program = place.dir.join("a-daemon");
    run(Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&source));
    let mut parent = Running::start(Command::new(&program).current_dir(&place.dir));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "orphan:tick"]);
    // By both ways: what is followed is not picked up again.
    place.nopal(&["track", "-u", "-p", &parent.pid().to_string()]);
    place.nopal(&["track", "-u", "--program", "a-daemon"]);
    place.nopal(&["start"]);
    fs::write(place.dir.join("go"), "").unwrap();
    let n_events = || place.events(&place.out()).len();
    // Answers of more than two looks, so that the recorder has seen the children.
    let mut n_answers = 0;
    wait_until("the children are recorded", 30, || {
        n_answers += usize::from(n_events() > 100);
        n_answers > 12
    });
    place.nopal(&["untrack", "-u", "--program", "a-daemon"]);
    fs::write(place.dir.join("leave"), "").unwrap();
    assert!(parent.0.wait().unwrap().success());
    // Opened anew, though nothing that was tracked lives.
    place.nopal(&["add-context", "-u", "-t", "procname"]);
    let n_before = n_events();
    wait_until("they still are", 30, || n_events() > n_before + 100);
    fs::write(place.dir.join("end"), "").unwrap();
    let said = |child: u32| fs::read_to_string(place.dir.join(child.to_string())).ok()?.parse::<usize>().ok();
    wait_until("the children have ended", 30, || (0..3).all(|child| said(child).is_some()));
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains(", complete"), "{stopped}");
    assert_eq!(n_events(), (0..3).filter_map(said).sum::<usize>());
}

#[test]
fn a_recorder_keeps_nothing_open_of_who_started_it() {
    let (server, place) = (Server::start(), Place::new("descriptors"));
    place.create(&[]);
    place.nopal(&["enable-event", "-u", "valkey_commands:*"]);
    place.nopal(&["track", "-u", "-p", &server.pid.to_string()]);
    let file = place.dir.join("open");
    fs::write(&file, "").unwrap();
    let script = format!("exec 9<{}; exec {} start s", file.display(), nopal().display());
    run(Command::new("sh").args(["-c", &script]).env("NOPAL_HOME", place.dir.join("home")));
    let status: Value = serde_json::from_str(&place.nopal(&["status", "s", "--json"])).unwrap();
    let recorder = status["recorder"]["recorder_pid"].as_u64().expect("its pid");
    let open = fs::read_dir(format!("/proc/{recorder}/fd")).unwrap().flatten();
    let open: Vec<PathBuf> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(!open.is_empty() && !open.contains(&file), "{open:?}");
    place.nopal(&["stop", "s"]);
}
