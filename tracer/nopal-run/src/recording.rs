//! A script over a recording: its events are the hits, its times the clock.

use super::catalog::{is_name, is_spelled_out};
use super::perform::Performer;
use super::timers::Timers;
use super::tracepoints::no_point;
use super::tracer_hit::{OwnHit, random};
use super::{RunError, full_maps, is_function, points_of, user_door_obstacle};
use nopal_live::plan::{NULL_TEXT, UNREADABLE_TEXT};
use nopal_program::captures::Captures;
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::{Builtin, Op};
use nopal_program::{Point, PointKind, Program};
use nopal_script::catalog::{ArgType, Catalog, KnownArg, KnownPoint, NoPoint, PointSpec};
use nopal_script::render::Form;
use nopal_sdt::pattern::{glob, nearest};
use nopal_trace::{Enum, EventClass, Length, Range, Recording, Scratch, Step, Trace, Type, Verdict, Visitor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The events of a recording as points. It does not say which file an event is of, so that a script's FILE is a name only.
#[derive(Debug)]
pub struct RecordingCatalog<'r> {
    recording: &'r Recording,
    /// The file that the script calls an event's, by full name of the event.
    files: RefCell<HashMap<String, String>>,
}

impl<'r> RecordingCatalog<'r> {
    pub fn new(recording: &'r Recording) -> RecordingCatalog<'r> {
        RecordingCatalog { recording, files: RefCell::default() }
    }

    /// FILE, PROVIDER and NAME, as a running program's catalog takes them apart.
    fn parts<'s>(&self, spec: &'s PointSpec) -> (Option<&'s str>, &'s str, &'s str) {
        match &spec.parts[..] {
            [file, provider, name] => (
                Some(file.as_str()).filter(|file| !file.is_empty()),
                if provider.is_empty() { "*" } else { provider },
                name,
            ),
            [first, name] if self.is_file(first) => (Some(first), "*", name),
            [first, name] => (None, first, name),
            [name] => (None, "*", name),
            _ => (None, "*", "*"),
        }
    }

    fn is_file(&self, text: &str) -> bool {
        let program = |trace: &'r Trace| Path::new(trace.env_text("program")?).file_name()?.to_str();
        text.contains('/')
            || text.contains(".so")
            || self.recording.traces().iter().filter_map(program).any(|program| program == text)
    }

    /// What the script's FILE makes of an event's name; two files cannot be told apart.
    fn check_file(&self, class: &EventClass, file: &str) -> Result<(), NoPoint> {
        let event = class.ty.full_name();
        let mut files = self.files.borrow_mut();
        let known = files.entry(event.clone()).or_insert_with(|| file.to_owned());
        if known == file
            || fs::canonicalize(&*known).is_ok_and(|a| fs::canonicalize(file).is_ok_and(|b| a == b))
        {
            return Ok(());
        }
        Err(no_point(
            format!(
                "a recording does not say which file `{event}` is of: `{known}` and `{file}` cannot be told apart"
            ),
            Some("name one of them, or run the script on the program itself".to_owned()),
        ))
    }
}

impl Catalog for RecordingCatalog<'_> {
    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint> {
        if spec.kind != "usdt" {
            return Err(no_point(
                format!("a recording has no points of the kind `{}`", spec.kind),
                Some("its events are usdt:PROVIDER:NAME".to_owned()),
            ));
        }
        let (file, provider, name) = self.parts(spec);
        let file = file.filter(|file| is_spelled_out(file));
        let mut found: Vec<KnownPoint> = Vec::new();
        for class in self.recording.event_classes() {
            let ty = &class.ty;
            if !glob(provider, &ty.provider) || !is_name(name, &ty.name) {
                continue;
            }
            if let Some(file) = file {
                self.check_file(class, file)?;
            }
            let known = known_point(class, file);
            // Several streams declare the same event.
            if !found.iter().any(|k| k.point == known.point) {
                found.push(known);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let all: Vec<String> =
            self.recording.event_classes().iter().map(|class| class.ty.full_name()).collect();
        let wanted = format!("{provider}:{name}");
        let hint = nearest(&wanted, all.iter().map(String::as_str));
        let hint = match hint {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`nopal view --stats DIR` shows what a recording has".to_owned(),
        };
        Err(no_point(format!("the recording has no event `{wanted}`"), Some(hint)))
    }
}

fn known_point(class: &EventClass, file: Option<&str>) -> KnownPoint {
    let (provider, name) = (class.ty.provider.clone(), class.ty.name.clone());
    let args = numbered(class)
        .into_iter()
        .map(|field| match field {
            Some((name, arg_type)) => KnownArg { name, arg_type },
            None => {
                KnownArg { name: String::new(), arg_type: ArgType::Int { size_bytes: 8, is_signed: false } }
            }
        })
        .collect();
    KnownPoint {
        point: Point {
            name: match file {
                Some(file) => format!("usdt:{file}:{provider}:{name}"),
                None => format!("usdt:{provider}:{name}"),
            },
            kind: PointKind::Usdt { path: String::new(), provider, name },
        },
        args,
        obstacle: None,
    }
}

/// Fields that people see, in their order.
fn visible(class: &EventClass) -> impl Iterator<Item = &nopal_trace::Field> {
    let fields = &class.ty.fields;
    let is_length = |name: &str| {
        fields.iter().any(|f| {
            matches!(&f.ty, Type::Array(array) if matches!(&array.length, Length::Field(path)
                if path.last().is_some_and(|last| last.trim_start_matches('_') == name.trim_start_matches('_'))))
        })
    };
    fields.iter().filter(move |field| !is_length(&field.name))
}

/// The fields by argument index: those called `argN` at N, the others in their order in the places left.
fn numbered(class: &EventClass) -> Vec<Option<(String, ArgType)>> {
    let places = places(class);
    let n = places.iter().map(|place| place + 1).max().unwrap_or(0);
    let mut args = vec![None; n];
    for (field, place) in visible(class).zip(&places) {
        let is_numbered = number_of(&field.name) == Some(*place);
        let name = if is_numbered { String::new() } else { field.name.clone() };
        args[*place] = Some((name, arg_type(&field.ty)));
    }
    args
}

/// By visible field: its argument index.
fn places(class: &EventClass) -> Vec<usize> {
    let taken: Vec<usize> = visible(class).filter_map(|field| number_of(&field.name)).collect();
    let mut next = 0;
    visible(class)
        .map(|field| {
            number_of(&field.name).unwrap_or_else(|| {
                while taken.contains(&next) {
                    next += 1;
                }
                next += 1;
                next - 1
            })
        })
        .collect()
}

/// Beyond that a name only looks like a number.
const MAX_ARGS: usize = 64;

fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("arg")?.parse().ok().filter(|n| *n < MAX_ARGS)
}

fn arg_type(ty: &Type) -> ArgType {
    match ty {
        Type::Integer(integer) if integer.base == 16 && integer.bits == 64 => ArgType::Pointer,
        Type::Integer(integer) => ArgType::Int {
            size_bytes: integer.bits.div_ceil(8).next_power_of_two().min(8) as u8,
            is_signed: integer.is_signed,
        },
        Type::Float(_) => ArgType::Float,
        Type::String => ArgType::Str,
        Type::Enum(table) => ArgType::Enum {
            labels: table
                .labels
                .iter()
                .filter_map(|label| Some((i64::try_from(label.first).ok()?, label.text.clone())))
                .collect(),
        },
        Type::Array(array) => match &array.element {
            Type::Integer(integer) if integer.is_text => ArgType::Str,
            Type::Integer(integer) if integer.bits == 8 => ArgType::Bytes { length_arg: None },
            _ => ArgType::Int { size_bytes: 8, is_signed: false },
        },
        Type::Struct(_) | Type::Variant(_) => ArgType::Int { size_bytes: 8, is_signed: false },
    }
}

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
    pub fn new(program: Arc<Program>, form: Form) -> Result<RecordingRun, RunError> {
        let of_function =
            program.clauses.iter().flat_map(|clause| &clause.points).find(|p| is_function(&p.kind));
        let of_function = of_function.map(|point| format!("{}: functions are not recorded", point.name));
        if let Some(why) = of_function.or_else(|| user_door_obstacle(&program)).or_else(|| obstacle(&program))
        {
            return Err(RunError::Unable(why));
        }
        let seed = random() << 32 | random();
        let mut performer = Performer::new(Arc::clone(&program), form);
        performer.names.set_epoch_times();
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
                    let hit = RecordedHit { state: &state, ns, start_ns: now.start_ns, cpu };
                    let performer = &mut self.performer;
                    for (clause, point) in &runs.runs {
                        self.interpreter.run(*clause, *point, &hit, |maps, emitted| {
                            performer.perform(maps, emitted.action, emitted.payload);
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
        let exit = self.performer.exit.take();
        self.run_own(|kind| matches!(kind, PointKind::End), end_ns, start_ns);
        self.performer.exit = self.performer.exit.or(exit);
        let report = events.report();
        let mut verdict = report.verdict;
        verdict.n_malformed += n_damaged;
        verdict.full_maps = full_maps(&self.program, &self.interpreter.maps);
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
        self.interpreter.run(clause, point, &hit, |maps, emitted| {
            performer.perform(maps, emitted.action, emitted.payload);
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

/// The arguments of one event; memory is used again for the next.
#[derive(Debug, Default)]
struct Args {
    numbers: Vec<i64>,
    /// Ranges of `bytes`.
    texts: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// By visible field: the argument.
    places: Vec<usize>,
    next: usize,
    depth: u32,
}

impl Args {
    fn reset(&mut self, places: &[usize]) {
        let n = places.iter().map(|place| place + 1).max().unwrap_or(0);
        self.numbers.clear();
        self.numbers.resize(n, 0);
        self.texts.clear();
        self.texts.resize(n, (0, 0));
        self.bytes.clear();
        self.places.clear();
        self.places.extend_from_slice(places);
        self.next = 0;
        self.depth = 0;
    }

    /// The argument of the next field at the top.
    fn place(&mut self) -> Option<usize> {
        let place = self.places.get(self.next).copied();
        self.next += 1;
        place
    }

    fn number(&mut self, at: &Step, number: i64) {
        if at.is_hidden {
            return;
        }
        if self.depth == 0 {
            if let Some(place) = self.place() {
                self.numbers[place] = number;
            }
        } else if self.depth == 1 {
            self.bytes.push(number as u8);
        }
    }

    fn begin(&mut self) {
        if self.depth == 0 {
            let at = self.bytes.len();
            if let Some(place) = self.place() {
                self.texts[place] = (at, at);
            }
        }
        self.depth += 1;
    }

    fn end(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0
            && let Some(place) = self.next.checked_sub(1).and_then(|index| self.places.get(index))
        {
            self.texts[*place].1 = self.bytes.len();
        }
    }
}

impl Visitor for Args {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, _: bool, _: u8) {
        self.number(at, raw as i64);
    }
    fn float(&mut self, at: &Step, _: u64, value: f64, _: u32) {
        self.number(at, value.to_bits() as i64);
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, _: &Enum) {
        self.number(at, raw as i64);
    }
    fn string(&mut self, _: &Step, _: u64, bytes: &[u8]) {
        if self.depth == 0
            && let Some(place) = self.place()
        {
            let at = self.bytes.len();
            // To a script what cannot be read is an empty text, by every door.
            if bytes != NULL_TEXT && bytes != UNREADABLE_TEXT {
                self.bytes.extend_from_slice(bytes);
            }
            self.texts[place] = (at, self.bytes.len());
        }
    }
    fn begin_array(&mut self, _: &Step, _: u64, _: u64) {
        self.begin();
    }
    fn end_array(&mut self) {
        self.end();
    }
    fn begin_struct(&mut self, _: &Step, _: u64) {
        self.begin();
    }
    fn end_struct(&mut self) {
        self.end();
    }
    fn begin_variant(&mut self, _: &Step, _: u64) {
        self.begin();
    }
    fn end_variant(&mut self) {
        self.end();
    }
}

/// Whose event it was, as far as the recording says.
#[derive(Debug, Default)]
struct TaskOf {
    pid: Option<u64>,
    tid: Option<u64>,
    comm: Option<Vec<u8>>,
}

impl TaskOf {
    /// What a script asks for and the recording's contexts do not have.
    fn lacks(&self, needs: &Captures) -> Option<&'static str> {
        match (needs.needs_task, needs.needs_who) {
            (_, true) if self.comm.is_none() => {
                Some("names of threads (comm): record it with the context `procname`")
            }
            (true, false) if self.pid.is_none() || self.tid.is_none() => {
                Some("processes and threads (pid, tid): record it with the contexts `vpid` and `vtid`")
            }
            _ => None,
        }
    }
}

impl Visitor for TaskOf {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, _: bool, _: u8) {
        match &*at.name {
            "vpid" | "pid" => self.pid = Some(raw),
            "vtid" | "tid" => self.tid = Some(raw),
            _ => {}
        }
    }
    fn float(&mut self, _: &Step, _: u64, _: f64, _: u32) {}
    fn enumeration(&mut self, _: &Step, _: u64, _: u64, _: &Enum) {}
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        if &*at.name == "procname" {
            let comm = self.comm.get_or_insert_default();
            comm.clear();
            comm.extend_from_slice(bytes);
        }
    }
    fn begin_array(&mut self, _: &Step, _: u64, _: u64) {}
    fn end_array(&mut self) {}
    fn begin_struct(&mut self, _: &Step, _: u64) {}
    fn end_struct(&mut self) {}
    fn begin_variant(&mut self, _: &Step, _: u64) {}
    fn end_variant(&mut self) {}
}

#[derive(Debug)]
struct State {
    scratch: Scratch,
    args: Args,
    task: TaskOf,
}

struct RecordedHit<'a> {
    state: &'a State,
    ns: u64,
    start_ns: u64,
    cpu: u64,
}

impl Hit for RecordedHit<'_> {
    fn arg(&self, index: u8) -> i64 {
        self.state.args.numbers.get(usize::from(index)).copied().unwrap_or(0)
    }
    fn arg_string(&self, index: u8) -> &[u8] {
        let args = &self.state.args;
        args.texts.get(usize::from(index)).map(|(from, to)| &args.bytes[*from..*to]).unwrap_or_default()
    }
    fn arg_bytes(&self, index: u8) -> &[u8] {
        self.arg_string(index)
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => self.state.task.pid.unwrap_or(0),
            Builtin::Tid => self.state.task.tid.unwrap_or(0),
            Builtin::Cpu => self.cpu,
            Builtin::Nsecs => self.ns,
            Builtin::Elapsed => self.ns.saturating_sub(self.start_ns),
            Builtin::Rand => random(),
            // Refused before the run.
            Builtin::Uid
            | Builtin::Gid
            | Builtin::Cgroup
            | Builtin::Curtask
            | Builtin::Retval
            | Builtin::Ip
            | Builtin::Ctx => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        self.state.task.comm.as_deref().unwrap_or_default()
    }
}
