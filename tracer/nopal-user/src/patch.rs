//! The changed bytes in a process's code: what the file has there, whether they are ours, putting them in and out.

use super::distance::BREAKPOINT;
use super::error::{Error, Result};
use super::maps::Maps;
use super::memory::{Bytes, Memory};
use super::stopped_thread::stop_all;
use super::stub::space::Entry;
use super::tactic::{Way, lies_on_two_pages};
use nopal_abi::stub_space::PatchForm;
use nopal_proc::ptrace;
use nopal_proc::{Image, MappedObject, mapped_objects};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The files of a process's code, opened as they are needed.
#[derive(Debug)]
pub struct Files {
    objects: Vec<MappedObject>,
    images: HashMap<usize, Option<Image>>,
}

impl Files {
    pub fn of(pid: i32) -> Result<Files> {
        let objects = mapped_objects(pid as u32).map_err(|e| Error::of_target(pid, e))?;
        Ok(Files { objects, images: HashMap::new() })
    }

    /// What the file mapped at `address` has there.
    pub fn original(&mut self, address: u64, len: usize) -> Option<Vec<u8>> {
        let at = self.objects.iter().position(|o| o.mappings.iter().any(|m| m.contains(address)))?;
        let mapping = self.objects[at].mappings.iter().find(|m| m.contains(address))?;
        let offset = usize::try_from(mapping.offset.checked_add(address - mapping.start)?).ok()?;
        let object = &self.objects[at];
        let image = self.images.entry(at).or_insert_with(|| object.open().ok());
        image.as_ref()?.bytes().get(offset..offset.checked_add(len)?).map(<[u8]>::to_vec)
    }
}

/// A change of code bytes: one byte at any time, several only while all threads stand still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub address: u64,
    /// Bytes of the same instruction before `address`, which stay. Others may have a breakpoint on the first.
    pub kept: Vec<u8>,
    pub original: Vec<u8>,
    pub patched: Vec<u8>,
    /// Bytes behind them that a jump of ours has for a distance, as the file has them: a program that puts its own jump here
    /// has others there. Others may have breakpoints on them.
    pub behind: Vec<u8>,
}

const NOP: u8 = 0x90;
/// How far up a stack the frame of a signal is looked for.
const STACK_BYTES: u64 = 64 << 10;

impl Patch {
    /// Whether it lies over several instructions, a nop of one byte and what follows it: somebody may stand between them.
    fn moves_instructions(&self) -> bool {
        self.kept.is_empty() && self.original.len() > 1 && self.original[0] == NOP
    }

    /// Where neither the old instructions nor the new one can be gone on with.
    fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.original.len() as u64
    }
}

/// What stands at a patch's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Ours,
    Original,
    /// Ours but for the first byte, which is the file's, and perhaps others: what a kernel tracer leaves behind, and a tracer
    /// of ours that was killed between two pages.
    FirstByteBack,
    /// 0xCC on the instruction's first byte, by a debugger or a kernel tracer.
    Breakpoint,
    Other(Vec<u8>),
}

impl Patch {
    /// The change that the journal tells of, if it is one that can be.
    pub fn of_entry(entry: &Entry, files: &mut Files) -> Option<Patch> {
        let form = PatchForm::from_code(entry.slot)?;
        let len = usize::from(entry.length);
        let (kept_len, patched, n_behind) = match form {
            PatchForm::Jump | PatchForm::Relocated => (0, Way::jump_bytes(entry.code), Way::n_behind(len)),
            PatchForm::Prefixed => (1, Way::jump_bytes(entry.code), Way::n_behind(len)),
            PatchForm::Distance => (1, entry.code.to_le_bytes().to_vec(), 0),
            PatchForm::FarDistance => (2, entry.code.to_le_bytes().to_vec(), 0),
        };
        let patched = patched.get(..len).filter(|bytes| !bytes.is_empty())?.to_vec();
        let mut kept = files.original(entry.address.checked_sub(kept_len)?, kept_len as usize + len)?;
        let original = kept.split_off(kept_len as usize);
        let behind = files.original(entry.address.checked_add(len as u64)?, n_behind).unwrap_or_default();
        Some(Patch { address: entry.address, kept, original, patched, behind })
    }

    /// Where the instruction begins.
    pub fn start(&self) -> u64 {
        self.address - self.kept.len() as u64
    }

    /// Behind the last byte that changes.
    pub fn end(&self) -> u64 {
        self.address + self.original.len() as u64
    }

    /// Whether a jump made of these bytes and those behind leads where ours is to lead.
    fn is_our_distance(&self, behind: &[u8]) -> bool {
        behind.iter().zip(&self.behind).all(|(now, file)| now == file || *now == BREAKPOINT)
    }

    pub fn found(&self, memory: &impl Bytes) -> Result<Found> {
        let n_own = self.kept.len() + self.original.len();
        let mut kept = memory.read_vec(self.start(), n_own + self.behind.len())?;
        let behind = kept.split_off(n_own);
        let now = kept.split_off(self.kept.len());
        Ok(self.compare(&kept, now, &behind))
    }

    fn compare(&self, kept: &[u8], now: Vec<u8>, behind: &[u8]) -> Found {
        let is_covered = kept.iter().chain(&now).next() == Some(&BREAKPOINT);
        if kept == self.kept && now == self.patched && !self.is_our_distance(behind) {
            Found::Other([kept, &now, behind].concat())
        } else if kept == self.kept && now == self.patched {
            Found::Ours
        } else if kept == self.kept && now == self.original {
            Found::Original
        } else if is_covered && (kept.is_empty() || now == self.patched || now == self.original) {
            Found::Breakpoint
        } else if kept.is_empty() && now[0] == self.original[0] && self.is_mixture(&now) {
            Found::FirstByteBack
        } else {
            Found::Other([kept, &now].concat())
        }
    }

    /// Whether each byte is the file's or ours.
    fn is_mixture(&self, now: &[u8]) -> bool {
        let known = self.original.iter().zip(&self.patched);
        now.iter().zip(known).all(|(now, (original, patched))| now == original || now == patched)
    }

    /// Writes these bytes. The kernel writes the pages they lie on one after the other, and we may be killed in between: the
    /// first byte is ours only while all others are.
    fn write(&self, memory: &impl Bytes, bytes: &[u8], direction: Direction) -> Result<()> {
        if !lies_on_two_pages(self.address, bytes.len()) {
            return memory.write(self.address, bytes);
        }
        let (first, others) = bytes.split_at(1);
        let write_others = || memory.write(self.address + 1, others);
        if direction == Direction::In {
            write_others()?;
        }
        memory.write(self.address, first)?;
        if direction == Direction::Out { write_others() } else { Ok(()) }
    }

    /// Whether our bytes behind somebody's breakpoint can be taken back: it will go on with the whole instruction as the
    /// file has it. A breakpoint on a byte that we changed may bring ours back.
    fn is_free_under_breakpoint(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Makes the change if the bytes are as expected; else gives what stands there.
    pub fn change(&self, memory: &impl Bytes, direction: Direction) -> Result<Option<Found>> {
        let found = self.found(memory)?;
        let (bytes, is_expected) = match direction {
            Direction::In => {
                let behind = memory.read_vec(self.end(), self.behind.len())?;
                if !self.is_our_distance(&behind) {
                    return Ok(Some(Found::Other([&self.original[..], &behind].concat())));
                }
                (&self.patched, matches!(found, Found::Original | Found::FirstByteBack))
            }
            Direction::Out => (
                &self.original,
                matches!(found, Found::Ours | Found::FirstByteBack)
                    || (found == Found::Breakpoint && self.is_free_under_breakpoint()),
            ),
        };
        if is_expected {
            self.write(memory, bytes, direction)?;
            return Ok(None);
        }
        let is_done =
            matches!((direction, &found), (Direction::In, Found::Ours) | (Direction::Out, Found::Original));
        Ok((!is_done).then_some(found))
    }
}

/// After this time a program that stands still is let go, and stopped again for the rest.
const SLICE: Duration = Duration::from_millis(1);
/// So many changes take less than that, wherever we stand in between: a busy machine may keep us waiting.
const AT_LEAST: usize = 64;
/// So long it runs before it is stopped again.
const BETWEEN_SLICES: Duration = Duration::from_millis(1);

/// Which way bytes are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// What stopped threads have on their stacks that lies in one of these windows: a signal handler goes back to the address that
/// its frame has there.
fn on_stacks(memory: &Memory, tids: impl Iterator<Item = i32>, windows: &[Range<u64>]) -> Result<Vec<u64>> {
    let maps = Maps::read(memory.pid())?;
    let mut found = Vec::new();
    for tid in tids {
        let sp = ptrace::regs(tid).map_err(Error::on(memory.pid(), "read registers"))?.rsp;
        let Some(stack) = maps.find(sp) else { continue };
        let len = (stack.end - sp).min(STACK_BYTES) as usize;
        // A stack that cannot be read is not one that a handler goes back from.
        let Ok(bytes) = memory.read_vec(sp, len) else { continue };
        let words =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        found.extend(words.filter(|word| windows.iter().any(|window| window.contains(word))));
    }
    Ok(found)
}

/// Makes the changes where the bytes are as expected and returns what stood at the others. The caller holds the lock;
/// `held` are threads it has stopped itself, with the instruction pointers they will go on at.
pub(crate) fn apply(
    memory: &Memory,
    patches: &[Patch],
    direction: Direction,
    held: &[(i32, u64)],
) -> Result<Vec<Option<Found>>> {
    let pid = memory.pid();
    let mut outcome = vec![None; patches.len()];
    for (i, patch) in patches.iter().enumerate().filter(|(_, p)| p.original.len() == 1) {
        outcome[i] = patch.change(memory, direction)?;
    }
    let tids: Vec<i32> = held.iter().map(|h| h.0).collect();
    let mut several = (0..patches.len()).filter(|i| patches[*i].original.len() > 1).peekable();
    let moved = patches.iter().filter(|patch| direction == Direction::In && patch.moves_instructions());
    let moved: Vec<Range<u64>> = moved.map(Patch::inside).collect();
    while several.peek().is_some() {
        let others = stop_all(pid, &tids)?;
        let end = Instant::now() + SLICE;
        let mut pointers: Vec<u64> = held.iter().map(|h| h.1).collect();
        for thread in &others {
            pointers.push(ptrace::regs(thread.tid).map_err(Error::on(pid, "read registers"))?.rip);
        }
        if !moved.is_empty() {
            let stopped = tids.iter().copied().chain(others.iter().map(|thread| thread.tid));
            pointers.extend(on_stacks(memory, stopped, &moved)?);
        }
        for (n_changed, i) in (1..).zip(several.by_ref()) {
            let patch = &patches[i];
            // At the first byte a thread executes the old instruction or the new one; between, neither.
            outcome[i] = match pointers.iter().any(|p| patch.inside().contains(p)) {
                true => Some(Found::Other(Vec::new())),
                false => patch.change(memory, direction)?,
            };
            if n_changed >= AT_LEAST && Instant::now() >= end {
                break;
            }
        }
        drop(others);
        if several.peek().is_some() {
            std::thread::sleep(BETWEEN_SLICES);
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_is_told_apart() {
        let patch = |kept: &[u8], original: &[u8], patched: &[u8]| Patch {
            address: 0x1000,
            kept: kept.to_vec(),
            original: original.to_vec(),
            patched: patched.to_vec(),
            behind: Vec::new(),
        };
        let pun = patch(&[], &[0x90], &[0xe9]);
        let entry = Patch { behind: vec![1, 2, 3, 4], ..pun.clone() };
        let nop5 = patch(&[], &[0x0f, 0x1f, 0x44, 0, 0], &[0xe9, 0x1f, 0x44, 1, 2]);
        let prefixed = patch(&[0x48], &[0x8d, 5], &[0xe9, 7]);
        for (patch, now, expected) in [
            (&pun, &[0xe9][..], Found::Ours),
            (&pun, &[0x90], Found::Original),
            (&pun, &[0xcc], Found::Breakpoint),
            (&pun, &[0x91], Found::Other(vec![0x91])),
            (&entry, &[0xe9, 1, 2, 3, 4], Found::Ours),
            (&entry, &[0xe9, 1, 0xcc, 3, 4], Found::Ours),
            // A jump of the program's own.
            (&entry, &[0xe9, 1, 2, 3, 5], Found::Other(vec![0xe9, 1, 2, 3, 5])),
            (&entry, &[0x90, 1, 2, 3, 5], Found::Original),
            (&entry, &[0xcc, 1, 2, 3, 5], Found::Breakpoint),
            (&nop5, &[0xe9, 0x1f, 0x44, 1, 2], Found::Ours),
            (&nop5, &[0x0f, 0x1f, 0x44, 1, 2], Found::FirstByteBack),
            (&nop5, &[0x0f, 0x1f, 0x44, 0, 2], Found::FirstByteBack),
            (&nop5, &[0x0f, 0x1f, 0x44, 3, 2], Found::Other(vec![0x0f, 0x1f, 0x44, 3, 2])),
            (&nop5, &[0xcc, 0x1f, 0x44, 1, 2], Found::Breakpoint),
            (&nop5, &[0xcc, 0x1f, 0x44, 0, 0], Found::Breakpoint),
            (&nop5, &[0x0f, 0x1f, 0x44, 0, 0], Found::Original),
            (&nop5, &[0xe8, 1, 2, 3, 4], Found::Other(vec![0xe8, 1, 2, 3, 4])),
            (&prefixed, &[0x48, 0xe9, 7], Found::Ours),
            (&prefixed, &[0x48, 0x8d, 5], Found::Original),
            // Theirs on the prefix: ours is behind it or not, and is passed by either way.
            (&prefixed, &[0xcc, 0xe9, 7], Found::Breakpoint),
            (&prefixed, &[0xcc, 0x8d, 5], Found::Breakpoint),
            (&prefixed, &[0xcc, 1, 2], Found::Other(vec![0xcc, 1, 2])),
            (&prefixed, &[0x48, 0xcc, 7], Found::Other(vec![0x48, 0xcc, 7])),
            (&prefixed, &[0x49, 0xe9, 7], Found::Other(vec![0x49, 0xe9, 7])),
        ] {
            let (kept, rest) = now.split_at(patch.kept.len());
            let (rest, behind) = rest.split_at(patch.patched.len());
            assert_eq!(patch.compare(kept, rest.to_vec(), behind), expected, "{now:02x?}");
        }
    }

    #[test]
    fn under_a_breakpoint_only_what_is_behind_it_is_taken_back() {
        let me = Memory::open(std::process::id() as i32).unwrap();
        for (kept, now, after) in [
            (&[0x48u8][..], vec![0xccu8, 0xe9], vec![0xcc, 0x8d]),
            (&[0x48], vec![0x48, 0xe9], vec![0x48, 0x8d]),
            (&[], vec![0xcc], vec![0xcc]),
            (&[], vec![0xe9], vec![0x8d]),
        ] {
            let place = now.clone();
            let address = place.as_ptr() as u64 + kept.len() as u64;
            let patch = Patch {
                address,
                kept: kept.to_vec(),
                original: vec![0x8d],
                patched: vec![0xe9],
                behind: Vec::new(),
            };
            apply(&me, &[patch], Direction::Out, &[]).unwrap();
            let bytes = me.read_vec(place.as_ptr() as u64, place.len()).unwrap();
            assert_eq!(bytes, after, "{now:02x?}");
        }
    }
}
