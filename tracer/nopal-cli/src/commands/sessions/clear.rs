//! `nopal clear`: removes what a session has recorded.

use super::{EXIT_HELP, each, meant, say};
use crate::failure::Failure;
use nopal_session::control::{Request, ask};
use nopal_session::home::Life;
use nopal_session::{Home, Session};

/// Removes what a session has recorded since its last rotation
///
/// A started one goes on with empty rings. Chunks that a rotation has archived stay, and so do snapshots.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal clear
  nopal clear valkey
  nopal clear --all

{EXIT_HELP}"))]
pub(crate) struct Args {
    /// The session, or several with `*`; without it the current one.
    #[arg(conflicts_with = "all")]
    pub name: Option<String>,
    /// All sessions.
    #[arg(short, long)]
    pub all: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let sessions = meant(&home, args.name.as_deref(), args.all)?;
    each(sessions, |session| {
        clear(&session)?;
        let text = format!("Session `{}` cleared", session.name);
        say(args.json, &text, serde_json::json!({ "session": session.name }), &[]);
        Ok(())
    })
}

fn clear(session: &Session) -> Result<(), Failure> {
    let _alone = session.edit()?;
    match session.life() {
        // Of one that was killed `ask` says so.
        Life::Started | Life::Stale => ask(session, &Request::Clear).map(drop)?,
        Life::Stopped | Life::Failed => nopal_session::clear::of_stopped(session)?,
    }
    Ok(())
}
