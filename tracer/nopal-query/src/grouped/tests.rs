//! Groups worked out here are those that SQLite makes of the rows, and those of the values that were written: many statements, made by
//! a plan that is the same each time, over fields of every kind.

mod raw;

use super::recognise;
use crate::{Answer, Database, QueryError, ValueRef, ordered};
use nopal_spans::Available;
use nopal_trace::{EventType, Integer, Payload, Recording, RecordingInfo, Type};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Removed at the end of a test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("nopal-grouped-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Numbers that look random and are not.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

const N_EVENTS: u64 = 900;
const START_NS: u64 = 1_700_000_000_000_000_000;
const LABELS: [&str; 3] = ["red", "Green", "blue"];
const STRINGS: [&[u8]; 6] = [b"", b"a", b"A", b"10", "\u{e4}b".as_bytes(), b"\xff\xfe"];
const REALS: [f64; 7] = [0.0, 1.5, -2.25, 1e300, f64::NAN, f64::INFINITY, -0.0];

fn kinds() -> EventType {
    EventType::new("mix", "all")
        .field("small", Type::signed(8))
        .field("port", Type::unsigned(16))
        .field("wide", Type::signed(64))
        .field("huge", Type::unsigned(64))
        .field("real", Type::float(64))
        .field("odd", Type::float(64))
        .field("name", Type::String)
        .field("fixed", Type::text(4))
        .field(
            "colour",
            Type::enumeration(Integer::new(8, false), [("red", 0, 0), ("Green", 1, 1), ("blue", 2, 2)]),
        )
        .field("list", Type::array(Type::unsigned(16), 2))
        .field("count", Type::unsigned(8))
        .field("first", Type::unsigned(8))
}

fn value_text(bytes: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(bytes).into_owned())
}

/// Writes a recording; returns the rows that its events are, without those that SQLite would store as something else.
fn write(dir: &Path, seed: u64) -> Vec<Vec<Value>> {
    let mut numbers = Numbers(seed);
    let mut info =
        RecordingInfo::of_this_host().context("vpid", Type::signed(32)).context("vtid", Type::signed(32));
    (info.clock_offset_ns, info.packet_bytes) = (0, 4096);
    let mut writer = Recording::create(dir, info).unwrap();
    let all = writer.add_event_type(kinds()).unwrap();
    let few = writer.add_event_type(EventType::new("mix", "few").field("n", Type::unsigned(32))).unwrap();
    let op = ["op__start", "op__done"].map(|name| {
        writer.add_event_type(EventType::new("mix", name).field("n", Type::unsigned(8))).unwrap()
    });
    let mut streams = [writer.stream(0).unwrap(), writer.stream(1).unwrap(), writer.stream(2).unwrap()];
    let mut rows = Vec::new();
    for n in 0..N_EVENTS {
        let (ns, cpu) = (START_NS + n * 1_000 + numbers.below(700), numbers.below(3));
        let (pid, tid) = (100 + numbers.below(2), 200 + numbers.below(5));
        let mut context = Vec::new();
        Payload::new(&mut context).unsigned(32, pid).unsigned(32, tid);
        if n % 7 == 3 {
            let stream = &mut streams[cpu as usize];
            stream.append(op[0], ns, &context, &[n as u8 % 4]).unwrap();
            stream.append(op[1], ns + 50 + numbers.below(200), &context, &[n as u8 % 4]).unwrap();
            continue;
        }
        let mut bytes = Vec::new();
        let mut payload = Payload::new(&mut bytes);
        if n % 5 == 4 {
            payload.unsigned(32, n);
            streams[cpu as usize].append(few, ns, &context, &bytes).unwrap();
            continue;
        }
        let small = numbers.below(7) as i64 - 3;
        let (port, wide) = (numbers.below(40), (numbers.next() as i64) << 28);
        let huge = if n % 50 == 7 { u64::MAX - n } else { n * 3 };
        let (real, odd) = (f64::from(numbers.below(20) as u32) / 4.0, *numbers.pick(&REALS));
        let (name, fixed, colour) = (*numbers.pick(&STRINGS), *numbers.pick(&STRINGS), numbers.below(3));
        payload
            .signed(8, small)
            .unsigned(16, port)
            .signed(64, wide)
            .unsigned(64, huge)
            .float64(real)
            .float64(odd);
        payload.string(name).text(4, fixed).unsigned(8, colour).unsigned(16, 7).unsigned(16, n % 3);
        payload.unsigned(8, n % 4).unsigned(8, n % 6);
        streams[cpu as usize].append(all, ns, &context, &bytes).unwrap();
        let integer = |n: u64| Value::Integer(n as i64);
        rows.push(vec![
            integer(ns),
            integer(cpu),
            integer(pid),
            integer(tid),
            Value::Integer(small),
            integer(port),
            Value::Integer(wide),
            Value::Real(real),
            value_text(name),
            value_text(fixed),
            Value::Text(LABELS[colour as usize].to_owned()),
            integer(n % 4),
            integer(n % 6),
        ]);
    }
    for stream in streams {
        stream.finish().unwrap();
    }
    rows
}

/// What the rows were made of, in a table of SQLite's own.
fn written(rows: &[Vec<Value>]) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(
            "CREATE TABLE mix_all(ts INTEGER, cpu INTEGER, pid INTEGER, tid INTEGER, small INTEGER, port INTEGER, \
             wide INTEGER, real REAL, name TEXT, fixed TEXT, colour TEXT, count INTEGER, first INTEGER)",
        )
        .unwrap();
    let mut insert = connection.prepare("INSERT INTO mix_all VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)").unwrap();
    for row in rows {
        insert.execute(rusqlite::params_from_iter(row)).unwrap();
    }
    drop(insert);
    connection
}

fn never() -> bool {
    false
}

fn open(dirs: &[&Path]) -> Database {
    let recordings = dirs.iter().map(|dir| (dir.to_path_buf(), Recording::open(dir).unwrap())).collect();
    let probes =
        dirs.iter().flat_map(|dir| nopal_answers::inventory::of_recording(&Recording::open(dir).unwrap()));
    Database::open(recordings, Available::new(Vec::new(), probes.collect(), false), never).unwrap()
}

#[derive(Debug, Default, PartialEq)]
struct Rows(Vec<Vec<String>>);

/// Real numbers by their bits: the same to the last digit.
fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(n) => format!("i{n}"),
        ValueRef::Real(n) => format!("r{n}:{:x}", n.to_bits()),
        ValueRef::Text(text) => format!("t{}", String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => format!("b{bytes:?}"),
    }
}

impl Answer for Rows {
    fn columns(&mut self, names: &[String]) {
        self.0.push(names.to_vec());
    }

    fn row(&mut self, values: &[ValueRef<'_>]) -> bool {
        self.0.push(values.iter().map(|value| shown(*value)).collect());
        true
    }
}

fn ask(database: &Database, sql: &str) -> Result<Rows, QueryError> {
    let mut rows = Rows::default();
    database.query(sql, &mut rows).map(|()| rows)
}

/// The same database, in which SQLite reads every row.
fn plain(dirs: &[&Path]) -> Database {
    let database = open(dirs);
    ask(&database, "PRAGMA case_sensitive_like = OFF").unwrap();
    database
}

fn is_grouped(database: &Database, sql: &str) -> bool {
    let statement = recognise(&ordered::rewrite(sql), database.tables());
    statement.is_some_and(|statement| database.is_answered_by_groups(&statement))
}

const KEYS: [&str; 16] = [
    "cpu",
    "pid",
    "small",
    "port",
    "name",
    "fixed",
    "colour",
    "wide % 3",
    "ts / 100000",
    "ts - ts % 50000",
    "small + 1",
    "port > 20",
    "count",
    "first",
    "small * -2",
    "CASE WHEN port < 9 THEN 'low' ELSE name END",
];
const SUMS: [&str; 24] = [
    "count(*)",
    "count()",
    "count(name)",
    "sum(port)",
    "sum(small)",
    "avg(port)",
    "avg(small)",
    "total(port)",
    "min(ts)",
    "max(ts)",
    "min(name)",
    "max(fixed)",
    "min(real)",
    "max(real)",
    "sum(port > 10)",
    "sum(wide)",
    "avg(wide)",
    "count(*) FILTER (WHERE small < 0)",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY port)",
    "median(real)",
    "percentile(port, 25)",
    "percentile_disc(port, 0.5)",
    "max(count) - min(count)",
    "sum(CASE WHEN small IS NULL THEN 0 WHEN small > 0 THEN port ELSE -1 END)",
];
const FILTERS: [&str; 20] = [
    "small > 0",
    "port BETWEEN 3 AND 12",
    "name = 'a'",
    "name LIKE 'A%'",
    "name NOT LIKE '%b'",
    "colour IN ('red', 'blue')",
    "small NOT IN (1, 2, NULL)",
    "NOT (cpu = 1 OR pid = 100)",
    "ts >= 1700000000000300000",
    "ts < 1700000000000600000 AND tid = 202",
    "small IS NOT NULL",
    "port % 2 = 0 AND port / 3 > 2",
    "real > 1.25",
    "port <> 7.0",
    "name > 'a' AND fixed <= 'A'",
    "port",
    "small = -1 OR first = 3",
    "colour = 'GREEN'",
    "mix_all.cpu = 2",
    "1e1 < port",
];

/// One statement of many.
fn statement(numbers: &mut Numbers) -> String {
    let keys: Vec<&str> = (0..numbers.below(4)).map(|_| *numbers.pick(&KEYS)).collect();
    let sums: Vec<&str> = (0..1 + numbers.below(3)).map(|_| *numbers.pick(&SUMS)).collect();
    let mut items: Vec<String> = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        items.push(if numbers.below(2) == 0 { format!("{key} AS k{at}") } else { (*key).to_owned() });
    }
    for (at, sum) in sums.iter().enumerate() {
        items.push(match numbers.below(4) {
            0 => format!("{sum} AS s{at}"),
            1 => format!("({sum}) * 2 + 1"),
            2 => format!("round({sum}, 1) r{at}"),
            _ => (*sum).to_owned(),
        });
    }
    let mut sql = format!("SELECT {} FROM mix_all", items.join(", "));
    if numbers.below(2) == 0 {
        sql += &format!(" WHERE {}", numbers.pick(&FILTERS));
        if numbers.below(3) == 0 {
            sql += &format!(" AND {}", numbers.pick(&FILTERS));
        }
    }
    if !keys.is_empty() {
        let by: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| if numbers.below(5) == 0 { (at + 1).to_string() } else { (*key).to_owned() })
            .collect();
        sql += &format!(" GROUP BY {}", by.join(", "));
        if numbers.below(3) == 0 {
            sql += &format!(
                " HAVING {}",
                numbers.pick(&["count(*) > 3", "sum(port) % 2 = 0", "max(name) < 'b' OR count(*) = 1"])
            );
        }
    }
    if numbers.below(2) == 0 {
        sql += &format!(
            " ORDER BY {}",
            numbers.pick(&["1", "count(*) DESC", "sum(port), 1 DESC", "max(ts) - min(ts)", "1 DESC"])
        );
    }
    if numbers.below(3) == 0 {
        sql += *numbers.pick(&[" LIMIT 5", " LIMIT 3 OFFSET 2"]);
    }
    sql
}

#[test]
fn many_statements_have_the_answer_that_sqlite_gives() {
    let scratch = Scratch::new("many");
    let dir = scratch.0.join("rec");
    let rows = write(&dir, 7);
    let (fast, slow, third) = (open(&[&dir]), plain(&[&dir]), written(&rows));
    let mut numbers = Numbers(99);
    let (mut n_grouped, mut n_rows) = (0, 0);
    const N: usize = 200;
    for _ in 0..N {
        let sql = statement(&mut numbers);
        let (ours, theirs) = (ask(&fast, &sql), ask(&slow, &sql));
        assert_eq!(ours, theirs, "{sql}");
        n_grouped += usize::from(is_grouped(&fast, &sql));
        let Ok(ours) = ours else { continue };
        let rewritten = ordered::rewrite(&sql).into_owned();
        let mut prepared = third.prepare(&rewritten).unwrap();
        let n_columns = prepared.column_count();
        let names = prepared.column_names().map(str::to_owned).collect();
        let mut independent = Rows(vec![names]);
        let mut found = prepared.raw_query();
        while let Some(row) = found.next().unwrap() {
            independent.0.push((0..n_columns).map(|at| shown(row.get_ref(at).unwrap())).collect());
        }
        n_rows += independent.0.len();
        assert_eq!(ours, independent, "{sql}");
    }
    // Sums of wide numbers overflow and are SQLite's; the rest must not go the slow way unseen.
    assert!(n_grouped > N * 7 / 10 && n_rows > 4 * N, "{n_grouped} of {N}, {n_rows} rows");
}

/// Each with whether it is worked out here.
#[test]
fn odd_values_and_strange_statements_change_nothing() {
    let scratch = Scratch::new("odd");
    let (one, two) = (scratch.0.join("one"), scratch.0.join("two"));
    write(&one, 1);
    write(&two, 2);
    let dirs: [&Path; 2] = [&one, &two];
    let (fast, slow) = (open(&dirs), plain(&dirs));
    for (sql, expected) in [
        ("SELECT event, cpu, count(*), min(ts), max(ts) FROM events GROUP BY event, cpu", true),
        ("SELECT event, count(*) FROM events WHERE event LIKE 'mix:f%' GROUP BY event", true),
        ("select E.event as e, Count(*) n from Events as E group by E.event order by n desc limit 1;", true),
        ("SELECT recording, day, count(*) FROM events GROUP BY 1, 2", true),
        ("SELECT count(*) FROM events WHERE recording = 2 AND provider = 'mix'", true),
        (
            "SELECT count(*), sum(cpu), min(name), avg(tid), total(tid) FROM events WHERE event = 'nothing'",
            true,
        ),
        ("SELECT event, count(*) FROM events WHERE event = 'nothing' GROUP BY event", true),
        ("SELECT host, name, provider, count(*) FROM events GROUP BY host, name, provider", true),
        ("SELECT pid FROM events GROUP BY pid", true),
        ("SELECT pid FROM events GROUP BY pid HAVING pid = '101'", true),
        ("SELECT event FROM events GROUP BY event HAVING count(*) = event OR count(*) > 5", true),
        (
            "SELECT datetime(ts / 1000000000, 'unixepoch') AS t, count(*) FROM events GROUP BY ts / 1000000000",
            true,
        ),
        ("SELECT count(*) FROM mix_few WHERE n > 100 AND n < 200", true),
        ("SELECT 100.0 * sum(n) / count(*) || '%' FROM mix_few", true),
        ("SELECT coalesce(max(n), 0), CAST(avg(n) AS INTEGER), typeof(sum(n)) FROM mix_few", true),
        ("SELECT min(count(*), 7), max(max(n), 5) FROM mix_few", true),
        ("SELECT count(huge), min(huge), max(huge) FROM mix_all", true),
        ("SELECT huge / 100, count(*) FROM mix_all WHERE huge < 2000 GROUP BY huge / 100", false),
        ("SELECT list, count(*) FROM mix_all GROUP BY list", true),
        ("SELECT sum(huge) FROM mix_all", false),
        ("SELECT avg(ts) FROM mix_all", false),
        ("SELECT sum(real), avg(real) FROM mix_all", false),
        ("SELECT real, count(*) FROM mix_all GROUP BY real", false),
        ("SELECT min(odd), max(odd), count(odd) FROM mix_all", false),
        ("SELECT count(odd) FROM mix_all WHERE odd IS NULL OR odd > 1", true),
        ("SELECT median(name) FROM mix_all", false),
        ("SELECT sum(name) FROM mix_all", false),
        ("SELECT percentile_cont(port, 2) FROM mix_all", false),
        ("SELECT wide * 4096, count(*) FROM mix_all GROUP BY 1", false),
        ("SELECT small, count(DISTINCT port) FROM mix_all GROUP BY small", false),
        ("SELECT DISTINCT count(*) FROM mix_all GROUP BY small", false),
        ("SELECT port, count(*) FROM mix_all GROUP BY small", false),
        ("SELECT small, max(ts), port FROM mix_all GROUP BY small", false),
        ("SELECT name, count(*) FROM mix_all GROUP BY name COLLATE NOCASE", false),
        ("SELECT substr(name, 1, 1), count(*) FROM mix_all GROUP BY 1", false),
        ("SELECT group_concat(cpu) FROM (SELECT cpu FROM events GROUP BY cpu)", false),
        ("SELECT cpu, group_concat(cpu) FROM mix_few GROUP BY cpu", false),
        ("SELECT count(*) FROM mix_all WHERE port = '7'", false),
        ("SELECT count(*) FROM mix_all WHERE name = 10", false),
        ("SELECT count(*) FROM recordings AS a, mix_few AS b", false),
        ("SELECT count(*) FROM mix_all WHERE small IN (SELECT 1)", false),
        ("SELECT count(*) AS small, small AS x FROM mix_all GROUP BY small", false),
        ("SELECT first, count(*) FROM mix_all GROUP BY first ORDER BY first DESC NULLS FIRST", false),
        ("SELECT count(*) FROM mix_all WHERE rowid < 5", false),
        ("SELECT args, count(*) FROM events WHERE event = 'mix:few' GROUP BY args", false),
        ("SELECT sum(count(*)) OVER () FROM mix_all GROUP BY small", false),
        ("SELECT count(*), sum(lost) FROM recordings", false),
        ("WITH x AS (SELECT count(*) AS n FROM events) SELECT n FROM x", false),
        ("SELECT count(*) FROM events UNION ALL SELECT count(*) FROM mix_few", false),
        (
            "SELECT name, count(*), sum(dur), min(self), median(dur), sum(error) FROM spans GROUP BY name",
            true,
        ),
        (
            "SELECT host, pid, tid, depth, recording, count(*) FROM spans WHERE dur > 1e2 GROUP BY 1, 2, 3, 4, 5",
            true,
        ),
        ("SELECT key, count(parent), max(id) FROM spans WHERE name LIKE 'mix:%' GROUP BY key", true),
        ("SELECT args, count(*) FROM spans GROUP BY args", false),
        ("SELECT 1 FROM events GROUP BY 'x'", false),
        ("EXPLAIN SELECT count(*) FROM mix_all", false),
        ("SELECT nothing, count(*) FROM mix_all GROUP BY nothing", false),
        ("SELECT count(*), abs(-9223372036854775808) FROM mix_few", false),
        ("SELECT count(*) FROM mix_few; SELECT cpu, count(*) FROM mix_few GROUP BY cpu -- two", false),
        (
            "CREATE TEMP TABLE t AS SELECT cpu, count(*) AS n FROM mix_few GROUP BY cpu; SELECT sum(n) FROM t; DROP TABLE t",
            false,
        ),
    ] {
        let (ours, theirs) = (ask(&fast, sql), ask(&slow, sql));
        // What SQLite's machine does to get there may well differ.
        if !sql.starts_with("EXPLAIN") {
            assert_eq!(ours, theirs, "{sql}");
        }
        assert_eq!(is_grouped(&fast, sql), expected, "{sql}: {ours:?}");
    }
    // A table that took the place of ours.
    let mine = "DROP TABLE temp.mix_few; CREATE TEMP TABLE mix_few(n); SELECT count(*) AS n FROM mix_few";
    assert_eq!(ask(&fast, mine).unwrap().0.last(), Some(&vec!["i0".to_owned()]));
}

#[test]
fn what_is_missing_is_told_the_same_on_both_ways() {
    let scratch = Scratch::new("damaged");
    let whole = scratch.0.join("whole");
    write(&whole, 3);
    let streams = |dir: &Path| {
        let mut all: Vec<PathBuf> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file() && path.file_name().unwrap() != "metadata")
            .collect();
        all.sort();
        all
    };
    let copy = |name: &str| {
        let dir = scratch.0.join(name);
        fs::create_dir(&dir).unwrap();
        for file in streams(&whole).iter().chain([&whole.join("metadata")]) {
            fs::copy(file, dir.join(file.file_name().unwrap())).unwrap();
        }
        dir
    };
    let damage = |name: &str, change: fn(&mut Vec<u8>)| {
        let dir = copy(name);
        for stream in &streams(&dir)[..2] {
            let mut bytes = fs::read(stream).unwrap();
            change(&mut bytes);
            fs::write(stream, bytes).unwrap();
        }
        dir
    };
    let cut = damage("cut", |bytes| bytes.truncate(bytes.len() / 2));
    let wrong = damage("wrong", |bytes| bytes[0] ^= 0xff);
    let within = damage("within", |bytes| {
        let middle = bytes.len() / 3;
        bytes[middle..middle + 64].fill(0x1f);
    });
    let empty = damage("empty", Vec::clear);
    let gone = copy("gone");
    fs::remove_file(&streams(&gone)[0]).unwrap();
    let sql = "SELECT event, cpu, count(*), max(ts) FROM events GROUP BY event, cpu";
    for dir in [&whole, &cut, &wrong, &within, &empty, &gone] {
        let (fast, slow) = (open(&[dir]), plain(&[dir]));
        assert_eq!(ask(&fast, sql), ask(&slow, sql), "{}", dir.display());
        assert_eq!(fast.reports(), slow.reports(), "{}", dir.display());
        assert!(is_grouped(&fast, sql));
    }
    assert!(!open(&[&wrong]).reports().unwrap().0[0].verdict.notes.is_empty());
    // Open, and then not to be read any more.
    let late = copy("late");
    let (fast, slow) = (open(&[&late]), plain(&[&late]));
    fs::remove_file(&streams(&late)[0]).unwrap();
    let (ours, theirs) = (ask(&fast, sql), ask(&slow, sql));
    assert!(matches!(&ours, Err(QueryError::Read(_))) && ours == theirs, "{ours:?} {theirs:?}");
}
