//! A channel under way: its probes open in the tracked processes, its hits on their way into a recording.

use super::budget::Share;
use super::config::{Channel, Mode, Rule};
use super::error::InWords;
use super::flight_buffer::{FlightBuffer, Past};
use super::recording_dir::{Origin, Written, free_dir, recorder_in};
use super::turn::Turn;
use super::watch::{Fired, Watch};
use crate::ctf_recorder::{Recorder, ToldGaps};
use crate::totals::Totals;
use nopal_live::STACK_BYTES;
use nopal_live::plan::Limits;
use nopal_live::registry::{Registry, Unfit};
use nopal_live::{
    Live, LiveError, News, Opened, Options, Request, Way, attach_when_free, closed_in_words, late_in_words,
};
use nopal_proc::possible_cpus;
use nopal_trace::clock::monotonic_ns;
use nopal_trace::{Error, FileLimit};
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Per CPU, where the channel does not say.
const RING_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct Running {
    /// What its recordings bear.
    origin: Origin,
    pub config: Channel,
    /// The rules the probes were opened for.
    pub rules: Vec<Rule>,
    pub live: Live,
    pub attached: HashSet<u32>,
    recorder: Option<(Recorder, PathBuf)>,
    /// Which hits another has that was there before.
    turn: Turn,
    /// Of a channel that is written over: hits that its rings keep of before are written already.
    unwritten_ns: u64,
    /// The same: hits of before are not wanted any more.
    cleared_ns: u64,
    /// What recordings that were cleared said to be missing: it may be so in the next one.
    inherited: ToldGaps,
    /// Of a channel that is written over: the hits that its rings do not keep.
    held: FlightBuffer,
    pub sites: Sites,
    /// Of a trigger that more than one event decides.
    pub watch: Option<Box<dyn Watch>>,
    /// What is missing since processes were attached to, until it is told.
    untold: Vec<String>,
    /// Of a channel that is written over: what is missing and when, for the recordings to come.
    gaps: Vec<(u64, String)>,
    n_untold_gaps: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sites {
    pub user: u64,
    pub kernel: u64,
    pub closed: u64,
}

impl Running {
    pub(crate) fn open(session: &str, config: &Channel, share: Option<Share>) -> Result<Running, LiveError> {
        let rules: Vec<Rule> = config.events.iter().filter(|rule| rule.enabled).cloned().collect();
        let ring_bytes = match (share, config.ring_bytes) {
            (Some(share), None) => share.ring_bytes,
            (Some(share), Some(_)) => share.ring_bytes.min(ring_bytes(config)),
            (None, _) => ring_bytes(config),
        };
        let live = Live::new(Request {
            spans: None,
            without_arguments: HashSet::new(),
            choices: rules.iter().map(Rule::choice).collect(),
            given: Vec::new(),
            limits: Limits {
                max_string_bytes: config.max_string,
                stack_bytes: if config.has_stack() { STACK_BYTES } else { 0 },
                has_thread_context: config.has_thread_context(),
            },
            options: Options {
                is_overwriting: config.mode == Mode::Overwrite,
                is_patient: true,
                max_rings: share.map(|share| share.max_rings),
                ..Options::new(config.door.into(), ring_bytes)
            },
        })?;
        live.registry().keep_for(&config.context_fields());
        Ok(Running {
            origin: Origin::new(session),
            config: config.clone(),
            rules,
            live,
            attached: HashSet::new(),
            recorder: None,
            turn: Turn::default(),
            unwritten_ns: 0,
            cleared_ns: 0,
            inherited: ToldGaps::default(),
            held: FlightBuffer::new(ring_bytes as usize),
            sites: Sites::default(),
            watch: None,
            untold: Vec::new(),
            gaps: Vec::new(),
            n_untold_gaps: 0,
        })
    }

    pub(crate) fn is_overwriting(&self) -> bool {
        self.config.mode == Mode::Overwrite
    }

    /// Whether it does what the configuration says now.
    pub(crate) fn does(&self, config: &Channel) -> bool {
        let enabled = config.events.iter().filter(|rule| rule.enabled);
        let settings = |c: &Channel| Channel { events: Vec::new(), ..c.clone() };
        enabled.eq(self.rules.iter()) && settings(config) == settings(&self.config)
    }

    /// Whether it records a process that is not among these.
    pub(crate) fn has_other_than(&self, pids: &HashSet<u32>) -> bool {
        !self.attached.is_subset(pids)
    }

    /// The processes it records: those it was attached to, and their descendants.
    pub(crate) fn pids(&self) -> HashSet<u32> {
        self.attached.iter().copied().chain(self.live.processes()).collect()
    }

    /// Those of the processes that it does not record yet.
    pub(crate) fn missing(&self, pids: &HashSet<u32>) -> Vec<u32> {
        pids.difference(&self.pids()).copied().collect()
    }

    pub(crate) fn attach(&mut self, pid: u32, is_stopped: impl Fn() -> bool) -> Result<(), LiveError> {
        let opened = attach_when_free(&mut self.live, pid, is_stopped)?;
        self.attached.insert(pid);
        self.count(&opened);
        self.learn_pids(&opened);
        self.untold.extend(closed_in_words(&opened));
        Ok(())
    }

    /// The same of a process that stands at the first instruction of its program, held by the thread that calls this.
    pub(crate) fn attach_held(&mut self, pid: u32) -> Result<(), LiveError> {
        let opened = self.live.attach_held(pid)?;
        self.attached.insert(pid);
        self.count(&opened);
        self.learn_pids(&opened);
        Ok(())
    }

    /// The rules that nothing fits so far.
    pub(crate) fn unfit(&self) -> Vec<Unfit> {
        self.live.registry().all_unfit()
    }

    /// It is opened anew, and comes after the one that was there before.
    pub(crate) fn come_after(&mut self, turn: Turn) {
        self.turn = turn;
    }

    /// Throws hits away; tells how many there were, or what those who watch them made of them.
    pub(crate) fn drain(&mut self) -> Fired {
        match &mut self.watch {
            Some(watch) => watch.poll(&mut self.live),
            None => Fired { n: self.live.poll(|_, _| {}).n_hits, n_lost: 0 },
        }
    }

    /// Starts a recording in a folder of `chunk`.
    pub(crate) fn record_into(&mut self, chunk: &Path) -> Result<(), Error> {
        let dir = free_dir(chunk, &self.config.name);
        let mut recorder = self.recorder_in(&dir, self.config.file_limit())?;
        recorder.inherit_gaps(std::mem::take(&mut self.inherited));
        self.recorder = Some((recorder, dir));
        Ok(())
    }

    fn recorder_in(&self, dir: &Path, limit: Option<FileLimit>) -> Result<Recorder, Error> {
        recorder_in(dir, &self.origin, &self.config, limit, &self.live.registry(), &self.attached)
    }

    /// Moves hits from the rings to where they go; tells how many there were.
    pub(crate) fn pass(&mut self) -> Result<u64, Error> {
        if let Some((recorder, _)) = &mut self.recorder {
            return recorder.pass(&mut self.live, &self.turn);
        }
        let (held, turn) = (&mut self.held, &self.turn);
        let polled = self.live.poll(|_, hit| {
            if turn.takes(&hit) {
                held.push(hit);
            }
        });
        // These rings are not written over: what they had no room for is missing.
        for loss in polled.losses.iter().filter(|loss| self.turn.is_over(loss.last_ns)) {
            let text = format!("{} hits found no room on their way to the flight recorder", loss.count);
            keep_gap(&mut self.gaps, &mut self.n_untold_gaps, loss.last_ns, &text);
        }
        Ok(polled.n_hits)
    }

    /// Keeps the probes open and follows new processes. Gives what is missing, in words.
    pub(crate) fn look_after(&mut self, in_words: InWords, log: &mut dyn FnMut(&str)) -> Vec<String> {
        if !self.live.is_look_due() {
            return Vec::new();
        }
        self.look(in_words, log)
    }

    /// The same at once.
    pub(crate) fn look(&mut self, in_words: InWords, log: &mut dyn FnMut(&str)) -> Vec<String> {
        let news = self.live.look_after();
        self.tell(news, in_words, log)
    }

    /// Closes the probes. Gives what is missing, in words; what could not be put back is logged.
    pub(crate) fn close(&mut self, in_words: InWords, log: &mut dyn FnMut(&str)) -> Vec<String> {
        for failure in self.live.close() {
            log(&format!("cannot close every site: {failure}"));
        }
        let news = self.live.take_news();
        self.tell(news, in_words, log)
    }

    fn tell(&mut self, news: Vec<News>, in_words: InWords, log: &mut dyn FnMut(&str)) -> Vec<String> {
        let mut gaps = std::mem::take(&mut self.untold);
        for news in news {
            match news {
                News::Opened(opened) => {
                    self.count(&opened);
                    self.learn_pids(&opened);
                    gaps.extend(closed_in_words(&opened));
                }
                News::Gap(text) => gaps.push(text),
                News::NotFollowed { pid, error } => {
                    gaps.push(format!("process {pid} could not be followed: {}", in_words(&error)));
                }
                News::Late { pid, n_sites } => gaps.push(late_in_words(pid, n_sites)),
                News::Message(text) => log(&text),
            }
        }
        gaps.iter().for_each(|gap| self.state_gap(gap));
        gaps
    }

    /// Writes into the recording that hits are missing.
    pub(crate) fn state_gap(&mut self, text: &str) {
        match &mut self.recorder {
            Some((recorder, _)) => recorder.gap(monotonic_ns(), text),
            None => keep_gap(&mut self.gaps, &mut self.n_untold_gaps, monotonic_ns(), text),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        match &mut self.recorder {
            Some((recorder, _)) => recorder.flush(),
            None => Ok(()),
        }
    }

    /// What the recording under way has so far.
    pub(crate) fn totals(&self) -> Totals {
        self.recorder.as_ref().map_or(Totals::default(), |(recorder, _)| recorder.totals())
    }

    /// Ends the recording under way, with what is in the rings.
    pub(crate) fn finish(&mut self) -> Option<Written> {
        self.finish_before(None)
    }

    /// The same where another comes after it.
    pub(crate) fn finish_before(&mut self, noted: Option<&mut Turn>) -> Option<Written> {
        let (mut recorder, path) = self.recorder.take()?;
        let error = recorder.pass_on(&mut self.live, &self.turn, noted).err();
        Some(Written::of(recorder, path, error))
    }

    /// Of a channel that is written over: notes the hits that it has.
    pub(crate) fn note(&mut self, noted: &mut Turn) -> Result<(), Error> {
        self.pass()?;
        self.held.hits().for_each(|hit| noted.note(&hit));
        let turn = &self.turn;
        self.live.snapshot(|_, hit| {
            if turn.takes(&hit) {
                noted.note(&hit);
            }
        });
        Ok(())
    }

    /// Writes what the rings hold into a folder of `dir`. They go on as before.
    pub(crate) fn snapshot(&mut self, dir: &Path) -> Result<Written, Error> {
        self.pass()?;
        self.write_rings(dir, self.cleared_ns..u64::MAX, None)
    }

    /// The same of what came since the last time.
    pub(crate) fn write_new(&mut self, dir: &Path) -> Result<Written, Error> {
        // Hits may come into a ring while it is read; those are the next time's.
        let now_ns = monotonic_ns();
        self.pass()?;
        let written = self.write_rings(dir, self.unwritten_ns..now_ns, self.config.file_limit())?;
        self.held.clear();
        (self.gaps, self.n_untold_gaps) = (Vec::new(), 0);
        self.unwritten_ns = now_ns;
        Ok(written)
    }

    fn write_rings(
        &mut self,
        dir: &Path,
        span: Range<u64>,
        limit: Option<FileLimit>,
    ) -> Result<Written, Error> {
        let path = free_dir(dir, &self.config.name);
        let mut recorder = self.recorder_in(&path, limit)?;
        let error = recorder.snapshot(&mut self.live, span, &self.turn).err();
        let replayed = self.held.replay(&self.live.registry(), &mut recorder).err();
        // Whoever reads the newest events must know what is not among them.
        recorder.gaps(&self.gaps, self.n_untold_gaps);
        Ok(Written::of(recorder, path, error.or(replayed)))
    }

    /// Forgets what came so far, and was not written if it is written over. What else is missing stays told.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        let now_ns = monotonic_ns();
        if self.is_overwriting() {
            self.pass()?;
            self.held.clear();
            (self.unwritten_ns, self.cleared_ns) = (now_ns, now_ns);
        }
        if let Some((recorder, _)) = &self.recorder {
            self.inherited = recorder.told_gaps();
        }
        // Also of what could not be written nothing is left to be told.
        self.finish();
        Ok(())
    }

    /// What the rings hold, for the snapshots to come, without the rings themselves.
    pub(crate) fn into_past(mut self) -> Result<Past, Error> {
        self.pass()?;
        let (mut held, turn) = (self.held, self.turn);
        held.set_max_bytes(usize::MAX);
        self.live.snapshot(|_, hit| {
            if turn.takes(&hit) {
                held.push(hit);
            }
        });
        let empty = Registry::new(Vec::new(), Vec::new(), Limits::default());
        let registry = std::mem::replace(&mut *self.live.registry(), empty);
        Ok(Past::new(
            (self.origin, self.config),
            registry,
            self.attached,
            held,
            (self.gaps, self.n_untold_gaps),
        ))
    }

    fn count(&mut self, opened: &[Opened]) {
        for site in opened {
            match site.way {
                Way::User(_) => self.sites.user += 1,
                Way::Kernel { .. } => self.sites.kernel += 1,
                Way::Closed(_) => self.sites.closed += 1,
            }
        }
    }

    fn learn_pids(&mut self, opened: &[Opened]) {
        if let Some((recorder, _)) = &mut self.recorder {
            let pids: HashSet<u32> = opened.iter().map(|site| site.pid).collect();
            pids.into_iter().for_each(|pid| recorder.contexts.tasks.add(pid));
        }
    }
}

impl Written {
    /// Ends a recording, to which the error had come.
    pub(crate) fn of(recorder: Recorder, path: PathBuf, error: Option<Error>) -> Written {
        let closed = recorder.close();
        Written {
            path,
            totals: Totals {
                n_events: closed.n_events,
                n_lost: closed.verdict.n_all_lost(),
                n_bytes: closed.n_bytes,
                n_let_go: closed.verdict.n_let_go,
                let_go_until_ns: closed.verdict.let_go_until,
            },
            error: error.or(closed.error),
        }
    }
}

/// Gaps that are kept in words; the others are counted.
const MAX_GAPS: usize = 200;

fn keep_gap(gaps: &mut Vec<(u64, String)>, n_untold: &mut u64, ns: u64, text: &str) {
    match gaps.len() < MAX_GAPS {
        true => gaps.push((ns, text.to_owned())),
        false => *n_untold += 1,
    }
}

fn ring_bytes(config: &Channel) -> u64 {
    config.ring_bytes.unwrap_or(RING_BYTES).next_power_of_two()
}

/// What all rings of a channel hold; a hit beside a ring takes up to twice the room.
pub(super) fn max_held_bytes(config: &Channel) -> usize {
    let n_cpus = possible_cpus().map_or(1, u64::from);
    usize::try_from(ring_bytes(config) * n_cpus * 2).unwrap_or(usize::MAX)
}
