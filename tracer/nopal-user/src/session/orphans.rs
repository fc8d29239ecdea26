//! Whether anybody is left to be traced: a process goes on being a session's when its parents have ended.

use super::Session;
use crate::maps::Maps;
use nopal_proc::{self, Process};

impl Session {
    /// Whether one of the session's processes lives.
    pub fn is_any_alive(&mut self) -> bool {
        let is_alive = |pid: &i32| Process::is_alive(*pid as u32);
        if self.roots.iter().any(is_alive) || self.traced.iter().map(|t| t.pid).any(|pid| is_alive(&pid)) {
            return true;
        }
        if self.without_children {
            return false;
        }
        // What was forked meanwhile.
        self.has_news();
        self.missed_execs.family().any(Process::is_alive) || self.adopt_orphans()
    }

    /// Where the kernel tells nobody who was forked: a copy of a traced process has our ring, whoever its parent is now.
    fn adopt_orphans(&mut self) -> bool {
        let domains = &self.core.domains;
        let has_ring =
            |pid: u32| Maps::read(pid as i32).is_ok_and(|maps| !domains.mapped_in(&maps).is_empty());
        // A child of our own has the ring from us: it is a copy of the tracer.
        let own = std::process::id();
        let is_tracer = |p: &Process| p.pid == own || p.parent == own;
        let orphans = nopal_proc::processes().into_iter().filter(|p| !is_tracer(p) && !p.is_zombie);
        let orphans: Vec<u32> = orphans.map(|p| p.pid).filter(|pid| has_ring(*pid)).collect();
        // One that ends meanwhile is an orphan no longer.
        let adopted = orphans.into_iter().filter(|pid| self.attach_one(*pid as i32).is_ok());
        adopted.count() > 0
    }
}
