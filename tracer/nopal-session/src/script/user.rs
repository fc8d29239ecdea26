//! A script through the user door: sites leave what its clauses read, and the clauses run here.

use super::aside::{Aside, Left};
use super::cells::{CellMaps, Cells};
use super::chosen::{Plan, left_in, lock, refused, refused_in};
use super::hits::{Runner, Waiting};
use super::own::OwnHit;
use super::perform::Performer;
use super::tasks::Everyone;
use super::timers::Timers;
use super::{Losses, Note, RunError, Step, points_of, user_door_obstacle};
use crate::clock::{Anchor, TscClock, is_tsc_steady};
use crate::live::follow::{UNTOLD, impatient_in_words};
use crate::live::{BY_TRACEFS, LiveError, Opened, Way, late_in_words};
use crate::tasks::Tasks;
use nopal_capture::Task;
use nopal_capture::record::RecordKind;
use nopal_engine::target::{self, MappedObject, possible_cpus};
use nopal_engine::user;
use nopal_engine::user::consumer::{Reader, any_has_thread};
use nopal_engine::user::launch::Starting;
use nopal_engine::user::libraries::{LIBRARY_PROBE, Libraries};
use nopal_engine::user::ring::RingConfig;
use nopal_engine::user::session::{Options, ProcessReport, Session, SiteReport};
use nopal_engine::user::watch::Notice;
use nopal_program::captures::{Captures, is_order_free};
use nopal_program::interpret::Interpreter;
use nopal_program::{PointKind, Program};
use nopal_script::render::Form;
use nopal_trace::clock::monotonic_ns;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How the user door is to be used.
#[derive(Debug, Clone)]
pub struct UserOptions {
    /// `.d` files that name the arguments of probes.
    pub given: Vec<nopal_provider::File>,
    pub form: Form,
    /// Not the live descendants of a process.
    pub is_only: bool,
    pub can_relocate: bool,
    /// Per CPU.
    pub ring_bytes: u64,
    /// What the user door cannot open is the kernel door's, where that is permitted.
    pub has_kernel: bool,
    /// The user door opens nothing.
    pub is_kernel_alone: bool,
}

/// A script at work.
#[derive(Debug)]
pub struct UserRun {
    program: Arc<Program>,
    pub performer: Performer,
    interpreter: Interpreter,
    plan: Arc<Mutex<Plan>>,
    cells: Arc<Cells>,
    options: Options,
    /// Opened when there is somebody to trace.
    door: Option<Door>,
    aside: Aside,
    is_kernel_alone: bool,
    /// Told already.
    is_by_tracefs: bool,
    tasks: Tasks,
    everyone: Everyone,
    timers: Timers,
    needs: Captures,
    is_in_order: bool,
    waiting: Waiting,
    child: Option<Child>,
    roots: Vec<u32>,
    entered: HashSet<u32>,
    opened: Vec<Opened>,
    notes: Vec<Note>,
    losses: Losses,
    start_ns: u64,
    /// When hits of the kernel door count: as long as the user door is open.
    span: std::ops::Range<u64>,
    seed: Cell<u64>,
    last_look: Instant,
    /// Hits the clauses ran for.
    pub n_hits: u64,
}

/// The user door, open.
#[derive(Debug)]
struct Door {
    session: Session,
    reader: Reader,
    clock: TscClock,
}

/// So long a program in the kernel may take from its time to the end of its record.
const KERNEL_LAG_NS: u64 = 2_000_000;

/// Bytes that others change must be noticed within 100 ms.
const LOOK: Duration = Duration::from_millis(50);

impl UserRun {
    pub fn new(program: Arc<Program>, options: UserOptions) -> Result<UserRun, RunError> {
        if let Some(why) = user_door_obstacle(&program) {
            return Err(RunError::Unable(why));
        }
        let mut needs = Captures::default();
        program.clauses.iter().for_each(|clause| needs.join(&Captures::of(&clause.code)));
        let is_in_order = program
            .clauses
            .iter()
            .filter(|clause| clause.points.iter().any(|p| matches!(p.kind, PointKind::Usdt { .. })))
            .any(|clause| !is_order_free(&clause.code));
        let seed = super::own::random() << 32 | super::own::random();
        let interpreter = Interpreter::new(Arc::clone(&program), seed).map_err(RunError::Program)?;
        // What a child forked later adds to the same cells could not be told from the rest.
        let cells = Arc::new(if options.is_only { Cells::none(&program) } else { Cells::of(&program) });
        let plan = Arc::new(Mutex::new(Plan {
            program: Arc::clone(&program),
            given: options.given,
            cells: Arc::clone(&cells),
            inodes: HashMap::new(),
            by_file: HashMap::new(),
            events: Vec::new(),
            has_time: needs.needs_time || is_in_order,
            has_task: options.is_only,
            notes: Vec::new(),
        }));
        let n_cpus = possible_cpus().map_err(|e| RunError::Live(LiveError::Cpus(e)))?;
        let ring = RingConfig { cells_bytes: cells.n_bytes, ..RingConfig::sized(n_cpus, options.ring_bytes) };
        let engine = Options { ring, is_only: options.is_only, can_relocate: options.can_relocate };
        let start_ns = monotonic_ns();
        Ok(UserRun {
            performer: Performer::new(Arc::clone(&program), options.form),
            timers: Timers::new(&program, start_ns),
            program,
            interpreter,
            plan,
            cells,
            options: engine,
            door: None,
            is_kernel_alone: options.is_kernel_alone,
            is_by_tracefs: false,
            aside: Aside::new(
                options.has_kernel || options.is_kernel_alone,
                options.ring_bytes,
                options.is_only,
            ),
            tasks: Tasks::default(),
            everyone: Everyone::new(),
            needs,
            is_in_order,
            waiting: Waiting::default(),
            child: None,
            roots: Vec::new(),
            entered: HashSet::new(),
            opened: Vec::new(),
            notes: Vec::new(),
            losses: Losses::default(),
            start_ns,
            span: 0..u64::MAX,
            seed: Cell::new(seed | 1),
            last_look: Instant::now(),
            n_hits: 0,
        })
    }

    /// Runs the BEGIN clauses.
    pub fn begin(&mut self) {
        self.start_ns = monotonic_ns();
        self.timers = Timers::new(&self.program, self.start_ns);
        self.run_own(|kind| matches!(kind, PointKind::Begin));
    }

    /// Opens the door, if it is not open yet.
    fn open(&mut self) -> Result<(), RunError> {
        if self.door.is_none() {
            if !is_tsc_steady() {
                return Err(RunError::Live(LiveError::UnsteadyTsc));
            }
            let (chooser, is_nothing) = (Arc::clone(&self.plan), self.is_kernel_alone);
            let select =
                Box::new(
                    move |mapped: &MappedObject, object: &nopal_sdt::Object| {
                        if is_nothing { Vec::new() } else { lock(&chooser).select(mapped, object) }
                    },
                );
            if self.is_kernel_alone {
                self.aside.try_open().map_err(RunError::Live)?;
            }
            let session =
                Session::new(&self.options, select).map_err(|e| RunError::Live(LiveError::User(e)))?;
            let reader = Reader::new(session.ring().clone());
            self.door = Some(Door { session, reader, clock: TscClock::start() });
        }
        Ok(())
    }

    /// Opens the sites of a process and of its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<(), RunError> {
        self.open()?;
        for each in std::iter::once(pid).chain(target::descendants(pid)) {
            self.performer.names.follow(each);
        }
        if self.is_kernel_alone {
            let left = left_in(&self.plan, pid).map_err(|e| RunError::Live(LiveError::Target(e)))?;
            self.roots.push(pid);
            self.tasks.add(pid);
            self.performer.names.remember(pid);
            let opened = self.aside.open(pid, left);
            self.keep(opened);
            return Ok(());
        }
        let Some(door) = &mut self.door else { return Ok(()) };
        // Both doors begin at the same moment.
        let is_first = self.roots.is_empty();
        door.session.set_paused(is_first);
        let reports = door.session.attach(pid as i32).map_err(|e| RunError::Live(LiveError::User(e)))?;
        self.roots.push(pid);
        self.take_reports(reports);
        if is_first && let Some(door) = &mut self.door {
            self.span.start = monotonic_ns();
            door.session.set_paused(false);
        }
        Ok(())
    }

    /// Starts a command with its sites open.
    pub fn launch<'a>(&mut self, command: impl Into<Starting<'a>>) -> Result<(), RunError> {
        self.open()?;
        let (Some(door), names) = (&mut self.door, &mut self.performer.names) else { return Ok(()) };
        let (aside, plan, is_kernel_alone) = (&mut self.aside, &self.plan, self.is_kernel_alone);
        let mut by_kernel = Vec::new();
        let before_start = |pid: i32, sites: &[SiteReport]| {
            // It may have ended when its addresses are to be named.
            names.follow(pid as u32);
            names.remember(pid as u32);
            let left = match is_kernel_alone {
                true => left_in(plan, pid as u32).unwrap_or_default(),
                false => refused(plan, sites),
            };
            by_kernel = aside.open(pid as u32, left);
        };
        let (child, reports) = door
            .session
            .launch_with(command, before_start)
            .map_err(|e| RunError::Live(LiveError::User(e)))?;
        // It was held: from here on it loads nothing without our knowing, if it can be made to tell.
        if matches!(door.session.libraries(child.id() as i32), Libraries::AtOnce(_)) {
            self.entered.insert(child.id());
        }
        self.roots.push(child.id());
        self.child = Some(child);
        self.take_open(reports);
        self.keep(by_kernel);
        Ok(())
    }

    /// How each site was opened, so far.
    pub fn opened(&self) -> &[Opened] {
        &self.opened
    }

    /// Takes what the user door says of processes; what it left is the kernel door's.
    fn take_reports(&mut self, reports: Vec<ProcessReport>) {
        let left: Vec<(u32, Vec<Left>)> =
            reports.iter().map(|report| (report.pid as u32, refused_in(&self.plan, report))).collect();
        self.take_open(reports);
        for (pid, left) in left {
            let opened = self.aside.open(pid, left);
            self.keep(opened);
        }
    }

    /// How the kernel door opened what it was to open.
    fn keep(&mut self, opened: Vec<Opened>) {
        for opened in opened {
            if let Way::Closed(reason) = &opened.way {
                self.losses.n_gaps += 1;
                self.notes.push(Note::Gap(format!(
                    "{} at {:#x} in process {} is not open, its hits are missing: {reason}",
                    opened.probe, opened.address, opened.pid
                )));
            }
            if !self.is_by_tracefs
                && matches!(&opened.way, Way::Kernel(reason) if reason.contains(BY_TRACEFS))
            {
                self.is_by_tracefs = true;
                self.notes.push(Note::Gap(BY_TRACEFS.to_owned()));
            }
            self.opened.push(opened);
        }
    }

    fn take_open(&mut self, reports: Vec<ProcessReport>) {
        for report in reports {
            let pid = report.pid as u32;
            self.tasks.add(pid);
            self.performer.names.remember(pid);
            match report.outcome {
                Ok(sites) => {
                    if !sites.is_empty() {
                        self.entered.insert(pid);
                    }
                    for site in sites {
                        if let Ok(tactic) = &site.outcome {
                            self.opened.push(Opened {
                                pid,
                                way: Way::User(tactic.to_string()),
                                probe: site.probe,
                                path: site.path,
                                address: site.site.address,
                            });
                        }
                    }
                }
                Err(error) => {
                    self.gap(format!("process {pid} could not be entered: {error}"));
                }
            }
        }
        self.notes.append(&mut lock(&self.plan).notes);
    }

    fn gap(&mut self, text: String) {
        self.losses.n_gaps += 1;
        self.notes.push(Note::Gap(text));
    }

    /// Takes what has come since the last time, and runs what is due.
    pub fn step(&mut self) -> Step {
        if self.performer.is_over() {
            return Step::Over;
        }
        let has_news = self.door.as_mut().is_some_and(|door| door.session.has_news());
        if has_news || self.last_look.elapsed() >= LOOK {
            self.last_look = Instant::now();
            self.everyone.look();
            self.performer.names.catch_up();
            let notices = self.door.as_mut().map_or_else(Vec::new, |door| door.session.look_after());
            self.digest(notices);
        }
        let n_records = self.poll(false);
        self.follow_libraries();
        let mut is_due = false;
        while let Some((clause, point, at_ns)) = self.timers.due(monotonic_ns(), true) {
            is_due = true;
            self.run_at(clause, point, at_ns);
        }
        if self.performer.is_over() {
            return Step::Over;
        }
        if n_records > 0 || is_due {
            return Step::Busy;
        }
        if !self.roots.is_empty() && !self.is_any_alive() {
            let has_news = self.door.as_mut().is_some_and(|door| door.session.has_news());
            // What is missing is told before the end.
            return if has_news { Step::Busy } else { Step::Over };
        }
        Step::Idle
    }

    /// Threads that have loaded a library wait for us, so long: its sites are opened by either door, then they go on.
    fn follow_libraries(&mut self) {
        let Some(door) = &mut self.door else { return };
        let n_impatient = door.session.take_impatient();
        if door.session.has_library_news() {
            let notices = door.session.follow_libraries();
            self.digest(notices);
            if let Some(door) = &self.door {
                door.session.release();
            }
        }
        if n_impatient > 0 {
            self.gap(impatient_in_words(n_impatient));
        }
    }

    /// Until when nothing is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    fn is_any_alive(&mut self) -> bool {
        if let Some(child) = &mut self.child {
            // A child of ours stays a zombie until it is reaped.
            let _ = child.try_wait();
        }
        let is_any = self
            .roots
            .iter()
            .flat_map(|root| std::iter::once(*root).chain(target::descendants(*root)))
            .any(target::Process::is_alive);
        is_any || self.door.as_mut().is_some_and(|door| door.session.is_any_alive())
    }

    /// Closes every site, takes what is left, runs the END clauses. Returns what could not be restored.
    pub fn finish(&mut self) -> Vec<String> {
        // And end so, too.
        if let Some(door) = &mut self.door {
            door.session.set_paused(true);
            self.span.end = monotonic_ns();
        }
        self.aside.close();
        let words = self.door.as_mut().map(|door| door.session.last_words()).unwrap_or_default();
        self.losses.n_late += words.unseen.len() as u64;
        let late = words.unseen.into_iter().map(|pid| Note::Detail(late_in_words(pid, 0)));
        self.notes.extend(late);
        if words.is_untold {
            self.gap(UNTOLD.to_owned());
        }
        if words.n_impatient > 0 {
            self.gap(impatient_in_words(words.n_impatient));
        }
        let failures = self.door.as_mut().map_or_else(Vec::new, |door| door.session.detach().failures);
        self.poll(true);
        self.notes.push(Note::Detail(format!("{} hits were sent", self.n_hits)));
        // END runs also after exit(), which it may call again.
        let exit = self.performer.exit.take();
        self.run_own(|kind| matches!(kind, PointKind::End));
        self.performer.exit = self.performer.exit.or(exit);
        failures.into_iter().map(|(pid, why)| format!("process {pid}: {why}")).collect()
    }

    /// Prints every map, as at the end of a script.
    pub fn print_maps(&mut self) {
        let ring = self.door.as_ref().map(|door| door.session.ring());
        let maps = &mut self.interpreter.maps;
        self.performer.print_maps(&mut CellMaps { maps, cells: &self.cells, ring });
    }

    /// The rows of an answer.
    pub fn rows(&mut self) -> Vec<u8> {
        let ring = self.door.as_ref().map(|door| door.session.ring());
        let maps = &mut self.interpreter.maps;
        self.performer.rows(&mut CellMaps { maps, cells: &self.cells, ring })
    }

    pub fn losses(&self) -> Losses {
        let mut losses = self.losses.clone();
        losses.add_maps(&self.program, &self.interpreter.maps);
        losses.n_endless = self.interpreter.n_endless;
        losses
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn run_own(&mut self, is_wanted: impl Fn(&PointKind) -> bool) {
        for (clause, point) in points_of(&self.program, is_wanted) {
            self.run_at(clause, point, monotonic_ns());
        }
    }

    fn run_at(&mut self, clause: u32, point: u32, ns: u64) {
        let hit = OwnHit::new(ns, self.start_ns);
        let ring = self.door.as_ref().map(|door| door.session.ring());
        let (performer, cells) = (&mut self.performer, &self.cells);
        self.interpreter.run(clause, point, &hit, |maps, emitted| {
            performer.perform(&mut CellMaps { maps, cells, ring }, emitted.action, emitted.payload);
        });
    }

    /// Reads the rings and runs the clauses; how many records there were.
    fn poll(&mut self, is_last: bool) -> u64 {
        let Some(Door { session, reader, clock }) = &mut self.door else { return 0 };
        let pids: Vec<i32> = session.processes().iter().map(|t| t.pid).collect();
        reader.set_liveness(move |tid| any_has_thread(&pids, tid));
        if clock.is_due() {
            clock.correct(Anchor::now());
        }
        // What a CPU commits from now on has a later time than this.
        let before_ns = monotonic_ns();
        let plan = lock(&self.plan);
        let (clock, waiting, is_in_order) = (&*clock, &mut self.waiting, self.is_in_order);
        let (span, is_only) = (&self.span, self.options.is_only);
        let mut runner = Runner {
            interpreter: &mut self.interpreter,
            performer: &mut self.performer,
            cells: &self.cells,
            ring: session.ring(),
            tasks: &mut self.tasks,
            everyone: &mut self.everyone,
            needs: &self.needs,
            start_ns: self.start_ns,
            seed: &self.seed,
            n_hits: &mut self.n_hits,
            n_cut: &mut self.losses.n_cut,
        };
        let polled = reader.poll(|source, record| {
            let task = record.task.unwrap_or(Task { tid: 0, pid: 0 });
            if is_only && !runner.tasks.knows(task.pid) {
                // A child that was forked later has the sites of its parent.
                return;
            }
            let event = match record.kind {
                RecordKind::Event(event) => event,
                RecordKind::Process => {
                    if record.task.is_some() {
                        runner.everyone.introduce(task, &record.comm());
                    }
                    return;
                }
            };
            let ns = record.time.map_or(0, |time| clock.ns(time));
            if is_in_order {
                waiting.keep(ns, event, source.cpu, task, record.payload);
            } else {
                runner.hit(&plan, event, ns, source.cpu, task, record.payload);
            }
        });
        let mut n_records = polled.records;
        let lost = self.aside.poll(|hit| {
            if !span.contains(&hit.ns) {
                return;
            }
            n_records += 1;
            if is_in_order {
                waiting.keep(hit.ns, hit.event, hit.stream.cpu, hit.task, hit.payload);
            } else {
                runner.hit(&plan, hit.event, hit.ns, hit.stream.cpu, hit.task, hit.payload);
            }
        });
        // The kernel's programs take the time before they hand over what they saw.
        let before_ns =
            if self.aside.is_open() { before_ns.saturating_sub(KERNEL_LAG_NS) } else { before_ns };
        if is_in_order && !waiting.hits.is_empty() {
            waiting.hits.sort_by_key(|kept| kept.ns);
            let n_ready = match is_last {
                true => waiting.hits.len(),
                false => waiting.hits.partition_point(|kept| kept.ns < before_ns),
            };
            for kept in &waiting.hits[..n_ready] {
                let payload = &waiting.bytes[kept.at..kept.at + kept.len];
                runner.hit(&plan, kept.event, kept.ns, kept.cpu, kept.task, payload);
            }
            waiting.forget(n_ready);
        }
        drop(plan);
        let n_damaged = polled.damaged + polled.abandoned;
        self.losses.n_lost += n_damaged;
        let by_user = polled.gaps.iter().map(|gap| (gap.count, clock.ns(gap.first), clock.ns(gap.last)));
        let by_kernel = lost.iter().map(|loss| (loss.count, loss.first_ns, loss.last_ns));
        for (count, first, last) in by_user.chain(by_kernel) {
            self.losses.n_lost += count;
            self.losses.span = Some(match self.losses.span {
                Some((from, to)) => (from.min(first), to.max(last)),
                None => (first, last),
            });
        }
        n_records
    }

    fn digest(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::TakenOver { probe, .. } if probe == LIBRARY_PROBE => {}
                Notice::TakenOver { pid, probe, address, event } => {
                    let left = event.and_then(|event| lock(&self.plan).left(event, String::new()));
                    let shared = left.map_or(Err("the site is not known".to_owned()), |left| {
                        self.aside.share(pid as u32, &left)
                    });
                    let what = format!("another tool took over {probe} at {address:#x} in process {pid}");
                    self.gap(match shared {
                        Ok(()) => format!(
                            "{what}; the kernel door has it from now on, hits of at most {} ms are missing",
                            2 * LOOK.as_millis()
                        ),
                        Err(why) => format!("{what}; its hits are missing from now on ({why})"),
                    });
                }
                Notice::OpenAgain { pid, probe, address, was_taken_over } => {
                    let what = format!("{probe} at {address:#x} in process {pid} is open again");
                    match was_taken_over || probe == LIBRARY_PROBE {
                        true => self.notes.push(Note::Detail(what)),
                        false => self.gap(format!("{what}; hits of at most {} ms are missing", 2 * LOOK.as_millis())),
                    }
                }
                Notice::Changed { pid, probe, address, .. } => self.gap(format!(
                    "the code of {probe} at {address:#x} in process {pid} was changed by somebody else; left alone"
                )),
                Notice::Opened(report) => {
                    let pid = report.pid;
                    let is_known = self.entered.contains(&(pid as u32));
                    let is_at_once =
                        is_known && !report.is_late && self.door.as_mut().is_some_and(|door| matches!(door.session.libraries(pid), Libraries::AtOnce(_)));
                    let n_sites = match &report.outcome {
                        Ok(sites) if sites.is_empty() || is_at_once => None,
                        Ok(sites) => Some(sites.len()),
                        Err(user::Error::EndedEarly { .. }) => Some(0),
                        Err(_) => None,
                    };
                    if let Some(n_sites) = n_sites {
                        self.losses.n_late += 1;
                        self.notes.push(Note::Detail(late_in_words(pid as u32, n_sites)));
                    }
                    if n_sites != Some(0) {
                        self.take_reports(vec![report]);
                    }
                }
                Notice::Exec { pid } => {
                    self.entered.remove(&(pid as u32));
                    self.everyone.refresh();
                    self.notes.push(Note::Detail(format!("process {pid} started another program")));
                }
                Notice::Untold => self.gap(UNTOLD.to_owned()),
                Notice::Ended { pid } => {
                    self.notes.push(Note::Detail(format!("process {pid} has ended")));
                }
            }
        }
    }
}
