//! The kernel door: uprobes with eBPF programs of our own, by one way ([`uprobes`]) and one policy ([`refusal`]). Here: the
//! door of capture programs, whose records have the format of the user door, but for their time, which is CLOCK_MONOTONIC
//! in nanoseconds.

#![warn(unreachable_pub)]

mod bpf;
pub mod capture_program;
mod code_error;
pub mod features;
pub mod file_code;
pub mod ftrace;
mod idle_process;
mod inherited_uprobes;
mod insn;
pub mod landed;
pub mod leftovers;
mod pt_regs;
pub mod refusal;
mod ringbuf;
pub mod script;
mod trace_page;
mod tracefs;
pub mod uprobes;

use bpf::{LinkSite, Load, LoadError, MapKind, ProgramType};
use capture_program::{Dispatch, Loss, Maps, ProgramSite};
use nopal_capture::Capture;
use nopal_capture::record::{Parsed, RecordView};
use nopal_proc::possible_cpus;
use nopal_sdt::probe::{Side, Site};
use refusal::Refusal;
use ringbuf::RingBuffer;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use uprobes::{AttachError, Link, SiteSet, Uprobes, Way};

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

impl KernelSite {
    /// Whether it stands for the returns of a function, wherever these are.
    fn is_return(&self) -> bool {
        self.site.edge.as_ref().is_some_and(|edge| edge.side == Side::AnyReturn)
    }
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
    /// Of sites that were to be opened.
    Site(Refusal),
    Io {
        what: &'static str,
        error: io::Error,
    },
}

impl KernelError {
    /// What happened, without which rights it takes.
    pub fn cause(&self) -> String {
        match self {
            KernelError::NotPermitted { what } => format!("{what} is not permitted"),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::NotPermitted { what } => {
                write!(f, "{what} is not permitted: the kernel door needs CAP_BPF and CAP_PERFMON, or root")
            }
            KernelError::Refused { error, .. } => write!(f, "the kernel refused the program: {error}"),
            KernelError::Site(refusal) => write!(f, "{refusal}"),
            KernelError::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for KernelError {}

/// Sites of one file that one program serves.
#[derive(Debug)]
pub struct CaptureSet {
    set: SiteSet,
    /// By cookie.
    sites: Vec<ProgramSite>,
    /// For links, of which each process gets its own.
    linked: Option<Arc<OwnedFd>>,
}

impl CaptureSet {
    /// The events of its sites.
    pub fn events(&self) -> impl Iterator<Item = u32> {
        self.sites.iter().map(|site| site.event)
    }
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
            bpf::create_map(map_type, key, value, entries, 0, name)
                .map_err(|error| not_permitted(error, "making a BPF map"))
        };
        let ring = map(MapKind::Ringbuf, 0, 0, ring_bytes as u32, "nopal_ring")?;
        let loss = map(MapKind::PercpuArray, 4, size_of::<Loss>() as u32, 1, "nopal_loss")?;
        let depth = map(MapKind::PercpuArray, 4, 8, 1, "nopal_depth")?;
        let scratch = map(
            MapKind::PercpuArray,
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
        // The kernel gives per-CPU values for every possible CPU, present or not.
        let n_cpus =
            possible_cpus().map_err(|error| KernelError::Io { what: "counting the CPUs", error })? as usize;
        let ring = RingBuffer::new(ring, ring_bytes)
            .map_err(|error| KernelError::Io { what: "mapping the BPF ring buffer", error })?;
        Ok(KernelDoor { ring, maps, loss, _depth: depth, _scratch: scratch, n_cpus })
    }

    /// Divides sites of the file at `path`, with this device and inode, by the programs that will serve them. Sites for which
    /// no program can be made are returned with the reason.
    pub fn prepare(
        &self,
        path: &Path,
        file: (u64, u64),
        sites: &[KernelSite],
    ) -> (Vec<CaptureSet>, Vec<(u32, Refusal)>) {
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        for site in sites {
            let bare = ProgramSite {
                event: site.event,
                address: site.site.address,
                captures: site.captures.clone(),
            };
            let alone = std::slice::from_ref(&bare);
            match capture_program::assemble(alone, self.maps, Dispatch::Cookie, false) {
                Ok(_) => accepted.push((site, bare)),
                Err(error) => refused.push((site.event, Refusal::Capture(error))),
            }
        }
        let link_site = |cookie: usize| LinkSite {
            file_offset: accepted[cookie].0.site.file_offset,
            ref_ctr_offset: accepted[cookie].0.site.semaphore.map_or(0, |s| s.file_offset),
            cookie: cookie as u64,
        };
        // Where a function returns to tells nothing about which one it was.
        // And one that the kernel may refuse is to keep no other away.
        let is_alone = |site: &KernelSite| {
            site.is_return() || site.site.code.first().is_some_and(|byte| refusal::is_odd(*byte))
        };
        let (alone, plain): (Vec<usize>, Vec<usize>) =
            (0..accepted.len()).partition(|at| is_alone(accepted[*at].0));
        let alone = alone.into_iter().map(|at| {
            let (link, site) = (LinkSite { cookie: 0, ..link_site(at) }, accepted[at].1.clone());
            let set = SiteSet::new(path, file, accepted[at].0.is_return(), vec![link]);
            CaptureSet { set, sites: vec![site], linked: None }
        });
        let links: Vec<LinkSite> = plain.into_iter().map(link_site).collect();
        let sets = uprobes::told_apart(&links, SITES_PER_PROGRAM).into_iter().map(|mut part| {
            // In the order of the place in the page, as a program searches by it.
            part.sort_by_key(uprobes::page_offset);
            let sites = part.iter().map(|link| accepted[link.cookie as usize].1.clone()).collect();
            (0..).zip(&mut part).for_each(|(cookie, link)| link.cookie = cookie);
            CaptureSet { set: SiteSet::new(path, file, false, part), sites, linked: None }
        });
        (sets.chain(alone).collect(), refused)
    }

    /// Arms sites in a process, and where uprobes are inherited in all it forks; false if it had them all by inheritance.
    /// `path` must lead to the very file the process maps.
    pub fn attach(
        &self,
        uprobes: &mut Uprobes<u32>,
        set: &mut CaptureSet,
        path: &Path,
        pid: u32,
    ) -> Result<bool, KernelError> {
        let CaptureSet { set, sites, linked } = set;
        let is_return = set.is_return;
        path.clone_into(&mut set.path);
        let events: Vec<u32> = sites.iter().map(|site| site.event).collect();
        let attached = uprobes.attach(set, &events, Some(pid), |way| {
            if let (Way::Multi, Some(program)) = (way, &linked) {
                return Ok(Arc::clone(program));
            }
            let program = self.load(sites, way, is_return)?;
            if way == Way::Multi {
                *linked = Some(Arc::clone(&program));
            }
            Ok(program)
        });
        attached.map_err(|error| failed(error, &set.path))
    }

    /// Arms one site in one process alone, until the link is dropped.
    pub fn link(
        &self,
        path: &Path,
        file: (u64, u64),
        site: &KernelSite,
        pid: u32,
    ) -> Result<Link, KernelError> {
        let (sets, refused) = self.prepare(path, file, std::slice::from_ref(site));
        if let Some((_, why)) = refused.into_iter().next() {
            return Err(KernelError::Site(why));
        }
        let [CaptureSet { set, sites, .. }] = &sets[..] else {
            unreachable!("one site that is not refused is one set")
        };
        uprobes::link(set, Some(pid), true, &mut |way| self.load(sites, way, set.is_return))
            .map_err(|error| failed(error, path))
    }

    /// The program of sites: one that may sleep if it has to and the kernel has it, else it reads what is in memory only.
    fn load(
        &self,
        sites: &[ProgramSite],
        way: Way<'_>,
        is_return: bool,
    ) -> Result<Arc<OwnedFd>, KernelError> {
        let dispatch = match way {
            Way::Multi | Way::Event => Dispatch::Cookie,
            // That of a return is the only one of its program.
            Way::Inherited(_) if is_return => Dispatch::Alone,
            Way::Inherited(_) | Way::Shared(_) => Dispatch::PageOffset,
        };
        let load = |may_sleep| {
            let insns = capture_program::assemble(sites, self.maps, dispatch, may_sleep)
                .map_err(|error| KernelError::Site(Refusal::Capture(error)))?;
            bpf::load_program(&Load {
                program_type: ProgramType::Kprobe,
                is_uprobe_multi: way == Way::Multi,
                is_sleepable: may_sleep,
                insns: &insns,
                btf: None,
                name: "nopal_hit",
            })
            .map(Arc::new)
            .map_err(refusal)
        };
        if capture_program::reads_memory(sites)
            && way != Way::Event
            && let Ok(program) = load(true)
        {
            return Ok(program);
        }
        load(false)
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
        let mut bytes = vec![0; self.n_cpus * WORDS * 8];
        bpf::lookup(&self.loss, &[0; 4], &mut bytes)
            .map_err(|error| KernelError::Io { what: "reading the loss counters", error })?;
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(words.chunks_exact(WORDS).map(|w| Loss { n_lost: w[0], first_ns: w[1], last_ns: w[2] }).collect())
    }
}

fn failed(error: AttachError<KernelError>, path: &Path) -> KernelError {
    match error {
        AttachError::Program(error) => error,
        AttachError::Kernel(error) if error.raw_os_error() == Some(libc::EPERM) => {
            KernelError::NotPermitted { what: "putting uprobes on a file" }
        }
        AttachError::Kernel(error) => KernelError::Site(Refusal::of_kernel(path.to_owned(), &error)),
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
