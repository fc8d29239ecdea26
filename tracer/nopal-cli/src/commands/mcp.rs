//! `nopal mcp`: the verbs that look as tools of a Model Context Protocol server on standard input and output.
//!
//! One JSON-RPC 2.0 object a line. A call runs this command with `--json`, for a bounded time and with bounded output. No
//! word of a call becomes an option or a command to start.

mod tools;

use crate::failure::Failure;
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tools::Tool;

/// Serves the verbs that look as tools of the Model Context Protocol, on standard input and output.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal mcp                              for a client that starts it: {\"command\": \"nopal\", \"args\": [\"mcp\"]}
  nopal mcp --allow-record               the same with `record`, which writes files

Without --allow-record nothing is written, no program is started, and nothing but nopal's own sites in the processes that a call
names is touched. A call traces at most 60 s and answers at most 64 KiB.")]
pub(super) struct Args {
    /// Adds the tool `record`, which writes recordings into the current folder.
    #[arg(long)]
    pub allow_record: bool,
}

/// The versions of the protocol that are understood, the newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// Of one request.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// Of one answer.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// What a verb may take beside the time that it traces for.
const GRACE: Duration = Duration::from_secs(60);

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const NO_SUCH_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let mut out = std::io::stdout().lock();
    let cannot =
        |error: std::io::Error| Failure::new("mcp", format!("the client cannot be reached: {error}"));
    loop {
        let mut line = Vec::new();
        let n = (&mut input).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(cannot)?;
        if n == 0 {
            return Ok(());
        }
        if n as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(Failure::new("mcp", "a request is longer than 1 MiB"));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Some(answer) = answer(&line, &args) {
            match writeln!(out, "{answer}").and_then(|()| out.flush()) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(cannot(error)),
            }
        }
    }
}

/// Nothing for what wants no answer.
fn answer(line: &[u8], args: &Args) -> Option<Value> {
    let error = |id: Value, code: i64, message: &str| {
        Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    };
    let Ok(request) = serde_json::from_slice::<Value>(line) else {
        return error(Value::Null, PARSE_ERROR, "this is not JSON");
    };
    let id = request.get("id").cloned();
    let Some(method) = request.get("method").and_then(Value::as_str) else {
        // An answer to a question that was never asked.
        let is_answer = request.get("result").is_some() || request.get("error").is_some();
        return if is_answer {
            None
        } else {
            error(id.unwrap_or_default(), INVALID_REQUEST, "no method is named")
        };
    };
    // Notifications have no number and get no answer.
    let id = id?;
    let none = json!({});
    let params = request.get("params").unwrap_or(&none);
    let result = match method {
        "initialize" => initialize(params),
        "ping" => json!({}),
        "tools/list" => {
            json!({ "tools": tools::all(args.allow_record).map(Tool::describe).collect::<Vec<_>>() })
        }
        "tools/call" => {
            let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
            let Some(tool) = tools::all(args.allow_record).find(|tool| tool.name == name) else {
                return error(
                    id,
                    INVALID_PARAMS,
                    &format!("there is no tool `{name}`; tools/list shows all of them"),
                );
            };
            call(tool, params.get("arguments").unwrap_or(&none))
        }
        method => return error(id, NO_SUCH_METHOD, &format!("there is no method `{method}`")),
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn initialize(params: &Value) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let version = VERSIONS.iter().find(|known| **known == asked).unwrap_or(&VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "nopal", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "Traces running programs by their static probes. Begin with `programs`, then `spans`, then `latency`. \
                         Every answer says whether it is complete.",
    })
}

/// Runs the verb. What is wrong with the call is told as the tool's own failure, so that it can be mended.
fn call(tool: &Tool, arguments: &Value) -> Value {
    let said = |text: String, is_error: bool| json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
    let (words, tracing_s) = match tool.command_line(arguments) {
        Ok(line) => line,
        Err(wrong) => return said(wrong, true),
    };
    match execute(&words, Duration::from_secs(tracing_s) + GRACE) {
        Ok((text, is_success)) => said(text, !is_success),
        Err(error) => said(format!("nopal cannot be started: {error}"), true),
    }
}

fn execute(words: &[String], limit: Duration) -> std::io::Result<(String, bool)> {
    let mut child = Command::new("/proc/self/exe")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A pipe that is closed ends what would print without end.
    let read = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                let _ = from.take(MAX_OUTPUT_BYTES as u64 + 1).read_to_end(&mut bytes);
            }
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>));
    let stderr = read(child.stderr.take().map(|out| Box::new(out) as Box<dyn Read + Send>));
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = bounded(stdout.join().unwrap_or_default());
    let errors = bounded(stderr.join().unwrap_or_default());
    let is_success = status.is_some_and(|status| status.success());
    if !is_success || text.is_empty() {
        text.push_str(&errors);
    }
    if status.is_none() {
        text.push_str(&format!("\nended after {} s", limit.as_secs()));
    }
    Ok((text, is_success))
}

fn bounded(mut bytes: Vec<u8>) -> String {
    let is_cut = bytes.len() > MAX_OUTPUT_BYTES;
    bytes.truncate(MAX_OUTPUT_BYTES);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if is_cut {
        text.push_str("\n(cut at 64 KiB; ask for fewer rows with `limit`, or for less with `patterns`)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Option<Value> {
        answer(line.as_bytes(), &Args { allow_record: false })
    }

    #[test]
    fn requests_are_answered_and_notifications_are_not() {
        let begun = ask(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}"#,
        );
        let begun = begun.expect("it is answered");
        assert_eq!((&begun["id"], &begun["result"]["protocolVersion"]), (&1.into(), &"2024-11-05".into()));
        let newer = ask(r#"{"id":"x","method":"initialize","params":{"protocolVersion":"2099-01-01"}}"#);
        assert_eq!(newer.expect("it is answered")["result"]["protocolVersion"], VERSIONS[0]);
        for quiet in [r#"{"method":"notifications/initialized"}"#, r#"{"id":7,"result":{}}"#] {
            assert_eq!(ask(quiet), None, "{quiet}");
        }
        for (line, code) in [
            ("no json", PARSE_ERROR),
            (r#"{"id":1}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"resources/list"}"#, NO_SUCH_METHOD),
            (r#"{"id":1,"method":"tools/call","params":{"name":"destroy"}}"#, INVALID_PARAMS),
            (r#"{"id":1,"method":"tools/call","params":{"name":"record"}}"#, INVALID_PARAMS),
            ("[]", INVALID_REQUEST),
        ] {
            assert_eq!(ask(line).expect(line)["error"]["code"], code, "{line}");
        }
    }
}
