//! A session: the sites of one or more processes opened, their records in rings, until it is detached.

mod glance;
mod late_libraries;
mod launch;
mod orphans;
mod separate;
mod watch;

use super::core::Core;
use super::error::{Error, Result};
use super::inject::{Standing, open_process};
use super::leave;
use super::libraries;
use super::maps::{Maps, code_mappings};
use super::memory::Memory;
use super::neighbourhood::spaces_in;
use super::patch::Found;
use super::process;
use super::ring::{RingConfig, Rings, Tickets};
use super::traced::{OpenSite, Traced};
use super::wanted::WantedObject;
use nopal_capture::RecordLayout;
use nopal_proc::MappedObject;
use nopal_proc::missed_execs::MissedExecs;
use nopal_proc::ptrace::in_own_thread;
use separate::Identity;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use super::traced::ProcessReport;
pub use super::wanted::{Select, SiteReport};
pub use watch::{LastWords, Notice};

#[derive(Debug, Clone)]
pub struct Options {
    pub ring: RingConfig,
    /// Rings for processes with different credentials: so many at most, whatever their size.
    pub max_rings: Option<usize>,
    /// Only the named process, not its live descendants.
    pub without_children: bool,
    /// Whether instructions behind a nop may be moved where nothing else helps; see [`Tactic::Relocate`](super::tactic::Tactic::Relocate).
    pub can_relocate: bool,
    /// Asked once, when it matters: whether what is refused here can be opened otherwise.
    pub other_door: fn() -> bool,
}

/// Tracing in progress. Dropping it detaches.
#[derive(Debug)]
pub struct Session {
    core: Core,
    traced: Vec<Traced>,
    roots: Vec<i32>,
    without_children: bool,
    is_paused: bool,
    is_patient: bool,
    missed_execs: MissedExecs,
    /// Who the processes are that have a ring of ours, by pid.
    identities: HashMap<i32, Identity>,
    /// Processes that could not be entered, not to be tried again.
    given_up: Vec<(i32, Option<u64>)>,
    /// Processes with wanted code, as the kernel had told, that could not be entered; until that is reported.
    in_vain: HashSet<i32>,
    last_look: Instant,
    /// The last thread that had loaded something when libraries were last looked at.
    tickets: Tickets,
    n_impatient: u64,
    /// Descriptors that nobody else can use up: leaving takes some, and must not fail for want of them.
    spare: Vec<File>,
}

/// What leaving a process has open at a time, and something more.
const SPARE_DESCRIPTORS: usize = 10;
/// How often a process is entered again that we were too slow for.
const TRIES: usize = 3;

/// Has the kernel tell what a process starts.
fn follow(missed_execs: &mut MissedExecs, pid: i32, without_children: bool) {
    if without_children { missed_execs.follow_alone(pid as u32) } else { missed_execs.follow(pid as u32) }
}

impl Session {
    /// A session without processes.
    pub fn new(options: &Options, select: Select) -> Result<Session> {
        let core =
            Core::new(&options.ring, options.max_rings, options.can_relocate, options.other_door, select)?;
        let spare = (0..SPARE_DESCRIPTORS)
            .map(|_| File::open("/dev/null").map_err(Error::io("keep descriptors for leaving")))
            .collect::<Result<_>>()?;
        Ok(Session {
            core,
            spare,
            traced: Vec::new(),
            roots: Vec::new(),
            without_children: options.without_children,
            is_paused: false,
            is_patient: false,
            missed_execs: MissedExecs::default(),
            identities: HashMap::new(),
            given_up: Vec::new(),
            in_vain: HashSet::new(),
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
        self.attach_or_leave(pid, |_| false)
    }

    /// The same; a process that cannot be entered for such an error is reported, and what it forks is looked after.
    pub fn attach_or_leave(
        &mut self,
        pid: i32,
        is_left: impl Fn(&Error) -> bool,
    ) -> Result<Vec<ProcessReport>> {
        self.rings().set_enabled(!self.is_paused);
        follow(&mut self.missed_execs, pid, self.without_children);
        let first = match self.enter(pid, self.is_patient) {
            Err(error) if is_left(&error) => {
                self.given_up.push((pid, process::start_time(pid)));
                self.failed(pid, error)
            }
            first => first?,
        };
        self.roots.push(pid);
        let mut reports = vec![first];
        if !self.without_children {
            reports.extend(self.attach_descendants());
        }
        Ok(reports)
    }

    /// A process that was named has ended: who comes later with its number is another.
    pub fn forget_root(&mut self, pid: i32) {
        self.roots.retain(|root| *root != pid);
    }

    /// Everybody below the processes that were named.
    fn descendants(&self) -> Vec<i32> {
        let roots: Vec<u32> = self.roots.iter().map(|root| *root as u32).collect();
        nopal_proc::descendants_of_all(&roots).into_iter().map(|pid| pid as i32).collect()
    }

    /// Enters the live descendants that are not traced yet, until there are no new ones.
    pub(super) fn attach_descendants(&mut self) -> Vec<ProcessReport> {
        let mut reports = Vec::new();
        loop {
            // Who was forked by somebody that has ended since is known before that one is forgotten.
            self.drain_events();
            // Who could not be entered then has started another program since.
            let waiting: Vec<i32> = self.missed_execs.waiting().map(|pid| pid as i32).collect();
            self.given_up.retain(|(pid, _)| !waiting.contains(pid));
            let fresh: BTreeSet<i32> = self
                .descendants()
                .into_iter()
                .chain(self.missed_execs.family().map(|pid| pid as i32))
                .filter(|pid| !self.is_known(*pid))
                .collect();
            if fresh.is_empty() {
                return reports;
            }
            for pid in fresh {
                self.missed_execs.follow(pid as u32);
                let process = nopal_proc::Process::read(pid as u32);
                let parent = process.as_ref().map_or(0, |process| process.parent as i32);
                let is_copy = process.map_or(true, |process| !process.has_program_of_its_own)
                    && !self.missed_execs.waiting().any(|waiting| waiting == pid as u32);
                if let Some(events) = self.core.elsewhere.get(&parent).filter(|_| is_copy).cloned() {
                    self.core.elsewhere.insert(pid, events);
                }
                let mut attached = self.attach_one(pid);
                if matches!(attached, Err(Error::Gone { .. })) && process::is_alive(pid) {
                    // It has just started another program.
                    attached = self.attach_one(pid);
                }
                // It was a copy when it was read, and may have started a program since.
                let is_copy = is_copy && !self.in_vain.contains(&pid);
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
                        reports.push(self.failed(pid, error));
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
        self.drain_events();
        let has_program = self.missed_execs.take(pid as u32) || self.in_vain.contains(&pid);
        if !has_program {
            return self.open_one(pid, is_patient);
        }
        let result = self.open_one(pid, is_patient);
        let has_sites = self.traced.iter().any(|traced| traced.pid == pid && !traced.sites.is_empty());
        if result.is_ok() && (has_sites || process::is_alive(pid)) {
            self.in_vain.remove(&pid);
            return result;
        }
        // From here on nobody but us knows that it had something to be opened.
        self.in_vain.insert(pid);
        if process::is_alive(pid) { result } else { Err(Error::EndedEarly { pid }) }
    }

    /// The report of a process that could not be entered.
    pub(super) fn failed(&mut self, pid: i32, error: Error) -> ProcessReport {
        ProcessReport { is_in_vain: self.in_vain.remove(&pid), ..ProcessReport::failed(pid, error) }
    }

    /// Whether a program was started that is to be looked after before the next look is due.
    pub fn has_news(&mut self) -> bool {
        self.drain_events();
        self.missed_execs.has_news()
    }

    pub(super) fn drain_events(&mut self) {
        let (core, without_children, roots) = (&mut self.core, self.without_children, &self.roots);
        let is_ours = |object: &MappedObject| !without_children || roots.contains(&(object.pid as i32));
        self.missed_execs.drain_events(|object| is_ours(object) && core.wants(object));
    }

    /// To be called before a process that may have ended is waited for: afterwards nobody knows what it has started.
    pub fn note_ends(&mut self) {
        self.missed_execs.note_ends();
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
            objects.extend(self.core.loaders.wanted_in(pid, &mapped));
        }
        let traced = if objects.is_empty() || self.inherits_all(pid, &objects) {
            let memory = Memory::open(pid)?;
            let sites = self.inherited_sites(pid, &objects);
            Traced::new(pid, memory, sites, Vec::new(), None)
        } else {
            let mut n_tries = 0;
            loop {
                let (core, objects) = (&mut self.core, objects.clone());
                match in_own_thread(move || open_process(core, pid, objects, Standing::Running)) {
                    // As after a tracer that was killed, which is not an obstacle.
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
        // One that was entered at its start is asked for its threads' storage until it has some, whatever it loads meanwhile.
        traced.is_early |= self.traced.iter().any(|t| t.pid == traced.pid && t.is_early);
        let report = ProcessReport {
            pid: traced.pid,
            outcome: Ok(libraries::of_probes(&traced.reports)),
            interrupted: traced.interrupted,
            stops: traced.stops,
            is_late: traced.has_begun,
            is_in_vain: false,
        };
        self.traced.retain(|t| t.pid != traced.pid);
        self.identify(traced.pid);
        self.traced.push(traced);
        report
    }

    /// A child forked after its parent was opened has everything already.
    fn inherits_all(&self, pid: i32, objects: &[WantedObject]) -> bool {
        let inherited = self.inherited_sites(pid, objects);
        let refused = self.traced.iter().flat_map(|t| &t.reports).filter(|r| r.outcome.is_err());
        let done: HashSet<u64> =
            inherited.iter().map(|s| s.address).chain(refused.map(|r| r.address)).collect();
        !inherited.is_empty() && addresses_in(objects).all(|address| done.contains(&address))
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
        // Those that are wanted and not found yet.
        let mut missing: HashSet<u64> = addresses_in(objects).collect();
        for site in self.traced.iter().flat_map(|t| &t.sites) {
            if missing.contains(&site.address)
                && spaces.contains(&site.space)
                && site.patch.found(&memory).is_ok_and(|f| f == Found::Ours)
                && !site.is_reset(&memory)
            {
                missing.remove(&site.address);
                sites.push(site.clone());
            }
        }
        sites
    }

    /// From now on these events of a process are somebody else's to open.
    pub fn leave_elsewhere(&mut self, pid: i32, events: impl Iterator<Item = u32>) {
        self.core.elsewhere.entry(pid).or_default().extend(events);
    }

    /// What is open in a process, also in one that could not be entered (again): events, and the addresses of their sites in
    /// the file. A child has what its parent had.
    pub fn open_in(&mut self, pid: i32) -> Vec<(u32, u64)> {
        let sites = match self.traced.iter().find(|traced| traced.pid == pid) {
            Some(traced) => traced.sites.clone(),
            None => match self.core.wanted_in(pid) {
                Ok(objects) => self.inherited_sites(pid, &objects),
                Err(_) => Vec::new(),
            },
        };
        let reports = || self.traced.iter().flat_map(|traced| &traced.reports);
        let of_site =
            |site: &OpenSite| reports().find(|r| r.address == site.address && r.probe == site.probe);
        sites.iter().filter_map(of_site).map(|report| (report.event, report.site.address)).collect()
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

/// Where the wanted sites are in the process.
fn addresses_in(objects: &[WantedObject]) -> impl Iterator<Item = u64> {
    objects.iter().flat_map(|o| o.sites.iter().map(|s| o.bias.wrapping_add(s.site.address)))
}
