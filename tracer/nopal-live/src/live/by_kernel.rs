//! The kernel door's side of a live session: what is armed where, and its records in the order of time.

use super::tracefs_door::TracefsDoor;
use super::{
    Door, Hit, LiveError, Loss, NotByKernel, NotByUser, Opened, StreamId, StreamKind, Way, closed, lock,
};
use crate::selection::Selection;
use nopal_capture::record::RecordKind;
use nopal_capture::{Action, Came, Task, Wanted};
use nopal_kernel::file_code::{FileCode, FileCodes};
use nopal_kernel::landed::Landed;
use nopal_kernel::refusal::Refusal;
use nopal_kernel::uprobes::{Link, Uprobes, drop_together};
use nopal_kernel::{CaptureSet, KernelDoor, KernelError, KernelSite, landed};
use nopal_proc::{FileId, changeable_objects};
use nopal_sdt::probe::{Side, Site};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Records that are put in order at a time: bounds what a poll keeps in memory.
const BATCH_RECORDS: usize = 1 << 14;
const MAX_BATCHES: usize = 1 << 12;
/// After this time the caller has its turn, which may have been told to stop.
const LONG_POLL: Duration = Duration::from_millis(100);

/// The kernel door's side: what is armed where.
#[derive(Debug)]
pub(crate) struct Kernel {
    door: Entrance,
    /// Inherited by event. Before the sets, which processes must have left.
    uprobes: Uprobes<u32>,
    /// By file, with the events it was prepared for.
    prepared: HashMap<(PathBuf, Vec<u32>), Prepared>,
    files: FileCodes,
    pub(crate) landed: Landed,
    /// By CPU: how many losses were reported, and when the last of them was.
    lost_seen: Vec<(u64, u64)>,
    /// Records of one poll, to be put in order.
    batch: Vec<(StreamId, u64, u32, Task, Vec<u8>)>,
    last_ns: HashMap<u32, u64>,
    /// Hits came faster than they were read, and the last poll left some.
    is_behind: bool,
}

/// What tells of hits.
#[derive(Debug)]
enum Entrance {
    Bpf(KernelDoor),
    Lines(Box<TracefsDoor>),
}

/// Sites that can be armed, and the events for which there is no program.
#[derive(Debug)]
struct Prepared {
    sets: Vec<CaptureSet>,
    refused: HashMap<u32, NotByKernel>,
}

/// What the kernel door did for one process.
#[derive(Debug, Default)]
pub(crate) struct ByKernel {
    pub opened: Vec<Opened>,
    /// Sites that were not armed before, so that hits may have been missed if the process was not just being attached.
    pub n_fresh: usize,
    /// Events of files that the process has unmapped meanwhile: none of them is open, nor told.
    pub unmapped: Vec<u32>,
}

impl Kernel {
    fn new(door: Entrance, follows_children: bool) -> Kernel {
        Kernel {
            uprobes: Uprobes::new(follows_children && matches!(door, Entrance::Bpf(_)), true),
            door,
            prepared: HashMap::new(),
            files: FileCodes::default(),
            landed: Landed::default(),
            lost_seen: Vec::new(),
            batch: Vec::new(),
            last_ns: HashMap::new(),
            is_behind: false,
        }
    }

    /// Whether children have the uprobes of their parents at once.
    pub(crate) fn is_inherited(&self) -> bool {
        self.uprobes.is_inherited() || matches!(self.door, Entrance::Lines(_))
    }

    /// Whether all that these processes start has an event from its beginning on.
    pub(crate) fn gives_all(&self, roots: &[u32], event: u32) -> bool {
        roots.iter().all(|root| self.uprobes.inherited.has(*root, event))
    }

    fn bpf(&self) -> Result<&KernelDoor, LiveError> {
        match &self.door {
            Entrance::Bpf(door) => Ok(door),
            Entrance::Lines(_) => {
                Err(LiveError::Kernel(KernelError::NotPermitted { what: "loading an eBPF program" }))
            }
        }
    }

    /// A child has what its parent had when it was forked; if that was in the very moment of joining, it must join, too.
    /// `root` is the ancestor of every process there is, if there is only one: a parent that has ended cannot be asked.
    pub(crate) fn inherit(&mut self, child: &nopal_proc::Process, root: Option<u32>) {
        self.uprobes.inherited.inherit(child, root);
    }

    /// Says that a process could not fork while it joined: all its children have what it has.
    pub(crate) fn was_held(&mut self, pid: u32) {
        self.uprobes.inherited.was_held(pid);
    }

    /// Waits until every child of those who have joined is either one that can be seen, or has what its parent has.
    pub(crate) fn settle(&self) {
        self.uprobes.inherited.settle();
    }

    /// A link outlives the program it was made for; what is inherited holds for the next program, too.
    pub(crate) fn exec(&mut self, pid: u32) {
        self.landed.forget(|other| other == pid);
        self.uprobes.exec(pid);
    }

    pub(crate) fn retain(&mut self, is_alive: impl Fn(&u32) -> bool) {
        self.uprobes.forget(|pid| !is_alive(&pid));
    }

    /// Disarms everything; what was recorded can still be polled.
    pub(crate) fn close(&mut self) {
        self.uprobes.close();
        drop_together(self.prepared.drain().collect());
        if let Entrance::Lines(lines) = &mut self.door {
            lines.close();
        }
    }

    /// Arms one site in one process, beside another tool that has it.
    pub(crate) fn share(
        &self,
        pid: u32,
        mapped: &nopal_proc::MappedObject,
        wanted: &Wanted,
    ) -> Result<Link, LiveError> {
        let door = self.bpf()?;
        let path = mapped.reachable_path().map_err(LiveError::Target)?;
        let Some(mut site) = kernel_site(wanted) else { return Err(LiveError::Target(gone(pid))) };
        let refused = |why| LiveError::Kernel(KernelError::Site(why));
        let file = FileCodes::default().read(mapped.open().map_err(LiveError::Target)?).map_err(refused)?;
        check(&file, &site.site).map_err(refused)?;
        door.link(&path, file.file(), &site, pid)
            .or_else(|_| {
                // The kernel keeps one semaphore for a place: the other tool's, which may be none.
                site.site.semaphore = None;
                door.link(&path, file.file(), &site, pid)
            })
            .map_err(LiveError::Kernel)
    }

    /// Arms sites of one file in a process, and where uprobes are inherited in all it forks.
    pub(crate) fn arm(
        &mut self,
        pid: u32,
        mapped: &nopal_proc::MappedObject,
        sites: Vec<(Wanted, NotByUser)>,
        done: &mut ByKernel,
    ) -> Result<(), LiveError> {
        let is_by_tracefs = matches!(self.door, Entrance::Lines(_));
        let opened_as = |wanted: Wanted, instead: NotByUser| Opened {
            pid,
            probe: wanted.probe,
            path: mapped.path.clone(),
            address: wanted.site.address,
            way: Way::Kernel { instead, is_by_tracefs },
        };
        let inherited = &self.uprobes.inherited;
        let (has, sites): (Vec<_>, Vec<_>) =
            sites.into_iter().partition(|(wanted, _)| inherited.has(pid, wanted.event));
        done.opened.extend(has.into_iter().map(|(wanted, why)| opened_as(wanted, why)));
        if sites.is_empty() {
            return Ok(());
        }
        let image = mapped.open().map_err(LiveError::Target)?;
        let file = self.files.read(image).map_err(|why| LiveError::Kernel(KernelError::Site(why)))?;
        let mut refused: HashMap<u32, NotByKernel> = HashMap::new();
        for (wanted, _) in &sites {
            if let Err(why) = check(&file, &wanted.site) {
                refused.insert(wanted.event, NotByKernel::Site(why));
            }
        }
        let places: Vec<u64> = sites.iter().map(|(wanted, _)| wanted.site.address).collect();
        let of_debugger = landed::of_debugger(mapped, &file, &places);
        for ((wanted, _), _) in sites.iter().zip(of_debugger).filter(|(_, is_so)| *is_so) {
            refused.entry(wanted.event).or_insert(NotByKernel::Site(Refusal::Debugger { pid }));
        }
        let safe: Vec<Wanted> = sites
            .iter()
            .map(|(wanted, _)| wanted)
            .filter(|w| !refused.contains_key(&w.event))
            .cloned()
            .collect();
        if !safe.is_empty() {
            refused.extend(self.attach(pid, mapped, file.file(), &safe)?);
        }
        // A library may have come and gone: then its uprobes are there when it comes again.
        let objects = nopal_proc::mapped_objects(pid).unwrap_or_default();
        if let Some(mapped) = objects.iter().find(|object| object.file() == mapped.file()) {
            let places: Vec<u64> = safe.iter().map(|wanted| wanted.site.address).collect();
            let missing = landed::missing(mapped, &file, &places);
            for (wanted, _) in safe.iter().zip(missing).filter(|(_, is_missing)| *is_missing) {
                let why = Refusal::NotInMemory { pid, n_missing: 1, n_sites: 1 };
                refused.entry(wanted.event).or_insert(NotByKernel::Site(why));
            }
            let names = safe.iter().map(|wanted| (&wanted.probe[..], wanted.site.address));
            self.landed.note(mapped, &file, names);
        }
        for (wanted, why) in sites {
            done.opened.push(match refused.remove(&wanted.event) {
                Some(kernel) => closed(pid, &wanted, why, Some(kernel)),
                None => {
                    done.n_fresh += 1;
                    opened_as(wanted, why)
                }
            });
        }
        Ok(())
    }

    /// Arms sites of one file; by event, why one is not armed.
    fn attach(
        &mut self,
        pid: u32,
        mapped: &nopal_proc::MappedObject,
        file: (u64, u64),
        sites: &[Wanted],
    ) -> Result<HashMap<u32, NotByKernel>, LiveError> {
        let door = match &mut self.door {
            Entrance::Bpf(door) => door,
            Entrance::Lines(lines) => {
                let refused = match lines.arm(pid, mapped, sites) {
                    Ok(refused) => refused,
                    Err(why) => sites.iter().map(|wanted| (wanted.event, why.clone())).collect(),
                };
                let events = sites.iter().map(|wanted| wanted.event);
                let armed: Vec<u32> = events.filter(|event| !refused.contains_key(event)).collect();
                self.uprobes.inherited.cover_all(pid, &armed);
                return Ok(refused);
            }
        };
        let key = (mapped.path.clone(), sites.iter().map(|wanted| wanted.event).collect::<Vec<u32>>());
        let path = mapped.reachable_path().map_err(LiveError::Target)?;
        let prepared = match self.prepared.entry(key) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(vacant) => {
                let kernel_sites: Vec<KernelSite> = sites.iter().filter_map(kernel_site).collect();
                let (sets, refused) = door.prepare(&path, file, &kernel_sites);
                let refused =
                    refused.into_iter().map(|(event, why)| (event, NotByKernel::Site(why))).collect();
                vacant.insert(Prepared { sets, refused })
            }
        };
        let mut refused = prepared.refused.clone();
        for set in &mut prepared.sets {
            match door.attach(&mut self.uprobes, set, &path, pid) {
                Ok(_) => {}
                // The kernel's word on these; the others are none the worse for it.
                Err(KernelError::Site(why)) => {
                    refused.extend(set.events().map(|event| (event, NotByKernel::Site(why.clone()))));
                }
                Err(error) => return Err(LiveError::Kernel(error)),
            }
        }
        Ok(refused)
    }

    /// Hands out some records in the order of time, and before them what was lost; tells how many.
    fn poll_batch(&mut self, lost: &mut Vec<Loss>, each: &mut impl FnMut(Came<'_>)) -> usize {
        let batch = &mut self.batch;
        let n_records = match &mut self.door {
            Entrance::Bpf(door) => door.poll(BATCH_RECORDS, |cpu, record| {
                let RecordKind::Event(event) = record.kind else { return };
                let (Some(ns), Some(task)) = (record.time, record.task) else { return };
                let stream = StreamId { ring: 0, cpu, kind: StreamKind::Kernel };
                batch.push((stream, ns, event, task, record.payload.to_vec()));
            }),
            Entrance::Lines(lines) => {
                lines.poll(|cpu, ns, event, task, payload| {
                    batch.push((
                        StreamId { ring: 0, cpu, kind: StreamKind::Kernel },
                        ns,
                        event,
                        task,
                        payload,
                    ));
                });
                // All there was has been read.
                0
            }
        };
        let n_told = lost.len();
        self.find_losses(lost);
        lost[n_told..].iter().for_each(|loss| each(Came::Loss(*loss)));
        // Programs of one CPU can come in between each other: their order in the buffer is almost that of time.
        self.batch.sort_by_key(|(_, ns, ..)| *ns);
        for (stream, ns, event, task, payload) in self.batch.drain(..) {
            let last = self.last_ns.entry(stream.cpu).or_default();
            *last = ns.max(*last);
            each(Came::Hit(Hit { stream, event, ns: *last, task, payload: &payload }));
        }
        n_records
    }

    /// Hands out the hits that have come, in the order of time, and what was lost meanwhile. However fast they come, it ends
    /// soon; the last poll, when no more come, leaves nothing.
    pub(crate) fn poll(&mut self, is_last: bool, lost: &mut Vec<Loss>, each: &mut impl FnMut(Came<'_>)) {
        let end = Instant::now() + LONG_POLL;
        self.is_behind = false;
        // More often than a full ring needs.
        for _ in 0..MAX_BATCHES {
            if self.poll_batch(lost, each) < BATCH_RECORDS {
                return;
            }
            if !is_last && Instant::now() >= end {
                self.is_behind = true;
                return;
            }
        }
    }

    /// All hits before this time have been handed out; without one, all that had come when the last poll began.
    pub(crate) fn read_until_ns(&self) -> Option<u64> {
        self.is_behind.then(|| self.last_ns.values().copied().max().unwrap_or(0))
    }

    /// What was lost since the last time.
    fn find_losses(&mut self, lost: &mut Vec<Loss>) {
        let losses = match &mut self.door {
            Entrance::Bpf(door) => door.loss(),
            Entrance::Lines(lines) => {
                let (count, now) = (lines.n_lost(), nopal_trace::clock::monotonic_ns());
                if count > 0 {
                    // Which CPU's they were, and when exactly, the lines do not tell.
                    let stream = StreamId { ring: 0, cpu: 0, kind: StreamKind::Kernel };
                    let first_ns = self.last_ns.values().copied().min().unwrap_or(now);
                    lost.push(Loss { stream, count, first_ns, last_ns: now });
                }
                return;
            }
        };
        let Ok(losses) = losses else { return };
        self.lost_seen.resize(losses.len(), (0, 0));
        for ((cpu, loss), (seen, seen_ns)) in losses.iter().enumerate().zip(&mut self.lost_seen) {
            if loss.n_lost > *seen {
                lost.push(Loss {
                    stream: StreamId { ring: 0, cpu: cpu as u32, kind: StreamKind::Kernel },
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

/// How the kernel door is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub door: Door,
    pub ring_bytes: u64,
    /// Not the descendants of a process.
    pub without_children: bool,
}

/// The kernel door has one ring for all CPUs, so it gets the room of several.
pub(super) fn ring_bytes(of_cpu: u64) -> u64 {
    of_cpu * 2
}

/// Whether the kernel door can be opened.
pub(super) fn can_open() -> bool {
    KernelDoor::open(0).is_ok()
}

/// Opens the kernel door unless it is open.
pub(crate) fn ensure(kernel: &mut Option<Kernel>, how: How) -> Result<(), KernelError> {
    if kernel.is_none() {
        let door = match KernelDoor::open(ring_bytes(how.ring_bytes) as usize) {
            Ok(door) => Entrance::Bpf(door),
            // The next best thing, if there is one.
            Err(error @ KernelError::NotPermitted { .. }) => match TracefsDoor::open() {
                Ok(lines) => Entrance::Lines(Box::new(lines)),
                Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        *kernel = Some(Kernel::new(door, !how.without_children));
    }
    Ok(())
}

/// Opens the sites of one process by the kernel door, which is opened itself if this is its first use.
pub(super) fn open_by_kernel<S: Selection>(
    kernel: &mut Option<Kernel>,
    selection: &Mutex<S>,
    how: How,
    pid: u32,
    sites: Vec<(Wanted, NotByUser)>,
) -> Result<ByKernel, LiveError> {
    let objects = changeable_objects(pid).map_err(LiveError::Target)?;
    open_objects(kernel, selection, how, objects, sites)
}

/// The same of files that one process maps, or has mapped.
pub(super) fn open_objects<S: Selection>(
    kernel: &mut Option<Kernel>,
    selection: &Mutex<S>,
    how: How,
    objects: Vec<nopal_proc::MappedObject>,
    sites: Vec<(Wanted, NotByUser)>,
) -> Result<ByKernel, LiveError> {
    let mut done = ByKernel::default();
    let Some(pid) = objects.first().map(|object| object.pid) else { return Ok(done) };
    match ensure(kernel, how) {
        Ok(()) => {}
        Err(error) if how.door == Door::Kernel => return Err(LiveError::Kernel(error)),
        Err(error) => {
            let why = NotByKernel::Door(Arc::new(error));
            let closed = |(w, user)| closed(pid, &w, user, Some(why.clone()));
            done.opened = sites.into_iter().map(closed).collect();
            return Ok(done);
        }
    }
    let kernel = kernel.as_mut().expect("opened just above");
    let mut by_file: HashMap<FileId, Vec<(Wanted, NotByUser)>> = HashMap::new();
    {
        let selection = lock(selection);
        for (wanted, reason) in sites {
            let Some(place) = selection.places().get(wanted.event) else { continue };
            by_file.entry(place.file).or_default().push((wanted, reason));
        }
    }
    for mapped in objects {
        let Some(sites) = mapped.file().and_then(|file| by_file.remove(&file)) else { continue };
        match kernel.arm(pid, &mapped, sites.clone(), &mut done) {
            Ok(()) => {}
            Err(LiveError::Target(_)) if has_unmapped(&mapped) => {
                done.unmapped.extend(sites.iter().map(|(wanted, _)| wanted.event));
            }
            // What is left of the user door's sites is not a failure of the whole.
            Err(LiveError::Kernel(error)) if how.door != Door::Kernel => {
                let why = NotByKernel::Door(Arc::new(error));
                let is_told = |w: &Wanted, done: &ByKernel| {
                    done.opened
                        .iter()
                        .any(|o| o.pid == pid && o.probe == w.probe && o.address == w.site.address)
                };
                for (wanted, user) in sites {
                    if !is_told(&wanted, &done) {
                        done.opened.push(closed(pid, &wanted, user, Some(why.clone())));
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    done.unmapped.extend(by_file.into_values().flatten().map(|(wanted, _)| wanted.event));
    Ok(done)
}

/// Whether a process that lives has given back the file since its mappings were read.
fn has_unmapped(mapped: &nopal_proc::MappedObject) -> bool {
    let objects = nopal_proc::mapped_objects(mapped.pid).unwrap_or_default();
    !objects.is_empty() && objects.iter().all(|object| object.file() != mapped.file())
}

/// Whether a uprobe at a site leaves the program as it is, and tells what is asked for.
fn check(file: &FileCode, site: &Site) -> Result<(), Refusal> {
    let Site { address, code, edge, .. } = site;
    let side = edge.as_ref().map(|edge| edge.side);
    if side == Some(Side::ConditionalTail) {
        return Err(Refusal::Conditional { address: *address });
    }
    if edge.is_some() && !file.is_instruction(*address) {
        return Err(Refusal::NotAnInstruction { address: *address });
    }
    let is_entry = matches!(side, Some(Side::Entry | Side::AnyReturn)) && file.is_function(*address);
    file.check(*address, code, is_entry)
}

fn gone(pid: u32) -> nopal_proc::TargetError {
    nopal_proc::TargetError::NoSuchProcess { pid }
}

fn kernel_site(wanted: &Wanted) -> Option<KernelSite> {
    let Action::Record { captures, .. } = &wanted.action else { return None };
    Some(KernelSite { event: wanted.event, site: wanted.site.clone(), captures: captures.clone() })
}
