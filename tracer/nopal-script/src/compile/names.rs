//! Gives points of one name one number, so that `@[probe]` has one entry for them however many bodies they are in.

use super::tidy::retarget;
use nopal_program::op::{Binary, Op};
use nopal_program::{Clause, Code, Point};
use std::collections::HashMap;

/// A body has at most so many copies; beyond that its points have numbers of their own.
const MAX_COPIES: usize = 64;

/// Where bodies ask for `probe`: what has the points of an earlier one gives the numbers of that, and of other points whose
/// name an earlier one has each gets a copy of the body.
pub(super) fn shared(clauses: Vec<Clause>) -> Vec<Clause> {
    let mut out: Vec<Clause> = Vec::new();
    // By name: clause and point.
    let mut numbers: HashMap<String, (usize, usize)> = HashMap::new();
    for clause in clauses {
        if !clause.code.ops.iter().any(|op| matches!(op, Op::Probe { .. })) {
            out.push(clause);
            continue;
        }
        if let Some(first) = same_points(&clause.points, &numbers) {
            let ops = add_to_probe(clause.code.ops, first as i64 - out.len() as i64);
            out.push(Clause { points: clause.points, code: Code { ops, ..clause.code } });
            continue;
        }
        let (mut own, mut others): (Vec<Point>, Vec<(u64, Point)>) = (Vec::new(), Vec::new());
        for point in clause.points {
            match numbers.get(&point.name) {
                Some((clause, at)) if others.len() < MAX_COPIES => {
                    // As `Op::Probe` has it.
                    others.push(((*at as u64) << 32 | *clause as u64, point));
                }
                Some(_) => own.push(point),
                None => {
                    numbers.insert(point.name.clone(), (out.len(), own.len()));
                    own.push(point);
                }
            }
        }
        let copies: Vec<Clause> =
            others.into_iter().map(|(number, point)| copy(&clause.code, number, point)).collect();
        if !own.is_empty() {
            out.push(Clause { points: own, code: clause.code });
        }
        out.extend(copies);
    }
    out
}

/// The clause that has the same points at the same places.
fn same_points(points: &[Point], numbers: &HashMap<String, (usize, usize)>) -> Option<usize> {
    let (first, _) = *numbers.get(&points.first()?.name)?;
    let is_same = |(at, point): (usize, &Point)| numbers.get(&point.name) == Some(&(first, at));
    points.iter().enumerate().all(is_same).then_some(first)
}

fn add_to_probe(ops: Vec<Op>, distance: i64) -> Vec<Op> {
    let mut moved = Vec::with_capacity(ops.len() + 1);
    let mut out = Vec::with_capacity(ops.len() + 1);
    for op in ops {
        moved.push(out.len() as u32);
        out.push(op);
        if let Op::Probe { dst } = op {
            out.push(Op::BinaryConst { op: Binary::Add, dst, a: dst, b: distance });
        }
    }
    moved.push(out.len() as u32);
    retarget(&mut out, &moved);
    out
}

fn copy(code: &Code, number: u64, point: Point) -> Clause {
    let mut code = code.clone();
    for op in &mut code.ops {
        if let Op::Probe { dst } = *op {
            *op = Op::Const { dst, value: number as i64 };
        }
    }
    Clause { points: vec![point], code }
}
