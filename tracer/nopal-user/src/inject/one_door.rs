//! All edges of a function by one door. Hits of the two doors are timed by different clocks: a call that is entered by one and
//! left by the other can seem to end before it began, and neither is a pair.

use super::{Ready, Work};
use crate::tactic::Refusal;
use crate::wanted::SiteReport;
use nopal_sdt::probe::Side;
use std::collections::{HashMap, HashSet};

/// What is wanted of one function.
#[derive(Default)]
struct Wished {
    has_entry: bool,
    has_exit: bool,
    is_open: bool,
    is_refused: bool,
    /// The kernel would see it whether the condition holds or not.
    is_conditional: bool,
}

/// The functions that are both entered and left, of which some edges are open and some are not, and all can be the kernel
/// door's.
fn divided(edges: impl Iterator<Item = (u64, Side, bool)>) -> HashSet<u64> {
    let mut functions: HashMap<u64, Wished> = HashMap::new();
    for (function, side, is_open) in edges {
        let wished = functions.entry(function).or_default();
        match side {
            Side::Entry => wished.has_entry = true,
            Side::Return | Side::Tail | Side::ConditionalTail | Side::AnyReturn => wished.has_exit = true,
        }
        wished.is_open |= is_open;
        wished.is_refused |= !is_open;
        wished.is_conditional |= side == Side::ConditionalTail;
    }
    let is_divided = |wished: &Wished| {
        wished.has_entry && wished.has_exit && wished.is_open && wished.is_refused && !wished.is_conditional
    };
    functions.into_iter().filter(|(_, wished)| is_divided(wished)).map(|(function, _)| function).collect()
}

/// In the process, if it is the edge of one.
fn function_of(report: &SiteReport) -> Option<u64> {
    let edge = report.site.edge.as_ref()?;
    Some(report.address.wrapping_sub(report.site.address).wrapping_add(edge.function))
}

impl Work<'_, '_> {
    /// Leaves whole functions to the kernel door, if there is one.
    pub(super) fn keep_edges_together(&mut self, ready: &mut Vec<Ready>, reports: &mut [SiteReport]) {
        let edge_of = |report: &SiteReport| {
            let edge = report.site.edge.as_ref()?;
            Some((function_of(report)?, edge.side, report.outcome.is_ok()))
        };
        let divided = divided(reports.iter().filter_map(edge_of));
        if divided.is_empty() || !self.core.has_other_door() {
            return;
        }
        ready.retain(|r| {
            let is_hit = function_of(&reports[r.report]).is_some_and(|function| divided.contains(&function));
            if is_hit {
                reports[r.report].outcome = Err(Refusal::OneDoor);
            }
            !is_hit
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_left_whole_where_it_is_asked_for_at_both_ends() {
        use Side::{AnyReturn, ConditionalTail, Entry, Return, Tail};
        type Row = (&'static [(Side, bool)], bool);
        let table: &[Row] = &[
            (&[(Entry, true), (Return, true)], false),
            (&[(Entry, false), (Return, false)], false),
            (&[(Entry, true), (Return, false)], true),
            (&[(Entry, false), (Return, true), (Return, true)], true),
            (&[(Entry, true), (Return, true), (Tail, false)], true),
            (&[(Entry, true), (AnyReturn, false)], true),
            // The kernel cannot tell whether it is left there.
            (&[(Entry, true), (Return, false), (ConditionalTail, true)], false),
            // Nothing to pair.
            (&[(Entry, true), (Entry, false)], false),
            (&[(Return, true), (Return, false)], false),
        ];
        for (edges, is_divided) in table {
            let of_one = edges.iter().map(|(side, is_open)| (0x1000, *side, *is_open));
            let beside = [(0x2000, Entry, true), (0x2000, Return, true)];
            let found = divided(of_one.chain(beside));
            assert_eq!(found.contains(&0x1000), *is_divided, "{edges:?}");
            assert!(!found.contains(&0x2000));
        }
    }
}
