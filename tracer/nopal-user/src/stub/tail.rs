//! How the program goes on after the stubs of a site: a copy of the instructions that the patch displaced or read as part
//! of its jump, then a jump behind them. Copying is an optimisation (10 to 15 ns a hit): in doubt nothing is copied and
//! the program goes on where the patch ends.
//!
//! What follows a one-byte patch stays where it is and is copied besides. While somebody has a breakpoint in it, that is
//! to be met: so the original bytes are compared with what they were, and if they differ the program goes on there.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory, OpKind,
    Register,
};

use super::asm::{OutOfReach, rel32};

/// What is copied, and where the program is then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// Where the copied instructions are, and their first four bytes: copied only as long as these stand there.
    original: Option<(u64, u32)>,
    pieces: Vec<Piece>,
    /// Where to jump after the pieces; `None` if the last piece does not come back.
    resume: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Means the same everywhere.
    Bytes(Vec<u8>),
    /// Addresses memory relative to itself.
    Relative(Instruction),
    Jump(u64),
    /// Condition code and target.
    Branch(u8, u64),
}

impl Tail {
    /// Copies nothing.
    pub fn to(address: u64) -> Tail {
        Tail { original: None, pieces: Vec::new(), resume: Some(address) }
    }

    /// A site that is itself a `ret`, as the place the dynamic linker calls for debuggers is.
    pub fn ret() -> Tail {
        Tail { original: None, pieces: vec![Piece::Bytes(vec![0xc3])], resume: None }
    }

    pub fn copies_nothing(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The same way on without the copy of instructions that are still there, for code that cannot be read.
    pub fn without_copies(self) -> Tail {
        match self.original {
            Some((address, _)) => Tail::to(address),
            None => self,
        }
    }

    /// The resume code as it must be when it stands at `address`.
    pub fn encode(&self, address: u64) -> Result<Vec<u8>, OutOfReach> {
        let mut code = Vec::with_capacity(96);
        if let Some((original, bytes)) = self.original {
            compare(&mut code, address, original, bytes)?;
        }
        for piece in &self.pieces {
            let here = address + code.len() as u64;
            match piece {
                Piece::Bytes(bytes) => code.extend_from_slice(bytes),
                Piece::Relative(instruction) => {
                    let mut encoder = Encoder::new(64);
                    encoder
                        .encode(instruction, here)
                        .map_err(|_| OutOfReach { from: here, to: instruction.ip_rel_memory_address() })?;
                    code.extend_from_slice(&encoder.take_buffer());
                }
                Piece::Jump(to) => jump(&mut code, address, *to)?,
                Piece::Branch(condition, to) => {
                    code.extend_from_slice(&[0x0f, 0x80 | condition]);
                    let offset = rel32(address + code.len() as u64 + 4, *to)?;
                    code.extend_from_slice(&offset.to_le_bytes());
                }
            }
        }
        if let Some(to) = self.resume {
            jump(&mut code, address, to)?;
        }
        Ok(code)
    }
}

/// Goes on at `original` unless these bytes stand there; below the red zone, with no register and no flag changed.
fn compare(code: &mut Vec<u8>, address: u64, original: u64, bytes: u32) -> Result<(), OutOfReach> {
    const RESTORE: [u8; 9] = [0x59, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
    // lea -128(%rsp),%rsp; push %rcx; mov original(%rip),%ecx
    code.extend_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x51, 0x8b, 0x0d]);
    let offset = rel32(address + code.len() as u64 + 4, original)?;
    code.extend_from_slice(&offset.to_le_bytes());
    // lea -bytes(%rcx),%ecx; jrcxz over the next two instructions and the jump
    code.extend_from_slice(&[0x8d, 0x89]);
    code.extend_from_slice(&bytes.wrapping_neg().to_le_bytes());
    const JUMP_BYTES: u8 = 5;
    code.extend_from_slice(&[0xe3, RESTORE.len() as u8 + JUMP_BYTES]);
    // pop %rcx; lea 128(%rsp),%rsp
    code.extend_from_slice(&RESTORE);
    jump(code, address, original)?;
    code.extend_from_slice(&RESTORE);
    Ok(())
}

fn jump(code: &mut Vec<u8>, address: u64, to: u64) -> Result<(), OutOfReach> {
    code.push(0xe9);
    let offset = rel32(address + code.len() as u64 + 4, to)?;
    code.extend_from_slice(&offset.to_le_bytes());
    Ok(())
}

/// Plans the tail of a one-byte patch. `code` is what follows the patched byte, `address` where that is: four of these
/// bytes are read as the jump's distance, and the instructions they belong to are copied if they are simple.
pub fn plan_tail(code: &[u8], address: u64) -> Tail {
    const DISTANCE_BYTES: usize = 4;
    let Some(bytes) = code.first_chunk::<DISTANCE_BYTES>() else { return Tail::to(address) };
    let original = Some((address, u32::from_le_bytes(*bytes)));
    plan(code, address, DISTANCE_BYTES, is_harmless)
        .map_or_else(|| Tail::to(address), |tail| Tail { original, ..tail })
}

/// Plans the tail of a patch of the first byte of the instruction at `address`: that instruction, if it is a simple one.
pub fn plan_entry(code: &[u8], address: u64) -> Option<(Tail, Instruction)> {
    let first = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    let goes_on = first.flow_control() == FlowControl::Next;
    plan(code, address, 1, is_harmless).filter(|_| goes_on).map(|tail| (tail, first))
}

/// Plans the tail of a patch that replaces `length` bytes of instructions: all of them must be carried over, or it cannot
/// be done. Unlike [`plan_tail`] this moves instructions that may fault.
pub fn plan_relocation(code: &[u8], address: u64, length: usize) -> Option<Tail> {
    plan(code, address, length, |_| true)
}

/// Plans the tail of a patch within the one instruction at `address`, which must be a simple one.
pub fn plan_instruction(code: &[u8], address: u64) -> Option<Tail> {
    plan(code, address, 1, is_harmless)
}

/// The same for an instruction that may fault: only where nobody looks at where it does.
pub fn plan_faulting(code: &[u8], address: u64) -> Option<Tail> {
    plan(code, address, 1, may_only_fault)
}

/// Plans the tail of a patch on the instruction at `address`, which leaves a function: also by a jump to what a register
/// or a word of memory says.
pub fn plan_exit(code: &[u8], address: u64) -> Option<Tail> {
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.flow_control() != FlowControl::IndirectBranch {
        return plan_instruction(code, address);
    }
    let piece = match instruction.is_ip_rel_memory_operand() {
        true => Piece::Relative(instruction),
        false => Piece::Bytes(code.get(..instruction.len())?.to_vec()),
    };
    Some(Tail { original: None, pieces: vec![piece], resume: None })
}

/// Whether an instruction does the same elsewhere, but that a fault would be seen there.
pub fn may_only_fault(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    !instruction.is_privileged()
        && !instruction.is_string_instruction()
        && !matches!(instruction.mnemonic(), M::Div | M::Idiv | M::Endbr64 | M::Hlt | M::Ud2)
        && !instruction.is_save_restore_instruction()
}

fn plan(code: &[u8], address: u64, length: usize, may_move: impl Fn(&Instruction) -> bool) -> Option<Tail> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut pieces = Vec::new();
    let mut position = 0;
    while position < length {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        let bytes = &code[position..position + instruction.len()];
        position += instruction.len();
        match instruction.flow_control() {
            FlowControl::Next => {
                if !may_move(&instruction) {
                    return None;
                }
                pieces.push(if instruction.is_ip_rel_memory_operand() {
                    Piece::Relative(instruction)
                } else {
                    Piece::Bytes(bytes.to_vec())
                });
            }
            FlowControl::UnconditionalBranch => {
                pieces.push(Piece::Jump(instruction.near_branch_target()));
                return (position >= length).then_some(Tail { original: None, pieces, resume: None });
            }
            FlowControl::Return => {
                pieces.push(Piece::Bytes(bytes.to_vec()));
                return (position >= length).then_some(Tail { original: None, pieces, resume: None });
            }
            FlowControl::ConditionalBranch => {
                // loop and jrcxz reach 127 bytes only.
                let condition = condition(&instruction)?;
                pieces.push(Piece::Branch(condition, instruction.near_branch_target()));
            }
            FlowControl::IndirectBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Interrupt
            | FlowControl::XbeginXabortXend
            | FlowControl::Exception => return None,
        }
    }
    Some(Tail { original: None, pieces, resume: Some(address + position as u64) })
}

fn condition(instruction: &Instruction) -> Option<u8> {
    use iced_x86::ConditionCode as C;
    if !instruction.is_jcc_short_or_near() {
        return None;
    }
    Some(match instruction.condition_code() {
        C::None => return None,
        C::o => 0,
        C::no => 1,
        C::b => 2,
        C::ae => 3,
        C::e => 4,
        C::ne => 5,
        C::be => 6,
        C::a => 7,
        C::s => 8,
        C::ns => 9,
        C::p => 10,
        C::np => 11,
        C::l => 12,
        C::ge => 13,
        C::le => 14,
        C::g => 15,
    })
}

/// Whether nobody could tell that the instruction ran elsewhere: it cannot fault (a signal handler, an unwinder or a
/// runtime's table of fault addresses would see the wrong place), is not privileged and does not look at its own address.
pub fn is_harmless(instruction: &Instruction) -> bool {
    if instruction.is_privileged() || instruction.has_lock_prefix() || instruction.is_string_instruction() {
        return false;
    }
    if matches!(instruction.mnemonic(), iced_x86::Mnemonic::Div | iced_x86::Mnemonic::Idiv) {
        return false;
    }
    if (0..instruction.op_count())
        .any(|op| matches!(instruction.op_kind(op), OpKind::FarBranch16 | OpKind::FarBranch32))
    {
        return false;
    }
    if is_load_effective_address(instruction.code()) {
        return true;
    }
    // The stack at a fixed distance is there as surely as for the instructions around; so is the object's own data.
    let mut factory = InstructionInfoFactory::new();
    factory.info(instruction).used_memory().iter().all(|memory| {
        let is_stack = matches!(memory.base(), Register::RSP | Register::RBP)
            && memory.index() == Register::None
            && memory.segment() == Register::SS;
        let is_own_data = instruction.is_ip_rel_memory_operand()
            && matches!(memory.base(), Register::RIP | Register::None)
            && memory.index() == Register::None
            && memory.segment() == Register::DS;
        is_stack || is_own_data
    }) && is_known(instruction)
}

fn is_load_effective_address(code: Code) -> bool {
    matches!(code, Code::Lea_r16_m | Code::Lea_r32_m | Code::Lea_r64_m)
}

/// The instructions compilers put around probe sites; anything rarer stays where it is.
fn is_known(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Add
            | M::Sub
            | M::And
            | M::Or
            | M::Xor
            | M::Cmp
            | M::Test
            | M::Inc
            | M::Dec
            | M::Neg
            | M::Not
            | M::Shl
            | M::Shr
            | M::Sar
            | M::Imul
            | M::Push
            | M::Pop
            | M::Nop
            | M::Cdqe
            | M::Cdq
            | M::Cqo
            | M::Sete
            | M::Setne
            | M::Cmove
            | M::Cmovne
            | M::Movaps
            | M::Movups
            | M::Movss
            | M::Movsd
            | M::Movq
            | M::Movd
            | M::Pxor
            | M::Xorps
            | M::Leave
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPARE_BYTES: usize = 43;

    /// The resume code at 0x9000, from the copied instructions on.
    fn behind_compare(tail: &Tail) -> Vec<u8> {
        let bytes = tail.encode(0x9000).unwrap();
        if tail.copies_nothing() { bytes } else { bytes[COMPARE_BYTES..].to_vec() }
    }

    #[test]
    fn copies_run_only_while_the_originals_are_untouched() {
        use iced_x86::Mnemonic as M;
        let code = [0x48, 0x89, 0xc7, 0x48, 0x89, 0xe5, 0xff];
        let bytes = plan_tail(&code, 0x5000).encode(0x9000).unwrap();
        let decoder = Decoder::with_ip(64, &bytes, 0x9000, DecoderOptions::NONE);
        let all: Vec<Instruction> = decoder.into_iter().take(11).collect();
        let mnemonics: Vec<M> = all.iter().map(|i| i.mnemonic()).collect();
        // Nothing that changes a flag.
        let expected =
            [M::Lea, M::Push, M::Mov, M::Lea, M::Jrcxz, M::Pop, M::Lea, M::Jmp, M::Pop, M::Lea, M::Mov];
        assert_eq!(mnemonics, expected);
        assert_eq!(all[2].ip_rel_memory_address(), 0x5000);
        assert_eq!((all[2].op0_register(), all[2].memory_size().size()), (Register::ECX, 4));
        assert_eq!((all[3].op0_register(), all[3].memory_base()), (Register::ECX, Register::RCX));
        assert_eq!((all[3].memory_displacement64() as u32).wrapping_add(0x48c7_8948), 0, "minus the bytes");
        assert_eq!(all[4].near_branch_target(), all[8].ip());
        assert_eq!(all[7].near_branch_target(), 0x5000);
        assert_eq!(all[10].ip() as usize, 0x9000 + COMPARE_BYTES);
        for (down, up) in [(0, 6), (0, 9)] {
            let moved = |i: usize| all[i].memory_displacement64() as i64;
            assert_eq!((moved(down), moved(up)), (-128, 128));
        }
    }

    #[test]
    fn code_that_cannot_be_read_is_not_compared() {
        let tail = plan_tail(&[0x48, 0x89, 0xc7, 0x48, 0x89, 0xe5, 0xff], 0x5000);
        assert_eq!(tail.without_copies(), Tail::to(0x5000));
        assert_eq!(Tail::ret().without_copies(), Tail::ret());
    }

    #[test]
    fn simple_instructions_are_copied_and_others_left_where_they_are() {
        type Row = (&'static str, &'static [u8], Option<&'static [u8]>);
        let table: &[Row] = &[
            // mov %rax,%rdi; mov %rsp,%rbp
            (
                "two moves",
                &[0x48, 0x89, 0xc7, 0x48, 0x89, 0xe5, 0xff],
                Some(&[0x48, 0x89, 0xc7, 0x48, 0x89, 0xe5]),
            ),
            ("add to rsp, pop, ret", &[0x48, 0x83, 0xc4, 0x08, 0xc3], Some(&[0x48, 0x83, 0xc4, 0x08])),
            ("stack slot", &[0x48, 0x8b, 0x45, 0xf8], Some(&[0x48, 0x8b, 0x45, 0xf8])),
            ("pop and ret", &[0x5d, 0x41, 0x5c, 0xc3], Some(&[0x5d, 0x41, 0x5c, 0xc3])),
            ("a load that may fault", &[0x48, 0x8b, 0x00, 0x90], None),
            ("call", &[0xe8, 0, 0, 0, 0], None),
            ("division", &[0x48, 0xf7, 0xf1, 0x90], None),
            ("system call", &[0x0f, 0x05, 0x90, 0x90], None),
            ("ret too early", &[0xc3, 0x90, 0x90, 0x90], None),
            ("thread-local", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], None),
            ("thread-local by distance", &[0x64, 0x8b, 0x05, 0, 0, 0, 0], None),
            ("cut off", &[0x48], None),
            ("indirect jump", &[0xff, 0xe0, 0x90, 0x90], None),
        ];
        for (name, code, copied) in table {
            let tail = plan_tail(code, 0x5000);
            let bytes = behind_compare(&tail);
            match copied {
                Some(copied) => assert_eq!(&bytes[..copied.len()], *copied, "{name}"),
                None => {
                    assert!(tail.copies_nothing(), "{name}");
                    assert_eq!(bytes, [&[0xe9][..], &(0x5000i32 - 0x9005).to_le_bytes()].concat(), "{name}");
                }
            }
        }
    }

    #[test]
    fn relative_instructions_keep_their_targets() {
        let table: &[(&[u8], u64)] = &[
            // lea 0x100(%rip),%rax
            (&[0x48, 0x8d, 0x05, 0x00, 0x01, 0, 0], 0x5107),
            // cmpb $0,0x100(%rip)
            (&[0x80, 0x3d, 0x00, 0x01, 0, 0, 0], 0x5107),
            // je +0x20, then a nop
            (&[0x74, 0x20, 0x90, 0x90], 0x5022),
            // jmp +0x10
            (&[0xe9, 0x10, 0, 0, 0], 0x5015),
        ];
        for (code, target) in table {
            let tail = plan_tail(code, 0x5000);
            assert!(!tail.copies_nothing(), "{code:x?}");
            let bytes = behind_compare(&tail);
            let at = 0x9000 + COMPARE_BYTES as u64;
            let first = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
            let found = if first.is_ip_rel_memory_operand() {
                first.ip_rel_memory_address()
            } else {
                first.near_branch_target()
            };
            assert_eq!(found, *target, "{code:x?}");
        }
    }

    #[test]
    fn one_instruction_is_carried_over_if_it_is_simple() {
        let table: &[(&str, &[u8], bool)] = &[
            ("and $0x61ffffff,%ecx", &[0x81, 0xe1, 0xff, 0xff, 0xff, 0x61, 0x90], true),
            ("mov $1,%esi", &[0xbe, 1, 0, 0, 0], true),
            ("push %r15", &[0x41, 0x57, 0x90, 0x90], true),
            ("jmp", &[0xe9, 0x10, 0, 0, 0], true),
            ("je, near", &[0x0f, 0x84, 0x10, 0, 0, 0], true),
            ("mov 0x100(%rip),%rax", &[0x48, 0x8b, 0x05, 0, 1, 0, 0], true),
            ("mov %ebx,-0x84(%rbp)", &[0x89, 0x9d, 0x7c, 0xff, 0xff, 0xff], true),
            ("a load that may fault", &[0x48, 0x8b, 0xbb, 0x58, 1, 0, 0], false),
            ("call", &[0xe8, 0, 0, 0, 0], false),
            ("cut off", &[0x81, 0xe1, 0xff, 0xff], false),
        ];
        for (name, code, is_planned) in table {
            let tail = plan_instruction(code, 0x5000);
            assert_eq!(tail.is_some(), *is_planned, "{name}");
            // The copy and nothing else, then on behind it.
            if let Some(bytes) = tail.map(|t| t.encode(0x9000).unwrap()) {
                let mut decoder = Decoder::with_ip(64, &bytes, 0x9000, DecoderOptions::NONE);
                let mut original = Decoder::with_ip(64, code, 0x5000, DecoderOptions::NONE);
                let (copy, original) = (decoder.decode(), original.decode());
                assert_eq!(copy.code(), original.code(), "{name}");
                if original.flow_control() != FlowControl::UnconditionalBranch {
                    assert_eq!(decoder.decode().near_branch_target(), original.next_ip(), "{name}");
                }
            }
        }
    }

    #[test]
    fn too_far_is_an_error() {
        assert!(plan_tail(&[0x90; 8], 0x5000).encode(0x7fff_0000_0000).is_err());
    }
}
