//! The straight lines of instructions at the edges of a function: what a jump may be put on.

use crate::depth::{is_filling, rise, writes};
use crate::go::GO_ARGUMENTS;
use crate::stretch::Stretch;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use nopal_sdt::probe::{Edge, Side};
use std::collections::BTreeSet;

/// A line is looked at so far.
const MAX_LINE_BYTES: usize = 64;
/// What is kept behind a line: the longest jump reaches into it.
const BEHIND_BYTES: usize = 16;
/// Of the line before an exit.
const MAX_LINE_BEFORE: u64 = 24;

fn bytes_of(stretch: &Stretch<'_>, from: u64, len: usize) -> Vec<u8> {
    let skip = (from - stretch.address) as usize;
    stretch.code.iter().chain(stretch.behind).skip(skip).take(len).copied().collect()
}

/// From the entry, or `skip` bytes behind it, to the first instruction that leads elsewhere or that something else leads to.
pub(crate) fn of_entry(stretch: &Stretch<'_>, skip: usize, targets: &BTreeSet<u64>) -> Edge {
    let mut line_len = 0;
    let (function, start) = (stretch.address, stretch.address + skip as u64);
    let code = stretch.code.get(skip..).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() && line_len < MAX_LINE_BYTES {
        let instruction = decoder.decode();
        let is_target = targets.contains(&instruction.ip()) && instruction.ip() != function;
        if instruction.is_invalid() || is_target {
            break;
        }
        line_len += instruction.len();
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    let code = bytes_of(stretch, start, line_len + BEHIND_BYTES);
    Edge { side: Side::Entry, function, start, code, line_len, n_filling: 0, is_go: false, unfit: None }
}

/// The exit, and the instructions before it after which what it returns does not change. `before`: nearest first.
pub(crate) fn of_exit(
    (function, side): (u64, Side),
    stretch: &Stretch<'_>,
    exit: &Instruction,
    before: Vec<Instruction>,
    targets: &BTreeSet<u64>,
    is_go: bool,
) -> Edge {
    let mut start = exit.ip();
    for instruction in before {
        let is_near = exit.ip() - instruction.ip() <= MAX_LINE_BEFORE;
        // A return value is in rax, rdx, xmm0 or st0; Go has results where it has arguments.
        let returns = [Register::RAX, Register::RDX, Register::ZMM0].into_iter();
        let of_go = GO_ARGUMENTS.iter().map(|(_, register)| *register).filter(|_| is_go);
        let is_kept = !returns.chain(of_go).any(|register| writes(&instruction, register));
        let is_plain = rise(&instruction).is_some()
            && !matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Leave);
        if !is_near || !is_kept || !is_plain || instruction.ip() < stretch.address {
            break;
        }
        start = instruction.ip();
    }
    let line_len = (exit.next_ip() - start) as usize;
    let n_filling = filling_behind(stretch, exit.next_ip(), targets);
    let code = bytes_of(stretch, start, line_len + BEHIND_BYTES);
    Edge { side, function, start, code, line_len, n_filling, is_go: false, unfit: None }
}

/// Bytes behind an unconditional exit that are only there to fill up.
fn filling_behind(stretch: &Stretch<'_>, from: u64, targets: &BTreeSet<u64>) -> usize {
    let n_owned = stretch.code.len() + stretch.n_unowned.min(stretch.behind.len());
    let len = (stretch.address + n_owned as u64).saturating_sub(from) as usize;
    let bytes = bytes_of(stretch, from, len.min(2 * BEHIND_BYTES));
    let mut decoder = Decoder::with_ip(64, &bytes, from, DecoderOptions::NONE);
    let mut n_bytes = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() || !is_filling(&instruction) || targets.contains(&instruction.ip()) {
            break;
        }
        n_bytes += instruction.len();
    }
    n_bytes
}
