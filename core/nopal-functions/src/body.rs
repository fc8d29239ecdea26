//! The code of one function, decoded, and the places where it is left.

use crate::depth::{Depths, is_filling, position, writes};
use crate::edge;
use crate::obstacle::Obstacle;
use crate::stretch::Stretch;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use nopal_sdt::probe::{Edge, Side};
use std::collections::BTreeSet;

/// How far back the target of an indirect jump is looked for.
const MAX_LOOK_BACK: usize = 16;

/// A function.
#[derive(Debug)]
pub struct Body<'a> {
    stretches: Vec<Stretch<'a>>,
    /// By address.
    instructions: Vec<Instruction>,
    /// Where direct branches within the function lead.
    targets: BTreeSet<u64>,
    depths: Depths,
}

/// A direct jump out of the function's stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outward {
    pub address: u64,
    pub target: u64,
    /// The stack is as it was at the entry, as far as that can be told.
    pub is_level: bool,
}

/// A place where the function is left.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    pub address: u64,
    pub edge: Edge,
}

impl<'a> Body<'a> {
    /// The first stretch begins with the function's entry.
    pub fn new(stretches: Vec<Stretch<'a>>) -> Result<Body<'a>, Obstacle> {
        let entry = stretches.first().filter(|first| !first.code.is_empty()).ok_or(Obstacle::Empty)?.address;
        let mut instructions = Vec::new();
        let mut targets = BTreeSet::new();
        for stretch in &stretches {
            let mut decoder = Decoder::with_ip(64, stretch.code, stretch.address, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instruction.is_invalid() {
                    return Err(Obstacle::Undecodable { address: instruction.ip() });
                }
                targets.extend(target(&instruction));
                instructions.push(instruction);
            }
        }
        instructions.sort_unstable_by_key(Instruction::ip);
        instructions.dedup_by_key(|instruction| instruction.ip());
        let depths = Depths::new(entry, &instructions, &targets);
        Ok(Body { stretches, instructions, targets, depths })
    }

    pub fn entry(&self) -> u64 {
        self.stretches[0].address
    }

    /// Beginning and end of each of its pieces.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, u64)> {
        self.stretches.iter().map(|stretch| (stretch.address, stretch.address + stretch.code.len() as u64))
    }

    fn contains(&self, address: u64) -> bool {
        self.stretches.iter().any(|stretch| stretch.contains(address))
    }

    /// The direct jumps out of its stretches: to other functions, or to stretches of its own that are not known yet.
    pub fn outward(&self) -> Vec<Outward> {
        let jumps = self.instructions.iter().filter(|i| {
            matches!(i.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
                && matches!(i.op0_kind(), OpKind::NearBranch64)
        });
        jumps
            .filter(|i| !self.contains(i.near_branch_target()))
            .map(|i| Outward {
                address: i.ip(),
                target: i.near_branch_target(),
                is_level: self.depth(i.ip()).is_none_or(|depth| depth == 0),
            })
            .collect()
    }

    fn depth(&self, address: u64) -> Option<i64> {
        self.depths.before(position(&self.instructions, address)?)?.depth
    }

    fn is_reached(&self, instruction: &Instruction) -> bool {
        position(&self.instructions, instruction.ip()).is_some_and(|at| self.depths.before(at).is_some())
    }

    /// The straight line from its entry on, or from so many bytes behind it.
    pub fn entry_edge(&self, skip: usize) -> Edge {
        edge::of_entry(&self.stretches[0], skip, &self.targets)
    }

    /// Every place where it is left. `is_go`: it has its results in the registers of Go.
    pub fn exits(&self, is_go: bool) -> Result<Vec<Exit>, Obstacle> {
        let mut exits = Vec::new();
        for (at, instruction) in self.instructions.iter().enumerate() {
            let Some(side) = self.side(at, instruction)? else { continue };
            let stretch = self.stretches.iter().find(|s| s.contains(instruction.ip()));
            let Some(stretch) = stretch else { continue };
            let line = self.line_before(at);
            let function = self.stretches[0].address;
            let edge = edge::of_exit((function, side), stretch, instruction, line, &self.targets, is_go);
            exits.push(Exit { address: instruction.ip(), edge });
        }
        for stretch in &self.stretches {
            self.check_end(stretch)?;
        }
        let from_entry = self.instructions.iter().skip_while(|i| i.ip() < self.entry());
        let first = from_entry.into_iter().find(|i| i.mnemonic() != Mnemonic::Endbr64).map(|i| i.ip());
        match exits.iter().find(|exit| Some(exit.address) == first) {
            Some(exit) => Err(Obstacle::LeavesAtOnce { address: exit.address }),
            None => Ok(exits),
        }
    }

    /// Whether the instruction leaves the function, and how.
    fn side(&self, at: usize, instruction: &Instruction) -> Result<Option<Side>, Obstacle> {
        let address = instruction.ip();
        let is_far = || instruction.op0_kind() == OpKind::NearBranch64;
        Ok(match instruction.flow_control() {
            FlowControl::Return if matches!(instruction.mnemonic(), Mnemonic::Ret) => Some(Side::Return),
            FlowControl::UnconditionalBranch
                if is_far() && !self.contains(instruction.near_branch_target()) =>
            {
                Some(Side::Tail)
            }
            FlowControl::ConditionalBranch
                if is_far() && !self.contains(instruction.near_branch_target()) =>
            {
                let is_long = instruction.is_jcc_near();
                if !is_long {
                    return Err(Obstacle::ShortConditional { address });
                }
                Some(Side::ConditionalTail)
            }
            FlowControl::IndirectBranch if !self.is_switch(at, instruction) => {
                if !self.is_indirect_tail(at, instruction) {
                    return Err(Obstacle::Indirect { address });
                }
                Some(Side::Tail)
            }
            _ => None,
        })
    }

    /// Whether an indirect jump goes through a table of the function's own places: the stack is not put back, the compiler
    /// says so by its prefix, or the target was just read from a table.
    fn is_switch(&self, at: usize, instruction: &Instruction) -> bool {
        if self.depth(instruction.ip()).is_some_and(|depth| depth != 0)
            || instruction.segment_prefix() == Register::DS
        {
            return true;
        }
        if instruction.op0_kind() == OpKind::Memory {
            return instruction.memory_index() != Register::None && instruction.memory_index_scale() == 8;
        }
        // movslq (table,index,4),%reg; add table,%reg; jmp *%reg
        let before = &self.instructions[at.saturating_sub(8)..at];
        before.iter().any(|i| {
            let is_table_word = matches!(i.mnemonic(), Mnemonic::Movsxd) && i.memory_index_scale() == 4;
            let is_table_address = i.mnemonic() == Mnemonic::Mov && i.memory_index_scale() == 8;
            i.memory_index() != Register::None && (is_table_word || is_table_address)
        })
    }

    /// Whether an indirect jump is one to another function: the stack is as at the entry, and the target is one word of
    /// memory, read there or just before, or an argument. What was computed may be a place of the function's own.
    fn is_indirect_tail(&self, at: usize, instruction: &Instruction) -> bool {
        if self.depth(instruction.ip()) != Some(0) {
            return false;
        }
        if instruction.op0_kind() == OpKind::Memory {
            return instruction.memory_index() == Register::None;
        }
        let register = instruction.op0_register();
        let mut next = instruction.ip();
        for before in self.instructions[..at].iter().rev().take(MAX_LOOK_BACK) {
            if before.next_ip() != next || before.flow_control() != FlowControl::Next {
                return false;
            }
            if writes(before, register.full_register()) {
                let is_word = before.op1_kind() == OpKind::Memory && before.memory_index() == Register::None;
                return before.mnemonic() == Mnemonic::Mov && before.op0_register() == register && is_word;
            }
            next = before.ip();
        }
        false
    }

    /// Starts of the instructions right before the exit that lead to it and to nothing else, the nearest first.
    fn line_before(&self, at: usize) -> Vec<Instruction> {
        let mut line = Vec::new();
        let mut next = self.instructions[at];
        for instruction in self.instructions[..at].iter().rev() {
            let is_next = instruction.next_ip() == next.ip() && !self.targets.contains(&next.ip());
            if !is_next || instruction.flow_control() != FlowControl::Next || instruction.ip() < self.entry()
            {
                break;
            }
            line.push(*instruction);
            next = *instruction;
        }
        line
    }

    /// Whether nothing runs over the end of a stretch.
    fn check_end(&self, stretch: &Stretch<'_>) -> Result<(), Obstacle> {
        let in_stretch = self.instructions.iter().rev().filter(|i| stretch.contains(i.ip()));
        let mut last = in_stretch.skip_while(|i| is_filling(i) && !self.is_reached(i));
        let Some(last) = last.next() else { return Ok(()) };
        let runs_on = match last.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => true,
            FlowControl::Interrupt => last.mnemonic() == Mnemonic::Int,
            // A call at the end is one that does not come back.
            _ => false,
        };
        if runs_on && self.is_reached(last) { Err(Obstacle::RunsOn { address: last.ip() }) } else { Ok(()) }
    }
}

/// Where a direct branch leads.
fn target(instruction: &Instruction) -> Option<u64> {
    let is_branch = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::XbeginXabortXend
    );
    is_branch.then(|| instruction.near_branch_target())
}

/// Whether a branch of this code leads to a place inside the range, but not to its beginning.
pub fn leads_into(stretch: &Stretch<'_>, range: &std::ops::Range<u64>) -> bool {
    let decoder = Decoder::with_ip(64, stretch.code, stretch.address, DecoderOptions::NONE);
    decoder.into_iter().filter_map(|i| target(&i)).any(|to| to != range.start && range.contains(&to))
}
