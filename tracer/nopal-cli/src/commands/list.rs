//! `nopal list`: the probes of files, folders and running programs.

mod find;
mod findings;
mod folder;
mod functions;
mod json;
mod running;
mod text;

use crate::commands::answers::render::width;
use crate::failure::Failure;
use crate::processes::ProcessArgs;
use crate::reading::provider_file;
use findings::Findings;
use nopal_sdt::Pattern;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Shows the probes of programs, libraries, folders and running processes
///
/// For each probe: how many sites it has, whether a semaphore guards it, and its arguments. Names and types of
/// arguments come from the program itself if it was built with nopal, from a .d file given with --provider, or from
/// the built-in catalog of well-known programs (PostgreSQL, memcached, Python, Ruby, PHP, HotSpot, libvirt, ...).
/// Other arguments are shown with the type the machine code has, such as `int32`.
///
/// Needs no privilege for files and for processes of your own.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "nopal list [OPTIONS] <FILE | FOLDER>... [PATTERN]...\n       \
                      nopal list [OPTIONS] <-p PID | -n NAME> [PATTERN]...\n       \
                      nopal list [OPTIONS] -u [PATTERN]...\n       \
                      nopal list [OPTIONS] --functions <FILE>... [PATTERN]...",
    after_long_help = "\
Patterns:
  PROVIDER:NAME       both may have globs (* ? [a-z]); an empty part stands for all
  WORD                a provider, a name, or else a part of one
  Several patterns show what any of them matches. A first word that is not a file is looked up in $PATH.

Examples:
  nopal list postgres                              a program on the PATH
  nopal list /usr/lib/postgresql/15/bin/postgres 'postgresql:query__*'
  nopal list -v -p 4711 python:function__entry     addresses, operands and text of one probe of a process
  nopal list /usr/lib                              all programs and libraries below a folder
  nopal list -u                                    running programs that have probes
  nopal list -u -f 'postgresql:*'                  the same with the arguments of each
  nopal list -n postgres query                     probes of a running program, by its name
  nopal list --functions libssl.so.3 'SSL_*'       functions, and which door could open each
  nopal list --provider mine.d ./server            with the names that mine.d gives
  nopal list --json postgres | jq -r '.[].name'

Exit status: 0 if probes were shown, 1 if none was found or something could not be read, 2 for a wrong command line."
)]
pub(super) struct Args {
    /// Programs, libraries and folders; then patterns of the probes to show
    #[arg(value_name = "FILE | PATTERN", hide_default_value = true)]
    pub what: Vec<OsString>,

    #[command(flatten)]
    pub processes: ProcessArgs,

    /// Running programs that have probes, with their events, as far as they may be read
    #[arg(short = 'u', long, conflicts_with_all = ["pids", "names", "containers", "cgroups"])]
    pub running: bool,

    /// With -u: every probe with its arguments, as LTTng's `list -u -f` has fields
    #[arg(short, long, requires = "running")]
    pub fields: bool,

    /// Adds addresses, file offsets, raw operands and the descriptions
    #[arg(short, long)]
    pub verbose: bool,

    /// Functions instead of probes, and the door that could open each
    ///
    /// Names come from the symbol tables of the file, or from its debug file. Whether a jump finds room in a process is
    /// known only there. `nopal run -v` says how each was opened.
    #[arg(long, conflicts_with_all = ["pids", "names", "containers", "cgroups", "running", "provider"])]
    pub functions: bool,

    /// A .d file that names the arguments (may be given again)
    #[arg(long, value_name = "FILE.d")]
    pub provider: Vec<PathBuf>,

    /// Prints JSON: an array of probes with their sites
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    args.processes.resolve(false)?;
    if args.functions {
        return functions::run(&args);
    }
    let given = args.provider.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
    if args.running {
        let patterns = find::all_patterns(&args.what)?;
        let detail = running::Detail { is_verbose: args.verbose, has_fields: args.fields };
        return running::run(&patterns, args.json, detail);
    }
    let (mut findings, patterns) = find::find(&args)?;
    for found in &mut findings.found {
        nopal_sdt::describe(&mut found.object.probes, &given);
    }
    let no_match = select(&mut findings, &patterns);
    findings.found.retain(|found| !found.object.probes.is_empty());
    if args.json {
        print(&nopal_trace::escape_json(&json::render(&findings.found)))?;
    } else {
        print(&text::render(&findings.found, args.verbose, is_coloured(), width()))?;
    }
    for warning in &findings.warnings {
        tell!("nopal: {warning}");
    }
    let is_empty = findings.found.is_empty();
    // The command ends here, and giving thousands of strings back one by one takes a tenth of its time.
    std::mem::forget(findings.found);
    match (findings.failure, no_match) {
        (Some(failure), _) | (None, Some(failure)) => Err(failure),
        (None, None) if is_empty => Err(find::no_probes(&args, findings.n_read)),
        (None, None) => Ok(()),
    }
}

/// Leaves only the probes that a pattern matches; says which pattern matched none.
fn select(findings: &mut Findings, patterns: &[Pattern]) -> Option<Failure> {
    let names = || {
        let probes = findings.found.iter().flat_map(|found| &found.object.probes);
        probes.map(|probe| (probe.provider.as_str(), probe.name.as_str()))
    };
    if patterns.is_empty() || names().next().is_none() {
        return None;
    }
    // A word that is neither a provider nor a name may be a part of one.
    let is_loose: Vec<bool> =
        patterns.iter().map(|pattern| !names().any(|(p, n)| pattern.matches(p, n))).collect();
    let is_match = |pattern: &Pattern, is_loose: bool, provider: &str, name: &str| match is_loose {
        true => pattern.is_part_of(provider, name),
        false => pattern.matches(provider, name),
    };
    let mut without_match = None;
    for (pattern, &is_loose) in patterns.iter().zip(&is_loose) {
        if !names().any(|(p, n)| is_match(pattern, is_loose, p, n)) {
            let failure = Failure::new("no-such-probe", format!("no probe matches `{}`", pattern.text()));
            without_match.get_or_insert(match pattern.suggest(names()) {
                Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                None => failure.hint("the same command without the pattern shows all probes there are"),
            });
        }
    }
    for found in &mut findings.found {
        found.object.probes.retain(|probe| {
            patterns.iter().zip(&is_loose).any(|(p, &loose)| is_match(p, loose, &probe.provider, &probe.name))
        });
    }
    without_match
}

fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Writes to standard output in one go. A reader that has seen enough, such as `head`, is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new("output", format!("the list cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}
