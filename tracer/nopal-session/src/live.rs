//! Tracing in progress: opens the wanted probes of processes through one door or both, hands out their hits, and says in
//! the end what was lost.

mod by_kernel;

use crate::clock::{Anchor, TscClock};
use crate::plan::Limits;
use crate::registry::{Choice, Registry, Unfit};
use crate::tasks::Tasks;
use by_kernel::{Kernel, open_by_kernel};
use nopal_abi::ring::Mode;
use nopal_engine::kernel::KernelError;
use nopal_engine::target::{self, TargetError, mapped_objects};
use nopal_engine::user;
use nopal_engine::user::consumer::{Reader, any_has_thread};
use nopal_engine::user::libraries::{LIBRARY_PROBE, WAIT_MS};
use nopal_engine::user::record::{RecordKind, Task};
use nopal_engine::user::ring::{RingConfig, Set, possible_cpus};
use nopal_engine::user::session::{Options, ProcessReport, Session, SiteReport, Wanted};
use nopal_engine::user::stub::Action;
use nopal_engine::user::watch::Notice;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which way into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// The user door, and the kernel door for the sites it cannot open.
    #[default]
    Auto,
    User,
    Kernel,
}

/// What is to be traced, and how.
#[derive(Debug)]
pub struct Request {
    pub choices: Vec<Choice>,
    /// `.d` files that name the arguments of probes.
    pub given: Vec<nopal_provider::File>,
    pub limits: Limits,
    pub door: Door,
    /// Not the live descendants of a process.
    pub is_only: bool,
    /// Lets the user door move instructions where nothing else helps.
    pub can_relocate: bool,
    /// Per CPU.
    pub ring_bytes: u64,
    /// Keeps the newest hits and hands them out by [`Live::snapshot`] only.
    pub is_overwriting: bool,
}

/// How a site was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub pid: u32,
    pub probe: String,
    pub path: PathBuf,
    /// Link-time address.
    pub address: u64,
    pub way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// With the tactic.
    User(String),
    /// With the reason why not the user door.
    Kernel(String),
    /// Not at all.
    Closed(String),
}

#[derive(Debug)]
pub enum LiveError {
    User(user::Error),
    Kernel(KernelError),
    Target(TargetError),
    /// A pattern or a condition fits no probe.
    Unfit(Unfit),
    /// There are probes, and no door opens any.
    AllClosed {
        reason: String,
    },
    /// How many CPUs there are cannot be read.
    Cpus(std::io::Error),
    /// The time stamp counter cannot serve as a clock, which the user door needs.
    UnsteadyTsc,
}

/// One stream of records in the order of their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub cpu: u32,
    pub kind: StreamKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamKind {
    Rseq,
    Locked,
    Kernel,
}

/// One hit of a wanted site whose condition holds.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub stream: StreamId,
    /// Index in [`Registry::events`].
    pub event: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// As the traced process counts.
    pub task: Task,
    pub payload: &'a [u8],
}

/// Hits that were lost, and when, as CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub stream: StreamId,
    pub count: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// Something that happened while tracing.
#[derive(Debug)]
pub enum News {
    Opened(Vec<Opened>),
    /// Hits may be missing.
    Gap(String),
    /// A process or its program was started while tracing, and this many sites could be opened only afterwards.
    Late {
        pid: u32,
        n_sites: usize,
    },
    /// A process or a library that came while tracing could not be opened.
    NotFollowed {
        pid: u32,
        error: LiveError,
    },
    Message(String),
}

/// What one look at the rings gave beside hits.
#[derive(Debug, Default)]
pub struct Polled {
    pub n_hits: u64,
    pub losses: Vec<Loss>,
    /// Places where a ring made no sense, and records that dying threads never finished.
    pub n_damaged: u64,
}

/// Tracing in progress.
#[derive(Debug)]
pub struct Live {
    registry: Arc<Mutex<Registry>>,
    door: Door,
    is_only: bool,
    ring_bytes: u64,
    user: Option<(Session, Reader)>,
    kernel: Option<Kernel>,
    clock: TscClock,
    pub tasks: Tasks,
    roots: Vec<u32>,
    /// By process: the sites the user door left to the kernel door, with the reason.
    left: HashMap<u32, Vec<(Wanted, String)>>,
    /// Processes with open sites, opened or inherited.
    entered: HashSet<u32>,
    /// Processes, by the pid they know of themselves, that left hits before anybody had seen them.
    unseen: HashSet<u32>,
    /// What came up between two looks.
    pending: Vec<News>,
    last_look: Instant,
}

/// Bytes that others change must be noticed within 100 ms.
const LOOK: Duration = Duration::from_millis(50);

impl Live {
    /// A session without processes; [`Live::attach`] brings them.
    pub fn new(request: Request) -> Result<Live, LiveError> {
        let registry = Arc::new(Mutex::new(Registry::new(request.choices, request.given, request.limits)));
        let user = if request.door == Door::Kernel {
            None
        } else {
            match crate::clock::is_tsc_steady() {
                true => {
                    let can_relocate = request.can_relocate;
                    let mode = if request.is_overwriting { Mode::Overwrite } else { Mode::Discard };
                    Some(open_user(&registry, request.ring_bytes, mode, request.is_only, can_relocate)?)
                }
                false if request.door == Door::User => return Err(LiveError::UnsteadyTsc),
                false => None,
            }
        };
        Ok(Live {
            registry,
            door: request.door,
            is_only: request.is_only,
            ring_bytes: request.ring_bytes,
            user,
            kernel: None,
            clock: TscClock::start(),
            tasks: Tasks::default(),
            roots: Vec::new(),
            left: HashMap::new(),
            entered: HashSet::new(),
            unseen: HashSet::new(),
            pending: Vec::new(),
            last_look: Instant::now(),
        })
    }

    /// The events so far.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Opens the wanted probes of a process and, unless told otherwise, of its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        let opened = if let Some((session, _)) = &mut self.user {
            let reports = session.attach(pid as i32).map_err(LiveError::User)?;
            self.take_reports(reports)?
        } else {
            let mut opened = Vec::new();
            for pid in self.family(pid) {
                opened.extend(self.attach_by_kernel(pid)?);
            }
            opened
        };
        self.roots.push(pid);
        Ok(opened)
    }

    /// The first choice that no probe of any process so far fits.
    pub fn unfit(&self) -> Option<Unfit> {
        self.registry().unfit()
    }

    /// A session in which nothing was opened although there are probes is an error that says why.
    pub fn judge(&self, opened: &[Opened]) -> Result<(), LiveError> {
        let reasons = opened.iter().map(|o| match &o.way {
            Way::Closed(reason) => Some(reason),
            Way::User(_) | Way::Kernel(_) => None,
        });
        match reasons.collect::<Option<Vec<_>>>() {
            Some(reasons) if !reasons.is_empty() => Err(LiveError::AllClosed { reason: reasons[0].clone() }),
            _ => Ok(()),
        }
    }

    /// Starts a command with its probes open, by either door, before its constructors run.
    pub fn launch(&mut self, command: &mut Command) -> Result<(Child, Vec<Opened>), LiveError> {
        let (registry, kernel, door) = (&self.registry, &mut self.kernel, self.door);
        let ring_bytes = self.ring_bytes;
        let mut outcome = Ok(Vec::new());
        let mut left_by_user = Vec::new();
        let before_start = |pid: i32, sites: &[SiteReport]| {
            let pid = pid as u32;
            let (mut opened, left) = match door {
                Door::Auto | Door::User => divide(registry, pid, sites),
                Door::Kernel => {
                    let wanted = wanted_in(registry, pid).unwrap_or_default();
                    (Vec::new(), wanted.into_iter().map(|w| (w, ASKED_FOR.to_owned())).collect())
                }
            };
            left_by_user.clone_from(&left);
            if door == Door::User {
                opened.extend(left.into_iter().map(|(w, reason)| closed(pid, &w, reason)));
            } else if !left.is_empty() {
                match open_by_kernel(kernel, registry, door, ring_bytes, pid, left) {
                    Ok(by_kernel) => opened.extend(by_kernel),
                    Err(error) => {
                        outcome = Err(error);
                        return;
                    }
                }
            }
            outcome = Ok(opened);
        };
        let mut bare;
        let session = match &mut self.user {
            Some((session, _)) => session,
            // The kernel door alone: the same way of starting, with nothing for the user door to open.
            None => {
                let ring = RingConfig::new(possible_cpus().map_err(LiveError::Cpus)?);
                let options = Options { ring, is_only: self.is_only, can_relocate: false };
                bare = Session::new(&options, Box::new(|_, _| Vec::new())).map_err(LiveError::User)?;
                bare.set_library_wait(0);
                &mut bare
            }
        };
        let (mut child, _) = session.launch_with(command, before_start).map_err(LiveError::User)?;
        self.roots.push(child.id());
        self.tasks.add(child.id());
        self.left.insert(child.id(), left_by_user);
        self.say_libraries(child.id());
        if outcome.as_ref().is_ok_and(|opened| !opened.is_empty()) {
            self.entered.insert(child.id());
        }
        // A pattern that nothing fits yet is no error: what the command loads or starts may have the probe.
        let judged = outcome.and_then(|opened| match self.unfit() {
            Some(unfit @ Unfit::Condition(_)) => Err(LiveError::Unfit(unfit)),
            _ => self.judge(&opened).map(|()| opened),
        });
        match judged {
            Ok(opened) => Ok((child, opened)),
            Err(error) => {
                // The command was to be traced; without that it is not wanted.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Whether it is time for [`Live::look_after`].
    pub fn is_look_due(&self) -> bool {
        self.last_look.elapsed() >= LOOK
    }

    /// Looks after the open sites: re-opens what others closed, follows new children, libraries and programs.
    pub fn look_after(&mut self) -> Vec<News> {
        self.last_look = Instant::now();
        let notices = self.user.as_mut().map_or_else(Vec::new, |(session, _)| session.look_after());
        let mut news = std::mem::take(&mut self.pending);
        self.digest(notices, &mut news);
        news
    }

    /// Threads that have loaded a library wait for us: its sites are opened by either door, then they go on.
    fn follow_libraries(&mut self) {
        let Some((session, _)) = &mut self.user else { return };
        let Some(since) = session.library_news() else { return };
        let notices = session.follow_libraries();
        let has_opened = notices.iter().any(|n| matches!(n, Notice::Opened(r) if r.says_something()));
        let mut news = std::mem::take(&mut self.pending);
        self.digest(notices, &mut news);
        let waited = Duration::from_nanos(Anchor::now().monotonic_ns.saturating_sub(self.clock.ns(since)));
        if has_opened && waited >= Duration::from_millis(WAIT_MS.into()) {
            news.push(News::Gap(format!(
                "a library was opened {} ms after it was loaded; its first hits may be missing",
                waited.as_millis()
            )));
        }
        self.pending = news;
        if let Some((session, _)) = &self.user {
            session.release();
        }
    }

    /// What the user door has noticed, in words, with the kernel door opened for what is left to it.
    fn digest(&mut self, notices: Vec<Notice>, news: &mut Vec<News>) {
        let mut reports = Vec::new();
        for notice in notices {
            match notice {
                Notice::TakenOver { pid, probe, .. } if probe == LIBRARY_PROBE => {
                    news.push(News::Message(format!(
                        "another tool watches which libraries process {pid} loads; they are opened a moment later"
                    )));
                }
                Notice::TakenOver { pid, probe, address } => news.push(News::Gap(format!(
                    "another tool took over {probe} at {address:#x} in process {pid}; its hits are missing from now on"
                ))),
                Notice::OpenAgain { pid, probe, address } => news.push(News::Message(format!(
                    "{probe} at {address:#x} in process {pid} is open again"
                ))),
                Notice::Changed { pid, probe, address, .. } => news.push(News::Gap(format!(
                    "the code of {probe} at {address:#x} in process {pid} was changed by somebody else; left alone"
                ))),
                Notice::Opened(report) if report.says_something() => reports.push(report),
                Notice::Opened(_) => {}
                Notice::Exec { pid } => {
                    // A link outlives the program it was made for; the new one is opened as a whole.
                    if let Some(kernel) = &mut self.kernel {
                        kernel.links.remove(&(pid as u32));
                    }
                    self.left.remove(&(pid as u32));
                    self.entered.remove(&(pid as u32));
                    news.push(News::Message(format!("process {pid} started another program")));
                }
                Notice::Ended { pid } => news.push(News::Message(format!("process {pid} has ended"))),
            }
        }
        let is_alive = |pid: &u32| target::Process::read(*pid).is_ok_and(|p| !p.is_zombie);
        if let Some(kernel) = &mut self.kernel {
            kernel.links.retain(|pid, _| is_alive(pid));
        }
        self.left.retain(|pid, _| is_alive(pid));
        self.entered.retain(is_alive);
        for report in reports {
            let pid = report.pid as u32;
            let libraries = self.user.as_mut().map(|(session, _)| session.libraries(report.pid));
            let is_at_once = self.entered.contains(&pid)
                && matches!(libraries, Some(user::libraries::Libraries::AtOnce(_)));
            match self.take_reports(vec![report]) {
                Ok(opened) if !opened.is_empty() => {
                    let by_kernel = opened.iter().filter(|o| matches!(o.way, Way::Kernel(_)));
                    // Otherwise it was found by looking, after its program or library had begun.
                    let n_sites = if is_at_once { by_kernel.count() } else { opened.len() };
                    if n_sites > 0 {
                        news.push(News::Late { pid, n_sites });
                    }
                    news.push(News::Opened(opened));
                }
                Ok(_) => {}
                // It ended before the kernel door was open.
                Err(_) if !is_alive(&pid) => news.push(News::Late { pid, n_sites: 0 }),
                Err(error) => news.push(News::NotFollowed { pid, error }),
            }
        }
        if !self.is_only {
            self.open_children_by_kernel(news);
        }
    }

    /// Children inherit what the user door opened, but no uprobe: those are given to them as soon as they are seen.
    fn open_children_by_kernel(&mut self, news: &mut Vec<News>) {
        let fresh: Vec<u32> = match &self.user {
            Some((session, _)) => session.processes().iter().map(|t| t.pid as u32).collect(),
            None => self.roots.iter().flat_map(|root| target::descendants(*root)).collect(),
        };
        for pid in fresh.into_iter().filter(|pid| !self.left.contains_key(pid)).collect::<Vec<_>>() {
            let opened = if self.user.is_some() {
                self.tasks.add(pid);
                let parent = target::Process::read(pid).map(|p| p.parent).unwrap_or(0);
                let left = self.left.get(&parent).cloned().unwrap_or_default();
                self.left.insert(pid, left.clone());
                if self.entered.contains(&parent) {
                    self.entered.insert(pid);
                }
                if left.is_empty() || self.door == Door::User {
                    Ok(Vec::new())
                } else {
                    self.attach_kernel(pid, left)
                }
            } else {
                self.attach_by_kernel(pid)
            };
            // An error is a process that has gone meanwhile.
            let Ok(opened) = opened else { continue };
            let n_sites = opened.iter().filter(|o| matches!(o.way, Way::Kernel(_))).count();
            if n_sites > 0 {
                news.push(News::Late { pid, n_sites });
            }
            if !opened.is_empty() {
                news.push(News::Opened(opened));
            }
        }
    }

    /// How many processes were started and ended between two looks, so that only the user door saw them.
    pub fn n_unseen(&self) -> usize {
        self.unseen.iter().filter(|pid| !self.tasks.knows(**pid)).count()
    }

    /// Keeps for the next look how the libraries that a process loads later will be noticed.
    fn say_libraries(&mut self, pid: u32) {
        if let Some((session, _)) = &mut self.user {
            let how = session.libraries(pid as i32);
            self.pending.push(News::Message(format!("process {pid}: {how}")));
        }
    }

    /// Takes what the user door says of processes and gives the kernel door what is left.
    fn take_reports(&mut self, reports: Vec<ProcessReport>) -> Result<Vec<Opened>, LiveError> {
        let mut opened = Vec::new();
        for report in reports {
            let pid = report.pid as u32;
            self.tasks.add(pid);
            if !self.left.contains_key(&pid) && report.says_something() {
                self.say_libraries(pid);
            }
            let left = match report.outcome {
                Ok(sites) => {
                    if !sites.is_empty() {
                        self.entered.insert(pid);
                    }
                    let (by_user, left) = divide(&self.registry, pid, &sites);
                    opened.extend(by_user);
                    left
                }
                // A descendant that cannot be entered is left to the kernel door whole.
                Err(error) => {
                    let wanted = wanted_in(&self.registry, pid).unwrap_or_default();
                    wanted.into_iter().map(|w| (w, error.to_string())).collect()
                }
            };
            // A process that has loaded another library is reported again as a whole.
            let known = self.left.entry(pid).or_default();
            let left: Vec<_> =
                left.into_iter().filter(|(w, _)| known.iter().all(|(k, _)| k.event != w.event)).collect();
            known.extend(left.iter().cloned());
            if self.door == Door::User {
                opened.extend(left.into_iter().map(|(w, reason)| closed(pid, &w, reason)));
            } else if !left.is_empty() {
                opened.extend(self.attach_kernel(pid, left)?);
            }
        }
        Ok(opened)
    }

    /// Opens every wanted site of one process by the kernel door.
    fn attach_by_kernel(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        self.tasks.add(pid);
        let wanted = wanted_in(&self.registry, pid).map_err(LiveError::Target)?;
        let sites: Vec<_> = wanted.into_iter().map(|w| (w, ASKED_FOR.to_owned())).collect();
        self.left.insert(pid, sites.clone());
        self.attach_kernel(pid, sites)
    }

    fn family(&self, pid: u32) -> Vec<u32> {
        let mut family = vec![pid];
        if !self.is_only {
            family.extend(target::descendants(pid));
        }
        family
    }

    fn attach_kernel(&mut self, pid: u32, sites: Vec<(Wanted, String)>) -> Result<Vec<Opened>, LiveError> {
        open_by_kernel(&mut self.kernel, &self.registry, self.door, self.ring_bytes, pid, sites)
    }

    /// Hands out what has been recorded since the last time.
    pub fn poll(&mut self, mut each: impl FnMut(&Registry, Hit<'_>)) -> Polled {
        if let Some((session, reader)) = &mut self.user {
            let pids: Vec<i32> = session.processes().iter().map(|t| t.pid).collect();
            reader.set_liveness(move |tid| any_has_thread(&pids, tid));
        }
        if self.clock.is_due() {
            self.clock.correct(Anchor::now());
        }
        let mut polled = Polled::default();
        let registry = lock(&self.registry);
        if let Some((_, reader)) = &mut self.user {
            let clock = &self.clock;
            // Only where some sites are the kernel's is a process that nobody has seen short of hits.
            let watches = self.kernel.is_some() && !self.is_only;
            let (tasks, unseen, mut last_pid) = (&self.tasks, &mut self.unseen, 0);
            let result = reader.poll(|source, record| {
                let RecordKind::Event(event) = record.kind else { return };
                let (Some(time), Some(task)) = (record.time, record.task) else { return };
                let kind = match source.set {
                    Set::Rseq => StreamKind::Rseq,
                    Set::Locked => StreamKind::Locked,
                };
                let stream = StreamId { cpu: source.cpu, kind };
                let hit = Hit { stream, event, ns: clock.ns(time), task, payload: record.payload };
                if watches && task.pid != last_pid {
                    last_pid = task.pid;
                    if !tasks.knows(task.pid) {
                        unseen.insert(task.pid);
                    }
                }
                if registry.holds(&hit) {
                    polled.n_hits += 1;
                    each(&registry, hit);
                }
            });
            polled.n_damaged += result.damaged + result.abandoned;
            polled.losses.extend(result.gaps.iter().map(|gap| {
                let kind = match gap.set {
                    Set::Rseq => StreamKind::Rseq,
                    Set::Locked => StreamKind::Locked,
                };
                Loss {
                    stream: StreamId { cpu: gap.cpu, kind },
                    count: gap.count,
                    first_ns: clock.ns(gap.first),
                    last_ns: clock.ns(gap.last),
                }
            }));
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.poll(&registry, &mut polled, &mut each);
        }
        drop(registry);
        self.follow_libraries();
        polled
    }

    /// Hands out what the rings that are written over hold now, oldest first on each CPU; it stays there. Hits of the
    /// kernel door and of threads without rseq are not among them: [`Live::poll`] gives those.
    pub fn snapshot(&mut self, mut each: impl FnMut(&Registry, Hit<'_>)) -> Polled {
        self.clock.correct(Anchor::now());
        let mut polled = Polled::default();
        let registry = lock(&self.registry);
        let Some((_, reader)) = &mut self.user else { return polled };
        let clock = &self.clock;
        let result = reader.snapshot(|source, record| {
            let RecordKind::Event(event) = record.kind else { return };
            let (Some(time), Some(task)) = (record.time, record.task) else { return };
            let stream = StreamId { cpu: source.cpu, kind: StreamKind::Rseq };
            let hit = Hit { stream, event, ns: clock.ns(time), task, payload: record.payload };
            if registry.holds(&hit) {
                polled.n_hits += 1;
                each(&registry, hit);
            }
        });
        polled.n_damaged = result.damaged;
        polled
    }

    /// Whether a traced root process still lives.
    pub fn is_any_alive(&self) -> bool {
        self.roots
            .iter()
            .flat_map(|root| self.family(*root))
            .any(|pid| target::Process::read(pid).is_ok_and(|process| !process.is_zombie))
    }

    /// Closes every site in every process; hits that came before can still be polled.
    pub fn close(&mut self) -> Vec<String> {
        if let Some(kernel) = &mut self.kernel {
            kernel.links.clear();
        }
        match &mut self.user {
            Some((session, _)) => session
                .detach()
                .failures
                .into_iter()
                .map(|(pid, why)| format!("process {pid}: {why}"))
                .collect(),
            None => Vec::new(),
        }
    }
}

/// Every wanted site of the files a process maps.
fn wanted_in(registry: &Mutex<Registry>, pid: u32) -> Result<Vec<Wanted>, TargetError> {
    let mut wanted = Vec::new();
    for mapped in mapped_objects(pid)? {
        let Ok(image) = mapped.open() else { continue };
        let Ok(object) = nopal_sdt::read(image.bytes()) else { continue };
        wanted.extend(lock(registry).select(&mapped, &object));
    }
    Ok(wanted)
}

/// Divides the sites of a process into those the user door opened and those it leaves to the kernel door.
fn divide(
    registry: &Mutex<Registry>,
    pid: u32,
    sites: &[SiteReport],
) -> (Vec<Opened>, Vec<(Wanted, String)>) {
    let registry = lock(registry);
    let mut opened = Vec::new();
    let mut left = Vec::new();
    for site in sites {
        match &site.outcome {
            Ok(tactic) => opened.push(Opened {
                pid,
                probe: site.probe.clone(),
                path: site.path.clone(),
                address: site.site.address,
                way: Way::User(tactic.to_string()),
            }),
            Err(refusal) => {
                let event = &registry.events[site.event as usize];
                let captures = event.plan.sites[event.site_idx].captures.clone();
                let wanted = Wanted {
                    probe: site.probe.clone(),
                    site: site.site.clone(),
                    event: site.event,
                    predicates: Vec::new(),
                    action: Action::Record { captures, has_time: true, has_task: true },
                };
                left.push((wanted, refusal.to_string()));
            }
        }
    }
    (opened, left)
}

fn open_user(
    registry: &Arc<Mutex<Registry>>,
    ring_bytes: u64,
    mode: Mode,
    is_only: bool,
    can_relocate: bool,
) -> Result<(Session, Reader), LiveError> {
    let n_cpus = possible_cpus().map_err(LiveError::Cpus)?;
    let ring = RingConfig { mode, ..RingConfig::sized(n_cpus, ring_bytes) };
    let registry = registry.clone();
    let select = Box::new(move |mapped: &target::MappedObject, object: &nopal_sdt::Object| {
        lock(&registry).select(mapped, object)
    });
    let session = Session::new(&Options { ring, is_only, can_relocate }, select).map_err(LiveError::User)?;
    let reader = Reader::new(session.ring().clone());
    Ok((session, reader))
}

/// The reason of a site that the user door was not asked for.
const ASKED_FOR: &str = "asked for";

/// Why neither door opens a site.
fn both(user: &str, kernel: &str) -> String {
    if user == ASKED_FOR { kernel.to_owned() } else { format!("{user}; {kernel}") }
}

fn closed(pid: u32, wanted: &Wanted, reason: String) -> Opened {
    Opened {
        pid,
        probe: wanted.probe.clone(),
        path: PathBuf::new(),
        address: wanted.site.address,
        way: Way::Closed(reason),
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    // A panic elsewhere leaves the registry whole: it only ever grows.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}
