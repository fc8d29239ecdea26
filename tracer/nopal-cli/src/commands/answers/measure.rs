//! The way to the durations of spans: kept at the source where the question and the doors allow it, else streamed.

use super::AnswerArgs;
use super::source::{Gathered, Seen, Source, Stream, probes_of};
use crate::failure::Failure;
use crate::signals;
use crate::target_args::DoorArg;
use crate::words::counted;
use nopal_answers::kept::{Kept, NotKept, roles};
use nopal_answers::{Latency, LatencyAsk};
use nopal_live::registry::SpanRoles;
use nopal_live::{Live, NotKeptHere, Polled};
use nopal_spans::{ProbeName, Span};

#[derive(Debug, clap::Args)]
pub(crate) struct KeepingArgs {
    /// Pairs and adds up in nopal itself, never in the traced program.
    #[arg(long)]
    pub streamed: bool,
}

/// What is to be measured.
pub(crate) struct Asked<'a> {
    pub spans: &'a [Span],
    pub ask: &'a LatencyAsk,
    pub is_streamed: bool,
}

/// Why events are streamed.
enum Streamed {
    AskedFor,
    Question(NotKept),
    /// The kernel door was asked for.
    ByKernel,
    /// Children that are not to be looked at would be added up, too.
    Only,
    /// The user door does not open all that is needed.
    Here(NotKeptHere),
    ThreadContext,
}

impl std::fmt::Display for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Streamed::AskedFor => f.write_str("--streamed"),
            Streamed::Question(why) => write!(f, "{why}"),
            Streamed::ByKernel => f.write_str("the kernel door streams"),
            Streamed::ThreadContext => f.write_str("--otel needs the thread context of each event"),
            Streamed::Only => f.write_str("--only needs the process of each event"),
            Streamed::Here(why) => write!(f, "{why}"),
        }
    }
}

/// Measures spans until there is no more, the time is up, or Ctrl-C.
pub(crate) fn measure(
    source: &Source,
    args: &AnswerArgs,
    asked: &Asked<'_>,
    latency: &mut Latency,
    mut each_round: impl FnMut(&mut Latency, i64) -> Result<(), Failure>,
) -> Result<Gathered, Failure> {
    let probes = probes_of(asked.spans);
    let mut gathered = gather(source, args, asked, &probes, latency, &mut each_round)?;
    // One side of the pairs alone came: what the other needs may be the reason.
    if gathered.n_events > 0 && latency.n_spans() == 0 && latency.unmatched().sum() > 0 {
        gathered.notes.extend(source.traps(&probes, 0, &gathered.needs));
    }
    if gathered.verdict.n_nesting > 0 && asked.spans.len() > 1 {
        gathered.notes.push(format!(
            "{} came by one door so shortly after one by the other that it is not known which span lies within which: \
             self times are in doubt, counts and durations are not",
            counted(gathered.verdict.n_nesting, "event")
        ));
    }
    Ok(gathered)
}

fn gather(
    source: &Source,
    args: &AnswerArgs,
    asked: &Asked<'_>,
    probes: &[ProbeName],
    latency: &mut Latency,
    each_round: &mut impl FnMut(&mut Latency, i64) -> Result<(), Failure>,
) -> Result<Gathered, Failure> {
    let mut keeping = None;
    if source.is_live() {
        match keep(source, args, asked, probes, latency, each_round)? {
            Ok(mut gathered) => {
                gathered.keeping = Some(Ok(()));
                return Ok(gathered);
            }
            Err(why) => {
                if args.target.verbose {
                    tell!("spans: streamed, as {why}");
                }
                keeping = Some(Err(why.to_string()));
            }
        }
    }
    let mut gathered = source.gather(args, probes, latency, each_round)?;
    gathered.keeping = keeping;
    Ok(gathered)
}

fn keep(
    source: &Source,
    args: &AnswerArgs,
    asked: &Asked<'_>,
    probes: &[ProbeName],
    latency: &mut Latency,
    each_round: &mut impl FnMut(&mut Latency, i64) -> Result<(), Failure>,
) -> Result<Result<Gathered, Streamed>, Failure> {
    let roles = match may_keep(source, args, asked) {
        Ok(roles) => roles,
        Err(why) => return Ok(Err(why)),
    };
    signals::stop_on_signals();
    // What spans carry along is not kept.
    let is_needed =
        |probe: &&ProbeName| roles.by_probe.contains_key(&(probe.provider.clone(), probe.name.clone()));
    let needed: Vec<ProbeName> = probes.iter().filter(is_needed).cloned().collect();
    let open = match args.target.open_keeping(&source.patterns(&needed), roles)? {
        Ok(open) => open,
        Err(why) => return Ok(Err(Streamed::Here(why))),
    };
    if args.target.verbose {
        tell!("spans: kept at the source");
    }
    let mut kept = Kept::new(asked.spans.len(), !asked.ask.by.is_empty());
    let mut gathered = source.trace(args, open, &mut kept, latency, each_round)?;
    for (n, what) in [
        (kept.n_no_room, "of threads that the table has no room for"),
        (kept.n_too_deep, "that lay in too many open spans"),
        (kept.n_elsewhere, "that the kernel door saw"),
        (kept.n_undecided, "of arguments that the program cannot compare itself"),
    ] {
        if n > 0 {
            let text =
                format!("{} {what} could not be paired at the source; --streamed can", counted(n, "hit"));
            tell!("nopal: {text}");
            gathered.verdict.gap(gathered.end_ns, &text);
        }
    }
    source.conclude(gathered, probes).map(Ok)
}

fn may_keep(source: &Source, args: &AnswerArgs, asked: &Asked<'_>) -> Result<SpanRoles, Streamed> {
    if asked.is_streamed {
        return Err(Streamed::AskedFor);
    }
    if args.target.otel {
        return Err(Streamed::ThreadContext);
    }
    if args.target.only {
        return Err(Streamed::Only);
    }
    if args.target.door == DoorArg::Kernel {
        return Err(Streamed::ByKernel);
    }
    roles(asked.spans, asked.ask, &source.available).map_err(Streamed::Question)
}

impl Stream<Latency> for Kept {
    fn poll(&mut self, live: &mut Live, latency: &mut Latency, is_last: bool) -> Polled {
        Kept::poll(self, live, latency, is_last)
    }

    fn seen(&self) -> Seen {
        Seen { n: self.n_spans, what: "spans", n_cut: 0, reached_ns: self.reached_ns }
    }
}
