//! `nopal destroy`: forgets a session; what it recorded stays.

use super::stop::{Ended, end};
use super::{EXIT_HELP, meant, say};
use crate::failure::Failure;
use nopal_session::Home;

/// Ends a session and forgets it. Its recordings stay.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal destroy valkey
  nopal destroy 'auto-*'
  nopal destroy --all

{EXIT_HELP}"))]
pub(crate) struct Args {
    /// The session, or several with `*`; without it the current one.
    #[arg(conflicts_with = "all")]
    pub name: Option<String>,
    /// All sessions.
    #[arg(short, long)]
    pub all: bool,
    /// As in later LTTng: names may have `*` anyway.
    #[arg(short, long, hide = true)]
    pub glob: bool,
    /// As in LTTng; stopping never takes long here.
    #[arg(short, long)]
    pub no_wait: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let sessions = meant(&home, args.name.as_deref(), args.all)?;
    for session in sessions {
        let output = session.config().map(|config| config.output);
        let mut notes = Vec::new();
        match end(&session) {
            Ok(Ended::Stopped(_) | Ended::WasStopped) => {}
            Ok(Ended::WasStale { n_restored }) => {
                notes.push(format!("its recorder had been killed; {n_restored} places were put back"));
            }
            // It is to be forgotten; why it had failed is still worth a line.
            Err(failure) => notes.push(failure.message),
        }
        home.remove(&session)?;
        let kept =
            output.map_or(String::new(), |output| format!("; its recordings stay in {}", output.display()));
        let text = format!("Session `{}` destroyed{kept}", session.name);
        say(args.json, &text, serde_json::json!({ "session": session.name }), &notes);
    }
    Ok(())
}
