//! Sites and their chains of stubs in a stub space, drawn in [`nopal_abi::stub_space`].

use core::sync::atomic::{AtomicU64, Ordering};

use nopal_abi::stub_space::{JournalKind, JournalState, MAX_SESSIONS, NO_SESSION};

use super::asm::{Asm, Mem, rel32};
use super::space::{Entry, LINE, ObjectIdentity, Session, Space};
use super::tail::Tail;
use super::{Stub, StubError, StubSpec, generate};
use nopal_capture::record::RecordLayout;

/// A site that has its thunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Run-time address.
    pub address: u64,
    /// Address of the thunk, where landings jump to.
    pub thunk: u64,
    /// Address of the resume code.
    pub resume: u64,
    slot: u32,
}

/// A stub in the space.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedStub {
    pub site: Site,
    /// Address of its entry.
    pub entry: u64,
    pub layout: RecordLayout,
    next_slot: u32,
    journal: usize,
}

/// So many of a session's newest stubs for a site are compared with the one that is wanted: a forged journal has thousands.
const CANDIDATES: usize = 16;

impl Space {
    /// A word of the space, by offset; `None` beyond its end or off its alignment.
    fn word(&self, offset: u32) -> Option<&AtomicU64> {
        let offset = offset as usize;
        let is_inside = offset >= self.code_offset && offset.checked_add(8)? <= self.mapping.len();
        // SAFETY: inside the mapping and 8-aligned, as checked; we never hold another reference to it, and no other
        // process can write there.
        (is_inside && offset.is_multiple_of(8))
            .then(|| unsafe { AtomicU64::from_ptr(self.mapping.start().add(offset).cast()) })
    }

    /// The site's thunk, if it has one.
    pub fn site(&self, address: u64) -> Option<Site> {
        let entry = self.books().site(address)?;
        Some(Site {
            address,
            thunk: self.address + u64::from(entry.code),
            resume: self.address + u64::from(entry.extent),
            slot: entry.slot,
        })
    }

    /// Whether the site has this way on behind its stubs.
    pub fn goes_on(&self, address: u64, tail: &Tail) -> bool {
        self.site(address).is_some_and(|site| {
            let code = tail.encode(site.resume);
            code.is_ok_and(|code| self.holds((site.resume - self.address) as usize, &code))
        })
    }

    /// Where the thunk of a site is, or would be put.
    pub fn thunk(&self, address: u64) -> u64 {
        self.site(address).map_or_else(|| self.cursor().0 + LINE as u64, |site| site.thunk)
    }

    /// Makes thunk, slot and resume code, or finds those that are there. The slot leads to the resume code.
    pub fn add_site(&self, address: u64, tail: &Tail, object: ObjectIdentity) -> Result<Site, StubError> {
        if let Some(site) = self.site(address)
            && self.holds((site.resume - self.address) as usize, &tail.encode(site.resume)?)
        {
            return Ok(site);
        }
        // The slot, on a line of its own; the thunk; the resume code. Where `thunk` said it would be.
        let (at, offset) = self.cursor();
        let (thunk, resume) = (offset + LINE, offset + LINE + 8);
        let mut asm = Asm::new(at);
        asm.data(&(self.address + resume as u64).to_le_bytes());
        asm.align(LINE);
        asm.jmp_through(Mem::Near(at));
        asm.align(8);
        asm.data(&tail.encode(self.address + resume as u64)?);
        self.append(&asm.finish()?, LINE)?;
        let entry = Entry {
            kind: JournalKind::Site,
            session: NO_SESSION,
            length: 0,
            address,
            code: thunk as u32,
            slot: offset as u32,
            extent: resume as u32,
            pid: 0,
            object,
        };
        let index = self.journal(&entry)?;
        self.set_state(index, JournalState::InForce);
        Ok(Site {
            address,
            thunk: self.address + thunk as u64,
            resume: self.address + resume as u64,
            slot: offset as u32,
        })
    }

    /// Makes the session's stub for a site, or takes an old one that is byte for byte the same. It is not chained yet.
    pub fn add_stub(&self, site: &Site, session: &Session, spec: &StubSpec) -> Result<PlacedStub, StubError> {
        let old = self.books().stubs_of(site.address, session.index, JournalState::Undone, CANDIDATES);
        for (index, entry) in old {
            let address = self.address + u64::from(entry.code);
            let stub = generate(spec, &self.surroundings(session, address))?;
            if entry.slot == entry.code.wrapping_add(stub.next_slot)
                && self.holds_stub(entry.code as usize, &stub)
            {
                self.set_state(index, JournalState::Prepared);
                return Ok(self.placed(site, entry.code as usize, stub, index));
            }
        }
        let offset = self.place(|at| Ok(generate(spec, &self.surroundings(session, at))?.code))?;
        let stub = generate(spec, &self.surroundings(session, self.address + offset as u64))?;
        let index = self.journal(&Entry {
            kind: JournalKind::Stub,
            session: session.index,
            length: 0,
            address: site.address,
            code: offset as u32,
            slot: offset as u32 + stub.next_slot,
            extent: stub.code.len() as u32,
            pid: 0,
            object: ObjectIdentity::default(),
        })?;
        Ok(self.placed(site, offset, stub, index))
    }

    /// The session's stub for a site if it is in the chain already: in a copy of a space that has it.
    pub fn chained_stub(
        &self,
        site: &Site,
        session: &Session,
        spec: &StubSpec,
    ) -> Result<Option<PlacedStub>, StubError> {
        let chained = self.books().stubs_of(site.address, session.index, JournalState::InForce, CANDIDATES);
        for (index, entry) in chained {
            let stub = generate(spec, &self.surroundings(session, self.address + u64::from(entry.code)))?;
            if entry.slot == entry.code.wrapping_add(stub.next_slot)
                && self.holds_stub(entry.code as usize, &stub)
            {
                return Ok(Some(self.placed(site, entry.code as usize, stub, index)));
            }
        }
        Ok(None)
    }

    fn holds_stub(&self, offset: usize, stub: &Stub) -> bool {
        let slot = stub.next_slot as usize;
        self.holds(offset, &stub.code[..slot]) && self.holds(offset + slot + 8, &stub.code[slot + 8..])
    }

    fn placed(&self, site: &Site, offset: usize, stub: Stub, journal: usize) -> PlacedStub {
        PlacedStub {
            site: *site,
            entry: self.address + offset as u64,
            next_slot: offset as u32 + stub.next_slot,
            layout: stub.layout,
            journal,
        }
    }

    /// Puts the stub at the head of its site's chain.
    pub fn link(&self, stub: &PlacedStub) {
        let (Some(slot), Some(next)) = (self.word(stub.site.slot), self.word(stub.next_slot)) else { return };
        next.store(slot.load(Ordering::Acquire), Ordering::Release);
        slot.store(stub.entry, Ordering::Release);
        self.set_state(stub.journal, JournalState::InForce);
    }

    /// Takes the stub out of its site's chain. Threads that are inside go on through it.
    pub fn unlink(&self, stub: &PlacedStub) {
        self.unchain(stub.site.slot, stub.entry, stub.next_slot);
        self.set_state(stub.journal, JournalState::Undone);
    }

    /// Unchains every stub of a session, as its tracer would have done; for sessions whose tracer has died.
    pub fn unlink_session(&self, session: u16) {
        let stubs: Vec<_> = self
            .entries()
            .filter(|(_, entry, state)| {
                entry.kind == JournalKind::Stub && entry.session == session && *state != JournalState::Undone
            })
            .collect();
        for (index, entry, _) in stubs {
            if let Some(site) = self.site(entry.address) {
                self.unchain(site.slot, self.address + u64::from(entry.code), entry.slot);
            }
            self.set_state(index, JournalState::Undone);
        }
    }

    fn unchain(&self, mut slot: u32, entry: u64, next_slot: u32) {
        let Some(next) = self.word(next_slot).map(|word| word.load(Ordering::Acquire)) else { return };
        // No chain is longer than the sessions there can be; a damaged one must not hold us up.
        for _ in 0..=MAX_SESSIONS {
            let Some(word) = self.word(slot) else { return };
            let target = word.load(Ordering::Acquire);
            if target == entry {
                word.store(next, Ordering::Release);
                return;
            }
            let code = target.checked_sub(self.address).and_then(|code| u32::try_from(code).ok());
            match code.and_then(|code| self.books().stub_at(code)) {
                Some(old) => slot = old.slot,
                None => return,
            }
        }
    }

    /// Whether any session's stub is in the chain of this site.
    pub fn is_chained(&self, site: &Site) -> bool {
        self.word(site.slot).is_some_and(|word| word.load(Ordering::Acquire) != site.resume)
    }
}

/// What a landing at `from` holds: 5 bytes if the thunk is within reach, else 14.
pub fn landing(from: u64, thunk: u64) -> Vec<u8> {
    match rel32(from.wrapping_add(5), thunk) {
        Ok(offset) => [&[0xe9][..], &offset.to_le_bytes()].concat(),
        Err(_) => [&[0xff, 0x25, 0, 0, 0, 0][..], &thunk.to_le_bytes()].concat(),
    }
}
