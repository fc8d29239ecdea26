//! `nopal detach`: puts a process back as it was after its tracer was killed.

use crate::failure::Failure;
use crate::failure::failure_of;
use crate::panics;
use crate::processes::ProcessArgs;
use crate::words::counted;
use nopal_live::LiveError;

/// Restores the code and semaphores of processes whose tracer has gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal detach -p 1234        after a tracer was killed with SIGKILL; descendants included

Sites of tracers that are still running stay open.")]
pub(super) struct Args {
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
    /// What this process traced before it became this one.
    #[arg(long, hide = true)]
    pub after_panic: bool,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    if args.after_panic {
        put_back_own();
        std::process::exit(panics::EXIT_CODE);
    }
    if args.processes.is_empty() {
        return Err(Failure::usage("no process named").hint("add -p PID or -n NAME"));
    }
    args.processes.resolve(false)?;
    // Belongs to no process: what killed tracers left in the kernel.
    let swept = nopal_kernel::leftovers::sweep_own_too();
    if swept.n_events + swept.n_instances > 0 && !args.json {
        tell!(
            "{} of a killed tracer removed from the kernel",
            counted(swept.n_events as u64, "uprobe event")
        );
    }
    for pid in &args.processes.pids {
        let report = nopal_user::leave::detach(*pid as i32).map_err(|e| failure_of(&LiveError::User(e)))?;
        if args.json {
            let result = serde_json::json!({
                "pid": pid, "processes": report.processes, "restored": report.n_restored,
                "semaphores": report.n_lowered,
                "orphans": report.n_orphans, "live_tracers": report.live_tracers,
                "kernel_events": swept.n_events,
            });
            show_json!(result);
        } else if report.n_restored + report.n_lowered == 0 {
            tell!("process {pid}: nothing to restore{}", still(&report.live_tracers));
        } else {
            tell!(
                "process {pid}: {} and {} restored in {}{}",
                counted(report.n_restored as u64, "place"),
                counted(report.n_lowered as u64, "semaphore"),
                in_words(report.processes.len()),
                still(&report.live_tracers)
            );
        }
        if let Some((pid, why)) = report.failures.first() {
            return Err(Failure::new("not-restored", format!("process {pid}: {why}")));
        }
    }
    Ok(())
}

fn in_words(n_processes: usize) -> String {
    match n_processes {
        1 => "1 process".to_owned(),
        n => format!("{n} processes"),
    }
}

/// After a panic, in the process that had it.
fn put_back_own() {
    nopal_kernel::leftovers::sweep_own_too();
    let mut done: Vec<i32> = Vec::new();
    for pid in nopal_user::leave::left_by_this_process() {
        // One visit is enough for all that share stubs.
        if done.contains(&pid) {
            continue;
        }
        match nopal_user::leave::detach_past(pid) {
            Ok(report) => {
                done.extend(&report.processes);
                report.failures.iter().for_each(|(pid, why)| not_put_back(*pid, why));
            }
            Err(error) => not_put_back(pid, &error.to_string()),
        }
    }
    if !done.is_empty() {
        tell!("nopal: {} as before", in_words(done.len()));
    }
}

fn not_put_back(pid: i32, why: &str) {
    tell!("nopal: process {pid} is not as before: {why}; `nopal detach -p {pid}` tries again");
}

/// Who goes on tracing.
fn still(tracers: &[u32]) -> String {
    match tracers {
        [] => String::new(),
        [one] => format!("; process {one} is tracing it and goes on"),
        [first, rest @ ..] => format!("; process {first} and {} others are tracing it and go on", rest.len()),
    }
}
