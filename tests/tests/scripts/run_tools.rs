//! The scripts of `tools/` on the programs they are for. What they must show is known from the client that drove them.

use nopal_tests::postgres::{Connection, Postgres};
use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::{lab, nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn tool(name: &str) -> PathBuf {
    root().join("tools").join(name)
}

/// A tool at work on a process.
struct Tool {
    running: Running,
    out: PathBuf,
    log: PathBuf,
}

impl Tool {
    fn start(dir: &Path, name: &str, pid: u32) -> Tool {
        Tool::start_with(dir, name, pid, "auto", &[])
    }

    fn start_with(dir: &Path, name: &str, pid: u32, door: &str, parameters: &[&str]) -> Tool {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let running = Running::start(
            Command::new(nopal())
                .arg("run")
                .arg("-v")
                .args(["--door", door, "-p", &pid.to_string()])
                .arg(tool(name))
                .args(parameters)
                .stdout(fs::File::create(&out).unwrap())
                .stderr(fs::File::create(&log).unwrap()),
        );
        let tool = Tool { running, out, log };
        wait_until("the sites are open", 60, || {
            let said = fs::read_to_string(&tool.log).unwrap();
            said.contains(" user door") || said.contains(" kernel door") || said.contains("armed")
        });
        tool
    }

    fn shown(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    /// Ctrl-C, as a person ends it.
    fn end(mut self) -> String {
        // SAFETY: kill has no preconditions; the tool is our child and has not been waited for.
        unsafe { libc::kill(self.running.pid() as i32, libc::SIGINT) };
        let status = self.running.0.wait().unwrap();
        let said = fs::read_to_string(&self.log).unwrap();
        assert!(status.success() && said.trim_end().ends_with("complete"), "{said}");
        assert!(!said.contains("warning"), "{said}");
        self.shown()
    }
}

#[test]
fn memcached_commands_are_shown_with_their_keys() {
    let dir = scratch("tools-memcached");
    let port = free_port();
    let server = Running::start(Command::new(lab::memcached()).args([
        "-l",
        "127.0.0.1",
        "-u",
        "root",
        "-p",
        &port.to_string(),
    ]));
    wait_until("memcached listens", 20, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let snoop = Tool::start(&dir, "mcsnoop.bt", server.pid());
    let top = Tool::start(&dir, "mctop.bt", server.pid());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut answer = String::new();
    for n in 0..60 {
        stream.write_all(format!("set key-{n} 0 0 5\r\nhello\r\n").as_bytes()).unwrap();
        answers.read_line(&mut answer).unwrap();
    }
    for _ in 0..40 {
        stream.write_all(b"get key-7\r\n").unwrap();
        for _ in 0..3 {
            answers.read_line(&mut answer).unwrap();
        }
    }
    stream.write_all(b"delete key-9\r\n").unwrap();
    answers.read_line(&mut answer).unwrap();
    // It is drawn anew every second, and the calls may be in two of the pictures.
    wait_until("mctop shows the busiest key", 30, || top.shown().contains("@calls[key-7]: 4"));
    let shown = snoop.end();
    let lines = |command: &str, key: &str| {
        let is_it = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.get(2) == Some(&command) && words.last() == Some(&key)
        };
        shown.lines().filter(is_it).count()
    };
    assert_eq!(shown.lines().filter(|l| l.split_whitespace().nth(2) == Some("set")).count(), 60, "{shown}");
    assert_eq!(
        (lines("set", "key-59"), lines("get", "key-7"), lines("delete", "key-9")),
        (1, 40, 1),
        "{shown}"
    );
    let drawn = top.end();
    assert!(drawn.contains("calls by key") && drawn.contains("\x1b[2J"), "{drawn}");
    // In every picture the busiest is the last, and what is left at the end is not shown.
    for picture in drawn.split("\x1b[2J") {
        let calls = picture.lines().filter_map(|line| line.strip_prefix("@calls[")?.rsplit_once("]: "));
        let counts: Vec<u64> = calls.map(|(_, n)| n.parse().unwrap()).collect();
        assert!(counts.is_sorted(), "{picture}");
    }
    assert!(drawn.trim_end().ends_with(" calls") && !drawn.contains("@total"), "{drawn}");
}

#[test]
fn queries_of_postgresql_on_old_and_new_connections() {
    let dir = scratch("tools-postgres");
    let postgres = Postgres::start("tools-pg");
    let mut old = Connection::open(&postgres);
    let file = postgres.folder().join("prepared.sql");
    fs::write(&file, "select 42").unwrap();
    let prepared = |mode: &str, n: &str| {
        run(postgres.client("pgbench").args(["-n", "-M", mode, "-t", n, "-f"]).arg(&file).arg("postgres"))
    };
    // By the user door alone a site may be left closed: where the heap lies is chance. With `auto` the kernel has it then.
    for door in ["auto", "kernel"] {
        let latency = Tool::start_with(&dir, "postgres-latency.bt", postgres.pid(), door, &[]);
        for n in 0..7 {
            assert_eq!(old.ask("select 'old'"), "old", "{n}");
            assert_eq!(postgres.query("select 'new'").trim(), "new", "{n}");
        }
        prepared("prepared", "20");
        prepared("extended", "5");
        let shown = latency.end();
        // pgbench asks nothing else.
        for line in [
            "@queries[select 'old';]: 7\n",
            "@queries[select 'new']: 7\n",
            "@queries[select 42]: 25\n",
            "@us: count 39, ",
        ] {
            assert!(shown.contains(line), "{door}: {line} in {shown}");
        }
        let slow = Tool::start_with(&dir, "postgres-slow.bt", postgres.pid(), door, &["700"]);
        old.ask("select 1 from pg_sleep(0.8)");
        postgres.query("select 2 from pg_sleep(0.8)");
        postgres.query("select 'quick'");
        let shown = slow.end();
        let count = |text: &str| shown.lines().filter(|line| line.ends_with(text)).count();
        assert_eq!(
            (count("select 1 from pg_sleep(0.8);"), count("select 2 from pg_sleep(0.8)"), count("'quick'")),
            (1, 1, 0),
            "{door}: {shown}"
        );
    }
}

#[test]
fn tools_for_redis_and_valkey() {
    let dir = scratch("tools-redis");
    let mut running =
        Running::start(Command::new(nopal()).args(["demo", "--serve", "0", "--json"]).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let facts: Value = serde_json::from_str(&line).unwrap();
    let (pid, port) = (facts["pid"].as_u64().unwrap() as u32, facts["port"].as_u64().unwrap().to_string());
    let tools = ["redis-latency.bt", "valkey-slow.bt", "top.bt"].map(|name| Tool::start(&dir, name, pid));
    for n in 0..30 {
        run(Command::new("redis-cli").args(["-p", &port, "set", &format!("key-{n}"), "value"]));
    }
    wait_until("top has drawn", 30, || tools[2].shown().contains("redis:call__start]: "));
    let [latency, slow, top] = tools;
    let latency = latency.end();
    assert!(latency.contains("count 30, p50 "), "{latency}");
    let slow = slow.end();
    assert!(slow.contains("@us[set]: count 30, p50 "), "{slow}");
    top.end();
}

#[test]
fn tools_for_languages() {
    let dir = scratch("tools-languages");
    let tool_on = |name: &str, command: &[&str]| {
        run(Command::new(nopal()).arg("run").arg(tool(name)).arg("--").args(command))
    };
    let ruby = dir.join("a.rb");
    fs::write(&ruby, "class Thing; end\n100.times { Thing.new }\n50.times { [1].first }\n").unwrap();
    let objects = tool_on("ruby-objects.bt", &["ruby", "--disable-gems", ruby.to_str().unwrap()]);
    assert!(objects.contains("@objects[Thing]: 100\n"), "{objects}");
    let methods = tool_on("ruby-methods.bt", &["ruby", "--disable-gems", ruby.to_str().unwrap()]);
    assert!(methods.contains("@calls[Array, first]: 50\n"), "{methods}");
    // CPython 3.11 tells of all functions only while somebody traces its lines; how many there are then, bpftrace says.
    let python = dir.join("a.py");
    fs::write(&python, "print(sum(n for n in range(20)))\n").unwrap();
    let python = ["/usr/bin/python3.11", python.to_str().unwrap()];
    let flow = tool_on("python-flow.bt", &python);
    let script = "usdt:/usr/bin/python3.11:python:function__entry { @ = count(); } \
                  usdt:/usr/bin/python3.11:python:line { @lines = count(); }";
    let counted = run(Command::new("bpftrace").args(["-c", &python.join(" "), "-e", script]));
    let expected: usize =
        counted.lines().find_map(|line| line.strip_prefix("@: ")).unwrap().trim().parse().unwrap();
    let count = |arrow: &str| flow.lines().filter(|line| line.contains(arrow)).count();
    assert_eq!((count(" -> "), count(" <- ")), (expected, expected), "{flow}");
    assert!(expected > 0);
    let cpp = dir.join("a.cpp");
    fs::write(&cpp, "int main() { for (int i = 0; i < 25; i++) try { throw i; } catch (int) {} }\n").unwrap();
    let program = dir.join("a");
    run(Command::new("g++").args(["-O1", "-o"]).arg(&program).arg(&cpp));
    // Of three sites the user door may find one's landing taken; the kernel door has them all.
    let mut command = Command::new(nopal());
    command.args(["run", "--door", "kernel"]).arg(tool("cpp-exceptions.bt")).arg("--").arg(&program);
    let exceptions = run(&mut command);
    assert!(exceptions.contains("@thrown: 25\n") && exceptions.contains("@caught: 25\n"), "{exceptions}");
    let java = dir.join("A.java");
    let text = "class A { public static void main(String[] a) throws Exception { while (true) { System.gc(); Thread.sleep(50); } } }";
    fs::write(&java, text).unwrap();
    let machine = Running::start(Command::new("java").arg("-XX:+UseSerialGC").arg(&java));
    wait_until("the machine has its library", 60, || {
        fs::read_to_string(format!("/proc/{}/maps", machine.pid())).is_ok_and(|maps| maps.contains("libjvm"))
    });
    let gc = Tool::start(&dir, "java-gc.bt", machine.pid());
    wait_until("three collections are seen", 60, || gc.shown().matches(" us  full").count() >= 3);
    let shown = gc.end();
    assert!(shown.contains("@us: count "), "{shown}");
}
