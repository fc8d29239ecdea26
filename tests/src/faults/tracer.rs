//! nopal as a round uses it: started in its ways, waited for with a bound, its verdict read.

use super::Plan;
use crate::nopal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Record,
    Trace,
    Run,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Record => "record",
            Verb::Trace => "trace",
            Verb::Run => "run",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Auto,
    User,
    Kernel,
}

impl Door {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Door::Auto => "auto",
            Door::User => "user",
            Door::Kernel => "kernel",
        }
    }
}

/// A child whose output goes to files, and that is killed with its round.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    status: Option<ExitStatus>,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, dir: &Path, name: &str) -> std::io::Result<Process> {
        let (stdout, stderr) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        command.stdin(Stdio::null()).stdout(fs::File::create(&stdout)?).stderr(fs::File::create(&stderr)?);
        Ok(Process { child: command.spawn()?, status: None, stdout, stderr })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it has.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        if self.status().is_none() {
            // SAFETY: a child of ours that we have not reaped.
            unsafe { libc::kill(self.pid() as i32, signal) };
        }
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for(limit, || self.status().is_some());
        self.status()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether it became a fact in time.
pub(crate) fn wait_for(limit: Duration, mut fact: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !fact() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    true
}

/// The command of a round; `target` is a process or a command line.
pub(crate) fn command(plan: &Plan, dir: &Path, pid: Option<u32>, line: &[String]) -> Command {
    let mut command = if plan.has_other_clock {
        let mut command = Command::new("unshare");
        command.args(["--time", "--monotonic", "100000", "--boottime", "100000"]).arg(nopal());
        command
    } else {
        Command::new(nopal())
    };
    command.env("NOPAL_HOME", dir.join("home")).current_dir(dir);
    command.args([plan.verb.name(), "--json", "-v", "--door", plan.door.name()]);
    if plan.has_small_ring {
        command.args(["--buffer-size", "64k"]);
    }
    let probes = plan.kind.probes();
    match plan.verb {
        Verb::Record => command.args(["-e", probes, "-o", "out/rec"]),
        Verb::Trace => command.arg(probes),
        Verb::Run => command.args(["-e", &script(probes)]),
    };
    match pid {
        Some(pid) => command.args(["-p", &pid.to_string()]),
        None => command.arg("--").args(line),
    };
    command
}

/// It says that it is on when all is open.
fn script(probes: &str) -> String {
    format!("usdt::{probes} {{ @n = count(); }} interval:ms:500 {{ printf(\"on\\n\"); }}")
}

/// Whether all is open.
pub(crate) fn is_open(plan: &Plan, tracer: &Process) -> bool {
    match plan.verb {
        Verb::Record | Verb::Trace => tracer.stderr().contains("sites:"),
        Verb::Run => tracer.stdout().contains("on"),
    }
}

/// What a tracer said at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub n_events: u64,
    pub is_complete: bool,
}

pub(crate) fn said(verb: Verb, tracer: &Process) -> Option<Said> {
    let text = match verb {
        Verb::Record | Verb::Run => tracer.stdout(),
        Verb::Trace => tracer.stderr(),
    };
    let last = text.lines().rfind(|line| line.starts_with('{') && line.contains("\"complete\""))?;
    let object: Value = serde_json::from_str(last).ok()?;
    let n_events = match verb {
        Verb::Record | Verb::Trace => object["events"].as_u64()?,
        Verb::Run => {
            let rows = object["rows"].as_array()?;
            rows.iter().find(|row| row["map"] == "@n").and_then(|row| row["value"].as_u64()).unwrap_or(0)
        }
    };
    Some(Said { n_events, is_complete: object["complete"].as_bool()? })
}

/// What is left of the recording of a tracer that was killed.
pub(crate) fn viewed(dir: &Path) -> Option<Said> {
    if !dir.join("out/rec/metadata").exists() {
        return None;
    }
    let output = Command::new(nopal()).args(["view", "--count", "--json"]).arg(dir.join("out/rec")).output();
    let output = output.ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().rfind(|line| line.contains("\"complete\""))?;
    let object: Value = serde_json::from_str(last).ok()?;
    let n_events = object["events"].as_u64().unwrap_or(0);
    Some(Said { n_events, is_complete: object["complete"].as_bool()? })
}
