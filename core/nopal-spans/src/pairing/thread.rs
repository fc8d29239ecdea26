//! What is open on each thread.

use super::rule::Rule;
use super::{Done, Sink, Task};
use crate::value::{Fields, Value};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A span that has begun.
#[derive(Debug)]
pub(super) struct Frame {
    pub rule: usize,
    pub class: u32,
    pub role: u16,
    pub start_ns: i64,
    pub task: Task,
    /// Begins of the same span within it that do not count.
    pub depth: u32,
    /// Of a call: when one of another function began with its stack pointer.
    pub left_ns: Option<i64>,
    pub fields: Fields,
}

#[derive(Debug)]
pub(super) struct Thread {
    task: Task,
    last_ns: i64,
    /// In the order of their begins; not each need end before those before it.
    pub frames: Vec<Frame>,
    /// Finished spans that something open may contain; sorted by their start.
    pub done: Vec<Done>,
    /// The latest values of fields that spans carry along, one in each.
    carried: Vec<Fields>,
}

impl Thread {
    pub(super) fn task(&self) -> Task {
        self.task
    }

    pub(super) fn carried_slot(&mut self, slot: usize) -> &mut Fields {
        if self.carried.len() <= slot {
            self.carried.resize_with(slot + 1, Fields::default);
        }
        &mut self.carried[slot]
    }

    pub(super) fn carried(&self, slot: usize) -> Value<'_> {
        self.carried.get(slot).map_or(Value::Absent, |fields| fields.get(0))
    }

    pub(super) fn carried_bytes(&self) -> usize {
        self.carried.iter().map(|fields| size_of::<Fields>() + fields.held_bytes()).sum()
    }

    pub(super) fn forget_carried(&mut self) {
        self.carried.iter_mut().for_each(Fields::clear);
    }
}

/// Threads by their numbers. Those that have nothing open are dropped when there are too many.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_task: HashMap<u64, usize, BuildHasherDefault<TaskHasher>>,
    all: Vec<Thread>,
    last: Option<(Task, usize)>,
}

const MAX_THREADS: usize = 1 << 16;

impl Threads {
    #[inline]
    pub(super) fn get(&mut self, task: Task, ns: i64, rules: &mut [Rule], sink: &mut impl Sink) -> usize {
        if let Some((last, at)) = self.last
            && last == task
        {
            return at;
        }
        let key = u64::from(task.pid) << 32 | u64::from(task.tid);
        let at = match self.by_task.get(&key) {
            Some(at) => *at,
            None => {
                if self.all.len() >= MAX_THREADS {
                    self.drop_oldest(MAX_THREADS / 2, rules, sink);
                }
                let at = self.all.len();
                self.all.push(Thread {
                    task,
                    last_ns: ns,
                    frames: Vec::new(),
                    done: Vec::new(),
                    carried: Vec::new(),
                });
                self.by_task.insert(key, at);
                at
            }
        };
        self.all[at].last_ns = ns;
        self.last = Some((task, at));
        at
    }

    #[inline]
    pub(super) fn at(&mut self, at: usize) -> &mut Thread {
        &mut self.all[at]
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.all.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All but so many: those without open spans first, then those that have been silent for longest.
    pub(super) fn drop_oldest(&mut self, n_kept: usize, rules: &mut [Rule], sink: &mut impl Sink) {
        self.all.sort_by_key(|thread| (thread.frames.is_empty(), std::cmp::Reverse(thread.last_ns)));
        for thread in self.all.drain(n_kept..) {
            thread.done.iter().for_each(|done| sink.forget(done.token));
            thread.frames.iter().for_each(|frame| rules[frame.rule].unmatched.n_begins += 1);
        }
        self.last = None;
        self.by_task.clear();
        for (at, thread) in self.all.iter().enumerate() {
            self.by_task.insert(u64::from(thread.task.pid) << 32 | u64::from(thread.task.tid), at);
        }
    }
}

/// Numbers of processes and threads are spread well enough by one multiplication.
#[derive(Debug, Default)]
pub(super) struct TaskHasher(u64);

impl Hasher for TaskHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
