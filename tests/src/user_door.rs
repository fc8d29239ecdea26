//! Driving the user door as a library: a session that records every argument of the chosen probes as it is.

use nopal_capture::record::{RecordKind, RecordView, Value};
use nopal_capture::{Action, Capture, Wanted};
use nopal_proc::MappedObject;
use nopal_proc::possible_cpus;
use nopal_sdt::Pattern;
use nopal_user::consumer::{Polled, Reader};
use nopal_user::ring::RingConfig;
use nopal_user::session::{Options, ProcessReport, Select, Session};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Event numbers of the probes a session has met, by name.
pub type Events = Arc<Mutex<HashMap<String, u32>>>;

/// Chooses the probes that match, each probe one event, with all arguments by value, time and task.
pub fn select(pattern: &str) -> (Select, Events) {
    let pattern = Pattern::parse(pattern);
    let events: Events = Arc::default();
    let known = Arc::clone(&events);
    let select = move |_: &MappedObject, object: &nopal_sdt::Object| {
        let mut wanted = Vec::new();
        for probe in object.probes.iter().filter(|p| pattern.matches(&p.provider, &p.name)) {
            let name = format!("{}:{}", probe.provider, probe.name);
            let event = {
                let mut known = known.lock().unwrap();
                let next = known.len() as u32;
                *known.entry(name.clone()).or_insert(next)
            };
            for site in &probe.sites {
                let captures = site
                    .args
                    .iter()
                    .filter_map(|a| a.operand.clone().ok())
                    .map(|operand| Capture::Value { operand })
                    .collect();
                wanted.push(Wanted {
                    probe: name.clone(),
                    site: site.clone(),
                    event,
                    predicates: Vec::new(),
                    action: Action::Record { captures, has_time: true, has_task: true },
                });
            }
        }
        wanted
    };
    (Box::new(select), events)
}

pub fn options() -> Options {
    let mut ring = RingConfig::new(possible_cpus().expect("the number of CPUs is known"));
    ring.ring_bytes = 8 << 20;
    ring.locked_ring_bytes = 8 << 20;
    Options { ring, max_rings: None, without_children: false, can_relocate: false, other_door: || false }
}

/// Small rings, for sessions that come and go.
pub fn small_options() -> Options {
    let mut options = options();
    options.ring.ring_bytes = 128 << 10;
    options.ring.sub_bytes = 16 << 10;
    options.ring.locked_ring_bytes = 64 << 10;
    options.ring.locked_sub_bytes = 16 << 10;
    options
}

/// A session and its reader.
#[derive(Debug)]
pub struct Door {
    pub session: Session,
    pub reader: Reader,
    pub events: Events,
    pub reports: Vec<ProcessReport>,
}

/// One record, out of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub event: u32,
    pub tid: u32,
    pub pid: u32,
    pub time: u64,
    pub args: Vec<u64>,
}

impl Door {
    pub fn open(pid: u32, pattern: &str) -> nopal_user::Result<Door> {
        Door::open_with(pid, pattern, &options())
    }

    pub fn open_with(pid: u32, pattern: &str, options: &Options) -> nopal_user::Result<Door> {
        let (select, events) = select(pattern);
        let mut session = Session::new(options, select)?;
        let reports = session.attach(pid as i32)?;
        let reader = Reader::new(Arc::clone(session.rings()));
        Ok(Door { session, reader, events, reports })
    }

    /// Sites that were opened and those that were not, over all processes.
    pub fn n_sites(&self) -> (usize, usize) {
        let outcomes =
            || self.reports.iter().flat_map(|r| r.outcome.iter().flatten()).map(|s| s.outcome.is_ok());
        (outcomes().filter(|ok| *ok).count(), outcomes().filter(|ok| !ok).count())
    }

    pub fn event(&self, probe: &str) -> u32 {
        *self.events.lock().unwrap().get(probe).unwrap_or_else(|| panic!("no probe {probe}"))
    }

    /// Reads what has come since the last time.
    pub fn read(&mut self, hits: &mut Vec<Hit>) -> Polled {
        let session = &self.session;
        self.reader.poll(|_, record| hits.extend(hit(session, &record)))
    }

    /// As [`Door::read`], counting only.
    pub fn count(&mut self, counts: &mut HashMap<u32, u64>) -> Polled {
        self.reader.poll(|_, record| {
            if let RecordKind::Event(event) = record.kind {
                *counts.entry(event).or_default() += 1;
            }
        })
    }
}

fn hit(session: &Session, record: &RecordView<'_>) -> Option<Hit> {
    let RecordKind::Event(event) = record.kind else { return None };
    let task = record.task.expect("the session asked for the task");
    let layout = session.layout(event).expect("the session made this event");
    let args = layout
        .values(record.payload)
        .map(|value| match value {
            Ok(Value::Unsigned(v)) => v,
            Ok(Value::Signed(v)) => v as u64,
            other => panic!("a value that is no integer: {other:?}"),
        })
        .collect();
    Some(Hit { event, tid: task.tid, pid: task.pid, time: record.time.expect("asked for"), args })
}

/// The code of a process's files as it is in memory: file, address and bytes of each piece.
#[derive(Debug, PartialEq, Eq)]
pub struct Text(Vec<(String, u64, Vec<u8>)>);

pub fn text(pid: u32) -> Text {
    let maps = nopal_user::maps::Maps::read(pid as i32).unwrap();
    let memory = nopal_user::memory::Memory::open(pid as i32).unwrap();
    let mut pieces: Vec<(String, u64, Vec<u8>)> = Vec::new();
    for range in maps.ranges.iter().filter(|r| r.is_executable && r.inode != 0 && !r.is_shared) {
        let bytes = memory.read_vec(range.start, (range.end - range.start) as usize).unwrap();
        let path = range.path.display().to_string();
        match pieces.last_mut() {
            // What was made writable for a time is a mapping of its own since.
            Some(last) if last.0 == path && last.1 + last.2.len() as u64 == range.start => {
                last.2.extend(bytes)
            }
            _ => pieces.push((path, range.start, bytes)),
        }
    }
    Text(pieces)
}

impl Text {
    /// Fails with the first places that are not what they were.
    #[track_caller]
    pub fn assert_is(&self, before: &Text) {
        assert!(self == before, "the code is not what it was: {}", self.difference(before).join(", "));
    }

    /// Writes these bytes into the process where others stand, as a tool does that leaves.
    pub fn put_back(&self, pid: u32) {
        let memory = nopal_user::memory::Memory::open(pid as i32).unwrap();
        for (_, start, bytes) in &self.0 {
            let now = memory.read_vec(*start, bytes.len()).unwrap();
            for at in (0..bytes.len()).filter(|at| now[*at] != bytes[*at]) {
                memory.write(start + at as u64, &bytes[at..=at]).unwrap();
            }
        }
    }

    fn difference(&self, before: &Text) -> Vec<String> {
        let mut found = Vec::new();
        for (a, b) in [(self, before), (before, self)] {
            let is_missing = |one: &&(String, u64, Vec<u8>)| {
                !b.0.iter().any(|other| (other.1, other.2.len()) == (one.1, one.2.len()))
            };
            let which = if std::ptr::eq(a, self) { "new" } else { "gone" };
            found.extend(a.0.iter().filter(is_missing).map(|one| format!("{which}: {} {:#x}", one.0, one.1)));
        }
        for (path, start, bytes) in &self.0 {
            let Some((.., old)) = before.0.iter().find(|b| b.1 == *start && b.2.len() == bytes.len()) else {
                continue;
            };
            let places = (0..bytes.len()).filter(|&i| bytes[i] != old[i]);
            let show = |i: usize| format!("{path}+{i:#x}: {:02x}, was {:02x}", bytes[i], old[i]);
            found.extend(places.take(24).map(show));
        }
        found
    }
}
