//! Which of a session's processes share a ring: those that could have written to each other's memory anyway, because they
//! have the same credentials. The others have rings of their own.

use super::credentials::Credentials;
use super::error::{Error, Result};
use super::maps::{Maps, is_memfd};
use super::process;
use super::ring::{self, RING_NAME, RingConfig, RingError, RingMemory, Rings};
use nopal_abi::ring::Mode;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// So many rings a session may have, whatever their size.
const FEW_RINGS: usize = 8;
/// And so many, if they are small.
const MAX_RINGS: usize = Rings::MAX;
const MAX_BYTES: u64 = 1 << 30;

/// One ring and whose it is.
#[derive(Debug)]
pub struct Domain {
    pub file: File,
    pub inode: u64,
    /// `None`: nobody's yet.
    owner: Option<Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    /// All with these credentials. Those that are guarded from their like have an origin besides: processes that were
    /// forked by one program, and had its ring when they became what they are, share the next one.
    Like { credentials: Credentials, origin: Option<Origin> },
    /// A process that is now this, now that.
    One { pid: i32, start_time: Option<u64> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By inode, as numbers are given again.
    Ring(u64),
    Process(i32, Option<u64>),
}

/// A process that a ring is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Tenant<'a> {
    pub pid: i32,
    pub credentials: &'a Credentials,
    /// The ring it has.
    pub now: Option<usize>,
    /// Whether it has changed so often that it is to have a ring to itself.
    pub is_restless: bool,
}

/// The rings of a session, by their number.
#[derive(Debug)]
pub struct Domains {
    config: RingConfig,
    /// Of a session with a budget.
    max_rings: Option<usize>,
    rings: Arc<Rings>,
    list: Vec<Option<Domain>>,
}

impl Domains {
    /// With the first ring, so that memory is known to suffice before anything is touched.
    pub fn new(config: &RingConfig, max_rings: Option<usize>) -> Result<Domains> {
        let (file, memory) = make(config)?;
        let inode = file.metadata().map_err(Error::io("look at the ring"))?.ino();
        let list = vec![Some(Domain { file, inode, owner: None })];
        Ok(Domains { config: *config, max_rings, rings: Rings::of(Arc::new(memory)), list })
    }

    pub fn rings(&self) -> &Arc<Rings> {
        &self.rings
    }

    pub fn get(&self, ring: usize) -> Option<&Domain> {
        self.list.get(ring)?.as_ref()
    }

    /// Every ring there is.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Domain)> {
        self.list.iter().enumerate().filter_map(|(ring, domain)| Some((ring, domain.as_ref()?)))
    }

    /// The rings of ours that a process has mapped, by itself or from its parent.
    pub fn mapped_in(&self, maps: &Maps) -> Vec<usize> {
        let is_ring = |r: &&nopal_proc::Mapping| r.is_shared && is_memfd(r, RING_NAME);
        let mut found: Vec<usize> = maps
            .ranges
            .iter()
            .filter(is_ring)
            .filter_map(|range| self.iter().find(|(_, d)| d.inode == range.inode).map(|(ring, _)| ring))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a process may keep the ring it has.
    pub fn is_at_home(&self, tenant: &Tenant<'_>) -> bool {
        match tenant.now.and_then(|ring| self.get(ring)).and_then(|domain| domain.owner.as_ref()) {
            Some(Owner::Like { credentials, .. }) => !tenant.is_restless && credentials == tenant.credentials,
            Some(Owner::One { pid, start_time }) => {
                *pid == tenant.pid && *start_time == process::start_time(tenant.pid)
            }
            None => false,
        }
    }

    /// The ring for a process, made if there is none for its like.
    pub fn ring_for(&mut self, tenant: &Tenant<'_>) -> Result<usize> {
        let Tenant { pid, credentials, now, is_restless } = *tenant;
        if let Some(ring) = now.filter(|_| self.is_at_home(tenant)) {
            return Ok(ring);
        }
        let start_time = process::start_time(pid);
        let origin = credentials.is_guarded().then(|| match now.and_then(|ring| self.get(ring)) {
            Some(domain) => Origin::Ring(domain.inode),
            None => Origin::Process(pid, start_time),
        });
        let owner = match is_restless {
            true => Owner::One { pid, start_time },
            false => Owner::Like { credentials: credentials.clone(), origin },
        };
        if let Some((ring, _)) = self.iter().find(|(_, domain)| domain.owner.as_ref() == Some(&owner)) {
            return Ok(ring);
        }
        if let Some(Some(first)) = self.list.first_mut()
            && first.owner.is_none()
        {
            first.owner = Some(owner);
            return Ok(0);
        }
        let n_rings = self.iter().count();
        let ring_bytes = self.rings.layout().total_bytes;
        let is_full = match self.max_rings {
            Some(max_rings) => n_rings >= max_rings.min(MAX_RINGS),
            None => {
                n_rings >= FEW_RINGS
                    && (n_rings >= MAX_RINGS || (n_rings as u64 + 1) * ring_bytes > MAX_BYTES)
            }
        };
        if is_full {
            return Err(Error::TooManyRings { pid, n_rings });
        }
        let (file, memory) = make(&self.config)?;
        let inode = file.metadata().map_err(Error::io("look at the ring"))?.ino();
        let ring = self.rings.add(Arc::new(memory)).ok_or(Error::TooManyRings { pid, n_rings })?;
        if ring >= self.list.len() {
            self.list.resize_with(ring + 1, || None);
        }
        self.list[ring] = Some(Domain { file, inode, owner: Some(owner) });
        Ok(ring)
    }

    /// The same; if there are too many, those that no process has any more make room.
    pub fn ring_with_room(&mut self, tenant: &Tenant<'_>) -> Result<usize> {
        if self.is_crowded() {
            self.retire_unused();
        }
        self.ring_for(tenant).or_else(|error| {
            self.retire_unused();
            self.ring_for(tenant).map_err(|_| error)
        })
    }

    /// Whether it is time to give up rings that have yet to be read, so that their numbers are free when they are needed.
    fn is_crowded(&self) -> bool {
        self.config.mode == Mode::Discard && self.iter().count() * 4 >= MAX_RINGS * 3
    }

    fn retire_unused(&mut self) {
        let used: HashSet<u64> = nopal_proc::processes()
            .into_iter()
            .filter(|process| process.pid != std::process::id())
            .filter_map(|process| Maps::read(process.pid as i32).ok())
            .flat_map(|maps| maps.ranges.iter().map(|range| range.inode).collect::<Vec<_>>())
            .collect();
        self.retire(|_, inode| used.contains(&inode));
    }

    /// Gives up the rings that `is_used` denies, so that there is room for others: what is in them is read first. Of those
    /// that are written over, the oldest goes with what it holds, as the oldest always does there.
    pub fn retire(&mut self, is_used: impl Fn(usize, u64) -> bool) {
        // What was gathered in cells stays there until the end.
        if self.config.cells_bytes != 0 {
            return;
        }
        if self.config.mode == Mode::Overwrite {
            let unused = self.iter().skip(1).filter(|(ring, domain)| !is_used(*ring, domain.inode));
            // What is yet to be read is not for being written over.
            let unused = unused.filter_map(|(ring, _)| Some((ring, self.rings.get(ring)?)));
            let oldest = unused.filter(|(_, memory)| memory.is_drained()).min_by_key(|(_, m)| m.made_at());
            if let Some((ring, memory)) = oldest {
                self.rings.retire(ring);
                self.rings.forget(ring);
                let domain = self.list.get_mut(ring).and_then(Option::take);
                // The reader has it mapped until it reads the next time; its memory goes now.
                domain.into_iter().for_each(|domain| ring::free(&domain.file, memory.layout().total_bytes));
            }
            return;
        }
        for (ring, slot) in self.list.iter_mut().enumerate().skip(1) {
            if slot.as_ref().is_some_and(|domain| !is_used(ring, domain.inode)) {
                *slot = None;
                self.rings.retire(ring);
            }
        }
    }
}

fn make(config: &RingConfig) -> Result<(File, RingMemory)> {
    let file: File = ring::memfd(c"nopal-ring").map_err(Error::io("make a memfd for the ring"))?.into();
    let memory = RingMemory::format(&file, config).map_err(|error| match error {
        RingError::Io { what, source } => Error::Io { what: what.into(), source },
        other => Error::Io { what: "make the ring".into(), source: std::io::Error::other(other.to_string()) },
    })?;
    Ok((file, memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::Reader;

    fn small() -> Domains {
        let mut config = RingConfig::new(1);
        (config.ring_bytes, config.sub_bytes) = (8 << 10, 4 << 10);
        (config.locked_ring_bytes, config.locked_sub_bytes) = (8 << 10, 4 << 10);
        Domains::new(&config, None).unwrap()
    }

    fn ring(domains: &mut Domains, pid: i32, credentials: &Credentials, now: Option<usize>) -> Result<usize> {
        domains.ring_for(&Tenant { pid, credentials, now, is_restless: false })
    }

    #[test]
    fn a_ring_is_shared_by_those_who_are_alike() {
        let mut domains = small();
        let [root, user] = [0, 33].map(|uid| Credentials::of_user(uid, true));
        let mut of = |pid, credentials, now| ring(&mut domains, pid, credentials, now).unwrap();
        assert_eq!((of(1, &root, None), of(2, &root, None), of(3, &root, Some(0))), (0, 0, 0));
        assert_eq!((of(4, &user, Some(0)), of(5, &user, None), of(4, &user, Some(1))), (1, 1, 1));
        // Workers of one program, which cannot be dumped, and a stranger who cannot either.
        let worker = Credentials::of_user(33, false);
        assert_eq!((of(6, &worker, Some(0)), of(7, &worker, Some(0)), of(8, &worker, Some(2))), (2, 2, 2));
        assert_eq!((of(9, &worker, None), of(10, &worker, None), of(9, &worker, Some(3))), (3, 4, 3));
        assert_eq!(of(11, &worker, Some(1)), 5, "of another program");
        // One that changes all the time has a ring to itself, and its children do not.
        let restless = Tenant { pid: 12, credentials: &user, now: Some(1), is_restless: true };
        assert_eq!(domains.ring_for(&restless).unwrap(), 6);
        let again = Tenant { credentials: &root, now: Some(6), ..restless };
        assert!(domains.is_at_home(&again));
        assert_eq!(ring(&mut domains, 13, &user, Some(6)).unwrap(), 1);
    }

    #[test]
    fn a_budget_holds_and_the_oldest_ring_that_nobody_has_makes_room() {
        let mut config = RingConfig { mode: Mode::Overwrite, ..RingConfig::new(1) };
        (config.ring_bytes, config.sub_bytes) = (8 << 10, 4 << 10);
        (config.locked_ring_bytes, config.locked_sub_bytes) = (8 << 10, 4 << 10);
        let mut domains = Domains::new(&config, Some(2)).unwrap();
        let user = |uid| Credentials::of_user(uid, true);
        assert_eq!(ring(&mut domains, 1, &user(0), None).unwrap(), 0);
        assert_eq!(ring(&mut domains, 2, &user(1), None).unwrap(), 1);
        assert!(matches!(ring(&mut domains, 3, &user(2), None), Err(Error::TooManyRings { n_rings: 2, .. })));
        domains.retire(|_, _| true);
        assert!(ring(&mut domains, 3, &user(2), None).is_err(), "it is in use");
        let [first, before] = [0, 1].map(|ring| domains.get(ring).unwrap().inode);
        domains.retire(|_, inode| inode == first);
        assert_eq!(ring(&mut domains, 3, &user(2), None).unwrap(), 1);
        assert_ne!(
            domains.get(1).unwrap().inode,
            before,
            "a process that kept the old one does not have the new one"
        );
        assert!(matches!(ring(&mut domains, 4, &user(1), None), Err(Error::TooManyRings { n_rings: 2, .. })));
    }

    #[test]
    fn rings_are_not_without_number_and_are_given_up() {
        let mut domains = small();
        let mut reader = Reader::new(Arc::clone(domains.rings()));
        let user = |uid| Credentials::of_user(uid, true);
        for uid in 0..MAX_RINGS as u32 {
            assert_eq!(ring(&mut domains, 1, &user(uid), None).unwrap(), uid as usize);
        }
        assert!(matches!(ring(&mut domains, 1, &user(1000), None), Err(Error::TooManyRings { .. })));
        reader.poll(|_, _| {});
        domains.retire(|ring, _| ring != 7 && ring != 9);
        assert!(ring(&mut domains, 1, &user(1000), None).is_err(), "not before they have been read");
        reader.poll(|_, _| {});
        reader.poll(|_, _| {});
        assert_eq!(ring(&mut domains, 1, &user(1000), None).unwrap(), 7);
        assert_eq!(ring(&mut domains, 1, &user(1001), None).unwrap(), 9);
        assert!(ring(&mut domains, 1, &user(1002), None).is_err());
    }
}
