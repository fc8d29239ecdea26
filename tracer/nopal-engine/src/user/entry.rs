//! The first code run in a process: a few bytes written over its entry point, which every process has passed long ago.
//!
//! They are put back as soon as code of our own is mapped. A tracer killed meanwhile leaves them there: dead bytes, which
//! the next attach or `detach` recognises and puts back from the file.

use super::error::{Error, Result};
use super::held::stop_all;
use super::hijack::SINGLE_CALL;
use super::memory::Memory;
use super::process;
use super::ptrace;
use std::fs::File;
use std::os::unix::fs::FileExt;

#[derive(Debug)]
pub struct EntryCode {
    pub address: u64,
    original: [u8; SINGLE_CALL.len()],
    /// A killed tracer had left our bytes there, and a thread it had borrowed may still be in them.
    was_borrowed: bool,
}

impl EntryCode {
    /// Verifies that the bytes at the entry are those of the file, then borrows them. A program that has not
    /// passed its entry yet must be held until they are given back.
    pub fn borrow(memory: &Memory) -> Result<EntryCode> {
        let pid = memory.pid();
        let (address, original) = file_bytes(pid)?;
        let mut now = [0; SINGLE_CALL.len()];
        memory.read(address, &mut now)?;
        let was_borrowed = now == SINGLE_CALL;
        if now != original && !was_borrowed {
            return Err(Error::EntryChanged { pid, address });
        }
        memory.write(address, &SINGLE_CALL)?;
        Ok(EntryCode { address, original, was_borrowed })
    }

    /// Puts the bytes back. The thread we held (`tid`) must be out of them by now.
    pub fn give_back(&self, memory: &Memory, tid: i32) -> Result<()> {
        if self.was_borrowed {
            return put_back_if_empty(memory, self.address, &self.original, &[tid]).map(drop);
        }
        memory.write(self.address, &self.original)
    }
}

/// Puts the entry back if a killed tracer left our bytes there. True if it had and no thread is in them any more.
pub fn mend(memory: &Memory, held: &[i32]) -> Result<bool> {
    let Ok((address, original)) = file_bytes(memory.pid()) else { return Ok(false) };
    let mut now = [0; SINGLE_CALL.len()];
    if memory.read(address, &mut now).is_err() || now != SINGLE_CALL {
        return Ok(false);
    }
    put_back_if_empty(memory, address, &original, held)
}

/// A thread whose tracer was killed may be waiting in these bytes for the end of its bounded time. If one is, they stay:
/// dead code harms nobody.
fn put_back_if_empty(memory: &Memory, address: u64, original: &[u8], held: &[i32]) -> Result<bool> {
    let pid = memory.pid();
    let end = address + original.len() as u64;
    let others = stop_all(pid, held)?;
    for tid in others.iter().map(|h| h.tid).chain(held.iter().copied()) {
        let regs = ptrace::regs(tid).map_err(Error::on(pid, "read registers"))?;
        if (address..=end).contains(&regs.rip) {
            return Ok(false);
        }
    }
    memory.write(address, original)?;
    Ok(true)
}

/// Where the entry is and what the file has there.
fn file_bytes(pid: i32) -> Result<(u64, [u8; SINGLE_CALL.len()])> {
    let address = process::auxv(pid)?.entry;
    let file = File::open(format!("/proc/{pid}/exe")).map_err(Error::on(pid, "open the program's file"))?;
    let broken = || Error::Io {
        what: format!("read the program of process {pid}"),
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, "not the ELF file that is running"),
    };
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).map_err(Error::on(pid, "read the program's header"))?;
    let u16_at = |b: &[u8], at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    let u64_at = |b: &[u8], at: usize| u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"));
    if &header[..4] != b"\x7fELF" || header[4] != 2 || u16_at(&header, 54) != 56 {
        return Err(broken());
    }
    let (link_entry, table, n) = (u64_at(&header, 24), u64_at(&header, 32), u16_at(&header, 56));
    for i in 0..u64::from(n) {
        let mut segment = [0u8; 56];
        let at = table.checked_add(i * 56).ok_or_else(broken)?;
        file.read_exact_at(&mut segment, at).map_err(Error::on(pid, "read the program's segments"))?;
        let is_load = u32::from_le_bytes(segment[..4].try_into().expect("four bytes")) == 1;
        let (offset, start, size) = (u64_at(&segment, 8), u64_at(&segment, 16), u64_at(&segment, 32));
        let Some(within) = link_entry.checked_sub(start).filter(|w| is_load && *w < size) else { continue };
        if size - within < SINGLE_CALL.len() as u64 {
            continue;
        }
        let mut bytes = [0u8; SINGLE_CALL.len()];
        file.read_exact_at(&mut bytes, offset.wrapping_add(within))
            .map_err(Error::on(pid, "read the program's entry"))?;
        return Ok((address, bytes));
    }
    Err(broken())
}
