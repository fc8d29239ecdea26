//! `nopal view` on recordings made by the library: what it selects, counts and prints, what it needs of memory, and how it
//! ends when it is interrupted or nobody reads on.

use super::recording::{START_NS, info, output, view, write_every_type};
use nopal_tests::{nopal, run, scratch};
use nopal_trace::{EventType, Recording, Type};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn view_selects_counts_and_prints_json() {
    let dir = scratch("recording-view");
    let mut writer = Recording::create(&dir, info()).unwrap();
    write_every_type(&mut writer);
    let lines = |options: &[&str]| {
        let out = view(&dir, options).stdout;
        String::from_utf8_lossy(&out).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for (pattern, count) in
        [("every:floats", 11), ("every:*", 46), ("floats", 11), ("every", 46), ("*:?one", 1)]
    {
        assert_eq!(lines(&[pattern]).len(), count, "{pattern}");
    }
    assert_eq!(lines(&["every:floats", "none"]).len(), 12);
    assert_eq!(lines(&["--limit", "5"]).len(), 5);
    assert_eq!(lines(&["--limit", "0"]).len(), 0);
    let counted = lines(&["--count"]);
    assert_eq!(counted.first().unwrap().trim(), "13  every:ints");
    assert_eq!(counted.last().unwrap(), "46  total");
    // The times are 1,234 ns apart, the first at 1,234.
    let (from, to) = ("1794710005.000002468", "1794710005.000003702");
    assert_eq!(lines(&["--from", from, "--to", to]).len(), 2);
    assert_eq!(lines(&["--utc", "--from", "02:33:25.000002469"]).len(), 44);

    let json: Vec<serde_json::Value> =
        lines(&["--json"]).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json.len(), 46);
    let mixed = json.iter().find(|e| e["name"] == "mixed" && e["args"]["kind"] == "SOCKET").unwrap();
    assert_eq!(mixed["host"], "lab");
    assert_eq!(mixed["pid"], 4242);
    assert_eq!(mixed["cpu"], 1);
    assert_eq!(mixed["provider"], "every");
    assert_eq!(mixed["args"]["yes"], false);
    assert_eq!(mixed["args"]["inner"], serde_json::json!({ "x": 7, "name": "inside" }));
    assert_eq!(mixed["args"]["bools"], serde_json::json!([true, false]));
    assert_eq!(json[0]["ts"], 1_794_710_005_000_001_234u64);
    let strings: serde_json::Value = serde_json::from_str(&lines(&["--json", "--json-strings"])[10]).unwrap();
    assert_eq!(strings["ts"], "1794710005000013574");
    assert_eq!(strings["args"]["i64_false_10_false"], "18446744073709551615");
    assert_eq!(strings["args"]["i32_false_10_false"], 4_294_967_295u64);
}

#[test]
fn failures_name_their_cause_and_the_next_step() {
    let dir = scratch("recording-failures");
    let empty = dir.join("empty");
    fs::create_dir(&empty).unwrap();
    let damaged = dir.join("damaged");
    let mut writer = Recording::create(&damaged, info()).unwrap();
    write_every_type(&mut writer);
    let good = fs::read_to_string(damaged.join("metadata")).unwrap();
    let fail = |dir: &Path, options: &[&str]| {
        let out = output(Command::new(nopal()).arg("view").arg(dir).args(options));
        assert!(!out.status.success());
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let says = |(code, text): (Option<i32>, String), expected: &[&str]| {
        for part in expected {
            assert!(text.contains(part), "{part:?} in {text:?}");
        }
        code
    };
    says(fail(&dir.join("nowhere"), &[]), &["there is no", "nopal record"]);
    says(fail(&empty, &[]), &["is not a recording", "no metadata file"]);
    says(fail(&damaged, &["nosuch:*"]), &["no event of the recording matches `nosuch:*`", "every:ints"]);
    assert_eq!(says(fail(&damaged, &["--from", "noon"]), &["`noon` is not a time", "15:30:19.5"]), Some(2));
    let (_, text) = fail(&empty, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["error"]["code"], "not-a-recording");

    fs::write(damaged.join("metadata"), good.replacen("string _s;", "strung _s;", 1)).unwrap();
    let line = 1 + good[..good.find("string _s;").unwrap()].matches('\n').count();
    let place = format!("metadata:{line}:3: no type is named `strung`");
    says(fail(&damaged, &[]), &[&place]);
    fs::write(damaged.join("metadata"), "").unwrap();
    says(fail(&damaged, &[]), &["the metadata is empty"]);
}

fn write_many(dir: &Path, count: u64) {
    let mut writer = Recording::create(dir, info()).unwrap();
    let ty = writer.add_event_type(EventType::new("p", "n").field("a", Type::unsigned(64))).unwrap();
    let mut stream = writer.stream(0).unwrap();
    for n in 0..count {
        stream.append(ty, START_NS + n, &[], &n.to_le_bytes()).unwrap();
    }
    stream.finish().unwrap();
}

/// The peak memory of `nopal view`, in bytes.
#[expect(clippy::zombie_processes, reason = "wait4 reaps it, and tells what it used")]
fn peak_memory(dir: &Path, options: &[&str]) -> i64 {
    let child = Command::new(nopal())
        .arg("view")
        .args(options)
        .arg(dir)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage, the child is ours and nobody else waits for it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        usage
    };
    assert_eq!(status, 0);
    usage.ru_maxrss * 1024
}

#[test]
fn memory_does_not_grow_with_the_recording() {
    let dir = scratch("recording-memory");
    let (small, large) = (dir.join("small"), dir.join("large"));
    write_many(&small, 200_000);
    write_many(&large, 4_000_000);
    let size = fs::metadata(large.join("channel0_0")).unwrap().len() as i64;
    assert!(size > 40_000_000);
    for options in [&[][..], &["--json"], &["--count"]] {
        let grown = peak_memory(&large, options) - peak_memory(&small, options);
        assert!(grown < 8 << 20, "{options:?}: {grown} bytes more for a recording of {size}");
    }
}

#[test]
fn an_interrupt_ends_with_a_whole_line_and_a_word_about_it() {
    let dir = scratch("recording-interrupt");
    write_many(&dir, 1_000_000);
    let mut child = Command::new(nopal())
        .arg("view")
        .arg(&dir)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Its output pipe is full after the first lines, so it is in the middle of its work.
    let mut first = [0; 64];
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stdout, &mut rest).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    assert_eq!(rest.last(), Some(&b'\n'));
    assert!(rest.iter().filter(|b| **b == b'\n').count() < 999_999);
    assert!(String::from_utf8_lossy(&out.stderr).contains("interrupted after"));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let dir = scratch("recording-pipe");
    write_many(&dir, 100_000);
    let shell = format!("set -o pipefail; {} view {} | head -n 2", nopal().display(), dir.display());
    let out = output(Command::new("bash").args(["-c", &shell]));
    assert!(out.status.success());
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(run(Command::new("bash").args(["-c", &shell])).lines().count(), 2);
}
