//! One round: a program, its tracers, what goes wrong, and what must be right all the same.

use super::harm::Harm;
use super::leftovers::leftovers;
use super::plan::{Plan, Stretch};
use super::process::{LIMIT, Process, wait_for};
use super::surroundings::{Clock, Disk, Group};
use super::target::{Field, Shared, Target};
use super::tracer::{Subject, Tracer, Way};
use crate::cycles::Footprint;
use crate::{nopal, scratch};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the program works at least in a stretch.
const WORK: Duration = Duration::from_millis(150);

/// How long what a tracer has left may take to go.
const RESTORED_WITHIN: Duration = Duration::from_secs(20);

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Result {
    pub failures: Vec<String>,
    /// By what was done: how often it met somebody.
    pub faults: BTreeMap<&'static str, u64>,
    /// Other tools that could not come.
    pub in_vain: BTreeMap<&'static str, u64>,
    pub n_hits: u64,
    pub n_events: u64,
    pub n_children: u64,
    /// Each tracer's way, and whether it said that all is there.
    pub verdicts: Vec<(Way, Option<bool>)>,
}

impl Result {
    pub(super) fn count(&mut self, name: &'static str) {
        *self.faults.entry(name).or_default() += 1;
    }

    pub(super) fn n_faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdicts: Vec<&str> = (self.verdicts.iter())
            .map(|(_, said)| said.map_or("none", |is_complete| if is_complete { "complete" } else { "not" }))
            .collect();
        let (n, hits, events) = (self.n_faults(), self.n_hits, self.n_events);
        write!(f, "{n} faults, {hits} hits, {events} events; verdicts: {}", verdicts.join(", "))?;
        if self.failures.is_empty() { Ok(()) } else { write!(f, "; FAILED") }
    }
}

pub(crate) fn run(plan: &Plan) -> Result {
    let dir = scratch(&format!("faults-{}", plan.seed));
    // What a helper of the tests cannot do ends the round, not the others.
    let done = catch_unwind(AssertUnwindSafe(|| match Round::prepare(plan, &dir) {
        Ok(mut round) => {
            if let Err(error) = round.go() {
                round.result.failures.push(error);
            }
            std::mem::take(&mut round.result)
        }
        Err(error) => Result { failures: vec![error], ..Result::default() },
    }));
    let result = done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
        Result { failures: vec![text], ..Result::default() }
    });
    if result.failures.is_empty() {
        let _ = fs::remove_dir_all(&dir);
    }
    result
}

/// What there is in a round. Fields are dropped in their order: tracers before the program, and that before its group.
pub(crate) struct Round<'a> {
    pub(super) plan: &'a Plan,
    pub(super) dir: PathBuf,
    pub(super) tracers: Vec<Tracer>,
    pub(super) visitors: Vec<(Harm, Process)>,
    pub(super) n_visitors: usize,
    pub(super) target: Target,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    pub(super) group: Option<Group>,
    pub(super) result: Result,
    n_tracers: usize,
    /// Descriptors of the program that look like a tracer's, before one came.
    n_own: usize,
    /// A tracer has gone without putting back what it changed.
    is_orphaned: bool,
}

impl<'a> Round<'a> {
    fn prepare(plan: &'a Plan, dir: &Path) -> std::result::Result<Round<'a>, String> {
        let shared = Shared::create(&dir.join("shared"))?;
        let disk = Disk::mount(dir.join("out"))?;
        let clock = Clock::new(dir.join("clock"))?;
        let group = if plan.has_group { Some(Group::new(plan.seed)?) } else { None };
        let target = if plan.is_launched {
            Target::started_by_tracer(&plan.kind, shared)
        } else {
            Target::start(&plan.kind, dir, shared)?
        };
        if let (Some(group), false) = (&group, plan.is_launched) {
            group.take(target.pid)?;
        }
        let n_own = if plan.is_launched { 0 } else { Footprint::of(target.pid).n_descriptors };
        Ok(Round {
            plan,
            dir: dir.to_owned(),
            tracers: Vec::new(),
            visitors: Vec::new(),
            n_visitors: 0,
            target,
            disk,
            clock,
            group,
            result: Result::default(),
            n_tracers: 0,
            n_own,
            is_orphaned: false,
        })
    }

    fn go(&mut self) -> std::result::Result<(), String> {
        for (n, stretch) in self.plan.stretches.iter().enumerate() {
            self.stretch(stretch, n == 0)?;
            if !self.target.is_alive() {
                break;
            }
        }
        self.finish()
    }

    /// A tracer comes, the program works while harm is done, and rests; those that have ended are heard.
    fn stretch(&mut self, stretch: &Stretch, is_first: bool) -> std::result::Result<(), String> {
        if self.tracers.is_empty() {
            let is_launched = is_first && self.plan.is_launched;
            self.start_tracer(stretch.way, is_launched)?;
            if is_launched {
                self.wait_for_launch()?;
            }
            if !stretch.is_hasty {
                self.wait_for_open()?;
            }
        }
        let start = Instant::now();
        self.target.go()?;
        self.act(&stretch.harms)?;
        self.pass_time(start + WORK);
        self.see_off(|harm| matches!(harm, Harm::Gdb { .. }))?;
        self.rest()?;
        if stretch.is_left && self.target.is_alive() {
            self.leave()?;
        }
        Ok(())
    }

    fn rest(&mut self) -> std::result::Result<(), String> {
        self.target.rest()?;
        if !self.target.is_alive() && !self.target.is_killed {
            self.result.failures.push("the program died".to_owned());
        }
        self.look_at_tracers();
        self.hear(false)
    }

    pub(super) fn start_tracer(&mut self, way: Way, is_launched: bool) -> std::result::Result<(), String> {
        let pid = (!is_launched).then_some(self.target.pid);
        let n = self.n_tracers;
        self.n_tracers += 1;
        let counts = self.target.counts(way.subject);
        let tracer = Tracer::start(way, &self.plan.kind, pid, &self.dir, &self.clock, n, counts)?;
        self.tracers.push(tracer);
        Ok(())
    }

    fn wait_for_launch(&mut self) -> std::result::Result<(), String> {
        let is_ready = wait_for(LIMIT, || self.target.is_ready() || self.tracers[0].has_ended());
        if !is_ready || !self.target.is_ready() {
            let said = self.tracers[0].process.stderr();
            return Err(format!("the tracer did not start the program: {said}"));
        }
        if let Some(group) = &self.group {
            group.take(self.target.pid)?;
        }
        Ok(())
    }

    /// Until the newest tracer has opened everything, or has refused to.
    fn wait_for_open(&mut self) -> std::result::Result<(), String> {
        let Some(tracer) = self.tracers.last_mut() else { return Ok(()) };
        let target = &self.target;
        let is_open =
            wait_for(LIMIT, || tracer.has_ended() || tracer.look(target.counts(tracer.way.subject)));
        if is_open { Ok(()) } else { Err(format!("a tracer is not ready: {}", tracer.process.stderr())) }
    }

    pub(super) fn look_at_tracers(&mut self) {
        for tracer in &mut self.tracers {
            tracer.look(self.target.counts(tracer.way.subject));
        }
    }

    /// Takes the verdicts of tracers that have ended or, if `all` are to end, of every one; the program rests or has ended.
    fn hear(&mut self, all: bool) -> std::result::Result<(), String> {
        let mut still_there = Vec::new();
        for mut tracer in std::mem::take(&mut self.tracers) {
            if (all || tracer.is_leaving()) && tracer.process.wait(LIMIT).is_none() {
                return Err(format!("a tracer does not end: {} {}", tracer.way, tracer.process.stderr()));
            }
            if !tracer.has_ended() {
                still_there.push(tracer);
                continue;
            }
            self.is_orphaned |= !tracer.has_left_well();
            let (said, wrong) = tracer.verdict(self.target.counts(tracer.way.subject));
            self.result.failures.extend(wrong);
            self.result.n_events += said.map_or(0, |said| said.n_events);
            self.result.verdicts.push((tracer.way, said.map(|said| said.is_complete)));
            if self.result.failures.is_empty() {
                tracer.forget();
            }
        }
        self.tracers = still_there;
        Ok(())
    }

    /// All tracers leave a program that rests: nothing may be left.
    fn leave(&mut self) -> std::result::Result<(), String> {
        for tracer in &mut self.tracers {
            tracer.ask(self.target.counts(tracer.way.subject));
        }
        self.hear(true)?;
        self.see_off(|_| true)?;
        if self.is_orphaned {
            self.is_orphaned = false;
            let detach = Command::new(nopal()).args(["detach", "-p", &self.target.pid.to_string()]).output();
            match detach {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    self.result.failures.push(format!("detach: {said}"));
                }
                Err(error) => self.result.failures.push(format!("detach: {error}")),
            }
        }
        // Of a tracer that has ended the kernel takes the uprobes out a moment later.
        let mut left = Vec::new();
        wait_for(RESTORED_WITHIN, || {
            left = if self.target.is_alive() { leftovers(self.target.pid, self.n_own) } else { Vec::new() };
            left.is_empty()
        });
        self.result.failures.extend(left);
        Ok(())
    }

    /// Other tools go when they like to; gdb while the program works, as it waits for a hit.
    fn see_off(&mut self, is_meant: impl Fn(&Harm) -> bool) -> std::result::Result<(), String> {
        let visitors = std::mem::take(&mut self.visitors);
        let (going, staying) = visitors.into_iter().partition(|(harm, _)| is_meant(harm));
        self.visitors = staying;
        let going: Vec<(Harm, Process)> = going;
        for (harm, mut visitor) in going {
            let Some(status) = visitor.wait(LIMIT) else { return Err(format!("{harm} does not end")) };
            let said = visitor.stderr();
            if said.contains("panicked") {
                self.result.failures.push(format!("{harm}: {said}"));
            }
            // 124 and 137 are `timeout`'s: strace goes on until it is told to stop. gdb tells of its breakpoint.
            let has_come = match harm {
                Harm::Gdb { .. } => visitor.stdout().contains("Breakpoint 1, "),
                Harm::Strace { .. } => matches!(status.code(), Some(124 | 137)),
                _ => status.success(),
            };
            if has_come {
                self.result.count(harm.name());
            } else {
                *self.result.in_vain.entry(harm.name()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The program ends with the tracers that are there, or after them.
    fn finish(&mut self) -> std::result::Result<(), String> {
        let is_traced = !self.tracers.is_empty();
        self.target.end();
        self.see_off(|_| true)?;
        let wrong = self.target.finish();
        self.result.failures.extend(wrong);
        self.hear(true)?;
        // Those of a tracer that is still there are raised rightly; those of one that was killed wait for the next.
        let n_raised = self.target.shared.get(Field::Raised);
        if !is_traced && !self.is_orphaned && n_raised > 0 {
            self.result.failures.push(format!("semaphores stay raised: {n_raised}"));
        }
        self.result.n_hits =
            [Subject::Probes, Subject::Calls].map(|subject| self.target.counts(subject).done).iter().sum();
        self.result.n_children = self.target.shared.get(Field::Children);
        Ok(())
    }
}
