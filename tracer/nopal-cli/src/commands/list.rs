//! `nopal list`: the probes of files and of running programs.

use crate::failure::Failure;

/// Lists probes with their arguments, sites and semaphores.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::usage("no file given"))
}
