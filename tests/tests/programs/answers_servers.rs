//! Answers about servers, next to what the servers say of themselves.

use super::redis_example;
use nopal_tests::asking::{Asked, counts, number};
use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::valkey::{self, Server};
use nopal_tests::{lab, scratch};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

/// Calls and microseconds by command, as `INFO commandstats` has them. Commands with parts (`config|get`) are whole names.
pub(super) fn commandstats(info: &str) -> BTreeMap<String, (u64, u64)> {
    let words = info.split_whitespace().filter_map(|word| word.strip_prefix("cmdstat_"));
    words
        .map(|word| {
            let (name, numbers) = word.split_once(':').expect("a name and numbers");
            let value = |what: &str| -> u64 {
                let number = numbers.split(',').find_map(|part| part.strip_prefix(what)).expect("a number");
                number.parse().expect("an integer")
            };
            (name.to_owned(), (value("calls="), value("usec=")))
        })
        .collect()
}

/// What `INFO commandstats` shows must be what `nopal top` shows, and what was planted as slow must be on top of it.
/// Half of the calls of a kind decide on its place: one that had to wait for the processor does not.
#[test]
fn redis_counts_the_same_calls() {
    let (running, port) =
        redis_example::start(&redis_example::server(), "answers-redis", &["--enable-debug-command", "yes"]);
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("redis-server listens");
    let mut connection = BufReader::new(stream);
    let mut ask = |command: &str| redis_example::ask(&mut connection, command);
    assert_eq!(ask("DEBUG POPULATE 20000"), "+OK ");
    assert_eq!(ask("CONFIG RESETSTAT"), "+OK ");
    let words = ["top", "redis:command", "--by", "name", "--sort", "p50", "--duration", "10m"];
    let tracer = Asked::of(running.pid(), &words);
    for n in 0..300 {
        assert_eq!(ask(&format!("set nopal:{n} {n}")), "+OK ");
    }
    (0..200).for_each(|n| assert!(ask(&format!("get nopal:{n}")).starts_with('$')));
    assert_eq!(ask("mget nopal:1 nopal:2"), "*2 $1 1 $1 2 ");
    for _ in 0..3 {
        assert_eq!(ask("debug SLEEP 0.2"), "+OK ");
        assert!(ask("keys *").starts_with("*20300 "));
    }
    let info = {
        let mut cli = Command::new("redis-cli");
        nopal_tests::run(cli.args(["-p", &port.to_string(), "INFO", "commandstats"]))
    };
    let answer = tracer.so_far();
    let mut theirs: BTreeMap<String, u64> =
        commandstats(&info).into_iter().map(|(name, (calls, _))| (name, calls)).collect();
    assert_eq!(theirs.remove("config|resetstat"), Some(1), "{info}");
    let mut ours: BTreeMap<String, u64> = counts(&answer, "name").into_iter().collect();
    // It counts the one that asks only afterwards.
    assert_eq!(ours.remove("INFO"), Some(1));
    assert_eq!(ours, theirs, "{answer}");
    let first: Vec<&str> = (0..2).filter_map(|i| answer["rows"][i]["name"].as_str()).collect();
    assert_eq!(first, ["debug", "keys"], "{answer}");
    assert!(number(&answer["rows"][0]["p50_ns"]) >= 199_000_000, "{answer}");
}

/// The same of Valkey, which measures its commands itself: its times are the same, too.
#[test]
fn valkey_counts_the_same_calls() {
    let programs = match valkey::build() {
        Ok(programs) => programs,
        Err(reason) => return eprintln!("skipped: no source package of Valkey: {reason}"),
    };
    let dir = scratch("answers-valkey");
    let server = Server::start(&programs, &dir, &["--enable-debug-command", "yes"]);
    assert_eq!(server.cli(&["DEBUG", "POPULATE", "20000"]), "OK");
    let words = ["top", "command_call", "--by", "name", "--sort", "p50", "--duration", "10m"];
    let tracer = Asked::of(server.pid(), &words);
    assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    for n in 0..60 {
        assert_eq!(server.cli(&["SET", &format!("nopal:{n}"), "1"]), "OK");
        assert_eq!(server.cli(&["INCR", &format!("nopal:{n}")]), "2");
    }
    for _ in 0..3 {
        assert_eq!(server.cli(&["DEBUG", "SLEEP", "0.2"]), "OK");
        assert_eq!(server.cli(&["KEYS", "key:1999*"]).lines().count(), 11);
    }
    let info = server.cli(&["INFO", "commandstats"]);
    let answer = tracer.so_far();
    let theirs = commandstats(&info);
    let rows = answer["rows"].as_array().expect("rows");
    let ours: BTreeMap<String, (u64, u64)> = rows
        .iter()
        .map(|row| {
            let name = row["name"].as_str().expect("a name").to_owned();
            (name, (number(&row["count"]), number(&row["total_ns"]) / 1000))
        })
        // Both are counted only when they are over; of `config|resetstat` the event has the second name alone.
        .filter(|(name, _)| name != "info" && name != "resetstat")
        .collect();
    let theirs: BTreeMap<_, _> = theirs.into_iter().filter(|(name, _)| name != "config|resetstat").collect();
    assert_eq!(ours, theirs, "{answer}");
    let first: Vec<&str> = (0..2).filter_map(|i| rows[i]["name"].as_str()).collect();
    assert_eq!(first, ["debug", "keys"], "{answer}");
}

#[test]
fn memcached_has_the_same_hits_and_misses() {
    let port = free_port();
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let server = Running::start(Command::new(lab::memcached()).args([
        "-u",
        &user,
        "-l",
        "127.0.0.1",
        "-t",
        "2",
        "-p",
        &port.to_string(),
    ]));
    wait_until("memcached listens", 30, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let reads = Asked::of(server.pid(), &["count", "memcached:command__get", "--by", "size"]);
    let mut connections: Vec<BufReader<TcpStream>> = (0..3)
        .map(|_| BufReader::new(TcpStream::connect(("127.0.0.1", port)).expect("it listens")))
        .collect();
    let mut ask = |n: usize, command: &str, last: &str| -> Vec<String> {
        let connection = &mut connections[n % 3];
        connection.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("memcached reads");
        let mut lines: Vec<String> = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let mut line = String::new();
            assert!(connection.read_line(&mut line).expect("memcached answers") > 0, "{lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    };
    for n in 0..50 {
        let value = "x".repeat(1 + n % 3);
        ask(n, &format!("set key:{n} 0 0 {}\r\n{value}", value.len()), "STORED");
    }
    for n in 0..400 {
        let lines = ask(n, &format!("get key:{}", n % 90), "END");
        assert_eq!(lines.len() > 1, n % 90 < 50, "{lines:?}");
    }
    // Several keys at once are as many reads.
    assert_eq!(ask(1, "get key:1 key:none key:2", "END").len(), 5);
    let stats = ask(0, "stats", "END");
    let said = |name: &str| -> u64 {
        let line = stats.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name}: {stats:?}"))
    };
    let answer = reads.so_far();
    let mut by_size = counts(&answer, "size");
    let misses = by_size.remove("-1").expect("a row of misses");
    assert_eq!((by_size.values().sum::<u64>(), misses), (said("get_hits"), said("get_misses")), "{answer}");
    assert_eq!(by_size.values().sum::<u64>() + misses, said("cmd_get"));
    assert!(said("get_hits") > 200 && said("get_misses") > 100, "{stats:?}");
}
