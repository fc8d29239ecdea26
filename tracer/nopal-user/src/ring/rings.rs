//! All rings of a session: one for each kind of credentials among its processes. Shared by the session, which makes them
//! and gives them up, and the reader, which reads them.

use super::{CellReading, OpenSpans, RingLayout, RingMemory, SpanReading};
use nopal_capture::cell::Cell;
use nopal_capture::span::MAX_SPANS;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which rings a process may have written to: a bit for each, by the pid it knows of itself.
pub type Members = Arc<HashMap<u32, u64>>;

#[derive(Debug)]
pub struct Rings {
    layout: RingLayout,
    is_enabled: AtomicBool,
    list: Mutex<Vec<Slot>>,
    members: Mutex<Members>,
    /// Changes with the list.
    version: AtomicU64,
    /// Threads of rings that have gone which went on before their turn.
    n_impatient: AtomicU64,
    /// See [`RingMemory::set_span_rate`].
    span_rate: AtomicU64,
}

/// Up to whom threads may go on, ring by ring.
#[derive(Debug, Default)]
pub struct Tickets(Vec<(u32, Arc<RingMemory>)>);

#[derive(Debug, Clone, Default)]
enum Slot {
    #[default]
    Free,
    Used(Arc<RingMemory>),
    /// To be read to its end and then forgotten.
    Retired(Arc<RingMemory>),
}

impl Slot {
    fn memory(&self) -> Option<&Arc<RingMemory>> {
        match self {
            Slot::Used(memory) | Slot::Retired(memory) => Some(memory),
            Slot::Free => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each step leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rings {
    /// No session has more.
    pub const MAX: usize = 64;

    /// One ring, number 0; others may be added.
    pub fn of(ring: Arc<RingMemory>) -> Arc<Rings> {
        Arc::new(Rings {
            layout: *ring.layout(),
            is_enabled: AtomicBool::new(ring.is_enabled()),
            list: Mutex::new(vec![Slot::Used(ring)]),
            members: Mutex::default(),
            version: AtomicU64::new(0),
            n_impatient: AtomicU64::new(0),
            span_rate: AtomicU64::new(0),
        })
    }

    /// The same for all of them: the code that writes to one may come to write to another.
    pub fn layout(&self) -> &RingLayout {
        &self.layout
    }

    /// Takes a ring of the same layout in; its number, or `None` if there are too many.
    pub fn add(&self, ring: Arc<RingMemory>) -> Option<usize> {
        assert_eq!(ring.layout(), &self.layout, "made to the same plan");
        ring.set_enabled(self.is_enabled.load(Ordering::Acquire));
        ring.set_span_rate(self.span_rate.load(Ordering::Acquire));
        let mut list = lock(&self.list);
        let free = list.iter().position(|slot| matches!(slot, Slot::Free)).unwrap_or(list.len());
        if free >= Rings::MAX {
            return None;
        }
        if free == list.len() {
            list.push(Slot::Free);
        }
        list[free] = Slot::Used(ring);
        self.version.fetch_add(1, Ordering::AcqRel);
        Some(free)
    }

    /// Nobody writes to this ring any more. It is forgotten once it has been read.
    pub fn retire(&self, ring: usize) {
        let mut list = lock(&self.list);
        if let Some(slot @ Slot::Used(_)) = list.get_mut(ring)
            && let Slot::Used(memory) = std::mem::take(slot)
        {
            *slot = Slot::Retired(memory);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A retired ring has been read to its end.
    pub(crate) fn forget(&self, ring: usize) {
        if let Some(slot @ Slot::Retired(_)) = lock(&self.list).get_mut(ring)
            && let Slot::Retired(memory) = std::mem::take(slot)
        {
            self.n_impatient.fetch_add(memory.impatient(), Ordering::AcqRel);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// All there are, with their numbers and whether they are retired.
    pub(crate) fn all(&self) -> Vec<(usize, Arc<RingMemory>, bool)> {
        let with = |(ring, slot): (usize, &Slot)| {
            Some((ring, Arc::clone(slot.memory()?), matches!(slot, Slot::Retired(_))))
        };
        lock(&self.list).iter().enumerate().filter_map(with).collect()
    }

    /// The ring with this number.
    pub fn get(&self, ring: usize) -> Option<Arc<RingMemory>> {
        lock(&self.list).get(ring)?.memory().cloned()
    }

    /// Lets the session's stubs record, or stops them, at once.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Release);
        self.all().iter().for_each(|(_, ring, _)| ring.set_enabled(is_enabled));
    }

    /// How many nanoseconds a tick has, in units of 2^-32: for the spans that stubs keep.
    pub fn set_span_rate(&self, rate: u64) {
        self.span_rate.store(rate, Ordering::Release);
        self.all().iter().for_each(|(_, ring, _)| ring.set_span_rate(rate));
    }

    /// Spans that took no longer than these ticks need not be reported.
    pub fn raise_span_floor(&self, span: usize, ticks: u64) {
        self.all().iter().for_each(|(_, ring, _)| ring.raise_span_floor(span, ticks));
    }

    /// The groups of all rings.
    pub fn read_groups(&self) -> Vec<(u64, SpanReading)> {
        self.all().iter().flat_map(|(_, ring, _)| ring.read_groups()).collect()
    }

    /// What all CPUs of all rings together have gathered of a span so far.
    pub fn read_span(&self, span: usize) -> SpanReading {
        let mut sum = SpanReading::default();
        self.all().iter().for_each(|(_, ring, _)| sum.merge(&ring.read_span(span)));
        sum
    }

    /// What threads have open in all rings.
    pub fn open_spans(&self) -> OpenSpans {
        let mut sum = OpenSpans::default();
        self.all().iter().for_each(|(_, ring, _)| sum.merge(&ring.open_spans()));
        sum
    }

    /// Gives the slots of threads that have ended to others; see [`RingMemory::free_slots`].
    pub fn free_span_slots(&self, is_alive: &mut impl FnMut(u64) -> bool, n_open: &mut [u64; MAX_SPANS]) {
        self.all().iter().for_each(|(_, ring, _)| ring.free_slots(&mut *is_alive, n_open));
    }

    /// Whether a thread waits in a [`Wait`](nopal_capture::Action::Wait) stub whose turn has not come.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.all().iter().any(|(_, ring, _)| ring.is_waited_for())
    }

    /// Says to the threads that wait that they are being looked after; gives who they are.
    pub(crate) fn begin_look(&self) -> Tickets {
        let begin = |ring: Arc<RingMemory>| {
            let ticket = ring.tickets();
            ring.begin_look(ticket);
            (ticket, ring)
        };
        Tickets(self.all().into_iter().map(|(_, ring, _)| begin(ring)).collect())
    }

    /// Lets go on the threads that wait with tickets up to these.
    pub(crate) fn take_turns(&self, tickets: &Tickets) {
        tickets.0.iter().for_each(|(ticket, ring)| ring.take_turn(*ticket));
    }

    /// How many threads have gone on before their turn.
    pub(crate) fn impatient(&self) -> u64 {
        let now = self.all().into_iter().map(|(_, ring, _)| ring.impatient());
        now.fold(self.n_impatient.load(Ordering::Acquire), u64::wrapping_add)
    }

    /// The process with this pid, as it knows itself, may write to this ring.
    pub(crate) fn add_member(&self, pid: u32, ring: usize) {
        let mut members = lock(&self.members);
        *Arc::make_mut(&mut members).entry(pid).or_default() |= 1 << ring;
    }

    /// It has ended.
    pub(crate) fn remove_member(&self, pid: u32) {
        let mut members = lock(&self.members);
        if members.contains_key(&pid) {
            Arc::make_mut(&mut members).remove(&pid);
        }
    }

    pub(crate) fn members(&self) -> Members {
        Arc::clone(&lock(&self.members))
    }

    /// What all CPUs of all rings together have gathered in a cell so far.
    pub fn read_cell(&self, cell: &Cell) -> CellReading {
        let mut readings = self.all().into_iter().map(|(_, ring, _)| ring.read_cell(cell));
        let mut sum = readings.next().unwrap_or_default();
        for reading in readings {
            sum.overflow = sum.overflow.wrapping_add(reading.overflow);
            for (key, words) in reading.keys {
                match sum.keys.binary_search_by_key(&key, |(key, _)| *key) {
                    Ok(at) => cell.aggregate.merge(&mut sum.keys[at].1, &words),
                    Err(at) => sum.keys.insert(at, (key, words)),
                }
            }
        }
        sum
    }

    /// Sets a cell back to nothing. Hits that come meanwhile may be in it or not.
    pub fn clear_cell(&self, cell: &Cell) {
        self.all().iter().for_each(|(_, ring, _)| ring.clear_cell(cell));
    }
}
