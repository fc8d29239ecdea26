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
    /// Hits near which there was one by the other door.
    pub n_unordered: u64,
}

#[derive(Debug)]
struct Recent {
    ns: u64,
    task: Task,
    is_by_kernel: bool,
}

impl DoorOrder {
    /// Takes the next hit; `near_ns` is how far the two clocks may differ.
    #[inline]
    pub fn hit(&mut self, ns: u64, task: Task, kind: StreamKind, within: OrderWithin, near_ns: u64) {
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
        if n_others > 0 && self.recent.iter().any(is_other) {
            self.n_unordered += 1;
        }
        self.n_by_kernel += usize::from(is_by_kernel);
        self.recent.push_back(Recent { ns, task, is_by_kernel });
    }

    /// How many there were since this was last asked.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.n_unordered)
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
                order.hit(5_000 + ns, Task { pid: 1, tid: *tid }, *kind, within, NEAR_NS);
            }
            assert_eq!(order.take(), n_unordered, "{hits:?}");
            assert_eq!(order.take(), 0);
        }
    }
}
