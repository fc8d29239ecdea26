//! The one loop in which hits reach a consumer: from both doors, each stream in its order or all in the order of time.

use super::consumer::{Consumer, Each, Keeping};
use super::types::{Options, Polled};
use super::{Live, lock};
use crate::clock::SharedClock;
use crate::remembered::MAX_REMEMBERED;
use crate::selection::Selection;
use crate::tasks::Tasks;
use nopal_capture::record::RecordKind;
use nopal_capture::{Came, Hit, Loss, StreamId, StreamKind, Task};
use nopal_trace::clock::monotonic_ns;
use nopal_user::consumer::{self as reader, any_has_thread};
use nopal_user::ring::Set;
use std::collections::HashSet;

/// So long a program in the kernel may take from its time to the end of its record.
const KERNEL_LAG_NS: u64 = 2_000_000;

/// Of a record that does not say whose it is.
const NOBODY: Task = Task { tid: 0, pid: 0 };

impl<S: Selection> Live<S> {
    /// Hands out what has been recorded since the last time.
    pub fn poll(&mut self, each: impl FnMut(&S, Hit<'_>)) -> Polled {
        self.poll_into(&mut Each(each))
    }

    /// No hit from now on has an earlier time.
    pub fn settled_ns(&self) -> u64 {
        // What a CPU commits from now on has a later time than this.
        let now_ns = monotonic_ns();
        match &self.kernel {
            // The kernel's programs take the time before they hand over what they saw.
            Some(kernel) => {
                kernel.read_until_ns().unwrap_or(u64::MAX).min(now_ns).saturating_sub(KERNEL_LAG_NS)
            }
            None => now_ns,
        }
    }

    /// How far the times of the two doors may differ; nothing if only one is open.
    pub fn door_doubt_ns(&self) -> Option<u64> {
        (self.user.is_some() && self.kernel.is_some()).then(|| self.clock.doubt_ns())
    }

    /// The same in the order of time. Hits that others may still come before wait, unless this is the last time.
    pub fn poll_by_time(&mut self, is_last: bool, consumer: &mut impl Consumer<S>) -> Polled {
        let settled_ns = self.settled_ns();
        let mut waiting = std::mem::take(&mut self.waiting);
        let polled = self.poll_into(&mut Keeping { waiting: &mut waiting, consumer });
        let selection = lock(&self.selection);
        waiting.take_before(if is_last { u64::MAX } else { settled_ns }, |came| match came {
            Came::Hit(hit) => consumer.hit(&selection, &hit),
            Came::Loss(loss) => consumer.loss(&loss),
        });
        drop(selection);
        self.waiting = waiting;
        polled
    }

    /// Hands out what has been recorded since the last time, each stream in its order.
    pub fn poll_into(&mut self, consumer: &mut impl Consumer<S>) -> Polled {
        if !self.is_closed {
            self.learn_writers();
        }
        self.clock.follow(false);
        let mut polled = Polled::default();
        let selection = lock(&self.selection);
        if let Some((_, reader)) = &mut self.user {
            // Only where some sites are the kernel's is a process that nobody has seen short of hits.
            let is_partly_by_kernel = self.kernel.as_ref().is_some_and(|k| !k.is_inherited());
            let mut records = UserRecords {
                options: &self.options,
                clock: &self.clock,
                tasks: &self.tasks,
                unseen: (is_partly_by_kernel && !self.options.without_children).then_some(&mut self.unseen),
                last_pid: 0,
                selection: &*selection,
                consumer,
                polled: &mut polled,
            };
            let take = |source: reader::Source, came: reader::Came<'_>| records.take(source, came);
            // Afterwards nobody comes back for what is left.
            let result = if self.is_closed { reader.poll_rest(take) } else { reader.poll_in_order(take) };
            polled.n_damaged += result.n_damaged();
        }
        if let Some(kernel) = &mut self.kernel {
            let (span, Polled { n_hits, losses, .. }) = (&self.span, &mut polled);
            kernel.poll(self.is_closed, losses, &mut |came| match came {
                Came::Hit(hit) => {
                    if span.contains(&hit.ns) && selection.holds(&hit) {
                        *n_hits += 1;
                        consumer.hit(&selection, &hit);
                    }
                }
                Came::Loss(loss) => consumer.loss(&loss),
            });
        }
        drop(selection);
        self.follow_libraries();
        polled
    }

    /// Tells the reader whose records may still be under way.
    pub(super) fn learn_writers(&mut self) {
        if let Some((session, reader)) = &mut self.user {
            let pids: Vec<i32> = session.processes().iter().map(|t| t.pid).collect();
            reader.set_liveness(move |tid| any_has_thread(&pids, tid));
        }
    }

    /// Hands out what the rings that are written over hold now, oldest first on each CPU; it stays there. Hits of the
    /// kernel door and of threads without rseq are not among them: [`Live::poll`] gives those.
    pub fn snapshot(&mut self, mut each: impl FnMut(&S, Hit<'_>)) -> Polled {
        self.clock.follow(true);
        let mut polled = Polled::default();
        let selection = lock(&self.selection);
        let Some((_, reader)) = &mut self.user else { return polled };
        let clock = &self.clock;
        let result = reader.snapshot(|source, record| {
            let RecordKind::Event(event) = record.kind else { return };
            let (Some(time), Some(task)) = (record.time, record.task) else { return };
            let stream = StreamId { ring: source.ring, cpu: source.cpu, kind: StreamKind::Rseq };
            let hit = Hit { stream, event, ns: clock.ns(time), task, payload: record.payload };
            if selection.holds(&hit) {
                polled.n_hits += 1;
                each(&selection, hit);
            }
        });
        polled.n_damaged = result.n_damaged();
        polled
    }
}

/// Makes hits of the user door's records and gives them to the consumer.
struct UserRecords<'a, S, C> {
    options: &'a Options,
    clock: &'a SharedClock,
    tasks: &'a Tasks,
    /// Takes processes that left hits before anybody had seen them, if that matters.
    unseen: Option<&'a mut HashSet<u32>>,
    last_pid: u32,
    selection: &'a S,
    consumer: &'a mut C,
    polled: &'a mut Polled,
}

impl<S: Selection, C: Consumer<S>> UserRecords<'_, S, C> {
    #[inline]
    fn take(&mut self, source: reader::Source, came: reader::Came<'_>) {
        let kind = match source.set {
            Set::Rseq => StreamKind::Rseq,
            Set::Locked => StreamKind::Locked,
        };
        let stream = StreamId { ring: source.ring, cpu: source.cpu, kind };
        let record = match came {
            reader::Came::Record(record) => record,
            reader::Came::Gap(gap) => {
                let (first_ns, last_ns) = (self.clock.ns(gap.first), self.clock.ns(gap.last));
                let loss = Loss { stream, count: gap.count, first_ns, last_ns };
                self.polled.losses.push(loss);
                return self.consumer.loss(&loss);
            }
        };
        let task = record.task.unwrap_or(NOBODY);
        if self.options.without_children && !self.tasks.knows(task.pid) {
            // A child that was forked later has the sites of its parent.
            return;
        }
        let event = match record.kind {
            RecordKind::Event(event) => event,
            RecordKind::Process => {
                if record.task.is_some() {
                    self.consumer.introduce(task, &record.comm());
                }
                return;
            }
        };
        let Options { has_time, has_task, .. } = *self.options;
        if has_time && record.time.is_none() || has_task && record.task.is_none() {
            self.polled.n_damaged += 1;
            return;
        }
        let ns = record.time.map_or(0, |time| self.clock.ns(time));
        let hit = Hit { stream, event, ns, task, payload: record.payload };
        if let Some(unseen) = &mut self.unseen
            && task.pid != self.last_pid
        {
            self.last_pid = task.pid;
            // They are only counted, and a program that makes up numbers has told enough.
            if !self.tasks.knows(task.pid) && unseen.len() < MAX_REMEMBERED {
                unseen.insert(task.pid);
            }
        }
        if self.selection.holds(&hit) {
            self.polled.n_hits += 1;
            self.consumer.hit(self.selection, &hit);
        }
    }
}
