//! What tests of sessions need: a server that is recorded, and a folder with sessions of its own.

use nopal_tests::process::Running;
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

pub(super) fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
