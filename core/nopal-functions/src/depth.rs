//! How far the stack pointer is below its value at the function's entry, instruction by instruction.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::{BTreeSet, VecDeque};

/// What is known before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// Bytes below the value at the entry; `None` if that cannot be told.
    pub depth: Option<i64>,
    /// The depth that the frame pointer stands for, if it is one.
    frame: Option<i64>,
}

impl State {
    pub(crate) const ENTRY: State = State { depth: Some(0), frame: None };
}

/// The states before all instructions that can be reached.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    /// In the order of the instructions.
    states: Vec<Option<State>>,
}

/// Where in a list by address an instruction is.
pub(crate) fn position(all: &[Instruction], address: u64) -> Option<usize> {
    all.binary_search_by_key(&address, Instruction::ip).ok()
}

impl Depths {
    /// `all` by address, `targets` where their branches lead. Blocks that only a table leads to are taken to have the state of
    /// the jump through it.
    pub(crate) fn new(entry: u64, all: &[Instruction], targets: &BTreeSet<u64>) -> Depths {
        let mut depths = Depths { states: vec![None; all.len()] };
        let mut through_tables: Vec<State> = Vec::new();
        depths.follow(all, targets, (entry, State::ENTRY), &mut through_tables);
        // One table is enough to reach everything.
        if let Some(state) = through_tables.first().copied() {
            for (at, pair) in all.windows(2).enumerate() {
                let is_block = !matches!(
                    pair[0].flow_control(),
                    FlowControl::Next
                        | FlowControl::Call
                        | FlowControl::IndirectCall
                        | FlowControl::ConditionalBranch
                );
                if is_block && depths.states[at + 1].is_none() && !is_filling(&pair[1]) {
                    depths.follow(all, targets, (pair[1].ip(), state), &mut through_tables);
                }
            }
        }
        depths
    }

    /// What is known before the instruction at this position; `None` if nothing leads there.
    pub(crate) fn before(&self, at: usize) -> Option<State> {
        self.states.get(at).copied().flatten()
    }

    /// The first state that comes to an instruction stays.
    fn follow(
        &mut self,
        all: &[Instruction],
        targets: &BTreeSet<u64>,
        from: (u64, State),
        through_tables: &mut Vec<State>,
    ) {
        let mut waiting = vec![from];
        // A call may never return, and what stands behind it is then another block, with another state: where branches
        // lead there as well, these are asked first.
        let mut behind_calls = VecDeque::new();
        while let Some((address, mut state)) = waiting.pop().or_else(|| behind_calls.pop_front()) {
            let Some(mut at) = position(all, address) else { continue };
            while let Some(instruction) = all.get(at) {
                if self.states[at].is_some() {
                    break;
                }
                self.states[at] = Some(state);
                let after = step(state, instruction);
                match instruction.flow_control() {
                    FlowControl::Call | FlowControl::IndirectCall
                        if targets.contains(&instruction.next_ip()) =>
                    {
                        behind_calls.push_back((instruction.next_ip(), after));
                        break;
                    }
                    FlowControl::Next
                    | FlowControl::Call
                    | FlowControl::IndirectCall
                    | FlowControl::XbeginXabortXend => {}
                    FlowControl::ConditionalBranch => waiting.push((instruction.near_branch_target(), after)),
                    FlowControl::UnconditionalBranch => {
                        waiting.push((instruction.near_branch_target(), after));
                        break;
                    }
                    FlowControl::IndirectBranch => {
                        through_tables.push(after);
                        break;
                    }
                    FlowControl::Interrupt if instruction.mnemonic() != Mnemonic::Int3 => {}
                    FlowControl::Return | FlowControl::Interrupt | FlowControl::Exception => break,
                }
                let next = instruction.next_ip();
                at += 1;
                // The next one in the list may be of another stretch.
                if all.get(at).is_none_or(|instruction| instruction.ip() != next) {
                    break;
                }
                state = after;
            }
        }
    }
}

/// What compilers put between blocks.
pub(crate) fn is_filling(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || (instruction.mnemonic() == Mnemonic::Xchg
            && instruction.op0_register() == instruction.op1_register())
}

/// How many bytes the stack pointer rises by an instruction; `None` if that depends on what it meets.
pub fn rise(instruction: &Instruction) -> Option<i64> {
    let is_immediate = |op| {
        matches!(
            instruction.op_kind(op),
            OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate8 | OpKind::Immediate32
        )
    };
    let to_rsp = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Call | Mnemonic::Ret => return Some(0),
        Mnemonic::Add if to_rsp && is_immediate(1) => return Some(instruction.immediate(1) as i64),
        Mnemonic::Sub if to_rsp && is_immediate(1) => return (instruction.immediate(1) as i64).checked_neg(),
        Mnemonic::Lea
            if to_rsp
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None =>
        {
            return Some(instruction.memory_displacement64() as i64);
        }
        Mnemonic::Cmp | Mnemonic::Test => return Some(0),
        Mnemonic::Leave | Mnemonic::Enter => return None,
        _ => {}
    }
    if to_rsp {
        // `pop %rsp` and everything else that computes it.
        return (instruction.mnemonic() == Mnemonic::Push)
            .then(|| instruction.stack_pointer_increment().into());
    }
    Some(instruction.stack_pointer_increment().into())
}

fn step(state: State, instruction: &Instruction) -> State {
    let State { depth, frame } = state;
    let is_rsp_from_rbp = instruction.op_count() == 2
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Leave => return State { depth: frame.map(|frame| frame - 8), frame: None },
        Mnemonic::Mov if is_rsp_from_rbp && instruction.op1_register() == Register::RBP => {
            return State { depth: frame, frame };
        }
        Mnemonic::Lea
            if is_rsp_from_rbp
                && instruction.memory_base() == Register::RBP
                && instruction.memory_index() == Register::None =>
        {
            let up = instruction.memory_displacement64() as i64;
            return State { depth: frame.and_then(|frame| frame.checked_sub(up)), frame };
        }
        Mnemonic::Mov
            if instruction.op0_register() == Register::RBP && instruction.op1_register() == Register::RSP =>
        {
            return State { depth, frame: depth };
        }
        _ => {}
    }
    let depth = depth.zip(rise(instruction)).and_then(|(depth, rise)| depth.checked_sub(rise));
    let frame = frame.filter(|_| !writes(instruction, Register::RBP));
    State { depth, frame }
}

/// Whether an instruction changes a 64-bit register.
pub(crate) fn writes(instruction: &Instruction, register: Register) -> bool {
    // A function that is called gives back what the convention says it does.
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    factory.info(instruction).used_registers().iter().any(|used| {
        let is_write = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        is_write && used.register().full_register() == register
    })
}
