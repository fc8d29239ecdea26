//! What a recorder writes: chunks, one after another, and snapshots, asked for or by a trigger.

use super::{RecorderProcess, Reply, SessionError, note_gaps, recording_error};
use crate::channel::Running;
use crate::clear;
use crate::config::Rotation;
use crate::output::Output;
use crate::recording_dir::Written;
use crate::watch::Fired;
use nopal_trace::clock::{monotonic_ns, monotonic_to_epoch_ns};
use nopal_trace::localtime::{ClockText, text_of};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A trigger that keeps firing makes no more snapshots than this.
const BETWEEN_TRIGGERED: Duration = Duration::from_secs(1);
const MAX_TRIGGERED: u32 = 100;

impl RecorderProcess<'_> {
    /// Begins recordings in a folder of their own. Channels that are written over have none until they are asked for, by
    /// a snapshot or by the end of the chunk.
    pub(crate) fn next_chunk(&mut self) -> Result<(), SessionError> {
        if self.config.snapshot && self.running.iter().all(Running::is_overwriting) {
            self.chunk = None;
            return Ok(());
        }
        let chunk = loop {
            self.state.n_chunks += 1;
            // An older session may have used the folder.
            let name = format!("chunk-{}", self.state.n_chunks);
            if let Some(chunk) = self.output()?.new_dir(&name)? {
                break chunk;
            }
        };
        self.state.chunks.push(self.state.n_chunks);
        for running in self.running.iter_mut().filter(|r| !r.is_overwriting()) {
            running.record_into(&chunk).map_err(|e| recording_error(&e))?;
        }
        self.chunk = Some(chunk);
        Ok(())
    }

    /// The folder that is recorded into, made when it is needed.
    fn output(&mut self) -> Result<&Output, SessionError> {
        let output = match self.output.take() {
            Some(output) => output,
            None => Output::make(&self.config.output, &mut self.state)?,
        };
        Ok(self.output.insert(output))
    }

    /// A path in that folder as people know it.
    pub(super) fn shown(&self, path: &Path) -> PathBuf {
        self.output.as_ref().map_or_else(|| path.to_owned(), |output| output.shown(path))
    }

    /// The same of an error that names one.
    pub(super) fn shown_in(&self, error: SessionError) -> SessionError {
        match &self.output {
            Some(output) => output.shown_in(error),
            None => error,
        }
    }

    /// Counts a recording that has ended, also if not all of it could be written. Gives how many events it has.
    pub(crate) fn add(&mut self, written: Written) -> Result<u64, SessionError> {
        self.state.totals.add(&written.totals);
        written.error.map_or(Ok(written.totals.n_events), |error| Err(recording_error(&error)))
    }

    pub(super) fn rotate(&mut self) -> Result<Reply, SessionError> {
        let Some(path) = self.chunk.clone() else {
            return Err(SessionError::new("no-rotation", "a session of snapshots has nothing to rotate")
                .hint("`nopal snapshot record` writes what the rings hold"));
        };
        let path = self.shown(&path);
        let n_events = self.end_chunk()?;
        self.state.chunks.clear();
        self.state.archived = self.state.totals;
        self.state.n_archived_gaps = self.state.gaps.len();
        self.last_rotation = Instant::now();
        self.next_chunk()?;
        self.keep_state();
        Ok(Reply::Written { path, n_events })
    }

    /// A rotation by itself, when what was recorded has the size or the age that is wanted.
    pub(super) fn rotate_when_due(&mut self) -> Result<(), SessionError> {
        let Rotation { size_bytes, timer_us } = self.config.rotation;
        if self.chunk.is_none() || (size_bytes, timer_us) == (None, None) {
            return Ok(());
        }
        let n_bytes = || self.running.iter().map(|running| running.totals().n_bytes).sum::<u64>();
        let is_large = size_bytes.is_some_and(|max| n_bytes() >= max);
        let is_old = timer_us.is_some_and(|max| self.last_rotation.elapsed() >= Duration::from_micros(max));
        if is_large || is_old {
            self.rotate()?;
        }
        Ok(())
    }

    /// Removes what was recorded since the last rotation, or what rings hold for snapshots, and goes on.
    pub(super) fn clear(&mut self) -> Result<(), SessionError> {
        self.past.clear();
        for running in &mut self.running {
            running.clear().map_err(|e| recording_error(&e))?;
        }
        if self.chunk.take().is_none() {
            return Ok(());
        }
        let removed = match &self.output {
            Some(output) => clear::remove_chunks(output, &mut self.state),
            None => Ok(()),
        };
        self.next_chunk()?;
        self.keep_state();
        removed
    }

    /// Ends the recordings under way. Rings that are written over are written out too, unless for snapshots only. After an
    /// error the others are ended all the same.
    pub(super) fn end_chunk(&mut self) -> Result<u64, SessionError> {
        let mut ended = Ok(0);
        let chunk = self.chunk.take().filter(|_| !self.config.snapshot);
        for idx in 0..self.running.len() {
            let running = &mut self.running[idx];
            let written = match (running.is_overwriting(), &chunk) {
                (true, Some(chunk)) => running.write_new(chunk).map(Some),
                _ => Ok(running.finish()),
            };
            let added = match written {
                Ok(Some(written)) => self.add(written),
                Ok(None) => Ok(0),
                Err(error) => Err(recording_error(&error)),
            };
            ended = ended.and_then(|sum| added.map(|n_events| sum + n_events));
        }
        ended
    }

    pub(super) fn snapshot(&mut self, name: Option<&str>) -> Result<Written, SessionError> {
        let n_snapshots = self.state.n_snapshots + 1;
        let mut folder = format!("snapshot-{n_snapshots}-{}", stamp());
        if let Some(name) = name {
            crate::config::check_name("a snapshot", name)?;
            folder = format!("{folder}-{name}");
        }
        let path = self.output()?.new_dir(&folder)?.ok_or_else(|| {
            let path = self.config.output.join(&folder);
            SessionError::new("output", format!("there is {} already", path.display()))
        })?;
        self.state.n_snapshots = n_snapshots;
        let mut all = Written { path: self.shown(&path), ..Written::default() };
        let now = self.running.iter_mut().filter(|r| r.is_overwriting()).map(|r| r.snapshot(&path));
        for written in now.chain(self.past.iter().map(|past| past.snapshot(&path))) {
            let written = written.map_err(|e| recording_error(&e))?;
            all.totals.add(&written.totals);
            if let Some(error) = written.error {
                return Err(recording_error(&error));
            }
        }
        (self.surroundings.log)(&format!(
            "snapshot of {} events in {}",
            all.totals.n_events,
            all.path.display()
        ));
        self.keep_state();
        Ok(all)
    }

    /// A snapshot by itself, when an event that was waited for has come.
    pub(crate) fn watch_trigger(&mut self) -> Result<(), SessionError> {
        let Some(trigger) = &mut self.trigger else { return Ok(()) };
        let gaps = trigger.look_after(self.surroundings.in_words, self.surroundings.log);
        let Fired { n: n_hits, n_lost } = trigger.drain();
        note_gaps(&mut self.state, gaps);
        if n_lost > 0 {
            (self.surroundings.log)(&format!(
                "{n_lost} events of the trigger were lost; a reason for a snapshot may have been among them"
            ));
        }
        if n_hits == 0 || !self.may_snapshot() {
            return Ok(());
        }
        self.snapshot(Some("trigger")).map(drop)
    }

    /// Whether a snapshot that nobody asked for may be made now. It must be made, then.
    pub(super) fn may_snapshot(&mut self) -> bool {
        let is_too_soon = self.last_triggered.is_some_and(|last| last.elapsed() < BETWEEN_TRIGGERED);
        if is_too_soon || self.n_triggered >= MAX_TRIGGERED {
            return false;
        }
        self.last_triggered = Some(Instant::now());
        self.n_triggered += 1;
        if self.n_triggered == MAX_TRIGGERED {
            (self.surroundings.log)(
                "that was the last snapshot by a trigger; start the session again for more",
            );
        }
        true
    }
}

/// `20261115-153019`
pub fn stamp() -> String {
    let now = monotonic_ns() as i64 + monotonic_to_epoch_ns();
    let digits: String =
        text_of(now, ClockText::Date, false).chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = digits.split_at(digits.len().min(8));
    format!("{date}-{time}")
}
