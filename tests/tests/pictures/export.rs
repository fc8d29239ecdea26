//! `nopal export`, read back by the programs that the formats belong to.

use crate::recorded::{babeltrace, check, output, planned, refusal, said, spans_file};
use nopal_tests::scratch;
use std::fs;
use std::path::Path;

/// All formats of one recording, each in a file of its own.
fn export_all(folder: &Path) {
    let (recording, spans) = (&planned().dir, spans_file());
    for (format, table, file) in [
        ("csv", "events", "events.csv"),
        ("csv", "spans", "spans.csv"),
        ("json", "events", "events.json"),
        ("json", "spans", "spans.json"),
        ("parquet", "events", "events.parquet"),
        ("parquet", "spans", "spans.parquet"),
        ("chrome", "events", "chrome.json"),
        ("perfetto", "events", "perfetto.pftrace"),
        ("flamegraph", "events", "stacks.folded"),
        ("otlp-json", "events", "otlp.jsonl"),
    ] {
        let to = folder.join(file);
        let text = said(&[
            &"export", recording, &"--to", &format, &"--table", &table, &"--spans", &spans, &"-o", &to,
            &"--json",
        ]);
        let object: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(object["complete"], true, "{object}");
        assert_eq!(object["bytes"], fs::metadata(&to).unwrap().len(), "{format}");
    }
}

#[test]
fn every_format_says_what_the_program_planned() {
    let folder = scratch("pictures-export");
    export_all(&folder);
    babeltrace(&planned().dir, &folder.join("babeltrace.txt"));
    check("exports.py", &[&folder, &planned().plan]);
}

#[test]
fn events_can_be_chosen() {
    let recording = &planned().dir;
    let text = said(&[&"export", recording, &"--to", &"csv", &"-e", &"plan:took"]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("ts,host,cpu,pid,tid,provider,name,arg_name,us"));
    assert_eq!(lines.clone().count(), 100);
    assert!(lines.all(|line| line.contains(",plan,took,")), "{text}");
    // Standard output has the table alone.
    let whole = output(&[&"export", recording, &"--to", &"csv", &"-e", &"plan:took"]);
    assert!(String::from_utf8_lossy(&whole.stderr).contains("100 events"), "{whole:?}");
}

#[test]
fn what_cannot_be_exported_is_said() {
    let folder = scratch("pictures-export-refused");
    let recording = &planned().dir;
    let there = folder.join("there");
    fs::write(&there, "mine").unwrap();
    let (words, _) = refusal(&[&"export", recording, &"--to", &"csv", &"-o", &there]);
    assert!(words.contains("is there already"), "{words}");
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    let (words, code) = refusal(&[&"export", recording, &"--to", &"chrome", &"--table", &"spans"]);
    assert!(words.contains("--table is for csv, json and parquet") && code == 2, "{words}");
    let (words, _) = refusal(&[&"export", recording, &"--to", &"csv", &"-e", &"plan:nothing"]);
    assert!(words.contains("no event of the recording matches `plan:nothing`"), "{words}");
    let (words, _) = refusal(&[&"export", &folder, &"--to", &"csv"]);
    assert!(words.contains("nopal:"), "{words}");
    let new = folder.join("new");
    let (words, _) = refusal(&[&"export", recording, &"--to", &"chrome", &"--span", &"nothing", &"-o", &new]);
    assert!(words.contains("no span is called `nothing`"), "{words}");
    assert!(!new.exists());
    // A disk that is full.
    let (words, _) = refusal(&[&"export", recording, &"--to", &"csv", &"-o", &"/dev/full"]);
    assert!(words.contains("is there already"), "{words}");
}
