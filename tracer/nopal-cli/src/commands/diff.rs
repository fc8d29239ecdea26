//! `nopal diff`: two recordings side by side.

use super::answers::source::Status;
use super::answers::{numbers, print, print_json, render};
use super::recordings::{Opened, interrupted, verdict_on};
use crate::failure::Failure;
use crate::verdict::{self, Manner};
use crate::{signals, words};
use nopal_answers::difference::{Change, Metric, Rule, change};
use nopal_answers::{Latency, LatencyAsk, ask, inventory, recorded};
use nopal_spans::{Available, Span, Summary};
use nopal_trace::{Range, Recording, Report, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Compares two recordings: counts, rates, quantiles with intervals, what is new and what has vanished.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal diff before.rec after.rec
  nopal diff before.rec after.rec --span postgresql:query --by query --fingerprint
  nopal diff before.rec after.rec --fail-if 'p99 > +10%' --fail-if 'errors > 0'

The interval behind a change holds 95 % of the changes that chance alone would give: where it includes 0 there may be none. A
rule with % is broken only by a change that chance does not explain. Exit codes: 0, 3 if a rule is broken, 4 if none is but
events are missing that might break one, 1 if something failed, 2 if the command line cannot be understood.")]
pub(super) struct Args {
    /// The recording before.
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// The recording after.
    #[arg(value_name = "B")]
    pub after: PathBuf,
    /// Only these spans, instead of all that the recordings have; may be given several times.
    #[arg(long = "span", value_name = "SPAN")]
    pub only: Vec<String>,
    /// Groups by fields of the spans, `pid` or `tid`.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Texts to group by are SQL: literals become `?`.
    #[arg(long)]
    pub fingerprint: bool,
    /// Ends with exit code 3 if a row meets this: `p99 > +10%`, `rate < -5%`, `errors > 0`; of count, rate, errors, mean, p50,
    /// p90, p99, p999, max. May be given several times.
    #[arg(long = "fail-if", value_name = "RULE", value_parser = |text: &str| Rule::parse(text).map_err(|e| e.to_string()))]
    pub rules: Vec<Rule>,
    /// A file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml")]
    pub spans_file: Option<PathBuf>,
    /// How many rows to print; with --json all, unless this is given.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Prints one JSON object with described columns.
    #[arg(long)]
    pub json: bool,
}

/// One of the two.
struct Side {
    groups: BTreeMap<Vec<String>, Summary>,
    duration_ns: u64,
    events: BTreeMap<String, u64>,
    report: Report,
    n_damaged: u64,
}

/// A group of both.
struct Row {
    names: Vec<String>,
    before: Option<Summary>,
    after: Option<Summary>,
}

const N_ROWS: usize = 40;
const BROKEN: u8 = 3;
/// No rule is broken, but what is missing could break one.
const UNPROVEN: u8 = 4;
/// What is printed of each group, beside its count.
const SHOWN: [Metric; 5] = [Metric::Rate, Metric::Mean, Metric::P50, Metric::P90, Metric::P99];

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let opened = Opened::open(&[args.before.clone(), args.after.clone()], args.spans_file.as_deref())?;
    let spans = match args.only.is_empty() {
        true => opened.available.spans.clone(),
        false => ask::spans_one_by_one(&opened.available, &args.only)?,
    };
    signals::stop_on_signals();
    let mut sides = Vec::new();
    for (dir, recording) in &opened.all {
        sides.push(side(&args, dir, recording, &spans, &opened.available)?);
    }
    let [before, after] = &sides[..] else { return Err(Failure::usage("two recordings are compared")) };
    let rows = rows_of(before, after);
    let broken = broken_rules(&args, &rows, before, after);
    let verdict = verdict_on([&before.report, &after.report].into_iter(), before.n_damaged + after.n_damaged);
    match args.json {
        true => print_json(&format!("{}\n", object(&args, &rows, before, after, &broken, &verdict)))?,
        false => {
            print(&text(&args, &rows, before, after))?;
            broken.iter().for_each(|line| tell!("broken: {line}"));
            tell!(
                "{}; {}",
                words::counted(rows.len() as u64, "group"),
                verdict::text(&verdict, Manner::SESSION)
            );
        }
    }
    let (code, what, hint, exit) = if !broken.is_empty() {
        let what = format!("{} broken", words::counted(broken.len() as u64, "rule"));
        ("rule-broken", what, "`nopal latency` and `nopal query` show more of a recording", BROKEN)
    } else if !args.rules.is_empty() && !verdict.is_complete() {
        let what = "no rule is broken by what is there, but events are missing".to_owned();
        ("unproven", what, "`nopal view --count` says of each recording what is missing", UNPROVEN)
    } else {
        return Ok(());
    };
    let mut failure = Failure::new(code, what).hint(hint);
    failure.exit = exit;
    Err(failure)
}

fn side(
    args: &Args,
    dir: &Path,
    recording: &Recording,
    spans: &[Span],
    available: &Available,
) -> Result<Side, Failure> {
    // Spans that only the other recording has have no probes here.
    let probes = inventory::of_recording(recording);
    let is_here =
        |span: &&Span| span.begins().iter().any(|name| probes.iter().any(|probe| probe.name == *name));
    let here: Vec<Span> = spans.iter().filter(is_here).cloned().collect();
    let wanted =
        LatencyAsk { by: args.by.clone(), has_fingerprints: args.fingerprint, ..LatencyAsk::default() };
    let mut latency = Latency::new(here, &wanted, available)?;
    let mut status = Status::new();
    let read = recorded::read(recording, &mut latency, |_, _, n_events| {
        status.show(|| format!("{}: {} events", dir.display(), numbers::count(n_events)));
        !signals::is_stopped()
    });
    status.clear();
    let read = read.map_err(|error| super::recording_failure(&error, dir))?;
    if signals::is_stopped() {
        return Err(interrupted("nothing was compared"));
    }
    let groups = latency
        .groups()
        .map(|(values, summary)| (values.iter().map(render::cell).collect::<Vec<_>>(), summary.clone()));
    let groups = groups.collect();
    let never = AtomicBool::new(false);
    let counts = recording.count(Range::default(), |_| true, &never);
    let counts = counts.map_err(|error| super::recording_failure(&error, dir))?;
    let mut events: BTreeMap<String, u64> = BTreeMap::new();
    for (class, n) in recording.event_classes().iter().zip(&counts.by_class).filter(|(_, n)| **n > 0) {
        *events.entry(class.ty.full_name()).or_default() += n;
    }
    let duration_ns = read.range.map_or(0, |(first, last)| last.saturating_sub(first).max(0) as u64);
    Ok(Side { groups, duration_ns, events, report: counts.report, n_damaged: read.n_damaged })
}

/// All groups of both, those that took most time first.
fn rows_of(before: &Side, after: &Side) -> Vec<Row> {
    let mut names: Vec<&Vec<String>> = before.groups.keys().chain(after.groups.keys()).collect();
    names.sort();
    names.dedup();
    let of = |side: &Side, names: &Vec<String>| side.groups.get(names).cloned();
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|names| Row { names: names.clone(), before: of(before, names), after: of(after, names) })
        .collect();
    let total = |row: &Row| {
        let of = |side: &Option<Summary>| side.as_ref().map_or(0, |summary| summary.total_ns);
        of(&row.before).saturating_add(of(&row.after))
    };
    rows.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| a.names.cmp(&b.names)));
    rows
}

fn change_of(row: &Row, metric: Metric, before: &Side, after: &Side) -> Change {
    let none = Summary::default();
    change(
        metric,
        (row.before.as_ref().unwrap_or(&none), before.duration_ns),
        (row.after.as_ref().unwrap_or(&none), after.duration_ns),
    )
}

fn broken_rules(args: &Args, rows: &[Row], before: &Side, after: &Side) -> Vec<String> {
    let mut broken = Vec::new();
    for row in rows {
        for rule in &args.rules {
            let change = change_of(row, rule.metric, before, after);
            if rule.is_broken(&change) {
                let name = rule.metric.name();
                broken.push(format!("{}: {name} {}", row.names.join(" "), in_words(rule.metric, &change)));
            }
        }
    }
    broken
}

fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Count | Metric::Errors => numbers::count(value as u64),
        Metric::Rate => format!("{value:.1}/s"),
        Metric::Mean | Metric::P50 | Metric::P90 | Metric::P99 | Metric::P999 | Metric::Max => {
            numbers::duration(value as u64)
        }
    }
}

/// `1.20ms -> 1.50ms, +25.0 % (+18 to +31)`
fn in_words(metric: Metric, change: &Change) -> String {
    let mut text = format!("{} -> {}", value(metric, change.before), value(metric, change.after));
    // No `-0.0 %`.
    let percent = |share: f64| if share.abs() < 0.0005 { 0.0 } else { share * 100.0 };
    if let Some(share) = change.share {
        let _ = write!(text, ", {:+.1} %", percent(share));
    }
    if let Some((low, high)) = change.interval {
        let _ = write!(text, " ({:+.1} to {:+.1})", percent(low), percent(high));
    }
    text
}

fn text(args: &Args, rows: &[Row], before: &Side, after: &Side) -> String {
    let mut text = String::new();
    for row in rows.iter().take(args.limit.unwrap_or(N_ROWS)) {
        let name = render::heading(&row.names.join("  "));
        let count = change_of(row, Metric::Count, before, after);
        let state = match (&row.before, &row.after) {
            (None, _) => "  new",
            (_, None) => "  vanished",
            _ => "",
        };
        let _ = writeln!(text, "{name}{state}\n  count  {}", in_words(Metric::Count, &count));
        if row.before.is_some() && row.after.is_some() {
            for metric in SHOWN {
                let change = change_of(row, metric, before, after);
                let mark = if change.interval.is_some() && change.is_sure() { "  *" } else { "" };
                let _ = writeln!(text, "  {:<5}  {}{mark}", metric.name(), in_words(metric, &change));
            }
        }
    }
    if rows.len() > args.limit.unwrap_or(N_ROWS) {
        let _ = writeln!(text, "and {} more; --limit shows them", rows.len() - args.limit.unwrap_or(N_ROWS));
    }
    let names: std::collections::BTreeSet<&String> =
        before.events.keys().chain(after.events.keys()).collect();
    for name in names {
        let n = |side: &Side| side.events.get(name).copied().unwrap_or(0);
        let word = match (n(before), n(after)) {
            (0, n) => format!("new: {n}"),
            (n, 0) => format!("vanished: {n}"),
            _ => continue,
        };
        let _ = writeln!(text, "event {name} {word}");
    }
    text
}

fn object(
    args: &Args,
    rows: &[Row],
    before: &Side,
    after: &Side,
    broken: &[String],
    verdict: &Verdict,
) -> Value {
    let mut columns = vec![json!({ "name": "span", "unit": "", "class": "text" })];
    columns.extend(args.by.iter().map(|name| json!({ "name": name, "unit": "", "class": "key" })));
    columns
        .extend(Metric::ALL.iter().map(|(name, _)| json!({ "name": name, "unit": "", "class": "change" })));
    let row = |row: &Row| {
        let mut object = serde_json::Map::new();
        let names = std::iter::once("span").chain(args.by.iter().map(String::as_str));
        for (name, value) in names.zip(&row.names) {
            object.insert(name.to_owned(), Value::from(value.as_str()));
        }
        for (name, metric) in Metric::ALL {
            let change = change_of(row, metric, before, after);
            let share = change.share.map(|share| share * 100.0);
            let interval = change.interval.map(|(low, high)| [low * 100.0, high * 100.0]);
            object.insert(
                name.to_owned(),
                json!({ "before": change.before, "after": change.after, "percent": share, "interval": interval }),
            );
        }
        object.insert("new".to_owned(), Value::from(row.before.is_none()));
        object.insert("vanished".to_owned(), Value::from(row.after.is_none()));
        Value::Object(object)
    };
    let rows: Vec<Value> = rows.iter().take(args.limit.unwrap_or(usize::MAX)).map(row).collect();
    json!({
        "complete": verdict.is_complete(),
        "verdict": verdict::text(verdict, Manner::SESSION),
        "lost": verdict.n_all_lost(),
        "columns": columns,
        "rows": rows,
        "events": { "before": before.events, "after": after.events },
        "duration_ns": { "before": before.duration_ns, "after": after.duration_ns },
        "broken": broken,
    })
}
