//! Several snapshots of one flight recorder, which have much of each other: read together each event is there once.

use super::sessions_place::{Place, numbers, recorded};
use nopal_tests::run;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn snapshot(place: &Place) -> PathBuf {
    let answer: Value = serde_json::from_str(&place.nopal(&["snapshot", "record", "--json"])).unwrap();
    PathBuf::from(answer["path"].as_str().unwrap())
}

#[test]
fn events_of_several_snapshots_are_counted_once() {
    for door in ["user", "kernel"] {
        let place = Place::new(&format!("snapshots-{door}"));
        place.create(&["--snapshot"]);
        let mut counter = recorded(&place, &["--door", door]);
        counter.hit(50);
        let first = snapshot(&place);
        counter.hit(41);
        let second = snapshot(&place);
        // Opened anew, what it held before is a recording of its own in the snapshots that follow.
        place.nopal(&["add-context", "-u", "-t", "procname"]);
        counter.hit(9);
        let third = snapshot(&place);
        let stopped = place.nopal(&["stop"]);
        assert!(stopped.contains("3 snapshots"), "{stopped}");
        for (snapshot, n) in [(&first, 50), (&second, 91), (&third, 100)] {
            assert!(numbers(&place, snapshot).into_iter().eq(0..n), "{door} {snapshot:?}");
            let theirs = run(Command::new("babeltrace2").arg(snapshot));
            assert_eq!(place.nopal(&["view", snapshot.to_str().unwrap()]), theirs);
        }
        assert!(numbers(&place, &place.out()).into_iter().eq(0..100), "{door}");
        let counted: Value = serde_json::from_str(&place.nopal(&["view", "s", "--count", "--json"])).unwrap();
        assert_eq!(
            (&counted["total"], &counted["repeated"], &counted["complete"]),
            (&100.into(), &141.into(), &true.into()),
            "{counted}"
        );
        let out = place.out();
        let sum =
            place.nopal(&["query", out.to_str().unwrap(), "SELECT count(*) AS n FROM events", "--json"]);
        assert!(sum.contains("\"n\":100"), "{sum}");
        let view = place.output(&["view", "s"]);
        let said = String::from_utf8_lossy(&view.stderr);
        assert!(said.contains("141 events that later snapshots have again are counted once"), "{said}");
    }
}

#[test]
fn what_was_written_over_meanwhile_is_in_the_earlier_snapshot() {
    let place = Place::new("snapshots-over");
    place.create(&["--snapshot"]);
    let mut counter = recorded(&place, &["--door", "user", "--subbuf-size", "16k", "--num-subbuf", "4"]);
    let (mut seen, mut n_hits) = (std::collections::BTreeSet::new(), 0);
    for n in [1_000, 2_000, 20_000, 500] {
        counter.hit(n);
        n_hits += n;
        let held = numbers(&place, &snapshot(&place));
        assert_eq!(held.last(), Some(&(n_hits - 1)));
        seen.extend(held);
    }
    place.nopal(&["stop"]);
    // Not all, as rings are small; those that are in any of the snapshots, each once.
    assert!(seen.len() < n_hits as usize, "{}", seen.len());
    assert!(numbers(&place, &place.out()).into_iter().eq(seen));
}

/// What a ring held when its channel was opened anew, and what the new ring holds, have a hole between them.
#[test]
fn a_channel_that_is_opened_anew_between_snapshots_hides_no_event() {
    for door in ["user", "kernel"] {
        let place = Place::new(&format!("snapshots-anew-{door}"));
        place.create(&["--snapshot"]);
        let mut counter = recorded(&place, &["--door", door, "--subbuf-size", "16k", "--num-subbuf", "4"]);
        let mut seen = std::collections::BTreeSet::new();
        for (n, context) in [(3_000, "procname"), (9_000, "vtid"), (700, "vpid")] {
            counter.hit(n);
            seen.extend(numbers(&place, &snapshot(&place)));
            place.nopal(&["add-context", "-u", "-t", context]);
            counter.hit(12_000);
            seen.extend(numbers(&place, &snapshot(&place)));
        }
        place.nopal(&["stop"]);
        assert!(numbers(&place, &place.out()).into_iter().eq(seen), "{door}");
    }
}

/// Another session's, in the same folder, whose clock began anew: as after a restart of the machine.
#[test]
fn snapshots_of_another_session_are_not_taken_for_the_same() {
    let place = Place::new("snapshots-others");
    for n_hits in [50, 20] {
        place.create(&["--snapshot"]);
        let mut counter = recorded(&place, &[]);
        counter.hit(n_hits);
        let names: &[&str] = if n_hits == 50 { &["older"] } else { &["newer", "newest"] };
        for name in names {
            place.nopal(&["snapshot", "record", "--name", name]);
        }
        place.nopal(&["stop"]);
        place.nopal(&["destroy", "s"]);
    }
    let out = place.out();
    let counted: Value =
        serde_json::from_str(&place.nopal(&["view", out.to_str().unwrap(), "--count", "--json"])).unwrap();
    assert_eq!((&counted["total"], &counted["repeated"]), (&70.into(), &20.into()), "{counted}");
}
