//! The page: what was gathered as JSON, within the HTML that draws it.

use crate::cells::SeriesData;
use crate::gather::{Key, Side};
use nopal_spans::{Span, Summary};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

const HTML: &str = include_str!("../assets/page.html");
const STYLES: [&str; 2] = [include_str!("../assets/uPlot.min.css"), include_str!("../assets/page.css")];
const SCRIPTS: [&str; 8] = [
    include_str!("../assets/uPlot.iife.min.js"),
    include_str!("../assets/data.js"),
    include_str!("../assets/time_chart.js"),
    include_str!("../assets/histogram.js"),
    include_str!("../assets/timeline.js"),
    include_str!("../assets/table.js"),
    include_str!("../assets/words.js"),
    include_str!("../assets/main.js"),
];
const LICENCE: &str = include_str!("../assets/uPlot.LICENSE");

/// Rows of values of fields, those that took longest together.
const MAX_KEY_ROWS: usize = 200;
/// Threads of the timeline, the busiest.
const MAX_THREAD_ROWS: usize = 200;

/// What a report is about.
#[derive(Debug)]
pub struct Page<'a> {
    pub title: String,
    /// The recordings in the order in which they were named.
    pub sides: Vec<Named<'a>>,
    pub spans: &'a [Span],
}

/// A recording with what it is called and what the verdict on it says.
#[derive(Debug)]
pub struct Named<'a> {
    pub name: String,
    pub side: &'a Side,
    pub verdict: String,
    pub is_complete: bool,
    /// When it began, as people write it.
    pub began: String,
}

/// Writes the page.
pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let data = data(page).to_string();
    let mut rest = HTML;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else { break };
        out.write_all(before.as_bytes())?;
        match name {
            "title" => out.write_all(html(&page.title).as_bytes())?,
            "styles" => STYLES.iter().try_for_each(|style| out.write_all(style.as_bytes()))?,
            "licence" => out.write_all(LICENCE.as_bytes())?,
            "scripts" => SCRIPTS.iter().try_for_each(|script| writeln!(out, "{script}"))?,
            // Nothing in it may end the element it is in.
            _ => out.write_all(data.replace('<', "\\u003c").as_bytes())?,
        }
        rest = behind;
    }
    out.write_all(rest.as_bytes())
}

/// Text as HTML.
fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn data(page: &Page<'_>) -> Value {
    // Kinds that nobody has seen are left out.
    let is_there = |at: &usize| page.sides.iter().any(|named| named.side.kinds[*at].all.count() > 0);
    let kinds: Vec<usize> = (0..page.spans.len()).filter(is_there).collect();
    let number_of: BTreeMap<u32, usize> =
        kinds.iter().enumerate().map(|(at, kind)| (*kind as u32, at)).collect();
    let about = |at: &usize| json!({ "name": page.spans[*at].full_name(), "doc": page.spans[*at].doc });
    json!({
        "version": 1,
        "title": page.title,
        "kinds": kinds.iter().map(about).collect::<Vec<_>>(),
        "sides": page.sides.iter().map(|named| side(named, &kinds, &number_of)).collect::<Vec<_>>(),
    })
}

fn side(named: &Named<'_>, kinds: &[usize], number_of: &BTreeMap<u32, usize>) -> Value {
    let side = named.side;
    let since = |ns: i64| ns.saturating_sub(side.ruler.base_ns);
    let n_cells = side.ruler.cell(side.last_ns) as usize + 1;
    let report = &side.report;
    let losses: Vec<Value> = report
        .losses
        .iter()
        .map(|loss| {
            json!({ "from": since(loss.from_ns), "to": since(loss.to_ns), "count": loss.count,
                    "packets": loss.is_packets, "cpu": loss.cpu })
        })
        .collect();
    let gaps: Vec<Value> =
        report.verdict.gaps.iter().map(|(ns, text)| json!({ "at": since(*ns), "text": text })).collect();
    json!({
        "name": named.name,
        "hosts": side.hosts,
        "began": named.began,
        // Too large for a number of JavaScript.
        "base": side.ruler.base_ns.to_string(),
        "width": side.ruler.width_ns,
        "cells": n_cells,
        "duration": since(side.last_ns),
        "n_events": side.n_events,
        "unmatched": side.unmatched.sum(),
        "verdict": named.verdict,
        "complete": named.is_complete,
        "losses": losses,
        "n_losses": report.n_losses,
        "lost": report.verdict.n_all_lost(),
        "gaps": gaps,
        "n_gaps": report.verdict.n_gaps,
        "events": events(side, n_cells),
        "kinds": kinds.iter().map(|at| spans(&side.kinds[*at].all, SeriesData::from(&side.kinds[*at].series))).collect::<Vec<_>>(),
        "keys": keys(side, number_of),
        "points": points(side, number_of),
        "slowest": slowest(side, number_of),
        "timeline": timeline(side, number_of),
    })
}

/// Events by type; types of one name are one.
fn events(side: &Side, n_cells: usize) -> Value {
    let mut by_name: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for events in &side.events {
        let cells = by_name.entry(&events.name).or_insert_with(|| vec![0; n_cells]);
        cells.iter_mut().zip(&events.cells).for_each(|(sum, n)| *sum += n);
    }
    by_name
        .into_iter()
        .filter(|(_, cells)| cells.iter().any(|n| *n > 0))
        .map(|(name, cells)| json!({ "name": name, "cells": cells }))
        .collect()
}

#[derive(Serialize)]
struct Sums {
    count: u64,
    errors: u64,
    total: u64,
    #[serde(rename = "self")]
    self_time: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// The exact numbers of all, and those of each cell.
fn spans(all: &Summary, series: SeriesData) -> Value {
    let quantile = |share| all.durations.quantile(share);
    let sums = Sums {
        count: all.count(),
        errors: all.errors,
        total: all.total_ns,
        self_time: all.self_ns,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: all.durations.max(),
    };
    json!({ "all": sums, "series": series })
}

fn keys(side: &Side, number_of: &BTreeMap<u32, usize>) -> Value {
    let mut keys: Vec<&Key> = side.keys.iter().collect();
    keys.sort_by_key(|key| std::cmp::Reverse(key.all.total_ns));
    let n_left_out = keys.len().saturating_sub(MAX_KEY_ROWS);
    let rows: Vec<Value> = keys
        .iter()
        .take(MAX_KEY_ROWS)
        .map(|key| {
            let mut row = spans(&key.all, SeriesData::from(&key.series));
            row["kind"] = json!(number_of.get(&key.kind));
            row["key"] = json!(key.text);
            row
        })
        .collect();
    json!({ "rows": rows, "left_out": n_left_out })
}

/// Columns of numbers take less room than rows.
fn points(side: &Side, number_of: &BTreeMap<u32, usize>) -> Value {
    let points: Vec<_> =
        side.samples.picked().chain(side.samples.slowest().map(|slow| &slow.point)).collect();
    json!({
        "end": points.iter().map(|point| point.end_ns - side.ruler.base_ns).collect::<Vec<_>>(),
        "dur": points.iter().map(|point| point.duration_ns).collect::<Vec<_>>(),
        "kind": points.iter().map(|point| number_of.get(&point.kind)).collect::<Vec<_>>(),
        "error": points.iter().map(|point| u8::from(point.is_error)).collect::<Vec<_>>(),
    })
}

fn thread_name(side: &Side, thread: u32) -> String {
    let Some(thread) = side.threads.get(thread as usize) else { return String::new() };
    let task = thread.task;
    match side.hosts.len() {
        0 | 1 => format!("{}/{}", task.pid, task.tid),
        _ => format!("{} {}/{}", side.hosts[thread.host as usize], task.pid, task.tid),
    }
}

fn slowest(side: &Side, number_of: &BTreeMap<u32, usize>) -> Value {
    let row = |slow: &crate::sample::Slow| {
        let point = &slow.point;
        json!({
            "end": point.end_ns - side.ruler.base_ns,
            "dur": point.duration_ns,
            "self": slow.self_ns,
            "kind": number_of.get(&point.kind),
            "thread": thread_name(side, point.thread),
            "error": point.is_error,
            "key": slow.key,
            "fields": slow.fields,
        })
    };
    side.samples.slowest().map(row).collect()
}

fn timeline(side: &Side, number_of: &BTreeMap<u32, usize>) -> Value {
    let mut order: Vec<u32> = (0..side.threads.len() as u32).collect();
    order.sort_by_key(|thread| std::cmp::Reverse(side.threads[*thread as usize].busy_ns));
    let n_left_out = order.len().saturating_sub(MAX_THREAD_ROWS);
    order.truncate(MAX_THREAD_ROWS);
    // Those of one process stand together.
    order.sort_by_key(|thread| {
        let thread = &side.threads[*thread as usize];
        (thread.host, thread.task.pid, thread.task.tid)
    });
    let rows: BTreeMap<u32, usize> = order.iter().enumerate().map(|(row, thread)| (*thread, row)).collect();
    let mut bars: Vec<_> = side.bars.all.iter().filter(|bar| rows.contains_key(&bar.thread)).collect();
    bars.sort_by_key(|bar| (bar.start_ns, std::cmp::Reverse(bar.duration_ns), bar.depth));
    // Only the texts that a bar has.
    let mut texts: Vec<&str> = Vec::new();
    let mut number_of_text: BTreeMap<u32, usize> = BTreeMap::new();
    for key in bars.iter().filter_map(|bar| bar.key) {
        number_of_text.entry(key).or_insert_with(|| {
            texts.push(&side.keys[key as usize].text);
            texts.len() - 1
        });
    }
    let left_out: Vec<Value> = side
        .bars
        .left_out
        .iter()
        .filter_map(|((thread, cell), n)| Some(json!([rows.get(thread)?, cell, n])))
        .collect();
    json!({
        "threads": order.iter().map(|thread| thread_name(side, *thread)).collect::<Vec<_>>(),
        "threads_left_out": n_left_out,
        "start": bars.iter().map(|bar| bar.start_ns - side.ruler.base_ns).collect::<Vec<_>>(),
        "dur": bars.iter().map(|bar| bar.duration_ns).collect::<Vec<_>>(),
        "kind": bars.iter().map(|bar| number_of.get(&bar.kind)).collect::<Vec<_>>(),
        "thread": bars.iter().map(|bar| rows.get(&bar.thread)).collect::<Vec<_>>(),
        "depth": bars.iter().map(|bar| bar.depth).collect::<Vec<_>>(),
        "error": bars.iter().map(|bar| u8::from(bar.is_error)).collect::<Vec<_>>(),
        "key": bars.iter().map(|bar| bar.key.and_then(|key| number_of_text.get(&key))).collect::<Vec<_>>(),
        "texts": texts,
        "left_out": left_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_all_its_places_are_filled() {
        let page = Page { title: "<a & b>".to_owned(), sides: Vec::new(), spans: &[] };
        let mut out = Vec::new();
        write(&page, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>&lt;a &amp; b&gt;") && text.contains("\\u003ca & b>"), "{text}");
        assert!(!text.contains("{{") && text.contains("The MIT License"));
        let code = text.replace("http://www.w3.org", "");
        assert!(!code.contains("src=") && !code.contains("<link") && !code.contains("fetch("));
    }
}
