//! `nopal track` and `nopal untrack`: which processes a session records.

use super::{Which, change, say};
use crate::failure::Failure;
use crate::processes::ProcessArgs;
use nopal_proc::{Process, TargetError};
use nopal_session::config::TrackedProcess;
use nopal_session::{SessionConfig, SessionError};

/// Names the processes to record. Unlike LTTng, nopal touches no process that was not named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal track -u -n valkey-server            those running now
  nopal track -u --container web
  nopal track -u --program valkey-server     those running, and those started later

Descendants of a process are recorded with it.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub what: What,
}

/// Takes processes out again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal untrack -u -p 1234
  nopal untrack -u --program valkey-server
  nopal untrack -u --all")]
pub(crate) struct UntrackArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub what: What,
    /// Everything.
    #[arg(short, long)]
    pub all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct What {
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// Programs by name, or by path if there is a slash in it.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub program: Vec<String>,
}

impl What {
    /// Gives programs the path by which the kernel knows them.
    fn resolve(&mut self) -> Result<(), Failure> {
        self.processes.resolve(false)?;
        for program in &mut self.program {
            if program.is_empty() || program.contains(['*', '?']) || program.ends_with('/') {
                let text = format!("`{program}` is not the name of a program");
                return Err(Failure::usage(text).hint("--program takes a name or a path, without * and ?"));
            }
            if program.contains('/') {
                let path = std::fs::canonicalize(&*program).or_else(|_| std::path::absolute(&*program));
                *program = path.map_or_else(|_| program.clone(), |path| path.to_string_lossy().into_owned());
            }
        }
        Ok(())
    }
}

fn not_traceable(error: &TargetError) -> Failure {
    let code = match error {
        TargetError::NotPermitted { .. } => "not-permitted",
        TargetError::Zombie { .. } => "gone",
        _ => "no-such-process",
    };
    SessionError::new(code, error.to_string()).into()
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let mut what = args.what;
    what.resolve()?;
    if what.processes.pids.is_empty() && what.program.is_empty() {
        return Err(Failure::usage("no process named").hint("add -p PID, -n NAME or --program NAME"));
    }
    let mut found = Vec::new();
    for pid in &what.processes.pids {
        let process = Process::read(*pid)
            .and_then(|process| process.check_traceable().map(|()| process))
            .map_err(|e| not_traceable(&e))?;
        found.push(TrackedProcess::of(&process));
    }
    let (session, notes) = change(&args.which, |config: &mut SessionConfig| {
        for process in &found {
            config.track.processes.retain(|known| known.pid != process.pid);
            config.track.processes.push(*process);
        }
        for program in &what.program {
            if !config.track.programs.contains(program) {
                config.track.programs.push(program.clone());
            }
        }
        Ok(())
    })?;
    let text = format!("{} tracked by session `{}`", listed(&what), session.name);
    say(args.which.json, &text, object(&session.name, &what), &notes);
    Ok(())
}

pub(crate) fn untrack(args: UntrackArgs) -> Result<(), Failure> {
    let mut what = args.what;
    what.resolve()?;
    if what.processes.pids.is_empty() && what.program.is_empty() && !args.all {
        return Err(Failure::usage("no process named").hint("add -p PID, -n NAME, --program NAME or --all"));
    }
    let (session, notes) = change(&args.which, |config: &mut SessionConfig| {
        let track = &mut config.track;
        if args.all {
            track.processes.clear();
            track.programs.clear();
            return Ok(());
        }
        let n_before = track.processes.len() + track.programs.len();
        track.processes.retain(|process| !what.processes.pids.contains(&process.pid));
        track.programs.retain(|program| !what.program.contains(program));
        if track.processes.len() + track.programs.len() == n_before {
            return Err(Failure::new("not-tracked", format!("{} is not tracked", listed(&what)))
                .hint("`nopal status NAME` shows what is"));
        }
        Ok(())
    })?;
    let text = match args.all {
        true => format!("nothing is tracked any more by session `{}`", session.name),
        false => format!("{} no longer tracked by session `{}`", listed(&what), session.name),
    };
    say(args.which.json, &text, object(&session.name, &what), &notes);
    Ok(())
}

fn listed(what: &What) -> String {
    let pids = what.processes.pids.iter().map(|pid| format!("process {pid}"));
    let programs = what.program.iter().map(|program| format!("program {program}"));
    pids.chain(programs).collect::<Vec<_>>().join(", ")
}

fn object(session: &str, what: &What) -> serde_json::Value {
    serde_json::json!({ "session": session, "pids": what.processes.pids, "programs": what.program })
}
