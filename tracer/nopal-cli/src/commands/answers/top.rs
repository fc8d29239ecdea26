//! `nopal top`: what a program is busy with, on a screen that is refreshed, or as a table.

use super::functions::FunctionArgs;
use super::latency::{N_ROWS, Sort, rows, sort};
use super::source::{Gathered, Source};
use super::{AnswerArgs, count, measure, print, render};
use crate::failure::Failure;
use nopal_answers::{Answer, Cell, Counts, Latency, LatencyAsk, ask};
use nopal_spans::{ProbeName, Span};
use serde_json::{Map, Value};
use std::io::IsTerminal;
use std::time::Duration;

/// Shows which spans take the most time: the first thing to type on a sick server.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal top -p 1234                                   all spans of a process, the busiest first
  nopal top query --by query --fingerprint -n postgres
  nopal top 'memcached:*' -p 1234                     probes without spans are counted
  nopal top --once --duration 10s -p 1234             a table instead of a screen
  nopal top --functions 'libruby:rb_*' -p 1234        functions, without any probe
  nopal top --sort max --recording pg.rec

Without SPAN all spans that `nopal spans` shows are measured, but for those it says must be asked for by name; where there
are none, the probes are counted. On a terminal
the screen is refreshed until q or Ctrl-C; `?` shows the keys. A recording, a command that has the terminal itself, and
anything that is not a terminal get a table; for a running process it covers 5 seconds, unless --duration says otherwise.")]
pub(crate) struct Args {
    /// Spans by name, or probes; all if none is named.
    #[arg(value_name = "SPAN|PROBE")]
    pub spans: Vec<String>,
    #[command(flatten)]
    pub functions: FunctionArgs,
    /// Groups by fields of the spans.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// What the rows are sorted by.
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Sort::Total)]
    pub sort: Sort,
    /// Texts to group by are SQL: literals become `?`.
    #[arg(long)]
    pub fingerprint: bool,
    /// How many rows to print.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Prints one table and ends.
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub keeping: measure::KeepingArgs,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// How long a live program is looked at for a table if nothing else is said.
const LOOK: Duration = Duration::from_secs(5);
/// The slowest to see in a row that is looked into.
#[cfg(feature = "screen")]
const N_SLOWEST: usize = 10;

/// What is measured.
enum Wanted {
    Spans(Vec<Span>),
    Probes(Vec<ProbeName>),
}

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let words = args.functions.words(&args.spans);
    let source = Source::find_with(&mut args.answer, &words)?;
    let is_live = args.answer.recordings.is_empty() && args.answer.target.command.is_empty();
    let has_screen = is_live && !args.once && !args.answer.json && is_terminal();
    if is_live && !has_screen {
        args.answer.target.duration.get_or_insert(LOOK);
    }
    match wanted(&source, &words)? {
        Wanted::Spans(spans) => {
            let left_out = source.available.left_out(&words, &spans);
            measured(&args, &source, &spans, left_out, has_screen)
        }
        Wanted::Probes(probes) => counted(&args, &source, &probes, has_screen),
    }
}

#[cfg(feature = "screen")]
fn is_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

#[cfg(not(feature = "screen"))]
fn is_terminal() -> bool {
    false
}

/// The spans that words name, or the probes; without words all there are.
fn wanted(source: &Source, words: &[String]) -> Result<Wanted, Failure> {
    let available = &source.available;
    if words.is_empty() {
        let all: Vec<Span> = available.all().cloned().collect();
        if !all.is_empty() {
            return Ok(Wanted::Spans(all));
        }
        let probes: Vec<ProbeName> = available.probes.iter().map(|probe| probe.name.clone()).collect();
        return match probes.is_empty() {
            false => Ok(Wanted::Probes(probes)),
            true => Err(Failure::new("no-spans", "there are neither spans nor probes here")
                .hint("name what the command will load: `nopal top PROVIDER:NAME -- COMMAND`")),
        };
    }
    match ask::spans(available, words, &[]) {
        Ok(spans) => Ok(Wanted::Spans(spans)),
        Err(wrong) => match count::matched(available, words) {
            Ok(probes) => Ok(Wanted::Probes(probes)),
            Err(_) => Err(wrong.into()),
        },
    }
}

fn measured(
    args: &Args,
    source: &Source,
    spans: &[Span],
    left_out: Vec<String>,
    has_screen: bool,
) -> Result<(), Failure> {
    let wanted = LatencyAsk {
        by: args.by.clone(),
        has_fingerprints: args.fingerprint,
        #[cfg(feature = "screen")]
        n_slowest_each: if has_screen { N_SLOWEST } else { 0 },
        ..LatencyAsk::default()
    };
    let mut latency = Latency::new(spans.to_vec(), &wanted, &source.available)?;
    let mut on_screen = OnScreen::new(args, has_screen, true);
    let asked = measure::Asked { spans, ask: &wanted, is_streamed: args.keeping.streamed };
    let mut gathered = measure::measure(source, &args.answer, &asked, &mut latency, |latency, _| {
        on_screen.round(&SpanBoard { latency, has_span: spans.len() > 1 || args.by.is_empty() })
    })?;
    drop(on_screen);
    gathered.left_out = left_out;
    let n_spans = latency.n_spans();
    let mut answer = latency.answer();
    sort(&mut answer, args.sort);
    let names = spans.iter().map(Span::full_name).collect::<Vec<_>>();
    conclude(args, gathered, answer, n_spans, ("span", names))
}

fn counted(args: &Args, source: &Source, probes: &[ProbeName], has_screen: bool) -> Result<(), Failure> {
    let mut counts = Counts::new(probes.to_vec(), &args.by, None, None, &source.available)?;
    let mut on_screen = OnScreen::new(args, has_screen, false);
    let gathered = source
        .gather(&args.answer, probes, &mut counts, |counts, _| on_screen.round(&ProbeBoard { counts }))?;
    drop(on_screen);
    let n_events = counts.n_events();
    let mut answer = counts.answer();
    sort(&mut answer, Sort::Count);
    let names = probes.iter().map(ProbeName::to_string).collect::<Vec<_>>();
    conclude(args, gathered, answer, n_events, ("event", names))
}

fn conclude(
    args: &Args,
    gathered: Gathered,
    mut answer: Answer,
    n: u64,
    (what, names): (&str, Vec<String>),
) -> Result<(), Failure> {
    if args.answer.json {
        answer.rows.truncate(args.limit.unwrap_or(usize::MAX));
        let mut more = Map::new();
        more.insert(if what == "span" { "spans" } else { "probes" }.to_owned(), Value::from(names));
        render::json(&gathered, &answer, &args.answer, more)?;
    } else {
        if n > 0 {
            print(&rows(&answer, args.limit.unwrap_or(N_ROWS), true))?;
        }
        render::conclude(&gathered, &answer, n, what);
    }
    gathered.finish()
}

/// The screen, if there is one.
struct OnScreen {
    #[cfg(feature = "screen")]
    screen: Option<super::screen::Screen>,
}

struct SpanBoard<'a> {
    latency: &'a Latency,
    has_span: bool,
}

struct ProbeBoard<'a> {
    counts: &'a Counts,
}

#[cfg(not(feature = "screen"))]
impl OnScreen {
    fn new(_: &Args, _: bool, _: bool) -> OnScreen {
        OnScreen {}
    }

    fn round<T>(&mut self, _: &T) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(feature = "screen")]
mod on_screen {
    use super::super::screen::{Board, Row, Screen};
    use super::*;
    use nopal_answers::Slow;
    use nopal_spans::Summary;

    impl OnScreen {
        pub(super) fn new(args: &Args, has_screen: bool, has_durations: bool) -> OnScreen {
            OnScreen {
                screen: has_screen.then(|| Screen::new(&title(&args.answer), args.sort, has_durations)),
            }
        }

        pub(super) fn round(&mut self, board: &impl Board) -> Result<(), Failure> {
            self.screen.as_mut().map_or(Ok(()), |screen| screen.round(board))
        }
    }

    /// What is looked at.
    fn title(answer: &AnswerArgs) -> String {
        let processes = &answer.target.processes;
        let groups = processes.cgroups.iter().map(|path| path.display().to_string());
        let names: Vec<String> =
            processes.names.iter().chain(&processes.containers).cloned().chain(groups).collect();
        match (&names[..], &processes.pids[..]) {
            ([], [pid]) => format!("pid {pid}"),
            ([], pids) => format!("{} processes", pids.len()),
            (names, pids) => format!("{} ({} processes)", names.join(", "), pids.len()),
        }
    }

    fn name(cells: &[Cell]) -> String {
        cells.iter().map(render::cell).collect::<Vec<_>>().join("  ")
    }

    impl Board for SpanBoard<'_> {
        fn rows(&self) -> Vec<Row> {
            let row = |(id, (cells, summary)): (usize, &(Vec<Cell>, Summary))| {
                let name = name(&cells[usize::from(!self.has_span)..]);
                let quantile = |share| summary.durations.quantile(share);
                let numbers = [
                    0,
                    summary.count(),
                    summary.errors,
                    summary.total_ns,
                    summary.self_ns,
                    quantile(0.5),
                    quantile(0.9),
                    quantile(0.99),
                    quantile(0.999),
                    summary.durations.max(),
                ];
                Row { id, name, numbers }
            };
            self.latency.numbered_groups().map(row).collect()
        }

        fn detail(&self, row: usize) -> Option<(Summary, Vec<Slow>)> {
            self.latency.group(row).map(|(summary, slowest)| (summary.clone(), slowest))
        }

        fn n_unmatched(&self) -> u64 {
            // What is open now may still end.
            self.latency.unmatched().sum()
        }
    }

    impl Board for ProbeBoard<'_> {
        fn rows(&self) -> Vec<Row> {
            let row = |(id, (cells, count)): (usize, &(Vec<Cell>, u64))| {
                let mut numbers = [0; 10];
                numbers[1] = *count;
                Row { id, name: name(cells), numbers }
            };
            self.counts.groups().iter().enumerate().map(row).collect()
        }

        fn detail(&self, _: usize) -> Option<(Summary, Vec<Slow>)> {
            None
        }

        fn n_unmatched(&self) -> u64 {
            0
        }
    }
}
