//! Recordings in the Common Trace Format 2, beside the LTTng and the babeltrace2 of a newer Debian: what LTTng writes is read,
//! what nopal writes is read there, and both print the same. Their programs are unpacked and run in a folder of their own.

use nopal_tests::{debian, lttng, nopal, root, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// babeltrace2 2.1 and LTTng 2.16 with all that they are linked with.
const PACKAGES: [&str; 24] = [
    "babeltrace2",
    "libatomic1",
    "libbabeltrace2-0",
    "libbz2-1.0",
    "libc6",
    "libdw1t64",
    "libelf1t64",
    "libgcc-s1",
    "libglib2.0-0t64",
    "libkmod2",
    "liblttng-ctl0t64",
    "liblttng-ust-common1t64",
    "liblttng-ust-ctl6",
    "liblttng-ust1t64",
    "liblzma5",
    "libnuma1",
    "libpcre2-8-0",
    "libpopt0",
    "libssl3t64",
    "libstdc++6",
    "liburcu8t64",
    "libxml2-16",
    "libzstd1",
    "lttng-tools",
];

/// The folder in which the newer programs find themselves as the whole system, with `/w` for the test's own.
fn newer() -> PathBuf {
    let packages = [&PACKAGES[..], &["zlib1g"]].concat();
    let root = debian::programs("sid", &packages);
    for folder in ["proc", "dev", "run", "w", "root", "etc", "var"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (link, to) in [("lib", "usr/lib"), ("lib64", "usr/lib64"), ("bin", "usr/bin"), ("var/run", "/run")] {
        let _ = std::os::unix::fs::symlink(to, root.join(link));
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
    root
}

/// Runs a script in which `in_newer COMMAND` is one of those programs; `dir` is its `/w`.
fn script(dir: &Path, text: &str) -> String {
    let whole = format!(
        "set -e
root='{}'
mount --bind /proc $root/proc; mount --bind /dev $root/dev; mount -t tmpfs none $root/dev/shm
mount --bind '{}' $root/w; mount -t tmpfs none $root/run; mkdir $root/run/lttng
export HOME=/root LTTNG_HOME=/root
in_newer() {{ chroot $root \"$@\"; }}
{text}",
        newer().display(),
        dir.display()
    );
    run(Command::new("unshare").args(["--mount", "sh", "-c", &whole]))
}

/// What the newer babeltrace2 prints of a recording in `dir`.
fn theirs(dir: &Path, name: &str) -> String {
    let text = script(dir, &format!("in_newer /usr/bin/babeltrace2 /w/{name}"));
    assert!(!text.is_empty(), "{name}");
    text
}

fn build(dir: &Path, name: &str, flags: &[String]) {
    let source = root().join("tests/fixtures/lttng_fields");
    let mut compiler = Command::new("gcc");
    compiler.arg("-I").arg(&source).arg("-o").arg(dir.join(name));
    run(compiler.args([source.join("fields.c"), source.join("messages.c")]).args(flags));
}

#[test]
fn what_newer_lttng_writes_and_what_is_written_for_it_read_the_same() {
    let dir = scratch("recording-newer");
    build(&dir, "theirs", &lttng::theirs());
    build(&dir, "ours", &lttng::ours());
    script(
        &dir,
        "in_newer /usr/bin/lttng-sessiond --daemonize --no-kernel --pidfile /run/pid
trap 'kill $(cat $root/run/pid)' EXIT
in_newer /usr/bin/lttng create newer --output /w/by-lttng
in_newer /usr/bin/lttng enable-event -u 'fields:*'
in_newer /usr/bin/lttng enable-event -u 'lttng_ust_trace*:*'
in_newer /usr/bin/lttng add-context -u -t vpid -t procname -t vuid -t net_ns
in_newer /usr/bin/lttng start
in_newer /w/theirs
in_newer /usr/bin/lttng stop
in_newer /usr/bin/lttng destroy newer",
    );
    let view = |name: &str| run(Command::new(nopal()).arg("view").arg(dir.join(name)));
    let printed = view("by-lttng");
    assert_eq!(printed, theirs(&dir, "by-lttng"));
    assert!(printed.contains("net_ns = ") && printed.lines().count() > 70, "{printed}");

    let record = |name: &str, version: &str| {
        let mut command = Command::new(nopal());
        command.args(["record", "-e", "fields:*", "-e", "lttng_ust_trace*:*", "--ctf", version]);
        command.args(["--context", "procname,ip", "-o"]).arg(dir.join(name));
        run(command.arg("--").arg(dir.join("ours")));
    };
    record("two", "2");
    assert_eq!(view("two"), theirs(&dir, "two"));
    // What was recorded in the older format, exported.
    record("one", "1.8");
    run(Command::new(nopal())
        .args(["export", "--to", "ctf2"])
        .arg(dir.join("one"))
        .arg("-o")
        .arg(dir.join("again")));
    assert_eq!(view("again"), theirs(&dir, "again"));
    assert_eq!(view("again").lines().count(), view("one").lines().count());
}
