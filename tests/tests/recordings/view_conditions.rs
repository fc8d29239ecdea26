//! `nopal view RECORDING 'PROBE if CONDITION'`: over recordings whose events were planned here, in both versions of the format, one
//! and several at once. What LTTng's own filters let through is compared in `recording_lttng.rs`.

use nopal_tests::{nopal, root, run, scratch};
use nopal_trace::{EventType, Integer, RecordingInfo, RecordingWriter, Type, Version};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const N_EVENTS: i64 = 100;

/// Event `n` has the number n - 50, a text, a name for some numbers, and a list of n and 2 n.
fn record(dir: &Path, version: Version, provider: &str) {
    let info = RecordingInfo { version, ..RecordingInfo::of_this_host() };
    let mut writer = RecordingWriter::create(dir, info).unwrap();
    let ty = EventType::new(provider, "planned")
        .field("number", Type::signed(32))
        .field("text", Type::String)
        .field("kind", Type::enumeration(Integer::new(8, false), [("LOW", 0, 9), ("HIGH", 90, 99)]))
        .field("list", Type::sequence(Type::unsigned(16)))
        .field("ratio", Type::float(64));
    let ty = writer.add_event_type(ty).unwrap();
    let mut stream = writer.stream(0).unwrap();
    for n in 0..N_EVENTS {
        let fill = |out: &mut nopal_trace::Payload<'_>| {
            out.signed(32, n - 50).string(format!("key {n}").as_bytes()).unsigned(8, n as u64);
            out.count(2).unsigned(16, n as u64).unsigned(16, 2 * n as u64).float64(n as f64 / 10.0);
        };
        stream.append_with(ty, 1_000 * (n as u64 + 1), &[], fill).unwrap();
    }
    stream.finish().unwrap();
    drop(writer);
}

fn view(dirs: &[&Path], more: &[&str]) -> Output {
    Command::new(nopal()).arg("view").args(dirs).args(more).output().unwrap()
}

/// The numbers of the events, as they were printed.
fn numbers(dirs: &[&Path], choices: &[&str]) -> Vec<i64> {
    let out = view(dirs, &[choices, &["--json"]].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("\"complete\":true"), "{choices:?}: {said}");
    let number = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["args"]["number"].as_i64().unwrap()
    };
    String::from_utf8_lossy(&out.stdout).lines().map(number).collect()
}

#[test]
fn conditions_choose_the_planned_events() {
    type Plan = fn(i64) -> bool;
    let table: [(&str, Plan); 9] = [
        ("number > 20", |n| n - 50 > 20),
        ("number < 0 && number >= -3", |n| (-3..0).contains(&(n - 50))),
        ("text == \"key 9*\"", |n| n.to_string().starts_with('9')),
        ("text != 'key 7'", |n| n != 7),
        ("kind == HIGH || kind == \"LOW\"", |n| !(10..90).contains(&n)),
        ("list[1] == 84", |n| n == 42),
        ("list[2] == 0", |_| false),
        ("ratio >= 9.5", |n| n >= 95),
        ("arg0 & 1", |n| (n - 50) % 2 != 0),
    ];
    let dir = scratch("view-conditions");
    for (version, name) in [(Version::Ctf1, "one"), (Version::Ctf2, "two")] {
        let recording = dir.join(name);
        record(&recording, version, "plan");
        for (condition, is_planned) in table {
            let planned: Vec<i64> = (0..N_EVENTS).filter(|n| is_planned(*n)).map(|n| n - 50).collect();
            let choice = format!("plan:planned if {condition}");
            assert_eq!(numbers(&[&recording], &[&choice]), planned, "{name}: {condition}");
            let counted = view(&[&recording], &[&choice, "--count"]);
            let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
            assert!(counted.ends_with(&format!("{}  total\n", planned.len())), "{condition}: {counted}");
            let text = view(&[&recording], &[&choice]);
            let n_lines = text.stdout.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(n_lines, planned.len(), "{condition}");
        }
        // Any of several is enough, and a limit counts what is shown.
        let both = ["plan:* if number == 49", "plan:* if number == -50"];
        assert_eq!(numbers(&[&recording], &both), [-50, 49]);
        assert_eq!(numbers(&[&recording], &["plan:* if number > 0", "--limit", "2"]), [1, 2]);
    }
}

#[test]
fn exports_hold_the_planned_events() {
    let dir = scratch("export-conditions");
    let recording = dir.join("r");
    record(&recording, Version::Ctf1, "plan");
    let export = |arguments: &[&str]| {
        Command::new(nopal()).arg("export").arg(&recording).arg("--to").args(arguments).output().unwrap()
    };
    let choice = "plan:planned if number > 20 && text != 'key 90'";
    let planned: Vec<i64> = (-50..50).filter(|number| *number > 20 && *number != 40).collect();
    let said = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
    let csv = export(&["csv", "-e", choice]);
    let text = String::from_utf8_lossy(&csv.stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let column = lines.next().unwrap().iter().position(|name| name.ends_with("number")).unwrap();
    assert_eq!(lines.map(|line| line[column].parse::<i64>().unwrap()).collect::<Vec<_>>(), planned);
    assert!(said(&csv).starts_with(&format!("{} events; ", planned.len())), "{}", said(&csv));
    let json = export(&["json", "-e", choice]);
    assert_eq!(String::from_utf8_lossy(&json.stdout).lines().count(), planned.len(), "{}", said(&json));
    let chrome: serde_json::Value =
        serde_json::from_slice(&export(&["chrome", "-e", choice]).stdout).unwrap();
    let is_planned = |event: &&serde_json::Value| event["name"] == "plan:planned";
    let shown = chrome["traceEvents"].as_array().unwrap().iter().filter(is_planned);
    assert_eq!(shown.map(|event| event["args"]["number"].as_i64().unwrap()).collect::<Vec<_>>(), planned);
    for (arguments, error) in [
        (["otlp-json", "-e", choice], "a condition chooses events"),
        (["csv", "-e", "plan:* if $ctx.procname == 'x'"], "does not say `$ctx.procname`"),
        (["csv", "-e", "plan:* if size > 1"], "the event has no argument `size`"),
    ] {
        let out = export(&arguments);
        assert!(!out.status.success() && said(&out).contains(error), "{arguments:?}: {}", said(&out));
    }
}

/// What a condition asks of a text whose end was not recorded cannot be known, and is said.
#[test]
fn events_with_a_text_that_was_cut_are_told() {
    let dir = scratch("view-cut");
    let (source, program) = (dir.join("texts.c"), dir.join("texts"));
    let texts = ["short", "a text that goes on with one", "a text that goes on with two", "sixteen letters!"];
    // The program reads them itself: the kernel's way may find only what is in memory.
    let code = format!(
        "#include <nopal.h>\nint main(void) {{ static const char *const texts[] = {{ {:?}, {:?}, {:?}, {:?} }};\n\
         for (int i = 0; i < 4; i++) {{ const volatile char *read = texts[i]; (void)*read;\n\
         NOPAL_PROBE(texts, said, NOPAL_STR(text, texts[i])); }} return 0; }}\n",
        texts[0], texts[1], texts[2], texts[3]
    );
    fs::write(&source, code).unwrap();
    let include = root().join("include");
    run(Command::new("gcc").arg("-O1").arg("-I").arg(include).arg("-o").arg(&program).arg(&source));
    for door in ["user", "kernel"] {
        let recording = dir.join(door);
        run(Command::new(nopal())
            .args(["record", "--max-string", "16", "--door", door, "-e", "texts:*", "-o"])
            .arg(&recording)
            .arg("--")
            .arg(&program));
        // How many are shown, and of how many of them it is not known.
        for (condition, n_shown, n_undecided) in [
            ("text == 'short'", 1, 0),
            ("text == 'a text that goes on with two'", 2, 2),
            ("text != 'a text that goes on with two'", 4, 2),
            ("text == 'a text*'", 2, 0),
            ("text == 'sixteen letters'", 0, 0),
        ] {
            let choice = format!("texts:said if {condition}");
            for more in [&["--json"][..], &["--json", "--count"]] {
                let out = view(&[&recording], &[&[choice.as_str()], more].concat());
                let said = if more.len() > 1 { &out.stdout } else { &out.stderr };
                let said: serde_json::Value = serde_json::from_slice(said).unwrap();
                let n = said.get("total").unwrap_or(&said["events"]);
                let found = (n.as_u64(), said["undecided"].as_u64());
                assert_eq!(found, (Some(n_shown), Some(n_undecided)), "{door}: {condition}");
            }
            let to_csv = ["export", "--to", "csv", "-e", &choice, recording.to_str().unwrap()];
            let out = Command::new(nopal()).args(to_csv).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(said.contains(&format!("{n_shown} event")), "{door}: {condition}: {said}");
            assert_eq!(said.contains("too short to decide"), n_undecided > 0, "{door}: {condition}: {said}");
        }
    }
}

#[test]
fn several_recordings_are_one() {
    let dir = scratch("view-several");
    let (a, b) = (dir.join("a"), dir.join("b"));
    record(&a, Version::Ctf1, "plan");
    record(&b, Version::Ctf2, "other");
    assert_eq!(numbers(&[&a, &b], &["planned if number > 48"]), [49, 49]);
    assert_eq!(numbers(&[&a, &b], &["plan:* if number > 48", "other:* if number < -48"]), [-50, -49, 49]);
    assert_eq!(numbers(&[&a, &b], &[]).len(), 2 * N_EVENTS as usize);
    // Named twice it is not read twice.
    assert_eq!(numbers(&[&a, &a], &[]).len(), N_EVENTS as usize);
}

#[test]
fn what_does_not_fit_is_said_as_trace_says_it() {
    let dir = scratch("view-misfit");
    record(&dir.join("r"), Version::Ctf1, "plan");
    for (choice, code, said) in [
        ("plan:* if size > 1", 1, "in `size > 1` at column 1: the event has no argument `size`"),
        ("plan:* if text > 1", 1, "`text` is a string; compare it with a string in quotes"),
        ("plan:* if kind == 'MIDDLE'", 1, "`kind` is a number or one of LOW, HIGH"),
        ("plan:* if number[0] == 1", 1, "`number` has no elements"),
        ("plan:* if ", 1, "expected the name of an argument"),
        ("plam:* if number == 1", 1, "no event of the recording matches `plam:*`"),
        ("plan:* if $ctx.procname == 'x'", 1, "the recording does not say `$ctx.procname`"),
    ] {
        let out = view(&[&dir.join("r")], &[choice]);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{choice}: {error}");
        assert!(error.contains(said) && out.stdout.is_empty(), "{choice}: {error}");
    }
}
