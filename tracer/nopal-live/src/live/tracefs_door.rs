//! The kernel door where eBPF is not permitted: events of tracefs, whose records become ours. Such an event belongs to a
//! file, and every process that maps the file pays for it; so it is made only where nobody else does.

use super::NotByKernel;
use nopal_capture::Task;
use nopal_capture::{Action, Capture, Wanted};
use nopal_kernel::ftrace::{self, FtraceDoor, FtraceSite};
use nopal_kernel::script::processes_mapping;
use nopal_proc::MappedObject;
use nopal_sdt::probe::Side;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Whose process is remembered: a program may start and end threads for ever.
const MAX_THREADS: usize = 1 << 16;

/// Events of tracefs and what their records mean.
#[derive(Debug)]
pub(crate) struct TracefsDoor {
    door: FtraceDoor,
    /// By number of the event in tracefs: the event of the record, and what it holds.
    events: Vec<(u32, Vec<Capture>)>,
    /// Of the records.
    known: HashSet<u32>,
    /// By thread.
    pids: HashMap<u32, u32>,
    n_lost_seen: u64,
}

impl TracefsDoor {
    pub(crate) fn open() -> std::io::Result<TracefsDoor> {
        Ok(TracefsDoor {
            door: FtraceDoor::open()?,
            events: Vec::new(),
            known: HashSet::new(),
            pids: HashMap::new(),
            n_lost_seen: 0,
        })
    }

    /// Arms sites of a file in a process and its descendants, now and later; by event, why one is not.
    pub(crate) fn arm(
        &mut self,
        pid: u32,
        mapped: &MappedObject,
        sites: &[Wanted],
    ) -> Result<HashMap<u32, NotByKernel>, NotByKernel> {
        // Held while it is named to the kernel: nobody can put another file in its place, whose code would be changed instead.
        let image = mapped.open().map_err(NotByKernel::File)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", image.file().as_raw_fd()));
        let family: Vec<u32> = std::iter::once(pid).chain(nopal_proc::descendants(pid)).collect();
        let n_processes =
            processes_mapping(&path).into_iter().filter(|other| !family.contains(other)).count();
        if n_processes > 0 {
            return Err(NotByKernel::Others { n_processes, path: mapped.path.clone() });
        }
        let mut refused = HashMap::new();
        for wanted in sites {
            if self.known.contains(&wanted.event) {
                continue;
            }
            match self.add(&path, wanted) {
                Ok(()) => {
                    self.known.insert(wanted.event);
                }
                Err(reason) => {
                    refused.insert(wanted.event, NotByKernel::Untellable { reason });
                }
            }
        }
        if self.events.is_empty() {
            return Ok(refused);
        }
        let tids: Vec<u32> =
            family.iter().filter_map(|pid| nopal_proc::threads(*pid).ok()).flatten().collect();
        self.door.start(&tids).map_err(|error| NotByKernel::Tracefs { error: error.to_string() })?;
        Ok(refused)
    }

    fn add(&mut self, path: &std::path::Path, wanted: &Wanted) -> Result<(), String> {
        let Action::Record { captures, .. } = &wanted.action else { return Err("an aggregate".to_owned()) };
        if wanted.site.edge.as_ref().is_some_and(|edge| edge.side == Side::AnyReturn) {
            return Err("where functions return".to_owned());
        }
        let site = FtraceSite {
            path: path.to_owned(),
            file_offset: wanted.site.file_offset,
            ref_ctr_offset: wanted.site.semaphore.map_or(0, |semaphore| semaphore.file_offset),
            args: ftrace::arguments(captures)?,
        };
        self.door.add(&site).map_err(|error| error.to_string())?;
        self.events.push((wanted.event, captures.clone()));
        Ok(())
    }

    /// Hands out what has come: cpu, time, event, task and payload.
    pub(crate) fn poll(&mut self, mut take: impl FnMut(u32, u64, u32, Task, Vec<u8>)) {
        let (events, pids) = (&self.events, &mut self.pids);
        // What cannot be read now is there the next time.
        let _ = self.door.poll(|hit| {
            let Some((event, captures)) = events.get(hit.event) else { return };
            if pids.len() >= MAX_THREADS {
                pids.clear();
            }
            let pid = *pids.entry(hit.tid).or_insert_with(|| process_of(hit.tid));
            let task = Task { tid: hit.tid, pid };
            take(hit.cpu, hit.ns, *event, task, ftrace::payload(captures, &hit.values));
        });
    }

    /// Hits lost since this was last asked.
    pub(crate) fn n_lost(&mut self) -> u64 {
        let n = self.door.n_lost() - self.n_lost_seen;
        self.n_lost_seen = self.door.n_lost();
        n
    }

    /// Disarms everything; what has come can still be read.
    pub(crate) fn close(&mut self) {
        // Removed for good when it is dropped.
        let _ = self.door.stop();
    }
}

/// The process of a thread; one that has ended was most likely a process of one thread.
fn process_of(tid: u32) -> u32 {
    let status = nopal_proc::read_text(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    tgid.and_then(|number| number.trim().parse().ok()).unwrap_or(tid)
}
