//! `nopal rotate`: ends the recording of now and begins another.

use super::say;
use crate::failure::Failure;
use nopal_session::Home;
use nopal_session::control::{Reply, Request, ask};

/// Finishes what was recorded so far, so that it can be moved away, and goes on in a new folder. Nothing is lost between.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal rotate
  nopal rotate valkey --json")]
pub(crate) struct Args {
    /// The session; without it the current one.
    pub name: Option<String>,
    /// As in LTTng; rotating never takes long here.
    #[arg(short, long, hide = true)]
    pub no_wait: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let session = Home::find()?.get(args.name.as_deref())?;
    match ask(&session, &Request::Rotate)? {
        Reply::Written { path, n_events } => {
            let text = format!("{n_events} events in {}", path.display());
            let object = serde_json::json!({ "session": session.name, "path": path.display().to_string(), "events": n_events });
            say(args.json, &text, object, &[]);
            Ok(())
        }
        other => Err(other.unexpected().into()),
    }
}
