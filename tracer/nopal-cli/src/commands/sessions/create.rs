//! `nopal create`: a new session.

use super::{EXIT_HELP, say};
use crate::failure::Failure;
use nopal_session::sessions::config::{SessionConfig, Tracked, check_name};
use nopal_session::sessions::{Home, holder::stamp};
use std::os::unix::fs::DirBuilderExt;
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

{EXIT_HELP}"))]
pub struct Args {
    /// Its name; without it `auto-DATE-TIME`.
    pub name: Option<String>,
    /// Where its recordings go; without it `~/nopal-traces/NAME-DATE-TIME`.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Keeps the newest events in memory and writes them when `nopal snapshot record` asks, when a trigger fires, and
    /// when a tracked process ends.
    #[arg(long)]
    pub snapshot: bool,
    /// An event that makes a snapshot by itself, such as 'app:request if ms > 100'; may be given several times.
    #[arg(long, value_name = "EVENT", requires = "snapshot")]
    pub trigger: Vec<String>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let name = args.name.unwrap_or_else(|| format!("auto-{}", stamp()));
    check_name(&name)?;
    let output = match args.output {
        Some(output) => output,
        None => default_output(&name)?,
    };
    let output = std::path::absolute(&output)
        .map_err(|e| Failure::new("output", format!("cannot find {}: {e}", output.display())))?;
    let home = Home::find()?;
    let config = SessionConfig {
        name: name.clone(),
        output: output.clone(),
        snapshot: args.snapshot,
        triggers: args.trigger,
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
    say(args.json, &text, object, &[]);
    Ok(())
}

fn default_output(name: &str) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).ok_or_else(|| {
        Failure::new("no-home", "HOME is not set").hint("--output DIR says where recordings go")
    })?;
    let stamped = match name.starts_with("auto-") {
        true => name.to_owned(),
        false => format!("{name}-{}", stamp()),
    };
    Ok(Path::new(&home).join("nopal-traces").join(stamped))
}

/// Found out now rather than when the first event comes: whether anything can be written there.
fn make_output(output: &Path) -> Result<(), Failure> {
    let fails = |e: std::io::Error| {
        Failure::new("output", format!("cannot write into {}: {e}", output.display()))
            .hint("choose another folder with --output")
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(output).map_err(fails)?;
    let probe = output.join(format!(".nopal-{}", std::process::id()));
    std::fs::write(&probe, b"").map_err(fails)?;
    std::fs::remove_file(&probe).map_err(fails)
}
