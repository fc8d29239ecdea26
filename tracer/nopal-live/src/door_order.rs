//! Whether it is known which of two hits came first. Those of the user door have the time of the CPU's counter, those of the
//! kernel door that of the kernel's clock; where both doors see one thread, hits that are nearer to each other than the two
//! clocks agree may have come in either order.

use nopal_capture::{StreamKind, Task};
use std::collections::VecDeque;

/// The two clocks agree at least as well as this, as far as is known.
pub const NEAR_NS: u64 = 1_000;

/// Which hits must be in order for an answer to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OrderWithin {
    /// The answer is the same in any order.
    Nothing,
    #[default]
    Thread,
    Process,
}

/// Looks at hits in the order of their times.
#[derive(Debug, Default)]
pub struct DoorOrder {
    recent: VecDeque<Recent>,
    /// Of them, those of the kernel door.
    n_by_kernel: usize,
    doubts: Doubts,
}

/// Hits near which there was one by the other door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubts {
    /// Of the same kin: what both are about depends on their order.
    pub n_unordered: u64,
    /// Of other kin: only which of two spans lies within the other depends on it.
    pub n_nesting: u64,
}

#[derive(Debug)]
struct Recent {
    ns: u64,
    task: Task,
    kin: u32,
    is_by_kernel: bool,
}

impl DoorOrder {
    /// Takes the next hit; `near_ns` is how far the two clocks may differ. Hits that have to do with each other are `kin`.
    #[inline]
    pub fn hit(
        &mut self,
        ns: u64,
        (task, kin): (Task, u32),
        kind: StreamKind,
        within: OrderWithin,
        near_ns: u64,
    ) {
        if within == OrderWithin::Nothing {
            return;
        }
        let is_by_kernel = kind == StreamKind::Kernel;
        while let Some(oldest) = self.recent.front().filter(|oldest| oldest.ns.saturating_add(near_ns) <= ns)
        {
            self.n_by_kernel -= usize::from(oldest.is_by_kernel);
            self.recent.pop_front();
        }
        let n_others = if is_by_kernel { self.recent.len() - self.n_by_kernel } else { self.n_by_kernel };
        let is_other = |recent: &Recent| {
            recent.is_by_kernel != is_by_kernel
                && recent.task.pid == task.pid
                && (recent.task.tid == task.tid || within == OrderWithin::Process)
        };
        if n_others > 0 {
            let mut near = self.recent.iter().filter(|recent| is_other(recent)).peekable();
            let is_near = near.peek().is_some();
            let is_kin = near.any(|recent| recent.kin == kin);
            self.doubts.n_unordered += u64::from(is_kin);
            self.doubts.n_nesting += u64::from(is_near && !is_kin);
        }
        self.n_by_kernel += usize::from(is_by_kernel);
        self.recent.push_back(Recent { ns, task, kin, is_by_kernel });
    }

    /// How many there were since this was last asked.
    pub fn take(&mut self) -> Doubts {
        std::mem::take(&mut self.doubts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StreamKind::{Kernel, Locked, Rseq};

    #[test]
    fn near_hits_of_one_thread_by_two_doors_are_in_doubt() {
        use OrderWithin::{Nothing, Process, Thread};
        for (hits, within, n_unordered) in [
            // One door alone has one clock.
            (&[(0, 1, Rseq), (10, 1, Rseq), (20, 1, Locked)][..], Thread, 0),
            (&[(0, 1, Kernel), (10, 1, Kernel)], Thread, 0),
            (&[(0, 1, Rseq), (999, 1, Kernel)], Thread, 1),
            (&[(0, 1, Kernel), (999, 1, Rseq)], Thread, 1),
            (&[(0, 1, Locked), (0, 1, Kernel)], Thread, 1),
            (&[(0, 1, Rseq), (1_000, 1, Kernel)], Thread, 0),
            (&[(0, 1, Rseq), (10, 2, Kernel)], Thread, 0),
            (&[(0, 1, Rseq), (10, 2, Kernel)], Process, 1),
            (&[(0, 1, Rseq), (10, 1, Kernel)], Nothing, 0),
            // Others between them do not make them any farther apart.
            (&[(0, 1, Rseq), (5, 2, Rseq), (6, 2, Kernel), (900, 1, Kernel)], Thread, 2),
            // The one that was near is not any more.
            (&[(0, 1, Kernel), (600, 1, Kernel), (1_300, 1, Rseq), (1_700, 1, Rseq)], Thread, 1),
        ] {
            let mut order = DoorOrder::default();
            for (ns, tid, kind) in hits {
                order.hit(5_000 + ns, (Task { pid: 1, tid: *tid }, 0), *kind, within, NEAR_NS);
            }
            assert_eq!(order.take(), Doubts { n_unordered, n_nesting: 0 }, "{hits:?}");
            assert_eq!(order.take(), Doubts::default());
        }
    }

    #[test]
    fn hits_that_have_nothing_in_common_leave_only_their_nesting_in_doubt() {
        for (hits, n_unordered, n_nesting) in [
            (&[(0, 7, Rseq), (10, 8, Kernel)][..], 0, 1),
            (&[(0, 7, Rseq), (10, 8, Rseq)], 0, 0),
            (&[(0, 7, Rseq), (10, 8, Kernel), (20, 8, Kernel), (30, 7, Rseq)], 0, 3),
            // Near to one of each.
            (&[(0, 7, Rseq), (5, 8, Rseq), (10, 8, Kernel)], 1, 0),
        ] {
            let mut order = DoorOrder::default();
            for (ns, kin, kind) in hits {
                let task = Task { pid: 1, tid: 1 };
                order.hit(5_000 + ns, (task, *kin), *kind, OrderWithin::Thread, NEAR_NS);
            }
            assert_eq!(order.take(), Doubts { n_unordered, n_nesting }, "{hits:?}");
        }
    }
}
