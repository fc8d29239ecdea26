//! The ways to open a function where it is entered or left: which instruction of the straight line there can have a jump
//! put on it. Pure; whether anything else leads into the line is asked of [`Fixed`](super::relocate::Fixed) by the caller.
//!
//! ```text
//! entry   41 57        push %r15          ->  41 E9           the prefix stays, the rest is a jump with a prefix
//!         41 56        push %r14              41 56              whose distance goes on with the bytes behind it
//! entry   55           push %rbp          ->  E9              one byte
//! return  c3 + filling ret                ->  E9 dd dd dd dd  the filling is never run
//! return  c3           ret                ->  E9              one byte, or on an instruction before it
//! tail    e9 xx xx xx xx  jmp other       ->  e9 dd dd dd dd  the jump leads to the stub, which goes on to `other`
//! ```
//!
//! Of one instruction either the first byte changes alone, or it stays: see [`tactic`](super::tactic).

use super::behind::{retarget, within};
use super::distance::{self, Distance, JUMP_BYTES};
use super::stub::tail::{Tail, is_harmless, may_only_fault, plan_exit, plan_faulting, plan_instruction};
use super::tactic::{Refusal, Tactic, Way, pun};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use nopal_functions::{GO_ARGUMENTS, GOROUTINE, stack_rise};
use nopal_sdt::probe::{Edge, Side};

/// A way, and where nothing else may lead for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EdgeWay {
    pub way: Way,
    /// Link-time addresses.
    pub unled: std::ops::Range<u64>,
    /// An instruction that may fault runs elsewhere, or before the hit is seen: only where no handler looks at faults.
    pub may_fault: bool,
}

/// An instruction of a line.
struct Step {
    instruction: Instruction,
    /// In the edge's code.
    at: usize,
}

/// The ways to open an edge, best first. `bias` is what is added to link-time addresses.
pub(crate) fn ways(edge: &Edge, bias: u64) -> Result<Vec<EdgeWay>, Refusal> {
    if let Some(reason) = &edge.unfit {
        return Err(Refusal::NoWay { reason: reason.clone() });
    }
    let steps = decode(edge, bias);
    let mut ways = match edge.side {
        Side::Entry => at_entry(edge, bias, &steps),
        Side::Return | Side::Tail | Side::ConditionalTail => at_exit(edge, bias, &steps),
        Side::AnyReturn => Vec::new(),
    };
    if !ways.is_empty() && ways.iter().all(|found| found.way.may_be_torn()) {
        return Err(Refusal::TwoPages);
    }
    ways.retain(|found| !found.way.may_be_torn());
    if ways.is_empty() {
        let reason = match edge.side {
            Side::Entry => "no instruction at its entry can have a jump put on it",
            Side::Return | Side::Tail | Side::ConditionalTail | Side::AnyReturn => {
                "no instruction at this exit can have a jump put on it"
            }
        };
        return Err(Refusal::NoWay { reason: reason.to_owned() });
    }
    Ok(ways)
}

fn decode(edge: &Edge, bias: u64) -> Vec<Step> {
    let line = edge.code.get(..edge.line_len).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, line, edge.start.wrapping_add(bias), DecoderOptions::NONE);
    let mut steps = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            break;
        }
        steps.push(Step { instruction, at });
    }
    steps
}

/// Jumps on one instruction: with its prefix kept, then on its first byte alone.
fn on(edge: &Edge, step: &Step, above: i32, tail: Tail) -> Vec<Way> {
    let Step { instruction, at } = step;
    let mut ways: Vec<Way> = within(instruction, &edge.code, *at, &tail).into_iter().collect();
    let starts = distance::starts(&edge.code, *at);
    let distance = Distance::of_file(&edge.code, at + 1, &starts[1..]);
    ways.extend(distance.map(|distance| pun(Tactic::Pun, instruction.ip(), distance, tail)));
    ways.iter_mut().for_each(|way| way.above = above);
    ways
}

/// After all others.
const FAULTING: u32 = 10;

fn at_entry(edge: &Edge, bias: u64, steps: &[Step]) -> Vec<EdgeWay> {
    let mut found: Vec<(u32, EdgeWay)> = Vec::new();
    let mut above: i64 = 0;
    let (mut is_first, mut may_fault) = (true, false);
    for step in steps {
        let Step { instruction, at } = step;
        if instruction.mnemonic() == Mnemonic::Endbr64 && is_first {
            continue;
        }
        // What leaves is an exit, and has a jump of its own.
        if instruction.flow_control() != FlowControl::Next && !is_first {
            break;
        }
        let Ok(depth) = i32::try_from(above) else { break };
        let led = instruction.ip().wrapping_sub(bias).wrapping_add(1);
        let unled = if is_first { 0..0 } else { edge.start + 1..led };
        let code = edge.code.get(*at..).unwrap_or_default();
        let (tail, faults) = match plan_instruction(code, instruction.ip()) {
            Some(tail) => (Some(tail), may_fault),
            None => (plan_faulting(code, instruction.ip()), true),
        };
        for way in tail.into_iter().flat_map(|tail| on(edge, step, depth, tail)) {
            let is_free = way.distance.is_free();
            let rank = match (way.tactic, is_first, is_free) {
                (Tactic::Behind, true, true) => 0,
                (Tactic::Behind, false, true) => 1,
                (Tactic::Behind, true, false) => 2,
                (_, true, _) => 3,
                (Tactic::Behind, false, false) => 4,
                (_, false, _) => 5,
            };
            let rank = rank + if faults { FAULTING } else { 0 };
            found.push((rank, EdgeWay { way, unled: unled.clone(), may_fault: faults }));
        }
        if !leaves_arguments(instruction, edge.is_go) {
            break;
        }
        let Some(rise) = stack_rise(instruction) else { break };
        above -= rise;
        is_first = false;
        may_fault |= !is_harmless(instruction);
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, way)| way).collect()
}

fn at_exit(edge: &Edge, bias: u64, steps: &[Step]) -> Vec<EdgeWay> {
    let Some((exit, before)) = steps.split_last() else { return Vec::new() };
    let mut found: Vec<EdgeWay> =
        on_exit(edge, exit).into_iter().map(|way| EdgeWay { way, unled: 0..0, may_fault: false }).collect();
    if edge.side == Side::ConditionalTail {
        // Before it nobody knows yet whether it will be taken.
        return found;
    }
    let mut above: i64 = 0;
    let mut earlier = Vec::new();
    for step in before.iter().rev() {
        if !may_be_passed(&step.instruction) {
            break;
        }
        let Some(rise) = stack_rise(&step.instruction) else { break };
        above += rise;
        let Ok(depth) = i32::try_from(above) else { break };
        let from = step.instruction.ip().wrapping_sub(bias).wrapping_add(1);
        let unled = from..exit.instruction.ip().wrapping_sub(bias).wrapping_add(1);
        let Some(tail) =
            edge.code.get(step.at..).and_then(|code| plan_instruction(code, step.instruction.ip()))
        else {
            continue;
        };
        let ways = on(edge, step, depth, tail).into_iter();
        earlier.extend(ways.map(|way| EdgeWay { way, unled: unled.clone(), may_fault: false }));
    }
    earlier.sort_by_key(|earlier| (!earlier.way.distance.is_free(), earlier.way.tactic != Tactic::Behind));
    found.append(&mut earlier);
    found
}

/// Jumps on the instruction that leaves.
fn on_exit(edge: &Edge, exit: &Step) -> Vec<Way> {
    let Step { instruction, at } = exit;
    let ip = instruction.ip();
    let bytes = &edge.code[*at..at + instruction.len()];
    let Some(tail) = plan_exit(&edge.code[*at..], ip) else { return Vec::new() };
    let has_filling = edge.n_filling >= JUMP_BYTES - 1;
    match (edge.side, bytes) {
        (Side::Return, [0xc3]) => {
            let over = has_filling.then(|| Way { tactic: Tactic::Jump, ..Way::relocation(ip, tail.clone()) });
            over.into_iter().chain(first_byte(edge, exit, tail)).collect()
        }
        // With a prefix that a jump may have as well.
        (Side::Return, [0xf2 | 0xf3, 0xc3]) => {
            let starts = if has_filling { Vec::new() } else { distance::starts(&edge.code, *at) };
            let file = Distance::of_file(&edge.code, at + 2, starts.get(1..).unwrap_or_default());
            let distance = if has_filling { Some(Distance::FREE) } else { file };
            let patch_len = if has_filling { JUMP_BYTES } else { 1 };
            let way = |distance| Way {
                tactic: Tactic::Behind,
                patch_len,
                kept_len: 1,
                ..pun(Tactic::Behind, ip + 1, distance, tail)
            };
            distance.map(way).into_iter().collect()
        }
        (Side::Tail, [0xe9, ..]) => retarget(instruction, bytes, &tail).into_iter().collect(),
        (Side::ConditionalTail, [0x0f, 0x80..=0x8f, _, _, _, _]) | (Side::Tail, [0xf2, 0xe9, _, _, _, _]) => {
            let target = Tail::to(instruction.near_branch_target());
            vec![Way {
                tactic: Tactic::Retarget,
                patch: ip + 2,
                patch_len: JUMP_BYTES - 1,
                kept_len: 2,
                ..pun(Tactic::Retarget, ip + 1, Distance::FREE, target)
            }]
        }
        (Side::Return | Side::Tail, _) => first_byte(edge, exit, tail).into_iter().collect(),
        (Side::Entry | Side::ConditionalTail | Side::AnyReturn, _) => Vec::new(),
    }
}

/// The first byte alone, with the bytes behind it as they are. What only fills up is nothing that anybody traces.
fn first_byte(edge: &Edge, exit: &Step, tail: Tail) -> Option<Way> {
    let behind = exit.at + exit.instruction.len();
    let filling = behind..behind + edge.n_filling;
    let mut starts = distance::starts(&edge.code, exit.at);
    starts.retain(|at| *at > exit.at && !filling.contains(at));
    let distance = Distance::of_file(&edge.code, exit.at + 1, &starts)?;
    Some(pun(Tactic::Pun, exit.instruction.ip(), distance, tail))
}

/// Where the first arguments are, and what unwinding needs.
const ARGUMENTS: [Register; 7] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9, Register::RBP];

/// Whether the function's arguments are the same behind the instruction as before it, and it always gets there.
fn leaves_arguments(instruction: &Instruction, is_go: bool) -> bool {
    // A function of Go has its goroutine in a register, too.
    let is_go_argument =
        |register| register == GOROUTINE || GO_ARGUMENTS.iter().any(|(_, argument)| *argument == register);
    let is_argument = |register| if is_go { is_go_argument(register) } else { ARGUMENTS.contains(&register) };
    if instruction.flow_control() != FlowControl::Next || !may_only_fault(instruction) {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    // A string that an argument leads to must not be changed either; what is on the stack is the function's own.
    let is_own = |base: Register| matches!(base, Register::RSP | Register::RBP);
    let mut stores = info.used_memory().iter().filter(|memory| is_written(memory.access()));
    if stores.any(|memory| !is_own(memory.base())) {
        return false;
    }
    !info
        .used_registers()
        .iter()
        .any(|used| is_written(used.access()) && is_argument(used.register().full_register()))
}

fn is_written(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Between a jump before the exit and the exit: only what puts back registers and the stack.
fn may_be_passed(instruction: &Instruction) -> bool {
    let is_plain_move = instruction.mnemonic() == Mnemonic::Mov
        && (0..2).all(|op| instruction.op_kind(op) == OpKind::Register);
    matches!(
        instruction.mnemonic(),
        Mnemonic::Pop | Mnemonic::Add | Mnemonic::Lea | Mnemonic::Vzeroupper | Mnemonic::Nop
    ) && instruction.memory_base() != Register::RBP
        && is_harmless_or_empty(instruction)
        || is_plain_move
}

fn is_harmless_or_empty(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Vzeroupper || is_harmless(instruction)
}

#[cfg(test)]
mod tests;
