//! `nopal completions` and `nopal man`: what packagers install beside the command.

use crate::failure::Failure;
use clap::Command;
use clap_complete::CompleteEnv;
use nopal_files::own::Folder;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

mod candidates;
mod manual;
mod shells;

/// Prints the completions of a shell, which ask nopal for running programs, their probes, spans and fields, and sessions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(nopal completions bash)                        in ~/.bashrc
  nopal completions zsh > ~/.zfunc/_nopal                 in a folder of $fpath
  nopal completions fish > ~/.config/fish/completions/nopal.fish

With them nopal trace -n mem<TAB> names the programs with probes, and nopal trace -n memcached <TAB> their probes.")]
pub(super) struct Args {
    pub shell: Shell,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

/// Prints the manual page of a verb, or writes those of all of them into a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal man latency | man -l -
  nopal man /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// A verb, such as `latency`; or the folder to write `nopal.1`, `nopal-list.1` and so on into, which is made if need be.
    #[arg(value_name = "VERB|DIR")]
    pub what: PathBuf,
}

/// Set by what `nopal completions` prints: the shell that asks for the words that fit.
const ASKING_SHELL: &str = "NOPAL_COMPLETE";

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Zsh => "zsh",
    };
    let mut out = Vec::new();
    let printed = match shells::ALL.completer(name) {
        Some(shell) => shell.write_registration(ASKING_SHELL, "nopal", "nopal", "nopal", &mut out),
        None => Ok(()),
    };
    printed
        .and_then(|()| std::io::stdout().write_all(&out))
        .map_err(|e| Failure::new("output", format!("cannot print: {e}")))
}

/// Answers a shell that asks for the words that fit; says whether one did.
pub(super) fn answer(command: impl Fn() -> Command) -> bool {
    let knowing = || {
        command().mut_subcommands(|verb| {
            let name = verb.get_name().to_owned();
            verb.mut_args(|arg| candidates::attach(&name, arg))
        })
    };
    let asked = CompleteEnv::with_factory(knowing).var(ASKING_SHELL).shells(shells::ALL);
    let here = std::env::current_dir().ok();
    // What goes wrong must not be written over the line that somebody is typing.
    asked.try_complete(std::env::args_os(), here.as_deref()).unwrap_or(true)
}

pub(super) fn man(args: ManArgs, command: Command) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let what = args.what;
    let asked = |verb: &&Command| what.as_os_str() == verb.get_name() || what.as_os_str() == "nopal";
    if let Some(verb) = command.get_subcommands().find(asked) {
        let page = if what.as_os_str() == "nopal" { &command } else { verb };
        return manual::page(clap_mangen::Man::new(page.clone()))
            .and_then(|text| std::io::stdout().write_all(text.as_bytes()))
            .map_err(|e| Failure::new("output", format!("cannot print: {e}")));
    }
    let failed =
        |e: std::io::Error| Failure::new("output", format!("cannot write into {}: {e}", what.display()));
    fs::create_dir_all(&what).map_err(failed)?;
    let folder = Folder::make(&what).map_err(failed)?;
    pages(command, &folder).map_err(failed)
}

/// The page of a command and those of its verbs.
fn pages(command: Command, folder: &Folder) -> std::io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned() {
        pages(verb, folder)?;
    }
    let page = clap_mangen::Man::new(command);
    let name = page.get_filename();
    folder.replace_public(&name, manual::page(page)?.as_bytes())
}
