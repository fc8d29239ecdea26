//! A stub space with its journal as a hostile program may leave it: it is refused, or all that is asked of it ends, stays
//! inside it, and it can be left and used again.
#![no_main]

use std::mem::offset_of;

use libfuzzer_sys::fuzz_target;
use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{
    JournalEntry, JournalKind, MAGIC, MAX_SESSIONS, NO_SESSION, PatchForm, StubSpace, VERSION,
};
use nopal_user::ring::memfd;
use nopal_user::stub::space::{Entry, ObjectIdentity, Space};
use nopal_user::stub::tail::Tail;

const ADDRESS: u64 = 0x5555_0000_0000;
const TOTAL_BYTES: usize = 64 << 10;
const MAX_ENTRIES: usize = 64;
const CODE_OFFSET: usize = 2 * PAGE_BYTES;

fuzz_target!(|data: &[u8]| {
    let Some((&[n_entries, is_header_whole], rest)) = data.split_first_chunk() else { return };
    let n_entries = usize::from(n_entries) % MAX_ENTRIES;
    let n_journal = n_entries * size_of::<JournalEntry>();
    let (header, rest) = rest.split_at(rest.len().min(200));
    let (journal, code) = rest.split_at(rest.len().min(n_journal));
    let mut bytes = vec![0; CODE_OFFSET + code.len().min(TOTAL_BYTES - CODE_OFFSET)];
    bytes[..header.len()].copy_from_slice(header);
    bytes[PAGE_BYTES..][..journal.len()].copy_from_slice(journal);
    let n_code = bytes.len() - CODE_OFFSET;
    bytes[CODE_OFFSET..].copy_from_slice(&code[..n_code]);
    if is_header_whole % 8 != 0 {
        // All but the sessions as it has to be, or hardly anything would be looked at.
        let words: [(usize, &[u8]); 10] = [
            (offset_of!(StubSpace, magic), &MAGIC.to_le_bytes()),
            (offset_of!(StubSpace, version), &VERSION.to_le_bytes()),
            (offset_of!(StubSpace, header_bytes), &(PAGE_BYTES as u32).to_le_bytes()),
            (offset_of!(StubSpace, total_bytes), &(TOTAL_BYTES as u64).to_le_bytes()),
            (offset_of!(StubSpace, address), &ADDRESS.to_le_bytes()),
            (offset_of!(StubSpace, journal_offset), &(PAGE_BYTES as u32).to_le_bytes()),
            (offset_of!(StubSpace, journal_capacity), &(MAX_ENTRIES as u32).to_le_bytes()),
            (offset_of!(StubSpace, code_offset), &(CODE_OFFSET as u32).to_le_bytes()),
            (offset_of!(StubSpace, journal_used), &(n_entries as u32).to_le_bytes()),
            (offset_of!(StubSpace, code_used), &(n_code as u32).to_le_bytes()),
        ];
        for (at, word) in words {
            bytes[at..at + word.len()].copy_from_slice(word);
        }
    }
    let file = memfd(c"nopal-fuzz").expect("there is memory");
    let Ok(space) = Space::copied(&file, ADDRESS, &bytes, TOTAL_BYTES) else { return };
    check(&space);
});

fn check(space: &Space) {
    assert!(space.bytes().len() <= space.len());
    space.fault_in().expect("there is memory");
    let entries: Vec<_> = space.entries().collect();
    for (index, entry, _) in &entries {
        assert!(space.find_entry(entry).is_some_and(|first| first <= *index));
        if let Some(site) = space.site(entry.address) {
            let _ = space.is_chained(&site);
            let _ = space.goes_on(entry.address, &Tail::to(ADDRESS));
        }
        let _ = space.landing_at(entry.address);
        for form in [PatchForm::Jump, PatchForm::Distance] {
            assert!(space.distances(entry.address, usize::from(entry.length), form).len() <= 16);
        }
    }
    for (_, place) in space.landings() {
        assert!(place + PAGE_BYTES as u64 <= space.len() as u64);
    }
    assert!(space.landing_places(4).len() <= 4);
    let _ = (space.relocations(), space.path(), space.left_session(4096), space.is_tight());
    for session in 0..MAX_SESSIONS as u16 {
        space.unlink_session(session);
        space.leave_session(session);
    }
    assert!(space.free_session().is_some());
    let disused = space.disused();
    let end = space.address() + space.len() as u64;
    assert!(
        disused.addresses(space.address()).iter().all(|range| range.start < range.end && range.end <= end)
    );
    space.reclaim(disused);
    let entry = Entry {
        kind: JournalKind::Patch,
        session: NO_SESSION,
        length: 1,
        address: ADDRESS - 4096,
        code: 0,
        slot: 0,
        extent: 0,
        pid: 0,
        object: ObjectIdentity::default(),
    };
    if let Ok(index) = space.journal(&entry) {
        assert_eq!(space.find_entry(&entry).map(|first| first <= index), Some(true));
    }
    let _ = space.add_site(ADDRESS - 8192, &Tail::to(ADDRESS), ObjectIdentity::default());
}
