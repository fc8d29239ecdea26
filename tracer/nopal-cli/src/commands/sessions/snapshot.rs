//! `nopal snapshot record`: writes what the rings of a flight recorder hold.

use super::{Which, say};
use crate::failure::Failure;
use nopal_session::Home;
use nopal_session::control::{Reply, Request, ask};

/// Snapshots of a session that was created with --snapshot.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    Record(RecordArgs),
}

/// Writes the newest events, which the rings hold, into a recording; they go on meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal snapshot record
  nopal snapshot record --name before-restart")]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub which: Which,
    /// Becomes part of the folder's name.
    #[arg(short, long)]
    pub name: Option<String>,
}

impl Args {
    pub(crate) fn is_json(&self) -> bool {
        let Verb::Record(args) = &self.verb;
        args.which.json
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let Verb::Record(args) = args.verb;
    let session = Home::find()?.get(args.which.session.as_deref())?;
    match ask(&session, &Request::Snapshot { name: args.name })? {
        Reply::Written { path, n_events } => {
            let text = format!("{n_events} events in {}", path.display());
            let object = serde_json::json!({ "session": session.name, "path": path.display().to_string(), "events": n_events });
            say(args.which.json, &text, object, &[]);
            Ok(())
        }
        other => Err(other.unexpected().into()),
    }
}
