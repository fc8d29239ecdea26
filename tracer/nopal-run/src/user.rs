//! A script whose clauses run here: sites leave what they read, through whichever door.

use super::cells::{CellMaps, Cells};
use super::hits::Runner;
use super::perform::Performer;
use super::sites::ScriptSites;
use super::tasks::TaskCache;
use super::timers::Timers;
use super::tracer_hit::OwnHit;
use super::{
    Note, RunError, Step, full_maps, is_of_site, later_points, never_came, points_of, user_door_obstacle,
};
use nopal_live::tasks::Tasks;
use nopal_live::{
    self as live, BY_TRACEFS, Door, DoorOrder, Live, News, Opened, OrderWithin, Way, attach_when_free,
    late_in_words,
};
use nopal_proc::launch::Starting;
use nopal_program::captures::{Captures, is_order_free};
use nopal_program::interpret::Interpreter;
use nopal_program::{PointKind, Program};
use nopal_script::render::Form;
use nopal_trace::Verdict;
use nopal_trace::clock::{epoch_ns, monotonic_ns};
use std::cell::Cell;
use std::process::Child;
use std::sync::Arc;

/// How a script is to be run.
#[derive(Debug, Clone)]
pub struct UserOptions {
    /// `.d` files that name the arguments of probes.
    pub given: Vec<nopal_provider::File>,
    pub form: Form,
    /// Not the live descendants of a process.
    pub without_children: bool,
    pub can_relocate: bool,
    /// Per CPU.
    pub ring_bytes: u64,
    pub door: Door,
}

/// A script at work.
#[derive(Debug)]
pub struct UserRun {
    program: Arc<Program>,
    given: Vec<nopal_provider::File>,
    pub performer: Performer,
    interpreter: Interpreter,
    cells: Arc<Cells>,
    options: live::Options,
    /// Opened when there is somebody to trace.
    live: Option<Live<ScriptSites>>,
    /// Told already.
    is_by_tracefs: bool,
    tasks: Tasks,
    everyone: TaskCache,
    timers: Timers,
    needs: Captures,
    is_in_order: bool,
    door_order: DoorOrder,
    child: Option<Child>,
    opened: Vec<Opened>,
    notes: Vec<Note>,
    verdict: Verdict,
    start_ns: u64,
    seed: Cell<u64>,
    /// Hits the clauses ran for.
    pub n_hits: u64,
}

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
            .filter(|clause| clause.points.iter().any(|p| is_of_site(&p.kind)))
            .any(|clause| !is_order_free(&clause.code));
        let seed = super::tracer_hit::random() << 32 | super::tracer_hit::random();
        let interpreter = Interpreter::new(Arc::clone(&program), seed).map_err(RunError::Program)?;
        // What a child forked later adds to the same cells could not be told from the rest.
        let has_cells = !options.without_children && options.door != Door::Kernel;
        let cells = if has_cells { Cells::of(&program) } else { Cells::none(&program) };
        let start_ns = monotonic_ns();
        let is_patient = later_points(&program).next().is_some();
        Ok(UserRun {
            performer: Performer::new(Arc::clone(&program), options.form),
            timers: Timers::new(&program, start_ns),
            program,
            given: options.given,
            interpreter,
            options: live::Options {
                without_children: options.without_children,
                can_relocate: options.can_relocate,
                cells_bytes: cells.n_bytes,
                has_time: needs.needs_time || is_in_order,
                has_task: options.without_children,
                is_patient,
                ..live::Options::new(options.door, options.ring_bytes)
            },
            cells: Arc::new(cells),
            live: None,
            is_by_tracefs: false,
            tasks: Tasks::default(),
            everyone: TaskCache::new(),
            needs,
            is_in_order,
            door_order: DoorOrder::default(),
            child: None,
            opened: Vec::new(),
            notes: Vec::new(),
            verdict: Verdict::default(),
            start_ns,
            seed: Cell::new(seed | 1),
            n_hits: 0,
        })
    }

    /// Runs the BEGIN clauses.
    pub fn begin(&mut self) {
        self.start_ns = monotonic_ns();
        self.run_own(|kind| matches!(kind, PointKind::Begin));
        // The first second is over a second after what BEGIN has noted.
        self.timers = Timers::new(&self.program, monotonic_ns());
    }

    /// Runs the clauses for a signal that the tracer was sent.
    pub fn signalled(&mut self) {
        self.run_own(|kind| matches!(kind, PointKind::Signal));
    }

    /// Opens the doors, if they are not open yet.
    fn open(&mut self) -> Result<&mut Live<ScriptSites>, RunError> {
        let live = match self.live.take() {
            Some(live) => live,
            None => {
                let live::Options { has_time, has_task, .. } = self.options;
                let (program, cells) = (Arc::clone(&self.program), Arc::clone(&self.cells));
                let sites = ScriptSites::new(program, self.given.clone(), cells, has_time, has_task);
                Live::open(sites, self.options).map_err(RunError::Live)?
            }
        };
        Ok(self.live.insert(live))
    }

    /// Opens the sites of a process and of its live descendants. Another nopal that holds it is waited for.
    pub fn attach(&mut self, pid: u32, is_stopped: impl Fn() -> bool) -> Result<(), RunError> {
        for each in std::iter::once(pid).chain(nopal_proc::descendants(pid)) {
            self.performer.names.follow(each);
        }
        let opened = attach_when_free(self.open()?, pid, is_stopped).map_err(RunError::Live)?;
        self.keep(opened);
        self.learn();
        // Intervals count from when everything is open.
        self.timers = Timers::new(&self.program, monotonic_ns());
        Ok(())
    }

    /// Starts a command with its sites open.
    pub fn launch<'a>(&mut self, command: impl Into<Starting<'a>>) -> Result<(), RunError> {
        self.open()?;
        let (Some(live), names) = (&mut self.live, &mut self.performer.names) else { return Ok(()) };
        let before_start = |pid| {
            // It may have ended when its addresses are to be named.
            names.follow(pid);
            names.remember(pid);
        };
        let (child, opened) = live.launch_with(command, before_start).map_err(RunError::Live)?;
        self.child = Some(child);
        self.keep(opened);
        self.learn();
        // Intervals count from when everything is open.
        self.timers = Timers::new(&self.program, monotonic_ns());
        Ok(())
    }

    /// How each site was opened, so far.
    pub fn opened(&self) -> &[Opened] {
        &self.opened
    }

    /// How sites were opened.
    fn keep(&mut self, opened: Vec<Opened>) {
        for opened in opened {
            if let Way::Closed(reason) = &opened.way {
                self.gap(format!(
                    "{} at {:#x} in process {} is not open, its hits are missing: {reason}",
                    opened.probe, opened.address, opened.pid
                ));
            }
            if !self.is_by_tracefs && matches!(opened.way, Way::Kernel { is_by_tracefs: true, .. }) {
                self.is_by_tracefs = true;
                self.notes.push(Note::Gap(BY_TRACEFS.to_owned()));
            }
            self.opened.push(opened);
        }
    }

    /// Takes what is known of sites and processes by now.
    fn learn(&mut self) {
        let Some(live) = &self.live else { return };
        self.tasks.learn(&live.tasks);
        let mut sites = live.selection();
        let notes = std::mem::take(&mut sites.notes);
        let met = std::mem::take(&mut sites.met);
        drop(sites);
        for note in notes {
            match note {
                // What was asked for and is not open is missing.
                Note::Gap(text) => self.gap(text),
                detail @ Note::Detail(_) => self.notes.push(detail),
            }
        }
        if !met.is_empty() {
            self.everyone.refresh();
        }
        met.into_iter().for_each(|pid| self.performer.names.remember(pid));
    }

    fn gap(&mut self, text: String) {
        self.verdict.gap(epoch_ns(monotonic_ns()), &text);
        self.notes.push(Note::Gap(text));
    }

    /// Takes what has come since the last time, and runs what is due.
    pub fn step(&mut self) -> Step {
        if self.performer.is_over() {
            return Step::Over;
        }
        if let Some(live) = &mut self.live
            && live.is_look_due()
        {
            let news = live.look_after();
            self.everyone.look();
            self.performer.names.catch_up();
            self.tell(news);
        }
        let n_hits = self.poll(false);
        let (mut is_due, now_ns) = (false, monotonic_ns());
        self.timers.catch_up(now_ns);
        while let Some((clause, point, at_ns)) = self.timers.due(now_ns)
            && !self.performer.is_over()
        {
            is_due = true;
            self.run_at(clause, point, at_ns);
        }
        if self.performer.is_over() {
            return Step::Over;
        }
        if n_hits > 0 || is_due {
            return Step::Busy;
        }
        if let Some(live) = &mut self.live {
            live.note_ends();
        }
        if let Some(child) = &mut self.child {
            // A child of ours stays a zombie until it is reaped.
            let _ = child.try_wait();
        }
        match &mut self.live {
            Some(live) => match (live.is_any_alive(), live.has_news()) {
                (true, _) => Step::Idle,
                // What is missing is told before the end.
                (false, true) => Step::Busy,
                (false, false) => Step::Over,
            },
            None => Step::Idle,
        }
    }

    /// Until when nothing is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Closes every site, takes what is left, runs the END clauses. Returns what could not be restored.
    pub fn finish(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        if let Some(live) = &mut self.live {
            failures = live.close();
            let news = live.take_news();
            self.tell(news);
        }
        self.poll(true);
        self.performer.spans.close();
        self.notes.push(Note::Detail(format!("{} hits were sent", self.n_hits)));
        // END runs also after exit(), which it may call again.
        let exit = self.performer.exit.take();
        self.run_own(|kind| matches!(kind, PointKind::End));
        self.performer.exit = self.performer.exit.or(exit);
        failures
    }

    /// Ends the command that was started, if it still runs.
    pub fn end_command(&mut self) {
        if let Some(child) = &mut self.child {
            crate::end(child);
        }
    }

    /// Prints every map, as at the end of a script.
    pub fn print_maps(&mut self) {
        let ring = self.live.as_ref().and_then(Live::ring);
        let maps = &mut self.interpreter.maps;
        self.performer.print_maps(&mut CellMaps { maps, cells: &self.cells, ring });
    }

    /// The rows of an answer.
    pub fn rows(&mut self) -> Vec<u8> {
        let ring = self.live.as_ref().and_then(Live::ring);
        let maps = &mut self.interpreter.maps;
        self.performer.rows(&mut CellMaps { maps, cells: &self.cells, ring })
    }

    /// What is missing so far.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = self.verdict.clone();
        verdict.full_maps = full_maps(&self.program, &self.interpreter.maps);
        verdict.full_maps.extend(self.performer.series.full());
        verdict.n_endless = self.interpreter.n_endless;
        verdict.n_ticks = self.timers.n_missed;
        verdict.n_late += self.live.as_ref().map_or(0, |live| live.n_unseen() as u64);
        verdict
    }

    /// Names of probes that were to come later, and never came.
    pub fn never_came(&self) -> Vec<String> {
        let came = self.live.as_ref().map(|live| live.selection().came.clone()).unwrap_or_default();
        never_came(&self.program, &came)
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn run_own(&mut self, is_wanted: impl Fn(&PointKind) -> bool) {
        for (clause, point) in points_of(&self.program, is_wanted) {
            self.run_at(clause, point, monotonic_ns());
        }
    }

    /// Clause, number and kind of points.
    pub(crate) fn own_points(&self, is_wanted: impl Fn(&PointKind) -> bool) -> Vec<(u32, u32, PointKind)> {
        let kind = |clause: u32, point: u32| {
            self.program.clauses[clause as usize].points[point as usize].kind.clone()
        };
        let points = points_of(&self.program, is_wanted);
        points.into_iter().map(|(clause, point)| (clause, point, kind(clause, point))).collect()
    }

    pub(crate) fn run_at(&mut self, clause: u32, point: u32, ns: u64) {
        let hit = OwnHit::new(ns, self.start_ns);
        let ring = self.live.as_ref().and_then(Live::ring);
        let (performer, cells) = (&mut self.performer, &self.cells);
        performer.begin_hit();
        self.interpreter.run(clause, point, &hit, |maps, emitted| {
            performer.perform(&mut CellMaps { maps, cells, ring }, emitted.action, emitted.payload)
        });
    }

    /// Runs the clauses of what has come; how many hits there were.
    fn poll(&mut self, is_last: bool) -> u64 {
        let Some(live) = &mut self.live else { return 0 };
        self.performer.spans.restarts(live.take_restarts());
        let order_within = match self.performer.spans.is_any_by_key() {
            true => OrderWithin::Process,
            false => OrderWithin::Thread,
        };
        let mut runner = Runner {
            interpreter: &mut self.interpreter,
            performer: &mut self.performer,
            cells: &self.cells,
            ring: live.ring().cloned(),
            tasks: &mut self.tasks,
            everyone: &mut self.everyone,
            needs: &self.needs,
            start_ns: self.start_ns,
            seed: &self.seed,
            n_hits: &mut self.n_hits,
            n_cut: &mut self.verdict.n_cut,
            door_order: &mut self.door_order,
            doubt_ns: live.door_doubt_ns().filter(|_| self.is_in_order),
            order_within,
        };
        let polled = match self.is_in_order {
            true => live.poll_by_time(is_last, &mut runner),
            false => live.poll_into(&mut runner),
        };
        polled.count(&mut self.verdict);
        self.verdict.n_unordered += self.door_order.take().n_unordered;
        polled.n_hits
    }

    fn tell(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Opened(opened) => self.keep(opened),
                News::Gap(text) => self.gap(text),
                News::NotFollowed { pid, error } => {
                    self.gap(format!("process {pid} could not be followed: {error}"));
                }
                News::Late { pid, n_sites } => {
                    self.verdict.n_late += 1;
                    self.notes.push(Note::Detail(late_in_words(pid, n_sites)));
                }
                News::Message(text) => self.notes.push(Note::Detail(text)),
            }
        }
        self.learn();
    }
}
