//! `nopal load`: sessions from files.

use super::create::check_output;
use super::stop::end;
use super::{is_session_file, say};
use crate::failure::Failure;
use crate::reading::text_file;
use nopal_session::{Home, SessionConfig};
use std::path::{Path, PathBuf};

/// Creates sessions from files that `nopal save` wrote, or somebody by hand.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal load valkey.toml
  nopal load valkey.toml --name again --output /var/tmp/again
  nopal load valkey                       what `nopal save valkey --keep` has kept
  nopal load --all")]
pub(crate) struct Args {
    /// A file, or the name of a session that `nopal save --keep` has kept.
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["all", "input_path"])]
    pub file: Option<PathBuf>,
    /// All that are kept, or all of --input-path.
    #[arg(short, long, conflicts_with_all = ["file", "name"])]
    pub all: bool,
    /// A file, or the folder to look in.
    #[arg(short, long, value_name = "PATH")]
    pub input_path: Option<PathBuf>,
    /// Another name than the file says.
    #[arg(long, visible_alias = "override-name")]
    pub name: Option<String>,
    /// Another folder for the recordings.
    #[arg(short, long, value_name = "DIR", conflicts_with = "all")]
    pub output: Option<PathBuf>,
    /// Ends and replaces a session of the name.
    #[arg(short, long)]
    pub force: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let mut home = Home::find()?;
    for file in files(&args, &home)? {
        load(&mut home, &args, &file)?;
    }
    Ok(())
}

fn load(home: &mut Home, args: &Args, file: &Path) -> Result<(), Failure> {
    let text = text_file(file).map_err(|e| unreadable(file, &e))?;
    let mut config = SessionConfig::from_toml(&text)?;
    config.name = args.name.clone().unwrap_or(config.name);
    config.output = args.output.clone().unwrap_or(config.output);
    config.output = std::path::absolute(&config.output)
        .map_err(|e| Failure::new("output", format!("cannot find {}: {e}", config.output.display())))?;
    let mut notes = check_output(home, &config.name, &config.output)?;
    if args.force
        && let Some(before) = home.all()?.into_iter().find(|session| session.name == config.name)
    {
        notes.extend(end(&before).err().map(|failure| failure.message));
        home.remove(&before)?;
    }
    home.create(&config)?;
    let text = format!("Session `{}` loaded; its recordings go to {}", config.name, config.output.display());
    let object = serde_json::json!({ "session": config.name, "output": config.output.display().to_string() });
    say(args.json, &text, object, &notes);
    Ok(())
}

/// The files that are meant.
fn files(args: &Args, home: &Home) -> Result<Vec<PathBuf>, Failure> {
    let folder = args.input_path.clone().unwrap_or_else(|| home.saved());
    let Some(word) = &args.file else {
        return if folder.is_file() { Ok(vec![folder]) } else { all_in(&folder) };
    };
    if args.input_path.is_none() && (word.exists() || word.components().count() > 1) {
        return Ok(vec![word.clone()]);
    }
    let kept = folder.join(word).with_added_extension("toml");
    if kept.is_file() {
        return Ok(vec![kept]);
    }
    let text = format!("there is neither a file {} nor a kept session of this name", word.display());
    Err(Failure::new("input", text).hint("`nopal save NAME --keep` keeps one"))
}

fn all_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|e| unreadable(folder, &e))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_session_file(path)).collect();
    files.sort();
    match files.is_empty() {
        true => Err(Failure::new("input", format!("{} has no sessions", folder.display()))
            .hint("`nopal save NAME --keep` keeps one")),
        false => Ok(files),
    }
}

fn unreadable(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::new("input", format!("cannot read {}: {error}", path.display()))
}
