//! nopal called as `bpftrace`: takes its options, prints what and where it prints. The script itself is the work of
//! `nopal run`.

mod options;

use super::run as script;
use crate::failure::Failure;
use crate::processes::ProcessArgs;
use options::{Asked, Options};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The release whose language and output this follows.
const VERSION: &str = "0.27.0";

const USAGE: &str = "\
bpftrace, by nopal: bpftrace's command line, its language and its output

USAGE:
    bpftrace [options] filename
    bpftrace [options] - <stdin input>
    bpftrace [options] -e 'program'
    use -- after filename/-e 'program' for named script parameters

OPTIONS:
    -e 'program'   execute this program
    -l, --list [search]
                   list kernel probes or probes in a program
    -v, --verbose  how each site was opened, and the compiled script
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
    -k, --warnings accepted; reads that fail give zeros
    --no-warnings  disable all warning messages

    -I DIR         add the directory to the include search path
    --include FILE add an #include file before preprocessing
    --unsafe       allow unsafe/destructive functionality
    --dry-run      terminate execution right after attaching all the probes
    --fmt          format the input script and print it

SIGUSR1 prints all maps. `nopal run --help` shows what goes beyond bpftrace.

EXAMPLE:
    bpftrace -e 'usdt:/usr/bin/memcached:memcached:command__get { @[str(arg1)] = count(); }' -p 1234
";

/// Every failure is 1, as in bpftrace.
pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match options::parse(args) {
        Ok(Asked::Help) => {
            show!("{}", USAGE.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Asked::Version) => {
            show!("bpftrace v{VERSION} (nopal {})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Asked::Info) => {
            show!("{}", info().trim_end());
            ExitCode::SUCCESS
        }
        Ok(Asked::Work(options)) => match work(*options) {
            Ok(code) => ExitCode::from(code),
            Err(failure) => {
                let prefix = if failure.is_styled { "" } else { "ERROR: " };
                let hint = failure.hint.map(|hint| format!("\nHINT: {hint}")).unwrap_or_default();
                tell!("{prefix}{}{hint}", failure.message);
                ExitCode::from(1)
            }
        },
        Err(message) => {
            tell!("{}", message.trim_end());
            ExitCode::from(1)
        }
    }
}

fn work(options: Options) -> Result<u8, Failure> {
    if options.is_listing && options.script.is_none() {
        let search = options.words.first().map_or("", String::as_str);
        return script::points::listing(options.pid.as_slice(), search).map(|()| 0);
    }
    if options.is_format {
        return form(options).map(|()| 0);
    }
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
        named: options.named,
        manner: script::Manner {
            is_bpftrace: true,
            is_quiet: options.is_quiet,
            has_no_warnings: options.has_no_warnings,
            is_dry_run: options.is_dry_run,
            is_tool: false,
        },
        ..script::Args::default()
    };
    script::run(args)
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

/// Looks only.
fn info() -> String {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let is_there =
        |paths: &[&str]| if paths.iter().any(|path| Path::new(path).exists()) { "yes" } else { "no" };
    let mut text = String::from("System\n");
    let (release, version) = (line("/proc/sys/kernel/osrelease"), line("/proc/sys/kernel/version"));
    let _ = writeln!(text, "  OS: Linux {release} {version}\n  Arch: {}\n", std::env::consts::ARCH);
    let _ = writeln!(text, "Build\n  version: v{VERSION}\n  nopal: {}\n", env!("CARGO_PKG_VERSION"));
    let btf = is_there(&["/sys/kernel/btf/vmlinux"]);
    let _ = writeln!(text, "Kernel features\n  Instruction limit: 1000000\n  btf: {btf}\n");
    let source = |name: &str| is_there(&[&format!("/sys/bus/event_source/devices/{name}/type")]);
    let tracepoints = is_there(&["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]);
    let _ = writeln!(text, "Probe types\n  kprobe: {}\n  uprobe: {}", source("kprobe"), source("uprobe"));
    let perf_event = is_there(&["/proc/sys/kernel/perf_event_paranoid"]);
    let _ = writeln!(
        text,
        "  usdt: {}\n  tracepoint: {tracepoints}\n  perf_event: {perf_event}",
        source("uprobe")
    );
    text
}
