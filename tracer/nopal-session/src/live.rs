//! Tracing in progress: opens the wanted probes of processes through one door or both, hands out their hits, and says in
//! the end what was lost.

use crate::clock::{Anchor, TscClock};
use crate::plan::Limits;
use crate::registry::{Choice, ConditionError, Registry};
use crate::tasks::Tasks;
use nopal_engine::kernel::{ArmedObject, KernelDoor, KernelError, KernelSite, Link};
use nopal_engine::target::{self, TargetError, mapped_objects};
use nopal_engine::user;
use nopal_engine::user::consumer::Reader;
use nopal_engine::user::record::{RecordKind, Task};
use nopal_engine::user::ring::{RingConfig, Set, possible_cpus};
use nopal_engine::user::session::{Options, ProcessReport, Session, Wanted};
use nopal_engine::user::stub::Action;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which way into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// The user door, and the kernel door for the sites it cannot open.
    #[default]
    Auto,
    User,
    Kernel,
}

/// What is to be traced, and how.
#[derive(Debug)]
pub struct Request {
    pub choices: Vec<Choice>,
    /// `.d` files that name the arguments of probes.
    pub given: Vec<nopal_provider::File>,
    pub limits: Limits,
    pub door: Door,
    /// Not the live descendants of a process.
    pub is_only: bool,
    /// Per CPU.
    pub ring_bytes: u64,
}

/// How a site was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub pid: u32,
    pub probe: String,
    pub path: PathBuf,
    /// Link-time address.
    pub address: u64,
    pub way: Way,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// With the tactic.
    User(String),
    /// With the reason why not the user door.
    Kernel(String),
    /// Not at all.
    Closed(String),
}

#[derive(Debug)]
pub enum LiveError {
    User(user::Error),
    Kernel(KernelError),
    Target(TargetError),
    Condition(ConditionError),
    /// No mapped file has a wanted probe; with the nearest name there is.
    NoProbe {
        pattern: String,
        suggestion: Option<String>,
        has_probes: bool,
    },
    /// There are probes, and no door opens any.
    AllClosed {
        reason: String,
    },
    /// How many CPUs there are cannot be read.
    Cpus(std::io::Error),
    /// The time stamp counter cannot serve as a clock, which the user door needs.
    UnsteadyTsc,
}

/// One stream of records in the order of their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub cpu: u32,
    pub kind: StreamKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamKind {
    Rseq,
    Locked,
    Kernel,
}

/// One hit of a wanted site whose condition holds.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub stream: StreamId,
    /// Index in [`Registry::events`].
    pub event: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// As the traced process counts.
    pub task: Task,
    pub payload: &'a [u8],
}

/// Hits that were lost, and when, as CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub stream: StreamId,
    pub count: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// What one look at the rings gave beside hits.
#[derive(Debug, Default)]
pub struct Polled {
    pub n_hits: u64,
    pub losses: Vec<Loss>,
    /// Places where a ring made no sense, and records that dying threads never finished.
    pub n_damaged: u64,
}

/// Tracing in progress.
#[derive(Debug)]
pub struct Live {
    registry: Arc<Mutex<Registry>>,
    door: Door,
    is_only: bool,
    ring_bytes: u64,
    user: Option<(Session, Reader)>,
    kernel: Option<Kernel>,
    clock: TscClock,
    pub tasks: Tasks,
    roots: Vec<u32>,
}

/// The kernel door's side: what is armed where.
#[derive(Debug)]
struct Kernel {
    door: KernelDoor,
    /// By file, with the events it was prepared for.
    prepared: HashMap<(PathBuf, Vec<u32>), ArmedObject>,
    links: HashMap<u32, Vec<Link>>,
    lost_seen: Vec<u64>,
    /// Records of one poll, to be put in order.
    batch: Vec<(StreamId, u64, u32, Task, Vec<u8>)>,
    last_ns: HashMap<u32, u64>,
}

impl Live {
    /// A session without processes; [`Live::attach`] brings them.
    pub fn new(request: Request) -> Result<Live, LiveError> {
        let registry = Arc::new(Mutex::new(Registry::new(request.choices, request.given, request.limits)));
        let user = if request.door == Door::Kernel {
            None
        } else {
            let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            match crate::clock::is_tsc_steady(&cpuinfo) {
                true => Some(open_user(&registry, request.ring_bytes, request.is_only)?),
                false if request.door == Door::User => return Err(LiveError::UnsteadyTsc),
                false => None,
            }
        };
        Ok(Live {
            registry,
            door: request.door,
            is_only: request.is_only,
            ring_bytes: request.ring_bytes,
            user,
            kernel: None,
            clock: TscClock::start(),
            tasks: Tasks::default(),
            roots: Vec::new(),
        })
    }

    /// The events so far.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Opens the wanted probes of a process and, unless told otherwise, of its live descendants.
    pub fn attach(&mut self, pid: u32) -> Result<Vec<Opened>, LiveError> {
        let mut opened = Vec::new();
        let mut refused: Vec<(u32, Vec<(Wanted, String)>)> = Vec::new();
        if let Some((session, _)) = &mut self.user {
            let reports = session.attach(pid as i32).map_err(LiveError::User)?;
            for report in reports {
                self.tasks.add(report.pid as u32);
                self.sort_report(report, &mut opened, &mut refused);
            }
        } else {
            for pid in self.family(pid) {
                self.tasks.add(pid);
                let wanted = self.wanted_in(pid).map_err(LiveError::Target)?;
                let reason = "asked for";
                refused.push((pid, wanted.into_iter().map(|w| (w, reason.to_owned())).collect()));
            }
        }
        if let Some(error) = self.registry().errors.first() {
            return Err(LiveError::Condition(error.clone()));
        }
        for (pid, sites) in refused {
            if self.door == Door::User {
                opened.extend(sites.into_iter().map(|(w, reason)| closed(pid, &w, reason)));
            } else if !sites.is_empty() {
                opened.extend(self.attach_kernel(pid, sites)?);
            }
        }
        self.roots.push(pid);
        self.judge(&opened)?;
        Ok(opened)
    }

    /// A session in which nothing was opened is an error that says why.
    fn judge(&self, opened: &[Opened]) -> Result<(), LiveError> {
        let registry = self.registry();
        if registry.events.is_empty() {
            return Err(LiveError::NoProbe {
                pattern: registry.patterns(),
                suggestion: registry.suggestion(),
                has_probes: !registry.others.is_empty(),
            });
        }
        let reasons = opened.iter().map(|o| match &o.way {
            Way::Closed(reason) => Some(reason),
            Way::User(_) | Way::Kernel(_) => None,
        });
        match reasons.collect::<Option<Vec<_>>>() {
            Some(reasons) if !reasons.is_empty() => Err(LiveError::AllClosed { reason: reasons[0].clone() }),
            _ => Ok(()),
        }
    }

    fn family(&self, pid: u32) -> Vec<u32> {
        let mut family = vec![pid];
        if !self.is_only {
            family.extend(target::descendants(pid));
        }
        family
    }

    fn sort_report(
        &self,
        report: ProcessReport,
        opened: &mut Vec<Opened>,
        refused: &mut Vec<(u32, Vec<(Wanted, String)>)>,
    ) {
        let pid = report.pid as u32;
        let sites = match report.outcome {
            Ok(sites) => sites,
            // A descendant that cannot be entered is left to the kernel door whole.
            Err(error) => {
                let reason = error.to_string();
                if let Ok(wanted) = self.wanted_in(pid) {
                    refused.push((pid, wanted.into_iter().map(|w| (w, reason.clone())).collect()));
                }
                return;
            }
        };
        let registry = self.registry();
        let mut left = Vec::new();
        for site in sites {
            match site.outcome {
                Ok(tactic) => opened.push(Opened {
                    pid,
                    probe: site.probe,
                    path: site.path,
                    address: site.site.address,
                    way: Way::User(tactic.to_string()),
                }),
                Err(refusal) => {
                    let event = &registry.events[site.event as usize];
                    let action = Action::Record {
                        captures: event.plan.sites[event.site_idx].captures.clone(),
                        has_time: true,
                        has_task: true,
                    };
                    let wanted = Wanted {
                        probe: site.probe,
                        site: site.site,
                        event: site.event,
                        predicates: Vec::new(),
                        action,
                    };
                    left.push((wanted, refusal.to_string()));
                }
            }
        }
        refused.push((pid, left));
    }

    /// Every wanted site of the files a process maps.
    fn wanted_in(&self, pid: u32) -> Result<Vec<Wanted>, TargetError> {
        let mut wanted = Vec::new();
        for mapped in mapped_objects(pid)? {
            let Ok(image) = mapped.open() else { continue };
            let Ok(object) = nopal_sdt::read(image.bytes()) else { continue };
            wanted.extend(self.registry().select(&mapped, &object));
        }
        Ok(wanted)
    }

    fn attach_kernel(&mut self, pid: u32, sites: Vec<(Wanted, String)>) -> Result<Vec<Opened>, LiveError> {
        if self.kernel.is_none() {
            // One ring for all CPUs, so it gets the room of several.
            match KernelDoor::open(self.ring_bytes as usize * 2) {
                Ok(door) => self.kernel = Some(Kernel::new(door)),
                Err(error) if self.door == Door::Kernel => return Err(LiveError::Kernel(error)),
                Err(error) => {
                    return Ok(sites
                        .iter()
                        .map(|(w, why)| closed(pid, w, format!("{why}; {error}")))
                        .collect());
                }
            }
        }
        let kernel = self.kernel.as_mut().expect("opened just above");
        let registry = lock(&self.registry);
        let mut opened = Vec::new();
        let mut by_path: HashMap<PathBuf, Vec<(Wanted, String)>> = HashMap::new();
        for (wanted, reason) in sites {
            let path = registry.events[wanted.event as usize].path.clone();
            by_path.entry(path).or_default().push((wanted, reason));
        }
        for mapped in mapped_objects(pid).map_err(LiveError::Target)? {
            let Some(sites) = by_path.remove(&mapped.path) else { continue };
            kernel.arm(pid, &mapped, sites, self.door, &mut opened)?;
        }
        Ok(opened)
    }

    /// Hands out what has been recorded since the last time.
    pub fn poll(&mut self, mut each: impl FnMut(&Registry, Hit<'_>)) -> Polled {
        if self.clock.is_due() {
            self.clock.correct(Anchor::now());
        }
        let mut polled = Polled::default();
        let registry = lock(&self.registry);
        if let Some((_, reader)) = &mut self.user {
            let clock = &self.clock;
            let result = reader.poll(|source, record| {
                let RecordKind::Event(event) = record.kind else { return };
                let (Some(time), Some(task)) = (record.time, record.task) else { return };
                let kind = match source.set {
                    Set::Rseq => StreamKind::Rseq,
                    Set::Locked => StreamKind::Locked,
                };
                let stream = StreamId { cpu: source.cpu, kind };
                let hit = Hit { stream, event, ns: clock.ns(time), task, payload: record.payload };
                if registry.holds(&hit) {
                    polled.n_hits += 1;
                    each(&registry, hit);
                }
            });
            polled.n_damaged += result.damaged + result.abandoned;
            polled.losses.extend(result.gaps.iter().map(|gap| {
                let kind = match gap.set {
                    Set::Rseq => StreamKind::Rseq,
                    Set::Locked => StreamKind::Locked,
                };
                Loss {
                    stream: StreamId { cpu: gap.cpu, kind },
                    count: gap.count,
                    first_ns: clock.ns(gap.first),
                    last_ns: clock.ns(gap.last),
                }
            }));
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.poll(&registry, &mut polled, &mut each);
        }
        polled
    }

    /// Whether a traced root process still lives.
    pub fn is_any_alive(&self) -> bool {
        self.roots
            .iter()
            .flat_map(|root| self.family(*root))
            .any(|pid| target::Process::read(pid).is_ok_and(|process| !process.is_zombie))
    }

    /// Closes every site in every process; hits that came before can still be polled.
    pub fn close(&mut self) -> Vec<String> {
        if let Some(kernel) = &mut self.kernel {
            kernel.links.clear();
        }
        match &mut self.user {
            Some((session, _)) => session
                .detach()
                .failures
                .into_iter()
                .map(|(pid, why)| format!("process {pid}: {why}"))
                .collect(),
            None => Vec::new(),
        }
    }
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
                opened.extend(sites.iter().map(|(w, why)| closed(pid, w, format!("{why}; {error}"))));
                return Ok(());
            }
        }
        for (wanted, why) in sites {
            opened.push(match reasons.remove(&wanted.event) {
                Some(reason) => closed(pid, &wanted, format!("{why}; {reason}")),
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

    fn poll(&mut self, registry: &Registry, polled: &mut Polled, each: &mut impl FnMut(&Registry, Hit<'_>)) {
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
        self.lost_seen.resize(losses.len(), 0);
        for ((cpu, loss), seen) in losses.iter().enumerate().zip(&mut self.lost_seen) {
            if loss.n_lost > *seen {
                polled.losses.push(Loss {
                    stream: StreamId { cpu: cpu as u32, kind: StreamKind::Kernel },
                    count: loss.n_lost - *seen,
                    first_ns: loss.first_ns,
                    last_ns: loss.last_ns,
                });
                *seen = loss.n_lost;
            }
        }
    }
}

fn open_user(
    registry: &Arc<Mutex<Registry>>,
    ring_bytes: u64,
    is_only: bool,
) -> Result<(Session, Reader), LiveError> {
    let n_cpus = possible_cpus().map_err(LiveError::Cpus)?;
    let mut ring = RingConfig::new(n_cpus);
    ring.ring_bytes = ring_bytes;
    let registry = registry.clone();
    let select = Box::new(move |mapped: &target::MappedObject, object: &nopal_sdt::Object| {
        lock(&registry).select(mapped, object)
    });
    let session = Session::new(&Options { ring, is_only }, select).map_err(LiveError::User)?;
    let reader = Reader::new(session.ring().clone());
    Ok((session, reader))
}

fn kernel_site(wanted: &Wanted) -> Option<KernelSite> {
    let Action::Record { captures, .. } = &wanted.action else { return None };
    Some(KernelSite { event: wanted.event, site: wanted.site.clone(), captures: captures.clone() })
}

fn closed(pid: u32, wanted: &Wanted, reason: String) -> Opened {
    Opened {
        pid,
        probe: wanted.probe.clone(),
        path: PathBuf::new(),
        address: wanted.site.address,
        way: Way::Closed(reason),
    }
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    // A panic elsewhere leaves the registry whole: it only ever grows.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}
