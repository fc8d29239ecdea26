//! Which semaphores a process has raised for which session: four bits per journal entry, in private pages of the process
//! that forked children inherit together with the raised semaphores.
//!
//! The bits are written before and after the counter, so that whoever comes after a kill knows whether it was changed:
//! the counter's lowest bit tells, until somebody else changes the counter ([`Ledger::settle`]).

use super::error::Result;
use super::memory::Bytes;
use nopal_abi::stub_space::LEDGER_BYTES;

const NONE: u8 = 0;
/// Being raised, from an even or odd value.
const RAISING_EVEN: u8 = 1;
const RAISING_ODD: u8 = 2;
const RAISED: u8 = 3;
/// Being lowered, from an even or odd value.
const LOWERING_EVEN: u8 = 4;
const LOWERING_ODD: u8 = 5;
const ENTRIES: usize = 2 * LEDGER_BYTES;

/// The ledger page of one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ledger<'a, B: Bytes> {
    memory: &'a B,
    address: u64,
}

impl<'a, B: Bytes> Ledger<'a, B> {
    pub(crate) fn new(memory: &'a B, address: u64) -> Ledger<'a, B> {
        Ledger { memory, address }
    }

    fn get(&self, entry: usize) -> Result<u8> {
        let mut byte = [0];
        self.memory.read(self.address + entry as u64 / 2, &mut byte)?;
        Ok(if entry.is_multiple_of(2) { byte[0] & 15 } else { byte[0] >> 4 })
    }

    fn set(&self, entry: usize, value: u8) -> Result<()> {
        let at = self.address + entry as u64 / 2;
        let mut byte = [0];
        self.memory.read(at, &mut byte)?;
        byte[0] = if entry.is_multiple_of(2) { byte[0] & 0xf0 | value } else { byte[0] & 15 | value << 4 };
        self.memory.write(at, &byte)
    }

    /// Whether this process holds the semaphore up for the entry's session.
    pub(crate) fn is_raised(&self, entry: usize, semaphore: u64) -> Result<bool> {
        if entry >= ENTRIES {
            return Ok(false);
        }
        let is_odd = || self.memory.read_u16(semaphore).map(|v| v % 2 == 1);
        Ok(match self.get(entry)? {
            RAISING_EVEN => is_odd()?,
            RAISING_ODD => !is_odd()?,
            // A library that was unloaded and loaded again has its semaphores at zero.
            RAISED => self.memory.read_u16(semaphore)? > 0,
            LOWERING_EVEN => !is_odd()?,
            LOWERING_ODD => is_odd()?,
            _ => false,
        })
    }

    /// Adds one to the semaphore, once. False if it stands at its highest value.
    pub(crate) fn raise(&self, entry: usize, semaphore: u64) -> Result<bool> {
        if entry >= ENTRIES {
            return Ok(false);
        }
        if self.is_raised(entry, semaphore)? {
            self.set(entry, RAISED)?;
            return Ok(true);
        }
        let value = self.memory.read_u16(semaphore)?;
        let Some(more) = value.checked_add(1) else { return Ok(false) };
        self.set(entry, if value % 2 == 0 { RAISING_EVEN } else { RAISING_ODD })?;
        self.memory.write(semaphore, &more.to_le_bytes())?;
        self.set(entry, RAISED)?;
        Ok(true)
    }

    /// Ends what a killed tracer had begun. The counter's lowest bit tells how far it came, as long as nobody else has
    /// changed the counter since: whoever is about to settles all entries of the semaphore first.
    pub(crate) fn settle(&self, entry: usize, semaphore: u64) -> Result<()> {
        if entry >= ENTRIES || matches!(self.get(entry)?, NONE | RAISED) {
            return Ok(());
        }
        let is_raised = self.is_raised(entry, semaphore)?;
        self.set(entry, if is_raised { RAISED } else { NONE })
    }

    /// The semaphore is no longer there.
    pub(crate) fn forget(&self, entry: usize) -> Result<()> {
        if entry < ENTRIES { self.set(entry, NONE) } else { Ok(()) }
    }

    /// Whether something is written about the entry's semaphore.
    pub(crate) fn is_noted(&self, entry: usize) -> bool {
        entry < ENTRIES && self.get(entry).is_ok_and(|state| state != NONE)
    }

    /// Takes back what [`Ledger::raise`] added; never below zero. Whether there was something to take back.
    pub(crate) fn lower(&self, entry: usize, semaphore: u64) -> Result<bool> {
        // One that cannot be read went with its library.
        if !self.is_raised(entry, semaphore).unwrap_or(false) {
            self.forget(entry)?;
            return Ok(false);
        }
        let value = self.memory.read_u16(semaphore)?;
        if value > 0 {
            self.set(entry, if value % 2 == 0 { LOWERING_EVEN } else { LOWERING_ODD })?;
            self.memory.write(semaphore, &(value - 1).to_le_bytes())?;
        }
        self.set(entry, NONE)?;
        Ok(value > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn a_semaphore_is_counted_once_whenever_the_tracer_is_killed() {
        let mut page = vec![0u8; 4096];
        let mut semaphore = 0u16;
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let ledger = Ledger::new(&memory, page.as_mut_ptr() as u64);
        let at = &raw mut semaphore as u64;
        let set = |value: u16| memory.write(at, &value.to_le_bytes()).unwrap();
        let get = || memory.read_u16(at).unwrap();
        for others in [0u16, 1, 2, 7] {
            for entry in [0usize, 1, 8191] {
                set(others);
                assert!(ledger.raise(entry, at).unwrap());
                assert!(ledger.raise(entry, at).unwrap(), "twice is once");
                assert_eq!(get(), others + 1);
                ledger.lower(entry, at).unwrap();
                ledger.lower(entry, at).unwrap();
                assert_eq!(get(), others);
                let parity = |even, odd| if others % 2 == 0 { even } else { odd };
                // Killed before and after the counter was written, while raising.
                for (value, raised) in [(others, false), (others + 1, true)] {
                    ledger.set(entry, parity(RAISING_EVEN, RAISING_ODD)).unwrap();
                    set(value);
                    assert_eq!(ledger.is_raised(entry, at).unwrap(), raised);
                    ledger.lower(entry, at).unwrap();
                    assert_eq!(get(), others);
                }
                // The same while lowering from others + 1.
                for value in [others + 1, others] {
                    ledger.set(entry, parity(LOWERING_ODD, LOWERING_EVEN)).unwrap();
                    set(value);
                    ledger.lower(entry, at).unwrap();
                    assert_eq!(get(), others);
                }
            }
        }
        assert!(!ledger.raise(ENTRIES, at).unwrap(), "no room in the ledger");
        set(u16::MAX);
        assert!(!ledger.raise(0, at).unwrap(), "a counter at its end is left alone");
        assert_eq!(get(), u16::MAX);
        drop(page);
    }
}
