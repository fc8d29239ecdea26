//! `nopal create`: a new session.

use super::enable_event::{check_event, check_filter};
use super::{EXIT_HELP, say};
use crate::commands::recordings::check_above;
use crate::failure::Failure;
use nopal_answers::trigger::TriggerText;
use nopal_files::own::Folder;
use nopal_live::registry::Choice;
use nopal_session::config::check_name;
use nopal_session::recorder_process::stamp;
use nopal_session::{Home, Rotation, Session, SessionConfig, SessionError, Tracked};
use std::path::{Path, PathBuf};

/// Creates a session, which becomes the current one.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal create valkey
  nopal enable-event -u 'valkey_commands:*'
  nopal track -u -p 1234
  nopal start; sleep 10; nopal stop
  nopal view valkey

  nopal create flight --snapshot --trigger 'valkey_commands:command_call if duration > 10000'
  nopal create flight --snapshot --trigger 'latency(postgresql:query) > 50ms'

  nopal create host --snapshot --memory 64M
  nopal enable-event -u 'postgresql:*,valkey*:*'
  nopal track -u --cgroup /system.slice
  nopal start

{EXIT_HELP}"))]
pub(crate) struct Args {
    /// Its name; without it `auto-DATE-TIME`.
    pub name: Option<String>,
    /// Where its recordings go; without it `~/nopal-traces/NAME-DATE-TIME`.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Keeps the newest events in memory and writes them when `nopal snapshot record` asks, when a trigger fires, and
    /// when a tracked process ends; of a tracked user, control group or container only when a process crashes.
    #[arg(long)]
    pub snapshot: bool,
    /// For all rings together, however many processes there are: `64M`. Processes that find no room are not recorded, which
    /// is said.
    #[arg(long, value_name = "SIZE", requires = "snapshot", value_parser = crate::words::size)]
    pub memory: Option<u64>,
    /// An event that makes a snapshot by itself, such as 'app:request if ms > 100', or a span that takes too long, such as
    /// 'latency(query) > 10ms'; may be given several times.
    #[arg(long, value_name = "EVENT", requires = "snapshot")]
    pub trigger: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let name = args.name.unwrap_or_else(|| format!("auto-{}", stamp()));
    check_name("a session", &name)?;
    args.trigger.iter().try_for_each(|trigger| check_trigger(trigger))?;
    let output = match args.output {
        Some(output) => {
            check_above(&output)?;
            output
        }
        None => default_output(&name)?,
    };
    let output = std::path::absolute(&output)
        .map_err(|e| Failure::new("output", format!("cannot find {}: {e}", output.display())))?;
    let mut home = Home::find()?;
    let notes = check_output(&home, &name, &output)?;
    let config = SessionConfig {
        name: name.clone(),
        output: output.clone(),
        snapshot: args.snapshot,
        memory_bytes: args.memory,
        triggers: args.trigger,
        rotation: Rotation::default(),
        track: Tracked::default(),
        channels: Vec::new(),
    };
    let session = home.create(&config)?;
    if let Err(failure) = make_output(&output) {
        let _ = home.remove(&session);
        return Err(failure);
    }
    let text = format!("Session `{name}` created; its recordings go to {}", output.display());
    let object = serde_json::json!({ "session": name, "output": output.display().to_string(), "snapshot": args.snapshot });
    say(args.json, &text, object, &notes);
    Ok(())
}

fn default_output(name: &str) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).ok_or_else(|| {
        Failure::new("no-home", "HOME is not set")
            .hint("--output DIR says where recordings go, NOPAL_HOME=DIR where sessions are kept")
    })?;
    let stamped = match name.starts_with("auto-") {
        true => name.to_owned(),
        false => format!("{name}-{}", stamp()),
    };
    Ok(Path::new(&home).join("nopal-traces").join(stamped))
}

/// Recordings of two sessions in one folder could not be told apart; of older ones there is a note.
pub(crate) fn check_output(home: &Home, name: &str, output: &Path) -> Result<Vec<String>, Failure> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_same = |other: &Session| other.config().is_ok_and(|c| real(&c.output) == real(output));
    if let Some(other) = home.all()?.into_iter().filter(|other| other.name != name).find(is_same) {
        let text = format!("session `{}` records into {}", other.name, output.display());
        return Err(Failure::new("output", text).hint("choose another folder with --output"));
    }
    let is_recording = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("chunk-") || name.starts_with("snapshot-")
    };
    let mut entries = std::fs::read_dir(output).into_iter().flatten().flatten();
    let has_recordings = entries.any(is_recording);
    let note = || format!("{} has older recordings; `nopal view` shows them too", output.display());
    Ok(has_recordings.then(note).into_iter().collect())
}

/// What can never be read is reported now, not when the session starts.
fn check_trigger(text: &str) -> Result<(), Failure> {
    if nopal_session::watch::is_watched(text) {
        return Ok(TriggerText::parse(text).map(drop)?);
    }
    let choice = Choice::parse(text);
    check_event(choice.pattern.text())?;
    choice.condition.as_deref().map_or(Ok(()), check_filter)
}

/// Found out now rather than when the first event comes: whether anything can be written there.
fn make_output(output: &Path) -> Result<(), Failure> {
    let fails = |e: std::io::Error| {
        SessionError::io(output, "write into", &e).hint("choose another folder with --output")
    };
    Folder::make(output).and_then(|folder| folder.try_writing()).map_err(fails)?;
    Ok(())
}
