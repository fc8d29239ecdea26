//! A script over a recording: its events are the hits, its times the clock.

mod catalog;
mod hit;

pub use catalog::RecordingCatalog;

use super::perform::Performer;
use super::timers::Timers;
use super::tracer_hit::{OwnHit, random};
use super::{RunError, full_maps, is_function, points_of, user_door_obstacle};
use catalog::{numbered, places};
use hit::{Args, RecordedHit, State, TaskOf};
use nopal_program::captures::Captures;
use nopal_program::interpret::Interpreter;
use nopal_program::op::{Builtin, Op};
use nopal_program::{Point, PointKind, Program};
use nopal_script::catalog::ArgType;
use nopal_script::render::Form;
use nopal_trace::{EventClass, Range, Recording, Scratch, Verdict};
use std::sync::Arc;

/// What came of a run over a recording.
#[derive(Debug)]
pub struct Replayed {
    pub n_events: u64,
    pub verdict: Verdict,
    /// The recorder was cut short.
    pub is_truncated: bool,
}

/// A script and the recording it runs over.
#[derive(Debug)]
pub struct RecordingRun {
    program: Arc<Program>,
    pub performer: Performer,
    interpreter: Interpreter,
}

/// Events between two looks at the output.
const ROUND: u64 = 4096;

impl RecordingRun {
    pub fn new(program: Arc<Program>, recording: &Recording, form: Form) -> Result<RecordingRun, RunError> {
        let of_function =
            program.clauses.iter().flat_map(|clause| &clause.points).find(|p| is_function(&p.kind));
        let of_function = of_function.map(|point| format!("{}: functions are not recorded", point.name));
        if let Some(why) = of_function.or_else(|| user_door_obstacle(&program)).or_else(|| obstacle(&program))
        {
            return Err(RunError::Unable(why));
        }
        let seed = random() << 32 | random();
        let mut performer = Performer::new(Arc::clone(&program), form);
        performer.names.set_recorded(recording.traces().iter().map(|trace| trace.code.clone()).collect());
        let interpreter = Interpreter::new(Arc::clone(&program), seed).map_err(RunError::Program)?;
        Ok(RecordingRun { program, performer, interpreter })
    }

    /// Runs the script from BEGIN to END. `write` is called now and then; false ends the run.
    pub fn run(
        &mut self,
        recording: &Recording,
        mut write: impl FnMut(&mut Performer) -> bool,
    ) -> Result<Replayed, RunError> {
        let classes: Vec<ClassRuns> =
            recording.event_classes().iter().map(|class| ClassRuns::new(class, &self.program)).collect();
        for class in recording.event_classes() {
            check_strings(class, &self.program)?;
        }
        let mut needs = Captures::default();
        let is_of_events = |p: &Point| matches!(p.kind, PointKind::Usdt { .. });
        for clause in self.program.clauses.iter().filter(|c| c.points.iter().any(is_of_events)) {
            needs.join(&Captures::of(&clause.code));
        }
        let mut events = recording.events(Range::default()).map_err(RunError::Recording)?;
        let mut state = State { scratch: Scratch::default(), args: Args::default(), task: TaskOf::default() };
        let (mut n_events, mut n_damaged) = (0u64, 0u64);
        let mut clock: Option<Clock> = None;
        while let Some(event) = events.next().map_err(RunError::Recording)? {
            let ns = event.ns().unwrap_or(0).max(0) as u64;
            // The recording's clock begins with its first event.
            if clock.is_none() {
                clock = Some(Clock { start_ns: ns, timers: Timers::new(&self.program, ns) });
                self.run_own(|kind| matches!(kind, PointKind::Begin), ns, ns);
            }
            let Some(now) = &mut clock else { break };
            while let Some((clause, point, at_ns)) = now.timers.due(ns) {
                let start_ns = now.start_ns;
                self.run_at(clause, point, at_ns, start_ns);
                if self.performer.is_over() {
                    break;
                }
            }
            if self.performer.is_over() {
                break;
            }
            let runs = &classes[event.class().index];
            if !runs.runs.is_empty() {
                n_events += 1;
                state.args.reset(&runs.places);
                let is_whole = event.fields(&mut state.scratch, &mut state.args).is_ok()
                    && (!needs.needs_task || event.context(&mut state.scratch, &mut state.task).is_ok());
                if is_whole {
                    if let Some(why) = state.task.lacks(&needs) {
                        let name = event.class().ty.full_name();
                        return Err(RunError::Unable(format!("{name}: the recording has no {why}")));
                    }
                    let cpu = event.cpu().unwrap_or(0);
                    // Nothing is asked of the event itself from here on.
                    if events.has_losses() {
                        for loss in events.take_losses() {
                            self.performer.spans.loss(loss.to_ns.max(0) as u64);
                        }
                    }
                    let hit = RecordedHit { state: &state, ns, start_ns: now.start_ns, cpu };
                    let performer = &mut self.performer;
                    for (clause, point) in &runs.runs {
                        performer.begin_hit();
                        self.interpreter.run(*clause, *point, &hit, |maps, emitted| {
                            performer.perform(maps, emitted.action, emitted.payload)
                        });
                    }
                } else {
                    n_damaged += 1;
                }
            }
            if n_events % ROUND == 0 && !write(&mut self.performer) {
                break;
            }
        }
        let (start_ns, end_ns) = clock.map_or((0, 0), |clock| (clock.start_ns, clock.start_ns));
        if start_ns == 0 {
            self.run_own(|kind| matches!(kind, PointKind::Begin), 0, 0);
        }
        self.performer.spans.close();
        let exit = self.performer.exit.take();
        self.run_own(|kind| matches!(kind, PointKind::End), end_ns, start_ns);
        self.performer.exit = self.performer.exit.or(exit);
        let report = events.report();
        let mut verdict = report.verdict;
        verdict.n_malformed += n_damaged;
        verdict.full_maps = full_maps(&self.program, &self.interpreter.maps);
        verdict.full_maps.extend(self.performer.series.full());
        verdict.n_endless = self.interpreter.n_endless;
        Ok(Replayed { n_events, verdict, is_truncated: report.is_truncated })
    }

    /// Prints every map, as at the end of a script.
    pub fn print_maps(&mut self) {
        self.performer.print_maps(&mut self.interpreter.maps);
    }

    /// The rows of an answer.
    pub fn rows(&mut self) -> Vec<u8> {
        self.performer.rows(&mut self.interpreter.maps)
    }

    fn run_own(&mut self, is_wanted: impl Fn(&PointKind) -> bool, ns: u64, start_ns: u64) {
        for (clause, point) in points_of(&self.program, is_wanted) {
            self.run_at(clause, point, ns, start_ns);
        }
    }

    fn run_at(&mut self, clause: u32, point: u32, ns: u64, start_ns: u64) {
        let hit = OwnHit::new(ns, start_ns);
        let performer = &mut self.performer;
        performer.begin_hit();
        self.interpreter.run(clause, point, &hit, |maps, emitted| {
            performer.perform(maps, emitted.action, emitted.payload)
        });
    }
}

struct Clock {
    start_ns: u64,
    timers: Timers,
}

/// What a recording does not have.
fn obstacle(program: &Program) -> Option<String> {
    let what = |op: &Op| match op {
        Op::Builtin { what: Builtin::Uid | Builtin::Gid, .. } => Some("users (uid, gid)"),
        Op::Builtin { what: Builtin::Cgroup, .. } => Some("control groups (cgroup)"),
        _ => None,
    };
    let of_kernel = |op: &Op| match op {
        Op::Builtin { what: Builtin::NsecsBoot | Builtin::NsecsTai, .. } => Some("this clock"),
        Op::Builtin { what: Builtin::Jiffies, .. } => Some("the kernel's ticks (jiffies)"),
        Op::Builtin { what: Builtin::NumaNode, .. } => Some("nodes of memory (numaid)"),
        _ => None,
    };
    let all =
        program.clauses.iter().find_map(|clause| Some((clause, clause.code.ops.iter().find_map(of_kernel)?)));
    if let Some((clause, what)) = all {
        return Some(format!("{}: a recording does not have {what}", clause.points[0].name));
    }
    let is_of_events = |p: &Point| matches!(p.kind, PointKind::Usdt { .. });
    program.clauses.iter().filter(|clause| clause.points.iter().any(is_of_events)).find_map(|clause| {
        let what = clause.code.ops.iter().find_map(what)?;
        Some(format!("{}: a recording does not have {what}", clause.points[0].name))
    })
}

/// A string that was recorded as an address cannot be read any more.
fn check_strings(class: &EventClass, program: &Program) -> Result<(), RunError> {
    let args = numbered(class);
    for (clause, _) in ClassRuns::new(class, program).runs {
        for arg in Captures::of(&program.clauses[clause as usize].code).args {
            let is_text = match args.get(usize::from(arg.index)) {
                Some(Some((_, arg_type))) => matches!(arg_type, ArgType::Str | ArgType::Bytes { .. }),
                _ => false,
            };
            if !is_text && (arg.string_bytes.is_some() || arg.buffer_bytes.is_some()) {
                return Err(RunError::Unable(format!(
                    "{}: the recording has the number of arg{}, not the text it points to; record with --provider FILE.d that says so",
                    class.ty.full_name(),
                    arg.index
                )));
            }
        }
    }
    Ok(())
}

/// What runs for an event type, and which argument each of its fields is.
#[derive(Debug)]
struct ClassRuns {
    runs: Vec<(u32, u32)>,
    places: Vec<usize>,
}

impl ClassRuns {
    fn new(class: &EventClass, program: &Program) -> ClassRuns {
        let runs = points_of(program, |kind| {
            matches!(kind, PointKind::Usdt { provider, name, .. }
                if *provider == class.ty.provider && *name == class.ty.name)
        });
        ClassRuns { runs, places: places(class) }
    }
}
