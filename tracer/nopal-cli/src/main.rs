//! The `nopal` command: reads the command line, runs one verb, prints what went wrong.

#[macro_use]
mod say;
mod commands;
mod failure;
mod known;
mod lines;
mod needs;
mod open;
mod panics;
mod pids;
mod processes;
mod reading;
mod rhythm;
mod signals;
mod target_args;
mod traps;
mod usage;
mod verdict;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    panics::put_back_after();
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    commands::run(args)
}
