//! Hits of flight recorders that no ring keeps: those of the kernel door and of threads without rseq, and those of rings
//! that were replaced while the session went on.

use super::config::Channel;
use super::recording_dir::{Origin, Written, free_dir, recorder_in};
use crate::ctf_recorder::Recorder;
use nopal_capture::Task;
use nopal_live::registry::Registry;
use nopal_live::{Hit, StreamId};
use nopal_trace::Error;
use std::collections::{HashSet, VecDeque};
use std::path::Path;

/// A [`Hit`] that owns its payload.
#[derive(Debug)]
struct HeldHit {
    stream: StreamId,
    event: u32,
    ns: u64,
    task: Task,
    payload: Box<[u8]>,
}

impl HeldHit {
    fn n_bytes(&self) -> usize {
        size_of::<HeldHit>() + self.payload.len()
    }
}

/// The newest hits.
#[derive(Debug)]
pub(super) struct FlightBuffer {
    hits: VecDeque<HeldHit>,
    n_bytes: usize,
    max_bytes: usize,
}

impl FlightBuffer {
    pub(crate) fn new(max_bytes: usize) -> FlightBuffer {
        FlightBuffer { hits: VecDeque::new(), n_bytes: 0, max_bytes }
    }

    pub(crate) fn push(&mut self, hit: Hit<'_>) {
        let Hit { stream, event, ns, task, payload } = hit;
        let held = HeldHit { stream, event, ns, task, payload: payload.into() };
        self.n_bytes += held.n_bytes();
        self.hits.push_back(held);
        self.forget(self.max_bytes);
    }

    /// Forgets the oldest until no more than so many bytes are left.
    fn forget(&mut self, max_bytes: usize) {
        while self.n_bytes > max_bytes {
            let Some(oldest) = self.hits.pop_front() else { break };
            self.n_bytes -= oldest.n_bytes();
        }
    }

    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    pub(crate) fn clear(&mut self) {
        self.hits.clear();
        self.n_bytes = 0;
    }

    pub(crate) fn hits(&self) -> impl Iterator<Item = Hit<'_>> {
        self.hits.iter().map(|held| {
            let HeldHit { stream, event, ns, task, payload } = held;
            Hit { stream: *stream, event: *event, ns: *ns, task: *task, payload }
        })
    }

    /// Writes all of it; what cannot be written is counted.
    pub(crate) fn replay(&self, registry: &Registry, recorder: &mut Recorder) -> Result<(), Error> {
        let mut result = Ok(());
        for hit in self.hits() {
            result = result.and(recorder.hit(registry, hit));
        }
        result
    }
}

/// What a channel of a flight recorder held when it was opened anew.
#[derive(Debug)]
pub(super) struct Past {
    origin: Origin,
    pub config: Channel,
    /// Says what the hits mean; the channel that came after has another.
    pub registry: Registry,
    pub attached: HashSet<u32>,
    pub held: FlightBuffer,
    /// What is missing, when, and how much more is.
    gaps: (Vec<(u64, String)>, u64),
}

impl Past {
    /// `held` may have hits of several rings.
    pub(crate) fn new(
        (origin, config): (Origin, Channel),
        registry: Registry,
        attached: HashSet<u32>,
        mut held: FlightBuffer,
        gaps: (Vec<(u64, String)>, u64),
    ) -> Past {
        held.hits.make_contiguous().sort_by_key(|hit| hit.ns);
        Past { origin, config, registry, attached, held, gaps }
    }

    /// Writes it into a folder of `dir`; it stays.
    pub(crate) fn snapshot(&self, dir: &Path) -> Result<Written, Error> {
        let path = free_dir(dir, &self.config.name);
        let mut recorder =
            recorder_in(&path, &self.origin, &self.config, None, &self.registry, &self.attached)?;
        let error = self.held.replay(&self.registry, &mut recorder).err();
        recorder.gaps(&self.gaps.0, self.gaps.1);
        Ok(Written::of(recorder, path, error))
    }
}

/// Forgets the oldest hits of a channel, of which `past` has the older first, until no more than so many bytes are left.
pub(super) fn forget(past: &mut Vec<Past>, channel: &str, max_bytes: usize) {
    let mut room = max_bytes;
    for past in past.iter_mut().rev().filter(|past| past.config.name == channel) {
        past.held.forget(room);
        room -= past.held.n_bytes;
    }
    past.retain(|past| !past.held.hits.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_live::StreamKind;
    use nopal_live::plan::Limits;

    #[test]
    fn of_what_rings_held_the_newest_stays() {
        let past_of = |times: &[u64]| {
            let mut held = FlightBuffer::new(usize::MAX);
            for ns in times {
                let stream = StreamId { ring: 0, cpu: 0, kind: StreamKind::Rseq };
                held.push(Hit { stream, event: 0, ns: *ns, task: Task { pid: 1, tid: 1 }, payload: &[0; 8] });
            }
            let registry = Registry::new(Vec::new(), Vec::new(), Limits::default());
            Past::new(
                (Origin::new("s"), Channel::named("c")),
                registry,
                HashSet::new(),
                held,
                (Vec::new(), 0),
            )
        };
        let one = size_of::<HeldHit>() + 8;
        for (n_room, expected) in [(9, "[[1, 2, 5], [3, 4]]"), (3, "[[5], [3, 4]]"), (1, "[[4]]"), (0, "[]")]
        {
            let mut past = vec![past_of(&[2, 1, 5]), past_of(&[3, 4])];
            forget(&mut past, "other", 0);
            forget(&mut past, "c", n_room * one);
            let times: Vec<Vec<u64>> =
                past.iter().map(|past| past.held.hits.iter().map(|hit| hit.ns).collect()).collect();
            assert_eq!(format!("{times:?}"), expected, "room for {n_room}");
        }
    }
}
