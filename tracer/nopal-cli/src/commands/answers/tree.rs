//! `nopal tree`: a request as a tree of the spans within it.

use super::functions::FunctionArgs;
use super::source::{Source, probes_of};
use super::{AnswerArgs, numbers, print, render};
use crate::failure::Failure;
use nopal_answers::{TreeRow, Trees, ask};
use nopal_spans::Span;
use serde_json::{Map, Value};
use std::fmt::Write;

/// Shows what lies within a span: one request as an indented tree, or all of them merged.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal tree transaction -p 1234 --duration 10s          the slowest transaction of that PostgreSQL
  nopal tree query --pick median --recording pg.rec
  nopal tree php:request --pick all -n php-fpm8.2        where all requests together spend their time
  nopal tree transaction query lock_wait -p 1234         only these spans within
  nopal tree app:handle --functions 'app:*' -p 1234      a function, and those it calls

Without further spans, all spans of the same provider that pair by thread are looked for within.")]
pub(crate) struct Args {
    /// The span that is the root, and those looked for within it.
    #[arg(value_name = "SPAN", required_unless_present = "functions")]
    pub spans: Vec<String>,
    #[command(flatten)]
    pub functions: FunctionArgs,
    /// Which tree: of the slowest, of one of median duration, or of all together.
    #[arg(long, value_enum, default_value_t = Pick::Slowest)]
    pub pick: Pick,
    /// How deep the tree is shown.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub depth: usize,
    /// How many lines to print.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub limit: usize,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pick {
    Slowest,
    Median,
    All,
}

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    args.spans = args.functions.words(&args.spans);
    let source = Source::find_with(&mut args.answer, &args.spans)?;
    let roots = ask::spans(&source.available, &args.spans[..1], &[])?;
    let parts: Vec<Span> = match args.spans.len() {
        1 => {
            let is_kin = |span: &&Span| roots.iter().any(|root| root.provider == span.provider);
            source.available.all().filter(is_kin).cloned().collect()
        }
        _ => ask::spans_one_by_one(&source.available, &args.spans[1..])?,
    };
    let roots_of: Vec<String> = roots.iter().map(|root| root.provider.clone()).collect();
    let all: Vec<Span> = roots.iter().chain(&parts).cloned().collect();
    let mut trees = Trees::new(roots, parts, args.pick == Pick::All, &source.available)?;
    let mut gathered = source.gather(&args.answer, &probes_of(&all), &mut trees, |_, _| Ok(()))?;
    let meant = match args.spans.len() {
        1 => roots_of.iter().map(|provider| format!("{provider}:*")).collect(),
        _ => args.spans.clone(),
    };
    gathered.left_out = source.available.left_out(&meant, &all);
    let mut rows = match args.pick {
        Pick::Slowest => trees.slowest(),
        Pick::Median => trees.median(),
        Pick::All => trees.merged(),
    };
    rows.retain(|row| row.depth <= args.depth);
    let answer = trees.answer(&rows);
    if args.answer.json {
        let mut more = Map::new();
        more.insert("trees".to_owned(), Value::from(trees.n_trees()));
        render::json(&gathered, &answer, &args.answer, more)?;
    } else {
        if !rows.is_empty() {
            print(&text(&rows, &args))?;
        }
        render::conclude(&gathered, &answer, trees.n_trees(), "tree");
    }
    gathered.finish()
}

fn text(rows: &[TreeRow], args: &Args) -> String {
    let is_merged = args.pick == Pick::All;
    let mut text = String::new();
    let head = match is_merged {
        true => format!("{:>8} {:>8} {:>5} {:>7}  span", "total", "self", "%", "count"),
        false => format!("{:>8} {:>8} {:>5} {:>8}  span", "total", "self", "%", "at"),
    };
    let _ = writeln!(text, "{}", render::heading(&head));
    let whole = rows.first().map_or(1, |row| row.total_ns.max(1)) as f64;
    for row in rows.iter().take(args.limit) {
        let share = row.total_ns as f64 / whole * 100.0;
        let place = match row.offset_ns {
            Some(offset_ns) => format!("{:>8}", numbers::duration(offset_ns)),
            None => format!("{:>7}", numbers::count(row.count)),
        };
        let value =
            if row.value.is_empty() { String::new() } else { format!("  {}", render::printable(&row.value)) };
        let failed = if row.errors > 0 && is_merged {
            format!("  {} failed", row.errors)
        } else if row.errors > 0 {
            "  failed".to_owned()
        } else {
            String::new()
        };
        let line = format!(
            "{:>8} {:>8} {share:>5.1} {place}  {}{}{value}{failed}",
            numbers::duration(row.total_ns),
            numbers::duration(row.self_ns),
            "  ".repeat(row.depth),
            row.span
        );
        let _ = writeln!(text, "{}", render::cut(&line, render::width()));
    }
    if rows.len() > args.limit {
        let _ = writeln!(text, "and {} more; --limit shows them", rows.len() - args.limit);
    }
    text
}
