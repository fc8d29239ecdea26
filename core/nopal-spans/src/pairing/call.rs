//! Calls of functions, which the stack pointer tells apart: two that are under way never have the same.

use super::rule::{Class, Rule};
use super::thread::{Frame, Thread};
use crate::value::Fields;

/// The end of a call comes at most this much later than the begin of what follows it, by whatever clocks both are timed.
const LATE_NS: i64 = 1_000_000;

/// A call that has the stack pointer of one that begins now was left by an exception or a jump. So a thread has no more
/// calls open than there are places on its stacks where they began, of each function.
pub(super) fn drop_left(
    classes: &[Class],
    rules: &mut [Rule],
    thread: &mut Thread,
    begun: &Frame,
    spare: &mut Vec<Fields>,
) {
    let stack = |frame: &Frame| {
        let role = &classes[frame.class as usize].roles[usize::from(frame.role)];
        role.key.first()?.value(&frame.fields).integer()
    };
    let Some(own) = stack(begun) else { return };
    let mut idx = thread.frames.len();
    while idx > 0 {
        idx -= 1;
        let frame = &mut thread.frames[idx];
        if !rules[frame.rule].span.is_call || stack(frame) != Some(own) {
            continue;
        }
        // A function that the other door sees, by another clock, may have returned: its end comes in a moment.
        let is_late = frame.left_ns.is_some_and(|ns| begun.start_ns.saturating_sub(ns) > LATE_NS);
        if frame.rule == begun.rule || is_late {
            let left = thread.frames.remove(idx);
            rules[left.rule].unmatched.n_begins += 1;
            spare.push(left.fields);
        } else {
            frame.left_ns.get_or_insert(begun.start_ns);
        }
    }
}
