//! Pictures made of characters: bars and sparklines. Plain ones where the terminal's locale has no others.

use super::numbers;
use nopal_spans::Histogram;
use std::fmt::Write;

/// Whether block characters can be shown.
pub(super) fn has_blocks() -> bool {
    let of = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = of("LC_ALL").or_else(|| of("LC_CTYPE")).or_else(|| of("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// One line of a histogram: what it is called, and how many there are.
pub(super) struct Bar {
    pub label: String,
    pub count: u64,
}

/// Lines with bars, the longest as wide as there is room.
pub(super) fn bars(lines: &[Bar], width: usize) -> String {
    bars_of(lines, width, has_blocks())
}

/// The same, of block characters or of plain ones.
pub(super) fn bars_of(lines: &[Bar], width: usize, blocks: bool) -> String {
    let most = lines.iter().map(|line| line.count).max().unwrap_or(0).max(1);
    let label_width = lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
    let counts: Vec<String> = lines.iter().map(|line| numbers::count(line.count)).collect();
    let count_width = counts.iter().map(String::len).max().unwrap_or(0);
    let room = width.saturating_sub(label_width + count_width + 6).clamp(10, 60);
    let mut text = String::new();
    for (line, count) in lines.iter().zip(&counts) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {:>label_width$} {count:>count_width$} {}",
            line.label,
            bar(line.count, most, room, blocks)
        );
    }
    text
}

fn bar(count: u64, most: u64, room: usize, blocks: bool) -> String {
    const EIGHTHS: [&str; 8] =
        ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
    let eighths = (count as f64 / most as f64 * (room * 8) as f64).round() as usize;
    // What is there can be seen.
    let eighths = if count > 0 { eighths.max(1) } else { 0 };
    match blocks {
        true => format!("{}{}", "\u{2588}".repeat(eighths / 8), EIGHTHS[eighths % 8]),
        false => "#".repeat(eighths.div_ceil(8)),
    }
}

/// One character for each value.
pub(super) fn sparkline(values: &[u64]) -> String {
    sparkline_of(values, has_blocks())
}

/// The same, of block characters or of plain ones.
pub(super) fn sparkline_of(values: &[u64], blocks: bool) -> String {
    const BLOCKS: [char; 8] =
        ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
    const PLAIN: [char; 8] = ['.', ':', '-', '=', '+', '*', '%', '#'];
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let steps = if blocks { BLOCKS } else { PLAIN };
    let step = |value: u64| match value {
        0 => ' ',
        value => steps[((value as f64 / most as f64 * 7.0).round() as usize).min(7)],
    };
    values.iter().map(|value| step(*value)).collect()
}

/// A histogram of durations on the scale 1, 2, 5, 10: counts by step, from the first step that holds something to the
/// last. A duration at the edge of a step may be counted with its neighbour, within the histogram's bound.
pub(super) fn duration_bars(durations: &Histogram) -> Vec<Bar> {
    let mut counts: Vec<(usize, u64)> = Vec::new();
    for bucket in durations.buckets() {
        let step = step_of(bucket.low + (bucket.high - bucket.low) / 2);
        match counts.last_mut() {
            Some((last, count)) if *last == step => *count += bucket.count,
            last => {
                let from = last.map_or(step, |(last, _)| *last + 1);
                counts.extend((from..step).map(|step| (step, 0)));
                counts.push((step, bucket.count));
            }
        }
    }
    let label = |step: usize| format!("{} - {}", edge(step), edge(step + 1));
    counts.into_iter().map(|(step, count)| Bar { label: label(step), count }).collect()
}

/// Durations below the first edge are in step 0.
fn step_of(ns: u64) -> usize {
    (1..).take_while(|step| edge_ns(*step) <= ns && *step < 57).last().unwrap_or(0)
}

fn edge_ns(step: usize) -> u64 {
    match step {
        0 => 0,
        step => [1, 2, 5][(step - 1) % 3] * 10u64.pow((step as u32 - 1) / 3),
    }
}

/// `1us`, `20ms`, `5s`.
fn edge(step: usize) -> String {
    let ns = edge_ns(step);
    match ns {
        0 => "0".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_steps_of_one_two_five() {
        let mut durations = Histogram::default();
        [30, 1_100, 1_900, 2_100, 6_000_000].into_iter().for_each(|ns| durations.add(ns));
        let bars: Vec<_> = duration_bars(&durations).into_iter().map(|b| (b.label, b.count)).collect();
        assert_eq!(bars[0], ("20ns - 50ns".to_owned(), 1));
        assert!(bars.contains(&("1us - 2us".to_owned(), 2)) && bars.contains(&("2us - 5us".to_owned(), 1)));
        assert_eq!(bars.last(), Some(&("5ms - 10ms".to_owned(), 1)));
        assert!(bars.contains(&("100us - 200us".to_owned(), 0)), "no holes: {bars:?}");
        assert_eq!((step_of(0), step_of(1), step_of(u64::MAX)), (0, 1, 56));
    }

    #[test]
    fn bars_fill_the_room_and_no_more() {
        let lines =
            [("a", 100), ("bb", 1), ("c", 0)].map(|(label, count)| Bar { label: label.to_owned(), count });
        let text = bars(&lines, 40);
        let lengths: Vec<usize> = text.lines().map(|line| line.trim_end().chars().count()).collect();
        assert!(lengths.iter().all(|length| *length <= 40) && lengths[0] > 35, "{text}");
        assert_eq!(bar(0, 10, 10, false), "");
        assert_eq!(bar(1, 1000, 10, false), "#");
        assert_eq!(sparkline(&[0, 1, 8]).chars().count(), 3);
    }
}
