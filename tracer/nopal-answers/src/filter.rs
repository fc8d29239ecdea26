//! Which events of a recording are wanted: `PATTERN` or `PATTERN if CONDITION`, read as `nopal trace` reads them.

use crate::event::{is_length, visible_fields};
use nopal_live::functions::{ENTRY, FunctionPattern, RETURN};
use nopal_live::plan::{MAX_STRING, NULL_TEXT, UNREADABLE_TEXT};
use nopal_live::predicate::{self, Context, Fields, Predicate, Source, Truth, fit};
use nopal_live::registry::{Choice, ConditionError, Unfit};
use nopal_proc::facts::Fact;
use nopal_sdt::pattern::glob;
use nopal_trace::{
    Decider, Enum, Event, EventClass, EventType, Filter, Label, Recording, Scratch, Selection, Step, Trace,
    Type, Visitor, number,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The events that choices name. An event that several of them name is wanted if any of their conditions holds.
pub fn choose(
    recording: &Recording,
    texts: &[String],
) -> Result<(Selection, Option<Arc<Conditions>>), Unfit> {
    if texts.is_empty() {
        return Ok((Selection::default(), None));
    }
    let classes = recording.event_classes();
    let mut conditions: Vec<Option<Wanted>> = classes.iter().map(|_| None).collect();
    for text in texts {
        let choice = Choice::parse(text);
        let (mut fits, mut error) = (false, None);
        for class in classes.iter().filter(|class| accepts(&choice, class)) {
            match condition(&choice, class) {
                Ok(condition) => {
                    fits = true;
                    conditions[class.index].get_or_insert_default().add(condition);
                }
                Err(misfit) => error = Some(misfit),
            }
        }
        match error {
            _ if fits => {}
            Some(error) => return Err(Unfit::Condition(error)),
            None => return Err(no_event(&choice, classes)),
        }
    }
    let is_wanted = conditions.iter().map(Option::is_some).collect();
    let has_any = conditions.iter().flatten().any(|wanted| !wanted.is_always);
    let conditions = has_any.then(|| {
        let is_ours =
            |class: &EventClass| recording.traces()[class.trace].env_text("nopal_version").is_some();
        Arc::new(Conditions {
            by_class: conditions.into_iter().map(|wanted| wanted.and_then(Wanted::predicate)).collect(),
            is_ours: classes.iter().map(is_ours).collect(),
            cut_at: classes.iter().map(|class| cut_at(&recording.traces()[class.trace])).collect(),
            unknown: Mutex::default(),
            n_undecided: AtomicU64::new(0),
        })
    });
    let filter = conditions.clone().map(|conditions| conditions as Arc<dyn Filter>);
    Ok((Selection { is_wanted, filter, ..Selection::default() }, conditions))
}

/// What is asked of the events of one class.
#[derive(Debug, Default)]
struct Wanted {
    is_always: bool,
    any: Vec<Predicate>,
}

impl Wanted {
    fn add(&mut self, condition: Option<Predicate>) {
        match condition {
            Some(condition) => self.any.push(condition),
            None => self.is_always = true,
        }
    }

    fn predicate(mut self) -> Option<Predicate> {
        match (self.is_always, self.any.len()) {
            (true, _) => None,
            (false, 1) => self.any.pop(),
            (false, _) => Some(Predicate::Any(self.any)),
        }
    }
}

/// By the name that is printed, too: that of another tracer may have more colons.
fn accepts(choice: &Choice, class: &EventClass) -> bool {
    let EventType { provider, name, .. } = &class.ty;
    if let Some(functions) = FunctionPattern::parse(choice.pattern.text()) {
        let function = name.strip_suffix(ENTRY).or_else(|| name.strip_suffix(RETURN));
        return function.is_some_and(|f| glob(functions.name(), f)) && glob(&functions.provider(), provider);
    }
    choice.pattern.matches(provider, name) || glob(choice.pattern.text(), &class.ty.full_name())
}

fn condition(choice: &Choice, class: &EventClass) -> Result<Option<Predicate>, ConditionError> {
    let Some(text) = &choice.condition else { return Ok(None) };
    let misfit = |error| ConditionError {
        probe: class.ty.full_name(),
        condition: text.clone(),
        error,
        arguments: visible_fields(&class.ty).into_iter().map(str::to_owned).collect(),
    };
    fit(text, &RecordedFields(&class.ty)).map(Some).map_err(misfit)
}

fn no_event(choice: &Choice, classes: &[EventClass]) -> Unfit {
    let known = || classes.iter().map(|class| (class.ty.provider.as_str(), class.ty.name.as_str()));
    Unfit::NoProbe {
        pattern: choice.pattern.text().to_owned(),
        suggestion: choice.pattern.suggest(known()),
        has_probes: !classes.is_empty(),
    }
}

/// The fields of a recorded event without the lengths in front of sequences.
struct RecordedFields<'a>(&'a EventType);

impl RecordedFields<'_> {
    fn ty(&self, field: usize) -> Option<&Type> {
        let ty = &self.0.fields.iter().filter(|field| !is_length(&field.name)).nth(field)?.ty;
        Some(match ty {
            Type::Optional(optional) => &optional.ty,
            other => other,
        })
    }
}

/// What the values of truth are called.
static TRUTHS: LazyLock<Vec<Label>> = LazyLock::new(|| match Type::bool() {
    Type::Enum(table) => table.labels.clone(),
    _ => Vec::new(),
});

impl Fields for RecordedFields<'_> {
    fn names(&self) -> Vec<&str> {
        visible_fields(self.0)
    }

    fn is_text(&self, field: usize) -> bool {
        matches!(self.ty(field), Some(Type::String | Type::Array(_) | Type::Wide(_) | Type::Blob(_)))
    }

    fn has_elements(&self, field: usize) -> bool {
        matches!(self.ty(field), Some(Type::Array(_) | Type::Blob(_)))
    }

    fn labels(&self, field: usize) -> &[Label] {
        match self.ty(field) {
            Some(Type::Enum(table)) => &table.labels,
            Some(Type::Variable(variable)) => variable.table.as_ref().map_or(&[], |table| &table.labels),
            Some(Type::Bool(_)) => &TRUTHS,
            _ => &[],
        }
    }
}

/// The conditions on the events of a recording.
#[derive(Debug)]
pub struct Conditions {
    /// By class; none if all are wanted.
    by_class: Vec<Option<Predicate>>,
    /// By class: whether nopal recorded it.
    is_ours: Vec<bool>,
    /// By class: how long a text is that may have been cut.
    cut_at: Vec<Option<usize>>,
    /// What was asked for and the recording does not say.
    unknown: Mutex<BTreeSet<&'static str>>,
    n_undecided: AtomicU64,
}

impl Conditions {
    /// Contexts that conditions ask for and some of the events do not have.
    pub fn unknown(&self) -> Vec<&'static str> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Events that were let through though the end of a text would have to be known.
    pub fn n_undecided(&self) -> u64 {
        self.n_undecided.load(Ordering::Relaxed)
    }

    fn holds(&self, event: &Event<'_>, values: &mut Values, scratch: &mut Scratch) -> bool {
        let Some(Some(condition)) = self.by_class.get(event.class_index()) else { return true };
        values.clear(self.is_ours[event.class_index()]);
        let cut_at = self.cut_at[event.class_index()];
        let mut task = TaskContext::default();
        let asks_context = condition.has_source(&|source| matches!(source, Source::Context(_)));
        if asks_context && event.context(scratch, &mut task).is_err() {
            return false;
        }
        if event.fields(scratch, values).is_err() {
            return false;
        }
        task.cpu = event.cpu();
        let truth = condition.decide(&|source| match source {
            Source::Field(field) => match values.field(field) {
                predicate::Value::Text(text) if cut_at.is_some_and(|most| text.len() >= most) => {
                    predicate::Value::Cut(text)
                }
                value => value,
            },
            Source::Element { field, index } => values.element(field, index),
            Source::Context(context) => match task.value(context) {
                predicate::Value::Absent => {
                    let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
                    unknown.insert(context.name());
                    predicate::Value::Absent
                }
                value => value,
            },
        });
        match truth {
            Truth::Yes => true,
            Truth::No => false,
            Truth::Unknown => {
                self.n_undecided.fetch_add(1, Ordering::Relaxed);
                true
            }
        }
    }
}

/// How long texts of a recording may be that were cut when they were recorded, if any were.
fn cut_at(trace: &Trace) -> Option<usize> {
    trace.verdict.as_ref().filter(|verdict| verdict.n_cut > 0)?;
    trace.env_number(MAX_STRING).and_then(|n| usize::try_from(n).ok())
}

impl Filter for Conditions {
    fn decider(&self) -> Decider<'_> {
        let (mut values, mut scratch) = (Values::default(), Scratch::default());
        Box::new(move |event| self.holds(event, &mut values, &mut scratch))
    }
}

/// One field of an event.
#[derive(Debug, Clone)]
enum Slot {
    Absent,
    Int(i128),
    Float(f64),
    /// A range of the bytes.
    Text(Range<usize>),
    /// A range of the elements. Those of one byte are a text, too.
    Elements {
        elements: Range<usize>,
        bytes: Option<Range<usize>>,
    },
}

#[derive(Debug, Clone, Copy)]
enum Element {
    Int(i128),
    Float(f64),
}

/// The values of one event; memory is used again for the next.
#[derive(Debug, Default)]
struct Values {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    elements: Vec<Element>,
    /// Values within values that are open.
    depth: u32,
    /// Where the bytes and the elements of the open array begin.
    begun: (usize, usize),
    has_wide_elements: bool,
    is_ours: bool,
}

impl Values {
    fn clear(&mut self, is_ours: bool) {
        self.slots.clear();
        self.bytes.clear();
        self.elements.clear();
        (self.depth, self.is_ours) = (0, is_ours);
    }

    fn field(&self, field: usize) -> predicate::Value<'_> {
        let text = |range: &Range<usize>| {
            let bytes = &self.bytes[range.clone()];
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            predicate::Value::Text(&bytes[..end])
        };
        match self.slots.get(field) {
            Some(Slot::Int(n)) => predicate::Value::Int(*n),
            Some(Slot::Float(n)) => predicate::Value::Float(*n),
            Some(Slot::Text(range) | Slot::Elements { bytes: Some(range), .. }) => text(range),
            Some(Slot::Absent | Slot::Elements { bytes: None, .. }) | None => predicate::Value::Absent,
        }
    }

    fn element(&self, field: usize, index: usize) -> predicate::Value<'_> {
        let found = match self.slots.get(field) {
            Some(Slot::Elements { elements, .. }) => self.elements[elements.clone()].get(index).copied(),
            Some(Slot::Text(range)) => {
                self.bytes[range.clone()].get(index).map(|byte| Element::Int(i128::from(*byte)))
            }
            Some(Slot::Absent | Slot::Int(_) | Slot::Float(_)) | None => None,
        };
        match found {
            Some(Element::Int(n)) => predicate::Value::Int(n),
            Some(Element::Float(n)) => predicate::Value::Float(n),
            None => predicate::Value::Absent,
        }
    }

    fn give(&mut self, at: &Step, slot: Slot) {
        if self.depth == 0 && !is_length(&at.name) {
            self.slots.push(slot);
        }
    }

    fn int(&mut self, at: &Step, value: i128, bits: u32) {
        if self.depth == 1 {
            self.has_wide_elements |= bits != 8;
            self.elements.push(Element::Int(value));
            self.bytes.push(value as u8);
        }
        self.give(at, Slot::Int(value));
    }

    fn open(&mut self) {
        if self.depth == 0 {
            self.begun = (self.bytes.len(), self.elements.len());
            self.has_wide_elements = false;
        }
        self.depth += 1;
    }

    fn close(&mut self, is_array: bool) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return;
        }
        let (bytes, elements) = (self.begun.0..self.bytes.len(), self.begun.1..self.elements.len());
        self.slots.push(match is_array {
            true => Slot::Elements { elements, bytes: (!self.has_wide_elements).then_some(bytes) },
            false => Slot::Absent,
        });
    }
}

impl Visitor for Values {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, bits: u32, is_signed: bool, _: u8) {
        self.int(at, number(raw, is_signed), bits);
    }
    fn float(&mut self, at: &Step, _: u64, value: f64, _: u32) {
        if self.depth == 1 {
            self.has_wide_elements = true;
            self.elements.push(Element::Float(value));
        }
        self.give(at, Slot::Float(value));
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        self.int(at, number(raw, table.integer.is_signed), table.integer.bits);
    }
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        if self.depth > 0 {
            self.has_wide_elements = true;
            return;
        }
        if self.is_ours && (bytes == NULL_TEXT || bytes == UNREADABLE_TEXT) {
            return self.give(at, Slot::Absent);
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.give(at, Slot::Text(from..self.bytes.len()));
    }
    fn begin_array(&mut self, _: &Step, _: u64, _: u64) {
        self.open();
    }
    fn end_array(&mut self) {
        self.close(true);
    }
    fn begin_struct(&mut self, _: &Step, _: u64) {
        self.open();
    }
    fn end_struct(&mut self) {
        self.close(false);
    }
    fn begin_variant(&mut self, _: &Step, _: u64) {
        self.open();
    }
    fn end_variant(&mut self) {
        self.close(false);
    }
    fn absent(&mut self, at: &Step, _: u64) {
        self.give(at, Slot::Absent);
    }
}

/// Whose event it was, as far as the recording says.
#[derive(Debug, Default)]
struct TaskContext {
    pid: Option<u64>,
    tid: Option<u64>,
    cpu: Option<u64>,
    name: Option<Vec<u8>>,
    facts: [Option<u64>; Fact::ALL.len()],
}

impl TaskContext {
    fn value(&self, context: Context) -> predicate::Value<'_> {
        let number = |n: Option<u64>| n.map_or(predicate::Value::Absent, |n| predicate::Value::Int(n.into()));
        match context {
            Context::Vpid => number(self.pid),
            Context::Vtid => number(self.tid),
            Context::CpuId => number(self.cpu),
            Context::Fact(fact) => number(self.facts[fact as usize]),
            Context::Procname => {
                self.name.as_deref().map_or(predicate::Value::Absent, predicate::Value::Text)
            }
        }
    }
}

impl Visitor for TaskContext {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, _: u32, _: bool, _: u8) {
        match &*at.name {
            "vpid" => self.pid = Some(raw),
            "vtid" => self.tid = Some(raw),
            "pid" => self.pid = self.pid.or(Some(raw)),
            "tid" => self.tid = self.tid.or(Some(raw)),
            name => {
                if let Some(fact) = Fact::parse(name) {
                    self.facts[fact as usize] = Some(raw);
                }
            }
        }
    }
    fn string(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        if &*at.name == "procname" {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            self.name = Some(bytes[..end].to_vec());
        }
    }
}
