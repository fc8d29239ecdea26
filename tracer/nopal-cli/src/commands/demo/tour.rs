//! The tour: nopal's own commands, run one after the other on the demo server.

use super::children::Running;
use super::{quoted, shown_program};
use crate::failure::Failure;
use crate::signals;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A command of the tour.
struct Step {
    about: &'static str,
    args: Vec<String>,
    /// How many events, or probes, and how many lost, from what it prints with --json on both outputs.
    count: fn(stdout: &str, stderr: &str) -> Value,
}

fn steps(pid: u32, recording: &Path) -> Vec<Step> {
    let pid = pid.to_string();
    let recording = recording.to_string_lossy();
    let step = |about, args: &[&str], count| Step {
        about,
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        count,
    };
    vec![
        step(
            "The probes that the running server has. Untraced, each of them costs next to nothing.",
            &["list", "-p", &pid, "redis:*", "memcached:*", "valkey_*:*"],
            |stdout, _| json!({ "probes": serde_json::from_str(stdout).map_or(0, |v: Vec<Value>| v.len()) }),
        ),
        step(
            "Every command, as it starts and ends. The server was not restarted, and is itself again afterwards.",
            &["trace", "-p", &pid, "redis:call__*", "--limit", "8", "--duration", "20s"],
            count_lines,
        ),
        step(
            "Only what takes more than 1 ms: somebody lists all keys now and then.",
            &[
                "trace",
                "-p",
                &pid,
                "valkey_commands:command_call if duration > 1000",
                "--limit",
                "4",
                "--duration",
                "20s",
            ],
            count_lines,
        ),
        step(
            "Everything the server does for two seconds, into a folder that babeltrace2 and Trace Compass read too.",
            &[
                "record",
                "-p",
                &pid,
                "-e",
                "redis:*",
                "-e",
                "memcached:*",
                "-e",
                "valkey_*:*",
                "--duration",
                "2s",
                "-o",
                &recording,
            ],
            |stdout, _| select(stdout, &["events", "lost", "bytes"]),
        ),
        step(
            "The recording: what memcached's clients wanted, what they got, and when.",
            &["view", &recording, "memcached:*", "--limit", "8"],
            |stdout, stderr| {
                let mut counted = count_lines(stdout, "");
                counted["lost"] = select(stderr, &["lost"])["lost"].clone();
                counted
            },
        ),
        step(
            "How many there were of each; keys expired, and some were evicted to make room.",
            &["view", &recording, "--count"],
            |stdout, _| {
                let mut counted = select(stdout, &["lost", "rows"]);
                counted["events"] = select(stdout, &["total"])["total"].clone();
                counted
            },
        ),
    ]
}

fn count_lines(stdout: &str, _: &str) -> Value {
    json!({ "events": stdout.lines().count() })
}

/// These members of a JSON object.
fn select(text: &str, names: &[&str]) -> Value {
    let object: Value = serde_json::from_str(text.trim()).unwrap_or_default();
    names.iter().map(|name| ((*name).to_owned(), object[name].clone())).collect()
}

pub(super) fn run(keeps: bool, is_json: bool) -> Result<(), Failure> {
    let folder = Folder::make()?;
    let recording = folder.0.join("recording");
    let (server, port) = Running::server(0)?;
    let load = Running::load(port)?;
    let program = shown_program();
    if !is_json {
        anstream::println!(
            "A small cache server runs as process {} and answers on port {port}; four clients keep it busy.\n\
             Each command below is one that you can type.",
            server.pid()
        );
    }
    let mut results = Vec::new();
    for (number, step) in (1..).zip(steps(server.pid(), &recording)) {
        let words: Vec<String> = step.args.iter().map(|arg| quoted(arg)).collect();
        let shown = format!("{program} {}", words.join(" "));
        if !is_json {
            anstream::println!("\n\x1b[1m{number}. {}\x1b[0m\n\x1b[1;32m$ {shown}\x1b[0m", step.about);
        }
        let mut result = run_step(&step, &shown, is_json, &folder.0)?;
        result["command"] = json!(shown);
        results.push(result);
    }
    drop((load, server));
    let kept = keeps.then(|| folder.keep().join("recording"));
    if is_json {
        let lost: u64 = results.iter().filter_map(|result| result["lost"].as_u64()).max().unwrap_or(0);
        let is_complete = results.iter().all(|result| result["complete"] != false);
        anstream::println!(
            "{}",
            json!({ "complete": is_complete, "lost": lost, "steps": results, "recording": kept })
        );
    } else {
        say_goodbye(&program, kept.as_deref());
    }
    Ok(())
}

fn say_goodbye(program: &str, kept: Option<&Path>) {
    anstream::println!(
        "\n\x1b[1mThe server has ended. Where to go next:\x1b[0m
  {program} demo --serve 11311 --load    the same server for as long as you like: try the commands with its pid
  {program} list -u                      programs that are running here and have probes
  {program} trace --help                 conditions, JSON, tracing a command from its start"
    );
    match kept {
        Some(recording) => {
            let recording = quoted(&recording.to_string_lossy());
            anstream::println!("  {program} view {recording}    the recording, which was kept");
        }
        None => anstream::println!(
            "  {program} demo --keep                  the tour again, keeping the recording"
        ),
    }
}

/// Runs one command to its end: with its output on ours, or counted.
fn run_step(step: &Step, shown: &str, is_json: bool, folder: &Path) -> Result<Value, Failure> {
    let paths = [folder.join("stdout"), folder.join("stderr")];
    let run = || -> io::Result<ExitStatus> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&step.args).stdin(Stdio::null());
        if is_json {
            command.arg("--json").stdout(File::create(&paths[0])?).stderr(File::create(&paths[1])?);
        }
        io::stdout().flush()?;
        wait(command.spawn()?)
    };
    let status = run().map_err(|error| Failure::new("demo", format!("a step cannot be run: {error}")))?;
    if signals::is_stopped() {
        let mut failure = Failure::new("interrupted", "interrupted; the demo server has ended");
        failure.exit = 130;
        return Err(failure);
    }
    let output =
        |path: &PathBuf| fs::read(path).map_or(String::new(), |b| String::from_utf8_lossy(&b).into());
    let [stdout, stderr] = [output(&paths[0]), output(&paths[1])];
    if !status.success() {
        let failure = Failure::new("demo-step", format!("a step of the tour failed, {status}"));
        return Err(failure.hint(format!("it was: {shown}\n{stderr}").trim_end()));
    }
    Ok(if is_json { (step.count)(&stdout, &stderr) } else { json!({}) })
}

/// Waits for a step. A signal that was meant for all of this ends the step too, in its own clean way.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if signals::is_stopped() && !is_told {
            is_told = true;
            // Ctrl-C in a terminal has reached it as well; one more does no harm once it had time to act on it.
            std::thread::sleep(Duration::from_millis(200));
            // SAFETY: a signal to a child that has not been waited for, so the number is still its own.
            unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder for this run alone, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("nopal-demo-{}", std::process::id()));
        // Fails if somebody else has put something there.
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Folder(path)),
            Err(error) => {
                let failure =
                    Failure::new("demo", format!("cannot make the folder {}: {error}", path.display()));
                Err(failure.hint("set TMPDIR to a folder that you may write to"))
            }
        }
    }

    /// Leaves the recording where it is, and nothing else.
    fn keep(mut self) -> PathBuf {
        let path = std::mem::take(&mut self.0);
        for name in ["stdout", "stderr"] {
            // There only with --json.
            let _ = fs::remove_file(path.join(name));
        }
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
