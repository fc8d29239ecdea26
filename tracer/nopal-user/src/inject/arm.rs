//! The changes themselves: landing pages, rights, the journal, semaphores, stubs in their chains, and last the code.

use super::{EXECUTABLE, FREE, PAGE, RELOCATION_TRIES, Ready, SHARED, WRITABLE, Work};
use crate::error::{Error, Result};
use crate::hijack::{Call, check};
use crate::leave::settle;
use crate::ledger::Ledger;
use crate::pass_fd::Caller;
use crate::patch::{Direction, Found, Patch, apply};
use crate::relocate::{pages_of, protect};
use crate::stub::space::{Entry, ObjectIdentity};
use crate::tactic::{Refusal, Tactic};
use crate::traced::OpenSite;
use crate::wanted::SiteReport;
use nopal_abi::stub_space::{JournalKind, NO_SESSION};
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// While a slice of calls is made, one thread of the program stands still: so long, as far as the slice before tells.
const SLICE: Duration = Duration::from_millis(1);
/// Of the first slice, which nothing is known of yet, and of the longest.
const FIRST_CALLS: usize = 32;
const MOST_CALLS: usize = 256;

/// How many calls fit into a slice if so many took that long. A slice that took long by chance must not make all others tiny.
fn calls_of_a_slice(n_made: usize, took: Duration) -> usize {
    let fit = n_made as u128 * SLICE.as_nanos() / took.as_nanos().max(1);
    usize::try_from(fit).unwrap_or(MOST_CALLS).clamp((n_made / 2).max(8), MOST_CALLS)
}

impl Work<'_, '_> {
    pub(super) fn map_landings(&mut self, ready: &mut Vec<Ready>, reports: &mut [SiteReport]) -> Result<()> {
        for at in 0..self.core.neighbourhoods.len() {
            let n = &self.core.neighbourhoods[at];
            let mut pages: Vec<u64> = ready
                .iter()
                .filter(|r| r.neighbourhood == at)
                .flat_map(|r| r.landing_pages.clone())
                .collect();
            pages.sort_unstable();
            pages.dedup();
            let missing: Vec<(u64, u64)> = pages
                .into_iter()
                .filter_map(|page| Some((page, n.space.landing_at(page)?)))
                .filter(|(page, _)| self.maps.find(*page).is_none())
                .collect();
            if missing.is_empty() {
                continue;
            }
            n.fault_in()?;
            let file = n.file().try_clone_to_owned().map_err(Error::io("keep the stub space open"))?;
            let fd = self.pass(self.core.neighbourhoods[at].inode, file.as_fd())?;
            let calls: Vec<Call> = missing
                .iter()
                .map(|(page, offset)| {
                    Call::new("map", libc::SYS_mmap, [*page, PAGE, EXECUTABLE, SHARED | FREE, fd, *offset])
                })
                .collect();
            let results = self.calls_in_slices(&calls)?;
            for ((page, _), result) in missing.iter().zip(results) {
                if result as u64 == *page {
                    continue;
                }
                let by = format!(
                    "something mapped meanwhile ({})",
                    std::io::Error::from_raw_os_error(-result as i32)
                );
                ready.retain(|r| {
                    let is_hit = r.neighbourhood == at && r.landing_pages.contains(page);
                    if is_hit {
                        reports[r.report].outcome =
                            Err(Refusal::LandingTaken { address: *page, by: by.clone() });
                    }
                    !is_hit
                });
            }
        }
        Ok(())
    }

    /// Makes many calls, between which the borrowed thread runs on.
    pub(super) fn calls_in_slices(&mut self, calls: &[Call]) -> Result<Vec<i64>> {
        self.entered.widen(calls.len().min(MOST_CALLS), &self.maps)?;
        let mut results = Vec::with_capacity(calls.len());
        let (mut rest, mut n_calls) = (calls, FIRST_CALLS);
        while !rest.is_empty() {
            if !results.is_empty() {
                self.breathe()?;
            }
            let (some, behind) = rest.split_at(n_calls.min(rest.len()));
            self.entered.borrow()?;
            let since = Instant::now();
            results.extend(self.entered.calls(some)?);
            n_calls = calls_of_a_slice(some.len(), since.elapsed());
            rest = behind;
        }
        self.entered.narrow()?;
        Ok(results)
    }

    /// Moved instructions lie in pages that are writable: the kernel puts no breakpoint there, which would lead into the
    /// middle of the jump. Sites whose pages cannot be made so are given up.
    pub(super) fn unlock_pages(&mut self, ready: &mut Vec<Ready>, reports: &mut [SiteReport]) -> Result<()> {
        let mut pages: Vec<u64> = ready
            .iter()
            .filter(|r| r.site.tactic == Tactic::Relocate)
            .flat_map(|r| pages_of(r.site.address))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let calls: Vec<Call> = pages.iter().map(|page| protect(*page, EXECUTABLE | WRITABLE)).collect();
        if calls.is_empty() {
            return Ok(());
        }
        let results = self.entered.calls(&calls)?;
        let failed: Vec<u64> =
            pages.into_iter().zip(results).filter(|(_, result)| *result != 0).map(|(page, _)| page).collect();
        ready.retain(|r| {
            let is_hit = r.site.tactic == Tactic::Relocate
                && pages_of(r.site.address).iter().any(|page| failed.contains(page));
            if is_hit {
                let reason = "the system does not let code be changed by the program itself";
                reports[r.report].outcome = Err(Refusal::Stub(reason.into()));
            }
            !is_hit
        });
        Ok(())
    }

    /// Where a site could not be relocated after all, the others of its page are not either: see [`spare_kernel_pages`].
    fn give_back_pages(&mut self, ready: &[Ready], outcome: &mut [Option<Found>]) -> Result<()> {
        let relocated: Vec<usize> =
            (0..ready.len()).filter(|i| ready[*i].site.tactic == Tactic::Relocate).collect();
        let failed = relocated.iter().filter(|i| outcome[**i].is_some());
        let mut pages: Vec<u64> = failed.flat_map(|i| pages_of(ready[*i].site.address)).collect();
        // A session that was here before has its own reasons.
        if pages.is_empty() || self.core.neighbourhoods.iter().any(|n| n.sessions().len() > 1) {
            return Ok(());
        }
        while let Some(i) = relocated.iter().copied().find(|i| {
            outcome[*i].is_none() && pages_of(ready[*i].site.address).iter().any(|page| pages.contains(page))
        }) {
            let patch = std::slice::from_ref(&ready[i].site.patch);
            apply(self.entered.memory, patch, Direction::Out, &self.held())?;
            outcome[i] = Some(Found::Other(Vec::new()));
            pages.extend(pages_of(ready[i].site.address));
        }
        pages.sort_unstable();
        pages.dedup();
        let calls: Vec<Call> = pages.iter().map(|page| protect(*page, EXECUTABLE)).collect();
        for result in self.entered.calls(&calls)? {
            check(self.pid(), "make code read-only again", result)?;
        }
        Ok(())
    }

    /// What will be changed is written down before anything is.
    pub(super) fn journal_patches(&self, ready: &[Ready]) -> Result<()> {
        for r in ready {
            self.core.neighbourhoods[r.neighbourhood].journal_once(&Entry {
                kind: JournalKind::Patch,
                session: NO_SESSION,
                length: r.site.patch.original.len() as u16,
                address: r.site.patch.address,
                code: r.distance,
                slot: r.form as u32,
                extent: r.site.patch.address.wrapping_sub(r.site.address) as u32,
                pid: 0,
                object: ObjectIdentity::default(),
            })?;
        }
        Ok(())
    }

    /// Semaphores go up, each once for the session.
    pub(super) fn raise(&self, ready: &mut [Ready]) -> Result<()> {
        let semaphores: HashSet<u64> = ready.iter().filter_map(|r| r.site.semaphore).collect();
        for n in &self.core.neighbourhoods {
            if n.has_private_pages(&self.maps) {
                settle(self.entered.memory, n, |semaphore| semaphores.contains(&semaphore))?;
            }
        }
        for r in ready {
            let n = &self.core.neighbourhoods[r.neighbourhood];
            let (Some(session), Some(semaphore)) = (self.core.sessions.get(&n.inode), r.site.semaphore)
            else {
                continue;
            };
            let entry = Entry {
                kind: JournalKind::Semaphore,
                session: session.index,
                length: 1,
                address: semaphore,
                code: 0,
                slot: 0,
                extent: 0,
                pid: 0,
                object: ObjectIdentity::default(),
            };
            let index = n.journal_once(&entry)?;
            Ledger::new(self.entered.memory, n.ledger()).raise(index, semaphore)?;
            r.entry_semaphore = Some(index);
        }
        Ok(())
    }

    /// The session's stubs go into the chains of their sites.
    pub(super) fn link(&mut self, ready: &[Ready]) {
        for r in ready {
            let n = &self.core.neighbourhoods[r.neighbourhood];
            if self.core.sessions.contains_key(&n.inode)
                && let Some((stub, is_linked)) = self.core.stubs.get_mut(&(n.inode, r.site.address))
                && !*is_linked
            {
                n.space.link(stub);
                *is_linked = true;
            }
        }
    }

    /// The code itself. A site whose bytes are not as expected stays as it is, and its semaphore goes down again.
    pub(super) fn patch(&mut self, ready: Vec<Ready>, reports: &mut [SiteReport]) -> Result<Vec<OpenSite>> {
        let memory = self.entered.memory;
        let patches: Vec<Patch> = ready.iter().map(|r| r.site.patch.clone()).collect();
        let held = self.held();
        let mut outcome = apply(memory, &patches, Direction::In, &held)?;
        // A thread that stands between the instructions to be moved is soon past them, unless it is the borrowed one.
        for _ in 0..RELOCATION_TRIES {
            let is_stuck = |i: &usize| {
                ready[*i].site.tactic == Tactic::Relocate && outcome[*i] == Some(Found::Other(Vec::new()))
            };
            let stuck: Vec<usize> = (0..ready.len()).filter(is_stuck).collect();
            if stuck.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            let again: Vec<Patch> = stuck.iter().map(|i| patches[*i].clone()).collect();
            for (i, found) in stuck.into_iter().zip(apply(memory, &again, Direction::In, &held)?) {
                outcome[i] = found;
            }
        }
        self.give_back_pages(&ready, &mut outcome)?;
        let is_used = |semaphore| {
            ready
                .iter()
                .zip(&outcome)
                .any(|(r, found)| found.is_none() && r.site.semaphore == Some(semaphore))
        };
        for (r, _) in ready.iter().zip(&outcome).filter(|(_, found)| found.is_some()) {
            if let (Some(index), Some(semaphore)) = (r.entry_semaphore, r.site.semaphore)
                && !is_used(semaphore)
            {
                let n = &self.core.neighbourhoods[r.neighbourhood];
                Ledger::new(memory, n.ledger()).lower(index, semaphore)?;
            }
        }
        let mut sites = Vec::with_capacity(ready.len());
        for (r, found) in ready.into_iter().zip(outcome) {
            match found {
                None => sites.push(r.site),
                Some(found) => {
                    reports[r.report].outcome = Err(match found {
                        Found::Breakpoint => Refusal::Breakpoint,
                        Found::Other(bytes) if bytes.is_empty() => Refusal::ThreadInside,
                        Found::Other(bytes) => Refusal::BytesChanged { found: bytes },
                        Found::Ours | Found::Original | Found::FirstByteBack => {
                            Refusal::BytesChanged { found: Vec::new() }
                        }
                    });
                }
            }
        }
        Ok(sites)
    }
}

/// The kernel door opens nothing in a page that is writable: no site is relocated in one where another is left to it.
pub(super) fn spare_kernel_pages(ready: &mut Vec<Ready>, reports: &mut [SiteReport]) {
    loop {
        let refused = reports.iter().filter(|r| r.outcome.is_err());
        let pages: Vec<u64> = refused.map(|r| r.address & !(PAGE - 1)).collect();
        let before = ready.len();
        ready.retain(|r| {
            let is_hit = r.site.tactic == Tactic::Relocate
                && pages_of(r.site.address).iter().any(|page| pages.contains(page));
            if is_hit {
                let reason = "instructions beside those of a probe for the kernel door cannot be moved";
                reports[r.report].outcome = Err(Refusal::Stub(reason.into()));
            }
            !is_hit
        });
        if ready.len() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_as_long_as_the_last_one_tells() {
        for (n_made, took_us, n_next) in [
            // As planned, faster, and much slower than that.
            (32, 1000, 32),
            (32, 250, 128),
            (32, 10, MOST_CALLS),
            (200, 4000, 100),
            (200, 400_000, 100),
            (10, 50_000, 8),
            (5, 0, MOST_CALLS),
        ] {
            assert_eq!(
                calls_of_a_slice(n_made, Duration::from_micros(took_us)),
                n_next,
                "{n_made} {took_us}"
            );
        }
    }
}
