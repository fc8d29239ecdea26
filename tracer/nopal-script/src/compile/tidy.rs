//! Takes out what can never run, such as statements after `exit()`: the kernel refuses programs that have it.

use nopal_program::op::Op;

pub(super) fn without_dead_code(ops: Vec<Op>) -> Vec<Op> {
    let n_ops = ops.len();
    let mut is_live = vec![false; n_ops];
    let mut waiting = vec![0];
    while let Some(at) = waiting.pop() {
        if at >= n_ops || is_live[at] {
            continue;
        }
        is_live[at] = true;
        if let Some(target) = target(&ops[at]) {
            waiting.push(target as usize);
        }
        if !matches!(ops[at], Op::Jump { .. } | Op::Return) {
            waiting.push(at + 1);
        }
    }
    // Where each operation goes: as many live ones are before it.
    let mut moved = Vec::with_capacity(n_ops + 1);
    let mut n_live = 0u32;
    for live in &is_live {
        moved.push(n_live);
        n_live += u32::from(*live);
    }
    moved.push(n_live);
    let mut kept: Vec<Op> =
        ops.into_iter().zip(is_live).filter(|(_, live)| *live).map(|(op, _)| op).collect();
    retarget(&mut kept, &moved);
    kept
}

/// Lets jumps lead to where each operation went.
pub(super) fn retarget(ops: &mut [Op], moved: &[u32]) {
    for op in ops {
        match op {
            Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => *to = moved[*to as usize],
            Op::ForEach { end, .. } => *end = moved[*end as usize],
            _ => {}
        }
    }
}

fn target(op: &Op) -> Option<u32> {
    match op {
        Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => Some(*to),
        Op::ForEach { end, .. } => Some(*end),
        _ => None,
    }
}
