//! The kernel door's side of a live session: what is armed where, and its records in the order of time.

use super::{Door, Hit, LiveError, Loss, Opened, Polled, StreamId, StreamKind, Way, both, closed, lock};
use crate::registry::Registry;
use nopal_engine::kernel::{ArmedObject, KernelDoor, KernelSite, Link};
use nopal_engine::target::{self, mapped_objects};
use nopal_engine::user::record::{RecordKind, Task};
use nopal_engine::user::session::Wanted;
use nopal_engine::user::stub::Action;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// The kernel door's side: what is armed where.
#[derive(Debug)]
pub(super) struct Kernel {
    door: KernelDoor,
    /// By file, with the events it was prepared for.
    prepared: HashMap<(PathBuf, Vec<u32>), ArmedObject>,
    pub links: HashMap<u32, Vec<Link>>,
    /// By CPU: how many losses were told of, and when the last of them was.
    lost_seen: Vec<(u64, u64)>,
    /// Records of one poll, to be put in order.
    batch: Vec<(StreamId, u64, u32, Task, Vec<u8>)>,
    last_ns: HashMap<u32, u64>,
}

impl Kernel {
    fn new(door: KernelDoor) -> Kernel {
        Kernel {
            door,
            prepared: HashMap::new(),
            links: HashMap::new(),
            lost_seen: Vec::new(),
            batch: Vec::new(),
            last_ns: HashMap::new(),
        }
    }

    fn arm(
        &mut self,
        pid: u32,
        mapped: &target::MappedObject,
        sites: Vec<(Wanted, String)>,
        door: Door,
        opened: &mut Vec<Opened>,
    ) -> Result<(), LiveError> {
        let events: Vec<u32> = sites.iter().map(|(w, _)| w.event).collect();
        let kernel_sites: Vec<KernelSite> = sites.iter().filter_map(|(w, _)| kernel_site(w)).collect();
        let key = (mapped.path.clone(), events);
        let mut reasons: HashMap<u32, String> = HashMap::new();
        if !self.prepared.contains_key(&key) {
            let (object, refused) = self.door.prepare(&kernel_sites).map_err(LiveError::Kernel)?;
            reasons = refused.into_iter().map(|(event, error)| (event, error.to_string())).collect();
            self.prepared.insert(key.clone(), object);
        }
        let path = mapped.reachable_path().map_err(LiveError::Target)?;
        match self.door.arm(&self.prepared[&key], &path, pid) {
            Ok(link) => self.links.entry(pid).or_default().push(link),
            Err(error) if door == Door::Kernel => return Err(LiveError::Kernel(error)),
            Err(error) => {
                opened.extend(sites.iter().map(|(w, why)| closed(pid, w, both(why, &error.to_string()))));
                return Ok(());
            }
        }
        for (wanted, why) in sites {
            opened.push(match reasons.remove(&wanted.event) {
                Some(reason) => closed(pid, &wanted, both(&why, &reason)),
                None => Opened {
                    pid,
                    probe: wanted.probe,
                    path: mapped.path.clone(),
                    address: wanted.site.address,
                    way: Way::Kernel(why),
                },
            });
        }
        Ok(())
    }

    pub fn poll(
        &mut self,
        registry: &Registry,
        polled: &mut Polled,
        each: &mut impl FnMut(&Registry, Hit<'_>),
    ) {
        let batch = &mut self.batch;
        self.door.poll(|cpu, record| {
            let RecordKind::Event(event) = record.kind else { return };
            let (Some(ns), Some(task)) = (record.time, record.task) else { return };
            let stream = StreamId { cpu, kind: StreamKind::Kernel };
            batch.push((stream, ns, event, task, record.payload.to_vec()));
        });
        // Programs of one CPU can come in between each other: their order in the buffer is almost that of time.
        self.batch.sort_by_key(|(_, ns, ..)| *ns);
        for (stream, ns, event, task, payload) in self.batch.drain(..) {
            let last = self.last_ns.entry(stream.cpu).or_default();
            *last = ns.max(*last);
            let hit = Hit { stream, event, ns: *last, task, payload: &payload };
            if registry.holds(&hit) {
                polled.n_hits += 1;
                each(registry, hit);
            }
        }
        let Ok(losses) = self.door.loss() else { return };
        self.lost_seen.resize(losses.len(), (0, 0));
        for ((cpu, loss), (seen, seen_ns)) in losses.iter().enumerate().zip(&mut self.lost_seen) {
            if loss.n_lost > *seen {
                polled.losses.push(Loss {
                    stream: StreamId { cpu: cpu as u32, kind: StreamKind::Kernel },
                    count: loss.n_lost - *seen,
                    // The program keeps the very first only; this gap begins after the one before.
                    first_ns: loss.first_ns.max(*seen_ns),
                    last_ns: loss.last_ns,
                });
                (*seen, *seen_ns) = (loss.n_lost, loss.last_ns);
            }
        }
    }
}

/// Opens the sites of one process by the kernel door, which is opened itself if this is its first use.
pub(super) fn open_by_kernel(
    kernel: &mut Option<Kernel>,
    registry: &Mutex<Registry>,
    door: Door,
    ring_bytes: u64,
    pid: u32,
    sites: Vec<(Wanted, String)>,
) -> Result<Vec<Opened>, LiveError> {
    if kernel.is_none() {
        // One ring for all CPUs, so it gets the room of several.
        match KernelDoor::open(ring_bytes as usize * 2) {
            Ok(opened) => *kernel = Some(Kernel::new(opened)),
            Err(error) if door == Door::Kernel => return Err(LiveError::Kernel(error)),
            Err(error) => {
                return Ok(sites
                    .iter()
                    .map(|(w, why)| closed(pid, w, both(why, &error.to_string())))
                    .collect());
            }
        }
    }
    let kernel = kernel.as_mut().expect("opened just above");
    let registry = lock(registry);
    let mut opened = Vec::new();
    let mut by_path: HashMap<PathBuf, Vec<(Wanted, String)>> = HashMap::new();
    for (wanted, reason) in sites {
        let path = registry.events[wanted.event as usize].path.clone();
        by_path.entry(path).or_default().push((wanted, reason));
    }
    for mapped in mapped_objects(pid).map_err(LiveError::Target)? {
        let Some(sites) = by_path.remove(&mapped.path) else { continue };
        kernel.arm(pid, &mapped, sites, door, &mut opened)?;
    }
    Ok(opened)
}

fn kernel_site(wanted: &Wanted) -> Option<KernelSite> {
    let Action::Record { captures, .. } = &wanted.action else { return None };
    Some(KernelSite { event: wanted.event, site: wanted.site.clone(), captures: captures.clone() })
}
