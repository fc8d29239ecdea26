//! Recordings of which streams were removed, or are there twice: they are not called complete, whatever part is asked for.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const N_HITS: u64 = 3000;

/// A recording of a program on each of two CPUs.
fn recorded(dir: &Path) -> PathBuf {
    let (out, counter, go) = (dir.join("out"), dir.join("counter"), dir.join("go"));
    fs::write(&counter, [0; 8]).unwrap();
    let program = build("counted", &["counted.c"], Build::Pie);
    let steps = [format!("wait:{}", go.display()), format!("fire:{N_HITS}:20")];
    let start = |cpu: &str| {
        let mut command = Command::new("taskset");
        Running::start(command.args(["-c", cpu]).args([&program, &counter]).args(&steps))
    };
    let mut targets = ["0", "1"].map(start);
    let is_there = |target: &Running| {
        fs::read_link(format!("/proc/{}/exe", target.pid())).is_ok_and(|exe| exe == program)
    };
    wait_until("both are there", 30, || targets.iter().all(is_there));
    let mut record = Command::new(nopal());
    record.args(["record", "-v", "-e", "counted:hit", "-o"]).arg(&out);
    targets.iter().for_each(|target| _ = record.args(["-p", &target.pid().to_string()]));
    let said = dir.join("said");
    let mut record = Running::start(record.stderr(fs::File::create(&said).unwrap()));
    wait_until("both are open", 60, || fs::read_to_string(&said).unwrap().contains("sites: 2 "));
    fs::write(&go, "").unwrap();
    targets.iter_mut().for_each(|target| assert!(target.0.wait().unwrap().success()));
    assert!(record.0.wait().unwrap().success());
    out
}

/// How many events of a part there are, and whether nothing is said to be missing.
fn counted(recording: &Path, part: &[&str]) -> (u64, bool) {
    let mut view = Command::new(nopal());
    view.arg("view").arg(recording).args(["--count", "--json"]).args(part);
    let output = view.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    (last["total"].as_u64().unwrap(), last["complete"].as_bool().unwrap())
}

fn copied(from: &Path, name: &str) -> PathBuf {
    let to = from.with_file_name(name);
    run(Command::new("cp").arg("-a").args([from, &to]));
    to
}

fn streams(recording: &Path) -> Vec<String> {
    let entries = fs::read_dir(recording).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.contains('_'))
        .collect();
    names.sort();
    names
}

#[test]
fn whatever_part_is_asked_for_a_stream_that_was_removed_or_copied_is_missed() {
    let dir = scratch("recording-tampered");
    let whole = recorded(&dir);
    let names = streams(&whole);
    assert!(names.len() >= 2, "{names:?}");
    // The time of an event in the middle, as it is shown.
    let text = run(Command::new(nopal()).arg("view").arg(&whole));
    let middle = text.lines().nth(N_HITS as usize).unwrap();
    let time = middle.split(['[', ']']).nth(1).unwrap();
    let parts: [&[&str]; 3] = [&[], &["--from", time], &["--to", time]];
    let all: Vec<u64> = parts
        .iter()
        .map(|part| {
            let (n, is_complete) = counted(&whole, part);
            assert!(is_complete && n > 0, "{part:?}: {n}");
            n
        })
        .collect();
    assert_eq!(all[0], 2 * N_HITS);
    assert!(all[1] + all[2] > all[0] - 2 && all[1] < all[0] && all[2] < all[0], "{all:?}");
    for (at, name) in names.iter().enumerate() {
        let removed = copied(&whole, &format!("removed-{at}"));
        fs::remove_file(removed.join(name)).unwrap();
        let _ = fs::remove_file(removed.join(format!("index/{name}.idx")));
        let twice = copied(&whole, &format!("twice-{at}"));
        fs::copy(twice.join(name), twice.join("another")).unwrap();
        for part in parts {
            assert!(!counted(&removed, part).1, "{name} removed, {part:?}");
            assert!(!counted(&twice, part).1, "{name} twice, {part:?}");
        }
    }
}
