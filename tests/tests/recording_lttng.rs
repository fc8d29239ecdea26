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
