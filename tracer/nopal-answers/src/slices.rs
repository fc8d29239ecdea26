//! Every event and every span of a stream, for those that take them one by one: exports, SQL, reports.
//!
//! A span is handed over when nothing can contain it any more, so that its parent and its depth are known; what lies
//! within it follows, in the order of time.

use crate::ask::Wrong;
use crate::event::{At, Consumer, OrderWithin, order_of, visible_fields};
use crate::latency::{LatencyAsk, SpanAsk, shown};
use crate::table::Cell;
use nopal_spans::{Available, Done, Fields, Finished, Mode, Needs, Pairing, Sink, Span, Task};
use nopal_trace::EventType;
use std::collections::HashMap;

/// A finished span with all that is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// From 1, in the order in which spans end; 0 is nobody's.
    pub id: u64,
    /// The span it lies directly within, on the same thread.
    pub parent: Option<u64>,
    /// Spans that it lies within; not known where too many lie within one.
    pub depth: Option<u32>,
    /// Position among the spans asked for.
    pub span: usize,
    /// Of the event it began with.
    pub class: usize,
    pub start_ns: i64,
    pub duration_ns: u64,
    /// Without the spans within it.
    pub self_ns: u64,
    /// Where it began.
    pub task: Task,
    pub end_task: Task,
    pub is_error: bool,
    /// The value of its most telling field.
    pub key: Cell,
    pub fields: Vec<(String, Cell)>,
}

/// Which of its events somebody takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// None, apart from the spans that are made of them.
    Nothing,
    /// That they were there.
    Presence,
    /// With all their fields.
    Fields,
}

/// What takes events and spans.
pub trait Taker {
    /// Makes a kind of event known; kinds are numbered from 0 for each recording.
    fn class(&mut self, class: usize, ty: &EventType) -> Wish;

    /// An event, in the order of time.
    fn event(&mut self, at: &At, class: usize, fields: &Fields);

    /// Whether a span that has ended is to have all its fields, where spans have them.
    fn wants_fields(&self, _end_ns: i64, _duration_ns: u64) -> bool {
        true
    }

    /// A span; those within it follow at once, each before its later siblings.
    fn slice(&mut self, slice: &Slice);

    /// All that lies within it has been handed over.
    fn close(&mut self, _slice: &Slice) {}
}

/// Events and spans on their way to a [`Taker`].
#[derive(Debug)]
pub struct Slices<T> {
    pairing: Pairing,
    out: Grown<T>,
    wishes: Vec<Wish>,
    /// Whether the pairing wants events of a class.
    pairs: Vec<bool>,
}

#[derive(Debug)]
struct Grown<T> {
    taker: T,
    asks: Vec<SpanAsk>,
    keys: Vec<Option<usize>>,
    /// Names of fields, by class.
    fields: Vec<Vec<String>>,
    /// Whole trees that may lie within a span that is open, by token.
    trees: HashMap<u32, Node>,
    n_kept: usize,
    last_id: u64,
    last_token: u32,
    has_fields: bool,
}

#[derive(Debug)]
struct Node {
    slice: Slice,
    within: Vec<Node>,
}

/// Finished spans that wait for their outermost one.
const MAX_KEPT: usize = 1 << 16;

impl<T: Taker> Slices<T> {
    /// Without `has_fields` spans have a key and no other fields, which is faster.
    pub fn new(
        spans: &[Span],
        available: &Available,
        taker: T,
        has_fields: bool,
    ) -> Result<Slices<T>, Wrong> {
        let mut pairing = Pairing::new(spans.to_vec());
        let (mut asks, mut keys) = (Vec::new(), Vec::new());
        for (idx, span) in spans.iter().enumerate() {
            let ask = LatencyAsk::default();
            asks.push(SpanAsk::new(&mut pairing, idx, span, &ask, available, true)?);
            let telling = crate::ask::telling_field(available, span);
            keys.push(telling.map(|name| pairing.want(idx, &name)));
        }
        if has_fields {
            pairing.want_all();
        }
        let out = Grown {
            taker,
            asks,
            keys,
            fields: Vec::new(),
            trees: HashMap::new(),
            n_kept: 0,
            last_id: 0,
            last_token: 0,
            has_fields,
        };
        Ok(Slices { pairing, out, wishes: Vec::new(), pairs: Vec::new() })
    }

    pub fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    pub fn n_slices(&self) -> u64 {
        self.out.last_id
    }

    pub fn taker(&mut self) -> &mut T {
        &mut self.out.taker
    }

    pub fn taker_ref(&self) -> &T {
        &self.out.taker
    }

    pub fn into_taker(self) -> T {
        self.out.taker
    }
}

/// Whether spans of this kind may overlap on one thread, as they are not paired by thread.
pub fn is_apart(span: &Span) -> bool {
    matches!(span.mode, Mode::Key(_))
}

impl<T: Taker> Consumer for Slices<T> {
    fn class(&mut self, ty: &EventType) -> Needs {
        let names = visible_fields(ty);
        self.out.fields.push(names.iter().map(|name| (*name).to_owned()).collect());
        let mut needs = self.pairing.add_class(&ty.provider, &ty.name, &names);
        let wish = self.out.taker.class(self.wishes.len(), ty);
        self.pairs.push(needs.is_used);
        self.wishes.push(wish);
        match wish {
            Wish::Nothing => {}
            Wish::Presence => needs.is_used = true,
            Wish::Fields => needs = Needs { fields: vec![true; names.len()], is_used: true },
        }
        needs
    }

    #[inline]
    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        if self.wishes[class] != Wish::Nothing {
            self.out.taker.event(at, class, fields);
        }
        self.event_left_out(at, class, fields);
    }

    #[inline]
    fn event_left_out(&mut self, at: &At, class: usize, fields: &Fields) {
        if self.pairs[class] {
            self.pairing.event(at.ns, at.task, class, fields, &mut self.out);
        }
    }

    fn order_within(&self) -> OrderWithin {
        order_of(self.pairing.spans())
    }

    fn loss(&mut self, to_ns: i64) {
        self.pairing.loss(to_ns, &mut self.out);
    }

    fn end(&mut self) {
        self.pairing.close(&mut self.out);
        // Nothing can contain what is still here.
        let mut rest: Vec<Node> = self.out.trees.drain().map(|(_, node)| node).collect();
        rest.sort_by_key(|node| node.slice.id);
        rest.into_iter().for_each(|node| self.out.hand_over(node, Some(0)));
        self.pairing.forget_classes();
        self.out.fields.clear();
        self.wishes.clear();
        self.pairs.clear();
    }
}

impl<T: Taker> Grown<T> {
    fn hand_over(&mut self, mut node: Node, depth: Option<u32>) {
        self.n_kept = self.n_kept.saturating_sub(1);
        node.slice.depth = depth;
        self.taker.slice(&node.slice);
        for child in node.within {
            self.hand_over(child, depth.map(|depth| depth + 1));
        }
        self.taker.close(&node.slice);
    }
}

impl<T: Taker> Sink for Grown<T> {
    fn finish(&mut self, span: &Finished<'_>, nested: &[Done]) -> u32 {
        self.last_id += 1;
        let id = self.last_id;
        let ask = &self.asks[span.span];
        let get = |wanted: usize| span.get(wanted);
        let slice = Slice {
            id,
            parent: None,
            depth: None,
            span: span.span,
            class: span.begin().0,
            start_ns: span.start_ns,
            duration_ns: span.duration_ns(),
            self_ns: span.self_ns,
            task: span.task,
            end_task: span.end_task(),
            is_error: span.is_failed || ask.error.as_ref().is_some_and(|error| error.holds(get)),
            key: self.keys[span.span].map_or(Cell::None, |wanted| Cell::from(span.get(wanted))),
            fields: match self.has_fields && self.taker.wants_fields(span.end_ns, span.duration_ns()) {
                true => shown(span, ask, &self.fields),
                false => Vec::new(),
            },
        };
        let mut within = Vec::new();
        for done in nested {
            if let Some(mut child) = self.trees.remove(&done.token) {
                child.slice.parent = Some(id);
                within.push(child);
            }
        }
        self.n_kept += 1;
        if self.n_kept > MAX_KEPT {
            within.drain(..).for_each(|child| self.hand_over(child, None));
        }
        self.last_token = self.last_token.wrapping_add(1);
        self.trees.insert(self.last_token, Node { slice, within });
        self.last_token
    }

    fn forget(&mut self, token: u32) {
        if let Some(node) = self.trees.remove(&token) {
            self.hand_over(node, Some(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_spans::{ProbeName, Source, Value};

    #[derive(Default)]
    struct Seen(Vec<(usize, Option<u64>, Option<u32>, u64)>, Vec<u64>);

    impl Taker for Seen {
        fn class(&mut self, _: usize, _: &EventType) -> Wish {
            Wish::Nothing
        }
        fn event(&mut self, _: &At, _: usize, _: &Fields) {}
        fn slice(&mut self, slice: &Slice) {
            self.0.push((slice.span, slice.parent, slice.depth, slice.duration_ns));
        }
        fn close(&mut self, slice: &Slice) {
            self.1.push(slice.id);
        }
    }

    /// outer 0..100 holds inner 10..20 and inner 30..90, which holds leaf 40..50.
    #[test]
    fn parents_and_depths_are_known() {
        let span = |name: &str| {
            let of = |end: &str| ProbeName::new("p", &format!("{name}_{end}"));
            Span::pair(name, of("begin"), of("end"), Source::CommandLine)
        };
        let spans = [span("outer"), span("inner"), span("leaf")];
        let available = Available::new(Vec::new(), Vec::new(), true);
        let mut slices = Slices::new(&spans, &available, Seen::default(), true).unwrap();
        for name in ["outer", "inner", "leaf"] {
            for end in ["begin", "end"] {
                slices.class(&EventType::new("p", format!("{name}_{end}")));
            }
        }
        let mut fields = Fields::default();
        fields.push(Value::Absent);
        for (ns, class) in [(0, 0), (10, 2), (20, 3), (30, 2), (40, 4), (50, 5), (90, 3), (100, 1)] {
            slices.event(&At { ns, task: Task { pid: 1, tid: 1 }, cpu: 0 }, class, &fields);
        }
        slices.end();
        assert_eq!(slices.n_slices(), 4);
        let seen = slices.into_taker();
        let rows = [
            (0, None, Some(0), 100),
            (1, Some(4), Some(1), 10),
            (1, Some(4), Some(1), 60),
            (2, Some(3), Some(2), 10),
        ];
        assert_eq!(seen.0, rows);
        assert_eq!(seen.1, [1, 2, 3, 4]);
    }
}
