//! A process with open sites: what is known of it, and what became of opening it.

use super::error::{Error, Result};
use super::memory::Memory;
use super::patch::Patch;
use super::process;
use super::stop_watch::Stops;
use super::tactic::Tactic;
use super::wanted::SiteReport;
use std::collections::HashMap;
use std::time::Instant;

/// What became of one process.
#[derive(Debug)]
pub struct ProcessReport {
    pub pid: i32,
    pub outcome: Result<Vec<SiteReport>>,
    /// The call of the borrowed thread that returned EINTR because of us, if it was one Linux never restarts.
    pub interrupted: Option<&'static str>,
    /// How often and how long its threads were stopped for it.
    pub stops: Stops,
    /// Whether it has run since it was loaded: it was found by looking, though its dynamic linker tells what it loads, or it could
    /// not be held for so long.
    pub is_late: bool,
    /// The kernel had told that its program has wanted code, and it could not be entered.
    pub is_in_vain: bool,
}

impl ProcessReport {
    pub fn failed(pid: i32, error: Error) -> ProcessReport {
        let outcome = Err(error);
        ProcessReport {
            pid,
            outcome,
            interrupted: None,
            stops: Stops::default(),
            is_late: false,
            is_in_vain: false,
        }
    }

    /// False for a process that has nothing we want, or inherited all of it.
    pub fn says_something(&self) -> bool {
        self.outcome.as_ref().map_or(true, |sites| !sites.is_empty())
    }
}

/// A site whose code has been changed.
#[derive(Debug, Clone)]
pub struct OpenSite {
    pub probe: String,
    pub address: u64,
    pub tactic: Tactic,
    pub patch: Patch,
    pub semaphore: Option<u64>,
    /// Address of the stub space it leads to.
    pub space: u64,
}

impl OpenSite {
    /// Whether its semaphore is down although we raised it: its library was unloaded and loaded again.
    pub(super) fn is_reset(&self, memory: &Memory) -> bool {
        self.semaphore.is_some_and(|semaphore| memory.read_u16(semaphore).is_ok_and(|value| value == 0))
    }
}

/// What is known of a site between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Well,
    /// Closed, for a reason that the dynamic linker is about to tell.
    Odd,
    TakenOver,
    GivenUp,
}

/// A process with open sites.
#[derive(Debug)]
pub struct Traced {
    pub pid: i32,
    pub start_time: Option<u64>,
    pub memory: Memory,
    pub sites: Vec<OpenSite>,
    pub(super) reports: Vec<SiteReport>,
    pub(super) interrupted: Option<&'static str>,
    /// How often and how long its threads were stopped to open it.
    pub(super) stops: Stops,
    /// Start addresses and inodes of the code mappings when it was last looked at.
    pub(super) seen: Vec<(u64, u64)>,
    /// Pages of its address space at that time, and when it was.
    pub(super) seen_at: Option<(u64, Instant)>,
    /// Entered before its first thread had its local storage: to be asked again.
    pub(super) is_early: bool,
    /// It was to be opened before it ran, and ran before it was open.
    pub(super) has_begun: bool,
    /// Has code of which its dynamic linker has not told yet.
    pub(super) is_unannounced: bool,
    /// By address of the site.
    pub(super) health: HashMap<u64, Health>,
    /// What it has forbidden itself, as far as it was told.
    pub(super) restraint: u32,
}

impl Traced {
    pub(super) fn new(
        pid: i32,
        memory: Memory,
        sites: Vec<OpenSite>,
        reports: Vec<SiteReport>,
        interrupted: Option<&'static str>,
    ) -> Traced {
        let start_time = process::start_time(pid);
        Traced {
            pid,
            start_time,
            memory,
            sites,
            reports,
            interrupted,
            stops: Stops::default(),
            seen: Vec::new(),
            seen_at: None,
            is_early: false,
            has_begun: false,
            is_unannounced: false,
            health: HashMap::new(),
            restraint: 0,
        }
    }
}
