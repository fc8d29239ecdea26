//! `nopal completions` and `nopal man`: what packagers install beside the command.

use crate::failure::Failure;
use clap::Command;
use nopal_files::own::Folder;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Prints the completions of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal completions bash > /etc/bash_completion.d/nopal
  nopal completions zsh > ~/.zfunc/_nopal")]
pub(super) struct Args {
    pub shell: clap_complete::Shell,
}

/// Writes the manual pages, one for each verb.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal man /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// The folder to write `nopal.1`, `nopal-list.1` and so on into; it is made if need be.
    pub dir: PathBuf,
}

pub(super) fn run(args: Args, mut command: Command) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, "nopal", &mut out);
    std::io::stdout().write_all(&out).map_err(|e| Failure::new("output", format!("cannot print: {e}")))
}

pub(super) fn man(args: ManArgs, command: Command) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::new("output", format!("cannot write into {}: {e}", args.dir.display()));
    fs::create_dir_all(&args.dir).map_err(failed)?;
    let folder = Folder::make(&args.dir).map_err(failed)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    pages(command, &folder).map_err(failed)
}

/// The page of a command and those of its verbs.
fn pages(command: Command, folder: &Folder) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned() {
        pages(verb, folder)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    folder.replace_public(&page.get_filename(), &text)
}
