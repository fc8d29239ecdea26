//! Strings and byte strings: how long they are and how much of them can be read, found out before the record is
//! reserved; and the copy. Needs all of [`REGISTERS`].
//!
//! What a foreign probe points to is looked at only after the kernel has said that its page can be read:
//! `rt_sigprocmask` with an impossible `how` copies the set in first, so EINVAL means readable and EFAULT not. Words are
//! read at multiples of 8 and thus never reach into a page that was not asked about. Constants of the site's own file,
//! which is mapped as surely as the site, are not asked about: a question costs more than all the rest of a hit. A page of the
//! heap is asked about once in a process: as long as it lies below the heap's end, which the C library keeps in a word of its
//! own, it is there. Where the
//! process has forbidden itself system calls nothing is asked, and what would have to be counts as unreadable.

use nopal_abi::record::text;
use nopal_abi::stub_space::N_READABLE;

use super::asm::{Alu, Asm, Cond, Label, Mem, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP, Reg, Width, at};
use super::operand::Frame;
use super::{Heap, StubError};
use nopal_capture::Capture;
use nopal_capture::thread_context::RECORD_BYTES;

/// What the code here uses; system calls spoil or take all of them.
pub(super) const REGISTERS: [Reg; 7] = [RAX, RCX, RDX, RSI, RDI, R10, R11];

/// The longest string that is captured.
pub(super) const MAX_BYTES: u32 = 1 << 16;

const SYS_RT_SIGPROCMASK: u64 = 14;
const IMPOSSIBLE_HOW: u64 = 0x7fff;
const EINVAL: i32 = 22;
const PAGE_SHIFT: u8 = 12;
const _: () = assert!(N_READABLE.is_power_of_two());
pub(super) const LOW_BITS: u64 = 0x0101_0101_0101_0101;
pub(super) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Bytes of the place on the stack where a string's facts are kept, and where in it the length is.
pub(super) const SLOT_BYTES: i32 = 16;
pub(super) const SLOT_LENGTH: i32 = 8;

/// Where a string's facts are kept between measuring and copying, as offsets from `%rsp`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots {
    /// u64: the pointer, read once.
    pub pointer: i32,
    /// u32 as it will stand in the record.
    pub length: i32,
}

pub(super) fn check_limit(max_bytes: u32) -> Result<(), StubError> {
    if max_bytes == 0 || max_bytes > MAX_BYTES {
        return Err(StubError::BadLimit { bytes: max_bytes });
    }
    Ok(())
}

/// Fills the slots of one string or byte string.
pub(super) fn measure(
    asm: &mut Asm,
    frame: &Frame,
    capture: &Capture,
    slots: Slots,
) -> Result<(), StubError> {
    match capture {
        Capture::Value { .. } => Ok(()),
        Capture::CString { pointer, max_bytes, is_trusted } => {
            frame.load(asm, pointer, RSI, RAX)?;
            asm.store(at(RSP, slots.pointer), RSI, Width::B8);
            measure_c_string(asm, frame, slots, *max_bytes as i32, *is_trusted);
            Ok(())
        }
        Capture::Bytes { pointer, length, unit_bytes, max_bytes, is_trusted } => {
            frame.load(asm, length, RAX, RCX)?;
            clamp(asm, slots, length.is_signed, (*unit_bytes).max(1), *max_bytes);
            frame.load(asm, pointer, RSI, RAX)?;
            asm.store(at(RSP, slots.pointer), RSI, Width::B8);
            check_bytes(asm, frame, slots, *is_trusted);
            Ok(())
        }
        Capture::ThreadContext { offset } => {
            asm.mov_imm(RAX, u64::from(RECORD_BYTES));
            asm.store(at(RSP, slots.length), RAX, Width::B4);
            asm.clear(RSI);
            if let Some(disp) = *offset {
                // Static thread-local memory, which every thread of the C library has.
                asm.load64(RSI, Mem::Fs { base: RSI, disp });
            }
            asm.store(at(RSP, slots.pointer), RSI, Width::B8);
            // The pointer is the program's own, and may lead anywhere.
            check_bytes(asm, frame, slots, false);
            Ok(())
        }
    }
}

/// Makes sure that the page of `%rsi`, a multiple of 8, can be read. Spoils all registers but `%rsi`; `%rdx` is 0 after.
fn require_readable(asm: &mut Asm, frame: &Frame, unreadable: Label) {
    let Some(heap) = frame.heap else {
        return ask(asm, frame, unreadable);
    };
    let [outside, unknown, known] = [asm.label(), asm.label(), asm.label()];
    asm.cmp_mem32(frame.restraint, 0);
    asm.jcc(Cond::NotEqual, unreadable);
    require_heap(asm, heap, outside);
    find_place(asm, frame);
    asm.alu_mem(Alu::Cmp, RAX, at(RDX, 0));
    asm.jcc(Cond::NotEqual, unknown);
    asm.bind(known);
    asm.clear(RDX);
    let done = asm.label();
    asm.jmp(done);
    asm.bind(unknown);
    ask(asm, frame, unreadable);
    find_place(asm, frame);
    asm.store(at(RDX, 0), RAX, Width::B8);
    asm.jmp(known);
    asm.bind(outside);
    ask(asm, frame, unreadable);
    asm.bind(done);
}

/// Goes to `outside` unless `%rsi` lies in the heap as it is now. Spoils `%rax`.
fn require_heap(asm: &mut Asm, heap: Heap, outside: Label) {
    asm.mov_imm(RAX, heap.start);
    asm.alu(Alu::Cmp, RSI, RAX);
    asm.jcc(Cond::Below, outside);
    asm.mov_imm(RAX, heap.end_word);
    asm.alu_mem(Alu::Cmp, RSI, at(RAX, 0));
    asm.jcc(Cond::AboveEqual, outside);
}

/// `%rax` becomes the number of the page of `%rsi`, `%rdx` the address of its place in the table. Spoils `%rcx`.
fn find_place(asm: &mut Asm, frame: &Frame) {
    asm.mov(RAX, RSI);
    asm.shr(RAX, PAGE_SHIFT);
    asm.mov32(RCX, RAX);
    asm.alu_imm32(Alu::And, RCX, N_READABLE as i32 - 1);
    asm.lea(RDX, frame.readable);
    asm.lea(RDX, Mem::At { base: RDX, index: Some((RCX, 8)), disp: 0 });
}

/// Goes to `unknown` unless `%rsi` lies in a page of the heap that is known to be readable. Spoils `%rax`, `%rcx` and `%rdx`.
pub(super) fn require_known_heap(asm: &mut Asm, frame: &Frame, unknown: Label) {
    let Some(heap) = frame.heap else {
        return asm.jmp(unknown);
    };
    asm.cmp_mem32(frame.restraint, 0);
    asm.jcc(Cond::NotEqual, unknown);
    require_heap(asm, heap, unknown);
    find_place(asm, frame);
    asm.alu_mem(Alu::Cmp, RAX, at(RDX, 0));
    asm.jcc(Cond::NotEqual, unknown);
}

/// Asks whether the page of `%rsi`, a multiple of 8, can be read. Spoils all registers but `%rsi`; `%rdx` is 0 after.
fn ask(asm: &mut Asm, frame: &Frame, unreadable: Label) {
    asm.cmp_mem32(frame.restraint, 0);
    asm.jcc(Cond::NotEqual, unreadable);
    asm.mov_imm(RAX, SYS_RT_SIGPROCMASK);
    asm.mov_imm(RDI, IMPOSSIBLE_HOW);
    asm.clear(RDX);
    asm.mov_imm(R10, 8);
    asm.syscall();
    asm.alu_imm(Alu::Cmp, RAX, -EINVAL);
    asm.jcc(Cond::NotEqual, unreadable);
}

/// Goes to `is_own` with `%rax` the end of the site's own file if `%rsi` points into it. Spoils `%rdx`.
fn if_own_file(asm: &mut Asm, frame: &Frame, is_own: Label) {
    let file = &frame.own_file;
    let Ok(length) = i32::try_from(file.end.saturating_sub(file.start)) else { return };
    if length == 0 {
        return;
    }
    asm.mov_imm(RAX, file.end);
    asm.mov(RDX, RSI);
    asm.alu(Alu::Sub, RDX, RAX);
    // The distance from the end as an unsigned number: the file's last bytes have the largest ones.
    asm.alu_imm(Alu::Cmp, RDX, -length);
    asm.jcc(Cond::AboveEqual, is_own);
}

/// `%rax` becomes the end of the page of `%rsi`.
fn page_end(asm: &mut Asm) {
    asm.mov(RAX, RSI);
    asm.alu_imm(Alu::Or, RAX, 0xfff);
    asm.alu_imm(Alu::Add, RAX, 1);
}

fn measure_c_string(asm: &mut Asm, frame: &Frame, slots: Slots, max: i32, is_trusted: bool) {
    let [null, first_unreadable, later_unreadable] = [asm.label(), asm.label(), asm.label()];
    let [scan, found, too_long, done] = [asm.label(), asm.label(), asm.label(), asm.label()];
    let is_own = asm.label();

    asm.test(RSI, RSI);
    asm.jcc(Cond::Equal, null);
    asm.alu_imm(Alu::And, RSI, -8);
    if !is_trusted {
        if_own_file(asm, frame, is_own);
        require_readable(asm, frame, first_unreadable);
        page_end(asm);
    }
    asm.bind(is_own);
    // The bytes before the string in its first word must not look like its end: %rdx = ~(-1 << 8 * (pointer & 7)).
    asm.load32(RCX, at(RSP, slots.pointer));
    asm.alu_imm32(Alu::And, RCX, 7);
    asm.shl(RCX, 3);
    asm.mov_imm(RDX, u64::MAX);
    asm.shl_cl(RDX);
    asm.not(RDX);
    let next_page = asm.label();
    let bounds = asm.label();
    asm.jmp(bounds);

    asm.bind(next_page);
    if !is_trusted {
        require_readable(asm, frame, later_unreadable);
        page_end(asm);
    }
    asm.bind(bounds);
    // Up to the byte after the limit, where a NUL still means that nothing is missing, but not beyond what can be read,
    // whose end is in %rax.
    asm.load64(RDI, at(RSP, slots.pointer));
    asm.alu_imm(Alu::Add, RDI, max + 1);
    if !is_trusted {
        let within = asm.label();
        asm.alu(Alu::Cmp, RDI, RAX);
        asm.jcc(Cond::BelowEqual, within);
        asm.mov(RDI, RAX);
        asm.bind(within);
    }
    asm.mov_imm(R10, LOW_BITS);
    asm.mov_imm(R11, HIGH_BITS);
    asm.bind(scan);
    asm.load64(RAX, at(RSI, 0));
    asm.alu(Alu::Or, RAX, RDX);
    asm.clear(RDX);
    asm.mov(RCX, RAX);
    asm.not(RCX);
    asm.alu(Alu::Sub, RAX, R10);
    asm.alu(Alu::And, RAX, RCX);
    asm.alu(Alu::And, RAX, R11);
    asm.jcc(Cond::NotEqual, found);
    asm.alu_imm(Alu::Add, RSI, 8);
    asm.alu(Alu::Cmp, RSI, RDI);
    asm.jcc(Cond::Below, scan);
    if !is_trusted {
        asm.load64(RAX, at(RSP, slots.pointer));
        asm.alu_imm(Alu::Add, RAX, max + 1);
        asm.alu(Alu::Cmp, RSI, RAX);
        asm.jcc(Cond::Below, next_page);
    }
    asm.jmp(too_long);

    asm.bind(found);
    asm.lowest_bit(RAX, RAX);
    asm.shr(RAX, 3);
    asm.alu(Alu::Add, RAX, RSI);
    asm.alu_mem(Alu::Sub, RAX, at(RSP, slots.pointer));
    asm.alu_imm(Alu::Cmp, RAX, max);
    asm.jcc(Cond::BelowEqual, done);
    asm.bind(too_long);
    asm.mov_imm(RAX, u64::from(max as u32 | text::TRUNCATED));
    asm.jmp(done);
    asm.bind(null);
    asm.mov_imm(RAX, u64::from(text::NULL));
    asm.jmp(done);
    asm.bind(first_unreadable);
    asm.mov_imm(RAX, u64::from(text::UNREADABLE));
    asm.jmp(done);
    asm.bind(later_unreadable);
    asm.mov(RAX, RSI);
    asm.alu_mem(Alu::Sub, RAX, at(RSP, slots.pointer));
    asm.alu_imm32(Alu::Or, RAX, text::UNREADABLE as i32);
    asm.bind(done);
    asm.store(at(RSP, slots.length), RAX, Width::B4);
}

/// Turns the count in `%rax` into the length slot.
fn clamp(asm: &mut Asm, slots: Slots, is_signed: bool, unit: u32, max: u32) {
    let [store, too_long] = [asm.label(), asm.label()];
    if is_signed {
        let positive = asm.label();
        asm.test(RAX, RAX);
        asm.jcc(Cond::GreaterEqual, positive);
        asm.clear(RAX);
        asm.bind(positive);
    }
    asm.alu_imm(Alu::Cmp, RAX, (max / unit) as i32);
    asm.jcc(Cond::Above, too_long);
    if unit > 1 {
        asm.multiply(RAX, unit as i32);
    }
    asm.jmp(store);
    asm.bind(too_long);
    asm.mov_imm(RAX, u64::from((max / unit * unit) | text::TRUNCATED));
    asm.bind(store);
    asm.store(at(RSP, slots.length), RAX, Width::B4);
}

/// Shortens the length slot to what can be read of the bytes at `%rsi`.
fn check_bytes(asm: &mut Asm, frame: &Frame, slots: Slots, is_trusted: bool) {
    let is_own = asm.label();
    let [set, next_page, first_unreadable, later_unreadable, done] =
        [asm.label(), asm.label(), asm.label(), asm.label(), asm.label()];
    let null = asm.label();
    asm.test(RSI, RSI);
    asm.jcc(Cond::Equal, null);
    if !is_trusted {
        asm.load32(RAX, at(RSP, slots.length));
        asm.alu_imm32(Alu::And, RAX, text::LENGTH_MASK as i32);
        asm.jcc(Cond::Equal, done);
        asm.alu_imm(Alu::And, RSI, -8);
        if_own_file(asm, frame, is_own);
        require_readable(asm, frame, first_unreadable);
        asm.bind(next_page);
        page_end(asm);
        asm.bind(is_own);
        asm.mov(RSI, RAX);
        asm.load32(RAX, at(RSP, slots.length));
        asm.alu_imm32(Alu::And, RAX, text::LENGTH_MASK as i32);
        asm.alu_mem(Alu::Add, RAX, at(RSP, slots.pointer));
        asm.alu(Alu::Cmp, RSI, RAX);
        asm.jcc(Cond::AboveEqual, done);
        require_readable(asm, frame, later_unreadable);
        asm.jmp(next_page);
        asm.bind(later_unreadable);
        asm.mov(RAX, RSI);
        asm.alu_mem(Alu::Sub, RAX, at(RSP, slots.pointer));
        asm.alu_imm32(Alu::Or, RAX, text::UNREADABLE as i32);
        asm.jmp(set);
        asm.bind(first_unreadable);
        asm.mov_imm(RAX, u64::from(text::UNREADABLE));
        asm.jmp(set);
    } else {
        asm.bind(is_own);
        asm.bind(next_page);
        asm.bind(first_unreadable);
        asm.bind(later_unreadable);
        asm.jmp(done);
    }
    asm.bind(null);
    asm.mov_imm(RAX, u64::from(text::NULL));
    asm.bind(set);
    asm.store(at(RSP, slots.length), RAX, Width::B4);
    asm.bind(done);
}

/// Copies one measured string to `%r10` and moves `%r10` behind it; its length word goes to `word`. Uses `%rax`, `%rdx`
/// and `%r11`.
pub(super) fn copy(asm: &mut Asm, slots: Slots, word: Mem) {
    let [words, rest, two, one, end] = [asm.label(), asm.label(), asm.label(), asm.label(), asm.label()];
    asm.load32(RAX, at(RSP, slots.length));
    asm.store(word, RAX, Width::B4);
    asm.load64(RDX, at(RSP, slots.pointer));
    asm.alu_imm32(Alu::And, RAX, text::LENGTH_MASK as i32);
    asm.bind(words);
    asm.alu_imm32(Alu::Sub, RAX, 8);
    asm.jcc(Cond::Below, rest);
    asm.load64(R11, at(RDX, 0));
    asm.store(at(R10, 0), R11, Width::B8);
    asm.alu_imm(Alu::Add, RDX, 8);
    asm.alu_imm(Alu::Add, R10, 8);
    asm.jmp(words);
    // %eax is what is left minus 8: its low three bits are those of what is left.
    asm.bind(rest);
    for (bit, width, next) in [(4, Width::B4, two), (2, Width::B2, one), (1, Width::B1, end)] {
        asm.test_al(bit);
        asm.jcc(Cond::Equal, next);
        asm.load(R11, at(RDX, 0), width, false);
        asm.store(at(R10, 0), R11, width);
        asm.alu_imm(Alu::Add, RDX, i32::from(bit));
        asm.alu_imm(Alu::Add, R10, i32::from(bit));
        asm.bind(next);
    }
}
