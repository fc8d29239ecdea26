//! Room in a stub space that sessions have left, for those that come: which code nobody can reach any more, and where new
//! code is put. Whether a thread is still in it is for the caller to find out, who can stop threads.

use core::mem::offset_of;
use core::sync::atomic::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::PoisonError;

use nopal_abi::stub_space::{JournalKind, JournalState, MAX_SESSIONS, SessionEntry, StubSpace};

use super::StubError;
use super::space::{LINE, Space};

/// What can be given up: stubs that are in no chain and whose session has left, and the announce routines of such sessions.
#[derive(Debug, Default)]
pub struct Disused {
    entries: HashSet<usize>,
    announces: Vec<u16>,
    /// By offset, in order and apart, each beginning on a line and ending on one.
    code: Vec<Range<usize>>,
}

impl Disused {
    /// Where it is in the processes that have the space at `address`.
    pub fn addresses(&self, address: u64) -> Vec<Range<u64>> {
        self.code.iter().map(|r| address + r.start as u64..address + r.end as u64).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }
}

impl Space {
    /// Whether more than half of the code or of the journal is in use, so that it is time to look for [`Space::disused`].
    pub fn is_tight(&self) -> bool {
        self.code_bytes_used() * 2 > self.mapping.len() - self.code_offset
            || self.books().n_taken() * 2 > self.journal_capacity
    }

    pub fn disused(&self) -> Disused {
        let live: HashSet<u16> =
            self.session_lines().filter(|(_, line)| line.is_live).map(|(index, _)| index).collect();
        let end = self.code_offset + self.code_bytes_used();
        // The first line of code is the loop that makes calls.
        let is_inside = |range: &Range<usize>| {
            range.start >= self.code_offset + LINE
                && range.start.is_multiple_of(LINE)
                && range.start < range.end
                && range.end <= end
        };
        let mut disused = Disused::default();
        for (index, entry, state) in self.entries() {
            let code = entry.code as usize..(entry.code as usize).saturating_add(entry.extent as usize);
            let is_left = entry.kind == JournalKind::Stub
                && state == JournalState::Undone
                && !live.contains(&entry.session);
            if is_left && is_inside(&code) {
                disused.entries.insert(index);
                disused.code.push(code);
            }
        }
        for (index, line) in self.session_lines().filter(|(_, line)| line.has_left) {
            let start = line.announce as usize;
            let code = start..start.saturating_add(line.announce_bytes as usize);
            if is_inside(&code) {
                disused.announces.push(index);
                disused.code.push(code);
            }
        }
        disused.code = joined(std::mem::take(&mut disused.code));
        disused
    }

    /// From now on this is room for others.
    pub fn reclaim(&self, disused: Disused) {
        for index in disused.announces {
            assert!(usize::from(index) < MAX_SESSIONS, "indices come from the table");
            let at = offset_of!(StubSpace, sessions) + usize::from(index) * size_of::<SessionEntry>();
            self.word32(at + offset_of!(SessionEntry, announce)).store(0, Ordering::Release);
        }
        for index in &disused.entries {
            // Of no kind, as an entry that was never written.
            // SAFETY: inside the journal; no reference to it is held, and no other process can write there.
            unsafe { (&raw mut (*self.raw_entry(*index)).kind).write_volatile(0) };
        }
        self.books().vacate(&disused.entries);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let both = free.drain(..).chain(disused.code).collect();
        *free = joined(both);
    }

    /// Puts code where there is room for it, and gives its place. It may depend on its address, but not its length.
    pub(super) fn place(&self, make: impl Fn(u64) -> Result<Vec<u8>, StubError>) -> Result<usize, StubError> {
        let code = make(self.cursor().0)?;
        let Some(offset) = self.take_free(code.len()) else { return self.append(&code, LINE) };
        let again = make(self.address + offset as u64)?;
        if again.len() > code.len() {
            return self.append(&code, LINE);
        }
        self.put(offset, &again);
        Ok(offset)
    }

    fn take_free(&self, bytes: usize) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.next_multiple_of(LINE);
        let at = free.iter().position(|range| range.len() >= bytes)?;
        let offset = free[at].start;
        free[at].start += bytes;
        if free[at].is_empty() {
            free.remove(at);
        }
        Some(offset)
    }
}

/// Whole lines, in order, with what touches or overlaps made one.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        let end = range.end.next_multiple_of(LINE);
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(end),
            _ => joined.push(range.start..end),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_joined_line_by_line() {
        let ranges = vec![640..700, 64..100, 128..200, 1024..1088, 650..660];
        assert_eq!(joined(ranges), [64..256, 640..704, 1024..1088]);
    }
}
