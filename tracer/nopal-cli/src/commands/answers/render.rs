//! Answers as text and as JSON.

use super::source::Gathered;
use super::{AnswerArgs, numbers, print_json};
use crate::failure::Failure;
use crate::verdict;
use crate::words::counted;
use clap::builder::styling::Style;
use nopal_answers::{Answer, Cell, Column, Slow};
use nopal_spans::Unmatched;
use nopal_trace::localtime::{ClockText, text_of};
use serde_json::{Map, Value, json};
use std::fmt::Write;

const BOLD: Style = Style::new().bold();

/// Columns of the screen; without a limit where it is not a terminal.
pub(crate) fn width() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills a structure of its own layout, which lives until the call returns.
    let is_known = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) } == 0;
    if is_known && size.ws_col > 0 { usize::from(size.ws_col) } else { usize::MAX }
}

/// The width of pictures.
pub(crate) fn picture_width() -> usize {
    width().min(100).min(if width() == usize::MAX { 80 } else { usize::MAX })
}

/// Whether standard output is a terminal with colours, and nobody said NO_COLOR.
pub(crate) fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

pub(crate) fn heading(text: &str) -> String {
    match is_coloured() {
        true => format!("{BOLD}{text}{BOLD:#}"),
        false => text.to_owned(),
    }
}

/// A value for people.
pub(crate) fn cell(cell: &Cell) -> String {
    match cell {
        Cell::None => "-".to_owned(),
        Cell::Text(text) => printable(text),
        Cell::Count(n) => numbers::count(*n),
        Cell::Integer(n) => n.to_string(),
        Cell::Float(n) => n.to_string(),
        Cell::Duration(ns) => numbers::duration(*ns),
        Cell::Time(ns) => clock(*ns),
    }
}

/// `15:30:19.334467`
pub(crate) fn clock(ns: i64) -> String {
    let text = text_of(ns, ClockText::Time, false);
    text.get(..text.len().saturating_sub(3)).unwrap_or(&text).to_owned()
}

/// One line without anything that would move the cursor.
pub(crate) fn printable(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most so many characters.
pub(crate) fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(2)).collect();
    format!("{}..", kept.trim_end())
}

/// How a column is called above a table.
fn title(column: &Column) -> String {
    match column.name.as_str() {
        "p999_ns" => "p99.9".to_owned(),
        name => name.strip_suffix("_ns").unwrap_or(name).to_owned(),
    }
}

/// A table: numbers to the left, right-aligned; what tells the rows apart behind them, as far as there is room.
pub(crate) fn table(columns: &[Column], rows: &[Vec<Cell>], is_shown: impl Fn(&Column) -> bool) -> String {
    let is_key = |column: &Column| matches!(column.class, "text" | "key");
    let numbers: Vec<usize> =
        (0..columns.len()).filter(|at| !is_key(&columns[*at]) && is_shown(&columns[*at])).collect();
    let keys: Vec<usize> =
        (0..columns.len()).filter(|at| is_key(&columns[*at]) && is_shown(&columns[*at])).collect();
    let mut lines: Vec<(Vec<String>, Vec<String>)> = vec![(
        numbers.iter().map(|at| title(&columns[*at])).collect(),
        keys.iter().map(|at| title(&columns[*at])).collect(),
    )];
    lines.extend(rows.iter().map(|row| {
        let texts = |places: &[usize]| places.iter().map(|at| cell(&row[*at])).collect();
        (texts(&numbers), texts(&keys))
    }));
    type Line = (Vec<String>, Vec<String>);
    let widest = |at: usize, of: fn(&Line) -> &Vec<String>| {
        lines.iter().map(|line| of(line)[at].chars().count()).max().unwrap_or(0)
    };
    let number_widths: Vec<usize> = (0..numbers.len()).map(|at| widest(at, |line| &line.0)).collect();
    let mut key_widths: Vec<usize> = (0..keys.len()).map(|at| widest(at, |line| &line.1)).collect();
    let used: usize = number_widths.iter().map(|width| width + 2).sum();
    fit(&mut key_widths, width().saturating_sub(used + 2 * keys.len()));
    let mut text = String::new();
    for (at, (number_texts, key_texts)) in lines.iter().enumerate() {
        let mut line = String::new();
        for (text, width) in number_texts.iter().zip(&number_widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{text:>width$}  ");
        }
        for (text, width) in key_texts.iter().zip(&key_widths) {
            let _ = write!(line, "{:<width$}  ", cut(text, *width));
        }
        let line = line.trim_end();
        text.push_str(&if at == 0 { heading(line) } else { line.to_owned() });
        text.push('\n');
    }
    text
}

/// Makes columns narrower until they fit, the widest first.
fn fit(widths: &mut [usize], room: usize) {
    const LEAST: usize = 8;
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > LEAST) else { return };
        *widest -= 1;
    }
}

/// The slowest, a line each, under a heading.
pub(crate) fn slowest(slowest: &[Slow]) -> String {
    let mut text = format!("{}\n", heading("slowest"));
    for line in slow_lines(slowest, width()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The slowest, a line each.
pub(crate) fn slow_lines(slowest: &[Slow], width: usize) -> Vec<String> {
    let names: std::collections::HashSet<&str> = slowest.iter().map(|slow| slow.span.as_str()).collect();
    slowest.iter().map(|slow| cut(&slow_line(slow, names.len() > 1), width)).collect()
}

fn slow_line(slow: &Slow, has_name: bool) -> String {
    let mut line = format!(
        "  {}  {:>7}  {}",
        clock(slow.start_ns),
        numbers::duration(slow.duration_ns),
        if slow.task.pid == slow.task.tid {
            format!("pid {}", slow.task.pid)
        } else {
            format!("pid {} tid {}", slow.task.pid, slow.task.tid)
        }
    );
    if has_name {
        let _ = write!(line, "  {}", slow.span);
    }
    if slow.is_error {
        line.push_str("  failed");
    }
    for (name, value) in &slow.fields {
        let value = cell(value);
        let quoted = if value.contains(' ') || value.is_empty() { format!("\"{value}\"") } else { value };
        let _ = write!(line, "  {name}={quoted}");
    }
    line
}

/// What has no partner, in words.
pub(crate) fn unmatched(unmatched: &Unmatched) -> Option<String> {
    if unmatched.sum() == 0 {
        return None;
    }
    let mut parts = Vec::new();
    for (n, what) in [
        (unmatched.n_ends, "ended without a begin"),
        (unmatched.n_open, "had not ended yet"),
        (unmatched.n_begins, "never ended"),
        (unmatched.n_by_loss, "dropped because events were lost"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    Some(format!("{} unmatched: {}", unmatched.sum(), parts.join(", ")))
}

/// The same for programs.
pub(crate) fn unmatched_json(unmatched: &Unmatched) -> [(String, Value); 2] {
    let Unmatched { n_ends, n_begins, n_by_loss, n_open } = *unmatched;
    let why =
        json!({ "begun_before": n_ends, "not_ended": n_open, "never_ended": n_begins, "by_loss": n_by_loss });
    [("unmatched".to_owned(), unmatched.sum().into()), ("unmatched_why".to_owned(), why)]
}

/// The last lines on standard error: what the reader should know, and whether anything is missing.
pub(crate) fn conclude(gathered: &Gathered, answer: &Answer, n: u64, what: &str) {
    for note in answer.notes.iter().chain(&gathered.notes) {
        tell!("nopal: {note}");
    }
    if !gathered.left_out.is_empty() {
        tell!("nopal: not measured, as these are asked for by name only: {}", gathered.left_out.join(", "));
    }
    let mut parts = vec![counted(n, what)];
    parts.extend(unmatched(&answer.unmatched));
    tell!("{}; {}", parts.join("; "), verdict::text(&gathered.verdict, gathered.manner()));
}

/// The answer as one object.
pub(crate) fn json(
    gathered: &Gathered,
    answer: &Answer,
    args: &AnswerArgs,
    more: Map<String, Value>,
) -> Result<(), Failure> {
    let has_strings = args.json_strings;
    let columns: Vec<Value> = answer
        .columns
        .iter()
        .map(|column| json!({ "name": column.name, "unit": column.unit, "class": column.class }))
        .collect();
    let rows: Vec<Value> = answer
        .rows
        .iter()
        .map(|row| {
            let cells = answer.columns.iter().zip(row);
            Value::Object(
                cells.map(|(column, cell)| (column.name.clone(), value(cell, has_strings))).collect(),
            )
        })
        .collect();
    let slowest: Vec<Value> = answer.slowest.iter().map(|slow| slow_json(slow, has_strings)).collect();
    let notes: Vec<&String> = answer.notes.iter().chain(&gathered.notes).collect();
    let mut object = json!({
        "verdict": verdict::text(&gathered.verdict, gathered.manner()),
        "events": gathered.n_events,
        "duration_ns": gathered.duration_ns,
        "columns": columns,
        "rows": rows,
        "slowest": slowest,
        "notes": notes,
        "asked_for_by_name_only": gathered.left_out,
    });
    match &gathered.keeping {
        Some(Ok(())) => object["kept_at_source"] = true.into(),
        Some(Err(why)) => {
            object["kept_at_source"] = false.into();
            object["streamed_because"] = why.as_str().into();
        }
        None => {}
    }
    if let Value::Object(object) = &mut object {
        object.extend(unmatched_json(&answer.unmatched));
        object.extend(verdict::json(&gathered.verdict));
        object.extend(more);
    }
    print_json(&format!("{object}\n"))
}

fn slow_json(slow: &Slow, has_strings: bool) -> Value {
    let fields = slow.fields.iter().map(|(name, cell)| (name.clone(), value(cell, has_strings)));
    json!({
        "span": slow.span,
        "ts": value(&Cell::Time(slow.start_ns), has_strings),
        "duration_ns": slow.duration_ns,
        "self_ns": slow.self_ns,
        "pid": slow.task.pid,
        "tid": slow.task.tid,
        "error": slow.is_error,
        "args": Value::Object(fields.collect()),
    })
}

pub(crate) fn value(cell: &Cell, has_strings: bool) -> Value {
    const MAX_EXACT: u128 = 1 << 53;
    let integer =
        |n: i128| match (has_strings && n.unsigned_abs() > MAX_EXACT, i64::try_from(n), u64::try_from(n)) {
            (true, ..) => Value::from(n.to_string()),
            (false, Ok(n), _) => Value::from(n),
            (false, _, Ok(n)) => Value::from(n),
            (false, Err(_), Err(_)) => Value::from(n.to_string()),
        };
    match cell {
        Cell::None => Value::Null,
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Count(n) | Cell::Duration(n) => integer((*n).into()),
        Cell::Integer(n) => integer(*n),
        Cell::Float(n) => Value::from(*n),
        Cell::Time(ns) => integer((*ns).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_numbers_first_and_keys_behind() {
        let columns = [Column::text("span"), Column::count("count"), Column::duration("p999_ns")];
        let rows = vec![vec![Cell::Text("a:b".into()), Cell::Count(12), Cell::Duration(1_500)]];
        assert_eq!(table(&columns, &rows, |_| true), "count   p99.9  span\n   12  1.50us  a:b\n");
        assert_eq!(table(&columns, &rows, |column| column.name != "span"), "count   p99.9\n   12  1.50us\n");
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcd..");
        assert_eq!(printable("a\x1b[31m\n  b"), "a [31m b");
        let mut widths = [30, 10, 4];
        fit(&mut widths, 30);
        assert_eq!(widths, [16, 10, 4]);
        fit(&mut widths, 0);
        assert_eq!(widths, [8, 8, 4]);
    }

    #[test]
    fn what_has_no_partner_is_said() {
        assert_eq!(unmatched(&Unmatched::default()), None);
        let some = Unmatched { n_ends: 2, n_open: 1, ..Unmatched::default() };
        assert_eq!(
            unmatched(&some).as_deref(),
            Some("3 unmatched: 2 ended without a begin, 1 had not ended yet")
        );
    }

    #[test]
    fn large_numbers_are_strings_if_asked_for() {
        assert_eq!(value(&Cell::Integer(1 << 60), true), Value::from((1i64 << 60).to_string()));
        assert_eq!(value(&Cell::Integer(1 << 60), false), Value::from(1i64 << 60));
        assert_eq!(value(&Cell::Integer(u64::MAX.into()), false), Value::from(u64::MAX));
    }
}
