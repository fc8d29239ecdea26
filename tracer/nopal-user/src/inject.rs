//! Opens the sites of one process: finds or makes its stub spaces, maps what is missing, then raises semaphores, chains
//! stubs and changes the code, in this order. Runs in a thread of its own that is the ptracer.

mod arm;
mod claims;
mod edge;
mod inside;
mod one_door;
mod prepare;
mod rehouse;
mod spaces;

pub(crate) use rehouse::rehouse;

use super::core::Core;
use super::credentials::Credentials;
use super::domains::Tenant;
use super::enter::{Entered, wait_until_idle};
use super::error::{Error, Result};
use super::hijack::{Call, Hijack};
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::{Neighbourhood, spaces_in};
use super::pass_fd::Caller;
use super::process;
use super::protocol::{OPENING, Opening};
use super::room::Room;
use super::stop_watch;
use super::stopped_thread::{Lock, StoppedThread, attend};
use super::tactic::Refusal;
use super::traced::{OpenSite, Traced};
use super::wanted::{SiteReport, WantedObject};
use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{PatchForm, Path, RSEQ_SIGNATURE};
use nopal_proc::ptrace;
use std::collections::HashMap;
use std::time::Duration;

const PAGE: u64 = PAGE_BYTES as u64;
const PR_GET_TID_ADDRESS: u64 = 40;
const MADV_WIPEONFORK: u64 = 18;
const EXECUTABLE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const WRITABLE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const SHARED: u64 = libc::MAP_SHARED as u64;
const FREE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
const REPLACE: u64 = libc::MAP_FIXED as u64;
const NO_FILE: u64 = u64::MAX;
const RELOCATION_TRIES: usize = 20;
/// So many sites are made ready while a thread of the program is held.
const AT_ONCE: usize = 100;
/// So many are read while a thread of the program is held.
const MANY_MAPPINGS: usize = 500;
/// How long a thread that was let go runs before it is borrowed again.
const BREATH: Duration = Duration::from_millis(1);

/// How the threads of a process can be told apart and find their CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadFacts {
    path: Path,
    rseq_offset: i64,
    rseq_bytes: u32,
    tid_offset: i64,
    signature: u32,
}

/// Whether code may ask for the address that `%fs` stands for: this processor can, and the kernel allows it.
fn can_read_fs_base() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: reads what the kernel told this process at its start.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Asks a process that was entered at its very start how its threads can be told apart, now that they have their local
/// storage. False if it has none yet, or cannot be stopped at the moment.
pub(crate) fn ask_again(core: &mut Core, pid: i32) -> Result<bool> {
    if process::threads(pid)?.into_iter().all(|tid| process::waits_for_child(pid, tid)) {
        return Ok(false);
    }
    let memory = Memory::open(pid)?;
    let _lock = Lock::take(pid)?;
    wait_until_idle(&memory)?;
    let hijack = Hijack::choose(&memory, None)?;
    let room = Room::read(pid)?;
    let mut work = Work {
        core,
        entered: Entered::new(&memory, hijack),
        maps: room.maps.clone(),
        room,
        // None is mapped.
        ring: 0,
        facts: None,
        passed: HashMap::new(),
        claims: claims::Claims::default(),
        handles_faults: None,
        lock: None,
        is_gentle: false,
        copies: HashMap::new(),
    };
    let here: Vec<u64> = spaces_in(&work.maps).iter().map(|r| r.inode).collect();
    let lists = work.core.neighbourhoods.iter().find(|n| here.contains(&n.inode));
    if let Some(n) = lists {
        work.entered.use_lists(n, &work.maps);
    }
    let facts = work.thread_facts()?;
    for n in work.core.neighbourhoods.iter().filter(|n| here.contains(&n.inode)) {
        let is_alike = n.space.rseq_signature() == facts.signature;
        let path = if is_alike || facts.path != Path::Rseq { facts.path } else { Path::LockedTls };
        n.space.set_path(path, facts.rseq_offset, facts.rseq_bytes, facts.tid_offset);
    }
    Ok(facts.path != Path::Locked)
}

/// One process being worked on.
struct Work<'a, 'c> {
    core: &'c mut Core,
    entered: Entered<'a>,
    maps: Maps,
    room: Room,
    /// Which of the session's rings is for this process.
    ring: usize,
    facts: Option<ThreadFacts>,
    /// Descriptors of neighbourhoods and the ring in the process, to be closed at the end: by inode.
    passed: HashMap<u64, i32>,
    claims: claims::Claims,
    /// Whether the program catches faults; asked when needed.
    handles_faults: Option<bool>,
    /// The thread that keeps others out, if there is one.
    lock: Option<Lock>,
    /// The borrowed thread is let go for whatever takes long: much is to be opened.
    is_gentle: bool,
    /// By inode: copies of the stub spaces that were found, made before anything was stopped.
    copies: HashMap<u64, Neighbourhood>,
}

/// A site that is ready to be opened.
struct Ready {
    site: OpenSite,
    form: PatchForm,
    /// Of its jump.
    distance: u32,
    entry_semaphore: Option<usize>,
    landing_pages: Vec<u64>,
    neighbourhood: usize,
    report: usize,
}

/// How a process stands that is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Running,
    /// Held at its start by the thread that opens it; it goes on if the tracer is killed.
    Held,
    /// The same, but it ends with the tracer.
    Launched,
}

/// Opens every wanted site of the process. The caller runs this in a thread that ends afterwards.
pub(crate) fn open_process(
    core: &mut Core,
    pid: i32,
    objects: Vec<WantedObject>,
    standing: Standing,
) -> Result<Traced> {
    let memory = Memory::open(pid)?;
    let room = Room::read(pid)?;
    prepare::look_at_files(&objects, &room);
    let credentials = Credentials::read(pid)?;
    // One that it has from its parent is that of its like; see `separate`.
    let now = core.domains.mapped_in(&room.maps).first().copied();
    let ring =
        core.domains.ring_with_room(&Tenant { pid, credentials: &credentials, now, is_restless: false })?;
    let is_starting = standing != Standing::Running;
    let lock = if is_starting { None } else { Some(Lock::take(pid)?) };
    wait_until_idle(&memory)?;
    // From here on nobody but the process itself changes what is where: all that takes long is read before it is stopped.
    let room = Room::read(pid)?;
    let n_sites: usize = objects.iter().map(|object| object.sites.len()).sum();
    let room_len = room.maps.ranges.len();
    let copies = spaces::copies(core, ring, &memory, &room.maps)?;
    let mut hijack = if is_starting {
        let held = StoppedThread {
            pid,
            tid: pid,
            is_group_stopped: false,
            is_kept: true,
            is_lock: false,
            since: None,
        };
        Hijack::prepare(held, &memory, room.maps.clone())?
    } else {
        Hijack::choose(&memory, None)?
    };
    if standing == Standing::Launched {
        hijack.wait_for_us();
    }
    let interrupted = hijack.interrupted;
    let mut work = Work {
        core,
        entered: Entered::new(&memory, hijack),
        maps: room.maps.clone(),
        room,
        ring,
        facts: None,
        passed: HashMap::new(),
        claims: claims::Claims::default(),
        handles_faults: None,
        lock,
        is_gentle: n_sites > AT_ONCE || room_len > MANY_MAPPINGS,
        copies,
    };
    let outcome = work.open(&objects);
    let closed = work.close_passed();
    let (sites, reports) = outcome.map_err(|error| match error {
        Error::SpaceFull { what, .. } => Error::SpaceFull { pid, what },
        other => other,
    })?;
    closed?;
    work.entered.hijack.restore()?;
    let has_begun = is_starting && work.entered.hijack.has_run_on;
    drop(work);
    let stops = stop_watch::take();
    Ok(Traced { stops, has_begun, ..Traced::new(pid, memory, sites, reports, interrupted) })
}

impl Work<'_, '_> {
    fn pid(&self) -> i32 {
        self.entered.memory.pid()
    }

    /// Reads what is where.
    fn refresh(&mut self) -> Result<()> {
        self.relax()?;
        self.room = Room::read(self.pid())?;
        self.maps = self.room.maps.clone();
        self.entered.hijack.learn_maps(&self.maps);
        Ok(())
    }

    fn open(&mut self, objects: &[WantedObject]) -> Result<(Vec<OpenSite>, Vec<SiteReport>)> {
        self.adopt_spaces(objects)?;
        let mut reports = Vec::new();
        let mut ready = Vec::new();
        let mut settled = Vec::with_capacity(objects.len());
        for object in objects {
            let (low, high) = object.text();
            settled.push(match self.settle(low, high) {
                Ok(at) => Some(at),
                Err(Error::NoRoom { .. }) => None,
                Err(e) => return Err(e),
            });
        }
        // Making sites ready needs nothing of the program.
        self.relax()?;
        for (object, at) in objects.iter().zip(settled) {
            let Some(at) = at else {
                let refused = |s| SiteReport::new(object, s, Err(Refusal::OutOfReach));
                reports.extend(object.sites.iter().map(refused));
                continue;
            };
            for wanted in &object.sites {
                let report = reports.len();
                self.attend();
                match self.prepare(at, object, wanted) {
                    Ok(prepared) => {
                        reports.push(SiteReport::new(object, wanted, Ok(prepared.site.tactic)));
                        ready.push(Ready { report, ..prepared });
                    }
                    Err(Failure::Site(refusal)) => {
                        reports.push(SiteReport::new(object, wanted, Err(refusal)))
                    }
                    Err(Failure::All(error)) => return Err(error),
                }
            }
        }
        self.keep_edges_together(&mut ready, &mut reports);
        arm::spare_kernel_pages(&mut ready, &mut reports);
        self.map_landings(&mut ready, &mut reports)?;
        if self.is_gentle {
            self.close_passed()?;
            self.relax()?;
        }
        let mut sites = Vec::new();
        for step in OPENING {
            match step {
                Opening::Journal => {
                    self.journal_patches(&ready)?;
                    self.unlock_pages(&mut ready, &mut reports)?;
                    self.attend();
                    for neighbourhood in &self.core.neighbourhoods {
                        neighbourhood.fault_in()?;
                    }
                }
                Opening::Raise => self.raise(&mut ready)?,
                Opening::Link => self.link(&ready),
                Opening::Patch => sites = self.patch(std::mem::take(&mut ready), &mut reports)?,
            }
        }
        Ok((sites, reports))
    }

    /// Lets the borrowed thread run on until the next call, if what comes may take long.
    fn relax(&mut self) -> Result<()> {
        if self.is_gentle { self.entered.rest() } else { Ok(()) }
    }

    /// Lets the borrowed thread run for a moment between calls that take long together.
    fn breathe(&mut self) -> Result<()> {
        self.relax()?;
        if self.entered.is_resting() {
            std::thread::sleep(BREATH);
            self.attend();
        }
        Ok(())
    }

    /// Threads that are ours and run are stopped by each signal that they get, until they are let go on.
    fn attend(&self) {
        let own = self.entered.hijack.tid();
        if self.entered.is_resting() {
            attend(own);
        }
        if let Some(lock) = self.lock.as_ref().filter(|lock| lock.tid != own) {
            attend(lock.tid);
        }
    }

    /// The borrowed thread if it stands still, and where it will go on.
    fn held(&self) -> Vec<(i32, u64)> {
        let hijack = &self.entered.hijack;
        let here = hijack.original().map_or(0, |regs| regs.rip);
        if self.entered.is_resting() { Vec::new() } else { vec![(hijack.tid(), here)] }
    }

    /// Asks the borrowed thread, which stands for all: a C library gives every thread the same layout, and a thread
    /// without rseq is recognised by its stub.
    fn thread_facts(&mut self) -> Result<ThreadFacts> {
        if self.facts.is_none() {
            self.facts = Some(self.ask_thread()?);
        }
        Ok(self.facts.expect("just asked"))
    }

    fn ask_thread(&mut self) -> Result<ThreadFacts> {
        self.entered.borrow()?;
        let (pid, tid) = (self.pid(), self.entered.hijack.tid());
        let mut facts = ThreadFacts {
            path: Path::Locked,
            rseq_offset: 0,
            rseq_bytes: 0,
            tid_offset: 0,
            signature: RSEQ_SIGNATURE,
        };
        let fs_base = self.entered.hijack.original().map_or(0, |r| r.fs_base);
        // Where a stub cannot tell whose storage %fs points to, it leaves it alone.
        if fs_base == 0 || !can_read_fs_base() {
            return Ok(facts);
        }
        let at = self.entered.scratch()?;
        self.entered.write(at, &[0; 8])?;
        let call = Call::new("find its thread number", libc::SYS_prctl, [PR_GET_TID_ADDRESS, at, 0, 0, 0, 0]);
        // A kernel without checkpoint support cannot tell.
        let result = self.entered.calls(&[call])?;
        if result.first() != Some(&0) {
            return Ok(facts);
        }
        let address = self.entered.memory.read_u64(at)?;
        let mut number = [0; 4];
        let is_readable = address != 0 && self.entered.memory.read(address, &mut number).is_ok();
        let own = process::thread_status(pid, tid)?.namespace_pid;
        let offset = address.wrapping_sub(fs_base) as i64;
        if !is_readable || i32::from_le_bytes(number) != own || i32::try_from(offset).is_err() {
            return Ok(facts);
        }
        facts.tid_offset = offset;
        facts.path = Path::LockedTls;
        let rseq = ptrace::rseq(tid).map_err(Error::on(pid, "read the rseq area"))?;
        if let Some(rseq) = rseq {
            let offset = rseq.address.wrapping_sub(fs_base) as i64;
            if i32::try_from(offset).is_ok() {
                facts.rseq_offset = offset;
                facts.rseq_bytes = rseq.size;
                facts.signature = rseq.signature;
                facts.path = Path::Rseq;
            }
        }
        Ok(facts)
    }
}

/// A failure of one site, or of the whole process.
enum Failure {
    Site(Refusal),
    All(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Site(refusal)
    }
}
