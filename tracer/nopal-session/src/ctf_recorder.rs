//! Puts hits into a recording: one stream per CPU and way of writing, each in the order of time by itself; and beside them
//! what the streams cannot tell.

use crate::totals::Totals;
use crate::turn::Turn;
use nopal_live::CodeRange;
use nopal_live::context::{ContextField, Contexts};
use nopal_live::registry::Registry;
use nopal_live::{Consumer, Hit, Live, Loss, StreamId, StreamKind};
use nopal_trace::clock::epoch_ns;
use nopal_trace::{
    Code, CodeFile, Error, LetGo, RecordingInfo, RecordingWriter, StreamWay, StreamWriter, TaskFile, TypeId,
    Verdict, VerdictFile,
};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// Threads of other pid namespaces that are told: a program may make up any number of them, and a reader reads no more.
const MAX_TOLD: usize = 1 << 20;

/// A recording in the making.
#[derive(Debug)]
pub struct Recorder {
    writer: RecordingWriter,
    streams: Streams,
    /// By plan.
    types: Vec<TypeId>,
    pub contexts: Contexts,
    context: Vec<u8>,
    pub tally: Tally,
    verdict: Verdict,
    verdict_file: VerdictFile,
    clock_offset_ns: i64,
    /// Threads of other pid namespaces: the file they are told in, and those that were.
    task_file: Option<TaskFile>,
    told: HashSet<(u32, u32)>,
    /// There were more, and that was said.
    is_told_out: bool,
    /// Where the code of stacks is.
    code_file: Option<CodeFile>,
}

/// Hits on their way into a recording.
struct Passing<'a> {
    recorder: &'a mut Recorder,
    /// Hits outside of it were written, or will be.
    span: Range<u64>,
    turn: &'a Turn,
    /// Who comes after must know which hits there were.
    noted: Option<&'a mut Turn>,
    /// The first error.
    result: Result<(), Error>,
    /// Hits after it.
    n_dropped: u64,
}

impl Consumer<Registry> for Passing<'_> {
    #[inline]
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        if !self.span.contains(&hit.ns) || !self.turn.takes(hit) {
            return;
        }
        if let Some(noted) = &mut self.noted {
            noted.note(hit);
        }
        match self.result {
            Ok(()) => self.result = self.recorder.hit(registry, *hit),
            Err(_) => self.n_dropped += 1,
        }
    }

    fn loss(&mut self, loss: &Loss) {
        if self.span.contains(&loss.last_ns) && self.turn.is_over(loss.last_ns) {
            let told = self.recorder.loss(loss);
            if self.result.is_ok() {
                self.result = told;
            }
        }
    }
}

/// Hits on their way into a recording that shall have no more than so many.
struct First<'a> {
    recorder: &'a mut Recorder,
    limit: u64,
    /// The first error.
    result: Result<(), Error>,
}

impl First<'_> {
    fn is_enough(&self) -> bool {
        self.recorder.tally.n_events >= self.limit
    }
}

impl Consumer<Registry> for First<'_> {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        if self.is_enough() {
            return;
        }
        match self.result {
            Ok(()) => self.result = self.recorder.hit(registry, *hit),
            Err(_) => self.recorder.verdict.n_disk += 1,
        }
    }

    fn loss(&mut self, loss: &Loss) {
        // What was lost after the last event that was wanted was not wanted either.
        if !self.is_enough() {
            let told = self.recorder.loss(loss);
            if self.result.is_ok() {
                self.result = told;
            }
        }
    }
}

/// What a recording says to be missing, beside what was counted: nanoseconds since the epoch, and words.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToldGaps {
    n: u64,
    listed: Vec<(i64, String)>,
}

/// What a recording holds in the end.
#[derive(Debug)]
pub struct Closed {
    pub n_bytes: u64,
    /// Events that a reader finds.
    pub n_events: u64,
    /// What is missing, however it was lost.
    pub verdict: Verdict,
    /// Why the last packets could not be written.
    pub error: Option<Error>,
}

/// What a recording holds so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub n_events: u64,
    pub n_lost: u64,
    /// When the first and the last of them came, CLOCK_MONOTONIC.
    pub lost_span: Option<(u64, u64)>,
    pub n_malformed: u64,
    pub n_truncated: u64,
    pub n_unreadable: u64,
    /// Those of the events whose filter would have had to see more of a text than was copied.
    pub n_undecided: u64,
}

impl Recorder {
    pub fn create(dir: &Path, info: RecordingInfo, fields: &[ContextField]) -> Result<Recorder, Error> {
        let info = fields.iter().fold(info, |info, field| field.declare(info));
        let clock_offset_ns = info.clock_offset_ns;
        let writer = RecordingWriter::create(dir, info)?;
        Ok(Recorder {
            verdict_file: VerdictFile::create(writer.folder())?,
            writer,
            streams: Streams::default(),
            types: Vec::new(),
            contexts: Contexts::new(fields),
            context: Vec::new(),
            tally: Tally::default(),
            verdict: Verdict { is_unfinished: true, ..Verdict::default() },
            clock_offset_ns,
            task_file: None,
            told: HashSet::new(),
            is_told_out: false,
            code_file: None,
        })
    }

    /// Makes every event type known so far part of the recording.
    pub fn declare(&mut self, registry: &Registry) -> Result<(), Error> {
        for plan in &registry.plans[self.types.len()..] {
            self.types.push(self.writer.add_event_type(plan.event_type.clone())?);
        }
        Ok(())
    }

    /// Moves what is in the rings into the recording, as far as it is its turn. After an error the rest is counted as
    /// lost. Gives how many hits there were.
    pub fn pass(&mut self, live: &mut Live, turn: &Turn) -> Result<u64, Error> {
        self.pass_on(live, turn, None)
    }

    /// The same for the last time; another comes after it.
    pub(crate) fn pass_on(
        &mut self,
        live: &mut Live,
        turn: &Turn,
        noted: Option<&mut Turn>,
    ) -> Result<u64, Error> {
        let mut passing =
            Passing { recorder: self, span: 0..u64::MAX, turn, noted, result: Ok(()), n_dropped: 0 };
        let polled = live.poll_into(&mut passing);
        let Passing { result, n_dropped, .. } = passing;
        self.verdict.n_disk += n_dropped;
        self.tally.n_malformed += polled.n_damaged;
        result.map(|()| polled.n_hits)
    }

    /// The same in the order of time, up to `limit` events in all; later ones are not wanted. Hits that others may still come
    /// before wait, unless this is the last time.
    pub fn pass_first(&mut self, live: &mut Live, limit: u64, is_last: bool) -> Result<u64, Error> {
        let mut first = First { recorder: self, limit, result: Ok(()) };
        let polled = live.poll_by_time(is_last, &mut first);
        let First { result, .. } = first;
        self.tally.n_malformed += polled.n_damaged;
        result.map(|()| polled.n_hits)
    }

    /// Writes what rings hold that are written over; it stays there.
    pub(crate) fn snapshot(&mut self, live: &mut Live, span: Range<u64>, turn: &Turn) -> Result<(), Error> {
        let mut passing = Passing { recorder: self, span, turn, noted: None, result: Ok(()), n_dropped: 0 };
        let polled = live.snapshot(|registry, hit| passing.hit(registry, &hit));
        let Passing { result, n_dropped, .. } = passing;
        self.verdict.n_disk += n_dropped;
        self.tally.n_malformed += polled.n_damaged;
        result
    }

    /// Counts what is in the rings as lost, as nothing can be written any more.
    pub fn drop_rest(&mut self, live: &mut Live) {
        let polled = live.poll(|_, _| {});
        self.verdict.n_disk += polled.n_hits + polled.losses.iter().map(|loss| loss.count).sum::<u64>();
        self.tally.n_malformed += polled.n_damaged;
    }

    /// Adds a hit. Inlined, as the hits of a loaded program are many and go through several hands.
    #[inline]
    pub fn hit(&mut self, registry: &Registry, mut hit: Hit<'_>) -> Result<(), Error> {
        let event = &registry.events[hit.event as usize];
        if event.condition.is_some() {
            self.tally.n_undecided += registry.take_undecided();
        }
        if let Err(error) = self.prepare(registry, &mut hit) {
            self.verdict.n_disk += 1;
            return Err(error);
        }
        self.context.clear();
        self.contexts.write(registry, &hit, &mut self.context);
        if !self.contexts.new_code.is_empty() {
            self.write_code()?;
        }
        let ty = self.types[event.plan_idx];
        let stream = self.streams.get(&mut self.writer, hit.stream)?;
        let packed = stream.append_packed(ty, hit.ns, &self.context, |out| {
            event.plan.pack(event.site_idx, hit.payload, out)
        })?;
        match packed {
            Ok(texts) => {
                self.tally.n_truncated += u64::from(texts.n_truncated);
                self.tally.n_unreadable += u64::from(texts.n_unreadable);
                self.tally.n_events += 1;
            }
            Err(nopal_live::plan::Malformed) => self.tally.n_malformed += 1,
        }
        Ok(())
    }

    /// Makes everything that a hit needs before it can be written.
    #[inline]
    fn prepare(&mut self, registry: &Registry, hit: &mut Hit<'_>) -> Result<(), Error> {
        if self.contexts.tasks.has_foreign() {
            self.translate(hit)?;
        }
        if registry.events[hit.event as usize].plan_idx >= self.types.len() {
            self.declare(registry)?;
        }
        self.streams.get(&mut self.writer, hit.stream).map(|_| ())
    }

    /// Gives a hit the numbers of its own namespace, and tells once which ones those are in ours.
    fn translate(&mut self, hit: &mut Hit<'_>) -> Result<(), Error> {
        let (inside, outside) = self.contexts.tasks.both(hit);
        hit.task = inside;
        let own = (hit.task.pid, hit.task.tid);
        if outside == hit.task || self.told.contains(&own) {
            return Ok(());
        }
        if self.told.len() >= MAX_TOLD {
            if !std::mem::replace(&mut self.is_told_out, true) {
                self.gap(hit.ns, &format!("more than {MAX_TOLD} threads of other pid namespaces: later ones have the numbers of their own only"));
            }
            return Ok(());
        }
        self.told.insert(own);
        let file = match &mut self.task_file {
            Some(file) => file,
            none => none.insert(TaskFile::create(self.writer.folder())?),
        };
        file.add((own.0.into(), own.1.into()), (outside.pid.into(), outside.tid.into()))
    }

    /// Says where the code is whose addresses have just come.
    fn write_code(&mut self) -> Result<(), Error> {
        for (pid, ns, code) in std::mem::take(&mut self.contexts.new_code) {
            let file = match &mut self.code_file {
                Some(file) => file,
                none => none.insert(CodeFile::create(self.writer.folder())?),
            };
            let CodeRange { start, end, offset, path, build_id } = code;
            let since_ns = self.clock_offset_ns.saturating_add_unsigned(ns);
            file.add(pid, since_ns, &Code { start, end, offset, build_id, path })?;
        }
        Ok(())
    }

    /// Adds a loss; hits later than its start come after it.
    pub fn loss(&mut self, loss: &Loss) -> Result<(), Error> {
        self.tally.lost_span = Some(nopal_live::widen(self.tally.lost_span, loss));
        match self.streams.get(&mut self.writer, loss.stream) {
            Ok(stream) => {
                self.tally.n_lost += loss.count;
                stream.discarded(loss.count, loss.first_ns..loss.last_ns)
            }
            Err(error) => {
                self.verdict.n_disk += loss.count;
                Err(error)
            }
        }
    }

    /// Writes out events that wait for their packet to fill, so that a crash costs little.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.verdict.n_cut != self.tally.n_truncated || self.verdict.n_let_go != self.let_go().n_events {
            self.write_verdict();
        }
        // Up to the last event only: hits that are in the rings already are earlier than now.
        self.streams.iter_mut().filter(|s| s.is_dirty()).try_for_each(|s| s.flush(0))
    }

    /// Bytes of events in the files so far.
    pub fn bytes_written(&self) -> u64 {
        self.streams.iter().map(StreamWriter::bytes_written).sum()
    }

    /// What it has so far.
    pub(crate) fn totals(&self) -> Totals {
        let LetGo { n_events: n_let_go, until_ns, .. } = self.let_go();
        Totals {
            n_events: self.tally.n_events - n_let_go,
            n_lost: self.tally.n_lost + self.tally.n_malformed,
            n_bytes: self.bytes_written(),
            n_let_go,
            let_go_until_ns: (n_let_go > 0).then(|| self.epoch_ns(until_ns)),
        }
    }

    /// A time of the recording's clock since the epoch.
    fn epoch_ns(&self, ns: u64) -> i64 {
        self.clock_offset_ns.saturating_add_unsigned(ns)
    }

    /// What went with the oldest files so far.
    pub(crate) fn let_go(&self) -> LetGo {
        self.streams.iter().map(StreamWriter::let_go).fold(LetGo::default(), |sum, one| LetGo {
            n_events: sum.n_events + one.n_events,
            n_discarded: sum.n_discarded.wrapping_add(one.n_discarded),
            until_ns: sum.until_ns.max(one.until_ns),
        })
    }

    /// States that hits may be missing since `ns` (CLOCK_MONOTONIC), and why. In the file at once, as nobody knows how
    /// long the recorder lives.
    pub fn gap(&mut self, ns: u64, text: &str) {
        self.verdict.gap(self.clock_offset_ns.saturating_add_unsigned(ns), text);
        self.write_verdict();
    }

    /// States gaps that are known already, with their times (CLOCK_MONOTONIC), and the number of others.
    pub fn gaps(&mut self, gaps: &[(u64, String)], n_more: u64) {
        for (ns, text) in gaps {
            self.verdict.gap(self.clock_offset_ns.saturating_add_unsigned(*ns), text);
        }
        self.verdict.n_gaps += n_more;
    }

    /// The gaps that were stated so far.
    pub(crate) fn told_gaps(&self) -> ToldGaps {
        ToldGaps { n: self.verdict.n_gaps, listed: self.verdict.gaps.clone() }
    }

    /// States gaps of a recording that there was before.
    pub(crate) fn inherit_gaps(&mut self, gaps: ToldGaps) {
        if gaps.n > 0 {
            self.verdict.n_gaps += gaps.n;
            self.verdict.gaps.extend(gaps.listed);
            self.write_verdict();
        }
    }

    /// States how many programs and libraries were opened only after they had begun.
    pub fn set_late(&mut self, n_late: u64) {
        if n_late != self.verdict.n_late {
            self.verdict.n_late = n_late;
            self.write_verdict();
        }
    }

    fn write_verdict(&mut self) {
        let LetGo { n_events, until_ns, .. } = self.let_go();
        if n_events > 0 {
            self.verdict.n_let_go = n_events;
            self.verdict.let_go_until = Some(self.epoch_ns(until_ns));
        }
        self.verdict.n_malformed = self.tally.n_malformed;
        self.verdict.n_cut = self.tally.n_truncated;
        self.verdict.n_undecided = self.tally.n_undecided;
        // It has its room already; if it cannot be written even so, the streams cannot either, and say it.
        let _ = self.verdict_file.write(&self.verdict);
    }

    /// Writes what can be written, and the last word on it.
    pub fn close(mut self) -> Closed {
        let (mut n_bytes, mut n_events, mut n_packets, mut n_discarded, mut error) = (0, 0, 0, 0, None);
        let n_dropped = self.verdict.n_disk;
        for stream in self.streams.iter_mut() {
            if let Err(failed) = stream.flush(0) {
                error.get_or_insert(failed);
            }
            n_bytes += stream.bytes_written();
            n_events += stream.events_written();
            n_packets += stream.packets_written();
            n_discarded += stream.events_discarded();
            self.verdict.n_disk += stream.untold_discarded();
        }
        self.verdict.n_events = Some(n_events);
        self.verdict.n_packets = Some(n_packets);
        self.verdict.is_unfinished = false;
        self.write_verdict();
        // A stream counts what the rings lost together with what it could not write, and tells it itself.
        let Tally { n_lost, lost_span, .. } = self.tally;
        // What the files that went told of is not told any more.
        let n_gone = self.let_go().n_discarded;
        let (n_lost, n_discarded) = (n_lost.saturating_sub(n_gone), n_discarded.saturating_sub(n_gone));
        let n_disk = n_dropped + n_discarded.saturating_sub(n_lost);
        let mut verdict = Verdict { n_disk, is_cut_short: error.is_some(), ..self.verdict };
        if let Some((first_ns, last_ns)) = lost_span {
            verdict.lose(n_lost.min(n_discarded), epoch_ns(first_ns), epoch_ns(last_ns));
        }
        Closed { n_bytes, n_events, verdict, error }
    }
}

/// The streams there are, by ring, CPU and kind: every hit looks for its own, so that it must be quick.
#[derive(Debug, Default)]
struct Streams(Vec<Vec<Option<StreamWriter>>>);

impl Streams {
    #[inline]
    fn get(&mut self, writer: &mut RecordingWriter, id: StreamId) -> Result<&mut StreamWriter, Error> {
        let way = match id.kind {
            StreamKind::Rseq => StreamWay::Rseq,
            StreamKind::Locked => StreamWay::Locked,
            StreamKind::Kernel => StreamWay::Kernel,
        };
        let (ring, idx) = (id.ring as usize, way.part(id.cpu) as usize);
        if ring >= self.0.len() {
            self.0.resize_with(ring + 1, Vec::new);
        }
        let of_ring = &mut self.0[ring];
        if idx >= of_ring.len() {
            of_ring.resize_with(idx + 1, || None);
        }
        match &mut of_ring[idx] {
            Some(stream) => Ok(stream),
            empty => Ok(empty.insert(writer.stream_part(id.cpu, way.part(id.ring))?)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &StreamWriter> {
        self.0.iter().flatten().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamWriter> {
        self.0.iter_mut().flatten().flatten()
    }
}
