//! Ten incidents that are planted, and what the commands of `docs/incidents.md` say of them.

use nopal_tests::asking::{Asked, counts, number};
use nopal_tests::postgres::{Connection, Postgres};
use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::{lab, nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command of the page under this title, to be run by a shell that becomes it.
fn command(title: &str, more: &str) -> Command {
    let page = fs::read_to_string(root().join("docs/incidents.md")).unwrap();
    let (_, section) = page.split_once(&format!("## {title}\n```sh\n")).unwrap_or_else(|| panic!("{title}"));
    let (line, _) = section.split_once("\n```").unwrap();
    let line = line.strip_prefix("nopal ").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$NOPAL\" {line} {more}")]).env("NOPAL", nopal());
    command
}

#[track_caller]
fn asked(title: &str, pid: u32) -> Asked {
    Asked::start(command(title, "--json -v").env("APP", pid.to_string()))
}

/// A program that says `ready` and goes on when a line comes.
fn ready(command: &mut Command) -> Running {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    running
}

fn go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

/// Turns of `argv[1]` microseconds each, `argv[2]` of them; of 50, the 20th takes 400 ms longer if there is a third word.
const MILL: &str = "#include <sys/sdt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char line[8];
    if (argc > 3) { puts(\"ready\"); fflush(stdout); fgets(line, sizeof line, stdin); }
    for (int i = 0; i < atoi(argv[2]); i++) {
        DTRACE_PROBE1(mill, turn__start, i);
        usleep(atoi(argv[1]) + (argc > 3 && i % 50 == 20 ? 400000 : 0));
        DTRACE_PROBE1(mill, turn__done, i);
        if (argc > 4) DTRACE_PROBE1(shop, refund, i);
    }
    return 0;
}";

fn mill(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("mill.c"), folder.join("mill"));
    fs::write(&source, MILL).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O2", "-o"]).arg(&program).arg(&source));
    program
}

#[test]
fn a_statement_is_slow() {
    let server = Postgres::start("incident-slow");
    let mut connection = Connection::open(&server);
    let asked = asked("A statement is slow", server.pid());
    for n in 0..200 {
        assert_eq!(connection.ask(&format!("select {n} + 1")), (n + 1).to_string());
        if n % 50 == 0 {
            connection.ask("select 'planted', pg_sleep(0.2)");
        }
    }
    let answer = asked.so_far();
    let row = &answer["rows"][0];
    assert_eq!(row["query"], "select ?, pg_sleep(?)", "{answer}");
    assert_eq!(number(&row["count"]), 4, "{answer}");
    assert!(number(&row["p50_ns"]) >= 199_000_000, "{answer}");
}

#[test]
fn statements_wait_for_each_other() {
    let server = Postgres::start("incident-lock");
    server.query("create table stock (id int primary key, n int)");
    server.query("insert into stock select i, 0 from generate_series(1, 9) i");
    let (mut first, mut second) = (Connection::open(&server), Connection::open(&server));
    let asked = asked("Statements wait for each other", server.pid());
    let one = |n: u32| format!("update stock set n = n + 1 where id = {n} returning id");
    (4..9).for_each(|n| assert_eq!(second.ask(&one(n)), n.to_string()));
    first.ask("begin; update stock set n = 7 where id = 3 returning id");
    let waits = std::thread::spawn(move || second.ask("update stock set n = 8 where id = 3 returning id"));
    wait_until("the second waits", 60, || {
        server.query("select count(*) from pg_locks where not granted").trim() == "1"
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    first.ask("commit; select 1");
    assert_eq!(waits.join().unwrap(), "3");
    let answer = asked.so_far();
    let rows = answer["rows"].as_array().unwrap();
    assert!(rows[0]["value"].as_str().unwrap().contains("set n = 8 where id = 3"), "{answer}");
    let wait = rows.iter().find(|row| row["span"] == "postgresql:lock_wait").expect("a wait for a lock");
    assert!(number(&wait["total_ns"]) >= 999_000_000, "{answer}");
    assert!(number(&wait["total_ns"]) * 10 >= number(&rows[0]["total_ns"]) * 8, "{answer}");
}

/// memcached with probes, and a way to it.
fn memcached() -> (Running, u16) {
    let port = free_port();
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let mut server = Command::new(lab::memcached());
    let server = Running::start(server.args(["-u", &user, "-l", "127.0.0.1", "-p", &port.to_string()]));
    wait_until("memcached listens", 30, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (server, port)
}

fn connect(port: u16) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap())
}

fn ask(connection: &mut BufReader<TcpStream>, request: &str) -> String {
    connection.get_mut().write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    connection.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn one_key_takes_all_the_load() {
    let (server, port) = memcached();
    let mut connection = connect(port);
    let asked = asked("One key takes all the load", server.pid());
    for n in 0..300 {
        let key = if n % 3 == 0 { format!("cold:{}", n % 40) } else { "planted".to_owned() };
        assert_eq!(ask(&mut connection, &format!("get {key}")), "END");
    }
    let answer = asked.so_far();
    assert_eq!(answer["rows"][0]["key"], "planted", "{answer}");
    assert_eq!(number(&answer["rows"][0]["count"]), 200, "{answer}");
}

#[test]
fn connections_leak() {
    let (server, port) = memcached();
    let mut watch = connect(port);
    // Who is connected, as memcached says: `STAT 31:addr tcp:127.0.0.1:49180`.
    let mut is_there = |ports: &[u16]| {
        watch.get_mut().write_all(b"stats conns\r\n").unwrap();
        let lines: Vec<String> =
            watch.by_ref().lines().map(Result::unwrap).take_while(|line| line != "END").collect();
        assert!(lines.iter().any(|line| line.contains(":addr tcp:")), "{lines:?}");
        ports
            .iter()
            .any(|port| lines.iter().any(|line| line.ends_with(&format!(":addr tcp:127.0.0.1:{port}"))))
    };
    let asked = asked("Connections leak", server.pid());
    let mut connections: Vec<_> = (0..12).map(|_| connect(port)).collect();
    for connection in &mut connections {
        assert!(ask(connection, "version").starts_with("VERSION"));
    }
    let ports: Vec<u16> =
        connections.iter().map(|connection| connection.get_ref().local_addr().unwrap().port()).collect();
    assert!(is_there(&ports[..5]) && is_there(&ports[5..]), "{ports:?}");
    connections.truncate(5);
    wait_until("seven are closed", 60, || !is_there(&ports[5..]));
    let answer = asked.so_far();
    let ended: u64 = counts(&answer, "span").values().sum();
    assert_eq!((ended, number(&answer["unmatched_why"]["not_ended"])), (7, 5), "{answer}");
}

const GARBAGE: &str = "
public class Stops {
    static volatile byte[] last;
    public static void main(String[] args) throws Exception {
        System.out.println(\"ready\");
        System.in.read();
        for (int i = 0; i < 500_000; i++) last = new byte[64];
        for (int i = 0; i < 5; i++) System.gc();
    }
}";

#[test]
fn the_java_machine_stops_now_and_then() {
    let folder = scratch("incident-java");
    fs::write(folder.join("Stops.java"), GARBAGE).unwrap();
    run(Command::new("javac").arg("-d").arg(&folder).arg(folder.join("Stops.java")));
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-Xmn2m", "-Xmx32m", "-cp"]).arg(&folder).arg("Stops");
    let mut java = ready(&mut java);
    let asked = asked("The Java machine stops now and then", java.pid());
    go(&mut java.0);
    let answer = asked.in_the_end();
    let by_kind = counts(&answer, "isFull");
    assert_eq!(by_kind.get("true"), Some(&5), "{answer}");
    assert!(by_kind.get("false").is_some_and(|&n| n >= 5), "{answer}");
    assert!(!answer["slowest"].as_array().unwrap().is_empty(), "{answer}");
}

const RUBY: &str = "\
def quick(n) = n + 1
def planted(n)
  sleep 0.02
  raise ArgumentError, 'planted' if n.odd?
  n
end
def guarded(n)
  planted(n)
rescue ArgumentError
  raise KeyError, 'rare' if n == 5
rescue KeyError
  0
end
TracePoint.new(:call, :return) {}.enable
puts 'ready'
$stdout.flush
$stdin.gets
20.times do |n|
  50.times { |i| quick(i) }
  begin
    guarded(n)
  rescue KeyError
    quick(n)
  end
end
";

fn ruby(name: &str) -> Running {
    let script = scratch(name).join("app.rb");
    fs::write(&script, RUBY).unwrap();
    ready(Command::new("ruby").arg("--disable-gems").arg(script))
}

#[test]
fn a_ruby_method_is_slow() {
    let mut app = ruby("incident-method");
    let asked = asked("A Ruby method is slow", app.pid());
    go(&mut app.0);
    let answer = asked.in_the_end();
    let rows = answer["rows"].as_array().unwrap();
    let by_method = counts(&answer, "methodname");
    assert_eq!((by_method.get("planted"), by_method.get("quick")), (Some(&20), Some(&1001)), "{answer}");
    // The one that is slow, and the one that calls it.
    let mut first: Vec<&str> = rows[..2].iter().filter_map(|row| row["methodname"].as_str()).collect();
    first.sort_unstable();
    assert_eq!(first, ["guarded", "planted"], "{answer}");
    let own = |name: &str| {
        let row = rows.iter().find(|row| row["methodname"] == name).unwrap();
        number(&row["self_ns"])
    };
    assert!(own("planted") > 5 * own("guarded"), "{answer}");
}

#[test]
fn a_storm_of_exceptions() {
    let mut app = ruby("incident-raise");
    let asked = asked("A storm of exceptions", app.pid());
    go(&mut app.0);
    let answer = asked.in_the_end();
    let rows: Vec<(&str, u64, u64)> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["classname"].as_str().unwrap(), number(&row["lineno"]), number(&row["count"])))
        .collect();
    assert_eq!(rows[..2], [("ArgumentError", 4, 10), ("KeyError", 10, 1)], "{answer}");
}

#[test]
fn a_probe_never_fires() {
    let program = mill(&scratch("incident-silent"));
    let app = Running::start(Command::new(program).args(["2000", "100000"]));
    let output = command("A probe never fires", "--json").env("APP", app.pid().to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = answer["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "silent");
    let finding = finding.unwrap_or_else(|| panic!("{answer:#}"));
    assert!(finding["remedy"].is_string(), "{finding}");
}

#[test]
fn a_stall_once_in_a_while() {
    let program = mill(&scratch("incident-stall"));
    let mut app = ready(Command::new(program).args(["1000", "200", "stalls"]));
    let asked = asked("A stall once in a while", app.pid());
    go(&mut app.0);
    let answer = asked.in_the_end();
    let slowest = answer["slowest"].as_array().unwrap();
    let of = |turn: u64| slowest.iter().find(|span| span["args"]["arg0"] == turn);
    for turn in [20, 70, 120, 170] {
        let span = of(turn).unwrap_or_else(|| panic!("{turn}: {answer}"));
        assert!(number(&span["duration_ns"]) >= 400_000_000, "{span}");
    }
    let first: u64 = counts(&answer, "span").values().sum();
    assert!((4..20).contains(&first), "{answer}");
}

#[test]
fn the_new_build_is_slower() {
    let folder = scratch("incident-builds");
    let program = mill(&folder);
    for (name, us) in [("old.rec", "2000"), ("new.rec", "8000")] {
        let mut record = Command::new(nopal());
        record.args(["record", "-e", "mill:*", "-o", name, "--"]).arg(&program).args([us, "60"]);
        run(record.current_dir(&folder));
    }
    let title = "The new build is slower";
    let output = command(title, "--json").current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("mill:turn"), "{output:?}");
    // The old one against itself is as fast.
    fs::remove_dir_all(folder.join("new.rec")).unwrap();
    run(Command::new("cp").arg("-r").args(["old.rec", "new.rec"]).current_dir(&folder));
    let output = command(title, "--json").current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
