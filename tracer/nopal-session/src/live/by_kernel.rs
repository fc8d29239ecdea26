//! The kernel door's side of a live session: what is armed where, and its records in the order of time.

use super::selection::{FileId, Selection, file_of};
use super::tracefs_door::{BY_TRACEFS, TracefsDoor};
use super::{Door, Hit, LiveError, Loss, Opened, StreamId, StreamKind, Way, both, closed, lock};
use nopal_capture::record::RecordKind;
use nopal_capture::{Action, Came, Task, Wanted};
use nopal_engine::kernel::inherited_uprobes::{self, Family, Member};
use nopal_engine::kernel::tracefs::Tracefs;
use nopal_engine::kernel::{ArmedObject, KernelDoor, KernelError, KernelSite, Link};
use nopal_engine::target::{self, changeable_objects};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Records that are put in order at a time: bounds what a poll keeps in memory.
const BATCH_RECORDS: usize = 1 << 14;
const MAX_BATCHES: usize = 1 << 12;

/// The kernel door's side: what is armed where.
#[derive(Debug)]
pub(crate) struct Kernel {
    door: Entrance,
    /// Where uprobes can be inherited, and are to be.
    tracefs: Option<Arc<Tracefs>>,
    links: HashMap<u32, Vec<Link>>,
    /// Also of processes that have ended: their descendants have what they have through them.
    members: Vec<Member>,
    /// By file, with the events it was prepared for. After the members, who must be gone before their family.
    prepared: HashMap<(PathBuf, Vec<u32>), Prepared>,
    /// By process: what it has through families, joined or inherited.
    covered: HashMap<u32, Covered>,
    /// By CPU: how many losses were told of, and when the last of them was.
    lost_seen: Vec<(u64, u64)>,
    /// Records of one poll, to be put in order.
    batch: Vec<(StreamId, u64, u32, Task, Vec<u8>)>,
    last_ns: HashMap<u32, u64>,
}

/// What tells of hits.
#[derive(Debug)]
enum Entrance {
    Bpf(KernelDoor),
    Lines(Box<TracefsDoor>),
}

/// What families give a process.
#[derive(Debug, Clone, Default)]
struct Covered {
    events: HashSet<u32>,
    /// When it joined, in clock ticks since boot; children started later have the same.
    since_ticks: u64,
}

/// Programs that are loaded, and the events for which there is none.
#[derive(Debug)]
struct Prepared {
    sites: Armable,
    refused: HashMap<u32, String>,
}

#[derive(Debug)]
enum Armable {
    /// For one process at a time.
    Alone(ArmedObject),
    /// For processes and their descendants.
    Family(Family),
}

/// What the kernel door did for one process.
#[derive(Debug, Default)]
pub(crate) struct ByKernel {
    pub opened: Vec<Opened>,
    /// Sites that were not armed before, so that hits may have been missed if the process was not just being attached.
    pub n_fresh: usize,
}

impl Kernel {
    fn new(door: Entrance, tracefs: Option<Tracefs>) -> Kernel {
        Kernel {
            door,
            tracefs: tracefs.map(Arc::new),
            links: HashMap::new(),
            members: Vec::new(),
            prepared: HashMap::new(),
            covered: HashMap::new(),
            lost_seen: Vec::new(),
            batch: Vec::new(),
            last_ns: HashMap::new(),
        }
    }

    /// Whether children have the uprobes of their parents at once.
    pub fn is_inherited(&self) -> bool {
        self.tracefs.is_some() || matches!(self.door, Entrance::Lines(_))
    }

    /// Whether all that these processes start has an event from its beginning on.
    pub fn gives_all(&self, roots: &[u32], event: u32) -> bool {
        roots.iter().all(|root| self.covered.get(root).is_some_and(|covered| covered.events.contains(&event)))
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
    pub fn inherit(&mut self, child: &target::Process, root: Option<u32>) {
        let known = self.covered.get(&child.parent).or_else(|| self.covered.get(&root?));
        match known {
            Some(covered) if child.start_time_ticks > covered.since_ticks => {
                let events = covered.events.clone();
                self.covered.entry(child.pid).or_insert(Covered { events, since_ticks: 0 });
            }
            _ => {}
        }
    }

    /// Says that a process could not fork while it joined: all its children have what it has.
    pub fn was_held(&mut self, pid: u32) {
        if let Some(covered) = self.covered.get_mut(&pid) {
            covered.since_ticks = 0;
        }
    }

    /// Waits until every child of those who have joined is either one that can be seen, or has what its parent has.
    pub fn settle(&self) {
        if let Some(last) = self.covered.values().map(|covered| covered.since_ticks).max() {
            inherited_uprobes::wait_until_after(last);
        }
    }

    /// A link outlives the program it was made for; what a family gives holds for the next program, too.
    pub fn exec(&mut self, pid: u32) {
        self.links.remove(&pid);
    }

    pub fn retain(&mut self, is_alive: impl Fn(&u32) -> bool) {
        self.links.retain(|pid, _| is_alive(pid));
        self.covered.retain(|pid, _| is_alive(pid));
    }

    /// Disarms everything; what was recorded can still be polled.
    pub fn close(&mut self) {
        self.links.clear();
        self.members.clear();
        self.prepared.clear();
        self.covered.clear();
        if let Entrance::Lines(lines) = &mut self.door {
            lines.close();
        }
    }

    /// Arms one site in one process, beside another tool that has it.
    pub fn share(&self, pid: u32, mapped: &target::MappedObject, wanted: &Wanted) -> Result<Link, LiveError> {
        let door = self.bpf()?;
        let path = mapped.reachable_path().map_err(LiveError::Target)?;
        let Some(mut site) = kernel_site(wanted) else { return Err(LiveError::Target(gone(pid))) };
        let arm = |site: &KernelSite| {
            let (object, mut refused) = door.prepare(std::slice::from_ref(site))?;
            match refused.pop() {
                Some((_, why)) => Err(why),
                None => door.arm(&object, &path, pid),
            }
        };
        arm(&site)
            .or_else(|_| {
                // The kernel keeps one semaphore for a place: the other tool's, which may be none.
                site.site.semaphore = None;
                arm(&site)
            })
            .map_err(LiveError::Kernel)
    }

    /// Arms sites of one file in a process, and where uprobes are inherited in all it forks.
    pub fn arm(
        &mut self,
        pid: u32,
        mapped: &target::MappedObject,
        sites: Vec<(Wanted, String)>,
        done: &mut ByKernel,
    ) -> Result<(), LiveError> {
        let opened_as = |wanted: Wanted, why: String| Opened {
            pid,
            probe: wanted.probe,
            path: mapped.path.clone(),
            address: wanted.site.address,
            way: Way::Kernel(why),
        };
        let covered = self.covered.get(&pid);
        let (has, sites): (Vec<_>, Vec<_>) =
            sites.into_iter().partition(|(w, _)| covered.is_some_and(|c| c.events.contains(&w.event)));
        done.opened.extend(has.into_iter().map(|(wanted, why)| opened_as(wanted, why)));
        if sites.is_empty() {
            return Ok(());
        }
        if let Entrance::Lines(lines) = &mut self.door {
            let wanted: Vec<Wanted> = sites.iter().map(|(wanted, _)| wanted.clone()).collect();
            let result = lines.arm(pid, mapped, &wanted);
            let covered = self.covered.entry(pid).or_default();
            for (wanted, why) in sites {
                let reason = match &result {
                    Ok(refused) => refused.get(&wanted.event),
                    Err(reason) => Some(reason),
                };
                done.opened.push(match reason {
                    Some(reason) => closed(pid, &wanted, both(&why, reason)),
                    None => {
                        done.n_fresh += 1;
                        covered.events.insert(wanted.event);
                        opened_as(wanted, both(&why, BY_TRACEFS))
                    }
                });
            }
            return Ok(());
        }
        let key = (mapped.path.clone(), sites.iter().map(|(w, _)| w.event).collect::<Vec<u32>>());
        let prepared = match self.prepared.get(&key) {
            Some(prepared) => prepared,
            None => {
                let prepared = self.prepare(mapped, &sites)?;
                self.prepared.entry(key).or_insert(prepared)
            }
        };
        match &prepared.sites {
            Armable::Alone(object) => {
                let path = mapped.reachable_path().map_err(LiveError::Target)?;
                let Entrance::Bpf(door) = &self.door else { return Ok(()) };
                let link = door.arm(object, &path, pid).map_err(LiveError::Kernel)?;
                self.links.entry(pid).or_default().push(link);
            }
            Armable::Family(family) => {
                let member = family.join(pid).map_err(LiveError::Kernel)?;
                let since_ticks = member.since_ticks;
                self.members.push(member);
                let covered = self.covered.entry(pid).or_default();
                covered.events.extend(sites.iter().map(|(w, _)| w.event));
                covered.since_ticks = since_ticks;
            }
        }
        for (wanted, why) in sites {
            done.opened.push(match prepared.refused.get(&wanted.event) {
                Some(reason) => closed(pid, &wanted, both(&why, reason)),
                None => {
                    done.n_fresh += 1;
                    opened_as(wanted, why)
                }
            });
        }
        Ok(())
    }

    fn prepare(
        &self,
        mapped: &target::MappedObject,
        sites: &[(Wanted, String)],
    ) -> Result<Prepared, LiveError> {
        let kernel_sites: Vec<KernelSite> = sites.iter().filter_map(|(w, _)| kernel_site(w)).collect();
        let in_words = |refused: Vec<(u32, KernelError)>| {
            refused.into_iter().map(|(event, error)| (event, error.to_string())).collect()
        };
        let door = self.bpf()?;
        if let Some(tracefs) = &self.tracefs {
            let path = mapped.reachable_path().map_err(LiveError::Target)?;
            // If it fails, it does so for all processes alike, and each is armed alone.
            if let Ok((family, refused)) = door.found_family(tracefs, &kernel_sites, &path) {
                return Ok(Prepared { sites: Armable::Family(family), refused: in_words(refused) });
            }
        }
        let (object, refused) = door.prepare(&kernel_sites).map_err(LiveError::Kernel)?;
        Ok(Prepared { sites: Armable::Alone(object), refused: in_words(refused) })
    }

    /// Hands out some records in the order of time, and before them what was lost; tells how many.
    fn poll_batch(&mut self, lost: &mut Vec<Loss>, each: &mut impl FnMut(Came<'_>)) -> usize {
        let batch = &mut self.batch;
        let n_records = match &mut self.door {
            Entrance::Bpf(door) => door.poll(BATCH_RECORDS, |cpu, record| {
                let RecordKind::Event(event) = record.kind else { return };
                let (Some(ns), Some(task)) = (record.time, record.task) else { return };
                let stream = StreamId { cpu, kind: StreamKind::Kernel };
                batch.push((stream, ns, event, task, record.payload.to_vec()));
            }),
            Entrance::Lines(lines) => {
                lines.poll(|cpu, ns, event, task, payload| {
                    batch.push((StreamId { cpu, kind: StreamKind::Kernel }, ns, event, task, payload));
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

    /// Hands out the hits that have come, in the order of time, and what was lost meanwhile.
    pub fn poll(&mut self, lost: &mut Vec<Loss>, each: &mut impl FnMut(Came<'_>)) {
        // More often than a full ring needs, so that a poll ends however fast hits come.
        for _ in 0..MAX_BATCHES {
            if self.poll_batch(lost, each) < BATCH_RECORDS {
                break;
            }
        }
    }

    /// What was lost since the last time.
    fn find_losses(&mut self, lost: &mut Vec<Loss>) {
        let losses = match &mut self.door {
            Entrance::Bpf(door) => door.loss(),
            Entrance::Lines(lines) => {
                let (count, now) = (lines.n_lost(), nopal_trace::clock::monotonic_ns());
                if count > 0 {
                    // Which CPU's they were, and when exactly, the lines do not tell.
                    let stream = StreamId { cpu: 0, kind: StreamKind::Kernel };
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

/// How the kernel door is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub door: Door,
    pub ring_bytes: u64,
    /// Not the descendants of a process.
    pub is_only: bool,
}

/// Opens the kernel door unless it is open.
pub(crate) fn ensure(kernel: &mut Option<Kernel>, how: How) -> Result<(), KernelError> {
    if kernel.is_none() {
        // One ring for all CPUs, so it gets the room of several.
        let door = match KernelDoor::open(how.ring_bytes as usize * 2) {
            Ok(door) => Entrance::Bpf(door),
            // The next best thing, if there is one.
            Err(error @ KernelError::NotPermitted { .. }) => match TracefsDoor::open() {
                Ok(lines) => Entrance::Lines(Box::new(lines)),
                Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        let is_inherited = !how.is_only && matches!(door, Entrance::Bpf(_));
        let tracefs = if is_inherited { Tracefs::open().ok() } else { None };
        *kernel = Some(Kernel::new(door, tracefs));
    }
    Ok(())
}

/// Opens the sites of one process by the kernel door, which is opened itself if this is its first use.
pub(super) fn open_by_kernel<S: Selection>(
    kernel: &mut Option<Kernel>,
    selection: &Mutex<S>,
    how: How,
    pid: u32,
    sites: Vec<(Wanted, String)>,
) -> Result<ByKernel, LiveError> {
    let mut done = ByKernel::default();
    match ensure(kernel, how) {
        Ok(()) => {}
        Err(error) if how.door == Door::Kernel => return Err(LiveError::Kernel(error)),
        Err(error) => {
            let why = error.to_string();
            done.opened = sites.iter().map(|(w, user)| closed(pid, w, both(user, &why))).collect();
            return Ok(done);
        }
    }
    let kernel = kernel.as_mut().expect("opened just above");
    let mut by_file: HashMap<FileId, Vec<(Wanted, String)>> = HashMap::new();
    {
        let selection = lock(selection);
        for (wanted, reason) in sites {
            let Some(place) = selection.places().get(wanted.event) else { continue };
            by_file.entry(place.file).or_default().push((wanted, reason));
        }
    }
    for mapped in changeable_objects(pid).map_err(LiveError::Target)? {
        let Some(sites) = file_of(&mapped).and_then(|file| by_file.remove(&file)) else { continue };
        match kernel.arm(pid, &mapped, sites.clone(), &mut done) {
            Ok(()) => {}
            // What is left of the user door's sites is no failure of the whole.
            Err(LiveError::Kernel(error)) if how.door != Door::Kernel => {
                let why = error.to_string();
                let is_told = |w: &Wanted, done: &ByKernel| {
                    done.opened
                        .iter()
                        .any(|o| o.pid == pid && o.probe == w.probe && o.address == w.site.address)
                };
                for (wanted, user) in &sites {
                    if !is_told(wanted, &done) {
                        done.opened.push(closed(pid, wanted, both(user, &why)));
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn gone(pid: u32) -> target::TargetError {
    target::TargetError::NoSuchProcess { pid }
}

fn kernel_site(wanted: &Wanted) -> Option<KernelSite> {
    let Action::Record { captures, .. } = &wanted.action else { return None };
    Some(KernelSite { event: wanted.event, site: wanted.site.clone(), captures: captures.clone() })
}
