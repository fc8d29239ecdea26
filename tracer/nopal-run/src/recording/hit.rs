//! A recorded event as a script sees it: its arguments, and whose it was as far as the recording says.

use crate::tracer_hit::random;
use nopal_live::plan::{NULL_TEXT, UNREADABLE_TEXT};
use nopal_program::captures::Captures;
use nopal_program::interpret::Hit;
use nopal_program::op::Builtin;
use nopal_trace::{Enum, Scratch, Step, Visitor};

/// The arguments of one event; memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Args {
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
    pub(super) fn reset(&mut self, places: &[usize]) {
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
    /// Bytes are bytes, whatever they would say as a text.
    fn blob(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        self.begin();
        bytes.iter().for_each(|byte| self.number(at, i64::from(*byte)));
        self.end();
    }
    /// To a script what is not there is zero, or an empty text.
    fn absent(&mut self, _: &Step, _: u64) {
        self.begin();
        self.end();
    }
}

/// Whose event it was, as far as the recording says.
#[derive(Debug, Default)]
pub(super) struct TaskOf {
    pid: Option<u64>,
    tid: Option<u64>,
    comm: Option<Vec<u8>>,
    stack: Option<Vec<u64>>,
    is_in_stack: bool,
}

impl TaskOf {
    /// What a script asks for and the recording's contexts do not have.
    pub(super) fn lacks(&self, needs: &Captures) -> Option<&'static str> {
        if needs.needs_stack && self.stack.is_none() {
            return Some("callers (ustack): record it with `nopal record --context ustack`");
        }
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
        if self.is_in_stack {
            return self.stack.get_or_insert_default().push(raw);
        }
        match &*at.name {
            "vpid" | "pid" => self.pid = Some(raw),
            "vtid" | "tid" => self.tid = Some(raw),
            _ => {}
        }
    }
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        if &*at.name == "procname" {
            let comm = self.comm.get_or_insert_default();
            comm.clear();
            comm.extend_from_slice(bytes);
        }
    }
    fn begin_array(&mut self, at: &Step, _: u64, _: u64) {
        self.is_in_stack = &*at.name == "ustack";
        if self.is_in_stack {
            self.stack.get_or_insert_default().clear();
        }
    }
    fn end_array(&mut self) {
        self.is_in_stack = false;
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) scratch: Scratch,
    pub(super) args: Args,
    pub(super) task: TaskOf,
}

pub(super) struct RecordedHit<'a> {
    pub(super) state: &'a State,
    pub(super) ns: u64,
    pub(super) start_ns: u64,
    pub(super) cpu: u64,
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
            | Builtin::Ctx
            | Builtin::NsecsBoot
            | Builtin::NsecsTai
            | Builtin::Jiffies
            | Builtin::NumaNode => 0,
        }
    }
    fn user_stack(&self, each: &mut dyn FnMut(u64)) {
        self.state.task.stack.iter().flatten().for_each(|address| each(*address));
    }
    fn comm(&self) -> &[u8] {
        self.state.task.comm.as_deref().unwrap_or_default()
    }
}
