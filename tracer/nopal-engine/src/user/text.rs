//! The changed bytes in a process's code: what the file has there, whether they are ours, putting them in and out.

use super::error::{Error, Result};
use super::held::stop_all;
use super::memory::Memory;
use super::ptrace;
use crate::target::{Image, MappedObject, mapped_objects};
use std::collections::HashMap;

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
    pub original: Vec<u8>,
    pub patched: Vec<u8>,
}

/// What stands at a patch's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Ours,
    Original,
    /// 0xCC on top of it, by a debugger or a kernel tracer.
    Breakpoint,
    Other(Vec<u8>),
}

impl Patch {
    pub fn found(&self, memory: &Memory) -> Result<Found> {
        let now = memory.read_vec(self.address, self.original.len())?;
        Ok(if now == self.patched {
            Found::Ours
        } else if now == self.original {
            Found::Original
        } else if now[0] == 0xcc {
            Found::Breakpoint
        } else {
            Found::Other(now)
        })
    }
}

/// Which way bytes are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// Makes the changes where the bytes are as expected and returns what stood at the others. The caller holds the lock;
/// `held` are threads it has stopped itself, with the instruction pointers they will go on at.
pub fn apply(
    memory: &Memory,
    patches: &[Patch],
    direction: Direction,
    held: &[(i32, u64)],
) -> Result<Vec<Option<Found>>> {
    let pid = memory.pid();
    let mut outcome = vec![None; patches.len()];
    let change = |patch: &Patch| -> Result<Option<Found>> {
        let (wanted, bytes) = match direction {
            Direction::In => (Found::Original, &patch.patched),
            Direction::Out => (Found::Ours, &patch.original),
        };
        let found = patch.found(memory)?;
        if found == wanted {
            memory.write(patch.address, bytes)?;
            return Ok(None);
        }
        let is_done =
            matches!((direction, &found), (Direction::In, Found::Ours) | (Direction::Out, Found::Original));
        Ok((!is_done).then_some(found))
    };
    for (i, patch) in patches.iter().enumerate().filter(|(_, p)| p.original.len() == 1) {
        outcome[i] = change(patch)?;
    }
    if patches.iter().any(|p| p.original.len() > 1) {
        let tids: Vec<i32> = held.iter().map(|h| h.0).collect();
        let others = stop_all(pid, &tids)?;
        let mut pointers: Vec<u64> = held.iter().map(|h| h.1).collect();
        for thread in &others {
            pointers.push(ptrace::regs(thread.tid).map_err(Error::on(pid, "read registers"))?.rip);
        }
        for (i, patch) in patches.iter().enumerate().filter(|(_, p)| p.original.len() > 1) {
            // At the first byte a thread executes the old instruction or the new one; between, neither.
            let inside = patch.address + 1..patch.address + patch.original.len() as u64;
            if pointers.iter().any(|p| inside.contains(p)) {
                outcome[i] = Some(Found::Other(Vec::new()));
                continue;
            }
            outcome[i] = change(patch)?;
        }
    }
    Ok(outcome)
}
