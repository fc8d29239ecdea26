//! What probes need of the way in which their process was started, and whether it was.

use nopal_live::Opened;
use nopal_proc::words_of;
use nopal_spans::file::Trap;
use nopal_spans::{ProbeName, Started, catalog};
use std::collections::{BTreeMap, BTreeSet};

/// How the processes with probes that need something were started. It is looked at when their sites are opened: they may
/// have ended when it is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Needs {
    /// What every process has that needs it, by [`Trap::needs`].
    has: BTreeSet<&'static str>,
    lacks: BTreeSet<&'static str>,
}

impl Needs {
    pub(crate) fn look_at(&mut self, opened: &[Opened]) {
        let mut started: BTreeMap<u32, Started> = BTreeMap::new();
        let mut seen: BTreeSet<(u32, &str)> = BTreeSet::new();
        for site in opened {
            if !seen.insert((site.pid, site.probe.as_str())) {
                continue;
            }
            let ProbeName { provider, name } = ProbeName::parse(&site.probe, "");
            let trap = catalog::trap(&provider, &name).filter(|trap| !trap.unless.is_empty());
            let Some(trap) = trap else { continue };
            let started = started.entry(site.pid).or_insert_with(|| started_as(site.pid));
            let side = if started.has_what_it_needs(trap) { &mut self.has } else { &mut self.lacks };
            side.insert(&trap.needs);
        }
    }

    /// Whether a process may be without what the probe needs.
    pub(crate) fn may_lack(&self, trap: &'static Trap) -> bool {
        !self.has.contains(trap.needs.as_str()) || self.lacks.contains(trap.needs.as_str())
    }
}

pub(crate) fn started_as(pid: u32) -> Started {
    Started { arguments: words_of(pid, "cmdline"), variables: words_of(pid, "environ") }
}
