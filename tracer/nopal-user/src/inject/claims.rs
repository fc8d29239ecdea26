//! Which bytes of the code belong to a jump: those that change, and those that are its distance. No other jump may change
//! any of them, whoever put it there.

use super::{Failure, Work};
use crate::distance::JUMP_BYTES;
use crate::tactic::{Refusal, Way};
use nopal_abi::stub_space::{JournalKind, PatchForm};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Longer than anything that is claimed at once.
const MAX_CLAIM: u64 = 32;

#[derive(Debug, Default)]
pub(super) struct Claims {
    /// By first byte: the end, and the site.
    claimed: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Neighbourhoods whose journals were read.
    read: HashSet<usize>,
}

fn claim_of(way: &Way) -> Range<u64> {
    let first = way.jump.min(way.patch - way.kept_len as u64);
    let end = (way.jump + JUMP_BYTES as u64).max(way.patch + way.patch_len as u64);
    first..end
}

impl Claims {
    fn put(&mut self, site: u64, bytes: Range<u64>) {
        self.claimed.entry(bytes.start).or_default().push((bytes.end, site));
    }

    pub(super) fn add(&mut self, site: u64, way: &Way) {
        self.put(site, claim_of(way));
    }

    fn is_free(&self, site: u64, bytes: &Range<u64>) -> bool {
        let near = self.claimed.range(bytes.start.saturating_sub(MAX_CLAIM)..bytes.end);
        !near.flat_map(|(_, claims)| claims).any(|(end, whose)| *end > bytes.start && *whose != site)
    }
}

impl Work<'_, '_> {
    /// Whether a way touches no jump of another site, of this session or any other.
    pub(super) fn check_claims(&mut self, at: usize, site: u64, way: &Way) -> Result<(), Failure> {
        if self.claims.read.insert(at) {
            let entries: Vec<_> = self.core.neighbourhoods[at].space.entries().collect();
            for (_, entry, _) in entries.into_iter().filter(|(_, e, _)| e.kind == JournalKind::Patch) {
                let Some(form) = PatchForm::from_code(entry.slot) else { continue };
                let kept = match form {
                    PatchForm::Jump | PatchForm::Relocated => 0,
                    PatchForm::Prefixed | PatchForm::Distance => 1,
                    PatchForm::FarDistance => 2,
                };
                let whose = entry.address.wrapping_sub(entry.extent as i32 as i64 as u64);
                let end = match form {
                    PatchForm::Distance | PatchForm::FarDistance => entry.address.wrapping_add(4),
                    PatchForm::Jump | PatchForm::Relocated | PatchForm::Prefixed => {
                        entry.address.wrapping_add(u64::from(entry.length).max(JUMP_BYTES as u64))
                    }
                };
                self.claims.put(whose, entry.address.wrapping_sub(kept)..end);
            }
        }
        match self.claims.is_free(site, &claim_of(way)) {
            true => Ok(()),
            false => Err(Failure::Site(Refusal::Crowded)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::tail::Tail;

    #[test]
    fn no_jump_touches_another_sites() {
        let mut claims = Claims::default();
        claims.add(0x1000, &Way::relocation(0x1000, Tail::ret()));
        for (site, at, is_free) in [
            (0x1005, 0x1005, true),
            (0x1004, 0x1004, false),
            (0xffb, 0xffb, true),
            (0xffc, 0xffc, false),
            // The same site may be opened again.
            (0x1000, 0x1000, true),
            (0x1000, 0x1002, true),
        ] {
            let way = Way::relocation(at, Tail::ret());
            assert_eq!(claims.is_free(site, &claim_of(&way)), is_free, "{site:#x} by {at:#x}");
        }
    }
}
