//! Faults at random instants: programs that check themselves and count their own hits, traced while tracers and programs are
//! killed and stopped, disks fill up, and other tracers come and go. What is drawn for a round depends on its seed alone.
//!
//! `figures` adds up, `harm` does one wrong, `round` is one program with its tracer, `target` the program, `tracer` nopal.

pub mod figures;
mod harm;
mod round;
mod target;
mod tracer;

use crate::cycles::Chance;
use crate::target_dir;
use figures::Figures;
use harm::{Harm, Planned};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use target::Kind;
use tracer::{Door, Verb};

/// How long and which rounds.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub time: Duration,
    /// The seed of the first round; the next has the next number.
    pub seed: u64,
    pub is_once: bool,
    pub n_lanes: u32,
    /// Says what each round does.
    pub is_verbose: bool,
}

/// Rounds until the time is over. What fails is kept in [`failures`].
pub fn run(options: &Options) -> Figures {
    let end = Instant::now() + options.time;
    let next = AtomicU64::new(options.seed);
    let figures = Mutex::new(Figures::default());
    std::thread::scope(|scope| {
        for _ in 0..options.n_lanes.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let plan = Plan::drawn(seed);
                    if options.is_verbose {
                        println!("{seed}: {plan}");
                    }
                    let result = round::run(&plan);
                    result.failures.iter().for_each(|failure| keep(seed, &plan, failure));
                    figures.lock().expect("no lane has panicked").add(&plan, &result);
                    if options.is_once || Instant::now() >= end {
                        break;
                    }
                }
            });
        }
    });
    figures.into_inner().expect("no lane has panicked")
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

/// What is done in a round.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub seed: u64,
    pub kind: Kind,
    /// Started by the tracer, or there before it.
    pub is_launched: bool,
    /// The tracer is asked to end before the program does.
    pub is_left: bool,
    pub verb: Verb,
    pub door: Door,
    pub has_small_ring: bool,
    /// The recording goes to a disk with hardly any room.
    pub has_small_disk: bool,
    /// The tracer lives in another time than the program.
    pub has_other_clock: bool,
    pub harms: Vec<Planned>,
}

impl Plan {
    fn drawn(seed: u64) -> Plan {
        let mut chance = Chance::of(seed);
        let kind = Kind::drawn(&mut chance);
        let is_one_in = |chance: &mut Chance, n: u64| chance.below(n) == 0;
        let is_launched = kind.can_be_launched() && is_one_in(&mut chance, 3);
        let verb = *chance.one_of(&[Verb::Record, Verb::Record, Verb::Trace, Verb::Run]);
        let door = *chance.one_of(&[Door::Auto, Door::Auto, Door::User, Door::User, Door::Kernel]);
        let mut harms: Vec<Planned> =
            (0..1 + chance.below(4)).map(|_| Harm::drawn(&mut chance, &kind)).collect();
        harms.sort_by_key(|planned| planned.at);
        let gdb: Vec<Harm> =
            harms.iter().map(|p| p.harm).filter(|harm| matches!(harm, Harm::Gdb { .. })).collect();
        harms.retain(|planned| gdb.iter().all(|gdb| !planned.harm.is_deadly_beside(*gdb)));
        Plan {
            seed,
            kind,
            is_launched,
            is_left: is_one_in(&mut chance, 2),
            verb,
            door,
            has_small_ring: is_one_in(&mut chance, 3),
            has_small_disk: verb == Verb::Record && is_one_in(&mut chance, 6),
            has_other_clock: is_one_in(&mut chance, 8),
            harms,
        }
    }

    /// How many wrongs are done.
    pub(crate) fn n_faults(&self) -> usize {
        self.harms.len() + usize::from(self.has_small_disk) + usize::from(self.has_other_clock)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.is_launched { "starts" } else { "attaches to" };
        write!(f, "{} --door {} {way} {}", self.verb.name(), self.door.name(), self.kind)?;
        for (is_so, what) in [
            (self.has_small_ring, "small ring"),
            (self.has_small_disk, "small disk"),
            (self.has_other_clock, "another clock"),
            (self.is_left, "is asked to end"),
        ] {
            if is_so {
                write!(f, ", {what}")?;
            }
        }
        for Planned { at, harm } in &self.harms {
            write!(f, "; {} ms: {harm}", at.as_millis())?;
        }
        Ok(())
    }
}
