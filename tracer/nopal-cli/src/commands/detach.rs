//! `nopal detach`: puts a process back as it was after its tracer was killed.

use crate::failure::Failure;
use crate::failure::failure_of;
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
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    if args.processes.is_empty() {
        return Err(Failure::usage("no process named").hint("add -p PID or -n NAME"));
    }
    args.processes.resolve(false)?;
    // Belongs to no process: what killed tracers left in the kernel.
    let swept = nopal_kernel::leftovers::sweep();
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
            anstream::println!("{result}");
        } else if report.n_restored + report.n_lowered == 0 {
            tell!("process {pid}: nothing to restore{}", still(&report.live_tracers));
        } else {
            tell!(
                "process {pid}: {} and {} restored in {}{}",
                counted(report.n_restored as u64, "place"),
                counted(report.n_lowered as u64, "semaphore"),
                match report.processes.len() {
                    1 => "1 process".to_owned(),
                    n => format!("{n} processes"),
                },
                still(&report.live_tracers)
            );
        }
        if let Some((pid, why)) = report.failures.first() {
            return Err(Failure::new("not-restored", format!("process {pid}: {why}")));
        }
    }
    Ok(())
}

/// Who goes on tracing.
fn still(tracers: &[u32]) -> String {
    match tracers {
        [] => String::new(),
        [one] => format!("; process {one} is tracing it and goes on"),
        [first, rest @ ..] => format!("; process {first} and {} others are tracing it and go on", rest.len()),
    }
}
