//! `nopal abi`: the probes of a program as a file that can be kept, and what changed since.

mod surface;

use crate::failure::Failure;
use crate::reading::{read_file, text_file};
use clap::Subcommand;
use std::path::{Path, PathBuf};
use surface::{Surface, diff};

/// Writes down the probes of a program, or says what changed between two versions of it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  nopal abi ./server > probes.toml                keep it in the repository
  nopal abi diff probes.toml ./server             in CI: fails if a probe that scripts may use was changed
  nopal abi diff ./server-1.0 ./server-1.1

Breaking: a probe removed or renamed; an argument removed, renamed, moved, narrowed, or of another kind. Not breaking: a probe
or a last argument added, an argument widened. Exit status: 0 if nothing breaks, 1 if something does."
)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The program or library.
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Prints JSON instead of TOML.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Says what is different in NEW.
    Diff {
        /// A program, a library, or a file that `nopal abi` wrote.
        old: PathBuf,
        /// The same, newer.
        new: PathBuf,
    },
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    match (args.verb, args.file) {
        (Some(Verb::Diff { old, new }), _) => compare(&old, &new, args.json),
        (None, Some(file)) => write(&file, args.json),
        (None, None) => {
            Err(Failure::usage("no program is named").hint("nopal abi FILE, or nopal abi diff OLD NEW"))
        }
    }
}

fn write(file: &Path, is_json: bool) -> Result<(), Failure> {
    let mut object = read_file(file)?;
    nopal_sdt::describe(&mut object.probes, &[]);
    if object.probes.is_empty() {
        return Err(Failure::new("no-probes", format!("{} has no probes", file.display()))
            .hint("many projects switch them on when they are built: --enable-dtrace, -Ddtrace=true"));
    }
    let surface = Surface::of(&object);
    let text = match is_json {
        true => serde_json::to_string_pretty(&surface).expect("strings and lists become JSON") + "\n",
        false => {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let text = toml::to_string(&surface).expect("strings and lists become TOML");
            format!("# The probes of {}, for `nopal abi diff`.\n\n{text}", nopal_trace::escape(&name))
        }
    };
    // TOML has the same escapes in its strings as JSON.
    anstream::print!("{}", nopal_trace::escape_json(&text));
    Ok(())
}

fn compare(old: &Path, new: &Path, is_json: bool) -> Result<(), Failure> {
    let changes = diff(&read(old)?, &read(new)?);
    let n_breaking = changes.iter().filter(|change| change.is_breaking).count();
    if is_json {
        let text = serde_json::json!({ "changes": changes, "breaking": n_breaking });
        show_json!(text);
    }
    for change in changes.iter().filter(|_| !is_json) {
        let word = if change.is_breaking { "BREAKING" } else { "ok" };
        show!("{word:>8}  {}: {}", change.probe, change.what);
    }
    if changes.is_empty() && !is_json {
        show!("the probes are the same");
    }
    match n_breaking {
        0 => Ok(()),
        1 => Err(Failure::new("breaking", "1 change breaks what was written for the old probes")),
        n => Err(Failure::new("breaking", format!("{n} changes break what was written for the old probes"))),
    }
    .map_err(|failure| failure.hint("keep the old probe beside the new one, or say so in your release notes"))
}

/// A file of ours, or the probes of a program.
fn read(path: &Path) -> Result<Surface, Failure> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        let text = text_file(path)
            .map_err(|error| Failure::new("cannot-read", format!("{}: {error}", path.display())))?;
        return toml::from_str(&text).map_err(|error| {
            Failure::new("bad-file", format!("{}: {}", path.display(), error.to_string().trim_end()))
                .hint("write it again with `nopal abi FILE`")
        });
    }
    let mut object = read_file(path)?;
    nopal_sdt::describe(&mut object.probes, &[]);
    Ok(Surface::of(&object))
}
