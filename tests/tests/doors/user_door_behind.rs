//! The user door where a one-byte jump has no place to land: the jump lies within an instruction behind the nop, whose first
//! byte stays, or is put on the first byte of one that lands elsewhere. The nop itself is left to others, who see every hit
//! as well.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::scratch;
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::{Door, small_options, text};
use nopal_user::tactic::Tactic;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

struct Behind {
    running: Running,
    out: BufReader<ChildStdout>,
}

impl Behind {
    fn start(arguments: &[&str]) -> Behind {
        let program = build("behind", &["behind.c"], Build::Pie);
        let mut running = Running::start(Command::new(program).args(arguments).stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Behind { running, out }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits for its end, at which it must have seen no error; its rounds.
    fn finish(mut self) -> u64 {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        assert!(self.running.0.wait().unwrap().success() && text.contains("errors=0"), "{text}");
        let rounds = text.split_whitespace().find_map(|word| word.strip_prefix("rounds="));
        rounds.unwrap().parse().unwrap()
    }

    fn end(self) -> u64 {
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) };
        self.finish()
    }
}

const MOVED: [&str; 6] =
    ["behind:and", "behind:jump", "behind:load", "behind:stack", "behind:slid", "behind:branch"];

fn outcomes(door: &Door) -> HashMap<String, Result<Tactic, String>> {
    let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
    sites.map(|s| (s.probe.clone(), s.outcome.clone().map_err(|e| e.to_string()))).collect()
}

fn open(pid: u32) -> Door {
    checked(Door::open_with(pid, "behind:*", &small_options()).unwrap())
}

fn checked(door: Door) -> Door {
    let outcomes = outcomes(&door);
    for probe in MOVED {
        let tactic = match probe {
            "behind:jump" => Tactic::Retarget,
            "behind:branch" => Tactic::Further,
            _ => Tactic::Behind,
        };
        assert_eq!(outcomes[probe], Ok(tactic), "{outcomes:?}");
    }
    door
}

#[test]
fn every_hit_is_recorded_once_and_the_program_computes_the_same() {
    let go = scratch("behind-hits").join("go");
    // No more hits than a single ring holds, however long the reader is kept waiting.
    let program = Behind::start(&["-t", "4", "-n", "8000", "-g", go.to_str().unwrap()]);
    let mut door = checked(Door::open(program.pid(), "behind:*").unwrap());
    let outcomes = outcomes(&door);
    // Past the nop, or with nothing behind it that a jump fits into, there is no way.
    let entered = outcomes["behind:entered"].as_ref().unwrap_err();
    assert!(entered.contains("a branch leads into them"), "{entered}");
    for probe in ["behind:short", "behind:plain"] {
        let refusal = outcomes[probe].as_ref().unwrap_err();
        assert!(refusal.contains("its jump would land at") && !refusal.contains("branch"), "{refusal}");
    }
    std::fs::write(&go, "").unwrap();
    let finished = std::thread::spawn(move || program.finish());
    let (mut counts, mut lost) = (HashMap::new(), 0);
    while !finished.is_finished() {
        lost += door.count(&mut counts).gaps.iter().map(|g| g.count).sum::<u64>();
        std::thread::sleep(Duration::from_millis(1));
    }
    let n_rounds = finished.join().unwrap();
    door.count(&mut counts);
    assert_eq!(lost, 0);
    for probe in MOVED {
        assert_eq!(counts.get(&door.event(probe)).copied().unwrap_or_default(), n_rounds, "{probe}");
    }
}

#[test]
fn coming_and_going_under_load_leaves_no_trace() {
    let program = Behind::start(&[]);
    let before = text(program.pid());
    let mut n_hits = 0;
    for cycle in 0..100 {
        let mut door = open(program.pid());
        let mut counts = HashMap::new();
        std::thread::sleep(Duration::from_millis(2));
        door.count(&mut counts);
        let report = door.session.detach();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "cycle {cycle}: {report:?}");
        n_hits += counts.values().sum::<u64>();
    }
    assert!(n_hits > 100, "{n_hits}");
    text(program.pid()).assert_is(&before);
    program.end();
}

#[test]
fn two_sessions_share_a_site_and_leave_in_any_order() {
    let program = Behind::start(&["-t", "2"]);
    let before = text(program.pid());
    for first_leaves_first in [false, true] {
        let (mut first, mut second) = (open(program.pid()), open(program.pid()));
        for door in [&mut first, &mut second] {
            let (mut counts, event) = (HashMap::new(), door.event("behind:jump"));
            wait_until("hits in both", 20, || {
                door.count(&mut counts);
                counts.get(&event).is_some_and(|n| *n > 10)
            });
        }
        let (mut gone, mut left) = if first_leaves_first { (first, second) } else { (second, first) };
        assert!(gone.session.detach().failures.is_empty());
        let (mut counts, event) = (HashMap::new(), left.event("behind:and"));
        left.count(&mut HashMap::new());
        wait_until("hits in the one that stays", 20, || {
            left.count(&mut counts);
            counts.get(&event).is_some_and(|n| *n > 10)
        });
        assert!(left.session.detach().failures.is_empty());
        // The one that came second holds the copy of the stub space that counts; in it the other is noted as gone only when
        // its tracer is, which is this very process.
        assert_eq!(text(program.pid()) == before, !first_leaves_first);
    }
    program.end();
}

#[test]
fn another_tracer_on_the_nop_counts_the_same_hits() {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("bpftrace needs root");
        return;
    }
    let path = build("behind", &["behind.c"], Build::Pie);
    for probe in MOVED {
        let go = scratch("behind-beside").join(probe.replace(':', "-"));
        let program = Behind::start(&["-t", "2", "-n", "2000", "-g", go.to_str().unwrap()]);
        let mut door = checked(Door::open(program.pid(), "behind:*").unwrap());
        let script =
            format!("BEGIN {{ printf(\"on\\n\"); }} usdt:{}:{probe} {{ @n = count(); }}", path.display());
        let mut other = Running::start(
            Command::new("bpftrace")
                .args(["-B", "line", "-p", &program.pid().to_string(), "-e", &script])
                .stdout(Stdio::piped()),
        );
        let mut said = BufReader::new(other.0.stdout.take().unwrap());
        let mut line = String::new();
        while line != "on\n" {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "bpftrace attaches");
        }
        std::fs::write(&go, "").unwrap();
        // It ends with the process.
        let n_rounds = program.finish();
        let mut counts = HashMap::new();
        door.count(&mut counts);
        assert_eq!(counts.get(&door.event(probe)), Some(&n_rounds), "ours at {probe}");
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(
            rest.contains(&format!("@n: {n_rounds}\n")),
            "bpftrace at {probe}: {rest}, {n_rounds} rounds"
        );
    }
}
