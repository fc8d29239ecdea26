//! The argument text of a note, on both instruction sets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_sdt::operand::{Arch, Base, Operand, Place, Register, Symbols, parse, parse_with, split};

/// Knows every symbol.
struct All;

impl Symbols for All {
    fn address(&mut self, name: &str) -> Option<u64> {
        Some(name.len() as u64)
    }

    fn fixed_address(&mut self, name: &str) -> Option<u64> {
        self.address(name)
    }
}

fuzz_target!(|text: &str| {
    let args = split(text);
    let n_bytes: usize = args.iter().map(|arg| arg.len()).sum();
    assert!(n_bytes <= text.len());
    for arg in args {
        assert!(!arg.is_empty());
        for (arch, n_registers) in [(Arch::X86_64, 16), (Arch::Arm64, 32)] {
            let without = parse(arch, arg).map(|operand| check(&operand, n_registers));
            let with = parse_with(arch, arg, &mut All).map(|operand| check(&operand, n_registers));
            // Knowing symbols can only help.
            assert!(without.is_err() || with.is_ok());
        }
    }
});

fn check(operand: &Operand, n_registers: u8) {
    assert!(matches!(operand.size_bytes, 1 | 2 | 4 | 8 | 16 | 32));
    let is_real = |register: &Register| {
        register.number < n_registers
            && matches!(register.width_bytes, 1 | 2 | 4 | 8)
            && (!register.is_high_byte || register.number < 4)
    };
    match &operand.place {
        Place::Register(register) => assert!(is_real(register)),
        Place::Vector(number) => assert!(*number < 32),
        Place::Constant(_) => {}
        Place::Memory(memory) => {
            if let Some((index, scale)) = &memory.index {
                assert!(is_real(index) && matches!(scale, 1 | 2 | 4 | 8 | 16));
            }
            match &memory.base {
                Base::None => {}
                Base::Register(register) => assert!(is_real(register) && register.width_bytes >= 4),
                Base::Symbol { name, .. } => assert!(!name.is_empty()),
            }
        }
    }
}
