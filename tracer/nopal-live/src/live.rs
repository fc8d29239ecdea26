//! Tracing in progress: opens the wanted sites of processes through one door or both and hands out their hits, each stream
//! in its order or all in the order of time. Which sites those are, a [`Selection`] says; who takes the hits is a
//! [`Consumer`]. What happens to the processes meanwhile is followed in `follow`.

pub(crate) mod by_kernel;
mod consumer;
pub(crate) mod follow;
mod handover;
mod launch;
mod poll;
mod spans;
pub(crate) mod tracefs_door;
mod types;
mod way;

pub use consumer::{Consumer, widen};
pub use nopal_capture::{Hit, Loss, StreamId, StreamKind};
pub use spans::{KeptSpan, KeptSpans};
pub use types::{
    Door, LiveError, News, NotKeptHere, Opened, Options, Polled, Request, closed_in_words, late_in_words,
};
pub use way::{BY_TRACEFS, Closed, NotByKernel, NotByUser, Way};

use crate::clock::SharedClock;
use crate::registry::{Registry, Unfit};
use crate::selection::Selection;
use crate::tasks::Tasks;
use by_kernel::{How, Kernel};
use consumer::Waiting;
use handover::Handovers;
use nopal_abi::ring::Mode;
use nopal_capture::Wanted;
use nopal_proc::missed_execs::MissedExecs;
use nopal_proc::{MappedObject, TargetError, changeable_objects, possible_cpus};
use nopal_trace::clock::monotonic_ns;
use nopal_user::consumer::Reader;
use nopal_user::libraries::Libraries;
use nopal_user::ring::{RingConfig, RingLayout, Rings};
use nopal_user::sandbox::FORBIDDING_PROBE;
use nopal_user::session::{self, ProcessReport, Session, SiteReport};
use spans::EndedSpans;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tracing in progress.
#[derive(Debug)]
pub struct Live<S: Selection = Registry> {
    selection: Arc<Mutex<S>>,
    options: Options,
    user: Option<(Session, Reader)>,
    kernel: Option<Kernel>,
    clock: SharedClock,
    pub tasks: Tasks,
    roots: Vec<u32>,
    /// The first process has been attached to.
    has_begun: bool,
    /// By process: the sites the user door left to the kernel door, with the reason.
    left: HashMap<u32, Vec<(Wanted, NotByUser)>>,
    /// By process that only the kernel door looks after: the inodes of the files it maps code of.
    code: HashMap<u32, Vec<u64>>,
    /// Processes with open sites, opened or inherited.
    entered: HashSet<u32>,
    /// Processes of which it was told that they could not be entered again.
    unentered: HashSet<u32>,
    /// Processes, by the pid they know of themselves, that left hits before anybody had seen them.
    unseen: HashSet<u32>,
    /// Processes that have started another program, and a time between its hits and those of the program before.
    restarts: Vec<(u32, u64)>,
    /// Without the user door, which has its own.
    missed_execs: MissedExecs,
    /// Files with wanted sites that a process has mapped since it was looked at, without the user door. It may have unmapped
    /// them again.
    loaded: Vec<MappedObject>,
    /// By process: files that it has mapped since it was looked at, and that cannot be opened.
    unreadable: Vec<(u32, PathBuf)>,
    /// What came up between two looks.
    pending: Vec<News>,
    last_look: Instant,
    last_sweep: Instant,
    /// How long before it the look before it was.
    look_span: Duration,
    handovers: Handovers,
    /// When hits of the kernel door count: as long as the user door is open.
    span: Range<u64>,
    /// Hits whose turn in the order of time has not come.
    waiting: Waiting,
    /// No site is open any more; what is in the rings is all there will be.
    is_closed: bool,
    /// What threads that have ended had open, of spans that are kept at the source.
    ended_spans: EndedSpans,
}

/// Bytes that others change must be noticed within 100 ms.
const LOOK: Duration = Duration::from_millis(50);

impl Live {
    /// A session that wants probes by pattern.
    pub fn new(request: Request) -> Result<Live, LiveError> {
        let mut registry = Registry::new(request.choices, request.given, request.limits);
        registry.leave_out_arguments(request.without_arguments);
        let mut options = request.options;
        if let Some(roles) = request.spans {
            let n_spans = if roles.by.is_some() { nopal_capture::span::MAX_SPANS } else { roles.spans.len() };
            options.n_spans = n_spans as u32;
            registry.keep_spans(roles);
        }
        Live::open(registry, options)
    }

    /// The events so far.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.selection()
    }

    /// The first choice that no probe of any process so far fits.
    pub fn unfit(&self) -> Option<Unfit> {
        self.registry().unfit()
    }

    /// The same with patterns that nothing fits yet left out: what a command loads or starts may have the probe.
    pub fn launch(&mut self, command: &mut Command) -> Result<(Child, Vec<Opened>), LiveError> {
        let (mut child, opened) = self.launch_with(command, |_| ())?;
        match self.unfit() {
            Some(unfit @ Unfit::Condition(_)) => {
                end(&mut child);
                Err(LiveError::Unfit(unfit))
            }
            _ => Ok((child, opened)),
        }
    }
}

impl<S: Selection> Live<S> {
    /// A session without processes; [`Live::attach`] brings them.
    pub fn open(selection: S, options: Options) -> Result<Live<S>, LiveError> {
        let selection = Arc::new(Mutex::new(selection));
        let user = match (options.door, crate::clock::is_tsc_steady()) {
            (Door::Kernel, _) | (Door::Auto, false) => None,
            (Door::User, false) => return Err(LiveError::UnsteadyTsc),
            (Door::Auto | Door::User, true) => Some(open_user(&selection, &options)?),
        };
        let clock = SharedClock::get();
        if let Some((session, _)) = &user {
            session.rings().set_span_rate(clock.rate());
        }
        Ok(Live {
            selection,
            options,
            user,
            kernel: None,
            clock,
            ended_spans: EndedSpans::default(),
            tasks: Tasks::default(),
            roots: Vec::new(),
            has_begun: false,
            left: HashMap::new(),
            code: HashMap::new(),
            entered: HashSet::new(),
            unentered: HashSet::new(),
            unseen: HashSet::new(),
            restarts: Vec::new(),
            missed_execs: MissedExecs::default(),
            loaded: Vec::new(),
            unreadable: Vec::new(),
            pending: Vec::new(),
            last_look: Instant::now(),
            last_sweep: Instant::now(),
            look_span: Duration::ZERO,
            handovers: Handovers::default(),
            span: 0..u64::MAX,
            waiting: Waiting::default(),
            is_closed: false,
        })
    }

    /// What is wanted so far.
    pub fn selection(&self) -> MutexGuard<'_, S> {
        lock(&self.selection)
    }

    /// Where stubs keep what they gather alone.
    pub fn ring(&self) -> Option<&Arc<Rings>> {
        self.user.as_ref().map(|(session, _)| session.rings())
    }

    fn how(&self) -> How {
        let Options { door, ring_bytes, without_children, .. } = self.options;
        How { door, ring_bytes, without_children }
    }

    /// Opens the wanted probes of a process and, unless told otherwise, of its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        let is_first = !self.has_begun;
        let opened = self.open_root(pid, is_first);
        if opened.is_err()
            && let Some((session, _)) = &mut self.user
        {
            // Who is held at its start after one that could not be opened must be heard.
            session.set_paused(false);
        }
        let mut opened = opened?;
        self.roots.push(pid);
        self.has_begun = true;
        if let Some((session, _)) = &mut self.user {
            // Only what is loaded later is reported.
            session.take_unreadable();
            if is_first {
                self.span.start = monotonic_ns();
                session.set_paused(false);
            }
        }
        // Children that were forked while their parents were being opened.
        let mut n_processes = 0;
        while !self.options.without_children && n_processes < self.family(pid).len() {
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

    fn open_root(&mut self, pid: u32, is_first: bool) -> Result<Vec<Opened>, LiveError> {
        let Some((session, _)) = &mut self.user else {
            self.family(pid).into_iter().for_each(|each| self.missed_execs.follow(each));
            return Ok(self.attach_by_kernel(pid)?.opened);
        };
        // Both doors begin at the same moment.
        session.set_paused(is_first);
        // Who is what no user door enters has another; who is traced by others, or gone, must hear that.
        let is_auto = self.options.door == Door::Auto;
        let is_left = |error: &nopal_user::Error| is_auto && error.is_of_program();
        let reports = session.attach_or_leave(pid as i32, is_left).map_err(LiveError::User)?;
        Ok(self.take_reports(reports)?.opened)
    }

    /// Opens the wanted probes of a process that stands at the first instruction of its program, held by the thread that
    /// calls this ([`nopal_proc::launch::hold_at_exec`]): not one of its hits is missed.
    pub fn attach_held(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        // What is known of it is of the program before.
        if let Some(kernel) = &mut self.kernel {
            kernel.exec(pid);
        }
        self.left.remove(&pid);
        self.entered.remove(&pid);
        let opened = if let Some((session, _)) = &mut self.user {
            let report = match session.open_held(pid as i32) {
                Err(error) if self.options.door == Door::Auto => ProcessReport::failed(pid as i32, error),
                report => report.map_err(LiveError::User)?,
            };
            session.take_unreadable();
            if !std::mem::replace(&mut self.has_begun, true) {
                self.span.start = monotonic_ns();
            }
            if matches!(session.libraries(pid as i32), Libraries::AtOnce(_)) {
                self.entered.insert(pid);
            }
            self.note_begun(&report);
            self.take_reports(vec![report])?.opened
        } else {
            self.missed_execs.follow(pid);
            self.drain_events();
            self.missed_execs.forget(pid);
            self.attach_by_kernel(pid)?.opened
        };
        if let Some(kernel) = &mut self.kernel {
            kernel.was_held(pid);
        }
        if !self.roots.contains(&pid) {
            self.roots.push(pid);
        }
        Ok(opened)
    }

    /// Whether a process has something to open now.
    pub fn has_wanted(&self, pid: u32) -> bool {
        wanted_in(&self.selection, pid).is_ok_and(|wanted| !wanted.is_empty())
    }

    /// A process that was attached to has ended: who comes later with its number is another.
    pub fn forget_root(&mut self, pid: u32) {
        self.roots.retain(|root| *root != pid);
        if let Some((session, _)) = &mut self.user {
            session.forget_root(pid as i32);
        }
    }

    /// A session in which nothing was opened although there are probes is an error that says why.
    pub fn check_opened(&self, opened: &[Opened]) -> Result<(), LiveError> {
        let reasons = opened.iter().map(|o| match &o.way {
            Way::Closed(why) => Some(why),
            Way::User(_) | Way::Kernel { .. } => None,
        });
        match reasons.collect::<Option<Vec<_>>>() {
            Some(reasons) if !reasons.is_empty() => Err(LiveError::AllClosed(reasons[0].clone())),
            _ => Ok(()),
        }
    }

    /// A process that was to be opened before it ran, and could not be held for so long.
    fn note_begun(&mut self, report: &ProcessReport) {
        if report.is_late {
            let n_sites = report.outcome.as_ref().map_or(0, Vec::len);
            self.pending.push(News::Late { pid: report.pid as u32, n_sites });
        }
    }

    /// Processes that have started another program since this was last asked, and a time (CLOCK_MONOTONIC) between the hits
    /// of the two, as far as they are the user door's.
    pub fn take_restarts(&mut self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.restarts)
    }

    /// To be called before a command that may have ended is waited for: afterwards nobody knows what it has started.
    pub fn note_ends(&mut self) {
        match &mut self.user {
            Some((session, _)) => session.note_ends(),
            None => self.missed_execs.note_ends(),
        }
    }

    /// Whether a traced process still lives, also one whose parents have ended.
    pub fn is_any_alive(&mut self) -> bool {
        // As long as a root lives, nobody asks for its family.
        if self.roots.iter().any(|root| nopal_proc::Process::is_alive(*root)) {
            return true;
        }
        match &mut self.user {
            Some((session, _)) => session.is_any_alive(),
            None => {
                self.drain_events();
                !self.options.without_children
                    && self.missed_execs.family().any(nopal_proc::Process::is_alive)
            }
        }
    }

    /// Closes every site in every process; hits that came before can still be polled, and the last news be taken.
    pub fn close(&mut self) -> Vec<String> {
        self.close_news();
        // Both doors end at the same moment.
        if let Some((session, _)) = &mut self.user {
            session.set_paused(true);
            self.span.end = monotonic_ns();
            let closed = session.closed_by_others().into_iter();
            self.pending.extend(closed.filter(|(_, probe, _)| *probe != FORBIDDING_PROBE).map(
                |(pid, probe, address)| {
                    News::Gap(format!(
                        "another tool has closed {probe} at {address:#x} in process {pid} just before the end; \
                         hits may be missing"
                    ))
                },
            ));
        }
        if let Some(kernel) = &mut self.kernel {
            self.handovers = Handovers::default();
            self.pending.extend(kernel.landed.look().iter().map(|gone| News::Gap(gone.to_string())));
            kernel.close();
        }
        // Once all are left nobody knows them any more.
        self.learn_writers();
        self.is_closed = true;
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
pub fn attach_when_free<S: Selection>(
    live: &mut Live<S>,
    pid: u32,
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<Opened>, LiveError> {
    let end = Instant::now() + WAIT_FOR_OTHERS;
    loop {
        match live.attach(pid) {
            Err(LiveError::User(nopal_user::Error::AlreadyTraced { name, .. }))
                if name == "nopal" && Instant::now() < end && !is_stopped() =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Every wanted site of the files a process maps, as the kernel door opens it.
fn wanted_in<S: Selection>(selection: &Mutex<S>, pid: u32) -> Result<Vec<Wanted>, TargetError> {
    Ok(wanted_in_objects(selection, &changeable_objects(pid)?))
}

fn wanted_in_objects<S: Selection>(selection: &Mutex<S>, objects: &[MappedObject]) -> Vec<Wanted> {
    objects.iter().flat_map(|mapped| wanted_in_file(selection, mapped).unwrap_or_default()).collect()
}

/// Fails only if the file cannot be opened; what is no ELF file has no sites.
fn wanted_in_file<S: Selection>(
    selection: &Mutex<S>,
    mapped: &MappedObject,
) -> Result<Vec<Wanted>, TargetError> {
    let known = lock(selection).places().known(mapped);
    let wanted = match known {
        Some(known) => known,
        None => match nopal_sdt::read(mapped.open()?.bytes()) {
            Ok(object) => lock(selection).select(mapped, &object),
            Err(_) => Vec::new(),
        },
    };
    let selection = lock(selection);
    let by_kernel = |wanted: Wanted| selection.places().get(wanted.event).map(|p| p.by_kernel.clone());
    Ok(wanted.into_iter().filter_map(by_kernel).collect())
}

/// Divides the sites of a process into those the user door opened and those it leaves to the kernel door.
fn divide<S: Selection>(
    selection: &Mutex<S>,
    pid: u32,
    sites: &[SiteReport],
) -> (Vec<Opened>, Vec<(Wanted, NotByUser)>) {
    let selection = lock(selection);
    let mut opened = Vec::new();
    let mut left = Vec::new();
    for site in sites {
        match &site.outcome {
            Ok(tactic) => opened.push(Opened {
                pid,
                probe: site.probe.clone(),
                path: site.path.clone(),
                address: site.site.address,
                way: Way::User(*tactic),
            }),
            Err(refusal) => {
                let place = selection.places().get(site.event);
                left.extend(place.map(|place| (place.by_kernel.clone(), NotByUser::Site(refusal.clone()))));
            }
        }
    }
    (opened, left)
}

fn open_user<S: Selection>(
    selection: &Arc<Mutex<S>>,
    options: &Options,
) -> Result<(Session, Reader), LiveError> {
    let n_cpus = possible_cpus().map_err(LiveError::Cpus)?;
    let mode = if options.is_overwriting { Mode::Overwrite } else { Mode::Discard };
    let (cells_bytes, sized) = (options.cells_bytes, RingConfig::sized(n_cpus, options.ring_bytes));
    let of_spans = options.n_spans * nopal_capture::span::BLOCK_BYTES;
    let span_slots = if options.n_spans > 0 { nopal_capture::span::SLOTS } else { 0 };
    let ring = RingConfig { mode, cells_bytes: cells_bytes.max(of_spans), span_slots, ..sized };
    let selection = selection.clone();
    let select = Box::new(move |mapped: &nopal_proc::MappedObject, object: &nopal_sdt::Object| {
        lock(&selection).select(mapped, object)
    });
    let Options { without_children, can_relocate, max_rings, .. } = *options;
    let other_door = if options.door == Door::Auto { by_kernel::can_open } else { || false };
    let options_of_session = session::Options { ring, max_rings, without_children, can_relocate, other_door };
    let mut session = Session::new(&options_of_session, select).map_err(LiveError::User)?;
    session.set_patient(options.is_patient);
    let reader = Reader::new(session.rings().clone());
    Ok((session, reader))
}

/// What the rings of a session take, of both doors, with so many rings of the user door; none if they cannot be so large.
pub fn memory_bytes(n_cpus: u32, ring_bytes: u64, max_rings: usize) -> Option<u64> {
    let by_user = RingLayout::plan(&RingConfig::sized(n_cpus, ring_bytes)).ok()?.total_bytes;
    by_user.checked_mul(max_rings as u64)?.checked_add(by_kernel::ring_bytes(ring_bytes))
}

/// The command was to be traced; without that it is not wanted.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Another nopal stops a process for a moment only, but a moment may be long where all CPUs are busy.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(10);

fn closed(pid: u32, wanted: &Wanted, user: NotByUser, kernel: Option<NotByKernel>) -> Opened {
    Opened {
        pid,
        probe: wanted.probe.clone(),
        path: PathBuf::new(),
        address: wanted.site.address,
        way: Way::Closed(Closed { user, kernel }),
    }
}

fn lock<S>(selection: &Mutex<S>) -> MutexGuard<'_, S> {
    // A panic elsewhere leaves it whole: it only ever grows.
    selection.lock().unwrap_or_else(PoisonError::into_inner)
}
