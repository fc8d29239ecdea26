//! Recordings whose recorder was killed at any moment: babeltrace2 and `nopal view` read what there is.

use nopal_tests::{nopal, scratch};
use nopal_trace::{EventType, Recording, RecordingInfo, Type};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

const START_NS: u64 = 5_000_000_000;
const PAGE_BYTES: u64 = 4096;

/// Every packet lies in several pages.
fn write_until_killed(dir: &Path, n_types: usize) {
    let mut info = RecordingInfo::of_this_host();
    info.packet_bytes = 40_000;
    info.n_event_types = n_types;
    let mut writer = Recording::create(dir, info).unwrap();
    let mut types = Vec::new();
    for n in 0..n_types {
        let ty = EventType::new("p", format!("event_{n}"))
            .field("count", Type::unsigned(64))
            .field("text", Type::String);
        types.push(writer.add_event_type(ty).unwrap());
    }
    let mut stream = writer.stream(0).unwrap();
    let mut ns = START_NS;
    loop {
        ns += 100;
        let ty = types[ns as usize / 100 % n_types];
        stream
            .append_with(ty, ns, &[], |payload| {
                payload.unsigned(64, ns).string(&b"some text of any length"[..ns as usize % 23]);
            })
            .unwrap();
        if ns.is_multiple_of(70_000) {
            stream.discarded(1, ns + 1..ns + 2).unwrap();
        }
    }
}

/// This test binary again, as the recorder of a test.
fn recorder(test: &str, limit_bytes: u64, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = nopal_tests::test_name(module_path!(), test);
    command.args(["--exact", &test, "--nocapture"]).env("NOPAL_TEST_LIMIT", limit_bytes.to_string());
    command.env("NOPAL_TEST_DIR", dir);
    command
}

/// In the recorder: writes until a file has as many bytes as it may have, which kills it.
fn be_recorder() -> bool {
    let Some(limit) = std::env::var("NOPAL_TEST_LIMIT").ok().and_then(|text| text.parse().ok()) else {
        return false;
    };
    let dir = std::env::var_os("NOPAL_TEST_DIR").unwrap();
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls take valid arguments. At the limit the kernel ends a write early and kills who goes on.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        assert_eq!(libc::setrlimit(libc::RLIMIT_CORE, &no_core), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    write_until_killed(Path::new(&dir), 20);
    true
}

fn lines(out: &Output) -> usize {
    out.stdout.iter().filter(|byte| **byte == b'\n').count()
}

/// How many events both readers find.
#[track_caller]
fn events_in(dir: &Path) -> usize {
    let theirs = Command::new("babeltrace2").arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&theirs.stderr);
    assert!(theirs.status.success(), "{said}");
    let ours = Command::new(nopal()).arg("view").arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&ours.stderr);
    assert!(ours.status.success(), "{said}");
    assert!(!said.contains("ends within"), "{said}");
    assert_eq!(lines(&ours), lines(&theirs));
    lines(&ours)
}

#[test]
fn a_recorder_killed_at_any_page_leaves_a_recording() {
    if be_recorder() {
        return;
    }
    let mut most = 0;
    for n_pages in 1..24 {
        let dir = scratch(&format!("killed-at-page-{n_pages}"));
        let test = "a_recorder_killed_at_any_page_leaves_a_recording";
        let out = recorder(test, n_pages * PAGE_BYTES, &dir).output().unwrap();
        assert_eq!(out.status.signal(), Some(libc::SIGXFSZ), "{}", String::from_utf8_lossy(&out.stdout));
        let is_recording = dir.join("metadata").exists();
        let n_events = if is_recording { events_in(&dir) } else { 0 };
        assert!(n_events >= most, "{n_events} of {most} at {n_pages} pages");
        most = n_events;
    }
    assert!(most > 1000, "{most}");
}

#[test]
fn a_recorder_killed_at_any_moment_leaves_a_recording() {
    if be_recorder() {
        return;
    }
    for n in 0..12u64 {
        let dir = scratch(&format!("killed-{n}"));
        let test = "a_recorder_killed_at_any_moment_leaves_a_recording";
        let mut child = recorder(test, 1 << 30, &dir).stdout(std::process::Stdio::null()).spawn().unwrap();
        let stream = dir.join("channel0_0");
        let is_there = || fs::metadata(&stream).is_ok_and(|metadata| metadata.len() > n * 100_000);
        while !is_there() {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        events_in(&dir);
    }
}
