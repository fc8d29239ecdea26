//! `nopal save`: a session as a file.

use crate::failure::Failure;
use nopal_session::Home;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Writes what a session wants as a TOML file, which `nopal load` reads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal save valkey                       to standard output
  nopal save valkey -o valkey.toml
  nopal load valkey.toml --name again --output /var/tmp/again")]
pub(crate) struct Args {
    /// The session; without it the current one.
    pub name: Option<String>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output_path: Option<PathBuf>,
    /// Replaces a file that is there.
    #[arg(short, long)]
    pub force: bool,
    /// Errors as JSON; the session itself is TOML.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let text = Home::find()?.get(args.name.as_deref())?.config()?.to_toml();
    let Some(path) = args.output_path else {
        // TOML has the same escapes in its strings as JSON.
        anstream::print!("{}", nopal_trace::escape_json(&text));
        return Ok(());
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).create_new(!args.force).truncate(true);
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| {
        let failure = Failure::new("output", format!("cannot write {}: {e}", path.display()));
        match e.kind() {
            std::io::ErrorKind::AlreadyExists => failure.hint("--force replaces it"),
            _ => failure,
        }
    })
}
