//! Decode plans: the layout of an event as a flat list of steps, so that no type tree is walked per event. Compiles
//! types to plans; `decode.rs` runs them.

use crate::escape::escape;
use crate::escape::json_string;
use crate::model::{ByteOrder, Enum, Field, Integer, Length, Type};
use std::sync::Arc;

/// Values that lengths and variants refer to. The first ones belong to scopes that several events share.
pub(super) const N_SLOTS: usize = 256;
const N_SHARED_SLOTS: usize = 64;
/// Arrays within arrays.
pub(super) const MAX_LOOPS: usize = 16;
/// Steps of one plan; nested named types could otherwise multiply without end.
const MAX_STEPS: usize = 1 << 16;

#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    /// Size in bits, from a whole byte on, if every event has the same and nothing in it needs looking at.
    pub fixed_bits: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub kind: Kind,
    pub align_bits: u32,
    /// Where the value is kept for lengths and variants; `u16::MAX` for nowhere.
    pub slot: u16,
    /// The step is the element of an array, so its index is its name.
    pub is_element: bool,
    pub name: Arc<str>,
    /// What stands before the value in text: ` name = ` or `, name = `.
    pub lead: Box<[u8]>,
    /// What stands before it in JSON: `"name":`.
    pub key: Box<[u8]>,
    pub role: Role,
    /// The format's own bookkeeping, of no interest to people.
    pub is_hidden: bool,
}

/// What a value means to the reader itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    None,
    EventId,
    /// Holds the low bits of the clock.
    Clock,
    Magic,
    StreamId,
    StreamInstance,
    TimestampBegin,
    TimestampEnd,
    ContentSize,
    PacketSize,
    EventsDiscarded,
    PacketSeqNum,
    CpuId,
}

#[derive(Debug, Clone)]
pub enum Kind {
    /// Nothing but an alignment.
    Align,
    Integer {
        bits: u32,
        is_signed: bool,
        is_big: bool,
        base: u8,
    },
    Float {
        bits: u32,
        is_big: bool,
    },
    Enum {
        bits: u32,
        is_big: bool,
        table: Arc<Enum>,
    },
    String,
    /// An array of characters.
    Text {
        length: Count,
    },
    Array {
        length: Count,
        end: u32,
    },
    ArrayEnd {
        begin: u32,
    },
    Struct,
    StructEnd,
    Variant {
        tag: u16,
        arms: Vec<Arm>,
    },
    VariantEnd {
        next: u32,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Count {
    Fixed(u64),
    Slot(u16),
}

#[derive(Debug, Clone)]
pub struct Arm {
    pub first: i128,
    pub last: i128,
    pub target: u32,
}

/// Where a scope lies: the prefix of absolute references to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamContext,
    EventContext,
    EventFields,
}

impl ScopeKind {
    const fn prefix(self) -> &'static [&'static str] {
        match self {
            ScopeKind::PacketHeader => &["trace", "packet", "header"],
            ScopeKind::PacketContext => &["stream", "packet", "context"],
            ScopeKind::EventHeader => &["stream", "event", "header"],
            ScopeKind::StreamContext => &["stream", "event", "context"],
            ScopeKind::EventContext => &["event", "context"],
            ScopeKind::EventFields => &["event", "fields"],
        }
    }

    const fn is_shared(self) -> bool {
        !matches!(self, ScopeKind::EventContext | ScopeKind::EventFields)
    }
}

/// A compiled scope: its plan, and the names that later scopes may refer to.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub kind: ScopeKind,
    pub plan: Plan,
    names: Vec<Name>,
}

#[derive(Debug, Clone)]
struct Name {
    raw: String,
    target: Target,
}

#[derive(Debug, Clone)]
enum Target {
    /// Step with an integer or an enum.
    Leaf {
        step: usize,
        table: Option<Arc<Enum>>,
    },
    Struct(Vec<Name>),
    /// Cannot be referred to.
    Other,
}

/// The slots in use: shared ones count up for a whole stream, those of an event's own scopes start again for each.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Slots {
    pub n_shared: usize,
    n_own: usize,
}

impl Slots {
    pub(crate) fn for_next_event(self) -> Slots {
        Slots { n_own: 0, ..self }
    }
}

/// Compiles `ty` as one scope that comes after the scopes in `before` (whose plans get a slot where it refers to them).
pub(crate) fn compile(
    kind: ScopeKind,
    ty: &Type,
    order: ByteOrder,
    before: &mut [&mut Scope],
    slots: &mut Slots,
) -> Result<Scope, String> {
    let mut compiler =
        Compiler { kind, order, before, slots, steps: Vec::new(), frames: vec![Vec::new()], n_loops: 0 };
    match ty {
        // The braces around a scope are the printer's, so its own struct leaves no step.
        Type::Struct(s) => {
            compiler.align(ty.align_bits());
            compiler.members(&s.fields)?;
        }
        _ => return Err("a scope must be a struct".to_owned()),
    }
    let names = compiler.frames.pop().unwrap_or_default();
    let steps = compiler.steps;
    let fixed_bits = fixed_size(&steps);
    Ok(Scope { kind, plan: Plan { steps, fixed_bits }, names })
}

/// The size of a plan whose steps are all byte-aligned numbers of whole bytes that nothing refers to.
fn fixed_size(steps: &[Step]) -> Option<u64> {
    let mut total: u64 = 0;
    for step in steps {
        let bits = match step.kind {
            Kind::Integer { bits, .. } | Kind::Enum { bits, .. } | Kind::Float { bits, .. } => bits,
            Kind::Align | Kind::Struct | Kind::StructEnd if step.align_bits <= 8 => continue,
            _ => return None,
        };
        if step.align_bits != 8 || bits % 8 != 0 || step.slot != u16::MAX {
            return None;
        }
        total += u64::from(bits);
    }
    Some(total)
}

struct Compiler<'a, 'b> {
    kind: ScopeKind,
    order: ByteOrder,
    before: &'a mut [&'b mut Scope],
    slots: &'a mut Slots,
    steps: Vec<Step>,
    /// Names of the structs that are open, the innermost last.
    frames: Vec<Vec<Name>>,
    n_loops: usize,
}

impl Compiler<'_, '_> {
    /// An alignment without a value: a struct asks for it whatever its first member asks for.
    fn align(&mut self, align_bits: u32) {
        if align_bits > 1 {
            self.steps.push(self.step(Kind::Align, align_bits, "", b"".as_slice()));
        }
    }

    fn step(&self, kind: Kind, align_bits: u32, name: &str, lead: &[u8]) -> Step {
        Step {
            kind,
            align_bits,
            slot: u16::MAX,
            is_element: false,
            name: Arc::from(name),
            lead: lead.into(),
            key: json_key(name),
            role: Role::None,
            is_hidden: false,
        }
    }

    fn members(&mut self, fields: &[Field]) -> Result<(), String> {
        let mut is_first = true;
        for field in fields {
            let role = self.role_of(field);
            // What the format itself needs is no part of what a packet says to people.
            let is_hidden = self.kind == ScopeKind::PacketContext && is_bookkeeping(role);
            let lead = if is_hidden {
                String::new()
            } else {
                format!("{} {} = ", if is_first { "" } else { "," }, escape(&field.name))
            };
            is_first &= is_hidden;
            let target = self.value(&field.ty, &field.name, lead.as_bytes(), false, role)?;
            if let Some(frame) = self.frames.last_mut() {
                frame.push(Name { raw: field.raw.clone(), target });
            }
        }
        Ok(())
    }

    fn role_of(&self, field: &Field) -> Role {
        let integer = match &field.ty {
            Type::Integer(i) => i,
            Type::Enum(e) => &e.integer,
            _ => return Role::None,
        };
        match (self.kind, field.raw.as_str()) {
            (ScopeKind::PacketHeader, "magic") if self.frames.len() == 1 => Role::Magic,
            (ScopeKind::PacketHeader, "stream_id") if self.frames.len() == 1 => Role::StreamId,
            (ScopeKind::PacketHeader, "stream_instance_id") if self.frames.len() == 1 => Role::StreamInstance,
            (ScopeKind::PacketContext, name) if self.frames.len() == 1 => match name {
                "timestamp_begin" => Role::TimestampBegin,
                "timestamp_end" => Role::TimestampEnd,
                "content_size" => Role::ContentSize,
                "packet_size" => Role::PacketSize,
                "events_discarded" => Role::EventsDiscarded,
                "packet_seq_num" => Role::PacketSeqNum,
                "cpu_id" => Role::CpuId,
                _ => Role::None,
            },
            (ScopeKind::EventHeader, _) if integer.clock.is_some() => Role::Clock,
            (ScopeKind::EventHeader, "id") => Role::EventId,
            _ => Role::None,
        }
    }

    fn is_big(&self, order: Option<ByteOrder>) -> bool {
        order.unwrap_or(self.order) == ByteOrder::Big
    }

    fn value(
        &mut self,
        ty: &Type,
        name: &str,
        lead: &[u8],
        is_element: bool,
        role: Role,
    ) -> Result<Target, String> {
        if self.steps.len() > MAX_STEPS {
            return Err("the types multiply to more fields than can be read".to_owned());
        }
        let at = self.steps.len();
        let mut step = self.step(Kind::String, ty.align_bits(), name, lead);
        step.is_element = is_element;
        step.role = role;
        step.is_hidden = self.kind == ScopeKind::PacketContext && is_bookkeeping(role);
        let leaf = |table| Target::Leaf { step: at, table };
        match ty {
            Type::Integer(i) => {
                step.kind = Kind::Integer {
                    bits: i.bits,
                    is_signed: i.is_signed,
                    is_big: self.is_big(i.order),
                    base: i.base,
                };
                self.steps.push(step);
                Ok(leaf(None))
            }
            Type::Enum(e) => {
                let is_big = self.is_big(e.integer.order);
                step.kind = Kind::Enum { bits: e.integer.bits, is_big, table: e.clone() };
                self.steps.push(step);
                Ok(leaf(Some(e.clone())))
            }
            Type::Float(f) => {
                step.kind = Kind::Float { bits: f.bits, is_big: self.is_big(f.order) };
                self.steps.push(step);
                Ok(Target::Other)
            }
            Type::String => {
                self.steps.push(step);
                Ok(Target::Other)
            }
            Type::Struct(s) => {
                step.kind = Kind::Struct;
                self.steps.push(step);
                self.frames.push(Vec::new());
                self.members(&s.fields)?;
                let names = self.frames.pop().unwrap_or_default();
                self.steps.push(self.step(Kind::StructEnd, 1, "", b"".as_slice()));
                Ok(Target::Struct(names))
            }
            Type::Array(a) => {
                let length = match &a.length {
                    Length::Fixed(n) => Count::Fixed(*n),
                    Length::Field(path) => Count::Slot(self.reference(path)?.0),
                };
                if is_character(&a.element) {
                    step.kind = Kind::Text { length };
                    self.steps.push(step);
                    return Ok(Target::Other);
                }
                self.n_loops += 1;
                if self.n_loops > MAX_LOOPS {
                    return Err("arrays are nested too deeply".to_owned());
                }
                self.steps.push(step);
                self.value(&a.element, "", b"", true, Role::None)?;
                self.n_loops -= 1;
                self.steps.push(self.step(Kind::ArrayEnd { begin: at as u32 }, 1, "", b"".as_slice()));
                self.steps[at].kind = Kind::Array { length, end: self.steps.len() as u32 };
                Ok(Target::Other)
            }
            Type::Variant(v) => {
                let (tag, table) = self.reference(&v.tag)?;
                let Some(table) = table else {
                    return Err(format!("the tag `{}` of a variant is not an enum", v.tag.join(".")));
                };
                self.steps.push(step);
                let mut arms = Vec::new();
                let mut ends = Vec::new();
                for option in &v.options {
                    let target = self.steps.len() as u32;
                    arms.extend(table.labels.iter().filter(|l| l.text == option.raw).map(|l| Arm {
                        first: l.first,
                        last: l.last,
                        target,
                    }));
                    self.frames.push(Vec::new());
                    let role = self.role_of(option);
                    self.value(&option.ty, &option.name, b"", false, role)?;
                    self.frames.pop();
                    ends.push(self.steps.len());
                    self.steps.push(self.step(Kind::VariantEnd { next: 0 }, 1, "", b"".as_slice()));
                }
                let next = self.steps.len() as u32;
                for end in ends {
                    self.steps[end].kind = Kind::VariantEnd { next };
                }
                self.steps[at].kind = Kind::Variant { tag, arms };
                Ok(Target::Other)
            }
        }
    }

    /// The slot of the value that `path` names, looked for as TSDL does: absolute, or outwards from here.
    fn reference(&mut self, path: &[String]) -> Result<(u16, Option<Arc<Enum>>), String> {
        let found = self.frames.iter().rev().find_map(|frame| find(frame, path));
        if let Some((step, table)) = found {
            let slot = self.slots.assign(&mut self.steps[step], self.kind)?;
            return Ok((slot, table));
        }
        let starts = |kind: ScopeKind| {
            let prefix = kind.prefix();
            path.len() > prefix.len() && path.iter().zip(prefix).all(|(a, b)| a == b)
        };
        if starts(self.kind)
            && let Some(frame) = self.frames.first()
            && let Some((step, table)) = find(frame, &path[self.kind.prefix().len()..])
        {
            let slot = self.slots.assign(&mut self.steps[step], self.kind)?;
            return Ok((slot, table));
        }
        for scope in self.before.iter_mut().rev() {
            let rest = if starts(scope.kind) { &path[scope.kind.prefix().len()..] } else { path };
            if let Some((step, table)) = find(&scope.names, rest) {
                let slot = self.slots.assign(&mut scope.plan.steps[step], scope.kind)?;
                scope.plan.fixed_bits = None;
                return Ok((slot, table));
            }
        }
        Err(format!("`{}` names no integer before the place that needs it", path.join(".")))
    }
}

impl Slots {
    fn assign(&mut self, step: &mut Step, kind: ScopeKind) -> Result<u16, String> {
        if step.slot != u16::MAX {
            return Ok(step.slot);
        }
        let (n, first, last) = if kind.is_shared() {
            (&mut self.n_shared, 0, N_SHARED_SLOTS)
        } else {
            (&mut self.n_own, N_SHARED_SLOTS, N_SLOTS)
        };
        if first + *n >= last {
            return Err("an event has more sequences and variants than can be read".to_owned());
        }
        step.slot = (first + *n) as u16;
        *n += 1;
        Ok(step.slot)
    }
}

fn find(names: &[Name], path: &[String]) -> Option<(usize, Option<Arc<Enum>>)> {
    let (first, rest) = path.split_first()?;
    let name = names.iter().rev().find(|n| n.raw == *first)?;
    match &name.target {
        Target::Leaf { step, table } if rest.is_empty() => Some((*step, table.clone())),
        Target::Struct(inner) if !rest.is_empty() => find(inner, rest),
        _ => None,
    }
}

fn json_key(name: &str) -> Box<[u8]> {
    let mut key = Vec::new();
    json_string(&mut key, name.as_bytes());
    key.push(b':');
    key.into()
}

fn is_character(ty: &Type) -> bool {
    matches!(ty, Type::Integer(Integer { is_text: true, bits: 8, align_bits: 8, .. }))
}

/// What babeltrace2 too keeps to itself.
fn is_bookkeeping(role: Role) -> bool {
    matches!(
        role,
        Role::TimestampBegin
            | Role::TimestampEnd
            | Role::ContentSize
            | Role::PacketSize
            | Role::EventsDiscarded
            | Role::PacketSeqNum
    )
}
