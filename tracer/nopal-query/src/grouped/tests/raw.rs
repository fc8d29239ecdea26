//! Events that are added up as they lie in the recording, beside those that are not: the same answers.

use super::{Database, Payload, Recording, RecordingInfo, Scratch, Type, ask, is_grouped, open, plain};
use nopal_trace::EventType;
use std::path::Path;

const START_NS: u64 = 1_700_000_000_000_000_000;
const N_EVENTS: u64 = 400;

/// Writes events `s:e` whose fields are made by `fields`, each at a time of its own, on two CPUs.
fn write(dir: &Path, ty: EventType, fields: impl Fn(u64, &mut Payload<'_>)) {
    let mut info =
        RecordingInfo::of_this_host().context("vpid", Type::signed(32)).context("vtid", Type::signed(32));
    (info.clock_offset_ns, info.packet_bytes) = (0, 4096);
    let mut writer = Recording::create(dir, info).unwrap();
    let ty = writer.add_event_type(ty).unwrap();
    let mut streams = [writer.stream(0).unwrap(), writer.stream(1).unwrap()];
    for n in 0..N_EVENTS {
        let (mut context, mut bytes) = (Vec::new(), Vec::new());
        Payload::new(&mut context).unsigned(32, 7 + n % 2).unsigned(32, 70 + n % 5);
        fields(n, &mut Payload::new(&mut bytes));
        streams[(n / 10 % 2) as usize].append(ty, START_NS + n * 100, &context, &bytes).unwrap();
    }
    for stream in streams {
        stream.finish().unwrap();
    }
}

fn same(fast: &Database, slow: &Database, sql: &str) {
    let (ours, theirs) = (ask(fast, sql), ask(slow, sql));
    assert!(theirs.is_ok(), "{sql}: {theirs:?}");
    assert_eq!(ours, theirs, "{sql}");
}

/// A field is a number of another size, behind a string, a text, or not there at all, from one recording to the next.
#[test]
fn schemas_that_differ_make_one_table() {
    let scratch = Scratch::new("schemas");
    let dirs = ["one", "two", "three", "four"].map(|name| scratch.0.join(name));
    let event = || EventType::new("s", "e");
    let text = |n: u64| -> &'static [u8] { [&b"x"[..], b"", b"y\xffz", b"yy", b"10"][n as usize % 5] };
    let one = event().field("n", Type::unsigned(64)).field("t", Type::String).field("m", Type::signed(32));
    write(&dirs[0], one, |n, payload| {
        let huge = if n % 40 == 3 { u64::MAX - n } else { n % 6 };
        payload.unsigned(64, huge).string(text(n)).signed(32, 50 - (n % 100) as i64);
    });
    let two = event()
        .field("t", Type::String)
        .field("a", Type::array(Type::unsigned(16), 3))
        .field("n", Type::signed(8))
        .field("u", Type::text(3))
        .field("m", Type::signed(64));
    write(&dirs[1], two, |n, payload| {
        payload.string(text(n + 1)).unsigned(16, 1).unsigned(16, 2).unsigned(16, 3);
        payload.signed(8, 3 - (n % 8) as i64).text(3, text(n)).signed(64, -(n as i64) << 40);
    });
    let three = event().field("n", Type::String).field("m", Type::float(64));
    write(&dirs[2], three, |n, payload| {
        payload.string(text(n)).float64(n as f64 / 4.0);
    });
    write(&dirs[3], event(), |_, _| {});
    let of = |which: &[usize]| {
        let dirs: Vec<&Path> = which.iter().map(|at| dirs[*at].as_path()).collect();
        (open(&dirs), plain(&dirs))
    };
    for which in [&[0][..], &[1], &[2], &[3], &[0, 1], &[1, 0], &[0, 1, 3], &[0, 1, 2, 3], &[2, 0]] {
        let (fast, slow) = of(which);
        for sql in [
            "SELECT count(*), min(ts), max(ts) FROM events",
            "SELECT recording, pid, tid, cpu, count(*) FROM events GROUP BY 1, 2, 3, 4",
            "SELECT event, ts % 7, pid - 8, tid % 2, cpu, count(*) FROM events GROUP BY 1, 2, 3, 4, 5",
            "SELECT count(*) FILTER (WHERE cpu = 1), sum(pid) FILTER (WHERE tid > 72), sum(tid / (pid - 7)) FROM s_e",
            "SELECT CASE WHEN tid > 71 THEN tid END, count(*), max(CASE WHEN pid = 8 THEN tid END) FROM s_e GROUP BY 1",
        ] {
            same(&fast, &slow, sql);
        }
        if which == [3] {
            continue;
        }
        for sql in [
            "SELECT n, count(*), min(m), max(m) FROM s_e GROUP BY n",
            "SELECT count(n), min(n), max(n), count(m) FROM s_e",
            "SELECT m % 3, count(*), count(n) FROM s_e WHERE m < 0 GROUP BY 1",
            "SELECT sum(m), avg(m), total(m) FROM s_e WHERE m > -5",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY m) FROM s_e",
            "SELECT count(*) FROM s_e WHERE n IS NULL OR m IS NULL",
        ] {
            same(&fast, &slow, sql);
        }
        if which.contains(&2) {
            continue;
        }
        for sql in [
            "SELECT t, count(*), min(m), sum(tid) FROM s_e GROUP BY t",
            "SELECT t, cpu, tid, count(t) FROM s_e WHERE t <> 'x' GROUP BY t, cpu, tid",
            "SELECT cpu, count(*) FROM s_e WHERE t = 'yy' OR 'x' = t AND t IS NOT NULL GROUP BY cpu",
            "SELECT count(*) FROM s_e WHERE t = 'y\u{fffd}z'",
            "SELECT t, cpu, count(*) FROM s_e WHERE t LIKE 'Y%' AND t NOT LIKE '%_y' GROUP BY t, cpu",
            "SELECT count(*) FROM s_e WHERE t LIKE 'y_z' OR t LIKE '%\u{fffd}z'",
            "SELECT count(*) FROM s_e WHERE tid LIKE '7%' AND t LIKE '%'",
            "SELECT t, n, count(*), max(m) FROM s_e WHERE NOT (cpu = 1 AND n = 2) GROUP BY t, n",
        ] {
            same(&fast, &slow, sql);
        }
    }
    // Planned: every fifth event has each text.
    let (fast, _) = of(&[0, 1]);
    let sql = "SELECT t, count(*) FROM s_e GROUP BY t";
    let n = N_EVENTS / 5 * 2;
    let expected: Vec<Vec<String>> =
        ["", "10", "x", "yy", "y\u{fffd}z"].map(|text| vec![format!("t{text}"), format!("i{n}")]).to_vec();
    assert!(is_grouped(&fast, sql));
    assert_eq!(ask(&fast, sql).unwrap().0[1..], expected);
}

/// Sums that fit only just, and those that do not, which are SQLite's: one is an error there.
#[test]
fn sums_at_the_edge_of_64_bits() {
    let scratch = Scratch::new("edge");
    let dir = scratch.0.join("rec");
    let ty = EventType::new("s", "e").field("big", Type::signed(64)).field("least", Type::signed(64));
    write(&dir, ty, |n, payload| {
        let share = i64::MAX / N_EVENTS as i64;
        let big = if n == 0 { i64::MAX - share * (N_EVENTS as i64 - 1) } else { share };
        payload.signed(64, big).signed(64, if n % 2 == 0 { i64::MIN } else { -1 });
    });
    let (fast, slow) = (open(&[&dir]), plain(&[&dir]));
    for (sql, expected) in [
        ("SELECT sum(big), avg(big), count(*) FROM s_e", true),
        ("SELECT sum(big + 1) FROM s_e", false),
        ("SELECT sum(big * 2) FROM s_e", false),
        ("SELECT min(least), max(least) FROM s_e", true),
        ("SELECT least % -1, count(*) FROM s_e GROUP BY 1", true),
        ("SELECT least / -1, count(*) FROM s_e GROUP BY 1", false),
        ("SELECT least - 1, count(*) FROM s_e GROUP BY 1", false),
        ("SELECT least / 0, least % 0, count(*), sum(big / 0) FROM s_e GROUP BY 1, 2", true),
        ("SELECT least, sum(big) FROM s_e WHERE least < -1 GROUP BY least", true),
        ("SELECT sum(least) FROM s_e", false),
    ] {
        assert_eq!(ask(&fast, sql), ask(&slow, sql), "{sql}");
        assert_eq!(is_grouped(&fast, sql), expected, "{sql}");
    }
    let all = ask(&fast, "SELECT sum(big) FROM s_e").unwrap();
    assert_eq!(all.0[1], [format!("i{}", i64::MAX)]);
}

/// Both ways tell of the events that were lost, where they were; a range of time leaves out losses and events outside of it.
#[test]
fn lost_events_are_told_of_and_ranges_end_where_they_say() {
    let scratch = Scratch::new("lost");
    let dir = scratch.0.join("rec");
    let mut info = RecordingInfo::of_this_host();
    (info.clock_offset_ns, info.packet_bytes) = (0, 4096);
    let mut writer = Recording::create(&dir, info).unwrap();
    let ty = writer.add_event_type(EventType::new("s", "e").field("n", Type::unsigned(32))).unwrap();
    let mut streams = [writer.stream(0).unwrap(), writer.stream(1).unwrap()];
    for n in 0..N_EVENTS {
        let ns = START_NS + n * 100;
        if n % 150 == 149 {
            streams[1].discarded(n, ns - 50..ns - 10).unwrap();
        }
        streams[(n % 2) as usize].append(ty, ns, &[], &(n as u32).to_le_bytes()).unwrap();
    }
    for stream in streams {
        stream.finish().unwrap();
    }
    let (fast, slow) = (open(&[&dir]), plain(&[&dir]));
    let sql = "SELECT cpu, count(*), sum(n) FROM s_e GROUP BY cpu";
    same(&fast, &slow, sql);
    assert!(is_grouped(&fast, sql));
    let (ours, theirs) = (fast.reports().unwrap(), slow.reports().unwrap());
    assert_eq!(ours, theirs);
    let lost: Vec<u64> = ours.0[0].losses.iter().map(|loss| loss.count).collect();
    assert_eq!(lost, [149, 299]);
    for (from, to) in [(0, 0), (1, 39), (40, 333), (399, 399), (400, 500)] {
        let (first, last) = (START_NS + from * 100, START_NS + to * 100);
        let sql = format!("SELECT count(*), min(n), max(n) FROM s_e WHERE ts >= {first} AND ts <= {last}");
        let database = open(&[&dir]);
        same(&database, &slow, &sql);
        let n = if from < N_EVENTS { to - from + 1 } else { 0 };
        assert_eq!(ask(&database, &sql).unwrap().0[1][0], format!("i{n}"), "{sql}");
    }
}
