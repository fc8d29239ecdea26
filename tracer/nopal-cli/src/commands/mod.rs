//! The verbs, one file each.

use crate::failure::Failure;
use crate::usage;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

mod abi;
mod answers;
mod bpftrace;
mod completions;
mod demo;
mod detach;
mod diff;
mod doctor;
mod dtrace;
mod export;
mod fmt;
mod list;
mod lttng;
mod mcp;
mod overview;
mod query;
mod record;
mod recordings;
mod report;
mod run;
mod serve;
mod sessions;
mod test;
mod trace;
mod version;
mod view;

pub(crate) use view::failure_of as recording_failure;

/// The whole command line, for tests.
#[cfg(test)]
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Userland static tracing: find probes, trace them at the cost of a nop, answer in one command.
#[derive(Debug, Parser)]
#[command(name = "nopal", version, max_term_width = 110)]
#[command(after_help = "`nopal --version -v` adds the build id and how it was built.")]
struct Cli {
    /// Without one: what is running here that can be traced, and what to type next.
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::Args),
    Trace(trace::Args),
    Run(run::Args),
    Fmt(fmt::Args),
    Record(record::Args),
    View(view::Args),
    Spans(answers::spans::Args),
    Latency(answers::latency::Args),
    Top(answers::top::Args),
    Tree(answers::tree::Args),
    Hist(answers::hist::Args),
    Count(answers::count::Args),
    Query(query::Args),
    Diff(diff::Args),
    Report(report::Args),
    Export(export::Args),
    Serve(serve::Args),
    Create(sessions::create::Args),
    EnableEvent(sessions::enable_event::Args),
    DisableEvent(sessions::enable_event::DisableArgs),
    EnableChannel(sessions::enable_channel::Args),
    DisableChannel(sessions::enable_channel::DisableArgs),
    AddContext(sessions::add_context::Args),
    Track(sessions::track::Args),
    Untrack(sessions::track::UntrackArgs),
    Start(sessions::start::Args),
    Stop(sessions::stop::Args),
    Status(sessions::status::Args),
    Snapshot(sessions::snapshot::Args),
    Rotate(sessions::rotate::Args),
    EnableRotation(sessions::enable_rotation::Args),
    DisableRotation(sessions::enable_rotation::DisableArgs),
    Clear(sessions::clear::Args),
    Save(sessions::save::Args),
    Load(sessions::load::Args),
    SetSession(sessions::set_session::Args),
    Destroy(sessions::destroy::Args),
    #[command(hide = true)]
    Recorder(sessions::recorder::Args),
    Detach(detach::Args),
    Test(test::Args),
    Doctor(doctor::Args),
    Abi(abi::Args),
    Mcp(mcp::Args),
    Demo(demo::Args),
    Dtrace(dtrace::Args),
    Completions(completions::Args),
    Man(completions::ManArgs),
}

/// Runs the verb that `args` names; called as `dtrace` it is systemtap's `dtrace(1)`, called as `bpftrace` or `lttng` it is that.
pub(crate) fn run(args: Vec<OsString>) -> ExitCode {
    let called_as = args.first().and_then(|a| Path::new(a).file_name()).unwrap_or_default().to_owned();
    if called_as == "dtrace" {
        return dtrace::run(dtrace::Args { args: args.into_iter().skip(1).collect() });
    }
    if called_as == "bpftrace" {
        return bpftrace::run(args.into_iter().skip(1));
    }
    if called_as == "lttng" {
        return lttng::run(args.into_iter().skip(1));
    }
    if completions::answer(Cli::command) {
        return ExitCode::SUCCESS;
    }
    if let Some(is_json) = version::is_asked(&args) {
        version::print(is_json);
        return ExitCode::SUCCESS;
    }
    let wants_json = args.iter().take_while(|a| *a != "--").any(|a| a == "--json");
    if let Some((option, time)) = crate::words::broken_time(&args) {
        let failure = Failure::usage(format!("a time is one word: {option} {time}"));
        return finish(Err(failure), wants_json);
    }
    let cli = match Cli::try_parse_from(crate::pids::spread(args.clone())) {
        Ok(cli) => cli,
        Err(error) if wants_json && error.exit_code() != 0 => {
            return finish(Err(usage::failure(&error, &args)), true);
        }
        Err(error) => return usage::refuse(&error, &args),
    };
    let Some(verb) = cli.verb else { return finish(overview::run(), false) };
    let (is_json, result) = match verb {
        Verb::Dtrace(args) => return dtrace::run(args),
        Verb::List(args) => (args.json, list::run(args)),
        Verb::Trace(args) => (args.json, trace::run(args)),
        Verb::Run(args) => {
            let is_json = args.json;
            match run::run(args) {
                // The script's own.
                Ok(code) => return ExitCode::from(code),
                Err(failure) => (is_json, Err(failure)),
            }
        }
        Verb::Fmt(args) => (args.json, fmt::run(args)),
        Verb::Record(args) => (args.json, record::run(args)),
        Verb::View(args) => (args.json, view::run(args)),
        Verb::Spans(args) => (args.json, answers::spans::run(args)),
        Verb::Latency(args) => (args.answer.json, answers::latency::run(args)),
        Verb::Top(args) => (args.answer.json, answers::top::run(args)),
        Verb::Tree(args) => (args.answer.json, answers::tree::run(args)),
        Verb::Hist(args) => (args.answer.json, answers::hist::run(args)),
        Verb::Count(args) => (args.answer.json, answers::count::run(args)),
        Verb::Query(args) => (args.json, query::run(args)),
        Verb::Diff(args) => (args.json, diff::run(args)),
        Verb::Report(args) => (args.json, report::run(args)),
        Verb::Export(args) => (args.json, export::run(args)),
        Verb::Serve(args) => (args.json, serve::run(args)),
        Verb::Create(args) => (args.json, sessions::create::run(args)),
        Verb::EnableEvent(args) => (args.which.json, sessions::enable_event::run(args)),
        Verb::DisableEvent(args) => (args.which.json, sessions::enable_event::disable(args)),
        Verb::EnableChannel(args) => (args.which.json, sessions::enable_channel::run(args)),
        Verb::DisableChannel(args) => (args.which.json, sessions::enable_channel::disable(args)),
        Verb::AddContext(args) => (args.which.json, sessions::add_context::run(args)),
        Verb::Track(args) => (args.which.json, sessions::track::run(args)),
        Verb::Untrack(args) => (args.which.json, sessions::track::untrack(args)),
        Verb::Start(args) => (args.json, sessions::start::run(args)),
        Verb::Stop(args) => (args.json, sessions::stop::run(args)),
        Verb::Status(args) => (args.json, sessions::status::run(args)),
        Verb::Snapshot(args) => (args.is_json(), sessions::snapshot::run(args)),
        Verb::Rotate(args) => (args.json, sessions::rotate::run(args)),
        Verb::EnableRotation(args) => (args.json, sessions::enable_rotation::run(args)),
        Verb::DisableRotation(args) => (args.json, sessions::enable_rotation::disable(args)),
        Verb::Clear(args) => (args.json, sessions::clear::run(args)),
        Verb::Save(args) => (args.json, sessions::save::run(args)),
        Verb::Load(args) => (args.json, sessions::load::run(args)),
        Verb::SetSession(args) => (args.json, sessions::set_session::run(args)),
        Verb::Destroy(args) => (args.json, sessions::destroy::run(args)),
        Verb::Recorder(args) => (false, sessions::recorder::run(args)),
        Verb::Abi(args) => (args.json, abi::run(args)),
        Verb::Test(args) => (args.answer.json, test::run(args)),
        Verb::Doctor(args) => (args.json, doctor::run(args)),
        Verb::Detach(args) => (args.json, detach::run(args)),
        Verb::Mcp(args) => (false, mcp::run(args)),
        Verb::Demo(args) => (args.json, demo::run(args)),
        Verb::Completions(args) => (false, completions::run(args)),
        Verb::Man(args) => (false, completions::man(args, Cli::command())),
    };
    finish(result, is_json)
}

/// Prints a failure the way the user asked for and turns it into the exit code.
fn finish(result: Result<(), Failure>, is_json: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = if is_json { failure.to_json() } else { failure.to_string() };
            // A terminal that has gone takes no more lines.
            let _ = writeln!(anstream::stderr(), "{text}");
            ExitCode::from(failure.exit)
        }
    }
}
