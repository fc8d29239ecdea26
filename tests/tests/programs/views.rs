//! The views of `nopal query` on well-known programs, next to what those programs say of themselves.

use super::answers_runtimes::{self, Pause};
use super::answers_servers::commandstats;
use super::redis_example;
use nopal_tests::asking::{Asked, answered, number};
use nopal_tests::postgres::{Connection, Postgres};
use nopal_tests::{nopal, run, scratch};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

fn record(pid: u32, probes: &[&str], recording: &Path) -> Asked {
    let mut command = Command::new(nopal());
    command.arg("record").args(probes.iter().flat_map(|probe| ["-e", probe]));
    command.args(["--json", "-v", "-p", &pid.to_string(), "-o"]).arg(recording);
    Asked::start(&mut command)
}

/// A first column and a number of times and a sum of nanoseconds for each of its values.
fn grouped(recording: &Path, sql: &str) -> BTreeMap<String, (u64, u64)> {
    let answer = answered(Command::new(nopal()).arg("query").arg(recording).arg(sql).arg("--json"));
    let rows = answer["rows"].as_array().expect("rows");
    let of = |row: &serde_json::Value| {
        let name = row["name"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
        (name, (number(&row["n"]), number(&row["ns"])))
    };
    rows.iter().map(of).collect()
}

/// Calls are the same; no statement takes less than the shortest execution that the server measured.
#[test]
fn pg_statements_has_the_calls_of_pg_stat_statements() {
    let options = ["-c", "shared_preload_libraries=pg_stat_statements", "-c", "pg_stat_statements.track=top"];
    let server = Postgres::start_with("views", &options);
    server.query("create extension pg_stat_statements");
    server.query("create table thing (id int, name text)");
    let mut connections: Vec<Connection> = (0..3).map(|_| Connection::open(&server)).collect();
    let recording = scratch("views-postgres").join("recording");
    let probes =
        ["postgresql:query__execute__*", "postgresql:statement__status", "postgresql:transaction__abort"];
    let recorder = record(server.pid(), &probes, &recording);
    server.query("select pg_stat_statements_reset()");
    // Without constants: of those the server keeps no trace.
    let plan = [
        ("select current_database()", 40),
        ("select count(*) from thing", 25),
        ("insert into thing default values returning name is null", 60),
        ("select count(*) from pg_class as one, pg_class as other", 3),
    ];
    for (statement, n_calls) in plan {
        for n in 0..n_calls {
            assert!(!connections[n % 3].ask(statement).is_empty(), "{statement}");
        }
    }
    // One on a connection that begins and ends meanwhile, which fails.
    let failing = "select id / (id - id) from (select count(*) as id from pg_class) as one";
    let failed = server.client("psql").args(["-AtqXc", failing, "postgres"]).output().expect("psql runs");
    assert!(!failed.status.success());
    recorder.so_far();
    let said = server.query("select calls, (min_exec_time * 1000000)::bigint, query from pg_stat_statements");
    let theirs: BTreeMap<String, (u64, u64)> = said
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, '|');
            let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
            let numbers = (number(), number());
            (words.next().expect("a text").to_owned(), numbers)
        })
        .collect();
    // The server takes the semicolon for what ends a statement, psql sends it.
    let sql = "SELECT rtrim(query, ';') AS name, count(*) AS n, sum(dur) AS ns FROM pg_statements GROUP BY 1";
    let mut ours = grouped(&recording, sql);
    // What was under way when it was reset, and what failed, the server does not count.
    assert_eq!(ours.remove("select pg_stat_statements_reset()").map(|(n, _)| n), Some(1), "{ours:?}");
    ours.remove(failing);
    let calls = |of: &BTreeMap<String, (u64, u64)>| -> BTreeMap<String, u64> {
        of.iter().map(|(text, (n, _))| (text.clone(), *n)).collect()
    };
    let mut counted = calls(&theirs);
    counted.remove("select pg_stat_statements_reset()");
    assert_eq!(calls(&ours), counted);
    for (statement, n_calls) in plan {
        let ((ours, ours_ns), least_ns) = (ours[statement], theirs[statement].1);
        assert_eq!(ours, n_calls as u64, "{statement}");
        // What ends an execution comes a moment later than the span: nothing to speak of.
        assert!(
            ours_ns * 10 >= ours * least_ns * 9,
            "{statement}: {ours_ns} ns, {least_ns} ns each at least"
        );
    }
}

/// The same pauses, in the same order; each that the log has lies within the span.
#[test]
fn gc_pauses_has_the_pauses_of_a_java_machines_log() {
    let dir = scratch("views-java");
    let recording = dir.join("recording");
    let mut command = Command::new(nopal());
    command.args(["record", "-e", "hotspot:gc*", "-o"]).arg(&recording).arg("--");
    let (_, log) = answers_runtimes::collect_garbage(&mut command, &dir);
    let pauses: Vec<Pause> = answers_runtimes::pauses_in(&log);
    assert!(pauses.len() > 18, "{log}");
    let sql = "SELECT dur, args FROM gc_pauses WHERE program = 'hotspot:gc' ORDER BY ts";
    let answer = answered(Command::new(nopal()).arg("query").arg(&recording).arg(sql).arg("--json"));
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), pauses.len(), "{log}");
    for (row, pause) in rows.iter().zip(&pauses) {
        // The log's numbers are rounded at microseconds.
        assert!(number(&row["dur"]) + 1000 >= pause.ns, "{row}: {pause:?}");
        let args: serde_json::Value =
            serde_json::from_str(row["args"].as_str().expect("JSON in a text")).expect("JSON");
        assert_eq!(args["isFull"], if pause.is_full { "true" } else { "false" }, "{row}: {pause:?}");
    }
}

#[test]
fn redis_commands_has_the_calls_of_commandstats() {
    let (running, port) = redis_example::start(&redis_example::server(), "views-redis", &[]);
    let mut connections: Vec<BufReader<TcpStream>> = (0..2)
        .map(|_| BufReader::new(TcpStream::connect(("127.0.0.1", port)).expect("redis-server listens")))
        .collect();
    let recording = scratch("views-redis-recording").join("recording");
    let recorder = record(running.pid(), &["redis:process__command__*"], &recording);
    let mut ask = |n: usize, command: &str| redis_example::ask(&mut connections[n % 2], command);
    assert_eq!(ask(0, "CONFIG RESETSTAT"), "+OK ");
    (0..90).for_each(|n| assert_eq!(ask(n, &format!("set nopal:{n} {n}")), "+OK "));
    (0..70).for_each(|n| assert!(ask(n, &format!("get nopal:{n}")).starts_with('$')));
    // Fails, and is a call.
    (0..5).for_each(|n| assert!(ask(n, "incrbyfloat nopal:none none").starts_with("-ERR")));
    let info = run(Command::new("redis-cli").args(["-p", &port.to_string(), "INFO", "commandstats"]));
    recorder.so_far();
    let sql = "SELECT lower(command) AS name, count(*) AS n, sum(dur) AS ns FROM redis_commands GROUP BY 1";
    let ours = grouped(&recording, sql);
    let mut theirs = commandstats(&info);
    assert_eq!(theirs.remove("config|resetstat").map(|(calls, _)| calls), Some(1), "{info}");
    for (name, (calls, us)) in &theirs {
        let (n, ns) = ours.get(name).copied().unwrap_or_else(|| panic!("{name}: {ours:?}"));
        assert_eq!(n, *calls, "{name}");
        // It measures the work within the command, cut at microseconds.
        assert!(ns >= us * 1000, "{name}: {ns} ns, {us} us by its own account");
    }
    // It counts the one that asks, and the one that forgets all, otherwise.
    let others: Vec<&String> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert_eq!(others, ["config", "info"], "{ours:?}");
    assert_eq!((theirs["set"].0, theirs["get"].0, theirs["incrbyfloat"].0), (90, 70, 5));
}
