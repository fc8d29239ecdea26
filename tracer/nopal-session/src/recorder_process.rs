//! The recorder process of a started session: opens the probes, moves hits into recordings, answers commands, ends with
//! `stop`. It holds the session's lock for as long as it lives.

mod chunks;
mod members;
mod started_programs;

pub use chunks::stamp;

use super::budget::{self, Share};
use super::channel::Running;
use super::config::{Channel, Mode, Rule, SessionConfig};
use super::control::{Asked, Listener, Reply, Request, Status};
use super::error::{InWords, SessionError};
use super::flight_buffer::Past;
use super::home::{Session, State};
use super::output::Output;
use super::programs::Programs;
use super::watch::{MakeWatch, is_watched};
use nopal_live::LiveError;
use nopal_live::registry::Unfit;
use nopal_proc::exits::Exits;
use nopal_trace::Error;
use nopal_trace::clock::{monotonic_ns, monotonic_to_epoch_ns};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long to sleep when the rings were nearly empty.
const IDLE: Duration = Duration::from_millis(5);
/// A crash costs at most the events of this long.
const FLUSH: Duration = Duration::from_secs(1);
/// Gaps kept in words; of more only the number is known.
const MAX_GAPS: usize = 1000;

/// What the command that started the session is told.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Started {
    pub pids: Vec<u32>,
    pub user_sites: u64,
    pub kernel_sites: u64,
    pub closed_sites: u64,
    /// Things to know that are no failure.
    pub notes: Vec<String>,
}

/// What the recorder's surroundings give it.
pub struct Surroundings<'a> {
    pub in_words: InWords,
    pub is_stopped: fn() -> bool,
    pub watch: MakeWatch,
    /// Takes a line for the recorder's log.
    pub log: &'a mut dyn FnMut(&str),
}

/// Starts the session, tells `started` how that went, and holds it until it is stopped.
pub fn hold(
    session: &Session,
    surroundings: Surroundings<'_>,
    started: impl FnOnce(Result<Started, SessionError>),
) -> Result<(), SessionError> {
    let lock = match session.lock() {
        Ok(Some(lock)) => lock,
        Ok(None) => {
            let error = SessionError::new(
                "already-started",
                format!("session `{}` is started already", session.name),
            );
            started(Err(error.clone()));
            return Err(error);
        }
        Err(error) => {
            started(Err(error.clone()));
            return Err(error);
        }
    };
    let mut recorder = match RecorderProcess::open(session, surroundings) {
        Ok((recorder, report)) => {
            started(Ok(report));
            recorder
        }
        Err(error) => {
            started(Err(error.clone()));
            return Err(error);
        }
    };
    let result = recorder.run();
    let ended = recorder.close(result);
    drop(lock);
    ended
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

pub(super) struct RecorderProcess<'a> {
    pub session: Session,
    pub config: SessionConfig,
    pub surroundings: Surroundings<'a>,
    listener: Listener,
    pub running: Vec<Running>,
    /// What flight recorders held when they were opened anew, the older first.
    pub past: Vec<Past>,
    /// Watches for the events that make a snapshot.
    pub trigger: Option<Running>,
    pub programs: Programs,
    state: State,
    /// Once something is recorded.
    output: Option<Output>,
    pub chunk: Option<PathBuf>,
    /// Tracked processes that were alive when last looked at.
    pub alive: HashSet<u32>,
    /// Of all processes that were attached to; a number that came again is not attached to twice.
    pub known: HashSet<u32>,
    /// Those that were found after their start, or too late, and when.
    picked_up: HashMap<u32, Instant>,
    /// How those end that were found by their user, control group or container.
    exits: Exits,
    /// Those of them that have crashed since the last snapshot.
    crashed: Vec<u32>,
    /// Files that processes had mapped which ended unseen, and whether they have wanted probes.
    files: HashMap<PathBuf, (members::Version, bool)>,
    last_flush: Instant,
    pub last_rotation: Instant,
    last_death_look: Instant,
    last_triggered: Option<Instant>,
    /// When more programs knocked than could be let in.
    last_crowd: Option<Instant>,
    n_triggered: u32,
    asked_to_stop: Option<Asked>,
}

impl<'a> RecorderProcess<'a> {
    fn open(
        session: &Session,
        surroundings: Surroundings<'a>,
    ) -> Result<(RecorderProcess<'a>, Started), SessionError> {
        let config = session.config()?;
        let mut state = session.state();
        super::killed::count(session, &mut state);
        let now = Instant::now();
        let mut recorder = RecorderProcess {
            session: session.clone(),
            programs: Programs::new(&config.track),
            state: State { is_started: true, failure: None, pids: Vec::new(), ..state },
            config,
            surroundings,
            listener: Listener::open(session)?,
            running: Vec::new(),
            past: Vec::new(),
            trigger: None,
            output: None,
            chunk: None,
            alive: HashSet::new(),
            known: HashSet::new(),
            picked_up: HashMap::new(),
            exits: Exits::default(),
            crashed: Vec::new(),
            files: HashMap::new(),
            last_flush: now,
            last_rotation: now,
            last_death_look: now,
            last_triggered: None,
            last_crowd: None,
            n_triggered: 0,
            asked_to_stop: None,
        };
        match recorder.begin() {
            Ok(notes) => {
                let sites = recorder.sites();
                let report = Started {
                    pids: sorted(recorder.running.iter().flat_map(|r| r.attached.iter().copied())),
                    user_sites: sites.0,
                    kernel_sites: sites.1,
                    closed_sites: sites.2,
                    notes,
                };
                Ok((recorder, report))
            }
            Err(error) => {
                recorder.close_probes();
                let _ = recorder.session.folder().remove_file("control");
                Err(error)
            }
        }
    }

    /// Opens every channel in every tracked process, then the recordings.
    fn begin(&mut self) -> Result<Vec<String>, SessionError> {
        let wanted: Vec<Channel> = self.wanted_channels().cloned().collect();
        if wanted.is_empty() {
            return Err(SessionError::new("no-event", "no event is enabled in this session")
                .hint("`nopal enable-event -u 'provider:*'` enables some"));
        }
        let mut notes = Vec::new();
        let mut pids = self.tracked(&mut notes)?;
        let share = self.share()?;
        for channel in &wanted {
            let running = Running::open(&self.session.name, channel, share)
                .map_err(|e| (self.surroundings.in_words)(&e))?;
            // What is open must be closed even where not all could be.
            self.running.push(running);
        }
        let members = self.split_members(&mut pids);
        for running in &mut self.running {
            attach_all(&self.surroundings, running, &pids, &mut notes)?;
        }
        if !self.config.triggers.is_empty() {
            let all: Vec<u32> = pids.iter().chain(&members).copied().collect();
            let mut trigger = self.open_trigger(&all)?;
            let attached = attach_all(&self.surroundings, &mut trigger, &pids, &mut notes);
            self.trigger = Some(trigger);
            attached?;
        }
        self.known.extend(&pids);
        self.alive.extend(&pids);
        for pid in members {
            self.take_member(pid, false);
        }
        self.check_opened(&mut notes)?;
        self.next_chunk()?;
        if self.programs.is_blind() {
            self.gap(
                "a program that lives a moment may be missed: the kernel lets only root see who starts what"
                    .to_owned(),
            );
        }
        self.keep_state();
        Ok(notes)
    }

    /// What each channel, and the trigger, may have of the session's budget.
    pub(crate) fn share(&self) -> Result<Option<Share>, SessionError> {
        let n_cpus =
            nopal_proc::possible_cpus().map_err(|e| (self.surroundings.in_words)(&LiveError::Cpus(e)))?;
        let n = self.wanted_channels().count() + usize::from(!self.config.triggers.is_empty());
        budget::share(&self.config, n, n_cpus)
    }

    pub(crate) fn wanted_channels(&self) -> impl Iterator<Item = &Channel> {
        self.config.channels.iter().filter(|c| c.enabled && c.events.iter().any(|rule| rule.enabled))
    }

    /// The live processes that are tracked; an error if there can never be one.
    fn tracked(&mut self, notes: &mut Vec<String>) -> Result<Vec<u32>, SessionError> {
        let track = &self.config.track;
        if track.is_empty() {
            return Err(SessionError::new("nothing-tracked", "no process is tracked")
                .hint("`nopal track -u -p PID` or `nopal track -u --program NAME` names one; nothing else is touched"));
        }
        let mut pids = Vec::new();
        for process in &track.processes {
            if process.is_alive() {
                pids.push(process.pid);
            } else {
                notes.push(format!(
                    "process {} has ended; `nopal untrack -u -p {}` forgets it",
                    process.pid, process.pid
                ));
            }
        }
        let programs = self.programs.running();
        pids.extend(programs.into_iter().filter(|pid| !track.processes.iter().any(|p| p.pid == *pid)));
        if pids.is_empty() && self.programs.is_empty() {
            return Err(SessionError::new("gone", "every tracked process has ended")
                .hint("track one that runs: `nopal list -u` shows programs with probes"));
        }
        if pids.is_empty() {
            notes.push(self.waiting_in_words());
        }
        Ok(pids)
    }

    /// What a session without processes waits for.
    pub(crate) fn waiting_in_words(&self) -> String {
        let programs = self.config.track.programs.iter().map(|program| format!("program {program}"));
        let groups =
            self.config.track.groups_in_words().into_iter().map(|group| format!("processes of {group}"));
        format!("waiting for {} to be started", programs.chain(groups).collect::<Vec<_>>().join(", "))
    }

    /// Rules that fit nothing are told of; a session in which nothing at all was found is an error.
    fn check_opened(&self, notes: &mut Vec<String>) -> Result<(), SessionError> {
        // Nothing can be said of a program yet to be started.
        let known = self.running.iter().chain(&self.trigger).filter(|running| !running.attached.is_empty());
        for running in known {
            let has_sites = running.sites.user + running.sites.kernel + running.sites.closed > 0;
            for unfit in running.unfit() {
                // A program yet to be started may have what is not there now, a library that is loaded later, too: unless the
                // name looks like one that was meant. A condition that cannot be read never fits.
                let may_be_loaded = matches!(unfit, Unfit::NoProbe { suggestion: None, .. });
                let error = (self.surroundings.in_words)(&LiveError::Unfit(unfit));
                let may_start = !self.programs.is_empty() && error.code != "bad-condition";
                if !has_sites && !may_start && !may_be_loaded {
                    return Err(error);
                }
                notes.push(match may_be_loaded && !may_start {
                    true => format!("{}; a library that is loaded later may have it", error.message),
                    false => error.to_string(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn open_trigger<'p>(
        &self,
        pids: impl IntoIterator<Item = &'p u32>,
    ) -> Result<Running, SessionError> {
        let rule = |text: &String| match text.split_once(" if ") {
            Some((pattern, filter)) => {
                Rule { filter: Some(filter.trim().to_owned()), ..Rule::new(pattern.trim()) }
            }
            None => Rule::new(text.trim()),
        };
        let pids: Vec<u32> = pids.into_iter().copied().collect();
        let watch = (self.surroundings.watch)(&self.config.triggers, &pids)?;
        let patterns = watch.iter().flat_map(|watch| watch.patterns()).map(|pattern| Rule::new(&pattern));
        let plain = self.config.triggers.iter().filter(|text| !is_watched(text)).map(rule);
        let channel = Channel {
            mode: Mode::Discard,
            // Who watches spans sees every one of them.
            ring_bytes: Some(if watch.is_some() { 1 << 20 } else { 64 << 10 }),
            events: patterns.chain(plain).collect(),
            ..Channel::named("trigger")
        };
        let mut running = Running::open(&self.session.name, &channel, self.share()?)
            .map_err(|e| (self.surroundings.in_words)(&e))?;
        running.watch = watch;
        Ok(running)
    }

    /// Until somebody says stop, or an error that cannot be lived with.
    fn run(&mut self) -> Result<(), SessionError> {
        loop {
            let mut n_hits = 0;
            for running in &mut self.running {
                n_hits += running.pass().map_err(|e| recording_error(&e))?;
                let gaps = running.look_after(self.surroundings.in_words, self.surroundings.log);
                note_gaps(&mut self.state, gaps);
            }
            self.watch_trigger()?;
            self.watch_processes()?;
            self.rotate_when_due()?;
            if self.last_flush.elapsed() >= FLUSH {
                self.flush()?;
            }
            while let Some(asked) = self.listener.next() {
                if asked.request == Request::Stop {
                    self.asked_to_stop = Some(asked);
                    return Ok(());
                }
                let reply = self.answer(&asked.request).map_err(|error| self.shown_in(error));
                let is_fatal = matches!(&reply, Err(e) if e.code == "disk-full");
                match &reply {
                    Ok(reply) => asked.answer(reply),
                    Err(error) => asked.answer(&Reply::Failed(error.clone())),
                }
                if is_fatal && self.chunk.is_some() {
                    return reply.map(drop);
                }
            }
            if (self.surroundings.is_stopped)() {
                return Ok(());
            }
            if n_hits < 1000 {
                self.programs.wait(IDLE);
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Result<Reply, SessionError> {
        match request {
            Request::Status => Ok(Reply::Status(self.status())),
            Request::Stop => Ok(Reply::Done { notes: Vec::new() }),
            Request::Reload => self.reload().map(|notes| Reply::Done { notes }),
            Request::Rotate => self.rotate(),
            Request::Clear => self.clear().map(|()| Reply::Done { notes: Vec::new() }),
            Request::Snapshot { name } => {
                if !self.running.iter().any(Running::is_overwriting) && self.past.is_empty() {
                    return Err(SessionError::new(
                        "no-snapshot",
                        "no channel of this session keeps a snapshot",
                    )
                    .hint(
                        "`nopal create NAME --snapshot` makes a session whose rings keep the newest events",
                    ));
                }
                let written = self.snapshot(name.as_deref())?;
                Ok(Reply::Written { path: written.path, n_events: written.totals.n_events })
            }
            Request::Flush => {
                let until_ns = monotonic_ns() as i64 + monotonic_to_epoch_ns();
                for running in &mut self.running {
                    running.pass().map_err(|e| recording_error(&e))?;
                }
                self.flush()?;
                Ok(Reply::Flushed { until_ns })
            }
        }
    }

    fn flush(&mut self) -> Result<(), SessionError> {
        self.last_flush = Instant::now();
        if self.pids() != self.state.pids {
            self.keep_state();
        }
        self.running.iter_mut().try_for_each(|r| r.flush().map_err(|e| recording_error(&e)))
    }

    fn status(&self) -> Status {
        let mut status = Status {
            recorder_pid: std::process::id(),
            totals: self.state.totals,
            pids: self.pids(),
            n_snapshots: self.state.n_snapshots,
            gaps: self.state.gaps.clone(),
            path: self.chunk.as_deref().map(|chunk| self.shown(chunk)),
            ..Status::default()
        };
        (status.user_sites, status.kernel_sites, status.closed_sites) = self.sites();
        for running in &self.running {
            status.totals.add(&running.totals());
        }
        status
    }

    fn sites(&self) -> (u64, u64, u64) {
        self.running.iter().fold((0, 0, 0), |(user, kernel, closed), r| {
            (user + r.sites.user, kernel + r.sites.kernel, closed + r.sites.closed)
        })
    }

    /// The processes that are recorded, tracked ones and their descendants.
    fn pids(&self) -> Vec<u32> {
        sorted(self.running.iter().flat_map(Running::pids))
    }

    /// What the recordings say already.
    pub(crate) fn note_gaps(&mut self, gaps: Vec<String>) {
        note_gaps(&mut self.state, gaps);
    }

    /// Hits are missing in all recordings.
    fn gap(&mut self, text: String) {
        self.running.iter_mut().for_each(|running| running.state_gap(&text));
        note_gaps(&mut self.state, vec![text]);
    }

    /// What a later command must know if we are killed. A full disk must not end the recording for that.
    pub(crate) fn keep_state(&mut self) {
        self.state.pids = self.pids();
        if let Err(error) = self.session.set_state(&self.state) {
            (self.surroundings.log)(&error.to_string());
        }
    }

    fn close_probes(&mut self) {
        for running in self.running.iter_mut().chain(&mut self.trigger) {
            let gaps = running.close(self.surroundings.in_words, self.surroundings.log);
            note_gaps(&mut self.state, gaps);
        }
    }

    fn close(mut self, result: Result<(), SessionError>) -> Result<(), SessionError> {
        let known = self.known.clone();
        for pid in self.programs.told().into_iter().filter(|pid| !known.contains(pid)) {
            self.gap(format!("process {pid} was started as the session ended; its hits are missing"));
        }
        self.note_missed();
        self.close_probes();
        let result = result.map_err(|error| self.shown_in(error));
        if let Err(error) = &result {
            self.gap(format!("the recorder gave up: {}", error.message));
        }
        // What came before the error is written as far as possible; the first error is the one that is told.
        let ended = self.end_chunk();
        let result = result.and(ended.map(drop).map_err(|error| self.shown_in(error)));
        self.state.is_started = false;
        self.state.pids.clear();
        self.state.failure = result.as_ref().err().cloned();
        if let Err(error) = self.session.set_state(&self.state) {
            (self.surroundings.log)(&error.to_string());
        }
        let _ = self.session.folder().remove_file("control");
        let status = self.status();
        let not_started =
            SessionError::new("not-started", format!("session `{}` was stopped", self.session.name));
        for asked in self.asked_to_stop.take().into_iter().chain(self.listener.rest()) {
            let reply = match (&result, &asked.request) {
                (Err(error), _) => Reply::Failed(error.clone()),
                (Ok(()), Request::Stop) => Reply::Status(status.clone()),
                (Ok(()), _) => Reply::Failed(not_started.clone()),
            };
            asked.answer(&reply);
        }
        result
    }
}

/// Attaches to processes; an error only if there is none then.
pub(super) fn attach_all<'a>(
    surroundings: &Surroundings<'_>,
    running: &mut Running,
    pids: impl IntoIterator<Item = &'a u32>,
    notes: &mut Vec<String>,
) -> Result<(), SessionError> {
    let mut failure = None;
    for pid in pids {
        if let Err(error) = running.attach(*pid, surroundings.is_stopped) {
            let error = (surroundings.in_words)(&error);
            notes.push(format!("process {pid}: {error}"));
            failure = Some(error);
        }
    }
    match failure {
        Some(error) if running.attached.is_empty() => Err(error),
        _ => Ok(()),
    }
}

fn sorted(pids: impl Iterator<Item = u32>) -> Vec<u32> {
    pids.collect::<BTreeSet<u32>>().into_iter().collect()
}

fn note_gaps(state: &mut State, gaps: Vec<String>) {
    let room = MAX_GAPS.saturating_sub(state.gaps.len());
    state.gaps.extend(gaps.into_iter().take(room));
}

pub(super) fn recording_error(error: &Error) -> SessionError {
    if error.is_disk_full() {
        return SessionError::new("disk-full", format!("the disk is full: {error}"))
            .hint("what was written before is whole and can be viewed");
    }
    SessionError::new("recording", error.to_string())
}
