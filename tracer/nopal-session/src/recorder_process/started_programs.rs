//! Programs that start and end while a session records: held at their start where that is possible, found by looking
//! otherwise, and stated as missing where neither came in time.

use super::{RecorderProcess, note_gaps};
use crate::SessionError;
use nopal_live::{Live, LiveError, hold_at_exec};
use std::time::{Duration, Instant};

/// How long a program may take from its first instruction until its loader has mapped its libraries.
const START: Duration = Duration::from_secs(1);
/// Let in at a time: somebody who knocks without end must not keep the recorder from its rings.
const MAX_CALLERS: usize = 16;
/// What is told of a process within this long is about the same one, not about another of its number.
const TOLD_TWICE: Duration = Duration::from_secs(5);
const LOOK_FOR_DEATHS: Duration = Duration::from_millis(50);

impl RecorderProcess<'_> {
    /// Picks up programs that were started, and takes a snapshot of those that ended.
    pub(super) fn watch_processes(&mut self) -> Result<(), SessionError> {
        self.catch_programs();
        self.let_in();
        for pid in self.programs.fresh(&self.known) {
            if self.is_member(pid) {
                self.heed_crashes();
                self.take_new_member(pid);
                continue;
            }
            self.known.insert(pid);
            // What a tracked process forks is followed from its first hit on.
            if self.alive.iter().any(|root| nopal_proc::descendants(*root).contains(&pid)) {
                self.alive.insert(pid);
                continue;
            }
            let mut notes = Vec::new();
            for idx in 0..self.running.len() {
                if let Err(error) = self.running[idx].attach(pid, self.surroundings.is_stopped) {
                    notes.push((self.surroundings.in_words)(&error).to_string());
                }
            }
            if let Some(trigger) = &mut self.trigger {
                let _ = trigger.attach(pid, self.surroundings.is_stopped);
            }
            self.alive.insert(pid);
            self.picked_up.insert(pid, Instant::now());
            let text = match notes.first() {
                None => found_late_in_words(pid),
                Some(why) => format!("process {pid} could not be picked up: {why}"),
            };
            self.gap(text);
            self.keep_state();
        }
        self.note_missed();
        self.note_gone();
        if self.last_death_look.elapsed() < LOOK_FOR_DEATHS {
            return Ok(());
        }
        self.last_death_look = Instant::now();
        let is_alive = |pid: &u32| nopal_proc::Process::is_alive(*pid);
        let ended: Vec<u32> = self.alive.iter().copied().filter(|pid| !is_alive(pid)).collect();
        for pid in ended {
            self.alive.remove(&pid);
            self.known.remove(&pid);
            self.forget_ended(pid);
            (self.surroundings.log)(&format!("process {pid} has ended"));
            if self.config.snapshot && !self.config.track.has_groups() {
                self.snapshot(Some(&format!("end-of-{pid}")))?;
            }
            self.keep_state();
        }
        self.watch_crashes()
    }

    /// Opens the probes of programs that wait to be started, before their first instruction.
    fn catch_programs(&mut self) {
        while let Some(pid) = self.programs.waiting().map(|(pid, _)| pid) {
            self.heed_crashes();
            let Some(gate) = self.programs.gate() else { return };
            // Also one that is recorded as what it was before, or as a copy of what forked it.
            let channels = self.running.iter_mut().chain(&mut self.trigger);
            let held = hold_at_exec(
                pid as i32,
                || gate.let_go(pid),
                || channels.filter_map(|running| running.attach_held(pid).err()).collect::<Vec<LiveError>>(),
            );
            match held {
                Ok(errors) => {
                    self.programs.is_caught(pid);
                    // How it ends is asked of groups alone.
                    if self.config.track.has_groups() {
                        self.exits.watch(pid);
                    }
                    self.known.insert(pid);
                    self.alive.insert(pid);
                    for error in errors {
                        let why = (self.surroundings.in_words)(&error);
                        self.gap(format!("process {pid} could not be picked up: {why}"));
                    }
                    self.follow_start(pid);
                    self.keep_state();
                }
                // It will be found by looking, and told as picked up late.
                Err(error) => {
                    (self.surroundings.log)(&format!("process {pid} was not caught at its start: {error}"));
                }
            }
        }
    }

    /// Opens the probes of programs that knock as they start, or when they have loaded something.
    fn let_in(&mut self) {
        for _ in 0..MAX_CALLERS {
            let Some(knock) = self.programs.next_knock() else { return };
            let Some(caller) = knock else { continue };
            let pid = caller.pid;
            let is_recorded = self.running.iter().any(|running| running.live.processes().contains(&pid));
            if self.known.contains(&pid) || is_recorded {
                // What was mapped since it was entered is opened before it goes on.
                let channels = self.running.iter_mut().chain(&mut self.trigger);
                for running in channels {
                    running.live.follow_libraries();
                    let gaps = running.look(self.surroundings.in_words, self.surroundings.log);
                    note_gaps(&mut self.state, gaps);
                }
            } else if self.is_member(pid) {
                self.heed_crashes();
                if self.programs.is_meant(pid) && self.has_wanted(pid) {
                    let is_late = !self.knocks_before_all(pid);
                    self.take_member(pid, is_late);
                    self.keep_state();
                }
            } else if self.programs.is_meant(pid) {
                self.attach_caller(pid);
            }
        }
        // Who found no room went on, and others may have been kept waiting for too long.
        if self.last_crowd.is_none_or(|last| last.elapsed() >= TOLD_TWICE) {
            self.gap(
                "more programs knocked than can be let in at once; the first hits of some may be missing"
                    .to_owned(),
            );
            self.keep_state();
        }
        self.last_crowd = Some(Instant::now());
    }

    fn attach_caller(&mut self, pid: u32) {
        if !self.knocks_before_all(pid) {
            self.gap(found_late_in_words(pid));
        }
        let mut errors = Vec::new();
        for running in self.running.iter_mut().chain(&mut self.trigger) {
            errors.extend(running.attach(pid, self.surroundings.is_stopped).err());
        }
        self.programs.is_caught(pid);
        self.known.insert(pid);
        self.alive.insert(pid);
        for error in errors {
            let why = (self.surroundings.in_words)(&error);
            self.gap(format!("process {pid} could not be picked up: {why}"));
        }
        self.keep_state();
    }

    /// Opens the libraries that a program is linked with before the next one is caught: its loader waits only so long.
    fn follow_start(&mut self, pid: u32) {
        let end = Instant::now() + START;
        let channels = self.running.iter_mut().chain(&mut self.trigger);
        let mut lives: Vec<&mut Live> = channels.map(|running| &mut running.live).collect();
        lives.retain_mut(|live| live.awaits_libraries(pid));
        while !lives.is_empty() && Instant::now() < end && nopal_proc::Process::is_alive(pid) {
            lives.retain_mut(|live| !live.follow_libraries());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// States which programs came and went unseen.
    pub(super) fn note_missed(&mut self) {
        let missed = self.programs.take_missed();
        // Whoever was found as it ended has been told of already.
        self.picked_up.retain(|_, when| when.elapsed() < TOLD_TWICE);
        let mut gaps: Vec<String> = missed
            .into_iter()
            .filter(|pid| !self.picked_up.contains_key(pid))
            .map(|pid| format!("process {pid} ended before it could be picked up; its hits are missing"))
            .collect();
        if self.programs.take_lost() {
            gaps.push(nopal_proc::missed_execs::Untold::TooMuch.to_string());
        }
        if !gaps.is_empty() {
            gaps.into_iter().for_each(|text| self.gap(text));
            self.keep_state();
        }
    }
}

pub(super) fn found_late_in_words(pid: u32) -> String {
    format!("process {pid} was picked up after it had started; its first hits may be missing")
}
