//! Where the kernel's `struct pt_regs` keeps the registers of a thread: what a program on a uprobe is given.

/// The instruction pointer.
pub(crate) const IP: i16 = 128;
pub(crate) const BYTES: i16 = 168;

/// A general purpose register of the instruction set's number, or the instruction pointer.
pub(crate) fn offset(number: u8) -> i16 {
    const OFFSETS: [i16; 16] = [80, 88, 96, 40, 152, 32, 104, 112, 72, 64, 56, 48, 24, 16, 8, 0];
    if number == nopal_sdt::operand::RIP {
        return IP;
    }
    OFFSETS[usize::from(number & 15)]
}
