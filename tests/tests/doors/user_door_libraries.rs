//! The user door and libraries that a program loads while it is traced: their very first hits are seen.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::user_door::{Door, Hit, options, select, text};
use nopal_tests::{nopal, scratch};
use nopal_user::leave;
use nopal_user::libraries::Libraries;
use nopal_user::session::Session;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long that only a tracer lets a thread go on, however busy the machine is.
const LONG_MS: u32 = 60_000;

fn library() -> PathBuf {
    build_with("loaded", &["loaded.c"], Build::Pie, &["-shared", "-fPIC"])
}

/// A program that loads a library again and again, once it is told to.
struct Loads {
    running: Running,
    go: PathBuf,
}

impl Loads {
    fn start(name: &str, how: Build, rounds: u32, n_threads: u32, forks: bool) -> Loads {
        let go = scratch(&format!("user-door-libraries-{name}")).join("go");
        let running = Running::start(
            Command::new(build("loads", &["loads.c"], how))
                .arg(rounds.to_string())
                .arg(library())
                .arg(&go)
                .args([n_threads.to_string(), u32::from(forks).to_string()])
                .stdout(Stdio::piped()),
        );
        std::thread::sleep(Duration::from_millis(50));
        Loads { running, go }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn go(&self) {
        std::fs::write(&self.go, "").unwrap();
    }

    /// What it counted itself. It has ended well.
    fn counts(mut self) -> HashMap<String, u64> {
        assert!(self.running.0.wait().unwrap().success());
        let mut out = String::new();
        self.running.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let words: Vec<&str> = out.split_whitespace().collect();
        words.chunks(2).map(|pair| (pair[0].to_string(), pair[1].parse().unwrap())).collect()
    }
}

fn patient(pid: u32, pattern: &str) -> Door {
    let (select, events) = select(pattern);
    let mut session = Session::new(&options(), select).unwrap();
    session.set_library_wait(LONG_MS);
    let reports = session.attach(pid as i32).unwrap();
    let reader = nopal_user::consumer::Reader::new(Arc::clone(session.rings()));
    Door { session, reader, events, reports }
}

/// Reads and follows all sessions until the program has ended; the hits of each.
fn follow(loads: &mut Loads, doors: &mut [Door]) -> Vec<Vec<Hit>> {
    let mut hits = vec![Vec::new(); doors.len()];
    let mut last = Instant::now();
    loop {
        let is_over = loads.running.0.try_wait().unwrap().is_some();
        let is_due = last.elapsed() > Duration::from_millis(50);
        for (door, hits) in doors.iter_mut().zip(&mut hits) {
            door.read(hits);
            if door.session.has_library_news() || is_due {
                door.session.look_after();
            }
        }
        if is_due {
            last = Instant::now();
        }
        if is_over {
            return hits;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn count(door: &Door, hits: &[Hit], probe: &str) -> u64 {
    let event = door.event(probe);
    hits.iter().filter(|h| h.event == event).count() as u64
}

fn assert_all_seen(door: &Door, hits: &[Hit], counts: &HashMap<String, u64>) {
    for probe in ["first", "call", "round"] {
        assert_eq!(count(door, hits, &format!("loads:{probe}")), counts[probe], "{probe}: {counts:?}");
    }
    assert_eq!(counts["up"], counts["round"], "the semaphore was up whenever the library began to run");
    assert_eq!(counts["sum"], counts["round"] * (counts["round"] - 1) / 2, "the results are right");
}

#[test]
fn the_first_hits_of_a_library_are_seen_each_time_it_is_loaded() {
    for how in [Build::Pie, Build::NonPie] {
        let mut loads = Loads::start("each", how, 200, 0, false);
        let before = text(loads.pid());
        drop(patient(loads.pid(), "loads:*"));
        assert!(before == text(loads.pid()), "a session that ends leaves the loader as it was");
        let mut doors = [patient(loads.pid(), "loads:*")];
        let noticed = doors[0].session.libraries(loads.pid() as i32);
        assert!(matches!(noticed, Libraries::AtOnce(_)), "{how:?}: {noticed}");
        assert!(before != text(loads.pid()));
        loads.go();
        let hits = follow(&mut loads, &mut doors);
        assert_all_seen(&doors[0], &hits[0], &loads.counts());
    }
}

#[test]
fn a_started_program_and_its_libraries_are_seen_from_the_beginning() {
    // The second time only the library has what is wanted.
    for (pattern, probes) in [("loads:*", &["first", "call", "round"][..]), ("loads:first", &["first"])] {
        let go = scratch("user-door-libraries-launch").join("go");
        std::fs::write(&go, "").unwrap();
        let (select, events) = select(pattern);
        let mut session = Session::new(&options(), select).unwrap();
        session.set_library_wait(LONG_MS);
        let mut command = Command::new(build("loads", &["loads.c"], Build::Pie));
        command.arg("20").arg(library()).arg(&go).args(["0", "0"]);
        let (child, reports) = session.launch(command.stdin(Stdio::null()).stdout(Stdio::piped())).unwrap();
        let reader = nopal_user::consumer::Reader::new(Arc::clone(session.rings()));
        let mut doors = [Door { session, reader, events, reports }];
        let mut loads = Loads { running: Running(child), go };
        let hits = follow(&mut loads, &mut doors);
        let counts = loads.counts();
        for probe in probes {
            let seen = count(&doors[0], &hits[0], &format!("loads:{probe}"));
            assert_eq!(seen, counts[*probe], "{pattern} {probe}: {counts:?}");
        }
        assert_eq!(counts["up"], 20, "{pattern}");
    }
}

#[test]
fn two_sessions_see_it_while_other_threads_hit_probes() {
    let mut loads = Loads::start("two", Build::Pie, 50, 3, false);
    let before = text(loads.pid());
    let mut doors = [patient(loads.pid(), "loads:*"), patient(loads.pid(), "loads:*")];
    // The one that came first leaves, another comes: the place is shared as any site is.
    doors[0].session.detach();
    assert!(before != text(loads.pid()), "it stays open for the other");
    doors[0] = patient(loads.pid(), "loads:*");
    loads.go();
    let hits = follow(&mut loads, &mut doors);
    let counts = loads.counts();
    for (door, hits) in doors.iter().zip(&hits) {
        assert_all_seen(door, hits, &counts);
        assert!(count(door, hits, "loads:thread") > 0);
    }
}

#[test]
fn a_forked_child_inherits_it() {
    let mut loads = Loads::start("fork", Build::Pie, 30, 1, true);
    let pid = loads.pid();
    let mut doors = [patient(pid, "loads:*")];
    loads.go();
    let hits = follow(&mut loads, &mut doors);
    let event = doors[0].event("loads:first");
    assert!(hits[0].iter().any(|h| h.event == event && h.pid != pid));
    // A child that is not known yet waits until it is: its first round is complete, too.
    assert_all_seen(&doors[0], &hits[0], &loads.counts());
}

/// A `nopal trace` of the program, once it has shown its first event: everything is open by then.
fn tracer(loads: &Loads, messages: Stdio) -> (Running, BufReader<ChildStdout>) {
    let mut tracer = Running::start(
        Command::new(nopal())
            .args(["trace", "-v", "--door", "user", "-p", &loads.pid().to_string(), "loads:*"])
            .stdout(Stdio::piped())
            .stderr(messages),
    );
    let mut out = BufReader::new(tracer.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains(" loads:"), "{line}");
    (tracer, out)
}

#[test]
fn what_a_killed_tracer_leaves_holds_a_program_up_only_a_moment_and_can_be_mended() {
    for is_mended in [true, false] {
        let loads = Loads::start(&format!("killed-{is_mended}"), Build::Pie, 10, 1, false);
        let before = text(loads.pid());
        let (mut tracer, _out) = tracer(&loads, Stdio::null());
        assert!(before != text(loads.pid()));
        tracer.0.kill().unwrap();
        tracer.0.wait().unwrap();
        if is_mended {
            let report = leave::detach(loads.pid() as i32).unwrap();
            assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
            assert_eq!(report.n_restored, 6, "three probes, the loader, prctl and syscall: {report:?}");
            assert!(before == text(loads.pid()), "the code is the file's again");
        }
        // Where nobody mended anything, nobody answers either: each load waits, and goes on.
        loads.go();
        let counts = loads.counts();
        assert_eq!((counts["first"], counts["call"], counts["sum"]), (30, 10, 45));
    }
}

#[test]
fn nopal_trace_sees_the_first_hits() {
    let loads = Loads::start("trace", Build::Pie, 20, 1, false);
    let messages = scratch("user-door-libraries-messages").join("messages");
    let file = std::fs::File::create(&messages).unwrap();
    let (mut tracer, mut out) = tracer(&loads, file.into());
    loads.go();
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    tracer.0.wait().unwrap();
    let messages = std::fs::read_to_string(messages).unwrap();
    assert!(messages.contains("libraries loaded later are opened before they run"), "{messages}");
    let counts = loads.counts();
    let seen = |probe: &str| text.lines().filter(|l| l.contains(&format!(" {probe}: "))).count() as u64;
    assert_eq!(seen("loads:round"), counts["round"]);
    // On a machine that is busy with other things a load may have gone on before we came.
    let is_late = messages.contains("could not be looked at within");
    assert!(is_late || seen("loads:first") == counts["first"], "{counts:?}: {messages}");
    assert!(seen("loads:first") > 0 && seen("loads:call") > 0);
}

/// The loading thread waits for both doors: what is left to the kernel's is there as early as the rest.
#[test]
fn sites_of_the_kernel_door_are_open_before_a_library_runs() {
    let library = build_with(
        "twodoors_library",
        &["twodoors.c"],
        Build::Pie,
        &["-shared", "-fPIC", "-DHITS_WHEN_LOADED=7"],
    );
    let load = format!("import ctypes; ctypes.CDLL('{}')", library.display());
    let mut n_complete = 0;
    for _ in 0..10 {
        let mut trace = Command::new(nopal());
        let output =
            trace.args(["trace", "-v", "two:*", "--", "/usr/bin/python3", "-c", &load]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("1 user door, 1 kernel door"), "{said}");
        if said.contains("events, complete") {
            n_complete += 1;
            let lines = String::from_utf8_lossy(&output.stdout);
            let counts = [" two:begin: ", " two:end: "].map(|probe| lines.matches(probe).count());
            assert_eq!(counts, [7, 7], "{lines}");
        }
    }
    assert!(n_complete > 0, "never complete");
}

#[test]
fn bpftrace_on_another_probe_is_not_disturbed() {
    let mut loads = Loads::start("bpftrace", Build::Pie, 20, 0, false);
    let program = build("loads", &["loads.c"], Build::Pie);
    let script =
        format!("usdt:{}:loads:round {{ @ = count(); }} BEGIN {{ printf(\"on\\n\"); }}", program.display());
    let mut other = Running::start(
        Command::new("bpftrace").args(["-p", &loads.pid().to_string(), "-e", &script]).stdout(Stdio::piped()),
    );
    let mut out = BufReader::new(other.0.stdout.take().unwrap());
    let mut line = String::new();
    while line != "on\n" {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "bpftrace started");
    }
    // It says so while it still attaches.
    std::thread::sleep(Duration::from_millis(500));
    let mut doors = [patient(loads.pid(), "loads:first")];
    assert!(doors[0].reports[0].outcome.as_ref().unwrap().is_empty(), "nothing to be opened yet");
    drop(doors);
    doors = [patient(loads.pid(), "loads:[ft]*")];
    loads.go();
    let hits = follow(&mut loads, &mut doors);
    let counts = loads.counts();
    assert_eq!(count(&doors[0], &hits[0], "loads:first"), counts["first"]);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let seen = text.lines().find_map(|l| l.strip_prefix("@: ")).map_or(0, |n| n.trim().parse().unwrap());
    assert_eq!(seen, counts["round"], "bpftrace counted all: {text}");
}

#[test]
fn without_such_a_place_libraries_are_polled_for_and_it_is_said() {
    let program = build_with("life", &["life.c"], Build::Static, &["-DWITHOUT_DLOPEN"]);
    let running = Running::start(Command::new(&program).arg("100000").stdout(Stdio::null()));
    std::thread::sleep(Duration::from_millis(50));
    let mut door = Door::open(running.pid(), "life:*").unwrap();
    let noticed = door.session.libraries(running.pid() as i32).to_string();
    assert!(noticed.ends_with("it was not started by a dynamic linker"), "{noticed}");

    let program = build("life", &["life.c"], Build::Musl);
    let running = Running::start(Command::new(&program).arg("100000").stdout(Stdio::null()));
    std::thread::sleep(Duration::from_millis(50));
    let mut door = Door::open(running.pid(), "life:*").unwrap();
    let noticed = door.session.libraries(running.pid() as i32).to_string();
    assert!(noticed.ends_with("does not tell debuggers what it does"), "{noticed}");
}
