//! Answers made of spans that come by different doors, whose clocks differ.

use super::answers::{answer, told};
use nopal_tests::asking::{counts, number};
use nopal_tests::scratch;
use nopal_tests::targets::{Build, build};
use serde_json::Value;
use std::ffi::OsStr;

const ROUNDS: u64 = 3000;

fn is_told(said: &Value) -> bool {
    let notes = said["notes"].as_array().expect("notes");
    notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("self times are in doubt")))
}

/// Each span is one door's, so that counts and durations are right. Which lies within which is not known, and only a tree
/// depends on that.
#[test]
fn only_nesting_is_in_doubt_where_each_span_has_one_door() {
    let program = build("twokinds", &["twokinds.c"], Build::Pie);
    let recording = scratch("answers-two-kinds").join("rec");
    let rounds = ROUNDS.to_string();
    let ask = |words: &[&str]| {
        let mut arguments: Vec<&dyn AsRef<OsStr>> =
            words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let rest: [&dyn AsRef<OsStr>; 5] = [&"--json", &"-v", &"--", &program, &rounds];
        arguments.extend(rest);
        told(&arguments)
    };
    let check = |said: &Value| {
        assert_eq!(
            (&said["complete"], &said["unordered"], &said["unmatched"]),
            (&true.into(), &0.into(), &0.into()),
            "{said}"
        );
        let counts = counts(said, "span");
        assert_eq!((counts["kinds:outer"], counts["kinds:inner"]), (ROUNDS, ROUNDS), "{said}");
        assert!(number(&said["nesting_in_doubt"]) > 0 && is_told(said), "{said}");
    };
    let (said, words) = ask(&["latency", "outer", "inner"]);
    assert!(words.contains("2 user door, 2 kernel door"), "{words}");
    check(&said);
    check(&ask(&["top"]).0);
    // One span lies in nothing that was asked for.
    let (said, _) = ask(&["latency", "outer"]);
    assert_eq!((&said["nesting_in_doubt"], is_told(&said)), (&0.into(), false), "{said}");
    let (said, _) = ask(&["tree", "outer"]);
    assert!(said["complete"] == false && number(&said["unordered"]) > 0, "{said}");

    let arguments: [&dyn AsRef<OsStr>; 9] =
        [&"record", &"-e", &"kinds:*", &"-o", &recording, &"--json", &"--", &program, &rounds];
    assert_eq!(answer(&arguments)["complete"], true);
    check(&answer(&[&"latency", &"outer", &"inner", &"--json", &"--recording", &recording]));
}
