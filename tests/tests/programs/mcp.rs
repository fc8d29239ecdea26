//! `nopal mcp` as a scripted client and the client of PyPI's `mcp` see it; and what lines look like on a terminal.

use nopal_tests::process::Running;
use nopal_tests::{lab, nopal, root, run, scratch};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A client that sends one request at a time.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    n_asked: u64,
}

impl Client {
    fn start(args: &[&str]) -> Client {
        let mut command = Command::new(nopal());
        let mut server =
            command.arg("mcp").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().unwrap()));
        let mut client = Client { server, to, from, n_asked: 0 };
        let begun = client.ask("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {} }));
        assert_eq!(begun["result"]["serverInfo"]["name"], "nopal", "{begun}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, object: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{object}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.n_asked += 1;
        let id = self.n_asked;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// The text of a tool's answer, and whether it is a failure.
    fn call(&mut self, name: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": name, "arguments": arguments }));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"));
        (text.to_owned(), result["isError"] == true)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server ends with its input.
        drop(self.to.take());
        let _ = self.server.wait();
    }
}

const TICKER: &str = "#include <sys/sdt.h>
#include <unistd.h>
int main(void) {
  for (int i = 0; i < 20000; i++) {
    DTRACE_PROBE1(clock, tick__start, i); usleep(5000); DTRACE_PROBE1(clock, tick__done, i);
  }
}";

fn ticker(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("ticker.c"), folder.join(format!("clock{}", std::process::id())));
    fs::write(&source, TICKER).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O2", "-o"]).arg(&program).arg(&source));
    program
}

#[test]
fn a_client_finds_a_program_and_asks_about_it() {
    let folder = scratch("mcp_client");
    let program = ticker(&folder);
    let name = program.file_name().unwrap().to_str().unwrap().to_owned();
    let running = Running::start(&mut Command::new(&program));
    let mut client = Client::start(&[]);
    let tools = client.ask("tools/list", json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"latency") && !names.contains(&"record"), "{names:?}");
    let (probes, is_error) = client.call("probes", json!({ "name": name }));
    assert!(!is_error && probes.contains("tick__start"), "{probes}");
    let (latency, is_error) =
        client.call("latency", json!({ "spans": ["tick"], "pid": running.pid(), "seconds": 2 }));
    let answer: Value = serde_json::from_str(&latency).unwrap_or_else(|e| panic!("{e}: {latency}"));
    assert!(
        !is_error && answer["complete"] == true && answer["rows"][0]["count"].as_u64() > Some(0),
        "{latency}"
    );
    // What is wrong is told so that it can be mended.
    let (wrong, is_error) = client.call("latency", json!({ "spans": ["tik"], "pid": running.pid() }));
    assert!(is_error && wrong.contains("tick"), "{wrong}");
    for arguments in
        [json!({ "spans": ["--output=/tmp/x"] }), json!({ "spans": ["tick", "--", "touch", "x"] })]
    {
        let (wrong, is_error) = client.call("latency", arguments);
        assert!(is_error && wrong.contains("must not begin with `-`"), "{wrong}");
    }
    // More than fits is cut, and said to be.
    let recording = folder.join("many.rec");
    let many = ["record", "-e", "clock:*", "-o", recording.to_str().unwrap(), "--duration", "6s", "-p"];
    run(Command::new(nopal()).args(many).arg(running.pid().to_string()));
    let (events, is_error) = client.call("view", json!({ "recording": recording.to_str().unwrap() }));
    assert!(
        events.len() < 70_000 && events.ends_with("`patterns`)"),
        "{} bytes, failed: {is_error}",
        events.len()
    );
    let (few, is_error) =
        client.call("view", json!({ "recording": recording.to_str().unwrap(), "limit": 3 }));
    assert!(!is_error && few.lines().count() == 3, "{few}");
    let mut writer = Client::start(&["--allow-record"]);
    let tools = writer.ask("tools/list", json!({})).to_string();
    assert!(tools.contains("\"record\""), "{tools}");
}

/// The protocol as others read it, not as we do.
#[test]
fn the_client_of_pypi_asks() {
    const PACKAGES: [&str; 1] = ["mcp==2.3.0"];
    let python = lab::cached("python-mcp", &PACKAGES, |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder));
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet"]).args(PACKAGES));
    })
    .join("bin/python");
    let running = Running::start(&mut Command::new(ticker(&scratch("mcp_pypi"))));
    run(Command::new(python)
        .arg(root().join("tests/fixtures/readers/mcp_client.py"))
        .arg(nopal())
        .arg(running.pid().to_string()));
}

/// The output of a command whose standard output is a terminal.
fn on_a_terminal(folder: &Path, command: &str) -> String {
    let typescript = folder.join("typescript");
    run(Command::new("script")
        .args(["-qec", command])
        .arg(&typescript)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR"));
    String::from_utf8_lossy(&fs::read(typescript).unwrap()).into_owned()
}

#[test]
fn lines_are_short_on_a_terminal_and_babeltraces_elsewhere() {
    let folder = scratch("short_lines");
    let program = ticker(&folder);
    let running = Running::start(&mut Command::new(&program));
    let name = program.file_name().unwrap().to_str().unwrap();
    let trace = format!("{} trace --limit 3 -p {} clock:tick__start", nopal().display(), running.pid());
    let shown = on_a_terminal(&folder, &trace);
    let who = format!("{name}[{}]", running.pid());
    assert_eq!(shown.matches(&who).count(), 3, "{shown}");
    assert!(shown.contains("\x1b[36mclock:tick__start") && !shown.contains("cpu_id"), "{shown:?}");
    let silent =
        trace.replace("--limit 3", "--duration 3s").replace("tick__start", "'tick__start if arg0 < 0'");
    let shown = on_a_terminal(&folder, &silent);
    assert!(shown.contains("waiting; 0 events so far") && shown.contains("0 events, complete"), "{shown}");
    let piped = |format: &str| run(Command::new("sh").arg("-c").arg(format!("{trace} {format} | cat")));
    assert!(piped("").contains("{ cpu_id = "), "in a pipe lines stay what they were");
    let short = piped("--format short");
    assert!(
        short.contains(&who) && short.contains("clock:tick__start  arg0=") && !short.contains('\x1b'),
        "{short}"
    );
    let recording = folder.join("clock.rec");
    let record = ["record", "-e", "clock:*", "-o", recording.to_str().unwrap(), "--duration", "1s", "-p"];
    run(Command::new(nopal()).args(record).arg(running.pid().to_string()));
    let view = format!("{} view --limit 3 {}", nopal().display(), recording.display());
    let shown = on_a_terminal(&folder, &view);
    assert!(shown.contains(&format!("  {}", running.pid())) && shown.contains("arg0="), "{shown}");
    assert!(!shown.contains("cpu_id") && !shown.contains("vpid"), "{shown}");
    assert!(on_a_terminal(&folder, &format!("{view} --format babeltrace")).contains("vpid = "));
}
