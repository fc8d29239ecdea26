//! How the program goes on after the stubs of a site: a copy of the instructions that the patch displaced or read as part
//! of its jump, then a jump behind them. Copying is an optimisation (10 to 15 ns a hit): in doubt nothing is copied and
//! the program goes on where the patch ends.

use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory, OpKind,
    Register,
};

use super::asm::{OutOfReach, rel32};

/// What is copied, and where the program is then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
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
        Tail { pieces: Vec::new(), resume: Some(address) }
    }

    /// A site that is itself a `ret`, as the place the dynamic linker calls for debuggers is.
    pub fn ret() -> Tail {
        Tail { pieces: vec![Piece::Bytes(vec![0xc3])], resume: None }
    }

    pub fn copies_nothing(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The resume code as it must be when it stands at `address`.
    pub fn encode(&self, address: u64) -> Result<Vec<u8>, OutOfReach> {
        let mut code = Vec::with_capacity(32);
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

fn jump(code: &mut Vec<u8>, address: u64, to: u64) -> Result<(), OutOfReach> {
    code.push(0xe9);
    let offset = rel32(address + code.len() as u64 + 4, to)?;
    code.extend_from_slice(&offset.to_le_bytes());
    Ok(())
}

/// Plans the tail of a one-byte patch. `code` is what follows the patched byte, `address` where that is: up to four of
/// these bytes are read as the jump's distance, and the instructions they belong to are copied if they are simple.
pub fn plan_tail(code: &[u8], address: u64) -> Tail {
    const DISTANCE_BYTES: usize = 4;
    plan(code, address, DISTANCE_BYTES, is_harmless).unwrap_or_else(|| Tail::to(address))
}

/// Plans the tail of a patch that replaces `length` bytes of instructions: all of them must be carried over, or it cannot
/// be done. Unlike [`plan_tail`] this moves instructions that may fault.
pub fn plan_relocation(code: &[u8], address: u64, length: usize) -> Option<Tail> {
    plan(code, address, length, |_| true)
}

/// Plans the tail of a 5-byte jump in the place of the one instruction at `address`. `None` unless it is a single one that
/// long, so that no place to be lies between, and a simple one.
pub fn plan_instruction(code: &[u8], address: u64) -> Option<Tail> {
    const JUMP_BYTES: usize = 5;
    plan(code, address, 1, is_harmless).filter(|_| {
        let first = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        first.len() >= JUMP_BYTES
    })
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
                return (position >= length).then_some(Tail { pieces, resume: None });
            }
            FlowControl::Return => {
                pieces.push(Piece::Bytes(bytes.to_vec()));
                return (position >= length).then_some(Tail { pieces, resume: None });
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
    Some(Tail { pieces, resume: Some(address + position as u64) })
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
fn is_harmless(instruction: &Instruction) -> bool {
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
            let bytes = tail.encode(0x9000).unwrap();
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
            let bytes = tail.encode(0x9000).unwrap();
            let first = Decoder::with_ip(64, &bytes, 0x9000, DecoderOptions::NONE).decode();
            let found = if first.is_ip_rel_memory_operand() {
                first.ip_rel_memory_address()
            } else {
                first.near_branch_target()
            };
            assert_eq!(found, *target, "{code:x?}");
        }
    }

    #[test]
    fn one_long_instruction_makes_room_for_a_jump() {
        let table: &[(&str, &[u8], bool)] = &[
            ("and $0x61ffffff,%ecx", &[0x81, 0xe1, 0xff, 0xff, 0xff, 0x61, 0x90], true),
            ("mov $1,%esi", &[0xbe, 1, 0, 0, 0], true),
            ("jmp", &[0xe9, 0x10, 0, 0, 0], true),
            ("je, near", &[0x0f, 0x84, 0x10, 0, 0, 0], true),
            ("mov 0x100(%rip),%rax", &[0x48, 0x8b, 0x05, 0, 1, 0, 0], true),
            ("mov %ebx,-0x84(%rbp)", &[0x89, 0x9d, 0x7c, 0xff, 0xff, 0xff], true),
            ("a load that may fault", &[0x48, 0x8b, 0xbb, 0x58, 1, 0, 0], false),
            ("call", &[0xe8, 0, 0, 0, 0], false),
            ("short ones", &[0x31, 0xc9, 0x4c, 0x89, 0xc7], false),
            ("four bytes", &[0x48, 0x8b, 0x45, 0xf8, 0x90, 0x90], false),
            ("jmp, short", &[0xeb, 0x10, 0x90, 0x90, 0x90], false),
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
