//! The hits of a live session in the order of time over all CPUs, given to an answer.

use crate::decode::FieldReader;
use crate::event::{At, Consumer};
use nopal_capture::{Hit, Loss, StreamKind};
use nopal_live::registry::Registry;
use nopal_live::tasks::Tasks;
use nopal_live::{DoorOrder, Live, OrderWithin, Polled};
use nopal_spans::{Fields, Needs, Task};
use nopal_trace::Scratch;
use nopal_trace::live::LiveClass;

/// What is known of the events of a live session.
#[derive(Debug)]
pub struct Ordered {
    /// By plan.
    classes: Vec<(Option<LiveClass>, Needs)>,
    tasks: Tasks,
    epoch_offset_ns: i64,
    payload: Vec<u8>,
    scratch: Scratch,
    fields: Fields,
    /// Texts and arrays that were longer than what is kept of them.
    pub n_cut: u64,
    pub n_events: u64,
    /// Of the first and the last event used, since the epoch.
    pub range: Option<(i64, i64)>,
    /// Everything before this time has been given on.
    pub reached_ns: i64,
    /// Processes that have another program from a time on, CLOCK_MONOTONIC.
    restarts: Vec<(u32, u64)>,
    door_order: DoorOrder,
}

/// Gives hits on as events.
struct Giving<'a, C, B> {
    ordered: &'a mut Ordered,
    consumer: &'a mut C,
    beside: &'a mut B,
    n_malformed: u64,
    order_within: OrderWithin,
    /// How far the times of the two doors may differ, if both are open.
    doubt_ns: Option<u64>,
}

/// Takes nothing.
struct Nobody;

impl nopal_live::Consumer<Registry> for Nobody {
    fn hit(&mut self, _: &Registry, _: &Hit<'_>) {}
}

impl<C: Consumer, B: nopal_live::Consumer<Registry>> nopal_live::Consumer<Registry> for Giving<'_, C, B> {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        self.beside.hit(registry, hit);
        let to = &mut *self.ordered;
        if !to.restarts.is_empty() {
            let consumer = &mut *self.consumer;
            to.restarts.retain(|(pid, ns)| {
                let is_over = *ns <= hit.ns;
                if is_over {
                    consumer.restart(*pid);
                }
                !is_over
            });
        }
        // Kinds of events that came with files mapped since.
        for plan in &registry.plans[to.classes.len()..] {
            let needs = self.consumer.class(&plan.event_type);
            to.classes.push((LiveClass::new(&plan.event_type).ok(), needs));
        }
        let event = &registry.events[hit.event as usize];
        let (Some(class), needs) = &to.classes[event.plan_idx] else { return };
        if !needs.is_used {
            return;
        }
        to.fields.clear();
        if !needs.fields.is_empty() {
            to.payload.clear();
            let Ok(texts) = event.plan.pack(event.site_idx, hit.payload, &mut to.payload) else {
                self.n_malformed += 1;
                return;
            };
            to.n_cut += u64::from(texts.n_truncated);
            let mut reader = FieldReader::new(&needs.fields, &mut to.fields);
            // A payload of our own making fits its own type.
            if class.fields(&to.payload, &mut to.scratch, &mut reader).is_err() {
                return;
            }
        }
        // The kernel counts processes as we do.
        let task = match hit.stream.kind {
            StreamKind::Kernel => hit.task,
            StreamKind::Rseq | StreamKind::Locked => to.tasks.translate(hit.task),
        };
        if let Some(doubt_ns) = self.doubt_ns {
            let whose = (task, self.consumer.kin(event.plan_idx));
            to.door_order.hit(hit.ns, whose, hit.stream.kind, self.order_within, doubt_ns);
        }
        let ns = hit.ns as i64 + to.epoch_offset_ns;
        to.n_events += 1;
        to.range = Some((to.range.map_or(ns, |(first, _)| first), ns));
        let at = At { ns, task: Task { pid: task.pid, tid: task.tid }, cpu: hit.stream.cpu };
        self.consumer.event(&at, event.plan_idx, &to.fields);
    }

    fn loss(&mut self, loss: &Loss) {
        self.beside.loss(loss);
        self.consumer.loss(loss.last_ns as i64 + self.ordered.epoch_offset_ns);
    }
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered {
            classes: Vec::new(),
            tasks: Tasks::default(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            payload: Vec::new(),
            scratch: Scratch::default(),
            fields: Fields::default(),
            n_cut: 0,
            n_events: 0,
            range: None,
            reached_ns: 0,
            restarts: Vec::new(),
            door_order: DoorOrder::default(),
        }
    }
}

impl Ordered {
    /// Takes what is in the rings; gives on what no later reading can come before.
    pub fn poll(&mut self, live: &mut Live, consumer: &mut impl Consumer, is_last: bool) -> Polled {
        self.poll_beside(live, consumer, is_last, &mut Nobody)
    }

    /// The same; `beside` gets the hits themselves.
    pub fn poll_beside(
        &mut self,
        live: &mut Live,
        consumer: &mut impl Consumer,
        is_last: bool,
        beside: &mut impl nopal_live::Consumer<Registry>,
    ) -> Polled {
        self.restarts.extend(live.take_restarts());
        self.tasks.learn(&live.tasks);
        self.reached_ns = live.settled_ns() as i64 + self.epoch_offset_ns;
        let (order_within, doubt_ns) = (consumer.order_within(), live.door_doubt_ns());
        let mut giving = Giving { ordered: self, consumer, beside, n_malformed: 0, order_within, doubt_ns };
        let mut polled = live.poll_by_time(is_last, &mut giving);
        polled.n_damaged += giving.n_malformed;
        let doubts = self.door_order.take();
        polled.n_unordered += doubts.n_unordered;
        polled.n_nesting += doubts.n_nesting;
        if is_last {
            consumer.end();
        }
        polled
    }
}
