//! Jumps behind the nop of a site. Best are those that leave every instruction its first byte: within an instruction that
//! begins with a prefix, which a jump may have as well, or in the distance of a jump that is there already. Then those that
//! change the first byte of one instruction and nothing else, as at the nop itself. Pure; whether something else leads there
//! is asked of [`Fixed`](super::relocate::Fixed) by the caller.
//!
//! The place need not be right behind the nop. Instructions between the two stay and run before the stub, if they leave
//! alone what the probe's arguments are read from.

use super::distance::{self, Byte, Distance, JUMP, JUMP_BYTES};
use super::stub::tail::{Tail, is_harmless, plan_instruction};
use super::tactic::{Tactic, Way, pun};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use nopal_sdt::operand::{Base, Place, Register as Number};
use nopal_sdt::probe::Arg;

/// A way, and up to where nothing else may lead, counted from the nop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Behind {
    pub way: Way,
    pub window: u64,
}

/// The ways behind the nop at `address`, best first: those that need no place to land, those that leave a first byte alone,
/// then the others. `code` begins with the nop and ends before the next site.
pub(crate) fn ways_behind(address: u64, code: &[u8], args: &[Arg]) -> Vec<Behind> {
    let used = Used::of(args);
    let mut ways = Vec::new();
    let mut at = 1;
    let mut decoder =
        Decoder::with_ip(64, code.get(1..).unwrap_or_default(), address + 1, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            break;
        }
        let end = at + instruction.len();
        if let Some(tail) = plan_instruction(&code[at..], instruction.ip()) {
            let way = retarget(&instruction, &code[at..end], &tail)
                .or_else(|| within(&instruction, code, at, &tail));
            let first = on_first_byte(&instruction, code, at, tail);
            ways.extend(way.into_iter().chain(first).map(|way| Behind { way, window: end as u64 }));
        }
        if !used.is_left_alone_by(&instruction) {
            break;
        }
        at = end;
    }
    ways.sort_by_key(|Behind { way, .. }| (way.tactic == Tactic::Further, !way.distance.is_free()));
    ways
}

/// The first byte of an instruction becomes the opcode of a jump whose distance is the bytes behind it, as they are. Long nops
/// are not taken: they belong to the ways at the site itself.
fn on_first_byte(instruction: &Instruction, code: &[u8], at: usize, tail: Tail) -> Option<Way> {
    if instruction.mnemonic() == Mnemonic::Nop {
        return None;
    }
    let starts = distance::starts(code, at);
    let distance = Distance::of_file(code, at + 1, starts.get(1..)?)?;
    Some(pun(Tactic::Further, instruction.ip(), distance, tail))
}

/// Whether the processor takes this as a prefix of a jump and ignores it. Not 66, with which AMD's and Intel's processors
/// jump to different places.
fn is_ignored(prefix: u8) -> bool {
    matches!(prefix, 0x40..=0x4f | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf2 | 0xf3)
}

pub(super) fn retarget(instruction: &Instruction, bytes: &[u8], tail: &Tail) -> Option<Way> {
    let at = instruction.ip();
    let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch
        && bytes.first() == Some(&JUMP)
        && bytes.len() == JUMP_BYTES;
    is_jump.then(|| Way {
        tactic: Tactic::Retarget,
        jump: at,
        patch: at + 1,
        patch_len: JUMP_BYTES - 1,
        kept_len: 1,
        distance: Distance::FREE,
        tail: tail.clone(),
        is_narrow: false,
        above: 0,
    })
}

pub(super) fn within(instruction: &Instruction, code: &[u8], at: usize, tail: &Tail) -> Option<Way> {
    if instruction.flow_control() != FlowControl::Next || !is_ignored(*code.get(at)?) {
        return None;
    }
    // The prefix, the opcode, then what is left of the instruction and perhaps some of what follows it.
    let n_left = instruction.len().checked_sub(2)?;
    let Distance(mut bytes) = match n_left {
        4.. => Distance::FREE,
        _ => Distance::of_file(code, at + 2, &distance::starts(code, at))?,
    };
    bytes.iter_mut().take(n_left).for_each(|byte| *byte = Byte::Free);
    let jump = instruction.ip() + 1;
    Some(Way {
        tactic: Tactic::Behind,
        jump,
        patch: jump,
        patch_len: 1 + n_left.min(4),
        kept_len: 1,
        distance: Distance(bytes),
        tail: tail.clone(),
        is_narrow: false,
        above: 0,
    })
}

/// What the arguments of a probe are read from.
struct Used {
    registers: Vec<Register>,
    /// Memory, or registers that may point to a string.
    is_anything: bool,
    /// An argument that nobody understands may be read from anywhere.
    is_unknown: bool,
}

impl Used {
    fn of(args: &[Arg]) -> Used {
        let mut used = Used { registers: Vec::new(), is_anything: false, is_unknown: false };
        for arg in args {
            let Ok(operand) = &arg.operand else {
                used.is_unknown = true;
                continue;
            };
            used.is_anything |= !matches!(operand.place, Place::Constant(_));
            match &operand.place {
                Place::Register(register) => used.add(*register),
                Place::Vector(number) => used.registers.push(Register::ZMM0 + u32::from(*number)),
                Place::Constant(_) => {}
                Place::Memory(memory) => {
                    if let Base::Register(register) = memory.base {
                        used.add(register);
                    }
                    if let Some((register, _)) = memory.index {
                        used.add(register);
                    }
                }
            }
        }
        used
    }

    fn add(&mut self, register: Number) {
        self.registers.push(Register::RAX + u32::from(register.number));
    }

    /// Whether the arguments are the same behind the instruction as before it, and it is one that always gets there.
    fn is_left_alone_by(&self, instruction: &Instruction) -> bool {
        if self.is_unknown || instruction.flow_control() != FlowControl::Next || !is_harmless(instruction) {
            return false;
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let is_written = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let writes_memory = info.used_memory().iter().any(|m| is_written(m.access()));
        let mut written = info.used_registers().iter().filter(|r| is_written(r.access()));
        (!writes_memory || !self.is_anything)
            && !written.any(|r| self.registers.contains(&r.register().full_register()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_sdt::operand::{Arch, parse};

    fn args(texts: &[&str]) -> Vec<Arg> {
        let arg = |text: &&str| Arg { text: (*text).into(), operand: parse(Arch::X86_64, text) };
        texts.iter().map(arg).collect()
    }

    fn shown(code: &[u8], texts: &[&str], is_shown: impl Fn(Tactic) -> bool) -> String {
        let ways = ways_behind(0x1000, code, &args(texts));
        let shown = ways.iter().filter(|behind| is_shown(behind.way.tactic)).map(|Behind { way, window }| {
            let n_guards = way.distance.under_breakpoints(0).len();
            format!("{:?} {:x}+{} window {window} guards {n_guards}", way.tactic, way.patch, way.patch_len)
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn no_first_byte_is_changed() {
        let table: &[(&str, &[u8], &str)] = &[
            // lea 0(%rip),%rax: all of the distance lies in it.
            ("lea", &[0x90, 0x48, 0x8d, 5, 0, 0, 0, 0, 0xc3], "Behind 1002+5 window 8 guards 0"),
            ("jmp", &[0x90, 0xe9, 0, 1, 0, 0, 0xc3], "Retarget 1002+4 window 6 guards 0"),
            // mov %rax,%rdi; call: the call begins within the distance.
            ("mov, call", &[0x90, 0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0], "Behind 1002+2 window 4 guards 1"),
            // push %r15; push %r14; mov %rsp,%rbp
            (
                "push, push",
                &[0x90, 0x41, 0x57, 0x41, 0x56, 0x48, 0x89, 0xe5],
                "Behind 1002+1 window 3 guards 3",
            ),
            // cmp %eax,$0x2000; je: no prefix, and the branch ends it.
            ("cmp, je", &[0x90, 0x3d, 0, 0x20, 0, 0, 0x74, 0x49, 0x85, 0xc0], ""),
            // mov $1,%esi; lea 0(%rip),%rdi
            (
                "mov, lea",
                &[0x90, 0xbe, 1, 0, 0, 0, 0x48, 0x8d, 0x3d, 0, 0, 0, 0],
                "Behind 1007+5 window 13 guards 0",
            ),
            // mov %r14,%rbp; jmp: the jump needs no place to land and comes first.
            (
                "mov, jmp",
                &[0x90, 0x4c, 0x89, 0xf5, 0xe9, 0, 0, 0, 0, 0x90],
                "Retarget 1005+4 window 9 guards 0, Behind 1002+2 window 4 guards 1",
            ),
            // movdqa: its first byte is not a prefix that a jump may have.
            ("66", &[0x90, 0x66, 0x0f, 0x6f, 0xbd, 0, 1, 0, 0], ""),
            ("endbr64", &[0x90, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0, 0], ""),
            ("a load that may fault", &[0x90, 0x48, 0x8b, 0xbb, 0x58, 1, 0, 0], ""),
            ("call", &[0x90, 0xe8, 0, 0, 0, 0, 0x48, 0x8d, 5, 0, 0, 0, 0], ""),
            ("cut off", &[0x90, 0x48, 0x89, 0xc7, 0xe8], ""),
            ("nothing", &[0x90], ""),
        ];
        for (name, code, expected) in table {
            assert_eq!(shown(code, &[], |tactic| tactic != Tactic::Further), *expected, "{name}");
        }
    }

    #[test]
    fn or_a_first_byte_is_changed_alone_and_last_of_all() {
        let table: &[(&str, &[u8], &str)] = &[
            // cmp $0x2000,%eax; je; test %eax,%eax; js: the last two begin within the distance of a jump on the branch.
            (
                "cmp, je",
                &[0x90, 0x3d, 0, 0x20, 0, 0, 0x74, 0x49, 0x85, 0xc0, 0x0f, 0x88, 0, 0, 0, 0],
                "Further 1001+1 window 6 guards 0, Further 1006+1 window 8 guards 3",
            ),
            // lea 0(%rip),%rax; ret; mov; ret: within the first instruction it is better.
            (
                "lea, ret",
                &[0x90, 0x48, 0x8d, 5, 0, 0, 0, 0, 0xc3, 0x48, 0x89, 0xc7, 0xc3],
                "Behind 1002+5 window 8 guards 0, Further 1001+1 window 8 guards 0, Further 1008+1 window 9 guards 3",
            ),
            // jmp: what follows it is not on the way.
            (
                "jmp",
                &[0x90, 0xe9, 0, 1, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90],
                "Retarget 1002+4 window 6 guards 0, Further 1001+1 window 6 guards 0",
            ),
            // Instructions that must stay, and what lies behind them.
            ("call", &[0x90, 0xe8, 0, 0, 0, 0, 0x48, 0x8d, 5, 0, 0, 0, 0], ""),
            ("a load that may fault", &[0x90, 0x48, 0x8b, 0xbb, 0x58, 1, 0, 0, 0x74, 0, 1, 2, 3], ""),
            // loop reaches 127 bytes only.
            ("loop", &[0x90, 0xe2, 0x10, 1, 2, 3, 4], ""),
            // A nop that the kernel replaces as a whole begins within the distance.
            ("je, nop5", &[0x90, 0x74, 0x10, 0x0f, 0x1f, 0x44, 0, 0, 0x90], ""),
            ("nop10", &[0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], ""),
            ("cut off", &[0x90, 0x74, 0x10, 0x5d, 0xc3], ""),
        ];
        for (name, code, expected) in table {
            assert_eq!(shown(code, &[], |_| true), *expected, "{name}");
        }
    }

    #[test]
    fn what_the_arguments_are_read_from_is_not_passed() {
        // mov $1,%esi; lea 0(%rip),%rdi
        let mov: &[u8] = &[0x90, 0xbe, 1, 0, 0, 0, 0x48, 0x8d, 0x3d, 0, 0, 0, 0];
        // movb $1,-0x38(%rbp); jmp
        let store: &[u8] = &[0x90, 0xc6, 0x45, 0xc8, 1, 0xe9, 0, 0, 0, 0];
        // push %rbx; jmp
        let push: &[u8] = &[0x90, 0x53, 0xe9, 0, 0, 0, 0];
        for (code, texts, is_passed) in [
            (mov, &["-4@$1"][..], true),
            (mov, &["-4@%edi"], true),
            (mov, &["-4@%esi"], false),
            (mov, &["1@%sil"], false),
            (mov, &["8@8(%rsi)"], false),
            (mov, &["8@8(%rax,%rsi,8)"], false),
            (mov, &["8@8(%rax)"], true),
            (mov, &["what is this"], false),
            (store, &[], true),
            (store, &["8@%rax"], false),
            (push, &[], true),
            (push, &["8@%rax"], false),
        ] {
            let shown = shown(code, texts, |tactic| tactic != Tactic::Further);
            assert_eq!(!shown.is_empty(), is_passed, "{code:02x?} {texts:?}");
        }
    }
}
