//! Programs that the descendants of a command start. They are found by looking, now and then; one that comes and goes
//! between two looks would be missed without a word. The kernel's perf events name each.

use super::perf_events::{Entry, PerfEvents};
use super::reaped::Reaped;
use super::{MappedObject, Process};
use std::collections::BTreeMap;
use std::fmt;

/// Processes that have started a program and have not been looked at since.
#[derive(Debug, Default)]
pub struct MissedExecs {
    perf_events: PerfEvents,
    started: BTreeMap<u32, Program>,
    /// How many of them turned out to be wanted so far.
    n_wanted: u64,
    /// Had code that is wanted, and ended before anybody looked.
    gone: Vec<u32>,
    lost: Option<Untold>,
    /// Of whom it tells nothing.
    untold: Reaped,
}

/// What is known of the program that a process has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// None of its code so far is wanted; more may come.
    Plain,
    /// Some is; the how manieth of which that was heard.
    Wanted(u64),
}

/// Why programs may have come and gone of which nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// There was no room for all that the kernel had to tell.
    TooMuch,
    /// The kernel tells this user nothing.
    Forbidden,
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Untold::TooMuch => "more programs were started than could be looked at; hits may be missing",
            Untold::Forbidden => {
                "programs may have been started whose hits are missing: the kernel tells this user of none \
                 (it does with kernel.perf_event_paranoid at 2 or less, or as root)"
            }
        })
    }
}

/// The programs that were heard of before a look begins. Only these can the look be said to have seen.
#[derive(Debug, Clone, Copy)]
pub struct Heard(u64);

impl MissedExecs {
    /// Told of from now on: what a process and all it forks start. Where the kernel does not allow it, a child that has
    /// ended counts as a loss: it may have been any program.
    pub fn follow(&mut self, pid: u32) {
        if self.perf_events.follow(pid).is_err() {
            self.untold.watch(pid);
        }
    }

    /// The same of a process whose children are nobody's concern.
    pub fn follow_alone(&mut self, pid: u32) {
        // Without the kernel's word, what a look finds is all that is known.
        let _ = self.perf_events.follow(pid);
    }

    /// To be called before a process that has ended is waited for: afterwards nobody knows of its children.
    pub fn note_ends(&mut self) {
        if self.untold.has_grown() {
            self.lost.get_or_insert(Untold::Forbidden);
        }
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
        let mut perf_events = std::mem::take(&mut self.perf_events);
        perf_events.read(|entry| self.note(entry, &mut wants, &mut mapped));
        self.perf_events = perf_events;
    }

    fn note(
        &mut self,
        entry: Entry,
        wants: &mut impl FnMut(&MappedObject) -> bool,
        mapped: &mut impl FnMut(MappedObject),
    ) {
        match entry {
            Entry::Started { pid, .. } => {
                self.started.insert(pid, Program::Plain);
            }
            Entry::Mapped { pid, mapping } if mapping.is_of_file() => {
                let (path, is_deleted) = (mapping.path.clone(), mapping.is_deleted);
                let object = MappedObject { pid, path, is_deleted, mappings: vec![mapping] };
                match self.started.get_mut(&pid) {
                    Some(program @ Program::Plain) => {
                        if wants(&object) {
                            self.n_wanted += 1;
                            *program = Program::Wanted(self.n_wanted);
                        }
                    }
                    Some(Program::Wanted(_)) => {}
                    None => mapped(object),
                }
            }
            Entry::Mapped { .. } => {}
            Entry::Ended { pid } => {
                if matches!(self.started.remove(&pid), Some(Program::Wanted(_))) {
                    self.gone.push(pid);
                }
            }
            Entry::Forked { .. } => {}
            Entry::Lost => self.lost = Some(Untold::TooMuch),
        }
    }

    /// Who is followed, also those whose parents have ended, so that they are nobody's descendants any more.
    pub fn family(&self) -> impl Iterator<Item = u32> + '_ {
        self.perf_events.family().chain(self.waiting())
    }

    /// Those with code that is wanted.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        let is_wanted = |program: &Program| matches!(program, Program::Wanted(_));
        self.started.iter().filter(move |(_, program)| is_wanted(program)).map(|(pid, _)| *pid)
    }

    /// Whether somebody waits to be looked at, or to be said to have been missed.
    pub fn has_news(&self) -> bool {
        self.lost.is_some() || !self.gone.is_empty() || self.waiting().next().is_some()
    }

    /// Whether the kernel tells of all that are followed.
    pub fn is_told_all(&self) -> bool {
        self.untold.is_empty()
    }

    /// Why programs may have come and gone of which nobody knows, if they may, since this was last asked.
    pub fn take_lost(&mut self) -> Option<Untold> {
        self.lost.take()
    }

    /// It is being looked at; true if it waited. A program of which nothing wanted was mapped when this was last heard
    /// may map it at this moment: it is waited for.
    pub fn take(&mut self, pid: u32) -> bool {
        let has_waited = matches!(self.started.get(&pid), Some(Program::Wanted(_)));
        if has_waited {
            self.started.remove(&pid);
        }
        has_waited
    }

    /// It is held at the first instruction of its program, with all of it open: what it did before is over.
    pub fn forget(&mut self, pid: u32) {
        self.started.remove(&pid);
    }

    /// To be asked for before a look begins.
    pub fn heard(&self) -> Heard {
        Heard(self.n_wanted)
    }

    /// Those that nobody has looked at.
    pub fn take_gone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.gone)
    }

    /// The same and those that wait, when nobody will look any more.
    pub fn take_unseen(&mut self) -> Vec<u32> {
        self.note_ends();
        let mut unseen = self.take_gone();
        unseen.extend(self.waiting());
        self.started.clear();
        unseen
    }

    /// All programs that were heard of before the look have been looked at, but those of `unseen` processes. Of those that
    /// are ending, the end will be told.
    pub fn settle(&mut self, heard: Heard, unseen: &[u32]) {
        self.note_ends();
        self.started.retain(|pid, program| match program {
            Program::Plain => true,
            Program::Wanted(number) => *number > heard.0 || unseen.contains(pid) || !Process::is_alive(*pid),
        });
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

    /// Of this process, which lives.
    fn told(missed_execs: &mut MissedExecs, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            missed_execs.note(entry, &mut |object| object.path.ends_with("wanted"), &mut |_| {});
        }
    }

    fn started() -> Entry {
        Entry::Started { pid: id(), name: "wanted".to_owned() }
    }

    fn maps(path: &str) -> Entry {
        let line = format!("1000-2000 r-xp 00000000 08:01 7 {path}\n");
        let mapping = crate::maps::parse(line.as_bytes()).remove(0);
        Entry::Mapped { pid: id(), mapping }
    }

    #[test]
    fn a_program_that_starts_during_a_look_is_not_taken_for_seen() {
        let mut missed_execs = MissedExecs::default();
        let heard = missed_execs.heard();
        told(&mut missed_execs, [started(), maps("/wanted")]);
        missed_execs.settle(heard, &[]);
        assert!(missed_execs.has_news(), "nobody has looked at it");
        let heard = missed_execs.heard();
        missed_execs.settle(heard, &[id()]);
        assert!(missed_execs.has_news(), "it could not be looked at");
        missed_execs.settle(heard, &[]);
        assert!(!missed_execs.has_news(), "it was looked at");
        // Another one by the same process, while that is looked at.
        told(&mut missed_execs, [started(), maps("/wanted")]);
        let heard = missed_execs.heard();
        told(&mut missed_execs, [started(), maps("/wanted")]);
        missed_execs.settle(heard, &[]);
        told(&mut missed_execs, [Entry::Ended { pid: id() }]);
        assert_eq!(missed_execs.take_unseen(), [id()]);
    }

    #[test]
    fn a_program_that_is_looked_at_before_its_code_is_there_is_waited_for() {
        let mut missed_execs = MissedExecs::default();
        told(&mut missed_execs, [started(), maps("/plain")]);
        assert!(!missed_execs.take(id()));
        told(&mut missed_execs, [maps("/wanted"), Entry::Ended { pid: id() }]);
        assert_eq!(missed_execs.take_gone(), [id()]);
        // One that was held with all of it open is not missed.
        told(&mut missed_execs, [started(), maps("/wanted")]);
        missed_execs.forget(id());
        told(&mut missed_execs, [maps("/wanted"), Entry::Ended { pid: id() }]);
        assert!(missed_execs.take_gone().is_empty());
    }
}
