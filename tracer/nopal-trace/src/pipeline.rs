//! Prints a recording: events are put into order on one thread, made into lines in batches on all of them, and written
//! in order. What is under way is bounded, so memory does not grow with the recording.

use crate::error::Error;
use crate::read::class::StreamClass;
use crate::read::{Damage, Event, EventClass, Found, Packet, Range, Recording, Report};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Turns events into lines: [`crate::TextLines`], [`crate::JsonLines`].
pub trait Lines {
    /// The time of the line before the next one.
    fn set_last_ns(&mut self, ns: Option<i64>);
    /// Appends a line, or nothing if the event cannot be decoded.
    fn print(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Damage>;
}

/// Says of single events whether they are wanted.
pub trait Filter: std::fmt::Debug + Send + Sync {
    /// Decides about one event after the other, on one thread; keeps its memory from event to event.
    fn decider(&self) -> Decider<'_>;
}

pub type Decider<'f> = Box<dyn FnMut(&Event<'_>) -> bool + Send + 'f>;

/// What to print.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub range: Range,
    /// By [`EventClass::index`]; empty for all.
    pub is_wanted: Vec<bool>,
    /// Of the wanted classes.
    pub filter: Option<Arc<dyn Filter>>,
    pub limit: Option<u64>,
    /// The time of the event before the first, if one was printed already.
    pub last_ns: Option<i64>,
}

impl Selection {
    /// The classes for which `is_wanted` holds.
    pub fn of(recording: &Recording, is_wanted: impl Fn(&EventClass) -> bool) -> Self {
        let is_wanted = recording.event_classes().iter().map(is_wanted).collect();
        Selection { is_wanted, ..Selection::default() }
    }
}

/// What was printed.
#[derive(Debug, Clone, Default)]
pub struct Printed {
    pub n_events: u64,
    /// The time of the last event that was printed.
    pub last_ns: Option<i64>,
    pub report: Report,
}

#[derive(Debug)]
pub enum PrintError {
    Recording(Error),
    /// The output could not be written.
    Output(io::Error),
}

impl From<Error> for PrintError {
    fn from(error: Error) -> Self {
        PrintError::Recording(error)
    }
}

/// Events to a batch: some hundred kilobytes of text.
const BATCH_EVENTS: usize = 4096;

/// Events in order, with the packets they are in.
struct Batch<'r> {
    packets: Vec<(Arc<Packet>, &'r StreamClass)>,
    events: Vec<(u32, Found)>,
    last_ns: Option<i64>,
}

/// A batch on its way to a thread, and the way back for its lines.
struct Job<'r> {
    batch: Batch<'r>,
    /// Memory for the lines, used again and again.
    out: Vec<u8>,
    done: SyncSender<Done>,
}

/// Lines, and the memory of the batch they were made from.
struct Done {
    lines: Vec<u8>,
    events: Vec<(u32, Found)>,
}

/// Prints the selected events in the order of time; ends early once `stop` is set.
pub fn print<L: Lines>(
    recording: &Recording,
    selection: &Selection,
    new_lines: impl Fn() -> L + Sync,
    out: &mut impl Write,
    stop: &AtomicBool,
) -> Result<Printed, PrintError> {
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let max_under_way = n_threads * 2;
    let (to_work, work) = sync_channel::<Job<'_>>(max_under_way);
    let work = Mutex::new(work);
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| make_lines(recording, &work, &new_lines));
        }
        // Moved in, so that the threads see its end when this closure is over, however it ends.
        let to_work = to_work;
        let mut batches = Batches::new(recording, selection)?;
        let mut under_way: VecDeque<Receiver<Done>> = VecDeque::new();
        let mut spare: Vec<Done> = Vec::new();
        let mut write_oldest =
            |under_way: &mut VecDeque<Receiver<Done>>, spare: &mut Vec<Done>| -> Result<bool, PrintError> {
                let Some(oldest) = under_way.pop_front() else { return Ok(false) };
                if let Ok(mut done) = oldest.recv() {
                    out.write_all(&done.lines).map_err(PrintError::Output)?;
                    done.lines.clear();
                    done.events.clear();
                    spare.push(done);
                }
                Ok(true)
            };
        while !stop.load(Ordering::Relaxed) {
            let Done { lines, events } =
                spare.pop().unwrap_or_else(|| Done { lines: Vec::new(), events: Vec::new() });
            let Some(batch) = batches.next(events)? else { break };
            let (done, result) = sync_channel(1);
            if to_work.send(Job { batch, out: lines, done }).is_err() {
                break;
            }
            under_way.push_back(result);
            if under_way.len() >= max_under_way {
                write_oldest(&mut under_way, &mut spare)?;
            }
        }
        while write_oldest(&mut under_way, &mut spare)? {}
        out.flush().map_err(PrintError::Output)?;
        Ok(Printed { n_events: batches.n_events, last_ns: batches.last_ns, report: batches.events.report() })
    })
}

fn make_lines<L: Lines>(recording: &Recording, work: &Mutex<Receiver<Job<'_>>>, new_lines: &impl Fn() -> L) {
    let mut lines = new_lines();
    loop {
        let job = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { batch, mut out, done }) = job else { return };
        lines.set_last_ns(batch.last_ns);
        for (packet, found) in &batch.events {
            let (packet, stream) = &batch.packets[*packet as usize];
            let event = Event { recording, stream, packet, found: *found };
            // The walk that found the event has decoded it once, so this cannot fail.
            let _ = lines.print(&event, &mut out);
        }
        // The other side is gone only if it has given up.
        let _ = done.send(Done { lines: out, events: batch.events });
    }
}

struct Batches<'r, 's> {
    recording: &'r Recording,
    events: crate::read::Events<'r>,
    selection: &'s Selection,
    decider: Option<Decider<'s>>,
    last_ns: Option<i64>,
    n_events: u64,
}

impl<'r, 's> Batches<'r, 's> {
    fn new(recording: &'r Recording, selection: &'s Selection) -> Result<Self, Error> {
        let events = recording.events(selection.range)?;
        let decider = selection.filter.as_deref().map(Filter::decider);
        Ok(Batches { recording, events, selection, decider, last_ns: selection.last_ns, n_events: 0 })
    }

    /// The next batch, in the memory of an old one.
    fn next(&mut self, events: Vec<(u32, Found)>) -> Result<Option<Batch<'r>>, Error> {
        let mut batch = Batch { packets: Vec::new(), events, last_ns: self.last_ns };
        batch.events.reserve(BATCH_EVENTS);
        let left = self.selection.limit.map_or(u64::MAX, |limit| limit - self.n_events);
        let wanted = left.min(BATCH_EVENTS as u64) as usize;
        // Which of the batch's packets each stream is in.
        let mut in_batch: Vec<Option<u32>> = vec![None; self.events.n_streams()];
        while batch.events.len() < wanted {
            let Some((stream, found)) = self.events.next_found()? else { break };
            if self.selection.is_wanted.get(found.class as usize) == Some(&false) {
                continue;
            }
            let (Some(packet), Some(class)) = (self.events.packet(stream), self.events.stream_class(stream))
            else {
                break;
            };
            if let Some(decider) = &mut self.decider
                && !decider(&Event { recording: self.recording, stream: class, packet, found })
            {
                continue;
            }
            let index = match in_batch[stream] {
                Some(index) if Arc::ptr_eq(&batch.packets[index as usize].0, packet) => index,
                _ => {
                    let index = batch.packets.len() as u32;
                    batch.packets.push((packet.clone(), class));
                    in_batch[stream] = Some(index);
                    index
                }
            };
            batch.events.push((index, found));
        }
        self.n_events += batch.events.len() as u64;
        let Some((_, last)) = batch.events.last() else { return Ok(None) };
        self.last_ns = Some(last.ns).filter(|ns| *ns != i64::MIN);
        Ok(Some(batch))
    }
}
