//! `nopal set-session`: which session is meant when none is named.

use super::say;
use crate::failure::Failure;
use nopal_session::Home;

/// Makes a session the current one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal set-session valkey")]
pub(crate) struct Args {
    pub name: String,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let session = home.get(Some(&args.name))?;
    home.set_current(&session.name)?;
    say(
        args.json,
        &format!("Session `{}` is the current one", session.name),
        serde_json::json!({ "session": session.name }),
        &[],
    );
    Ok(())
}
