//! Processes that are tracked by their user, control group or container: only those with something to record are entered,
//! when they start, join or load it. A crash of one makes a snapshot.

use super::started_programs::found_late_in_words;
use super::{RecorderProcess, SessionError};
use crate::Rule;
use nopal_live::registry::Choice;
use nopal_proc::Image;
use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// Files of which it is known whether they have wanted probes.
const MAX_FILES: usize = 4096;
/// Files that knock as they are loaded have this in them: how their sockets are called (tracee/nopal-lttng/start.c).
const KNOCKS: &[u8] = b"nopal-start-%u-%d";
const MAX_BYTES: u64 = 64 << 20;
/// Device, inode and time of the last change of a file.
pub(super) type Version = (u64, u64, i64);

impl RecorderProcess<'_> {
    /// Whether a process that was found is there for its group, not for its name.
    pub(super) fn is_member(&self, pid: u32) -> bool {
        let track = &self.config.track;
        let is_by_number = track.processes.iter().any(|process| process.pid == pid);
        track.has_groups() && !is_by_number && (track.programs.is_empty() || !self.programs.is_named(pid))
    }

    /// Takes members of groups out of the tracked processes; gives those that have something to record.
    pub(super) fn split_members(&mut self, pids: &mut Vec<u32>) -> Vec<u32> {
        let all = std::mem::take(pids);
        let (members, others): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|pid| self.is_member(*pid));
        *pids = others;
        members.into_iter().filter(|pid| self.has_wanted(*pid)).collect()
    }

    /// Whether a process has something to record; otherwise it is not looked at again before it maps another file.
    pub(super) fn has_wanted(&mut self, pid: u32) -> bool {
        let has_wanted = self.running.iter().chain(&self.trigger).any(|running| running.live.has_wanted(pid));
        if !has_wanted {
            self.programs.is_idle(pid);
        }
        has_wanted
    }

    /// A process of a group that was started, or has joined it, or has mapped a file.
    pub(super) fn take_new_member(&mut self, pid: u32) {
        // What a recorded process forks or loads is followed with it.
        let is_recorded = self.running.iter().any(|running| running.live.processes().contains(&pid));
        if is_recorded || !self.has_wanted(pid) {
            return;
        }
        self.take_member(pid, true);
        self.keep_state();
    }

    /// Opens what is wanted in a process.
    pub(super) fn take_member(&mut self, pid: u32, is_late: bool) {
        let mut errors = Vec::new();
        for running in self.running.iter_mut().chain(&mut self.trigger) {
            if running.live.processes().contains(&pid) || !running.live.has_wanted(pid) {
                continue;
            }
            if let Err(error) = running.attach(pid, self.surroundings.is_stopped) {
                errors.push((self.surroundings.in_words)(&error).to_string());
            }
        }
        self.known.insert(pid);
        self.alive.insert(pid);
        self.exits.watch(pid);
        self.programs.watch_program(pid);
        if is_late {
            self.picked_up.insert(pid, Instant::now());
        }
        match errors.first() {
            Some(why) => self.gap(format!("process {pid} could not be picked up: {why}")),
            None if is_late => self.gap(found_late_in_words(pid)),
            None => {}
        }
    }

    /// States which processes came and went that may have belonged to a group, if they had something to record.
    pub(super) fn note_gone(&mut self) {
        for (pid, paths) in self.programs.take_gone() {
            if self.picked_up.contains_key(&pid) || self.known.contains(&pid) {
                continue;
            }
            if let Some(path) = paths.iter().find(|path| self.is_wanted_in(path)) {
                self.gap(format!(
                    "process {pid} with {} ended before it could be looked at; if it is one of those that are \
                     tracked, its hits are missing",
                    path.display()
                ));
                // The next one is held at its start.
                self.programs.watch_path(&paths);
            }
        }
    }

    /// Whether a process that has knocked cannot have hit anything before: all that it has mapped and that is wanted is in files
    /// that knock as they are loaded.
    pub(super) fn knocks_before_all(&mut self, pid: u32) -> bool {
        let objects = nopal_proc::mapped_objects(pid).unwrap_or_default();
        let knocks = |object: &nopal_proc::MappedObject| {
            let mut bytes = Vec::new();
            let read =
                object.open().is_ok_and(|image| image.file().take(MAX_BYTES).read_to_end(&mut bytes).is_ok());
            read && bytes.windows(KNOCKS.len()).any(|part| part == KNOCKS)
        };
        objects.iter().all(|object| !self.is_wanted_in(&object.path) || knocks(object))
    }

    /// Whether a file has a probe that is wanted.
    fn is_wanted_in(&mut self, path: &Path) -> bool {
        // Memory without a file, what the kernel itself maps, and the stubs of a nopal.
        let is_of_nobody = |path: &str| path.starts_with("//anon") || path.starts_with("/memfd:nopal-");
        if !path.is_absolute() || path.to_str().is_some_and(is_of_nobody) {
            return false;
        }
        // One in a container, or one that was removed since, is not ours to read.
        let Ok(metadata) = fs::metadata(path) else { return true };
        let version = (metadata.dev(), metadata.ino(), metadata.mtime());
        if let Some((known, is_wanted)) = self.files.get(path)
            && *known == version
        {
            return *is_wanted;
        }
        let is_wanted = self.has_wanted_probe(path);
        if self.files.len() >= MAX_FILES {
            self.files.clear();
        }
        self.files.insert(path.to_owned(), (version, is_wanted));
        is_wanted
    }

    fn has_wanted_probe(&self, path: &Path) -> bool {
        let Ok(image) = Image::open(path) else { return true };
        let Ok(object) = nopal_sdt::read(image.bytes()) else { return false };
        let rules = self.running.iter().flat_map(|running| &running.rules);
        let choices: Vec<Choice> = rules.map(Rule::choice).collect();
        let is_wanted = |choice: &Choice, provider: &str, name: &str| {
            choice.pattern.matches(provider, name)
                && !choice.except.iter().any(|except| except.matches(provider, name))
        };
        let mut probes = object.probes.iter();
        probes.any(|probe| choices.iter().any(|choice| is_wanted(choice, &probe.provider, &probe.name)))
    }

    /// Who comes later with the number of a process that has ended is another.
    pub(super) fn forget_ended(&mut self, pid: u32) {
        for running in self.running.iter_mut().chain(&mut self.trigger) {
            running.live.forget_root(pid);
            if self.config.track.has_groups() {
                running.attached.remove(&pid);
            }
        }
    }

    /// Before another process is entered, to which a ring may be given up that holds what a crashed one has left.
    pub(super) fn heed_crashes(&mut self) {
        if let Err(error) = self.watch_crashes() {
            (self.surroundings.log)(&format!("no snapshot of a crash: {error}"));
        }
    }

    /// A snapshot when one of them has crashed, also one that a tracked process has forked.
    pub(super) fn watch_crashes(&mut self) -> Result<(), SessionError> {
        if !self.config.track.has_groups() {
            return Ok(());
        }
        let recorded: HashSet<u32> =
            self.running.iter().flat_map(|running| running.live.processes()).collect();
        for pid in recorded {
            self.exits.watch(pid);
        }
        for (pid, exit) in self.exits.take_ended() {
            if exit.is_crash() {
                (self.surroundings.log)(&format!("process {pid} has crashed"));
                self.crashed.push(pid);
            }
        }
        if !self.config.snapshot || self.crashed.is_empty() || !self.may_snapshot() {
            return Ok(());
        }
        let crashed = std::mem::take(&mut self.crashed);
        self.snapshot(Some(&format!("crash-of-{}", crashed[0]))).map(drop)
    }
}
