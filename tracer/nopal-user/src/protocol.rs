//! The order in which a process is changed and put back. The engine takes its steps from here, and so does the model in the
//! tests, which tries every kill at every write, a second tracer, a child that is forked at any moment, and tools that put
//! breakpoints on the same bytes or on those behind them.

/// What is done to open sites, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Opening {
    /// What will be changed is written down, for whoever comes after a kill.
    Journal,
    /// Semaphores go up before the code is changed: whoever finds a changed site knows that they were raised.
    Raise,
    /// Stubs are put in their chains: the jump must lead to something.
    Link,
    /// The code itself.
    Patch,
}

pub(crate) const OPENING: [Opening; 4] = [Opening::Journal, Opening::Raise, Opening::Link, Opening::Patch];

/// What is done to close them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Closing {
    /// New hits pass by the session's stubs.
    Unlink,
    /// The code as it was, where nobody else wants the site.
    Patch,
    /// Semaphores go down when no hit can need them any more.
    Lower,
    /// The session's place is free for others.
    Leave,
}

pub(crate) const CLOSING: [Closing; 4] = [Closing::Unlink, Closing::Patch, Closing::Lower, Closing::Leave];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Result};
    use crate::ledger::Ledger;
    use crate::memory::Bytes;
    use crate::patch::{Direction, Found, Patch};
    use std::cell::{Cell, RefCell};
    use std::collections::HashSet;

    const PAGE: u64 = 4096;
    /// Where the memory begins. A long nop at `CODE` lies on two pages.
    const BASE: u64 = PAGE - 16;
    const CODE: u64 = PAGE - 4;
    const SEMAPHORE: u64 = PAGE + 16;
    const LEDGER: u64 = PAGE + 32;
    const N_BYTES: usize = 64;
    const BREAKPOINT: u8 = 0xcc;
    /// More writes than any step has.
    const UNBOUNDED: u32 = 100;
    /// Writes that a tracer lives to see in one step.
    const KILLED_AFTER: [u32; 7] = [0, 1, 2, 3, 4, 5, UNBOUNDED];
    /// What is done to leave, process by process, with what is shared before and after: there are the parent and a child.
    const LEAVING: [(Closing, usize); 6] = [
        (CLOSING[0], PARENT),
        (CLOSING[1], PARENT),
        (CLOSING[2], PARENT),
        (CLOSING[1], CHILD),
        (CLOSING[2], CHILD),
        (CLOSING[3], PARENT),
    ];
    const PARENT: usize = 0;
    const CHILD: usize = 1;

    /// The memory of a process, and how many writes its tracer lives to see: of a page at most, as the kernel writes.
    struct Model {
        bytes: RefCell<Vec<u8>>,
        n_left: Cell<u32>,
    }

    impl Bytes for Model {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
            let at = (address - BASE) as usize;
            bytes.copy_from_slice(&self.bytes.borrow()[at..at + bytes.len()]);
            Ok(())
        }

        fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
            let Some(left) = self.n_left.get().checked_sub(1) else { return Err(Error::Gone { pid: 0 }) };
            self.n_left.set(left);
            let (on_page, on_next) = bytes.split_at(bytes.len().min((PAGE - address % PAGE) as usize));
            let at = (address - BASE) as usize;
            self.bytes.borrow_mut()[at..at + on_page.len()].copy_from_slice(on_page);
            if on_next.is_empty() { Ok(()) } else { self.write(address + on_page.len() as u64, on_next) }
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Life {
        None,
        Alive,
        Dead,
        Left,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Phase {
        Outside,
        Opening(usize),
        /// With whether the site is open.
        Inside(bool),
        Closing(usize),
        Gone,
    }

    /// A tool that puts a breakpoint somewhere, in all processes there are.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Tool {
        /// On the first byte of the instruction. Puts back what it found.
        Debugger,
        /// The same. Puts back what the file has.
        Uprobe,
        /// On the instruction behind, whose bytes are the distance of our jump.
        Behind,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        /// Of the parent, and of the child if it has been forked: a copy of its memory, which shares the stub space.
        memories: Vec<Vec<u8>>,
        is_journaled: bool,
        stubs: [bool; 2],
        is_linked: [bool; 2],
        life: [Life; 2],
        phase: [Phase; 2],
        lock: Option<usize>,
        /// What the tool's breakpoint covers, by process.
        covered: Option<Vec<u8>>,
        n_visits: u8,
    }

    /// What is the same in every state.
    struct Setting {
        patch: Patch,
        tool: Tool,
        /// What others had the semaphore at.
        others: u16,
        may_fork: bool,
    }

    impl Setting {
        /// Where the tool puts its breakpoint.
        fn place(&self) -> usize {
            match self.tool {
                Tool::Debugger | Tool::Uprobe => (CODE - BASE) as usize,
                Tool::Behind => (self.patch.end() - BASE) as usize,
            }
        }

        /// What the file has.
        fn code(&self) -> Vec<u8> {
            [&self.patch.kept[..], &self.patch.original, &self.patch.behind].concat()
        }
    }

    impl World {
        fn new(setting: &Setting) -> World {
            let mut bytes = vec![0; N_BYTES];
            let code = setting.code();
            bytes[(CODE - BASE) as usize..][..code.len()].copy_from_slice(&code);
            bytes[(SEMAPHORE - BASE) as usize..][..2].copy_from_slice(&setting.others.to_le_bytes());
            World {
                memories: vec![bytes],
                is_journaled: false,
                stubs: [false; 2],
                is_linked: [false; 2],
                life: [Life::None; 2],
                phase: [Phase::Outside; 2],
                lock: None,
                covered: None,
                n_visits: 0,
            }
        }

        /// Runs a step on the memory of a process; nothing if its tracer did not live to see the end.
        fn with<T>(
            &mut self,
            process: usize,
            n_writes: u32,
            step: impl FnOnce(&Model) -> Result<T>,
        ) -> Option<T> {
            let bytes = RefCell::new(std::mem::take(&mut self.memories[process]));
            let model = Model { bytes, n_left: Cell::new(n_writes) };
            let outcome = step(&model);
            self.memories[process] = model.bytes.into_inner();
            outcome.ok()
        }

        fn semaphore(&self, process: usize) -> u16 {
            let at = (SEMAPHORE - BASE) as usize;
            u16::from_le_bytes([self.memories[process][at], self.memories[process][at + 1]])
        }

        fn kill(&mut self, tracer: usize) {
            self.phase[tracer] = Phase::Gone;
            if self.life[tracer] == Life::Alive {
                self.life[tracer] = Life::Dead;
            }
            if self.lock == Some(tracer) {
                self.lock = None;
            }
        }

        /// Whether a session other than those that end wants the site.
        fn is_wanted(&self, is_ending: impl Fn(usize) -> bool) -> bool {
            (0..2).any(|t| self.stubs[t] && self.life[t] == Life::Alive && !is_ending(t))
        }

        /// One step of opening; false if the tracer was killed in it.
        fn open(&mut self, setting: &Setting, tracer: usize, step: Opening, n_writes: u32) -> bool {
            match step {
                Opening::Journal => {
                    self.is_journaled = true;
                    self.stubs[tracer] = true;
                    true
                }
                Opening::Raise => {
                    let step = |m: &Model| {
                        let ledger = Ledger::new(m, LEDGER);
                        (0..2).try_for_each(|entry| ledger.settle(entry, SEMAPHORE))?;
                        ledger.raise(tracer, SEMAPHORE)
                    };
                    self.with(PARENT, n_writes, step).is_some()
                }
                Opening::Link => {
                    self.is_linked[tracer] = true;
                    true
                }
                Opening::Patch => {
                    let changed = self.with(PARENT, n_writes, |m| setting.patch.change(m, Direction::In));
                    let is_open = match changed {
                        None => return false,
                        Some(found) => found.is_none(),
                    };
                    if !is_open {
                        let lower = |m: &Model| Ledger::new(m, LEDGER).lower(tracer, SEMAPHORE);
                        let lowered = self.with(PARENT, n_writes, lower);
                        if lowered.is_none() {
                            return false;
                        }
                    }
                    self.phase[tracer] = Phase::Inside(is_open);
                    true
                }
            }
        }

        /// One step of closing for the sessions that end; false if who does it was killed.
        fn close(
            &mut self,
            setting: &Setting,
            ending: &[usize],
            (step, process): (Closing, usize),
            n_writes: u32,
        ) -> bool {
            if process >= self.memories.len() {
                return true;
            }
            match step {
                Closing::Unlink => {
                    for tracer in ending {
                        self.is_linked[*tracer] = false;
                    }
                    true
                }
                Closing::Patch if self.is_wanted(|t| ending.contains(&t)) || !self.is_journaled => true,
                Closing::Patch => {
                    self.with(process, n_writes, |m| setting.patch.change(m, Direction::Out)).is_some()
                }
                Closing::Lower => {
                    let ending = ending.to_vec();
                    self.with(process, n_writes, |m| {
                        let ledger = Ledger::new(m, LEDGER);
                        if ending.iter().any(|t| ledger.is_noted(*t)) {
                            (0..2).try_for_each(|entry| ledger.settle(entry, SEMAPHORE))?;
                        }
                        for tracer in ending.into_iter().filter(|t| ledger.is_noted(*t)) {
                            ledger.lower(tracer, SEMAPHORE)?;
                        }
                        Ok(())
                    })
                    .is_some()
                }
                Closing::Leave => {
                    for tracer in ending {
                        self.stubs[*tracer] = false;
                        self.life[*tracer] = Life::Left;
                    }
                    true
                }
            }
        }

        /// `nopal detach`: ends the sessions whose tracers are dead or have left, and is killed itself after this many
        /// writes of a step.
        fn detach(&mut self, setting: &Setting, last: usize, n_writes: u32) -> bool {
            let ending: Vec<usize> =
                (0..2).filter(|t| matches!(self.life[*t], Life::Dead | Life::Left)).collect();
            LEAVING.iter().enumerate().all(|(at, step)| {
                let n_writes = if at == last { n_writes } else { UNBOUNDED };
                at <= last && self.close(setting, &ending, *step, n_writes)
            })
        }

        /// Every world that can come next.
        fn next(&self, setting: &Setting) -> Vec<World> {
            let mut worlds = Vec::new();
            let mut add = |change: &dyn Fn(&mut World)| {
                let mut world = self.clone();
                change(&mut world);
                worlds.push(world);
            };
            for t in 0..2 {
                match self.phase[t] {
                    Phase::Outside if self.lock.is_none() => add(&|w| {
                        w.lock = Some(t);
                        w.life[t] = Life::Alive;
                        w.phase[t] = Phase::Opening(0);
                    }),
                    Phase::Opening(at) => {
                        for n_writes in KILLED_AFTER {
                            add(&|w| {
                                if !w.open(setting, t, OPENING[at], n_writes) {
                                    w.kill(t);
                                } else if at + 1 < OPENING.len() {
                                    w.phase[t] = Phase::Opening(at + 1);
                                } else {
                                    w.lock = None;
                                }
                            });
                        }
                    }
                    Phase::Inside(_) if self.lock.is_none() => add(&|w| {
                        w.lock = Some(t);
                        w.phase[t] = Phase::Closing(0);
                    }),
                    Phase::Closing(at) => {
                        for n_writes in KILLED_AFTER {
                            add(&|w| {
                                if !w.close(setting, &[t], LEAVING[at], n_writes) {
                                    w.kill(t);
                                } else if at + 1 < LEAVING.len() {
                                    w.phase[t] = Phase::Closing(at + 1);
                                } else {
                                    (w.phase[t], w.lock) = (Phase::Gone, None);
                                }
                            });
                        }
                    }
                    _ => {}
                }
                if self.phase[t] != Phase::Gone && self.phase[t] != Phase::Outside {
                    add(&|w| w.kill(t));
                }
            }
            if self.lock.is_none() && self.life.contains(&Life::Dead) {
                for (last, n_writes) in (0..LEAVING.len()).flat_map(|last| KILLED_AFTER.map(|n| (last, n))) {
                    add(&|w| _ = w.detach(setting, last, n_writes));
                }
            }
            if setting.may_fork && self.memories.len() == 1 {
                add(&|w| {
                    w.memories.push(w.memories[PARENT].clone());
                    if let Some(covered) = &mut w.covered {
                        covered.push(covered[PARENT]);
                    }
                });
            }
            let at = setting.place();
            match &self.covered {
                None if self.n_visits < 2 => add(&|w| {
                    w.covered = Some(w.memories.iter().map(|bytes| bytes[at]).collect());
                    w.memories.iter_mut().for_each(|bytes| bytes[at] = BREAKPOINT);
                    w.n_visits += 1;
                }),
                Some(covered) => add(&|w| {
                    let of_file = setting.code()[at - (CODE - BASE) as usize];
                    for (bytes, covered) in w.memories.iter_mut().zip(covered) {
                        bytes[at] = if setting.tool == Tool::Uprobe { of_file } else { *covered };
                    }
                    w.covered = None;
                }),
                None => {}
            }
            worlds
        }

        /// What must be true at every moment.
        fn check(&self, setting: &Setting) {
            let n_most = (0..2).filter(|t| self.life[*t] != Life::None).count() as u16;
            for (process, bytes) in self.memories.iter().enumerate() {
                let model = Model { bytes: RefCell::new(bytes.clone()), n_left: Cell::new(0) };
                let found = setting.patch.found(&model).expect("the model can be read");
                assert!(!matches!(found, Found::Other(_)), "half an instruction: {self:?}");
                if found == Found::Ours {
                    assert!(self.is_journaled, "changed, and nobody knows: {self:?}");
                }
                assert!(self.semaphore(process) >= setting.others, "lowered for others: {self:?}");
                assert!(self.semaphore(process) <= setting.others + n_most, "raised twice: {self:?}");
            }
            let n_up = (0..2).filter(|t| self.phase[*t] == Phase::Inside(true)).count() as u16;
            let is_up = self.semaphore(PARENT) >= setting.others + n_up;
            assert!(is_up, "a session's semaphore is down: {self:?}");
            // With everybody gone, `detach` leaves the processes as they were.
            let is_quiet = self.phase.iter().all(|p| matches!(p, Phase::Gone | Phase::Outside));
            if is_quiet && self.covered.is_none() {
                let mut after = self.clone();
                assert!(after.detach(setting, LEAVING.len() - 1, UNBOUNDED));
                let before = &World::new(setting).memories[PARENT];
                assert!(after.memories.iter().all(|bytes| bytes == before), "not put back: {self:?}");
                assert!(!after.is_linked.contains(&true), "{self:?}");
            }
        }
    }

    /// How many states there are, all of which are in order.
    fn explore(setting: &Setting) -> usize {
        let mut known: HashSet<World> = HashSet::new();
        let mut open = vec![World::new(setting)];
        while let Some(world) = open.pop() {
            if !known.contains(&world) {
                world.check(setting);
                open.extend(world.next(setting));
                known.insert(world);
            }
        }
        known.len()
    }

    /// A nop of which one byte changes, with those that `kept` has before it and the jump's distance behind.
    fn one_byte(kept: &[u8], behind: &[u8]) -> Patch {
        Patch {
            address: CODE + kept.len() as u64,
            kept: kept.to_vec(),
            original: vec![0x90],
            patched: vec![0xe9],
            behind: behind.to_vec(),
        }
    }

    /// A long nop of which the last byte lies on the next page.
    fn on_two_pages() -> Patch {
        Patch {
            address: CODE,
            kept: Vec::new(),
            original: vec![0x0f, 0x1f, 0x44, 0, 0],
            patched: vec![0xe9, 0x1f, 0x44, 1, 2],
            behind: Vec::new(),
        }
    }

    #[test]
    fn every_kill_and_every_visit_leaves_a_process_that_can_be_put_back() {
        let distance = [0x48, 0x89, 0xc3, 0x5b];
        let mut n_states = 0;
        for (patch, tools) in [
            (one_byte(&[], &[]), [Tool::Debugger, Tool::Uprobe]),
            (one_byte(&[0x48], &[]), [Tool::Debugger, Tool::Uprobe]),
            (one_byte(&[], &distance), [Tool::Behind, Tool::Debugger]),
            (on_two_pages(), [Tool::Debugger, Tool::Uprobe]),
        ] {
            for tool in tools {
                for others in [0, 1] {
                    let setting = Setting { patch: patch.clone(), tool, others, may_fork: false };
                    n_states += explore(&setting);
                }
            }
        }
        assert!(n_states > 15_000, "the model is smaller than it should be: {n_states} states");
    }

    #[test]
    fn a_child_that_is_forked_at_any_moment_can_be_put_back() {
        let setting = Setting { patch: one_byte(&[], &[]), tool: Tool::Uprobe, others: 1, may_fork: true };
        let n_states = explore(&setting);
        assert!(n_states > 10_000, "the model is smaller than it should be: {n_states} states");
    }
}
