//! The journal of a stub space: what was changed in the traced process, in the shared memory for whoever comes after us,
//! and beside it in our own memory, so that an entry is found without looking through all of them. The entries of a space
//! that was found in a process were written by somebody else: whatever they say, finding one takes no longer.

use core::mem::offset_of;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicU16;

use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{JournalEntry, JournalKind, JournalState, PatchForm};

/// Which object an address belongs to, so that it is found again in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ObjectIdentity {
    pub device: u64,
    pub inode: u64,
    /// First 8 bytes of the build id, 0 = none.
    pub build_id: u64,
    /// Link-time address of what the entry is about.
    pub link_address: u64,
}

/// A journal entry, out of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    pub kind: JournalKind,
    pub session: u16,
    pub length: u16,
    pub address: u64,
    pub code: u32,
    pub slot: u32,
    pub extent: u32,
    pub pid: u32,
    pub object: ObjectIdentity,
}

impl Entry {
    /// As it stands in shared memory. `None`: vacant, or of no kind that we know.
    fn parse(bytes: &[u8; size_of::<JournalEntry>()]) -> Option<(Entry, JournalState)> {
        macro_rules! field {
            ($name:ident, $ty:ty) => {{
                let at = offset_of!(JournalEntry, $name);
                <$ty>::from_le_bytes(bytes[at..at + size_of::<$ty>()].try_into().expect("inside the entry"))
            }};
        }
        let kind = match field!(kind, u16) {
            1 => JournalKind::Patch,
            2 => JournalKind::Semaphore,
            3 => JournalKind::Landing,
            4 => JournalKind::Scratch,
            5 => JournalKind::Site,
            6 => JournalKind::Stub,
            _ => return None,
        };
        let state = match field!(state, u16) {
            0 => JournalState::Prepared,
            1 => JournalState::InForce,
            2 => JournalState::Undone,
            _ => return None,
        };
        let entry = Entry {
            kind,
            session: field!(session, u16),
            length: field!(length, u16),
            address: field!(address, u64),
            code: field!(code, u32),
            slot: field!(slot, u32),
            extent: field!(extent, u32),
            pid: field!(pid, u32),
            object: ObjectIdentity {
                device: field!(object_device, u64),
                inode: field!(object_inode, u64),
                build_id: field!(object_build_id, u64),
                link_address: field!(link_address, u64),
            },
        };
        Some((entry, state))
    }

    pub(super) fn raw(&self) -> JournalEntry {
        JournalEntry {
            kind: self.kind as u16,
            state: AtomicU16::new(JournalState::Prepared as u16),
            session: self.session,
            length: self.length,
            address: self.address,
            code: self.code,
            slot: self.slot,
            extent: self.extent,
            pid: self.pid,
            link_address: self.object.link_address,
            object_device: self.object.device,
            object_inode: self.object.inode,
            object_build_id: self.object.build_id,
        }
    }

    /// A patch for which instructions were moved.
    fn is_relocation(&self) -> bool {
        self.kind == JournalKind::Patch && self.length == 5 && self.slot == PatchForm::Relocated as u32
    }
}

/// The journal in our own memory.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Vec<Option<(Entry, JournalState)>>,
    by_content: HashMap<Entry, Vec<usize>>,
    /// The first of each address.
    sites: HashMap<u64, usize>,
    /// By address of the site.
    stubs: HashMap<u64, Vec<usize>>,
    /// The first of each entry point.
    stubs_by_code: HashMap<u32, usize>,
    /// Page and place in the space, the first of each page.
    landings: HashMap<u64, u64>,
    /// Places in the space that landing pages show.
    landing_places: BTreeSet<u64>,
    relocations: HashSet<u64>,
    /// By address of the first changed byte.
    patches: HashMap<u64, Vec<usize>>,
    /// Entries that say nothing any more.
    vacant: Vec<usize>,
}

impl Journal {
    /// Reads the entries of a space that was copied.
    pub(super) fn read(bytes: &[u8]) -> Journal {
        let mut journal = Journal::default();
        for raw in bytes.as_chunks().0 {
            let parsed = Entry::parse(raw);
            let index = journal.entries.len();
            journal.entries.push(parsed);
            match parsed {
                Some((entry, _)) => journal.add_to_index(index, &entry),
                None => journal.vacant.push(index),
            }
        }
        journal
    }

    fn add_to_index(&mut self, index: usize, entry: &Entry) {
        self.by_content.entry(*entry).or_default().push(index);
        match entry.kind {
            JournalKind::Site => {
                self.sites.entry(entry.address).or_insert(index);
            }
            JournalKind::Stub => {
                self.stubs.entry(entry.address).or_default().push(index);
                self.stubs_by_code.entry(entry.code).or_insert(index);
            }
            JournalKind::Landing => {
                let (page, place) = (entry.address, u64::from(entry.code));
                if page % PAGE_BYTES as u64 == 0 && place % PAGE_BYTES as u64 == 0 && place != 0 {
                    self.landing_places.insert(*self.landings.entry(page).or_insert(place));
                }
            }
            JournalKind::Patch => {
                self.patches.entry(entry.address).or_default().push(index);
                if entry.is_relocation() {
                    self.relocations.insert(entry.address);
                }
            }
            JournalKind::Semaphore | JournalKind::Scratch => {}
        }
    }

    /// Entries from 0 on that have been filled, those included that are vacant again.
    pub(super) fn used(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, Entry, JournalState)> + '_ {
        (0..).zip(&self.entries).filter_map(|(index, slot)| slot.map(|(entry, state)| (index, entry, state)))
    }

    pub(super) fn get(&self, index: usize) -> Option<(Entry, JournalState)> {
        self.entries.get(index).copied().flatten()
    }

    /// The first entry that says this, if one does; of those in `state` only, if that is given.
    pub(super) fn find(&self, entry: &Entry, state: Option<JournalState>) -> Option<usize> {
        let is_it = |index: &&usize| {
            state.is_none_or(|wanted| self.get(**index).is_some_and(|(_, state)| state == wanted))
        };
        self.by_content.get(entry)?.iter().find(is_it).copied()
    }

    /// Entries that are filled and say something.
    pub(super) fn n_taken(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Makes these entries vacant.
    pub(super) fn vacate(&mut self, indices: &HashSet<usize>) {
        let entries = std::mem::take(&mut self.entries);
        *self = Journal::default();
        for (index, slot) in entries.into_iter().enumerate() {
            let slot = slot.filter(|_| !indices.contains(&index));
            self.entries.push(slot);
            match slot {
                Some((entry, _)) => self.add_to_index(index, &entry),
                None => self.vacant.push(index),
            }
        }
    }

    /// Where a new entry goes; `None`: the journal is full.
    pub(super) fn place(&mut self, capacity: usize) -> Option<usize> {
        self.vacant.pop().or_else(|| (self.entries.len() < capacity).then_some(self.entries.len()))
    }

    /// Takes note of a new entry, state Prepared, at a place that [`Journal::place`] gave.
    pub(super) fn add(&mut self, index: usize, entry: &Entry) {
        let slot = Some((*entry, JournalState::Prepared));
        match self.entries.get_mut(index) {
            Some(old) => *old = slot,
            None => self.entries.push(slot),
        }
        self.add_to_index(index, entry);
    }

    pub(super) fn set_state(&mut self, index: usize, state: JournalState) {
        if let Some(Some((_, old))) = self.entries.get_mut(index) {
            *old = state;
        }
    }

    pub(super) fn site(&self, address: u64) -> Option<Entry> {
        self.sites.get(&address).and_then(|index| self.get(*index)).map(|(entry, _)| entry)
    }

    /// The newest stubs of a session for a site that are in this state, at most `limit`.
    pub(super) fn stubs_of(
        &self,
        address: u64,
        session: u16,
        state: JournalState,
        limit: usize,
    ) -> Vec<(usize, Entry)> {
        let indices = self.stubs.get(&address).map_or(&[][..], Vec::as_slice);
        let found = indices.iter().rev().filter_map(|index| match self.get(*index) {
            Some((entry, now)) if now == state && entry.session == session => Some((*index, entry)),
            _ => None,
        });
        found.take(limit).collect()
    }

    pub(super) fn stub_at(&self, code: u32) -> Option<Entry> {
        self.stubs_by_code.get(&code).and_then(|index| self.get(*index)).map(|(entry, _)| entry)
    }

    pub(super) fn landings(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.landings.iter().map(|(page, place)| (*page, *place))
    }

    /// Places that landing pages show, the highest first.
    pub(super) fn landing_places(&self) -> impl Iterator<Item = u64> + '_ {
        self.landing_places.iter().rev().copied()
    }

    pub(super) fn landing(&self, page: u64) -> Option<u64> {
        self.landings.get(&page).copied()
    }

    /// The newest patches at this address, at most `limit`.
    pub(super) fn patches_at(&self, address: u64, limit: usize) -> Vec<Entry> {
        let indices = self.patches.get(&address).map_or(&[][..], Vec::as_slice);
        indices
            .iter()
            .rev()
            .filter_map(|index| self.get(*index))
            .map(|(entry, _)| entry)
            .take(limit)
            .collect()
    }

    pub(super) fn relocations(&self) -> &HashSet<u64> {
        &self.relocations
    }
}
