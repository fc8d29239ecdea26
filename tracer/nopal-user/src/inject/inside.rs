//! Whether a thread is in code that is to be used for something else, or will come back to it.

use super::Work;
use crate::error::{Error, Result};
use crate::maps::Maps;
use crate::stopped_thread::stop_all;
use nopal_proc::Mapping;
use nopal_proc::ptrace;
use std::ops::Range;
use std::time::Duration;

/// A thread in a stub is soon out of it.
const TRIES: usize = 20;
/// A signal handler that uses more of its stack is none.
const STACK_BYTES: u64 = 2 << 20;
const RED_ZONE: u64 = 128;
/// A thread has its own, one for signals, and perhaps some of coroutines.
const MAX_STACKS: usize = 16;
/// Of a thread's rseq area.
const RSEQ_CS: u64 = 8;

impl Work<'_, '_> {
    /// Whether no thread of the process has business in these stretches of one stub space, which nobody can enter any more:
    /// none stands there, and none has a word on its stack that leads there, as one has whose stub was interrupted by a
    /// signal that it is still handling.
    pub(super) fn is_nobody_in(&mut self, code: &[Range<u64>]) -> Result<bool> {
        self.entered.borrow()?;
        for tries_left in (0..TRIES).rev() {
            if self.is_nobody_in_now(code)? {
                return Ok(true);
            }
            if tries_left > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(false)
    }

    fn is_nobody_in_now(&self, code: &[Range<u64>]) -> Result<bool> {
        let pid = self.pid();
        let own = self.entered.hijack.tid();
        let others = stop_all(pid, &[own])?;
        let mut threads = Vec::new();
        if let Some(regs) = self.entered.hijack.original() {
            threads.push((own, regs.rip, regs.rsp));
        }
        for thread in &others {
            let regs = ptrace::regs(thread.tid).map_err(Error::on(pid, "read registers"))?;
            threads.push((thread.tid, regs.rip, regs.rsp));
        }
        let leads_there = |word: u64| {
            let at = code.partition_point(|range| range.end <= word);
            code.get(at).is_some_and(|range| range.start <= word)
        };
        let maps = Maps::read(pid)?;
        for (_, rip, rsp) in &threads {
            if leads_there(*rip) || !self.is_stack_clear(&maps, *rsp, leads_there) {
                return Ok(false);
            }
        }
        // The kernel looks at the last restartable sequence of a thread once more when it lets it run. They are all over.
        for (tid, ..) in &threads {
            let config = ptrace::rseq(*tid).map_err(Error::on(pid, "read the rseq area"))?;
            let Some(at) = config.map(|config| config.address + RSEQ_CS) else { continue };
            if self.entered.memory.read_u64(at).is_ok_and(leads_there) {
                self.entered.memory.write_u64(at, 0)?;
            }
        }
        Ok(true)
    }

    /// Whether no word on the stack of a thread leads there, nor on a stack that it was on when a signal came.
    fn is_stack_clear(&self, maps: &Maps, rsp: u64, leads_there: impl Fn(u64) -> bool) -> bool {
        let mut stacks = vec![rsp];
        let mut seen = Vec::new();
        while let Some(rsp) = stacks.pop() {
            let Some(stack) = maps.find(rsp) else { return false };
            let is_known = |known: &(u64, u64)| known.1 == stack.end && known.0 <= rsp;
            if seen.iter().any(is_known) {
                continue;
            }
            let Some(words) = self.stack_words(stack, rsp) else { return false };
            if seen.len() == MAX_STACKS || words.iter().any(|word| leads_there(*word)) {
                return false;
            }
            seen.push((rsp, stack.end));
            // Others are numbers that look alike.
            let is_stack = |rsp: &u64| maps.find(*rsp).is_some_and(|range| range.is_writable);
            stacks.extend(words.array_windows().filter_map(saved_stack).filter(is_stack));
        }
        true
    }

    /// What is on a stack, from the red zone up.
    fn stack_words(&self, stack: &Mapping, rsp: u64) -> Option<Vec<u64>> {
        let from = rsp.saturating_sub(RED_ZONE).max(stack.start) & !7;
        let len = (stack.end - from).min(STACK_BYTES);
        let bytes = self.entered.memory.read_vec(from, len as usize).ok()?;
        Some(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

/// The stack pointer in what the kernel saves for a signal handler: it, the place in the code, the flags, the code segment.
fn saved_stack([rsp, _, flags, segments]: &[u64; 4]) -> Option<u64> {
    const USER_CODE: u16 = 0x33;
    const ALWAYS_SET: u64 = 1 << 1;
    let is_saved = *segments as u16 == USER_CODE && flags & ALWAYS_SET != 0 && flags >> 22 == 0;
    is_saved.then_some(*rsp)
}
