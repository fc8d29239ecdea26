//! Clauses that share an event. Closing an event that processes inherit waits for every CPU to have passed several times, and
//! the kernel closes one after the other: a script with hundreds of clauses would take half a minute to end. So the programs
//! of many clauses are put on one event with all their sites; each passes over the hits that are not its own.

use super::attach::Group;
use super::{Attached, ScriptDoor};
use crate::bpf::LinkSite;
use crate::inherited_uprobes::Family;
use crate::uprobes::{self, page_offset};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Clauses with a program each share events when there are more than so many.
const FEW: usize = 16;

/// A hit runs all programs of its event, about 40 ns for each that passes over it.
const MOST: usize = 16;

/// Sets whose programs share an event.
#[derive(Debug)]
pub(super) struct Bunch {
    /// In [`ScriptDoor::sets`].
    sets: Vec<usize>,
    family: Family,
}

impl ScriptDoor {
    /// Divides groups, which come last clause first, into those that are to share an event; the order within each, and of
    /// those that may have sites in common, stays.
    pub(super) fn bunches_of(&mut self, pid: Option<u32>, groups: Vec<Group>) -> Vec<Vec<Group>> {
        let can_share = pid.is_some() && self.uprobes.is_inherited();
        let kind = |group: &Group| (group.found.path.clone(), group.kind);
        let mut n_alike: HashMap<_, usize> = HashMap::new();
        for group in &groups {
            *n_alike.entry(kind(group)).or_default() += 1;
        }
        let mut bunches: Vec<(Vec<Group>, Option<Taken>)> = Vec::new();
        for group in groups {
            let kind_of_group = kind(&group);
            let most = n_alike[&kind_of_group].div_ceil(FEW).min(MOST);
            let set = self.set_of(&group);
            let is_inherited = pid.is_some_and(|pid| self.uprobes.inherited.has(pid, set));
            let can_share = can_share && most > 1 && !is_inherited && !group.is_odd;
            let sites = &self.sets[set].set.sites;
            let mut own = Taken::new();
            if !can_share || !take(&mut own, sites) {
                bunches.push((vec![group], None));
                continue;
            }
            let last = bunches.iter_mut().rfind(|(others, _)| kind(&others[0]) == kind_of_group);
            if let Some((others, Some(taken))) = last
                && others.len() < most
                && take(taken, sites)
            {
                others.push(group);
            } else {
                bunches.push((vec![group], Some(own)));
            }
        }
        bunches.into_iter().map(|(groups, _)| groups).collect()
    }

    /// Attaches several groups to a process by one event; false if that cannot be, and each is to be attached by itself.
    pub(super) fn attach_together(
        &mut self,
        pid: Option<u32>,
        groups: &[Group],
        states: &mut Vec<Attached>,
    ) -> bool {
        let (Some(pid), true) = (pid, groups.len() > 1) else { return false };
        // An event runs its programs first to last.
        let groups: Vec<&Group> = groups.iter().rev().collect();
        let sets: Vec<usize> = groups.iter().map(|group| self.set_of(group)).collect();
        let known = self.bunches.iter().position(|bunch| bunch.sets == sets);
        let Some(index) = known.or_else(|| {
            let family = self.found_together(&groups, &sets)?;
            self.bunches.push(Bunch { sets, family });
            Some(self.bunches.len() - 1)
        }) else {
            return false;
        };
        let Bunch { sets, family } = &self.bunches[index];
        if self.uprobes.inherited.join(family, pid, sets).is_err() {
            return false;
        }
        for group in groups {
            self.note_attached(Some(pid), group, true, states);
        }
        true
    }

    fn found_together(&mut self, groups: &[&Group], indices: &[usize]) -> Option<Family> {
        let path: &Path = &groups.first()?.found.path;
        let (mut sets, uprobes) = (std::mem::take(&mut self.sets), std::mem::take(&mut self.uprobes));
        for index in indices {
            sets[*index].set.path = path.to_owned();
        }
        let shared: Vec<_> = indices.iter().map(|index| &sets[*index].set).collect();
        let family = uprobes.found_together(&shared, |nth, way| {
            self.program_for(groups[nth].clause, groups[nth].kind, &sets[indices[nth]].layouts, way)
        });
        (self.sets, self.uprobes) = (sets, uprobes);
        family
    }

    pub(super) fn close_bunches(&mut self) {
        uprobes::drop_together(std::mem::take(&mut self.bunches));
    }
}

/// The sites of an event by their places in the page, by which programs know them.
type Taken = HashMap<u32, (u64, u64)>;

/// Adds sites; false, and nothing is added, if a place in the page would be that of two.
fn take(taken: &mut Taken, sites: &[LinkSite]) -> bool {
    let place = |site: &LinkSite| (site.file_offset, site.ref_ctr_offset);
    let fits = |site: &LinkSite| taken.get(&page_offset(site)).is_none_or(|known| *known == place(site));
    let own: HashSet<u32> = sites.iter().map(page_offset).collect();
    if own.len() < sites.len() || !sites.iter().all(fits) {
        return false;
    }
    taken.extend(sites.iter().map(|site| (page_offset(site), place(site))));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_page_tells_sites_of_an_event_apart() {
        let site = |file_offset| LinkSite { file_offset, ref_ctr_offset: 0, cookie: 0 };
        let cases = [
            (&[0x1010][..], &[0x1020][..], true),
            // Another clause at the same site.
            (&[0x1010], &[0x1010, 0x2020], true),
            (&[0x1010], &[0x2010], false),
            (&[0x1010], &[0x3020, 0x2010], false),
            (&[0x1010], &[0x2020, 0x3020], false),
        ];
        for (first, second, want) in cases {
            let sites = |all: &[u64]| all.iter().map(|at| site(*at)).collect::<Vec<_>>();
            let mut taken = Taken::new();
            assert!(take(&mut taken, &sites(first)));
            assert_eq!(take(&mut taken, &sites(second)), want, "{second:x?} beside {first:x?}");
        }
    }
}
