//! Recordings made by LTTng itself, with every field type of its manual: `nopal view` prints what babeltrace2 prints.

use nopal_tests::{nopal, root, run, scratch};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Builds the traced program and records it once: per-user buffers with and without context, and per-process buffers.
fn record(dir: &Path) {
    let source = root().join("tests/fixtures/lttng_fields");
    let program = dir.join("fields");
    run(Command::new("gcc")
        .arg("-I")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args([source.join("fields.c"), source.join("messages.c")])
        .args(["-llttng-ust", "-ldl", "-lm"]));
    let script = format!(
        r#"
set -euo pipefail
cd '{dir}'
# As root the daemon's sockets and buffers have fixed places, so they get a private view of those.
if [ "$(id -u)" = 0 ]; then
  mount -t tmpfs none /run; mkdir -p /run/lttng; mount -t tmpfs none /dev/shm
fi
export LTTNG_HOME='{dir}/home' HOME='{dir}/home'
mkdir -p "$LTTNG_HOME"
lttng-sessiond --daemonize --pidfile '{dir}/daemon.pid'
trap 'kill $(cat "{dir}/daemon.pid")' EXIT
lttng create per-user --output '{dir}/per-user'
lttng enable-channel -u plain
lttng enable-event -u -c plain 'fields:*'
lttng enable-event -u -c plain 'lttng_ust_tracef:*'
lttng enable-event -u -c plain 'lttng_ust_tracelog:*'
lttng enable-channel -u context
lttng enable-event -u -c context 'fields:*'
lttng add-context -u -c context -t vpid -t vtid -t procname -t ip -t pthread_id -t '$app.lab:here'
lttng start
./fields
lttng stop
lttng destroy per-user
lttng create per-process --output '{dir}/per-process'
lttng enable-channel -u --buffers-pid plain
lttng enable-event -u -c plain 'fields:*'
lttng start
./fields & ./fields
wait $!
lttng stop
lttng destroy per-process
"#,
        dir = dir.display()
    );
    let path = dir.join("record.sh");
    fs::write(&path, script).unwrap();
    // SAFETY: getuid cannot fail and changes nothing.
    let is_root = unsafe { libc::getuid() } == 0;
    let mut shell = if is_root { Command::new("unshare") } else { Command::new("bash") };
    if is_root {
        shell.args(["--mount", "bash"]);
    }
    run(shell.arg(&path));
}

#[test]
fn lttngs_own_recordings_read_the_same_in_babeltrace2() {
    let dir = scratch("recording-lttng");
    record(&dir);
    for (name, least) in [("per-user", 150), ("per-process", 150)] {
        let recording = dir.join(name);
        let theirs = Command::new("babeltrace2").arg(&recording).output().unwrap();
        let ours = Command::new(nopal()).arg("view").arg(&recording).output().unwrap();
        assert!(ours.status.success(), "{}", String::from_utf8_lossy(&ours.stderr));
        let lines = |bytes: &[u8]| -> Vec<String> {
            bytes.split(|b| *b == b'\n').map(|l| String::from_utf8_lossy(l).into_owned()).collect()
        };
        let (ours_lines, theirs_lines) = (lines(&ours.stdout), lines(&theirs.stdout));
        assert!(theirs_lines.len() > least, "{name}: {} lines", theirs_lines.len());
        for (a, b) in ours_lines.iter().zip(&theirs_lines) {
            assert_eq!(a, b, "{name}");
        }
        assert!(ours.stdout == theirs.stdout, "{name}: one of the two prints more");
        let said = String::from_utf8_lossy(&ours.stderr);
        assert!(said.contains("events, complete"), "{name}: {said}");

        let counted = run(Command::new(nopal()).args(["view", "--count"]).arg(&recording));
        let total = theirs_lines.iter().filter(|l| !l.is_empty()).count();
        assert!(counted.contains(&format!("{total}  total")), "{name}: {counted}");
        for line in run(Command::new(nopal()).args(["view", "--json"]).arg(&recording)).lines() {
            let event: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert!(event["ts"].is_u64() && event["args"].is_object(), "{line}");
        }
    }
    let text = run(Command::new(nopal()).arg("view").arg(dir.join("per-user")));
    for part in
        ["_lab_here_tag", "pthread_id = ", "( \"RANGE\", \"AUTO\" : container = 16 )", "msg = \"hello 3\""]
    {
        assert!(text.contains(part), "{part} is in the recording");
    }
}

/// Filters on the events of the program; LTTng says how many each lets through.
const FILTERS: [(&str, &str); 16] = [
    ("integers", "u64 == -1"),
    ("integers", "(u8 & 0xf0) == 0xf0 || u16 >> 8 == 255"),
    ("integers", "(i32 ^ 1) == -2 && ~u8 != 0"),
    ("integers", "-i8 == 1 || +i8 == 42"),
    ("integers", "!i8 && 1"),
    ("integers", "i8 == i64 && 100 > i8"),
    ("integers", "unwritten == 42 || n32 == -1"),
    ("integers", "$ctx.vpid == $ctx.vtid && $ctx.cpu_id >= 0 && i8 == 0"),
    ("integers", "$ctx.procname == \"fields*\" && i8"),
    ("floats", "d > 1e38 && d != 1e39"),
    ("texts", "sequence == \"hello*\" || sequence == \"a\""),
    ("texts", "array == \"hell\" || array == \"a\""),
    ("texts", "s == _underscore && \"*e*\" == s"),
    ("lists", "a[1] == -2 && s[0] == 1"),
    ("enums", "e > 10 && e < 15 || e == -3"),
    ("enums", "(e & 1) == 1 && !(ul == 1)"),
];

#[test]
fn filters_let_through_what_lttngs_do() {
    let dir = scratch("recording-filters");
    build(&dir.join("theirs"), &nopal_tests::lttng::theirs());
    build(&dir.join("ours"), &nopal_tests::lttng::ours());
    let (mut script, mut ours, mut recorders) = (String::new(), Vec::new(), Vec::new());
    for (n, (event, filter)) in FILTERS.iter().enumerate() {
        script += &format!(
            "lttng create f{n} --output '{0}/lttng-{n}'\nlttng enable-event -u 'fields:{event}' --filter '{filter}'\nlttng start\n",
            dir.display()
        );
        let recording = dir.join(format!("nopal-{n}"));
        let choice = format!("fields:{event} if {filter}");
        let recorder = Command::new(nopal())
            .args(["record", "-e", &choice, "-o"])
            .arg(&recording)
            .arg("--")
            .arg(dir.join("ours/fields"))
            .stderr(std::process::Stdio::null())
            .spawn();
        recorders.push(recorder.unwrap());
        ours.push(recording);
    }
    // Everything once more, which `nopal view` filters afterwards.
    script += &format!(
        "lttng create whole --output '{}/whole'\nlttng enable-event -u 'fields:*'\nlttng add-context -u -t vpid -t vtid -t procname\nlttng start\n",
        dir.display()
    );
    let end: String = (0..FILTERS.len()).map(|n| format!("lttng destroy f{n}\n")).collect();
    nopal_tests::lttng::record(
        &dir,
        &["nothing"],
        &format!("{script}theirs/fields\n{end}lttng destroy whole\nlttng set-session all"),
    );
    // One at a time they would mostly wait.
    recorders.iter_mut().for_each(|recorder| assert!(recorder.wait().unwrap().success()));
    let lines = |recording: &Path| {
        let out = Command::new("babeltrace2").arg(recording).output().unwrap();
        out.stdout.iter().filter(|byte| **byte == b'\n').count()
    };
    let mut n_all = 0;
    for (n, (event, filter)) in FILTERS.iter().enumerate() {
        let theirs = lines(&dir.join(format!("lttng-{n}")));
        assert_eq!(lines(&ours[n]), theirs, "fields:{event} if {filter}");
        n_all += theirs;
        let choice = format!("fields:{event} if {filter}");
        let view = |option| {
            let mut view = Command::new(nopal());
            view.arg("view").arg(dir.join("whole")).args([choice.as_str(), option]).output().unwrap()
        };
        let (counted, printed) = (view("--count"), view("--json"));
        let said = String::from_utf8_lossy(&counted.stderr).into_owned();
        if filter.contains("unwritten") {
            // It was there when it was traced, and is not in the recording.
            assert!(said.contains("the event has no argument `unwritten`"), "{said}");
            assert!(said.contains("its arguments are: i8, u8, "), "{said}");
            continue;
        }
        let counted = String::from_utf8_lossy(&counted.stdout).into_owned();
        assert!(counted.ends_with(&format!("{theirs}  total\n")), "{choice}: {theirs}, {counted}{said}");
        assert_eq!(printed.stdout.iter().filter(|byte| **byte == b'\n').count(), theirs, "{choice}");
    }
    assert!(n_all > FILTERS.len(), "{n_all}");
}

/// Builds the traced program in a new folder.
fn build(dir: &Path, flags: &[String]) {
    let source = root().join("tests/fixtures/lttng_fields");
    fs::create_dir(dir).unwrap();
    run(Command::new("gcc")
        .arg("-I")
        .arg(&source)
        .arg("-o")
        .arg(dir.join("fields"))
        .args([source.join("fields.c"), source.join("messages.c")])
        .args(flags));
}

#[test]
fn what_is_cut_is_told_and_a_filter_that_needed_it_lets_through() {
    let dir = scratch("recording-cuts");
    build(&dir.join("ours"), &nopal_tests::lttng::ours());
    // The events, and what `view` says of them.
    let record = |name: &str, max_bytes: &str, choice: &str| {
        let recording = dir.join(name);
        run(Command::new(nopal())
            .args(["record", "--max-string", max_bytes, "-e", choice, "-o"])
            .arg(&recording)
            .arg("--")
            .arg(dir.join("ours/fields")));
        let viewed = Command::new(nopal()).args(["view", "--json"]).arg(&recording).output().unwrap();
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let (events, said) =
            (String::from_utf8(viewed.stdout).unwrap(), String::from_utf8(viewed.stderr).unwrap());
        (events.lines().map(parse).collect::<Vec<_>>(), parse(said.lines().last().unwrap()))
    };
    let (whole, said) = record("whole", "256", "fields:texts");
    assert_eq!((&said["cut"], &said["undecided"]), (&0.into(), &0.into()), "{said}");
    // In bytes; what JSON makes of others than UTF-8 is longer, and they are long anyway.
    let is_long = |event: &&serde_json::Value| event["args"]["s"].as_str().unwrap().len() > 4;
    let n_long = whole.iter().filter(is_long).count();
    let (cut, said) = record("cut", "4", "fields:texts if s == \"*slash\"");
    assert_eq!((&said["undecided"], cut.len()), (&n_long.into(), n_long), "{said}");
    assert!(said["cut"].as_u64().unwrap() >= n_long as u64, "{said}");
    let (all, said) = record("enough", "256", "fields:texts if s == \"*slash\"");
    assert_eq!((&said["undecided"], all.len()), (&0.into(), 1), "{said}");
    // Where the beginning is enough it decides.
    let (hello, said) = record("beginning", "4", "fields:texts if s == \"hel*\"");
    assert_eq!((&said["undecided"], hello.len()), (&0.into(), 1), "{said}");
}
