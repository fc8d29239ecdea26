//! `interval` points: which is due when.

use super::points_of;
use nopal_program::{PointKind, Program};

/// The intervals of a script.
#[derive(Debug)]
pub(crate) struct Timers {
    timers: Vec<Timer>,
    /// Rounds that were left out.
    pub n_missed: u64,
}

/// So many rounds that were not run in time are made up for; what is more is left out, so that a tracer that was stopped,
/// or a period shorter than the work, does not keep it from everything else.
const MAX_BEHIND: u64 = 64;

#[derive(Debug)]
struct Timer {
    clause: u32,
    point: u32,
    period_ns: u64,
    next_ns: u64,
}

impl Timers {
    /// The first of each is due a period after `start_ns`.
    pub(crate) fn new(program: &Program, start_ns: u64) -> Timers {
        let timer = |(clause, point): (u32, u32)| {
            let PointKind::Interval { period_ns } =
                program.clauses[clause as usize].points[point as usize].kind
            else {
                return None;
            };
            let period_ns = period_ns.max(1);
            Some(Timer { clause, point, period_ns, next_ns: start_ns.saturating_add(period_ns) })
        };
        let found = points_of(program, |kind| matches!(kind, PointKind::Interval { .. }));
        Timers { timers: found.into_iter().filter_map(timer).collect(), n_missed: 0 }
    }

    /// When the next one is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.timers.iter().map(|t| t.next_ns).min()
    }

    /// The earliest that is due at `now_ns`, as clause, point and when. To be asked with one time until there is none.
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<(u32, u32, u64)> {
        let timer = self.timers.iter_mut().filter(|t| t.next_ns <= now_ns).min_by_key(|t| t.next_ns)?;
        let at_ns = timer.next_ns;
        timer.next_ns = at_ns.saturating_add(timer.period_ns);
        Some((timer.clause, timer.point, at_ns))
    }

    /// Leaves out what is too long ago to be made up for.
    pub(crate) fn catch_up(&mut self, now_ns: u64) {
        for timer in &mut self.timers {
            let n_behind = now_ns.saturating_sub(timer.next_ns) / timer.period_ns;
            let n_missed = n_behind.saturating_sub(MAX_BEHIND);
            timer.next_ns += n_missed * timer.period_ns;
            self.n_missed += n_missed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_program::{Clause, Code, Point};

    fn timers() -> Timers {
        let interval = |period_ns| Point { name: "i".into(), kind: PointKind::Interval { period_ns } };
        let clauses = [100, 250].map(|ns| Clause { points: vec![interval(ns)], code: Code::default() });
        Timers::new(&Program { clauses: clauses.into(), ..Program::default() }, 1000)
    }

    #[test]
    fn every_round_of_a_recording_is_run_in_order() {
        let mut timers = timers();
        let mut seen = Vec::new();
        while let Some((clause, _, at)) = timers.due(1500) {
            seen.push((clause, at));
        }
        assert_eq!(seen, [(0, 1100), (0, 1200), (1, 1250), (0, 1300), (0, 1400), (0, 1500), (1, 1500)]);
        assert_eq!(timers.next_ns(), Some(1600));
    }

    #[test]
    fn rounds_that_are_too_long_ago_are_left_out_and_counted() {
        let mut timers = timers();
        let mut run = |now_ns| {
            timers.catch_up(now_ns);
            let seen: Vec<_> = std::iter::from_fn(|| timers.due(now_ns)).collect();
            let of = |clause| seen.iter().filter(|(c, ..)| *c == clause).count();
            (of(0), of(1), timers.n_missed)
        };
        assert_eq!(run(1450), (4, 1, 0));
        // 1000 and 400 more are due, of each as many as are made up for.
        assert_eq!(run(101_450), (65, 65, 935 + 335));
        assert_eq!(run(101_450), (0, 0, 935 + 335));
        assert_eq!(run(101_500), (1, 1, 935 + 335));
    }
}
