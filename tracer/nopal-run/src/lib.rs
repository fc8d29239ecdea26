//! Scripts at work: what a compiled script needs of its targets, and the three ways to run it: through the user door,
//! in the kernel, over a recording. Prints nothing: results are bytes for whoever does.

mod addresses;
mod before_parsing;
mod bench;
mod btf;
pub mod catalog;
mod cells;
mod cgroups;
mod debug_types;
mod function_sites;
mod functions;
mod hits;
pub mod kernel;
mod later_point;
pub mod listing;
mod locations;
mod named_files;
mod names;
mod perform;
mod probe_args;
pub mod recording;
mod series;
mod site;
mod sites;
mod source_lines;
mod spans;
mod tasks;
mod timers;
mod tracepoints;
mod tracer_hit;
pub mod user;

pub use before_parsing::kernel_records;
pub use bench::Measured;
pub use locations::n_locations;
pub use names::TracerNames;
pub use perform::{Drain, MapAccess, Message, Performer};

use nopal_kernel::script::ScriptError;
use nopal_live::LiveError;
use nopal_proc::launch::LaunchError;
use nopal_program::captures::{Captures, obstacle};
use nopal_program::interpret::{BadProgram, Maps};
use nopal_program::{LaterProbes, PointKind, Program};
use nopal_script::render::Entry;
use std::collections::HashSet;
use std::fmt;
use std::process::Child;
use std::time::{Duration, Instant};

/// Why a script does not run.
#[derive(Debug)]
pub enum RunError {
    Live(LiveError),
    Recording(nopal_trace::Error),
    Program(BadProgram),
    Kernel(ScriptError),
    /// The script does what this way of running it cannot.
    Unable(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Live(error) => write!(f, "{error}"),
            RunError::Recording(error) => write!(f, "{error}"),
            RunError::Program(error) => write!(f, "the compiled script is damaged: {error}"),
            RunError::Kernel(error) => write!(f, "{error}"),
            RunError::Unable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RunError {}

impl From<LaunchError> for RunError {
    fn from(error: LaunchError) -> RunError {
        RunError::Live(LiveError::Launch(error))
    }
}

/// What one round of a script gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There may be more at once.
    Busy,
    /// Nothing to do at the moment.
    Idle,
    /// `exit()`, the end of what was traced, or of the recording.
    Over,
}

/// Something worth telling while a script runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// For who wants to know.
    Detail(String),
    /// Results may be incomplete because of it.
    Gap(String),
}

/// By map: entries that were not made because it was full.
fn full_maps(program: &Program, maps: &Maps) -> Vec<(String, u64)> {
    let both = program.maps.iter().zip(maps).filter(|(_, table)| table.n_refused > 0);
    both.map(|(def, table)| (def.name.clone(), table.n_refused)).collect()
}

/// Why a script cannot run through the user door, if it cannot.
pub fn user_door_obstacle(program: &Program) -> Option<String> {
    program.clauses.iter().find_map(|clause| {
        clause.points.iter().find_map(|point| {
            let what = match &point.kind {
                PointKind::Begin
                | PointKind::End
                | PointKind::Signal
                | PointKind::Bench { .. }
                | PointKind::Interval { .. } => obstacle(&clause.code, false)?,
                PointKind::Usdt { .. }
                | PointKind::UsdtLater(_)
                | PointKind::Uprobe { .. }
                | PointKind::Uretprobe { .. } => obstacle(&clause.code, true)?,
                PointKind::Tracepoint { .. } => "tracepoints are the kernel's",
                PointKind::Kprobe { .. } | PointKind::Kretprobe { .. } => "functions of the kernel",
                PointKind::Profile { .. } => "samples are taken by the kernel",
                PointKind::Software { .. } | PointKind::Hardware { .. } => "the kernel counts these events",
                PointKind::Watchpoint { .. } => "the kernel watches addresses",
            };
            Some(format!("{}: {what}", point.name))
        })
    })
}

/// Whether the script asks for stacks where hits can bring a part of theirs.
pub fn takes_stacks(program: &Program) -> bool {
    program.clauses.iter().any(|clause| {
        clause.points.iter().any(|point| is_of_site(&point.kind)) && Captures::of(&clause.code).needs_stack
    })
}

/// Whether the script has anything to attach to a process.
pub fn needs_process(program: &Program) -> bool {
    let is_in_process = |kind: &PointKind| is_of_site(kind) || matches!(kind, PointKind::Watchpoint { .. });
    program.clauses.iter().flat_map(|clause| &clause.points).any(|point| is_in_process(&point.kind))
}

/// Whether a point is that of a function.
pub fn is_function(kind: &PointKind) -> bool {
    matches!(kind, PointKind::Uprobe { .. } | PointKind::Uretprobe { .. })
}

/// Whether a point stands for places in programs.
fn is_of_site(kind: &PointKind) -> bool {
    is_static(kind) || is_function(kind)
}

/// Whether a point is that of a static probe.
fn is_static(kind: &PointKind) -> bool {
    matches!(kind, PointKind::Usdt { .. } | PointKind::UsdtLater(_))
}

/// The points of probes that are mapped later, with clause and point, and their names.
pub fn later_points(program: &Program) -> impl Iterator<Item = ((u32, u32), &str, &LaterProbes)> {
    program.clauses.iter().enumerate().flat_map(|(clause, body)| {
        body.points.iter().enumerate().filter_map(move |(point, at)| match &at.kind {
            PointKind::UsdtLater(later) => Some(((clause as u32, point as u32), at.name.as_str(), later)),
            _ => None,
        })
    })
}

/// The names of probes that were only to come later, and have no sites.
fn never_came(program: &Program, came: &HashSet<(u32, u32)>) -> Vec<String> {
    let is_missing = |at: &(u32, u32), later: &LaterProbes| later.known.is_empty() && !came.contains(at);
    let missing = later_points(program).filter(|(at, _, later)| is_missing(at, later));
    missing.map(|(_, name, _)| name.to_owned()).collect()
}

/// The clauses and points of a kind, in the order of the script.
fn points_of(program: &Program, is_wanted: impl Fn(&PointKind) -> bool) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for (clause, body) in program.clauses.iter().enumerate() {
        for (point, at) in body.points.iter().enumerate() {
            if is_wanted(&at.kind) {
                found.push((clause as u32, point as u32));
            }
        }
    }
    found
}

/// How long a command may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_millis(500);

/// Asks a command to end, and makes it if it does not.
fn end(child: &mut Child) {
    let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
    if !is_running(child) {
        return;
    }
    // SAFETY: a system call with numbers; the process is our child and not reaped, so that the number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let until = Instant::now() + PATIENCE;
    while is_running(child) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    if is_running(child) {
        // It may end by itself at this very moment.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The entries of one of an interpreter's maps.
fn entries_of(maps: &Maps, map: u32) -> Vec<Entry> {
    maps.get(map as usize)
        .map(|table| table.entries().map(|(key, words)| (key.to_vec(), words.to_vec())).collect())
        .unwrap_or_default()
}
