//! What a started session does when it is told to want something else.

use super::channel::{Running, max_held_bytes};
use super::config::{Channel, SessionConfig, TrackedProcess};
use super::error::SessionError;
use super::flight_buffer::forget;
use super::recorder_process::{RecorderProcess, attach_all, recording_error};
use super::turn::Turn;
use nopal_live::LiveError;
use nopal_proc::{Process, descendants};
use std::collections::HashSet;
use std::time::Instant;

impl RecorderProcess<'_> {
    /// Does what the configuration newly says; what it said before, if that cannot be done.
    pub(crate) fn reload(&mut self) -> Result<Vec<String>, SessionError> {
        let config = self.session.config()?;
        let before = std::mem::replace(&mut self.config, config);
        self.programs.set(&self.config.track);
        let mut notes = Vec::new();
        let done = self.follow(&before, &mut notes);
        if done.is_err() {
            self.config = before;
            self.programs.set(&self.config.track);
        } else if self.config.rotation != before.rotation {
            self.last_rotation = Instant::now();
        }
        done.map(|()| notes)
    }

    /// A channel that changes is opened anew beside the old one; each hit goes to exactly one of them, as [`Turn`] says.
    fn follow(&mut self, before: &SessionConfig, notes: &mut Vec<String>) -> Result<(), SessionError> {
        let pids = self.pids_to_record(before, notes);
        let wanted: Vec<Channel> = self.wanted_channels().cloned().collect();
        let is_fewer = !before.track.is_part_of(&self.config.track);
        let is_same = self.running.len() == wanted.len()
            && wanted.iter().all(|c| self.running.iter().any(|r| r.does(c)));
        // The old rings and the new ones would be there at the same time.
        if before.memory_bytes.is_some() && (is_fewer || !is_same) {
            return Err(SessionError::new(
                "memory",
                "a started session with a memory budget takes no other events and gives up no process",
            )
            .hint("stop it, change it, and start it again"));
        }
        let stays = |running: &Running, channel: &Channel| {
            running.does(channel) && !(is_fewer && running.has_other_than(&pids))
        };
        let mut fresh = Vec::new();
        for channel in &wanted {
            if let Some(running) = self.running.iter_mut().find(|running| stays(running, channel)) {
                let more = running.missing(&pids);
                attach_all(&self.surroundings, running, &more, notes)?;
                continue;
            }
            let mut running = Running::open(&self.session.name, channel, self.share()?)
                .map_err(|e| (self.surroundings.in_words)(&e))?;
            if let Err(error) = attach_all(&self.surroundings, &mut running, &pids, notes) {
                running.live.close();
                return Err(error);
            }
            // Of a channel without processes nothing can be said.
            for unfit in running.unfit().into_iter().filter(|_| !pids.is_empty()) {
                notes.push((self.surroundings.in_words)(&LiveError::Unfit(unfit)).to_string());
            }
            fresh.push(running);
        }
        self.retrack_trigger(is_fewer, &pids, notes)?;
        let (kept, ended): (Vec<Running>, Vec<Running>) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|running| wanted.iter().any(|channel| stays(running, channel)));
        self.running = kept;
        for running in ended {
            let name = running.config.name.clone();
            let turn = self.end(running)?;
            if let Some(next) = fresh.iter_mut().find(|next| next.config.name == name) {
                next.come_after(turn);
            }
        }
        if self.chunk.is_none() && fresh.iter().any(|r| !r.is_overwriting()) {
            self.running.extend(fresh);
            self.next_chunk()?;
        } else {
            for mut running in fresh {
                if let Some(chunk) = self.chunk.as_deref().filter(|_| !running.is_overwriting()) {
                    running.record_into(chunk).map_err(|e| recording_error(&e))?;
                }
                self.running.push(running);
            }
        }
        self.known.clone_from(&pids);
        self.alive = pids;
        self.keep_state();
        Ok(())
    }

    /// The processes that are tracked and live. There may be none for a while.
    fn pids_to_record(&mut self, before: &SessionConfig, notes: &mut Vec<String>) -> HashSet<u32> {
        let orphans = self.orphans();
        let track = &self.config.track;
        if *track == before.track {
            return self.alive.union(&orphans).copied().collect();
        }
        let mut pids: HashSet<u32> =
            track.processes.iter().filter(|process| process.is_alive()).map(|process| process.pid).collect();
        // Whoever was picked up by its name is still meant, whatever it is called now.
        if before.track.programs.iter().all(|program| track.programs.contains(program)) {
            let by_number = |pid: &&u32| before.track.processes.iter().any(|process| process.pid == **pid);
            pids.extend(self.alive.iter().filter(|pid| !by_number(pid)));
            // Nobody knows whose they are; if what is tracked no longer lives, they are not.
            let is_kept = |process: &TrackedProcess| track.processes.contains(process) || process.is_alive();
            if before.track.processes.iter().all(is_kept) {
                pids.extend(orphans);
            }
        }
        pids.extend(self.programs.running());
        if pids.is_empty() {
            notes.push(match self.programs.is_empty() {
                true => "no process is tracked any more; nothing is recorded until one is".to_owned(),
                false => self.waiting_in_words(),
            });
        }
        pids
    }

    /// Recorded descendants whose parents have ended, so that no tracked process leads to them any more.
    fn orphans(&self) -> HashSet<u32> {
        let all = self.running.iter().flat_map(|running| running.live.processes());
        let all: HashSet<u32> = all.filter(|pid| Process::is_alive(*pid)).collect();
        let led_to: HashSet<u32> = self.alive.union(&all).flat_map(|pid| descendants(*pid)).collect();
        all.into_iter().filter(|pid| !led_to.contains(pid) && !self.alive.contains(pid)).collect()
    }

    /// The events that make a snapshot are waited for in the same processes.
    fn retrack_trigger(
        &mut self,
        is_fewer: bool,
        pids: &HashSet<u32>,
        notes: &mut Vec<String>,
    ) -> Result<(), SessionError> {
        let Some(trigger) = &mut self.trigger else { return Ok(()) };
        if !is_fewer || !trigger.has_other_than(pids) {
            let more = trigger.missing(pids);
            return attach_all(&self.surroundings, trigger, &more, notes);
        }
        let mut fresh = self.open_trigger(pids)?;
        if let Err(error) = attach_all(&self.surroundings, &mut fresh, pids, notes) {
            fresh.live.close();
            return Err(error);
        }
        if let Some(trigger) = &mut self.trigger {
            trigger.live.close();
        }
        self.watch_trigger()?;
        self.trigger = Some(fresh);
        Ok(())
    }

    /// Closes a channel whose hits from now on are another's. What it has goes where it belongs.
    fn end(&mut self, mut running: Running) -> Result<Turn, SessionError> {
        let mut turn = Turn::default();
        let gaps = running.close(self.surroundings.in_words, self.surroundings.log);
        self.note_gaps(gaps);
        if running.is_overwriting() {
            running.note(&mut turn).map_err(|e| recording_error(&e))?;
        }
        if running.is_overwriting() && self.config.snapshot {
            let (name, max_bytes) = (running.config.name.clone(), max_held_bytes(&running.config));
            self.past.push(running.into_past().map_err(|e| recording_error(&e))?);
            forget(&mut self.past, &name, max_bytes);
            return Ok(turn);
        }
        let written = match (running.is_overwriting(), &self.chunk) {
            (true, Some(chunk)) => Some(running.write_new(chunk).map_err(|e| recording_error(&e))?),
            _ => running.finish_before(Some(&mut turn)),
        };
        if let Some(written) = written {
            self.add(written)?;
        }
        Ok(turn)
    }
}
