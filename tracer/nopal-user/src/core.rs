//! What all processes of a session share: rings, stub spaces, stubs, and the files that were read.

use super::domains::Domains;
use super::error::{Error, Result};
use super::libraries::Loaders;
use super::neighbourhood::{self, Neighbourhood};
use super::ring::{RingConfig, RingLayout};
use super::sandbox::ForbidderFiles;
use super::stub::chain::PlacedStub;
use super::stub::space::{self, ObjectIdentity};
use super::wanted::{LazyFixed, Select, WantedObject};
use nopal_capture::{Action, Capture, RecordLayout};
use nopal_proc::MappedObject;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What all processes of a session share.
pub struct Core {
    pub domains: Domains,
    /// Tells the session from all others.
    pub generation: u64,
    pub neighbourhoods: Vec<Neighbourhood>,
    /// Inodes of stub spaces we have replaced by copies for the processes of a ring, and which copy.
    pub adopted: HashMap<(u64, usize), usize>,
    /// By process: events that somebody else opens there, which must not be told twice.
    pub elsewhere: HashMap<i32, HashSet<u32>>,
    /// By inode of the neighbourhood.
    pub sessions: HashMap<u64, space::Session>,
    /// By neighbourhood and address of the site; whether it is in the chain.
    pub stubs: HashMap<(u64, u64), (PlacedStub, bool)>,
    pub layouts: HashMap<u32, RecordLayout>,
    pub(super) loaders: Loaders,
    forbidders: ForbidderFiles,
    pub(super) can_relocate: bool,
    /// Asks whether what is refused here can be opened otherwise, and what came of it.
    other_door: fn() -> bool,
    has_other_door: Option<bool>,
    select: Select,
    objects: HashMap<(u64, u64), Option<Arc<ReadObject>>>,
    /// By process: files it maps that could not be opened.
    pub(super) unreadable: Vec<(u32, PathBuf)>,
}

struct ReadObject {
    object: nopal_sdt::Object,
    sites: Arc<Vec<u64>>,
    fixed: Arc<LazyFixed>,
    /// The same with the edges of functions that were wanted last: one look for all processes that map the file.
    fixed_of_edges: Mutex<Option<Arc<LazyFixed>>>,
    device: u64,
    build_id: u64,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("neighbourhoods", &self.neighbourhoods.len()).finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(
        ring: &RingConfig,
        max_rings: Option<usize>,
        can_relocate: bool,
        other_door: fn() -> bool,
        select: Select,
    ) -> Result<Core> {
        let domains = Domains::new(ring, max_rings)?;
        let generation = domains.rings().get(0).map_or(0, |ring| ring.generation());
        Ok(Core {
            domains,
            generation,
            neighbourhoods: Vec::new(),
            adopted: HashMap::new(),
            elsewhere: HashMap::new(),
            sessions: HashMap::new(),
            stubs: HashMap::new(),
            layouts: HashMap::new(),
            loaders: Loaders::default(),
            forbidders: ForbidderFiles::default(),
            can_relocate,
            other_door,
            has_other_door: None,
            select,
            objects: HashMap::new(),
            unreadable: Vec::new(),
        })
    }

    /// After leaving: the spaces stay in the processes, but are no longer ours.
    pub(super) fn forget(&mut self) {
        self.neighbourhoods.clear();
        self.adopted.clear();
        self.sessions.clear();
        self.stubs.clear();
    }

    /// Whether what is refused here can be opened otherwise.
    pub(super) fn has_other_door(&mut self) -> bool {
        *self.has_other_door.get_or_insert_with(self.other_door)
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How all rings of the session are divided.
    pub(super) fn layout(&self) -> RingLayout {
        *self.domains.rings().layout()
    }

    /// The objects of a process that have wanted sites.
    pub(super) fn wanted_in(&mut self, pid: i32) -> Result<Vec<WantedObject>> {
        let mapped = nopal_proc::changeable_objects(pid as u32).map_err(|e| Error::of_target(pid, e))?;
        let loader = self.loaders.wanted_in(pid, &mapped);
        let forbidders = self.forbidders.wanted_in(pid, &mapped);
        let heap = self.forbidders.heap_of(pid, &mapped);
        let mut wanted = Vec::new();
        let mut thread_context = None;
        for object in mapped.into_iter().filter(|o| !o.path.starts_with(neighbourhood::MEMFD_NAME)) {
            let Some(read) = self.read_object(&object) else { continue };
            let mut sites = (self.select)(&object, &read.object);
            if let Some(events) = self.elsewhere.get(&pid) {
                sites.retain(|wanted| !events.contains(&wanted.event));
            }
            if sites.is_empty() {
                continue;
            }
            let contexts = sites.iter_mut().flat_map(|wanted| match &mut wanted.action {
                Action::Record { captures, .. } | Action::AggregateOrRecord { captures, .. } => {
                    &mut captures[..]
                }
                Action::Aggregate(_) | Action::Spans(_) | Action::Wait { .. } | Action::Restrain(_) => {
                    &mut []
                }
            });
            for capture in contexts {
                if let Capture::ThreadContext { offset } = capture {
                    let find = || nopal_proc::thread_context::offset(pid as u32).ok();
                    *offset = *thread_context.get_or_insert_with(find);
                }
            }
            let edges = sites.iter().filter_map(|wanted| wanted.site.edge.as_ref());
            let fixed = fixed_for(&read, &object, edges.map(|edge| edge.start).collect());
            for bias in object.load_biases(&read.object) {
                wanted.push(WantedObject {
                    path: object.path.clone(),
                    bias,
                    identity: ObjectIdentity {
                        device: read.device,
                        inode: object.mappings[0].inode,
                        build_id: read.build_id,
                        link_address: 0,
                    },
                    own_file: own_file(&object, bias.wrapping_add(sites[0].site.address)),
                    heap,
                    sites: sites.clone(),
                    all_sites: Arc::clone(&read.sites),
                    fixed: Arc::clone(&fixed),
                });
            }
        }
        // Nobody is entered for what may come only.
        if !wanted.is_empty() {
            wanted.extend(loader);
            wanted.extend(forbidders);
        }
        Ok(wanted)
    }

    /// Whether a file has wanted sites.
    pub(super) fn wants(&mut self, object: &MappedObject) -> bool {
        let Some(read) = self.read_object(object) else { return false };
        !(self.select)(object, &read.object).is_empty()
    }

    fn read_object(&mut self, object: &MappedObject) -> Option<Arc<ReadObject>> {
        let mapping = object.mappings.first()?;
        let device = libc::makedev(mapping.device_major, mapping.device_minor);
        let unreadable = &mut self.unreadable;
        self.objects
            .entry((device, mapping.inode))
            .or_insert_with(|| {
                let Ok(image) = object.open() else {
                    unreadable.push((object.pid, object.path.clone()));
                    return None;
                };
                let read = nopal_sdt::read(image.bytes()).ok()?;
                let mut sites: Vec<u64> =
                    read.probes.iter().flat_map(|p| p.sites.iter().map(|s| s.address)).collect();
                sites.sort_unstable();
                sites.dedup();
                let build_id = read
                    .build_id
                    .as_deref()
                    .and_then(|b| b.get(..8))
                    .map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
                let sites = Arc::new(sites);
                let fixed = Arc::new(LazyFixed::of(object, Arc::clone(&sites)));
                let fixed_of_edges = Mutex::default();
                Some(Arc::new(ReadObject { object: read, sites, fixed, fixed_of_edges, device, build_id }))
            })
            .clone()
    }
}

/// What is known of the instructions around sites: of those of probes, or of all where edges of functions are wanted, which
/// begin at `lines`.
fn fixed_for(read: &ReadObject, object: &MappedObject, lines: Vec<u64>) -> Arc<LazyFixed> {
    if lines.is_empty() {
        return Arc::clone(&read.fixed);
    }
    let mut all: Vec<u64> = read.sites.iter().copied().chain(lines).collect();
    all.sort_unstable();
    all.dedup();
    // A panic elsewhere leaves it whole.
    let mut known = read.fixed_of_edges.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some(fixed) if fixed.has_seen(&all) => Arc::clone(fixed),
        _ => Arc::clone(known.insert(Arc::new(LazyFixed::of(object, Arc::new(all))))),
    }
}

/// The stretch of the file's readable mappings that `address` lies in.
fn own_file(object: &MappedObject, address: u64) -> std::ops::Range<u64> {
    let mut stretch = 0..0;
    for mapping in object.mappings.iter().filter(|m| m.is_readable && !m.is_shared) {
        if mapping.start != stretch.end {
            stretch.start = mapping.start;
        }
        stretch.end = mapping.end;
        if stretch.contains(&address) {
            break;
        }
    }
    if !stretch.contains(&address) {
        return 0..0;
    }
    for mapping in object.mappings.iter().filter(|m| m.is_readable && !m.is_shared) {
        if mapping.start == stretch.end {
            stretch.end = mapping.end;
        }
    }
    stretch
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSymbol as _};

    #[test]
    fn a_file_is_looked_at_once_for_all_processes() {
        let mut core =
            Core::new(&RingConfig::sized(1, 1 << 16), None, false, || false, Box::new(|_, _| Vec::new()))
                .unwrap();
        let mapped = nopal_proc::mapped_objects(std::process::id()).unwrap();
        let libc = mapped.iter().find(|object| object.path.to_string_lossy().contains("libc.so")).unwrap();
        let image = libc.open().unwrap();
        let file = object::File::parse(image.bytes()).unwrap();
        let at = |name: &str| {
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
            symbol.unwrap().address()
        };
        let read = core.read_object(libc).unwrap();
        let lines = vec![at("malloc"), at("qsort")];
        let unread = fixed_for(&read, libc, lines.clone());
        assert!(
            !Arc::ptr_eq(&unread, &fixed_for(&read, libc, lines.clone())),
            "whose file it was may be gone"
        );
        let first = fixed_for(&read, libc, lines.clone());
        first.get();
        assert!(Arc::ptr_eq(&first, &fixed_for(&read, libc, lines.clone())));
        assert!(Arc::ptr_eq(&first, &fixed_for(&read, libc, vec![at("qsort")])), "some of them");
        assert!(!Arc::ptr_eq(&first, &fixed_for(&read, libc, vec![at("qsort"), at("free")])), "others");
    }
}
