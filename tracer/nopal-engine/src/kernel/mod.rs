//! The kernel door: uprobes with an eBPF program of our own. For a process and its descendants a [`inherited_uprobes::Family`], for
//! one process alone one `uprobe_multi` link per program and object.
//! Records have the format of the user door, but for their time, which is CLOCK_MONOTONIC in nanoseconds.

mod bpf;
pub mod capture_program;
pub mod ftrace;
mod idle_process;
pub mod inherited_uprobes;
mod insn;
pub mod leftovers;
mod ringbuf;
pub mod script;
pub mod tracefs;

use bpf::{LinkSite, LoadError, MapType};
use capture_program::{Dispatch, Loss, Maps, ProgramError, ProgramSite};
use nopal_sdt::probe::Site;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::user::record::{Parsed, RecordView};
use crate::user::stub::Capture;
use ringbuf::RingBuffer;

/// Sites in one program: small enough for eBPF's 16-bit jumps even if every site has many strings.
const SITES_PER_PROGRAM: usize = 64;
const MIN_RING_BYTES: usize = 4096;

/// One site to be armed.
#[derive(Debug, Clone)]
pub struct KernelSite {
    /// Stands in the record.
    pub event: u32,
    pub site: Site,
    pub captures: Vec<Capture>,
}

#[derive(Debug)]
pub enum KernelError {
    /// `what` needs a capability this process has not.
    NotPermitted {
        what: &'static str,
    },
    /// The verifier refused a program of ours.
    Refused {
        error: io::Error,
        log: String,
    },
    Program(ProgramError),
    /// A bare 5-byte nop: kernels up to at least 6.18 put a call there that destroys the red zone.
    UnsafeNop {
        event: u32,
        address: u64,
    },
    Link {
        path: PathBuf,
        pid: u32,
        error: io::Error,
    },
    Io {
        what: &'static str,
        error: io::Error,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::NotPermitted { what } => {
                write!(f, "{what} is not permitted: the kernel door needs CAP_BPF and CAP_PERFMON, or root")
            }
            KernelError::Refused { error, .. } => write!(f, "the kernel refused the program: {error}"),
            KernelError::Program(ProgramError::VectorRegister { .. }) => {
                write!(f, "an argument is in a vector register, which eBPF cannot read")
            }
            KernelError::Program(ProgramError::ValueSize { size_bytes, .. }) => {
                write!(f, "an argument has {size_bytes} bytes, eBPF reads at most 8")
            }
            KernelError::Program(ProgramError::UnknownSymbol { name, .. }) => {
                write!(f, "the file has no symbol `{name}`, which an argument names")
            }
            KernelError::Program(ProgramError::TooManyBytes { .. }) => {
                write!(f, "the arguments do not fit into a record; a smaller --max-string helps")
            }
            KernelError::Program(ProgramError::TooLong) => write!(f, "the program is too long for eBPF"),
            KernelError::UnsafeNop { address, .. } => {
                write!(
                    f,
                    "the site at {address:#x} is a bare 5-byte nop, where this kernel's uprobes corrupt the program"
                )
            }
            KernelError::Link { path, pid, error } => {
                write!(f, "cannot put uprobes on {} in process {pid}: {error}", path.display())
            }
            KernelError::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for KernelError {}

/// Sites with what a program is made of for them.
type Accepted<'a> = Vec<(&'a KernelSite, ProgramSite)>;

/// Sites of one object with the programs that serve them.
#[derive(Debug)]
pub struct ArmedObject {
    groups: Vec<(OwnedFd, Vec<LinkSite>)>,
}

/// Holds uprobes of one process; dropping it disarms them.
#[derive(Debug)]
pub struct Link {
    _links: Vec<OwnedFd>,
}

/// One ring buffer and the maps that go with it; programs of many objects write into it.
#[derive(Debug)]
pub struct KernelDoor {
    ring: RingBuffer,
    maps: Maps,
    loss: OwnedFd,
    _depth: OwnedFd,
    _scratch: OwnedFd,
    n_cpus: usize,
}

impl KernelDoor {
    /// `ring_bytes` is rounded up to a power of two.
    pub fn open(ring_bytes: usize) -> Result<KernelDoor, KernelError> {
        let ring_bytes = ring_bytes.max(MIN_RING_BYTES).next_power_of_two();
        let map = |map_type, key, value, entries, name| {
            bpf::create_map(map_type, key, value, entries, name)
                .map_err(|error| not_permitted(error, "making a BPF map"))
        };
        let ring = map(MapType::Ringbuf, 0, 0, ring_bytes as u32, "nopal_ring")?;
        let loss = map(MapType::PercpuArray, 4, size_of::<Loss>() as u32, 1, "nopal_loss")?;
        let depth = map(MapType::PercpuArray, 4, 8, 1, "nopal_depth")?;
        let scratch = map(
            MapType::PercpuArray,
            4,
            capture_program::SCRATCH_BYTES,
            capture_program::SCRATCH_LEVELS,
            "nopal_scratch",
        )?;
        let maps = Maps {
            ring: ring.as_raw_fd(),
            loss: loss.as_raw_fd(),
            depth: depth.as_raw_fd(),
            scratch: scratch.as_raw_fd(),
        };
        let ring = RingBuffer::new(ring, ring_bytes)
            .map_err(|error| KernelError::Io { what: "mapping the BPF ring buffer", error })?;
        Ok(KernelDoor { ring, maps, loss, _depth: depth, _scratch: scratch, n_cpus: possible_cpus()? })
    }

    /// Divides sites into those a program can be made for and the others, with the reason.
    fn accept<'a>(&self, sites: &'a [KernelSite]) -> (Accepted<'a>, Vec<(u32, KernelError)>) {
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        for site in sites {
            let bare = ProgramSite {
                event: site.event,
                address: site.site.address,
                captures: site.captures.clone(),
            };
            let alone = std::slice::from_ref(&bare);
            if site.site.code.starts_with(&[0x0f, 0x1f, 0x44, 0x00, 0x00]) {
                let error = KernelError::UnsafeNop { event: site.event, address: site.site.address };
                refused.push((site.event, error));
            } else if let Err(error) = capture_program::assemble(alone, self.maps, Dispatch::Cookie, false) {
                refused.push((site.event, KernelError::Program(error)));
            } else {
                accepted.push((site, bare));
            }
        }
        (accepted, refused)
    }

    /// Loads programs for sites of one object. Sites that cannot be served are returned with the reason.
    pub fn prepare(
        &self,
        sites: &[KernelSite],
    ) -> Result<(ArmedObject, Vec<(u32, KernelError)>), KernelError> {
        let (accepted, refused) = self.accept(sites);
        let mut groups = Vec::new();
        for group in accepted.chunks(SITES_PER_PROGRAM) {
            let programs: Vec<ProgramSite> = group.iter().map(|(_, bare)| bare.clone()).collect();
            let program = self.load(&programs, Dispatch::Cookie, bpf::load_uprobe_program)?;
            let links = group
                .iter()
                .enumerate()
                .map(|(cookie, (site, _))| LinkSite {
                    file_offset: site.site.file_offset,
                    ref_ctr_offset: site.site.semaphore.map_or(0, |s| s.file_offset),
                    cookie: cookie as u64,
                })
                .collect();
            groups.push((program, links));
        }
        Ok((ArmedObject { groups }, refused))
    }

    /// The program of sites: one that may sleep if it has to and the kernel has it, else it reads what is in memory only.
    fn load(
        &self,
        sites: &[ProgramSite],
        dispatch: Dispatch,
        load: impl Fn(&[insn::Insn], &str, bool) -> Result<OwnedFd, bpf::LoadError>,
    ) -> Result<OwnedFd, KernelError> {
        let assemble = |may_sleep| {
            capture_program::assemble(sites, self.maps, dispatch, may_sleep).map_err(KernelError::Program)
        };
        if capture_program::reads_memory(sites)
            && let Ok(program) = load(&assemble(true)?, "nopal_hit", true)
        {
            return Ok(program);
        }
        load(&assemble(false)?, "nopal_hit", false).map_err(refusal)
    }

    /// Arms the sites in one process. `path` must lead to the very file the process maps.
    pub fn arm(&self, object: &ArmedObject, path: &Path, pid: u32) -> Result<Link, KernelError> {
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| KernelError::Io {
            what: "the path of the traced file",
            error: io::Error::from(io::ErrorKind::InvalidInput),
        })?;
        let mut links = Vec::with_capacity(object.groups.len());
        for (program, sites) in &object.groups {
            let link = bpf::link_uprobes(program, &c_path, sites, pid).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM) => KernelError::NotPermitted { what: "putting uprobes on a file" },
                    _ => KernelError::Link { path: path.to_owned(), pid, error },
                }
            })?;
            links.push(link);
        }
        Ok(Link { _links: links })
    }

    /// Hands at most `limit` finished records with their CPUs to `take`; returns how many there were.
    pub fn poll(&mut self, limit: usize, mut take: impl FnMut(u32, RecordView<'_>)) -> usize {
        self.ring.poll(limit, |bytes| {
            // Only programs of ours write here, and each puts the prefix first.
            let Some((prefix, bytes)) = bytes.split_first_chunk::<{ capture_program::PREFIX_BYTES }>() else {
                return;
            };
            if let Parsed::Record(record, _) = RecordView::parse(bytes) {
                take(u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]), record);
            }
        })
    }

    /// What was lost so far, by CPU.
    pub fn loss(&self) -> Result<Vec<Loss>, KernelError> {
        const WORDS: usize = size_of::<Loss>() / 8;
        let mut words = vec![0u64; self.n_cpus * WORDS];
        bpf::lookup_percpu(&self.loss, 0, &mut words)
            .map_err(|error| KernelError::Io { what: "reading the loss counters", error })?;
        Ok(words.chunks_exact(WORDS).map(|w| Loss { n_lost: w[0], first_ns: w[1], last_ns: w[2] }).collect())
    }
}

fn refusal(refused: LoadError) -> KernelError {
    if refused.error.raw_os_error() == Some(libc::EPERM) {
        return KernelError::NotPermitted { what: "loading an eBPF program" };
    }
    KernelError::Refused { error: refused.error, log: refused.log }
}

fn not_permitted(error: io::Error, what: &'static str) -> KernelError {
    match error.raw_os_error() {
        Some(libc::EPERM) => KernelError::NotPermitted { what },
        _ => KernelError::Io { what, error },
    }
}

/// The kernel gives per-CPU values for every possible CPU, present or not.
fn possible_cpus() -> Result<usize, KernelError> {
    let path = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(path).map_err(|error| KernelError::Io { what: path, error })?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<usize>().ok());
    last.map(|n| n + 1)
        .ok_or(KernelError::Io { what: path, error: io::Error::from(io::ErrorKind::InvalidData) })
}
