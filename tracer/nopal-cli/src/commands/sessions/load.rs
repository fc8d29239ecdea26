//! `nopal load`: sessions from files.

use super::create::check_output;
use super::stop::end;
use super::{is_session_file, say};
use crate::failure::Failure;
use crate::reading::text_file;
use nopal_files::own::Folder;
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
    let kept = home.kept()?;
    for file in files(&args, kept.as_ref())? {
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

/// The files that are meant. Those of nopal's own folder are named by its descriptor.
fn files(args: &Args, kept: Option<&Folder>) -> Result<Vec<PathBuf>, Failure> {
    let own = kept.map(Folder::path_by_descriptor);
    let Some(word) = &args.file else {
        return match (&args.input_path, own) {
            (Some(path), _) if path.is_file() => Ok(vec![path.clone()]),
            (Some(path), _) => all_in(path),
            (None, Some(own)) => all_in(&own),
            (None, None) => Err(none_kept("no session is kept")),
        };
    };
    let is_path = word.components().count() > 1 || word.extension().is_some_and(|of| of == "toml");
    let folder = args.input_path.clone().or(own).filter(|_| !is_path || args.input_path.is_some());
    let kept = folder.map(|folder| folder.join(word).with_added_extension("toml"));
    match kept.filter(|kept| kept.is_file()) {
        Some(kept) => Ok(vec![kept]),
        None if args.input_path.is_none() && (is_path || word.exists()) => Ok(vec![word.clone()]),
        None => Err(none_kept(&format!(
            "there is neither a file {} nor a kept session of this name",
            word.display()
        ))),
    }
}

fn none_kept(text: &str) -> Failure {
    Failure::new("input", text).hint("`nopal save NAME --keep` keeps one")
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
