//! A script in the kernel: what it emits is performed here, its maps are read when they are printed.

use super::perform::{MapAccess, Performer};
use super::{Note, RunError, Step, later_points, never_came};
use nopal_kernel::script::{Attached, ScriptDoor, ScriptError, ScriptOptions, State};
use nopal_live::{LiveError, late_in_words};
use nopal_proc::launch::{self, Starting};
use nopal_proc::missed_execs::MissedExecs;
use nopal_proc::{FileId, MappedObject, changeable_objects, mapped_objects};
use nopal_program::interpret::Table;
use nopal_program::{PointKind, Program};
use nopal_script::render::{Entry, Form};
use nopal_trace::Verdict;
use nopal_trace::clock::{epoch_ns, monotonic_ns};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A script at work in the kernel.
#[derive(Debug)]
pub struct KernelRun {
    program: Arc<Program>,
    pub performer: Performer,
    door: ScriptDoor,
    child: Option<Child>,
    roots: Vec<u32>,
    /// By process: the files it maps code of.
    seen: HashMap<u32, Vec<FileId>>,
    /// Whether code that processes map later may be wanted, whichever it is.
    has_later: bool,
    /// Points for files mapped later that have sites.
    came: HashSet<(u32, u32)>,
    /// By process: files with probes that it has mapped since it was looked at, and may have unmapped again.
    loaded: HashMap<u32, Vec<MappedObject>>,
    /// Tells who was forked, also by whom has ended since.
    missed_execs: MissedExecs,
    without_children: bool,
    attached: Vec<Attached>,
    notes: Vec<Note>,
    verdict: Verdict,
    last_look: Instant,
    /// By map: the durations of spans, which are paired here.
    durations: Vec<Option<Table>>,
    /// What was lost when that was last asked.
    n_lost: u64,
}

/// How often new children and libraries are looked for.
const LOOK: Duration = Duration::from_millis(50);

impl KernelRun {
    pub fn new(
        program: Arc<Program>,
        given: Vec<nopal_provider::File>,
        form: Form,
        ring_bytes: u64,
        without_children: bool,
    ) -> Result<KernelRun, RunError> {
        let options = ScriptOptions {
            ring_bytes: ring_bytes as usize,
            start_ns: monotonic_ns(),
            follows_children: !without_children,
            given,
            ..ScriptOptions::default()
        };
        let door = ScriptDoor::open(&program, &options).map_err(RunError::Kernel)?;
        let has_later = later_points(&program).next().is_some();
        let of_span = |map: usize| program.spans.iter().any(|span| span.map as usize == map);
        let table = |(map, def)| if of_span(map) { Some(Table::new(def, 1, 0)) } else { None };
        let durations = program.maps.iter().enumerate().map(table).collect();
        Ok(KernelRun {
            performer: Performer::new(Arc::clone(&program), form),
            has_later,
            came: HashSet::new(),
            program,
            door,
            child: None,
            roots: Vec::new(),
            seen: HashMap::new(),
            loaded: HashMap::new(),
            missed_execs: MissedExecs::default(),
            without_children,
            attached: Vec::new(),
            notes: Vec::new(),
            verdict: Verdict::default(),
            last_look: Instant::now(),
            durations,
            n_lost: 0,
        })
    }

    /// The instructions of every clause, for people.
    pub fn listing(&self) -> String {
        self.door.listing()
    }

    /// Runs the BEGIN clauses.
    pub fn begin(&mut self) -> Result<(), RunError> {
        self.door.run(&PointKind::Begin).map_err(RunError::Kernel)?;
        self.poll();
        Ok(())
    }

    /// Runs the clauses for a signal that the tracer was sent.
    pub fn signalled(&mut self) -> Result<(), RunError> {
        self.door.run(&PointKind::Signal).map_err(RunError::Kernel)?;
        self.poll();
        Ok(())
    }

    /// Attaches what is in the kernel itself: tracepoints, timers, counters.
    pub fn attach_events(&mut self) -> Result<(), RunError> {
        let attached = self.door.attach_events().map_err(RunError::Kernel)?;
        self.keep(attached);
        Ok(())
    }

    /// Attaches to a process and its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<(), RunError> {
        nopal_proc::Process::read(pid).map_err(|e| RunError::Live(LiveError::Target(e)))?;
        self.roots.push(pid);
        self.performer.names.follow(pid);
        self.missed_execs.follow(pid);
        if !self.without_children {
            nopal_proc::descendants(pid).into_iter().for_each(|each| self.missed_execs.follow(each));
        }
        self.attach_one(pid, Vec::new())?;
        if self.without_children {
            return Ok(());
        }
        // Twice: what is being forked meanwhile can be seen a moment later, if it has nothing from its parent.
        for _ in 0..2 {
            for child in nopal_proc::descendants(pid) {
                if !self.seen.contains_key(&child) {
                    self.performer.names.follow(child);
                    // An error is a process that has gone meanwhile.
                    let attached = self.attach_one(child, Vec::new());
                    if attached.is_err() && is_alive(child) {
                        attached?;
                    }
                }
            }
            self.door.settle();
        }
        Ok(())
    }

    /// Attaches to files, in every process.
    pub fn attach_files(&mut self) -> Result<(), RunError> {
        let attached = self.door.attach_files().map_err(RunError::Kernel)?;
        self.keep(attached);
        Ok(())
    }

    /// Starts a command with its points attached before it runs.
    pub fn launch<'a>(&mut self, command: impl Into<Starting<'a>>) -> Result<(), RunError> {
        let (door, names) = (&mut self.door, &mut self.performer.names);
        let missed_execs = &mut self.missed_execs;
        let (child, (attached, files)) = launch::launch(command, |pid| {
            let pid = pid as u32;
            // It may have ended when its addresses are to be named.
            names.follow(pid);
            names.remember(pid);
            missed_execs.follow(pid);
            // What counts as seen must be what was looked at: it runs on before this call has ended.
            let objects = changeable_objects(pid).map_err(ScriptError::Target).map_err(RunError::Kernel)?;
            let files = objects.iter().filter_map(MappedObject::file).collect::<Vec<_>>();
            let attached = door.attach_with(pid, objects, Vec::new()).map_err(RunError::Kernel)?;
            Ok::<_, RunError>((attached, files))
        })?;
        self.door.was_held(child.id());
        self.keep(attached);
        self.roots.push(child.id());
        self.seen.insert(child.id(), files);
        self.child = Some(child);
        Ok(())
    }

    /// Attaches to one process; how many points have sites from now on.
    fn attach_one(&mut self, pid: u32, gone: Vec<MappedObject>) -> Result<usize, RunError> {
        // Read once: what counts as seen must be what was looked at.
        let objects = changeable_objects(pid).map_err(|e| RunError::Kernel(ScriptError::Target(e)))?;
        self.seen.insert(pid, objects.iter().filter_map(MappedObject::file).collect());
        let attached = self.door.attach_with(pid, objects, gone).map_err(RunError::Kernel)?;
        self.performer.names.remember(pid);
        let program = &self.program;
        let is_later =
            |a: &Attached| matches!(program.clauses[a.clause].points[a.point].kind, PointKind::UsdtLater(_));
        let is_late = |a: &&Attached| match a.state {
            State::Armed { .. } => a.is_new,
            State::Waiting { .. } => a.is_new && is_later(a),
            State::Refused { .. } => false,
        };
        let n = attached.iter().filter(is_late).count();
        self.keep(attached);
        Ok(n)
    }

    fn keep(&mut self, attached: Vec<Attached>) {
        let program = Arc::clone(&self.program);
        for one in &attached {
            self.came.insert((one.clause as u32, one.point as u32));
            let name = &program.clauses[one.clause].points[one.point].name;
            let place = one.pid.map_or_else(String::new, |pid| format!(" in process {pid}"));
            let text = |what: &dyn fmt::Display| format!("{name}{place}: {what}");
            match &one.state {
                State::Armed { n_sites } => {
                    self.notes.push(Note::Detail(text(&format_args!("armed, {n_sites} sites"))));
                }
                State::Waiting { n_sites } => {
                    self.notes.push(Note::Detail(text(&format_args!("waiting, {n_sites} sites"))));
                }
                State::Refused { why } => self.gap(text(&format_args!("refused: {why}"))),
            }
        }
        self.attached.extend(attached);
    }

    fn gap(&mut self, text: String) {
        self.verdict.gap(epoch_ns(monotonic_ns()), &text);
        self.notes.push(Note::Gap(text));
    }

    /// What became of each point so far.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Performs what has been emitted, and looks after the processes.
    pub fn step(&mut self) -> Step {
        if self.performer.is_over() {
            return Step::Over;
        }
        if self.last_look.elapsed() >= LOOK {
            self.last_look = Instant::now();
            self.look();
        }
        let n = self.poll();
        if self.performer.is_over() {
            return Step::Over;
        }
        if n > 0 {
            return Step::Busy;
        }
        if !self.roots.is_empty() && !self.is_any_alive() {
            return Step::Over;
        }
        Step::Idle
    }

    /// Takes note of what was forked, started and loaded.
    fn drain_events(&mut self) {
        let (has_later, without_children, roots, seen) =
            (self.has_later, self.without_children, &self.roots, &self.seen);
        let both = RefCell::new((&mut self.door, &mut self.loaded));
        let note = |object: &MappedObject| {
            let file = object.file();
            let is_known = |files: &Vec<FileId>| file.is_none_or(|file| files.contains(&file));
            let (door, loaded) = &mut *both.borrow_mut();
            if has_later
                && (!without_children || roots.contains(&object.pid))
                && !seen.get(&object.pid).is_some_and(is_known)
                && door.means_later(object)
            {
                loaded.entry(object.pid).or_default().push(object.clone());
            }
        };
        let of_started = |object: &MappedObject| {
            note(object);
            false
        };
        self.missed_execs.drain_libraries(of_started, |object| note(&object));
    }

    fn tell_taken_away(&mut self, is_last: bool) {
        self.door.taken_away(is_last).iter().for_each(|gone| self.gap(gone.to_string()));
    }

    /// Programs that the kernel did not tell of.
    fn tell_untold(&mut self) {
        self.missed_execs.note_ends();
        if let Some(untold) = self.missed_execs.take_lost() {
            self.gap(untold.to_string());
        }
    }

    /// What nobody has looked at in time.
    fn missed(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            self.verdict.n_late += 1;
            self.notes.push(Note::Detail(late_in_words(pid, 0)));
        }
    }

    /// New children and libraries get their points as soon as they are seen.
    fn look(&mut self) {
        self.tell_taken_away(false);
        self.performer.names.catch_up();
        let mut family: Vec<u32> = self.roots.clone();
        self.drain_events();
        let mut loaded = std::mem::take(&mut self.loaded);
        self.tell_untold();
        if !self.without_children {
            family.extend(self.roots.iter().flat_map(|root| nopal_proc::descendants(*root)));
            let orphans = self.missed_execs.family().filter(|pid| !family.contains(pid));
            let orphans: Vec<u32> = orphans.collect();
            family.extend(orphans);
        }
        self.seen.retain(|pid, _| family.contains(pid));
        let seen = &self.seen;
        self.door.forget(|pid| !seen.contains_key(&pid) && !is_alive(pid));
        let root = if let [root] = self.roots[..] { Some(root) } else { None };
        for pid in family {
            let (files, gone) = (files_of(pid), loaded.remove(&pid).unwrap_or_default());
            let has_loaded = !gone.is_empty();
            if files.is_empty() || self.seen.get(&pid) == Some(&files) && !has_loaded {
                self.missed(has_loaded.then_some(pid));
                continue;
            }
            self.performer.names.remember(pid);
            if !self.seen.contains_key(&pid)
                && let Ok(process) = nopal_proc::Process::read(pid)
            {
                self.door.inherit(&process, root.filter(|root| *root != pid));
            }
            let seen_before = self.seen.get(&pid).cloned();
            let attached = self.attach_one(pid, gone);
            // What was mapped when it ended was not opened, so it was not seen: the kernel may tell of it only now.
            if matches!(attached, Ok(0) | Err(_)) && (!is_alive(pid) || files_of(pid).is_empty()) {
                match seen_before {
                    Some(files) => drop(self.seen.insert(pid, files)),
                    None => drop(self.seen.remove(&pid)),
                }
            }
            match attached {
                // What it had loaded is not attached: it has ended meanwhile.
                Ok(0) => self.missed(has_loaded.then_some(pid)),
                Ok(_) => {
                    self.verdict.n_late += 1;
                    self.notes.push(Note::Detail(format!(
                        "process {pid}: points were attached a moment after its program or library had started"
                    )));
                }
                // It has gone meanwhile.
                Err(_) => self.missed(has_loaded.then_some(pid)),
            }
        }
        self.missed(loaded.into_keys());
    }

    fn poll(&mut self) -> usize {
        let (performer, mut emitted) = (&mut self.performer, Vec::new());
        let n = self.door.poll(|e| emitted.push((e.action, e.payload.to_vec())));
        // What was lost came before what is read the next time, and may have come before what was just read.
        if !self.program.spans.is_empty()
            && let Ok(loss) = self.door.loss()
            && loss.n_emitted + loss.n_crowded > self.n_lost
        {
            self.n_lost = loss.n_emitted + loss.n_crowded;
            // Hits that found their CPU busy have no times.
            performer.spans.loss(if loss.n_crowded > 0 { monotonic_ns() } else { loss.last_ns });
        }
        let durations = &mut self.durations;
        let mut maps = DoorMaps { door: &self.door, program: &self.program, durations };
        for (action, payload) in emitted {
            performer.perform(&mut maps, action, &payload);
        }
        n
    }

    fn is_any_alive(&mut self) -> bool {
        if let Some(child) = &mut self.child {
            self.missed_execs.note_ends();
            // A child of ours stays a zombie until it is reaped.
            let _ = child.try_wait();
        }
        let is_any = self
            .roots
            .iter()
            .flat_map(|root| std::iter::once(*root).chain(nopal_proc::descendants(*root)))
            .any(is_alive);
        if is_any || self.without_children {
            return is_any;
        }
        self.drain_events();
        self.missed_execs.family().any(is_alive)
    }

    /// Detaches everything, takes what is left, runs the END clauses.
    pub fn finish(&mut self) -> Result<(), RunError> {
        self.drain_events();
        self.tell_untold();
        let loaded = std::mem::take(&mut self.loaded);
        self.missed(loaded.into_keys());
        self.tell_taken_away(true);
        self.door.detach();
        while self.poll() > 0 {}
        self.performer.spans.close();
        // END runs also after exit(), which it may call again.
        let exit = self.performer.exit.take();
        self.door.run(&PointKind::End).map_err(RunError::Kernel)?;
        while self.poll() > 0 {}
        self.performer.exit = self.performer.exit.or(exit);
        Ok(())
    }

    /// Ends the command that was started, if it still runs.
    pub fn end_command(&mut self) {
        if let Some(child) = &mut self.child {
            crate::end(child);
        }
    }

    /// Prints every map, as at the end of a script.
    pub fn print_maps(&mut self) {
        let durations = &mut self.durations;
        self.performer.print_maps(&mut DoorMaps { door: &self.door, program: &self.program, durations });
    }

    /// The rows of an answer.
    pub fn rows(&mut self) -> Vec<u8> {
        let durations = &mut self.durations;
        self.performer.rows(&mut DoorMaps { door: &self.door, program: &self.program, durations })
    }

    /// What is missing so far.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = self.verdict.clone();
        if let Ok(loss) = self.door.loss() {
            verdict.n_lost = loss.n_emitted + loss.n_crowded;
            verdict.lost_span =
                (loss.n_emitted > 0).then(|| (epoch_ns(loss.first_ns), epoch_ns(loss.last_ns)));
            verdict.n_endless = loss.n_cut;
            verdict.full_maps.extend((loss.n_full > 0).then(|| ("a map".to_owned(), loss.n_full)));
            verdict.full_maps.extend(self.performer.series.full());
        } else {
            // Nobody knows what was lost.
            verdict.is_cut_short = true;
        }
        verdict
    }

    /// Names of probes that were to come later, and never came.
    pub fn never_came(&self) -> Vec<String> {
        // What nobody could look at in time may have had them.
        if self.verdict.n_late > 0 { Vec::new() } else { never_came(&self.program, &self.came) }
    }

    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

fn is_alive(pid: u32) -> bool {
    nopal_proc::Process::is_alive(pid)
}

/// The files a process maps code of; none if it has gone.
fn files_of(pid: u32) -> Vec<FileId> {
    mapped_objects(pid).unwrap_or_default().iter().filter_map(MappedObject::file).collect()
}

struct DoorMaps<'a> {
    door: &'a ScriptDoor,
    program: &'a Program,
    durations: &'a mut [Option<Table>],
}

impl MapAccess for DoorMaps<'_> {
    fn entries(&mut self, map: u32) -> Vec<Entry> {
        let value_bytes = self.program.maps.get(map as usize).map_or(0, |def| def.value_bytes() as usize);
        let entries = self.door.map_entries(map).unwrap_or_default();
        let mut entries: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| entry.value.len() >= value_bytes)
            .map(|entry| {
                let (words, _) = entry.value[..value_bytes].as_chunks::<8>();
                (entry.key, words.iter().map(|word| u64::from_le_bytes(*word)).collect())
            })
            .collect();
        if let Some(Some(table)) = self.durations.get(map as usize)
            && let (Some(words), Some(aggregate)) = (table.get(&[]), table.aggregate())
        {
            match entries.first_mut() {
                Some((_, own)) => aggregate.merge(own, words),
                None => entries.push((Vec::new(), words.to_vec())),
            }
        }
        entries
    }

    fn clear(&mut self, map: u32) {
        if let Some(Some(table)) = self.durations.get_mut(map as usize) {
            table.clear();
        }
        // A map that cannot be reached is told of when it is printed, as empty.
        let _ = self.door.clear(map);
    }

    fn zero(&mut self, map: u32) {
        let _ = self.door.zero(map);
        if let Some(Some(table)) = self.durations.get_mut(map as usize) {
            table.zero();
        }
    }

    fn take(&mut self, map: u32, value: i64) {
        if let Some(Some(table)) = self.durations.get_mut(map as usize) {
            table.take(&[], value);
        }
    }
}
