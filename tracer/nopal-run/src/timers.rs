//! `interval` points: which is due when.

use super::points_of;
use nopal_program::{PointKind, Program};

/// The intervals of a script.
#[derive(Debug)]
pub struct Timers {
    timers: Vec<Timer>,
}

#[derive(Debug)]
struct Timer {
    clause: u32,
    point: u32,
    period_ns: u64,
    next_ns: u64,
}

impl Timers {
    /// The first of each is due a period after `start_ns`.
    pub fn new(program: &Program, start_ns: u64) -> Timers {
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
        Timers { timers: found.into_iter().filter_map(timer).collect() }
    }

    /// When the next one is due.
    pub fn next_ns(&self) -> Option<u64> {
        self.timers.iter().map(|t| t.next_ns).min()
    }

    /// The earliest that is due at `now_ns`, as clause, point and when. Where several rounds have passed unseen, as in a
    /// tracer that was stopped, `is_live` takes them as one.
    pub fn due(&mut self, now_ns: u64, is_live: bool) -> Option<(u32, u32, u64)> {
        let timer = self.timers.iter_mut().filter(|t| t.next_ns <= now_ns).min_by_key(|t| t.next_ns)?;
        let at_ns = timer.next_ns;
        let n_rounds = if is_live { (now_ns - at_ns) / timer.period_ns + 1 } else { 1 };
        timer.next_ns = at_ns.saturating_add(timer.period_ns.saturating_mul(n_rounds));
        Some((timer.clause, timer.point, at_ns))
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
        while let Some((clause, _, at)) = timers.due(1500, false) {
            seen.push((clause, at));
        }
        assert_eq!(seen, [(0, 1100), (0, 1200), (1, 1250), (0, 1300), (0, 1400), (0, 1500), (1, 1500)]);
        assert_eq!(timers.next_ns(), Some(1600));
    }

    #[test]
    fn rounds_that_nobody_saw_are_one() {
        let mut timers = timers();
        assert_eq!(timers.due(1450, true), Some((0, 0, 1100)));
        assert_eq!(timers.due(1450, true), Some((1, 0, 1250)));
        assert_eq!(timers.due(1450, true), None);
        assert_eq!(timers.next_ns(), Some(1500));
    }
}
