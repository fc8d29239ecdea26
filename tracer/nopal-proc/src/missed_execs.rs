//! Programs that the descendants of a command start. They are found by looking, now and then; one that comes and goes
//! between two looks would be missed without a word. The kernel's perf events name each.

use super::perf_events::{Entry, PerfEvents};
use super::{MappedObject, Process};
use std::collections::BTreeMap;

/// Processes that have started a program and have not been looked at since.
#[derive(Debug, Default)]
pub struct MissedExecs {
    perf_events: PerfEvents,
    /// Whether it has code that is wanted.
    started: BTreeMap<u32, bool>,
    /// Had code that is wanted, and ended before anybody looked.
    gone: Vec<u32>,
    /// Whether the kernel had more to tell than there was room for.
    has_lost: bool,
}

impl MissedExecs {
    /// Told of from now on: what a process and all it forks start. Where the kernel does not allow it, what a look finds is
    /// all that is known.
    pub fn follow(&mut self, pid: u32) {
        let _ = self.perf_events.follow(pid);
    }

    /// The same, if it costs the process nothing.
    pub fn follow_for_free(&mut self, pid: u32) {
        let _ = self.perf_events.follow_for_free(pid);
    }

    /// Takes note of what has happened; `wants` says whether code of a file is wanted.
    pub fn drain_events(&mut self, wants: impl FnMut(&MappedObject) -> bool) {
        self.drain_libraries(wants, |_| {});
    }

    /// The same, and tells of the code that processes map which have been looked at: they may have unmapped it since.
    pub fn drain_libraries(
        &mut self,
        mut wants: impl FnMut(&MappedObject) -> bool,
        mut mapped: impl FnMut(MappedObject),
    ) {
        let (started, gone, has_lost) = (&mut self.started, &mut self.gone, &mut self.has_lost);
        self.perf_events.read(|entry| match entry {
            Entry::Started { pid, .. } => {
                started.insert(pid, false);
            }
            Entry::Mapped { pid, mapping } if mapping.is_of_file() => {
                let (path, is_deleted) = (mapping.path.clone(), mapping.is_deleted);
                let object = MappedObject { pid, path, is_deleted, mappings: vec![mapping] };
                match started.get_mut(&pid) {
                    Some(is_wanted @ false) => *is_wanted = wants(&object),
                    Some(true) => {}
                    None => mapped(object),
                }
            }
            Entry::Mapped { .. } => {}
            Entry::Ended { pid } => {
                if started.remove(&pid) == Some(true) {
                    gone.push(pid);
                }
            }
            Entry::Forked { .. } => {}
            Entry::Lost => *has_lost = true,
        });
    }

    /// Who is followed, also those whose parents have ended, so that they are nobody's descendants any more.
    pub fn family(&self) -> impl Iterator<Item = u32> + '_ {
        self.perf_events.family().chain(self.waiting())
    }

    /// Those with code that is wanted.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.started.iter().filter(|(_, is_wanted)| **is_wanted).map(|(pid, _)| *pid)
    }

    /// Whether somebody waits to be looked at, or to be said to have been missed.
    pub fn has_news(&self) -> bool {
        self.has_lost || !self.gone.is_empty() || self.waiting().next().is_some()
    }

    /// Whether programs may have come and gone of which nobody knows, since this was last asked.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    /// It is being looked at; true if it waited.
    pub fn take(&mut self, pid: u32) -> bool {
        self.started.remove(&pid) == Some(true)
    }

    /// Those that nobody has looked at.
    pub fn take_gone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.gone)
    }

    /// The same and those that wait, when nobody will look any more.
    pub fn take_unseen(&mut self) -> Vec<u32> {
        let mut unseen = self.take_gone();
        unseen.extend(self.waiting());
        self.started.clear();
        unseen
    }

    /// All have been looked at that can be; of those that are ending, the end will be told.
    pub fn settle(&mut self) {
        self.started.retain(|pid, is_wanted| !*is_wanted || !Process::is_alive(*pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn a_program_that_nobody_looked_at_is_told_of() {
        let mut missed_execs = MissedExecs::default();
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        match missed_execs.perf_events.follow(id()) {
            // A kernel may forbid it to others.
            Err(_) if !is_root => return,
            followed => followed.expect("perf events"),
        }
        let mut run = |name: &str| {
            let mut child = Command::new(name).spawn().expect(name);
            child.wait().expect(name);
            missed_execs.drain_events(|object| object.path.ends_with("true"));
            (missed_execs.take_gone() == [child.id()], missed_execs.has_news())
        };
        assert_eq!((run("true"), run("false")), ((true, false), (false, false)));
        let mut sleeps = Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().expect("sh");
        while !missed_execs.has_news() {
            missed_execs
                .drain_events(|object| object.path.components().any(|part| part.as_os_str() == "bin"));
            std::thread::yield_now();
        }
        assert_eq!(missed_execs.waiting().collect::<Vec<_>>(), [sleeps.id()]);
        assert!(missed_execs.take(sleeps.id()) && !missed_execs.has_news());
        sleeps.kill().and_then(|()| sleeps.wait()).expect("sh");
        missed_execs.drain_events(|_| true);
        assert!(!missed_execs.has_news());
    }
}
