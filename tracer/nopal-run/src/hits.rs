//! Hits of sites, run through the clauses.

use super::cells::{CellMaps, Cells};
use super::perform::Performer;
use super::site::SiteReader;
use super::sites::ScriptSites;
use super::tasks::{TaskCache, TaskInfo};
use nopal_capture::{Loss, Task};
use nopal_live::tasks::Tasks;
use nopal_live::{Consumer, DoorOrder, OrderWithin};
use nopal_program::captures::{Captures, RETURN_VALUE};
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::Builtin;
use nopal_user::ring::Rings;
use std::cell::Cell;
use std::sync::Arc;

/// No script can have more.
const MAX_FRAMES: usize = 127;

/// Runs the clauses of hits.
pub(super) struct Runner<'a> {
    pub interpreter: &'a mut Interpreter,
    pub performer: &'a mut Performer,
    pub cells: &'a Cells,
    pub ring: Option<Arc<Rings>>,
    pub tasks: &'a mut Tasks,
    pub everyone: &'a mut TaskCache,
    pub needs: &'a Captures,
    pub start_ns: u64,
    pub seed: &'a Cell<u64>,
    pub n_hits: &'a mut u64,
    pub n_cut: &'a mut u64,
    pub door_order: &'a mut DoorOrder,
    /// How far the times of the two doors may differ, if both are open and the order matters.
    pub doubt_ns: Option<u64>,
    pub order_within: OrderWithin,
}

impl Consumer<ScriptSites> for Runner<'_> {
    #[inline]
    fn hit(&mut self, sites: &ScriptSites, hit: &nopal_live::Hit<'_>) {
        let Some(event) = sites.events.get(hit.event as usize) else { return };
        if self.performer.is_over() {
            return;
        }
        *self.n_hits += 1;
        *self.n_cut += event.reader.n_cut(hit.payload);
        let task = if self.tasks.has_foreign() { self.tasks.both(hit).1 } else { hit.task };
        if let Some(doubt_ns) = self.doubt_ns {
            // Records of a script that does not ask whose they are do not say it.
            let of = if self.needs.needs_task { task } else { Task { pid: 0, tid: 0 } };
            self.door_order.hit(hit.ns, (of, 0), hit.stream.kind, self.order_within, doubt_ns);
        }
        let who =
            if self.needs.needs_task { self.everyone.who_if(self.needs, task) } else { TaskInfo::default() };
        let hit = UserHit {
            sites,
            event: hit.event,
            reader: &event.reader,
            payload: hit.payload,
            ns: hit.ns,
            start_ns: self.start_ns,
            cpu: hit.stream.cpu,
            task,
            who,
            seed: self.seed,
        };
        let (performer, cells, ring) = (&mut *self.performer, self.cells, self.ring.as_ref());
        for (clause, point) in &event.runs {
            performer.begin_hit();
            self.interpreter.run(*clause, *point, &hit, |maps, emitted| {
                performer.perform(&mut CellMaps { maps, cells, ring }, emitted.action, emitted.payload)
            });
        }
    }

    fn loss(&mut self, loss: &Loss) {
        self.performer.spans.loss(loss.last_ns);
    }

    fn introduce(&mut self, task: Task, comm: &str) {
        self.everyone.introduce(task, comm);
    }
}

/// A record as a clause sees it.
pub(super) struct UserHit<'a> {
    pub(super) sites: &'a ScriptSites,
    pub(super) event: u32,
    pub(super) reader: &'a SiteReader,
    pub(super) payload: &'a [u8],
    pub(super) ns: u64,
    pub(super) start_ns: u64,
    pub(super) cpu: u32,
    pub(super) task: Task,
    pub(super) who: TaskInfo,
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
            Builtin::Retval => self.arg(RETURN_VALUE) as u64,
            // Refused before anything is opened.
            Builtin::Curtask
            | Builtin::Ip
            | Builtin::Ctx
            | Builtin::NsecsBoot
            | Builtin::NsecsTai
            | Builtin::Jiffies
            | Builtin::NumaNode => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        self.who.comm()
    }
    fn user_stack(&self, each: &mut dyn FnMut(u64)) {
        let mut frames = Vec::new();
        let stack = self.reader.stack(self.payload);
        self.sites.unwind(self.task.pid, self.event, stack, MAX_FRAMES, &mut frames);
        frames.into_iter().for_each(each);
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
