//! Tracing in progress: opens the wanted probes of processes through one door or both and hands out their hits. What
//! happens to the processes meanwhile is followed in `follow`.

pub(crate) mod by_kernel;
pub(crate) mod follow;
mod handover;
pub(crate) mod tracefs_door;
mod types;

pub use nopal_capture::{Came, Hit, Loss, StreamId, StreamKind};
pub use tracefs_door::BY_TRACEFS;
pub use types::{Door, LiveError, News, Opened, Polled, Request, Way, late_in_words};

use crate::clock::{Anchor, TscClock};
use crate::registry::{Event, Registry, Unfit};
use crate::tasks::Tasks;
use by_kernel::{How, Kernel, open_by_kernel};
use handover::Handovers;
use nopal_abi::ring::Mode;
use nopal_capture::record::RecordKind;
use nopal_capture::{Action, Wanted};
use nopal_engine::target::strangers::Strangers;
use nopal_engine::target::{self, MappedObject, TargetError, changeable_objects, possible_cpus};
use nopal_engine::user;
use nopal_engine::user::consumer::{self, Reader, any_has_thread};
use nopal_engine::user::ring::{RingConfig, Set};
use nopal_engine::user::session::{Options, Session, SiteReport};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tracing in progress.
#[derive(Debug)]
pub struct Live {
    registry: Arc<Mutex<Registry>>,
    door: Door,
    is_only: bool,
    how: How,
    user: Option<(Session, Reader)>,
    kernel: Option<Kernel>,
    clock: TscClock,
    pub tasks: Tasks,
    roots: Vec<u32>,
    /// By process: the sites the user door left to the kernel door, with the reason.
    left: HashMap<u32, Vec<(Wanted, String)>>,
    /// By process that only the kernel door looks after: the inodes of the files it maps code of.
    code: HashMap<u32, Vec<u64>>,
    /// Processes with open sites, opened or inherited.
    entered: HashSet<u32>,
    /// Processes, by the pid they know of themselves, that left hits before anybody had seen them.
    unseen: HashSet<u32>,
    /// Without the user door, which has its own.
    strangers: Strangers,
    /// What came up between two looks.
    pending: Vec<News>,
    last_look: Instant,
    last_sweep: Instant,
    /// How long before it the look before it was.
    look_span: Duration,
    handovers: Handovers,
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
                    let (mut session, reader) =
                        open_user(&registry, request.ring_bytes, mode, request.is_only, can_relocate)?;
                    session.set_patient(request.is_patient);
                    Some((session, reader))
                }
                false if request.door == Door::User => return Err(LiveError::UnsteadyTsc),
                false => None,
            }
        };
        Ok(Live {
            registry,
            door: request.door,
            is_only: request.is_only,
            how: How { door: request.door, ring_bytes: request.ring_bytes, is_only: request.is_only },
            user,
            kernel: None,
            clock: TscClock::start(),
            tasks: Tasks::default(),
            roots: Vec::new(),
            left: HashMap::new(),
            code: HashMap::new(),
            entered: HashSet::new(),
            unseen: HashSet::new(),
            strangers: Strangers::default(),
            pending: Vec::new(),
            last_look: Instant::now(),
            last_sweep: Instant::now(),
            look_span: Duration::ZERO,
            handovers: Handovers::default(),
        })
    }

    /// The events so far.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Opens the wanted probes of a process and, unless told otherwise, of its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        let mut opened = if let Some((session, _)) = &mut self.user {
            let reports = session.attach(pid as i32).map_err(LiveError::User)?;
            self.take_reports(reports)?.opened
        } else {
            if !self.is_only {
                self.family(pid).into_iter().for_each(|each| self.strangers.follow_for_free(each));
            }
            self.attach_by_kernel(pid)?.opened
        };
        self.roots.push(pid);
        // Children that were forked while their parents were being opened.
        let mut n_processes = 0;
        while !self.is_only && n_processes < self.family(pid).len() {
            n_processes = self.family(pid).len();
            if let Some(kernel) = &self.kernel {
                kernel.settle();
            }
            let mut news = Vec::new();
            self.open_children_by_kernel(&mut news);
            for news in news {
                match news {
                    News::Opened(sites) => opened.extend(sites),
                    // Before tracing began nothing is late.
                    News::Late { .. } => {}
                    news => self.pending.push(news),
                }
            }
        }
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
        let how = self.how;
        let mut outcome = Ok(Vec::new());
        let mut left_by_user = Vec::new();
        let (strangers, is_followed) = (&mut self.strangers, self.user.is_none() && !self.is_only);
        let before_start = |pid: i32, sites: &[SiteReport]| {
            let pid = pid as u32;
            if is_followed {
                strangers.follow(pid);
            }
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
                match open_by_kernel(kernel, registry, how, pid, left) {
                    Ok(by_kernel) => opened.extend(by_kernel.opened),
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
                let options = Options { ring, is_only: true, can_relocate: false };
                bare = Session::new(&options, Box::new(|_, _| Vec::new())).map_err(LiveError::User)?;
                bare.set_library_wait(0);
                &mut bare
            }
        };
        let (mut child, _) = session.launch_with(command, before_start).map_err(LiveError::User)?;
        if let Some(kernel) = &mut self.kernel {
            kernel.was_held(child.id());
        }
        self.roots.push(child.id());
        self.tasks.add(child.id());
        self.look_at(child.id());
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

    /// Hands out what has been recorded since the last time.
    pub fn poll(&mut self, mut each: impl FnMut(&Registry, Hit<'_>)) -> Polled {
        self.poll_in_order(|registry, came| match came {
            Came::Hit(hit) => each(registry, hit),
            Came::Loss(_) => {}
        })
    }

    /// The same with losses where they belong.
    pub fn poll_in_order(&mut self, mut each: impl FnMut(&Registry, Came<'_>)) -> Polled {
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
            let watches = self.kernel.as_ref().is_some_and(|k| !k.is_inherited()) && !self.is_only;
            let (tasks, unseen, is_only, mut last_pid) = (&self.tasks, &mut self.unseen, self.is_only, 0);
            let losses = &mut polled.losses;
            let result = reader.poll_in_order(|source, came| {
                let kind = match source.set {
                    Set::Rseq => StreamKind::Rseq,
                    Set::Locked => StreamKind::Locked,
                };
                let stream = StreamId { cpu: source.cpu, kind };
                let record = match came {
                    consumer::Came::Record(record) => record,
                    consumer::Came::Gap(gap) => {
                        let (first_ns, last_ns) = (clock.ns(gap.first), clock.ns(gap.last));
                        let loss = Loss { stream, count: gap.count, first_ns, last_ns };
                        losses.push(loss);
                        return each(&registry, Came::Loss(loss));
                    }
                };
                let RecordKind::Event(event) = record.kind else { return };
                let (Some(time), Some(task)) = (record.time, record.task) else { return };
                let hit = Hit { stream, event, ns: clock.ns(time), task, payload: record.payload };
                if is_only && !tasks.knows(task.pid) {
                    // A child that was forked later has the sites of its parent.
                    return;
                }
                if watches && task.pid != last_pid {
                    last_pid = task.pid;
                    if !tasks.knows(task.pid) {
                        unseen.insert(task.pid);
                    }
                }
                if registry.holds(&hit) {
                    polled.n_hits += 1;
                    each(&registry, Came::Hit(hit));
                }
            });
            polled.n_damaged += result.damaged + result.abandoned;
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

    /// Whether a traced process still lives, also one whose parents have ended.
    pub fn is_any_alive(&mut self) -> bool {
        // As long as a root lives, nobody asks for its family.
        if self.roots.iter().any(|root| target::Process::is_alive(*root)) {
            return true;
        }
        match &mut self.user {
            Some((session, _)) => session.is_any_alive(),
            None => {
                self.hear();
                !self.is_only && self.strangers.family().any(target::Process::is_alive)
            }
        }
    }

    /// Closes every site in every process; hits that came before can still be polled, and the last news be taken.
    pub fn close(&mut self) -> Vec<String> {
        self.hear_last();
        if let Some(kernel) = &mut self.kernel {
            self.handovers = Handovers::default();
            kernel.close();
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

/// Opens the probes of one process. Another nopal holds it for a moment only, and is waited for.
pub fn attach_when_free(
    live: &mut Live,
    pid: u32,
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<Opened>, LiveError> {
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        match live.attach(pid) {
            Err(LiveError::User(user::Error::AlreadyTraced { name, .. }))
                if name == "nopal" && Instant::now() < end && !is_stopped() =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Every wanted site of the files a process maps.
fn wanted_in(registry: &Mutex<Registry>, pid: u32) -> Result<Vec<Wanted>, TargetError> {
    let mut wanted = Vec::new();
    for mapped in changeable_objects(pid)? {
        wanted.extend(wanted_in_file(registry, &mapped));
    }
    Ok(wanted)
}

fn wanted_in_file(registry: &Mutex<Registry>, mapped: &MappedObject) -> Vec<Wanted> {
    if let Some(known) = lock(registry).known(mapped) {
        return known;
    }
    let Ok(image) = mapped.open() else { return Vec::new() };
    let Ok(object) = nopal_sdt::read(image.bytes()) else { return Vec::new() };
    lock(registry).select(mapped, &object)
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
                let wanted = wanted_of(&registry, site.event);
                left.push((wanted, refusal.to_string()));
            }
        }
    }
    (opened, left)
}

/// An event's site as the kernel door takes it.
fn wanted_of(registry: &Registry, event: u32) -> Wanted {
    let Event { plan, site_idx, site, .. } = &registry.events[event as usize];
    Wanted {
        probe: plan.event_type.full_name(),
        site: site.clone(),
        event,
        predicates: Vec::new(),
        action: Action::Record {
            captures: plan.sites[*site_idx].captures.clone(),
            has_time: true,
            has_task: true,
        },
    }
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
pub(crate) const ASKED_FOR: &str = "asked for";

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
