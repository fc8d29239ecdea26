//! The first code run in a process: a few bytes where nothing is executed. Behind the end of the loader's code, in the rest of
//! its last page; in a program without a loader, or with one that has no room there, over the entry point, which a process
//! passes first of all.
//!
//! They are put back as soon as code of our own is mapped. A tracer killed meanwhile leaves them there: dead bytes, which
//! the next attach or `detach` recognises and puts back. So the entry is not a place for them in a program whose loader is still at
//! work, as it may be in one that was just started.

use super::call_code::SINGLE_CALL;
use super::error::{Error, Result};
use super::memory::Memory;
use super::process;
use super::stopped_thread::stop_all;
use nopal_proc::ptrace;
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
    const PAGE: usize = nopal_abi::PAGE_BYTES;
    let base = process::auxv(memory.pid()).ok()?.loader_base;
    let mut head = [0; PAGE];
    memory.read(base, &mut head).ok()?;
    let table = SegmentTable::parse(head.first_chunk()?)?;
    let segments = (0..table.n).map_while(|i| head.get(usize::try_from(table.at(i)?).ok()?..)?.first_chunk());
    let code = segments.map(Segment::parse).find(|segment| segment.is_load && segment.is_executable)?;
    let end = base.checked_add(code.start)?.checked_add(code.size)?;
    let address = end.checked_next_multiple_of(16)?;
    if end.checked_next_multiple_of(PAGE as u64)? - address < SINGLE_CALL.len() as u64 {
        return None;
    }
    let (mut now, original) = ([0; SINGLE_CALL.len()], [0; SINGLE_CALL.len()]);
    memory.read(address, &mut now).ok()?;
    (now == original || now == SINGLE_CALL).then_some((address, original))
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
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).map_err(Error::on(pid, "read the program's header"))?;
    let table = SegmentTable::parse(&header).ok_or_else(broken)?;
    for i in 0..table.n {
        let mut bytes = [0; SEGMENT_BYTES];
        file.read_exact_at(&mut bytes, table.at(i).ok_or_else(broken)?)
            .map_err(Error::on(pid, "read the program's segments"))?;
        let segment = Segment::parse(&bytes);
        let within = table.entry.checked_sub(segment.start).filter(|w| segment.is_load && *w < segment.size);
        let Some(within) = within.filter(|w| segment.size - w >= SINGLE_CALL.len() as u64) else { continue };
        let mut bytes = [0; SINGLE_CALL.len()];
        file.read_exact_at(&mut bytes, segment.offset.wrapping_add(within))
            .map_err(Error::on(pid, "read the program's entry"))?;
        return Ok((address, bytes));
    }
    Err(broken())
}

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What the header of a 64-bit ELF file says of its segments.
struct SegmentTable {
    /// Where the program begins, as linked.
    entry: u64,
    offset: u64,
    n: u64,
}

impl SegmentTable {
    fn parse(header: &[u8; HEADER_BYTES]) -> Option<SegmentTable> {
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let is_known = header.starts_with(b"\x7fELF\x02") && usize::from(u16_at(54)) == SEGMENT_BYTES;
        is_known.then(|| SegmentTable {
            entry: u64_at(header, 24),
            offset: u64_at(header, 32),
            n: u16_at(56).into(),
        })
    }

    /// Where one of them is described.
    fn at(&self, i: u64) -> Option<u64> {
        self.offset.checked_add(i * SEGMENT_BYTES as u64)
    }
}

struct Segment {
    is_load: bool,
    is_executable: bool,
    offset: u64,
    start: u64,
    /// In the file.
    size: u64,
}

impl Segment {
    fn parse(bytes: &[u8; SEGMENT_BYTES]) -> Segment {
        let kind_and_flags = u64_at(bytes, 0);
        Segment {
            is_load: kind_and_flags as u32 == 1,
            is_executable: kind_and_flags >> 32 & 1 != 0,
            offset: u64_at(bytes, 8),
            start: u64_at(bytes, 16),
            size: u64_at(bytes, 32),
        }
    }
}
