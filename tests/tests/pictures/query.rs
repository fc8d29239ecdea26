//! `nopal query`: its answers are those of other verbs, of babeltrace2, and of what the program planned.

use crate::recorded::{babeltrace, check, planned, refusal, said, spans_file};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The rows of an answer; the recording must be complete.
#[track_caller]
fn rows(recording: &Path, sql: &str) -> Vec<Value> {
    let spans = spans_file();
    let text = said(&[&"query", &recording, &sql, &"--json", &"--spans", &spans]);
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{sql}: {e}: {text}"));
    assert_eq!((&answer["complete"], &answer["lost"]), (&Value::from(true), &Value::from(0)), "{answer}");
    answer["rows"].as_array().expect("rows").clone()
}

/// Two columns as a map from texts to numbers.
fn pairs(rows: &[Value], key: &str, value: &str) -> BTreeMap<String, i64> {
    let pair =
        |row: &Value| (row[key].as_str().expect("a text").to_owned(), row[value].as_i64().expect("a number"));
    rows.iter().map(pair).collect()
}

#[test]
fn answers_are_those_of_count_and_latency_and_babeltrace2() {
    let folder = scratch("pictures-query");
    let recording = &planned().dir;
    babeltrace(recording, &folder.join("babeltrace.txt"));
    let by_event = rows(recording, "SELECT event, count(*) AS n FROM events GROUP BY event");
    fs::write(folder.join("counts.json"), serde_json::to_string(&pairs(&by_event, "event", "n")).unwrap())
        .unwrap();
    let sql = "SELECT json_extract(args, '$.id') AS id, dur FROM spans WHERE name = 'plan:slow' ORDER BY id";
    let slow: Vec<(i64, i64)> = rows(recording, sql)
        .iter()
        .map(|row| (row["id"].as_i64().expect("an id"), row["dur"].as_i64().expect("a time")))
        .collect();
    fs::write(folder.join("slow.json"), serde_json::to_string(&slow).unwrap()).unwrap();
    check("counted.py", &[&folder]);

    let counted: Value =
        serde_json::from_str(&said(&[&"count", &"plan:*", &"--json", &"--recording", recording])).unwrap();
    assert_eq!(pairs(counted["rows"].as_array().unwrap(), "probe", "count"), pairs(&by_event, "event", "n"));
    let sql = "SELECT name, count(*) AS n, sum(dur) AS total, max(dur) AS longest, sum(error) AS errors, \
               percentile_cont(0.5) WITHIN GROUP (ORDER BY dur) AS p50 FROM spans GROUP BY name";
    let asked = rows(recording, sql);
    let all = ["outer", "inner", "rec", "job", "slow", "took", "lost"];
    let mut latency = Command::new(nopal());
    latency.arg("latency").args(all).args(["--json", "--recording"]).arg(recording);
    let latency: Value = serde_json::from_str(&run(latency.arg("--spans").arg(spans_file()))).unwrap();
    let latency = latency["rows"].as_array().unwrap();
    assert_eq!(asked.len(), latency.len());
    for (ours, theirs) in [("n", "count"), ("total", "total_ns"), ("longest", "max_ns"), ("errors", "errors")]
    {
        assert_eq!(pairs(&asked, "name", ours), pairs(latency, "span", theirs), "{ours}");
    }
    for row in &asked {
        let name = row["name"].as_str().unwrap();
        let theirs = latency.iter().find(|other| other["span"] == name).unwrap()["p50_ns"].as_f64().unwrap();
        let exact = row["p50"].as_f64().unwrap();
        let sql = format!("SELECT dur FROM spans WHERE name = '{name}' ORDER BY dur");
        let all: Vec<f64> = rows(recording, &sql).iter().map(|row| row["dur"].as_f64().unwrap()).collect();
        // SQL takes the mean of the two in the middle; a histogram one of them, and is within 0.8 %.
        let [low, high] = [all[(all.len() - 1) / 2], all[all.len() / 2]];
        assert_eq!(exact, (low + high) / 2.0, "{row}");
        assert!((low * 0.992 - 1.0..=high * 1.008 + 1.0).contains(&theirs), "{row} {low} {high} {theirs}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_read_and_nothing_else_changes() {
    let recording = &planned().dir;
    let one = |sql: &str| rows(recording, sql)[0]["n"].as_i64().expect("a number");
    let all = one("SELECT count(*) AS n FROM events");
    let bounds =
        &rows(recording, "SELECT min(ts) AS a, max(ts) AS b, max(pid) AS pid, max(tid) AS tid FROM events")
            [0];
    let number = |name: &str| bounds[name].as_i64().expect("a number");
    let (middle, pid, tid) = ((number("a") + number("b")) / 2, number("pid"), number("tid"));
    // A plus in front of a column keeps SQLite from telling the table of it.
    for condition in [
        format!("ts < {middle}"),
        format!("ts >= {middle} AND ts <= {}", number("b")),
        format!("ts = {}", number("a")),
        format!("pid = {pid}"),
        format!("tid = {tid} AND ts > {middle}"),
        "event = 'plan:took'".to_owned(),
        "name = 'took' AND provider = 'plan'".to_owned(),
        "name = 'TOOK' COLLATE NOCASE".to_owned(),
        "event = 'plan:nothing'".to_owned(),
        "recording = 1".to_owned(),
        "recording = 2".to_owned(),
        "ts > 'abc'".to_owned(),
        "pid = NULL".to_owned(),
    ] {
        let slow: String = ["ts", "pid", "tid", "event", "name", "provider", "recording"]
            .iter()
            .fold(condition.clone(), |text, column| {
                text.replace(&format!("{column} "), &format!("+{column} "))
            });
        let sql = |condition: &str| format!("SELECT count(*) AS n FROM events WHERE {condition}");
        assert_eq!(one(&sql(&condition)), one(&sql(&slow)), "{condition}");
    }
    let halves = one(&format!("SELECT count(*) AS n FROM events WHERE ts < {middle}"))
        + one(&format!("SELECT count(*) AS n FROM events WHERE ts >= {middle}"));
    assert_eq!(halves, all);
    // One type has a table of its own, with typed columns; the numbers are planned.
    let took =
        &rows(recording, "SELECT count(*) AS n, sum(us) AS us, count(DISTINCT name) AS names FROM plan_took")
            [0];
    assert_eq!(took["n"], 100);
    assert_eq!(took["us"], (0..100).map(|i| i * i).sum::<i64>());
    assert_eq!(took["names"], 2);
    let ordered = rows(recording, "SELECT ts FROM events ORDER BY ts");
    assert!(ordered.is_sorted_by_key(|row| row["ts"].as_i64()) && ordered.len() as i64 == all);
    let parents = "SELECT count(*) AS n FROM spans AS a JOIN spans AS b ON a.parent = b.id WHERE a.depth <> b.depth + 1";
    assert_eq!(one(parents), 0);
}

#[test]
fn bad_sql_is_answered_with_the_next_step() {
    let recording = &planned().dir;
    for (sql, message, hint) in [
        ("SELECT * FROM evnts", "no such table: evnts", "did you mean `events`?"),
        ("SELECT durr FROM spans", "no such column: durr", "did you mean `dur`?"),
        ("SELEC 1 FROM x", "syntax error", "SQLite's language"),
        ("SELECT (", "incomplete input", "SQLite's language"),
        ("INSERT INTO events VALUES (1)", "", "SQLite's language"),
        ("/* nothing here */", "there is no statement", "SQLite's language"),
    ] {
        let (words, code) = refusal(&[&"query", recording, &sql]);
        assert!(words.contains(message) && words.contains(hint) && code == 1, "{sql}: {words}");
        let (words, _) = refusal(&[&"query", recording, &sql, &"--json"]);
        let object: Value = serde_json::from_str(&words).expect("an object");
        assert_eq!(object["error"]["code"], "bad-sql");
    }
    // No other file is read or written.
    let file = scratch("pictures-query-attach").join("other.db");
    for sql in [format!("ATTACH '{}' AS other", file.display()), format!("VACUUM INTO '{}'", file.display())]
    {
        let (words, code) = refusal(&[&"query", recording, &sql]);
        assert!(words.contains("only recordings are read") && code == 1 && !file.exists(), "{sql}: {words}");
    }
    let (words, code) = refusal(&[&"query", &"SELECT 1 + 1"]);
    assert!(words.contains("no recording is named") && code == 2, "{words}");
    let (words, _) = refusal(&[&"query", &"/no/such", &"SELECT 1 + 1"]);
    assert!(words.contains("there is no /no/such"), "{words}");
}

#[test]
fn columns_that_a_narrow_terminal_has_no_room_for_are_named() {
    let sql = "SELECT 1 AS one, 'a text of thirty-six characters, or so' AS two, 3 AS three, 4 AS four";
    let query = format!("'{}' query '{}' \"{sql}\"", nopal().display(), planned().dir.display());
    for (width, is_told) in [(40, true), (80, false)] {
        let mut shown = Command::new("script");
        let shown = shown.args(["-qec", &format!("stty cols {width} rows 24; {query}"), "/dev/null"]);
        let text = run(shown.stdin(Stdio::null()));
        assert_eq!(text.contains("no room for 2 columns: three, four; a wider"), is_told, "{width}: {text}");
        assert_eq!(text.contains("three  four"), !is_told, "{width}: {text}");
    }
}

#[test]
fn several_recordings_with_different_events_are_one_database() {
    let folder = scratch("pictures-query-mixed");
    let program = nopal_tests::targets::build("spans", &["spans.c"], nopal_tests::targets::Build::Pie);
    let other = folder.join("other");
    // Without the file that names arguments the same events have other columns.
    let mut record = Command::new(nopal());
    record.args(["record", "-e", "plan:took", "-o"]).arg(&other).arg("--").arg(program);
    run(record.arg(folder.join("plan")));
    let sql = "SELECT recording, count(*) AS n, count(us) AS named FROM plan_took GROUP BY recording";
    let text = said(&[&"query", &planned().dir, &other, &sql, &"--csv"]);
    assert_eq!(text, "recording,n,named\r\n1,100,100\r\n2,100,0\r\n");
    let text = said(&[
        &"query",
        &planned().dir,
        &other,
        &"SELECT recording, complete, lost FROM recordings",
        &"--csv",
    ]);
    assert_eq!(text, "recording,complete,lost\r\n1,1,0\r\n2,1,0\r\n");
}

#[test]
fn a_recording_that_was_cut_or_has_no_events_is_answered_honestly() {
    let folder = scratch("pictures-query-cut");
    let cut = folder.join("cut");
    run(Command::new("cp").arg("-r").arg(&planned().dir).arg(&cut));
    let stream = fs::read_dir(&cut)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.file_name().unwrap() != "metadata")
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() / 2]).unwrap();
    let sql = "SELECT count(*) AS n FROM events";
    let answer: Value = serde_json::from_str(&said(&[&"query", &cut, &sql, &"--json"])).unwrap();
    let whole = rows(&planned().dir, sql)[0]["n"].as_u64().unwrap();
    let n = answer["rows"][0]["n"].as_u64().unwrap();
    assert_eq!(answer["complete"], false, "{answer}");
    assert_eq!(answer["lost"].as_u64().unwrap(), whole - n, "{answer}");
    // Also where no event was asked for.
    let answer: Value = serde_json::from_str(&said(&[&"query", &cut, &"SELECT 1 AS n", &"--json"])).unwrap();
    assert_eq!(answer["complete"], false, "{answer}");
    // Its recorder was killed, or is still at work.
    let killed = folder.join("killed");
    run(Command::new("cp").arg("-r").arg(&planned().dir).arg(&killed));
    let verdict = killed.join("nopal/verdict");
    let text = fs::read_to_string(&verdict).unwrap();
    assert!(text.contains("state finished"), "{text}");
    fs::write(&verdict, text.replace("state finished", "state recording")).unwrap();
    let answer: Value = serde_json::from_str(&said(&[&"query", &killed, &sql, &"--json"])).unwrap();
    assert_eq!(
        (&answer["rows"][0]["n"], &answer["complete"]),
        (&Value::from(whole), &Value::from(false)),
        "{answer}"
    );
    assert!(answer["verdict"].as_str().unwrap().contains("still at work"), "{answer}");
    // Streams gone, metadata there.
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    fs::copy(planned().dir.join("metadata"), empty.join("metadata")).unwrap();
    let answer: Value = serde_json::from_str(&said(&[&"query", &empty, &sql, &"--json"])).unwrap();
    assert_eq!(
        (&answer["rows"][0]["n"], &answer["complete"]),
        (&Value::from(0), &Value::from(false)),
        "{answer}"
    );
}

#[test]
fn sql_comes_from_standard_input_and_tables_are_listed() {
    let mut child = Command::new(nopal())
        .args(["query", "--csv"])
        .arg(&planned().dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write;
    child.stdin.take().unwrap().write_all(b"SELECT count(*) AS n\nFROM plan_took;\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n\r\n100\r\n");
    let text = said(&[&"query", &planned().dir, &"--tables"]);
    for part in
        ["events: every event", "plan_took: the events plan:took", "name TEXT, us INTEGER", "losses: "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn views_of_well_known_programs_have_their_spans() {
    let folder = scratch("pictures-query-views");
    let record = |name: &str, probes: &str, command: &[&dyn AsRef<std::ffi::OsStr>]| {
        let recording = folder.join(name);
        let mut record = Command::new(nopal());
        record.args(["record", "-e", probes, "-o"]).arg(&recording).arg("--");
        run(record.args(command.iter().map(AsRef::as_ref)));
        recording
    };
    // As Redis has its probes.
    let (source, program) = (folder.join("commands.c"), folder.join("commands"));
    let text = "#include <sys/sdt.h>\nint main(void) {\n  for (int i = 0; i < 30; i++) {\n\
        DTRACE_PROBE4(redis, process__command__start, 7ul, i % 3 ? \"get\" : \"set\", 3, 2);\n\
        DTRACE_PROBE2(redis, process__command__end, 7ul, i % 10 ? 0 : 1);\n  }\n  return 0;\n}\n";
    fs::write(&source, text).unwrap();
    let include = nopal_tests::root().join("include");
    run(Command::new("cc").arg("-O2").arg("-I").arg(include).arg("-o").arg(&program).arg(&source));
    let commands = record("commands.rec", "redis:*", &[&program]);
    let sql = "SELECT command, count(*) AS n, sum(error) AS failed FROM redis_commands GROUP BY command";
    let text = said(&[&"query", &commands, &sql, &"--csv"]);
    assert_eq!(text, "command,n,failed\r\nget,20,2\r\nset,10,1\r\n");
    // A real interpreter: as many pauses as phases began.
    let collections = record("ruby.rec", "ruby:gc*", &[&"ruby", &"-e", &"5.times { GC.start }"]);
    let sql = "SELECT count(*) AS n, (SELECT count(*) FROM events WHERE event LIKE '%__begin') AS begun, \
               min(dur) > 0 AS took FROM gc_pauses WHERE program = 'ruby:gc'";
    let row = &rows(&collections, sql)[0];
    assert!(row["n"].as_i64() >= Some(10) && row["n"] == row["begun"] && row["took"] == 1, "{row}");
}
