//! Tracing under way: the sites that are open, the command that was started, and what may have been missed meanwhile.

use crate::failure::{Failure, failure_of};
use crate::needs::Needs;
use crate::processes::ProcessArgs;
use crate::signals;
use nopal_live::{self, BY_TRACEFS, Live, LiveError, News, Opened, Way, closed_in_words};
use nopal_trace::Verdict;
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Ends with the processes it traces, or when it is closed.
pub(crate) struct Open {
    pub live: Live,
    pub opened: Vec<Opened>,
    /// What the probes among them need of their processes.
    pub needs: Needs,
    /// The command we started. It is reaped when it ends, and goes on when tracing ends first.
    child: Option<Child>,
    /// How the command ended.
    exit: Option<ExitStatus>,
    /// That it was ended by a signal.
    has_told_end: bool,
    /// That others go on.
    has_told_rest: bool,
    is_verbose: bool,
    /// What may have been missed, beside what the consumers count.
    verdict: Verdict,
    /// Gaps that nobody has asked for yet: CLOCK_MONOTONIC, and what happened.
    new_gaps: Vec<(u64, String)>,
    /// Containers and control groups, which processes may join from outside.
    groups: ProcessArgs,
    next_look_at_groups: Instant,
    /// Those of them that cannot be traced; told once.
    not_followed: BTreeSet<u32>,
}

const LOOK_AT_GROUPS: Duration = Duration::from_millis(500);

impl Open {
    pub(crate) fn new(
        live: Live,
        opened: Vec<Opened>,
        child: Option<Child>,
        groups: ProcessArgs,
        is_verbose: bool,
    ) -> Open {
        let closed = closed_in_words(&opened);
        let mut needs = Needs::default();
        needs.look_at(&opened);
        let mut open = Open {
            live,
            needs,
            opened,
            child,
            exit: None,
            has_told_end: false,
            has_told_rest: false,
            is_verbose,
            verdict: Verdict::default(),
            new_gaps: Vec::new(),
            groups,
            next_look_at_groups: Instant::now() + LOOK_AT_GROUPS,
            not_followed: BTreeSet::new(),
        };
        closed.into_iter().for_each(|text| open.gap(text));
        open
    }

    /// Keeps the session in order; call it in every round.
    pub(crate) fn look_after(&mut self) {
        if !self.live.is_look_due() {
            return;
        }
        let news = self.live.look_after();
        self.tell(news);
        self.take_joined();
    }

    /// Traces processes that somebody outside has put into the container or control group since (`podman exec`). Their first
    /// hits may be missing.
    fn take_joined(&mut self) {
        if !self.groups.has_groups() || Instant::now() < self.next_look_at_groups {
            return;
        }
        self.next_look_at_groups = Instant::now() + LOOK_AT_GROUPS;
        // A group that has ended has no processes to trace.
        let Ok(members) = self.groups.members() else { return };
        let known = self.live.processes();
        let joined = |pid: &&u32| {
            !known.contains(pid) && !self.live.is_attached(**pid) && !self.not_followed.contains(pid)
        };
        for pid in members.iter().filter(joined).copied().collect::<Vec<u32>>() {
            let is_older =
                nopal_proc::Process::read(pid).is_ok_and(|process| known.contains(&process.parent));
            // A child of a traced process is followed by itself.
            if is_older {
                continue;
            }
            match self.live.attach(pid) {
                Ok(opened) => {
                    let n_sites = opened.len();
                    self.tell(vec![News::Opened(opened), News::Late { pid, n_sites }]);
                }
                Err(error) if !nopal_proc::Process::is_alive(pid) => {
                    self.not_followed.insert(pid);
                    self.gap(format!(
                        "process {pid} joined and ended meanwhile: {}",
                        failure_of(&error).message
                    ));
                }
                Err(error) => {
                    self.not_followed.insert(pid);
                    self.tell(vec![News::NotFollowed { pid, error }]);
                }
            }
        }
    }

    /// Closes every site. Gives what could not be put back.
    pub(crate) fn close(&mut self) -> Vec<String> {
        let failures = self.live.close();
        let news = self.live.take_news();
        self.tell(news);
        failures
    }

    /// Says so if the command has not ended with the tracing of it.
    pub(crate) fn tell_what_goes_on(&mut self) {
        // Ctrl-C at a terminal has reached the command, too.
        if let Some(child) = self.child.as_mut().filter(|_| self.exit.is_none() && !signals::is_stopped())
            && matches!(child.try_wait(), Ok(None))
        {
            tell!("nopal: tracing has ended; the command goes on as process {}", child.id());
        }
    }

    fn tell(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Opened(opened) => {
                    if self.is_verbose {
                        announce(&opened, true);
                    }
                    closed_in_words(&opened).into_iter().for_each(|text| self.gap(text));
                    self.needs.look_at(&opened);
                    self.opened.extend(opened);
                }
                News::Gap(text) => self.gap(text),
                News::NotFollowed { pid, error } => {
                    let why = failure_of(&error).message;
                    self.gap(format!("process {pid} could not be followed: {why}"));
                }
                News::Late { pid, n_sites } => {
                    self.verdict.n_late += 1;
                    if self.is_verbose {
                        tell!("nopal: {}", nopal_live::late_in_words(pid, n_sites));
                    }
                }
                News::Message(text) => {
                    if self.is_verbose {
                        tell!("nopal: {text}");
                    }
                }
            }
        }
    }

    /// Hits may be missing from now on: it is said, counted, and kept for the recording.
    fn gap(&mut self, text: String) {
        tell!("nopal: {text}");
        self.verdict.n_gaps += 1;
        // `nopal trace` never asks for them.
        if self.new_gaps.len() < MAX_KEPT_GAPS {
            self.new_gaps.push((nopal_trace::clock::monotonic_ns(), text));
        }
    }

    /// The gaps since this was last asked.
    pub(crate) fn new_gaps(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.new_gaps)
    }

    /// Processes that were started meanwhile and may lack hits.
    pub(crate) fn n_late(&self) -> u64 {
        self.verdict.n_late + self.live.n_unseen() as u64
    }

    /// What is missing, with what a consumer has counted.
    pub(crate) fn verdict(&self, counted: Verdict) -> Verdict {
        let mut verdict = Verdict { n_gaps: 0, n_late: 0, gaps: Vec::new(), ..counted };
        verdict.add(&Verdict { n_late: self.n_late(), ..self.verdict.clone() });
        verdict
    }

    /// What was asked for and never came, once the command has ended.
    pub(crate) fn never_fit(&self) -> Option<Failure> {
        let unfit = self.child.as_ref().and_then(|_| self.live.unfit())?;
        Some(failure_of(&LiveError::Unfit(unfit)))
    }

    /// How the command ended, if it has.
    pub(crate) fn exit(&self) -> Option<ExitStatus> {
        self.exit
    }

    /// Whether there is nothing left to trace.
    pub(crate) fn is_over(&mut self) -> bool {
        self.live.note_ends();
        // A child of ours stays a zombie until it is reaped.
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        self.exit = status.or(self.exit);
        if let Some(signal) =
            status.and_then(|status| status.signal()).filter(|signal| *signal != libc::SIGINT)
            && !std::mem::replace(&mut self.has_told_end, true)
        {
            tell!("nopal: the command was ended by signal {signal}");
        }
        if !self.live.is_any_alive() {
            // What is missing of a program that has ended is told before the end.
            return !self.live.has_news();
        }
        if status.is_some() && !std::mem::replace(&mut self.has_told_rest, true) {
            tell!(
                "nopal: the command has ended; what it started goes on and is traced until it ends, or Ctrl-C"
            );
        }
        false
    }
}

const MAX_KEPT_GAPS: usize = 1000;

/// How many sites went through each door.
pub(crate) fn count_sites(opened: &[Opened]) -> (usize, usize, usize) {
    opened.iter().fold((0, 0, 0), |(user, kernel, closed), site| match site.way {
        Way::User(_) => (user + 1, kernel, closed),
        Way::Kernel { .. } => (user, kernel + 1, closed),
        Way::Closed(_) => (user, kernel, closed + 1),
    })
}

/// The same, if it is wanted at all.
pub(crate) fn announce_if(is_wanted: bool, opened: &[Opened]) {
    if is_wanted {
        announce(opened, true);
    }
}

/// The same for programs: each site with the door that opened it, or why none did.
pub(crate) fn announcement(opened: &[Opened]) -> serde_json::Value {
    let sites = opened.iter().map(|site| {
        let (door, closed) = match &site.way {
            Way::User(_) => (Some("user"), None),
            Way::Kernel { .. } => (Some("kernel"), None),
            Way::Closed(_) => (None, Some(site.way.to_string())),
        };
        serde_json::json!({ "probe": site.probe, "pid": site.pid, "address": site.address, "door": door, "closed": closed })
    });
    serde_json::json!({ "opened": sites.collect::<Vec<_>>() })
}

/// Tells on standard error what was opened: a line, and with -v one for each site.
pub(crate) fn announce(opened: &[Opened], is_verbose: bool) {
    let (user, kernel, closed) = count_sites(opened);
    let mut parts = Vec::new();
    for (count, what) in [(user, "user door"), (kernel, "kernel door"), (closed, "not opened")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if parts.is_empty() {
        parts.push("none yet; looking at what the command loads and starts".to_owned());
    }
    tell!("sites: {}", parts.join(", "));
    if opened.iter().any(|site| matches!(site.way, Way::Kernel { is_by_tracefs: true, .. })) {
        tell!("nopal: {BY_TRACEFS}");
    }
    for site in opened {
        if is_verbose || (closed > 0 && matches!(site.way, Way::Closed(_))) {
            let probe = nopal_trace::escape(&site.probe);
            tell!("  {probe} at {:#x} in process {}: {}", site.address, site.pid, site.way);
        }
    }
}
