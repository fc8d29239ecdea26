//! `nopal start`: begins recording, in a process of its own that outlives the terminal.

use super::{EXIT_HELP, each, meant, say};
use crate::failure::Failure;
use crate::words::counted;
use nopal_session::control::{Request, ask};
use nopal_session::home::Life;
use nopal_session::recorder_process::Started;
use nopal_session::{Home, Session, SessionError};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Starts a session.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal start
  nopal start valkey
  nopal start --all

A recorder process holds the session until `nopal stop`; it survives the terminal.

{EXIT_HELP}"))]
pub(crate) struct Args {
    /// The session, or several with `*`; without it the current one.
    #[arg(conflicts_with = "all")]
    pub name: Option<String>,
    /// All that are not started.
    #[arg(short, long)]
    pub all: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let mut sessions = meant(&home, args.name.as_deref(), args.all)?;
    if args.all {
        sessions.retain(|session| session.life() != Life::Started);
    }
    each(sessions, |session| start(&session, args.json))
}

fn start(session: &Session, is_json: bool) -> Result<(), Failure> {
    // What is changed now is changed before the recorder reads it, or when it listens.
    let _alone = session.edit()?;
    if session.life() == Life::Started {
        let answer = ask(session, &Request::Status);
        // A killed recorder keeps its lock until the kernel has put it away.
        if session.life() == Life::Started {
            answer?;
            let text = format!("session `{}` is started already", session.name);
            return Err(SessionError::new("already-started", text).into());
        }
    }
    let started = spawn(session)??;
    let sites = [
        (started.user_sites, "user door"),
        (started.kernel_sites, "kernel door"),
        (started.closed_sites, "not opened"),
    ];
    let sites: Vec<String> =
        sites.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let processes = counted(started.pids.len() as u64, "process").replace("processs", "processes");
    let text = match sites.is_empty() {
        true => format!("Session `{}` started; {processes}, no site yet", session.name),
        false => format!("Session `{}` started; {processes}, sites: {}", session.name, sites.join(", ")),
    };
    let object = serde_json::json!({
        "session": session.name, "pids": started.pids,
        "sites": { "user": started.user_sites, "kernel": started.kernel_sites, "closed": started.closed_sites },
    });
    say(is_json, &text, object, &started.notes);
    Ok(())
}

/// Starts the recorder and waits until it says how it went.
fn spawn(session: &Session) -> Result<Result<Started, SessionError>, Failure> {
    let fails = |e: std::io::Error| Failure::new("recorder", format!("cannot start the recorder: {e}"));
    let log = session.open_log().map_err(fails)?;
    let mut recorder = Command::new("/proc/self/exe")
        .arg("recorder")
        .arg(session.dir())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(fails)?;
    let mut line = String::new();
    let output = recorder.stdout.take().expect("it was asked for");
    BufReader::new(output).read_line(&mut line).map_err(fails)?;
    serde_json::from_str(&line).map_err(|_| {
        Failure::new("recorder", "the recorder ended at once")
            .hint(format!("its last words are in {}", session.log().display()))
    })
}
