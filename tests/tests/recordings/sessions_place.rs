//! What tests of sessions need: a server that is recorded, and a folder with sessions of its own.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

/// The demo's server, which speaks RESP and has Valkey's probes.
pub(super) struct Server {
    pub(super) running: Running,
    pub(super) pid: u32,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn start() -> Server {
        Server::of(Command::new(nopal()).args(["demo", "--serve", "0", "--json"]))
    }

    pub(super) fn of(command: &mut Command) -> Server {
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let facts: Value = serde_json::from_str(&line).unwrap();
        let number = |name: &str| facts[name].as_u64().unwrap();
        Server { pid: number("pid") as u32, port: number("port") as u16, running }
    }

    /// Sends `count` commands of one kind and waits for every answer.
    pub(super) fn send(&self, word: &str, count: usize) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        for n in 0..count {
            let key = format!("key-{n}");
            let parts: Vec<&str> = match word {
                "set" => vec![word, &key, "value"],
                _ => vec![word, &key],
            };
            let mut text = format!("*{}\r\n", parts.len());
            parts.iter().for_each(|part| text += &format!("${}\r\n{part}\r\n", part.len()));
            stream.write_all(text.as_bytes()).unwrap();
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap();
            if answer.starts_with('$') && !answer.starts_with("$-1") {
                answer.clear();
                answers.read_line(&mut answer).unwrap();
            }
            assert!(!answer.starts_with('-'), "{word}: {answer}");
        }
    }
}

/// A folder with sessions of its own.
pub(super) struct Place {
    pub(super) dir: PathBuf,
}

impl Place {
    pub(super) fn new(name: &str) -> Place {
        Place { dir: scratch(&format!("sessions-{name}")) }
    }

    pub(super) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(nopal());
        command.args(line).env("NOPAL_HOME", self.dir.join("home"));
        command
    }

    pub(super) fn output(&self, line: &[&str]) -> Output {
        self.command(line).output().unwrap()
    }

    /// A command that must succeed.
    #[track_caller]
    pub(super) fn nopal(&self, line: &[&str]) -> String {
        run(&mut self.command(line))
    }

    /// A command that must fail with this exit code; gives its message.
    #[track_caller]
    pub(super) fn fails(&self, exit: i32, line: &[&str]) -> String {
        let output = self.output(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{line:?}: {said}");
        said
    }

    pub(super) fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    #[track_caller]
    pub(super) fn create(&self, more: &[&str]) {
        let out = self.out();
        let mut line = vec!["create", "s", "--output", out.to_str().unwrap()];
        line.extend(more);
        self.nopal(&line);
    }

    /// The events of the session's recordings, as JSON.
    pub(super) fn events(&self, what: &Path) -> Vec<Value> {
        let text = self.nopal(&["view", what.to_str().unwrap(), "--json"]);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How often the server says it was sent this command.
    pub(super) fn count(&self, word: &str) -> usize {
        let is_it = |event: &Value| event["name"] == "command_call" && event["args"]["name"] == word;
        self.events(&self.out()).iter().filter(|event| is_it(event)).count()
    }

    /// What `view` says of the recordings.
    pub(super) fn is_complete(&self) -> bool {
        let text = self.nopal(&["view", self.out().to_str().unwrap(), "--count", "--json"]);
        serde_json::from_str::<Value>(&text).unwrap()["complete"].as_bool().unwrap()
    }

    pub(super) fn recorder(&self) -> u32 {
        let status: Value = serde_json::from_str(&self.nopal(&["status", "s", "--json"])).unwrap();
        status["recorder"]["recorder_pid"].as_u64().unwrap() as u32
    }

    pub(super) fn state(&self) -> String {
        let status: Value = serde_json::from_str(&self.nopal(&["status", "s", "--json"])).unwrap();
        status["state"].as_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A recorder outlives whoever started it, so a test that failed must end it.
        let _ = self.output(&["destroy", "--all"]);
    }
}

/// As many as the ring of a channel takes.
pub(super) const AT_ONCE: u64 = 2_000;

/// Hits a probe when it is told to, on one CPU; the argument counts from 0 on.
pub(super) struct Counter {
    pub(super) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Counter {
    pub(super) fn start() -> Counter {
        Counter::start_by(&["taskset", "-c", "0"])
    }

    /// By a command that becomes the program.
    pub(super) fn start_by(wrapper: &[&str]) -> Counter {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(build("flight", &["flight.c"], Build::Pie));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        Counter { child, lines }
    }

    pub(super) fn hit(&mut self, n: u64) {
        writeln!(self.child.stdin.as_mut().unwrap(), "hit {n}").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "done");
    }

    /// The same with time for the recorder to read them.
    pub(super) fn hit_slowly(&mut self, n: u64) {
        for _ in 0..n / AT_ONCE {
            self.hit(AT_ONCE);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session that records a counter, with more options for its channel.
pub(super) fn recorded(place: &Place, channel: &[&str]) -> Counter {
    let counter = Counter::start();
    place.nopal(&[&["enable-channel", "-u", "channel0"], channel].concat());
    place.nopal(&["enable-event", "-u", "flight:pass"]);
    place.nopal(&["track", "-u", "-p", &counter.child.id().to_string()]);
    place.nopal(&["start"]);
    counter
}

/// The numbers of the hits, in the order of the recording.
pub(super) fn numbers(place: &Place, what: &Path) -> Vec<u64> {
    place.events(what).iter().map(|event| event["args"]["arg0"].as_u64().unwrap()).collect()
}

pub(super) fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
