//! Runs a compiled script in the kernel: its clauses become eBPF programs, its maps eBPF maps, what it prints comes back
//! through a ring buffer. Knows no script text and shows nothing.

mod error;

pub use error::ScriptError;

use nopal_program::{PointKind, Program};

/// How a script is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptOptions {
    /// For what the script emits; rounded up to a power of two.
    pub ring_bytes: usize,
    /// CLOCK_MONOTONIC when the script began: `elapsed` counts from here.
    pub start_ns: u64,
}

impl Default for ScriptOptions {
    fn default() -> ScriptOptions {
        ScriptOptions { ring_bytes: 16 << 20, start_ns: 0 }
    }
}

/// What became of a point of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub clause: usize,
    pub point: usize,
    /// Of a point in user code; `None` by file.
    pub pid: Option<u32>,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The kernel's breakpoint is in the code, or the event is on.
    Armed { n_sites: usize },
    /// The kernel has taken the sites, but no process maps the code yet.
    Waiting { n_sites: usize },
    /// Cause and next step.
    Refused { why: String },
}

/// What a hit handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emitted<'a> {
    pub cpu: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    pub pid: u32,
    pub tid: u32,
    /// Index in [`Program::actions`].
    pub action: u32,
    pub payload: &'a [u8],
}

/// One entry of a map: key and value in the layouts of [`nopal_program::MapDef`]; an aggregate's words, little endian,
/// are those of all CPUs together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// What was not done as the script wanted, over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScriptLoss {
    /// Emitted, but the ring had no room.
    pub n_emitted: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Stores into a map that was full.
    pub n_full: u64,
    /// Hits that ended inside a loop that went round too often.
    pub n_cut: u64,
    /// Hits that found no working memory: too many at once on one CPU.
    pub n_crowded: u64,
}

/// A script in the kernel. Dropping it detaches everything.
#[derive(Debug)]
pub struct ScriptDoor {
    _program: Program,
}

impl ScriptDoor {
    /// Makes the maps. Programs are loaded when their points are attached.
    pub fn open(program: &Program, _options: &ScriptOptions) -> Result<ScriptDoor, ScriptError> {
        Ok(ScriptDoor { _program: program.clone() })
    }

    /// Runs the clauses of this kind (`Begin` or `End`) once, here and now.
    pub fn run(&mut self, _kind: &PointKind) -> Result<(), ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Attaches the points in user code to one process. Call it again when the process has loaded more: only what is new
    /// is attached and returned.
    pub fn attach_process(&mut self, _pid: u32) -> Result<Vec<Attached>, ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Attaches the points in user code to their files, in every process that maps them now or later.
    pub fn attach_files(&mut self) -> Result<Vec<Attached>, ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Attaches tracepoints, kernel functions, timers and counters.
    pub fn attach_events(&mut self) -> Result<Vec<Attached>, ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Detaches everything at once; maps and what was emitted stay.
    pub fn detach(&mut self) {}

    /// Hands everything emitted since the last call to `take`, in the order of the ring; returns how many there were.
    pub fn poll(&mut self, _take: impl FnMut(Emitted<'_>)) -> usize {
        0
    }

    /// All entries of a map, in no order.
    pub fn map_entries(&self, _map: u32) -> Result<Vec<Entry>, ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Removes all entries.
    pub fn clear(&self, _map: u32) -> Result<(), ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// Sets all values to zero; keys stay.
    pub fn zero(&self, _map: u32) -> Result<(), ScriptError> {
        Err(ScriptError::NotYet)
    }

    pub fn loss(&self) -> Result<ScriptLoss, ScriptError> {
        Err(ScriptError::NotYet)
    }

    /// The instructions of every clause, one a line, for people.
    pub fn listing(&self) -> Result<String, ScriptError> {
        Err(ScriptError::NotYet)
    }
}
