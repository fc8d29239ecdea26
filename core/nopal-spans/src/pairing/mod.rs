//! Pairs begins with ends. `docs/spans.md` has the rules; the table in `tests.rs` holds them to it.
//!
//! Events come in the order of time, each with the number of its class (a probe of one file or one recording). A class
//! is made known once, by [`Pairing::add_class`], which says what fields of its events are needed.

mod call;
mod cut;
mod key;
mod kin;
mod room;
mod rule;
#[cfg(test)]
mod tests;
mod thread;

use crate::span::{Mode, Span};
use crate::value::{Fields, Value};
use key::{identify, is_same_key};
use room::Room;
use rule::{Class, Part, Role, Rule};
use std::collections::HashMap;
use thread::{Frame, Thread, Threads};

pub use rule::Needs;

/// A process and a thread of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Task {
    pub pid: u32,
    pub tid: u32,
}

/// Begins and ends that have no partner. They are counted, never guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unmatched {
    /// Ends whose begin was not seen: before tracing began, or in the parent of a forked process.
    pub n_ends: u64,
    /// Begins whose end was skipped: by an exception, by an exec, at a thread's end, or by a second begin of one key.
    pub n_begins: u64,
    /// Begins dropped because events were lost before their end came.
    pub n_by_loss: u64,
    /// Still open when the answer was given.
    pub n_open: u64,
}

impl Unmatched {
    pub fn sum(&self) -> u64 {
        self.n_ends + self.n_begins + self.n_by_loss + self.n_open
    }

    pub fn add(&mut self, other: &Unmatched) {
        self.n_ends += other.n_ends;
        self.n_begins += other.n_begins;
        self.n_by_loss += other.n_by_loss;
        self.n_open += other.n_open;
    }
}

/// A span that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Finished<'a> {
    /// Position among the spans the pairing was made of.
    pub span: usize,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Without the spans within it on the same thread.
    pub self_ns: u64,
    /// Where it began.
    pub task: Task,
    /// Ended by one of the probes that say it failed.
    pub is_failed: bool,
    begin: Side<'a>,
    /// Absent where one event is the whole span.
    end: Option<Side<'a>>,
}

/// The event at one end of a span.
#[derive(Debug, Clone, Copy)]
struct Side<'a> {
    class: u32,
    task: Task,
    role: &'a Role,
    fields: &'a Fields,
}

impl<'a> Finished<'a> {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(0) as u64
    }

    /// A field asked for by [`Pairing::want`]: of the begin if it has it, else of the end.
    #[inline]
    pub fn get(&self, wanted: usize) -> Value<'a> {
        let of = |side: &Side<'a>| {
            side.role.positions.get(wanted).copied().flatten().map(|at| side.fields.get(usize::from(at)))
        };
        of(&self.begin).or_else(|| self.end.as_ref().and_then(of)).unwrap_or(Value::Absent)
    }

    /// Class and fields of the event it began with.
    pub fn begin(&self) -> (usize, &'a Fields) {
        (self.begin.class as usize, self.begin.fields)
    }

    /// Class and fields of the event it ended with, if that is another.
    pub fn end(&self) -> Option<(usize, &'a Fields)> {
        self.end.map(|side| (side.class as usize, side.fields))
    }

    /// Where it ended.
    pub fn end_task(&self) -> Task {
        self.end.map_or(self.task, |side| side.task)
    }
}

/// A finished span that may lie within one that has not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    start_ns: i64,
    pub duration_ns: u64,
    /// What [`Sink::finish`] returned for it.
    pub token: u32,
}

/// What finished spans are given to.
pub trait Sink {
    /// `nested` are the spans directly within it, in the order of time. The token comes back when its parent finishes.
    fn finish(&mut self, span: &Finished<'_>, nested: &[Done]) -> u32;

    /// Nothing that could contain this span is open any more.
    fn forget(&mut self, _token: u32) {}
}

/// Spans being paired.
#[derive(Debug)]
pub struct Pairing {
    rules: Vec<Rule>,
    /// By rule.
    kin: Vec<u32>,
    classes: Vec<Class>,
    threads: Threads,
    /// Open spans that pair by key, by rule, process and key.
    keyed: HashMap<Vec<u8>, Frame>,
    key: Vec<u8>,
    /// Memory of frames that have gone.
    spare: Vec<Fields>,
    /// Some span tells its duration at its end, so that what lies within it comes before it.
    has_whole: bool,
    /// Until this time begins are not believed, because of a loss.
    doubt_until_ns: i64,
    wants_all: bool,
    room: Room,
}

/// Spans that pair by key and are open at once; more are taken for begins without an end.
const MAX_KEYED: usize = 1 << 20;
/// Open spans of one thread.
const MAX_FRAMES: usize = 4096;
/// Finished spans of one thread that wait for one that contains them.
const MAX_DONE: usize = 8192;

impl Pairing {
    pub fn new(spans: Vec<Span>) -> Pairing {
        let mut rules: Vec<Rule> = spans.into_iter().map(Rule::new).collect();
        for child in 0..rules.len() {
            let span = &rules[child].span;
            let Some(parent) = span.parent.clone() else { continue };
            let provider = span.provider.clone();
            let is_it = |rule: &&mut Rule| rule.span.name == parent && rule.span.provider == provider;
            if let Some(parent) = rules.iter_mut().find(is_it) {
                parent.children.push(child);
            }
        }
        // Rules that carry the same field of the same probe have a place each: they are few.
        let mut n_slots = 0;
        for rule in &mut rules {
            rule.carried = (n_slots..n_slots + rule.span.carries.len()).collect();
            n_slots += rule.carried.len();
        }
        let has_whole = rules.iter().any(|rule| rule.duration.is_some());
        let kin = kin::of(&rules);
        Pairing {
            rules,
            kin,
            classes: Vec::new(),
            threads: Threads::default(),
            keyed: HashMap::new(),
            key: Vec::new(),
            spare: Vec::new(),
            has_whole,
            doubt_until_ns: i64::MIN,
            wants_all: false,
            room: Room::default(),
        }
    }

    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.rules.iter().map(|rule| &rule.span)
    }

    pub fn span(&self, span: usize) -> &Span {
        &self.rules[span].span
    }

    /// Asks for a field of finished spans: NAME, `begin.NAME` or `end.NAME`. Before any class is added.
    pub fn want(&mut self, span: usize, name: &str) -> usize {
        self.rules[span].want(name)
    }

    /// Asks for every field of every event.
    pub fn want_all(&mut self) {
        self.wants_all = true;
    }

    /// Says that the fields of a span's end are those of its begin: not asked for by [`Pairing::want_all`].
    pub fn end_repeats(&mut self, span: usize) {
        self.rules[span].end_repeats = true;
    }

    /// Makes a kind of event known; classes are numbered in this order.
    pub fn add_class(&mut self, provider: &str, name: &str, fields: &[&str]) -> Needs {
        let class = Class::new(&self.rules, provider, name, fields, self.wants_all);
        let needs = class.needs.clone();
        self.classes.push(class);
        needs
    }

    /// What [`Pairing::add_class`] would say.
    pub fn needs_of(&self, provider: &str, name: &str, fields: &[&str]) -> Needs {
        Class::new(&self.rules, provider, name, fields, self.wants_all).needs
    }

    /// Events of different kin have no span in common: which of them came first decides on self times alone.
    pub fn kin(&self, class: usize) -> u32 {
        let role = self.classes.get(class).and_then(|class| class.roles.first().or(class.fails.first()));
        role.map_or(u32::MAX, |role| self.kin[role.rule])
    }

    /// Another source of events follows, whose classes are numbered from 0 again. After [`Pairing::close`].
    pub fn forget_classes(&mut self) {
        self.classes.clear();
    }

    /// Takes the next event. `fields` has a value for each field of its class, or none if none is needed.
    #[inline]
    pub fn event(&mut self, ns: i64, task: Task, class: usize, fields: &Fields, sink: &mut impl Sink) {
        if self.classes[class].roles.is_empty() && self.classes[class].fails.is_empty() {
            return;
        }
        if self.room.take(fields) {
            self.make_room(sink);
        }
        let thread = self.threads.get(task, ns, &mut self.rules, sink);
        let event = Event { ns, task, class: class as u32, fields };
        for role in 0..self.classes[class].roles.len() {
            self.play(thread, role, &event, sink);
        }
        if !self.classes[class].fails.is_empty() {
            self.fail(thread, &event, sink);
            // An event that ends one span by failure may begin another.
            for role in 0..self.classes[class].roles.len() {
                if self.classes[class].roles[role].part == Part::Begin {
                    self.begin(thread, role, &event);
                }
            }
        }
    }

    fn play(&mut self, thread: usize, role: usize, event: &Event<'_>, sink: &mut impl Sink) {
        let class = &self.classes[event.class as usize];
        match class.roles[role].part {
            Part::End => self.end(thread, role, event, false, sink),
            Part::Whole => self.whole(thread, role, event, sink),
            Part::Carry { slot, field } => {
                let carried = self.threads.at(thread).carried_slot(usize::from(slot));
                carried.clear();
                carried.push(event.fields.get(usize::from(field)));
            }
            Part::Begin if class.fails.is_empty() => self.begin(thread, role, event),
            // After the failures.
            Part::Begin => {}
        }
    }

    fn begin(&mut self, thread: usize, role: usize, event: &Event<'_>) {
        let class = &self.classes[event.class as usize];
        let role_idx = role as u16;
        let role = &class.roles[role];
        let rule = &mut self.rules[role.rule];
        if event.ns < self.doubt_until_ns {
            rule.unmatched.n_by_loss += 1;
            return;
        }
        let of_thread = self.threads.at(thread);
        if rule.span.is_outermost
            && let Some(open) = of_thread.frames.iter_mut().rev().find(|frame| frame.rule == role.rule)
        {
            open.depth += 1;
            return;
        }
        let mut fields = self.spare.pop().unwrap_or_default();
        fields.copy(event.fields);
        if !rule.carried.is_empty() {
            // What is carried along comes behind the event's own fields.
            (fields.len()..class.n_fields).for_each(|_| fields.push(Value::Absent));
            for slot in &rule.carried {
                fields.push(of_thread.carried(*slot));
            }
        }
        let frame = Frame {
            rule: role.rule,
            class: event.class,
            role: role_idx,
            start_ns: event.ns,
            task: event.task,
            depth: 0,
            left_ns: None,
            fields,
        };
        match rule.span.mode {
            Mode::Thread { .. } => {
                if rule.span.is_call {
                    call::drop_left(&self.classes, &mut self.rules, of_thread, &frame, &mut self.spare);
                }
                of_thread.frames.push(frame);
                if of_thread.frames.len() > MAX_FRAMES {
                    let oldest = of_thread.frames.remove(0);
                    self.rules[oldest.rule].unmatched.n_begins += 1;
                    self.spare.push(oldest.fields);
                }
            }
            Mode::Key(_) => {
                identify(&mut self.key, role.rule, &role.key, event.task.pid, event.fields);
                if self.keyed.len() >= MAX_KEYED {
                    rule.unmatched.n_begins += 1;
                    return;
                }
                if let Some(older) = self.keyed.insert(self.key.clone(), frame) {
                    rule.unmatched.n_begins += 1;
                    self.spare.push(older.fields);
                }
            }
        }
    }

    fn end(
        &mut self,
        thread: usize,
        role_idx: usize,
        event: &Event<'_>,
        is_failed: bool,
        sink: &mut impl Sink,
    ) {
        let class = &self.classes[event.class as usize];
        let role = &class.roles[role_idx];
        if let Mode::Key(_) = self.rules[role.rule].span.mode {
            identify(&mut self.key, role.rule, &role.key, event.task.pid, event.fields);
            match self.keyed.remove(&self.key) {
                Some(frame) => self.finish(None, frame, role_idx, event, is_failed, sink),
                None => self.rules[role.rule].unmatched.n_ends += 1,
            }
            return;
        }
        let frames = &mut self.threads.at(thread).frames;
        let is_it = |frame: &Frame| {
            frame.rule == role.rule && {
                let begin = &self.classes[frame.class as usize].roles[usize::from(frame.role)];
                is_same_key(&begin.key, &frame.fields, &role.key, event.fields)
            }
        };
        let Some(at) = frames.iter().rposition(is_it) else {
            self.rules[role.rule].unmatched.n_ends += 1;
            return;
        };
        if frames[at].depth > 0 {
            frames[at].depth -= 1;
            return;
        }
        // What began within it and has not ended: another of the same kind, or a part of it, was left by an exception.
        if at + 1 < frames.len() {
            let (rules, spare) = (&mut self.rules, &mut self.spare);
            let mut idx = at + 1;
            while idx < frames.len() {
                let inner = frames[idx].rule;
                // A call that is deeper may be under way on another stack of the thread.
                let is_same = inner == role.rule && !rules[inner].span.is_call;
                if is_same || rules[role.rule].children.contains(&inner) {
                    rules[inner].unmatched.n_begins += 1;
                    spare.push(frames.remove(idx).fields);
                } else {
                    idx += 1;
                }
            }
        }
        let frame = match at + 1 == frames.len() {
            true => frames.pop(),
            false => Some(frames.remove(at)),
        };
        if let Some(frame) = frame {
            self.finish(Some(thread), frame, role_idx, event, is_failed, sink);
        }
    }

    /// Ends everything of the thread that such an event makes fail, the innermost first.
    fn fail(&mut self, thread: usize, event: &Event<'_>, sink: &mut impl Sink) {
        let n_fails = self.classes[event.class as usize].fails.len();
        let mut at = self.threads.at(thread).frames.len();
        while at > 0 {
            at -= 1;
            let class = &self.classes[event.class as usize];
            let frames = &mut self.threads.at(thread).frames;
            let Some(role) = frames.get(at).and_then(|f| class.fails.iter().position(|r| r.rule == f.rule))
            else {
                continue;
            };
            let frame = frames.remove(at);
            self.finish_failed(Some(thread), frame, role, event, sink);
        }
        for role in 0..n_fails {
            let failing = &self.classes[event.class as usize].fails[role];
            if !matches!(self.rules[failing.rule].span.mode, Mode::Key(_)) || failing.key.is_empty() {
                continue;
            }
            identify(&mut self.key, failing.rule, &failing.key, event.task.pid, event.fields);
            if let Some(frame) = self.keyed.remove(&self.key) {
                self.finish_failed(None, frame, role, event, sink);
            }
        }
    }

    fn finish_failed(
        &mut self,
        thread: Option<usize>,
        frame: Frame,
        role: usize,
        event: &Event<'_>,
        sink: &mut impl Sink,
    ) {
        let class = &self.classes[event.class as usize];
        let end =
            Side { class: event.class, task: event.task, role: &class.fails[role], fields: event.fields };
        let (thread, has_whole) = (thread.map(|thread| self.threads.at(thread)), self.has_whole);
        hand_over(&self.classes, thread, has_whole, &frame, Some(end), event.ns, true, sink);
        self.spare.push(frame.fields);
    }

    fn finish(
        &mut self,
        thread: Option<usize>,
        frame: Frame,
        role: usize,
        event: &Event<'_>,
        is_failed: bool,
        sink: &mut impl Sink,
    ) {
        let class = &self.classes[event.class as usize];
        let end =
            Side { class: event.class, task: event.task, role: &class.roles[role], fields: event.fields };
        let (thread, has_whole) = (thread.map(|thread| self.threads.at(thread)), self.has_whole);
        hand_over(&self.classes, thread, has_whole, &frame, Some(end), event.ns, is_failed, sink);
        self.spare.push(frame.fields);
    }

    /// One event is the whole span.
    fn whole(&mut self, thread: usize, role_idx: usize, event: &Event<'_>, sink: &mut impl Sink) {
        let class = &self.classes[event.class as usize];
        let role = &class.roles[role_idx];
        let Some((wanted, unit)) = self.rules[role.rule].duration else { return };
        let duration = role.positions.get(wanted).copied().flatten();
        let number = duration.and_then(|at| event.fields.get(usize::from(at)).number());
        let Some(duration_ns) = number.filter(|n| *n >= 0.0).map(|n| n * unit.ns() as f64) else {
            self.rules[role.rule].unmatched.n_ends += 1;
            return;
        };
        let mut fields = self.spare.pop().unwrap_or_default();
        fields.copy(event.fields);
        let of_thread = self.threads.at(thread);
        if !self.rules[role.rule].carried.is_empty() {
            (fields.len()..class.n_fields).for_each(|_| fields.push(Value::Absent));
            for slot in &self.rules[role.rule].carried {
                fields.push(of_thread.carried(*slot));
            }
        }
        let frame = Frame {
            rule: role.rule,
            class: event.class,
            role: role_idx as u16,
            start_ns: event.ns.saturating_sub_unsigned(duration_ns as u64),
            task: event.task,
            depth: 0,
            left_ns: None,
            fields,
        };
        hand_over(&self.classes, Some(of_thread), true, &frame, None, event.ns, false, sink);
        self.spare.push(frame.fields);
    }

    /// Of one span.
    pub fn unmatched_of(&self, span: usize) -> Unmatched {
        self.rules[span].unmatched
    }

    pub fn unmatched(&self) -> Unmatched {
        let mut sum = Unmatched::default();
        self.rules.iter().for_each(|rule| sum.add(&rule.unmatched));
        sum
    }
}

/// The event at hand.
struct Event<'a> {
    ns: i64,
    task: Task,
    class: u32,
    fields: &'a Fields,
}

/// Gives a finished span to the sink, with what lies within it, and keeps it for what it may lie within.
#[allow(clippy::too_many_arguments)]
#[inline]
fn hand_over(
    classes: &[Class],
    thread: Option<&mut Thread>,
    keeps_done: bool,
    frame: &Frame,
    end: Option<Side<'_>>,
    end_ns: i64,
    is_failed: bool,
    sink: &mut impl Sink,
) {
    let begin_role = &classes[frame.class as usize].roles[usize::from(frame.role)];
    let duration_ns = end_ns.saturating_sub(frame.start_ns).max(0) as u64;
    let mut span = Finished {
        span: frame.rule,
        start_ns: frame.start_ns,
        end_ns,
        self_ns: duration_ns,
        task: frame.task,
        is_failed,
        begin: Side { class: frame.class, task: frame.task, role: begin_role, fields: &frame.fields },
        end,
    };
    let Some(thread) = thread else {
        let token = sink.finish(&span, &[]);
        sink.forget(token);
        return;
    };
    // An event that tells its own duration rounds it to its unit.
    let from_ns = frame.start_ns - begin_role.slack_ns;
    let first =
        thread.done.len() - thread.done.iter().rev().take_while(|done| done.start_ns >= from_ns).count();
    let nested_ns = thread.done[first..].iter().map(|done| done.duration_ns).sum::<u64>();
    span.self_ns = duration_ns.saturating_sub(nested_ns);
    let token = sink.finish(&span, &thread.done[first..]);
    thread.done.truncate(first);
    if !thread.frames.is_empty() || keeps_done {
        if thread.done.len() >= MAX_DONE {
            thread.done.drain(..MAX_DONE / 2).for_each(|done| sink.forget(done.token));
        }
        thread.done.push(Done { start_ns: frame.start_ns, duration_ns, token });
    } else {
        thread.done.drain(..).for_each(|done| sink.forget(done.token));
        sink.forget(token);
    }
}
