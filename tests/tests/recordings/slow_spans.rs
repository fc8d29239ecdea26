//! One way of pairing: a script's `latency()`, `nopal latency` and a trigger find the same spans. And what a trigger keeps of
//! a program whose one slow span is planned.

use crate::answers::{Plan, Planned, answer};
use crate::sessions_place::Place;
use nopal_tests::asking::number;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, scratch};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every kind that two points and a key can pair.
fn script(program: &Path) -> String {
    let span = |begin: &str, end: &str, key: &str| {
        let file = program.display();
        format!("latency(usdt:{file}:plan:{begin}, usdt:{file}:plan:{end}, {key})\n")
    };
    [
        span("inner__start", "inner__done", "tid"),
        span("slow__start", "slow__done", "tid"),
        span("lost__start", "lost__done", "tid"),
        span("job__begin", "job__end", "arg0"),
        // What is left by an exception leaves its depth open.
        span("rec__entry", "rec__return", "(tid, arg0)"),
    ]
    .concat()
}

/// What a script's map has.
#[track_caller]
fn of_map<'a>(said: &'a Value, name: &str) -> &'a Value {
    let rows = said["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["map"] == name);
    &row.unwrap_or_else(|| panic!("{name}: {said}"))["value"]
}

/// A script's counts are the plan's, and so is what has no partner.
#[track_caller]
fn check(said: &Value, plan: &Plan) {
    assert_eq!((&said["complete"], &said["lost"]), (&true.into(), &0.into()), "{said}");
    for (map, kind) in [
        ("@inner__start_to_inner__done", "inner"),
        ("@slow__start_to_slow__done", "slow"),
        ("@job__begin_to_job__end", "job"),
        ("@rec__entry_to_rec__return", "rec"),
    ] {
        assert_eq!(number(&of_map(said, map)["count"]), plan.kinds[kind][0], "{kind}: {said}");
    }
    let slow = of_map(said, "@slow__start_to_slow__done");
    let (low, high) = plan.slow.values().fold((0, 0), |(a, b), (low, high)| (a.max(*low), b.max(*high)));
    let max = number(&slow["max"]);
    assert!(low.saturating_sub(1000) <= max && max <= high + 1000, "{max} not in {low}..{high}");
    // Of a depth that is begun anew the older one never ended; the last of each is open.
    let planned = plan.unmatched["lost"][2] + plan.unmatched["rec"][1];
    let why = &said["unmatched_why"];
    assert_eq!((number(&said["unmatched"]), number(&why["begun_before"])), (planned, 0), "{said}");
    assert_eq!(number(&why["not_ended"]), plan.unmatched["lost"][2] + 2, "{said}");
}

#[test]
fn a_script_pairs_as_every_answer_does() {
    let planned = Planned::new("spans-script");
    let (plan_file, text) = (planned.plan_file(), script(&planned.program));
    for door in ["user", "kernel"] {
        let said =
            answer(&[&"run", &"--json", &"--door", &door, &"-e", &text, &"--", &planned.program, &plan_file]);
        check(&said, &Plan::read(&plan_file));
    }
    let recording = planned.dir.join("rec");
    let triggered = answer(&[
        &"record",
        &"-e",
        &"plan:*",
        &"-o",
        &recording,
        &"--json",
        &"--door",
        &"user",
        &"--",
        &planned.program,
        &plan_file,
    ]);
    assert_eq!(triggered["complete"], true);
    let said = answer(&[&"run", &"--json", &"-e", &text, &"--recording", &recording]);
    check(&said, &Plan::read(&plan_file));

    // Nested ones by thread alone, too: the same events, the same spans, the same histogram.
    let file = planned.program.display();
    for (begin, end) in [("rec__entry", "rec__return"), ("slow__start", "slow__done")] {
        let text = format!("latency(usdt:{file}:plan:{begin}, usdt:{file}:plan:{end}, tid)");
        let by_script = answer(&[&"run", &"--json", &"-e", &text, &"--recording", &recording]);
        let by_verb = answer(&[
            &"latency",
            &format!("plan:{begin}"),
            &format!("plan:{end}"),
            &"--json",
            &"--recording",
            &recording,
        ]);
        let (ours, row) = (of_map(&by_script, &format!("@{begin}_to_{end}")), &by_verb["rows"][0]);
        for (name, column) in [("count", "count"), ("max", "max_ns")] {
            assert_eq!(ours[name], row[column], "{begin}: {by_script} {by_verb}");
        }
        for (name, column) in [("p50", "p50_ns"), ("p90", "p90_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns")]
        {
            let (ours, theirs) = (number(&ours[name]), number(&row[column]));
            assert!(ours.abs_diff(theirs) * 64 <= theirs, "{begin} {name}: {ours} {theirs}");
        }
        for key in ["unmatched", "unmatched_why"] {
            assert_eq!(by_script[key], by_verb[key], "{begin}");
        }
    }
}

/// As many spans are too slow as the program says were.
#[test]
fn a_trigger_pairs_as_every_answer_does() {
    let planned = Planned::new("spans-trigger");
    let (plan, recording) = (planned.plan_file(), planned.dir.join("rec"));
    let said = answer(&[
        &"record",
        &"--trigger",
        &"latency(slow) > 1.525ms",
        &"-o",
        &recording,
        &"--json",
        &"--door",
        &"user",
        &"--",
        &planned.program,
        &plan,
    ]);
    let plan = Plan::read(&plan);
    let longer =
        |ns: u64, of: fn(&(u64, u64)) -> u64| plan.slow.values().filter(|slow| of(slow) > ns).count() as u64;
    let (least, most) = (longer(1_526_000, |slow| slow.0), longer(1_524_000, |slow| slow.1));
    let triggered = number(&said["triggered"]);
    assert!(least > 0 && (least..=most).contains(&triggered), "{triggered} not in {least}..={most}: {said}");
    assert_eq!(said["complete"], true, "{said}");
}

struct Paced {
    program: PathBuf,
    dir: PathBuf,
}

const SLOW_MS: &str = "400";

impl Paced {
    fn new(name: &str) -> Paced {
        Paced { program: build("paced", &["paced.c"], Build::Pie), dir: scratch(name) }
    }

    /// Starts it; it waits for [`Paced::go`].
    fn start(&self, slow_ms: &str) -> Running {
        let _ = fs::remove_file(self.dir.join("go"));
        Running::start(
            Command::new(&self.program).arg(self.dir.join("plan")).arg(self.dir.join("go")).arg(slow_ms),
        )
    }

    fn go(&self) {
        fs::write(self.dir.join("go"), "").expect("the file can be made");
    }
}

/// The ids of events of one probe, in their order.
fn ids(events: &[Value], name: &str) -> Vec<u64> {
    let is_it = |event: &&Value| event["name"] == name;
    events.iter().filter(is_it).map(|event| number(&event["args"]["arg0"])).collect()
}

/// The dump has the slow span, what happened within it and what led to it.
#[track_caller]
fn check_dump(events: &[Value]) {
    for name in ["step__start", "mark", "step__done"] {
        let ids = ids(events, name);
        assert!(ids.contains(&999), "{name}: {ids:?}");
        assert!((100..150).all(|id| ids.contains(&id)), "{name}: {ids:?}");
    }
}

#[test]
fn a_recording_has_what_led_to_a_slow_span_and_no_more() {
    let paced = Paced::new("spans-flight");
    paced.go();
    let record = |out: &Path, slow_ms: &str| {
        let (plan, go) = (paced.dir.join("plan"), paced.dir.join("go"));
        let arguments: [&dyn AsRef<OsStr>; 19] = [
            &"record",
            &"--trigger",
            &"latency(pace:step) > 350ms",
            &"--before",
            &"1500ms",
            &"--after",
            &"100ms",
            &"-e",
            &"pace:*",
            &"-o",
            &out,
            &"--json",
            &"--door",
            &"user",
            &"--",
            &paced.program,
            &plan,
            &go,
            &slow_ms,
        ];
        // One time in thirty the heap lies where the only jump of a site would land, and the site is not opened.
        let mut said = answer(&arguments);
        for _ in 0..4 {
            if number(&said["sites"]["user"]) == 3 {
                break;
            }
            assert_eq!(said["complete"], false, "{said}");
            fs::remove_dir_all(out).expect("the recording is there");
            said = answer(&arguments);
        }
        let planned = fs::read_to_string(&plan).expect("a plan").trim().parse::<u64>().expect("a number");
        (said, planned)
    };
    let slow = paced.dir.join("slow");
    let (said, planned) = record(&slow, SLOW_MS);
    assert!(planned >= 1 && number(&said["triggered"]) >= planned, "{said}");
    assert_eq!(said["complete"], true, "{said}");
    let text = nopal_tests::run(Command::new(nopal()).args(["view", "--json"]).arg(&slow));
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(number(&said["events"]), events.len() as u64);
    check_dump(&events);
    // The groups before and after are two seconds away; a machine that halts may make one of their spans slow, too.
    if number(&said["triggered"]) == 1 {
        for name in ["step__start", "mark", "step__done"] {
            let mut ids = ids(&events, name);
            ids.sort_unstable();
            assert_eq!(ids, (100..150).chain([999]).collect::<Vec<u64>>(), "{name}");
        }
    }
    // Fast ones alone are nothing to keep.
    let fast = paced.dir.join("fast");
    let (said, _) = record(&fast, "0");
    if number(&said["triggered"]) == 0 {
        assert_eq!((number(&said["events"]), &said["complete"]), (0, &true.into()), "{said}");
    }
}

#[test]
fn a_session_keeps_what_led_to_a_slow_span() {
    let (paced, place) = (Paced::new("spans-session"), Place::new("slow-spans"));
    let snapshots = || {
        let names = fs::read_dir(place.out()).into_iter().flatten().map(|e| e.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        names.filter(|name| name.contains("trigger")).collect::<Vec<String>>()
    };
    place.create(&["--snapshot", "--trigger", "latency(pace:step) > 350ms"]);
    place.nopal(&["enable-event", "-u", "pace:*"]);
    let fast = paced.start("0");
    place.nopal(&["track", "-u", "-p", &fast.pid().to_string()]);
    place.nopal(&["start"]);
    paced.go();
    wait_until("the fast one ends", 120, || paced.dir.join("plan").exists());
    drop(fast);
    place.nopal(&["stop"]);
    assert_eq!(snapshots(), [""; 0], "fast spans alone make no dump");

    let slow = paced.start(SLOW_MS);
    place.nopal(&["track", "-u", "-p", &slow.pid().to_string()]);
    place.nopal(&["start"]);
    paced.go();
    wait_until("the slow span makes a snapshot", 120, || !snapshots().is_empty());
    let path = place.out().join(&snapshots()[0]);
    wait_until("it is whole", 60, || ids(&place.events(&path), "step__done").contains(&999));
    check_dump(&place.events(&path));
    place.nopal(&["stop"]);
    drop(slow);
}
