//! `nopal count`: how often probes are passed.

use super::source::Source;
use super::{AnswerArgs, numbers, picture, positive_time, print, render};
use crate::failure::Failure;
use nopal_answers::{Cell, CountInterval, Counts, Wrong};
use nopal_spans::Available;
use nopal_spans::span::ProbeName;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Counts how often probes are passed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal count 'memcached:command__*' -p 1234 --duration 10s
  nopal count ruby:object__create --by classname -- ruby script.rb
  nopal count hotspot:class__loaded --every 1s -n java
  nopal count 'postgresql:*' --recording pg.rec")]
pub(crate) struct Args {
    /// `provider:name` with `*` and `?`.
    #[arg(value_name = "PROBE", required = true)]
    pub probes: Vec<String>,
    /// Groups by fields of the probes, `pid`, `tid` or `cpu`.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Only events whose fields meet this condition.
    #[arg(long = "where", value_name = "COND")]
    pub condition: Option<String>,
    /// A line for each interval.
    #[arg(long, value_name = "TIME", value_parser = positive_time)]
    pub every: Option<u64>,
    /// How many rows to print.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

const N_ROWS: usize = 40;

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let source = Source::find(&mut args.answer)?;
    let probes = matched(&source.available, &args.probes)?;
    let mut counts =
        Counts::new(probes.clone(), &args.by, args.condition.clone(), args.every, &source.available)?;
    let mut intervals = Vec::new();
    let (is_json, width_ns) = (args.answer.json, args.every.unwrap_or(1));
    let mut take = |counts: &mut Counts, now_ns: i64| {
        let over = counts.take_intervals(now_ns);
        let result = if is_json { Ok(()) } else { lines(&over, width_ns) };
        intervals.extend(over.into_iter().take(if is_json { usize::MAX } else { 0 }));
        result
    };
    let gathered = source.gather(&args.answer, &probes, &mut counts, &mut take)?;
    take(&mut counts, i64::MAX)?;
    let n_events = counts.n_events();
    let mut answer = counts.answer();
    let at = answer.columns.len() - 1;
    let number = |row: &[Cell]| if let Cell::Count(n) = row[at] { n } else { 0 };
    answer.rows.sort_by(|a, b| {
        number(b).cmp(&number(a)).then_with(|| {
            let keys = |row: &[Cell]| row[..at].iter().map(render::cell).collect::<Vec<_>>();
            keys(a).cmp(&keys(b))
        })
    });
    if args.answer.json {
        answer.rows.truncate(args.limit.unwrap_or(usize::MAX));
        let mut more = Map::new();
        if args.every.is_some() {
            more.insert("intervals".to_owned(), json_of(&intervals, &args));
        }
        render::json(&gathered, &answer, &args.answer, more)?;
    } else {
        if n_events > 0 {
            let n_shown = answer.rows.len().min(args.limit.unwrap_or(N_ROWS));
            let mut text = render::table(&answer.columns, &answer.rows[..n_shown], |_| true);
            if answer.rows.len() > n_shown {
                let _ = writeln!(text, "and {} more; --limit shows them", answer.rows.len() - n_shown);
            }
            print(&text)?;
        }
        render::conclude(&gathered, &answer, n_events, "event");
    }
    gathered.finish()
}

/// The probes that patterns name; of what is yet to be loaded, the words as they are.
pub(crate) fn matched(available: &Available, patterns: &[String]) -> Result<Vec<ProbeName>, Failure> {
    let mut probes: Vec<ProbeName> = Vec::new();
    for pattern in patterns {
        let found = available.match_probes(pattern);
        if found.is_empty() {
            let is_whole = pattern.contains(':') && !pattern.contains(['*', '?', '[']);
            let provider = ProbeName::parse(pattern, "").provider;
            // A command may load a library that has it, but not one with other probes of a provider it has itself.
            let is_strange = available.probes.iter().all(|probe| probe.name.provider != provider);
            if available.is_open() && is_whole && is_strange {
                probes.push(ProbeName::parse(pattern, ""));
                continue;
            }
            let names = available.probes.iter().map(|p| (p.name.provider.as_str(), p.name.name.as_str()));
            let nearest = nopal_sdt::Pattern::parse(pattern).suggest(names);
            return Err(Wrong::Span(available.no_probe(pattern, nearest)).into());
        }
        probes.extend(found.into_iter().map(|probe| probe.name.clone()));
    }
    probes.sort();
    probes.dedup();
    Ok(probes)
}

fn lines(intervals: &[CountInterval], width_ns: u64) -> Result<(), Failure> {
    let mut text = String::new();
    for (start_ns, rows) in intervals {
        let most = rows.iter().map(|(_, n)| *n).max().unwrap_or(0);
        for (group, n) in rows {
            let rate = numbers::count((*n as f64 * 1e9 / width_ns as f64).round() as u64);
            let group = group.iter().map(render::cell).collect::<Vec<_>>().join(" ");
            let share =
                if rows.len() > 1 { picture::sparkline(&[*n, most])[..].chars().next() } else { None };
            let share = share.map_or(String::new(), |c| format!("{c} "));
            let line = format!(
                "{}  {:>7}  {rate:>7}/s  {share}{group}",
                render::clock(*start_ns),
                numbers::count(*n)
            );
            let _ = writeln!(text, "{}", render::cut(&line, render::width()));
        }
    }
    if text.is_empty() { Ok(()) } else { print(&text) }
}

fn json_of(intervals: &[CountInterval], args: &Args) -> Value {
    let names: Vec<String> = ["probe".to_owned()].into_iter().chain(args.by.iter().cloned()).collect();
    let rows = intervals.iter().flat_map(|(start_ns, rows)| {
        rows.iter().map(|(group, n)| {
            let mut object: Map<String, Value> = names
                .iter()
                .zip(group)
                .map(|(name, cell)| (name.clone(), render::value(cell, args.answer.json_strings)))
                .collect();
            object.insert("ts".to_owned(), render::value(&Cell::Time(*start_ns), args.answer.json_strings));
            object.insert("count".to_owned(), Value::from(*n));
            Value::Object(object)
        })
    });
    Value::Array(rows.collect())
}
