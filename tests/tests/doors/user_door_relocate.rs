//! The user door with `--relocate`: instructions moved out of the way of a jump, and put back.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::scratch;
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::{Door, small_options, text};
use nopal_user::maps::Maps;
use nopal_user::session::Options;
use nopal_user::tactic::Tactic;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that checks itself, with no place near it where a jump could land by chance.
struct Busy {
    running: Running,
    out: BufReader<ChildStdout>,
}

impl Busy {
    fn start(arguments: &[&str]) -> Busy {
        let program = build("busy", &["busy.c", "own.c"], Build::Pie);
        let mut running =
            Running::start(Command::new(program).arg("-f").args(arguments).stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Busy { running, out }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn is_alive(&mut self) -> bool {
        self.running.0.try_wait().unwrap().is_none()
    }

    /// Waits for its end, at which it must have seen no error; what it counted.
    fn finish(mut self) -> HashMap<String, u64> {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.running.0.wait().unwrap().success() && text.contains("errors=0"), "{text}");
        text.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
            .collect()
    }

    fn end(self) -> HashMap<String, u64> {
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) };
        self.finish()
    }
}

fn options() -> Options {
    Options { can_relocate: true, ..nopal_tests::user_door::options() }
}

/// Code of files that could be written to: none, once we are gone.
fn n_writable(pid: u32) -> usize {
    let maps = Maps::read(pid as i32).unwrap();
    maps.ranges.iter().filter(|r| r.is_writable && r.is_executable && r.inode != 0 && !r.is_shared).count()
}

fn relocated(door: &Door) -> Vec<String> {
    let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
    sites.filter(|s| s.outcome == Ok(Tactic::Relocate)).map(|s| s.probe.clone()).collect()
}

#[test]
fn every_hit_is_recorded_once_and_nothing_else_changes() {
    let go = scratch("relocate-hits").join("go");
    let busy = Busy::start(&["-q", "-t", "8", "-n", "4000", "-g", go.to_str().unwrap()]);
    let mut door = Door::open_with(busy.pid(), "busy:*", &options()).unwrap();
    for site in door.reports.iter().flat_map(|r| r.outcome.iter().flatten()) {
        println!("{} {:?}", site.probe, site.outcome);
    }
    let moved = relocated(&door);
    assert!(moved.contains(&"busy:regs".to_owned()), "{moved:?}");
    std::fs::write(&go, "").unwrap();
    let finished = std::thread::spawn(move || busy.finish());
    let (mut counts, mut lost) = (HashMap::new(), 0);
    while !finished.is_finished() {
        lost += door.count(&mut counts).gaps.iter().map(|g| g.count).sum::<u64>();
        std::thread::sleep(Duration::from_millis(1));
    }
    let counted = finished.join().unwrap();
    door.count(&mut counts);
    assert_eq!(lost, 0);
    for probe in moved.iter().filter(|p| *p != "busy:tick") {
        let n = counts.get(&door.event(probe)).copied().unwrap_or_default();
        assert_eq!(n, counted[probe.trim_start_matches("busy:")], "{probe}");
    }
}

#[test]
fn coming_and_going_under_load_leaves_no_trace() {
    let busy = Busy::start(&[]);
    let before = text(busy.pid());
    let (mut n_hits, mut n_moved) = (0, 0);
    for cycle in 0..60 {
        let options = Options { can_relocate: true, ..small_options() };
        let mut door = Door::open_with(busy.pid(), "busy:*", &options).unwrap();
        // None where the borrowed thread stood between the instructions that were to be moved.
        let is_moved = !relocated(&door).is_empty();
        assert_eq!(is_moved, n_writable(busy.pid()) > 0, "cycle {cycle}");
        n_moved += u32::from(is_moved);
        let mut counts = HashMap::new();
        std::thread::sleep(Duration::from_millis(3));
        door.count(&mut counts);
        let report = door.session.detach();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "cycle {cycle}: {report:?}");
        assert_eq!(n_writable(busy.pid()), 0, "cycle {cycle}");
        n_hits += counts.values().sum::<u64>();
    }
    assert!(n_hits > 60 && n_moved > 40, "{n_hits} {n_moved}");
    text(busy.pid()).assert_is(&before);
    busy.end();
}

/// Not a test of its own: a tracer that opens and closes until it is killed.
#[test]
fn relocating_tracer_to_be_killed() {
    let Ok(pid) = std::env::var("NOPAL_TEST_PID") else { return };
    loop {
        let options = Options { can_relocate: true, ..small_options() };
        let mut door = Door::open_with(pid.parse().unwrap(), "busy:*", &options).unwrap();
        door.count(&mut HashMap::new());
    }
}

#[test]
fn a_killed_tracer_can_be_cleaned_up_after() {
    let mut busy = Busy::start(&[]);
    let before = text(busy.pid());
    let mut n_orphans = 0;
    for i in 0..72u64 {
        if i >= 12 && n_orphans > 0 {
            break;
        }
        let tracer = Running::start(
            Command::new(std::env::current_exe().unwrap())
                .args([&nopal_tests::test_name(module_path!(), "relocating_tracer_to_be_killed"), "--exact"])
                .env("NOPAL_TEST_PID", busy.pid().to_string())
                .stdout(Stdio::null()),
        );
        // On a crowded machine it takes long to be at work.
        std::thread::sleep(Duration::from_millis(60 + i * 37 % 150 + i / 12 * 200));
        drop(tracer);
        assert!(busy.is_alive(), "kill {i}");
        if i % 3 == 0 {
            // A session that would not relocate by itself takes part in what is there.
            let mut door = Door::open_with(busy.pid(), "busy:*", &small_options()).unwrap();
            door.count(&mut HashMap::new());
            door.session.detach();
        }
        let report = nopal_user::leave::detach(busy.pid() as i32).unwrap();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "kill {i}: {report:?}");
        n_orphans += report.n_orphans;
    }
    assert!(n_orphans > 0, "some kills hit a session in progress");
    wait_until("the code to be what it was", 30, || {
        nopal_user::leave::detach(busy.pid() as i32).unwrap();
        text(busy.pid()) == before && n_writable(busy.pid()) == 0
    });
    busy.end();
}

#[test]
fn another_tracer_on_a_moved_site_is_blind_and_does_no_harm() {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("bpftrace needs root");
        return;
    }
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let mut busy = Busy::start(&["-t", "2"]);
    let open = || Door::open_with(busy.pid(), "busy:*", &options()).unwrap();
    // Once in a while the borrowed thread stands between the instructions that are to be moved.
    let mut door = open();
    for _ in 0..5 {
        if relocated(&door).is_empty() {
            drop(door);
            door = open();
        }
    }
    assert!(relocated(&door).contains(&"busy:regs".to_owned()));
    let script =
        format!("usdt:{}:busy:regs {{ @n = count(); }} interval:ms:500 {{ exit(); }}", program.display());
    let output =
        Command::new("bpftrace").args(["-p", &busy.pid().to_string(), "-e", &script]).output().unwrap();
    assert!(busy.is_alive(), "{}", String::from_utf8_lossy(&output.stderr));
    let regs = door.event("busy:regs");
    let mut counts = HashMap::new();
    door.count(&mut counts);
    counts.clear();
    wait_until("hits afterwards", 20, || {
        door.count(&mut counts);
        counts.get(&regs).is_some_and(|n| *n > 10)
    });
    let report = door.session.detach();
    assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
    busy.end();
}

#[test]
fn ruby_by_the_user_door_alone() {
    let script = nopal_tests::root().join("tests/fixtures/targets/churn.rb");
    let mut command = Command::new("/usr/bin/ruby");
    command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut ruby = Running(command.spawn().expect("ruby starts"));
    let mut answers = BufReader::new(ruby.0.stdout.take().unwrap());
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    let before = text(ruby.pid());
    let mut door = Door::open_with(ruby.pid(), "ruby:*", &options()).unwrap();
    let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
    let is_moved = |tactic: &Tactic| matches!(tactic, Tactic::Behind | Tactic::Retarget | Tactic::Relocate);
    let n_moved = sites.filter(|s| s.outcome.as_ref().is_ok_and(is_moved)).count();
    println!("{:?}, moved: {n_moved}, {:?}", door.n_sites(), relocated(&door));
    assert!(n_moved > 10, "{n_moved}");
    line.clear();
    ruby.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    answers.read_line(&mut line).unwrap();
    let n_collections: u64 = line.trim().parse().unwrap();
    let mut counts = HashMap::new();
    let polled = door.count(&mut counts);
    assert!(polled.gaps.is_empty());
    let report = door.session.detach();
    assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
    assert!(text(ruby.pid()) == before && n_writable(ruby.pid()) == 0, "as it was");
    let is_open = |probe: &str| {
        let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
        sites.filter(|s| s.probe == probe).all(|s| s.outcome.is_ok())
    };
    let mut checked = 0;
    for (probe, expected) in [
        ("ruby:raise", 150),
        ("ruby:object__create", 2150),
        ("ruby:gc__mark__begin", n_collections),
        ("ruby:gc__mark__end", n_collections),
    ] {
        if is_open(probe) {
            assert_eq!(counts.get(&door.event(probe)).copied().unwrap_or_default(), expected, "{probe}");
            checked += 1;
        }
    }
    assert!(checked >= 2);
    ruby.0.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    assert!(ruby.0.wait().unwrap().success());
}
