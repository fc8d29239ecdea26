//! Where an answer comes from: recordings, or processes that are traced meanwhile. Finds out which probes there are,
//! feeds the answer, and says at the end whether anything is missing.

use super::functions::Functions;
use super::{AnswerArgs, numbers};
use crate::failure::Failure;
use crate::known::{declared, of_processes};
use crate::needs::Needs;
use crate::open::{Open, announce};
use crate::rhythm;
use crate::signals;
use crate::traps;
use crate::verdict::Manner;
use crate::words::counted;
use nopal_answers::inventory;
use nopal_answers::ordered::Ordered;
use nopal_answers::{Consumer, recorded};
use nopal_live::plan::EventPlan;
use nopal_live::{Live, Opened, Polled, Way};
use nopal_spans::span::ProbeName;
use nopal_spans::{Available, Span, catalog};
use nopal_trace::{Recording, Verdict};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is asked about, found and looked into.
pub(crate) struct Source {
    recordings: Vec<(PathBuf, Recording)>,
    pub available: Available,
    functions: Functions,
}

/// What came in, beside the answer itself.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub n_events: u64,
    pub verdict: Verdict,
    is_live: bool,
    /// Why spans were streamed, if they could have been kept at the source; whether they were kept.
    pub keeping: Option<Result<(), String>>,
    /// What else the reader should know.
    pub notes: Vec<String>,
    /// Spans that would have been meant, if they were not measured by their names alone.
    pub left_out: Vec<String>,
    /// From the start to the end of what was looked at, in nanoseconds.
    pub duration_ns: u64,
    /// Since the epoch.
    pub end_ns: i64,
    /// The probes that there were: provider and name.
    pub probes: Vec<(String, String)>,
    /// Those of which sites could not be opened.
    pub closed: Vec<(String, String)>,
    /// How the command ended.
    pub exit: Option<ExitStatus>,
    /// What was asked for and never came.
    unfit: Option<Failure>,
    /// Why sites could not be closed.
    failure: Option<Failure>,
    /// What the probes need of their processes.
    pub needs: Needs,
}

impl Gathered {
    /// How the verdict is told.
    pub(crate) fn manner(&self) -> Manner {
        if self.is_live { Manner::LIVE } else { Manner::SESSION }
    }

    /// After the answer was printed.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.failure.map_or(Ok(()), Err)
    }
}

/// Where a live answer gets what it is made of.
pub(crate) trait Stream<C> {
    /// Takes what there is.
    fn poll(&mut self, live: &mut Live, consumer: &mut C, is_last: bool) -> Polled;

    fn seen(&self) -> Seen;
}

/// What has come so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub n: u64,
    /// Of what, in the plural.
    pub what: &'static str,
    /// Texts that are longer than what is kept of them.
    pub n_cut: u64,
    /// Everything before this time has come, since the epoch.
    pub reached_ns: i64,
}

impl<C: Consumer> Stream<C> for Ordered {
    fn poll(&mut self, live: &mut Live, consumer: &mut C, is_last: bool) -> Polled {
        Ordered::poll(self, live, consumer, is_last)
    }

    fn seen(&self) -> Seen {
        Seen { n: self.n_events, what: "events", n_cut: self.n_cut, reached_ns: self.reached_ns }
    }
}

const STATUS: Duration = Duration::from_millis(500);

impl Source {
    /// Processes that were named by their program are added to those named by their number.
    pub(crate) fn find(args: &mut AnswerArgs) -> Result<Source, Failure> {
        Source::find_with(args, &[])
    }

    /// The same; some of the words that are asked about may be functions.
    pub(crate) fn find_with(args: &mut AnswerArgs, words: &[String]) -> Result<Source, Failure> {
        let target = &args.target;
        let has_target = !target.processes.is_empty() || !target.command.is_empty();
        if !args.recordings.is_empty() && has_target {
            return Err(Failure::usage("--recording cannot be combined with -p, -n or a command")
                .hint("answer from the recording, or from the running program"));
        }
        let files = declared(args.spans_file.as_deref())?;
        if !args.recordings.is_empty() {
            let mut recordings = Vec::new();
            for dir in &args.recordings {
                recordings.push((dir.clone(), open_recording(dir)?));
            }
            let probes =
                recordings.iter().flat_map(|(_, recording)| inventory::of_recording(recording)).collect();
            let functions = Functions::default();
            return Ok(Source { recordings, available: Available::new(files, probes, false), functions });
        }
        if !has_target {
            return Err(Failure::usage("nothing to ask about is named").hint(
                "add -p PID, -n NAME, -- COMMAND, or --recording DIR; `nopal list -u` shows programs with probes",
            ));
        }
        args.target.resolve()?;
        let has_functions = words.iter().any(|word| word.contains(':'));
        let mut available = of_processes(&args.target.processes.pids, &args.target, files, has_functions)?;
        let functions = Functions::find(&args.target, words, &mut available)?;
        if args.target.otel {
            inventory::add_thread_context(&mut available.probes);
        }
        Ok(Source { recordings: Vec::new(), available, functions })
    }

    /// Feeds an answer from here until there is no more, the time is up, or Ctrl-C. `each_round` is called now and
    /// then with the time, since the epoch, up to which everything has come.
    pub(crate) fn gather<C: Consumer>(
        &self,
        args: &AnswerArgs,
        probes: &[ProbeName],
        consumer: &mut C,
        mut each_round: impl FnMut(&mut C, i64) -> Result<(), Failure>,
    ) -> Result<Gathered, Failure> {
        let gathered = match self.is_live() {
            true => {
                signals::stop_on_signals();
                let is_bare = |probe: &&ProbeName| {
                    self.available.probe(probe).is_some_and(|known| {
                        let fields: Vec<&str> =
                            known.fields.iter().map(|field| field.name.as_str()).collect();
                        consumer.needs_no_fields(&probe.provider, &probe.name, &fields)
                    })
                };
                let named = |probe: &ProbeName| (probe.provider.clone(), probe.name.clone());
                let bare = probes.iter().filter(is_bare).map(named).collect();
                let open = args.target.open_without(&self.patterns(probes), bare)?;
                self.trace(args, open, &mut Ordered::default(), consumer, &mut each_round)?
            }
            false => self.gather_patterns(args, self.patterns(probes), consumer, each_round)?,
        };
        self.conclude(gathered, probes)
    }

    /// An answer about probes that never came is none; one of nothing says why.
    pub(crate) fn conclude(&self, mut gathered: Gathered, probes: &[ProbeName]) -> Result<Gathered, Failure> {
        if gathered.n_events == 0
            && let Some(failure) = gathered.unfit.take()
        {
            return Err(failure);
        }
        gathered.notes.extend(self.traps(probes, gathered.n_events, &gathered.needs));
        gathered.notes.extend(self.functions.notes.iter().cloned());
        Ok(gathered)
    }

    /// The same for patterns of probes, also if none of them is there.
    pub(crate) fn gather_patterns<C: Consumer>(
        &self,
        args: &AnswerArgs,
        mut patterns: Vec<String>,
        consumer: &mut C,
        mut each_round: impl FnMut(&mut C, i64) -> Result<(), Failure>,
    ) -> Result<Gathered, Failure> {
        signals::stop_on_signals();
        match self.is_live() {
            true => {
                patterns.sort();
                patterns.dedup();
                let open = args.target.open(&patterns)?;
                self.trace(args, open, &mut Ordered::default(), consumer, &mut each_round)
            }
            false => self.replay(consumer, &mut each_round),
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.recordings.is_empty()
    }

    /// What is traced for these probes.
    pub(crate) fn patterns(&self, probes: &[ProbeName]) -> Vec<String> {
        let is_static = |probe: &&ProbeName| !self.functions.has(probe);
        let mut patterns: Vec<String> = probes.iter().filter(is_static).map(ProbeName::to_string).collect();
        if patterns.len() < probes.len() {
            patterns.extend(self.functions.patterns.iter().cloned());
        }
        patterns.extend(traps::companions(probes, &self.available));
        patterns.sort();
        patterns.dedup();
        patterns
    }

    fn replay<C: Consumer>(
        &self,
        consumer: &mut C,
        each_round: &mut impl FnMut(&mut C, i64) -> Result<(), Failure>,
    ) -> Result<Gathered, Failure> {
        let known = self.available.probes.iter().map(|known| &known.name);
        let probes = known.map(|name| (name.provider.clone(), name.name.clone())).collect();
        let mut gathered = Gathered { probes, ..Gathered::default() };
        let mut status = Status::new();
        for (dir, recording) in &self.recordings {
            let mut failed = None;
            let n_before = gathered.n_events;
            let read = recorded::read(recording, consumer, |consumer, ns, n_events| {
                status.show(|| format!("{} events", numbers::count(n_before + n_events)));
                if let Err(failure) = each_round(consumer, ns) {
                    failed = Some(failure);
                }
                failed.is_none() && !signals::is_stopped()
            });
            let read = read.map_err(|error| recording_failure(&error, dir))?;
            if let Some(failure) = failed {
                return Err(failure);
            }
            gathered.n_events += read.n_events;
            gathered.verdict.add(&read.report.verdict);
            gathered.verdict.n_malformed += read.n_damaged;
            gathered.notes.extend(read.report.verdict.notes.iter().map(ToString::to_string));
            if let Some((first, last)) = read.range {
                gathered.duration_ns += last.saturating_sub(first).max(0) as u64;
                gathered.end_ns = gathered.end_ns.max(last);
            }
            if read.n_without_task > 0 {
                gathered.notes.push(format!(
                    "{}: {} have no process and thread, so that spans which pair by thread cannot be told apart; \
                     record with the contexts vpid and vtid, or pair with --key",
                    dir.display(),
                    counted(read.n_without_task, "event")
                ));
            }
            if signals::is_stopped() {
                gathered.verdict.is_cut_short = true;
                gathered.notes.push("interrupted before the end of the recording".to_owned());
                break;
            }
        }
        status.clear();
        Ok(gathered)
    }

    /// Feeds an answer from processes that have been opened.
    pub(crate) fn trace<C, S: Stream<C>>(
        &self,
        args: &AnswerArgs,
        mut open: Open,
        stream: &mut S,
        consumer: &mut C,
        each_round: &mut impl FnMut(&mut C, i64) -> Result<(), Failure>,
    ) -> Result<Gathered, Failure> {
        if args.target.verbose || !args.json {
            announce(&open.opened, args.target.verbose);
        }
        let start = Instant::now();
        let end = args.target.duration.map(|d| start + d);
        let mut verdict = Verdict::default();
        let mut status = Status::new();
        let mut failed = None;
        loop {
            open.look_after();
            let polled = stream.poll(&mut open.live, consumer, false);
            let n_hits = polled.n_hits;
            polled.count(&mut verdict);
            if let Err(failure) = each_round(consumer, stream.seen().reached_ns) {
                failed = Some(failure);
                break;
            }
            if signals::is_stopped() || end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            status.show(|| {
                let seconds = start.elapsed().as_secs();
                let Seen { n, what, .. } = stream.seen();
                format!("{} {what} in {seconds} s; Ctrl-C gives the answer", numbers::count(n))
            });
            if n_hits == 0 && open.is_over() {
                break;
            }
            rhythm::rest(n_hits);
        }
        let duration_ns = start.elapsed().as_nanos() as u64;
        let failures = open.live.close();
        stream.poll(&mut open.live, consumer, true).count(&mut verdict);
        let seen = stream.seen();
        status.clear();
        open.tell_what_goes_on();
        if let Some(failure) = failed {
            return Err(failure);
        }
        let mut notes = Vec::new();
        if seen.n_cut > 0 {
            notes.push(format!(
                "{} cut at {} bytes, so that what differs only behind is one group; --max-string keeps more",
                if seen.n_cut == 1 { "1 text was".to_owned() } else { format!("{} texts were", seen.n_cut) },
                args.target.max_string
            ));
        }
        let failure = failures.first().map(|failure| {
            Failure::new("not-restored", format!("cannot close every site: {failure}"))
                .hint("`nopal detach -p PID` tries again")
        });
        let named = |plan: &Arc<EventPlan>| (plan.event_type.provider.clone(), plan.event_type.name.clone());
        let probes = open.live.registry().plans.iter().map(named).collect();
        let is_closed = |site: &&Opened| matches!(site.way, Way::Closed(_));
        let parts = |site: &Opened| {
            let name = ProbeName::parse(&site.probe, "");
            (name.provider, name.name)
        };
        let closed: BTreeSet<(String, String)> = open.opened.iter().filter(is_closed).map(parts).collect();
        let closed = closed.into_iter().collect();
        Ok(Gathered {
            n_events: seen.n,
            verdict: open.verdict(verdict),
            is_live: true,
            keeping: None,
            notes,
            left_out: Vec::new(),
            duration_ns,
            end_ns: seen.reached_ns,
            probes,
            closed,
            exit: open.exit(),
            unfit: open.never_fit(),
            failure,
            needs: open.needs,
        })
    }

    /// Why probes may have been silent.
    pub(crate) fn traps(&self, probes: &[ProbeName], n_events: u64, needs: &Needs) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for probe in probes {
            let Some(trap) = catalog::trap(&probe.provider, &probe.name) else { continue };
            // A recording that was made without a probe that another needs has a part only.
            let is_partial = !self.recordings.is_empty()
                && trap.with.as_ref().is_some_and(|with| {
                    self.available.probe(&ProbeName::parse(&with.probe, &probe.provider)).is_none()
                });
            let why_not = trap.with.is_none() && needs.may_lack(trap) || !self.recordings.is_empty();
            if (n_events == 0 && why_not || is_partial) && !notes.contains(&trap.needs) {
                notes.push(trap.needs.clone());
            }
        }
        notes
    }
}

/// The probes of spans, each once.
pub(crate) fn probes_of(spans: &[Span]) -> Vec<ProbeName> {
    let mut probes: Vec<ProbeName> = spans.iter().flat_map(|span| span.probes().cloned()).collect();
    probes.sort();
    probes.dedup();
    probes
}

pub(crate) fn open_recording(dir: &Path) -> Result<Recording, Failure> {
    Recording::open(dir).map_err(|error| recording_failure(&error, dir))
}

fn recording_failure(error: &nopal_trace::Error, dir: &Path) -> Failure {
    crate::commands::recording_failure(error, dir)
}

/// Something to see while waiting, on a terminal only.
pub(crate) struct Status {
    is_shown: bool,
    last: Option<Instant>,
}

impl Status {
    pub(crate) fn new() -> Status {
        Status { is_shown: std::io::stderr().is_terminal(), last: None }
    }

    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        // A screen has the terminal.
        if crate::say::is_held() {
            self.is_shown = false;
        }
        if !self.is_shown || self.last.is_some_and(|last| last.elapsed() < STATUS) {
            return;
        }
        // The first one not at once: a quick answer needs none.
        if self.last.replace(Instant::now()).is_some() {
            crate::say::status(&text());
        }
    }

    pub(crate) fn clear(&mut self) {
        crate::say::clear_status();
    }
}
