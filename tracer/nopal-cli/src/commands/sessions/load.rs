//! `nopal load`: a session from a file.

use super::create::check_output;
use super::say;
use crate::failure::Failure;
use nopal_session::{Home, SessionConfig};
use std::path::PathBuf;

/// Creates a session from a file that `nopal save` wrote, or somebody by hand.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal load valkey.toml
  nopal load valkey.toml --name again --output /var/tmp/again")]
pub(crate) struct Args {
    pub file: PathBuf,
    /// Another name than the file says.
    #[arg(long)]
    pub name: Option<String>,
    /// Another folder for the recordings.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|e| Failure::new("input", format!("cannot read {}: {e}", args.file.display())))?;
    let mut config = SessionConfig::from_toml(&text)?;
    config.name = args.name.unwrap_or(config.name);
    config.output = args.output.unwrap_or(config.output);
    config.output = std::path::absolute(&config.output)
        .map_err(|e| Failure::new("output", format!("cannot find {}: {e}", config.output.display())))?;
    let mut home = Home::find()?;
    let notes = check_output(&home, &config.name, &config.output)?;
    home.create(&config)?;
    let text = format!("Session `{}` loaded; its recordings go to {}", config.name, config.output.display());
    say(
        args.json,
        &text,
        serde_json::json!({ "session": config.name, "output": config.output.display().to_string() }),
        &notes,
    );
    Ok(())
}
