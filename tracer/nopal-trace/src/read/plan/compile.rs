//! Compiles types to plans: the steps of an event's scopes, and the slots of the values that lengths and variants refer to.

use super::super::locate::{Found, Frame, Leaf, Name, Target, find};
use super::{Arm, Count, Kind, MAX_LOOPS, N_SLOTS, Plan, Scope, Slots, Step};
use crate::escape::{escape, json_string};
use crate::location::{Location, ScopeKind};
use crate::model::{ByteOrder, Enum, Field, Integer, Length, Span, Tag, Type};
use crate::role::{Role, Roles};
use std::sync::Arc;

/// Slots of the scopes that several events share.
const N_SHARED_SLOTS: usize = 64;
/// Steps of one plan; nested named types could otherwise multiply without end.
const MAX_STEPS: usize = 1 << 16;

/// Compiles `ty` as one scope that comes after the scopes in `before` (whose plans get a slot where it refers to them).
pub(crate) fn compile(
    kind: ScopeKind,
    ty: &Type,
    order: ByteOrder,
    before: &mut [&mut Scope],
    slots: &mut Slots,
) -> Result<Scope, String> {
    let mut compiler = Compiler {
        kind,
        order,
        before,
        slots,
        steps: Vec::new(),
        frames: vec![Frame::of_struct()],
        n_loops: 0,
    };
    match ty {
        // The braces around a scope are the printer's, so its own struct leaves no step.
        Type::Struct(s) => {
            compiler.align(ty.align_bits());
            compiler.members(&s.fields)?;
        }
        _ => return Err("a scope must be a struct".to_owned()),
    }
    let names = compiler.frames.pop().map(|frame| frame.names).unwrap_or_default();
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
            Kind::Bool { bits, .. } | Kind::BitMap { bits, .. } => bits,
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
    /// The structs that are open, the innermost last.
    frames: Vec<Frame>,
    n_loops: usize,
}

/// What says which option a variant is: its slot, whether it is signed, and the values that stand for each option.
struct Selecting {
    slot: u16,
    is_signed: Option<bool>,
    spans: Vec<Vec<Span>>,
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
            roles: Roles::NONE,
            is_reversed: false,
            is_hidden: false,
            is_character: false,
        }
    }

    fn members(&mut self, fields: &[Field]) -> Result<(), String> {
        let mut is_first = true;
        for field in fields {
            let roles = self.roles_of(&field.raw, &field.ty);
            // What the format itself needs is not part of what a packet says to people.
            let is_hidden = self.kind == ScopeKind::PacketContext && roles.is_bookkeeping();
            let lead = if is_hidden {
                String::new()
            } else {
                format!("{} {} = ", if is_first { "" } else { "," }, escape(&field.name))
            };
            is_first &= is_hidden;
            if let Some(frame) = self.frames.last_mut() {
                frame.current.clone_from(&field.raw);
            }
            let target = self.value(&field.ty, &field.name, lead.as_bytes(), false, roles)?;
            if let Some(frame) = self.frames.last_mut() {
                frame.current.clear();
                frame.names.push(Name { raw: field.raw.clone(), target });
            }
        }
        Ok(())
    }

    fn roles_of(&self, raw: &str, ty: &Type) -> Roles {
        let integer = match ty {
            Type::Integer(i) => i,
            Type::Enum(e) => &e.integer,
            Type::Variable(v) => &v.integer,
            Type::Blob(b) => return b.roles,
            Type::Optional(o) => return self.roles_of(raw, &o.ty),
            _ => return Roles::NONE,
        };
        let is_top = self.frames.len() == 1;
        let is_cpu = self.kind == ScopeKind::PacketContext && raw == "cpu_id" && is_top;
        match integer.roles {
            // The time in a packet's context is that of its beginning.
            Some(roles) if self.kind == ScopeKind::PacketContext && roles.has(Role::Clock) => {
                roles.with(Role::TimestampBegin)
            }
            Some(roles) if is_cpu => roles.with(Role::CpuId),
            Some(roles) => roles,
            None => self.role_by_name(raw, integer).map_or(Roles::NONE, Roles::from),
        }
    }

    /// As CTF 1.8 has it: the names of some fields say what they are.
    fn role_by_name(&self, raw: &str, integer: &Integer) -> Option<Role> {
        let is_top = self.frames.len() == 1;
        Some(match (self.kind, raw) {
            (ScopeKind::PacketHeader, "magic") if is_top => Role::Magic,
            (ScopeKind::PacketHeader, "stream_id") if is_top => Role::StreamId,
            (ScopeKind::PacketHeader, "stream_instance_id") if is_top => Role::StreamInstance,
            (ScopeKind::PacketContext, name) if is_top => match name {
                "timestamp_begin" => Role::TimestampBegin,
                "timestamp_end" => Role::TimestampEnd,
                "content_size" => Role::ContentSize,
                "packet_size" => Role::PacketSize,
                "events_discarded" => Role::EventsDiscarded,
                "packet_seq_num" => Role::PacketSeqNum,
                "cpu_id" => Role::CpuId,
                _ => return None,
            },
            (ScopeKind::EventHeader, _) if integer.clock.is_some() => Role::Clock,
            (ScopeKind::EventHeader, "id") => Role::EventId,
            _ => return None,
        })
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
        roles: Roles,
    ) -> Result<Target, String> {
        if self.steps.len() > MAX_STEPS {
            return Err("the types multiply to more fields than can be read".to_owned());
        }
        let at = self.steps.len();
        let mut step = self.step(Kind::String, ty.align_bits(), name, lead);
        step.is_element = is_element;
        step.roles = roles;
        step.is_hidden = self.kind == ScopeKind::PacketContext && roles.is_bookkeeping();
        let leaf = |is_signed, table| Target::Leaf(Leaf { step: at, is_bool: false, is_signed, table });
        match ty {
            Type::Integer(i) => {
                step.kind = Kind::Integer {
                    bits: i.bits,
                    is_signed: i.is_signed,
                    is_big: self.is_big(i.order),
                    base: i.base,
                };
                step.is_reversed = i.is_reversed;
                step.is_character = i.is_text;
                self.steps.push(step);
                Ok(leaf(i.is_signed, None))
            }
            Type::Enum(e) => {
                let is_big = self.is_big(e.integer.order);
                step.kind = Kind::Enum { bits: e.integer.bits, is_big, table: e.clone() };
                step.is_reversed = e.integer.is_reversed;
                self.steps.push(step);
                Ok(leaf(e.integer.is_signed, Some(e.clone())))
            }
            Type::Float(f) => {
                step.kind = Kind::Float { bits: f.bits, is_big: self.is_big(f.order) };
                step.is_reversed = f.is_reversed;
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
                self.frames.push(Frame::of_struct());
                self.members(&s.fields)?;
                let names = self.frames.pop().map(|frame| frame.names).unwrap_or_default();
                self.steps.push(self.step(Kind::StructEnd, 1, "", b"".as_slice()));
                Ok(Target::Struct(names))
            }
            Type::Array(a) => {
                let length = self.count(&a.length)?;
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
                self.value(&a.element, "", b"", true, Roles::NONE)?;
                self.n_loops -= 1;
                self.steps.push(self.step(Kind::ArrayEnd { begin: at as u32 }, 1, "", b"".as_slice()));
                self.steps[at].kind = Kind::Array { length, end: self.steps.len() as u32 };
                Ok(Target::Other)
            }
            Type::Variant(v) => {
                let Selecting { slot: tag, is_signed, spans } = self.tag(&v.tag, &v.options)?;
                self.steps.push(step);
                let mut arms = Vec::new();
                let mut ends = Vec::new();
                let mut targets = Vec::new();
                for (option, spans) in v.options.iter().zip(spans) {
                    let target = self.steps.len() as u32;
                    arms.extend(spans.into_iter().map(|(first, last)| Arm { first, last, target }));
                    self.frames.push(Frame::of_option());
                    let roles = self.roles_of(&option.raw, &option.ty);
                    targets.push(self.value(&option.ty, &option.name, b"", false, roles)?);
                    self.frames.pop();
                    ends.push(self.steps.len());
                    self.steps.push(self.step(Kind::VariantEnd { next: 0 }, 1, "", b"".as_slice()));
                }
                let next = self.steps.len() as u32;
                for end in ends {
                    self.steps[end].kind = Kind::VariantEnd { next };
                }
                self.steps[at].kind = Kind::Variant { tag, is_signed, arms };
                Ok(Target::Choice { step: at, targets })
            }
            Type::Bool(b) => {
                step.kind = Kind::Bool { bits: b.bits, is_big: b.order == ByteOrder::Big };
                self.steps.push(step);
                Ok(Target::Leaf(Leaf { step: at, is_bool: true, is_signed: false, table: None }))
            }
            Type::BitMap(b) => {
                let is_big = b.bits.order == ByteOrder::Big;
                step.kind = Kind::BitMap { bits: b.bits.bits, is_big, map: b.clone() };
                step.is_reversed = b.bits.is_reversed;
                self.steps.push(step);
                Ok(Target::Other)
            }
            Type::Variable(v) => {
                let (is_signed, base) = (v.integer.is_signed, v.integer.base);
                step.kind = Kind::Variable { is_signed, base, table: v.table.clone() };
                self.steps.push(step);
                Ok(leaf(is_signed, v.table.clone()))
            }
            Type::Wide(w) => {
                let length = w.length.as_ref().map(|length| self.count(length)).transpose()?;
                step.kind = Kind::Wide { encoding: w.encoding, length };
                self.steps.push(step);
                Ok(Target::Other)
            }
            Type::Blob(b) => {
                step.kind = Kind::Blob { length: self.count(&b.length)? };
                self.steps.push(step);
                Ok(Target::Other)
            }
            Type::Optional(o) => {
                let (tag, is_signed) = self.selector(&o.selector, o.ranges.is_none())?;
                self.steps.push(step);
                self.frames.push(Frame::of_option());
                let target = self.value(&o.ty, if is_element { "" } else { name }, b"", false, roles)?;
                self.frames.pop();
                if is_element {
                    // The element's place is told with the optional itself.
                    self.steps[at + 1].key = Box::default();
                }
                self.steps.push(self.step(Kind::OptionalEnd, 1, "", b"".as_slice()));
                let end = self.steps.len() as u32;
                self.steps[at].kind = Kind::Optional { tag, is_signed, ranges: o.ranges.clone(), end };
                Ok(Target::Choice { step: at, targets: vec![target] })
            }
        }
    }

    fn count(&mut self, length: &Length) -> Result<Count, String> {
        Ok(match length {
            Length::Fixed(n) => Count::Fixed(*n),
            Length::Field(path) => Count::Slot(self.reference(path)?.0),
            Length::Located(location) => {
                let (slot, leaf) = self.locate(location)?;
                if leaf.is_bool || leaf.is_signed {
                    return Err(format!("the length `{location}` is not an unsigned integer"));
                }
                Count::Slot(slot)
            }
        })
    }

    /// What selects an option.
    fn tag(&mut self, tag: &Tag, options: &[Field]) -> Result<Selecting, String> {
        match tag {
            Tag::Label(path) => {
                let (slot, table) = self.reference(path)?;
                let Some(table) = table else {
                    return Err(format!("the tag `{}` of a variant is not an enum", path.join(".")));
                };
                let spans = |option: &Field| {
                    let rows = table.labels.iter().filter(|label| label.text == option.raw);
                    rows.map(|label| (label.first, label.last)).collect()
                };
                Ok(Selecting { slot, is_signed: None, spans: options.iter().map(spans).collect() })
            }
            Tag::Ranges(location, spans) => {
                let (slot, is_signed) = self.selector(location, false)?;
                Ok(Selecting { slot, is_signed: Some(is_signed), spans: spans.clone() })
            }
        }
    }

    /// The slot of a selector, and whether it is signed.
    fn selector(&mut self, location: &Location, is_bool: bool) -> Result<(u16, bool), String> {
        let (slot, leaf) = self.locate(location)?;
        match (leaf.is_bool, is_bool) {
            (true, true) | (false, false) => Ok((slot, leaf.is_signed)),
            (true, false) => Err(format!("the selector `{location}` is not an integer")),
            (false, true) => Err(format!("the integer `{location}` selects nothing without ranges")),
        }
    }

    /// The slot of the value at a location of CTF 2, and what it is.
    fn locate(&mut self, location: &Location) -> Result<(u16, Leaf), String> {
        let is_here = location.origin.is_none_or(|origin| origin == self.kind);
        if is_here {
            let found = Found::among(&self.frames, location)?;
            return self.slots.share(&mut self.steps, self.kind, &found, location);
        }
        let scope = self.before.iter_mut().find(|scope| Some(scope.kind) == location.origin);
        let Some(scope) = scope else {
            return Err(format!("`{location}` starts where nothing is decoded before it"));
        };
        let found = Found::within(&scope.names, location)?;
        scope.plan.fixed_bits = None;
        self.slots.share(&mut scope.plan.steps, scope.kind, &found, location)
    }

    /// The slot of the value that `path` names, looked for as TSDL does: absolute, or outwards from here.
    fn reference(&mut self, path: &[String]) -> Result<(u16, Option<Arc<Enum>>), String> {
        let found = self.frames.iter().rev().find_map(|frame| find(&frame.names, path));
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
            && let Some((step, table)) = find(&frame.names, &path[self.kind.prefix().len()..])
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
        if step.slot == u16::MAX {
            step.slot = self.take(kind)?;
        }
        Ok(step.slot)
    }

    fn take(&mut self, kind: ScopeKind) -> Result<u16, String> {
        let (n, first, last) = if kind.is_shared() {
            (&mut self.n_shared, 0, N_SHARED_SLOTS)
        } else {
            (&mut self.n_own, N_SHARED_SLOTS, N_SLOTS)
        };
        if first + *n >= last {
            return Err("an event has more sequences and variants than can be read".to_owned());
        }
        let slot = (first + *n) as u16;
        *n += 1;
        Ok(slot)
    }

    /// One slot for all fields that may be at a location: options of a variant exclude each other.
    fn share(
        &mut self,
        steps: &mut [Step],
        kind: ScopeKind,
        found: &Found,
        location: &Location,
    ) -> Result<(u16, Leaf), String> {
        let Some(first) = found.leaves.first() else {
            return Err(format!("`{location}` names no number before the place that needs it"));
        };
        let is_alike = |leaf: &Leaf| leaf.is_bool == first.is_bool && leaf.is_signed == first.is_signed;
        if !found.leaves.iter().all(is_alike) {
            return Err(format!("`{location}` is now signed, now unsigned or true and false"));
        }
        let mut slots: Vec<u16> = found.leaves.iter().map(|leaf| steps[leaf.step].slot).collect();
        slots.retain(|slot| *slot != u16::MAX);
        slots.sort_unstable();
        slots.dedup();
        let slot = match slots.as_slice() {
            [] => self.take(kind)?,
            [slot] => *slot,
            _ => return Err(format!("`{location}` is named in more ways than can be read")),
        };
        for leaf in &found.leaves {
            steps[leaf.step].slot = slot;
        }
        for choice in &found.choices {
            if steps[*choice].slot == u16::MAX {
                steps[*choice].slot = slot;
            }
        }
        Ok((slot, first.clone()))
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
