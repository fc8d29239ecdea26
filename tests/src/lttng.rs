//! LTTng beside nopal: our headers and library as a program finds them, and LTTng's own tracer, kept to itself.

use crate::{lab, root, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with `include`, `lib` and `lib/pkgconfig`, as `tracee/nopal-lttng/install` makes it.
pub fn installed() -> PathBuf {
    lab::cached("lttng", &ingredients(), |folder| {
        run(Command::new(root().join("tracee/nopal-lttng/install")).arg(folder));
    })
}

/// Everything that goes into a program built with our headers.
pub fn ingredients() -> Vec<Vec<u8>> {
    let mut files = vec![root().join("include/sys/sdt-config.h")];
    for folder in ["include/lttng", "tracee/nopal-lttng"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        files.extend(entries.map(|entry| entry.expect("it can be listed").path()));
    }
    files.sort();
    files.iter().map(|file| fs::read(file).expect("the file can be read")).collect()
}

/// Flags for programs with our headers, and for those with LTTng's own.
pub fn ours() -> Vec<String> {
    let folder = installed();
    vec![
        format!("-I{}", folder.join("include").display()),
        format!("-L{}", folder.join("lib").display()),
        "-llttng-ust".into(),
        "-ldl".into(),
        "-lm".into(),
    ]
}

pub fn theirs() -> Vec<String> {
    ["-llttng-ust", "-llttng-ust-common", "-ldl", "-lm"].map(str::to_owned).to_vec()
}

/// Runs `programs` while LTTng records all events of the named providers into `dir/recording`.
pub fn record(dir: &Path, providers: &[&str], programs: &str) -> PathBuf {
    record_with(dir, "", &[], providers, programs)
}

/// The same through a channel that is made with these options and has these contexts.
pub fn record_with(
    dir: &Path,
    channel: &str,
    contexts: &[&str],
    providers: &[&str],
    programs: &str,
) -> PathBuf {
    let recording = dir.join("recording");
    let enable: String = providers
        .iter()
        .map(|provider| format!("lttng enable-event -u -c channel '{provider}:*'\n"))
        .collect();
    let contexts: String =
        contexts.iter().map(|name| format!("lttng add-context -u -c channel -t {name}\n")).collect();
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
lttng create all --output '{recording}'
lttng enable-channel -u {channel} channel
{enable}{contexts}lttng start
{programs}
lttng stop
lttng destroy all
"#,
        dir = dir.display(),
        recording = recording.display(),
    );
    let path = dir.join("record.sh");
    fs::write(&path, script).expect("the script can be written");
    // SAFETY: getuid cannot fail and changes nothing.
    let is_root = unsafe { libc::getuid() } == 0;
    let mut shell = if is_root { Command::new("unshare") } else { Command::new("bash") };
    if is_root {
        shell.args(["--mount", "bash"]);
    }
    run(shell.arg(&path));
    recording
}

/// The events of a recording as babeltrace2 prints them, `provider:name: { fields }`, without time, host and context.
pub fn events(recording: &Path) -> Vec<String> {
    let output = Command::new("babeltrace2").arg(recording).output().expect("babeltrace2 can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(event).collect()
}

/// `[time] (+delta) host provider:name: { cpu_id = 0 }, { vpid = 1, vtid = 1 }, { fields }`; LTTng has no second group.
fn event(line: &str) -> String {
    let (_, rest) = line.split_once(") ").unwrap_or_else(|| panic!("a line of babeltrace2: {line}"));
    let (_, rest) = rest.split_once(' ').unwrap_or_else(|| panic!("a host: {line}"));
    let (name, rest) = rest.split_once(": { ").unwrap_or_else(|| panic!("a context: {line}"));
    let (_, mut fields) = rest.split_once(" }, ").unwrap_or_else(|| panic!("fields: {line}"));
    if fields.starts_with("{ vpid = ") {
        fields = fields.split_once(" }, ").unwrap_or_else(|| panic!("fields: {line}")).1;
    }
    format!("{name}: {fields}")
}
