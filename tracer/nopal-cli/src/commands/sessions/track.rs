//! `nopal track` and `nopal untrack`: which processes a session records.

use super::{Which, change, say};
use crate::failure::Failure;
use crate::processes::ProcessArgs;
use nopal_proc::{Process, TargetError};
use nopal_session::config::TrackedProcess;
use nopal_session::{SessionConfig, SessionError, Tracked};
use std::path::{Path, PathBuf};

/// Names the processes to record. Unlike LTTng, nopal touches no process that was not named.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal track -u -n valkey-server            those running now
  nopal track -u --program valkey-server     those running, and those started later
  nopal track -u --cgroup /system.slice      the same of a control group,
  nopal track -u --container web             a container,
  nopal track -u --user www-data             a user: all that have enabled probes

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
    /// All processes of a user, by name or number, that have enabled probes: those running, and those started later.
    #[arg(long, visible_aliases = ["vuid", "uid"], value_name = "USER", value_delimiter = ',', value_parser = user)]
    pub user: Vec<u32>,
    #[arg(skip)]
    groups: (Vec<PathBuf>, Vec<String>),
}

/// A user by number, or by name as `/etc/passwd` has it.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = nopal_files::foreign::read_text(Path::new("/etc/passwd"), 1 << 24).unwrap_or_default();
    let number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok())?
    });
    number.ok_or_else(|| format!("there is no user `{text}` in /etc/passwd; give the number"))
}

impl What {
    fn is_empty(&self) -> bool {
        let (cgroups, containers) = &self.groups;
        self.processes.pids.is_empty()
            && self.program.is_empty()
            && self.user.is_empty()
            && cgroups.is_empty()
            && containers.is_empty()
    }

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
    what.groups = what.processes.take_groups()?;
    what.resolve()?;
    if what.is_empty() {
        let hint = "add -p PID, -n NAME, --program NAME, --user USER, --cgroup PATH or --container NAME";
        return Err(Failure::usage("no process named").hint(hint));
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
            add(&mut config.track.programs, program);
        }
        let (cgroups, containers) = &what.groups;
        what.user.iter().for_each(|user| add(&mut config.track.users, user));
        cgroups.iter().for_each(|path| add(&mut config.track.cgroups, path));
        containers.iter().for_each(|name| add(&mut config.track.containers, name));
        Ok(())
    })?;
    let text = format!("{} tracked by session `{}`", listed(&what), session.name);
    say(args.which.json, &text, object(&session.name, &what), &notes);
    Ok(())
}

fn add<T: Clone + PartialEq>(list: &mut Vec<T>, one: &T) {
    if !list.contains(one) {
        list.push(one.clone());
    }
}

pub(crate) fn untrack(args: UntrackArgs) -> Result<(), Failure> {
    let mut what = args.what;
    // They may be there no more.
    what.groups =
        (std::mem::take(&mut what.processes.cgroups), std::mem::take(&mut what.processes.containers));
    what.resolve()?;
    if what.is_empty() && !args.all {
        let hint =
            "add -p PID, -n NAME, --program NAME, --user USER, --cgroup PATH, --container NAME or --all";
        return Err(Failure::usage("no process named").hint(hint));
    }
    let (session, notes) = change(&args.which, |config: &mut SessionConfig| {
        let track = &mut config.track;
        if args.all {
            *track = Tracked::default();
            return Ok(());
        }
        let before = track.clone();
        let (cgroups, containers) = &what.groups;
        track.processes.retain(|process| !what.processes.pids.contains(&process.pid));
        track.programs.retain(|program| !what.program.contains(program));
        track.users.retain(|user| !what.user.contains(user));
        track.cgroups.retain(|path| !cgroups.contains(path));
        track.containers.retain(|name| !containers.contains(name));
        if *track == before {
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
    pids.chain(programs).chain(groups(what)).collect::<Vec<_>>().join(", ")
}

fn groups(what: &What) -> Vec<String> {
    let (cgroups, containers) = what.groups.clone();
    Tracked { users: what.user.clone(), cgroups, containers, ..Tracked::default() }.groups_in_words()
}

fn object(session: &str, what: &What) -> serde_json::Value {
    serde_json::json!({
        "session": session, "pids": what.processes.pids, "programs": what.program, "groups": groups(what),
    })
}
