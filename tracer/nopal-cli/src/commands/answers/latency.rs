//! `nopal latency`: how long spans take.

use super::functions::FunctionArgs;
use super::source::{Gathered, Source};
use super::{AnswerArgs, measure, numbers, picture, positive_time, print, render, time_with_unit};
use crate::failure::Failure;
use nopal_answers::{Answer, Cell, Column, Interval, Latency, LatencyAsk, ask};
use nopal_spans::{Span, Summary};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::Write;

/// Tells how long spans take: count, errors, total, self, quantiles, a histogram, and the slowest.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal latency query -p 1234 --by query --fingerprint     which statement of that PostgreSQL is slow
  nopal latency memcached:command -n memcached --duration 10s
  nopal latency ruby:cmethod --by classname,methodname -- ruby script.rb
  nopal latency query --where 'query == \"select*\"' --min 10ms --slowest 10 --recording pg.rec
  nopal latency app:begin app:end --key id -p 1234         any two probes, paired by a field of both
  nopal latency valkey_commands:command_call --by name --every 1s -p 1234
  nopal latency libssl:SSL_read libssl:SSL_write -p 1234   functions of a library; no probes needed

A span is what lies between two probes; `nopal spans -p PID` shows those a program has, docs/spans.md how they pair and
how to declare your own. Self time leaves out the spans asked for that lie within, on the same thread. Quantiles are
within 0.8 %. Where the question allows, spans are paired and added up in the program itself (-v says whether), and only the
slowest cross over; both ways give the same numbers. Ctrl-C gives the answer so far; the last line says `complete`, or what is missing.")]
pub(crate) struct Args {
    /// Spans by name, `provider:name` or short; functions, `FILE:NAME`; or two probes, BEGIN and END.
    #[arg(value_name = "SPAN", required_unless_present = "functions")]
    pub spans: Vec<String>,
    #[command(flatten)]
    pub functions: FunctionArgs,
    /// Groups by fields: of the begin, of the end (`end.FIELD`), `pid`, `tid`; `argN` where they have no names.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Only spans whose fields meet this condition, written as after `if` in `nopal trace`.
    #[arg(long = "where", value_name = "COND")]
    pub condition: Option<String>,
    /// Only spans at least this long.
    #[arg(long, value_name = "TIME", value_parser = time_with_unit)]
    pub min: Option<u64>,
    /// Only spans at most this long.
    #[arg(long, value_name = "TIME", value_parser = time_with_unit)]
    pub max: Option<u64>,
    /// How many of the slowest to show, with time, thread and arguments.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub slowest: usize,
    /// A line for each interval.
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub every: Option<u64>,
    /// Pairs by these fields of begin and end instead of by thread; `a=b` where the end calls it b.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub key: Vec<String>,
    /// Texts to group by are SQL: literals become `?`.
    #[arg(long)]
    pub fingerprint: bool,
    /// What the rows are sorted by.
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Sort::Total)]
    pub sort: Sort,
    /// How many rows to print; with --json all, unless this is given.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub keeping: measure::KeepingArgs,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    Count,
    Total,
    #[value(name = "self")]
    SelfTime,
    P50,
    P90,
    P99,
    Max,
    Errors,
    Rate,
}

/// Rows that are printed without --limit.
pub(crate) const N_ROWS: usize = 20;

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    args.spans = args.functions.words(&args.spans);
    let source = Source::find_with(&mut args.answer, &args.spans)?;
    let spans = ask::spans(&source.available, &args.spans, &args.key)?;
    let wanted = LatencyAsk {
        by: args.by.clone(),
        condition: args.condition.clone(),
        min_ns: args.min.unwrap_or(0),
        max_ns: args.max.unwrap_or(u64::MAX),
        n_slowest: args.slowest,
        n_slowest_each: 0,
        every_ns: args.every,
        has_fingerprints: args.fingerprint,
    };
    let mut latency = Latency::new(spans.clone(), &wanted, &source.available)?;
    let mut lines = Lines::new(&args, spans.len());
    let asked = measure::Asked { spans: &spans, ask: &wanted, is_streamed: args.keeping.streamed };
    let mut gathered = measure::measure(&source, &args.answer, &asked, &mut latency, |latency, now_ns| {
        lines.print(latency.take_intervals(now_ns))
    })?;
    lines.print(latency.take_intervals(i64::MAX))?;
    gathered.left_out = source.available.left_out(&args.spans, &spans);
    show(&args, &spans, latency, &gathered, lines)?;
    gathered.finish()
}

fn show(
    args: &Args,
    spans: &[Span],
    latency: Latency,
    gathered: &Gathered,
    lines: Lines,
) -> Result<(), Failure> {
    let n_spans = latency.n_spans();
    let all = latency.all();
    let mut answer = latency.answer();
    sort(&mut answer, args.sort);
    if args.answer.json {
        answer.rows.truncate(args.limit.unwrap_or(usize::MAX));
        let mut more = Map::new();
        more.insert("spans".to_owned(), Value::from(spans.iter().map(Span::full_name).collect::<Vec<_>>()));
        if args.every.is_some() {
            more.insert("intervals".to_owned(), Value::from(lines.json));
        }
        return render::json(gathered, &answer, &args.answer, more);
    }
    if n_spans > 0 {
        let mut text = rows(&answer, args.limit.unwrap_or(N_ROWS), spans.len() > 1);
        let _ = write!(
            text,
            "\n{}",
            picture::bars(&picture::duration_bars(&all.durations), render::picture_width())
        );
        if !answer.slowest.is_empty() {
            let _ = write!(text, "\n{}", render::slowest(&answer.slowest));
        }
        if let Some(line) = lines.summary() {
            let _ = write!(text, "\n{line}");
        }
        print(&text)?;
    }
    render::conclude(gathered, &answer, n_spans, "span");
    Ok(())
}

/// The rows of a table of spans, with as many columns as the screen has room for.
pub(crate) fn rows(answer: &Answer, n_rows: usize, has_spans: bool) -> String {
    let shown = &answer.rows[..answer.rows.len().min(n_rows)];
    let has_keys = answer.columns.iter().any(|column| column.class == "key");
    let room = render::width();
    // With all numbers a row takes 66 columns.
    let is_wide = room >= 66 + if has_keys || has_spans { 30 } else { 0 };
    let is_extra = |name: &str| matches!(name, "self_ns" | "p90_ns" | "p999_ns");
    let mut text = render::table(&answer.columns, shown, |column: &Column| {
        (has_spans || column.name != "span") && (is_wide || !is_extra(&column.name))
    });
    if answer.rows.len() > shown.len() {
        let _ = writeln!(text, "and {} more; --limit shows them", answer.rows.len() - shown.len());
    }
    text
}

/// Sorts rows of spans, the greatest first; equal ones by what tells them apart.
pub(crate) fn sort(answer: &mut Answer, by: Sort) {
    let name = match by {
        Sort::Count | Sort::Rate => "count",
        Sort::Total => "total_ns",
        Sort::SelfTime => "self_ns",
        Sort::P50 => "p50_ns",
        Sort::P90 => "p90_ns",
        Sort::P99 => "p99_ns",
        Sort::Max => "max_ns",
        Sort::Errors => "errors",
    };
    let Some(at) = answer.columns.iter().position(|column| column.name == name) else { return };
    let number = |row: &[Cell]| match row[at] {
        Cell::Count(n) | Cell::Duration(n) => n,
        _ => 0,
    };
    let keys = |row: &[Cell]| {
        row.iter()
            .filter_map(|cell| match cell {
                Cell::Text(text) => Some(text.clone()),
                Cell::Integer(n) => Some(format!("{n:030}")),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    answer.rows.sort_by(|a, b| number(b).cmp(&number(a)).then_with(|| keys(a).cmp(&keys(b))));
}

/// A line for each interval as it ends.
struct Lines {
    is_json: bool,
    has_strings: bool,
    width_ns: u64,
    has_groups: bool,
    by: Vec<String>,
    has_head: bool,
    json: Vec<Value>,
    /// By group: how many spans each interval had.
    history: HashMap<String, Vec<u64>>,
    n_intervals: usize,
}

/// Intervals of one sparkline.
const N_HISTORY: usize = 60;

impl Lines {
    fn new(args: &Args, n_spans: usize) -> Lines {
        Lines {
            is_json: args.answer.json,
            has_strings: args.answer.json_strings,
            width_ns: args.every.unwrap_or(1),
            has_groups: !args.by.is_empty() || n_spans > 1,
            by: args.by.clone(),
            has_head: false,
            json: Vec::new(),
            history: HashMap::new(),
            n_intervals: 0,
        }
    }

    fn print(&mut self, intervals: Vec<Interval>) -> Result<(), Failure> {
        let mut text = String::new();
        for interval in intervals {
            for (group, summary) in &interval.rows {
                match self.is_json {
                    true => self.json.push(self.object(interval.start_ns, group, summary)),
                    false => self.line(interval.start_ns, group, summary, &mut text),
                }
            }
            self.n_intervals += 1;
        }
        if text.is_empty() { Ok(()) } else { print(&text) }
    }

    fn object(&self, start_ns: i64, group: &[Cell], summary: &Summary) -> Value {
        let names = ["span".to_owned()].into_iter().chain(self.by.iter().cloned());
        let mut object: Map<String, Value> =
            names.zip(group).map(|(name, cell)| (name, render::value(cell, self.has_strings))).collect();
        object.insert("ts".to_owned(), render::value(&Cell::Time(start_ns), self.has_strings));
        let numbers =
            ["count", "errors", "total_ns", "self_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        for (name, cell) in numbers.into_iter().zip(Latency::cells(summary)) {
            object.insert(name.to_owned(), render::value(&cell, self.has_strings));
        }
        Value::Object(object)
    }

    fn line(&mut self, start_ns: i64, group: &[Cell], summary: &Summary, text: &mut String) {
        if !std::mem::replace(&mut self.has_head, true) {
            let head = format!(
                "{:<15}  {:>6}  {:>7}  {:>6}  {:>7}  {:>7}  {:>7}  ",
                "time", "count", "per s", "errors", "p50", "p99", "max"
            );
            let _ = writeln!(text, "{}", render::heading(head.trim_end()));
        }
        let key = if self.has_groups {
            group.iter().map(render::cell).collect::<Vec<_>>().join(" ")
        } else {
            String::new()
        };
        let history = self.history.entry(key.clone()).or_default();
        history.resize(self.n_intervals, 0);
        history.push(summary.count());
        let recent = &history[history.len().saturating_sub(8)..];
        let rate = summary.count() as f64 * 1e9 / self.width_ns as f64;
        let line = format!(
            "{}  {:>6}  {:>7}  {:>6}  {:>7}  {:>7}  {:>7}  {:<8}  {key}",
            render::clock(start_ns),
            numbers::count(summary.count()),
            numbers::count(rate.round() as u64),
            numbers::count(summary.errors),
            numbers::duration(summary.durations.quantile(0.5)),
            numbers::duration(summary.durations.quantile(0.99)),
            numbers::duration(summary.durations.max()),
            picture::sparkline(recent),
        );
        let _ = writeln!(text, "{}", render::cut(line.trim_end(), render::width()));
    }

    /// The whole course in one line, for the busiest groups.
    fn summary(&self) -> Option<String> {
        if self.n_intervals < 2 || self.is_json {
            return None;
        }
        let mut all: Vec<(&String, &Vec<u64>)> = self.history.iter().collect();
        all.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.iter().sum::<u64>()), (*key).clone()));
        let mut text = format!("{}\n", render::heading("spans over time"));
        for (key, counts) in all.into_iter().take(5) {
            let mut counts = counts.clone();
            counts.resize(self.n_intervals, 0);
            let _ = writeln!(text, "  {}  {}", picture::sparkline(&squeezed(&counts)), render::cut(key, 40));
        }
        Some(text)
    }
}

/// At most as many values as a line has room for.
fn squeezed(counts: &[u64]) -> Vec<u64> {
    let per = counts.len().div_ceil(N_HISTORY).max(1);
    counts.chunks(per).map(|chunk| chunk.iter().sum()).collect()
}
