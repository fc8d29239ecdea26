//! Stacks that Go makes for its threads and goroutines, where there is no C library that would make them. Whose stack a thread is
//! on it says itself: before its local storage it has the address of its goroutine, which begins with the ends of that stack.
//!
//! A goroutine's stack moves only when the goroutine comes to a certain place by itself, which a thread that is borrowed never
//! does. That of a goroutine that waits in a call is looked through only from where the call was made upwards.

use super::maps::Maps;
use super::memory::Memory;
use nopal_proc::Image;
use nopal_proc::go::is_go;
use nopal_proc::ptrace::Regs;
use std::path::PathBuf;

/// Below the local storage of a thread.
const GOROUTINE: u64 = 8;
/// No stack of Go is larger.
const MAX_STACK_BYTES: u64 = 1 << 30;

/// Whether what is written down to `lowest` is on the stack that a thread of a program of Go is on. What the program says is checked
/// against what is mapped.
pub(crate) fn has_room(memory: &Memory, maps: &Maps, regs: &Regs, lowest: u64) -> bool {
    let Some(stack) = stack_of(memory, regs) else { return false };
    let is_on_it = stack.0 <= lowest && lowest < regs.rsp && regs.rsp <= stack.1;
    let is_one = stack.1.checked_sub(stack.0).is_some_and(|len| len <= MAX_STACK_BYTES);
    let is_mapped = maps.find(regs.rsp).is_some_and(|range| {
        let is_plain = range.is_readable && range.is_writable && !range.is_executable && !range.is_shared;
        range.start <= lowest && is_plain
    });
    is_on_it && is_one && is_mapped && is_program_of_go(memory.pid())
}

/// Lowest and highest address.
fn stack_of(memory: &Memory, regs: &Regs) -> Option<(u64, u64)> {
    let goroutine = memory.read_u64(regs.fs_base.checked_sub(GOROUTINE)?).ok()?;
    Some((memory.read_u64(goroutine).ok()?, memory.read_u64(goroutine.checked_add(8)?).ok()?))
}

fn is_program_of_go(pid: i32) -> bool {
    Image::open(&PathBuf::from(format!("/proc/{pid}/exe"))).is_ok_and(|image| is_go(image.bytes()))
}
