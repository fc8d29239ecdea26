//! The order in which a process is changed and put back. The engine takes its steps from here, and so does the model in the
//! tests, which tries every kill at every write, a second tracer, and tools that put breakpoints on the same bytes.

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

    const CODE: u64 = 0;
    const SEMAPHORE: u64 = 16;
    const LEDGER: u64 = 32;
    const N_BYTES: usize = 48;
    const BREAKPOINT: u8 = 0xcc;
    /// More writes than any step has.
    const UNBOUNDED: u32 = 100;
    /// Writes that a tracer lives to see in one step.
    const KILLED_AFTER: [u32; 7] = [0, 1, 2, 3, 4, 5, UNBOUNDED];

    /// The memory of a process, and how many writes its tracer lives to see.
    struct Model {
        bytes: RefCell<Vec<u8>>,
        n_left: Cell<u32>,
    }

    impl Bytes for Model {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
            let at = address as usize;
            bytes.copy_from_slice(&self.bytes.borrow()[at..at + bytes.len()]);
            Ok(())
        }

        fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
            let Some(left) = self.n_left.get().checked_sub(1) else { return Err(Error::Gone { pid: 0 }) };
            self.n_left.set(left);
            let at = address as usize;
            self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
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

    /// A tool that puts a breakpoint on the first byte of the instruction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Tool {
        /// Puts back what it found.
        Debugger,
        /// Puts back what the file has.
        Uprobe,
    }

    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        bytes: Vec<u8>,
        is_journaled: bool,
        stubs: [bool; 2],
        is_linked: [bool; 2],
        life: [Life; 2],
        phase: [Phase; 2],
        lock: Option<usize>,
        /// What the tool's breakpoint covers.
        covered: Option<u8>,
        n_visits: u8,
    }

    /// What is the same in every state.
    struct Setting {
        patch: Patch,
        tool: Tool,
        /// What others had the semaphore at.
        others: u16,
    }

    impl World {
        fn new(setting: &Setting) -> World {
            let mut bytes = vec![0; N_BYTES];
            let code = [&setting.patch.kept[..], &setting.patch.original].concat();
            bytes[..code.len()].copy_from_slice(&code);
            bytes[SEMAPHORE as usize..][..2].copy_from_slice(&setting.others.to_le_bytes());
            World {
                bytes,
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

        /// Runs a step on the memory; false if its tracer did not live to see the end.
        fn with<T>(&mut self, n_writes: u32, step: impl FnOnce(&Model) -> Result<T>) -> Option<T> {
            let model =
                Model { bytes: RefCell::new(std::mem::take(&mut self.bytes)), n_left: Cell::new(n_writes) };
            let outcome = step(&model);
            self.bytes = model.bytes.into_inner();
            outcome.ok()
        }

        fn semaphore(&self) -> u16 {
            u16::from_le_bytes([self.bytes[SEMAPHORE as usize], self.bytes[SEMAPHORE as usize + 1]])
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
                    self.with(n_writes, step).is_some()
                }
                Opening::Link => {
                    self.is_linked[tracer] = true;
                    true
                }
                Opening::Patch => {
                    let changed = self.with(n_writes, |m| setting.patch.change(m, Direction::In));
                    let is_open = match changed {
                        None => return false,
                        Some(found) => found.is_none(),
                    };
                    if !is_open {
                        let lowered =
                            self.with(n_writes, |m| Ledger::new(m, LEDGER).lower(tracer, SEMAPHORE));
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
        fn close(&mut self, setting: &Setting, ending: &[usize], step: Closing, n_writes: u32) -> bool {
            match step {
                Closing::Unlink => {
                    for tracer in ending {
                        self.is_linked[*tracer] = false;
                    }
                    true
                }
                Closing::Patch if self.is_wanted(|t| ending.contains(&t)) || !self.is_journaled => true,
                Closing::Patch => self.with(n_writes, |m| setting.patch.change(m, Direction::Out)).is_some(),
                Closing::Lower => {
                    let ending = ending.to_vec();
                    self.with(n_writes, |m| {
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

        /// `nopal detach`: ends the sessions whose tracers are dead or have left.
        fn detach(&mut self, setting: &Setting, n_writes: u32) -> bool {
            let ending: Vec<usize> =
                (0..2).filter(|t| matches!(self.life[*t], Life::Dead | Life::Left)).collect();
            CLOSING.iter().all(|step| self.close(setting, &ending, *step, n_writes))
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
                                if !w.close(setting, &[t], CLOSING[at], n_writes) {
                                    w.kill(t);
                                } else if at + 1 < CLOSING.len() {
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
                for n_writes in KILLED_AFTER {
                    add(&|w| _ = w.detach(setting, n_writes));
                }
            }
            let first = setting.patch.kept.first().copied();
            match self.covered {
                None if self.n_visits < 2 => add(&|w| {
                    w.covered = Some(w.bytes[CODE as usize]);
                    w.bytes[CODE as usize] = BREAKPOINT;
                    w.n_visits += 1;
                }),
                Some(covered) => add(&|w| {
                    let of_file = first.unwrap_or(setting.patch.original[0]);
                    let back = if setting.tool == Tool::Uprobe { of_file } else { covered };
                    w.bytes[CODE as usize] = back;
                    w.covered = None;
                }),
                None => {}
            }
            worlds
        }

        /// What must be true at every moment.
        fn check(&self, setting: &Setting) {
            let model = Model { bytes: RefCell::new(self.bytes.clone()), n_left: Cell::new(0) };
            let found = setting.patch.found(&model).expect("the model can be read");
            assert!(!matches!(found, Found::Other(_)), "half an instruction: {self:?}");
            if found == Found::Ours {
                assert!(self.is_journaled, "changed, and nobody knows: {self:?}");
            }
            let n_up = (0..2).filter(|t| self.phase[*t] == Phase::Inside(true)).count() as u16;
            assert!(self.semaphore() >= setting.others + n_up, "a session's semaphore is down: {self:?}");
            let n_most = (0..2).filter(|t| self.life[*t] != Life::None).count() as u16;
            assert!(self.semaphore() <= setting.others + n_most, "raised twice: {self:?}");
            // With everybody gone, `detach` leaves the process as it was.
            let is_quiet = self.phase.iter().all(|p| matches!(p, Phase::Gone | Phase::Outside));
            if is_quiet && self.covered.is_none() {
                let mut after = self.clone();
                assert!(after.detach(setting, UNBOUNDED));
                assert_eq!(after.bytes, World::new(setting).bytes, "not put back: {self:?}");
                assert!(!after.is_linked.contains(&true), "{self:?}");
            }
        }
    }

    #[test]
    fn every_kill_and_every_visit_leaves_a_process_that_can_be_put_back() {
        let one_byte = |kept: &[u8]| Patch {
            address: CODE + kept.len() as u64,
            kept: kept.to_vec(),
            original: vec![0x90],
            patched: vec![0xe9],
            behind: Vec::new(),
        };
        let mut n_states = 0;
        for patch in [one_byte(&[]), one_byte(&[0x48])] {
            for tool in [Tool::Debugger, Tool::Uprobe] {
                for others in [0, 1] {
                    let setting = Setting { patch: patch.clone(), tool, others };
                    let mut known: HashSet<World> = HashSet::new();
                    let mut open = vec![World::new(&setting)];
                    while let Some(world) = open.pop() {
                        if known.insert(world.clone()) {
                            world.check(&setting);
                            open.extend(world.next(&setting));
                        }
                    }
                    n_states += known.len();
                }
            }
        }
        assert!(n_states > 10_000, "the model is smaller than it should be: {n_states} states");
    }
}
