//! `nopal serve`: spans and probes as metrics, all the time.

use crate::failure::Failure;
use crate::known::declared_in;
use crate::reading::{provider_file, text_file};
use crate::{signals, words};
use nopal_serve::{Config, Files, Server};
use std::path::{Path, PathBuf};

/// Serves spans and probes of programs as metrics, for Prometheus and OpenTelemetry collectors.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal serve serve.toml
  nopal serve serve.toml --check        reads the file, and says what is wrong with it
  kill -HUP PID                         reads the file again; targets that are the same go on

serve.toml:
  listen = \"127.0.0.1:9464\"             /metrics, /health
  [[target]]
  program = \"postgres\"                  also its processes yet to be started
  spans = [\"postgresql:query\"]
  probes = [\"postgresql:checkpoint__start\"]
  by = [\"user\"]                         fields that become labels
  max_series = 500                      the rest is one series, (others)
  [otlp]
  endpoint = \"http://127.0.0.1:4318/v1/metrics\"
  every_s = 15

docs/serve.md has all settings, the metrics, and a unit for systemd.")]
pub(super) struct Args {
    /// What to serve.
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Only reads the file.
    #[arg(long)]
    pub check: bool,
    /// Prints failures as one JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let (config, files) = read(&args.file)?;
    if args.check {
        tell!(
            "{}: {} understood",
            args.file.display(),
            words::counted(config.targets.len() as u64, "target")
        );
        return Ok(());
    }
    signals::stop_on_signals();
    signals::reload_on_signal();
    let mut server = Server::new(config, files).map_err(|error| {
        Failure::new("listen", error.to_string()).hint("another port is chosen by `listen` in the file")
    })?;
    tell!("serving on http://{}/metrics", server.address());
    while !signals::is_stopped() {
        server.round(signals::is_stopped);
        if signals::take_reload_signal() {
            match read(&args.file) {
                Ok((config, files)) => {
                    server.reload(config, files).iter().for_each(|why| tell!("nopal: {why}"));
                    match &server.problem {
                        Some(problem) => tell!("nopal: {problem}"),
                        None => tell!("{} was read again", args.file.display()),
                    }
                }
                // What it did until now it goes on doing.
                Err(failure) => {
                    tell!("{failure}");
                    server.problem = Some(failure.message);
                }
            }
        }
    }
    match server.close().first() {
        None => Ok(()),
        Some(why) => Err(Failure::new("not-restored", format!("cannot close every site: {why}"))
            .hint("`nopal detach -p PID` tries again")),
    }
}

/// The file, and those that it names.
fn read(path: &Path) -> Result<(Config, Vec<Files>), Failure> {
    let text = text_file(path).map_err(|error| {
        Failure::new("cannot-read", format!("{}: {error}", path.display()))
            .hint("`nopal serve --help` shows such a file")
    })?;
    let config = Config::parse(&text).map_err(|error| {
        Failure::new("bad-settings", format!("{}: {error}", path.display()))
            .hint("`nopal serve --help` shows a file, docs/serve.md all settings")
    })?;
    let mut files = Vec::new();
    for target in &config.targets {
        let spans = target.spans_file.as_deref().map(declared_in).transpose()?.unwrap_or_default();
        let given = target.providers.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
        files.push((spans, given));
    }
    Ok((config, files))
}
