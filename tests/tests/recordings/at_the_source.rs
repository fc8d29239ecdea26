//! Spans that the traced program itself pairs and adds up. What must come out is what it planned.

use crate::answers::{Plan, Planned, answer};
use nopal_tests::asking::{Asked, counts, number};
use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, scratch};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// Spans that stubs pair and add up have the same numbers as those that are streamed, by either door.
#[test]
fn planned_spans_at_the_source() {
    let planned = Planned::new("answers-source");
    let spans = Planned::file("spans.toml");
    let kinds = ["outer", "inner", "slow", "lost"];
    for (words, way) in [
        (&["--door", "user"][..], "spans: kept at the source"),
        (&["--door", "user", "--slowest", "0"], "spans: kept at the source"),
        (&["--door", "user", "--streamed"], "spans: streamed, as --streamed"),
        (&["--door", "user", "--streamed", "--slowest", "0"], "spans: streamed, as --streamed"),
        (&["--door", "kernel"], "spans: streamed, as the kernel door streams"),
        (&["--door", "user", "--min", "1ns"], "spans: kept at the source"),
        (&["--door", "user", "--every", "1s"], "spans: streamed, as --every"),
    ] {
        let (said, words, plan) =
            planned.ask_about(&spans, &[&["latency", "-v"][..], &kinds, words].concat());
        assert!(words.contains(way), "{words}");
        plan.check_kinds(&said, &kinds, true);
    }
    let (said, words, plan) =
        planned.ask_about(&spans, &[&["top", "-v"][..], &kinds, &["--door", "user"]].concat());
    assert!(words.contains("spans: kept at the source"), "{words}");
    plan.check_kinds(&said, &kinds, true);
    for more in [&["--streamed"][..], &[]] {
        let words = ["latency", "slow", "--slowest", "7", "--door", "user"];
        let (said, plan) = planned.ask(&[&words[..], more].concat());
        plan.check_slowest(&said, 7);
        for slow in said["slowest"].as_array().expect("a list") {
            assert!(number(&slow["self_ns"]) == number(&slow["duration_ns"]), "{slow}");
        }
    }
}

/// A number of begin or end tells spans apart where they happen; those there is no room for are told apart here.
#[test]
fn spans_are_grouped_at_the_source() {
    let planned = Planned::new("answers-source-by");
    let own = planned.dir.join("own.toml");
    let spans = "[spans.'plan:rec']\nbegin = 'rec__entry'\nend = 'rec__return'\n\
                 [spans.'plan:outer']\nbegin = 'outer__start'\nend = 'outer__done'\n";
    fs::write(&own, spans).unwrap();
    for (more, is_kept) in [(&[][..], true), (&["--streamed"], false)] {
        let ask = |words: &[&str]| {
            let (said, _, plan) = planned.ask_about(&own, &[words, &["--door", "user"], more].concat());
            assert_eq!(
                (&said["kept_at_source"], &said["complete"]),
                (&is_kept.into(), &true.into()),
                "{said}"
            );
            (said, plan)
        };
        // As spans.c has it: of the begin; each id is within itself as often as it says.
        let (said, plan) = ask(&["latency", "inner", "--by", "id", "--slowest", "2"]);
        let ids = (0..3u64).flat_map(|thread| (0..200).map(move |i| thread * 1000 + i));
        let mut expected: HashMap<String, u64> =
            ids.filter(|id| id % 4 > 0).map(|id| (id.to_string(), id % 4)).collect();
        (0..5u64).for_each(|id| *expected.entry(id.to_string()).or_default() += 1);
        assert_eq!(counts(&said, "id"), expected);
        let [count, _, low, high, ..] = plan.kinds["inner"];
        let total: u64 =
            said["rows"].as_array().expect("rows").iter().map(|row| number(&row["total_ns"])).sum();
        let slack = count * 500 + high / 1000;
        assert!(low <= total + slack && total <= high + slack, "{total} not in {low}..{high}");
        let max = said["rows"].as_array().expect("rows").iter().map(|row| number(&row["max_ns"])).max();
        let slowest = said["slowest"].as_array().expect("a list");
        assert_eq!((slowest.len(), max), (2, slowest.first().map(|slow| number(&slow["duration_ns"]))));
        // Of the end, with a sign; what fails does not end here.
        let (said, _) = ask(&["latency", "outer", "--by", "status"]);
        let ids = (0..3u64).flat_map(|thread| (0..200).map(move |i| thread * 1000 + i));
        let is_bad = |id: &u64| id % 10 == 3;
        let (bad, good): (Vec<u64>, Vec<u64>) = ids.filter(|id| id % 7 != 5).partition(is_bad);
        let expected =
            [("-1", bad.len() as u64), ("0", good.len() as u64 + 1)].map(|(k, n)| (k.to_owned(), n));
        assert_eq!(counts(&said, "status"), HashMap::from(expected), "{said}");
        let (said, _) = ask(&["latency", "rec", "--by", "end.depth"]);
        let depths = counts(&said, "end.depth");
        // In each of 3 threads 20 calls, of depths 0 to 4 below each other; 4 more have 99.
        assert_eq!((depths["0"], depths["99"]), (60, 4), "{said}");
    }
    let (said, _) = planned.ask(&["latency", "outer", "--by", "status", "--door", "user"]);
    assert_eq!(said["kept_at_source"], false, "a failure has no status: {said}");
    let (said, _) = planned.ask(&["latency", "took", "--by", "name", "--door", "user"]);
    assert_eq!(said["kept_at_source"], false, "{said}");
}

/// Of spans within each other the outermost counts, and of all those between two bounds of time.
#[test]
fn the_outermost_and_bounds_are_decided_at_the_source() {
    let planned = Planned::new("answers-source-outermost");
    let own = planned.dir.join("own.toml");
    fs::write(&own, "[spans.'plan:rec']\nbegin = 'rec__entry'\nend = 'rec__return'\noutermost = true\n")
        .unwrap();
    for (more, is_kept) in [(&[][..], true), (&["--streamed"], false)] {
        let words = [&["latency", "rec", "--door", "user"][..], more].concat();
        let (said, _, plan) = planned.ask_about(&own, &words);
        assert_eq!((&said["kept_at_source"], &said["complete"]), (&is_kept.into(), &true.into()), "{said}");
        // As spans.c has it: 20 in each of 3 threads; what is left by an exception in the main thread never ends.
        let open = number(&said["unmatched_why"]["not_ended"]);
        assert_eq!(
            (number(&said["rows"][0]["count"]), open, number(&said["unmatched"])),
            (60, 1, 1),
            "{said}"
        );
        assert!(plan.kinds["rec"][0] > 60, "they lie within each other");

        let words =
            [&["latency", "slow", "--min", "525us", "--max", "1025us", "--door", "user"][..], more].concat();
        let (said, plan) = planned.ask(&words);
        assert_eq!((&said["kept_at_source"], &said["complete"]), (&is_kept.into(), &true.into()), "{said}");
        let (least, most) = (525_000, 1_025_000);
        let sure = plan.slow.values().filter(|(low, high)| *low > least && *high < most).count() as u64;
        let possible = plan.slow.values().filter(|(low, high)| *high >= least && *low <= most).count() as u64;
        let count = number(&said["rows"][0]["count"]);
        assert!(sure <= count && count <= possible && possible < 40, "{sure} {count} {possible}");
        let is_within = |slow: &Value| (least..=most).contains(&number(&slow["duration_ns"]));
        assert!(said["slowest"].as_array().expect("a list").iter().all(is_within), "{said}");
    }
}

/// Conditions on fields are decided where the spans end, by the fields of both ends.
#[test]
fn conditions_are_decided_at_the_source() {
    let planned = Planned::new("answers-source-where");
    // As spans.c has it: every tenth ends with a status, every seventh by its failure, which has none.
    let ids = || (0..3i64).flat_map(|thread| (0..200).map(move |i| thread * 1000 + i)).chain([100_000]);
    let status = |id: i64| (id % 7 != 5 || id == 100_000).then_some(if id % 10 == 3 { -1 } else { 0 });
    type Holds = fn(i64, Option<i64>) -> bool;
    let cases: [(&str, Holds); 6] = [
        ("status == -1", |_, status| status == Some(-1)),
        ("id >= 1000 && status == 0", |id, status| id >= 1000 && status == Some(0)),
        ("!(status == 0)", |_, status| status != Some(0)),
        ("id < 50 || id == 100000 || status < 0", |id, status| {
            id < 50 || id == 100_000 || status == Some(-1)
        }),
        ("end.id == 7", |id, _| id == 7),
        ("id != 7 && status", |id, status| id != 7 && status == Some(-1)),
    ];
    for (condition, holds) in cases {
        let counted: Vec<i64> = ids().filter(|id| holds(*id, status(*id))).collect();
        let n_errors = counted.iter().filter(|id| status(**id) != Some(0)).count();
        for (more, is_kept) in [(&[][..], true), (&["--streamed"], false)] {
            let words = ["latency", "outer", "--where", condition, "--door", "user"];
            let (said, plan) = planned.ask(&[&words[..], more].concat());
            assert_eq!(
                (&said["kept_at_source"], &said["complete"]),
                (&is_kept.into(), &true.into()),
                "{said}"
            );
            let outer = &said["rows"][0];
            assert_eq!(
                (number(&outer["count"]), number(&outer["errors"])),
                (counted.len() as u64, n_errors as u64),
                "{condition}: {said}"
            );
            // What does not count has its partner all the same.
            let [ends, begins, open] = plan.unmatched["outer"];
            assert_eq!(number(&said["unmatched"]), ends + begins + open, "{said}");
            let slowest = said["slowest"].as_array().expect("a list");
            assert!(
                slowest.iter().all(|slow| slow["span"] != "plan:outer"
                    || counted.contains(&(number(&slow["args"]["id"]) as i64))),
                "{said}"
            );
        }
    }
    // What a program cannot compare itself is streamed.
    let (said, _) = planned.ask(&["latency", "outer", "--where", "id & 1", "--door", "user"]);
    assert_eq!(said["kept_at_source"], false, "{said}");
    let n_odd = ids().filter(|id| id % 2 == 1).count() as u64;
    assert_eq!(number(&said["rows"][0]["count"]), n_odd);
    assert!(
        said["streamed_because"].as_str().is_some_and(|why| why.contains("--where is about more")),
        "{said}"
    );
}

/// A command keeps its spans at the source from its first instruction on, its forked children with it. Where a site is the
/// kernel door's by chance, it is started again before it has run, and streamed.
#[test]
fn a_command_keeps_its_spans_at_the_source() {
    let planned = Planned::new("answers-source-command");
    let kinds = ["outer", "inner", "slow", "lost"];
    let mut n_kept = 0;
    for _ in 0..20 {
        let (said, words, plan) =
            planned.ask_about(&Planned::file("spans.toml"), &[&["latency", "-v"][..], &kinds].concat());
        plan.check_kinds(&said, &kinds, true);
        match said["kept_at_source"].as_bool() {
            Some(true) => {
                assert!(words.contains("spans: kept at the source"), "{words}");
                assert_eq!(said["streamed_because"], Value::Null, "{said}");
                n_kept += 1;
                break;
            }
            _ => {
                let why = said["streamed_because"].as_str().expect("a reason");
                assert!(why.starts_with("the user door does not open each site of plan:"), "{why}");
                assert!(words.contains("kernel door"), "the kernel door has none: {words}");
            }
        }
    }
    assert_eq!(n_kept, 1, "never kept");
    // What begins without the probes is not known yet to have them by one door.
    let (provider, plan) = (Planned::file("spans.d"), planned.plan_file());
    let spans = planned.dir.join("own.toml");
    fs::write(&spans, "[spans.'plan:inner']\nbegin = 'inner__start'\nend = 'inner__done'\n").unwrap();
    let _ = fs::remove_file(&plan);
    let arguments: [&dyn AsRef<OsStr>; 13] = [
        &"latency",
        &"plan:inner",
        &"--slowest",
        &"0",
        &"--spans",
        &spans,
        &"--json",
        &"--provider",
        &provider,
        &"--",
        &"env",
        &planned.program,
        &plan,
    ];
    let said = answer(&arguments);
    assert_eq!(said["kept_at_source"], false, "{said}");
    let why = said["streamed_because"].as_str().expect("a reason");
    assert!(why.contains("begins without plan:inner__start"), "{why}");
}

/// What has not set up its first thread when it is held is streamed: not one span is missing.
#[test]
fn a_static_command_is_streamed() {
    for how in [Build::Static, Build::StaticPie] {
        let program = build("spans", &["spans.c"], how);
        let plan = scratch("answers-static").join("plan");
        let provider = Planned::file("spans.d");
        let words: [&dyn AsRef<OsStr>; 9] =
            [&"latency", &"inner", &"slow", &"--json", &"--provider", &provider, &"--", &program, &plan];
        let said = answer(&words);
        assert_eq!(said["kept_at_source"], false, "{said}");
        let why = said["streamed_because"].as_str().expect("a reason");
        assert!(why.contains("is linked statically"), "{why}");
        // Where a site is the kernel door's, it is not known what came first.
        if number(&said["unordered"]) == 0 {
            Plan::read(&plan).check_kinds(&said, &["inner", "slow"], true);
        }
    }
}

/// A command that is not kept at the source after all has not run before it is streamed.
#[test]
fn a_command_runs_once() {
    let (program, dir) = (build("twodoors", &["twodoors.c"], Build::Pie), scratch("answers-runs-once"));
    let log = dir.join("log");
    let said = Command::new(nopal())
        .args(["latency", "two:begin", "two:end", "--slowest", "0", "--json", "--"])
        .arg(&program)
        .args(["100", "2000"])
        .env("TWODOORS_LOG", &log)
        .output()
        .expect("nopal can be run");
    let object: Value = serde_json::from_slice(&said.stdout).expect("an object");
    assert_eq!(object["kept_at_source"], false, "{object}");
    assert_eq!(object["streamed_because"], "the user door does not open each site of two:end", "{object}");
    assert_eq!(number(&object["rows"][0]["count"]), 100);
    assert_eq!(fs::read_to_string(&log).expect("it has run"), "run\n");
}

/// What a program that is running already does, with threads and forked children.
#[test]
fn a_running_program_keeps_its_spans_at_the_source() {
    let planned = Planned::new("answers-source-attach");
    let (provider, plan, go) = (Planned::file("spans.d"), planned.plan_file(), planned.dir.join("go"));
    let target = Running::start(Command::new(&planned.program).arg(&plan).arg(&go));
    let mut command = Command::new(nopal());
    command.args(["latency", "inner", "slow", "lost", "--json", "-v", "--door", "user"]);
    command.args(["-p", &target.pid().to_string()]).arg("--provider").arg(&provider);
    let tracer = Asked::start(&mut command);
    fs::write(&go, "").expect("the file can be made");
    let said = tracer.in_the_end();
    Plan::read(&plan).check_kinds(&said, &["inner", "slow", "lost"], true);
}
