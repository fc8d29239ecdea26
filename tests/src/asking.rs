//! A question asked of a running program (`nopal latency`, `top`, `count`): open when nopal says so, answered when it is
//! told to end.

use crate::nopal;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A tracer at work.
#[derive(Debug)]
pub struct Asked(Option<Child>);

impl Asked {
    /// Starts `nopal WORDS --json -v -p PID` and waits until it says that the sites are open.
    #[track_caller]
    pub fn of(pid: u32, words: &[&str]) -> Asked {
        let mut command = Command::new(nopal());
        Asked::start(command.args(words).args(["--json", "-v", "-p", &pid.to_string()]))
    }

    /// The same for a command of one's own, which must have `-v`.
    #[track_caller]
    pub fn start(command: &mut Command) -> Asked {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nopal starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let (mut line, mut said) = (String::new(), String::new());
        while !line.starts_with("sites:") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("text") > 0, "{said}");
            said.push_str(&line);
        }
        // What follows must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Asked(Some(child))
    }

    fn take(&mut self) -> Child {
        self.0.take().expect("it is asked for once")
    }

    /// What it answers when its program has ended.
    #[track_caller]
    pub fn in_the_end(mut self) -> Value {
        read(self.take())
    }

    /// What it answers if it is interrupted now.
    #[track_caller]
    pub fn so_far(mut self) -> Value {
        let child = self.take();
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        read(child)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only if it has ended, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn read(mut child: Child) -> Value {
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(answer["complete"], true, "{}", answer["verdict"]);
    answer
}

/// What `nopal WORDS` prints, which is JSON, of a command that it runs.
#[track_caller]
pub fn answered(command: &mut Command) -> Value {
    let text = crate::run(command);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// How often, by the text in a column of the rows.
#[track_caller]
pub fn counts(answer: &Value, column: &str) -> HashMap<String, u64> {
    let rows = answer["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let name = row[column].as_str().map_or_else(|| row[column].to_string(), str::to_owned);
        (name, number(&row["count"]))
    })
    .collect()
}

#[track_caller]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}
