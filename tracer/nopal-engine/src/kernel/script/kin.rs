//! Points that a process shares with all it forks: the uprobe events of [`inherited_uprobes`](crate::kernel::inherited_uprobes) with the programs
//! of clauses. A link of many uprobes holds for one process alone, and its children would be found only by looking for them.

use super::attach::Group;
use super::code::{ArgLayout, Kind, PAGE_BYTES, Which};
use super::load::Way;
use super::{ScriptDoor, ScriptError};
use crate::kernel::KernelError;
use crate::kernel::bpf::{self, LinkSite, MapKind};
use crate::kernel::inherited_uprobes::{self, Family, Member};
use crate::kernel::tracefs::{Place, Tracefs};
use crate::target;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Sites of one clause and file, armed in every process that joined and in its descendants.
#[derive(Debug)]
struct Kin {
    clause: usize,
    kind: Kind,
    /// Device and inode.
    file: (u64, u64),
    layouts: Vec<ArgLayout>,
    sites: Vec<LinkSite>,
    family: Family,
}

/// Who has which points by inheritance.
#[derive(Debug, Default)]
pub struct Kinship {
    /// Nothing without it.
    tracefs: Option<Arc<Tracefs>>,
    // Before their families: whoever goes last takes the events away.
    members: Vec<Member>,
    kins: Vec<Kin>,
    covered: HashMap<u32, Covered>,
}

/// What a process has.
#[derive(Debug, Clone, Default)]
struct Covered {
    /// Indices in [`Kinship::kins`].
    kins: HashSet<usize>,
    /// When it joined, in clock ticks since boot: children started later have the same.
    since_ticks: u64,
}

impl Kinship {
    pub fn new(tracefs: Option<Tracefs>) -> Kinship {
        Kinship { tracefs: tracefs.map(Arc::new), ..Kinship::default() }
    }

    pub fn is_possible(&self) -> bool {
        self.tracefs.is_some()
    }

    /// Takes the points from everybody.
    pub fn end(&mut self) {
        self.members.clear();
        self.kins.clear();
        self.covered.clear();
    }
}

impl ScriptDoor {
    /// Whether what a process forks has its points from the first instruction on.
    pub fn is_inherited(&self) -> bool {
        self.kinship.is_possible()
    }

    /// A child has what its parent had when it was forked; one that was forked while its parent joined must join itself.
    /// `root` is the ancestor of every process there is, if there is only one: a parent that has ended cannot be asked.
    pub fn inherit(&mut self, child: &target::Process, root: Option<u32>) {
        let covered = &mut self.kinship.covered;
        let known = covered.get(&child.parent).or_else(|| covered.get(&root?));
        if let Some(parent) = known.filter(|parent| child.start_time_ticks > parent.since_ticks) {
            let kins = parent.kins.clone();
            covered.entry(child.pid).or_insert(Covered { kins, since_ticks: 0 });
        }
    }

    /// Says that a process could not fork while it joined, since it was held.
    pub fn was_held(&mut self, pid: u32) {
        if let Some(covered) = self.kinship.covered.get_mut(&pid) {
            covered.since_ticks = 0;
        }
    }

    /// Waits until every child of those who have joined is either one that can be seen, or has what its parent has.
    pub fn settle(&self) {
        if let Some(last) = self.kinship.covered.values().map(|covered| covered.since_ticks).max() {
            inherited_uprobes::wait_until_after(last);
        }
    }

    /// Forgets processes that have ended; their numbers may come again.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        let stays = |pid: &Option<u32>| pid.is_none_or(|pid| !is_gone(pid));
        self.kinship.covered.retain(|pid, _| !is_gone(*pid));
        self.attached.retain(|(_, _, pid)| stays(pid));
        self.waiting.retain(|(_, _, pid)| stays(pid));
        self.refused.retain(|(_, _, pid), _| stays(pid));
        self.links.retain(|link| stays(&link.pid));
    }

    /// Arms sites in a process and in all it forks from now on; false if it has them already. `None` where the kernel has
    /// no such way.
    pub(super) fn join(
        &mut self,
        clause: usize,
        group: &Group,
        layouts: &[ArgLayout],
        sites: &[LinkSite],
        pid: u32,
    ) -> Option<bool> {
        let tracefs = Arc::clone(self.kinship.tracefs.as_ref()?);
        let file = group.found.binary.file();
        let is_same = |kin: &Kin| {
            (kin.clause, kin.kind, kin.file) == (clause, group.kind, file)
                && kin.layouts == layouts
                && kin.sites == sites
        };
        let index = match self.kinship.kins.iter().position(is_same) {
            Some(index) => index,
            None => {
                let family = self.found(&tracefs, clause, group, layouts, sites).ok()?;
                let (layouts, sites) = (layouts.to_vec(), sites.to_vec());
                self.kinship.kins.push(Kin { clause, kind: group.kind, file, layouts, sites, family });
                self.kinship.kins.len() - 1
            }
        };
        if self.kinship.covered.get(&pid).is_some_and(|covered| covered.kins.contains(&index)) {
            return Some(false);
        }
        let member = self.kinship.kins[index].family.join(pid).ok()?;
        let covered = self.kinship.covered.entry(pid).or_default();
        covered.kins.insert(index);
        covered.since_ticks = member.since_ticks;
        self.kinship.members.push(member);
        Some(true)
    }

    /// Loads the programs of sites and makes their events.
    fn found(
        &mut self,
        tracefs: &Arc<Tracefs>,
        clause: usize,
        group: &Group,
        layouts: &[ArgLayout],
        sites: &[LinkSite],
    ) -> Result<Family, ScriptError> {
        let in_words = |error: KernelError| ScriptError::Io {
            what: error.to_string(),
            error: std::io::ErrorKind::Other.into(),
        };
        let path = &group.found.path;
        let file = File::open(path)
            .map_err(|error| ScriptError::io(format!("opening {}", path.display()), error))?;
        let mut groups = Vec::new();
        for sites in told_apart(sites) {
            // The program keeps the table alive.
            let (which, _table) = match sites.iter().all(|site| site.cookie == sites[0].cookie) {
                true => (Which::Fixed(sites[0].cookie), None),
                false => {
                    let table = cookie_table(&sites)?;
                    (Which::Table(table.as_raw_fd()), Some(table))
                }
            };
            let program = self.load_as(clause, group.kind, which, layouts, Way::Family)?;
            let places: Vec<Place> = sites
                .iter()
                .map(|site| Place { file_offset: site.file_offset, ref_ctr_offset: site.ref_ctr_offset })
                .collect();
            let is_return = group.kind == Kind::Uretprobe;
            let program = &self.loaded[program].fd;
            groups.push(
                inherited_uprobes::Group::new(tracefs, &file, &places, is_return, program)
                    .map_err(in_words)?,
            );
        }
        Ok(Family::of(groups))
    }
}

fn page_offset(site: &LinkSite) -> u64 {
    site.file_offset % u64::from(PAGE_BYTES)
}

/// Divides sites so that in each part the place in its page tells which one was hit, or it does not matter which.
fn told_apart(sites: &[LinkSite]) -> Vec<Vec<LinkSite>> {
    let mut parts: Vec<Vec<LinkSite>> = Vec::new();
    for site in sites {
        let fits = |part: &&mut Vec<LinkSite>| {
            part.iter().all(|other| {
                other.file_offset != site.file_offset
                    && (page_offset(other) != page_offset(site) || other.cookie == site.cookie)
            })
        };
        match parts.iter_mut().find(fits) {
            Some(part) => part.push(*site),
            None => parts.push(vec![*site]),
        }
    }
    parts
}

/// The cookies by the place in the page.
fn cookie_table(sites: &[LinkSite]) -> Result<std::os::fd::OwnedFd, ScriptError> {
    let failed = |error| ScriptError::io("making a table of sites", error);
    let table = bpf::create_map(MapKind::Array, 4, 8, PAGE_BYTES, 0, "nopal_sites").map_err(failed)?;
    for site in sites {
        let key = (page_offset(site) as u32).to_le_bytes();
        bpf::update(&table, &key, &site.cookie.to_le_bytes()).map_err(failed)?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_that_cannot_be_told_apart_are_in_different_parts() {
        let site = |file_offset, cookie| LinkSite { file_offset, ref_ctr_offset: 0, cookie };
        let one = |part: &[u64]| vec![part.to_vec()];
        let two = |a: &[u64], b: &[u64]| vec![a.to_vec(), b.to_vec()];
        let cases = [
            (&[(0x1010, 7), (0x2010, 7)][..], one(&[0x1010, 0x2010])),
            (&[(0x1010, 7), (0x2010, 8)], two(&[0x1010], &[0x2010])),
            (&[(0x1010, 7), (0x2020, 8), (0x3020, 9)], two(&[0x1010, 0x2020], &[0x3020])),
            (&[(0x1010, 7), (0x1010, 7)], two(&[0x1010], &[0x1010])),
            (&[(0x1010, 7), (0x2010, 7), (0x3030, 8)], one(&[0x1010, 0x2010, 0x3030])),
        ];
        for (sites, want) in cases {
            let sites: Vec<LinkSite> = sites.iter().map(|(at, cookie)| site(*at, *cookie)).collect();
            let parts: Vec<Vec<u64>> =
                told_apart(&sites).iter().map(|part| part.iter().map(|s| s.file_offset).collect()).collect();
            assert_eq!(parts, want, "{sites:?}");
        }
    }
}
