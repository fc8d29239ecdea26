//! `nopal fmt`: scripts in one form.

use super::run::input::Source;
use crate::failure::Failure;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Formats scripts in place; one with errors is left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal fmt tools/*.bt               rewrites what is not in the form yet
  nopal fmt --check tools/*.bt       exit code 1 if any is not
  nopal fmt - < script.bt            from standard input to standard output

Only blanks and line ends change: points, predicate and brace of a probe stand on lines of their own, one statement a line,
two blanks for each level. Comments stay where they are.")]
pub(super) struct Args {
    /// Scripts; `-` is standard input, whose form goes to standard output.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Says which files are not in the form, and changes none.
    #[arg(long)]
    pub check: bool,
    /// One object with the files that were, or would be, changed.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut changed = Vec::new();
    for file in &args.files {
        let source = Source::read(&mut vec![file.clone()], Vec::new())?;
        let formatted = formatted(&source)?;
        if file == "-" {
            std::io::stdout()
                .write_all(formatted.as_bytes())
                .map_err(|e| Failure::new("output", format!("cannot print: {e}")))?;
        } else if formatted != source.text {
            if !args.check {
                replace(Path::new(file), &formatted)?;
            }
            changed.push(file.clone());
        }
    }
    if args.json {
        show!("{}", serde_json::json!({ "changed": changed }));
    } else if args.check {
        changed.iter().for_each(|file| show!("{file}"));
    }
    match args.check && !changed.is_empty() {
        true => Err(Failure::new("not-formatted", format!("{} not in the form", changed.len()))
            .hint("`nopal fmt FILE` rewrites them")),
        false => Ok(()),
    }
}

/// The script in its form, or what is wrong with it.
pub(super) fn formatted(source: &Source) -> Result<String, Failure> {
    nopal_script::format(&source.text).map_err(|diagnostics| source.failure(&diagnostics))
}

/// All or nothing, with the rights the file had.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new("output", format!("cannot write {}: {e}", path.display()));
    let path = std::fs::canonicalize(path).map_err(failed)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".nopal-{}", std::process::id()));
    let beside: PathBuf = path.with_file_name(name);
    let write = || {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::metadata(&path)?.permissions())?;
        std::fs::rename(&beside, &path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}
