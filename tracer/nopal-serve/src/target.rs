//! One program being traced: its processes come and go, its numbers only grow.

use crate::config::TargetConfig;
use nopal_answers::ordered::Ordered;
use nopal_answers::{At, Cell, Consumer, Counts, Latency, LatencyAsk, Slow, Wrong, ask, inventory};
use nopal_live::plan::Limits;
use nopal_live::registry::Choice;
use nopal_live::{Door, Live, LiveError, News, Options, OrderWithin, Request, attach_when_free};
use nopal_proc::Process;
use nopal_proc::missed_execs::Untold;
use nopal_session::Tracked;
use nopal_session::programs::Programs;
use nopal_spans::{Available, Fields, Needs, ProbeName, Span, Summary};
use nopal_trace::{EventType, Verdict};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Where the kernel tells of programs that start, a look at all processes is only for what it could not tell.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN_BLIND: Duration = Duration::from_millis(500);
/// A process that could not be entered is tried again after this long.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Processes that do nothing are looked at this often, and whole, with all that `/proc` says of them, that often.
const LOOK_IDLE: Duration = Duration::from_secs(2);
const LOOK_WHOLE: Duration = Duration::from_secs(30);
/// Looking takes at most one part of so many of a CPU, if [`LOOK_IDLE`] allows.
const LOOK_SHARE: u32 = 100;
/// How often it is looked who has ended.
const COUNT: Duration = Duration::from_secs(1);
const MAX_TEXT_BYTES: u32 = 128;

/// A target while it is served.
#[derive(Debug)]
pub(crate) struct Target {
    pub config: TargetConfig,
    declared: Vec<Span>,
    given: Vec<nopal_provider::File>,
    programs: Programs,
    tracing: Option<Tracing>,
    attached: HashSet<u32>,
    /// Processes that could not be entered, and when that was.
    refused: HashMap<u32, Instant>,
    /// Those of them of which it was told that their hits are missing.
    told: HashSet<u32>,
    /// When it was last looked who has ended.
    last_count: Option<Instant>,
    looks: Looks,
    last_hit: Option<Instant>,
    pub state: State,
}

/// When its processes were last looked at, short or whole, and how long that took.
#[derive(Debug, Default)]
struct Looks {
    last: Option<(Instant, Duration)>,
    last_whole: Option<Instant>,
}

impl Looks {
    /// Looks after the processes if it is time. A hundred of them that do nothing shall cost nothing to speak of.
    fn look(&mut self, live: &mut Live, is_busy: bool) -> Option<Vec<News>> {
        let has_news = live.has_news();
        if let Some((at, took)) = self.last {
            let pause = if is_busy { (took * LOOK_SHARE).min(LOOK_IDLE) } else { LOOK_IDLE };
            if !has_news && (at.elapsed() < pause || !live.is_look_due()) {
                return None;
            }
        }
        let begin = Instant::now();
        let is_known = !is_busy && self.last_whole.is_some_and(|last| last.elapsed() < LOOK_WHOLE);
        let news = if !has_news && is_known && live.is_undisturbed() {
            None
        } else {
            self.last_whole = Some(begin);
            Some(live.look_after())
        };
        self.last = Some((begin, begin.elapsed()));
        news
    }
}

/// What the health page says of it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub n_processes: usize,
    /// Processes that were traced so far.
    pub n_seen: u64,
    pub verdict: Verdict,
    /// What last went wrong.
    pub problem: Option<String>,
}

#[derive(Debug)]
struct Tracing {
    live: Live,
    ordered: Ordered,
    measured: Measured,
}

/// Spans measured and hits counted, behind one stream.
#[derive(Debug)]
struct Measured {
    latency: Option<Latency>,
    counts: Option<Counts>,
    by: Labels,
}

/// Which of the fields that become labels the spans have, and which the probes.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub of_spans: Vec<String>,
    pub of_probes: Vec<String>,
}

impl Labels {
    /// Each field must be one or the other's.
    fn divide(
        by: &[String],
        spans: &[Span],
        counted: &[ProbeName],
        available: &Available,
    ) -> Result<Labels, Wrong> {
        let of_spans = |by: &[String]| {
            let ask = LatencyAsk { by: by.to_vec(), ..LatencyAsk::default() };
            Latency::new(spans.to_vec(), &ask, available).map(drop)
        };
        let of_probes = |by: &[String]| Counts::new(counted.to_vec(), by, None, None, available).map(drop);
        let mut labels = Labels::default();
        for field in by {
            let one = std::slice::from_ref(field);
            let is_of_spans = !spans.is_empty() && of_spans(one).is_ok();
            let is_of_probes = !counted.is_empty() && of_probes(one).is_ok();
            if is_of_spans {
                labels.of_spans.push(field.clone());
            }
            if is_of_probes {
                labels.of_probes.push(field.clone());
            }
            match (is_of_spans || is_of_probes, spans.is_empty()) {
                (true, _) => {}
                (false, false) => of_spans(one)?,
                (false, true) => of_probes(one)?,
            }
        }
        Ok(labels)
    }
}

impl Consumer for Measured {
    fn class(&mut self, ty: &EventType) -> Needs {
        let of_spans = self.latency.as_mut().map(|latency| latency.class(ty)).unwrap_or_default();
        let of_probes = self.counts.as_mut().map(|counts| counts.class(ty)).unwrap_or_default();
        let n = of_spans.fields.len().max(of_probes.fields.len());
        let is_needed = |fields: &[bool], at: usize| fields.get(at).copied().unwrap_or(false);
        Needs {
            fields: (0..n)
                .map(|at| is_needed(&of_spans.fields, at) || is_needed(&of_probes.fields, at))
                .collect(),
            is_used: of_spans.is_used || of_probes.is_used,
        }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        if let Some(latency) = &mut self.latency {
            latency.event(at, class, fields);
        }
        if let Some(counts) = &mut self.counts {
            counts.event(at, class, fields);
        }
    }

    fn order_within(&self) -> OrderWithin {
        self.latency.as_ref().map_or(OrderWithin::Nothing, Consumer::order_within)
    }

    fn kin(&self, class: usize) -> u32 {
        self.latency.as_ref().map_or(0, |latency| latency.kin(class))
    }

    fn loss(&mut self, to_ns: i64) {
        if let Some(latency) = &mut self.latency {
            latency.loss(to_ns);
        }
    }

    fn restart(&mut self, pid: u32) {
        if let Some(latency) = &mut self.latency {
            latency.restart(pid);
        }
    }

    fn end(&mut self) {
        if let Some(latency) = &mut self.latency {
            latency.end();
        }
    }
}

/// Spans with one set of labels.
#[derive(Debug)]
pub(crate) struct SpanSeries<'a> {
    /// The name of the span, then the values of the labels.
    pub values: &'a [Cell],
    pub summary: &'a Summary,
    /// The slowest since the last time.
    pub slowest: Option<Slow>,
}

impl Target {
    pub(crate) fn new(config: TargetConfig, declared: Vec<Span>, given: Vec<nopal_provider::File>) -> Target {
        let tracked = Tracked { programs: vec![config.program.clone()], ..Tracked::default() };
        let mut programs = Programs::without_gate(&tracked);
        programs.look_again_after(if programs.is_blind() { LOOK_AGAIN_BLIND } else { LOOK_AGAIN });
        Target {
            config,
            declared,
            given,
            programs,
            tracing: None,
            attached: HashSet::new(),
            refused: HashMap::new(),
            told: HashSet::new(),
            last_count: None,
            looks: Looks::default(),
            last_hit: None,
            state: State::default(),
        }
    }

    /// Takes what has come, follows processes. Gives the number of hits.
    pub(crate) fn round(&mut self, is_stopped: fn() -> bool) -> u64 {
        self.follow(is_stopped);
        let Some(tracing) = &mut self.tracing else { return 0 };
        let is_busy = self.last_hit.is_some_and(|last| last.elapsed() < LOOK_IDLE);
        if let Some(news) = self.looks.look(&mut tracing.live, is_busy) {
            self.take_news(news);
        }
        let Some(tracing) = &mut self.tracing else { return 0 };
        let polled = tracing.ordered.poll(&mut tracing.live, &mut tracing.measured, false);
        polled.count(&mut self.state.verdict);
        if polled.n_hits > 0 {
            self.last_hit = Some(Instant::now());
        }
        polled.n_hits
    }

    /// Enters processes of the program that are new.
    fn follow(&mut self, is_stopped: fn() -> bool) {
        self.refused.retain(|_, since| since.elapsed() < TRY_AGAIN);
        if self.last_count.is_none_or(|last| last.elapsed() >= COUNT) {
            self.last_count = Some(Instant::now());
            // What is traced has not ended as far as anybody has seen.
            let traced: HashSet<u32> =
                self.tracing.iter().flat_map(|tracing| tracing.live.processes()).collect();
            self.attached.retain(|pid| traced.contains(pid) || Process::is_alive(*pid));
            self.told.retain(|pid| Process::is_alive(*pid));
        }
        let (attached, refused, tracing) = (&self.attached, &self.refused, &self.tracing);
        let mut fresh = self.programs.fresh_beside(|| {
            let traced = tracing.iter().flat_map(|tracing| tracing.live.processes());
            attached.iter().chain(refused.keys()).copied().chain(traced).collect()
        });
        fresh.sort_unstable();
        self.state.verdict.n_late += self.programs.take_missed().len() as u64;
        if self.programs.take_lost() {
            self.state.verdict.n_gaps += 1;
            self.state.problem = Some(Untold::TooMuch.to_string());
        }
        for pid in fresh {
            // The child of one that was entered just now.
            if self.tracing.as_ref().is_some_and(|tracing| tracing.live.processes().contains(&pid)) {
                continue;
            }
            match self.enter(pid, is_stopped) {
                Ok(()) => {
                    self.attached.insert(pid);
                    self.state.n_seen += 1;
                    self.state.problem = None;
                }
                Err(why) => {
                    self.refused.insert(pid, Instant::now());
                    // It is tried again, and its hits are missing until then.
                    self.state.verdict.n_gaps += u64::from(self.told.insert(pid));
                    self.state.problem = Some(format!("process {pid}: {why}"));
                }
            }
        }
        self.state.n_processes = self.attached.len();
    }

    fn enter(&mut self, pid: u32, is_stopped: fn() -> bool) -> Result<(), String> {
        if self.tracing.is_none() {
            self.tracing = Some(self.begin(pid)?);
        }
        let Some(tracing) = &mut self.tracing else { return Ok(()) };
        let opened =
            attach_when_free(&mut tracing.live, pid, is_stopped).map_err(|error| error.to_string())?;
        tracing.live.check_opened(&opened).map_err(|error| error.to_string())
    }

    /// What the words of the file mean, now that there is a process to ask.
    fn begin(&self, pid: u32) -> Result<Tracing, String> {
        let mut probes =
            inventory::of_targets(&[pid], None, &self.given).map_err(|error| error.to_string())?;
        if self.config.otel {
            inventory::add_thread_context(&mut probes);
        }
        let available = Available::new(self.declared.clone(), probes, false);
        let in_words = |wrong: Wrong| format!("{wrong}; {}", wrong.hint());
        let spans = ask::spans_one_by_one(&available, &self.config.spans).map_err(in_words)?;
        let counted: Vec<ProbeName> = self
            .config
            .probes
            .iter()
            .map(|word| available.find_probe(word).map(|probe| probe.name.clone()))
            .collect::<Result<_, _>>()
            .map_err(|no_span| in_words(Wrong::Span(no_span)))?;
        let mut patterns: Vec<String> =
            spans.iter().flat_map(Span::probes).chain(&counted).map(ProbeName::to_string).collect();
        patterns.sort();
        patterns.dedup();
        let by = Labels::divide(&self.config.by, &spans, &counted, &available).map_err(in_words)?;
        let max_series = self.config.max_series;
        let latency = match spans.is_empty() {
            true => None,
            false => {
                let wanted =
                    LatencyAsk { by: by.of_spans.clone(), n_slowest_each: 1, ..LatencyAsk::default() };
                let mut latency = Latency::new(spans, &wanted, &available).map_err(in_words)?;
                latency.limit_groups(max_series);
                Some(latency)
            }
        };
        let counts = match counted.is_empty() {
            true => None,
            false => {
                let mut counts =
                    Counts::new(counted, &by.of_probes, None, None, &available).map_err(in_words)?;
                counts.limit_groups(max_series);
                Some(counts)
            }
        };
        let ring_bytes = (self.config.buffer_kib.clamp(64, 1 << 20) << 10).next_power_of_two();
        let request = Request {
            spans: None,
            without_arguments: HashSet::new(),
            choices: patterns.iter().map(|text| Choice::parse(text)).collect(),
            given: self.given.clone(),
            limits: Limits {
                max_string_bytes: MAX_TEXT_BYTES,
                has_thread_context: self.config.otel,
                ..Limits::default()
            },
            options: Options::new(Door::Auto, ring_bytes),
        };
        let live = Live::new(request).map_err(|error: LiveError| error.to_string())?;
        Ok(Tracing { live, ordered: Ordered::default(), measured: Measured { latency, counts, by } })
    }

    fn take_news(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Gap(text) => {
                    self.state.verdict.n_gaps += 1;
                    self.state.problem = Some(text);
                }
                News::NotFollowed { pid, error } => {
                    self.state.verdict.n_gaps += 1;
                    self.state.problem = Some(format!("process {pid} could not be followed: {error}"));
                }
                News::Late { .. } => self.state.verdict.n_late += 1,
                News::Opened(_) | News::Message(_) => {}
            }
        }
    }

    /// Spans by their labels. Who asks for the slowest starts looking for others.
    pub(crate) fn spans(&mut self, takes_slowest: bool) -> Vec<SpanSeries<'_>> {
        let Some(latency) = self.tracing.as_mut().and_then(|tracing| tracing.measured.latency.as_mut())
        else {
            return Vec::new();
        };
        let numbers: Vec<usize> = latency.numbered_groups().map(|(number, _)| number).collect();
        let mut slowest: Vec<Option<Slow>> = numbers
            .iter()
            .map(|number| takes_slowest.then(|| latency.take_slowest(*number)).flatten())
            .collect();
        let latency: &Latency = latency;
        latency
            .numbered_groups()
            .zip(&mut slowest)
            .map(|((_, (values, summary)), slow)| SpanSeries { values, summary, slowest: slow.take() })
            .collect()
    }

    /// The fields behind the labels, as far as it is known who has them.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.tracing.as_ref().map(|tracing| &tracing.measured.by)
    }

    /// Hits by probe and labels.
    pub(crate) fn counts(&self) -> &[(Vec<Cell>, u64)] {
        let counts = self.tracing.as_ref().and_then(|tracing| tracing.measured.counts.as_ref());
        counts.map_or(&[], Counts::groups)
    }

    pub(crate) fn n_events(&self) -> u64 {
        self.tracing.as_ref().map_or(0, |tracing| tracing.ordered.n_events)
    }

    /// Spans and hits that are in the series of all others.
    pub(crate) fn n_folded(&self) -> u64 {
        let Some(Tracing { measured, .. }) = &self.tracing else { return 0 };
        measured.latency.as_ref().map_or(0, Latency::n_folded)
            + measured.counts.as_ref().map_or(0, Counts::n_folded)
    }

    /// Leaves all processes. Gives what could not be put back.
    pub(crate) fn close(&mut self) -> Vec<String> {
        let Some(tracing) = &mut self.tracing else { return Vec::new() };
        let failures = tracing.live.close();
        let polled = tracing.ordered.poll(&mut tracing.live, &mut tracing.measured, true);
        polled.count(&mut self.state.verdict);
        failures
    }
}
