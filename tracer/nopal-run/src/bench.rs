//! `bench:NAME { ... }`: how long a clause takes where the tracer runs it.

use super::user::UserRun;
use nopal_program::PointKind;
use nopal_trace::clock::monotonic_ns;

/// A clause is run for this long, and at least once.
const BUDGET_NS: u64 = 100_000_000;
/// What a clause prints is kept until it is shown.
const MAX_ROUNDS: u64 = 1 << 20;
/// Between two looks at the clock, which would be measured, too.
const ROUNDS_AT_ONCE: u64 = 64;

/// What was measured of one clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    pub name: String,
    pub average_ns: u64,
    pub n_rounds: u64,
}

impl UserRun {
    /// Measures the clauses in the order of the script.
    pub fn bench(&mut self) -> Vec<Measured> {
        let points = self.own_points(|kind| matches!(kind, PointKind::Bench { .. }));
        let mut found = Vec::new();
        for (clause, point, kind) in points {
            let PointKind::Bench { name } = kind else { continue };
            let (start_ns, mut n_rounds) = (monotonic_ns(), 0);
            let spent_ns = loop {
                for _ in 0..ROUNDS_AT_ONCE {
                    self.run_at(clause, point, start_ns);
                }
                n_rounds += ROUNDS_AT_ONCE;
                let spent_ns = monotonic_ns().saturating_sub(start_ns);
                if spent_ns >= BUDGET_NS || n_rounds >= MAX_ROUNDS || self.performer.exit.is_some() {
                    break spent_ns;
                }
            };
            found.push(Measured { name, average_ns: spent_ns / n_rounds, n_rounds });
        }
        found
    }
}
