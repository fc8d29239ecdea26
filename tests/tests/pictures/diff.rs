//! `nopal diff`: values are those of `nopal latency`, rules end with a code of their own.

use crate::recorded::{output, planned, refusal, said, spans_file};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::process::Command;

fn row<'a>(answer: &'a Value, span: &str) -> &'a Value {
    let rows = answer["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["span"] == span).unwrap_or_else(|| panic!("no {span}: {answer}"))
}

#[test]
fn the_same_recording_twice_does_not_differ() {
    let (recording, spans) = (&planned().dir, spans_file());
    let text = said(&[
        &"diff",
        recording,
        recording,
        &"--spans",
        &spans,
        &"--json",
        &"--fail-if",
        &"p99 > +0%",
        &"--fail-if",
        &"count < -1%",
    ]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    let text = said(&[
        &"latency",
        &"outer",
        &"inner",
        &"rec",
        &"job",
        &"slow",
        &"took",
        &"lost",
        &"--recording",
        recording,
        &"--spans",
        &spans,
        &"--json",
    ]);
    let latency: Value = serde_json::from_str(&text).unwrap();
    for theirs in latency["rows"].as_array().unwrap() {
        let ours = row(&answer, theirs["span"].as_str().unwrap());
        for (metric, column) in [
            ("count", "count"),
            ("errors", "errors"),
            ("p50", "p50_ns"),
            ("p99", "p99_ns"),
            ("max", "max_ns"),
        ] {
            for side in ["before", "after"] {
                assert_eq!(ours[metric][side].as_f64(), theirs[column].as_f64(), "{metric} {side} {ours}");
            }
        }
        let interval = ours["p50"]["interval"].as_array().unwrap();
        assert!(interval[0].as_f64().unwrap() <= 0.0 && interval[1].as_f64().unwrap() >= 0.0, "{ours}");
    }
    assert_eq!(answer["complete"], true, "{answer}");
}

#[test]
fn what_is_new_and_what_has_vanished_is_told_and_rules_are_kept() {
    let folder = scratch("pictures-diff");
    let less = folder.join("less");
    let mut record = Command::new(nopal());
    record.args(["record", "-e", "plan:took", "-e", "plan:slow*", "--provider"]);
    record.arg(root().join("tests/fixtures/targets/spans.d")).arg("-o").arg(&less);
    run(record.arg("--").arg(build("spans", &["spans.c"], Build::Pie)).arg(folder.join("plan")));
    let (recording, spans) = (&planned().dir, spans_file());
    let answer: Value =
        serde_json::from_str(&said(&[&"diff", recording, &less, &"--spans", &spans, &"--json"])).unwrap();
    assert_eq!(row(&answer, "plan:outer")["vanished"], true);
    // The planned durations of `took` are the same in every run.
    let took = row(&answer, "plan:took");
    assert_eq!(
        (&took["mean"]["percent"], &took["p90"]["percent"]),
        (&Value::from(0.0), &Value::from(0.0)),
        "{took}"
    );
    let reverse = said(&[&"diff", &less, recording, &"--spans", &spans]);
    assert!(
        reverse.contains("plan:outer  new") && reverse.contains("event plan:outer__start new: "),
        "{reverse}"
    );
    let by = said(&[&"diff", recording, &less, &"--spans", &spans, &"--span", &"took", &"--by", &"name"]);
    assert!(by.contains("plan:took  read") && by.contains("plan:took  write"), "{by}");

    let rule = |rule: &str| output(&[&"diff", recording, &less, &"--spans", &spans, &"--fail-if", &rule]);
    let broken = rule("count < -50%");
    let words = String::from_utf8_lossy(&broken.stderr).into_owned();
    assert_eq!(broken.status.code(), Some(3), "{words}");
    assert!(words.contains("broken: plan:outer: count") && words.contains("-100.0 %"), "{words}");
    assert_eq!(rule("count > +50%").status.code(), Some(0));
    let (words, code) = refusal(&[&"diff", recording, &less, &"--fail-if", &"p98 > 3%"]);
    assert!(words.contains("not a rule: `p98 > 3%`") && code == 2, "{words}");
    let (words, code) = refusal(&[&"diff", recording, &less, &"--fail-if", &"p50 > +50"]);
    assert!(
        words.contains("not a rule: `p50 > +50`") && words.contains("`max > 5ms`") && code == 2,
        "{words}"
    );
    let (words, code) = refusal(&[&"diff", recording, &less, &"--spans", &spans, &"--by", &"nothing"]);
    assert!(words.contains("has no field `nothing`") && code == 1, "{words}");
}
