//! `nopal run`: bpftrace scripts, through the user door, in the kernel, or over a recording.

pub(super) mod headers;
pub(super) mod input;
pub(super) mod output;
pub(super) mod points;
pub(super) mod release;
mod running;
pub(super) mod tools;

use super::answers::render::width;
use super::answers::source::open_recording;
use super::view;
use crate::failure::{self, Failure};
use crate::processes::ProcessArgs;
use crate::signals;
use crate::target_args::DoorArg;
use crate::traps;
use crate::words;
use input::Source;
use nopal_proc::launch::HeldCommand;
use nopal_program::{Look, Program};
use nopal_run::catalog::LiveCatalog;
use nopal_run::listing::Detail;
use nopal_run::recording::{RecordingCatalog, RecordingRun};
use nopal_run::{RunError, Step, later_points, needs_process, takes_stacks, user_door_obstacle};
use nopal_script::catalog::Catalog;
use nopal_script::render::Form;
use nopal_trace::Recording;
use output::{Out, lock};
use release::Release;
use running::Running;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Runs a bpftrace script.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  nopal run -e 'usdt:memcached:command__get { @[str(arg1)] = count(); }' -p 1234
  nopal run -e 'usdt:./app:app:request__start { @start[tid] = nsecs; }
                usdt:./app:app:request__done /@start[tid]/ { @us = hist((nsecs - @start[tid]) / 1000); delete(@start[tid]); }' -- ./app
  nopal run -e 'uprobe:libssl:SSL_* { @[probe] = count(); }' -p 1234         functions, at about 10 ns a call
  nopal run mctop -n memcached                                          a script that comes with nopal
  nopal run --list                                                      those there are
  nopal run -e 'usdt:app:* { @[probe] = count(); }' --recording DIR     the same over a recording
  nopal run -e 'tracepoint:syscalls:sys_enter_openat { printf(\"%s %s\\n\", comm, str(args.filename)); }'
  nopal run script.bt 42 abc                                            $1 is 42, $2 is abc

The user door needs no privilege for your own processes; tracepoints and stacks need the kernel door.
Functions (uprobe, uretprobe) go through the user door where that is safe, through the kernel door where not; -v says why.
Ctrl-C ends the script and prints its maps. The last line says `complete`, or what was lost.
The exit code is that of exit(), 0 without one, 1 if the script cannot run, 2 if the command line is wrong.")]
pub(super) struct Args {
    /// The script, then its parameters `$1`, `$2` and so on; `-` reads the script from standard input. A name that is not a file
    /// may be that of a tool, see --list.
    #[arg(value_name = "SCRIPT")]
    pub words: Vec<String>,
    /// The text of the script; given several times, one after the other.
    #[arg(short, long = "execute", value_name = "TEXT")]
    pub expression: Vec<String>,
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// Numbers that followed the first one.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = crate::pids::pid)]
    pub further_pid: Vec<u32>,
    /// Starts this command line, traces it, and ends it with the script; `-- COMMAND` leaves it running.
    #[arg(short = 'c', long = "cmd", value_name = "COMMAND")]
    pub command_line: Option<String>,
    /// Runs the script over a recording, or that of a session, instead of a process.
    #[arg(long, value_name = "DIR")]
    pub recording: Option<PathBuf>,
    /// user: the script runs here, probes cost about 20 ns a hit; kernel: it runs in the kernel, needs root; auto: user where it can, the kernel for the sites it cannot open.
    #[arg(long, value_enum, default_value_t = DoorArg::Auto)]
    pub door: DoorArg,
    /// With the kernel door: the named files in every process of this machine.
    #[arg(long)]
    pub all_processes: bool,
    /// Only the named processes, not their descendants.
    #[arg(long)]
    pub only: bool,
    /// Lets the user door move instructions where nothing else helps; see `nopal trace --help`.
    #[arg(long)]
    pub relocate: bool,
    /// Lists the scripts that come with nopal; with --json their text, too.
    #[arg(long)]
    pub list: bool,
    /// Lists the points that match, as bpftrace does: `nopal run -l 'usdt:./app:*'`; with -v also their arguments.
    #[arg(short = 'l', long = "list-points")]
    pub list_points: bool,
    /// bpftrace's; reads that fail give zeros.
    #[arg(short = 'k', hide = true, action = clap::ArgAction::Count)]
    pub warnings: u8,
    /// Allows `system()`.
    #[arg(long = "unsafe")]
    pub is_unsafe: bool,
    /// Results as JSON lines, and at the end one object with `complete`, `lost` and the `rows` of all maps.
    #[arg(long)]
    pub json: bool,
    /// bpftrace's output: text, or its JSON lines.
    #[arg(short, long = "format", value_name = "FORM", value_enum, default_value_t = FormArg::Text)]
    pub format: FormArg,
    /// Writes the results to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Prints the eBPF instructions of the script, and ends.
    #[arg(long)]
    pub emit_bpf: bool,
    /// Prints the compiled script, the door, and how each site was opened.
    #[arg(short, long)]
    pub verbose: bool,
    /// Ends after this long: `10s`, `500ms`, `2m`.
    #[arg(long, value_name = "TIME", value_parser = words::duration)]
    pub duration: Option<Duration>,
    /// Ring size for each CPU, 64k to 1G.
    #[arg(long, value_name = "SIZE", value_parser = words::ring_size)]
    pub buffer_size: Option<u64>,
    /// A `.d` file that names the arguments of probes; may be given several times.
    #[arg(long = "provider", value_name = "FILE.d")]
    pub providers: Vec<PathBuf>,
    /// Debug files are looked for here, too; absolute, or seen from the folder of the traced file. May be given several times.
    #[arg(long = "debuginfo", value_name = "DIR", value_delimiter = ':')]
    pub debug_folders: Vec<PathBuf>,
    /// Starts this command and traces it from its first instruction on.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// `--name=value` for `getopt("name")`; called as bpftrace, what stands behind `--`.
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub named: Vec<String>,
    #[arg(skip)]
    pub headers: headers::Wanted,
    #[arg(skip)]
    pub manner: Manner,
    /// Only points whose names it finds are attached.
    #[arg(skip)]
    pub probe_filter: Option<regex_lite::Regex>,
}

/// How bpftrace would do it, where nopal was called by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Manner {
    pub is_bpftrace: bool,
    pub is_quiet: bool,
    pub has_no_warnings: bool,
    /// Which one, if it is.
    pub release: Release,
    /// Tells of memory that cannot be read, and of entries that are not there; release 0.17 of the former at 2 alone.
    pub n_helper_warnings: u32,
    /// Ends when everything is attached.
    pub is_dry_run: bool,
    /// Measures clauses (`bench:NAME`), and ends.
    pub is_bench: bool,
    /// The script is one of those that come with nopal.
    pub is_tool: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FormArg {
    #[default]
    Text,
    Json,
}

/// How long to sleep when there was nothing to do.
const IDLE: Duration = Duration::from_millis(5);

/// The exit code of the script.
pub(super) fn run(mut args: Args) -> Result<u8, Failure> {
    if args.list {
        return list(args.json);
    }
    if args.list_points {
        args.processes.resolve(args.only)?;
        let search = args.words.first().map_or("", String::as_str);
        let detail = Detail { has_arguments: args.verbose, has_own_paths: false };
        return points::listing(
            &args.processes.pids,
            args.debug_folders,
            &points::Wanted::Search(search),
            detail,
        )
        .map(|()| 0);
    }
    // Before signals only set a flag: whatever takes long before anything is changed can be interrupted.
    let mut source = Source::read(&mut args.words, std::mem::take(&mut args.expression))?;
    source.is_bpftrace = args.manner.is_bpftrace;
    args.manner.is_tool = tools::find(&source.name) == Some(&source.text);
    crate::pids::check_further(&args.processes.pids, &args.further_pid, &source.text)?;
    args.processes.pids.append(&mut args.further_pid);
    args.processes.resolve(args.only)?;
    if let Some(line) = &args.command_line {
        if !args.command.is_empty() {
            return Err(Failure::usage("-c cannot be combined with -- COMMAND"));
        }
        args.command = input::words_of(line)?.into_iter().map(OsString::from).collect();
    }
    check(&args)?;
    let is_old = args.manner.is_bpftrace && args.manner.release == Release::Old;
    let options = nopal_script::Options {
        is_unsafe: args.is_unsafe,
        settings: input::settings_of_environment(),
        defines: headers::numbers(&source, &args.headers)?,
        kernel_records: nopal_run::kernel_records(&source.text),
        named: std::mem::take(&mut args.named),
        only_pids: args.processes.pids.clone(),
        is_bench: args.manner.is_bench,
        has_kernel_stacks: args.all_processes,
        has_helper_warnings: args.manner.n_helper_warnings > u32::from(is_old),
        has_delete_warnings: is_old && args.manner.n_helper_warnings > 0,
        has_plain_pointers: is_old,
        look: if args.manner.is_bpftrace && !is_old { Look::New } else { Look::Old },
        // Test runners of bpftrace set it.
        time_map: std::env::var("BPFTRACE_DUMMY_TS_MAP").ok().filter(|_| args.manner.is_bpftrace),
    };
    let mut script = nopal_script::parse(&source.text, &source.name, &args.words, &options)
        .map_err(|diagnostics| source.failure(&diagnostics))?;
    input::check_named(&script, &options.named)?;
    if let Some(filter) = &args.probe_filter
        && script.keep_points(|name| filter.is_match(name)) == 0
    {
        let mut failure = Failure::new("no-probes", "No probes to attach");
        failure.is_styled = true;
        return Err(failure);
    }
    match &args.recording {
        Some(dir) => {
            let recording = open_recording(&view::find(Some(dir))?.0)?;
            let program = compile(&source, &script, &RecordingCatalog::new(&recording), &args)?;
            signals::stop_on_signals();
            signals::print_on_signal();
            over_recording(&args, source, &recording, program)
        }
        None => over_programs(&args, source, script, &options),
    }
}

/// A script over running programs or a command.
fn over_programs(
    args: &Args,
    source: Source,
    script: nopal_script::Script,
    options: &nopal_script::Options,
) -> Result<u8, Failure> {
    let given = args
        .providers
        .iter()
        .map(|path| crate::reading::provider_file(path))
        .collect::<Result<Vec<_>, _>>()?;
    let mut catalog = LiveCatalog::new(given.clone());
    catalog.look_for_debug_files(args.debug_folders.clone());
    for pid in &args.processes.pids {
        catalog.add_process(*pid).map_err(|e| Failure::new("target", e.to_string()))?;
    }
    if let Some(program) = args.command.first() {
        catalog.add_program(program.as_ref());
    }
    signals::stop_on_signals();
    signals::print_on_signal();
    nopal_kernel::leftovers::sweep();
    // The number of the process is part of the program, so that there must be one; it is held before its exec.
    let held = match args.command.split_first() {
        Some((program, arguments)) if script.names("cpid") => {
            let mut command = Command::new(program);
            command.args(arguments);
            Some(HeldCommand::new(command).map_err(|e| failure_of(&e.into()))?)
        }
        Some(_) | None => None,
    };
    catalog.child_pid = held.as_ref().map(HeldCommand::pid);
    let mut program = compile(&source, &script, &catalog, args)?;
    // bpftrace leaves it to its user.
    let more = if args.manner.is_bpftrace { String::new() } else { traps::companions_of_script(&program) };
    if !more.is_empty() {
        let text = format!("{}{more}", source.text);
        let with_more = nopal_script::parse(&text, &source.name, &args.words, options).ok();
        // What those clauses name may be missing in this version of the program.
        let compiled = with_more.and_then(|script| nopal_script::compile(&script, &catalog).ok());
        program = compiled.map_or(program, Arc::new);
    }
    // Release 0.17 counts the places that a probe has.
    let counts_places = args.manner.is_bpftrace && args.manner.release == Release::Old;
    let points = program.clauses.iter().flat_map(|clause| &clause.points);
    let n_places = |point| if counts_places { nopal_run::n_locations(&catalog, point) } else { 1 };
    let n_points = points.map(n_places).sum();
    drop(catalog);
    live(args, source, given, program, held, n_points)
}

fn list(is_json: bool) -> Result<u8, Failure> {
    let object = |(name, about, example): (&str, String, &str)| serde_json::json!({ "name": name, "about": about, "example": example, "text": tools::find(name) });
    let text = match is_json {
        true => format!("{}\n", serde_json::Value::from_iter(tools::all().map(object))),
        false => tools::list(width()),
    };
    Out::open(None)?.write(text.as_bytes())?;
    Ok(0)
}

fn check(args: &Args) -> Result<(), Failure> {
    if !args.processes.pids.is_empty() && !args.command.is_empty() {
        return Err(Failure::usage("-p, -n and the like cannot be combined with a command")
            .hint("trace the running program with -p, or start another with --"));
    }
    let has_target = !args.processes.pids.is_empty() || !args.command.is_empty();
    if args.recording.is_some() && (has_target || args.all_processes || args.emit_bpf) {
        return Err(Failure::usage("a recording is looked at without processes and without the kernel")
            .hint("leave out -p, the command, --all-processes and --emit-bpf, or --recording"));
    }
    Ok(())
}

fn compile(
    source: &Source,
    script: &nopal_script::Script,
    catalog: &dyn Catalog,
    args: &Args,
) -> Result<Arc<Program>, Failure> {
    let (program, warnings) = nopal_script::compile_with_warnings(script, catalog)
        .map_err(|diagnostics| source.failure(&diagnostics))?;
    for warning in warnings.iter().filter(|_| !args.manner.has_no_warnings) {
        anstream::eprintln!("{}", nopal_trace::escape_styled(&source.shown(warning)));
    }
    if args.verbose {
        anstream::eprint!("{}", nopal_trace::escape_lines(&program.to_string()));
    }
    Ok(Arc::new(program))
}

fn is_colour() -> bool {
    std::io::stderr().is_terminal()
}

fn form(args: &Args) -> Form {
    if args.json || args.format == FormArg::Json { Form::Json } else { Form::Text }
}

fn over_recording(
    args: &Args,
    source: Source,
    recording: &Recording,
    program: Arc<Program>,
) -> Result<u8, Failure> {
    let prints_maps = program.limits.prints_maps;
    let mut run = RecordingRun::new(program, recording, form(args)).map_err(|e| match e {
        RunError::Unable(why) => {
            Failure::new("not-recorded", format!("the script cannot run over a recording: {why}"))
                .hint("run it on the program itself, with -p or --")
        }
        e => failure_of(&e),
    })?;
    let out = Arc::new(Mutex::new(Out::of(args, source)?));
    run.performer.drain = Some(Out::drains(&out));
    let mut failed = None;
    let replayed = run.run(recording, |performer| match lock(&out).take(performer) {
        Ok(goes_on) => goes_on && !signals::is_stopped(),
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    let replayed = replayed.map_err(|e| failure_of(&e))?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    lock(&out).take(&mut run.performer)?;
    let rows = if args.json { Some(run.rows()) } else { None };
    if rows.is_none() && prints_maps {
        run.print_maps();
    }
    lock(&out).take_maps(&mut run.performer)?;
    lock(&out).conclude(args, &replayed.verdict, run.performer.unmatched(), rows)?;
    if replayed.is_truncated && !args.json {
        tell!("the recording was cut short while it was made");
    }
    Ok(run.performer.exit.unwrap_or(0))
}

fn live(
    args: &Args,
    source: Source,
    given: Vec<nopal_provider::File>,
    program: Arc<Program>,
    held: Option<HeldCommand>,
    n_points: usize,
) -> Result<u8, Failure> {
    if args.emit_bpf {
        return emit_bpf(args, given, program);
    }
    let has_target = !args.processes.pids.is_empty() || !args.command.is_empty();
    if needs_process(&program) && !has_target && !args.all_processes {
        return Err(Failure::usage("the script has points in programs, and no process is named").hint(
            "add -p PID or -n NAME for a running program, -- COMMAND to start one, or --all-processes for the named files everywhere (kernel door)",
        ));
    }
    let out = Arc::new(Mutex::new(Out::of(args, source)?));
    let needs = if args.manner.is_bpftrace {
        BTreeSet::new()
    } else {
        traps::needs_of_script(&program, &args.processes.pids)
    };
    let n_later = later_points(&program).count();
    let prints_maps = program.limits.prints_maps;
    // What a point without a file may mean later is counted only if there is nothing that it means now.
    let n_doubled = later_points(&program).filter(|(_, _, later)| !later.known.is_empty()).count();
    let n_points = n_points - n_doubled;
    // Nothing will ever happen: what was to be done at the beginning has been done.
    // Release 0.17 waits to be ended.
    let waits = args.manner.is_bpftrace && args.manner.release == Release::Old;
    let is_done = !has_target
        && !waits
        && program.clauses.iter().flat_map(|clause| &clause.points).all(|point| {
            use nopal_program::PointKind::{Begin, Bench, End};
            matches!(point.kind, Begin | End | Bench { .. })
        });
    let takes_signal = program
        .clauses
        .iter()
        .flat_map(|clause| &clause.points)
        .any(|point| point.kind == nopal_program::PointKind::Signal);
    let mut running = match by_kernel(args, &program)? {
        Some(why) => {
            say(args, &format!("door: kernel ({why})"));
            Running::by_kernel(args, given, program, held, &out)?
        }
        None => {
            say(
                args,
                if args.door == DoorArg::Kernel {
                    "door: kernel, stacks are unwound here"
                } else {
                    "door: user"
                },
            );
            Running::by_user(args, given, program, held, &out)?
        }
    };
    for name in running.never_came() {
        tell!("nopal: there is no `{name}` yet; waiting for what is loaded or started later");
    }
    if args.manner.is_dry_run {
        running.finish()?;
        running.end_command();
        return Ok(0);
    }
    lock(&out).attached(args, n_points)?;
    if args.manner.is_bench {
        let measured = running.bench()?;
        lock(&out).take(running.performer())?;
        lock(&out).measured(args, &measured)?;
    }
    work(args, &mut running, &out, takes_signal, is_done)?;
    let failures = running.finish()?;
    if args.command_line.is_some() {
        running.end_command();
    }
    running.say_notes(args);
    // Release 0.17 has these lines in JSON as well.
    if args.manner.is_bpftrace && (args.format == FormArg::Text || args.manner.release == Release::Old) {
        running.performer().out.extend_from_slice(b"\n\n");
    }
    lock(&out).take(running.performer())?;
    let rows = if args.json { Some(running.rows()) } else { None };
    if rows.is_none() && prints_maps {
        running.print_maps();
    }
    lock(&out).take_maps(running.performer())?;
    if !needs.is_empty() && running.was_silent() {
        needs.iter().for_each(|why| tell!("nopal: {why}"));
    }
    let unmatched = running.performer().unmatched();
    lock(&out).conclude(args, &running.verdict(), unmatched, rows)?;
    if let Some(failure) = failures.first() {
        return Err(Failure::new("not-restored", format!("cannot close every site: {failure}"))
            .hint("`nopal detach -p PID` tries again"));
    }
    exit_code(args, &mut running, n_later)
}

/// Why the clauses run in the kernel, if they do.
fn by_kernel(args: &Args, program: &Program) -> Result<Option<String>, Failure> {
    let obstacle = user_door_obstacle(program);
    Ok(match args.door {
        // Stacks are unwound here, by the tables of the programs, from what the hits bring.
        DoorArg::Kernel if takes_stacks(program) && obstacle.is_none() && !args.all_processes => None,
        DoorArg::Kernel => Some("asked for".to_owned()),
        DoorArg::User => {
            if let Some(why) = obstacle {
                return Err(Failure::new(
                    "needs-kernel",
                    format!("the user door cannot run this script: {why}"),
                )
                .hint("use --door kernel, which needs root"));
            }
            if args.all_processes {
                return Err(Failure::usage("--all-processes needs the kernel door"));
            }
            None
        }
        DoorArg::Auto if args.all_processes && needs_process(program) => Some("--all-processes".to_owned()),
        DoorArg::Auto => obstacle,
    })
}

/// Runs the script until it is over, somebody ends it, or its output is closed. `is_done`: what was to be done at the beginning is all.
fn work(
    args: &Args,
    running: &mut Running,
    out: &Mutex<Out>,
    takes_signal: bool,
    is_done: bool,
) -> Result<(), Failure> {
    let end = args.duration.map(|d| Instant::now() + d);
    let mut is_closed = false;
    loop {
        let step = running.step();
        running.say_notes(args);
        if signals::take_print_signal() {
            // A script that has a clause for the signal says itself what to print.
            if takes_signal { running.signalled()? } else { running.print_maps() }
        }
        is_closed |= !lock(out).take(running.performer())?;
        if step == Step::Over
            || (is_done && step == Step::Idle)
            || is_closed
            || signals::is_stopped()
            || end.is_some_and(|end| Instant::now() >= end)
        {
            break;
        }
        if step == Step::Idle {
            std::thread::sleep(running.time_to_next(IDLE));
        }
    }
    Ok(())
}

fn exit_code(args: &Args, running: &mut Running, n_later: usize) -> Result<u8, Failure> {
    let missing = running.never_came();
    match (running.performer().exit, missing.first()) {
        (Some(code), _) => Ok(code),
        (None, None) => Ok(0),
        // A tool is for all versions of its program, some of which lack a probe.
        (None, Some(_)) if args.manner.is_tool && missing.len() < n_later => Ok(0),
        (None, Some(name)) => {
            Err(Failure::new("no-such-probe", format!("nothing that was traced ever had `{name}`")).hint(
                "`nopal list -p PID` shows the probes of a process, `nopal list FILE` those of a program or library",
            ))
        }
    }
}

fn emit_bpf(args: &Args, given: Vec<nopal_provider::File>, program: Arc<Program>) -> Result<u8, Failure> {
    Out::open(args.output.as_deref())?.write(running::listing(args, given, program)?.as_bytes())?;
    Ok(0)
}

/// With -v only.
fn say(args: &Args, text: &str) {
    if args.verbose {
        tell!("{text}");
    }
}

fn failure_of(error: &RunError) -> Failure {
    match error {
        RunError::Live(error) => failure::failure_of(error),
        RunError::Recording(error) => Failure::new("recording", error.to_string()),
        RunError::Program(error) => {
            Failure::new("program", format!("the compiled script is damaged: {error}"))
        }
        RunError::Kernel(error) => running::kernel_failure(&error.cause()),
        RunError::Unable(why) => Failure::new("unable", why.clone()),
    }
}
