//! A short look at processes that do nothing: whether a whole one would find anything to do. It asks for one byte of each
//! site and a few questions of each process, and reads no text of `/proc` of those whose dynamic linkers tell what they load.

use super::Session;
use crate::libraries::LIBRARY_PROBE;
use crate::patch::Found;
use crate::process;
use crate::sandbox;
use crate::traced::{Health, Traced};
use std::collections::HashSet;

impl Session {
    /// Whether nothing has happened to the processes that the kernel, their dynamic linkers and a short look can tell of. What
    /// they cannot tell ([`Session::look_after`] sees it) are capabilities and groups given up, and programs of which the
    /// kernel lost word. False where one of these tells nothing.
    pub fn is_undisturbed(&mut self) -> bool {
        self.drain_events();
        if self.missed_execs.has_news() || self.has_library_news() || !self.missed_execs.is_told_all() {
            return false;
        }
        let known: HashSet<i32> =
            self.traced.iter().map(|t| t.pid).chain(self.given_up.iter().map(|(pid, _)| *pid)).collect();
        // Without children they are nobody's concern, but for the ring that they have from their parent.
        !self.missed_execs.family().any(|pid| !known.contains(&(pid as i32)))
            && !self.without_children
            && self.identities.values().all(|identity| identity.is_as_told())
            && self.traced.iter().all(is_undisturbed)
    }
}

fn is_undisturbed(traced: &Traced) -> bool {
    let is_well = |address: u64| traced.health.get(&address).is_none_or(|h| *h == Health::Well);
    let is_told = traced.sites.iter().any(|site| site.probe == LIBRARY_PROBE);
    let is_as_large = || {
        let n_pages = traced.seen_at.map(|(n_pages, _)| n_pages);
        n_pages.is_some() && process::n_pages(traced.pid) == n_pages
    };
    let first = traced.seen.first().map_or(0, |m| m.0);
    let is_there = || traced.memory.read(first, &mut [0]).is_ok();
    let is_settled = !traced.is_early && !traced.is_unannounced && traced.seen_at.is_some();
    is_settled
        && (is_told || is_as_large() && is_there())
        && sandbox::restraint_of(traced) & !traced.restraint == 0
        && traced.sites.iter().all(|site| {
            // After an exec or the end the memory is nobody's, and nothing of ours is found.
            is_well(site.address)
                && site.patch.found(&traced.memory).is_ok_and(|found| found == Found::Ours)
                && !site.is_reset(&traced.memory)
        })
}
