//! Takes the needed fields out of an event.

use crate::event::is_length;
use nopal_spans::{Fields, Task, Value};
use nopal_trace::{Enum, Step, Visitor};

/// Gathers the fields at the top of an event. Arrays of bytes are texts in hexadecimal; other arrays and structures are
/// texts in JSON.
pub(crate) struct FieldReader<'a> {
    needed: &'a [bool],
    fields: &'a mut Fields,
    position: usize,
    depth: u32,
    nested: Option<Nested>,
}

/// A value that holds others.
#[derive(Default)]
struct Nested {
    bytes: Vec<u8>,
    /// Something in it is not a byte of its own.
    is_more: bool,
    json: String,
    /// Whether each that is open is a structure.
    open: Vec<bool>,
}

impl Nested {
    /// What comes in front of a value: a comma, a name.
    fn lead(&mut self, at: &Step) {
        if !self.json.is_empty() && !self.json.ends_with(['[', '{', ':']) {
            self.json.push(',');
        }
        if self.open.last() == Some(&true) {
            self.json.push_str(&nopal_trace::json_text(at.name.as_bytes()));
            self.json.push(':');
        }
    }

    fn put(&mut self, at: &Step, text: &str) {
        self.is_more = true;
        self.lead(at);
        self.json.push_str(text);
    }

    fn text(self) -> String {
        match self.is_more {
            true => self.json,
            false => self.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(needed: &'a [bool], fields: &'a mut Fields) -> FieldReader<'a> {
        fields.clear();
        FieldReader { needed, fields, position: 0, depth: 0, nested: None }
    }

    #[inline]
    fn give(&mut self, at: &Step, value: Value<'_>) {
        if self.depth > 0 {
            return self.give_nested(at, value);
        }
        if is_length(&at.name) {
            return;
        }
        let is_needed = self.needed.get(self.position).copied().unwrap_or(false);
        self.fields.push(if is_needed { value } else { Value::Absent });
        self.position += 1;
    }

    fn give_nested(&mut self, at: &Step, value: Value<'_>) {
        let Some(nested) = &mut self.nested else { return };
        match value {
            Value::Text(text) | Value::Label(_, text) => nested.put(at, &nopal_trace::json_text(text)),
            Value::Float(n) if !n.is_finite() => nested.put(at, "null"),
            Value::Absent | Value::Signed(_) | Value::Unsigned(_) | Value::Float(_) => {
                nested.put(at, &value.text());
            }
        }
    }

    fn open(&mut self, at: &Step, is_struct: bool) {
        self.depth += 1;
        if self.depth == 1 && self.needed.get(self.position).copied().unwrap_or(false) {
            self.nested = Some(Nested::default());
        }
        if let Some(nested) = &mut self.nested {
            nested.is_more |= is_struct || self.depth > 1;
            nested.lead(at);
            nested.json.push(if is_struct { '{' } else { '[' });
            nested.open.push(is_struct);
        }
    }

    fn close(&mut self) {
        if let Some(nested) = &mut self.nested {
            nested.json.push(if nested.open.pop() == Some(true) { '}' } else { ']' });
        }
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            match self.nested.take() {
                Some(nested) => self.fields.push(Value::Text(nested.text().as_bytes())),
                None => self.fields.push(Value::Absent),
            }
            self.position += 1;
        }
    }
}

impl Visitor for FieldReader<'_> {
    #[inline]
    fn integer(&mut self, at: &Step, _: u64, raw: u64, bits: u32, is_signed: bool, _: u8) {
        if let (1, 8, Some(nested)) = (self.depth, bits, &mut self.nested)
            && !nested.is_more
        {
            nested.bytes.push(raw as u8);
            return;
        }
        self.give(at, if is_signed { Value::Signed(raw as i64) } else { Value::Unsigned(raw) });
    }
    fn float(&mut self, at: &Step, _: u64, value: f64, _: u32) {
        self.give(at, Value::Float(value));
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        let number = nopal_trace::number(raw, table.integer.is_signed);
        match table.labels_of(number).next() {
            Some(label) => self.give(at, Value::Label(raw as i64, label.as_bytes())),
            None if table.integer.is_signed => self.give(at, Value::Signed(raw as i64)),
            None => self.give(at, Value::Unsigned(raw)),
        }
    }
    #[inline]
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        self.give(at, Value::Text(bytes));
    }
    fn begin_array(&mut self, at: &Step, _: u64, _: u64) {
        self.open(at, false);
    }
    fn end_array(&mut self) {
        self.close();
    }
    fn begin_struct(&mut self, at: &Step, _: u64) {
        self.open(at, true);
    }
    fn end_struct(&mut self) {
        self.close();
    }
    fn begin_variant(&mut self, at: &Step, _: u64) {
        self.open(at, true);
    }
    fn end_variant(&mut self) {
        self.close();
    }
    fn boolean(&mut self, at: &Step, _: u64, value: bool) {
        match (self.depth, value) {
            (0, _) => {
                let label: &[u8] = if value { b"true" } else { b"false" };
                self.give(at, Value::Label(i64::from(value), label));
            }
            (_, value) => {
                if let Some(nested) = &mut self.nested {
                    nested.put(at, if value { "true" } else { "false" });
                }
            }
        }
    }
    /// As an array of bytes.
    fn blob(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.give(at, Value::Text(text.as_bytes()));
    }
    fn absent(&mut self, at: &Step, _: u64) {
        match &mut self.nested {
            Some(nested) => nested.put(at, "null"),
            None => self.give(at, Value::Absent),
        }
    }
}

/// What a context field says of whose an event is.
pub(crate) enum TaskPart {
    Pid,
    Tid,
}

#[inline]
pub(crate) fn task_part(name: &str) -> Option<TaskPart> {
    match name {
        "vpid" | "pid" => Some(TaskPart::Pid),
        "vtid" | "tid" => Some(TaskPart::Tid),
        _ => None,
    }
}

/// Process and thread of a recorded event, as far as its contexts say.
#[derive(Default)]
pub(crate) struct TaskReader {
    pid: Option<u32>,
    tid: Option<u32>,
}

impl TaskReader {
    /// None if the recording does not say.
    pub(crate) fn task(&self) -> Option<Task> {
        Some(Task { pid: self.pid?, tid: self.tid? })
    }
}

impl Visitor for TaskReader {
    #[inline]
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, _: bool, _: u8) {
        match task_part(&at.name) {
            Some(TaskPart::Pid) => self.pid = Some(raw as u32),
            Some(TaskPart::Tid) => self.tid = Some(raw as u32),
            None => {}
        }
    }
}
