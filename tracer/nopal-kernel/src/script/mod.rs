//! Runs a compiled script in the kernel: its clauses become eBPF programs, its maps eBPF maps, what it prints comes back
//! through a ring buffer. Knows no script text and shows nothing.

mod attach;
mod btf;
pub mod code;
mod error;
mod events;
mod listing;
mod load;
mod maps;
mod resolve;
mod together;
mod watch;

pub use attach::processes_mapping;
pub use error::ScriptError;
pub use resolve::is_later;

use super::bpf::{self, MapKind};
use super::file_code::FileCodes;
use super::landed::Landed;
use super::refusal::Refusal;
use super::ringbuf::RingBuffer;
use super::uprobes::Uprobes;
use attach::{ClauseSet, PointInProcess};
use code::{CodeError, HEADER_BYTES, Kind, STATS_BYTES, Which};
use load::Loaded;
use maps::HostMap;
use nopal_proc::FileId;
use nopal_program::{MapValue, PointKind, Program};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use together::Bunch;

/// How a script is to run.
#[derive(Debug, Clone)]
pub struct ScriptOptions {
    /// For what the script emits; rounded up to a power of two.
    pub ring_bytes: usize,
    /// CLOCK_MONOTONIC when the script began: `elapsed` counts from here.
    pub start_ns: u64,
    /// Links of many uprobes are used where the kernel has them; without, each site is a perf event.
    pub has_uprobe_multi: bool,
    /// What a process forks is to have its points at once, where the kernel can do that.
    pub follows_children: bool,
    /// What files say of providers, beside the catalog.
    pub given: Vec<nopal_provider::File>,
}

impl Default for ScriptOptions {
    fn default() -> ScriptOptions {
        ScriptOptions {
            ring_bytes: 16 << 20,
            start_ns: 0,
            has_uprobe_multi: true,
            follows_children: false,
            given: Vec::new(),
        }
    }
}

/// A script that emits faster than it is read gives way so often.
pub const MAX_POLLED: usize = 1 << 16;

/// What became of a point of the script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub clause: usize,
    pub point: usize,
    /// Of a point in user code; `None` by file.
    pub pid: Option<u32>,
    /// Until now hits there were not seen. Otherwise it came from the parent, or with the code.
    pub is_new: bool,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The kernel's breakpoint is in the code, or the event is on.
    Armed {
        n_sites: usize,
    },
    /// The kernel has taken the sites, but no process maps the code yet.
    Waiting {
        n_sites: usize,
    },
    Refused {
        why: Refusal,
    },
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
    program: Program,
    start_ns: u64,
    n_cpus: usize,
    maps: Vec<HostMap>,
    ring: RingBuffer,
    ring_fd: i32,
    stats: OwnedFd,
    scratch: Option<OwnedFd>,
    /// For programs that keep everything there, should one need it.
    opaque_scratch: Option<OwnedFd>,
    zeros: Option<OwnedFd>,
    loaded: Vec<Loaded>,
    files: FileCodes,
    /// Inherited by the index of the set.
    uprobes: Uprobes<usize>,
    landed: Landed,
    sets: Vec<ClauseSet>,
    /// Of sets that share an event.
    bunches: Vec<Bunch>,
    events: Vec<OwnedFd>,
    attached: HashSet<PointInProcess>,
    /// Of those attached: whose code no process has mapped yet.
    waiting: HashSet<PointInProcess>,
    /// Clause, point and file: what points for files mapped later do not mean.
    not_meant: HashSet<(usize, usize, FileId)>,
    /// What was said of those refused.
    refused: HashMap<PointInProcess, Refusal>,
}

impl ScriptDoor {
    /// Makes the maps. Programs are loaded when their points are attached.
    pub fn open(program: &Program, options: &ScriptOptions) -> Result<ScriptDoor, ScriptError> {
        let n_cpus = nopal_proc::possible_cpus()
            .map_err(|error| ScriptError::io("counting the CPUs", error))? as usize;
        let scratch_bytes = load::scratch_bytes(program, false)?;
        let make = |kind, key, value, entries, name| {
            bpf::create_map(kind, key, value, entries, 0, name)
                .map_err(|error| ScriptError::io("making a BPF map", error))
        };
        let ring_bytes = options.ring_bytes.max(4096).next_power_of_two();
        let ring = make(MapKind::Ringbuf, 0, 0, ring_bytes as u32, "nopal_ring")?;
        let ring_fd = ring.as_raw_fd();
        let ring = RingBuffer::new(ring, ring_bytes)
            .map_err(|error| ScriptError::io("mapping the BPF ring buffer", error))?;
        let stats = make(MapKind::PercpuArray, 4, STATS_BYTES, 1, "nopal_stats")?;
        let scratch = match scratch_bytes {
            0 => None,
            bytes => Some(load::make_scratch(bytes)?),
        };
        let largest = program.maps.iter().map(|def| def.value_bytes()).max().unwrap_or(0);
        let zeros = match largest {
            0..=16 => None,
            bytes => Some(make(MapKind::Array, 4, bytes, 1, "nopal_zeros")?),
        };
        let mut maps = Vec::with_capacity(program.maps.len());
        for def in &program.maps {
            if let MapValue::Aggregate(aggregate) = def.value
                && aggregate.n_words() > code::MAX_AGGREGATE_WORDS
            {
                let error =
                    CodeError::AggregateTooLarge { map: def.name.clone(), n_words: aggregate.n_words() };
                return Err(ScriptError::Code { clause: 0, error });
            }
            maps.push(HostMap::new(def, program.room(maps.len()), n_cpus)?);
        }
        Ok(ScriptDoor {
            program: program.clone(),
            start_ns: options.start_ns,
            n_cpus,
            maps,
            ring,
            ring_fd,
            stats,
            scratch,
            opaque_scratch: None,
            zeros,
            loaded: Vec::new(),
            files: FileCodes::new(options.given.clone()),
            uprobes: Uprobes::new(options.follows_children, options.has_uprobe_multi),
            landed: Landed::default(),
            sets: Vec::new(),
            bunches: Vec::new(),
            events: Vec::new(),
            attached: HashSet::new(),
            waiting: HashSet::new(),
            not_meant: HashSet::new(),
            refused: HashMap::new(),
        })
    }

    /// Runs the clauses of this kind (`Begin` or `End`) once, here and now.
    pub fn run(&mut self, kind: &PointKind) -> Result<(), ScriptError> {
        self.run_with(kind, &[0; 12])
    }

    /// The same with numbers that the clauses see as their arguments.
    pub fn run_with(&mut self, kind: &PointKind, args: &[u64; 12]) -> Result<(), ScriptError> {
        for clause in 0..self.program.clauses.len() {
            for point in 0..self.program.clauses[clause].points.len() {
                if self.program.clauses[clause].points[point].kind == *kind {
                    let program = self.load(clause, Kind::Once, Which::Point(point as u32), &[])?;
                    bpf::run_once(&self.loaded[program].fd, args)
                        .map_err(|error| ScriptError::io("running an eBPF program", error))?;
                }
            }
        }
        Ok(())
    }

    /// Hands what was emitted since the last call to `take`, in the order of the ring, at most [`MAX_POLLED`]; returns how
    /// many there were.
    pub fn poll(&mut self, mut take: impl FnMut(Emitted<'_>)) -> usize {
        self.ring.poll(MAX_POLLED, |bytes| {
            // Only programs of ours write here, and each puts the header first.
            let Some((header, payload)) = bytes.split_first_chunk::<{ HEADER_BYTES as usize }>() else {
                return;
            };
            let word =
                |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            take(Emitted {
                cpu: word(0),
                action: word(4),
                ns: u64::from(word(8)) | u64::from(word(12)) << 32,
                tid: word(16),
                pid: word(20),
                payload,
            });
        })
    }

    fn map(&self, map: u32) -> Result<&HostMap, ScriptError> {
        self.maps.get(map as usize).ok_or(ScriptError::NoSuchMap { map })
    }

    /// All entries of a map, in no order.
    pub fn map_entries(&self, map: u32) -> Result<Vec<Entry>, ScriptError> {
        self.map(map)?.entries()
    }

    /// Removes all entries.
    pub fn clear(&self, map: u32) -> Result<(), ScriptError> {
        self.map(map)?.clear()
    }

    /// Sets all values to zero; keys stay.
    pub fn zero(&self, map: u32) -> Result<(), ScriptError> {
        self.map(map)?.zero()
    }

    pub fn loss(&self) -> Result<ScriptLoss, ScriptError> {
        const SIZE: usize = STATS_BYTES as usize;
        let mut bytes = vec![0; SIZE * self.n_cpus];
        bpf::lookup(&self.stats, &[0; 4], &mut bytes)
            .map_err(|error| ScriptError::io("reading the loss counters", error))?;
        let mut loss = ScriptLoss::default();
        for share in bytes.chunks_exact(SIZE) {
            let word = |index: usize| {
                u64::from_le_bytes(share[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
            };
            loss.n_emitted += word(0);
            if word(0) > 0 {
                loss.first_ns = if loss.first_ns == 0 { word(1) } else { loss.first_ns.min(word(1)) };
                loss.last_ns = loss.last_ns.max(word(2));
            }
            loss.n_full += word(3);
            loss.n_cut += word(4);
            loss.n_crowded += word(5);
        }
        Ok(loss)
    }
}
