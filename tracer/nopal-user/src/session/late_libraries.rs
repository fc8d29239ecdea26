//! Follows the libraries that traced processes load and unload; see [`crate::libraries`] for how they are noticed.

use super::Session;
use super::watch::Notice;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::libraries::{LIBRARY_EVENT, LIBRARY_PROBE, Libraries};
use crate::maps::{Maps, code_mappings};
use crate::neighbourhood::Neighbourhood;
use crate::patch::Found;
use crate::stopped_thread::Lock;
use crate::traced::{Health, OpenSite, ProcessReport, Traced};
use nopal_abi::stub_space::JournalKind;
use nopal_proc::ptrace::in_own_thread;

impl Session {
    /// For processes entered from now on: how long a thread that loads a library waits at most; 0: libraries are
    /// only polled for.
    pub fn set_library_wait(&mut self, wait_ms: u32) {
        self.core.loaders.wait_ms = wait_ms;
    }

    /// How libraries that this process loads later are noticed.
    pub fn libraries(&mut self, pid: i32) -> Libraries {
        let traced = self.traced.iter().find(|t| t.pid == pid);
        let of_loader = |s: &&OpenSite| s.probe == LIBRARY_PROBE;
        if let Some((traced, site)) = traced.and_then(|t| Some((t, t.sites.iter().find(of_loader)?))) {
            return match traced.health.get(&site.address).copied().unwrap_or_default() {
                Health::Well => Libraries::AtOnce(site.tactic),
                Health::Odd | Health::TakenOver | Health::GivenUp => Libraries::Polled(
                    "another tool has changed the place that its dynamic linker calls".into(),
                ),
            };
        }
        let report = traced.and_then(|t| t.reports.iter().find(|r| r.event == LIBRARY_EVENT));
        if let Some(Err(refusal)) = report.map(|r| &r.outcome) {
            return Libraries::Polled(refusal.to_string());
        }
        let mapped = nopal_proc::mapped_objects(pid as u32).unwrap_or_default();
        Libraries::Polled(match self.core.loaders.wanted_in(pid, &mapped) {
            Err(unfit) => unfit.into(),
            Ok(_) => "it has no wanted probes yet".into(),
        })
    }

    /// Whether a thread has loaded or unloaded a library and waits for us.
    pub fn has_library_news(&self) -> bool {
        self.rings().is_waited_for()
    }

    /// How many threads went on, since this was last asked, before we had looked at what they had loaded.
    pub fn take_impatient(&mut self) -> u64 {
        let n_now = self.rings().impatient();
        let n_before = std::mem::replace(&mut self.n_impatient, n_now);
        self.n_impatient.wrapping_sub(n_before)
    }

    /// Opens what is wanted of the libraries that were loaded. The threads that loaded them wait until
    /// [`Session::release`].
    pub fn follow_libraries(&mut self) -> Vec<Notice> {
        // Before anything is looked at: whoever comes from now on waits for the next look.
        self.tickets = self.rings().begin_look();
        let mut again = Vec::new();
        for traced in &mut self.traced {
            let now = code_mappings(traced.pid);
            // Ended, or another program by now, whose memory is not what we opened: for the next look.
            let first = traced.seen.first().map_or(0, |m| m.0);
            let is_gone = matches!(traced.memory.read(first, &mut [0]), Err(Error::Gone { .. }));
            if now.is_empty() || is_gone {
                continue;
            }
            if now != traced.seen {
                // An error is a process that is just ending.
                let _ = forget_unloaded(&self.core, traced);
            }
            // A look from time to time may have come while the library was mapped only in part, or twice.
            let memory = &traced.memory;
            let is_lost = |s: &OpenSite| {
                s.is_reset(memory) || s.patch.found(memory).is_ok_and(|found| found == Found::Original)
            };
            if now.iter().any(|m| !traced.seen.contains(m)) || traced.sites.iter().any(is_lost) {
                again.push(traced.pid);
            }
            traced.seen = now;
            traced.is_unannounced = false;
        }
        let mut notices = Vec::new();
        if !self.without_children {
            // A child may load a library before anybody has seen it.
            let fresh = self.attach_descendants();
            notices.extend(fresh.into_iter().filter(ProcessReport::says_something).map(Notice::Opened));
        }
        for pid in again {
            match self.attach_more(pid) {
                Ok(report) => notices.push(Notice::Opened(report)),
                Err(Error::Gone { .. } | Error::NoSuchProcess { .. }) => {}
                Err(error) => notices.push(Notice::Opened(self.failed(pid, error))),
            }
        }
        notices
    }

    /// Lets the threads go on that wait because they have loaded a library.
    pub fn release(&self) {
        self.rings().take_turns(&self.tickets);
    }
}

/// The sites of a library that is no longer there are no longer ours, and its semaphores went with it.
fn forget_unloaded(core: &Core, traced: &mut Traced) -> Result<()> {
    let maps = Maps::read(traced.pid)?;
    let is_there =
        |address: u64| maps.find(address).is_some_and(|r| r.is_executable && r.inode != 0 && !r.is_shared);
    let (there, gone) = std::mem::take(&mut traced.sites).into_iter().partition(|s| is_there(s.address));
    traced.sites = there;
    let gone: Vec<OpenSite> = gone;
    traced.reports.retain(|r| is_there(r.address));
    traced.health.retain(|address, _| is_there(*address));
    if !gone.iter().any(|s| s.semaphore.is_some()) {
        return Ok(());
    }
    let (pid, memory, generation) = (traced.pid, &traced.memory, core.generation());
    let neighbourhoods = &core.neighbourhoods;
    in_own_thread(|| {
        let _lock = Lock::take(pid)?;
        // Others at the same address are those of relatives that have become somebody else.
        let is_here = |n: &&Neighbourhood| maps.find(n.address()).is_some_and(|r| r.inode == n.inode);
        for n in neighbourhoods.iter().filter(is_here) {
            let Some(session) = n.session(generation) else { continue };
            for (index, entry, _) in n.space.entries() {
                let is_gone = |s: &OpenSite| s.space == n.address() && s.semaphore == Some(entry.address);
                let is_ours = entry.kind == JournalKind::Semaphore && entry.session == session;
                if is_ours && gone.iter().any(is_gone) {
                    Ledger::new(memory, n.ledger()).forget(index)?;
                }
            }
        }
        Ok(())
    })
}
