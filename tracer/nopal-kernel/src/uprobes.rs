//! Puts programs on sites of a file: in one process, in a process and all it forks, or wherever the file is mapped. The one
//! way for capture programs and for scripts; knows nothing of what the programs do.

use super::bpf::{self, LinkSite};
use super::inherited_uprobes::{Family, Inheritance};
use super::tracefs::{Place, Tracefs};
use nopal_proc::{Image, perf};
use std::hash::Hash;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Wherever a file is loaded, a site has the same place in its page.
pub(super) const PAGE_BYTES: u32 = 4096;

/// How a program gets to know which site was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way<'a> {
    /// A link of many uprobes, with a cookie for each.
    Multi,
    /// One event at these sites, which processes inherit: the place in its page tells which one, or it does not matter.
    Inherited(&'a [LinkSite]),
    /// The same, at these sites of an event that other programs have sites of, too.
    Shared(&'a [LinkSite]),
    /// A perf event for each site, with a cookie.
    Event,
}

/// Why sites could not be armed: there is no program for them, or the kernel says so.
#[derive(Debug)]
pub(super) enum AttachError<E> {
    Program(E),
    Kernel(io::Error),
}

/// Device and inode.
pub(crate) type FileId = (u64, u64);

/// Sites of one file that share programs.
#[derive(Debug)]
pub(super) struct SiteSet {
    /// Leads to the very file from here.
    pub path: PathBuf,
    /// Device and inode of what was looked at: by now the path may lead to something else, where the places would be others.
    file: FileId,
    pub is_return: bool,
    pub sites: Vec<LinkSite>,
    /// Made when the first process joins.
    family: Option<Family>,
}

impl SiteSet {
    pub(crate) fn new(path: &Path, file: FileId, is_return: bool, sites: Vec<LinkSite>) -> SiteSet {
        SiteSet { path: path.to_owned(), file, is_return, sites, family: None }
    }

    /// The very file, held so that nobody can put another in its place.
    fn open(&self) -> io::Result<Image> {
        let image = Image::open(&self.path).map_err(|error| io::Error::other(error.to_string()))?;
        match (image.device, image.inode) == self.file {
            true => Ok(image),
            false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
        }
    }
}

/// Uprobes of one process, or of all. Dropping it disarms them.
#[derive(Debug)]
pub struct Link {
    pid: Option<u32>,
    _fds: Vec<OwnedFd>,
}

/// All uprobes of a door. `K` names what a process can inherit.
#[derive(Debug)]
pub struct Uprobes<K> {
    /// Where uprobes can be inherited, and are to be.
    tracefs: Option<Arc<Tracefs>>,
    /// Links of many uprobes are used where the kernel has them; without, each site is a perf event.
    has_multi: bool,
    links: Vec<Link>,
    pub inherited: Inheritance<K>,
}

impl<K> Default for Uprobes<K> {
    /// Each process by itself.
    fn default() -> Self {
        Uprobes { tracefs: None, has_multi: true, links: Vec::new(), inherited: Inheritance::default() }
    }
}

impl<K: Copy + Eq + Hash> Uprobes<K> {
    /// `follows_children`: what a process forks is to have its uprobes at once, where the kernel can do that.
    pub fn new(follows_children: bool, has_multi: bool) -> Uprobes<K> {
        let tracefs = if follows_children { Tracefs::open().ok().map(Arc::new) } else { None };
        Uprobes { tracefs, has_multi, ..Uprobes::default() }
    }

    /// Whether children have the uprobes of their parents at once.
    pub fn is_inherited(&self) -> bool {
        self.tracefs.is_some()
    }

    /// Arms sites in a process, and where that is possible in all it forks from now on; without a process, wherever the
    /// file is mapped. False if the process has them from its parent. What it can inherit is called `keys`.
    pub(super) fn attach<E>(
        &mut self,
        set: &mut SiteSet,
        keys: &[K],
        pid: Option<u32>,
        mut load: impl FnMut(Way<'_>) -> Result<Arc<OwnedFd>, E>,
    ) -> Result<bool, AttachError<E>> {
        if let (Some(pid), Some(tracefs)) = (pid, &self.tracefs) {
            if keys.iter().all(|key| self.inherited.has(pid, *key)) {
                return Ok(false);
            }
            // If it fails, it does so for all processes alike, and each is armed alone.
            if set.family.is_none() {
                set.family = found(tracefs, set, &mut load).ok();
            }
            if let Some(family) = &set.family
                && self.inherited.join(family, pid, keys).is_ok()
            {
                return Ok(true);
            }
        }
        self.links.push(link(set, pid, self.has_multi, &mut load)?);
        Ok(true)
    }

    /// Makes one event of the sites of several sets, in the order in which their programs are to run at a site they share.
    pub(super) fn found_together<E>(
        &self,
        sets: &[&SiteSet],
        mut load: impl FnMut(usize, Way<'_>) -> Result<Arc<OwnedFd>, E>,
    ) -> Option<Family> {
        let (tracefs, first) = (self.tracefs.as_ref()?, sets.first()?);
        let image = first.open().ok()?;
        let mut sites: Vec<&LinkSite> = sets.iter().flat_map(|set| &set.sites).collect();
        sites.sort_by_key(|site| site.file_offset);
        sites.dedup_by_key(|site| site.file_offset);
        let places: Vec<Place> = sites.into_iter().map(place).collect();
        let load = |(index, set): (usize, &&SiteSet)| load(index, Way::Shared(&set.sites)).ok();
        let programs: Option<Vec<_>> = sets.iter().enumerate().map(load).collect();
        let mut family = Family::default();
        family.add(tracefs, image.file(), &places, first.is_return, &programs?).ok()?;
        Some(family)
    }

    /// The links of a process outlive the program they were made for; what it inherits holds for the next program, too.
    pub fn exec(&mut self, pid: u32) {
        self.links.retain(|link| link.pid != Some(pid));
    }

    /// Forgets processes that have ended; their numbers may come again.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.links.retain(|link| link.pid.is_none_or(|pid| !is_gone(pid)));
        self.inherited.forget(is_gone);
    }

    /// Disarms everything. Sets that processes have joined are to be dropped after this.
    pub fn close(&mut self) {
        drop_together(self.inherited.end());
        drop_together(std::mem::take(&mut self.links));
    }
}

/// Makes the events that processes inherit.
fn found<E>(
    tracefs: &Arc<Tracefs>,
    set: &SiteSet,
    load: &mut impl FnMut(Way<'_>) -> Result<Arc<OwnedFd>, E>,
) -> Result<Family, AttachError<E>> {
    let image = set.open().map_err(AttachError::Kernel)?;
    let mut family = Family::default();
    for sites in told_apart(&set.sites, usize::MAX) {
        let program = load(Way::Inherited(&sites)).map_err(AttachError::Program)?;
        let places: Vec<Place> = sites.iter().map(place).collect();
        family.add(tracefs, image.file(), &places, set.is_return, &[program]).map_err(AttachError::Kernel)?;
    }
    Ok(family)
}

fn place(site: &LinkSite) -> Place {
    Place { file_offset: site.file_offset, ref_ctr_offset: site.ref_ctr_offset }
}

/// One `uprobe_multi` link, or a perf event for each site where the kernel has none.
pub(super) fn link<E>(
    set: &SiteSet,
    pid: Option<u32>,
    has_multi: bool,
    load: &mut impl FnMut(Way<'_>) -> Result<Arc<OwnedFd>, E>,
) -> Result<Link, AttachError<E>> {
    let image = set.open().map_err(AttachError::Kernel)?;
    let path = format!("/proc/self/fd/{}", image.file().as_raw_fd());
    let path = bpf::c_path(Path::new(&path)).map_err(AttachError::Kernel)?;
    // A program that is refused for its own sake is refused below, too.
    if has_multi && let Ok(program) = load(Way::Multi) {
        match bpf::link_uprobes(&program, &path, &set.sites, pid.unwrap_or(0), set.is_return) {
            Ok(fd) => return Ok(Link { pid, _fds: vec![fd] }),
            // The kernel has none, as opposed to refusing this one.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {}
            Err(error) => return Err(AttachError::Kernel(error)),
        }
    }
    let program = load(Way::Event).map_err(AttachError::Program)?;
    let mut fds = Vec::new();
    for site in &set.sites {
        let event = perf_uprobe(&path, site, pid, set.is_return).map_err(AttachError::Kernel)?;
        fds.push(bpf::link_perf_event(&program, &event, site.cookie).map_err(AttachError::Kernel)?);
        fds.push(event);
    }
    Ok(Link { pid, _fds: fds })
}

/// A uprobe as a perf event; it counts in all threads of the process, since they share their memory.
fn perf_uprobe(
    path: &std::ffi::CStr,
    site: &LinkSite,
    pid: Option<u32>,
    is_return: bool,
) -> io::Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let event_type = kind.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let attr = perf::PerfAttr {
        event_type,
        config: u64::from(is_return) | site.ref_ctr_offset << 32,
        config1: path.as_ptr() as u64,
        config2: site.file_offset,
        sample_period: 1,
        ..perf::PerfAttr::default()
    };
    match pid {
        Some(pid) => perf::open(&attr, pid as i32, -1),
        None => perf::open(&attr, -1, 0),
    }
}

/// Where in its page a site is.
pub(super) fn page_offset(site: &LinkSite) -> u32 {
    (site.file_offset % u64::from(PAGE_BYTES)) as u32
}

/// Divides sites so that in each part the place in its page tells which one was hit, or it does not matter which.
pub(super) fn told_apart(sites: &[LinkSite], most: usize) -> Vec<Vec<LinkSite>> {
    let mut parts: Vec<Vec<LinkSite>> = Vec::new();
    for site in sites {
        let fits = |part: &&mut Vec<LinkSite>| {
            part.len() < most
                && part.iter().all(|other| {
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

/// Closing one uprobe waits for every CPU to have passed; many at once wait together.
pub fn drop_together<T: Send>(mut all: Vec<T>) {
    const THREADS: usize = 16;
    if all.len() <= 1 {
        return;
    }
    let share = all.len().div_ceil(THREADS);
    std::thread::scope(|scope| {
        while !all.is_empty() {
            let some = all.split_off(all.len().saturating_sub(share));
            // Where there is no room for a thread, they are dropped with what it was to do.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
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
            (9, &[(0x1010, 7), (0x2010, 7)][..], one(&[0x1010, 0x2010])),
            (9, &[(0x1010, 7), (0x2010, 8)], two(&[0x1010], &[0x2010])),
            (9, &[(0x1010, 7), (0x2020, 8), (0x3020, 9)], two(&[0x1010, 0x2020], &[0x3020])),
            (9, &[(0x1010, 7), (0x1010, 7)], two(&[0x1010], &[0x1010])),
            (9, &[(0x1010, 7), (0x2010, 7), (0x3030, 8)], one(&[0x1010, 0x2010, 0x3030])),
            (2, &[(0x1010, 7), (0x1020, 8), (0x1030, 9)], two(&[0x1010, 0x1020], &[0x1030])),
        ];
        for (most, sites, want) in cases {
            let sites: Vec<LinkSite> = sites.iter().map(|(at, cookie)| site(*at, *cookie)).collect();
            let parts: Vec<Vec<u64>> = told_apart(&sites, most)
                .iter()
                .map(|part| part.iter().map(|s| s.file_offset).collect())
                .collect();
            assert_eq!(parts, want, "{sites:?}");
        }
    }
}
