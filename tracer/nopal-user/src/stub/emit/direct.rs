//! The short way of a record with strings: they are copied into the ring while their ends are looked for.
//!
//! In a program that has its own use for the caches a hit costs what it touches. So one loop does all the strings, and
//! whatever is rare is left to the way that measures first ([`emit`](super)): a string that cannot be read without
//! asking, is NULL, lies at the end of a page or is too long; a record that might not fit.

use nopal_abi::record::{UNIT_BYTES, round_up};
use nopal_abi::ring::Mode;

use super::{AHEAD_BYTES, LINE_BYTES, Stubber, find_ring};
use crate::stub::StubError;
use crate::stub::asm::{Alu, Cond, Label, R10, R11, RAX, RCX, RDI, RDX, RSI, RSP, Reg, Width, at};
use crate::stub::locked::{HEAD, TAIL};
use crate::stub::strings::{HIGH_BITS, LOW_BITS, SLOT_BYTES, SLOT_LENGTH, require_known_heap};
use nopal_capture::{Capture, RecordLayout};

const R8: Reg = Reg(8);
const R9: Reg = Reg(9);
const RBX: Reg = Reg(3);

/// What the code here uses beside [`strings::REGISTERS`](crate::stub::strings::REGISTERS).
pub(super) const REGISTERS: [Reg; 3] = [RBX, R8, R9];

const PAGE_BYTES: i32 = 4096;
/// Beyond this too many strings would lie at the end of a page.
const MAX_BYTES: u32 = 512;

/// How far behind a string's first byte its words may reach.
fn reach(max_bytes: u32) -> i32 {
    (round_up(max_bytes) + UNIT_BYTES) as i32
}

/// Whether records of these captures can go the short way: all that varies in length is strings, and short ones.
pub(super) fn suits(captures: &[Capture], layout: &RecordLayout, sub_shift: u32) -> bool {
    let is_short = |capture: &Capture| match capture {
        Capture::Value { .. } => None,
        Capture::CString { max_bytes, .. } => Some(*max_bytes <= MAX_BYTES),
        Capture::Bytes { .. } | Capture::ThreadContext { .. } => Some(false),
    };
    let mut texts = captures.iter().filter_map(is_short).peekable();
    texts.peek().is_some() && texts.all(|is| is) && layout.max_bytes() < 1 << (sub_shift - 2)
}

impl Stubber<'_> {
    /// Writes and commits the record, or goes to `otherwise` having done nothing.
    pub(super) fn direct(
        &mut self,
        captures: &[Capture],
        layout: &RecordLayout,
        event: u32,
        otherwise: Label,
    ) -> Result<(), StubError> {
        for (text, capture) in captures.iter().filter(|c| matches!(c, Capture::CString { .. })).enumerate() {
            self.take_pointer(text as i32, capture, otherwise)?;
        }
        let rings = self.around.layout;
        let ring = rings.rseq;
        let (sub_bytes, ring_bytes) = ((1i64 << ring.sub_shift) as i32, (1i64 << ring.ring_shift) as i32);
        // The last word stored of the last string may reach beyond the record.
        let most = (layout.max_bytes() + UNIT_BYTES) as i32;

        let section = self.begin_section(otherwise);
        let asm = &mut self.asm;
        find_ring(asm, self.around, RDI);
        asm.load64(RAX, at(RDI, HEAD));
        asm.mov32(RDX, RAX);
        asm.alu_imm32(Alu::And, RDX, sub_bytes - 1);
        asm.alu_imm32(Alu::Cmp, RDX, sub_bytes - most);
        asm.jcc(Cond::Above, otherwise);
        asm.mov32(RDX, RAX);
        asm.alu_imm32(Alu::And, RDX, ring_bytes - 1);
        asm.alu(Alu::Add, RCX, RDX);
        if rings.mode == Mode::Discard {
            asm.alu_mem(Alu::Sub, RAX, at(RDI, TAIL));
            asm.alu_imm(Alu::Cmp, RAX, ring_bytes - most);
            // Signed: a stale head may lie behind a tail that has moved on.
            asm.jcc(Cond::Greater, otherwise);
        }
        for line in 0..2 {
            asm.prefetch_for_write(at(RCX, AHEAD_BYTES + line * LINE_BYTES));
        }
        asm.store_imm(at(RCX, 4), event as i32, Width::B4);
        self.store_task(layout);
        let payload = layout.payload_offset() as i32;
        self.asm.lea(R10, at(RCX, payload + layout.fixed_bytes() as i32));
        self.copy_strings(captures, otherwise);
        let mut texts = 0;
        for (capture, field) in captures.iter().zip(layout.fields()) {
            let offset = payload + field.offset as i32;
            if let Capture::Value { operand } = capture {
                self.frame.store(&mut self.asm, operand, RCX, offset, RDX)?;
            } else {
                self.asm.load32(RAX, at(RSP, self.texts_at + SLOT_BYTES * texts + SLOT_LENGTH));
                self.asm.store(at(RCX, offset), RAX, Width::B4);
                texts += 1;
            }
        }
        let asm = &mut self.asm;
        asm.lea(R11, at(R10, UNIT_BYTES as i32 - 1));
        asm.alu(Alu::Sub, R11, RCX);
        asm.alu_imm32(Alu::And, R11, !(UNIT_BYTES as i32 - 1));
        asm.mov32(RAX, R11);
        asm.alu_imm32(Alu::Or, RAX, layout.word_flags as i32);
        asm.store(at(RCX, 0), RAX, Width::B4);
        self.store_time(layout);
        let asm = &mut self.asm;
        asm.alu_mem(Alu::Add, R11, at(RDI, HEAD));
        asm.store(at(RDI, HEAD), R11, Width::B8);
        self.end_section(section);
        Ok(())
    }

    /// A string's pointer into its slot, if the string can be read a word at a time without asking.
    fn take_pointer(&mut self, text: i32, capture: &Capture, otherwise: Label) -> Result<(), StubError> {
        let Capture::CString { pointer, max_bytes, is_trusted } = capture else { return Ok(()) };
        self.frame.load(&mut self.asm, pointer, RSI, RAX)?;
        let (asm, file, reach) = (&mut self.asm, &self.frame.own_file, reach(*max_bytes));
        asm.store(at(RSP, self.texts_at + SLOT_BYTES * text), RSI, Width::B8);
        if *is_trusted {
            asm.test(RSI, RSI);
            asm.jcc(Cond::Equal, otherwise);
            asm.alu_imm32(Alu::And, RSI, PAGE_BYTES - 1);
            asm.alu_imm32(Alu::Cmp, RSI, PAGE_BYTES - reach);
            asm.jcc(Cond::Above, otherwise);
            return Ok(());
        }
        let taken = asm.label();
        let length = file.end.saturating_sub(file.start).saturating_sub(reach as u64);
        if let Ok(length @ 1..) = i32::try_from(length) {
            asm.mov_imm(RAX, file.start);
            asm.mov(RDX, RSI);
            asm.alu(Alu::Sub, RDX, RAX);
            asm.alu_imm(Alu::Cmp, RDX, length);
            asm.jcc(Cond::BelowEqual, taken);
        }
        // All of it in one page of the heap.
        asm.mov32(RAX, RSI);
        asm.alu_imm32(Alu::And, RAX, PAGE_BYTES - 1);
        asm.alu_imm32(Alu::Cmp, RAX, PAGE_BYTES - reach);
        asm.jcc(Cond::Above, otherwise);
        require_known_heap(asm, &self.frame, otherwise);
        asm.bind(taken);
        Ok(())
    }

    /// All strings, from the pointers in their slots to `%r10` on, which ends up behind them; their lengths into the
    /// slots.
    fn copy_strings(&mut self, captures: &[Capture], otherwise: Label) {
        let limits: Vec<i32> = captures
            .iter()
            .filter_map(|c| match c {
                Capture::CString { max_bytes, .. } => Some(*max_bytes as i32),
                _ => None,
            })
            .collect();
        // With one limit for all, the shortest, a longer string is measured first, which is not wrong.
        let limit = limits.iter().copied().min().unwrap_or(0);
        let asm = &mut self.asm;
        let [next, word, found] = [asm.label(), asm.label(), asm.label()];
        asm.mov_imm(R8, LOW_BITS);
        asm.mov_imm(R9, HIGH_BITS);
        asm.lea(RBX, at(RSP, self.texts_at));
        asm.bind(next);
        asm.load64(RSI, at(RBX, 0));
        asm.lea(R11, at(RSI, limit));
        asm.bind(word);
        asm.load64(RAX, at(RSI, 0));
        asm.store(at(R10, 0), RAX, Width::B8);
        asm.mov(RDX, RAX);
        asm.alu(Alu::Sub, RDX, R8);
        asm.not(RAX);
        asm.alu(Alu::And, RDX, RAX);
        asm.alu(Alu::And, RDX, R9);
        asm.jcc(Cond::NotEqual, found);
        asm.alu_imm(Alu::Add, RSI, 8);
        asm.alu_imm(Alu::Add, R10, 8);
        asm.alu(Alu::Cmp, RSI, R11);
        asm.jcc(Cond::Below, word);
        asm.jmp(otherwise);
        asm.bind(found);
        asm.lowest_bit(RDX, RDX);
        asm.shr(RDX, 3);
        asm.alu(Alu::Add, R10, RDX);
        asm.alu(Alu::Add, RSI, RDX);
        asm.alu(Alu::Cmp, RSI, R11);
        asm.jcc(Cond::Above, otherwise);
        asm.alu_mem(Alu::Sub, RSI, at(RBX, 0));
        asm.store(at(RBX, SLOT_LENGTH), RSI, Width::B4);
        if limits.len() > 1 {
            asm.alu_imm(Alu::Add, RBX, SLOT_BYTES);
            asm.lea(RAX, at(RSP, self.texts_at + SLOT_BYTES * limits.len() as i32));
            asm.alu(Alu::Cmp, RBX, RAX);
            asm.jcc(Cond::Below, next);
        }
    }
}
