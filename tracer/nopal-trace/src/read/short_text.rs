//! Values as people read them on a terminal: `key="user:1" size=12`. What the format needs for itself is left out.

use super::decode::Visitor;
use super::plan::Step;
use super::value_text::quote;
use crate::digits;
use crate::escape::escape;
use crate::frames::{EventFrames, STACK};
use crate::model::{BitMap, Enum, number};

/// Appends values to a line; `vpid`, `vtid` and `procname` are put aside for the column of the process.
pub(crate) struct ShortPrinter<'o> {
    out: &'o mut Vec<u8>,
    has_colour: bool,
    /// Set aside instead of printed, in the scopes where they stand.
    pub task: Option<&'o mut TaskText>,
    /// Names of the addresses of a stack.
    pub frames: Option<EventFrames<'o>>,
    is_in_stack: bool,
}

/// Who it was, as far as a scope tells.
#[derive(Debug, Default)]
pub(crate) struct TaskText {
    pub pid: Option<u64>,
    pub tid: Option<u64>,
    pub name: Option<String>,
}

/// How long a sequence is, which stands before it.
fn is_length(name: &str) -> bool {
    name.starts_with('_') && name.ends_with("_length")
}

const DIM: &[u8] = b"\x1b[2m";
const PLAIN: &[u8] = b"\x1b[0m";

impl<'o> ShortPrinter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>, has_colour: bool, task: Option<&'o mut TaskText>) -> Self {
        ShortPrinter { out, has_colour, task, frames: None, is_in_stack: false }
    }

    fn lead(&mut self, at: &Step, index: u64) {
        if at.is_element {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            return;
        }
        // What an optional element holds has no name of its own.
        if at.name.is_empty() {
            return;
        }
        if !matches!(self.out.last(), Some(b' ' | b'{')) {
            self.out.push(b' ');
        }
        if self.has_colour {
            self.out.extend_from_slice(DIM);
        }
        self.out.extend_from_slice(escape(&at.name).as_bytes());
        self.out.push(b'=');
        if self.has_colour {
            self.out.extend_from_slice(PLAIN);
        }
    }
}

impl Visitor for ShortPrinter<'_> {
    fn integer(&mut self, at: &Step, index: u64, raw: u64, bits: u32, is_signed: bool, base: u8) {
        if at.is_hidden || is_length(&at.name) {
            return;
        }
        if let Some(task) = &mut self.task {
            match &*at.name {
                "vpid" | "pid" => return task.pid = Some(raw),
                "vtid" | "tid" => return task.tid = Some(raw),
                _ => {}
            }
        }
        self.lead(at, index);
        let pid = self.task.as_ref().and_then(|task| task.pid);
        let frames = self.frames.filter(|_| self.is_in_stack);
        match frames.and_then(|frames| frames.name(pid, index, raw)) {
            Some(name) => self.out.extend_from_slice(escape(&name).as_bytes()),
            None => digits::in_base(self.out, raw, bits, is_signed, base),
        }
        // As debuggers show it: `71 'G'`.
        if at.is_character && (b' '..=b'~').contains(&(raw as u8)) {
            self.out.extend_from_slice(&[b' ', b'\'', raw as u8, b'\'']);
        }
    }

    fn float(&mut self, at: &Step, index: u64, value: f64, _bits: u32) {
        self.lead(at, index);
        digits::general(self.out, value);
    }

    fn enumeration(&mut self, at: &Step, index: u64, raw: u64, table: &Enum) {
        if at.is_hidden {
            return;
        }
        self.lead(at, index);
        let mut labels = table.labels_of(number(raw, table.integer.is_signed));
        match labels.next() {
            Some(label) => self.out.extend_from_slice(escape(label).as_bytes()),
            None => digits::in_base(
                self.out,
                raw,
                table.integer.bits,
                table.integer.is_signed,
                table.integer.base,
            ),
        }
    }

    fn string(&mut self, at: &Step, index: u64, bytes: &[u8]) {
        if let Some(task) = self.task.as_mut().filter(|_| &*at.name == "procname") {
            task.name = Some(String::from_utf8_lossy(bytes).into_owned());
            return;
        }
        self.lead(at, index);
        quote(self.out, bytes);
    }

    fn begin_array(&mut self, at: &Step, index: u64, _count: u64) {
        self.lead(at, index);
        self.is_in_stack = &*at.name == STACK;
        self.out.push(b'[');
    }

    fn end_array(&mut self) {
        self.is_in_stack = false;
        self.out.push(b']');
    }

    fn begin_struct(&mut self, at: &Step, index: u64) {
        self.lead(at, index);
        self.out.push(b'{');
    }

    fn end_struct(&mut self) {
        self.out.push(b'}');
    }

    // A variant is what it holds, and so is an optional.

    fn begin_optional(&mut self, at: &Step, index: u64) {
        if at.is_element {
            self.lead(at, index);
        }
    }

    fn absent(&mut self, at: &Step, index: u64) {
        self.lead(at, index);
        self.out.extend_from_slice(b"none");
    }

    fn boolean(&mut self, at: &Step, index: u64, value: bool) {
        self.lead(at, index);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn bit_map(&mut self, at: &Step, index: u64, raw: u64, map: &BitMap) {
        self.lead(at, index);
        digits::in_base(self.out, raw, map.bits.bits, false, 16);
        for (n_before, flag) in map.active(raw).enumerate() {
            self.out.push(if n_before == 0 { b':' } else { b'|' });
            self.out.extend_from_slice(escape(flag).as_bytes());
        }
    }
}
