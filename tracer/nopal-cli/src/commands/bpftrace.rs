//! nopal called as `bpftrace`: takes its options, prints what and where it prints. The script itself is the work of
//! `nopal run`.

mod info;
mod list;
mod options;

use super::run as script;
use crate::failure::Failure;
use crate::processes::ProcessArgs;
use options::{Asked, Options};
use script::release::Release;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
bpftrace, by nopal: bpftrace's command line, its language and its output

USAGE:
    bpftrace [options] filename
    bpftrace [options] - <stdin input>
    bpftrace [options] -e 'program'
    use -- after filename/-e 'program' for named script parameters

OPTIONS:
    -e 'program'   execute this program
    -l, --list [search|filename]
                   list kernel probes or probes in a program
    -v, --verbose  how each site was opened, and the compiled script; with -l, also the arguments of probes
    -h, --help     show this help message
    -V, --version  the version of bpftrace that this follows, and nopal's
    --info         what of this kernel can be traced

    -p, --pid PID  only this process
    -c, --cmd CMD  run CMD, trace it, and end it with the script
    -o, --output FILE
                   redirect the output to FILE
    -f FORMAT      output format ('text', 'json')
    -B MODE        output buffering mode ('line', 'full', 'none')
    -q, --quiet    keep messages quiet
    -k, --warnings warn of memory that cannot be read, and of map entries that are not there
    --no-warnings  disable all warning messages

    -I DIR         add the directory to the include search path
    --include FILE add an #include file before preprocessing
    --unsafe       allow unsafe/destructive functionality
    --probe-filter REGEX
                   only the probes whose names match
    --dry-run      terminate execution right after attaching all the probes
    --fmt          format the input script and print it

SIGUSR1 prints all maps. With NOPAL_BPFTRACE_VERSION=0.17 in the environment results and messages are those of that release. `nopal run --help` shows what goes beyond bpftrace.

EXAMPLE:
    bpftrace -e 'usdt:/usr/bin/memcached:memcached:command__get { @[str(arg1)] = count(); }' -p 1234
";

/// Every failure is 1, as in bpftrace.
pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let release = match Release::of_environment() {
        Ok(release) => release,
        Err(failure) => return failed(failure),
    };
    match options::parse(args, release) {
        Ok(Asked::Help) => {
            show!("{}", USAGE.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Asked::Version) => {
            show!("bpftrace v{} (nopal {})", release.version(), env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Asked::Info) => {
            show!("{}", info::info(release).trim_end());
            ExitCode::SUCCESS
        }
        Ok(Asked::Work(options)) => match work(*options, release) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => failed(failure),
        },
        Err(message) => {
            tell!("{}", message.trim_end());
            ExitCode::from(1)
        }
    }
}

fn failed(failure: Failure) -> ExitCode {
    let prefix = if failure.is_styled { "" } else { "ERROR: " };
    let hint = failure.hint.map(|hint| format!("\nHINT: {hint}")).unwrap_or_default();
    tell!("{prefix}{}{hint}", failure.message);
    ExitCode::from(1)
}

fn work(options: Options, release: Release) -> Result<u8, Failure> {
    if options.is_listing {
        return list::list(options).map(|()| 0);
    }
    if options.is_format {
        return form(options).map(|()| 0);
    }
    check(&options)?;
    let probe_filter = options.probe_filter.as_deref().map(probe_filter).transpose()?;
    let has_target = options.pid.is_some() || options.command.is_some();
    let args = script::Args {
        words: options.words,
        expression: options.script.into_iter().collect(),
        list: false,
        processes: ProcessArgs { pids: options.pid.into_iter().collect(), ..ProcessArgs::default() },
        command_line: options.command,
        // A file named in a script is traced in every process, as bpftrace does.
        all_processes: !has_target,
        only: true,
        is_unsafe: options.is_unsafe,
        format: if options.is_json { script::FormArg::Json } else { script::FormArg::Text },
        verbose: options.is_verbose,
        output: options.output,
        probe_filter,
        debug_folders: options.debug_folders,
        named: options.named,
        headers: script::headers::Wanted {
            dirs: options.include_dirs,
            files: options.include_files,
            is_strict: true,
        },
        manner: script::Manner {
            is_bpftrace: true,
            release,
            is_quiet: options.is_quiet,
            has_no_warnings: options.has_no_warnings,
            n_helper_warnings: options.n_helper_warnings,
            is_dry_run: options.is_dry_run,
            is_bench: options.is_bench,
            is_tool: false,
        },
        ..script::Args::default()
    };
    script::run(args)
}

/// What bpftrace says before it looks at the script.
fn check(options: &Options) -> Result<(), Failure> {
    if let Some(pid) = options.pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        let why = if pid == 0 { "Invalid argument" } else { "No such process" };
        return Err(Failure::new("target", format!("Failed to attach to pid: Unable to open pidfd ({why})")));
    }
    let Some(name) = options.words.first().filter(|_| options.script.is_none()) else { return Ok(()) };
    match std::fs::File::open(name) {
        Err(error) if name != "-" && script::tools::find(name).is_none() => {
            let error = error.to_string();
            let why = error.split(" (os error").next().unwrap_or_default();
            Err(Failure::new("no-script", format!("failed to open file '{name}': {why}")))
        }
        _ => Ok(()),
    }
}

fn probe_filter(text: &str) -> Result<regex_lite::Regex, Failure> {
    let invalid = |why| Failure::new("usage", format!("Invalid --probe-filter regex '{text}': {why}"));
    regex_lite::Regex::new(text).map_err(invalid)
}

/// Prints the script in its form, or writes it to a file.
fn form(options: Options) -> Result<(), Failure> {
    let (mut words, script) = (options.words, options.script.into_iter().collect());
    let mut source = script::input::Source::read(&mut words, script)?;
    source.is_bpftrace = true;
    let text = super::fmt::formatted(&source)?;
    script::output::Out::open(options.output.as_deref())?.write(text.as_bytes())?;
    Ok(())
}
