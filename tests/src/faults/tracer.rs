//! nopal as a round uses it: started in its ways, its verdict compared with what the program counted.

use super::process::Process;
use super::surroundings::Clock;
use super::target::{Counts, Kind};
use crate::cycles::Chance;
use crate::nopal;
use crate::targets::{Build, build_with};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Record,
    Trace,
    Run,
    Latency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Auto,
    User,
    Kernel,
}

/// What is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The program's own.
    Probes,
    /// Of a function that is known by its name.
    Calls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    Own,
    /// A time namespace of its own.
    Other,
    /// The clock of the day may be stepped.
    Stepped,
}

/// How nopal is asked to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub verb: Verb,
    pub door: Door,
    pub subject: Subject,
    pub has_small_ring: bool,
    pub time: Time,
    /// Of scripts: the one that needs each hit, or returns of a function.
    pub is_other_script: bool,
}

impl Way {
    pub(super) fn drawn(chance: &mut Chance, kind: &Kind) -> Way {
        let subject = *chance.one_of(kind.subjects());
        let verb = match subject {
            Subject::Probes => {
                *chance.one_of(&[Verb::Record, Verb::Record, Verb::Trace, Verb::Run, Verb::Run])
            }
            Subject::Calls => {
                *chance.one_of(&[Verb::Record, Verb::Trace, Verb::Run, Verb::Run, Verb::Latency])
            }
        };
        Way {
            verb,
            door: *chance.one_of(&[Door::Auto, Door::Auto, Door::User, Door::User, Door::Kernel]),
            subject,
            has_small_ring: chance.below(3) == 0,
            time: *chance.one_of(&[
                Time::Own,
                Time::Own,
                Time::Own,
                Time::Stepped,
                Time::Stepped,
                Time::Stepped,
                Time::Other,
            ]),
            is_other_script: chance.below(2) == 0,
        }
    }

    /// What of nopal it uses, for the figures.
    pub(crate) fn names(self) -> [&'static str; 3] {
        let verb = match self.verb {
            Verb::Record => "record",
            Verb::Trace => "trace",
            Verb::Run => "run",
            Verb::Latency => "latency",
        };
        let subject = match self.subject {
            Subject::Probes => "probes",
            Subject::Calls => "functions",
        };
        [verb, self.door.words(), subject]
    }

    /// How many events one hit is.
    fn factor(self) -> u64 {
        match (self.subject, self.verb) {
            (Subject::Calls, Verb::Record | Verb::Trace) => 2,
            _ => 1,
        }
    }
}

impl Door {
    fn words(self) -> &'static str {
        match self {
            Door::Auto => "--door auto",
            Door::User => "--door user",
            Door::Kernel => "--door kernel",
        }
    }

    fn name(self) -> &'static str {
        self.words().trim_start_matches("--door ")
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [verb, door, subject] = self.names();
        write!(f, "{verb} {door} {subject}")?;
        for (is_so, what) in [
            (self.has_small_ring, "small ring"),
            (self.time == Time::Other, "time namespace"),
            (self.time == Time::Stepped, "clock that steps"),
            (self.verb == Verb::Run && self.is_other_script, "the other script"),
        ] {
            if is_so {
                write!(f, ", {what}")?;
            }
        }
        Ok(())
    }
}

/// What a tracer said at its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub n_events: u64,
    pub is_complete: bool,
}

/// How it was brought to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// When so many hits were done.
    Asked {
        n_done: u64,
    },
    Killed,
}

/// A nopal at work.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub way: Way,
    pub process: Process,
    dir: PathBuf,
    recording: PathBuf,
    at_start: Counts,
    /// When all was open.
    at_open: Option<Counts>,
    ended: Option<Ended>,
    /// It was kept from more memory or descriptors than it had.
    pub is_limited: bool,
}

impl Tracer {
    /// `pid` or, to start it, the command line; `n` tells it from others of the round.
    pub(crate) fn start(
        way: Way,
        kind: &Kind,
        pid: Option<u32>,
        dir: &Path,
        clock: &Clock,
        n: usize,
        at_start: Counts,
    ) -> Result<Tracer, String> {
        let recording = dir.join(format!("out/rec{n}"));
        let mut command = if way.time == Time::Other {
            let mut command = Command::new("unshare");
            command.args(["--time", "--monotonic", "100000", "--boottime", "100000"]).arg(nopal());
            command
        } else {
            Command::new(nopal())
        };
        command.env("NOPAL_HOME", dir.join(format!("home{n}"))).current_dir(dir);
        if way.time == Time::Stepped {
            command.env("LD_PRELOAD", stepped_clock()).env("NOPAL_TEST_CLOCK", &clock.path);
        }
        let event = match way.subject {
            Subject::Probes => kind.probes().to_owned(),
            Subject::Calls => format!("function:{}", kind.function()),
        };
        command.args([way.names()[0], "--json", "-v", "--door", way.door.name()]);
        if way.has_small_ring {
            command.args(["--buffer-size", "64k"]);
        }
        match way.verb {
            Verb::Record => command.args(["-e", &event, "-o"]).arg(&recording),
            Verb::Trace => command.arg(&event),
            Verb::Run => command.args(["-e", &script(way, kind)]),
            Verb::Latency => command.arg(&event),
        };
        match pid {
            Some(pid) => command.args(["-p", &pid.to_string()]),
            None => command.arg("--").args(kind.line(&dir.join("shared"))),
        };
        let process = Process::start(&mut command, dir, &format!("tracer{n}"))?;
        let dir = dir.to_owned();
        let (at_open, ended, is_limited) = (None, None, false);
        Ok(Tracer { way, process, dir, recording, at_start, at_open, ended, is_limited })
    }

    /// Notes when all is open; whether it is.
    pub(crate) fn look(&mut self, now: Counts) -> bool {
        if self.at_open.is_none() && self.says_open() {
            self.at_open = Some(now);
        }
        self.at_open.is_some()
    }

    fn says_open(&self) -> bool {
        match self.way.verb {
            Verb::Record | Verb::Trace | Verb::Latency => self.process.stderr().contains("sites:"),
            Verb::Run => self.process.stdout().contains("on"),
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.status().is_some()
    }

    /// Whether it had what it takes to put back what it changed: it was not killed, and had memory and descriptors.
    pub(crate) fn has_left_well(&mut self) -> bool {
        self.ended != Some(Ended::Killed)
            && !self.is_limited
            && self.process.status().is_some_and(|status| status.code().is_some())
    }

    pub(crate) fn kill(&mut self) -> bool {
        let is_done = self.ended.is_none() && self.process.signal(libc::SIGKILL);
        if is_done {
            self.ended = Some(Ended::Killed);
        }
        is_done
    }

    /// Whether it was killed or asked to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.ended.is_some()
    }

    /// Asks it to end.
    pub(crate) fn ask(&mut self, now: Counts) -> bool {
        if self.ended.is_some() || self.has_ended() {
            return false;
        }
        self.ended = Some(Ended::Asked { n_done: now.done });
        self.process.signal(libc::SIGINT)
    }

    /// It has ended, and so have the hits it may have seen: what it said, and what is wrong with that.
    pub(crate) fn verdict(&self, now: Counts) -> (Option<Said>, Vec<String>) {
        let mut wrong = Vec::new();
        let error = self.process.stderr();
        // Without memory Rust's own library ends the process with these words.
        if error.contains("panicked") && !(self.is_limited && error.contains("allocat")) {
            wrong.push(format!("the tracer: {error}"));
        }
        let said = match self.ended {
            Some(Ended::Killed) if self.way.verb == Verb::Record => self.viewed(),
            Some(Ended::Killed) => None,
            Some(Ended::Asked { .. }) | None => self.said(),
        };
        let Some(said) = said else { return (None, wrong) };
        let factor = self.way.factor();
        let n_done = match self.ended {
            Some(Ended::Asked { n_done }) => n_done,
            // One that ended by itself while there were hits knows that it has not all.
            Some(Ended::Killed) | None => now.done,
        };
        // Of what was under way when it came and when it left either is right.
        let least = n_done.saturating_sub(self.at_open.unwrap_or(now).begun) * factor;
        let most = (now.begun - self.at_start.done) * factor;
        if said.n_events > most || (said.is_complete && said.n_events < least) {
            let verdict = if said.is_complete { "complete" } else { "not complete" };
            wrong.push(format!(
                "{} events, {verdict}; the program had {least} to {most} hits; {}",
                said.n_events, self.way
            ));
        }
        (Some(said), wrong)
    }

    fn said(&self) -> Option<Said> {
        let text = match self.way.verb {
            Verb::Record | Verb::Run | Verb::Latency => self.process.stdout(),
            Verb::Trace => self.process.stderr(),
        };
        let last = text.lines().rfind(|line| line.starts_with('{') && line.contains("\"complete\""))?;
        let object: Value = serde_json::from_str(last).ok()?;
        let rows = || object["rows"].as_array();
        let n_events = match self.way.verb {
            Verb::Record | Verb::Trace => object["events"].as_u64()?,
            Verb::Run => {
                let row = rows()?.iter().find(|row| row["map"] == "@n");
                row.and_then(|row| row["value"].as_u64()).unwrap_or(0)
            }
            Verb::Latency => rows()?.iter().filter_map(|row| row["count"].as_u64()).sum(),
        };
        Some(Said { n_events, is_complete: object["complete"].as_bool()? })
    }

    /// What is left of the recording of a tracer that was killed.
    fn viewed(&self) -> Option<Said> {
        if !self.recording.join("metadata").exists() {
            return None;
        }
        let mut command = Command::new(nopal());
        command.args(["view", "--count", "--json"]).arg(&self.recording).current_dir(&self.dir);
        let text = String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned();
        let last = text.lines().rfind(|line| line.contains("\"complete\""))?;
        let object: Value = serde_json::from_str(last).ok()?;
        let n_events = object["events"].as_u64().unwrap_or(0);
        Some(Said { n_events, is_complete: object["complete"].as_bool()? })
    }

    /// Makes room on the small disk.
    pub(crate) fn forget(&self) {
        // Most have no recording.
        let _ = std::fs::remove_dir_all(&self.recording);
    }
}

/// It says that it is on when all is open.
fn script(way: Way, kind: &Kind) -> String {
    let point = match way.subject {
        Subject::Probes => format!("usdt::{}", kind.probes()),
        Subject::Calls if way.is_other_script && !matches!(kind, Kind::Go) => {
            format!("uretprobe:{}", kind.function())
        }
        Subject::Calls => format!("uprobe:{}", kind.function()),
    };
    let more =
        if way.is_other_script && way.subject == Subject::Probes { " @last[tid] = nsecs;" } else { "" };
    format!("{point} {{ @n = count();{more} }} interval:ms:100 {{ printf(\"on\\n\"); }}")
}

fn stepped_clock() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build =
        || build_with("stepped_clock", &["stepped_clock.c"], Build::Pie, &["-shared", "-fPIC", "-ldl"]);
    BUILT.get_or_init(build).clone()
}
