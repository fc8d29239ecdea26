//! Faults at random instants: programs that check themselves and count their own hits, traced while tracers and programs are
//! killed and stopped, disks fill up, and other tracers come and go. What is drawn for a round depends on its seed alone.
//!
//! `figures` adds up, `harm` does one wrong, `plan` draws a round, `round` is one program with its tracers and `actions` what
//! is done while it works, `leftovers` what they may have left, `surroundings` its disk, control group and clock, `target`
//! the program, `postgres` the one that is a server, `tracer` nopal, `visitor` other tools.

mod actions;
pub mod figures;
mod harm;
mod leftovers;
mod plan;
mod postgres;
mod process;
mod round;
mod surroundings;
mod target;
mod tracer;
mod visitor;

use crate::target_dir;
use figures::Figures;
use plan::Plan;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often it is said how far it is.
const REPORTS_EVERY: Duration = Duration::from_secs(300);

/// How long and which rounds.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub time: Duration,
    /// The seed of the first round; the next has the next number.
    pub seed: u64,
    /// So many rounds, however long they take.
    pub n_rounds: Option<u64>,
    pub n_lanes: u32,
    /// Says what each round does.
    pub is_verbose: bool,
}

/// Rounds until the time is over. What fails is kept in [`failures`].
pub fn run(options: &Options) -> Figures {
    let start = Instant::now();
    let next = AtomicU64::new(options.seed);
    let figures = Mutex::new((Figures::default(), start));
    std::thread::scope(|scope| {
        for _ in 0..options.n_lanes.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if options.n_rounds.is_some_and(|n| seed - options.seed >= n) {
                        break;
                    }
                    let plan = Plan::drawn(seed);
                    if options.is_verbose {
                        println!("{seed}: {plan}");
                    }
                    let result = round::run(&plan);
                    if options.is_verbose {
                        println!("{seed}: {result}");
                    }
                    result.failures.iter().for_each(|failure| keep(seed, &plan, failure));
                    let mut figures = figures.lock().expect("no lane has panicked");
                    figures.0.add(&plan, &result);
                    if figures.1.elapsed() >= REPORTS_EVERY {
                        figures.1 = Instant::now();
                        println!("after {} s: {}", start.elapsed().as_secs(), figures.0.in_short());
                    }
                    if options.n_rounds.is_none() && start.elapsed() >= options.time {
                        break;
                    }
                }
            });
        }
    });
    let mut figures = figures.into_inner().expect("no lane has panicked").0;
    figures.took(start.elapsed());
    figures
}

/// Where each failure is a line: its seed, what was done, what went wrong.
pub fn failures() -> PathBuf {
    target_dir().join("faults/failures.txt")
}

fn keep(seed: u64, plan: &Plan, failure: &str) {
    println!("FAILED {seed}: {failure}\n  {plan}\n  again: ./x faults --seed {seed} --once");
    let file = failures();
    let written = fs::create_dir_all(file.parent().expect("it is in a folder")).and_then(|()| {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&file)?;
        writeln!(file, "{seed}\t{failure}\t{plan}")
    });
    if let Err(error) = written {
        println!("{}: {error}", file.display());
    }
}
