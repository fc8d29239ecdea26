//! What a hit of a probe leaves: from what is known of its arguments to the captures of each site, the fields of the
//! event, and the way from one to the other. Pure.
//!
//! Sites of one probe may hold the same argument in different widths; the event has one layout for all of them.

mod shape;

use crate::predicate::{Fields, Value};
use crate::stack::{StackCopy, StackPlace};
use nopal_capture::packed::{self, Block, Shape};
use nopal_capture::record::{Field, FieldKind, RecordLayout, Text};
use nopal_capture::{Capture, thread_context};
use nopal_sdt::operand::{Base, Operand, Place};
use nopal_sdt::probe::{ArgDescription, Description, Probe, Site};
use nopal_trace::{EventType, Type};

/// Limits of what is copied at a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest string or byte string.
    pub max_string_bytes: u32,
    /// How much of the thread's stack comes with each hit; 0 for none.
    pub stack_bytes: u32,
    /// Whether each event has two fields more: the trace and the span of OpenTelemetry that its thread works on.
    pub has_thread_context: bool,
}

impl Limits {
    /// Longest packed block: all arrays and sequences of an event together.
    pub fn max_packed_bytes(self) -> u32 {
        self.max_string_bytes.max(4096)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_string_bytes: 256, stack_bytes: 0, has_thread_context: false }
    }
}

/// One event and the sites that leave it.
#[derive(Debug, Clone)]
pub struct EventPlan {
    pub event_type: EventType,
    fields: Vec<PlannedField>,
    pub sites: Vec<SitePlan>,
}

/// What one site captures, and how its captures become the event's fields.
#[derive(Debug, Clone)]
pub struct SitePlan {
    pub captures: Vec<Capture>,
    /// By field: which capture holds it; `None` where this site's operand cannot be read.
    sources: Vec<Option<usize>>,
    layout: RecordLayout,
    /// The capture that holds the packed block; the last one.
    packed: Option<usize>,
    /// Captures of the frame pointer, the stack pointer and the stack from there on.
    stack: Option<StackPlace>,
    /// The capture that holds the thread context.
    thread_context: Option<usize>,
    /// How the event's fields are made of a record, where that takes copying alone: most sites.
    steps: Option<Vec<Step>>,
    /// Arguments that could not be read here, with the reason.
    pub unread: Vec<String>,
}

/// A step from a record to the event's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Bytes of the fixed part as they are: one field or several.
    Fixed { offset: usize, bytes: usize },
    /// The next string.
    Text(Field),
}

#[derive(Debug, Clone)]
struct PlannedField {
    name: String,
    shape: Shape,
    /// Its bytes are in the packed block, after those of the packed field before it.
    is_packed: bool,
    /// It is part of the event; others are for conditions only.
    is_written: bool,
    is_big_endian: bool,
    /// Of an array or a sequence: how an element is read.
    element: Option<Shape>,
}

/// A record that is shorter than its site's captures: it is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// What the reading of one record came upon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Texts {
    pub n_truncated: u32,
    pub n_unreadable: u32,
}

/// A field is more than an integer operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotPlain;

impl Fields for EventPlan {
    fn names(&self) -> Vec<&str> {
        self.field_names().collect()
    }

    fn is_text(&self, field: usize) -> bool {
        matches!(self.fields[field].shape, Shape::Text | Shape::Elements { .. } | Shape::Array { .. })
    }

    fn has_elements(&self, field: usize) -> bool {
        matches!(self.fields[field].shape, Shape::Elements { .. } | Shape::Array { .. })
    }

    fn labels(&self, field: usize) -> &[nopal_trace::Label] {
        let name = &self.fields[field].name;
        match self.event_type.fields.iter().find(|f| f.name == *name).map(|f| &f.ty) {
            Some(Type::Enum(table)) => &table.labels,
            _ => &[],
        }
    }
}

impl EventPlan {
    pub fn new(probe: &Probe, limits: Limits) -> EventPlan {
        let arguments = arguments(probe, limits);
        let fields: Vec<PlannedField> = arguments
            .iter()
            .map(|description| PlannedField {
                name: description.name.clone(),
                shape: match description.operand {
                    Some(_) => shape::of_operand(probe, description),
                    None => shape::in_block(description, limits),
                },
                is_packed: description.operand.is_none(),
                is_written: !description.is_unwritten,
                is_big_endian: description.is_big_endian,
                element: shape::of_element(description),
            })
            .collect();
        let mut event_type = EventType::new(&probe.provider, &probe.name);
        for (field, description) in fields.iter().zip(&arguments).filter(|(field, _)| field.is_written) {
            event_type = match (field.shape, shape::field_type(field.shape, description)) {
                (Shape::Elements { .. }, ty) => event_type.field(&field.name, Type::sequence(ty)),
                (Shape::Array { count, .. }, ty) => {
                    event_type.field(&field.name, Type::array(ty, u64::from(count)))
                }
                (_, ty) => event_type.field(&field.name, ty),
            };
        }
        if limits.has_thread_context {
            for name in thread_context_names(|name| fields.iter().any(|field| field.name == name)) {
                event_type = event_type.field(&name, Type::String);
            }
        }
        event_type.log_level =
            probe.description.as_ref().and_then(|description| description.log_level).map(i64::from);
        event_type.model_uri =
            probe.description.as_ref().and_then(|description| description.model_uri.clone());
        let block = probe
            .description
            .as_ref()
            .and_then(|description| description.packed)
            .filter(|_| fields.iter().any(|f| f.is_packed));
        let sites =
            probe.sites.iter().map(|site| SitePlan::new(site, &arguments, &fields, block, limits)).collect();
        EventPlan { event_type, fields, sites }
    }

    /// Position of the argument `name`, or of `argN`, in conditions.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.position(name)
    }

    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|f| f.name.as_str())
    }

    /// The integer operand behind a field at a site: what a stub can compare.
    pub fn integer_operand(&self, site: usize, field: usize) -> Option<&Operand> {
        if !matches!(self.fields[field].shape, Shape::Integer { .. }) || self.fields[field].is_big_endian {
            return None;
        }
        match &self.sites[site].captures[self.sites[site].sources[field]?] {
            Capture::Value { operand } => Some(operand),
            Capture::CString { .. } | Capture::Bytes { .. } | Capture::ThreadContext { .. } => None,
        }
    }

    pub fn is_signed(&self, field: usize) -> bool {
        matches!(self.fields[field].shape, Shape::Integer { is_signed: true, .. })
    }

    /// The same where the field is nothing but the operand: what is not there at all is none, what is not so plain an error.
    pub fn plain_operand(&self, site: usize, field: usize) -> Result<Option<&Operand>, NotPlain> {
        let PlannedField { shape, is_packed, .. } = &self.fields[field];
        if !is_packed && self.sites[site].sources[field].is_none() {
            return Ok(None);
        }
        let operand = self.integer_operand(site, field).ok_or(NotPlain)?;
        // One that fills a field with a sign turns negative there.
        let turns = matches!(shape, Shape::Integer { size_bytes: 8, is_signed: true })
            && !operand.is_signed
            && operand.size_bytes == 8;
        if turns || operand.is_float || operand.size_bytes > 8 { Err(NotPlain) } else { Ok(Some(operand)) }
    }

    /// The value of a field in a record's payload, for conditions.
    pub fn value<'a>(&self, site: usize, payload: &'a [u8], field: usize) -> Value<'a> {
        let plan = &self.sites[site];
        if self.fields[field].is_packed {
            return self.packed_value(plan, payload, field).unwrap_or(Value::Absent);
        }
        let Some(capture) = plan.sources[field] else { return Value::Absent };
        match plan.layout.fields()[capture].kind {
            FieldKind::Text { .. } => plan.layout.text(payload, capture).map_or(Value::Absent, Value::from),
            FieldKind::Value { size_bytes, is_signed, .. } => {
                let Some(bits) = plan.layout.bits(payload, capture) else { return Value::Absent };
                let (shape, bits) = match self.fields[field].shape {
                    shape @ Shape::Float { .. } => (shape, bits),
                    _ if self.fields[field].is_big_endian => {
                        (Shape::Integer { size_bytes, is_signed }, packed::swapped(bits, size_bytes))
                    }
                    _ => (Shape::Integer { size_bytes: 8, is_signed }, bits),
                };
                shape.number(bits).map_or(Value::Absent, Value::from)
            }
        }
    }

    fn packed_value<'a>(&self, plan: &SitePlan, payload: &'a [u8], field: usize) -> Option<Value<'a>> {
        self.piece(plan, payload, field)?.value(self.fields[field].is_big_endian).map(Value::from)
    }

    fn piece<'a>(&self, plan: &SitePlan, payload: &'a [u8], field: usize) -> Option<packed::Piece<'a>> {
        let text = plan.layout.text(payload, plan.packed?)?;
        let mut block = Block::new(text.bytes);
        for before in self.fields[..field].iter().filter(|f| f.is_packed) {
            block.take(before.shape);
        }
        let shape = self.fields[field].shape;
        let mut piece = block.take(shape);
        // An array that fills the block to its end had more if the block had.
        piece.is_cut |= matches!(shape, Shape::Array { .. }) && block.is_empty() && text.is_truncated;
        Some(piece)
    }

    /// The value of an element of an array or a sequence, for conditions.
    pub fn element<'a>(&self, site: usize, payload: &'a [u8], field: usize, index: usize) -> Value<'a> {
        let plan = &self.sites[site];
        let PlannedField { element, is_packed, is_big_endian, .. } = &self.fields[field];
        let bytes = match (is_packed, plan.sources[field]) {
            (true, _) => self.piece(plan, payload, field).map(packed::Piece::bytes),
            (false, Some(capture)) => plan.layout.text(payload, capture).map(|text| text.bytes),
            (false, None) => None,
        };
        let (Some(bytes), Some(shape)) = (bytes, *element) else { return Value::Absent };
        packed::element(bytes, shape, index, *is_big_endian).map_or(Value::Absent, Value::from)
    }

    /// The stack of a hit, if its record has it.
    pub(crate) fn stack<'a>(&self, site: usize, payload: &'a [u8]) -> Option<StackCopy<'a>> {
        let plan = &self.sites[site];
        plan.stack?.read(&plan.layout, payload)
    }

    /// Appends the event's fields, as its type lays them out, to `into`.
    #[inline]
    pub fn pack(&self, site: usize, payload: &[u8], into: &mut Vec<u8>) -> Result<Texts, Malformed> {
        let plan = &self.sites[site];
        let Some(steps) = &plan.steps else { return self.transcode(site, payload, into) };
        let (mut texts, mut rest) = (Texts::default(), plan.layout.texts(payload));
        into.reserve(payload.len());
        for step in steps {
            match *step {
                Step::Fixed { offset, bytes } => {
                    let fields = payload.get(offset..offset + bytes).ok_or(Malformed)?;
                    // By cases, as a copy of a size that is known is two instructions.
                    match fields {
                        [a, b, c, d] => into.extend_from_slice(&[*a, *b, *c, *d]),
                        [a, b, c, d, e, f, g, h] => into.extend_from_slice(&[*a, *b, *c, *d, *e, *f, *g, *h]),
                        _ => into.extend_from_slice(fields),
                    }
                }
                Step::Text(field) => {
                    let text = rest.take(field).ok_or(Malformed)?;
                    texts.count(text);
                    push_text(text, into);
                }
            }
        }
        Ok(texts)
    }

    /// The same for every site.
    fn transcode(&self, site: usize, payload: &[u8], into: &mut Vec<u8>) -> Result<Texts, Malformed> {
        let plan = &self.sites[site];
        if payload.len() < plan.layout.fixed_bytes() as usize {
            return Err(Malformed);
        }
        let (mut texts, mut rest) = (Texts::default(), plan.layout.texts(payload));
        let mut block = Block::new(&[]);
        if let Some(packed) = plan.packed {
            let text = plan.layout.text(payload, packed).ok_or(Malformed)?;
            texts.count(text);
            block = Block::new(text.bytes);
        }
        // Strings follow the fixed part in the order of the captures, which is that of the fields.
        for (field, source) in self.fields.iter().zip(&plan.sources) {
            if field.is_packed {
                let piece = block.take(field.shape);
                if field.is_written {
                    texts.n_truncated += u32::from(piece.is_cut);
                    piece.push(into);
                }
                continue;
            }
            let source = source.map(|capture| plan.layout.fields()[capture]);
            if !field.is_written {
                if let Some(hidden) = source.filter(|field| field.is_text()) {
                    rest.take(hidden).ok_or(Malformed)?;
                }
                continue;
            }
            match (field.shape, source) {
                (Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes }, Some(capture)) => {
                    let bits = capture.bits(payload).ok_or(Malformed)?;
                    into.extend_from_slice(&bits.to_le_bytes()[..usize::from(size_bytes)]);
                }
                (Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes }, None) => {
                    into.extend_from_slice(&[0; 8][..usize::from(size_bytes)]);
                }
                (Shape::Text, Some(capture)) => {
                    let text = rest.take(capture).ok_or(Malformed)?;
                    texts.count(text);
                    push_text(text, into);
                }
                (Shape::Text, None) => into.push(0),
                (Shape::Elements { size_bytes }, Some(capture)) => {
                    let text = rest.take(capture).ok_or(Malformed)?;
                    texts.count(text);
                    let count = text.bytes.len() / usize::from(size_bytes);
                    into.extend_from_slice(&(count as u32).to_le_bytes());
                    into.extend_from_slice(&text.bytes[..count * usize::from(size_bytes)]);
                }
                (Shape::Elements { .. }, None) => into.extend_from_slice(&0u32.to_le_bytes()),
                // Arrays are packed.
                (Shape::Array { .. }, _) => {}
            }
        }
        if let Some(capture) = plan.thread_context {
            push_ids(plan.layout.text(payload, capture).ok_or(Malformed)?.bytes, into);
        }
        Ok(texts)
    }
}

impl SitePlan {
    fn new(
        site: &Site,
        arguments: &[ArgDescription],
        fields: &[PlannedField],
        block: Option<(u8, u8)>,
        limits: Limits,
    ) -> SitePlan {
        let mut plan = SitePlan {
            captures: Vec::new(),
            sources: Vec::new(),
            layout: RecordLayout::default(),
            packed: None,
            stack: None,
            thread_context: None,
            steps: None,
            unread: Vec::new(),
        };
        for (description, field) in arguments.iter().zip(fields) {
            if field.is_packed {
                plan.sources.push(None);
                continue;
            }
            let source = match capture(site, description, field.shape, limits) {
                Ok(capture) => Some(plan.push(capture)),
                Err(reason) => {
                    plan.unread.push(format!("{}: {reason}", field.name));
                    None
                }
            };
            plan.sources.push(source);
        }
        if let Some((address, length)) = block {
            match block_capture(site, address, length, limits) {
                Ok(capture) => plan.packed = Some(plan.push(capture)),
                Err(reason) => plan.unread.push(format!("packed fields: {reason}")),
            }
        }
        if limits.stack_bytes > 0 {
            plan.stack = Some(StackPlace::plan(site, limits.stack_bytes, |capture| plan.push(capture)));
        }
        if limits.has_thread_context {
            plan.thread_context = Some(plan.push(Capture::ThreadContext { offset: None }));
        }
        plan.steps = plan.find_steps(fields);
        plan
    }

    /// The steps from a record to the fields, if each field is a capture that is written as it is.
    fn find_steps(&self, fields: &[PlannedField]) -> Option<Vec<Step>> {
        if self.packed.is_some() || self.stack.is_some() || self.thread_context.is_some() {
            return None;
        }
        let mut steps = Vec::new();
        for (i, (field, source)) in fields.iter().zip(&self.sources).enumerate() {
            if *source != Some(i) || !field.is_written {
                return None;
            }
            let captured = self.layout.fields()[i];
            match (field.shape, captured.kind, steps.last_mut()) {
                (Shape::Text, ..) => steps.push(Step::Text(captured)),
                (
                    Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes },
                    FieldKind::Value { size_bytes: captured_bytes, .. },
                    last,
                ) if size_bytes == captured_bytes => {
                    let bytes = usize::from(size_bytes);
                    match last {
                        Some(Step::Fixed { bytes: before, .. }) => *before += bytes,
                        _ => steps.push(Step::Fixed { offset: captured.offset as usize, bytes }),
                    }
                }
                _ => return None,
            }
        }
        Some(steps)
    }

    fn push(&mut self, capture: Capture) -> usize {
        let index = self.layout.push(&capture);
        self.captures.push(capture);
        index
    }
}

/// What the fields of the thread context are called: as OpenTelemetry calls them, unless the probe has such a field.
pub fn thread_context_names(is_field: impl Fn(&str) -> bool) -> [String; 2] {
    ["trace_id", "span_id"].map(|name| match is_field(name) {
        true => format!("otel_{name}"),
        false => name.to_owned(),
    })
}

/// Two texts in hexadecimal, or two empty ones.
fn push_ids(record: &[u8], into: &mut Vec<u8>) {
    let ids = thread_context::ids(record);
    let (trace, span) = ids.as_ref().map_or((&[][..], &[][..]), |(trace, span)| (trace, span));
    for id in [trace, span] {
        id.iter().for_each(|byte| into.extend_from_slice(format!("{byte:02x}").as_bytes()));
        into.push(0);
    }
}

impl Texts {
    fn count(&mut self, text: Text<'_>) {
        self.n_truncated += u32::from(text.is_truncated);
        self.n_unreadable += u32::from(text.is_unreadable);
    }
}

/// What a recording calls the length at which its texts are cut, in its environment.
pub const MAX_STRING: &str = "max_string";

/// What a recording has in the place of a text that a null pointer should lead to, and any other that leads nowhere.
pub const NULL_TEXT: &[u8] = b"(null)";
pub const UNREADABLE_TEXT: &[u8] = b"(unreadable)";

/// A string of the event ends at its first NUL. Most are short, so that a word at a time is soonest done.
#[inline]
fn push_text(text: Text<'_>, into: &mut Vec<u8>) {
    let bytes = text.bytes;
    if text.is_null {
        into.extend_from_slice(NULL_TEXT);
    } else if text.is_unreadable && bytes.is_empty() {
        into.extend_from_slice(UNREADABLE_TEXT);
    } else {
        into.reserve(bytes.len() + 1);
        let (words, _) = bytes.as_chunks();
        let n_whole = words.iter().take_while(|word| !has_nul(u64::from_le_bytes(**word))).count();
        words[..n_whole].iter().for_each(|word| into.extend_from_slice(word));
        let rest = bytes[8 * n_whole..].iter().take_while(|byte| **byte != 0);
        rest.for_each(|byte| into.push(*byte));
    }
    into.push(0);
}

fn has_nul(word: u64) -> bool {
    const LOW_BITS: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);
    word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS != 0
}

/// The event's arguments: those the probe tells of, then the operands nobody speaks for, as `argN`.
fn arguments(probe: &Probe, limits: Limits) -> Vec<ArgDescription> {
    let n_operands = probe.sites.iter().map(|s| s.args.len()).max().unwrap_or(0);
    let description = probe.description.as_ref();
    let told = description.map_or(&[][..], |description| &description.args);
    let is_operand = |n: u8| n > 0 && usize::from(n) <= n_operands;
    let block = description
        .and_then(|description: &Description| description.packed)
        .filter(|(address, length)| is_operand(*address) && is_operand(*length));
    // Fields that lie beyond the longest block there can be are never seen.
    let mut room = if block.is_some() { limits.max_packed_bytes() } else { 0 };
    let mut arguments: Vec<ArgDescription> = told
        .iter()
        .filter(|arg| match arg.operand {
            Some(operand) => is_operand(operand),
            None => {
                let fits = room > 0;
                room = room.saturating_sub(shape::least_bytes(shape::in_block(arg, limits)));
                fits
            }
        })
        .cloned()
        .collect();
    // A probe with a block has operands that only fill the places before it.
    let is_spoken_for = |n: u8| {
        block.is_some() || told.iter().any(|arg| arg.operand == Some(n) || arg.length_operand == Some(n))
    };
    for operand in (1..=n_operands as u8).filter(|n| !is_spoken_for(*n)) {
        arguments.push(ArgDescription { operand: Some(operand), ..ArgDescription::default() });
    }
    for arg in &mut arguments {
        if arg.name.is_empty() {
            arg.name = format!("arg{}", arg.operand.unwrap_or(1) - 1);
        }
    }
    arguments
}

fn operand(site: &Site, number: u8) -> Result<&Operand, String> {
    let arg = site.args.get(usize::from(number).wrapping_sub(1)).ok_or("this site has fewer arguments")?;
    let operand = arg.operand.as_ref().map_err(|e| format!("`{}`: {}", arg.text, e.reason))?;
    if let Place::Memory(memory) = &operand.place
        && let Base::Symbol { name, address: None } = &memory.base
    {
        return Err(format!("`{}`: the file has no symbol `{name}`", arg.text));
    }
    Ok(operand)
}

/// The packed block: on the stack, so it can be read.
fn block_capture(site: &Site, address: u8, length: u8, limits: Limits) -> Result<Capture, String> {
    Ok(Capture::Bytes {
        pointer: operand(site, address)?.clone(),
        length: operand(site, length)?.clone(),
        unit_bytes: 1,
        max_bytes: limits.max_packed_bytes(),
        is_trusted: true,
    })
}

fn capture(
    site: &Site,
    description: &ArgDescription,
    shape: Shape,
    limits: Limits,
) -> Result<Capture, String> {
    let pointer = operand(site, description.operand.unwrap_or(0))?.clone();
    let max_bytes = limits.max_string_bytes;
    let is_trusted = description.is_trusted;
    match shape {
        Shape::Array { .. } => Err("an array that is not packed".into()),
        Shape::Text | Shape::Elements { .. } => {
            let Some(length) = description.length_operand else {
                return Ok(Capture::CString { pointer, max_bytes, is_trusted });
            };
            let length = operand(site, length)?.clone();
            let unit_bytes = match shape {
                Shape::Elements { size_bytes } => u32::from(size_bytes),
                _ => 1,
            };
            Ok(Capture::Bytes { pointer, length, unit_bytes, max_bytes, is_trusted })
        }
        Shape::Integer { .. } | Shape::Float { .. } => match (&pointer.place, pointer.size_bytes) {
            (
                Place::Register(_) | Place::Constant(_) | Place::Memory(_) | Place::Vector(_),
                1 | 2 | 4 | 8,
            ) => Ok(Capture::Value { operand: pointer }),
            (_, size) => Err(format!("a value of {size} bytes")),
        },
    }
}

#[cfg(test)]
mod tests;
