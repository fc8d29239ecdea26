//! What was assembled is what another disassembler reads.

use super::*;
use iced_x86::{Decoder, DecoderOptions};

/// iced-x86 decodes what was assembled; its operands are compared as text through its debug-free accessors.
fn lengths(build: impl FnOnce(&mut Asm)) -> Vec<iced_x86::Instruction> {
    let mut asm = Asm::new(0x1000);
    build(&mut asm);
    let bytes = asm.finish().unwrap();
    Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).into_iter().collect()
}

#[test]
fn every_base_and_index_is_encoded_as_it_is_decoded() {
    for base in 0..16u8 {
        for index in (0..16u8).filter(|&i| i != 4).map(Some).chain([None]) {
            for disp in [0, 1, -128, 127, 128, -70_000] {
                let mem = Mem::At { base: Reg(base), index: index.map(|i| (Reg(i), 4)), disp };
                let instructions = lengths(|asm| asm.store(mem, Reg(9), Width::B8));
                let [one] = instructions[..] else { panic!("{mem:?}: {instructions:?}") };
                assert_eq!(one.memory_base().number(), usize::from(base), "{mem:?}");
                assert_eq!(one.memory_displacement64() as i64 as i32, disp, "{mem:?}");
                match index {
                    Some(i) => {
                        assert_eq!(one.memory_index().number(), usize::from(i), "{mem:?}");
                        assert_eq!(one.memory_index_scale(), 4);
                    }
                    None => assert_eq!(one.memory_index(), iced_x86::Register::None),
                }
            }
        }
    }
}

#[test]
fn byte_registers_are_the_low_ones() {
    for reg in 0..16u8 {
        let one = lengths(|asm| asm.store(at(RAX, 0), Reg(reg), Width::B1))[0];
        assert_eq!(one.op1_register().full_register().number(), usize::from(reg));
        assert!(!matches!(
            one.op1_register(),
            iced_x86::Register::AH | iced_x86::Register::BH | iced_x86::Register::CH | iced_x86::Register::DH
        ));
        let one = lengths(|asm| asm.extend(Reg(1), Reg(reg), Width::B1, true))[0];
        assert_eq!(one.op1_register().full_register().number(), usize::from(reg));
    }
}

#[test]
fn what_fs_stands_for_is_read_into_every_register() {
    for reg in 0..16u8 {
        let one = lengths(|asm| asm.read_fs_base(Reg(reg)))[0];
        assert_eq!(one.code(), iced_x86::Code::Rdfsbase_r64);
        assert_eq!(one.op0_register().number(), usize::from(reg));
    }
}

#[test]
fn near_targets_out_of_reach_are_refused() {
    let mut asm = Asm::new(0x1000);
    asm.jmp_near(0x1_0000_0000);
    assert!(asm.finish().is_err());
}
