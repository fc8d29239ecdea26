//! The first code run in a process: a few bytes where nothing is executed. Behind the end of the loader's code, in the rest of
//! its last page; in a program without a loader, or with one that has no room there, over the entry point, which a process
//! passes first of all.
//!
//! They are put back as soon as code of our own is mapped. A tracer killed meanwhile leaves them there: dead bytes, which
//! the next attach or `detach` recognises and puts back. So the entry is no place for them in a program whose loader is still at
//! work, as it may be in one that was just started.

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
    /// Verifies that the bytes are those that belong there, then borrows them. A program without a loader that has not
    /// passed its entry yet must be held until they are given back.
    pub fn borrow(memory: &Memory) -> Result<EntryCode> {
        let pid = memory.pid();
        let (address, original) = match behind_loader(memory) {
            Some(place) => place,
            None => at_entry(pid)?,
        };
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

/// Puts back what a killed tracer left. True if it had and no thread is in our bytes any more.
pub fn mend(memory: &Memory, held: &[i32]) -> Result<bool> {
    let mut is_mended = false;
    for (address, original) in places(memory) {
        if holds_our_code(memory, address) {
            is_mended |= put_back_if_empty(memory, address, &original, held)?;
        }
    }
    Ok(is_mended)
}

/// Whether a thread that goes on at `rip` is in bytes of ours.
pub fn is_in(memory: &Memory, rip: u64) -> bool {
    places(memory).iter().any(|(address, _)| {
        (*address..=address + SINGLE_CALL.len() as u64).contains(&rip) && holds_our_code(memory, *address)
    })
}

fn holds_our_code(memory: &Memory, address: u64) -> bool {
    let mut now = [0; SINGLE_CALL.len()];
    memory.read(address, &mut now).is_ok() && now == SINGLE_CALL
}

/// An address and what belongs there.
type Place = (u64, [u8; SINGLE_CALL.len()]);

/// Everywhere that our bytes may be.
fn places(memory: &Memory) -> Vec<Place> {
    behind_loader(memory).into_iter().chain(at_entry(memory.pid()).ok()).collect()
}

/// The rest of the last page of the loader's code, if there is nothing in it but zeros or bytes of ours.
fn behind_loader(memory: &Memory) -> Option<Place> {
    let base = process::auxv(memory.pid()).ok()?.loader_base;
    let word = |address: u64| memory.read_u64(address).ok();
    if base == 0 || word(base)? & 0xff_ffff_ffff != u64::from_le_bytes(*b"\x7fELF\x02\0\0\0") {
        return None;
    }
    let (table, sizes) = (base.checked_add(word(base + 32)?)?, word(base + 54)?);
    let (entry_bytes, n) = (sizes & 0xffff, sizes >> 16 & 0xffff);
    for segment in (0..n).map(|i| table + i * entry_bytes) {
        const LOAD_EXECUTABLE: (u64, u64) = (1, 1);
        let kind = word(segment)?;
        if entry_bytes != 56 || (kind & 0xffff_ffff, kind >> 32 & 1) != LOAD_EXECUTABLE {
            continue;
        }
        let end = base.checked_add(word(segment + 16)?)?.checked_add(word(segment + 32)?)?;
        let address = end.next_multiple_of(16);
        if address + SINGLE_CALL.len() as u64 > end.next_multiple_of(nopal_abi::PAGE_BYTES as u64) {
            return None;
        }
        let mut now = [0; SINGLE_CALL.len()];
        memory.read(address, &mut now).ok()?;
        let original = [0; SINGLE_CALL.len()];
        return (now == original || now == SINGLE_CALL).then_some((address, original));
    }
    None
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
fn at_entry(pid: i32) -> Result<Place> {
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
