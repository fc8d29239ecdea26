//! The hits of a live session, put in the order of time over all CPUs and given to an answer.

use crate::decode::FieldReader;
use crate::event::{At, Consumer};
use nopal_capture::{Hit, Loss, StreamKind, Task as HitTask};
use nopal_live::registry::Registry;
use nopal_live::{Live, Polled};
use nopal_spans::{Fields, Needs, Task};
use nopal_trace::Scratch;
use nopal_trace::live::LiveClass;

/// Holds hits back until nothing earlier can come.
#[derive(Debug)]
pub struct Ordered {
    waiting: Vec<Waiting>,
    /// The payloads of those that wait.
    bytes: Vec<u8>,
    /// By plan.
    classes: Vec<(Option<LiveClass>, Needs)>,
    epoch_offset_ns: i64,
    scratch: Scratch,
    fields: Fields,
    /// Texts and arrays that were longer than what is kept of them.
    pub n_cut: u64,
    pub n_events: u64,
    /// Of the first and the last event used, since the epoch.
    pub range: Option<(i64, i64)>,
    /// Everything before this time has been given on.
    pub reached_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    ns: i64,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Hit { plan_idx: u32, from: usize, to: usize, task: HitTask, cpu: u32, is_by_kernel: bool },
    Loss { to_ns: i64 },
}

/// So long a program in the kernel may take from its time to the end of its record.
const KERNEL_LAG_NS: i64 = 2_000_000;

/// Takes hits as they come, each stream in its order.
struct Gathering<'a> {
    to: &'a mut Ordered,
    n_malformed: u64,
}

impl nopal_live::Consumer<Registry> for Gathering<'_> {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        let event = &registry.events[hit.event as usize];
        let to = &mut *self.to;
        let from = to.bytes.len();
        match event.plan.pack(event.site_idx, hit.payload, &mut to.bytes) {
            Ok(texts) => {
                to.n_cut += u64::from(texts.n_truncated);
                let what = What::Hit {
                    plan_idx: event.plan_idx as u32,
                    from,
                    to: to.bytes.len(),
                    task: hit.task,
                    cpu: hit.stream.cpu,
                    is_by_kernel: hit.stream.kind == StreamKind::Kernel,
                };
                to.waiting.push(Waiting { ns: hit.ns as i64 + to.epoch_offset_ns, what });
            }
            Err(_) => {
                to.bytes.truncate(from);
                self.n_malformed += 1;
            }
        }
    }

    fn loss(&mut self, loss: &Loss) {
        let epoch = |ns: u64| ns as i64 + self.to.epoch_offset_ns;
        let what = What::Loss { to_ns: epoch(loss.last_ns) };
        let ns = epoch(loss.first_ns);
        self.to.waiting.push(Waiting { ns, what });
    }
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered {
            waiting: Vec::new(),
            bytes: Vec::new(),
            classes: Vec::new(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            scratch: Scratch::default(),
            fields: Fields::default(),
            n_cut: 0,
            n_events: 0,
            range: None,
            reached_ns: 0,
        }
    }
}

impl Ordered {
    /// Takes what is in the rings; gives on what no later reading can come before.
    pub fn poll(&mut self, live: &mut Live, consumer: &mut impl Consumer, is_last: bool) -> Polled {
        // The kernel's programs take the time before they hand over what they saw.
        let start_ns = nopal_trace::clock::monotonic_ns() as i64 + self.epoch_offset_ns - KERNEL_LAG_NS;
        let mut gathering = Gathering { to: self, n_malformed: 0 };
        let mut polled = live.poll_into(&mut gathering);
        polled.n_damaged += gathering.n_malformed;
        self.prepare(live, consumer);
        self.waiting.sort_by_key(|waiting| waiting.ns);
        let n_ready = match is_last {
            true => self.waiting.len(),
            false => self.waiting.partition_point(|waiting| waiting.ns < start_ns),
        };
        for at in 0..n_ready {
            self.give(self.waiting[at], live, consumer);
        }
        self.waiting.drain(..n_ready);
        self.reached_ns = start_ns;
        self.compact();
        if is_last {
            consumer.end();
        }
        polled
    }

    /// Makes kinds of events known that came with files mapped since.
    fn prepare(&mut self, live: &Live, consumer: &mut impl Consumer) {
        let registry = live.registry();
        for plan in &registry.plans[self.classes.len()..] {
            let needs = consumer.class(&plan.event_type);
            self.classes.push((LiveClass::new(&plan.event_type).ok(), needs));
        }
    }

    fn give(&mut self, waiting: Waiting, live: &mut Live, consumer: &mut impl Consumer) {
        let What::Hit { plan_idx, from, to, task, cpu, is_by_kernel } = waiting.what else {
            if let What::Loss { to_ns } = waiting.what {
                consumer.loss(to_ns);
            }
            return;
        };
        let (Some(class), needs) = &self.classes[plan_idx as usize] else { return };
        if !needs.is_used {
            return;
        }
        // The kernel counts processes as we do.
        let task = match is_by_kernel {
            true => task,
            false => live.tasks.translate(task),
        };
        if needs.fields.is_empty() {
            self.fields.clear();
        } else {
            let mut reader = FieldReader::new(&needs.fields, &mut self.fields);
            // A payload of our own making fits its own type.
            if class.fields(&self.bytes[from..to], &mut self.scratch, &mut reader).is_err() {
                return;
            }
        }
        self.n_events += 1;
        self.range = Some((self.range.map_or(waiting.ns, |(first, _)| first), waiting.ns));
        let at = At { ns: waiting.ns, task: Task { pid: task.pid, tid: task.tid }, cpu };
        consumer.event(&at, plan_idx as usize, &self.fields);
    }

    /// Gives the memory of payloads that are done with to those that come.
    fn compact(&mut self) {
        let mut kept = Vec::new();
        for waiting in &mut self.waiting {
            if let What::Hit { from, to, .. } = &mut waiting.what {
                let start = kept.len();
                kept.extend_from_slice(&self.bytes[*from..*to]);
                (*from, *to) = (start, kept.len());
            }
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&kept);
    }
}
