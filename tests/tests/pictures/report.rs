//! `nopal report`, opened in a real Chromium: charts are drawn, the brush, sorting and zoom work, and the numbers are those
//! that the program planned and that other verbs give.

use crate::recorded::{planned, refusal, said, spans_file};
use nopal_tests::{nopal, root, run, scratch};
use nopal_trace::{EventType, Recording, RecordingInfo, Type};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a script that drives Chromium, which checks and fails by itself.
#[track_caller]
fn browse(script: &str, arguments: &[&dyn AsRef<OsStr>]) {
    let mut command = Command::new("python3");
    command.arg(root().join("tests/fixtures/readers").join(script));
    run(command.args(arguments.iter().map(AsRef::as_ref)));
}

#[track_caller]
fn report(recordings: &[&Path], to: &Path) -> Value {
    let mut command = Command::new(nopal());
    command.arg("report").args(recordings).arg("--spans").arg(spans_file()).arg("-o").arg(to).arg("--json");
    let answer: Value = serde_json::from_str(&run(&mut command)).expect("one object");
    assert_eq!(answer["bytes"], fs::metadata(to).unwrap().len(), "{answer}");
    answer
}

#[test]
fn one_recording_is_drawn_and_the_brush_filters_everything() {
    let folder = scratch("pictures-report");
    let page = folder.join("report.html");
    let answer = report(&[&planned().dir], &page);
    assert_eq!(answer["complete"], true, "{answer}");
    let spans = spans_file();
    browse("report_one.py", &[&page, &planned().plan, &nopal(), &planned().dir, &spans, &folder]);
}

#[test]
fn two_recordings_are_drawn_into_the_same_charts() {
    let folder = scratch("pictures-report-two");
    // A name that would be markup, were it not for text.
    let other = folder.join("we<b>ird & \"quoted\"");
    run(Command::new("cp").arg("-r").arg(&planned().dir).arg(&other));
    let page = folder.join("report.html");
    report(&[&planned().dir, &other], &page);
    browse("report_two.py", &[&page, &other.file_name().unwrap(), &folder]);
}

/// Requests of 1 ms each, of which some were lost between two times that are known.
fn lossy(dir: &Path) -> (u64, u64, u64) {
    let mut writer = Recording::create(dir, RecordingInfo::of_this_host()).unwrap();
    let ty = |name: &str| EventType::new("lossy", name).field("id", Type::unsigned(32));
    let (start, done) =
        (writer.add_event_type(ty("req__start")).unwrap(), writer.add_event_type(ty("req__done")).unwrap());
    let mut stream = writer.stream(0).unwrap();
    let base = nopal_trace::clock::monotonic_ns();
    let ns = |n: u64| base + n * 2_000_000;
    let lost = (200, 300, 77);
    for n in (0..500u64).filter(|n| *n < lost.0 || *n >= lost.1) {
        if n == lost.1 {
            stream.discarded(lost.2, ns(lost.0)..ns(lost.1) - 1).unwrap();
        }
        let payload = (n as u32).to_le_bytes();
        stream.append(start, ns(n), &[], &payload).unwrap();
        stream.append(done, ns(n) + 1_000_000, &[], &payload).unwrap();
    }
    stream.finish().unwrap();
    lost
}

#[test]
fn losses_are_drawn_where_they_happened() {
    let folder = scratch("pictures-report-lossy");
    let (recording, page) = (folder.join("rec"), folder.join("report.html"));
    let (from, to, count) = lossy(&recording);
    let answer = report(&[&recording], &page);
    assert_eq!(
        (&answer["complete"], &answer["lost"]),
        (&Value::from(false), &Value::from(count)),
        "{answer}"
    );
    let share = |n: u64| (n as f64 / 499.5).to_string();
    browse("report_lossy.py", &[&page, &share(from), &share(to), &count.to_string(), &folder]);
}

#[test]
fn a_recording_of_nothing_has_a_page_that_says_so() {
    let folder = scratch("pictures-report-empty");
    let (recording, page) = (folder.join("rec"), folder.join("report.html"));
    let mut writer = Recording::create(&recording, RecordingInfo::of_this_host()).unwrap();
    writer.add_event_type(EventType::new("nothing", "ever")).unwrap();
    writer.stream(0).unwrap().finish().unwrap();
    let answer = report(&[&recording], &page);
    assert_eq!((&answer["events"], &answer["spans"]), (&Value::from(0), &Value::from(0)), "{answer}");
    browse("report_empty.py", &[&page, &folder]);
}

#[test]
fn what_cannot_be_reported_is_said() {
    let folder = scratch("pictures-report-refused");
    let there = folder.join("there.html");
    fs::write(&there, "mine").unwrap();
    let (words, _) = refusal(&[&"report", &planned().dir, &"-o", &there]);
    assert!(words.contains("is there already"), "{words}");
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    let new = folder.join("new.html");
    let (words, _) = refusal(&[&"report", &planned().dir, &"-o", &new, &"--span", &"nothing"]);
    assert!(words.contains("no span is called `nothing`"), "{words}");
    let (words, _) = refusal(&[&"report", &planned().dir, &"-o", &"/no/such/page.html"]);
    assert!(words.contains("there is no folder /no/such") && !Path::new("/no/such").exists(), "{words}");
    let (words, _) = refusal(&[&"report", &folder, &"-o", &new]);
    assert!(words.contains("nopal:"), "{words}");
    assert!(!new.exists());
    let text = said(&[&"report", &planned().dir, &"-o", &new, &"--json", &"--until", &"0"]);
    assert!(text.contains("\"events\":0"), "{text}");
}
