//! `nopal top`: what a program is busy with, as a table.

use super::latency::{N_ROWS, Sort, rows, sort};
use super::source::{Source, probes_of};
use super::{AnswerArgs, print, render};
use crate::failure::Failure;
use nopal_answers::{Latency, LatencyAsk, ask};
use nopal_spans::Span;
use serde_json::{Map, Value};
use std::time::Duration;

/// Shows which spans take the most time: the first thing to type on a sick server.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal top -p 1234                                   all spans of a process, the busiest first, over 5 seconds
  nopal top query --by query --fingerprint -n postgres
  nopal top --sort max --recording pg.rec

Without SPAN all spans that `nopal spans` shows are measured.")]
pub struct Args {
    /// Spans by name; all if none is named.
    #[arg(value_name = "SPAN")]
    pub spans: Vec<String>,
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
    pub answer: AnswerArgs,
}

/// How long a live program is looked at if nothing else is said.
const LOOK: Duration = Duration::from_secs(5);

pub fn run(mut args: Args) -> Result<(), Failure> {
    let source = Source::find(&mut args.answer)?;
    if args.answer.recordings.is_empty() && args.answer.target.command.is_empty() {
        args.answer.target.duration.get_or_insert(LOOK);
    }
    let spans = match args.spans.is_empty() {
        true => all(&source)?,
        false => ask::spans(&source.available, &args.spans, &[])?,
    };
    let wanted =
        LatencyAsk { by: args.by.clone(), has_fingerprints: args.fingerprint, ..LatencyAsk::default() };
    let mut latency = Latency::new(spans.clone(), &wanted, &source.available)?;
    let gathered = source.gather(&args.answer, &probes_of(&spans), &mut latency, |_, _| Ok(()))?;
    let n_spans = latency.n_spans();
    let mut answer = latency.answer();
    sort(&mut answer, args.sort);
    if args.answer.json {
        answer.rows.truncate(args.limit.unwrap_or(usize::MAX));
        let mut more = Map::new();
        more.insert("spans".to_owned(), Value::from(spans.iter().map(Span::full_name).collect::<Vec<_>>()));
        render::json(&gathered, &answer, &args.answer, more)?;
    } else {
        if n_spans > 0 {
            print(&rows(&answer, args.limit.unwrap_or(N_ROWS), true))?;
        }
        render::conclude(&gathered, &answer, n_spans, "span");
    }
    gathered.finish()
}

/// Every span there is.
fn all(source: &Source) -> Result<Vec<Span>, Failure> {
    let spans = source.available.spans.clone();
    if spans.is_empty() {
        return Err(Failure::new("no-spans", "there are no spans here").hint(
            "`nopal count PROBE` counts probes; two of them make a span: `nopal latency BEGIN END`; docs/spans.md shows how to declare one",
        ));
    }
    Ok(spans)
}
