//! Reads the rings. Everything in them was written by somebody else's process: each length is checked on a private copy,
//! and what makes no sense costs the rest of its sub-buffer and is counted, never more.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nopal_abi::record::{self, flags};
use nopal_abi::ring::{Mode, RingState};

use super::ring::{Members, RingMemory, Rings, Set, time_stamp};
use nopal_capture::record::{Parsed, RecordView};

/// A record that stays uncommitted this long may have been left by a thread that died.
const STALL: Duration = Duration::from_secs(1);
/// And is taken to have been, when nobody can tell.
const LONG_STALL: Duration = Duration::from_secs(30);

/// How long a reader waits for records that are not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until their writer is known to be dead for a while.
    Usual,
    /// No new hit comes: only for writers that live.
    Last,
    /// For nobody.
    Over,
}

/// Tells whether the thread with this number lives; 0: whether any does.
type Liveness = Box<dyn FnMut(u32) -> bool + Send>;

/// One ring, from the reader's side.
#[derive(Debug)]
struct Stream {
    set: Set,
    cpu: u32,
    /// Bytes ever read.
    position: u64,
    lost_seen: u64,
    /// No loss that is not told yet was before this.
    told_until: u64,
    /// A place where nothing was committed, since when.
    stalled: Option<(u64, Instant)>,
    /// The newest time that was read.
    newest: u64,
}

/// The rings of one memfd.
struct OneReader {
    ring: usize,
    memory: Arc<RingMemory>,
    is_retired: bool,
    streams: Vec<Stream>,
}

/// How far the clocks of two processors may be apart.
const SKEW: u64 = 1 << 20;
/// More than this nobody loses between two readings.
const MOST_LOST: u64 = 1 << 48;

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
            .map(|(set, cpu)| {
                let state = memory.state(set, cpu);
                Stream {
                    set,
                    cpu,
                    position: state.tail.load(Ordering::Relaxed),
                    lost_seen: 0,
                    told_until: 0,
                    stalled: None,
                    newest: memory.made_at(),
                }
            })
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
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let is_over = field("State:").is_some_and(|state| state.trim_start().starts_with(['Z', 'X']));
        let number = field("NSpid:").and_then(|numbers| numbers.split_whitespace().last());
        number.and_then(|n| n.parse().ok()).filter(|_| !is_over)
    })
}

impl Stream {
    /// What the writers counted as lost since the last time.
    fn lost(&mut self, state: &RingState, now: u64, polled: &mut Polled) -> Option<Gap> {
        // A writer counts and then says when: what is not counted now says when afterwards.
        let until = state.lost_last.load(Ordering::Acquire).min(now);
        let lost = state.lost.load(Ordering::Acquire);
        let count = lost.wrapping_sub(self.lost_seen);
        if count == 0 {
            return None;
        }
        self.lost_seen = lost;
        if count > MOST_LOST {
            polled.damaged += 1;
            return None;
        }
        let first = match state.lost_first.swap(0, Ordering::AcqRel) {
            0 => self.told_until,
            first => first.min(now),
        };
        let last = state.lost_last.load(Ordering::Acquire).min(now).max(first);
        self.told_until = if until == 0 { first } else { until };
        if first == 0 {
            // Writers that must not read the time, or have not said it yet: it was before now.
            let now = time_stamp();
            return Some(Gap { cpu: self.cpu, set: self.set, count, first: now, last: now });
        }
        Some(Gap { cpu: self.cpu, set: self.set, count, first, last })
    }

    #[allow(clippy::too_many_arguments)]
    fn drain(
        &mut self,
        memory: &RingMemory,
        head: u64,
        patience: Patience,
        copy: &mut Vec<u8>,
        is_alive: &mut Option<Liveness>,
        polled: &mut Polled,
        each: &mut impl FnMut(Source, RecordView<'_>),
    ) {
        let state = memory.state(self.set, self.cpu);
        let (ring, ring_bytes) = memory.ring(self.set, self.cpu);
        let sub_bytes = 1u64 << memory.layout().geometry(self.set).sub_shift;
        let ahead = head.wrapping_sub(self.position);
        if ahead == 0 {
            return;
        }
        if ahead > ring_bytes as u64 || !head.is_multiple_of(record::UNIT_BYTES.into()) {
            // No writer of ours does this. What lies between cannot be told from rubbish; go on from where head is.
            polled.damaged += 1;
            self.position = head & !u64::from(record::UNIT_BYTES - 1);
            if self.set == Set::Locked {
                // Old headers would be taken for new records.
                // SAFETY: the whole ring, which is mapped. A writer that is inside loses its record to us.
                unsafe { ring.write_bytes(0, ring_bytes) };
            }
            state.tail.store(self.position, Ordering::Release);
            return;
        }
        while self.position < head {
            let sub_end = (self.position / sub_bytes + 1).saturating_mul(sub_bytes);
            let end = sub_end.min(head);
            let ready = match self.set {
                Set::Rseq => end,
                Set::Locked => self.committed(ring, ring_bytes, end),
            };
            let mut damaged = false;
            if ready > self.position {
                copy_out(ring, ring_bytes, self.position, ready, copy);
                let (used, is_whole) =
                    deliver(copy, Source { ring: 0, cpu: self.cpu, set: self.set }, polled, each);
                polled.bytes += used as u64;
                damaged = !is_whole;
            }
            let next = if damaged {
                polled.damaged += 1;
                end
            } else if ready < end {
                match self.give_up(ring, ring_bytes, ready..end, patience, is_alive, polled) {
                    Some(next) => next,
                    None => {
                        self.free(state, ring, ring_bytes, ready);
                        return;
                    }
                }
            } else {
                ready
            };
            self.free(state, ring, ring_bytes, next);
        }
    }

    /// Up to where the records of a locked ring are committed; `end` is in the sub-buffer of the position.
    fn committed(&self, ring: *mut u8, ring_bytes: usize, end: u64) -> u64 {
        let mut at = self.position;
        while at < end {
            let word = header_word(ring, ring_bytes, at) as u32;
            let size = u64::from(word & record::SIZE_MASK);
            // Zero: reserved, and not even the header has been written.
            if word == 0 || word & flags::BUSY != 0 {
                return at;
            }
            if size < 8 || size > end - at || !size.is_multiple_of(8) {
                return end; // Rubbish, which the parser will find again in the copy.
            }
            at += size;
        }
        at
    }

    /// Decides about an uncommitted record where `rest` of its sub-buffer begins: where to go on, or `None` to wait for its
    /// writer.
    fn give_up(
        &mut self,
        ring: *mut u8,
        ring_bytes: usize,
        rest: std::ops::Range<u64>,
        patience: Patience,
        is_alive: &mut Option<Liveness>,
        polled: &mut Polled,
    ) -> Option<u64> {
        let at = rest.start;
        let since = match self.stalled {
            Some((place, since)) if place == at => since,
            _ => {
                self.stalled = Some((at, Instant::now()));
                Instant::now()
            }
        };
        if patience == Patience::Usual && since.elapsed() < STALL {
            return None;
        }
        let header = header_word(ring, ring_bytes, at);
        let mut probe = vec![0; (rest.end - at) as usize];
        probe[..8].copy_from_slice(&header.to_le_bytes());
        let (tid, next) = match RecordView::parse(&probe) {
            // Nothing was stored but the head, so all of the record is zeros, and what is not belongs to the next one.
            _ if header == 0 => (0, next_header(ring, ring_bytes, rest)),
            Parsed::Busy { tid, bytes } => (tid, at + bytes as u64),
            // Committed meanwhile.
            Parsed::Record(..) | Parsed::Padding(_) => {
                self.stalled = None;
                return None;
            }
            Parsed::Damaged => {
                self.stalled = None;
                polled.damaged += 1;
                return Some(rest.end);
            }
        };
        let lives = is_alive.as_mut().map(|is_alive| is_alive(tid));
        let must_wait = match (patience, lives) {
            (Patience::Over, _) | (_, Some(false)) => false,
            (Patience::Last, _) => true,
            (Patience::Usual, Some(true)) if tid != 0 => {
                // Not asked again before another second.
                self.stalled = Some((at, Instant::now()));
                true
            }
            // Whose it is is not known.
            (Patience::Usual, _) => since.elapsed() < LONG_STALL,
        };
        if must_wait {
            return None;
        }
        self.stalled = None;
        polled.abandoned += 1;
        Some(next)
    }

    /// Moves position and tail; a locked ring is zeroed first, so that the next lap begins without headers.
    fn free(&mut self, state: &RingState, ring: *mut u8, ring_bytes: usize, until: u64) {
        if self.set == Set::Locked {
            let mut at = self.position;
            while at < until && until - self.position <= ring_bytes as u64 {
                let offset = (at % ring_bytes as u64) as usize;
                let len = (until - at).min((ring_bytes - offset) as u64) as usize;
                // SAFETY: inside the ring; the tail has not passed this range, so no writer can have reserved it.
                unsafe { ring.add(offset).write_bytes(0, len) };
                at += len as u64;
            }
        }
        self.position = until;
        state.tail.store(until, Ordering::Release);
    }
}

/// The 8 bytes at a position that is a multiple of 8.
fn header_word(ring: *mut u8, ring_bytes: usize, at: u64) -> u64 {
    let offset = (at % ring_bytes as u64) as usize & !7;
    // SAFETY: inside the ring, 8-aligned as the ring is page-aligned.
    unsafe { AtomicU64::from_ptr(ring.add(offset).cast()) }.load(Ordering::Acquire)
}

/// Where in a range, which begins with a header of zeros, something else than zeros begins; its end if nowhere.
fn next_header(ring: *mut u8, ring_bytes: usize, range: std::ops::Range<u64>) -> u64 {
    let end = range.end;
    range.step_by(8).find(|at| header_word(ring, ring_bytes, *at) != 0).unwrap_or(end)
}

/// Copies a range that lies in one sub-buffer.
fn copy_out(ring: *mut u8, ring_bytes: usize, from: u64, to: u64, copy: &mut Vec<u8>) {
    let offset = (from % ring_bytes as u64) as usize;
    let len = ((to - from) as usize).min(ring_bytes - offset);
    copy.clear();
    copy.reserve(len);
    // SAFETY: the range is inside the ring and the copy has room for it. Another process may be writing to it: then we get
    // some bytes or others, and check them as we check all of them.
    unsafe {
        std::ptr::copy_nonoverlapping(ring.add(offset), copy.as_mut_ptr(), len);
        copy.set_len(len);
    }
}

/// Hands out the records of a copied range. Gives the bytes that made sense and whether those were all.
fn deliver(
    bytes: &[u8],
    source: Source,
    polled: &mut Polled,
    each: &mut impl FnMut(Source, RecordView<'_>),
) -> (usize, bool) {
    let mut at = 0;
    while at < bytes.len() {
        match RecordView::parse(&bytes[at..]) {
            Parsed::Record(view, size) => {
                polled.records += 1;
                each(source, view);
                at += size;
            }
            Parsed::Padding(size) => at += size,
            Parsed::Busy { .. } | Parsed::Damaged => return (at, false),
        }
    }
    (at, true)
}

fn snapshot_ring(
    memory: &RingMemory,
    cpu: u32,
    copy: &mut Vec<u8>,
    polled: &mut Polled,
    each: &mut impl FnMut(Source, RecordView<'_>),
) {
    let layout = memory.layout();
    let state = memory.state(Set::Rseq, cpu);
    let (ring, ring_bytes) = memory.ring(Set::Rseq, cpu);
    let sub_bytes = 1u64 << layout.rseq.sub_shift;
    let n_subs = ring_bytes as u64 / sub_bytes;
    // A writer that has not committed may have scribbled up to the longest record beyond head.
    let oldest = |head: u64| {
        let last = head.saturating_add(layout.max_record_bytes.into()) / sub_bytes;
        (last + 1).saturating_sub(n_subs) * sub_bytes
    };
    let head = state.head.load(Ordering::Acquire);
    let mut position = oldest(head);
    polled.overwritten_bytes = polled.overwritten_bytes.saturating_add(position);
    while position < head {
        let end = position.saturating_add(sub_bytes).min(head);
        copy_out(ring, ring_bytes, position, end, copy);
        core::sync::atomic::fence(Ordering::AcqRel);
        let now = oldest(state.head.load(Ordering::Acquire));
        if now > position {
            polled.overwritten_bytes = polled.overwritten_bytes.saturating_add(now - position);
            position = now;
            continue;
        }
        let (used, is_whole) = deliver(copy, Source { ring: 0, cpu, set: Set::Rseq }, polled, each);
        polled.bytes += used as u64;
        polled.damaged += u64::from(!is_whole);
        position = end;
    }
}
