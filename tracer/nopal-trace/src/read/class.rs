//! The kinds of streams and events of a trace, compiled from its metadata: which plan decodes what, which header is in
//! front of each event, which clock gives the time.

use super::plan::{Scope, Slots, compile};
use crate::escape::escape;
use crate::escape::json_string;
use crate::location::ScopeKind;
use crate::model::{ByteOrder, EventType, Field, Integer, Span, Tag, Type, Variant};
use crate::role::Role;
use crate::tsdl::{Clock, EventDecl, Metadata, Place, StreamDecl, Unreadable, fields_of};
use std::collections::HashMap;

/// An event type as one stream of one trace has it.
#[derive(Debug)]
pub struct EventClass {
    pub ty: EventType,
    /// Place among [`crate::Recording::event_classes`].
    pub index: usize,
    /// Place of its trace among [`crate::Recording::traces`].
    pub trace: usize,
    pub(crate) context: Option<Scope>,
    pub(crate) fields: Option<Scope>,
    /// Size of everything behind the event header if it is always the same and whole bytes.
    pub(crate) fixed_bits: Option<u64>,
    /// `host provider:name: `
    pub(crate) lead: Box<[u8]>,
    /// `,"provider":"...","name":"..."`
    pub(crate) json_names: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct StreamClass {
    pub id: u64,
    pub packet_context: Option<Scope>,
    pub event_header: Option<Scope>,
    pub header: HeaderForm,
    pub event_context: Option<Scope>,
    pub clock: Option<ClockRule>,
    pub events: ById,
    /// Events refer to values in their header, so decoding them starts there.
    pub needs_header: bool,
}

/// How to read an event header: the two that LTTng's tracers write have a short way, found by their types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderForm {
    /// 5 bits id, 27 bits time; id 31: u32 id, u64 time.
    Compact,
    /// u16 id, u32 time; id 65535: u32 id, u64 time.
    Large,
    General,
}

/// Event classes by their number in the stream.
#[derive(Debug, Default)]
pub(crate) struct ById {
    dense: Vec<Option<u32>>,
    sparse: HashMap<u64, u32>,
}

impl ById {
    const N_DENSE: u64 = 4096;

    fn insert(&mut self, id: u64, class: u32) -> bool {
        if id >= Self::N_DENSE {
            return self.sparse.insert(id, class).is_none();
        }
        if self.dense.len() <= id as usize {
            self.dense.resize(id as usize + 1, None);
        }
        self.dense[id as usize].replace(class).is_none()
    }

    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        match self.dense.get(id as usize) {
            Some(class) => *class,
            None if self.sparse.is_empty() => None,
            None => self.sparse.get(&id).copied(),
        }
    }
}

/// Turns clock values into nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClockRule {
    freq: u64,
    base_ns: i64,
}

impl ClockRule {
    const GHZ: u64 = 1_000_000_000;

    fn new(clock: &Clock) -> Self {
        let cycles = i64::try_from(scale(clock.offset.unsigned_abs(), clock.freq)).unwrap_or(i64::MAX);
        let cycles = if clock.offset < 0 { -cycles } else { cycles };
        ClockRule {
            freq: clock.freq,
            base_ns: clock.offset_s.saturating_mul(Self::GHZ as i64).saturating_add(cycles),
        }
    }

    #[inline]
    pub(crate) fn ns(&self, value: u64) -> i64 {
        let ns = if self.freq == Self::GHZ { value } else { scale(value, self.freq) };
        self.base_ns.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

/// Cycles to nanoseconds. In floating point where the frequency is not 1 GHz, because babeltrace2 rounds like that and a
/// reader that prints other digits than it would only puzzle.
fn scale(value: u64, freq: u64) -> u64 {
    if freq == ClockRule::GHZ { value } else { (1e9 * value as f64 / freq as f64) as u64 }
}

pub(crate) struct CompiledTrace {
    pub packet_header: Option<Scope>,
    pub streams: Vec<StreamClass>,
}

/// Compiles a trace and appends its event classes to `classes`.
pub(crate) fn compile_trace(
    metadata: &Metadata,
    origin: &str,
    classes: &mut Vec<EventClass>,
) -> Result<CompiledTrace, Unreadable> {
    let order = metadata.order.unwrap_or(ByteOrder::Little);
    let fail = |place: Place, reason: String| Unreadable { place, reason };
    let top = Place { line: 1, column: 1 };
    let mut slots = Slots::default();
    let mut packet_header = match &metadata.packet_header {
        Some(ty) => {
            Some(compile(ScopeKind::PacketHeader, ty, order, &mut [], &mut slots).map_err(|r| fail(top, r))?)
        }
        None => None,
    };
    let default_stream = StreamDecl::default();
    let mut decls: Vec<(u64, &StreamDecl)> = metadata.streams.iter().map(|(id, d)| (*id, d)).collect();
    if decls.is_empty() && !metadata.events.is_empty() {
        decls.push((0, &default_stream));
    }
    let mut streams = Vec::new();
    for (id, decl) in decls {
        let first_class = classes.len();
        let events = metadata.events.iter().filter(|e| e.stream_id == id);
        let mut builder = StreamBuilder { order, slots: &mut slots, before: Vec::new() };
        builder.before.extend(packet_header.take());
        let stream = builder.stream(metadata, id, decl, events, origin, classes)?;
        packet_header = stream.1;
        let stream = stream.0;
        // A later event may have asked for a value in a shared scope, so sizes are known only now.
        for class in &mut classes[first_class..] {
            let context = stream.event_context.as_ref();
            class.fixed_bits = [context, class.context.as_ref(), class.fields.as_ref()]
                .into_iter()
                .flatten()
                .map(|scope| scope.plan.fixed_bits)
                .sum();
        }
        streams.push(stream);
    }
    if let Some(stray) = metadata.events.iter().find(|e| !streams.iter().any(|s| s.id == e.stream_id)) {
        return Err(fail(
            stray.place,
            format!("event `{}` is of stream {}, which is not declared", stray.name, stray.stream_id),
        ));
    }
    Ok(CompiledTrace { packet_header, streams })
}

struct StreamBuilder<'a> {
    order: ByteOrder,
    slots: &'a mut Slots,
    /// The scopes compiled so far.
    before: Vec<Scope>,
}

impl StreamBuilder<'_> {
    fn scope(&mut self, kind: ScopeKind, ty: &Type, place: Place) -> Result<Scope, Unreadable> {
        let mut before: Vec<&mut Scope> = self.before.iter_mut().collect();
        compile(kind, ty, self.order, &mut before, self.slots).map_err(|reason| Unreadable { place, reason })
    }

    fn shared(&mut self, kind: ScopeKind, ty: Option<&Type>) -> Result<(), Unreadable> {
        if let Some(ty) = ty {
            let scope = self.scope(kind, ty, Place { line: 1, column: 1 })?;
            self.before.push(scope);
        }
        Ok(())
    }

    fn stream<'e>(
        mut self,
        metadata: &Metadata,
        id: u64,
        decl: &StreamDecl,
        events: impl Iterator<Item = &'e EventDecl>,
        origin: &str,
        classes: &mut Vec<EventClass>,
    ) -> Result<(StreamClass, Option<Scope>), Unreadable> {
        self.shared(ScopeKind::PacketContext, decl.packet_context.as_ref())?;
        self.shared(ScopeKind::EventHeader, decl.event_header.as_ref())?;
        self.shared(ScopeKind::StreamContext, decl.event_context.as_ref())?;
        let mut by_id = ById::default();
        for event in events {
            let n_shared_scopes = self.before.len();
            *self.slots = self.slots.for_next_event();
            let mut context = None;
            if let Some(ty) = &event.context {
                let scope = self.scope(ScopeKind::EventContext, ty, event.place)?;
                self.before.push(scope);
            }
            let fields = match &event.fields {
                Some(ty) => Some(self.scope(ScopeKind::EventFields, ty, event.place)?),
                None => None,
            };
            if event.context.is_some() {
                context = self.before.pop();
            }
            debug_assert_eq!(self.before.len(), n_shared_scopes);
            let index = classes.len();
            if !by_id.insert(event.id, index as u32) {
                let reason = format!("event {} of stream {id} is declared twice", event.id);
                return Err(Unreadable { place: event.place, reason });
            }
            let (provider, name) = event.name.split_once(':').unwrap_or(("", &event.name));
            let ty = EventType {
                provider: provider.to_owned(),
                name: name.to_owned(),
                fields: event.fields.as_ref().map(|t| fields_of(t).to_vec()).unwrap_or_default(),
                log_level: event.log_level,
                model_uri: event.model_uri.clone(),
            };
            let space = if origin.is_empty() { "" } else { " " };
            let shown = if event.name.is_empty() { "<unknown>" } else { &event.name };
            let lead = format!("{}{space}{}: ", escape(origin), escape(shown)).into_bytes().into();
            let mut json_names = b",\"provider\":".to_vec();
            json_string(&mut json_names, ty.provider.as_bytes());
            json_names.extend_from_slice(b",\"name\":");
            json_string(&mut json_names, ty.name.as_bytes());
            let json_names = json_names.into();
            classes.push(EventClass {
                ty,
                index,
                trace: 0,
                context,
                fields,
                fixed_bits: None,
                lead,
                json_names,
            });
        }
        let mut scopes = self.before;
        let mut take = |kind| {
            let at = scopes.iter().position(|s| s.kind == kind)?;
            Some(scopes.remove(at))
        };
        let (packet_header, packet_context) = (take(ScopeKind::PacketHeader), take(ScopeKind::PacketContext));
        let (event_header, event_context) = (take(ScopeKind::EventHeader), take(ScopeKind::StreamContext));
        let of_fields =
            || [&decl.event_header, &decl.packet_context].into_iter().flatten().find_map(clock_of);
        let clock_name = decl.clock.clone().or_else(of_fields);
        let clock =
            clock_name.and_then(|name| metadata.clocks.iter().find(|c| c.name == name)).map(ClockRule::new);
        // The variant within a header needs the header's id; only a reference from outside makes it needed later.
        let header = decl.event_header.as_ref().map_or(HeaderForm::General, |t| header_form(t, self.order));
        let needs_header = event_header.as_ref().is_some_and(|h| {
            h.plan.steps.iter().filter(|s| s.slot != u16::MAX).count()
                > usize::from(header != HeaderForm::General)
        });
        let stream = StreamClass {
            id,
            packet_context,
            event_header,
            header,
            event_context,
            clock,
            events: by_id,
            needs_header,
        };
        Ok((stream, packet_header))
    }
}

/// The first clock that an integer in `ty` is mapped to.
pub(crate) fn clock_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Integer(i) => i.clock.as_ref().map(|c| c.to_string()),
        Type::Enum(e) => e.integer.clock.as_ref().map(|c| c.to_string()),
        Type::Struct(s) => s.fields.iter().find_map(|f| clock_of(&f.ty)),
        Type::Variant(v) => v.options.iter().find_map(|f| clock_of(&f.ty)),
        // CTF 2 names the clock of a stream by itself.
        Type::Bool(_) | Type::BitMap(_) | Type::Variable(_) | Type::Optional(_) => None,
        Type::Array(_) | Type::Float(_) | Type::String | Type::Wide(_) | Type::Blob(_) => None,
    }
}

/// Whether a field of a header holds the event's number: by its role, or in CTF 1.8 by its name.
fn is_id(field: &Field, integer: &Integer) -> bool {
    integer.roles.map_or(field.raw == "id", |roles| roles.has(Role::EventId))
}

/// The values of `id` that stand for the options of a variant behind it, if each option has one range of them.
fn spans(id: &Field, variant: &Variant) -> Option<Vec<Span>> {
    match &variant.tag {
        Tag::Label(path) => {
            let Type::Enum(table) = &id.ty else { return None };
            if *path != [id.raw.as_str()] || table.labels.len() != variant.options.len() {
                return None;
            }
            let mut rows = table.labels.iter().zip(&variant.options);
            rows.all(|(label, option)| label.text == option.raw)
                .then(|| table.labels.iter().map(|label| (label.first, label.last)).collect())
        }
        Tag::Ranges(location, ranges) => {
            let is_header = location.origin.is_none_or(|origin| origin == ScopeKind::EventHeader);
            let is_it = is_header && matches!(location.path.as_slice(), [Some(name)] if *name == id.raw);
            let is_one = is_it && ranges.iter().all(|spans| spans.len() == 1);
            is_one.then(|| ranges.iter().flatten().copied().collect())
        }
    }
}

fn header_form(ty: &Type, order: ByteOrder) -> HeaderForm {
    let is = |i: &Integer, bits: u32, align: u32, has_clock: bool| {
        i.bits == bits
            && i.align_bits == align
            && !i.is_signed
            && !i.is_reversed
            && i.order.unwrap_or(order) == ByteOrder::Little
            && i.clock.is_some() == has_clock
    };
    let check = |id_bits: u32, time_bits: u32, align: u32, escape: i128| -> Option<()> {
        let [id, choice] = fields_of(ty) else { return None };
        let Type::Variant(v) = &choice.ty else { return None };
        let id_type = match &id.ty {
            Type::Enum(e) => &e.integer,
            Type::Integer(i) => i,
            _ => return None,
        };
        let [compact, extended] = v.options.as_slice() else { return None };
        let ([time], [long_id, long_time]) = (fields_of(&compact.ty), fields_of(&extended.ty)) else {
            return None;
        };
        let (Type::Integer(time), Type::Integer(long_id_type), Type::Integer(long_time)) =
            (&time.ty, &long_id.ty, &long_time.ty)
        else {
            return None;
        };
        let is_it = is(id_type, id_bits, align, false)
            && ty.align_bits() == 8
            && is_id(id, id_type)
            && spans(id, v)? == [(0, escape - 1), (escape, escape)]
            && is(time, time_bits, align, true)
            && is_id(long_id, long_id_type)
            && is(long_id_type, 32, 8, false)
            && is(long_time, 64, 8, true);
        is_it.then_some(())
    };
    if check(5, 27, 1, 31).is_some() {
        HeaderForm::Compact
    } else if check(16, 32, 8, 65535).is_some() {
        HeaderForm::Large
    } else {
        HeaderForm::General
    }
}
