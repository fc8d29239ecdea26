//! What sessions keep on disk: files of a limited size and number, rotation by size and by time, and clearing. The program
//! counts its hits, so that each event says which one it is.

use super::sessions_place::{AT_ONCE, Place, numbers, recorded};
use nopal_tests::process::wait_until;
use nopal_tests::{nopal, root, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FILE_BYTES: u64 = 64 << 10;
const N_FILES: usize = 3;
const NOBODY: u32 = 65534;

/// The files of each stream below a folder, with their sizes.
fn streams(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u64>>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() && name != "index" && name != "nopal" => streams(&path, found),
            // `channel0_1_12`: the first two are the stream's name.
            Ok(metadata) if metadata.is_file() && name.matches('_').count() == 2 => {
                let stream = path.with_file_name(name.rsplit_once('_').unwrap().0);
                found.entry(stream).or_default().push(metadata.len());
            }
            // A file may have been removed since.
            _ => {}
        }
    }
}

#[track_caller]
fn assert_bounded(place: &Place) {
    let mut found = BTreeMap::new();
    streams(&place.out(), &mut found);
    for (stream, sizes) in &found {
        assert!(sizes.len() <= N_FILES, "{stream:?}: {sizes:?}");
        assert!(sizes.iter().all(|size| *size <= FILE_BYTES), "{stream:?}: {sizes:?}");
    }
}

fn verdict(place: &Place) -> Value {
    let out = place.out();
    serde_json::from_str(&place.nopal(&["view", out.to_str().unwrap(), "--count", "--json"])).unwrap()
}

#[test]
fn only_the_newest_files_are_kept_and_what_went_is_told() {
    let place = Place::new("bounded");
    place.create(&[]);
    let refused = place.fails(2, &["enable-channel", "-u", "channel0", "--tracefile-count", "3"]);
    assert!(refused.contains("--tracefile-size"), "{refused}");
    let mut counter = recorded(&place, &["--tracefile-size", "64k", "--tracefile-count", "3"]);
    let n_hits = 20 * AT_ONCE;
    for _ in 0..n_hits / AT_ONCE {
        counter.hit_slowly(AT_ONCE);
        assert_bounded(&place);
    }
    let status = place.nopal(&["status", "s"]);
    assert!(status.contains("at most 3 files of 64.0 KiB a CPU"), "{status}");
    let stopped = place.nopal(&["stop", "--json"]);
    let stopped: Value = serde_json::from_str(&stopped).unwrap();
    assert_bounded(&place);

    let kept = numbers(&place, &place.out());
    assert!(!kept.is_empty() && (kept.len() as u64) < n_hits, "{}", kept.len());
    // The newest, without a hole.
    assert!(kept.iter().copied().eq(n_hits - kept.len() as u64..n_hits), "{kept:?}");
    let verdict = verdict(&place);
    let (complete, let_go, lost) = (&verdict["complete"], &verdict["let_go"], &verdict["lost"]);
    assert_eq!((complete, let_go.as_u64()), (&Value::Bool(false), Some(n_hits - kept.len() as u64)));
    assert_eq!(lost, 0);
    assert_eq!(stopped["events"], kept.len() as u64);
    assert_eq!((&stopped["complete"], &stopped["let_go"]), (complete, let_go));

    let view = place.output(&["view", "s"]);
    let said = String::from_utf8_lossy(&view.stderr);
    assert!(said.contains(&format!("{let_go} events, none later than ")), "{said}");
    assert!(said.contains("not complete: ") && said.contains("went with the oldest files"), "{said}");
    let theirs = run(Command::new("babeltrace2").arg(place.out()));
    assert_eq!(String::from_utf8_lossy(&view.stdout), theirs);
}

#[test]
fn files_that_are_all_kept_are_one_complete_recording() {
    let place = Place::new("many-files");
    place.create(&[]);
    let mut counter = recorded(&place, &["-C", "1"]);
    let n_hits = 5 * AT_ONCE;
    counter.hit_slowly(n_hits);
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains(", complete"), "{stopped}");
    let mut found = BTreeMap::new();
    streams(&place.out(), &mut found);
    assert!(found.values().any(|sizes| sizes.len() > 2), "{found:?}");
    assert!(numbers(&place, &place.out()).into_iter().eq(0..n_hits));
    assert!(place.is_complete());
    assert_eq!(place.nopal(&["view"]), run(Command::new("babeltrace2").arg(place.out())));
    // A file that somebody takes away is missed.
    let newest = fs::read_dir(place.out().join("chunk-1/channel0")).unwrap().flatten().map(|e| e.path());
    let newest = newest.filter(|path| path.is_file() && !path.ends_with("metadata")).max().unwrap();
    fs::remove_file(newest).unwrap();
    let view = place.output(&["view", "s"]);
    assert!(String::from_utf8_lossy(&view.stderr).contains("not complete"), "{view:?}");
}

#[test]
fn losses_are_counted_once_in_whichever_file_they_are() {
    let place = Place::new("files-losses");
    place.create(&[]);
    let channel = ["-C", "64k", "--subbuf-size", "16k", "--num-subbuf", "4", "--door", "user"];
    let mut counter = recorded(&place, &channel);
    let n_hits = 10 * 50_000;
    for _ in 0..10 {
        counter.hit(50_000);
        std::thread::sleep(Duration::from_millis(30));
    }
    place.nopal(&["stop"]);
    let n_kept = numbers(&place, &place.out()).len() as u64;
    let n_lost = verdict(&place)["lost"].as_u64().unwrap();
    assert!(n_lost > 0, "the ring was large enough for all");
    assert_eq!(n_kept + n_lost, n_hits);
    // babeltrace2 counts them on its own.
    let theirs = Command::new("babeltrace2").arg(place.out()).output().unwrap();
    let said = String::from_utf8_lossy(&theirs.stderr);
    let discarded = said.lines().filter_map(|line| {
        let (_, rest) = line.split_once("discarded ")?;
        rest.split(' ').next()?.parse::<u64>().ok()
    });
    assert_eq!(discarded.sum::<u64>(), n_lost, "{said}");
}

#[test]
fn lttngs_limited_files_are_read_as_babeltrace2_does_and_called_incomplete() {
    let dir = nopal_tests::scratch("lttng-limited");
    let source = root().join("tests/fixtures/lttng_fields");
    let program = dir.join("fields");
    run(Command::new("gcc")
        .arg("-I")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args([source.join("fields.c"), source.join("messages.c")])
        .args(["-llttng-ust", "-ldl", "-lm"]));
    let limits = "--subbuf-size=4096 --num-subbuf=64 --tracefile-size=8192 --tracefile-count=2";
    let programs = "for i in $(seq 40); do taskset -c 0 ./fields; done";
    let recording = nopal_tests::lttng::record_with(&dir, limits, &[], &["fields"], programs);
    let theirs = run(Command::new("babeltrace2").arg(&recording));
    let ours = Command::new(nopal()).arg("view").arg(&recording).output().unwrap();
    assert!(ours.status.success(), "{}", String::from_utf8_lossy(&ours.stderr));
    // Where a program comes a second time, babeltrace2 prints the text before for an empty one.
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.contains(" fields:texts: ")).map(str::to_owned).collect()
    };
    let (theirs, ours_lines) = (lines(&theirs), lines(&String::from_utf8_lossy(&ours.stdout)));
    assert!(theirs.len() > 50, "{theirs:?}");
    assert_eq!(ours_lines, theirs);
    let said = String::from_utf8_lossy(&ours.stderr);
    assert!(said.contains("not complete: ") && said.contains("went with the oldest files"), "{said}");
    assert!(!said.contains("lost"), "{said}");
}

/// The chunks of a session, by number.
fn chunks(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.out()).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut chunks: Vec<(u32, PathBuf)> = entries
        .filter_map(|path| {
            let number = path.file_name()?.to_str()?.strip_prefix("chunk-")?.parse().ok()?;
            Some((number, path))
        })
        .collect();
    chunks.sort();
    chunks.into_iter().map(|(_, path)| path).collect()
}

#[test]
fn a_session_rotates_by_size_and_by_time() {
    let place = Place::new("scheduled");
    place.create(&[]);
    place.fails(2, &["enable-rotation"]);
    place.fails(1, &["disable-rotation", "--size"]);
    place.nopal(&["enable-rotation", "--size", "100k"]);
    let mut counter = recorded(&place, &[]);
    let status = place.nopal(&["status", "s"]);
    assert!(status.contains("rotates   with 100.0 KiB"), "{status}");
    let mut n_hits = 0;
    wait_until("it has rotated by size", 60, || {
        counter.hit_slowly(AT_ONCE);
        n_hits += AT_ONCE;
        chunks(&place).len() > 2
    });
    place.nopal(&["disable-rotation", "--size"]);
    let n_by_size = chunks(&place).len();
    // Each that was archived has the size, and hardly more than what is written in a second.
    for chunk in &chunks(&place)[..n_by_size - 1] {
        let n_bytes: u64 = fs::read_dir(chunk.join("channel0"))
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap())
            .filter(fs::Metadata::is_file)
            .map(|metadata| metadata.len())
            .sum();
        assert!(n_bytes >= 100 << 10, "{chunk:?}: {n_bytes}");
    }
    counter.hit_slowly(10 * AT_ONCE);
    n_hits += 10 * AT_ONCE;
    assert_eq!(chunks(&place).len(), n_by_size);
    place.nopal(&["enable-rotation", "--timer", "200ms"]);
    wait_until("it has rotated by time", 60, || chunks(&place).len() > n_by_size + 2);
    place.nopal(&["disable-rotation", "--timer"]);
    counter.hit(AT_ONCE);
    n_hits += AT_ONCE;
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains(&format!("; {n_hits} events")) && stopped.contains(", complete"), "{stopped}");
    // Each event is in one chunk.
    assert!(numbers(&place, &place.out()).into_iter().eq(0..n_hits));
    assert_eq!(place.nopal(&["view"]), run(Command::new("babeltrace2").arg(place.out())));
}

#[test]
fn what_is_cleared_is_gone_and_the_session_goes_on() {
    let place = Place::new("clear");
    place.create(&[]);
    let mut counter = recorded(&place, &[]);
    counter.hit(10);
    place.nopal(&["rotate"]);
    counter.hit(20);
    place.nopal(&["clear"]);
    counter.hit(5);
    let stopped = place.nopal(&["stop"]);
    // Of the first ten, which a rotation has archived, and of what came afterwards.
    assert!(stopped.contains("; 15 events") && stopped.contains(", complete"), "{stopped}");
    let expected: Vec<u64> = (0..10).chain(30..35).collect();
    assert_eq!(numbers(&place, &place.out()), expected);
    assert_eq!(place.nopal(&["view"]), run(Command::new("babeltrace2").arg(place.out())));

    // Stopped, it loses what is not archived; all of it, though it was started twice.
    place.nopal(&["start"]);
    counter.hit(1);
    place.nopal(&["stop"]);
    place.nopal(&["clear", "--all"]);
    assert!(numbers(&place, &place.out()).into_iter().eq(0..10));
    place.nopal(&["start"]);
    counter.hit(2);
    let stopped = place.nopal(&["stop"]);
    assert!(stopped.contains("; 12 events") && stopped.contains(", complete"), "{stopped}");
    place.fails(10, &["clear", "another"]);
}

/// What another session has recorded in the same folder stays.
#[test]
fn what_an_older_session_left_is_not_cleared() {
    let place = Place::new("clear-older");
    place.create(&[]);
    let mut counter = recorded(&place, &[]);
    counter.hit(10);
    place.nopal(&["stop"]);
    place.nopal(&["destroy", "s"]);
    place.create(&[]);
    let mut other = recorded(&place, &[]);
    other.hit(3);
    place.nopal(&["clear"]);
    other.hit(2);
    place.nopal(&["stop"]);
    place.nopal(&["clear"]);
    assert!(numbers(&place, &place.out()).into_iter().eq(0..10));
}

/// Whoever can write the folder above may put a link in the place of the session's folder, at any time.
#[test]
fn a_session_keeps_to_the_folder_that_it_began_with() {
    let place = Place::new("moved-output");
    let (public, victim) = (place.dir.join("public"), place.dir.join("victim"));
    fs::create_dir(&public).unwrap();
    chown(&public, Some(NOBODY), None).unwrap();
    fs::create_dir_all(victim.join("chunk-1")).unwrap();
    fs::write(victim.join("chunk-1/data"), "precious").unwrap();
    let out = public.join("out");
    place.nopal(&["create", "s", "--output", out.to_str().unwrap()]);
    let mut counter = recorded(&place, &[]);
    counter.hit(10);
    let as_nobody = |line: &str| {
        run(Command::new("setpriv")
            .args(["--reuid", &NOBODY.to_string(), "--clear-groups", "sh", "-c", line])
            .current_dir(&public));
    };
    as_nobody(&format!("mv out gone && ln -s {} out", victim.display()));
    place.nopal(&["rotate"]);
    counter.hit(5);
    place.nopal(&["clear"]);
    counter.hit(2);
    place.nopal(&["stop"]);
    let gone = public.join("gone");
    assert_eq!(numbers(&place, &gone), (0..10).chain(15..17).collect::<Vec<_>>());
    let refused = place.fails(19, &["clear"]);
    assert!(refused.contains("another user made"), "{refused}");
    let refused = place.fails(19, &["start"]);
    assert!(refused.contains("another user made"), "{refused}");
    // A folder of root's in its place is not what was recorded into either.
    as_nobody("rm out");
    fs::rename(&victim, &out).unwrap();
    let refused = place.fails(1, &["clear"]);
    assert!(refused.contains("is not the folder"), "{refused}");
    place.nopal(&["start"]);
    counter.hit(1);
    place.nopal(&["clear"]);
    place.nopal(&["stop"]);
    assert_eq!(fs::read_to_string(out.join("chunk-1/data")).unwrap(), "precious");
}

/// The folder of kept sessions must be ours, as that of sessions.
#[test]
fn sessions_are_not_kept_in_a_folder_of_others() {
    let place = Place::new("kept-others");
    place.create(&[]);
    let (kept, victim) = (place.dir.join("home/saved"), place.dir.join("victim"));
    fs::create_dir(&victim).unwrap();
    symlink(&victim, &kept).unwrap();
    for line in [&["save", "s", "--keep"][..], &["load", "--all"], &["load", "s"]] {
        place.fails(1, line);
    }
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    fs::remove_file(&kept).unwrap();
    fs::create_dir(&kept).unwrap();
    chown(&kept, Some(NOBODY), None).unwrap();
    for line in [&["save", "s", "--keep"][..], &["load", "--all"]] {
        let refused = place.fails(1, line);
        assert!(refused.contains("belongs to another user"), "{refused}");
    }
    chown(&kept, Some(0), None).unwrap();
    place.nopal(&["save", "s", "--keep"]);
    place.nopal(&["destroy", "s"]);
    // A file of this name in the working directory is not what is meant.
    fs::write(place.dir.join("s"), "name = 'another'").unwrap();
    run(place.command(&["load", "s"]).current_dir(&place.dir));
    assert!(place.nopal(&["status", "s"]).contains("out"));
}

#[test]
fn only_files_of_a_bounded_size_are_loaded() {
    let place = Place::new("load-bounded");
    let large = place.dir.join("large.toml");
    fs::File::create(&large).unwrap().set_len(900 << 20).unwrap();
    let fifo = place.dir.join("fifo.toml");
    run(Command::new("mkfifo").arg(&fifo));
    for file in [&large, &fifo, &PathBuf::from("/dev/zero")] {
        let mut limited = Command::new("prlimit");
        limited.arg("--as=1000000000").arg(nopal()).arg("load").arg(file);
        let output = limited.env("NOPAL_HOME", place.dir.join("home")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{file:?}: {said}");
        assert!(said.contains("cannot read"), "{said}");
    }
}

#[test]
fn a_cleared_flight_recorder_forgets_what_it_held() {
    let place = Place::new("clear-flight");
    place.create(&["--snapshot"]);
    let mut counter = recorded(&place, &[]);
    let snapshot = |name: &str| {
        let answer = place.nopal(&["snapshot", "record", "--name", name, "--json"]);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        PathBuf::from(answer["path"].as_str().unwrap())
    };
    counter.hit(10);
    let first = snapshot("first");
    place.nopal(&["clear", "s"]);
    counter.hit(3);
    assert!(numbers(&place, &snapshot("second")).into_iter().eq(10..13));
    assert!(numbers(&place, &first).into_iter().eq(0..10), "snapshots stay");
    // What it held when it was opened anew is forgotten as well.
    place.nopal(&["add-context", "-u", "-t", "procname"]);
    place.nopal(&["clear", "s"]);
    counter.hit(2);
    assert!(numbers(&place, &snapshot("third")).into_iter().eq(13..15));
    let refused = place.fails(1, &["enable-rotation", "--size", "1M"]);
    assert!(refused.contains("snapshot"), "{refused}");
    place.nopal(&["stop"]);
}
