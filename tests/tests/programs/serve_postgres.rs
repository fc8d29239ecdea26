//! `nopal serve` as its guide has it, over a real PostgreSQL.

use nopal_tests::postgres::{Connection, Postgres};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{nopal, root, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// What is served at a path.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// The file of the guide, without what needs other files or a collector, and a target with a field that its span lacks. Of
/// that, nothing can be measured, and it does not look as if nothing had happened.
#[test]
fn the_file_of_the_guide_serves_postgresql() {
    let guide = fs::read_to_string(root().join("docs/serve.md")).expect("the guide");
    let (_, file) = guide.split_once("```toml\n").expect("a file");
    let (file, _) = file.split_once("[otlp]").expect("it ends with the collector");
    let lines = file.lines().filter(|line| !line.starts_with("spans_file") && !line.starts_with("providers"));
    let program = "program = \"/usr/lib/postgresql/15/bin/postgres\"";
    let file: Vec<&str> = lines
        .map(|line| match line.split(' ').next() {
            Some("listen") => "listen = \"127.0.0.1:0\"",
            Some("program") => program,
            _ => line,
        })
        .collect();
    let wrong =
        format!("[[target]]\n{program}\nname = \"wrong\"\nspans = [\"postgresql:query\"]\nby = [\"user\"]\n");
    let config = scratch("serve-postgres").join("serve.toml");
    fs::write(&config, format!("{}\n{wrong}", file.join("\n"))).expect("it can be written");
    let server = Postgres::start("serve");
    let mut serve = Command::new(nopal());
    let mut serve = Running(serve.arg("serve").arg(&config).stderr(Stdio::piped()).spawn().expect("nopal"));
    let mut lines = BufReader::new(serve.0.stderr.take().expect("a pipe")).lines();
    let first = lines.next().expect("a line").expect("text");
    let address = first.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let target = |n: usize| -> Value {
        let health: Value = serde_json::from_str(&get(address, "/health")).expect("JSON");
        health["targets"][n].clone()
    };
    wait_until("the server is served", 60, || target(0)["processes"].as_u64() > Some(0));
    let mut connection = Connection::open(&server);
    (0..25).for_each(|_| assert!(!connection.ask("select count(*) from pg_class").is_empty()));
    let count = || {
        let metrics = get(address, "/metrics");
        let line = metrics.lines().find(|line| {
            line.starts_with("nopal_span_duration_seconds_count{target=\"db\"")
                && line.contains("query=\"select count(*) from pg_class;\"")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    wait_until("all statements are there", 60, || count() == Some(25));
    let said = || target(1)["problem"].as_str().unwrap_or_default().to_owned();
    wait_until("the other target says why", 60, || said().contains("no field `user`"));
    assert!(target(1)["gaps"].as_u64() > Some(0) && target(1)["complete"] == false, "{}", target(1));
}
