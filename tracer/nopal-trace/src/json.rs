//! Events as JSON, one object to a line: `{"ts","host","pid","tid","cpu","provider","name","args":{...}}`.

use crate::digits;
use crate::escape::json_string;
use crate::frames::{EventFrames, FrameNames, STACK};
use crate::model::{Enum, number};
use crate::pipeline::Lines;
use crate::read::{Damage, Event, Scratch, Step, Value, Visitor};
use std::io::Write;
use std::sync::Arc;

/// Above this a number is not the same in JavaScript.
const MAX_EXACT: u64 = 1 << 53;

/// Makes JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    /// Integers above 2^53 become strings.
    has_strings: bool,
    scratch: Box<Scratch>,
    names: Option<Arc<dyn FrameNames>>,
}

impl JsonLines {
    pub fn new(has_strings: bool) -> Self {
        JsonLines { has_strings, scratch: Box::default(), names: None }
    }

    /// Behind the context `ustack` there is `ustack_names`.
    pub fn with_names(self, names: Arc<dyn FrameNames>) -> Self {
        JsonLines { names: Some(names), ..self }
    }
}

/// What the context says about the thread.
#[derive(Default)]
struct Who {
    pid: Option<i128>,
    tid: Option<i128>,
    vpid: Option<i128>,
    vtid: Option<i128>,
}

impl Lines for JsonLines {
    fn set_last_ns(&mut self, _ns: Option<i64>) {}

    fn print(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Damage> {
        let start = out.len();
        let result = self.object(event, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }
}

impl JsonLines {
    fn object(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Damage> {
        let mut who = Who::default();
        event.context_values(&mut self.scratch, |name, value| {
            let number = match value {
                Value::Signed(v) => i128::from(v),
                Value::Unsigned(v) => i128::from(v),
                Value::Float(_) | Value::String(_) | Value::Enum(..) => return,
            };
            match name {
                "pid" => who.pid = Some(number),
                "tid" => who.tid = Some(number),
                "vpid" => who.vpid = Some(number),
                "vtid" => who.vtid = Some(number),
                _ => {}
            }
        })?;
        let trace = event.trace();
        let outside = trace
            .filter(|t| !t.tasks.is_empty())
            .and_then(|t| t.tasks.get((who.vpid?.try_into().ok()?, who.vtid?.try_into().ok()?)));
        if let Some((pid, tid)) = outside {
            (who.pid, who.tid) = (Some(pid.into()), Some(tid.into()));
        }
        let env = |key: &str| trace.and_then(|t| t.env_number(key));
        let class = event.class();
        out.extend_from_slice(b"{\"ts\":");
        match event.ns() {
            Some(ns) => self.number(out, i128::from(ns)),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"host\":");
        match trace.and_then(|t| t.env_text("hostname")) {
            Some(host) => json_string(out, host.as_bytes()),
            None => out.extend_from_slice(b"null"),
        }
        self.optional(out, b",\"pid\":", who.pid.or(who.vpid).or_else(|| env("pid")).or_else(|| env("vpid")));
        self.optional(out, b",\"tid\":", who.tid.or(who.vtid));
        self.optional(out, b",\"cpu\":", event.cpu().map(i128::from));
        if outside.is_some() {
            self.optional(out, b",\"vpid\":", who.vpid);
            self.optional(out, b",\"vtid\":", who.vtid);
        }
        out.extend_from_slice(&class.json_names);
        if event.scopes()[..2].iter().any(Option::is_some) {
            out.extend_from_slice(b",\"context\":{");
            let mut printer = JsonPrinter { out, has_strings: self.has_strings, is_first: true };
            event.context(&mut self.scratch, &mut printer)?;
            if let Some(frames) = event.frames(self.names.as_deref()) {
                let mut named = NamedFrames { frames, pid: None, is_in_stack: false, names: None };
                event.context(&mut self.scratch, &mut named)?;
                named.print(out);
            }
            out.push(b'}');
        }
        out.extend_from_slice(b",\"args\":{");
        let mut printer = JsonPrinter { out, has_strings: self.has_strings, is_first: true };
        event.fields(&mut self.scratch, &mut printer)?;
        out.extend_from_slice(b"}}\n");
        Ok(())
    }

    fn optional(&self, out: &mut Vec<u8>, key: &[u8], value: Option<i128>) {
        out.extend_from_slice(key);
        match value {
            Some(value) => self.number(out, value),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn number(&self, out: &mut Vec<u8>, value: i128) {
        print_number(out, value, self.has_strings);
    }
}

/// Takes the names of a stack's addresses from an event's context.
struct NamedFrames<'a> {
    frames: EventFrames<'a>,
    pid: Option<u64>,
    is_in_stack: bool,
    names: Option<Vec<String>>,
}

impl NamedFrames<'_> {
    fn print(&self, out: &mut Vec<u8>) {
        let Some(names) = &self.names else { return };
        out.extend_from_slice(b",\"ustack_names\":[");
        for (index, name) in names.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            json_string(out, name.as_bytes());
        }
        out.push(b']');
    }
}

impl Visitor for NamedFrames<'_> {
    fn integer(&mut self, at: &Step, index: u64, raw: u64, _: u32, _: bool, _: u8) {
        match &*at.name {
            "vpid" | "pid" if !self.is_in_stack => self.pid = Some(raw),
            _ => {}
        }
        if self.is_in_stack {
            let name = self.frames.name(self.pid, index, raw);
            self.names.get_or_insert_default().push(name.unwrap_or_else(|| format!("{raw:#x}")));
        }
    }

    fn begin_array(&mut self, at: &Step, _: u64, _: u64) {
        self.is_in_stack = &*at.name == STACK;
        if self.is_in_stack {
            self.names = Some(Vec::new());
        }
    }

    fn end_array(&mut self) {
        self.is_in_stack = false;
    }
}

pub(crate) fn print_number(out: &mut Vec<u8>, value: i128, has_strings: bool) {
    let magnitude = u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX);
    let is_quoted = has_strings && magnitude > MAX_EXACT;
    if is_quoted {
        out.push(b'"');
    }
    if value < 0 {
        out.push(b'-');
    }
    digits::unsigned(out, magnitude);
    if is_quoted {
        out.push(b'"');
    }
}

/// A text as a JSON string; what is not UTF-8 becomes U+FFFD.
pub fn json_text(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    json_string(&mut out, bytes);
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) struct JsonPrinter<'o> {
    pub out: &'o mut Vec<u8>,
    pub has_strings: bool,
    pub is_first: bool,
}

impl JsonPrinter<'_> {
    /// The comma and the key before a value.
    fn lead(&mut self, at: &Step) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
        if !at.is_element {
            self.out.extend_from_slice(&at.key);
        }
    }
}

impl Visitor for JsonPrinter<'_> {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, is_signed: bool, _: u8) {
        self.lead(at);
        print_number(self.out, number(raw, is_signed), self.has_strings);
    }

    fn float(&mut self, at: &Step, _: u64, value: f64, bits: u32) {
        self.lead(at);
        // Writing to a Vec cannot fail. JSON has no word for what is not a number.
        let _ = if !value.is_finite() {
            write!(self.out, "\"{value}\"")
        } else if bits == 32 {
            write!(self.out, "{}", value as f32)
        } else {
            write!(self.out, "{value}")
        };
    }

    /// The label where there is one, else the number.
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        self.lead(at);
        let value = number(raw, table.integer.is_signed);
        match table.labels_of(value).next() {
            Some(label) if table.is_bool() => self.out.extend_from_slice(label.as_bytes()),
            Some(label) => json_string(self.out, label.as_bytes()),
            None => print_number(self.out, value, self.has_strings),
        }
    }

    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        self.lead(at);
        json_string(self.out, bytes);
    }

    fn begin_array(&mut self, at: &Step, _: u64, _: u64) {
        self.lead(at);
        self.out.push(b'[');
        self.is_first = true;
    }

    fn end_array(&mut self) {
        self.out.push(b']');
        self.is_first = false;
    }

    fn begin_struct(&mut self, at: &Step, _: u64) {
        self.lead(at);
        self.out.push(b'{');
        self.is_first = true;
    }

    fn end_struct(&mut self) {
        self.out.push(b'}');
        self.is_first = false;
    }

    /// `"variant":{"option":value}`: which option it is belongs to the answer.
    fn begin_variant(&mut self, at: &Step, index: u64) {
        self.begin_struct(at, index);
    }

    fn end_variant(&mut self) {
        self.end_struct();
    }

    fn boolean(&mut self, at: &Step, _: u64, value: bool) {
        self.lead(at);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// As the bytes of an array.
    fn blob(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        self.lead(at);
        self.out.push(b'[');
        for (i, byte) in bytes.iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            digits::unsigned(self.out, u64::from(*byte));
        }
        self.out.push(b']');
    }

    fn absent(&mut self, at: &Step, _: u64) {
        self.lead(at);
        self.out.extend_from_slice(b"null");
    }
}
