//! `nopal save`: sessions as files.

use super::meant;
use crate::failure::Failure;
use nopal_files::own::Folder;
use nopal_session::{Home, Session};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes what a session wants as a TOML file, which `nopal load` reads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal save valkey                       to standard output
  nopal save valkey -o valkey.toml
  nopal save valkey --keep                where `nopal load valkey` finds it
  nopal save --all -o backup/             one file for each session
  nopal load valkey.toml --name again --output /var/tmp/again")]
pub(crate) struct Args {
    /// The session, or several with `*`; without it the current one.
    #[arg(conflicts_with = "all")]
    pub name: Option<String>,
    /// All sessions, each in a file of its own.
    #[arg(short, long)]
    pub all: bool,
    /// The file to write, or a folder for NAME.toml: one that is there, or has a slash at its end.
    #[arg(short, long, value_name = "PATH")]
    pub output_path: Option<PathBuf>,
    /// Keeps it in nopal's own folder; so it is with --all where no other is named.
    #[arg(short, long, conflicts_with = "output_path")]
    pub keep: bool,
    /// Replaces a file that is there.
    #[arg(short, long)]
    pub force: bool,
    /// Errors as JSON; the session itself is TOML.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let sessions = meant(&home, args.name.as_deref(), args.all)?;
    let has_many = args.all || sessions.len() > 1;
    if args.output_path.is_none() && (args.keep || has_many) {
        let folder = home.make_kept()?;
        return sessions.iter().try_for_each(|session| keep(session, &folder, args.force));
    }
    let Some(path) = args.output_path else {
        for session in sessions {
            // TOML has the same escapes in its strings as JSON.
            anstream::print!("{}", nopal_trace::escape_json(&session.config()?.to_toml()));
        }
        return Ok(());
    };
    let is_folder = has_many || path.is_dir() || path.to_string_lossy().ends_with('/');
    if is_folder {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| Failure::new("output", format!("cannot make {}: {e}", path.display())))?;
    }
    for session in sessions {
        let file = if is_folder { path.join(format!("{}.toml", session.name)) } else { path.clone() };
        write(&session, &file, args.force)?;
    }
    Ok(())
}

/// In nopal's own folder.
fn keep(session: &Session, folder: &Folder, is_forced: bool) -> Result<(), Failure> {
    let (name, text) = (format!("{}.toml", session.name), session.config()?.to_toml());
    let written = match is_forced {
        true => folder.replace(&name, text.as_bytes()),
        false => folder.create_new(&name).and_then(|mut file| file.write_all(text.as_bytes())),
    };
    written.map_err(|e| unwritten(&folder.path().join(&name), &e))
}

fn write(session: &Session, path: &Path, is_forced: bool) -> Result<(), Failure> {
    let text = session.config()?.to_toml();
    let mut options = OpenOptions::new();
    options.write(true).create(true).create_new(!is_forced).truncate(true);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| unwritten(path, &e))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::new("output", format!("cannot write {}: {error}", path.display()));
    match error.kind() {
        ErrorKind::AlreadyExists => failure.hint("--force replaces it"),
        _ => failure,
    }
}
