//! A session: the sites of one or more processes opened, their records in rings, until it is detached.

use super::domains::Domains;
use super::error::{Error, Result};
use super::inject::open_process;
use super::leave;
use super::libraries::{self, Loader};
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::{Neighbourhood, spaces_in};
use super::patch::Patch;
use super::process;
use super::relocate::Fixed;
use super::ring::{RingConfig, RingLayout, Rings, Tickets};
use super::sandbox::{self, Forbidders};
use super::separate::Identity;
use super::stub::space::{self, ObjectIdentity, PlacedStub};
use super::tactic::{Refusal, Tactic};
use nopal_capture::{RecordLayout, Wanted};
use nopal_proc::missed_execs::MissedExecs;
use nopal_proc::{self, Image, MappedObject};
use nopal_sdt::probe::Site;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The name of the ring's memfd in `/proc/PID/maps`.
pub const RING_NAME: &str = "/memfd:nopal-ring";

/// Chooses the sites of an object. Asked for each file a process maps code of, also later, when libraries are loaded or
/// another program is started.
pub type Select = Box<dyn FnMut(&MappedObject, &nopal_sdt::Object) -> Vec<Wanted> + Send>;

#[derive(Debug, Clone)]
pub struct Options {
    pub ring: RingConfig,
    /// Only the named process, not its live descendants.
    pub is_only: bool,
    /// Whether instructions behind a nop may be moved where nothing else helps; see [`Tactic::Relocate`].
    pub can_relocate: bool,
}

/// What became of one site.
#[derive(Debug, Clone)]
pub struct SiteReport {
    pub probe: String,
    pub path: PathBuf,
    /// In the process.
    pub address: u64,
    /// The tactic, or why it was refused: then it is one for the kernel door.
    pub outcome: std::result::Result<Tactic, Refusal>,
    /// As the file has it, for whoever opens it otherwise.
    pub site: Site,
    pub event: u32,
}

impl SiteReport {
    pub(super) fn new(
        object: &WantedObject,
        wanted: &Wanted,
        outcome: std::result::Result<Tactic, Refusal>,
    ) -> SiteReport {
        SiteReport {
            probe: wanted.probe.clone(),
            path: object.path.clone(),
            address: object.bias.wrapping_add(wanted.site.address),
            outcome,
            site: wanted.site.clone(),
            event: wanted.event,
        }
    }
}

/// What became of one process.
#[derive(Debug)]
pub struct ProcessReport {
    pub pid: i32,
    pub outcome: Result<Vec<SiteReport>>,
    /// The call of the borrowed thread that returned EINTR because of us, if it was one Linux never restarts.
    pub interrupted: Option<&'static str>,
    /// Whether it was found by looking, though its dynamic linker tells what it loads: it has run since it was loaded.
    pub is_late: bool,
}

impl ProcessReport {
    pub(super) fn failed(pid: i32, error: Error) -> ProcessReport {
        ProcessReport { pid, outcome: Err(error), interrupted: None, is_late: false }
    }

    /// False for a process that has nothing we want, or inherited all of it.
    pub fn says_something(&self) -> bool {
        self.outcome.as_ref().map_or(true, |sites| !sites.is_empty())
    }
}

/// The wanted sites of one mapped object.
#[derive(Debug, Clone)]
pub struct WantedObject {
    pub path: PathBuf,
    pub bias: u64,
    pub identity: ObjectIdentity,
    pub sites: Vec<Wanted>,
    /// Where in the process the file is mapped around its sites without a gap.
    pub own_file: std::ops::Range<u64>,
    /// Link-time addresses of all sites of the object, sorted.
    pub(super) all_sites: Arc<Vec<u64>>,
    /// Which of its sites stand among instructions that can be moved; looked at when first needed.
    pub(super) fixed: Arc<LazyFixed>,
}

/// A look at a whole file, taken when it is needed.
#[derive(Debug)]
pub(super) struct LazyFixed {
    object: Option<MappedObject>,
    sites: Arc<Vec<u64>>,
    fixed: OnceLock<Fixed>,
}

impl LazyFixed {
    /// Nothing can be moved.
    pub fn nothing() -> LazyFixed {
        LazyFixed { object: None, sites: Arc::default(), fixed: OnceLock::new() }
    }

    pub fn get(&self) -> &Fixed {
        self.fixed.get_or_init(|| {
            let image = self.object.as_ref().and_then(|object| object.open().ok());
            Fixed::of(image.as_ref().map(Image::bytes).unwrap_or_default(), &self.sites)
        })
    }
}

impl WantedObject {
    /// The lowest and highest wanted address in the process.
    pub fn text(&self) -> (u64, u64) {
        let addresses = || self.sites.iter().map(|s| self.bias.wrapping_add(s.site.address));
        (addresses().min().unwrap_or(0), addresses().max().unwrap_or(0))
    }

    /// How far the next site behind this one is.
    pub fn next_site(&self, address: u64) -> Option<u64> {
        let at = self.all_sites.partition_point(|a| *a <= address);
        self.all_sites.get(at).map(|next| next - address)
    }
}

/// A site whose code has been changed.
#[derive(Debug, Clone)]
pub struct OpenSite {
    pub probe: String,
    pub address: u64,
    pub tactic: Tactic,
    pub patch: Patch,
    pub semaphore: Option<u64>,
    /// Address of the stub space it leads to.
    pub space: u64,
}

impl OpenSite {
    /// Whether its semaphore is down although we raised it: its library was unloaded and loaded again.
    pub(super) fn is_reset(&self, memory: &Memory) -> bool {
        self.semaphore.is_some_and(|semaphore| memory.read_u16(semaphore).is_ok_and(|value| value == 0))
    }
}

/// A process with open sites.
#[derive(Debug)]
pub struct Traced {
    pub pid: i32,
    pub start_time: Option<u64>,
    pub memory: Memory,
    pub sites: Vec<OpenSite>,
    pub(super) reports: Vec<SiteReport>,
    pub(super) interrupted: Option<&'static str>,
    /// Start addresses and inodes of the code mappings when it was last looked at.
    pub(super) seen: Vec<(u64, u64)>,
    /// Pages of its address space at that time, and when it was.
    pub(super) seen_at: Option<(u64, Instant)>,
    /// Entered before its first thread had its local storage: to be asked again.
    pub(super) is_early: bool,
    /// Has code of which its dynamic linker has not told yet.
    pub(super) is_unannounced: bool,
    /// By address of the site.
    pub(super) health: HashMap<u64, super::watch::Health>,
    /// What it has forbidden itself, as far as it was told.
    pub(super) restraint: u32,
}

impl Traced {
    pub(super) fn new(
        pid: i32,
        memory: Memory,
        sites: Vec<OpenSite>,
        reports: Vec<SiteReport>,
        interrupted: Option<&'static str>,
    ) -> Traced {
        let start_time = process::start_time(pid);
        Traced {
            pid,
            start_time,
            memory,
            sites,
            reports,
            interrupted,
            seen: Vec::new(),
            seen_at: None,
            is_early: false,
            is_unannounced: false,
            health: HashMap::new(),
            restraint: 0,
        }
    }
}

/// What all processes of a session share.
pub struct Core {
    pub domains: Domains,
    /// Tells the session from all others.
    pub generation: u64,
    pub neighbourhoods: Vec<Neighbourhood>,
    /// Inodes of stub spaces we have replaced by copies for the processes of a ring, and which copy.
    pub adopted: HashMap<(u64, usize), usize>,
    /// By inode of the neighbourhood.
    pub sessions: HashMap<u64, space::Session>,
    /// By neighbourhood and address of the site; whether it is in the chain.
    pub stubs: HashMap<(u64, u64), (PlacedStub, bool)>,
    pub layouts: HashMap<u32, RecordLayout>,
    pub(super) library_wait_ms: u32,
    /// By device and inode.
    pub(super) loaders: HashMap<(u64, u64), std::result::Result<Loader, &'static str>>,
    /// By device and inode; `None` if the file cannot be read.
    pub(super) forbidders: HashMap<(u64, u64), Option<ReadForbidders>>,
    pub(super) can_relocate: bool,
    select: Select,
    objects: HashMap<(u64, u64), Option<Arc<ReadObject>>>,
    /// By process: files it maps that could not be opened.
    unreadable: Vec<(u32, PathBuf)>,
}

struct ReadObject {
    object: nopal_sdt::Object,
    sites: Arc<Vec<u64>>,
    fixed: Arc<LazyFixed>,
    device: u64,
    build_id: u64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("neighbourhoods", &self.neighbourhoods.len()).finish_non_exhaustive()
    }
}

impl Core {
    fn new(options: &Options, select: Select) -> Result<Core> {
        let domains = Domains::new(&options.ring)?;
        let generation = domains.rings().get(0).map_or(0, |ring| ring.generation());
        Ok(Core {
            domains,
            generation,
            neighbourhoods: Vec::new(),
            adopted: HashMap::new(),
            sessions: HashMap::new(),
            stubs: HashMap::new(),
            layouts: HashMap::new(),
            library_wait_ms: libraries::WAIT_MS,
            loaders: HashMap::new(),
            forbidders: HashMap::new(),
            can_relocate: options.can_relocate,
            select,
            objects: HashMap::new(),
            unreadable: Vec::new(),
        })
    }

    /// After leaving: the spaces stay in the processes, but are no longer ours.
    fn forget(&mut self) {
        self.neighbourhoods.clear();
        self.adopted.clear();
        self.sessions.clear();
        self.stubs.clear();
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How all rings of the session are divided.
    pub(super) fn layout(&self) -> RingLayout {
        *self.domains.rings().layout()
    }

    /// The objects of a process that have wanted sites.
    pub(super) fn wanted_in(&mut self, pid: i32) -> Result<Vec<WantedObject>> {
        let mapped = nopal_proc::changeable_objects(pid as u32).map_err(|e| Error::of_target(pid, e))?;
        let loader = libraries::loader_in(self, pid, &mapped);
        let forbidders = sandbox::forbidders_in(self, pid, &mapped);
        let mut wanted = Vec::new();
        for object in mapped.into_iter().filter(|o| !o.path.starts_with(super::neighbourhood::MEMFD_NAME)) {
            let Some(read) = self.read_object(&object) else { continue };
            let sites = (self.select)(&object, &read.object);
            if sites.is_empty() {
                continue;
            }
            let fixed = fixed_for(&read, &object, &sites);
            for bias in object.load_biases(&read.object) {
                wanted.push(WantedObject {
                    path: object.path.clone(),
                    bias,
                    identity: ObjectIdentity {
                        device: read.device,
                        inode: object.mappings[0].inode,
                        build_id: read.build_id,
                        link_address: 0,
                    },
                    own_file: own_file(&object, bias.wrapping_add(sites[0].site.address)),
                    sites: sites.clone(),
                    all_sites: Arc::clone(&read.sites),
                    fixed: Arc::clone(&fixed),
                });
            }
        }
        // Nobody is entered for what may come only.
        if !wanted.is_empty() {
            wanted.extend(loader);
            wanted.extend(forbidders);
        }
        Ok(wanted)
    }

    /// Whether a file has wanted sites.
    fn wants(&mut self, object: &MappedObject) -> bool {
        let Some(read) = self.read_object(object) else { return false };
        !(self.select)(object, &read.object).is_empty()
    }

    fn read_object(&mut self, object: &MappedObject) -> Option<Arc<ReadObject>> {
        let mapping = object.mappings.first()?;
        let device = libc::makedev(mapping.device_major, mapping.device_minor);
        let unreadable = &mut self.unreadable;
        self.objects
            .entry((device, mapping.inode))
            .or_insert_with(|| {
                let Ok(image) = object.open() else {
                    unreadable.push((object.pid, object.path.clone()));
                    return None;
                };
                let read = nopal_sdt::read(image.bytes()).ok()?;
                let mut sites: Vec<u64> =
                    read.probes.iter().flat_map(|p| p.sites.iter().map(|s| s.address)).collect();
                sites.sort_unstable();
                sites.dedup();
                let build_id = read
                    .build_id
                    .as_deref()
                    .and_then(|b| b.get(..8))
                    .map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
                let sites = Arc::new(sites);
                let fixed = Arc::new(LazyFixed {
                    object: Some(object.clone()),
                    sites: Arc::clone(&sites),
                    fixed: OnceLock::new(),
                });
                Some(Arc::new(ReadObject { object: read, sites, fixed, device, build_id }))
            })
            .clone()
    }
}

/// What is known of the instructions around sites: of those of probes, or of all where edges of functions are wanted.
fn fixed_for(read: &ReadObject, object: &MappedObject, sites: &[Wanted]) -> Arc<LazyFixed> {
    let lines: Vec<u64> = sites.iter().filter_map(|w| w.site.edge.as_ref()).map(|edge| edge.start).collect();
    if lines.is_empty() {
        return Arc::clone(&read.fixed);
    }
    let mut all: Vec<u64> = read.sites.iter().copied().chain(lines).collect();
    all.sort_unstable();
    all.dedup();
    Arc::new(LazyFixed { object: Some(object.clone()), sites: Arc::new(all), fixed: OnceLock::new() })
}

/// The stretch of the file's readable mappings that `address` lies in.
fn own_file(object: &MappedObject, address: u64) -> std::ops::Range<u64> {
    let mut stretch = 0..0;
    for mapping in object.mappings.iter().filter(|m| m.is_readable && !m.is_shared) {
        if mapping.start != stretch.end {
            stretch.start = mapping.start;
        }
        stretch.end = mapping.end;
        if stretch.contains(&address) {
            break;
        }
    }
    if !stretch.contains(&address) {
        return 0..0;
    }
    for mapping in object.mappings.iter().filter(|m| m.is_readable && !m.is_shared) {
        if mapping.start == stretch.end {
            stretch.end = mapping.end;
        }
    }
    stretch
}

/// The functions of a file that forbid things, and where the file has them.
pub(super) type ReadForbidders = Arc<(Forbidders, nopal_sdt::Object)>;

/// Tracing in progress. Dropping it detaches.
#[derive(Debug)]
pub struct Session {
    pub(super) core: Core,
    pub(super) traced: Vec<Traced>,
    pub(super) roots: Vec<i32>,
    pub(super) is_only: bool,
    pub(super) is_paused: bool,
    is_patient: bool,
    pub(super) strangers: MissedExecs,
    /// Who the processes are that have a ring of ours, by pid.
    pub(super) identities: HashMap<i32, Identity>,
    /// Processes that could not be entered, not to be tried again.
    pub(super) given_up: Vec<(i32, Option<u64>)>,
    pub(super) last_look: Instant,
    /// The last thread that had loaded something when libraries were last looked at.
    pub(super) tickets: Tickets,
    pub(super) n_impatient: u64,
    /// Descriptors that nobody else can use up: leaving takes some, and must not fail for want of them.
    spare: Vec<File>,
}

/// What leaving a process has open at a time, and something more.
const SPARE_DESCRIPTORS: usize = 10;
/// How often a process is entered again that we were too slow for.
const TRIES: usize = 3;

impl Session {
    /// A session without processes.
    pub fn new(options: &Options, select: Select) -> Result<Session> {
        let core = Core::new(options, select)?;
        let spare = (0..SPARE_DESCRIPTORS)
            .map(|_| File::open("/dev/null").map_err(Error::io("keep descriptors for leaving")))
            .collect::<Result<_>>()?;
        Ok(Session {
            core,
            spare,
            traced: Vec::new(),
            roots: Vec::new(),
            is_only: options.is_only,
            is_paused: false,
            is_patient: false,
            strangers: MissedExecs::default(),
            identities: HashMap::new(),
            given_up: Vec::new(),
            last_look: Instant::now(),
            tickets: Tickets::default(),
            n_impatient: 0,
        })
    }

    /// Files that processes map and that could not be opened, since this was last asked; nobody knows whether they have
    /// wanted sites.
    pub fn take_unreadable(&mut self) -> Vec<(u32, PathBuf)> {
        std::mem::take(&mut self.core.unreadable)
    }

    /// Whether a process that is asked for is entered though it has nothing wanted yet: so that the first hits of what it
    /// loads later are seen.
    pub fn set_patient(&mut self, is_patient: bool) {
        self.is_patient = is_patient;
    }

    /// Hits are not recorded meanwhile, in no process.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.rings().set_enabled(!is_paused);
    }

    /// Opens the wanted sites of a process and of its live descendants. Fails only if `pid` itself cannot be entered.
    pub fn attach(&mut self, pid: i32) -> Result<Vec<ProcessReport>> {
        self.rings().set_enabled(!self.is_paused);
        if !self.is_only {
            self.strangers.follow_for_free(pid as u32);
        }
        let first = self.enter(pid, self.is_patient)?;
        self.roots.push(pid);
        let mut reports = vec![first];
        if !self.is_only {
            reports.extend(self.attach_descendants());
        }
        Ok(reports)
    }

    /// Enters the live descendants that are not traced yet, until there are no new ones.
    pub(super) fn attach_descendants(&mut self) -> Vec<ProcessReport> {
        let mut reports = Vec::new();
        loop {
            // Who was forked by somebody that has ended since is known before that one is forgotten.
            self.hear();
            let fresh: BTreeSet<i32> = self
                .roots
                .iter()
                .flat_map(|root| nopal_proc::descendants(*root as u32))
                .chain(self.strangers.family())
                .map(|pid| pid as i32)
                .filter(|pid| !self.is_known(*pid))
                .collect();
            if fresh.is_empty() {
                return reports;
            }
            for pid in fresh {
                self.strangers.follow_for_free(pid as u32);
                let about = nopal_proc::Process::read(pid as u32);
                let is_copy = about.map_or(true, |process| !process.has_program_of_its_own)
                    && !self.strangers.waiting().any(|waiting| waiting == pid as u32);
                let mut attached = self.attach_one(pid);
                if matches!(attached, Err(Error::Gone { .. })) && process::is_alive(pid) {
                    // It has just started another program.
                    attached = self.attach_one(pid);
                }
                match attached {
                    Ok(report) => reports.push(report),
                    // It has ended since it was seen; as a copy of its parent it had everything.
                    Err(
                        Error::Gone { .. }
                        | Error::EndedEarly { .. }
                        | Error::NoSuchProcess { .. }
                        | Error::KernelThread { .. },
                    ) if is_copy => {
                        self.given_up.push((pid, process::start_time(pid)));
                    }
                    Err(error) => {
                        self.given_up.push((pid, process::start_time(pid)));
                        reports.push(ProcessReport::failed(pid, error));
                    }
                }
            }
        }
    }

    pub(super) fn is_known(&self, pid: i32) -> bool {
        // A process that is traced and another by now is noticed by the look after it.
        self.traced.iter().any(|t| t.pid == pid)
            || self.given_up.iter().any(|(p, s)| *p == pid && *s == process::start_time(pid))
    }

    /// Opens what is wanted in one process that is not traced yet, or more of one that is.
    pub(super) fn attach_one(&mut self, pid: i32) -> Result<ProcessReport> {
        self.enter(pid, false)
    }

    fn enter(&mut self, pid: i32, is_patient: bool) -> Result<ProcessReport> {
        self.hear();
        let has_program = self.strangers.take(pid as u32);
        match self.open_one(pid, is_patient) {
            Err(Error::Gone { .. } | Error::NoSuchProcess { .. } | Error::KernelThread { .. })
                if has_program =>
            {
                Err(Error::EndedEarly { pid })
            }
            result => result,
        }
    }

    /// Whether a program was started that is to be looked after before the next look is due.
    pub fn has_news(&mut self) -> bool {
        self.hear();
        self.strangers.has_news()
    }

    fn hear(&mut self) {
        let core = &mut self.core;
        self.strangers.hear(|object| core.wants(object));
    }

    fn open_one(&mut self, pid: i32, is_patient: bool) -> Result<ProcessReport> {
        process::check_enterable(pid)?;
        // A child may be somebody else by now than its parent, whose ring it has.
        self.identify(pid);
        self.separate(pid)?;
        // What comes while we are at work is to be noticed at the next look.
        let seen = code_mappings(pid);
        let mut objects = self.core.wanted_in(pid)?;
        if objects.is_empty() && is_patient {
            let mapped = nopal_proc::mapped_objects(pid as u32).unwrap_or_default();
            objects.extend(libraries::loader_in(&mut self.core, pid, &mapped));
        }
        let traced = if objects.is_empty() || self.inherits_all(pid, &objects) {
            let memory = Memory::open(pid)?;
            let sites = self.inherited_sites(pid, &objects);
            Traced::new(pid, memory, sites, Vec::new(), None)
        } else {
            let mut n_tries = 0;
            loop {
                let (core, objects) = (&mut self.core, objects.clone());
                match in_own_thread(move || open_process(core, pid, objects, false)) {
                    // As after a tracer that was killed, which is no obstacle.
                    Err(Error::TooSlow { .. }) if n_tries < TRIES => n_tries += 1,
                    Err(Error::Gone { pid } | Error::NoSuchProcess { pid }) => {
                        return Err(Error::EndedEarly { pid });
                    }
                    result => break result?,
                }
            }
        };
        Ok(self.keep(traced, seen))
    }

    pub(super) fn keep(&mut self, mut traced: Traced, seen: Vec<(u64, u64)>) -> ProcessReport {
        traced.seen = seen;
        let report = ProcessReport {
            pid: traced.pid,
            outcome: Ok(libraries::of_probes(&traced.reports)),
            interrupted: traced.interrupted,
            is_late: false,
        };
        self.traced.retain(|t| t.pid != traced.pid);
        self.identify(traced.pid);
        self.traced.push(traced);
        report
    }

    /// A child forked after its parent was opened has everything already.
    fn inherits_all(&self, pid: i32, objects: &[WantedObject]) -> bool {
        let inherited = self.inherited_sites(pid, objects);
        let is_refused = |address| {
            let reports = || self.traced.iter().flat_map(|t| &t.reports);
            reports().any(|r| r.address == address && r.outcome.is_err())
        };
        let mut wanted =
            objects.iter().flat_map(|o| o.sites.iter().map(|s| o.bias.wrapping_add(s.site.address)));
        !inherited.is_empty()
            && wanted.all(|address| inherited.iter().any(|s| s.address == address) || is_refused(address))
    }

    fn inherited_sites(&self, pid: i32, objects: &[WantedObject]) -> Vec<OpenSite> {
        let Ok(maps) = Maps::read(pid) else { return Vec::new() };
        let spaces: Vec<u64> = spaces_in(&maps)
            .iter()
            .filter(|r| self.core.neighbourhoods.iter().any(|n| n.inode == r.inode))
            .map(|r| r.start)
            .collect();
        if spaces.is_empty() || self.core.domains.mapped_in(&maps).is_empty() {
            return Vec::new();
        }
        let Ok(memory) = Memory::open(pid) else { return Vec::new() };
        let mut sites: Vec<OpenSite> = Vec::new();
        for site in self.traced.iter().flat_map(|t| &t.sites) {
            let is_wanted = objects
                .iter()
                .any(|o| o.sites.iter().any(|s| o.bias.wrapping_add(s.site.address) == site.address));
            let is_new = !sites.iter().any(|s| s.address == site.address);
            if is_wanted
                && is_new
                && spaces.contains(&site.space)
                && site.patch.found(&memory).is_ok_and(|f| f == super::patch::Found::Ours)
                && !site.is_reset(&memory)
            {
                sites.push(site.clone());
            }
        }
        sites
    }

    /// The rings of the session; processes with other credentials have other ones.
    pub fn rings(&self) -> &Arc<Rings> {
        self.core.domains.rings()
    }

    /// Time since [`Session::look_after`] was last called.
    pub fn since_last_look(&self) -> Duration {
        self.last_look.elapsed()
    }

    /// How to read the records of an event.
    pub fn layout(&self, event: u32) -> Option<&RecordLayout> {
        self.core.layouts.get(&event)
    }

    pub fn processes(&self) -> &[Traced] {
        &self.traced
    }

    /// Stops recording and closes every site in every process that has one, descendants included. What is in the ring can
    /// be read until the session is dropped.
    pub fn detach(&mut self) -> leave::LeaveReport {
        self.roots.clear();
        self.spare.clear();
        self.rings().set_enabled(false);
        let report = leave::leave(&mut self.core, &mut self.traced);
        self.core.forget();
        report
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Also what an attach that failed midway has left.
        if !self.core.neighbourhoods.is_empty() {
            self.detach();
        }
        leave::free_rings(&self.core);
    }
}

/// ptrace binds a tracee to a thread: the work is done in one that ends with it, which frees everything it still holds.
pub(super) fn in_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The code a process maps from files.
pub(super) fn code_mappings(pid: i32) -> Vec<(u64, u64)> {
    let Ok(maps) = Maps::read(pid) else { return Vec::new() };
    maps.ranges
        .iter()
        .filter(|r| r.is_executable && r.inode != 0 && !r.is_shared)
        .map(|r| (r.start, r.inode))
        .collect()
}
