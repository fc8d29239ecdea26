//! Hits of the user door: kept until their turn comes, and run through the clauses.

use super::cells::{CellMaps, Cells};
use super::chosen::Plan;
use super::perform::Performer;
use super::site::SiteReader;
use super::tasks::{Everyone, Who};
use crate::tasks::Tasks;
use nopal_capture::Task;
use nopal_engine::user::ring::RingMemory;
use nopal_program::captures::Captures;
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::Builtin;
use std::cell::Cell;
use std::sync::Arc;

/// Hits that wait until none can come before them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) hits: Vec<Kept>,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) ns: u64,
    pub(super) event: u32,
    pub(super) cpu: u32,
    pub(super) task: Task,
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Waiting {
    pub(super) fn keep(&mut self, ns: u64, event: u32, cpu: u32, task: Task, payload: &[u8]) {
        let (at, len) = (self.bytes.len(), payload.len());
        self.bytes.extend_from_slice(payload);
        self.hits.push(Kept { ns, event, cpu, task, at, len });
    }

    /// Drops the first hits; the bytes are moved up now and then.
    pub(super) fn forget(&mut self, n: usize) {
        self.hits.drain(..n);
        if self.hits.is_empty() {
            self.bytes.clear();
        } else if n > 0 {
            let mut rest = Vec::with_capacity(self.hits.iter().map(|kept| kept.len).sum());
            for kept in &mut self.hits {
                let at = rest.len();
                rest.extend_from_slice(&self.bytes[kept.at..kept.at + kept.len]);
                kept.at = at;
            }
            self.bytes = rest;
        }
    }
}

/// Runs the clauses of hits.
pub(super) struct Runner<'a> {
    pub(super) interpreter: &'a mut Interpreter,
    pub(super) performer: &'a mut Performer,
    pub(super) cells: &'a Cells,
    pub(super) ring: &'a Arc<RingMemory>,
    pub(super) tasks: &'a mut Tasks,
    pub(super) everyone: &'a mut Everyone,
    pub(super) needs: &'a Captures,
    pub(super) start_ns: u64,
    pub(super) seed: &'a Cell<u64>,
    pub(super) n_hits: &'a mut u64,
    pub(super) n_cut: &'a mut u64,
}

impl Runner<'_> {
    #[inline]
    pub(super) fn hit(&mut self, plan: &Plan, event: u32, ns: u64, cpu: u32, task: Task, payload: &[u8]) {
        let Some(event) = plan.events.get(event as usize) else { return };
        if self.performer.is_over() {
            return;
        }
        *self.n_hits += 1;
        *self.n_cut += event.reader.n_cut(payload);
        let task = if self.tasks.has_foreign() { self.tasks.translate(task) } else { task };
        let who = if self.needs.needs_task { self.everyone.who_if(self.needs, task) } else { Who::default() };
        let hit = UserHit {
            reader: &event.reader,
            payload,
            ns,
            start_ns: self.start_ns,
            cpu,
            task,
            who,
            seed: self.seed,
        };
        let (performer, cells, ring) = (&mut *self.performer, self.cells, Some(self.ring));
        for (clause, point) in &event.runs {
            self.interpreter.run(*clause, *point, &hit, |maps, emitted| {
                performer.perform(&mut CellMaps { maps, cells, ring }, emitted.action, emitted.payload);
            });
        }
    }
}

/// A record as a clause sees it.
pub(super) struct UserHit<'a> {
    pub(super) reader: &'a SiteReader,
    pub(super) payload: &'a [u8],
    pub(super) ns: u64,
    pub(super) start_ns: u64,
    pub(super) cpu: u32,
    pub(super) task: Task,
    pub(super) who: Who,
    pub(super) seed: &'a Cell<u64>,
}

impl Hit for UserHit<'_> {
    #[inline]
    fn arg(&self, index: u8) -> i64 {
        self.reader.number(self.payload, index)
    }
    fn arg_string(&self, index: u8) -> &[u8] {
        self.reader.string(self.payload, index)
    }
    fn arg_bytes(&self, index: u8) -> &[u8] {
        self.reader.buffer(self.payload, index)
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => u64::from(self.task.pid),
            Builtin::Tid => u64::from(self.task.tid),
            Builtin::Uid => u64::from(self.who.uid),
            Builtin::Gid => u64::from(self.who.gid),
            Builtin::Cgroup => self.who.cgroup,
            Builtin::Cpu => u64::from(self.cpu),
            Builtin::Nsecs => self.ns,
            Builtin::Elapsed => self.ns.saturating_sub(self.start_ns),
            Builtin::Rand => next_random(self.seed),
            // Refused before anything is opened.
            Builtin::Curtask | Builtin::Retval | Builtin::Ip | Builtin::Ctx => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        self.who.comm()
    }
}

/// 32 bits of a xorshift generator that was seeded by the kernel.
fn next_random(seed: &Cell<u64>) -> u64 {
    let mut state = seed.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    seed.set(state);
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}
