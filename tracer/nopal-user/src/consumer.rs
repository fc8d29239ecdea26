//! Reads the rings. Everything in them was written by somebody else's process: each length is checked on a private copy,
//! and what makes no sense costs the rest of its sub-buffer and is counted, never more.

mod stream;

use super::ring::{Members, RingMemory, Rings, Set, time_stamp};
use core::sync::atomic::Ordering;
use nopal_abi::ring::Mode;
use nopal_capture::record::RecordView;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Liveness, Patience, STALL, Stream, snapshot_ring};

/// The rings of one memfd.
struct OneReader {
    ring: usize,
    memory: Arc<RingMemory>,
    is_retired: bool,
    streams: Vec<Stream>,
}

/// How far the clocks of two processors may be apart.
const SKEW: u64 = 1 << 20;
/// Records that were lost because a ring was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub cpu: u32,
    pub set: Set,
    pub count: u64,
    /// Time stamps of the first and last of them.
    pub first: u64,
    pub last: u64,
}

/// What a ring gives, in its order: a gap comes before every record that is later than its start.
#[derive(Debug)]
pub enum Came<'a> {
    Record(RecordView<'a>),
    Gap(Gap),
}

/// What one reading gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Polled {
    pub records: u64,
    pub bytes: u64,
    pub gaps: Vec<Gap>,
    /// Places where the ring made no sense; records may be missing there.
    pub damaged: u64,
    /// Records that threads reserved and, dying, never finished.
    pub abandoned: u64,
    /// Records whose time or process cannot be true; they were not handed out.
    pub forged: u64,
    /// A snapshot: bytes that were written over before it began.
    pub overwritten_bytes: u64,
}

impl Polled {
    /// Everything that is missing because a ring was not in order.
    pub fn n_damaged(&self) -> u64 {
        self.damaged + self.abandoned + self.forged
    }
}

/// Where a record was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Which of the session's rings.
    pub ring: u32,
    pub cpu: u32,
    pub set: Set,
}

/// The reader of a session's rings. There must be only one that polls.
pub struct Reader {
    rings: Arc<Rings>,
    version: u64,
    readers: Vec<OneReader>,
    copy: Vec<u8>,
    is_alive: Option<Liveness>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("rings", &self.rings).finish_non_exhaustive()
    }
}

impl OneReader {
    /// Starts at what has not been read yet.
    fn new(ring: usize, memory: Arc<RingMemory>) -> OneReader {
        let streams = [Set::Rseq, Set::Locked]
            .into_iter()
            .flat_map(|set| (0..memory.layout().n_cpus).map(move |cpu| (set, cpu)))
            .map(|(set, cpu)| Stream::new(&memory, set, cpu))
            .collect();
        OneReader { ring, memory, is_retired: false, streams }
    }

    /// Whether all that was written to these streams has been read.
    fn is_read(&self, is_meant: impl Fn(&Stream) -> bool) -> bool {
        let is_read = |s: &Stream| self.memory.state(s.set, s.cpu).head.load(Ordering::Acquire) == s.position;
        self.streams.iter().filter(|stream| is_meant(stream)).all(is_read)
    }
}

impl Reader {
    /// Starts at what has not been read yet.
    pub fn new(rings: Arc<Rings>) -> Reader {
        Reader { rings, version: u64::MAX, readers: Vec::new(), copy: Vec::new(), is_alive: None }
    }

    /// Reads one ring.
    pub fn of_one(ring: Arc<RingMemory>) -> Reader {
        Reader::new(Rings::of(ring))
    }

    pub fn rings(&self) -> &Arc<Rings> {
        &self.rings
    }

    /// Takes in rings that were added, and gives up those that were retired and are empty.
    fn refresh(&mut self) {
        for one in self.readers.iter().filter(|one| one.is_retired && one.is_read(|_| true)) {
            self.rings.forget(one.ring);
        }
        let version = self.rings.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let now = self.rings.all();
        self.readers.retain(|one| now.iter().any(|(_, memory, _)| Arc::ptr_eq(memory, &one.memory)));
        for (ring, memory, is_retired) in now {
            match self.readers.iter_mut().find(|one| Arc::ptr_eq(&memory, &one.memory)) {
                Some(one) => one.is_retired = is_retired,
                None => self.readers.push(OneReader::new(ring, memory)),
            }
        }
    }

    /// Says whether a thread, by its tid as the traced process counts, still lives, or with 0 whether any does;
    /// [`any_has_thread`] knows. Asked only about threads that left a record uncommitted for a second. Without it they are
    /// given up after half a minute.
    pub fn set_liveness(&mut self, is_alive: impl FnMut(u32) -> bool + Send + 'static) {
        self.is_alive = Some(Box::new(is_alive));
    }

    /// Hands out all committed records, each CPU's in their order, and frees their room. In overwrite mode only the
    /// locked rings are read; see [`Reader::snapshot`] for the others.
    pub fn poll(&mut self, mut each: impl FnMut(Source, RecordView<'_>)) -> Polled {
        self.poll_in_order(|source, came| match came {
            Came::Record(record) => each(source, record),
            Came::Gap(_) => {}
        })
    }

    /// The same with gaps where they belong.
    pub fn poll_in_order(&mut self, mut each: impl FnMut(Source, Came<'_>)) -> Polled {
        self.refresh();
        let mut polled = Polled::default();
        self.read(Patience::Usual, &mut polled, &mut each);
        polled
    }

    /// The same for the last time, when no site leads to the session's stubs any more: leaves nothing behind. What lies
    /// beyond a record that a dead thread never finished is read at once; threads that live and are inside a stub get a
    /// second to finish. What is not finished is counted.
    pub fn poll_rest(&mut self, mut each: impl FnMut(Source, Came<'_>)) -> Polled {
        self.refresh();
        let mut polled = Polled::default();
        let end = Instant::now() + STALL;
        let mut patience = Patience::Last;
        loop {
            self.read(patience, &mut polled, &mut each);
            if patience == Patience::Over || self.is_drained() {
                return polled;
            }
            if Instant::now() >= end {
                patience = Patience::Over;
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Whether nothing is left in the locked rings.
    fn is_drained(&self) -> bool {
        self.readers.iter().all(|one| one.is_read(|stream| stream.set == Set::Locked))
    }

    fn read(&mut self, patience: Patience, polled: &mut Polled, each: &mut impl FnMut(Source, Came<'_>)) {
        let members = (self.readers.len() > 1).then(|| self.rings.members());
        for OneReader { ring, memory, streams, .. } in &mut self.readers {
            polled.damaged += u64::from(memory.mend_control());
            for stream in streams {
                if stream.set == Set::Rseq && memory.layout().mode == Mode::Overwrite {
                    continue;
                }
                let state = memory.state(stream.set, stream.cpu);
                if state.tail.load(Ordering::Relaxed) != stream.position {
                    // We alone store it, and without it writers take the ring to be full.
                    polled.damaged += 1;
                    state.tail.store(stream.position, Ordering::Release);
                }
                // In this order: what was lost before a record that is handed out now is known by then.
                let head = state.head.load(Ordering::Acquire);
                let now = time_stamp().saturating_add(SKEW);
                if let Some(gap) = stream.lost(state, now, polled) {
                    polled.gaps.push(gap);
                    each(Source { ring: *ring as u32, cpu: stream.cpu, set: stream.set }, Came::Gap(gap));
                }
                let mut judge = Judge::new(members.as_ref(), *ring, stream.newest..=now);
                let mut record = |mut source: Source, record: RecordView<'_>| {
                    if !judge.is_credible(&record) {
                        return;
                    }
                    source.ring = *ring as u32;
                    each(source, Came::Record(record));
                };
                let (copy, is_alive) = (&mut self.copy, &mut self.is_alive);
                stream.drain(memory, head, patience, copy, is_alive, polled, &mut record);
                stream.newest = *judge.times.start();
                polled.forged += judge.n_forged;
                polled.records -= judge.n_forged;
            }
        }
    }

    /// Hands out what is left in the rings that are being written over, oldest first, without stopping the writers.
    pub fn snapshot(&mut self, mut each: impl FnMut(Source, RecordView<'_>)) -> Polled {
        self.refresh();
        let mut polled = Polled::default();
        let members = (self.readers.len() > 1).then(|| self.rings.members());
        for OneReader { ring, memory, .. } in &self.readers {
            for cpu in 0..memory.layout().n_cpus {
                // What is in it when it is copied is earlier than when that is done, but may be later than now.
                let times = memory.made_at()..=u64::MAX;
                let mut judge = Judge::new(members.as_ref(), *ring, times);
                let mut each = |mut source: Source, record: RecordView<'_>| {
                    judge.times = *judge.times.start()..=time_stamp().saturating_add(SKEW);
                    if judge.is_credible(&record) {
                        source.ring = *ring as u32;
                        each(source, record);
                    }
                };
                snapshot_ring(memory, cpu, &mut self.copy, &mut polled, &mut each);
                polled.forged += judge.n_forged;
                polled.records -= judge.n_forged;
            }
        }
        polled
    }
}

/// Refuses records that no stub can have written: of a time that has not come or is over, or of a process that is known
/// to have another ring.
struct Judge<'a> {
    members: Option<&'a Members>,
    ring: usize,
    /// From the newest so far to now.
    times: std::ops::RangeInclusive<u64>,
    last_pid: Option<u32>,
    n_forged: u64,
}

impl<'a> Judge<'a> {
    fn new(members: Option<&'a Members>, ring: usize, times: std::ops::RangeInclusive<u64>) -> Judge<'a> {
        Judge { members, ring, times, last_pid: None, n_forged: 0 }
    }

    #[inline]
    fn is_credible(&mut self, record: &RecordView<'_>) -> bool {
        let is_credible = record.time.is_none_or(|time| {
            let (newest, now) = (*self.times.start(), *self.times.end());
            // Within the skew of the clocks time may seem to go back.
            let is_now = time.saturating_add(SKEW) >= newest && time <= now;
            if is_now && time > newest {
                self.times = time..=now;
            }
            is_now
        }) && record.task.is_none_or(|task| self.is_member(task.pid));
        self.n_forged += u64::from(!is_credible);
        is_credible
    }

    fn is_member(&mut self, pid: u32) -> bool {
        let Some(members) = self.members.filter(|_| self.last_pid != Some(pid)) else { return true };
        // Nobody has seen those yet that were forked just now.
        let is_member = members.get(&pid).is_none_or(|rings| rings & 1 << self.ring != 0);
        if is_member {
            self.last_pid = Some(pid);
        }
        is_member
    }
}

/// Whether one of these processes has the thread with this number, as the process itself counts; 0: any at all.
pub fn any_has_thread(pids: &[i32], tid: u32) -> bool {
    pids.iter().any(|pid| {
        if tid == 0 {
            return super::process::is_alive(*pid);
        }
        threads_of(*pid).any(|thread| thread == tid)
    })
}

/// The threads of a process that can still run, by the numbers the process itself knows.
pub fn threads_of(pid: i32) -> impl Iterator<Item = u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| {
        // A zombie's status still has its numbers, but it runs no more stubs.
        let status = nopal_proc::read_text(thread.path().join("status")).unwrap_or_default();
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let is_over = field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        let number = field("NSpid:").and_then(|numbers| numbers.split_whitespace().last());
        number.and_then(|n| n.parse().ok()).filter(|_| !is_over)
    })
}
