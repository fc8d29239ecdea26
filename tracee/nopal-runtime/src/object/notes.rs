//! The two notes of a probe: docs/formats.md, sections 2 and 3.

use super::writer::Bytes;
use super::{Layout, Machine, Probe};
use crate::types::Type;

/// Appends the stapsdt note of the probe with this index.
pub(super) fn stapsdt(
    out: &mut Bytes,
    machine: Machine,
    layout: &Layout,
    base: u64,
    provider: &str,
    index: usize,
    probe: &Probe<'_>,
) {
    note(out, "stapsdt", 3, |out| {
        out.u64(layout.site(index));
        out.u64(base);
        out.u64(layout.semaphore(index));
        out.text(provider);
        out.text(probe.name);
        out.text(&operands(machine, probe.arguments.iter().map(|argument| argument.type_)));
    });
}

/// Appends the nopal note of a probe.
pub(super) fn nopal(out: &mut Bytes, provider: &str, probe: &Probe<'_>) {
    note(out, "nopal", 1, |out| {
        let (version, reserved) = (1, 0);
        out.u16(version);
        out.u16(reserved);
        item(out, 0x01, provider.as_bytes());
        item(out, 0x02, probe.name.as_bytes());
        let mut operand = 1;
        for argument in probe.arguments {
            let type_ = argument.type_;
            item(out, 0x10, &[operand, type_.kind()]);
            item(out, 0x11, argument.name.as_bytes());
            item(out, 0x12, type_.c_name().as_bytes());
            if type_.has_length() {
                item(out, 0x14, &[operand + 1]);
            }
            if type_.is_address() {
                item(out, 0x19, &[]);
            }
            operand += type_.n_operands() as u8;
        }
    });
}

fn item(out: &mut Bytes, tag: u16, value: &[u8]) {
    out.u16(tag);
    // Names were checked to be shorter than 64 KiB when the probe was added.
    out.u16(value.len() as u16);
    out.bytes(value);
}

fn note(out: &mut Bytes, owner: &str, kind: u32, write: impl FnOnce(&mut Bytes)) {
    let mut description = Bytes::default();
    write(&mut description);
    let description = description.into_vec();
    out.u32(owner.len() as u32 + 1);
    out.u32(description.len() as u32);
    out.u32(kind);
    out.text(owner);
    out.align(4);
    out.bytes(&description);
    out.align(4);
}

/// The operands of a function's arguments as the calling convention places them. Registers have their full names whatever
/// the size: gdb does not know `%r8b`.
fn operands(machine: Machine, types: impl Iterator<Item = Type>) -> String {
    let sizes = types.flat_map(|t| [Some(t.size()), t.has_length().then_some(8)]).flatten();
    let texts = sizes.enumerate().map(|(index, size)| format!("{size}@{}", place(machine, index)));
    texts.collect::<Vec<_>>().join(" ")
}

fn place(machine: Machine, index: usize) -> String {
    const REGISTERS: [&str; 6] = ["%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"];
    match (machine, REGISTERS.get(index)) {
        (Machine::X86_64, Some(register)) => (*register).to_owned(),
        // The return address is below the arguments.
        (Machine::X86_64, None) => format!("{}(%rsp)", 8 + 8 * (index - REGISTERS.len())),
        (Machine::Arm64, _) if index < 8 => format!("x{index}"),
        (Machine::Arm64, _) if index == 8 => "[sp]".to_owned(),
        (Machine::Arm64, _) => format!("[sp, {}]", 8 * (index - 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_follow_the_calling_convention() {
        use Type::*;
        let all = [Int8, Uint16, Int32, Uint64, Float, Bytes, Double, String, Int64, Uint8, Text];
        let x86 = "-1@%rdi 2@%rsi -4@%rdx 8@%rcx 4@%r8 8@%r9 8@8(%rsp) 8@16(%rsp) 8@24(%rsp) -8@32(%rsp) 1@40(%rsp) \
                   8@48(%rsp) 8@56(%rsp)";
        let arm =
            "-1@x0 2@x1 -4@x2 8@x3 4@x4 8@x5 8@x6 8@x7 8@[sp] -8@[sp, 8] 1@[sp, 16] 8@[sp, 24] 8@[sp, 32]";
        for (machine, types, want) in [
            (Machine::X86_64, &[][..], ""),
            (Machine::X86_64, &[Int32], "-4@%rdi"),
            (Machine::X86_64, &all, x86),
            (Machine::Arm64, &all, arm),
        ] {
            assert_eq!(operands(machine, types.iter().copied()), want);
        }
    }
}
