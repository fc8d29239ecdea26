//! Recordings that are no ordinary ones: still being written, left behind by a recorder that was killed, of hosts whose clocks
//! differ. Every verb gives the events that are there and says what it does not know.

use crate::recorded::{output, planned, said, spans_file};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const COUNT: &str = "SELECT count(*) AS n FROM events";

#[track_caller]
fn answer(arguments: &[&dyn AsRef<OsStr>]) -> Value {
    serde_json::from_str(&said(arguments)).expect("one object")
}

/// Events by `query`, and whether it calls the recording complete.
#[track_caller]
fn counted(recording: &Path) -> (u64, bool) {
    let answer = answer(&[&"query", &recording, &COUNT, &"--json"]);
    (answer["rows"][0]["n"].as_u64().expect("a number"), answer["complete"].as_bool().expect("yes or no"))
}

/// `query`, `report`, `export` and `diff` have all events and none of them says complete.
#[track_caller]
fn all_verbs_are_honest(recording: &Path, n_events: u64, folder: &Path, what: &str) {
    let spans = spans_file();
    assert_eq!(counted(recording), (n_events, false), "{what}");
    let page = folder.join(format!("{what}.html"));
    let report = answer(&[&"report", &recording, &"--spans", &spans, &"-o", &page, &"--json"]);
    assert_eq!((&report["events"], &report["complete"]), (&n_events.into(), &false.into()), "{report}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("still at work") && text.contains("\"complete\":false"), "{what}");
    let table = folder.join(format!("{what}.csv"));
    let export = answer(&[&"export", &recording, &"--to", &"csv", &"-o", &table, &"--json"]);
    assert_eq!((&export["events"], &export["complete"]), (&n_events.into(), &false.into()), "{export}");
    assert_eq!(fs::read_to_string(&table).unwrap().lines().count() as u64, n_events + 1, "{what}");
    let diff = answer(&[&"diff", &planned().dir, &recording, &"--spans", &spans, &"--json"]);
    assert_eq!(diff["complete"], false, "{diff}");
    // What is missing might have broken a rule that nothing breaks so far.
    let rule =
        output(&[&"diff", &planned().dir, &recording, &"--spans", &spans, &"--fail-if", &"count > +900%"]);
    assert_eq!(rule.status.code(), Some(4), "{what}: {rule:?}");
    // The program planned the same spans as in the recording that is whole.
    let rows = diff["rows"].as_array().unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row["count"]["before"] == row["count"]["after"]),
        "{diff}"
    );
}

#[test]
fn what_is_there_of_a_recording_is_read_while_it_is_written_and_after_its_recorder_was_killed() {
    let folder = scratch("pictures-unfinished");
    let (recording, over) = (folder.join("rec"), folder.join("over"));
    let (n_events, is_complete) = counted(&planned().dir);
    assert!(is_complete && n_events > 1000);
    // One program says all it has to say and ends, the other waits: the recorder goes on.
    let program = build("spans", &["spans.c"], Build::Pie);
    let start = |plan: &str, go: &Path| {
        Running::start(Command::new(&program).arg(folder.join(plan)).arg(go).stdout(Stdio::null()))
    };
    let go = folder.join("go");
    let (speaks, waits) = (start("plan", &go), start("other", &over));
    let said = folder.join("said");
    let mut record = Command::new(nopal());
    record.args(["record", "-e", "plan:*", "--provider"]).arg(root().join("tests/fixtures/targets/spans.d"));
    for process in [&speaks, &waits] {
        record.args(["-p", &process.pid().to_string()]);
    }
    record.arg("-o").arg(&recording).stderr(fs::File::create(&said).unwrap()).stdout(Stdio::null());
    let mut recorder = Running::start(&mut record);
    wait_until("sites are open", 100, || fs::read_to_string(&said).unwrap().contains("sites: "));
    fs::write(&go, "").unwrap();
    let is_there = || {
        let output =
            Command::new(nopal()).arg("query").arg(&recording).args([COUNT, "--csv"]).output().unwrap();
        output.status.success() && String::from_utf8_lossy(&output.stdout) == format!("n\r\n{n_events}\r\n")
    };
    wait_until("all events are in the files", 100, is_there);
    all_verbs_are_honest(&recording, n_events, &folder, "written");
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    all_verbs_are_honest(&recording, n_events, &folder, "killed");
    fs::write(&over, "").unwrap();
}

/// A copy of the planned recording, as of a host whose clock is so many nanoseconds ahead.
fn ahead(folder: &Path, host: &str, ns: i64) -> std::path::PathBuf {
    let copy = folder.join(host);
    run(Command::new("cp").arg("-r").arg(&planned().dir).arg(&copy));
    let metadata = fs::read_to_string(copy.join("metadata")).unwrap();
    let between = |text: &str, before: &str, after: &str| {
        text.split(before).nth(1).and_then(|rest| rest.split(after).next()).expect("it is there").to_owned()
    };
    let (offset, name) = (between(&metadata, "offset = ", ";"), between(&metadata, "hostname = \"", "\""));
    let later = offset.parse::<i64>().unwrap() + ns;
    let changed = metadata
        .replace(&format!("offset = {offset};"), &format!("offset = {later};"))
        .replace(&format!("hostname = \"{name}\""), &format!("hostname = \"{host}\""));
    fs::write(copy.join("metadata"), changed).unwrap();
    copy
}

/// The bases of the recordings of a page, since the epoch.
fn bases(page: &Path) -> Vec<i64> {
    let text = fs::read_to_string(page).unwrap();
    let data = text.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: Value = serde_json::from_str(data).expect("the data of the page");
    let sides = data["sides"].as_array().unwrap();
    sides.iter().map(|side| side["base"].as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn clocks_of_hosts_that_differ_are_taken_as_they_are() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let folder = scratch("pictures-clocks");
    let (near, far) = (ahead(&folder, "near", 1_000_000), ahead(&folder, "far", HOUR_NS));
    let sql = "SELECT host, min(ts) AS first, max(ts) AS last, count(*) AS n FROM events GROUP BY host";
    let answer = answer(&[&"query", &planned().dir, &near, &far, &sql, &"--json"]);
    let rows = answer["rows"].as_array().unwrap();
    let of = |host: &str| rows.iter().find(|row| row["host"] == host).unwrap_or_else(|| panic!("{answer}"));
    let here = rows.iter().find(|row| row["host"] != "near" && row["host"] != "far").expect("the real one");
    for (host, ns) in [("near", 1_000_000), ("far", HOUR_NS)] {
        for column in ["first", "last"] {
            assert_eq!(of(host)[column].as_i64().unwrap() - here[column].as_i64().unwrap(), ns, "{answer}");
        }
        assert_eq!(of(host)["n"], here["n"], "{answer}");
    }
    // All spans of all hosts are there: nothing is paired across hosts, though the processes have the same numbers.
    let sql = "SELECT host, count(*) AS n FROM spans GROUP BY host";
    let spans = spans_file();
    let text = said(&[&"query", &planned().dir, &near, &far, &sql, &"--csv", &"--spans", &spans]);
    let counts: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').nth(1)).collect();
    assert!(counts.len() == 3 && counts.iter().all(|n| *n == counts[0]), "{text}");
    let page = folder.join("report.html");
    said(&[&"report", &planned().dir, &near, &far, &"--spans", &spans, &"-o", &page, &"--json"]);
    let bases = bases(&page);
    assert_eq!((bases[1] - bases[0], bases[2] - bases[0]), (1_000_000, HOUR_NS));
}
